#include "allocation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "alloc_fault.h"
#include "allocation_private.h"
#include "channel_data.h"
#include "state_fixture.h"

static struct state_fixture f;

static int make(void **state) {
    (void)state;
    return fixture_create(&f, &(struct fixture_params){.carrier.shared = true, .max_peers = 20000});
}

static int make_dedicated(void **state) {
    (void)state;
    return fixture_create(&f, &(struct fixture_params){.carrier.shared = false});
}

static int unmake(void **state) {
    (void)state;
    return fixture_destroy(&f) ? 0 : -1;
}

static void binds_a_number_to_a_peer_and_permits_it(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    struct endpoint p = fixture_peer(1, 1000), same_ip = fixture_peer(1, 2000);
    assert_null(channel_find(a, 0x4000));
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, p), STUN_OK);
    struct channel *c = channel_find(a, 0x4000);
    assert_int_equal(c->number, 0x4000);
    assert_true(endpoint_equal(&c->peer->peer, &p));
    assert_ptr_equal(c->peer->channel, c);
    assert_null(channel_find(a, 0x4001));
    assert_non_null(permission_find(a, &same_ip));
    assert_ptr_equal(fixture_receive(&f, a, p).channel, c);
    struct peer_match other = fixture_receive(&f, a, same_ip);
    assert_ptr_equal(other.allocation, a);
    assert_null(other.channel);
}

static void same_again_is_a_refresh_anything_else_refused(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    struct endpoint p = fixture_peer(1, 1000), q = fixture_peer(2, 1000);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, p), STUN_OK);
    struct channel *c = channel_find(a, 0x4000);
    size_t items = fixture_table_items(&f);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, p), STUN_OK);
    assert_ptr_equal(channel_find(a, 0x4000), c);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, q), STUN_BAD_REQUEST);
    assert_int_equal(state_fixture_bind(&f, a, 0x4001, p), STUN_BAD_REQUEST);
    assert_int_equal(fixture_table_items(&f), items);
    assert_null(permission_find(a, &q));
    assert_int_equal(state_fixture_bind(&f, a, 0x4001, q), STUN_OK);
    assert_int_equal(state_fixture_bind(&f, a, 0x4001, p), STUN_BAD_REQUEST); /* both bound, to others */
    assert_int_equal(state_fixture_bind(&f, a, 0x4002, fixture_peer(1, 1001)),
                     STUN_OK); /* another port: another peer */
}

static void numbers_belong_to_the_allocation(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann"), *b = fixture_allocate_v4(&f, "bob");
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, fixture_peer(1, 1)), STUN_OK);
    assert_int_equal(state_fixture_bind(&f, b, 0x4000, fixture_peer(1, 2)), STUN_OK);
    assert_ptr_equal(fixture_receive(&f, a, fixture_peer(1, 1)).channel, channel_find(a, 0x4000));
    assert_ptr_equal(fixture_receive(&f, b, fixture_peer(1, 2)).channel, channel_find(b, 0x4000));
}

static void expires_to_indications_and_frees_number_and_peer(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    struct endpoint p = fixture_peer(1, 1000);
    allocation_refresh(a, RELAY_V4, UINT64_C(3600000000), f.now_us);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, p), STUN_OK);
    for (unsigned s = 0; s < 595; s += 119) {
        fixture_advance(&f, 119);
        assert_int_equal(state_fixture_permit(&f, a, fixture_peer(1, 1)), STUN_OK);
        assert_ptr_equal(fixture_receive(&f, a, p).channel, channel_find(a, 0x4000));
    }
    fixture_advance(&f, 4.999);
    assert_non_null(channel_find(a, 0x4000));
    fixture_advance(&f, 0.102);
    assert_null(channel_find(a, 0x4000));
    struct peer_match match = fixture_receive(&f, a, p);
    assert_ptr_equal(match.allocation, a);
    assert_null(match.channel);
    assert_int_equal(state_fixture_bind(&f, a, 0x4007, p), STUN_OK);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, fixture_peer(2, 1)), STUN_OK);
    assert_ptr_equal(fixture_receive(&f, a, p).channel, channel_find(a, 0x4007));
}

