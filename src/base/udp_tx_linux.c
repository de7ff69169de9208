/* Linux sending: the runs of a socket leave in one sendmmsg, each with its own control data and segment size.
 * A message that fails is settled alone: tried again when the error may be another's, taken apart when it is
 * a run, counted when it is lost. */
#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "udp_batch_private.h"

enum {
    MAX_MESSAGES = 1024, /* the kernel takes no more in one sendmmsg */
    CONTROL_BYTES = 128, /* segment size, TOS, packet info, no-fragment */
    REFUSED_TRIES = 4,   /* ECONNREFUSED is always another datagram's; it can come again in between */
    BLOCKED_MAX = 2,     /* messages in a row that find the send buffer full before the rest is dropped */
};
static_assert(TX_RUN_MAX_SEGMENTS * 2 <= 1024, "UIO_MAXIOV: two pieces for each segment");
static_assert(CONTROL_BYTES >= CMSG_SPACE(sizeof(uint16_t)) + 2 * CMSG_SPACE(sizeof(int)) +
                                   CMSG_SPACE(sizeof(struct in6_pktinfo)),
              "all control data of a message");

enum segment_support { SEGMENT_UNTRIED, SEGMENT_WORKS, SEGMENT_REFUSED };

struct tx_sender {
    struct mmsghdr *messages;
    struct iovec *iov;                    /* two for each datagram of a batch */
    uint8_t *control;                     /* CONTROL_BYTES for each message */
    uint16_t runs[MAX_MESSAGES];          /* of each message */
    uint8_t n_datagrams_of[MAX_MESSAGES]; /* of each message */
    uint32_t n_messages, n_iov;
    bool no_sendmmsg;
    enum segment_support segment_support;
};

/* What the flush of one queue carries along. */
struct tx_progress {
    struct tx_batch *batch;
    struct udp_socket *socket;
    uint64_t now_us;
    uint32_t n_blocked; /* messages in a row that found the send buffer full */
    int stop_err;       /* not 0: what is left of this socket is dropped as this */
};

bool tx_sender_can_group(void) {
    return true;
}

int tx_sender_create(struct tx_sender **out) {
    struct tx_sender *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return -ENOMEM;
    }
    *out = s; /* the batch destroys it, half-built too */
    s->messages = calloc(MAX_MESSAGES, sizeof *s->messages);
    s->iov = calloc((size_t)2 * TX_CAPACITY, sizeof *s->iov);
    s->control = calloc(MAX_MESSAGES, CONTROL_BYTES);
    if (s->messages == NULL || s->iov == NULL || s->control == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < MAX_MESSAGES; i++) {
        s->messages[i].msg_hdr.msg_control = s->control + (size_t)i * CONTROL_BYTES;
    }
    return 0;
}

void tx_sender_destroy(struct tx_sender *s) {
    if (s == NULL) {
        return;
    }
    free(s->control);
    free(s->iov);
    free(s->messages);
    free(s);
}

/* ---- building messages ---- */

static inline uint8_t *put_control(uint8_t *at, int level, int type, const void *value, size_t n) {
    struct cmsghdr *c = (struct cmsghdr *)at;
    c->cmsg_level = level;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(n);
    memcpy(CMSG_DATA(c), value, n);
    return at + CMSG_SPACE(n);
}

