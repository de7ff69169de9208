/* Random lives of many allocations beside a plain model of their permissions and channels. Whatever happens,
 * in time or for lack of memory, a datagram never reaches an allocation that does not permit its sender's IP,
 * nor one on another relayed address; an allocation alone in permitting an IP always gets it; and at the end
 * nothing is left. A failing seed replays. */
#include "peer_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "alloc_fault.h"
#include "allocation_private.h"
#include "state_fixture.h"

enum { ALLOCATIONS = 40, IPS = 6, PORTS = 5, CHANNELS = 6, STEPS = 12000, MAX_PEERS = 12 };

struct model_allocation {
    struct allocation *it;
    struct five_tuple five_tuple;
    uint64_t permitted_until_us[IPS]; /* 0: never */
    uint64_t bound_until_us[CHANNELS];
    struct endpoint bound_to[CHANNELS];
    uint64_t ends_us;
};

struct model {
    struct state_fixture f;
    struct model_allocation allocations[ALLOCATIONS];
    uint64_t random;
    unsigned n_delivered, n_dropped;
};

static struct model m;

static unsigned draw(unsigned n) {
    m.random ^= m.random << 13;
    m.random ^= m.random >> 7;
    m.random ^= m.random << 17;
    return (unsigned)((m.random >> 16) % n);
}

static struct endpoint some_peer(void) {
    unsigned host = draw(IPS), port = 1000 + draw(PORTS);
    return fixture_peer(host, (uint16_t)port);
}

static void draw_fragments(char name[16]) {
    unsigned first = draw(4), second = draw(4);
    snprintf(name, 16, "%u:%u", first, second);
}

static unsigned ip_index(struct endpoint peer) {
    return peer.ip[3];
}

/* Expiry is due at `at`, and certain a tick later; between the two both answers are right. */
enum tri { NO, MAYBE, YES };

static enum tri is_before(uint64_t at_us) {
    if (at_us > m.f.now_us) {
        return YES;
    }
    return at_us + TIMER_WHEEL_TICK_US < m.f.now_us ? NO : MAYBE;
}

static enum tri permits(const struct model_allocation *a, struct endpoint peer) {
    return a->it == NULL ? NO : is_before(a->permitted_until_us[ip_index(peer)]);
}

static struct model_allocation *some_allocation(void) {
    return &m.allocations[draw(ALLOCATIONS)];
}

static void forget_ended(void) {
    for (unsigned i = 0; i < ALLOCATIONS; i++) {
        struct model_allocation *a = &m.allocations[i];
        if (a->it == NULL) {
            continue;
        }
        bool is_there = allocation_find(m.f.table, &a->five_tuple) != NULL;
        assert_true(is_before(a->ends_us) != (is_there ? NO : YES));
        if (!is_there) {
            *a = (struct model_allocation){0};
        }
    }
}

static void step_create_or_end(struct model_allocation *a) {
    static const char *const users[] = {"ann", "bob", "cyd", NULL};
    if (a->it != NULL) {
        if (draw(4) == 0) {
            allocation_destroy(a->it, ALLOCATION_END_REFRESH_0);
            *a = (struct model_allocation){0};
        }
        return;
    }
    a->it = fixture_allocate_v4(&m.f, users[draw(4)]);
    if (a->it == NULL) {
        return;
    }
    a->five_tuple = a->it->five_tuple;
    a->ends_us = m.f.now_us + FIXTURE_LIFETIME_S * UINT64_C(1000000);
}

static void note_permitted(struct model_allocation *a, struct endpoint peer) {
    a->permitted_until_us[ip_index(peer)] = m.f.now_us + m.f.table->params.permission_lifetime_us;
}

