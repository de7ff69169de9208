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
    return fixture_create(
        &f, &(struct fixture_params){.carrier = {.shared = true, .advertised_v4 = "198.51.100.200"}});
}

static int make_dedicated(void **state) {
    (void)state;
    return fixture_create(&f, &(struct fixture_params){.carrier.advertised_v4 = "198.51.100.200"});
}

static int unmake(void **state) {
    (void)state;
    return fixture_destroy(&f) ? 0 : -1;
}

static struct endpoint advertised(const struct allocation *a) {
    return a->relay[RELAY_V4].address->advertised;
}

static struct endpoint local(const struct allocation *a) {
    return a->relay[RELAY_V4].address->local;
}

static void permit(struct allocation *a, struct endpoint peer) {
    assert_int_equal(state_fixture_permit(&f, a, peer), STUN_OK);
}

static void assert_local(const struct allocation *from, const struct allocation *to, struct endpoint form) {
    struct endpoint peer;
    struct peer_match match = fixture_local(&f, from, to, NULL, &peer);
    assert_ptr_equal(match.allocation, to);
    assert_int_equal(match.reason, DROP_NONE);
    assert_true(endpoint_equal(&peer, &form));
}

static void assert_local_dropped(const struct allocation *from, const struct allocation *at,
                                 enum drop_reason reason) {
    struct endpoint peer;
    struct peer_match match = fixture_local(&f, from, at, NULL, &peer);
    assert_null(match.allocation);
    assert_string_equal(drop_reason_name(match.reason), drop_reason_name(reason));
}

/* ---- to a dedicated address ---- */

static void the_owner_gets_it_if_it_permits_the_senders_ip(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    assert_local_dropped(a, b, DROP_NO_PERMISSION);
    struct endpoint any_port = advertised(a);
    any_port.port = 0;
    permit(b, any_port);
    assert_local(a, b, advertised(a));
    struct allocation *c = fixture_allocate_v4(&f, "cyd");
    permit(c, local(a));
    assert_local(a, c, local(a));
    permit(c, advertised(a));
    assert_local(a, c, advertised(a));
    fixture_advance(&f, FIXTURE_PERMISSION_S + 0.2);
    assert_local_dropped(a, b, DROP_NO_PERMISSION);
}

static void the_form_with_a_channel_is_used(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    permit(b, advertised(a));
    assert_int_equal(state_fixture_bind(&f, b, 0x4000, local(a)), STUN_OK);
    struct endpoint peer;
    struct peer_match match = fixture_local(&f, a, b, NULL, &peer);
    assert_ptr_equal(match.channel, channel_find(b, 0x4000));
    struct endpoint expected = local(a);
    assert_true(endpoint_equal(&peer, &expected));
    assert_int_equal(state_fixture_bind(&f, b, 0x4001, advertised(a)), STUN_OK);
    match = fixture_local(&f, a, b, NULL, &peer);
    assert_ptr_equal(match.channel, channel_find(b, 0x4001));
    assert_true(match.peer->is_local);
}

static void another_port_of_the_ip_has_no_channel(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    struct endpoint other = advertised(a);
    other.port++;
    assert_int_equal(state_fixture_bind(&f, b, 0x4000, other), STUN_OK);
    struct endpoint peer;
    struct peer_match match = fixture_local(&f, a, b, NULL, &peer);
    assert_ptr_equal(match.allocation, b);
    assert_null(match.channel);
}

static void an_address_without_owner_or_of_the_other_family_gets_nothing(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    struct allocation *c = state_fixture_allocate(&f, "cyd", false, true);
    struct relayed_address *address = b->relay[RELAY_V4].address;
    struct relay_sender sender = fixture_sender(a);
    struct peer_match match;
    struct endpoint peer;
    allocation_destroy(b, ALLOCATION_END_CLOSED);
    peer_table_match_local(f.table, address, &sender, NULL, 0, f.now_us, &match, &peer);
    assert_int_equal(match.reason, DROP_NO_RELAYED_ADDRESS);
    peer_table_match_local(f.table, c->relay[RELAY_V6].address, &sender, NULL, 0, f.now_us, &match, &peer);
    assert_int_equal(match.reason, DROP_PEER_FAMILY);
}

