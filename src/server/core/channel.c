/* Channels: numbers of one allocation, each bound to one exact peer (RFC 8656, 12). */
#include "allocation.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "allocation_private.h"

enum { MAP_FIRST_SLOTS = 4 };

/* ---- the map: one inline slot, then at most half full ---- */

static uint32_t home_slot(const struct allocation *a, uint32_t mask, uint16_t number) {
    return (uint32_t)((number * a->table->channel_multiplier) >> 40) & mask;
}

struct channel *channel_find(const struct allocation *allocation, uint16_t number) {
    const struct channel_map *m = &allocation->channels;
    if (m->n_channels == 0) {
        return NULL;
    }
    if (m->mask == 0) {
        return m->single->number == number ? m->single : NULL;
    }
    for (uint32_t i = home_slot(allocation, m->mask, number);; i = (i + 1) & m->mask) {
        struct channel *c = m->slots[i];
        if (c == NULL || c->number == number) {
            return c;
        }
    }
}

static void map_put(const struct allocation *a, struct channel **slots, uint32_t mask, struct channel *c) {
    uint32_t i = home_slot(a, mask, c->number);
    while (slots[i] != NULL) {
        i = (i + 1) & mask;
    }
    slots[i] = c;
}

static int map_resize(struct allocation *a, uint32_t n_slots) {
    assert(n_slots >= MAP_FIRST_SLOTS);
    struct channel_map *m = &a->channels;
    struct channel **slots = calloc(n_slots, sizeof(struct channel *));
    if (slots == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; m->n_channels > 0 && i <= m->mask; i++) {
        if (m->slots[i] != NULL) {
            map_put(a, slots, n_slots - 1, m->slots[i]);
        }
    }
    channel_map_deinit(m);
    m->slots = slots;
    m->mask = n_slots - 1;
    return 0;
}

void channel_map_deinit(struct channel_map *map) {
    if (map->slots != &map->single) {
        free(map->slots);
    }
    map->slots = NULL;
    map->single = NULL;
    map->mask = 0;
}

static int map_add(struct allocation *a, struct channel *c) {
    struct channel_map *m = &a->channels;
    if (m->n_channels == 0 && m->mask == 0) {
        m->slots = &m->single;
        m->single = c;
        m->n_channels = 1;
        return 0;
    }
    if (2 * (m->n_channels + 1) > m->mask + 1) {
        int err = map_resize(a, m->mask == 0 ? MAP_FIRST_SLOTS : 2 * (m->mask + 1));
        if (err < 0) {
            return err;
        }
    }
    map_put(a, m->slots, m->mask, c);
    m->n_channels++;
    return 0;
}

/* Moves back whatever the gap would cut off from its home slot. */
static void close_gap(const struct allocation *a, struct channel_map *m, uint32_t gap) {
    for (uint32_t i = (gap + 1) & m->mask; m->slots[i] != NULL; i = (i + 1) & m->mask) {
        uint32_t home = home_slot(a, m->mask, m->slots[i]->number);
        if (((i - home) & m->mask) >= ((i - gap) & m->mask)) {
            m->slots[gap] = m->slots[i];
            m->slots[i] = NULL;
            gap = i;
        }
    }
}

static void map_remove(struct allocation *a, struct channel *c) {
    struct channel_map *m = &a->channels;
    uint32_t at = m->mask == 0 ? 0 : home_slot(a, m->mask, c->number);
    while (m->slots[at] != c) {
        at = (at + 1) & m->mask;
    }
    m->slots[at] = NULL;
    if (--m->n_channels == 0) {
        channel_map_deinit(m);
        return;
    }
    close_gap(a, m, at);
    if (m->mask + 1 > MAP_FIRST_SLOTS && 8 * m->n_channels <= m->mask + 1) {
        map_resize(a, (m->mask + 1) / 2); /* without memory it stays large */
    }
}

/* ---- channels ---- */

void channel_remove(struct channel *channel) {
    struct allocation *a = channel->peer->allocation;
    map_remove(a, channel);
    channel->peer->channel = NULL;
    timer_wheel_cancel(&a->table->wheel, &channel->timer);
    a->table->stats.n_channels--;
    free(channel);
}

/* Data goes on as indications, unless the record was there for the channel alone. */
static void channel_expired(struct wheel_timer *timer, void *context) {
    (void)context;
    struct channel *channel = (struct channel *)((char *)timer - offsetof(struct channel, timer));
    struct peer_endpoint *record = channel->peer;
    channel_remove(channel);
    if (record->permission == NULL || !record->relayed->shared) {
        struct permission *p = permission_find_known(record->allocation, &record->peer);
        allocation_table_quiesce(record->allocation->table);
        peer_endpoint_destroy(record);
        permission_drop_if_idle(p);
    }
}

static int channel_create(struct channel **out, struct peer_endpoint *record, uint16_t number) {
    struct channel *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return -ENOMEM;
    }
    c->number = number;
    c->peer = record;
    c->timer.expired = channel_expired;
    int err = map_add(record->allocation, c);
    if (err < 0) {
        free(c);
        return err;
    }
    record->channel = c;
    record->allocation->table->stats.n_channels++;
    *out = c;
    return 0;
}

static int record_prepare(struct peer_endpoint **record, struct permission *p, const struct endpoint *peer) {
    if (*record != NULL) {
        peer_endpoint_name(*record);
    } else {
        int err = peer_endpoint_create(record, p, peer, PEER_ADDING);
        if (err < 0) {
            return err;
        }
    }
    return (*record)->relayed->shared && peer_endpoint_over_cap(p->allocation) ? -ENOSPC : 0;
}

/* The claim comes last: once had, it is not given back. */
static int binding_prepare(struct channel **channel, struct peer_endpoint *record, struct permission *p,
                           uint16_t number, const struct endpoint *peer, uint64_t now_us) {
    int err = record_prepare(&record, p, peer);
    if (err < 0) {
        return err;
    }
    if (*channel == NULL) {
        err = channel_create(channel, record, number);
        if (err < 0) {
            return err;
        }
        err = peer_endpoint_claim(record, CLAIM_BOUND, now_us);
        if (err < 0) {
            channel_remove(*channel);
        }
    }
    return err;
}

enum stun_status channel_bind(struct allocation *allocation, uint16_t number, const struct endpoint *peer,
                              uint64_t now_us) {
    assert(allocation_relayed(allocation, peer) != NULL);
    struct allocation_table *t = allocation->table;
    struct channel *channel = channel_find(allocation, number);
    struct peer_endpoint *record = peer_endpoint_find(allocation, peer);
    if (channel != (record == NULL ? NULL : record->channel)) {
        return STUN_BAD_REQUEST; /* RFC 8656, 12.2: neither may be bound otherwise */
    }
    struct permission *p;
    int err = permission_prepare(&p, allocation, peer);
    if (err == 0) {
        err = binding_prepare(&channel, record, p, number, peer, now_us);
    }
    if (err < 0) {
        permission_rollback(allocation);
        return err == -ENOSPC ? STUN_INSUFFICIENT_CAPACITY : STUN_SERVER_ERROR;
    }
    assert(channel != NULL);
    permission_commit(p, now_us);
    peer_endpoint_settle(channel->peer);
    peer_endpoint_claim(channel->peer, CLAIM_BOUND, now_us); /* a renewed one may have lost it */
    timer_wheel_set(&t->wheel, &channel->timer, now_us + t->params.channel_lifetime_us);
    peer_endpoint_make_room(allocation);
    return STUN_OK;
}
