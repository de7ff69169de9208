#include "fake_udp_kernel.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "udp_loopback.h"

#ifdef TURN_UDP_BACKEND_LINUX
#include <netinet/udp.h>
#endif

struct fake_udp_kernel fake_udp_kernel;

/* What no caller of the kernel may do. */
static void check(bool right) {
    if (!right) {
        abort();
    }
}

void fake_udp_kernel_reset(void) {
    memset(&fake_udp_kernel, 0, sizeof fake_udp_kernel);
    fake_udp_kernel.fail_seq = FAKE_UDP_NO_SEQ;
}

static uint32_t seq_of(const uint8_t *bytes, size_t n_bytes) {
    uint32_t seq = 0;
    for (size_t i = 0; i < 4 && i < n_bytes; i++) {
        seq |= (uint32_t)bytes[i] << (8 * i);
    }
    return seq;
}

static uint16_t port_of(const struct sockaddr *sa) {
    struct endpoint e;
    endpoint_from_sockaddr(&e, sa);
    return e.port;
}

/* A message as the fake kernel understood it. */
struct message {
    const uint8_t *bytes;
    size_t n_bytes;
    size_t segment_bytes;
    uint16_t port;
    uint8_t tos;
    bool no_fragment;
};

static bool in_window(uint32_t from, uint32_t times) {
    return fake_udp_kernel.n_attempts >= from && fake_udp_kernel.n_attempts < from + times;
}

/* The errno that this attempt meets, or 0. */
static int fault_of(const struct message *m) {
    if (fake_udp_kernel.pending_err != 0 &&
        in_window(fake_udp_kernel.pending_at, fake_udp_kernel.pending_times)) {
        return fake_udp_kernel.pending_err;
    }
    if (fake_udp_kernel.blocked_err != 0 &&
        in_window(fake_udp_kernel.blocked_from, fake_udp_kernel.blocked_times)) {
        return fake_udp_kernel.blocked_err;
    }
    if (fake_udp_kernel.run_err != 0 && m->segment_bytes > 0 &&
        (fake_udp_kernel.run_err_port == 0 || fake_udp_kernel.run_err_port == m->port)) {
        return fake_udp_kernel.run_err;
    }
    if (fake_udp_kernel.tos_err != 0 && m->tos != 0) {
        return fake_udp_kernel.tos_err;
    }
    size_t step = m->segment_bytes > 0 ? m->segment_bytes : m->n_bytes;
    for (size_t at = 0; at < m->n_bytes && fake_udp_kernel.fail_seq != FAKE_UDP_NO_SEQ; at += step) {
        if (seq_of(m->bytes + at, m->n_bytes - at) == (uint32_t)fake_udp_kernel.fail_seq) {
            return fake_udp_kernel.fail_seq_err;
        }
    }
    return 0;
}

static int take_message(const struct message *m) {
    int err = fault_of(m);
    fake_udp_kernel.n_attempts++;
    if (err != 0) {
        return err;
    }
    size_t step = m->segment_bytes > 0 ? m->segment_bytes : m->n_bytes;
    size_t at = 0;
    do {
        size_t left = m->n_bytes - at;
        size_t n = left < step ? left : step;
        check(fake_udp_kernel.n_sent < FAKE_UDP_MAX_SENT);
        struct fake_udp_sent *s = &fake_udp_kernel.sent[fake_udp_kernel.n_sent++];
        s->seq = seq_of(m->bytes + at, n);
        s->n_bytes = (uint32_t)n;
        s->port = m->port;
        s->tos = m->tos;
        s->in_run = m->segment_bytes > 0;
        s->no_fragment = m->no_fragment || fake_udp_kernel.no_fragment;
        check(datagram_matches(m->bytes + at, n, s->seq));
        at += n;
    } while (at < m->n_bytes);
    return 0;
}

