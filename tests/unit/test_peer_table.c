#include "peer_table.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "alloc_fault.h"
#include "allocation_private.h"
#include "state_fixture.h"

static struct state_fixture f;

static int make(void **state) {
    (void)state;
    return fixture_create(&f, &(struct fixture_params){.carrier.shared = true});
}

static int make_three(void **state) {
    (void)state;
    return fixture_create(&f, &(struct fixture_params){.carrier.shared = true, .max_peers = 3});
}

static int make_dedicated(void **state) {
    (void)state;
    return fixture_create(&f, &(struct fixture_params){.carrier.shared = false});
}

static int make_two_ports(void **state) {
    (void)state;
    return fixture_create(&f, &(struct fixture_params){.carrier = {.shared = true, .n_shared = 2}});
}

static int unmake(void **state) {
    (void)state;
    return fixture_destroy(&f) ? 0 : -1;
}

static struct allocation *permitting(const char *user, struct endpoint peer) {
    struct allocation *a = fixture_allocate_v4(&f, user);
    assert_int_equal(state_fixture_permit(&f, a, peer), STUN_OK);
    return a;
}

static struct allocation *binding(const char *user, struct endpoint peer) {
    struct allocation *a = fixture_allocate_v4(&f, user);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, peer), STUN_OK);
    return a;
}

static void assert_owner(const struct allocation *a, struct endpoint peer) {
    struct peer_match match = fixture_receive(&f, a, peer);
    assert_ptr_equal(match.allocation, a);
    assert_int_equal(match.reason, DROP_NONE);
}

static void assert_dropped(const struct allocation *at, struct endpoint peer, enum drop_reason reason) {
    struct peer_match match = fixture_receive(&f, at, peer);
    assert_null(match.allocation);
    assert_null(match.channel);
    assert_null(match.peer);
    assert_string_equal(drop_reason_name(match.reason), drop_reason_name(reason));
}

static void a_stranger_reaches_nobody(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    enum drop_reason expected = a->relay[RELAY_V4].address->shared ? DROP_UNKNOWN_PEER : DROP_NO_PERMISSION;
    assert_dropped(a, fixture_peer(1, 1), expected);
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(2, 1)), STUN_OK);
    assert_dropped(a, fixture_peer(1, 1), expected);
    assert_owner(a, fixture_peer(2, 1));
}

static void relayed_addresses_are_apart(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 1);
    struct allocation *a = permitting("ann", p), *b = fixture_allocate_v4(&f, "bob");
    assert_true(a->relay[RELAY_V4].address != b->relay[RELAY_V4].address);
    assert_owner(a, p);
    assert_null(fixture_receive(&f, b, p).allocation);
    assert_int_equal(state_fixture_permit(&f, b, p), STUN_OK);
    assert_owner(a, p);
    assert_owner(b, p);
}

static void each_gets_what_its_own_peer_sends(void **state) {
    (void)state;
    struct allocation *allocations[30];
    for (unsigned i = 0; i < 30; i++) {
        allocations[i] = permitting("ann", fixture_peer(i % 10, (uint16_t)(1000 + i)));
    }
    for (unsigned i = 0; i < 30; i++) {
        assert_owner(allocations[i], fixture_peer(i % 10, (uint16_t)(1000 + i)));
    }
}

/* A peer behind a NAT that gives it a port of its own towards the relay. */
static void the_only_permission_for_the_ip_decides_and_is_learned(void **state) {
    (void)state;
    struct allocation *a = permitting("ann", fixture_peer(1, 5000));
    struct endpoint natted = fixture_peer(1, 6001);
    assert_owner(a, natted);
    assert_true(peer_endpoint_find(a, &natted)->has_claim);
    permitting("bob", fixture_peer(1, 7000));
    assert_owner(a, natted); /* learned before there was doubt */
    assert_dropped(a, fixture_peer(1, 6002), DROP_AMBIGUOUS_PEER);
}

static void beyond_the_cap_it_is_delivered_and_not_learned(void **state) {
    (void)state;
    struct allocation *a = permitting("ann", fixture_peer(1, 0));
    for (uint16_t port = 1; port <= 10; port++) {
        assert_owner(a, fixture_peer(1, port));
        struct endpoint p = fixture_peer(1, port);
        assert_int_equal(peer_endpoint_find(a, &p) != NULL, port <= 3);
    }
    assert_int_equal(a->n_peers, 3);
    assert_null(state_fixture_send(&f, a, fixture_peer(1, 10)));
    assert_non_null(state_fixture_send(&f, a, fixture_peer(1, 3)));
}

