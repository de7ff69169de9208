#include "udp_socket.h"

#include <errno.h>
#include <unistd.h>

#include "udp_socket_private.h"

static int socket_configure(struct udp_socket *socket, const struct udp_socket_params *params) {
    int on = 1;
    if (params->reuse_port && setsockopt(socket->fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) < 0) {
        return -errno;
    }
    /* An IPv6 wildcard must leave IPv4 to its own socket; a system without the option never mixes them. */
    if (params->local.family == AF_INET6) {
        (void)setsockopt(socket->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    udp_platform_set_options(socket, params);
    socket->receive_buffer_bytes = udp_platform_set_buffer(socket->fd, SO_RCVBUF, params->buffer_bytes);
    socket->send_buffer_bytes = udp_platform_set_buffer(socket->fd, SO_SNDBUF, params->buffer_bytes);
    return 0;
}

static int socket_bind(struct udp_socket *socket, const struct endpoint *local) {
    union endpoint_sockaddr address;
    socklen_t n = endpoint_to_sockaddr(&address, local);
    if (bind(socket->fd, &address.sa, n) < 0) {
        return -errno;
    }
    n = sizeof address;
    if (getsockname(socket->fd, &address.sa, &n) < 0) {
        return -errno;
    }
    endpoint_from_sockaddr(&socket->local, &address.sa);
    return 0;
}

int udp_socket_open(struct udp_socket *socket, const struct udp_socket_params *params) {
    *socket = (struct udp_socket){.fd = -1};
    if (params->local.family != AF_INET && params->local.family != AF_INET6) {
        return -EAFNOSUPPORT;
    }
    int fd = udp_platform_open(params->local.family);
    if (fd < 0) {
        return fd;
    }
    socket->fd = fd;
    int err = socket_configure(socket, params);
    if (err == 0) {
        err = socket_bind(socket, &params->local);
    }
    if (err < 0) {
        udp_socket_close(socket);
        *socket = (struct udp_socket){.fd = -1};
    }
    return err;
}

void udp_socket_close(struct udp_socket *socket) {
    if (socket->fd >= 0) {
        (void)close(socket->fd);
        socket->fd = -1;
    }
}
