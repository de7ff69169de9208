/* The table of one relay thread, and the life of allocations in it. */
#include "allocation.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "allocation_private.h"
#include "memory.h"

enum {
    TRIM_PERIOD_US = 1000 * 1000,
    TRIM_MIN_ENDED = 1024, /* fewer ended allocations are not worth a trim */
};

int allocation_table_create(struct allocation_table **out, const struct allocation_table_params *params,
                            uint64_t now_us) {
    struct allocation_table *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return -ENOMEM;
    }
    t->params = *params;
    t->channel_multiplier = hash_words(&params->hash_key, NULL, 0) | 1;
    timer_wheel_init(&t->wheel, now_us, t);
    int err = ice_watch_create(&t->ice, &params->hash_key);
    if (err < 0) {
        free(t);
        return err;
    }
    *out = t;
    return 0;
}

static struct hash_table *table_hashes(struct allocation_table *t, unsigned i) {
    struct hash_table *hashes[] = {&t->by_tuple,        &t->by_uid,    &t->claims, &t->permitted,
                                   &t->own_permissions, &t->own_peers, &t->pairs};
    return i < sizeof hashes / sizeof hashes[0] ? hashes[i] : NULL;
}

void allocation_table_destroy(struct allocation_table *table) {
    if (table == NULL) {
        return;
    }
    size_t at = 0, mask = table->by_tuple.mask;
    while (table->by_tuple.n_items > 0) {
        if (table->by_tuple.mask != mask) { /* shrank: start over */
            mask = table->by_tuple.mask;
            at = 0;
        }
        struct allocation *a = table->by_tuple.slots[at & mask].item;
        if (a != NULL) {
            allocation_destroy(a, ALLOCATION_END_SHUTDOWN);
        } else {
            at++;
        }
    }
    for (unsigned i = 0; table_hashes(table, i) != NULL; i++) {
        assert(table_hashes(table, i)->n_items == 0);
        hash_table_deinit(table_hashes(table, i));
    }
    ice_watch_destroy(table->ice);
    free(table);
}

/* Gives freed memory back to the system once much was freed. */
static void table_trim(struct allocation_table *t, uint64_t now_us) {
    if (t->n_ended_since_trim < TRIM_MIN_ENDED || now_us < t->next_trim_us ||
        t->n_ended_since_trim < t->stats.n_allocations / 4) {
        return;
    }
    t->n_ended_since_trim = 0;
    t->next_trim_us = now_us + TRIM_PERIOD_US;
    memory_give_back();
}

void allocation_table_advance(struct allocation_table *table, uint64_t now_us) {
    timer_wheel_advance(&table->wheel, now_us);
    table_trim(table, now_us);
}

void allocation_table_stats(const struct allocation_table *table, struct allocation_table_stats *out) {
    *out = table->stats;
}

/* ---- finding ---- */

static bool tuple_equal(const void *item, const void *key) {
    return five_tuple_equal(&((const struct allocation *)item)->five_tuple, key);
}

static uint64_t tuple_hash(const struct allocation_table *table, const struct five_tuple *tuple) {
    return five_tuple_hash(&table->params.hash_key, tuple);
}

struct allocation *allocation_find(const struct allocation_table *table, const struct five_tuple *tuple) {
    return hash_table_find(&table->by_tuple, tuple_hash(table, tuple), tuple_equal, tuple);
}

/* ---- warming ---- */

enum { WARM_FROM = 2048, LINE_BYTES = 64 };

bool allocation_table_wants_warming(const struct allocation_table *table) {
    return table->by_tuple.n_items >= WARM_FROM;
}

/* What the relay path reads of an allocation lies in its first cache lines. */
static_assert(offsetof(struct allocation, relay) <= (size_t)2 * LINE_BYTES, "two lines are warmed");

struct allocation *allocation_find_hashed(const struct allocation_table *table,
                                          const struct five_tuple *tuple, uint64_t hash) {
    return hash_table_find(&table->by_tuple, hash, tuple_equal, tuple);
}