static void a_permission_does_not_move_a_claim(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = permitting("ann", p), *b = permitting("ann", p); /* newer, of the same user */
    assert_owner(a, p);
    assert_true(fixture_receive(&f, a, p).peer->is_contested);
    state_fixture_send(&f, b, p);
    assert_owner(b, p);
    assert_true(fixture_receive(&f, a, p).peer->is_contested);
}

static void an_idle_claim_of_another_user_yields_to_data(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = binding("ann", p), *b = permitting("bob", p);
    assert_owner(a, p);
    state_fixture_send(&f, b, p); /* ann never sent */
    assert_owner(b, p);
    state_fixture_send(&f, a, p);
    assert_owner(b, p);
    for (unsigned s = 0; s < 2 * FIXTURE_CLAIM_IDLE_S; s += 5) {
        fixture_advance(&f, 5);
        state_fixture_send(&f, b, p);
        state_fixture_send(&f, a, p);
        assert_owner(b, p); /* never taken while in use */
    }
    fixture_advance(&f, FIXTURE_CLAIM_IDLE_S - 0.000001);
    state_fixture_send(&f, a, p);
    assert_owner(b, p);
    fixture_advance(&f, 0.000001);
    state_fixture_send(&f, a, p);
    assert_owner(a, p);
}

static void stun_does_not_keep_a_claim_alive(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = binding("ann", p), *b = permitting("bob", p);
    state_fixture_send(&f, a, p);
    for (unsigned s = 0; s < FIXTURE_CLAIM_IDLE_S; s += 5) {
        fixture_advance(&f, 5);
        fixture_send_stun(&f, a, p, fixture_binding(STUN_REQUEST, (uint8_t)s, "x:y"));
    }
    state_fixture_send(&f, b, p);
    assert_owner(b, p);
}

static void binding_takes_an_idle_claim_only(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000), q = fixture_peer(2, 5000);
    struct allocation *a = binding("ann", p), *b = binding("bob", p);
    assert_owner(b, p);
    assert_int_equal(state_fixture_bind(&f, a, 0x4001, q), STUN_OK);
    state_fixture_send(&f, a, q);
    assert_int_equal(state_fixture_bind(&f, b, 0x4001, q), STUN_OK); /* granted, but */
    assert_owner(a, q);
}

static void a_reconnect_takes_over_at_once(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *old = binding("ann", p);
    state_fixture_send(&f, old, p);
    struct allocation *new = binding("ann", p);
    assert_owner(new, p);
    state_fixture_send(&f, new, p);
    state_fixture_send(&f, old, p); /* the older does not take it back while the newer is in use */
    assert_owner(new, p);
    fixture_advance(&f, FIXTURE_CLAIM_IDLE_S);
    state_fixture_send(&f, old, p);
    assert_owner(old, p);
    state_fixture_send(&f, new, p);
    assert_owner(new, p);
}

static void nobody_is_the_same_user_without_a_name(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *old = binding(NULL, p);
    state_fixture_send(&f, old, p);
    struct allocation *new = binding(NULL, p);
    state_fixture_send(&f, new, p);
    assert_owner(old, p);
}

static void twenty_bind_one_peer_and_each_gets_its_answer(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *allocations[20];
    for (unsigned i = 0; i < 20; i++) {
        allocations[i] = binding("ann", p);
    }
    for (unsigned i = 0; i < 20; i++) {
        struct channel *c = channel_find(allocations[i], 0x4000);
        assert_ptr_equal(
            peer_table_note_sent(allocations[i], c->peer, &p, (const uint8_t *)"hello", 5, f.now_us),
            c->peer);
        assert_owner(allocations[i], p);
        assert_ptr_equal(fixture_receive(&f, allocations[i], p).channel, c);
    }
}

static void a_claim_ends_with_its_permission(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = permitting("ann", p);
    state_fixture_send(&f, a, p);
    fixture_advance(&f, FIXTURE_PERMISSION_S + 0.2);
    struct allocation *b = permitting("bob", p);
    assert_owner(b, p);
    assert_false(fixture_receive(&f, a, p).peer->is_contested);
    state_fixture_send(&f, a, p);
    assert_owner(b, p);
}