static void step_permit(struct model_allocation *a) {
    struct endpoint peers[3];
    unsigned n = 1 + draw(3);
    for (unsigned i = 0; i < n; i++) {
        peers[i] = some_peer();
        if (draw(3) == 0) {
            peers[i].port = 0;
        }
    }
    uint32_t known = a->it->n_known_permissions, endpoints = a->it->n_peers;
    enum stun_status status = permission_install(a->it, peers, n, m.f.now_us);
    for (unsigned i = 0; i < n && status == STUN_OK; i++) {
        note_permitted(a, peers[i]);
    }
    if (status != STUN_OK) {
        assert_int_equal(a->it->n_known_permissions, known);
        assert_int_equal(a->it->n_peers, endpoints);
    }
    assert_true(!a->it->relay[RELAY_V4].address->shared || a->it->n_shared_peers <= MAX_PEERS);
}

static void step_bind(struct model_allocation *a) {
    unsigned c = draw(CHANNELS);
    struct endpoint peer = some_peer();
    enum stun_status status = state_fixture_bind(&m.f, a->it, (uint16_t)(0x4000 + c), peer);
    enum tri was_bound = is_before(a->bound_until_us[c]);
    if (status == STUN_OK) {
        assert_false(was_bound == YES && !endpoint_equal(&a->bound_to[c], &peer));
        a->bound_to[c] = peer;
        a->bound_until_us[c] = m.f.now_us + m.f.table->params.channel_lifetime_us;
        note_permitted(a, peer);
    }
}

static void step_send(struct model_allocation *a) {
    struct endpoint peer = some_peer();
    struct peer_endpoint *record;
    if (draw(3) == 0) {
        char name[16];
        draw_fragments(name);
        record =
            fixture_send_stun(&m.f, a->it, peer, fixture_binding(STUN_REQUEST, (uint8_t)draw(250), name));
    } else {
        record = state_fixture_send(&m.f, a->it, peer);
    }
    assert_true(record == NULL || (record->allocation == a->it && endpoint_equal(&record->peer, &peer)));
}

/* The one that permits the IP beyond doubt, when no other possibly does. */
static const struct model_allocation *only_permitting(const struct relayed_address *relayed,
                                                      struct endpoint peer) {
    const struct model_allocation *only = NULL;
    for (unsigned i = 0; i < ALLOCATIONS; i++) {
        const struct model_allocation *a = &m.allocations[i];
        if (permits(a, peer) == NO || a->it->relay[RELAY_V4].address != relayed) {
            continue;
        }
        if (only != NULL || permits(a, peer) == MAYBE) {
            return NULL;
        }
        only = a;
    }
    return only;
}

static const struct model_allocation *model_of(const struct allocation *it) {
    for (unsigned i = 0; i < ALLOCATIONS; i++) {
        if (m.allocations[i].it == it) {
            return &m.allocations[i];
        }
    }
    fail_msg("delivered to an allocation that is not there");
    return NULL;
}

static void check_channel(const struct model_allocation *a, const struct peer_match *match,
                          struct endpoint peer) {
    if (match->channel != NULL) {
        unsigned c = match->channel->number - 0x4000u;
        assert_true(c < CHANNELS);
        assert_true(endpoint_equal(&a->bound_to[c], &peer));
        assert_true(is_before(a->bound_until_us[c]) != NO);
        return;
    }
    for (unsigned c = 0; c < CHANNELS; c++) {
        assert_false(endpoint_equal(&a->bound_to[c], &peer) && is_before(a->bound_until_us[c]) == YES);
    }
}

static void step_receive(const struct model_allocation *at) {
    const struct relayed_address *relayed = at->it->relay[RELAY_V4].address;
    struct endpoint peer = some_peer();
    struct peer_match match;
    if (draw(3) == 0) {
        char name[16];
        draw_fragments(name);
        enum stun_class class = draw(2) == 0 ? STUN_REQUEST : STUN_SUCCESS;
        match = fixture_receive_stun(&m.f, at->it, peer, fixture_binding(class, (uint8_t)draw(250), name));
    } else {
        match = fixture_receive(&m.f, at->it, peer);
    }
    const struct model_allocation *only = only_permitting(relayed, peer);
    if (match.allocation == NULL) {
        assert_true(match.reason != DROP_NONE);
        assert_null(only);
        m.n_dropped++;
        return;
    }
    const struct model_allocation *owner = model_of(match.allocation);
    assert_true(match.allocation->relay[RELAY_V4].address == relayed);
    assert_true(permits(owner, peer) != NO);
    assert_true(only == NULL || only == owner);
    check_channel(owner, &match, peer);
    m.n_delivered++;
}

