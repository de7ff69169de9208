/* CreatePermission (RFC 8656, 10.2). */
#include "core_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "alloc_fault.h"

static const char *const denied[] = {"203.0.113.22", NULL};

static int set_up(void **state) {
    const struct core_fixture_params params = {.denied = denied};
    struct core_fixture *f;
    assert_int_equal(core_fixture_create(&f, &params), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    core_fixture_destroy(*state);
    return 0;
}

static int permit_all(struct fixture_client *c, const char *const *peers, size_t n) {
    struct fixture_message m;
    fixture_begin(c->f, &m, STUN_REQUEST, STUN_METHOD_CREATE_PERMISSION);
    for (size_t i = 0; i < n; i++) {
        fixture_write_peer(&m, peers[i]);
    }
    return fixture_ask(c, &m);
}

static bool is_permitted(const struct fixture_client *c, const char *peer) {
    struct endpoint e = fixture_endpoint(peer);
    return permission_find(fixture_allocation(c), &e) != NULL;
}

static struct fixture_client allocated(struct core_fixture *f) {
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    return c;
}

static void several_peers_are_permitted_by_address(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    static const char *const peers[] = {"203.0.113.21:5000", "203.0.113.23:0", "203.0.113.24:6000"};
    assert_int_equal(permit_all(&c, peers, 3), STUN_OK);
    assert_int_equal(f->n_reply_bytes, STUN_HEADER_BYTES + 24); /* MESSAGE-INTEGRITY and nothing else */
    assert_true(is_permitted(&c, "203.0.113.21:5000") && is_permitted(&c, "203.0.113.21:1"));
    assert_true(is_permitted(&c, "203.0.113.23:9") && is_permitted(&c, "203.0.113.24:9"));
    assert_false(is_permitted(&c, "203.0.113.25:5000"));
    const struct core_event_info *e = core_fixture_last_event(f);
    assert_int_equal(e->event, CORE_REQUEST_DONE);
    assert_int_equal(e->method, STUN_METHOD_CREATE_PERMISSION);
    assert_non_null(e->peer);
}

static void without_an_address_it_gets_400(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    assert_int_equal(permit_all(&c, NULL, 0), STUN_BAD_REQUEST);
}

static void malformed_address_permits_nothing(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    static const struct {
        const char *bytes;
        uint16_t n;
    } bad[] = {{"\0\1\0\0", 4},
               {"\0\7\0\0\0\0\0\0", 8},
               {"", 0},
               {"\0\1\0\0\0\0\0\0\0", 9},
               {"\0\2\0\0\0\0\0\0", 8}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct fixture_message m;
        fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_CREATE_PERMISSION);
        fixture_write_peer(&m, "203.0.113.21:5000");
        stun_write_bytes(&m.w, STUN_ATTR_XOR_PEER_ADDRESS, bad[i].bytes, bad[i].n);
        assert_int_equal(fixture_ask(&c, &m), STUN_BAD_REQUEST);
    }
    assert_int_equal(fixture_allocation(&c)->n_permissions, 0);
}

static void one_bad_peer_spoils_the_request(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    static const char *const forbidden[] = {"203.0.113.21:5000", "203.0.113.22:9"};
    static const char *const other_family[] = {"203.0.113.21:5000", "2001:db8:200::21"};
    assert_int_equal(permit_all(&c, forbidden, 2), STUN_FORBIDDEN);
    const struct core_event_info *e = core_fixture_last_event(f);
    assert_int_equal(e->event, CORE_REQUEST_REFUSED);
    assert_int_equal(e->status, STUN_FORBIDDEN);
    assert_string_equal(e->detail, "203.0.113.22");
    assert_non_null(e->peer);
    assert_int_equal(permit_all(&c, other_family, 2), STUN_PEER_ADDRESS_FAMILY_MISMATCH);
    assert_int_equal(fixture_allocation(&c)->n_permissions, 0);
}

static void refused_again_leaves_the_old_permission(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    static const char *const mixed[] = {"203.0.113.21:5000", "203.0.113.22:9"};
    assert_int_equal(fixture_permit(&c, "203.0.113.21:5000"), STUN_OK);
    core_fixture_pass(f, 200);
    assert_int_equal(permit_all(&c, mixed, 2), STUN_FORBIDDEN);
    core_fixture_pass(f, 101); /* not prolonged by the refused request */
    assert_false(is_permitted(&c, "203.0.113.21:5000"));
}