static void a_bound_claim_ends_with_its_permission_and_comes_back_if_free(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000), q = fixture_peer(2, 5000);
    struct allocation *a = binding("ann", p);
    assert_int_equal(state_fixture_bind(&f, a, 0x4001, q), STUN_OK);
    allocation_refresh(a, RELAY_V4, UINT64_C(3600000000), f.now_us);
    state_fixture_send(&f, a, p);
    fixture_advance(&f, FIXTURE_PERMISSION_S + 0.2);
    assert_dropped(a, p, DROP_NO_PERMISSION);
    struct allocation *b = permitting("bob", p);
    assert_owner(b, p);
    state_fixture_send(&f, b, p);
    struct endpoint both[] = {p, q};
    assert_int_equal(permission_install(a, both, 2, f.now_us), STUN_OK);
    assert_owner(b, p); /* taken meanwhile and in use */
    assert_ptr_equal(fixture_receive(&f, a, q).channel, channel_find(a, 0x4001));
    allocation_destroy(b, ALLOCATION_END_REFRESH_0);
    assert_ptr_equal(fixture_receive(&f, a, p).channel,
                     channel_find(a, 0x4000)); /* rule of the only permission */
    assert_true(fixture_receive(&f, a, p).peer->has_claim);
}

static void a_deleted_allocation_frees_its_claims_at_once(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = binding("ann", p);
    state_fixture_send(&f, a, p);
    struct allocation *b = fixture_allocate_v4(&f, "bob");
    allocation_destroy(a, ALLOCATION_END_REFRESH_0);
    assert_int_equal(state_fixture_permit(&f, b, p), STUN_OK);
    assert_owner(b, p);
}

static void one_of_two_permissions_gone_ends_the_doubt(void **state) {
    (void)state;
    struct allocation *a = permitting("ann", fixture_peer(1, 1)), *b = permitting("bob", fixture_peer(1, 2));
    struct allocation *c = permitting("cyd", fixture_peer(1, 3));
    struct endpoint r = fixture_peer(1, 9);
    assert_dropped(a, r, DROP_AMBIGUOUS_PEER);
    allocation_destroy(b, ALLOCATION_END_CLOSED); /* the middle of the chain, then its head */
    assert_dropped(a, r, DROP_AMBIGUOUS_PEER);
    allocation_destroy(a, ALLOCATION_END_CLOSED);
    assert_owner(c, r);
}

static void a_claim_without_permission_is_free_however_busy_it_was(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = binding("ann", p);
    fixture_advance(&f, FIXTURE_PERMISSION_S - 1);
    state_fixture_send(&f, a, p);
    fixture_advance(&f, 1.2);
    struct allocation *b = permitting("bob", p);
    struct peer_endpoint *holder = peer_endpoint_holder(f.table, b->relay[RELAY_V4].address, &p);
    assert_ptr_equal(holder->allocation, b);
    assert_false(holder->is_contested);
    assert_false(channel_find(a, 0x4000)->peer->has_claim);
}

/* The others' permissions for the IP would leave nothing but doubt without the exact entry. */
static void a_lost_claim_is_had_again_once_it_is_free(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000), ip = fixture_peer(1, 0);
    struct allocation *a = binding("ann", p);
    allocation_refresh(a, RELAY_V4, UINT64_C(3600000000), f.now_us);
    fixture_advance(&f, FIXTURE_PERMISSION_S + 0.2);
    struct allocation *b = permitting("bob", p);
    permitting("cyd", ip);
    permitting("dan", ip);
    allocation_destroy(b, ALLOCATION_END_CLOSED);
    assert_dropped(a, p, DROP_AMBIGUOUS_PEER);
    assert_int_equal(state_fixture_permit(&f, a, ip), STUN_OK);
    assert_owner(a, p);
}

static void naming_again_claims_what_became_free(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = permitting("ann", p), *b = permitting("bob", p);
    permitting("cyd", fixture_peer(1, 0));
    allocation_destroy(a, ALLOCATION_END_CLOSED);
    assert_dropped(b, p, DROP_AMBIGUOUS_PEER);
    assert_int_equal(state_fixture_permit(&f, b, p), STUN_OK);
    assert_owner(b, p);
}

