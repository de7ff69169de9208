/* Who owns a datagram from a peer: (relayed address, peer) -> allocation. One thread's, part of its
 * allocation_table.
 *
 * A relayed address of its own belongs to its allocation, and only the permission for the peer's IP is asked.
 * On a shared one the rules are, in this order:
 *   1. A STUN Binding message whose check was seen going out: an answer by its transaction id, a check by its
 *      mirrored USERNAME. Asked only where there is no exact entry, or another allocation wanted it as well.
 *   2. The exact entry (relayed address, peer IP and port), while its permission lives.
 *   3. The only allocation that permits the peer's IP. What 1 and 3 find becomes the exact entry.
 *   4. Otherwise nobody, never a guess.
 *
 * The exact entry is claimed by naming, binding and sending. It is had when it is free. Data sent or a
 * channel bound also takes it from a holder that is idle (no data for claim_idle_us, or none ever) and from
 * an older allocation of the same user; a STUN message sent, only from an older allocation of the same user
 * without data. A claim ends with the permission of its IP. Never is a request refused for a claim it could
 * not have. */
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

/* A datagram from a peer. */
struct peer_datagram {
    const struct endpoint *peer;
    const uint8_t *payload; /* may be NULL: then it is taken for data that is not STUN */
    uint32_t n_payload;
    uint64_t hash; /* as peer_table_warm gave it; 0: not known */
};

/* Whose is a datagram that came to `relayed`? Installs what was learned. No allocation of memory on the way
 * of an established flow. */
void peer_table_match(struct allocation_table *table, struct relayed_address *relayed,
                      const struct peer_datagram *datagram, uint64_t now_us, struct peer_match *out);
/* See allocation_warm: for up to LOOKUP_WARM_MAX calls of peer_table_match that follow. */
void peer_table_warm(const struct allocation_table *table, const struct relayed_address *relayed,
                     const struct endpoint *const *peers, uint32_t n, uint64_t *out_hashes);

/* Relay to relay: whose is a datagram that allocation `uid` (its relayed address as advertised and as bound)
 * sent to `relayed`? On a shared address by rule 1, then by what that taught about this sender (which holds
 * for the way back as well), then the only other allocation that permits the sender's IP. out_peer gets the
 * form of the sender's address that the receiver permits; one with a channel is preferred. */
struct relay_sender {
    uint64_t uid;
    uint64_t user_hash;
    struct endpoint advertised, local;
};
void peer_table_match_local(struct allocation_table *table, struct relayed_address *relayed,
                            const struct relay_sender *sender, const uint8_t *payload, uint32_t n_payload,
                            uint64_t now_us, struct peer_match *out, struct endpoint *out_peer);

/* What the client sends is looked at here once per datagram, also when the peer is a relayed address of this
 * server: claims and takes over exact endpoints, notes outgoing ICE checks. `exact` is the record when the
 * caller has it (channels), else NULL. Returns the record to group by, or NULL when there is none (cap
 * reached, no memory, dedicated address): the datagram is sent all the same. The caller has checked the
 * permission. */
struct peer_endpoint *peer_table_note_sent(struct allocation *allocation, struct peer_endpoint *exact,
                                           const struct endpoint *peer, const uint8_t *payload,
                                           uint32_t n_payload, uint64_t now_us);

/* The allocation an ICMP error for `peer` on `relayed` belongs to, or NULL when none or more than one may
 * have sent there. */
struct allocation *peer_table_match_error(struct allocation_table *table, struct relayed_address *relayed,
                                          const struct endpoint *peer);

#endif
