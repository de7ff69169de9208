#include "udp_batch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "udp_batch_private.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

enum {
    CACHE_LINE_BYTES = 64,
    SLOT_MARGIN_BYTES = 4096, /* for headroom and colour */
    SLOT_STRIDE_BYTES = RX_SLOT_BYTES + SLOT_MARGIN_BYTES,
    SLOT_COLOURS = 40, /* starts spread over the cache's sets, yet 1,500 bytes stay inside the first page */
    SCRATCH_MAX_BYTES = 2048,
};
static_assert(RX_HEADROOM_BYTES % CACHE_LINE_BYTES == 0, "data begins on a cache line");
static_assert(RX_HEADROOM_BYTES + SLOT_COLOURS * CACHE_LINE_BYTES <= SLOT_MARGIN_BYTES,
              "the slot holds it all");

/* ---- receiving ---- */

uint8_t *rx_slots_map(uint32_t n_slots, size_t *out_bytes) {
    size_t n_bytes = (size_t)n_slots * SLOT_STRIDE_BYTES;
    void *slots =
        mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *out_bytes = n_bytes;
    return slots == MAP_FAILED ? NULL : slots;
}

void rx_slots_unmap(uint8_t *slots, size_t n_bytes) {
    if (slots != NULL) {
        (void)munmap(slots, n_bytes);
    }
}

uint8_t *rx_slot_data(uint8_t *slots, uint32_t index) {
    size_t colour = index % SLOT_COLOURS;
    return slots + (size_t)index * SLOT_STRIDE_BYTES + RX_HEADROOM_BYTES + colour * CACHE_LINE_BYTES;
}

bool udp_error_is_pending_kind(int err) {
    switch (err) {
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ECONNRESET:
    case EHOSTDOWN:
    case ENETDOWN:
    case ENOPROTOOPT: /* ICMP "protocol unreachable" */
    case EMSGSIZE:    /* ICMP "fragmentation needed" */
    case EACCES:      /* ICMP "administratively prohibited" over IPv6 */
    case EPROTO:      /* ICMP "parameter problem" */
    case EOPNOTSUPP:
        return true;
    default:
        return false;
    }
}

int rx_ring_create(struct rx_ring **out, const struct rx_ring_params *params) {
    uint32_t n = params->n_slots;
    if (n < 16 || n > 1024 || (n & (n - 1)) != 0) {
        return -EINVAL;
    }
    struct rx_ring *ring = calloc(1, sizeof *ring);
    if (ring == NULL) {
        return -ENOMEM;
    }
    ring->n_slots = n;
    ring->packets = calloc(n, sizeof *ring->packets);
    int err = ring->packets == NULL ? -ENOMEM : rx_backend_create(ring, params);
    if (err < 0) {
        rx_ring_destroy(ring);
        return err;
    }
    *out = ring;
    return 0;
}

void rx_ring_destroy(struct rx_ring *ring) {
    if (ring == NULL) {
        return;
    }
    rx_backend_destroy(ring->backend);
    free(ring->packets);
    free(ring);
}

/* ---- sending ---- */

static int tx_backend_allocate(struct tx_backend *b) {
    b->entries = calloc(TX_CAPACITY, sizeof *b->entries);
    b->runs = aligned_alloc(CACHE_LINE_BYTES, TX_CAPACITY * sizeof *b->runs);
    b->queues = calloc(TX_CAPACITY, sizeof *b->queues);
    b->scratch = malloc(TX_SCRATCH_BYTES);
    if (b->entries == NULL || b->runs == NULL || b->queues == NULL || b->scratch == NULL) {
        return -ENOMEM;
    }
    return tx_sender_create(&b->sender);
}

static void tx_backend_destroy(struct tx_backend *b) {
    if (b == NULL) {
        return;
    }
    tx_sender_destroy(b->sender);
    free(b->scratch);
    free(b->queues);
    free(b->runs);
    free(b->entries);
    free(b);
}

int tx_batch_create(struct tx_batch **out, const struct tx_batch_params *params) {
    struct tx_batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL) {
        return -ENOMEM;
    }
    int err = -ENOMEM;
    struct tx_backend *b = batch->backend = calloc(1, sizeof *b);
    if (b != NULL) {
        b->batched = params->batched;
        b->gso = params->gso && params->batched && tx_sender_can_group();
        b->syscalls = &udp_libc_syscalls;
        err = tx_backend_allocate(b);
    }
    if (err < 0) {
        tx_batch_destroy(batch);
        return err;
    }
    batch->generation = 1;
    *out = batch;
    return 0;
}

void tx_batch_destroy(struct tx_batch *batch) {
    if (batch == NULL) {
        return;
    }
    tx_backend_destroy(batch->backend);
    free(batch);
}