static void outlives_the_permission_but_passes_nothing(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    struct endpoint p = fixture_peer(1, 1000);
    allocation_refresh(a, RELAY_V4, UINT64_C(3600000000), f.now_us);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, p), STUN_OK);
    struct channel *c = channel_find(a, 0x4000);
    fixture_advance(&f, FIXTURE_PERMISSION_S + 0.2);
    assert_ptr_equal(channel_find(a, 0x4000), c);
    assert_null(c->peer->permission);
    struct peer_match match = fixture_receive(&f, a, p);
    assert_null(match.allocation);
    assert_int_equal(match.reason, DROP_NO_PERMISSION);
    assert_ptr_equal(peer_table_note_sent(a, c->peer, &p, NULL, 0, f.now_us), c->peer);
    assert_int_equal(c->peer->last_sent_us, 0);
    assert_int_equal(state_fixture_permit(&f, a, fixture_peer(1, 0)), STUN_OK);
    assert_ptr_equal(fixture_receive(&f, a, p).channel, c);
    assert_ptr_equal(c->peer->permission, permission_find(a, &p));
    fixture_advance(&f, FIXTURE_PERMISSION_S + 0.2); /* both are gone by now */
    assert_null(channel_find(a, 0x4000));
    assert_int_equal(a->n_peers + a->n_known_permissions, 0);
}

static void without_renewal_nothing_is_left_of_it(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    allocation_refresh(a, RELAY_V4, UINT64_C(3600000000), f.now_us);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, fixture_peer(1, 1000)), STUN_OK);
    fixture_advance(&f, FIXTURE_PERMISSION_S + 0.2);
    unsigned quiesced = f.n_quiesced;
    assert_int_equal(a->n_peers, 1);
    fixture_advance(&f, FIXTURE_CHANNEL_S - FIXTURE_PERMISSION_S);
    assert_int_equal(a->n_peers + a->n_known_permissions, 0);
    assert_int_equal(f.n_quiesced, quiesced + 1);
}

static void rebinding_renews_the_permission(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    struct endpoint p = fixture_peer(1, 1000);
    allocation_refresh(a, RELAY_V4, UINT64_C(3600000000), f.now_us);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, p), STUN_OK);
    struct channel *c = channel_find(a, 0x4000);
    fixture_advance(&f, FIXTURE_PERMISSION_S + 0.2);
    assert_int_equal(state_fixture_bind(&f, a, 0x4000, p), STUN_OK);
    assert_ptr_equal(channel_find(a, 0x4000), c);
    assert_ptr_equal(fixture_receive(&f, a, p).channel, c);
    fixture_advance(&f, FIXTURE_PERMISSION_S - 0.3);
    assert_ptr_equal(fixture_receive(&f, a, p).channel, c);
    fixture_advance(&f, 0.4);
    assert_null(fixture_receive(&f, a, p).allocation);
}

static void every_number_of_the_old_range_at_once(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    enum { FIRST = CHANNEL_NUMBER_MIN, LAST = CHANNEL_NUMBER_MAX_5766 };
    for (unsigned n = FIRST; n <= LAST; n++) {
        assert_int_equal(state_fixture_bind(&f, a, (uint16_t)n, fixture_peer(1, (uint16_t)n)), STUN_OK);
    }
    for (unsigned n = FIRST; n <= LAST; n++) {
        struct channel *c = channel_find(a, (uint16_t)n);
        assert_int_equal(c->number, n);
        assert_int_equal(c->peer->peer.port, n);
    }
    assert_null(channel_find(a, 0x7FFF));
    assert_null(channel_find(a, 0x3FFF));
    assert_true(a->channels.mask < 4 * (LAST - FIRST + 1));
    fixture_advance(&f, FIXTURE_CHANNEL_S + 1);
}

/* The map through growth and shrinkage beside a plain array. */
static void the_map_agrees_with_a_plain_array(void **state) {
    (void)state;
    struct allocation *a = fixture_allocate_v4(&f, "ann");
    enum { NUMBERS = 300 };
    bool bound[NUMBERS] = {false};
    srand(5);
    for (unsigned step = 0; step < 20000; step++) {
        unsigned range = step / 2000 % 2 == 0 ? NUMBERS : 3;
        unsigned i = (unsigned)rand() % NUMBERS;
        uint16_t number = (uint16_t)(0x4000 + 16 * i);
        if (i < range && !bound[i]) {
            assert_int_equal(state_fixture_bind(&f, a, number, fixture_peer(1, (uint16_t)(i + 1))), STUN_OK);
            bound[i] = true;
        } else if (bound[i]) {
            struct peer_endpoint *record = channel_find(a, number)->peer;
            channel_remove(record->channel);
            peer_endpoint_destroy(record);
            bound[i] = false;
        }
        assert_true(a->channels.mask + 1 <= 16 * (a->channels.n_channels + 1));
        unsigned j = (unsigned)rand() % NUMBERS;
        assert_int_equal(channel_find(a, (uint16_t)(0x4000 + 16 * j)) != NULL, bound[j]);
    }
    for (unsigned i = 0; i < NUMBERS; i++) {
        assert_int_equal(channel_find(a, (uint16_t)(0x4000 + 16 * i)) != NULL, bound[i]);
    }
}

