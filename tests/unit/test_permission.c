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
    return fixture_create(&f, &(struct fixture_params){.carrier.shared = false});
}

static int make_five(void **state) {
    (void)state;
    return fixture_create(&f, &(struct fixture_params){.carrier.shared = true, .max_peers = 5});
}

static int unmake(void **state) {
    (void)state;
    return fixture_destroy(&f) ? 0 : -1;
}

static void is_for_the_ip_whatever_the_port(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    struct endpoint p = fixture_peer(1, 1000), other_port = fixture_peer(1, 2000),
                    other_ip = fixture_peer(2, 1000);
    assert_int_equal(state_fixture_permit(&f, a, p), STUN_OK);
    assert_non_null(permission_find(a, &p));
    assert_ptr_equal(permission_find(a, &other_port), permission_find(a, &p));
    assert_null(permission_find(a, &other_ip));
    assert_ptr_equal(fixture_receive(&f, a, p).allocation, a);
    assert_ptr_equal(fixture_receive(&f, a, other_port).allocation, a);
    assert_null(fixture_receive(&f, a, other_ip).allocation);
}

static void port_zero_permits_and_names_nothing(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(1, 0)), STUN_OK);
    assert_int_equal(a->n_peers, 0);
    assert_ptr_equal(fixture_receive(&f, a, fixture_peer(1, 77)).allocation, a);
}

static void ends_within_a_tick(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    struct endpoint p = fixture_peer(1, 1000);
    assert_int_equal(state_fixture_permit(&f, a, p), STUN_OK);
    fixture_advance(&f, FIXTURE_PERMISSION_S - 0.001);
    assert_ptr_equal(fixture_receive(&f, a, p).allocation, a);
    unsigned quiesced = f.n_quiesced;
    fixture_advance(&f, 0.101);
    assert_null(fixture_receive(&f, a, p).allocation);
    assert_null(permission_find(a, &p));
    assert_int_equal(a->n_permissions, 0);
    assert_int_equal(a->n_peers, 0);
    if (a->relay[RELAY_V4].address->shared) {
        assert_int_equal(f.n_quiesced, quiesced + 1); /* the endpoint's flow may be in a batch */
    }
}

static void traffic_does_not_extend_it_but_a_request_does(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    struct endpoint p = fixture_peer(1, 1000);
    assert_int_equal(state_fixture_permit(&f, a, p), STUN_OK);
    fixture_advance(&f, 200);
    assert_int_equal(state_fixture_permit(&f, a, p), STUN_OK);
    for (unsigned i = 0; i < 29; i++) {
        fixture_advance(&f, 10);
        state_fixture_send(&f, a, p);
        assert_ptr_equal(fixture_receive(&f, a, p).allocation, a);
    }
    fixture_advance(&f, 10.1);
    assert_null(fixture_receive(&f, a, p).allocation);
}

static void several_in_one_request(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    struct endpoint peers[] = {fixture_peer(1, 1), fixture_peer(2, 1), fixture_peer(1, 2), fixture_peer(1, 1),
                               fixture_peer(3, 0)};
    assert_int_equal(permission_install(a, peers, 5, f.now_us), STUN_OK);
    assert_int_equal(a->n_permissions, 3);
    for (unsigned i = 0; i < 5; i++) {
        assert_non_null(permission_find(a, &peers[i]));
    }
    assert_int_equal(permission_install(a, peers, 0, f.now_us), STUN_OK);
}

static void many_are_found_as_few_are(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    enum { MANY = 500 };
    for (unsigned i = 1; i <= MANY; i++) {
        assert_int_equal(state_fixture_permit(&f, a, fixture_peer(i, 0)), STUN_OK);
        struct endpoint p = fixture_peer(i, 5), unknown = fixture_peer(i + 1, 5);
        assert_non_null(permission_find(a, &p));
        assert_null(permission_find(a, &unknown));
        assert_int_equal(a->has_permission_index, i > ALLOCATION_WALKED_MAX);
    }
    fixture_advance(&f, FIXTURE_PERMISSION_S + 0.2);
    assert_int_equal(a->n_known_permissions, 0);
    assert_false(a->has_permission_index);
    assert_int_equal(f.table->own_permissions.n_items, 0);
}

static void the_number_is_bounded(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    for (unsigned i = 0; i < ALLOCATION_MAX_PERMISSIONS; i++) {
        assert_int_equal(state_fixture_permit(&f, a, fixture_peer(i, 0)), STUN_OK);
    }
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(ALLOCATION_MAX_PERMISSIONS, 0)),
                     STUN_INSUFFICIENT_CAPACITY);
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(0, 0)), STUN_OK);
    assert_int_equal(a->n_permissions, ALLOCATION_MAX_PERMISSIONS);
}

