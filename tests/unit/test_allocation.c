#include "allocation.h"

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

static int make_dedicated(void **state) {
    (void)state;
    return fixture_create(&f, &(struct fixture_params){.carrier.thread = 3});
}

static int unmake(void **state) {
    (void)state;
    return fixture_destroy(&f) ? 0 : -1;
}

static void is_found_by_its_five_tuple_until_it_ends(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, NULL);
    struct five_tuple of_a = a->five_tuple, other = a->five_tuple;
    assert_ptr_equal(allocation_find(f.table, &of_a), a);
    assert_ptr_equal(allocation_find(f.table, &b->five_tuple), b);
    other.transport = CLIENT_TCP;
    assert_null(allocation_find(f.table, &other));
    const struct five_tuple tuples[] = {a->five_tuple, b->five_tuple, other};
    uint64_t hashes[3];
    allocation_warm(f.table, tuples, 3, hashes);
    assert_ptr_equal(allocation_find_hashed(f.table, &tuples[0], hashes[0]), a);
    assert_ptr_equal(allocation_find_hashed(f.table, &tuples[1], hashes[1]), b);
    assert_null(allocation_find_hashed(f.table, &tuples[2], hashes[2]));
    allocation_destroy(a, ALLOCATION_END_REFRESH_0);
    assert_null(allocation_find(f.table, &of_a));
    assert_int_equal(f.last_end, ALLOCATION_END_REFRESH_0);
    assert_int_equal(f.n_quiesced, 1);
}

static void texts_are_its_own_and_may_be_absent(void **state) {
    (void)state;
    char name[] = "ann";
    struct allocation *a = fixture_allocate_v4(&f, name), *b = fixture_allocate_v4(&f, NULL);
    name[0] = 'x';
    assert_string_equal(a->username, "ann");
    assert_string_equal(a->realm, "example.org");
    assert_null(b->username);
    assert_null(b->realm);
}

static void uids_tell_thread_and_order(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "ann");
    assert_int_equal(a->uid >> 48, 3);
    assert_int_equal(b->uid >> 48, 3);
    assert_true(a->uid < b->uid && a->uid != 0);
}

static void a_dedicated_address_knows_its_owner(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    struct relayed_address *address = a->relay[RELAY_V4].address;
    assert_ptr_equal(address->owner, a);
    assert_int_equal(address->n_allocations, 1);
    assert_null(a->relay[RELAY_V6].address);
    allocation_destroy(a, ALLOCATION_END_CLOSED);
    assert_null(address->owner);
    assert_int_equal(address->n_allocations, 0);
    assert_int_equal(f.carrier->n_held, 0);
}

static void a_shared_address_counts_its_allocations(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    struct relayed_address *address = a->relay[RELAY_V4].address;
    assert_ptr_equal(address, b->relay[RELAY_V4].address);
    assert_null(address->owner);
    assert_int_equal(address->n_allocations, 2);
    allocation_destroy(a, ALLOCATION_END_CLOSED);
    assert_int_equal(address->n_allocations, 1);
    assert_int_equal(f.carrier->n_held, 1);
}

static void ends_within_a_tick_of_its_lifetime(void **state) {
    (void)state;
    fixture_allocate_v4(&f, "ann");
    fixture_advance(&f, FIXTURE_LIFETIME_S - 0.001);
    assert_int_equal(f.n_ended, 0);
    fixture_advance(&f, 0.001 + TIMER_WHEEL_TICK_US / 1e6);
    assert_int_equal(f.n_ended, 1);
    assert_int_equal(f.last_end, ALLOCATION_END_EXPIRED);
    assert_int_equal(f.carrier->n_held, 0);
}

