/* Linux: offloads, ancillary data and the ICMP error queue of a UDP socket. */
#include "udp_socket_private.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/udp.h>

enum { MAX_SKIPPED_ERRORS = 64 };

int udp_platform_open(int family) {
    int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return fd < 0 ? -errno : fd;
}

static bool switch_on(int fd, int level, int option) {
    int on = 1;
    return setsockopt(fd, level, option, &on, sizeof on) == 0;
}

static void set_options_v4(struct udp_socket *socket, bool packet_info, bool error_queue) {
    int never = IP_PMTUDISC_DONT;
    (void)switch_on(socket->fd, IPPROTO_IP, IP_RECVTOS);
    (void)setsockopt(socket->fd, IPPROTO_IP, IP_MTU_DISCOVER, &never, sizeof never);
    socket->packet_info = packet_info && switch_on(socket->fd, IPPROTO_IP, IP_PKTINFO);
    socket->error_queue = error_queue && switch_on(socket->fd, IPPROTO_IP, IP_RECVERR);
}

static void set_options_v6(struct udp_socket *socket, bool packet_info, bool error_queue) {
    int off = 0;
    (void)switch_on(socket->fd, IPPROTO_IPV6, IPV6_RECVTCLASS);
    /* A flow label from the kernel hashes every datagram and tells a relay's peers nothing. */
    (void)setsockopt(socket->fd, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, &off, sizeof off);
    socket->packet_info = packet_info && switch_on(socket->fd, IPPROTO_IPV6, IPV6_RECVPKTINFO);
    socket->error_queue = error_queue && switch_on(socket->fd, IPPROTO_IPV6, IPV6_RECVERR);
}

void udp_platform_set_options(struct udp_socket *socket, const struct udp_socket_params *params) {
    bool packet_info = endpoint_is_unspecified(&params->local);
    if (params->local.family == AF_INET) {
        set_options_v4(socket, packet_info, params->error_queue);
    } else {
        set_options_v6(socket, packet_info, params->error_queue);
    }
    (void)switch_on(socket->fd, SOL_SOCKET, SO_RXQ_OVFL);
    socket->gro = params->gro && switch_on(socket->fd, IPPROTO_UDP, UDP_GRO);
    socket->gro_refused = params->gro && !socket->gro;
    /* A kernel that does not know the option would ignore it as control data too and send a run as one
     * large datagram, so it is asked for here, not by a first try. */
    int size;
    socklen_t n = sizeof size;
    socket->gso = getsockopt(socket->fd, IPPROTO_UDP, UDP_SEGMENT, &size, &n) == 0;
}

int udp_platform_set_buffer(int fd, int option, int n_bytes) {
    int force = option == SO_RCVBUF ? SO_RCVBUFFORCE : SO_SNDBUFFORCE;
    if (n_bytes > 0 && setsockopt(fd, SOL_SOCKET, force, &n_bytes, sizeof n_bytes) < 0) {
        (void)setsockopt(fd, SOL_SOCKET, option, &n_bytes, sizeof n_bytes);
    }
    int granted = 0;
    socklen_t n = sizeof granted;
    (void)getsockopt(fd, SOL_SOCKET, option, &granted, &n);
    return granted / 2; /* the kernel counts its own overhead and shows twice what was asked */
}

/* Reads the extended error out of one message of the error queue; NULL when it carries none. */
static const struct sock_extended_err *find_extended_error(struct msghdr *message) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        bool v4 = c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR;
        bool v6 = c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR;
        if ((v4 || v6) && c->cmsg_len >= CMSG_LEN(sizeof(struct sock_extended_err))) {
            return (const struct sock_extended_err *)CMSG_DATA(c);
        }
    }
    return NULL;
}

/* Takes one entry. 1 when an ICMP message caused it, 0 when something else did, or -errno. */
static int take_error(int fd, struct udp_error *out) {
    union endpoint_sockaddr name = {0};
    _Alignas(struct cmsghdr) uint8_t control[512];
    uint8_t byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = sizeof byte};
    struct msghdr message = {.msg_name = &name,
                             .msg_namelen = sizeof name,
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
        return -errno;
    }
    const struct sock_extended_err *e = find_extended_error(&message);
    if (e == NULL || (e->ee_origin != SO_EE_ORIGIN_ICMP && e->ee_origin != SO_EE_ORIGIN_ICMP6)) {
        return 0;
    }
    *out = (struct udp_error){.icmp_type = e->ee_type,
                              .icmp_code = e->ee_code,
                              .info = e->ee_errno == EMSGSIZE ? e->ee_info : 0,
                              .error = (int)e->ee_errno};
    endpoint_from_sockaddr(&out->peer, &name.sa);
    return 1;
}

int udp_socket_next_error(struct udp_socket *socket, struct udp_error *out) {
    for (int i = 0; i < MAX_SKIPPED_ERRORS; i++) {
        int result = take_error(socket->fd, out);
        if (result == -EAGAIN) {
            return 0;
        }
        if (result != 0 && result != -EINTR) {
            return result;
        }
    }
    return 0;
}
