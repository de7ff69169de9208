/* The relay path: what happens to every datagram between the receive ring and the send batch. No system call,
 * allocation, lock or log line of its own; one thread.
 *
 * uplink:   listener -> 5-tuple -> channel (or Send indication) -> peer
 * downlink: peer socket -> peer table -> ChannelData (or Data indication) -> client
 * A peer that is one of our own relayed addresses is served inside (relay_local.c). */
#ifndef TURN_RELAY_H
#define TURN_RELAY_H

#include "client_link.h"
#include "peer_table.h"
#include "relay_counters.h"
#include "relay_socket.h"
#include "turn_core.h"

struct mailbox;

struct relay {
    struct turn_core *core;
    struct allocation_table *allocations;
    struct tx_batch *tx;
    struct relay_counters *counters;
    const struct relay_socket_index *sockets;
    const struct relay_carrier *carrier;
    uint32_t thread, n_threads;
    struct mailbox **to;   /* to[i]: mailbox to thread i; NULL for this one */
    struct core_time now;  /* of the batch */
    uint64_t next_data_id; /* transaction ids of Data indications */
    /* The last 5-tuple looked up: packets of one client tend to come together. */
    struct five_tuple last_tuple;
    struct allocation *last_allocation;
};

/* Packets from clients, those of one drain: on large tables their lookups are warmed together. Each packet's
 * `destination` is the address of ours it came to. */
void relay_uplink(struct relay *relay, struct client_link *link, enum client_transport transport,
                  const struct rx_packet *packets, uint32_t n);

/* Packets from peers to one of our relayed addresses. */
void relay_downlink(struct relay *relay, struct relayed_address *relayed, const struct rx_packet *packets,
                    uint32_t n);

/* An ICMP error about a datagram that had gone from relayed to error->peer: told to the one allocation it
 * belongs to (RFC 8656, 11.5). */
void relay_icmp_error(struct relay *relay, struct relayed_address *relayed, const struct udp_error *error);

/* The allocation is about to go: forget it. */
void relay_forget(struct relay *relay, const struct allocation *allocation);

/* ---- shared with relay_local.c ---- */

/* Payload on its way to a client. */
struct relay_delivery {
    struct allocation *allocation;
    struct channel *channel;     /* NULL: Data indication */
    const struct endpoint *peer; /* as the client knows it */
    uint8_t *data;
    uint32_t n_data;
    uint8_t tos;
    bool room_before; /* RX_HEADROOM_BYTES before data may be overwritten */
    bool room_after;  /* 3 bytes after data may be overwritten */
};
void relay_deliver(struct relay *relay, const struct relay_delivery *delivery);

static inline void relay_drop(struct relay_direction *direction, enum drop_reason reason, uint64_t n) {
    counter_add(&direction->drops[reason], n);
}

#endif
