/* Refresh (RFC 8656, 8.2). */
#include "core_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static int set_up(void **state) {
    const struct core_fixture_params params = {.user_quota = 100};
    struct core_fixture *f;
    assert_int_equal(core_fixture_create(&f, &params), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct core_fixture *f = *state;
    core_fixture_pass(f, 4000);
    assert_int_equal(f->carrier->n_held, 0);
    assert_int_equal(quota_total(f->quota), 0);
    core_fixture_destroy(f);
    return 0;
}

static void add_dual(struct wire_writer *w) {
    stun_write_u8_reserved(w, STUN_ATTR_ADDITIONAL_ADDRESS_FAMILY, STUN_FAMILY_IPV6);
}

static int refresh_family(struct fixture_client *c, uint32_t lifetime_s, uint8_t family) {
    struct fixture_message m;
    fixture_begin(c->f, &m, STUN_REQUEST, STUN_METHOD_REFRESH);
    stun_write_u32(&m.w, STUN_ATTR_LIFETIME, lifetime_s);
    stun_write_u8_reserved(&m.w, STUN_ATTR_REQUESTED_ADDRESS_FAMILY, family);
    return fixture_ask(c, &m);
}

static void without_lifetime_the_default_is_granted(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_REFRESH);
    assert_int_equal(fixture_ask(&c, &m), STUN_OK);
    assert_int_equal(fixture_u32(f, STUN_ATTR_LIFETIME), 600);
    const struct core_event_info *e = core_fixture_last_event(f);
    assert_int_equal(e->event, CORE_ALLOCATION_REFRESHED);
    assert_ptr_equal(e->allocation, fixture_allocation(&c));
    assert_int_equal(e->lifetime_s, 600);
}

static void lifetime_is_clamped(void **state) {
    struct core_fixture *f = *state;
    static const struct {
        uint32_t wish, wanted;
    } rows[] = {{1, 600},     {599, 600},   {600, 600},   {601, 601},
                {1500, 1500}, {3600, 3600}, {3601, 3600}, {UINT32_MAX, 3600}};
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(fixture_refresh(&c, rows[i].wish), STUN_OK);
        assert_int_equal(fixture_u32(f, STUN_ATTR_LIFETIME), rows[i].wanted);
    }
    f->config.max_allocate_lifetime_s = 4;
    assert_int_equal(fixture_refresh(&c, 1500), STUN_OK);
    assert_int_equal(fixture_u32(f, STUN_ATTR_LIFETIME), 4);
    core_fixture_pass(f, 5);
    assert_null(fixture_allocation(&c));
}

static void refreshed_allocation_outlives_its_first_lifetime(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client kept = fixture_client(f), left = fixture_client(f);
    assert_int_equal(fixture_allocate(&kept), STUN_OK);
    assert_int_equal(fixture_allocate(&left), STUN_OK);
    core_fixture_pass(f, 599);
    assert_int_equal(fixture_refresh(&kept, 600), STUN_OK);
    core_fixture_pass(f, 2);
    assert_non_null(fixture_allocation(&kept));
    assert_null(fixture_allocation(&left));
    core_fixture_pass(f, 599);
    assert_null(fixture_allocation(&kept));
}

static void zero_deletes_at_once_and_is_signed(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    assert_int_equal(fixture_permit(&c, "203.0.113.21:5000"), STUN_OK);
    assert_int_equal(fixture_bind(&c, 0x4000, "203.0.113.21:5000"), STUN_OK);
    assert_int_equal(fixture_refresh(&c, 0), STUN_OK);
    assert_int_equal(fixture_u32(f, STUN_ATTR_LIFETIME), 0);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
    assert_null(fixture_allocation(&c));
    assert_int_equal(f->carrier->n_held, 0);
    assert_int_equal(quota_total(f->quota), 0);
    assert_int_equal(core_fixture_count(f, CORE_ALLOCATION_ENDED), 1);
    assert_int_equal(core_fixture_last_event(f)->event, CORE_ALLOCATION_REFRESHED);
    assert_null(core_fixture_last_event(f)->allocation);
    /* the retransmission finds nothing, which clients take for success (RFC 8656, 8.3) */
    assert_int_equal(fixture_refresh(&c, 0), STUN_ALLOCATION_MISMATCH);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    /* nothing of the old allocation is left */
    assert_int_equal(fixture_allocation(&c)->n_permissions, 0);
    assert_null(channel_find(fixture_allocation(&c), 0x4000));
}

static void ended_event_says_why(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    assert_int_equal(fixture_refresh(&c, 0), STUN_OK);
    const struct core_event_info *e = &f->events[f->n_events - 2];
    assert_int_equal(e->event, CORE_ALLOCATION_ENDED);
    assert_int_equal(e->end, ALLOCATION_END_REFRESH_0);
    assert_int_equal(e->n_username, 5);
}

static void family_that_is_not_there_gets_443(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    assert_int_equal(refresh_family(&c, 600, STUN_FAMILY_IPV6), STUN_PEER_ADDRESS_FAMILY_MISMATCH);
    assert_int_equal(refresh_family(&c, 0, STUN_FAMILY_IPV6), STUN_PEER_ADDRESS_FAMILY_MISMATCH);
    assert_int_equal(refresh_family(&c, 0, 7), STUN_PEER_ADDRESS_FAMILY_MISMATCH);
    assert_non_null(fixture_allocation(&c));
    assert_int_equal(refresh_family(&c, 1500, STUN_FAMILY_IPV4), STUN_OK);
    assert_int_equal(fixture_u32(f, STUN_ATTR_LIFETIME), 1500);
}