static void default_ranges_are_refused_in_every_spelling(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    static const char *const v4[] = {"127.0.0.1:80", "0.0.0.0:80", "169.254.169.254:80", "224.0.0.1:80"};
    static const char *const v6[] = {"::1",          "::",      "::ffff:127.0.0.1", "64:ff9b::7f00:1",
                                     "fd12:3456::5", "fe80::1", "ff02::1",          "::ffff:203.0.113.22"};
    for (size_t i = 0; i < sizeof v4 / sizeof v4[0]; i++) {
        assert_int_equal(fixture_permit(&c, v4[i]), STUN_FORBIDDEN);
        assert_int_equal(fixture_bind(&c, 0x4000, v4[i]), STUN_FORBIDDEN);
    }
    struct fixture_client d = fixture_client(f);
    struct fixture_message m;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_ALLOCATE);
    stun_write_u8_reserved(&m.w, STUN_ATTR_REQUESTED_TRANSPORT, STUN_TRANSPORT_UDP);
    stun_write_u8_reserved(&m.w, STUN_ATTR_REQUESTED_ADDRESS_FAMILY, STUN_FAMILY_IPV6);
    assert_int_equal(fixture_ask(&d, &m), STUN_OK);
    for (size_t i = 0; i < sizeof v6 / sizeof v6[0]; i++) {
        char bracketed[64];
        assert_int_equal(fixture_permit(&d, v6[i]), STUN_FORBIDDEN);
        snprintf(bracketed, sizeof bracketed, "[%s]:80", v6[i]);
        assert_int_equal(fixture_bind(&d, 0x4000, bracketed), STUN_FORBIDDEN);
    }
    assert_int_equal(fixture_permit(&d, "203.0.113.21:1"), STUN_PEER_ADDRESS_FAMILY_MISMATCH);
}

static void address_after_integrity_is_ignored(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    struct fixture_message m;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_CREATE_PERMISSION);
    fixture_write_peer(&m, "203.0.113.21:5000");
    fixture_sign(&c, &m);
    fixture_write_peer(&m, "203.0.113.23:5000");
    stun_write_bytes(&m.w, 0x7f31, "x", 1); /* nor does it get a 420 */
    stun_fingerprint_append(&m.w);
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
    assert_true(is_permitted(&c, "203.0.113.21:1"));
    assert_false(is_permitted(&c, "203.0.113.23:1"));
}

static void unknown_required_attribute_permits_nothing(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    struct fixture_message m;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_CREATE_PERMISSION);
    fixture_write_peer(&m, "203.0.113.21:5000");
    stun_write_bytes(&m.w, 0x7f31, NULL, 0);
    assert_int_equal(fixture_ask(&c, &m), STUN_UNKNOWN_ATTRIBUTE);
    assert_false(is_permitted(&c, "203.0.113.21:5000"));
}

static void number_of_peers_is_bounded(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    for (unsigned n = 128; n <= 129; n++) {
        struct fixture_message m;
        fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_CREATE_PERMISSION);
        for (unsigned i = 0; i < n; i++) {
            char peer[32];
            snprintf(peer, sizeof peer, "198.51.%u.%u:7", n, i);
            fixture_write_peer(&m, peer);
        }
        assert_int_equal(fixture_ask(&c, &m), n == 128 ? STUN_OK : STUN_INSUFFICIENT_CAPACITY);
    }
    assert_int_equal(fixture_allocation(&c)->n_permissions, 128);
}

static void without_an_allocation_it_gets_437(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_permit(&c, "203.0.113.21:5000"), STUN_ALLOCATION_MISMATCH);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
}

static void lack_of_memory_permits_all_or_nothing(void **state) {
    struct core_fixture *f = *state;
    static const char *const peers[] = {"203.0.113.31:1", "203.0.113.32:1", "203.0.113.33:1"};
    for (uint64_t n = 1;; n++) {
        struct fixture_client c = allocated(f);
        alloc_fault_arm(n);
        int status = permit_all(&c, peers, 3);
        alloc_fault_disarm();
        bool hit = alloc_fault_hit();
        assert_int_equal(fixture_allocation(&c)->n_permissions, status == STUN_OK ? 3 : 0);
        assert_true(status == STUN_OK || hit);
        assert_int_equal(permit_all(&c, peers, 3), STUN_OK);
        assert_int_equal(fixture_refresh(&c, 0), STUN_OK);
        f->n_events = 0;
        if (!hit) {
            assert_true(n > 3);
            break;
        }
    }
}

int main(void) {
#define WITH_CORE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_CORE(several_peers_are_permitted_by_address),
        WITH_CORE(without_an_address_it_gets_400),
        WITH_CORE(malformed_address_permits_nothing),
        WITH_CORE(one_bad_peer_spoils_the_request),
        WITH_CORE(refused_again_leaves_the_old_permission),
        WITH_CORE(default_ranges_are_refused_in_every_spelling),
        WITH_CORE(address_after_integrity_is_ignored),
        WITH_CORE(unknown_required_attribute_permits_nothing),
        WITH_CORE(number_of_peers_is_bounded),
        WITH_CORE(without_an_allocation_it_gets_437),
        WITH_CORE(lack_of_memory_permits_all_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