static void refresh_moves_the_end_both_ways(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    fixture_advance(&f, 500);
    allocation_refresh(a, RELAY_V4, UINT64_C(3600) * 1000000, f.now_us);
    allocation_refresh(b, RELAY_V4, 10 * 1000000, f.now_us);
    assert_true(a->relay[RELAY_V4].expires_us == f.now_us + UINT64_C(3600) * 1000000);
    fixture_advance(&f, 9.9);
    assert_int_equal(f.n_ended, 0);
    fixture_advance(&f, 0.2);
    assert_int_equal(f.n_ended, 1);
    fixture_advance(&f, 3589.8);
    assert_int_equal(f.n_ended, 1);
    fixture_advance(&f, 0.3);
    assert_int_equal(f.n_ended, 2);
}

static void families_expire_apart(void **state) {
    (void)state;
    struct allocation *a = state_fixture_allocate(&f, "ann", true, true);
    struct endpoint p4 = fixture_peer(1, 1000), p6 = state_fixture_endpoint("[2001:db8:1::1]:1000");
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, p4), STUN_OK);
    assert_int_equal(state_fixture_bind(&f, a, 0x4001, p6), STUN_OK);
    fixture_advance(&f, 200);
    assert_int_equal(state_fixture_permit(&f, a, p6), STUN_OK);
    allocation_refresh(a, RELAY_V4, 1000000, f.now_us);
    fixture_advance(&f, 1.1);
    assert_int_equal(f.n_ended, 0);
    assert_null(a->relay[RELAY_V4].address);
    assert_null(channel_find(a, 0x4000));
    assert_null(permission_find(a, &p4));
    assert_non_null(channel_find(a, 0x4001));
    assert_ptr_equal(fixture_receive(&f, a, p6).allocation, a);
    assert_int_equal(f.carrier->n_held, 1);
    fixture_advance(&f, 400);
    assert_int_equal(f.n_ended, 1);
}

static void removing_the_last_family_ends_it(void **state) {
    (void)state;
    struct allocation *a = state_fixture_allocate(&f, "ann", true, true);
    struct endpoint p4 = fixture_peer(1, 1000);
    assert_int_equal(state_fixture_permit(&f, a, p4), STUN_OK);
    assert_false(allocation_remove_family(a, RELAY_V6, ALLOCATION_END_REFRESH_0));
    assert_int_equal(f.n_ended, 0);
    assert_ptr_equal(fixture_receive(&f, a, p4).allocation, a);
    assert_true(allocation_remove_family(a, RELAY_V4, ALLOCATION_END_REFRESH_0));
    assert_int_equal(f.n_ended, 1);
    assert_int_equal(f.carrier->n_held, 0);
}

static void stats_follow(void **state) {
    (void)state;
    struct allocation_table_stats s;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, fixture_peer(1, 1)), STUN_OK);
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(2, 1)), STUN_OK);
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(3, 0)), STUN_OK);
    allocation_table_stats(f.table, &s);
    assert_int_equal(s.n_allocations, 1);
    assert_int_equal(s.n_permissions, 3);
    assert_int_equal(s.n_channels, 1);
    assert_int_equal(s.n_peer_endpoints, 2);
    fixture_advance(&f, FIXTURE_PERMISSION_S + 1);
    allocation_table_stats(f.table, &s);
    assert_int_equal(s.n_permissions, 0);
    assert_int_equal(s.n_channels, 1);
    assert_int_equal(s.n_peer_endpoints, 1); /* waits with its channel */
    allocation_destroy(a, ALLOCATION_END_CLOSED);
    allocation_table_stats(f.table, &s);
    assert_int_equal(s.n_allocations + s.n_channels + s.n_peer_endpoints, 0);
}

static void out_of_memory_leaves_addresses_with_the_caller(void **state) {
    (void)state;
    for (unsigned n = 1;; n++) {
        size_t before = fixture_table_items(&f);
        alloc_fault_arm(n);
        struct allocation *a = state_fixture_allocate(&f, "ann", true, true);
        alloc_fault_disarm();
        if (!alloc_fault_hit()) {
            assert_non_null(a);
            assert_int_equal(n, 3); /* itself, the table's first slots */
            return;
        }
        assert_null(a);
        assert_int_equal(fixture_table_items(&f), before);
        assert_int_equal(f.carrier->n_held, 0);
        assert_int_equal(fake_carrier_shared(f.carrier, RELAY_V4, 0)->n_allocations, 0);
    }
}

