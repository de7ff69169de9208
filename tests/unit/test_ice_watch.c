#include "ice_watch.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "alloc_fault.h"
#include "state_fixture.h"

enum { RELAYED = 7, T0 = 5000000 };

static int make(void **state) {
    const struct hash_key key = {11, 13};
    struct ice_watch *w;
    if (ice_watch_create(&w, &key) < 0) {
        return -1;
    }
    *state = w;
    return 0;
}

static int unmake(void **state) {
    ice_watch_destroy(*state);
    return 0;
}

static size_t find(const struct ice_watch *w, uint32_t relayed, struct endpoint peer, struct fixture_stun m,
                   uint64_t now_us, uint64_t uids[ICE_WATCH_WAYS]) {
    return ice_watch_find(w, relayed, &peer, m.bytes, m.n_bytes, now_us, uids);
}

static void note(struct ice_watch *w, uint64_t uid, struct endpoint peer, struct fixture_stun m,
                 uint64_t now_us) {
    ice_watch_note(w, RELAYED, uid, &peer, m.bytes, m.n_bytes, now_us);
}

static void an_answer_is_found_by_transaction_and_ip(void **state) {
    struct ice_watch *w = *state;
    uint64_t uids[ICE_WATCH_WAYS];
    note(w, 42, fixture_peer(1, 1000), fixture_binding(STUN_REQUEST, 9, "them:us"), T0);
    assert_int_equal(
        find(w, RELAYED, fixture_peer(1, 2000), fixture_binding(STUN_SUCCESS, 9, NULL), T0, uids), 1);
    assert_int_equal(uids[0], 42);
    assert_int_equal(find(w, RELAYED, fixture_peer(1, 1000), fixture_binding(STUN_ERROR, 9, NULL), T0, uids),
                     1);
    assert_int_equal(
        find(w, RELAYED, fixture_peer(2, 1000), fixture_binding(STUN_SUCCESS, 9, NULL), T0, uids), 0);
    assert_int_equal(
        find(w, RELAYED, fixture_peer(1, 1000), fixture_binding(STUN_SUCCESS, 8, NULL), T0, uids), 0);
    assert_int_equal(
        find(w, RELAYED + 1, fixture_peer(1, 1000), fixture_binding(STUN_SUCCESS, 9, NULL), T0, uids), 0);
}

static void a_check_is_found_by_the_mirrored_fragments(void **state) {
    struct ice_watch *w = *state;
    uint64_t uids[ICE_WATCH_WAYS];
    struct endpoint p = fixture_peer(1, 1000), elsewhere = fixture_peer(99, 1);
    note(w, 42, p, fixture_binding(STUN_REQUEST, 9, "them:us"), T0);
    assert_int_equal(find(w, RELAYED, elsewhere, fixture_binding(STUN_REQUEST, 1, "us:them"), T0, uids), 1);
    assert_int_equal(uids[0], 42);
    assert_int_equal(find(w, RELAYED, p, fixture_binding(STUN_REQUEST, 1, "them:us"), T0, uids), 0);
    assert_int_equal(find(w, RELAYED, p, fixture_binding(STUN_REQUEST, 1, "us:the"), T0, uids), 0);
    assert_int_equal(find(w, RELAYED, p, fixture_binding(STUN_REQUEST, 1, NULL), T0, uids), 0);
    assert_int_equal(find(w, RELAYED, p, fixture_binding(STUN_INDICATION, 9, "us:them"), T0, uids), 0);
    assert_int_equal(find(w, RELAYED + 1, p, fixture_binding(STUN_REQUEST, 1, "us:them"), T0, uids), 0);
}

static void notes_end_at_their_age(void **state) {
    struct ice_watch *w = *state;
    uint64_t uids[ICE_WATCH_WAYS];
    struct endpoint p = fixture_peer(1, 1000);
    struct fixture_stun answer = fixture_binding(STUN_SUCCESS, 9, NULL);
    struct fixture_stun check = fixture_binding(STUN_REQUEST, 1, "us:them");
    note(w, 42, p, fixture_binding(STUN_REQUEST, 9, "them:us"), T0);
    assert_int_equal(find(w, RELAYED, p, answer, T0 + ICE_WATCH_TRANSACTION_US, uids), 1);
    assert_int_equal(find(w, RELAYED, p, answer, T0 + ICE_WATCH_TRANSACTION_US + 1, uids), 0);
    assert_int_equal(find(w, RELAYED, p, check, T0 + ICE_WATCH_FRAGMENT_US, uids), 1);
    assert_int_equal(find(w, RELAYED, p, check, T0 + ICE_WATCH_FRAGMENT_US + 1, uids), 0);
}