/* ---- to a shared address ---- */

static void two_on_one_address_find_each_other(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    struct endpoint shared = advertised(a);
    assert_local_dropped(a, b, DROP_UNKNOWN_PEER);
    permit(a, shared);
    assert_local_dropped(a, b, DROP_UNKNOWN_PEER); /* only the sender itself permits */
    permit(b, shared);
    assert_local(a, b, shared);
    assert_local(b, a, shared);
    assert_int_equal(f.table->pairs.n_items, 0); /* a likelihood of the moment is not learned */
    struct allocation *c = fixture_allocate_v4(&f, "cyd");
    permit(c, local(a));
    assert_local_dropped(a, b, DROP_AMBIGUOUS_PEER);
    allocation_destroy(b, ALLOCATION_END_CLOSED);
    assert_local(a, c, local(a));
}

static void permitting_both_forms_counts_once(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    permit(b, advertised(a));
    permit(b, local(a));
    permit(a, advertised(a));
    permit(a, local(a));
    assert_local(a, b, advertised(a));
}

/* Three calls on one shared address: six allocations that all permit the same IP. */
static void calls_side_by_side_are_told_apart_by_their_checks(void **state) {
    (void)state;
    enum { CALLS = 3 };
    static const char *const to_b[] = {"b0:a0", "b1:a1", "b2:a2"};
    static const char *const to_a[] = {"a0:b0", "a1:b1", "a2:b2"};
    struct allocation *a[CALLS], *b[CALLS];
    struct endpoint peer;
    for (unsigned i = 0; i < CALLS; i++) {
        a[i] = fixture_allocate_v4(&f, "ann");
        b[i] = fixture_allocate_v4(&f, "bob");
        permit(a[i], advertised(a[i]));
        permit(b[i], advertised(b[i]));
    }
    for (unsigned i = 0; i < CALLS; i++) {
        struct fixture_stun first = fixture_binding(STUN_REQUEST, (uint8_t)i, to_b[i]);
        fixture_send_stun(&f, a[i], advertised(b[i]), first);
        assert_int_equal(fixture_local(&f, a[i], b[i], &first, &peer).reason, DROP_AMBIGUOUS_PEER);
    }
    for (unsigned i = 0; i < CALLS; i++) {
        struct fixture_stun second = fixture_binding(STUN_REQUEST, (uint8_t)(100 + i), to_a[i]);
        fixture_send_stun(&f, b[i], advertised(a[i]), second);
        assert_ptr_equal(fixture_local(&f, b[i], a[i], &second, &peer).allocation, a[i]);
    }
    assert_int_equal(f.table->pairs.n_items, 2 * CALLS);
    for (unsigned i = 0; i < CALLS; i++) { /* both ways at once, data and answers */
        assert_local(a[i], b[i], advertised(a[i]));
        assert_local(b[i], a[i], advertised(a[i]));
        struct fixture_stun answer = fixture_binding(STUN_SUCCESS, (uint8_t)(100 + i), NULL);
        assert_ptr_equal(fixture_local(&f, a[i], b[i], &answer, &peer).allocation, b[i]);
    }
    for (unsigned i = 0; i < CALLS; i++) {
        allocation_destroy(a[i], ALLOCATION_END_CLOSED);
        assert_int_equal(f.table->pairs.n_items, 2u * (CALLS - 1 - i));
    }
}