static void a_table_cannot_half_exist(void **state) {
    (void)state;
    for (unsigned n = 1;; n++) {
        struct allocation_table *t = NULL;
        struct allocation_table_params p = {.carrier = &f.carrier->carrier};
        alloc_fault_arm(n);
        int err = allocation_table_create(&t, &p, 0);
        alloc_fault_disarm();
        if (!alloc_fault_hit()) {
            assert_int_equal(err, 0);
            allocation_table_destroy(t);
            return;
        }
        assert_null(t);
    }
}

static void many_end_with_the_table(void **state) {
    (void)state;
    for (unsigned i = 0; i < 5000; i++) {
        struct allocation *a = fixture_allocate_v4(&f, "ann");
        assert_int_equal(state_fixture_permit(&f, a, fixture_peer(i, 1)), STUN_OK);
    }
    struct state_fixture local = f;
    assert_int_equal(local.n_ended, 0);
}

static void nothing_is_left_after_ten_thousand_lives(void **state) {
    (void)state;
    for (unsigned i = 0; i < 10000; i++) {
        struct allocation *a = state_fixture_allocate(&f, i % 3 == 0 ? NULL : "ann", true, i % 2 == 0);
        assert_int_equal(state_fixture_permit(&f, a, fixture_peer(i, (uint16_t)(i & 1))), STUN_OK);
        assert_int_equal(state_fixture_bind(&f, a, 0x4000, fixture_peer(i + 1, 7)), STUN_OK);
        state_fixture_send(&f, a, fixture_peer(i, 9));
        if (i % 10 == 9) {
            fixture_advance(&f, i % 100 == 99 ? 700 : 0.05);
        }
        if (i % 10 != 9 || i % 100 != 99) {
            allocation_destroy(a, ALLOCATION_END_REFRESH_0);
        }
    }
    assert_int_equal(fixture_table_items(&f), 0);
    assert_int_equal(f.carrier->n_held, 0);
    assert_int_equal(f.n_ended, 10000);
    assert_true(f.table->claims.mask < 64 && f.table->permitted.mask < 64 && f.table->by_tuple.mask < 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(is_found_by_its_five_tuple_until_it_ends, make, unmake),
        cmocka_unit_test_setup_teardown(texts_are_its_own_and_may_be_absent, make, unmake),
        cmocka_unit_test_setup_teardown(uids_tell_thread_and_order, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(a_dedicated_address_knows_its_owner, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(a_shared_address_counts_its_allocations, make, unmake),
        cmocka_unit_test_setup_teardown(ends_within_a_tick_of_its_lifetime, make, unmake),
        cmocka_unit_test_setup_teardown(refresh_moves_the_end_both_ways, make, unmake),
        cmocka_unit_test_setup_teardown(families_expire_apart, make, unmake),
        cmocka_unit_test_setup_teardown(families_expire_apart, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(removing_the_last_family_ends_it, make, unmake),
        cmocka_unit_test_setup_teardown(stats_follow, make, unmake),
        cmocka_unit_test_setup_teardown(out_of_memory_leaves_addresses_with_the_caller, make, unmake),
        cmocka_unit_test_setup_teardown(a_table_cannot_half_exist, make, unmake),
        cmocka_unit_test_setup_teardown(many_end_with_the_table, make, unmake),
        cmocka_unit_test_setup_teardown(nothing_is_left_after_ten_thousand_lives, make, unmake),
        cmocka_unit_test_setup_teardown(nothing_is_left_after_ten_thousand_lives, make_dedicated, unmake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