static int fake_setsockopt(int fd, int level, int option, const void *value, socklen_t n) {
    (void)fd;
    (void)n;
#ifdef IP_MTU_DISCOVER
    if (level == IPPROTO_IP && option == IP_MTU_DISCOVER) {
        fake_udp_kernel.n_switches++;
        if (fake_udp_kernel.setsockopt_err != 0) {
            errno = fake_udp_kernel.setsockopt_err;
            return -1;
        }
        fake_udp_kernel.no_fragment = *(const int *)value == IP_PMTUDISC_DO;
    }
#endif
    return 0;
}

#ifdef TURN_UDP_BACKEND_LINUX

static uint8_t gathered[65536];

static struct message read_message(const struct msghdr *h) {
    struct message m = {.bytes = gathered, .port = port_of(h->msg_name)};
    for (size_t i = 0; i < h->msg_iovlen; i++) {
        check(m.n_bytes + h->msg_iov[i].iov_len <= sizeof gathered);
        memcpy(gathered + m.n_bytes, h->msg_iov[i].iov_base, h->msg_iov[i].iov_len);
        m.n_bytes += h->msg_iov[i].iov_len;
    }
    struct msghdr copy = *h; /* CMSG_NXTHDR does not take a const one */
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&copy); c != NULL; c = CMSG_NXTHDR(&copy, c)) {
        int value = 0;
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_SEGMENT) {
            uint16_t size;
            check(c->cmsg_len == CMSG_LEN(sizeof size));
            memcpy(&size, CMSG_DATA(c), sizeof size);
            m.segment_bytes = size;
            check(m.n_bytes > size); /* never for a run of one */
            continue;
        }
        memcpy(&value, CMSG_DATA(c), sizeof value);
        if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
            (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)) {
            m.tos = (uint8_t)value;
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_DONTFRAG) {
            m.no_fragment = value != 0;
        }
    }
    return m;
}

static ssize_t fake_sendmsg(int fd, const struct msghdr *h, int flags) {
    check((flags & MSG_DONTWAIT) != 0);
    if (fd != FAKE_UDP_FD) { /* the self check: it fails only where runs fail everywhere */
        errno = fake_udp_kernel.run_err;
        return fake_udp_kernel.run_err != 0 && fake_udp_kernel.run_err_port == 0 ? -1 : 2;
    }
    fake_udp_kernel.n_calls++;
    struct message m = read_message(h);
    int err = h->msg_namelen > 0 ? take_message(&m) : EDESTADDRREQ;
    if (err != 0) {
        errno = err;
        return -1;
    }
    return (ssize_t)m.n_bytes;
}

static int fake_sendmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags) {
    uint32_t n_calls = ++fake_udp_kernel.n_calls;
    check(n > 0 && n <= 1024);
    if (fake_udp_kernel.sendmmsg_err != 0) {
        errno = fake_udp_kernel.sendmmsg_err;
        return -1;
    }
    unsigned i = 0;
    while (i < n && fake_sendmsg(fd, &messages[i].msg_hdr, flags) >= 0) {
        i++;
    }
    fake_udp_kernel.n_calls = n_calls;
    return i > 0 ? (int)i : -1;
}

const struct udp_syscalls fake_udp_syscalls = {
    .sendmmsg = fake_sendmmsg, .sendmsg = fake_sendmsg, .setsockopt = fake_setsockopt};

#else

static ssize_t fake_sendto(int fd, const void *bytes, size_t n, int flags, const struct sockaddr *to,
                           socklen_t n_to) {
    (void)fd;
    (void)flags;
    (void)n_to;
    fake_udp_kernel.n_calls++;
    const struct message m = {.bytes = bytes, .n_bytes = n, .port = port_of(to)};
    int err = take_message(&m);
    if (err != 0) {
        errno = err;
        return -1;
    }
    return (ssize_t)n;
}

const struct udp_syscalls fake_udp_syscalls = {.sendto = fake_sendto, .setsockopt = fake_setsockopt};

#endif