void tx_batch_set_syscalls(struct tx_batch *batch, const struct udp_syscalls *syscalls) {
    batch->backend->syscalls = syscalls;
}

void tx_count_drop(struct tx_counters *counters, int err, uint32_t n) {
    switch (err) {
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
        counter_add(&counters->drop_would_block, n);
        return;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case ECONNREFUSED:
    case ECONNRESET:
    case EADDRNOTAVAIL:
        counter_add(&counters->drop_unreachable, n);
        return;
    case EPERM:
    case EACCES:
        counter_add(&counters->drop_denied, n);
        return;
    case EMSGSIZE:
        counter_add(&counters->drop_too_big, n);
        return;
    case EINVAL:
    case EDESTADDRREQ:
    case EAFNOSUPPORT:
    case EOPNOTSUPP:
    case ENOPROTOOPT:
        counter_add(&counters->drop_invalid, n);
        return;
    default:
        counter_add(&counters->drop_other, n);
        return;
    }
}

/* Finds the socket's queue in this batch or opens one. The note in the socket may be another batch's, so it
 * is believed only when the queue it names is the socket's. */
static struct tx_queue *queue_of(struct tx_batch *batch, struct udp_socket *socket) {
    struct tx_backend *b = batch->backend;
    if (socket->tx_generation == batch->generation && socket->tx_queue < b->n_queues &&
        b->queues[socket->tx_queue].socket == socket) {
        return &b->queues[socket->tx_queue];
    }
    socket->tx_generation = batch->generation;
    socket->tx_queue = b->n_queues++;
    struct tx_queue *queue = &b->queues[socket->tx_queue];
    *queue = (struct tx_queue){.socket = socket, .first = TX_NONE, .last = TX_NONE};
    return queue;
}

static void queue_append(struct tx_backend *b, struct tx_queue *queue, uint16_t run) {
    if (queue->first == TX_NONE) {
        queue->first = run;
    } else {
        b->runs[queue->last].next = run;
    }
    queue->last = run;
}

/* How many datagrams of n_bytes one message may hold. */
static uint8_t run_capacity(const struct endpoint *to, uint32_t n_bytes) {
    uint32_t max_bytes = to->family == AF_INET ? TX_RUN_MAX_BYTES_V4 : TX_RUN_MAX_BYTES_V6;
    if (n_bytes <= max_bytes / TX_RUN_MAX_SEGMENTS) {
        return TX_RUN_MAX_SEGMENTS;
    }
    return (uint8_t)(max_bytes / n_bytes);
}

/* A run that others may join needs a flow to find it by, and a socket and destination that take runs. */
static bool may_group(const struct tx_backend *b, const struct tx_flow *flow, const struct udp_socket *socket,
                      const struct tx_datagram *d, uint64_t now_us) {
    return b->gso && flow != NULL && socket->gso && !d->dont_fragment && now_us >= flow->gso_off_until_us;
}

/* Out of line, as all that is rare in tx_batch_add: the common path then needs no stack. */
__attribute__((noinline)) static void run_open(struct tx_batch *batch, struct tx_flow *flow,
                                               const struct tx_target *target, const struct tx_datagram *d,
                                               uint64_t now_us) {
    struct tx_backend *b = batch->backend;
    uint16_t index = (uint16_t)b->n_runs++;
    struct tx_run *run = &b->runs[index];
    uint32_t n_bytes = d->n_head + d->n_body;
    run->socket = target->socket;
    run->flow = flow;
    run->to = *target->to;
    run->first = run->last = (uint16_t)b->n_entries;
    run->next = TX_NONE;
    run->segment_bytes = (uint16_t)n_bytes;
    run->takes_bytes = 0;
    run->n = 1;
    run->tos = d->tos;
    run->dont_fragment = d->dont_fragment;
    run->has_from = target->from != NULL && target->socket->packet_info;
    if (run->has_from) {
        run->from = *target->from;
    }
    if (n_bytes > 0 && may_group(b, flow, target->socket, d, now_us)) {
        run->n_max = run_capacity(&run->to, n_bytes);
        run->takes_bytes = run->n_max > 1 ? run->segment_bytes : 0;
    }
    if (flow != NULL) {
        flow->generation = batch->generation;
        flow->run = index;
    }
    queue_append(b, queue_of(batch, target->socket), index);
}

__attribute__((noinline)) static bool run_is_from(const struct tx_run *run, const struct endpoint *from) {
    return run->has_from && from != NULL && endpoint_same_ip(&run->from, from);
}

static inline bool run_leaves_from(const struct tx_run *run, const struct tx_target *target) {
    if (!target->socket->packet_info) {
        return true; /* from where it is bound, for all its runs */
    }
    return (target->from == NULL && !run->has_from) || run_is_from(run, target->from);
}