static void a_check_from_another_thread_is_learned_for_its_sender(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    struct endpoint far = state_fixture_endpoint("192.0.2.1:3482");
    permit(a, far);
    permit(b, far);
    fixture_send_stun(&f, a, far, fixture_binding(STUN_REQUEST, 5, "far:ann"));
    struct relay_sender sender = {.uid = (UINT64_C(7) << 48) + 1, .advertised = far, .local = far};
    struct relay_sender stranger = {.uid = (UINT64_C(7) << 48) + 2, .advertised = far, .local = far};
    struct fixture_stun check = fixture_binding(STUN_REQUEST, 9, "ann:far");
    struct relayed_address *relayed = a->relay[RELAY_V4].address;
    struct peer_match match;
    struct endpoint peer;
    peer_table_match_local(f.table, relayed, &sender, NULL, 0, f.now_us, &match, &peer);
    assert_int_equal(match.reason, DROP_AMBIGUOUS_PEER);
    peer_table_match_local(f.table, relayed, &sender, check.bytes, check.n_bytes, f.now_us, &match, &peer);
    assert_ptr_equal(match.allocation, a);
    peer_table_match_local(f.table, relayed, &sender, NULL, 0, f.now_us, &match, &peer);
    assert_ptr_equal(match.allocation, a);
    peer_table_match_local(f.table, relayed, &stranger, NULL, 0, f.now_us, &match, &peer);
    assert_int_equal(match.reason, DROP_AMBIGUOUS_PEER);
    fixture_advance(&f, FIXTURE_PERMISSION_S + 0.2);
    assert_int_equal(f.table->pairs.n_items, 0);
    peer_table_match_local(f.table, relayed, &sender, NULL, 0, f.now_us, &match, &peer);
    assert_int_equal(match.reason, DROP_UNKNOWN_PEER);
}

static void a_newer_check_corrects_what_was_learned(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    struct endpoint far = state_fixture_endpoint("192.0.2.1:3482");
    struct relay_sender sender = {.uid = (UINT64_C(7) << 48) + 1, .advertised = far, .local = far};
    struct peer_match match;
    struct endpoint peer;
    permit(a, far);
    permit(b, far);
    fixture_send_stun(&f, a, far, fixture_binding(STUN_REQUEST, 5, "far:ann"));
    fixture_send_stun(&f, b, far, fixture_binding(STUN_REQUEST, 6, "far:bob"));
    for (unsigned i = 0; i < 6; i++) {
        struct fixture_stun check = fixture_binding(STUN_REQUEST, 9, i % 2 == 0 ? "ann:far" : "bob:far");
        struct relayed_address *relayed = a->relay[RELAY_V4].address;
        peer_table_match_local(f.table, relayed, &sender, check.bytes, check.n_bytes, f.now_us, &match,
                               &peer);
        assert_ptr_equal(match.allocation, i % 2 == 0 ? a : b);
        peer_table_match_local(f.table, relayed, &sender, NULL, 0, f.now_us, &match, &peer);
        assert_ptr_equal(match.allocation, i % 2 == 0 ? a : b);
        assert_int_equal(f.table->pairs.n_items, 1);
    }
}

/* Two allocations of one client share their fragments: who is known already stays meant. */
static void among_equal_fragments_the_known_receiver_is_meant(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "ann");
    struct allocation *c = fixture_allocate_v4(&f, "cyd");
    struct endpoint peer;
    permit(a, advertised(a));
    permit(b, advertised(a));
    struct fixture_stun check = fixture_binding(STUN_REQUEST, 9, "ann:cyd");
    fixture_send_stun(&f, a, advertised(c), fixture_binding(STUN_REQUEST, 5, "cyd:ann"));
    assert_ptr_equal(fixture_local(&f, c, a, &check, &peer).allocation, a);
    f.now_us++;
    fixture_send_stun(&f, b, advertised(c), fixture_binding(STUN_REQUEST, 6, "cyd:ann"));
    assert_ptr_equal(fixture_local(&f, c, a, &check, &peer).allocation, a);
    allocation_destroy(a, ALLOCATION_END_CLOSED);
    assert_ptr_equal(fixture_local(&f, c, b, &check, &peer).allocation, b);
}

static void what_a_receiver_remembers_is_bounded(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    struct endpoint far = state_fixture_endpoint("192.0.2.1:3482");
    struct fixture_stun check = fixture_binding(STUN_REQUEST, 9, "ann:far");
    permit(a, far);
    permit(b, far);
    fixture_send_stun(&f, a, far, fixture_binding(STUN_REQUEST, 5, "far:ann"));
    struct peer_match match;
    struct endpoint peer;
    for (unsigned i = 1; i <= ALLOCATION_MAX_PAIRS + 10; i++) {
        struct relay_sender sender = {.uid = (UINT64_C(7) << 48) + i, .advertised = far, .local = far};
        peer_table_match_local(f.table, a->relay[RELAY_V4].address, &sender, check.bytes, check.n_bytes,
                               f.now_us, &match, &peer);
        assert_ptr_equal(match.allocation, a);
        assert_int_equal(a->n_pairs, i < ALLOCATION_MAX_PAIRS ? i : ALLOCATION_MAX_PAIRS);
    }
    struct relay_sender newest = {
        .uid = (UINT64_C(7) << 48) + ALLOCATION_MAX_PAIRS + 10, .advertised = far, .local = far};
    peer_table_match_local(f.table, a->relay[RELAY_V4].address, &newest, NULL, 0, f.now_us, &match, &peer);
    assert_ptr_equal(match.allocation, a);
}

