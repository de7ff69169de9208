/* Permissions: by allocation and IP, and by (relayed address, IP) in chains of all that permit it. */
#include "allocation.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "allocation_private.h"

struct own_key {
    const struct allocation *allocation;
    const struct endpoint *peer;
};

static bool own_permission_equal(const void *item, const void *key) {
    const struct permission *p = item;
    const struct own_key *k = key;
    return p->allocation == k->allocation && endpoint_same_ip(&p->ip, k->peer);
}

struct chain_key {
    const struct relayed_address *relayed;
    const struct endpoint *peer;
};

static bool chain_equal(const void *item, const void *key) {
    const struct permission *p = item;
    const struct chain_key *k = key;
    return endpoint_same_ip(&p->ip, k->peer) && allocation_relayed(p->allocation, &p->ip) == k->relayed;
}

static uint64_t own_permission_hash(const struct allocation *a, const struct endpoint *peer) {
    return own_hash(&a->table->params.hash_key, a->uid, peer, 0);
}

static uint64_t chain_hash(const struct allocation_table *t, const struct relayed_address *relayed,
                           const struct endpoint *peer) {
    return peer_hash(&t->params.hash_key, relayed->id, peer, 0);
}

struct permission *permission_find_known(const struct allocation *allocation, const struct endpoint *peer) {
    if (allocation->has_permission_index) {
        struct own_key key = {.allocation = allocation, .peer = peer};
        return hash_table_find(&allocation->table->own_permissions, own_permission_hash(allocation, peer),
                               own_permission_equal, &key);
    }
    struct permission *p = allocation->permissions;
    while (p != NULL && !endpoint_same_ip(&p->ip, peer)) {
        p = p->next_of_allocation;
    }
    return p;
}

struct permission *permission_find(const struct allocation *allocation, const struct endpoint *peer) {
    struct permission *p = permission_find_known(allocation, peer);
    return p != NULL && p->is_live ? p : NULL;
}

struct permission *permission_first_on(const struct allocation_table *table,
                                       const struct relayed_address *relayed, const struct endpoint *peer) {
    struct chain_key key = {.relayed = relayed, .peer = peer};
    return hash_table_find(&table->permitted, chain_hash(table, relayed, peer), chain_equal, &key);
}

/* ---- the chain of live permissions for one IP on one relayed address ---- */

static int chain_add(struct permission *p) {
    struct allocation_table *t = p->allocation->table;
    const struct relayed_address *relayed = allocation_relayed(p->allocation, &p->ip);
    struct permission *first = permission_first_on(t, relayed, &p->ip);
    if (first == NULL) {
        int err = hash_table_add(&t->permitted, chain_hash(t, relayed, &p->ip), p);
        if (err < 0) {
            return err;
        }
    } else {
        p->previous_same_ip = first;
        p->next_same_ip = first->next_same_ip;
        if (p->next_same_ip != NULL) {
            p->next_same_ip->previous_same_ip = p;
        }
        first->next_same_ip = p;
    }
    p->is_live = true;
    p->allocation->n_permissions++;
    t->stats.n_permissions++;
    return 0;
}

static void chain_remove(struct permission *p) {
    struct allocation_table *t = p->allocation->table;
    if (p->next_same_ip != NULL) {
        p->next_same_ip->previous_same_ip = p->previous_same_ip;
    }
    if (p->previous_same_ip != NULL) {
        p->previous_same_ip->next_same_ip = p->next_same_ip;
    } else {
        uint64_t hash = chain_hash(t, allocation_relayed(p->allocation, &p->ip), &p->ip);
        if (p->next_same_ip != NULL) {
            hash_table_replace(&t->permitted, hash, p, p->next_same_ip);
        } else {
            hash_table_remove(&t->permitted, hash, p);
        }
    }
    p->next_same_ip = p->previous_same_ip = NULL;
    p->is_live = false;
    p->allocation->n_permissions--;
    t->stats.n_permissions--;
}

/* ---- life of one permission ---- */

static void index_remove(struct permission *p) {
    hash_table_remove(&p->allocation->table->own_permissions, own_permission_hash(p->allocation, &p->ip), p);
}

static int index_add(struct permission *p) {
    return hash_table_add(&p->allocation->table->own_permissions, own_permission_hash(p->allocation, &p->ip),
                          p);
}

/* An allocation with many permissions gets all of them into the index, or none. */
static int index_begin(struct allocation *a) {
    for (struct permission *p = a->permissions; p != NULL; p = p->next_of_allocation) {
        int err = index_add(p);
        if (err < 0) {
            for (struct permission *q = a->permissions; q != p; q = q->next_of_allocation) {
                index_remove(q);
            }
            return err;
        }
    }
    a->has_permission_index = true;
    return 0;
}

static int index_join(struct permission *p) {
    struct allocation *a = p->allocation;
    if (!a->has_permission_index) {
        if (a->n_known_permissions < ALLOCATION_WALKED_MAX) {
            return 0;
        }
        int err = index_begin(a);
        if (err < 0) {
            return err;
        }
    }
    return index_add(p);
}

/* Live without end: nothing passes any more, but what waits for a channel's sake stays known. */
static void permission_expire(struct permission *p) {
    local_pair_forget_permission(p);
    chain_remove(p);
    bool quiesced = false;
    struct peer_endpoint *next;
    for (struct peer_endpoint *record = p->peers; record != NULL; record = next) {
        next = record->next_of_permission;
        record->permission = NULL;
        if (record->channel != NULL) {
            continue;
        }
        if (!quiesced) {
            allocation_table_quiesce(p->allocation->table);
            quiesced = true;
        }
        peer_endpoint_destroy(record);
    }
    permission_drop_if_idle(p);
}