static void binding_again_takes_back_an_idle_claim(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = binding("ann", p), *b = permitting("bob", p);
    state_fixture_send(&f, b, p);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, p), STUN_OK);
    assert_owner(b, p);
    fixture_advance(&f, FIXTURE_CLAIM_IDLE_S);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, p), STUN_OK);
    assert_owner(a, p);
}

/* ---- STUN ---- */

static void an_answer_takes_an_idle_claim_and_no_other(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = binding("ann", p), *b = permitting("bob", p);
    fixture_send_stun(&f, b, p, fixture_binding(STUN_REQUEST, 2, "sfu:bob"));
    assert_owner(a, p);
    struct fixture_stun answer = fixture_binding(STUN_SUCCESS, 2, NULL);
    assert_ptr_equal(fixture_receive_stun(&f, a, p, answer).allocation, b);
    assert_owner(b, p);
    state_fixture_send(&f, a, p);
    assert_owner(a, p);
    assert_ptr_equal(fixture_receive_stun(&f, a, p, answer).allocation, b);
    assert_owner(a, p);
}

static void a_contested_peers_answers_go_to_whoever_asked(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = permitting("ann", p), *b = permitting("bob", p);
    state_fixture_send(&f, a, p);
    fixture_send_stun(&f, a, p, fixture_binding(STUN_REQUEST, 1, "sfu:ann"));
    fixture_send_stun(&f, b, p, fixture_binding(STUN_REQUEST, 2, "sfu:bob"));
    assert_ptr_equal(fixture_receive_stun(&f, a, p, fixture_binding(STUN_SUCCESS, 2, NULL)).allocation, b);
    assert_ptr_equal(fixture_receive_stun(&f, a, p, fixture_binding(STUN_ERROR, 1, NULL)).allocation, a);
    assert_ptr_equal(fixture_receive_stun(&f, a, p, fixture_binding(STUN_REQUEST, 9, "bob:sfu")).allocation,
                     b);
    assert_ptr_equal(fixture_receive_stun(&f, a, p, fixture_binding(STUN_REQUEST, 9, "ann:sfu")).allocation,
                     a);
    assert_owner(a, p); /* data stays with the claim in use */
    struct peer_match unknown = fixture_receive_stun(&f, a, p, fixture_binding(STUN_REQUEST, 9, "cyd:sfu"));
    assert_ptr_equal(unknown.allocation, a);
}

static void an_uncontested_peers_stun_is_not_looked_into(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *b = permitting("bob", fixture_peer(1, 1));
    fixture_send_stun(&f, b, fixture_peer(1, 1), fixture_binding(STUN_REQUEST, 2, "sfu:bob"));
    struct allocation *a = permitting("ann", p);
    assert_ptr_equal(fixture_receive_stun(&f, a, p, fixture_binding(STUN_SUCCESS, 2, NULL)).allocation, a);
}

static void stun_decides_where_addresses_cannot(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000), natted = fixture_peer(1, 6000);
    struct allocation *a = permitting("ann", p), *b = permitting("bob", fixture_peer(1, 0));
    fixture_send_stun(&f, b, fixture_peer(1, 5001), fixture_binding(STUN_REQUEST, 2, "them:bob"));
    assert_dropped(a, natted, DROP_AMBIGUOUS_PEER);
    struct peer_match match =
        fixture_receive_stun(&f, a, natted, fixture_binding(STUN_REQUEST, 7, "bob:them"));
    assert_ptr_equal(match.allocation, b);
    assert_owner(b, natted); /* learned */
    fixture_send_stun(&f, a, p, fixture_binding(STUN_REQUEST, 3, "them:ann"));
    match = fixture_receive_stun(&f, a, fixture_peer(1, 6001), fixture_binding(STUN_SUCCESS, 3, NULL));
    assert_ptr_equal(match.allocation, a);
    assert_owner(a, fixture_peer(1, 6001));
}

