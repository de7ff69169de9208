/* Send indications (RFC 8656, 11.2). */
#include "core_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct world {
    struct core_fixture *f;
    struct fixture_client c;
};

static int set_up(void **state) {
    static struct world w;
    const struct core_fixture_params params = {0};
    assert_int_equal(core_fixture_create(&w.f, &params), 0);
    w.c = fixture_client(w.f);
    assert_int_equal(fixture_allocate(&w.c), STUN_OK);
    assert_int_equal(fixture_permit(&w.c, "203.0.113.21:5000"), STUN_OK);
    *state = &w;
    return 0;
}

static int tear_down(void **state) {
    core_fixture_destroy(((struct world *)*state)->f);
    return 0;
}

static enum drop_reason decode(struct world *w, struct fixture_message *m, struct send_indication *out) {
    struct stun_message message;
    size_t n = stun_message_end(&m->w);
    assert_true(stun_message_decode(&message, m->bytes, n));
    return indication_send_decode(w->f->core, fixture_allocation(&w->c), &message, out);
}

static enum drop_reason send_to(struct world *w, const char *peer, struct send_indication *out) {
    struct fixture_message m;
    fixture_begin(w->f, &m, STUN_INDICATION, STUN_METHOD_SEND);
    fixture_write_peer(&m, peer);
    stun_write_bytes(&m.w, STUN_ATTR_DATA, "hello", 5);
    return decode(w, &m, out);
}

static void data_and_peer_come_out(void **state) {
    struct world *w = *state;
    struct send_indication out;
    struct fixture_message m;
    fixture_begin(w->f, &m, STUN_INDICATION, STUN_METHOD_SEND);
    fixture_write_peer(&m, "203.0.113.21:6000");
    stun_write_bytes(&m.w, STUN_ATTR_DATA, "hello", 5);
    assert_int_equal(decode(w, &m, &out), DROP_NONE);
    struct endpoint peer = fixture_endpoint("203.0.113.21:6000");
    assert_true(endpoint_equal(&out.peer, &peer));
    assert_int_equal(out.n_data, 5);
    assert_memory_equal(out.data, "hello", 5);
    assert_in_range((uintptr_t)out.data, (uintptr_t)m.bytes, (uintptr_t)m.w.at); /* in place, no copy */
    assert_false(out.dont_fragment);
    assert_false(out.is_local);
    assert_ptr_equal(out.permission, permission_find(fixture_allocation(&w->c), &peer));
}

static void order_and_empty_data_are_free(void **state) {
    struct world *w = *state;
    struct send_indication out;
    struct fixture_message m;
    fixture_begin(w->f, &m, STUN_INDICATION, STUN_METHOD_SEND);
    stun_write_bytes(&m.w, STUN_ATTR_DONT_FRAGMENT, NULL, 0);
    stun_write_bytes(&m.w, 0xc051, "opt", 3);
    fixture_write_peer(&m, "203.0.113.21:6000");
    stun_write_bytes(&m.w, STUN_ATTR_DATA, NULL, 0); /* the last bytes of the message */
    assert_int_equal(decode(w, &m, &out), DROP_NONE);
    assert_int_equal(out.n_data, 0);
    assert_true(out.dont_fragment);
}

static void only_the_first_of_a_kind_counts(void **state) {
    struct world *w = *state;
    struct send_indication out;
    struct fixture_message m;
    fixture_begin(w->f, &m, STUN_INDICATION, STUN_METHOD_SEND);
    fixture_write_peer(&m, "203.0.113.21:6000");
    fixture_write_peer(&m, "203.0.113.99:6000");
    stun_write_bytes(&m.w, STUN_ATTR_DATA, "first", 5);
    stun_write_bytes(&m.w, STUN_ATTR_DATA, "2nd", 3);
    assert_int_equal(decode(w, &m, &out), DROP_NONE);
    assert_int_equal(out.peer.ip[3], 21);
    assert_memory_equal(out.data, "first", 5);
}

static void incomplete_or_malformed_is_dropped(void **state) {
    struct world *w = *state;
    struct send_indication out;
    struct fixture_message m;
    fixture_begin(w->f, &m, STUN_INDICATION, STUN_METHOD_SEND);
    assert_int_equal(decode(w, &m, &out), DROP_MALFORMED);
    fixture_write_peer(&m, "203.0.113.21:6000");
    assert_int_equal(decode(w, &m, &out), DROP_MALFORMED);
    fixture_begin(w->f, &m, STUN_INDICATION, STUN_METHOD_SEND);
    stun_write_bytes(&m.w, STUN_ATTR_DATA, "hello", 5);
    assert_int_equal(decode(w, &m, &out), DROP_MALFORMED);
    stun_write_bytes(&m.w, STUN_ATTR_XOR_PEER_ADDRESS, "\0\1\0\0", 4);
    assert_int_equal(decode(w, &m, &out), DROP_MALFORMED);
    assert_int_equal(send_to(w, "203.0.113.21:0", &out), DROP_MALFORMED);
}