void allocation_warm(const struct allocation_table *table, const struct five_tuple *tuples, uint32_t n,
                     uint64_t *out_hashes) {
    const struct hash_table *h = &table->by_tuple;
    const struct allocation *found[LOOKUP_WARM_MAX];
    for (uint32_t i = 0; i < n; i++) {
        out_hashes[i] = tuple_hash(table, &tuples[i]);
        __builtin_prefetch(&h->slots[out_hashes[i] & h->mask]);
    }
    if (h->slots == NULL) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        found[i] =
            h->slots[out_hashes[i] & h->mask].item; /* rarely another's: then its lines are warmed in vain */
        __builtin_prefetch(found[i]);
        __builtin_prefetch((const uint8_t *)found[i] + LINE_BYTES);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (found[i] != NULL && found[i]->channels.n_channels > 0) {
            __builtin_prefetch(found[i]->channels.mask == 0 ? (const void *)found[i]->channels.single
                                                            : (const void *)found[i]->channels.slots);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (found[i] != NULL && found[i]->channels.n_channels > 0 && found[i]->channels.mask == 0) {
            __builtin_prefetch(found[i]->channels.single->peer);
            __builtin_prefetch((const uint8_t *)found[i]->channels.single->peer + LINE_BYTES);
        }
    }
}

/* ---- by number of the process ---- */

static bool uid_equal(const void *item, const void *key) {
    return ((const struct allocation *)item)->uid == *(const uint64_t *)key;
}

struct allocation *allocation_find_watched(const struct allocation_table *table, uint64_t uid) {
    return hash_table_find(&table->by_uid, uid_hash(&table->params.hash_key, uid), uid_equal, &uid);
}

bool allocation_watch(struct allocation *allocation) {
    struct allocation_table *t = allocation->table;
    int err = hash_table_add(&t->by_uid, uid_hash(&t->params.hash_key, allocation->uid), allocation);
    allocation->is_watched = err == 0;
    return allocation->is_watched;
}

/* ---- life ---- */

static void relay_v4_expired(struct wheel_timer *timer, void *context) {
    (void)context;
    struct allocation *a =
        (struct allocation *)((char *)timer - offsetof(struct allocation, relay[RELAY_V4].timer));
    allocation_remove_family(a, RELAY_V4, ALLOCATION_END_EXPIRED);
}

static void relay_v6_expired(struct wheel_timer *timer, void *context) {
    (void)context;
    struct allocation *a =
        (struct allocation *)((char *)timer - offsetof(struct allocation, relay[RELAY_V6].timer));
    allocation_remove_family(a, RELAY_V6, ALLOCATION_END_EXPIRED);
}

static size_t text_bytes(const char *text) {
    return text == NULL ? 0 : strlen(text) + 1;
}

/* One block with its texts behind it. */
static struct allocation *allocation_new(const struct allocation_params *params) {
    size_t n_username = text_bytes(params->username), n_realm = text_bytes(params->realm);
    struct allocation *a = malloc(sizeof *a + n_username + n_realm);
    if (a == NULL) {
        return NULL;
    }
    memset(a, 0, sizeof *a);
    char *text = (char *)(a + 1);
    if (n_username > 0) {
        a->username = memcpy(text, params->username, n_username);
    }
    if (n_realm > 0) {
        a->realm = memcpy(text + n_username, params->realm, n_realm);
    }
    return a;
}

static void relay_attach(struct allocation *a, enum relay_family family, struct relayed_address *address,
                         uint64_t lifetime_us, uint64_t now_us) {
    if (address == NULL) {
        return;
    }
    a->relay[family].address = address;
    a->relay[family].timer.expired = family == RELAY_V4 ? relay_v4_expired : relay_v6_expired;
    address->n_allocations++;
    if (!address->shared) {
        assert(address->owner == NULL);
        address->owner = a;
    }
    allocation_refresh(a, family, lifetime_us, now_us);
}