static void stun_finds_nobody_without_a_permission(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000), elsewhere = fixture_peer(2, 5000);
    struct allocation *a = permitting("ann", p);
    fixture_send_stun(&f, a, p, fixture_binding(STUN_REQUEST, 2, "them:ann"));
    struct fixture_stun check = fixture_binding(STUN_REQUEST, 7, "ann:them");
    struct peer_match match = fixture_receive_stun(&f, a, elsewhere, check);
    assert_null(match.allocation);
    assert_int_equal(match.reason, DROP_UNKNOWN_PEER);
    permitting("bob", elsewhere);
    permitting("cyd", elsewhere);
    match = fixture_receive_stun(&f, a, fixture_peer(2, 1), check);
    assert_null(match.allocation);
    assert_int_equal(match.reason, DROP_AMBIGUOUS_PEER);
    assert_int_equal(state_fixture_permit(&f, a, elsewhere), STUN_OK);
    match = fixture_receive_stun(&f, a, fixture_peer(2, 1), check);
    assert_ptr_equal(match.allocation, a);
}

static void stun_does_not_cross_relayed_addresses(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = permitting("ann", p), *b = permitting("bob", p), *c = permitting("cyd", p);
    struct allocation *d = permitting("dan", p);
    assert_ptr_equal(a->relay[RELAY_V4].address, c->relay[RELAY_V4].address);
    assert_ptr_equal(b->relay[RELAY_V4].address, d->relay[RELAY_V4].address);
    fixture_send_stun(&f, a, p, fixture_binding(STUN_REQUEST, 2, "them:ann"));
    struct peer_match match =
        fixture_receive_stun(&f, b, fixture_peer(1, 9), fixture_binding(STUN_REQUEST, 7, "ann:them"));
    assert_int_equal(match.reason, DROP_AMBIGUOUS_PEER);
    match = fixture_receive_stun(&f, b, fixture_peer(1, 9), fixture_binding(STUN_SUCCESS, 2, NULL));
    assert_int_equal(match.reason, DROP_AMBIGUOUS_PEER);
}

static void an_ended_allocations_checks_find_nobody(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = permitting("ann", p), *b = permitting("bob", p), *c = permitting("cyd", p);
    fixture_send_stun(&f, a, p, fixture_binding(STUN_REQUEST, 2, "them:ann"));
    allocation_destroy(a, ALLOCATION_END_CLOSED);
    struct peer_match match =
        fixture_receive_stun(&f, b, fixture_peer(1, 9), fixture_binding(STUN_REQUEST, 7, "ann:them"));
    assert_int_equal(match.reason, DROP_AMBIGUOUS_PEER);
    assert_int_equal(f.table->by_uid.n_items, 0);
    (void)c;
}

static void checks_claim_what_is_free_or_an_idle_elders(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = permitting("ann", fixture_peer(1, 0)), *b = permitting("ann", fixture_peer(1, 0));
    struct allocation *c = permitting("bob", fixture_peer(1, 0));
    struct fixture_stun check = fixture_binding(STUN_REQUEST, 2, "them:us");
    fixture_send_stun(&f, a, p, check);
    assert_owner(a, p);
    fixture_send_stun(&f, c, p, check); /* another user */
    assert_owner(a, p);
    fixture_send_stun(&f, b, p, check); /* the same user's newer, and a never sent data */
    assert_owner(b, p);
    fixture_send_stun(&f, a, p, check); /* older */
    assert_owner(b, p);
    state_fixture_send(&f, a, p); /* but with data: b never sent any */
    assert_owner(a, p);
    fixture_send_stun(&f, b, p, check);
    assert_owner(a, p);
}

/* Three allocations of one browser share their fragments: the holder keeps the peer's checks. */
static void among_equal_fragments_the_holder_is_meant(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = permitting("ann", p), *b = permitting("ann", p), *c = permitting("ann", p);
    fixture_send_stun(&f, a, p, fixture_binding(STUN_REQUEST, 1, "sfu:ann"));
    fixture_send_stun(&f, b, p, fixture_binding(STUN_REQUEST, 2, "sfu:ann"));
    f.now_us++;
    fixture_send_stun(&f, c, p, fixture_binding(STUN_REQUEST, 3, "sfu:ann"));
    state_fixture_send(&f, b, p);
    struct fixture_stun check = fixture_binding(STUN_REQUEST, 9, "ann:sfu");
    assert_ptr_equal(fixture_receive_stun(&f, a, p, check).allocation, b);
    allocation_destroy(b, ALLOCATION_END_CLOSED);
    assert_ptr_equal(fixture_receive_stun(&f, a, p, check).allocation, c); /* else the newest */
}