static void a_check_reaches_only_who_permits_the_sender(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    struct endpoint peer;
    permit(a, fixture_peer(1, 1));
    fixture_send_stun(&f, a, fixture_peer(1, 1), fixture_binding(STUN_REQUEST, 5, "far:ann"));
    struct fixture_stun check = fixture_binding(STUN_REQUEST, 9, "ann:far");
    assert_int_equal(fixture_local(&f, b, a, &check, &peer).reason, DROP_UNKNOWN_PEER);
    permit(a, local(b));
    assert_ptr_equal(fixture_local(&f, b, a, &check, &peer).allocation, a);
}

static void local_peers_hold_no_exact_entry(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, advertised(b)), STUN_OK);
    assert_int_equal(state_fixture_bind(&f, b, 0x4000, advertised(a)), STUN_OK);
    struct peer_endpoint *record = channel_find(a, 0x4000)->peer;
    assert_true(record->is_local);
    assert_false(record->has_claim);
    struct endpoint at = local(b);
    assert_true(endpoint_equal(&record->location.local, &at));
    assert_ptr_equal(state_fixture_send(&f, a, advertised(b)), record);
    struct endpoint peer;
    assert_ptr_equal(fixture_local(&f, a, b, NULL, &peer).channel, channel_find(b, 0x4000));
    assert_ptr_equal(fixture_local(&f, b, a, NULL, &peer).channel, channel_find(a, 0x4000));
    assert_int_equal(f.table->claims.n_items, 0);
}

static void without_memory_it_is_delivered_and_not_learned(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    struct allocation *c = fixture_allocate_v4(&f, "cyd");
    struct endpoint peer;
    permit(a, advertised(a));
    permit(b, advertised(a));
    permit(c, advertised(a));
    struct fixture_stun to_b = fixture_binding(STUN_REQUEST, 1, "b:a"),
                        to_a = fixture_binding(STUN_REQUEST, 2, "a:b");
    fixture_send_stun(&f, a, advertised(a), to_b);
    fixture_send_stun(&f, b, advertised(a), to_a);
    for (unsigned n = 1;; n++) {
        alloc_fault_arm(n);
        struct peer_match match = fixture_local(&f, b, a, &to_a, &peer);
        alloc_fault_disarm();
        assert_ptr_equal(match.allocation, a);
        if (!alloc_fault_hit()) {
            break;
        }
        fixture_advance(&f, 0);
    }
    assert_int_equal(f.table->pairs.n_items, 2);
}

#define SHARED(test) cmocka_unit_test_setup_teardown(test, make, unmake)
#define DEDICATED(test) cmocka_unit_test_setup_teardown(test, make_dedicated, unmake)

int main(void) {
    const struct CMUnitTest tests[] = {
        DEDICATED(the_owner_gets_it_if_it_permits_the_senders_ip),
        DEDICATED(the_form_with_a_channel_is_used),
        DEDICATED(another_port_of_the_ip_has_no_channel),
        DEDICATED(an_address_without_owner_or_of_the_other_family_gets_nothing),
        SHARED(two_on_one_address_find_each_other),
        SHARED(permitting_both_forms_counts_once),
        SHARED(calls_side_by_side_are_told_apart_by_their_checks),
        SHARED(a_check_from_another_thread_is_learned_for_its_sender),
        SHARED(a_newer_check_corrects_what_was_learned),
        SHARED(among_equal_fragments_the_known_receiver_is_meant),
        SHARED(what_a_receiver_remembers_is_bounded),
        SHARED(a_check_reaches_only_who_permits_the_sender),
        SHARED(local_peers_hold_no_exact_entry),
        SHARED(without_memory_it_is_delivered_and_not_learned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
