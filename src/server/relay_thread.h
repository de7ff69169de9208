/* One relay thread: an event loop that owns its listeners, peer sockets, receive ring, send batch and TURN
 * core, and shares nothing but mailboxes, quotas and the registry of relayed ports. */
#ifndef TURN_RELAY_THREAD_H
#define TURN_RELAY_THREAD_H

#include "relay_counters.h"
#include "relay_registry.h"
#include "turn_core.h"
#include "udp_batch.h"

struct relay_thread;

struct relay_thread_params {
    uint32_t index, n_threads;
    const struct endpoint *listening; /* UDP listening addresses */
    size_t n_listening;
    const struct relay_ip *ips;
    size_t n_ips;
    struct relay_registry *registry;
    const struct core_config *core;
    struct hash_key hash_key;
    bool shared; /* carrier: shared or dedicated */
    uint32_t shared_pairs;
    bool even_port_dedicated;
    uint16_t min_port, max_port;
    int buffer_bytes;
    bool recvmmsg, sendmmsg, gso;
    /* Allocation life cycle and refusals, on this thread; must not block. */
    void (*event)(void *context, const struct core_event_info *info);
    void *event_context;
};

/* Opens and binds everything. On failure *out_failed tells which address (AF_UNSPEC: none in particular).
 * Strings and arrays of params stay the caller's and must outlive the thread. 0 or -errno. */
int relay_thread_create(struct relay_thread **out, const struct relay_thread_params *params,
                        struct endpoint *out_failed);
/* Joins the threads by mailboxes; before any is started. 0 or -errno. */
int relay_thread_connect(struct relay_thread **threads, uint32_t n_threads);
/* Starts its POSIX thread. 0 or -errno. */
int relay_thread_start(struct relay_thread *thread);
/* Asks it to end and waits (at most a loop turn). */
void relay_thread_stop(struct relay_thread *thread);
void relay_thread_destroy(struct relay_thread *thread);

/* For readers on other threads: counters are relaxed. */
struct relay_thread_view {
    uint32_t index;
    struct relay_counters *relay;
    struct rx_counters *rx;
    struct tx_counters *tx;
};
void relay_thread_view(struct relay_thread *thread, struct relay_thread_view *out);

/* The smallest socket buffers that the kernel granted, for the warning about clamping. */
int relay_thread_granted_buffer(const struct relay_thread *thread);

#endif
