/* A bound, non-blocking UDP socket and what the kernel granted it. Owned by one thread. */
#ifndef TURN_UDP_SOCKET_H
#define TURN_UDP_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "endpoint.h"

struct udp_socket {
    int fd;                /* -1: closed */
    struct endpoint local; /* as bound, the port filled in */
    bool packet_info;      /* bound to a wildcard: the local address comes and goes with each message */
    bool gro;              /* UDP_GRO granted */
    bool gso;              /* UDP_SEGMENT not refused so far */
    bool error_queue;      /* IP_RECVERR on: ICMP errors wait in the error queue */
    bool gro_refused;      /* asked for and not granted */
    uint32_t kernel_drops; /* SO_RXQ_OVFL as last seen */
    int receive_buffer_bytes,
        send_buffer_bytes;            /* granted, in the unit of buffer_bytes: less means clamped */
    uint32_t tx_generation, tx_queue; /* the send batch's note of its queue for this socket; private to it */
};

struct udp_socket_params {
    struct endpoint local;
    bool reuse_port;  /* SO_REUSEPORT: one socket a thread on the same address */
    bool gro;         /* ask for UDP_GRO */
    bool error_queue; /* ask for ICMP errors */
    int buffer_bytes; /* wanted SO_RCVBUF and SO_SNDBUF; 0 leaves the default. *_FORCE is tried first */
};

/* Opens, sets and binds. TOS/traffic class and SO_RXQ_OVFL are always asked for; packet info when local is
 * unspecified; path MTU discovery is off (DF clear) on IPv4. An option the kernel refuses leaves its flag
 * false and is not an error. Returns 0 or -errno with socket->fd == -1. */
int udp_socket_open(struct udp_socket *socket, const struct udp_socket_params *params);
void udp_socket_close(struct udp_socket *socket);

/* One ICMP error taken from the error queue. */
struct udp_error {
    struct endpoint peer; /* where the datagram had gone */
    uint8_t icmp_type, icmp_code;
    uint32_t info; /* MTU for "too big", else 0 */
    int error;     /* errno as the kernel maps it */
};
/* Takes the next error that an ICMP message caused. Returns 1, 0 when the queue is empty, or -errno. */
int udp_socket_next_error(struct udp_socket *socket, struct udp_error *out);

#endif