static uint8_t *put_source(uint8_t *at, const struct endpoint *from) {
    if (from->family == AF_INET) {
        struct in_pktinfo info = {0}; /* the interface is left to routing */
        memcpy(&info.ipi_spec_dst, from->ip, 4);
        return put_control(at, IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
    }
    struct in6_pktinfo info = {0};
    memcpy(&info.ipi6_addr, from->ip, 16);
    return put_control(at, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info);
}

/* Writes the control data of a message of n datagrams; returns its length. */
static size_t write_control(uint8_t *control, const struct tx_run *run, uint32_t n, uint8_t tos) {
    uint8_t *at = control;
    bool v4 = run->to.family == AF_INET;
    if (n > 1) {
        at = put_control(at, IPPROTO_UDP, UDP_SEGMENT, &run->segment_bytes, sizeof run->segment_bytes);
    }
    if (tos != 0) {
        int value = tos;
        at = v4 ? put_control(at, IPPROTO_IP, IP_TOS, &value, sizeof value)
                : put_control(at, IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof value);
    }
    if (run->has_from) {
        at = put_source(at, &run->from);
    }
    if (run->dont_fragment && !v4) {
        int on = 1;
        at = put_control(at, IPPROTO_IPV6, IPV6_DONTFRAG, &on, sizeof on);
    }
    return (size_t)(at - control);
}

/* The pieces of one datagram; returns how many (a datagram without bytes is one empty piece). */
static inline uint32_t put_pieces(struct iovec *iov, const struct tx_entry *entry) {
    uint32_t n = 0;
    if (entry->n_head > 0) {
        iov[n++] = (struct iovec){.iov_base = (void *)entry->head, .iov_len = entry->n_head};
    }
    iov[n++] = (struct iovec){.iov_base = (void *)entry->body, .iov_len = entry->n_body};
    return n;
}

static void load_message(struct tx_sender *s, const struct tx_backend *b, uint16_t run_index) {
    struct tx_run *run = &b->runs[run_index];
    uint32_t index = s->n_messages++;
    struct msghdr *m = &s->messages[index].msg_hdr;
    struct iovec *iov = &s->iov[s->n_iov];
    uint32_t n_pieces = 0;
    for (uint32_t e = run->first; e != TX_NONE; e = b->entries[e].next) {
        n_pieces += put_pieces(&iov[n_pieces], &b->entries[e]);
    }
    s->n_iov += n_pieces;
    m->msg_iov = iov;
    m->msg_iovlen = n_pieces;
    m->msg_namelen = endpoint_to_kernel(&run->address, &run->to);
    m->msg_name = &run->address;
    bool plain = run->n == 1 && run->tos == 0 && !run->has_from && !run->dont_fragment;
    m->msg_controllen = plain ? 0 : write_control(m->msg_control, run, run->n, run->tos);
    s->runs[index] = run_index;
    s->n_datagrams_of[index] = run->n;
}

/* IPv4 has no "do not fragment" for a message: the socket is switched around those that ask for it. Only the
 * socket's own thread sends on it, so nothing else leaves in between. */
static bool needs_switch(const struct tx_run *run) {
    return run->dont_fragment && run->to.family == AF_INET;
}

/* Loads messages from run `index` on, all with or all without the switch; returns the run after them. */
static uint16_t load_chunk(struct tx_sender *s, const struct tx_backend *b, uint16_t index) {
    bool switched = needs_switch(&b->runs[index]);
    s->n_messages = s->n_iov = 0;
    do {
        load_message(s, b, index);
        index = b->runs[index].next;
    } while (index != TX_NONE && s->n_messages < MAX_MESSAGES && needs_switch(&b->runs[index]) == switched);
    return index;
}

/* ---- counting ---- */

static void count_sent(struct tx_counters *counters, const uint8_t *n_datagrams_of, uint32_t n_messages) {
    uint64_t n_datagrams = 0, n_singles = 0;
    for (uint32_t i = 0; i < n_messages; i++) {
        uint32_t n = n_datagrams_of[i];
        n_datagrams += n;
        if (n == 1) {
            n_singles++;
        } else {
            histogram_add(&counters->run_length, n, 1);
        }
    }
    counter_add(&counters->datagrams, n_datagrams);
    if (n_singles > 0) {
        histogram_add(&counters->run_length, 1, n_singles);
    }
    if (n_singles < n_messages) {
        counter_add(&counters->gso_messages, n_messages - n_singles);
        counter_add(&counters->gso_datagrams, n_datagrams - n_singles);
    }
}

/* Counts a loss, and decides whether it is worth going on with this socket. */
static void lose(struct tx_progress *p, int err, uint32_t n_datagrams) {
    tx_count_drop(&p->batch->counters, err, n_datagrams);
    if (err == EBADF || err == ENOTSOCK) {
        p->stop_err = err;
    } else if ((err == EAGAIN || err == ENOBUFS) && ++p->n_blocked == BLOCKED_MAX) {
        p->stop_err = err;
    }
}

/* ---- system calls ---- */

/* Sends messages from `first` on. How many went, or -errno of the first. */
static int send_messages(struct tx_progress *p, uint32_t first, uint32_t n) {
    struct tx_backend *b = p->batch->backend;
    struct tx_sender *s = b->sender;
    counter_add(&p->batch->counters.calls, 1);
    if (n > 1 && b->batched && !s->no_sendmmsg) {
        int sent = b->syscalls->sendmmsg(p->socket->fd, &s->messages[first], n, MSG_DONTWAIT);
        if (sent >= 0) {
            return sent > 0 ? sent : -EIO; /* 0 is not an answer the kernel gives; never loop over it */
        }
        if (errno != ENOSYS) {
            return -errno;
        }
        s->no_sendmmsg = true;
        log_warning("event=sendmmsg_unavailable fallback=sendmsg");
        counter_add(&p->batch->counters.calls, 1);
    }
    ssize_t n_bytes = b->syscalls->sendmsg(p->socket->fd, &s->messages[first].msg_hdr, MSG_DONTWAIT);
    return n_bytes < 0 ? -errno : 1;
}

/* True when the error may belong to another datagram, or to none: then the same message is tried again. */
static bool may_be_anothers(const struct udp_socket *socket, int err, uint32_t n_tries) {
    if (err == EINTR || (err == ECONNREFUSED && socket->error_queue)) {
        return n_tries < REFUSED_TRIES;
    }
    return n_tries == 0 && socket->error_queue && udp_error_is_pending_kind(err);
}

/* Sends one datagram of a run by itself. 0 or the errno that stays. */
static int send_single(struct tx_progress *p, struct tx_run *run, const struct tx_entry *entry, uint8_t tos) {
    struct tx_backend *b = p->batch->backend;
    _Alignas(struct cmsghdr) uint8_t control[CONTROL_BYTES];
    struct iovec iov[2];
    struct msghdr m = {.msg_name = &run->address, .msg_iov = iov, .msg_control = control};
    m.msg_namelen = endpoint_to_kernel(&run->address, &run->to);
    m.msg_iovlen = put_pieces(iov, entry);
    m.msg_controllen = write_control(control, run, 1, tos);
    for (uint32_t n_tries = 0;; n_tries++) {
        counter_add(&p->batch->counters.calls, 1);
        if (b->syscalls->sendmsg(p->socket->fd, &m, MSG_DONTWAIT) >= 0) {
            return 0;
        }
        int err = errno;
        if (!may_be_anothers(p->socket, err, n_tries)) {
            return err;
        }
    }
}

/* ---- settling failures ---- */

/* The answer of a kernel or device that does not like the control data. */
static bool may_be_refused_control(int err) {
    return err == EINVAL || err == EIO || err == EOPNOTSUPP || err == ENOPROTOOPT;
}

/* Errors that a datagram alone would meet too: sending a run again as singles is of no use. */
static bool concerns_singles_too(int err) {
    switch (err) {
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
    case EPERM:
    case EACCES:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case ECONNREFUSED:
    case EADDRNOTAVAIL:
    case EBADF:
    case ENOTSOCK:
        return true;
    default:
        return false;
    }
}

/* Two datagrams as one message from one loopback socket to itself. */
static int send_probe(const struct udp_syscalls *syscalls, int fd) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    if (bind(fd, (struct sockaddr *)&address, n) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &n) < 0) {
        return 0;
    }
    uint8_t bytes[2] = {0};
    uint16_t segment_bytes = 1;
    _Alignas(struct cmsghdr) uint8_t control[CONTROL_BYTES];
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};
    struct msghdr m = {.msg_name = &address,
                       .msg_namelen = sizeof address,
                       .msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control};
    uint8_t *end = put_control(control, IPPROTO_UDP, UDP_SEGMENT, &segment_bytes, sizeof segment_bytes);
    m.msg_controllen = (size_t)(end - control);
    return syscalls->sendmsg(fd, &m, MSG_DONTWAIT) < 0 ? errno : 0;
}