static void what_is_no_check_is_not_noted(void **state) {
    struct ice_watch *w = *state;
    uint64_t uids[ICE_WATCH_WAYS];
    struct endpoint p = fixture_peer(1, 1000);
    struct fixture_stun answer = fixture_binding(STUN_SUCCESS, 9, NULL);
    note(w, 42, p, answer, T0);
    note(w, 42, p, fixture_binding(STUN_INDICATION, 9, "them:us"), T0);
    assert_int_equal(find(w, RELAYED, p, answer, T0, uids), 0);
    /* no colon, and cut short: the transaction counts, the fragments do not */
    note(w, 42, p, fixture_binding(STUN_REQUEST, 3, "nocolon"), T0);
    assert_int_equal(find(w, RELAYED, p, fixture_binding(STUN_REQUEST, 1, "nocolon"), T0, uids), 0);
    struct fixture_stun cut = fixture_binding(STUN_REQUEST, 4, "them:us");
    cut.n_bytes -= 4;
    note(w, 42, p, cut, T0);
    assert_int_equal(find(w, RELAYED, p, fixture_binding(STUN_REQUEST, 1, "us:them"), T0, uids), 0);
    for (uint32_t n = 0; n <= cut.n_bytes; n++) {
        uint8_t *exact = malloc(n + 1);
        memcpy(exact, cut.bytes, n);
        ice_watch_note(w, RELAYED, 1, &p, exact, n, T0);
        ice_watch_find(w, RELAYED, &p, exact, n, T0, uids);
        free(exact);
    }
}

static void several_with_one_pair_come_newest_first(void **state) {
    struct ice_watch *w = *state;
    uint64_t uids[ICE_WATCH_WAYS];
    struct endpoint p = fixture_peer(1, 1000);
    struct fixture_stun check = fixture_binding(STUN_REQUEST, 9, "them:us");
    note(w, 1, p, check, T0);
    note(w, 2, p, check, T0 + 1);
    note(w, 3, p, check, T0 + 2);
    note(w, 1, p, check, T0 + 3); /* renewed, not doubled */
    assert_int_equal(find(w, RELAYED, p, fixture_binding(STUN_REQUEST, 1, "us:them"), T0 + 4, uids), 3);
    assert_int_equal(uids[0], 1);
    assert_int_equal(uids[1], 3);
    assert_int_equal(uids[2], 2);
}

static struct fixture_stun numbered_check(uint32_t n) {
    struct fixture_stun m = fixture_binding(STUN_REQUEST, 0, "them:us");
    memcpy(m.bytes + 8, &n, sizeof n);
    return m;
}

static bool is_still_known(struct ice_watch *w, struct endpoint p, uint32_t n, uint64_t now_us) {
    uint64_t uids[ICE_WATCH_WAYS];
    struct fixture_stun m = numbered_check(n);
    m.bytes[0] = 0x01; /* the success response to it */
    return find(w, RELAYED, p, m, now_us, uids) > 0;
}

/* A flood of one allocation leaves what others noted before and note meanwhile (few enough that no set
 * overflows without the flood). */
static void a_flood_spoils_only_its_own(void **state) {
    struct ice_watch *w = *state;
    enum { VICTIMS = 150, FLOOD = 100000 };
    struct endpoint p = fixture_peer(1, 1000);
    for (uint32_t i = 0; i < VICTIMS; i++) {
        note(w, 1000 + i, p, numbered_check(i), T0 + i);
    }
    for (uint32_t i = 0; i < FLOOD; i++) {
        note(w, 1, p, numbered_check(1000000 + i), T0 + 1000 + i);
        if (i % 500 == 0) {
            note(w, 5000 + i, p, numbered_check(500000 + i), T0 + 1000 + i);
        }
    }
    for (uint32_t i = 0; i < VICTIMS; i++) {
        assert_true(is_still_known(w, p, i, T0 + 1000 + FLOOD));
    }
    for (uint32_t i = 0; i < FLOOD; i += 500) {
        assert_true(is_still_known(w, p, 500000 + i, T0 + 1000 + FLOOD));
    }
    assert_false(is_still_known(w, p, 1000000, T0 + 1000 + FLOOD));
}

static void creation_fails_cleanly(void **state) {
    (void)state;
    const struct hash_key key = {1, 2};
    for (unsigned n = 1;; n++) {
        struct ice_watch *w = NULL;
        alloc_fault_arm(n);
        int err = ice_watch_create(&w, &key);
        alloc_fault_disarm();
        if (!alloc_fault_hit()) {
            assert_int_equal(err, 0);
            assert_int_equal(n, 4);
            ice_watch_destroy(w);
            return;
        }
        assert_int_equal(err, -ENOMEM);
        assert_null(w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answer_is_found_by_transaction_and_ip, make, unmake),
        cmocka_unit_test_setup_teardown(a_check_is_found_by_the_mirrored_fragments, make, unmake),
        cmocka_unit_test_setup_teardown(notes_end_at_their_age, make, unmake),
        cmocka_unit_test_setup_teardown(what_is_no_check_is_not_noted, make, unmake),
        cmocka_unit_test_setup_teardown(several_with_one_pair_come_newest_first, make, unmake),
        cmocka_unit_test_setup_teardown(a_flood_spoils_only_its_own, make, unmake),
        cmocka_unit_test(creation_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
