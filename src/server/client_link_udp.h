/* UDP listener of one relay thread on one listening address; the link of all its clients. */
#ifndef TURN_CLIENT_LINK_UDP_H
#define TURN_CLIENT_LINK_UDP_H

#include "client_link.h"

struct client_link_udp {
    struct client_link link;
    struct udp_socket socket;
};

/* Opens the listener (SO_REUSEPORT: one a thread on the same address). 0 or -errno. */
int client_link_udp_open(struct client_link_udp *udp, const struct endpoint *local, int buffer_bytes);
void client_link_udp_close(struct client_link_udp *udp);

#endif
