/* Systems without the Linux socket options: none of the offloads, and ICMP errors are not seen. */
#include "udp_socket_private.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int udp_platform_open(int family) {
    int fd = socket(family, SOCK_DGRAM, 0);
    if (fd < 0) {
        return -errno;
    }
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        int err = -errno;
        (void)close(fd);
        return err;
    }
    return fd;
}

void udp_platform_set_options(struct udp_socket *socket, const struct udp_socket_params *params) {
    socket->gro_refused = false; /* there is nothing to refuse it */
#ifdef IP_MTU_DISCOVER
    int never = IP_PMTUDISC_DONT;
    if (params->local.family == AF_INET) {
        (void)setsockopt(socket->fd, IPPROTO_IP, IP_MTU_DISCOVER, &never, sizeof never);
    }
#else
    (void)params;
#endif
}

int udp_platform_set_buffer(int fd, int option, int n_bytes) {
    if (n_bytes > 0) {
        (void)setsockopt(fd, SOL_SOCKET, option, &n_bytes, sizeof n_bytes);
    }
    int granted = 0;
    socklen_t n = sizeof granted;
    (void)getsockopt(fd, SOL_SOCKET, option, &granted, &n);
    return granted;
}

int udp_socket_next_error(struct udp_socket *socket, struct udp_error *out) {
    (void)socket;
    (void)out;
    return 0;
}
