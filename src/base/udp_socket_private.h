/* What udp_socket.c asks of the operating system's own options; one file a platform. Private to base. */
#ifndef TURN_UDP_SOCKET_PRIVATE_H
#define TURN_UDP_SOCKET_PRIVATE_H

#include "udp_socket.h"

/* Opens a non-blocking, close-on-exec datagram socket. The descriptor or -errno. */
int udp_platform_open(int family);

/* Sets the options that only this platform has and notes in *socket what was granted. Before bind. */
void udp_platform_set_options(struct udp_socket *socket, const struct udp_socket_params *params);

/* Asks for a buffer of n_bytes (option is SO_RCVBUF or SO_SNDBUF), past the system's limit where allowed,
 * and returns what was granted in the same unit. n_bytes 0 only reads. */
int udp_platform_set_buffer(int fd, int option, int n_bytes);

#endif
