/* What the files behind allocation.h and peer_table.h share. Nobody else includes this. */
#ifndef TURN_ALLOCATION_PRIVATE_H
#define TURN_ALLOCATION_PRIVATE_H

#include "allocation.h"
#include "ice_watch.h"
#include "peer_table.h"

/* Up to so many of its own permissions or endpoints an allocation walks; with more they are found by hash. */
enum { ALLOCATION_WALKED_MAX = 8 };

/* The most senders an allocation remembers for relay to relay; the oldest makes room. */
enum { ALLOCATION_MAX_PAIRS = 256 };

struct allocation_table {
    struct allocation_table_params params;
    struct timer_wheel wheel;
    struct ice_watch *ice;
    struct hash_table by_tuple;        /* allocations */
    struct hash_table by_uid;          /* allocations that sent ICE checks */
    struct hash_table claims;          /* (relayed address, peer) -> peer_endpoint */
    struct hash_table permitted;       /* (relayed address, IP) -> first permission of the chain */
    struct hash_table own_permissions; /* (allocation, IP) -> permission, for allocations with many */
    struct hash_table own_peers;       /* (allocation, peer) -> peer_endpoint, for allocations with many */
    struct hash_table pairs;           /* (relayed address, sender uid) -> local_pair */
    struct allocation_table_stats stats;
    uint64_t n_created;
    uint64_t channel_multiplier; /* odd, from the hash key: clients choose the numbers */
    uint64_t n_ended_since_trim, next_trim_us;
};

static inline void allocation_table_quiesce(const struct allocation_table *table) {
    if (table->params.quiesce != NULL) {
        table->params.quiesce(table->params.context);
    }
}

static inline struct relayed_address *allocation_relayed(const struct allocation *a,
                                                         const struct endpoint *peer) {
    return a->relay[relay_family_of(peer)].address;
}

/* The user is known by name: without names nobody is "the same user". */
static inline bool allocation_same_user(const struct allocation *a, const struct allocation *b) {
    return a->username != NULL && b->username != NULL && a->user_hash == b->user_hash;
}

/* ---- keys: two words for an IPv4 peer, three for IPv6, so the spaces do not meet ---- */

static inline uint64_t peer_hash(const struct hash_key *key, uint32_t id, const struct endpoint *peer,
                                 uint16_t port) {
    uint64_t words[3];
    words[0] = (uint64_t)port << 32 | id;
    if (peer->family == AF_INET) {
        uint32_t ip4;
        memcpy(&ip4, peer->ip, sizeof ip4);
        words[1] = ip4;
        return hash_words(key, words, 2);
    }
    memcpy(&words[1], peer->ip, sizeof peer->ip);
    return hash_words(key, words, 3);
}

static inline uint64_t own_hash(const struct hash_key *key, uint64_t uid, const struct endpoint *peer,
                                uint16_t port) {
    uint64_t words[4];
    words[0] = uid;
    words[1] = (uint64_t)peer->family << 16 | port;
    memcpy(&words[2], peer->ip, sizeof peer->ip);
    return hash_words(key, words, 4);
}

static inline uint64_t uid_hash(const struct hash_key *key, uint64_t uid) {
    return hash_words(key, &uid, 1);
}

/* Puts another item where the old one stands: cannot fail for lack of memory. */
static inline void hash_table_replace(struct hash_table *table, uint64_t hash, const void *old, void *item) {
    size_t i = hash & table->mask;
    while (table->slots[i].item != old) {
        i = (i + 1) & table->mask;
    }
    table->slots[i].item = item;
}

/* ---- allocation.c ---- */

/* A live allocation of this thread that sent ICE checks, or NULL. */
struct allocation *allocation_find_watched(const struct allocation_table *table, uint64_t uid);
/* From now on allocation_find_watched finds it. False without memory. */
bool allocation_watch(struct allocation *allocation);

/* ---- permission.c ---- */

/* Live or waiting with a channel. */
struct permission *permission_find_known(const struct allocation *allocation, const struct endpoint *peer);
/* The first live permission for the IP on the relayed address, or NULL; the others follow by next_same_ip. */
struct permission *permission_first_on(const struct allocation_table *table,
                                       const struct relayed_address *relayed, const struct endpoint *peer);