static void checks_on_a_dedicated_address_are_not_noted(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = permitting("ann", p);
    assert_null(fixture_send_stun(&f, a, p, fixture_binding(STUN_REQUEST, 2, "them:ann")));
    assert_null(state_fixture_send(&f, a, p));
    assert_false(a->is_watched);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, p), STUN_OK);
    struct peer_endpoint *record = channel_find(a, 0x4000)->peer;
    assert_ptr_equal(peer_table_note_sent(a, record, &p, NULL, 0, f.now_us), record);
}

static void nothing_passes_out_after_the_permission(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000);
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    assert_null(state_fixture_send(&f, a, p)); /* no permission: no record */
    assert_int_equal(a->n_peers, 0);
}

/* ---- ICMP ---- */

static void an_error_belongs_to_one_or_nobody(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000), q = fixture_peer(1, 5001), r = fixture_peer(2, 1);
    struct allocation *a = permitting("ann", p);
    struct relayed_address *relayed = a->relay[RELAY_V4].address;
    assert_ptr_equal(peer_table_match_error(f.table, relayed, &p), a);
    assert_ptr_equal(peer_table_match_error(f.table, relayed, &q), a);
    assert_null(peer_table_match_error(f.table, relayed, &r));
    if (!relayed->shared) {
        return;
    }
    struct allocation *b = permitting("bob", fixture_peer(1, 0));
    assert_ptr_equal(peer_table_match_error(f.table, relayed, &p), a);
    assert_null(peer_table_match_error(f.table, relayed, &q));
    state_fixture_send(&f, b, p);
    assert_null(peer_table_match_error(f.table, relayed, &p)); /* both send there */
}

/* ---- cost and memory ---- */

static void established_flows_allocate_nothing(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 5000), q = fixture_peer(2, 5000);
    struct allocation *a = binding("ann", p), *b = binding("bob", p);
    assert_int_equal(state_fixture_permit(&f, a, q), STUN_OK);
    fixture_send_stun(&f, a, p, fixture_binding(STUN_REQUEST, 1, "them:ann"));
    state_fixture_send(&f, b, p);
    fixture_receive(&f, a, fixture_peer(2, 77));
    alloc_fault_arm(0);
    for (unsigned i = 0; i < 100; i++) {
        state_fixture_send(&f, a, p);
        state_fixture_send(&f, b, p);
        state_fixture_send(&f, a, q);
        fixture_send_stun(&f, a, p, fixture_binding(STUN_REQUEST, (uint8_t)i, "them:ann"));
        fixture_receive(&f, a, p);
        fixture_receive(&f, a, q);
        fixture_receive(&f, a, fixture_peer(2, 77));
        fixture_receive_stun(&f, a, p, fixture_binding(STUN_SUCCESS, (uint8_t)i, NULL));
    }
    alloc_fault_disarm();
    assert_int_equal(alloc_fault_count(), 0);
}

static void without_memory_datagrams_still_pass(void **state) {
    (void)state;
    struct allocation *a = permitting("ann", fixture_peer(1, 0));
    for (unsigned n = 1;; n++) {
        struct endpoint p = fixture_peer(1, (uint16_t)n), q = fixture_peer(1, (uint16_t)(1000 + n));
        alloc_fault_arm(n);
        struct peer_match match = fixture_receive(&f, a, p);
        state_fixture_send(&f, a, q);
        fixture_send_stun(&f, a, q, fixture_binding(STUN_REQUEST, 1, "a:b"));
        alloc_fault_disarm();
        assert_ptr_equal(match.allocation, a);
        assert_owner(a, p);
        assert_owner(a, q);
        if (!alloc_fault_hit()) {
            break;
        }
    }
}

static void many_endpoints_are_found_whoever_holds_them(void **state) {
    (void)state;
    struct allocation *a = permitting("ann", fixture_peer(1, 0)), *b = permitting("bob", fixture_peer(1, 0));
    for (uint16_t port = 1; port <= 200; port++) {
        state_fixture_send(&f, a, fixture_peer(1, port));
        struct peer_endpoint *of_b = state_fixture_send(&f, b, fixture_peer(1, port));
        assert_ptr_equal(state_fixture_send(&f, b, fixture_peer(1, port)), of_b);
        assert_false(of_b->has_claim);
        assert_int_equal(b->n_peers, port);
        assert_int_equal(b->has_peer_index, port > ALLOCATION_WALKED_MAX);
        assert_owner(a, fixture_peer(1, port));
    }
    for (uint16_t port = 1; port <= 200; port++) {
        assert_ptr_equal(state_fixture_send(&f, b, fixture_peer(1, port))->allocation, b);
    }
    fixture_advance(&f, FIXTURE_PERMISSION_S + 1);
    assert_int_equal(f.table->own_peers.n_items + f.table->claims.n_items + a->n_peers + b->n_peers, 0);
}