static void permission_expired(struct wheel_timer *timer, void *context) {
    (void)context;
    permission_expire((struct permission *)((char *)timer - offsetof(struct permission, timer)));
}

static int permission_create(struct permission **out, struct allocation *a, const struct endpoint *peer) {
    if (a->n_known_permissions >= ALLOCATION_MAX_PERMISSIONS) {
        return -ENOSPC;
    }
    struct permission *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return -ENOMEM;
    }
    p->allocation = a;
    p->ip = *peer;
    p->ip.port = 0;
    p->timer.expired = permission_expired;
    int err = index_join(p);
    if (err < 0) {
        free(p);
        return err;
    }
    p->next_of_allocation = a->permissions;
    p->link_of_allocation = &a->permissions;
    if (a->permissions != NULL) {
        a->permissions->link_of_allocation = &p->next_of_allocation;
    }
    a->permissions = p;
    a->n_known_permissions++;
    *out = p;
    return 0;
}

void permission_destroy(struct permission *permission) {
    struct allocation *a = permission->allocation;
    if (permission->is_live) {
        local_pair_forget_permission(permission);
        chain_remove(permission);
    }
    while (permission->peers != NULL) {
        if (permission->peers->channel != NULL) {
            channel_remove(permission->peers->channel);
        }
        peer_endpoint_destroy(permission->peers);
    }
    if (a->has_permission_index) {
        index_remove(permission);
    }
    timer_wheel_cancel(&a->table->wheel, &permission->timer);
    *permission->link_of_allocation = permission->next_of_allocation;
    if (permission->next_of_allocation != NULL) {
        permission->next_of_allocation->link_of_allocation = permission->link_of_allocation;
    }
    if (--a->n_known_permissions == 0) {
        a->has_permission_index = false;
    }
    free(permission);
}

void permission_drop_if_idle(struct permission *permission) {
    if (!permission->is_live && permission->peers == NULL) {
        permission_destroy(permission);
    }
}

int permission_prepare(struct permission **out, struct allocation *allocation, const struct endpoint *peer) {
    struct permission *p = permission_find_known(allocation, peer);
    if (p == NULL) {
        int err = permission_create(&p, allocation, peer);
        if (err < 0) {
            return err;
        }
    }
    if (!p->is_live) {
        int err = chain_add(p);
        if (err < 0) {
            permission_drop_if_idle(p);
            return err;
        }
    }
    *out = p;
    return 0;
}

void permission_commit(struct permission *permission, uint64_t now_us) {
    struct allocation_table *t = permission->allocation->table;
    if (!wheel_timer_is_armed(&permission->timer)) {
        for (struct peer_endpoint *r = permission->peers; r != NULL; r = r->next_of_permission) {
            r->permission = permission;
            peer_endpoint_claim(r, CLAIM_NAMED, now_us); /* without memory it goes without */
        }
    }
    timer_wheel_set(&t->wheel, &permission->timer, now_us + t->params.permission_lifetime_us);
}

static void endpoints_rollback(struct permission *p) {
    struct peer_endpoint *next;
    for (struct peer_endpoint *r = p->peers; r != NULL; r = next) {
        next = r->next_of_permission;
        if (peer_endpoint_unsettle(r)) {
            peer_endpoint_destroy(r); /* no batch can have seen it */
        }
    }
}

void permission_rollback(struct allocation *allocation) {
    struct permission *next;
    for (struct permission *p = allocation->permissions; p != NULL; p = next) {
        next = p->next_of_allocation;
        endpoints_rollback(p);
        if (p->is_live && !wheel_timer_is_armed(&p->timer)) {
            chain_remove(p);
        }
        permission_drop_if_idle(p);
    }
}

/* ---- CreatePermission ---- */

static bool has_exact_endpoint(const struct allocation *a, const struct endpoint *peer) {
    return peer->port != 0 && allocation_relayed(a, peer)->shared;
}

static int peer_prepare(struct allocation *a, const struct endpoint *peer, uint64_t now_us) {
    struct permission *p;
    int err = permission_prepare(&p, a, peer);
    if (err < 0 || !has_exact_endpoint(a, peer)) {
        return err;
    }
    struct peer_endpoint *record = peer_endpoint_find(a, peer);
    if (record != NULL) {
        peer_endpoint_name(record);
    } else {
        err = peer_endpoint_create(&record, p, peer, PEER_ADDING);
        if (err == 0) {
            err = peer_endpoint_claim(record, CLAIM_NAMED, now_us);
        }
    }
    return err == 0 && peer_endpoint_over_cap(a) ? -ENOSPC : err;
}

static void peer_commit(struct allocation *a, const struct endpoint *peer, uint64_t now_us) {
    permission_commit(permission_find_known(a, peer), now_us);
    if (has_exact_endpoint(a, peer)) {
        struct peer_endpoint *record = peer_endpoint_find(a, peer);
        peer_endpoint_settle(record);
        peer_endpoint_claim(record, CLAIM_NAMED, now_us);
    }
}

enum stun_status permission_install(struct allocation *allocation, const struct endpoint *peers,
                                    size_t n_peers, uint64_t now_us) {
    for (size_t i = 0; i < n_peers; i++) {
        assert(allocation_relayed(allocation, &peers[i]) != NULL);
        int err = peer_prepare(allocation, &peers[i], now_us);
        if (err < 0) {
            permission_rollback(allocation);
            return err == -ENOSPC ? STUN_INSUFFICIENT_CAPACITY : STUN_SERVER_ERROR;
        }
    }
    for (size_t i = 0; i < n_peers; i++) {
        peer_commit(allocation, &peers[i], now_us);
    }
    peer_endpoint_make_room(allocation);
    return STUN_OK;
}
