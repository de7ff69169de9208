/* What the shared part of the UDP batches and its back ends agree on, and the seam through which tests make
 * system calls fail. Private to base and its tests.
 *
 * Order. A datagram joins only the newest run of its flow (tx_flow.run names it), or opens a newer one;
 * inside a run datagrams are chained as they come; a socket's runs are chained as they are opened and sent in
 * that order; what has to be sent again is sent before the next run. So two datagrams of one flow and socket
 * never change places. */
#ifndef TURN_UDP_BATCH_PRIVATE_H
#define TURN_UDP_BATCH_PRIVATE_H

#include <sys/types.h>

#include "udp_batch.h"

enum {
    TX_CAPACITY = 4096,             /* datagrams between two flushes */
    TX_SCRATCH_BYTES = 512 * 1024,  /* headers and replies of a full batch */
    TX_DATAGRAM_MAX_BYTES = 65535,  /* no UDP datagram is larger */
    TX_NONE = 0xffff,               /* ends a chain of 16-bit indexes */
    TX_GSO_PAUSE_US = 10 * 1000000, /* a destination that refused a run gets singles for so long */
};
static_assert(TX_CAPACITY <= TX_NONE, "datagrams and runs are chained by 16-bit indexes");

struct mmsghdr;

/* The system calls on the data path. */
struct udp_syscalls {
    int (*sendmmsg)(int fd, struct mmsghdr *messages, unsigned n, int flags);
    ssize_t (*sendmsg)(int fd, const struct msghdr *message, int flags);
    int (*recvmmsg)(int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout);
    ssize_t (*recvmsg)(int fd, struct msghdr *message, int flags);
    ssize_t (*sendto)(int fd, const void *bytes, size_t n, int flags, const struct sockaddr *to,
                      socklen_t n_to);
    ssize_t (*recvfrom)(int fd, void *bytes, size_t n, int flags, struct sockaddr *from, socklen_t *n_from);
    int (*setsockopt)(int fd, int level, int option, const void *value, socklen_t n);
};

/* A queued datagram. The body is never empty unless the whole datagram is. */
struct tx_entry {
    const uint8_t *head, *body;
    uint32_t n_body;
    uint16_t n_head;
    uint16_t next; /* in the run, or TX_NONE */
};
static_assert(sizeof(struct tx_entry) == 24, "one entry for every datagram: keep it small");

/* Datagrams that leave as one message. The first cache line is all that adding looks at. */
struct tx_run {
    _Alignas(64) struct udp_socket *socket;
    struct tx_flow *flow; /* NULL: never grouped */
    struct endpoint to;
    uint16_t first, last;   /* entries */
    uint16_t next;          /* run of the same socket, or TX_NONE */
    uint16_t segment_bytes; /* of the first datagram */
    uint16_t takes_bytes;   /* largest datagram that may join; 0: none may */
    uint8_t n, n_max;       /* datagrams in it, and at most */
    uint8_t tos;
    bool dont_fragment;
    bool has_from;
    _Alignas(64) struct endpoint from;
    union endpoint_sockaddr address; /* of `to`; filled by the back end */
};
static_assert(sizeof(struct tx_run) == 128, "two cache lines");
static_assert(TX_RUN_MAX_SEGMENTS <= UINT8_MAX, "counted in a byte");

/* The runs of one socket in the order they were opened. */
struct tx_queue {
    struct udp_socket *socket;
    uint16_t first, last;
};

struct tx_backend {
    struct tx_entry *entries;
    struct tx_run *runs;
    struct tx_queue *queues;
    uint32_t n_entries, n_runs, n_queues;
    bool gso;     /* group into runs */
    bool batched; /* false: one system call a datagram */
    uint32_t scratch_used;
    uint8_t *scratch;
    const struct udp_syscalls *syscalls;
    struct tx_sender *sender; /* the platform's */
};

/* ---- the platform's part ---- */

extern const struct udp_syscalls udp_libc_syscalls;

/* True when the platform can send several datagrams as one message. */
bool tx_sender_can_group(void);
int tx_sender_create(struct tx_sender **out);
void tx_sender_destroy(struct tx_sender *sender);

/* Sends all runs of one queue in order and counts every datagram as sent or dropped. */
void tx_sender_send(struct tx_batch *batch, const struct tx_queue *queue, uint64_t now_us);

int rx_backend_create(struct rx_ring *ring, const struct rx_ring_params *params);
void rx_backend_destroy(struct rx_backend *backend);

/* ---- the shared part, for the platform's ---- */

/* Counts n datagrams lost to err (a positive errno). */
void tx_count_drop(struct tx_counters *counters, int err, uint32_t n);

/* Address space for n_slots receive slots, touched only as it is used; *out_bytes is what to unmap. NULL when
 * there is none. */
uint8_t *rx_slots_map(uint32_t n_slots, size_t *out_bytes);
void rx_slots_unmap(uint8_t *slots, size_t n_bytes);

/* Where the data of a slot begins. */
uint8_t *rx_slot_data(uint8_t *slots, uint32_t index);

/* An error of an earlier datagram, learnt from ICMP, that any call on the socket may report. */
bool udp_error_is_pending_kind(int err);

/* Reads a socket address without the checks of endpoint_from_sockaddr: the kernel wrote it. */
static inline void endpoint_from_kernel(struct endpoint *out, const union endpoint_sockaddr *address) {
    *out = (struct endpoint){0};
    if (address->sa.sa_family == AF_INET) {
        out->family = AF_INET;
        out->port = ntohs(address->in.sin_port);
        memcpy(out->ip, &address->in.sin_addr, 4);
    } else if (address->sa.sa_family == AF_INET6) {
        out->family = AF_INET6;
        out->port = ntohs(address->in6.sin6_port);
        memcpy(out->ip, &address->in6.sin6_addr, 16);
    }
}

/* Writes the address for the kernel; the length to pass with it. */
static inline socklen_t endpoint_to_kernel(union endpoint_sockaddr *out, const struct endpoint *e) {
    if (e->family == AF_INET) {
        out->in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(e->port)};
        memcpy(&out->in.sin_addr, e->ip, 4);
        return sizeof out->in;
    }
    out->in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(e->port)};
    memcpy(&out->in6.sin6_addr, e->ip, 16);
    return sizeof out->in6;
}

/* ---- for tests ---- */

/* Replaces the system calls of one batch or ring; the table must outlive it. */
void tx_batch_set_syscalls(struct tx_batch *batch, const struct udp_syscalls *syscalls);
void rx_ring_set_syscalls(struct rx_ring *ring, const struct udp_syscalls *syscalls);

#endif