static void families_do_not_mix(void **state) {
    (void)state;
    struct allocation *a = state_fixture_allocate(&f, "ann", true, true),
                      *b = state_fixture_allocate(&f, "bob", false, true);
    struct endpoint p6 = state_fixture_endpoint("[2001:db8:2::1]:9"),
                    q6 = state_fixture_endpoint("[2001:db8:2::2]:9");
    assert_int_equal(state_fixture_permit(&f, b, p6), STUN_OK);
    assert_int_equal(state_fixture_permit(&f, a, q6), STUN_OK);
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(1, 9)), STUN_OK);
    assert_owner(b, p6);
    assert_owner(a, q6);
    assert_owner(a, fixture_peer(1, 9));
}

#define SHARED(test) cmocka_unit_test_setup_teardown(test, make, unmake)
#define DEDICATED(test) cmocka_unit_test_setup_teardown(test, make_dedicated, unmake)

int main(void) {
    const struct CMUnitTest tests[] = {
        SHARED(a_stranger_reaches_nobody),
        DEDICATED(a_stranger_reaches_nobody),
        DEDICATED(relayed_addresses_are_apart),
        cmocka_unit_test_setup_teardown(relayed_addresses_are_apart, make_two_ports, unmake),
        SHARED(each_gets_what_its_own_peer_sends),
        SHARED(the_only_permission_for_the_ip_decides_and_is_learned),
        cmocka_unit_test_setup_teardown(beyond_the_cap_it_is_delivered_and_not_learned, make_three, unmake),
        SHARED(a_permission_does_not_move_a_claim),
        SHARED(an_idle_claim_of_another_user_yields_to_data),
        SHARED(stun_does_not_keep_a_claim_alive),
        SHARED(binding_takes_an_idle_claim_only),
        SHARED(a_reconnect_takes_over_at_once),
        SHARED(nobody_is_the_same_user_without_a_name),
        SHARED(twenty_bind_one_peer_and_each_gets_its_answer),
        SHARED(a_claim_ends_with_its_permission),
        SHARED(a_bound_claim_ends_with_its_permission_and_comes_back_if_free),
        SHARED(a_deleted_allocation_frees_its_claims_at_once),
        SHARED(one_of_two_permissions_gone_ends_the_doubt),
        SHARED(a_claim_without_permission_is_free_however_busy_it_was),
        SHARED(a_lost_claim_is_had_again_once_it_is_free),
        SHARED(naming_again_claims_what_became_free),
        SHARED(binding_again_takes_back_an_idle_claim),
        SHARED(an_answer_takes_an_idle_claim_and_no_other),
        SHARED(a_contested_peers_answers_go_to_whoever_asked),
        SHARED(an_uncontested_peers_stun_is_not_looked_into),
        SHARED(stun_decides_where_addresses_cannot),
        SHARED(stun_finds_nobody_without_a_permission),
        cmocka_unit_test_setup_teardown(stun_does_not_cross_relayed_addresses, make_two_ports, unmake),
        SHARED(an_ended_allocations_checks_find_nobody),
        SHARED(checks_claim_what_is_free_or_an_idle_elders),
        SHARED(among_equal_fragments_the_holder_is_meant),
        DEDICATED(checks_on_a_dedicated_address_are_not_noted),
        SHARED(nothing_passes_out_after_the_permission),
        DEDICATED(nothing_passes_out_after_the_permission),
        SHARED(an_error_belongs_to_one_or_nobody),
        DEDICATED(an_error_belongs_to_one_or_nobody),
        SHARED(established_flows_allocate_nothing),
        DEDICATED(established_flows_allocate_nothing),
        SHARED(without_memory_datagrams_still_pass),
        SHARED(many_endpoints_are_found_whoever_holds_them),
        SHARED(families_do_not_mix),
        DEDICATED(families_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