/* Tells a kernel without UDP_SEGMENT from a destination that cannot be reached with it. */
static enum segment_support probe_segments(const struct udp_syscalls *syscalls) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return SEGMENT_UNTRIED;
    }
    int err = send_probe(syscalls, fd);
    (void)close(fd);
    return err == ENOPROTOOPT || err == EOPNOTSUPP ? SEGMENT_REFUSED : SEGMENT_WORKS;
}

/* Remembers that this destination, or this kernel, does not take runs. */
static void remember_refusal(struct tx_progress *p, struct tx_run *run, int err) {
    struct tx_sender *s = p->batch->backend->sender;
    run->flow->gso_off_until_us = p->now_us + TX_GSO_PAUSE_US;
    if (err != ENOPROTOOPT && err != EOPNOTSUPP) {
        return;
    }
    if (s->segment_support == SEGMENT_UNTRIED) {
        s->segment_support = probe_segments(p->batch->backend->syscalls);
        if (s->segment_support == SEGMENT_REFUSED) {
            log_warning("event=udp_segment_unavailable error=%d fallback=single_datagrams", err);
        }
    }
    if (s->segment_support == SEGMENT_REFUSED) {
        p->socket->gso = false;
    }
}

/* Sends the datagrams of a run, in order and each by itself, with the TOS as long as it is not refused. */
static void send_apart(struct tx_progress *p, struct tx_run *run, uint8_t tos) {
    struct tx_backend *b = p->batch->backend;
    for (uint32_t e = run->first; e != TX_NONE; e = b->entries[e].next) {
        if (p->stop_err != 0) {
            tx_count_drop(&p->batch->counters, p->stop_err, 1);
            continue;
        }
        int err = send_single(p, run, &b->entries[e], tos);
        if (tos != 0 && may_be_refused_control(err)) {
            err = send_single(p, run, &b->entries[e], 0);
            tos = err == 0 ? 0 : tos;
        }
        if (err != 0) {
            lose(p, err, 1);
            continue;
        }
        p->n_blocked = 0;
        counter_add(&p->batch->counters.datagrams, 1);
        histogram_add(&p->batch->counters.run_length, 1, 1);
    }
}