/* The run that the datagram may join, or NULL. As with sockets, the note in the flow may be another batch's,
 * and the flow's destination may have moved (RFC 8016). */
static inline struct tx_run *run_to_join(const struct tx_batch *batch, const struct tx_flow *flow,
                                         const struct tx_target *target, const struct tx_datagram *d) {
    const struct tx_backend *b = batch->backend;
    if (flow == NULL || flow->generation != batch->generation || flow->run >= b->n_runs) {
        return NULL;
    }
    struct tx_run *run = &b->runs[flow->run];
    uint32_t n_bytes = d->n_head + d->n_body;
    bool joins = n_bytes - 1 < run->takes_bytes && run->flow == flow && run->socket == target->socket &&
                 run->tos == d->tos && !d->dont_fragment && endpoint_equal(&run->to, target->to) &&
                 run_leaves_from(run, target); /* an empty datagram wraps round and joins nothing */
    return joins ? run : NULL;
}

static inline void run_append(struct tx_backend *b, struct tx_run *run, uint32_t n_bytes) {
    uint16_t index = (uint16_t)b->n_entries;
    b->entries[run->last].next = index;
    run->last = index;
    run->n++;
    if (n_bytes < run->segment_bytes || run->n == run->n_max) {
        run->takes_bytes = 0; /* only the last segment may be shorter */
    }
}

static inline void entry_fill(struct tx_entry *entry, const struct tx_datagram *d) {
    const uint8_t *head = d->head, *body = d->body;
    uint32_t n_head = d->n_head, n_body = d->n_body;
    if (n_head > 0 && (n_body == 0 || head + n_head == body)) {
        body = head; /* contiguous: one piece */
        n_body += n_head;
        n_head = 0;
    }
    *entry = (struct tx_entry){
        .head = head, .body = body, .n_body = n_body, .n_head = (uint16_t)n_head, .next = TX_NONE};
}

__attribute__((noinline)) static void send_queued(struct tx_batch *batch, uint64_t now_us) {
    struct tx_backend *b = batch->backend;
    if (b->n_entries > 0) {
        counter_add(&batch->counters.flushes, 1);
        histogram_add(&batch->counters.occupancy, b->n_entries, 1);
    }
    for (uint32_t i = 0; i < b->n_queues; i++) {
        tx_sender_send(batch, &b->queues[i], now_us);
    }
    b->n_entries = b->n_runs = b->n_queues = 0;
    batch->n_datagrams = 0;
    batch->generation += batch->generation == UINT32_MAX ? 2 : 1; /* 0 is a flow's "never" */
}

/* What the kernel would say to this one, found without the price of a call; 0 when it may go. */
static inline int refusal(const struct tx_target *target, const struct tx_datagram *d) {
    if ((d->n_head | d->n_body | (d->n_head + d->n_body)) > TX_DATAGRAM_MAX_BYTES) {
        return EMSGSIZE;
    }
    bool possible = target->to->port != 0 && target->to->family == target->socket->local.family;
    return possible ? 0 : EINVAL;
}

void tx_batch_add(struct tx_batch *batch, struct tx_flow *flow, const struct tx_target *target,
                  const struct tx_datagram *datagram, uint64_t now_us) {
    struct tx_backend *b = batch->backend;
    const struct tx_datagram d = *datagram; /* a copy, which the writes below cannot change */
    int err = refusal(target, &d);
    if (err != 0) {
        tx_count_drop(&batch->counters, err, 1);
        return;
    }
    if (b->n_entries == TX_CAPACITY) {
        send_queued(batch, now_us); /* the scratch space may hold this datagram's header: it stays */
    }
    struct tx_run *run = run_to_join(batch, flow, target, &d);
    entry_fill(&b->entries[b->n_entries], &d);
    if (run != NULL) {
        run_append(b, run, d.n_head + d.n_body);
    } else {
        run_open(batch, flow, target, &d, now_us);
    }
    batch->n_datagrams = ++b->n_entries;
}

uint8_t *tx_batch_scratch(struct tx_batch *batch, uint32_t n, uint64_t now_us) {
    struct tx_backend *b = batch->backend;
    assert(n <= SCRATCH_MAX_BYTES);
    n = (n + 7) & ~7u;
    if (b->scratch_used + n > TX_SCRATCH_BYTES) {
        tx_batch_flush(batch, now_us);
    }
    uint8_t *bytes = b->scratch + b->scratch_used;
    b->scratch_used += n;
    return bytes;
}

void tx_batch_flush(struct tx_batch *batch, uint64_t now_us) {
    send_queued(batch, now_us);
    batch->backend->scratch_used = 0;
}
