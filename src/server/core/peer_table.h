/* Who owns a datagram from a peer: (relayed address, peer) -> allocation. Rules for shared relayed addresses in
 * this order: a STUN message whose check was seen going out; the exact endpoint; the only allocation that permits
 * the peer's IP; otherwise nobody, never a guess. One thread's, part of its allocation_table. */
#ifndef TURN_PEER_TABLE_H
#define TURN_PEER_TABLE_H

#include "allocation.h"
#include "drop_reason.h"

struct peer_match {
    struct allocation *allocation; /* NULL: drop for `reason` */
    struct channel *channel;       /* NULL: a Data indication it will be */
    struct peer_endpoint *peer;    /* the exact record, may be NULL */
    enum drop_reason reason;
};

/* Whose is a datagram that came from `peer` to `relayed`? first bytes of the payload serve rule 3 and may be
 * NULL. Installs what was learned. No allocation of memory on the way of an established flow. */
void peer_table_match(struct allocation_table *table, struct relayed_address *relayed,
                      const struct endpoint *peer, const uint8_t *payload, uint32_t n_payload, uint64_t now_us,
                      struct peer_match *out);
/* Warms the cache for a later match. */
void peer_table_prefetch(const struct allocation_table *table, const struct relayed_address *relayed,
                         const struct endpoint *peer);

/* Relay to relay: whose is a datagram that allocation `sender_uid` (its relayed address as advertised and as
 * bound: from_advertised, from_local) sent to `relayed`? out_peer gets the form of the sender's address that the
 * receiver permits. */
struct relay_sender {
    uint64_t uid;
    uint64_t user_hash;
    struct endpoint advertised, local;
};
void peer_table_match_local(struct allocation_table *table, struct relayed_address *relayed,
                            const struct relay_sender *sender, const uint8_t *payload, uint32_t n_payload,
                            uint64_t now_us, struct peer_match *out, struct endpoint *out_peer);

/* What the client sends on a shared relayed address is looked at here once per datagram: claims and takes over
 * exact endpoints (see docs/architecture.md), notes outgoing ICE checks. `exact` is the record when the caller
 * has it (channels), else NULL. Returns the record to group by, or NULL when none exists (cap reached, no
 * memory, dedicated address): the datagram is sent all the same. */
struct peer_endpoint *peer_table_note_sent(struct allocation *allocation, struct peer_endpoint *exact,
                                           const struct endpoint *peer, const uint8_t *payload,
                                           uint32_t n_payload, uint64_t now_us);

/* The allocation an ICMP error for `peer` on `relayed` belongs to, or NULL. */
struct allocation *peer_table_match_error(struct allocation_table *table, struct relayed_address *relayed,
                                          const struct endpoint *peer);

#endif
