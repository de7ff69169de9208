/* Batches of UDP datagrams: a receive ring wired once, and a send batch that groups by destination. Both
 * belong to one thread; the batch is an argument, never hidden state. The Linux back end uses recvmmsg,
 * UDP_GRO, sendmmsg and UDP_SEGMENT, the POSIX one recvfrom and sendto; relay code sees no difference. */
#ifndef TURN_UDP_BATCH_H
#define TURN_UDP_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "endpoint.h"
#include "histogram.h"
#include "udp_socket.h"

enum {
    RX_HEADROOM_BYTES = 64,   /* writable before every received packet */
    RX_SLOT_BYTES = 65536,    /* one GRO buffer */
    TX_RUN_MAX_SEGMENTS = 64, /* older kernels' UDP_MAX_SEGMENTS */
    TX_RUN_MAX_BYTES_V4 = 65507,
    TX_RUN_MAX_BYTES_V6 = 65487,
};

/* "linux" or "posix": which back end was built. */
const char *udp_backend_name(void);

/* ---- receiving ---- */

struct rx_packet {
    uint8_t *data; /* RX_HEADROOM_BYTES before it may be written */
    uint32_t n_bytes;
    uint32_t segment_bytes; /* > 0: a GRO buffer of datagrams of this size, the last may be shorter */
    struct endpoint source;
    struct endpoint destination; /* local address; the socket's own unless it uses packet info */
    uint8_t tos;                 /* TOS or traffic class, 0 when unknown */
    bool truncated;              /* MSG_TRUNC: count and drop */
};

/* Datagrams in the packet: 1, or as many as its GRO segments. */
static inline uint32_t rx_packet_datagrams(const struct rx_packet *p) {
    if (p->segment_bytes == 0 || p->n_bytes <= p->segment_bytes) {
        return 1;
    }
    return (p->n_bytes + p->segment_bytes - 1) / p->segment_bytes;
}

/* What receiving counted; one writer. Occupancy histograms count datagrams. */
struct rx_counters {
    counter calls;       /* receive system calls */
    counter datagrams;   /* GRO segments counted one by one */
    counter packets;     /* messages: a GRO buffer is one */
    counter would_block; /* calls that found nothing */
    counter unavailable; /* falls back to single receives */
    counter no_buffer;   /* drains cut short because the ring was full */
    counter truncated;
    counter kernel_drops;       /* SO_RXQ_OVFL */
    counter errors;             /* any other errno */
    struct histogram occupancy; /* datagrams per call that brought any */
};

struct rx_ring_params {
    uint32_t n_slots; /* power of two, 16..1024; also the most a drain takes */
    bool single;      /* recvfrom semantics: one datagram per call (udp-recvmmsg=0) */
};

struct rx_ring {
    struct rx_packet *packets; /* packets[0..n_filled) are valid until rx_ring_release */
    uint32_t n_slots, n_filled;
    struct rx_counters counters;
    struct rx_backend *backend; /* message headers, iovecs, control slots; private */
};

/* Maps the buffers (untouched pages cost nothing) and wires all headers. 0 or -errno. */
int rx_ring_create(struct rx_ring **out, const struct rx_ring_params *params);
void rx_ring_destroy(struct rx_ring *ring);

/* One drain round: appends to ring->packets up to max (or the slots left) from the socket. Returns how many
 * packets came; fewer than asked means the socket is empty (*out_drained). Errors of earlier sends that the
 * kernel reports here are swallowed and the read is tried again; the caller looks at the error queue. */
uint32_t rx_ring_fill(struct rx_ring *ring, struct udp_socket *socket, uint32_t max, bool *out_drained);

/* Gives all slots back. Only after the send batch that points into them was flushed. */
void rx_ring_release(struct rx_ring *ring);

/* ---- sending ---- */

/* Per-destination memory of the batch, embedded in the record that owns the destination (an allocation, a
 * peer). Zeroed is valid. It must outlive the batch it was used in: flush before freeing the owner. */
struct tx_flow {
    uint64_t gso_off_until_us; /* a run failed as GSO: singles until then */
    uint32_t generation;       /* of the batch that last saw this flow */
    uint32_t run;              /* index of its open run in that batch */
};

struct tx_target {
    struct udp_socket *socket;
    const struct endpoint *to;
    const struct endpoint *from; /* local address for packet-info sockets; NULL: leave it to the socket */
};

/* One datagram in at most two pieces. The bytes are not copied and must stay until the flush. */
struct tx_datagram {
    const uint8_t *head; /* may be NULL when n_head is 0 */
    const uint8_t *body;
    uint32_t n_head, n_body;
    uint8_t tos;        /* 0: kernel's default */
    bool dont_fragment; /* IPv4: DF set and no local fragmentation; IPv6: no local fragmentation */
};

struct tx_counters {
    counter calls;            /* send system calls */
    counter flushes;          /* flushes that had something to send */
    counter datagrams;        /* handed to the kernel successfully */
    counter gso_messages;     /* messages with a segment size */
    counter gso_datagrams;    /* datagrams that left in them */
    counter gso_fallbacks;    /* runs resent as singles */
    counter drop_would_block; /* EAGAIN, ENOBUFS */
    counter drop_unreachable; /* ENETUNREACH, EHOSTUNREACH, ECONNREFUSED, EADDRNOTAVAIL, ... */
    counter drop_denied;      /* EPERM, EACCES */
    counter drop_too_big;     /* EMSGSIZE as a single */
    counter drop_invalid;     /* EINVAL and the like as a single (port 0, ...) */
    counter drop_other;
    struct histogram occupancy;  /* datagrams per flush */
    struct histogram run_length; /* datagrams per message */
};

struct tx_batch_params {
    bool gso;     /* udp-gso */
    bool batched; /* false: one system call a datagram (udp-sendmmsg=0) */
};

struct tx_batch {
    uint32_t generation; /* changes with every flush; never 0 */
    uint32_t n_datagrams;
    struct tx_counters counters;
    struct tx_backend *backend; /* private */
};

int tx_batch_create(struct tx_batch **out, const struct tx_batch_params *params);
void tx_batch_destroy(struct tx_batch *batch);

/* Queues a datagram. Datagrams of one flow on one socket keep their order; equal sizes (and one shorter tail)
 * become one message. flow may be NULL for one that is never grouped; it has no order among the flows'. The
 * batch copies target and datagram, not the bytes. A full batch is sent first (now_us is the batch's time),
 * and its scratch space kept. Never fails: what cannot be sent (port 0, the other family, too long) is
 * counted at once or at the flush. */
void tx_batch_add(struct tx_batch *batch, struct tx_flow *flow, const struct tx_target *target,
                  const struct tx_datagram *datagram, uint64_t now_us);

/* n bytes (at most 2,048) that live until the flush, for headers and replies. Flushes when the space is used
 * up (which is why it is called before tx_batch_add of the same datagram). Never NULL. 8-aligned. */
uint8_t *tx_batch_scratch(struct tx_batch *batch, uint32_t n, uint64_t now_us);

/* Sends everything. Exactly the failing message is lost; a failing run is resent at once as single
 * datagrams. Nothing is ever logged here but the first refusal of a mechanism. */
void tx_batch_flush(struct tx_batch *batch, uint64_t now_us);

#endif
