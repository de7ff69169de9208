/* Exact peers of allocations, and which of them is the exact entry of the peer table. */
#include "allocation_private.h"

#include <errno.h>
#include <stdlib.h>

struct claim_key {
    const struct relayed_address *relayed;
    const struct endpoint *peer;
};

static bool claim_equal(const void *item, const void *key) {
    const struct peer_endpoint *r = item;
    const struct claim_key *k = key;
    return r->relayed == k->relayed && endpoint_equal(&r->peer, k->peer);
}

static uint64_t claim_hash(const struct allocation_table *t, const struct relayed_address *relayed,
                           const struct endpoint *peer) {
    return peer_hash(&t->params.hash_key, relayed->id, peer, peer->port);
}

struct peer_endpoint *peer_endpoint_holder_hashed(const struct allocation_table *table,
                                                  const struct relayed_address *relayed,
                                                  const struct endpoint *peer, uint64_t hash) {
    struct claim_key key = {.relayed = relayed, .peer = peer};
    return hash_table_find(&table->claims, hash, claim_equal, &key);
}

struct peer_endpoint *peer_endpoint_holder(const struct allocation_table *table,
                                           const struct relayed_address *relayed,
                                           const struct endpoint *peer) {
    return peer_endpoint_holder_hashed(table, relayed, peer, claim_hash(table, relayed, peer));
}

void peer_table_warm(const struct allocation_table *table, const struct relayed_address *relayed,
                     const struct endpoint *const *peers, uint32_t n, uint64_t *out_hashes) {
    enum { LINE_BYTES = 64 };
    const struct hash_table *h = &table->claims;
    const struct peer_endpoint *found[LOOKUP_WARM_MAX];
    for (uint32_t i = 0; i < n; i++) {
        out_hashes[i] = claim_hash(table, relayed, peers[i]);
        __builtin_prefetch(&h->slots[out_hashes[i] & h->mask]);
    }
    if (h->slots == NULL) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        found[i] = h->slots[out_hashes[i] & h->mask].item;
        __builtin_prefetch(found[i]);
        __builtin_prefetch((const uint8_t *)found[i] + LINE_BYTES);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (found[i] != NULL) {
            __builtin_prefetch(found[i]->allocation);
            __builtin_prefetch((const uint8_t *)found[i]->allocation + LINE_BYTES);
            __builtin_prefetch(found[i]->channel);
        }
    }
}

/* ---- by allocation ---- */

struct own_key {
    const struct allocation *allocation;
    const struct endpoint *peer;
};

static bool own_peer_equal(const void *item, const void *key) {
    const struct peer_endpoint *r = item;
    const struct own_key *k = key;
    return r->allocation == k->allocation && endpoint_equal(&r->peer, k->peer);
}

static uint64_t own_peer_hash(const struct allocation *a, const struct endpoint *peer) {
    return own_hash(&a->table->params.hash_key, a->uid, peer, peer->port);
}

struct peer_endpoint *peer_endpoint_find(const struct allocation *allocation, const struct endpoint *peer) {
    const struct relayed_address *relayed = allocation_relayed(allocation, peer);
    struct peer_endpoint *record = peer_endpoint_holder(allocation->table, relayed, peer);
    if (record != NULL && record->allocation == allocation) {
        return record;
    }
    if (allocation->n_shared_peers == 0 || !relayed->shared) {
        return NULL; /* on an address of its own every record holds its entry */
    }
    if (allocation->has_peer_index) {
        struct own_key key = {.allocation = allocation, .peer = peer};
        return hash_table_find(&allocation->table->own_peers, own_peer_hash(allocation, peer), own_peer_equal,
                               &key);
    }
    const struct permission *p = permission_find_known(allocation, peer);
    record = p == NULL ? NULL : p->peers;
    while (record != NULL && !endpoint_equal(&record->peer, peer)) {
        record = record->next_of_permission;
    }
    return record;
}

static int index_add(struct peer_endpoint *r) {
    return hash_table_add(&r->allocation->table->own_peers, own_peer_hash(r->allocation, &r->peer), r);
}

static void index_remove(struct peer_endpoint *r) {
    hash_table_remove(&r->allocation->table->own_peers, own_peer_hash(r->allocation, &r->peer), r);
}