static void the_sixth_of_five_peers_is_refused(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(state_fixture_permit(&f, a, fixture_peer(i, 1)), STUN_OK);
    }
    struct endpoint sixth = fixture_peer(5, 1);
    size_t items = fixture_table_items(&f);
    assert_int_equal(state_fixture_permit(&f, a, sixth), STUN_INSUFFICIENT_CAPACITY);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, sixth), STUN_INSUFFICIENT_CAPACITY);
    struct endpoint pair[] = {fixture_peer(6, 0), sixth};
    assert_int_equal(permission_install(a, pair, 2, f.now_us), STUN_INSUFFICIENT_CAPACITY);
    assert_int_equal(fixture_table_items(&f), items);
    assert_null(permission_find(a, &sixth));
    assert_null(permission_find(a, &pair[0]));
    for (unsigned i = 0; i < 5; i++) { /* renewing and using the five goes on */
        assert_int_equal(state_fixture_permit(&f, a, fixture_peer(i, 1)), STUN_OK);
        assert_ptr_equal(fixture_receive(&f, a, fixture_peer(i, 1)).allocation, a);
    }
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(9, 0)), STUN_OK); /* names no endpoint */
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, fixture_peer(0, 1)), STUN_OK);
}

/* What a stranger's ports or the client's own scan used up is there for the endpoints that requests name. */
static void unnamed_peers_make_room_for_named_ones(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(1, 0)), STUN_OK);
    for (uint16_t port = 1; port <= 20; port++) {
        assert_ptr_equal(fixture_receive(&f, a, fixture_peer(1, port)).allocation, a);
    }
    state_fixture_send(&f, a, fixture_peer(1, 5)); /* the newest of the five that there was room for */
    assert_int_equal(a->n_shared_peers, 5);
    unsigned quiesced = f.n_quiesced;
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(2, 1)), STUN_OK);
    assert_int_equal(f.n_quiesced, quiesced + 1);
    assert_int_equal(a->n_shared_peers, 5);
    struct endpoint sent_to = fixture_peer(1, 5);
    assert_non_null(peer_endpoint_find(a, &sent_to)); /* those never sent to go first */
    for (unsigned i = 3; i <= 6; i++) {
        assert_int_equal(state_fixture_bind(&f, a, (uint16_t)(0x4000 + i), fixture_peer(i, 1)), STUN_OK);
    }
    assert_null(peer_endpoint_find(a, &sent_to));
    assert_int_equal(a->n_unnamed_peers, 0);
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(7, 1)), STUN_INSUFFICIENT_CAPACITY);
    assert_ptr_equal(fixture_receive(&f, a, fixture_peer(1, 3)).allocation,
                     a); /* the IP's permission stays */
}

/* Naming an unnamed one and adding another in one request counts both. */
static void the_cap_holds_when_unnamed_ones_get_named(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(1, 0)), STUN_OK);
    struct endpoint peers[6];
    for (uint16_t i = 0; i < 6; i++) {
        peers[i] = fixture_peer(1, (uint16_t)(i + 1));
        state_fixture_send(&f, a, peers[i]);
    }
    assert_int_equal(a->n_unnamed_peers, 5);
    struct endpoint reversed[6];
    for (unsigned i = 0; i < 6; i++) {
        reversed[i] = peers[5 - i];
    }
    assert_int_equal(permission_install(a, peers, 6, f.now_us), STUN_INSUFFICIENT_CAPACITY);
    assert_int_equal(permission_install(a, reversed, 6, f.now_us), STUN_INSUFFICIENT_CAPACITY);
    assert_int_equal(a->n_unnamed_peers, 5);
    assert_int_equal(a->n_shared_peers, 5);
    assert_int_equal(permission_install(a, reversed, 5, f.now_us), STUN_OK);
    assert_int_equal(a->n_unnamed_peers, 0);
    assert_int_equal(a->n_shared_peers, 5);
}

/* Everything a request could change: all counts, what is known of each peer, who holds what. */
struct observed {
    size_t items;
    struct allocation_table_stats stats;
    uint32_t n_permissions, n_known, n_peers, n_unnamed;
};

static struct observed observe(const struct allocation *a) {
    struct observed o = {.items = fixture_table_items(&f),
                         .n_permissions = a->n_permissions,
                         .n_known = a->n_known_permissions,
                         .n_peers = a->n_peers,
                         .n_unnamed = a->n_unnamed_peers};
    allocation_table_stats(f.table, &o.stats);
    return o;
}