int allocation_create(struct allocation **out, struct allocation_table *table,
                      const struct allocation_params *params, uint64_t now_us) {
    assert(params->relayed[RELAY_V4] != NULL || params->relayed[RELAY_V6] != NULL);
    struct allocation *a = allocation_new(params);
    if (a == NULL) {
        return -ENOMEM;
    }
    int err = hash_table_add(&table->by_tuple, tuple_hash(table, &params->five_tuple), a);
    if (err < 0) {
        free(a);
        return err;
    }
    a->table = table;
    a->client_link = params->client_link;
    a->five_tuple = params->five_tuple;
    a->uid = (uint64_t)table->params.thread << 48 | ++table->n_created;
    a->user_hash = params->user_hash;
    a->key = params->key;
    a->integrity = params->integrity;
    a->quota = params->quota;
    if (params->transaction_id != NULL) {
        memcpy(a->transaction_id, params->transaction_id, sizeof a->transaction_id);
    }
    relay_attach(a, RELAY_V4, params->relayed[RELAY_V4], params->lifetime_us, now_us);
    relay_attach(a, RELAY_V6, params->relayed[RELAY_V6], params->lifetime_us, now_us);
    table->stats.n_allocations++;
    *out = a;
    return 0;
}

/* The caller has quiesced. */
static void relay_detach(struct allocation *a, enum relay_family family) {
    struct allocation_relay *relay = &a->relay[family];
    if (relay->address == NULL) {
        return;
    }
    struct permission *next;
    for (struct permission *p = a->permissions; p != NULL; p = next) {
        next = p->next_of_allocation;
        if (relay_family_of(&p->ip) == family) {
            permission_destroy(p);
        }
    }
    local_pair_forget_sender(a, family);
    timer_wheel_cancel(&a->table->wheel, &relay->timer);
    relay->address->n_allocations--;
    if (!relay->address->shared) {
        relay->address->owner = NULL;
    }
    const struct relay_carrier *carrier = a->table->params.carrier;
    carrier->release(carrier->context, relay->address);
    relay->address = NULL;
}

void allocation_destroy(struct allocation *allocation, enum allocation_end why) {
    struct allocation_table *t = allocation->table;
    if (t->params.ended != NULL) {
        t->params.ended(t->params.context, allocation, why);
    }
    allocation_table_quiesce(t);
    relay_detach(allocation, RELAY_V4);
    relay_detach(allocation, RELAY_V6);
    assert(allocation->permissions == NULL && allocation->pairs == NULL && allocation->sent_pairs == NULL);
    assert(allocation->channels.n_channels == 0 && allocation->n_peers == 0);
    if (allocation->is_watched) {
        hash_table_remove(&t->by_uid, uid_hash(&t->params.hash_key, allocation->uid), allocation);
    }
    hash_table_remove(&t->by_tuple, tuple_hash(t, &allocation->five_tuple), allocation);
    t->stats.n_allocations--;
    t->n_ended_since_trim++;
    free(allocation);
}

void allocation_refresh(struct allocation *allocation, enum relay_family family, uint64_t lifetime_us,
                        uint64_t now_us) {
    struct allocation_relay *relay = &allocation->relay[family];
    assert(relay->address != NULL);
    relay->expires_us = now_us + lifetime_us;
    timer_wheel_set(&allocation->table->wheel, &relay->timer, relay->expires_us);
}

bool allocation_remove_family(struct allocation *allocation, enum relay_family family,
                              enum allocation_end why) {
    enum relay_family other = family == RELAY_V4 ? RELAY_V6 : RELAY_V4;
    if (allocation->relay[other].address == NULL) {
        allocation_destroy(allocation, why);
        return true;
    }
    allocation_table_quiesce(allocation->table);
    relay_detach(allocation, family);
    return false;
}