/* Takes the first n endpoints of the allocation out of the index. */
static void index_abandon(struct allocation *a, uint32_t n) {
    for (struct permission *p = a->permissions; p != NULL; p = p->next_of_allocation) {
        for (struct peer_endpoint *r = p->peers; r != NULL && n > 0; r = r->next_of_permission, n--) {
            index_remove(r);
        }
    }
}

static int index_begin(struct allocation *a) {
    uint32_t n_added = 0;
    for (struct permission *p = a->permissions; p != NULL; p = p->next_of_allocation) {
        for (struct peer_endpoint *r = p->peers; r != NULL; r = r->next_of_permission, n_added++) {
            int err = index_add(r);
            if (err < 0) {
                index_abandon(a, n_added);
                return err;
            }
        }
    }
    a->has_peer_index = true;
    return 0;
}

static int index_join(struct peer_endpoint *r) {
    struct allocation *a = r->allocation;
    if (!a->has_peer_index) {
        if (a->n_peers < ALLOCATION_WALKED_MAX) {
            return 0;
        }
        int err = index_begin(a);
        if (err < 0) {
            return err;
        }
    }
    return index_add(r);
}

/* ---- life of one record ---- */

int peer_endpoint_create(struct peer_endpoint **out, struct permission *permission,
                         const struct endpoint *peer, enum peer_standing standing) {
    struct allocation *a = permission->allocation;
    struct peer_endpoint *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return -ENOMEM;
    }
    r->allocation = a;
    r->permission = permission;
    r->relayed = allocation_relayed(a, peer);
    r->peer = *peer;
    r->standing = (uint8_t)standing;
    int err = index_join(r);
    if (err < 0) {
        free(r);
        return err;
    }
    const struct relay_carrier *carrier = a->table->params.carrier;
    r->is_local = carrier->locate(carrier->context, peer, &r->location);
    r->next_of_permission = permission->peers;
    r->link_of_permission = &permission->peers;
    if (permission->peers != NULL) {
        permission->peers->link_of_permission = &r->next_of_permission;
    }
    permission->peers = r;
    a->n_peers++;
    a->n_shared_peers += r->relayed->shared;
    a->n_unnamed_peers += standing == PEER_UNNAMED;
    a->table->stats.n_peer_endpoints++;
    *out = r;
    return 0;
}

void peer_endpoint_destroy(struct peer_endpoint *record) {
    struct allocation *a = record->allocation;
    if (record->has_claim) {
        hash_table_remove(&a->table->claims, claim_hash(a->table, record->relayed, &record->peer), record);
    }
    if (a->has_peer_index) {
        index_remove(record);
    }
    *record->link_of_permission = record->next_of_permission;
    if (record->next_of_permission != NULL) {
        record->next_of_permission->link_of_permission = record->link_of_permission;
    }
    a->n_shared_peers -= record->relayed->shared;
    a->n_unnamed_peers -= record->standing == PEER_UNNAMED;
    a->table->stats.n_peer_endpoints--;
    if (--a->n_peers == 0) {
        a->has_peer_index = false;
    }
    free(record);
}

void peer_endpoint_name(struct peer_endpoint *record) {
    if (record->standing == PEER_UNNAMED) {
        record->standing = PEER_NAMING;
        record->allocation->n_unnamed_peers--;
    }
}

void peer_endpoint_settle(struct peer_endpoint *record) {
    record->standing = PEER_NAMED;
}

bool peer_endpoint_unsettle(struct peer_endpoint *record) {
    if (record->standing == PEER_NAMING) {
        record->standing = PEER_UNNAMED;
        record->allocation->n_unnamed_peers++;
    }
    return record->standing == PEER_ADDING;
}

bool peer_endpoint_over_cap(const struct allocation *allocation) {
    return allocation->n_shared_peers - allocation->n_unnamed_peers > allocation->table->params.max_peers;
}

/* Frees unnamed endpoints, only those never sent to if so asked, until the cap is kept. */
static void make_room(struct allocation *a, bool never_sent_only) {
    for (struct permission *p = a->permissions; p != NULL; p = p->next_of_allocation) {
        struct peer_endpoint *next;
        for (struct peer_endpoint *r = p->peers; r != NULL; r = next) {
            next = r->next_of_permission;
            if (a->n_shared_peers <= a->table->params.max_peers) {
                return;
            }
            if (r->standing == PEER_UNNAMED && !(never_sent_only && r->last_sent_us != 0)) {
                peer_endpoint_destroy(r);
            }
        }
    }
}