static void families_of_a_dual_allocation_go_one_by_one(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate_with(&c, add_dual), STUN_OK);
    assert_int_equal(fixture_permit(&c, "203.0.113.21"), STUN_OK);
    assert_int_equal(fixture_permit(&c, "2001:db8:200::21"), STUN_OK);
    assert_int_equal(refresh_family(&c, 0, STUN_FAMILY_IPV6), STUN_OK);
    const struct allocation *a = fixture_allocation(&c);
    assert_non_null(a);
    assert_null(a->relay[RELAY_V6].address);
    assert_non_null(a->relay[RELAY_V4].address);
    assert_int_equal(a->n_permissions, 1);
    assert_int_equal(f->carrier->n_held, 1);
    assert_int_equal(quota_total(f->quota), 1);
    assert_int_equal(fixture_permit(&c, "2001:db8:200::21"), STUN_PEER_ADDRESS_FAMILY_MISMATCH);
    assert_int_equal(refresh_family(&c, 600, STUN_FAMILY_IPV6), STUN_PEER_ADDRESS_FAMILY_MISMATCH);
    assert_int_equal(refresh_family(&c, 0, STUN_FAMILY_IPV4), STUN_OK);
    assert_null(fixture_allocation(&c));
    assert_int_equal(quota_total(f->quota), 0);
}

static void ipv4_can_go_and_leave_ipv6(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate_with(&c, add_dual), STUN_OK);
    assert_int_equal(refresh_family(&c, 0, STUN_FAMILY_IPV4), STUN_OK);
    assert_non_null(fixture_allocation(&c));
    assert_null(fixture_allocation(&c)->relay[RELAY_V4].address);
    assert_non_null(fixture_allocation(&c)->relay[RELAY_V6].address);
    assert_int_equal(refresh_family(&c, 600, STUN_FAMILY_IPV4), STUN_PEER_ADDRESS_FAMILY_MISMATCH);
}

static void one_family_can_be_prolonged_alone(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate_with(&c, add_dual), STUN_OK);
    assert_int_equal(refresh_family(&c, 1500, STUN_FAMILY_IPV6), STUN_OK);
    core_fixture_pass(f, 601);
    const struct allocation *a = fixture_allocation(&c);
    assert_non_null(a);
    assert_null(a->relay[RELAY_V4].address);
    assert_non_null(a->relay[RELAY_V6].address);
    core_fixture_pass(f, 900);
    assert_null(fixture_allocation(&c));
}

static void refresh_without_family_means_both(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate_with(&c, add_dual), STUN_OK);
    assert_int_equal(fixture_refresh(&c, 1500), STUN_OK);
    core_fixture_pass(f, 1499);
    assert_non_null(fixture_allocation(&c)->relay[RELAY_V4].address);
    assert_non_null(fixture_allocation(&c)->relay[RELAY_V6].address);
    f->config.nonce_lifetime_s = 0;
    assert_int_equal(fixture_refresh(&c, 0), STUN_OK);
    assert_null(fixture_allocation(&c));
    assert_int_equal(f->carrier->n_held, 0);
}

static void malformed_or_unknown_attributes_change_nothing(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_REFRESH);
    stun_write_bytes(&m.w, STUN_ATTR_LIFETIME, "\0\0\0", 3);
    assert_int_equal(fixture_ask(&c, &m), STUN_BAD_REQUEST);
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_REFRESH);
    stun_write_u32(&m.w, STUN_ATTR_LIFETIME, 0);
    stun_write_bytes(&m.w, STUN_ATTR_REQUESTED_ADDRESS_FAMILY, "\1", 1);
    assert_int_equal(fixture_ask(&c, &m), STUN_BAD_REQUEST);
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_REFRESH);
    stun_write_u32(&m.w, STUN_ATTR_LIFETIME, 0);
    stun_write_bytes(&m.w, 0x7f21, NULL, 0);
    assert_int_equal(fixture_ask(&c, &m), STUN_UNKNOWN_ATTRIBUTE);
    assert_non_null(fixture_allocation(&c));
}

static void only_the_first_lifetime_counts(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_REFRESH);
    stun_write_u32(&m.w, STUN_ATTR_LIFETIME, 700);
    stun_write_u32(&m.w, STUN_ATTR_LIFETIME, 0);
    assert_int_equal(fixture_ask(&c, &m), STUN_OK);
    assert_int_equal(fixture_u32(f, STUN_ATTR_LIFETIME), 700);
}

static void without_an_allocation_it_gets_437(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_refresh(&c, 600), STUN_ALLOCATION_MISMATCH);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
}

int main(void) {
#define WITH_CORE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_CORE(without_lifetime_the_default_is_granted),
        WITH_CORE(lifetime_is_clamped),
        WITH_CORE(refreshed_allocation_outlives_its_first_lifetime),
        WITH_CORE(zero_deletes_at_once_and_is_signed),
        WITH_CORE(ended_event_says_why),
        WITH_CORE(family_that_is_not_there_gets_443),
        WITH_CORE(families_of_a_dual_allocation_go_one_by_one),
        WITH_CORE(ipv4_can_go_and_leave_ipv6),
        WITH_CORE(one_family_can_be_prolonged_alone),
        WITH_CORE(refresh_without_family_means_both),
        WITH_CORE(malformed_or_unknown_attributes_change_nothing),
        WITH_CORE(only_the_first_lifetime_counts),
        WITH_CORE(without_an_allocation_it_gets_437),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