static void step_local(const struct model_allocation *from, const struct model_allocation *to) {
    struct endpoint out_peer;
    struct fixture_stun check =
        fixture_binding(STUN_REQUEST, (uint8_t)draw(250), draw(2) == 0 ? "1:2" : "2:1");
    struct peer_match match = fixture_local(&m.f, from->it, to->it, draw(2) == 0 ? &check : NULL, &out_peer);
    if (match.allocation != NULL) {
        assert_true(match.allocation->relay[RELAY_V4].address == to->it->relay[RELAY_V4].address);
        assert_true(match.allocation != from->it || !to->it->relay[RELAY_V4].address->shared);
        assert_non_null(permission_find(match.allocation, &out_peer));
    }
}

/* Now and then two allocations permit each other's relayed addresses and send checks there. */
static void step_local_permit(struct model_allocation *a, const struct model_allocation *b) {
    struct endpoint peer = b->it->relay[RELAY_V4].address->advertised;
    state_fixture_permit(&m.f, a->it, peer);
    fixture_send_stun(&m.f, a->it, peer,
                      fixture_binding(STUN_REQUEST, (uint8_t)draw(250), draw(2) == 0 ? "1:2" : "2:1"));
}

static void step(void) {
    struct model_allocation *a = some_allocation();
    unsigned what = draw(100);
    if (a->it == NULL || what < 4) {
        step_create_or_end(a);
    } else if (what < 20) {
        step_permit(a);
    } else if (what < 30) {
        step_bind(a);
    } else if (what < 60) {
        step_send(a);
    } else if (what < 90) {
        step_receive(a);
    } else {
        struct model_allocation *b = some_allocation();
        if (b->it != NULL && what < 96) {
            step_local(a, b);
        } else if (b->it != NULL) {
            step_local_permit(a, b);
        }
    }
    if (draw(20) == 0) {
        fixture_advance(&m.f, draw(3) == 0 ? draw(100) : draw(30) / 100.0);
        forget_ended();
    }
}

static void run(uint64_t seed, bool shared, unsigned fault_every) {
    m = (struct model){.random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1};
    struct fixture_params params = {.carrier = {.shared = shared, .n_shared = 2},
                                    .max_peers = MAX_PEERS,
                                    .permission_s = 120,
                                    .channel_s = 200};
    assert_int_equal(fixture_create(&m.f, &params), 0);
    for (unsigned i = 0; i < STEPS; i++) {
        if (fault_every != 0) {
            alloc_fault_arm(1 + draw(fault_every));
        }
        step();
        alloc_fault_disarm();
    }
    assert_true(m.n_delivered > STEPS / 100); /* the run went through both */
    assert_true(m.n_dropped > STEPS / 100);
    for (unsigned i = 0; i < ALLOCATIONS; i++) {
        if (m.allocations[i].it != NULL && draw(2) == 0) {
            allocation_destroy(m.allocations[i].it, ALLOCATION_END_CLOSED);
        }
    }
    fixture_advance(&m.f, 10000);
    assert_int_equal(fixture_table_items(&m.f), 0);
    struct allocation_table_stats s;
    allocation_table_stats(m.f.table, &s);
    assert_int_equal(s.n_allocations + s.n_permissions + s.n_channels + s.n_peer_endpoints, 0);
    assert_true(fixture_destroy(&m.f));
}

static void shared_addresses(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        run(seed, true, 0);
    }
}

static void dedicated_addresses(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        run(seed, false, 0);
    }
}

static void with_allocations_failing(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        run(seed, seed % 4 != 0, 4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_addresses),
        cmocka_unit_test(dedicated_addresses),
        cmocka_unit_test(with_allocations_failing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