void peer_endpoint_make_room(struct allocation *allocation) {
    if (allocation->n_shared_peers > allocation->table->params.max_peers) {
        allocation_table_quiesce(allocation->table);
        make_room(allocation, true);
        make_room(allocation, false);
    }
}

/* ---- claims ---- */

/* A reconnect takes over at once: the newer allocation of the same user. */
static bool is_newer_of_same_user(const struct allocation *a, const struct allocation *holder) {
    return allocation_same_user(a, holder) && a->uid > holder->uid;
}

static bool claim_yields(const struct peer_endpoint *holder, const struct peer_endpoint *record,
                         enum claim_reason reason, uint64_t now_us) {
    if (holder->permission == NULL) {
        return true; /* the claim ended with its permission */
    }
    uint64_t idle_us = record->allocation->table->params.claim_idle_us;
    bool is_idle = holder->last_sent_us == 0 || now_us - holder->last_sent_us >= idle_us;
    bool is_newer = is_newer_of_same_user(record->allocation, holder->allocation);
    switch (reason) {
    case CLAIM_NAMED:
        return false;
    case CLAIM_CHECKED:
        return is_newer && holder->last_sent_us == 0;
    case CLAIM_LEARNED:
        return is_idle;
    case CLAIM_BOUND:
    case CLAIM_SENT:
        return is_idle || is_newer;
    }
    return false;
}

int peer_endpoint_claim(struct peer_endpoint *record, enum claim_reason reason, uint64_t now_us) {
    struct allocation_table *t = record->allocation->table;
    if (record->has_claim || (record->is_local && record->relayed->shared)) {
        return 0; /* what comes from our own relayed addresses is matched by its sender, not by address */
    }
    struct peer_endpoint *holder = peer_endpoint_holder(t, record->relayed, &record->peer);
    uint64_t hash = claim_hash(t, record->relayed, &record->peer);
    if (holder == NULL) {
        int err = hash_table_add(&t->claims, hash, record);
        record->has_claim = err == 0;
        record->is_contested = false;
        return err;
    }
    if (!claim_yields(holder, record, reason, now_us)) {
        holder->is_contested = true;
        return 0;
    }
    hash_table_replace(&t->claims, hash, holder, record);
    holder->has_claim = false;
    record->has_claim = true;
    record->is_contested = holder->permission != NULL; /* the other may well go on */
    return 0;
}

static bool is_stun(const uint8_t *payload, uint32_t n_payload) {
    return payload != NULL && stun_looks_like_message(payload, n_payload);
}

static void note_check(struct allocation *a, const struct relayed_address *relayed,
                       const struct endpoint *peer, const uint8_t *payload, uint32_t n_payload,
                       uint64_t now_us) {
    if (ice_watch_is_check(payload, n_payload) && (a->is_watched || allocation_watch(a))) {
        ice_watch_note(a->table->ice, relayed->id, a->uid, peer, payload, n_payload, now_us);
    }
}

/* The record of an endpoint the client sends to without having named it, if there is room for one. */
static struct peer_endpoint *record_sent_to(struct allocation *a, const struct endpoint *peer) {
    struct peer_endpoint *record = peer_endpoint_find(a, peer);
    struct permission *p = record == NULL ? permission_find(a, peer) : NULL;
    if (p != NULL && a->n_shared_peers < a->table->params.max_peers &&
        peer_endpoint_create(&record, p, peer, PEER_UNNAMED) < 0) {
        return NULL;
    }
    return record;
}

struct peer_endpoint *peer_table_note_sent(struct allocation *allocation, struct peer_endpoint *exact,
                                           const struct endpoint *peer, const uint8_t *payload,
                                           uint32_t n_payload, uint64_t now_us) {
    const struct relayed_address *relayed = allocation_relayed(allocation, peer);
    if (!relayed->shared || (exact != NULL && exact->permission == NULL)) {
        return exact;
    }
    struct peer_endpoint *record = exact != NULL ? exact : record_sent_to(allocation, peer);
    bool stun = is_stun(payload, n_payload);
    if (stun) {
        note_check(allocation, relayed, peer, payload, n_payload, now_us);
    }
    if (record == NULL || record->permission == NULL) {
        return record;
    }
    if (!record->has_claim) {
        peer_endpoint_claim(record, stun ? CLAIM_CHECKED : CLAIM_SENT, now_us); /* else it goes without */
    }
    if (!stun) {
        record->last_sent_us = now_us == 0 ? 1 : now_us;
    }
    return record;
}