/* The index of an allocation with many may have been built: that is no state. */
static size_t index_items(void) {
    return f.table->own_permissions.n_items + f.table->own_peers.n_items;
}

static void install_without_memory_changes_nothing(void **state) {
    (void)state;
    struct allocation *other = fixture_allocate_v4(&f, "bob");
    assert_int_equal(state_fixture_permit(&f, other, fixture_peer(3, 1)), STUN_OK);
    for (unsigned n_before = 0; n_before <= 10; n_before++) {
        struct endpoint peers[] = {fixture_peer(101, 1), fixture_peer(102, 1), fixture_peer(101, 2),
                                   fixture_peer(103, 0), fixture_peer(3, 1)};
        for (unsigned n = 1;; n++) {
            struct allocation *a = fixture_allocate_v4(&f, "ann");
            for (unsigned i = 0; i < n_before; i++) {
                assert_int_equal(state_fixture_permit(&f, a, fixture_peer(i + 10, 1)), STUN_OK);
            }
            struct observed before = observe(a);
            size_t index_before = index_items();
            alloc_fault_arm(n);
            enum stun_status status = permission_install(a, peers, 5, f.now_us);
            alloc_fault_disarm();
            if (!alloc_fault_hit()) {
                assert_int_equal(status, STUN_OK);
                allocation_destroy(a, ALLOCATION_END_CLOSED);
                break;
            }
            if (status == STUN_OK) { /* only shrinking a table may fail unnoticed */
                fail_msg("allocation %u of %u permissions failed unnoticed", n, n_before);
            }
            assert_int_equal(status, STUN_SERVER_ERROR);
            struct observed after = observe(a);
            after.items -= index_items();
            before.items -= index_before;
            assert_memory_equal(&before, &after, sizeof before);
            assert_null(permission_find(a, &peers[0]));
            assert_int_equal(permission_install(a, peers, 5, f.now_us), STUN_OK);
            allocation_destroy(a, ALLOCATION_END_CLOSED);
        }
    }
}

/* A waiting permission with its channel comes back whole, or not at all. */
static void reviving_without_memory_changes_nothing(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    struct endpoint p = fixture_peer(1, 1);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, p), STUN_OK);
    fixture_advance(&f, FIXTURE_PERMISSION_S + 1);
    for (unsigned n = 1;; n++) {
        struct endpoint both[] = {p, fixture_peer(2, 1)};
        struct observed before = observe(a);
        alloc_fault_arm(n);
        enum stun_status status = permission_install(a, both, 2, f.now_us);
        alloc_fault_disarm();
        if (!alloc_fault_hit()) {
            assert_int_equal(status, STUN_OK);
            assert_ptr_equal(fixture_receive(&f, a, p).channel, channel_find(a, 0x4000));
            return;
        }
        struct observed after = observe(a);
        assert_memory_equal(&before, &after, sizeof before);
        assert_null(channel_find(a, 0x4000)->peer->permission);
        assert_null(fixture_receive(&f, a, p).allocation);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(is_for_the_ip_whatever_the_port, make, unmake),
        cmocka_unit_test_setup_teardown(is_for_the_ip_whatever_the_port, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(port_zero_permits_and_names_nothing, make, unmake),
        cmocka_unit_test_setup_teardown(port_zero_permits_and_names_nothing, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(ends_within_a_tick, make, unmake),
        cmocka_unit_test_setup_teardown(ends_within_a_tick, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(traffic_does_not_extend_it_but_a_request_does, make, unmake),
        cmocka_unit_test_setup_teardown(traffic_does_not_extend_it_but_a_request_does, make_dedicated,
                                        unmake),
        cmocka_unit_test_setup_teardown(several_in_one_request, make, unmake),
        cmocka_unit_test_setup_teardown(several_in_one_request, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(many_are_found_as_few_are, make, unmake),
        cmocka_unit_test_setup_teardown(many_are_found_as_few_are, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(the_number_is_bounded, make, unmake),
        cmocka_unit_test_setup_teardown(the_sixth_of_five_peers_is_refused, make_five, unmake),
        cmocka_unit_test_setup_teardown(unnamed_peers_make_room_for_named_ones, make_five, unmake),
        cmocka_unit_test_setup_teardown(the_cap_holds_when_unnamed_ones_get_named, make_five, unmake),
        cmocka_unit_test_setup_teardown(install_without_memory_changes_nothing, make, unmake),
        cmocka_unit_test_setup_teardown(install_without_memory_changes_nothing, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(reviving_without_memory_changes_nothing, make, unmake),
        cmocka_unit_test_setup_teardown(reviving_without_memory_changes_nothing, make_dedicated, unmake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