static void bind_without_memory_changes_nothing(void **state) {
    (void)state;
    for (unsigned n_before = 0; n_before <= 9; n_before++) {
        for (unsigned n = 1;; n++) {
            struct allocation *a = fixture_allocate_v4(&f, "ann");
            for (uint16_t i = 0; i < n_before; i++) {
                assert_int_equal(state_fixture_bind(&f, a, (uint16_t)(0x4100 + i), fixture_peer(10u + i, 1)),
                                 STUN_OK);
            }
            struct endpoint p = fixture_peer(1, 1);
            uint32_t n_peers = a->n_peers;
            size_t claims = f.table->claims.n_items, permitted = f.table->permitted.n_items;
            alloc_fault_arm(n);
            enum stun_status status = state_fixture_bind(&f, a, 0x4000, p);
            alloc_fault_disarm();
            if (!alloc_fault_hit()) {
                assert_int_equal(status, STUN_OK);
                allocation_destroy(a, ALLOCATION_END_CLOSED);
                break;
            }
            assert_int_equal(status, STUN_SERVER_ERROR);
            assert_null(channel_find(a, 0x4000));
            assert_null(permission_find(a, &p));
            assert_int_equal(a->n_peers, n_peers);
            assert_int_equal(a->channels.n_channels, n_before);
            assert_int_equal(f.table->claims.n_items, claims);
            assert_int_equal(f.table->permitted.n_items, permitted);
            for (uint16_t i = 0; i < n_before; i++) {
                assert_ptr_equal(fixture_receive(&f, a, fixture_peer(10u + i, 1)).channel,
                                 channel_find(a, (uint16_t)(0x4100 + i)));
            }
            assert_int_equal(state_fixture_bind(&f, a, 0x4000, p), STUN_OK);
            allocation_destroy(a, ALLOCATION_END_CLOSED);
        }
    }
}

/* A takeover that memory cuts short leaves the claim where it was. */
static void a_failed_bind_takes_no_claim(void **state) {
    (void)state;
    struct endpoint p = fixture_peer(1, 1);
    for (unsigned n = 1;; n++) {
        struct allocation *old = fixture_allocate_v4(&f, "ann"), *new = fixture_allocate_v4(&f, "ann");
        assert_int_equal(state_fixture_bind(&f, old, 0x4000, p), STUN_OK);
        state_fixture_send(&f, old, p);
        alloc_fault_arm(n);
        enum stun_status status = state_fixture_bind(&f, new, 0x4000, p);
        alloc_fault_disarm();
        struct allocation *owner = fixture_receive(&f, old, p).allocation;
        assert_ptr_equal(owner, status == STUN_OK ? new : old);
        allocation_destroy(old, ALLOCATION_END_CLOSED);
        allocation_destroy(new, ALLOCATION_END_CLOSED);
        if (!alloc_fault_hit()) {
            return;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(binds_a_number_to_a_peer_and_permits_it, make, unmake),
        cmocka_unit_test_setup_teardown(binds_a_number_to_a_peer_and_permits_it, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(same_again_is_a_refresh_anything_else_refused, make, unmake),
        cmocka_unit_test_setup_teardown(same_again_is_a_refresh_anything_else_refused, make_dedicated,
                                        unmake),
        cmocka_unit_test_setup_teardown(numbers_belong_to_the_allocation, make, unmake),
        cmocka_unit_test_setup_teardown(numbers_belong_to_the_allocation, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(expires_to_indications_and_frees_number_and_peer, make, unmake),
        cmocka_unit_test_setup_teardown(expires_to_indications_and_frees_number_and_peer, make_dedicated,
                                        unmake),
        cmocka_unit_test_setup_teardown(outlives_the_permission_but_passes_nothing, make, unmake),
        cmocka_unit_test_setup_teardown(outlives_the_permission_but_passes_nothing, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(without_renewal_nothing_is_left_of_it, make, unmake),
        cmocka_unit_test_setup_teardown(without_renewal_nothing_is_left_of_it, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(rebinding_renews_the_permission, make, unmake),
        cmocka_unit_test_setup_teardown(rebinding_renews_the_permission, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(every_number_of_the_old_range_at_once, make, unmake),
        cmocka_unit_test_setup_teardown(every_number_of_the_old_range_at_once, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(the_map_agrees_with_a_plain_array, make, unmake),
        cmocka_unit_test_setup_teardown(the_map_agrees_with_a_plain_array, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(bind_without_memory_changes_nothing, make, unmake),
        cmocka_unit_test_setup_teardown(bind_without_memory_changes_nothing, make_dedicated, unmake),
        cmocka_unit_test_setup_teardown(a_failed_bind_takes_no_claim, make, unmake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