static void unknown_required_attribute_drops_it(void **state) {
    struct world *w = *state;
    static const uint16_t unknown[] = {0x7f51, 0x7fff, STUN_ATTR_LIFETIME, STUN_ATTR_CHANGE_REQUEST};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        struct send_indication out;
        struct fixture_message m;
        fixture_begin(w->f, &m, STUN_INDICATION, STUN_METHOD_SEND);
        fixture_write_peer(&m, "203.0.113.21:6000");
        stun_write_bytes(&m.w, STUN_ATTR_DATA, "hello", 5);
        stun_write_bytes(&m.w, unknown[i], NULL, 0);
        assert_int_equal(decode(w, &m, &out), DROP_MALFORMED);
    }
}

static void fingerprint_has_to_be_right(void **state) {
    struct world *w = *state;
    struct send_indication out;
    struct fixture_message m;
    fixture_begin(w->f, &m, STUN_INDICATION, STUN_METHOD_SEND);
    fixture_write_peer(&m, "203.0.113.21:6000");
    stun_write_bytes(&m.w, STUN_ATTR_DATA, "hello", 5);
    stun_fingerprint_append(&m.w);
    assert_int_equal(decode(w, &m, &out), DROP_NONE);
    m.w.at[-1] ^= 1;
    assert_int_equal(decode(w, &m, &out), DROP_MALFORMED);
}

static void permission_family_and_policy_are_asked(void **state) {
    struct world *w = *state;
    struct send_indication out;
    assert_int_equal(send_to(w, "203.0.113.22:5000", &out), DROP_NO_PERMISSION);
    assert_int_equal(send_to(w, "[2001:db8:200::21]:5000", &out), DROP_PEER_FAMILY);
    assert_int_equal(send_to(w, "127.0.0.1:5000", &out), DROP_PEER_DENIED);
    assert_int_equal(send_to(w, "169.254.169.254:80", &out), DROP_PEER_DENIED);
    assert_int_equal(send_to(w, "203.0.113.21:5000", &out), DROP_NONE);
    core_fixture_pass(w->f, 301);
    assert_int_equal(send_to(w, "203.0.113.21:5000", &out), DROP_NO_PERMISSION);
}

/* The permission is for the address; the port of our own listener stays shut. */
static void own_listener_is_denied_under_a_permission(void **state) {
    struct world *w = *state;
    struct send_indication out;
    struct endpoint listener = fixture_endpoint("203.0.113.21:3478");
    assert_int_equal(peer_policy_deny_endpoint(w->f->policy, &listener), 0);
    assert_int_equal(send_to(w, "203.0.113.21:3478", &out), DROP_PEER_DENIED);
    assert_int_equal(send_to(w, "203.0.113.21:3479", &out), DROP_NONE);
}

static void own_relayed_address_is_located(void **state) {
    struct world *w = *state;
    struct send_indication out;
    fake_carrier_add_remote(w->f->carrier, 3, "203.0.113.21:7000", "203.0.113.21:7001");
    assert_int_equal(send_to(w, "203.0.113.21:7001", &out), DROP_NONE);
    assert_true(out.is_local);
    assert_int_equal(out.location.thread, 3);
    assert_int_equal(out.location.local.port, 7000);
    assert_int_equal(send_to(w, "203.0.113.21:7002", &out), DROP_NONE);
    assert_false(out.is_local);
}

int main(void) {
#define WITH_WORLD(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_WORLD(data_and_peer_come_out),
        WITH_WORLD(order_and_empty_data_are_free),
        WITH_WORLD(only_the_first_of_a_kind_counts),
        WITH_WORLD(incomplete_or_malformed_is_dropped),
        WITH_WORLD(unknown_required_attribute_drops_it),
        WITH_WORLD(fingerprint_has_to_be_right),
        WITH_WORLD(permission_family_and_policy_are_asked),
        WITH_WORLD(own_listener_is_denied_under_a_permission),
        WITH_WORLD(own_relayed_address_is_located),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