/* Finds, makes or revives the permission for the peer's IP. What this does is undone by permission_rollback
 * until permission_commit starts its time. 0, -ENOMEM, -ENOSPC. */
int permission_prepare(struct permission **out, struct allocation *allocation, const struct endpoint *peer);
void permission_commit(struct permission *permission, uint64_t now_us);
/* Undoes every permission and endpoint of the allocation that is prepared and not committed. */
void permission_rollback(struct allocation *allocation);
/* Removes it with its endpoints and their channels. The caller has quiesced. */
void permission_destroy(struct permission *permission);
/* Removes it if it only waited for a channel that is gone. */
void permission_drop_if_idle(struct permission *permission);

/* ---- peer_endpoint.c ---- */

struct peer_endpoint *peer_endpoint_find(const struct allocation *allocation, const struct endpoint *peer);
/* The allocation has no record of this peer. Not claimed yet. 0 or -ENOMEM; the cap is the caller's. */
int peer_endpoint_create(struct peer_endpoint **out, struct permission *permission,
                         const struct endpoint *peer, enum peer_standing standing);
/* It has no channel; the caller has quiesced. */
void peer_endpoint_destroy(struct peer_endpoint *record);
/* Raises an existing record's standing to that of one named in the request in progress. */
void peer_endpoint_name(struct peer_endpoint *record);
/* Ends the request in progress for this record: it stays, or is as before (then true: it has to go). */
void peer_endpoint_settle(struct peer_endpoint *record);
bool peer_endpoint_unsettle(struct peer_endpoint *record);
/* More named endpoints on shared addresses than allowed? */
bool peer_endpoint_over_cap(const struct allocation *allocation);
/* Frees unnamed endpoints until the cap is kept. */
void peer_endpoint_make_room(struct allocation *allocation);

/* Why an endpoint is wanted, from the weakest reason to the strongest. */
enum claim_reason {
    CLAIM_NAMED,   /* in a CreatePermission */
    CLAIM_CHECKED, /* a STUN message was sent to it */
    CLAIM_LEARNED, /* a datagram from it was certainly the allocation's */
    CLAIM_BOUND,   /* a channel was bound to it */
    CLAIM_SENT,    /* data was sent to it */
};
/* Takes the exact entry if it is free or its holder has to yield; else marks the holder's as contested.
 * -ENOMEM with nothing changed; 0 whether it is had now or not. */
int peer_endpoint_claim(struct peer_endpoint *record, enum claim_reason reason, uint64_t now_us);
/* The holder of the exact entry, or NULL. */
struct peer_endpoint *peer_endpoint_holder(const struct allocation_table *table,
                                           const struct relayed_address *relayed,
                                           const struct endpoint *peer);
struct peer_endpoint *peer_endpoint_holder_hashed(const struct allocation_table *table,
                                                  const struct relayed_address *relayed,
                                                  const struct endpoint *peer, uint64_t hash);

/* ---- channel.c ---- */

/* Unbinds and frees; the record stays. */
void channel_remove(struct channel *channel);
void channel_map_deinit(struct channel_map *map);

/* ---- local_pair.c: relay to relay, whom a sender means on a shared relayed address ---- */

struct local_pair {
    uint64_t sender_uid;
    struct permission *permission; /* the receiver's, for form's IP */
    struct allocation *receiver;
    struct endpoint form; /* the sender's address as the receiver permits it */
    struct local_pair *next_of_receiver, **link_of_receiver;
    struct local_pair *next_of_sender, **link_of_sender; /* NULL link: the sender lives on another thread */
};
struct local_pair *local_pair_find(const struct allocation_table *table,
                                   const struct relayed_address *relayed, uint64_t sender_uid);
/* Notes (or corrects) that the sender means the permission's allocation. sender: NULL on another thread.
 * Without memory nothing is noted. */
void local_pair_learn(struct permission *permission, uint64_t sender_uid, struct allocation *sender,
                      const struct endpoint *form);
/* Forgets the pairs that rest on the permission. */
void local_pair_forget_permission(struct permission *permission);
/* Forgets the pairs in which the allocation's relayed address of the family sends. */
void local_pair_forget_sender(struct allocation *sender, enum relay_family family);

#endif
