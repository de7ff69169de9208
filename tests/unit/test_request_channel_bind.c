/* ChannelBind (RFC 8656, 12.2). */
#include "core_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

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

static struct fixture_client allocated(struct core_fixture *f) {
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    return c;
}

static const char peer[] = "203.0.113.21:5000";

static void numbers_are_bounded_on_both_sides(void **state) {
    struct core_fixture *f = *state;
    static const uint16_t bad[] = {0, 1, 0x3fff, 0x5000, 0x7ffe, 0x7fff, 0x8000, 0xffff};
    struct fixture_client c = allocated(f);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(fixture_bind(&c, bad[i], peer), STUN_BAD_REQUEST);
    }
    assert_int_equal(fixture_allocation(&c)->n_permissions, 0);
    assert_int_equal(fixture_bind(&c, 0x4000, peer), STUN_OK);
    assert_int_equal(fixture_bind(&c, 0x4fff, "203.0.113.23:1"), STUN_OK);
    assert_non_null(channel_find(fixture_allocation(&c), 0x4000));
    assert_non_null(channel_find(fixture_allocation(&c), 0x4fff));
}

static void old_range_is_an_option(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    f->config.channel_numbers_5766 = true;
    assert_int_equal(fixture_bind(&c, 0x5000, peer), STUN_OK);
    assert_int_equal(fixture_bind(&c, 0x7ffe, "203.0.113.23:1"), STUN_OK);
    assert_int_equal(fixture_bind(&c, 0x7fff, "203.0.113.24:1"), STUN_BAD_REQUEST);
    assert_int_equal(fixture_bind(&c, 0x3fff, "203.0.113.24:1"), STUN_BAD_REQUEST);
}

static void both_attributes_are_needed(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    struct fixture_message m;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_CHANNEL_BIND);
    fixture_write_peer(&m, peer);
    assert_int_equal(fixture_ask(&c, &m), STUN_BAD_REQUEST);
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_CHANNEL_BIND);
    stun_write_u16_reserved(&m.w, STUN_ATTR_CHANNEL_NUMBER, 0x4000);
    assert_int_equal(fixture_ask(&c, &m), STUN_BAD_REQUEST);
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_CHANNEL_BIND);
    stun_write_bytes(&m.w, STUN_ATTR_CHANNEL_NUMBER, "\x40\0", 2);
    fixture_write_peer(&m, peer);
    assert_int_equal(fixture_ask(&c, &m), STUN_BAD_REQUEST);
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_CHANNEL_BIND);
    stun_write_u16_reserved(&m.w, STUN_ATTR_CHANNEL_NUMBER, 0x4000);
    stun_write_bytes(&m.w, STUN_ATTR_XOR_PEER_ADDRESS, "\0\1\0\0", 4);
    assert_int_equal(fixture_ask(&c, &m), STUN_BAD_REQUEST);
    assert_int_equal(fixture_bind(&c, 0x4000, "203.0.113.21:0"), STUN_BAD_REQUEST);
    assert_int_equal(fixture_allocation(&c)->n_permissions, 0);
}

static void reserved_bits_of_the_number_are_ignored(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    struct fixture_message m;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_CHANNEL_BIND);
    stun_write_u32(&m.w, STUN_ATTR_CHANNEL_NUMBER, 0x4001ffff);
    fixture_write_peer(&m, peer);
    assert_int_equal(fixture_ask(&c, &m), STUN_OK);
    assert_non_null(channel_find(fixture_allocation(&c), 0x4001));
}

static void family_and_policy_are_asked(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    assert_int_equal(fixture_bind(&c, 0x4000, "[2001:db8:200::21]:5000"), STUN_PEER_ADDRESS_FAMILY_MISMATCH);
    assert_int_equal(fixture_bind(&c, 0x4000, "203.0.113.22:5000"), STUN_FORBIDDEN);
    assert_string_equal(core_fixture_last_event(f)->detail, "203.0.113.22");
    assert_int_equal(fixture_allocation(&c)->n_permissions, 0);
    assert_int_equal(fixture_bind(&c, 0x4000, peer), STUN_OK);
}

static void own_listener_is_refused_even_after_a_permission(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    struct endpoint listener = fixture_endpoint("198.51.100.1:3478");
    assert_int_equal(peer_policy_deny_endpoint(f->policy, &listener), 0);
    assert_int_equal(fixture_permit(&c, "198.51.100.1:0"), STUN_OK);
    assert_int_equal(fixture_permit(&c, "198.51.100.1:3478"), STUN_FORBIDDEN);
    assert_int_equal(fixture_bind(&c, 0x4000, "198.51.100.1:3478"), STUN_FORBIDDEN);
    assert_int_equal(fixture_bind(&c, 0x4000, "198.51.100.1:10000"), STUN_OK);
}

static void binding_otherwise_gets_400_and_changes_nothing(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    assert_int_equal(fixture_bind(&c, 0x4001, peer), STUN_OK);
    assert_int_equal(fixture_bind(&c, 0x4001, peer), STUN_OK);
    assert_int_equal(fixture_bind(&c, 0x4001, "203.0.113.23:5000"), STUN_BAD_REQUEST);
    assert_non_null(core_fixture_last_event(f)->detail);
    assert_int_equal(fixture_bind(&c, 0x4002, peer), STUN_BAD_REQUEST);
    assert_null(channel_find(fixture_allocation(&c), 0x4002));
    assert_int_equal(fixture_allocation(&c)->n_permissions, 1);
    /* another port of the same address is another peer */
    assert_int_equal(fixture_bind(&c, 0x4002, "203.0.113.21:5001"), STUN_OK);
}

static void success_has_no_attributes_and_permits(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = allocated(f);
    struct endpoint other_port = fixture_endpoint("203.0.113.21:1");
    assert_int_equal(fixture_bind(&c, 0x4000, peer), STUN_OK);
    assert_int_equal(f->n_reply_bytes, STUN_HEADER_BYTES + 24);
    assert_non_null(permission_find(fixture_allocation(&c), &other_port));
    assert_int_equal(core_fixture_last_event(f)->event, CORE_REQUEST_DONE);
}

static void without_an_allocation_it_gets_437(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_bind(&c, 0x4000, peer), STUN_ALLOCATION_MISMATCH);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
}

int main(void) {
#define WITH_CORE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_CORE(numbers_are_bounded_on_both_sides),
        WITH_CORE(old_range_is_an_option),
        WITH_CORE(both_attributes_are_needed),
        WITH_CORE(reserved_bits_of_the_number_are_ignored),
        WITH_CORE(family_and_policy_are_asked),
        WITH_CORE(own_listener_is_refused_even_after_a_permission),
        WITH_CORE(binding_otherwise_gets_400_and_changes_nothing),
        WITH_CORE(success_has_no_attributes_and_permits),
        WITH_CORE(without_an_allocation_it_gets_437),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
