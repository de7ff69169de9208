/* Which allocation sent which ICE check: outgoing STUN Binding requests are noted by transaction id and by
 * the pair of user fragments (RFC 8445, 7.2.2), so that answers and the peer's own checks find their
 * allocation on a relayed address that several share. Fixed tables made at start, one set a thread.
 *
 * A note lands in a small set chosen by a keyed hash, so nobody can aim at another's. In a full set the room
 * is taken from the allocation that has the most notes there: whatever one sends, it spoils its own notes
 * before anybody else's. */
#ifndef TURN_ICE_WATCH_H
#define TURN_ICE_WATCH_H

#include "endpoint.h"
#include "hash.h"
#include "stun_message.h"

enum {
    ICE_WATCH_WAYS = 8,
    ICE_WATCH_TRANSACTION_SETS = 512, /* 4,096 checks in flight */
    ICE_WATCH_FRAGMENT_SETS = 1024,   /* 8,192 pairs of fragments */
    ICE_WATCH_TRANSACTION_US = 10 * 1000 * 1000,
    ICE_WATCH_FRAGMENT_US = 60 * 1000 * 1000,
};

struct ice_watch;

int ice_watch_create(struct ice_watch **out, const struct hash_key *key);
void ice_watch_destroy(struct ice_watch *watch);

/* True for what ice_watch_note has a use for: cheap, reads the first bytes only. */
static inline bool ice_watch_is_check(const uint8_t *payload, size_t n_payload) {
    return stun_looks_like_message(payload, n_payload) && payload[0] == 0x00 && payload[1] == 0x01;
}

/* Allocation `uid` (never 0) sends a check from the relayed address to peer. Anything malformed is not noted.
 */
void ice_watch_note(struct ice_watch *watch, uint32_t relayed_id, uint64_t uid, const struct endpoint *peer,
                    const uint8_t *payload, size_t n_payload, uint64_t now_us);

/* Who may be meant by a STUN message from peer to the relayed address: a Binding response by its transaction
 * and the peer's IP, a Binding request by its USERNAME alone. Newest first; returns how many. The uids may
 * belong to allocations that ended meanwhile. */
size_t ice_watch_find(const struct ice_watch *watch, uint32_t relayed_id, const struct endpoint *peer,
                      const uint8_t *payload, size_t n_payload, uint64_t now_us,
                      uint64_t out[ICE_WATCH_WAYS]);

#endif