/* The message of this run failed for good with err. */
static void settle_failure(struct tx_progress *p, struct tx_run *run, int err) {
    if (run->n > 1 && !concerns_singles_too(err)) {
        counter_add(&p->batch->counters.gso_fallbacks, 1);
        remember_refusal(p, run, err);
        send_apart(p, run, run->tos);
    } else if (run->n == 1 && run->tos != 0 && may_be_refused_control(err)) {
        send_apart(p, run, 0);
    } else {
        lose(p, err, run->n);
    }
}

static void send_chunk(struct tx_progress *p) {
    struct tx_backend *b = p->batch->backend;
    struct tx_sender *s = b->sender;
    uint32_t at = 0, n_tries = 0;
    while (at < s->n_messages) {
        struct tx_run *run = &b->runs[s->runs[at]];
        if (p->stop_err != 0) {
            tx_count_drop(&p->batch->counters, p->stop_err, run->n);
            at++;
            continue;
        }
        int sent = send_messages(p, at, s->n_messages - at);
        if (sent > 0) {
            count_sent(&p->batch->counters, &s->n_datagrams_of[at], (uint32_t)sent);
            at += (uint32_t)sent;
            p->n_blocked = 0;
        } else if (may_be_anothers(p->socket, -sent, n_tries)) {
            n_tries++;
            continue;
        } else {
            settle_failure(p, run, -sent);
            at++;
        }
        n_tries = 0;
    }
}

static int switch_fragmenting(struct tx_progress *p, int mode) {
    const struct udp_syscalls *syscalls = p->batch->backend->syscalls;
    return syscalls->setsockopt(p->socket->fd, IPPROTO_IP, IP_MTU_DISCOVER, &mode, sizeof mode) < 0 ? errno
                                                                                                    : 0;
}

/* A chunk that must not be fragmented. Where the socket cannot be told so, it is lost: sending it in pieces
 * would answer the question the client asked wrongly (RFC 8656, 12). */
static void send_chunk_unfragmented(struct tx_progress *p) {
    int err = switch_fragmenting(p, IP_PMTUDISC_DO);
    if (err != 0) {
        tx_count_drop(&p->batch->counters, err, p->batch->backend->sender->n_messages);
        return;
    }
    send_chunk(p);
    (void)switch_fragmenting(p, IP_PMTUDISC_DONT);
}

void tx_sender_send(struct tx_batch *batch, const struct tx_queue *queue, uint64_t now_us) {
    struct tx_backend *b = batch->backend;
    struct tx_progress p = {.batch = batch, .socket = queue->socket, .now_us = now_us};
    uint16_t next = queue->first;
    while (next != TX_NONE) {
        bool switched = needs_switch(&b->runs[next]);
        next = load_chunk(b->sender, b, next);
        if (switched) {
            send_chunk_unfragmented(&p);
        } else {
            send_chunk(&p);
        }
    }
}
