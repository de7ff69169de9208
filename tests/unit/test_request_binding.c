/* Binding (RFC 8489, 3 and 6.3). */
#include "core_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static int set_up(void **state) {
    const struct core_fixture_params params = {0};
    struct core_fixture *f;
    assert_int_equal(core_fixture_create(&f, &params), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    core_fixture_destroy(*state);
    return 0;
}

static struct fixture_client stranger(struct core_fixture *f) {
    return fixture_client_of(f, NULL, NULL);
}

static int bind_with(struct fixture_client *c, uint16_t type, const void *bytes, size_t n) {
    struct fixture_message m;
    fixture_begin(c->f, &m, STUN_REQUEST, STUN_METHOD_BINDING);
    if (type != 0) {
        stun_write_bytes(&m.w, type, bytes, n);
    }
    return fixture_ask(c, &m);
}

static void success_tells_the_source_and_nothing_else(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = stranger(f);
    assert_int_equal(bind_with(&c, 0, NULL, 0), STUN_OK);
    struct endpoint mapped = fixture_address(f, STUN_ATTR_XOR_MAPPED_ADDRESS, 0);
    assert_true(endpoint_equal(&mapped, &c.tuple.client));
    assert_int_equal(f->n_reply_bytes, 32);
    c.tuple.client = fixture_endpoint("[2001:db8:100::11]:5000");
    assert_int_equal(bind_with(&c, 0, NULL, 0), STUN_OK);
    mapped = fixture_address(f, STUN_ATTR_XOR_MAPPED_ADDRESS, 0);
    assert_true(endpoint_equal(&mapped, &c.tuple.client));
    assert_int_equal(f->n_reply_bytes, 44);
    assert_int_equal(core_fixture_last_event(f)->event, CORE_REQUEST_DONE);
    assert_false(core_fixture_last_event(f)->authenticated);
}

static void options_add_their_attributes(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = stranger(f);
    f->config.software = "Turntable";
    f->config.backward_compatibility = true;
    f->config.fingerprint = true;
    assert_int_equal(bind_with(&c, 0, NULL, 0), STUN_OK);
    struct stun_attribute a;
    struct endpoint mapped;
    assert_true(stun_message_find(&f->reply, STUN_ATTR_MAPPED_ADDRESS, &a));
    assert_true(stun_read_address(&mapped, &a));
    assert_true(endpoint_equal(&mapped, &c.tuple.client));
    assert_true(stun_message_find(&f->reply, STUN_ATTR_SOFTWARE, &a));
    assert_memory_equal(a.value, "Turntable", 9);
    assert_true(fixture_has(f, STUN_ATTR_FINGERPRINT));
    f->config.software = "";
    assert_int_equal(bind_with(&c, 0, NULL, 0), STUN_OK);
    assert_false(fixture_has(f, STUN_ATTR_SOFTWARE));
}

static void fingerprint_is_answered_with_one(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = stranger(f);
    struct fixture_message m;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_BINDING);
    stun_fingerprint_append(&m.w);
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
    assert_true(fixture_has(f, STUN_ATTR_FINGERPRINT));
}

static void wrong_fingerprint_is_dropped_unseen(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = stranger(f);
    struct fixture_message m;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_BINDING);
    stun_fingerprint_append(&m.w);
    m.bytes[27] ^= 1;
    assert_int_equal(fixture_send(&c, &m), FIXTURE_NO_REPLY);
    assert_int_equal(f->n_events, 0);
}

static void ice_checks_are_tolerated(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = stranger(f);
    struct fixture_message m;
    const struct stun_key key = {"some password", 13};
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_BINDING);
    stun_write_u32(&m.w, STUN_ATTR_PRIORITY, 0x6e0001ff);
    stun_write_bytes(&m.w, STUN_ATTR_USE_CANDIDATE, NULL, 0);
    stun_write_bytes(&m.w, STUN_ATTR_ICE_CONTROLLING, "12345678", 8);
    stun_write_bytes(&m.w, 0xc057, "abcd", 4);
    stun_write_bytes(&m.w, STUN_ATTR_USERNAME, "evtj:h6vY", 9);
    stun_integrity_append(f->crypto, &m.w, STUN_INTEGRITY_SHA1, &key);
    stun_fingerprint_append(&m.w);
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
    assert_false(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
}

static void unknown_required_attributes_are_named_once(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = stranger(f);
    struct fixture_message m;
    struct stun_attribute a;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_BINDING);
    stun_write_bytes(&m.w, 0x7f01, "abcd", 4);
    stun_write_bytes(&m.w, 0xffff, "abcd", 4);
    stun_write_bytes(&m.w, 0x0003, "\0\0\0\6", 4); /* CHANGE-REQUEST is not served */
    stun_write_bytes(&m.w, 0x7f01, "", 0);
    assert_int_equal(fixture_send(&c, &m), STUN_UNKNOWN_ATTRIBUTE);
    assert_true(stun_message_find(&f->reply, STUN_ATTR_UNKNOWN_ATTRIBUTES, &a));
    assert_int_equal(a.n_bytes, 4);
    assert_memory_equal(a.value, "\x7f\x01\x00\x03", 4);
    assert_int_equal(bind_with(&c, 0xc001, "abcde", 5), STUN_OK);
    assert_int_equal(bind_with(&c, 0x8000, "abcde", 5), STUN_OK);
    assert_int_equal(bind_with(&c, 0x7fff, "abcde", 5), STUN_UNKNOWN_ATTRIBUTE);
}

static void list_of_unknown_attributes_is_bounded(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = stranger(f);
    struct fixture_message m;
    struct stun_attribute a;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_BINDING);
    for (uint16_t i = 0; i < 1500; i++) {
        stun_write_bytes(&m.w, (uint16_t)(0x4000 + i), NULL, 0);
    }
    assert_int_equal(fixture_send(&c, &m), STUN_UNKNOWN_ATTRIBUTE);
    assert_true(stun_message_find(&f->reply, STUN_ATTR_UNKNOWN_ATTRIBUTES, &a));
    assert_int_equal(a.n_bytes, 128);
}

static void indications_and_responses_get_no_answer(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = stranger(f);
    struct fixture_message m;
    static const enum stun_class classes[] = {STUN_INDICATION, STUN_SUCCESS, STUN_ERROR};
    for (size_t i = 0; i < 3; i++) {
        fixture_begin(f, &m, classes[i], STUN_METHOD_BINDING);
        assert_int_equal(fixture_send(&c, &m), FIXTURE_NO_REPLY);
    }
    assert_int_equal(f->n_events, 0);
}

static void no_stun_leaves_it_unanswered(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = stranger(f), d = fixture_client(f);
    f->config.no_stun = true;
    assert_int_equal(bind_with(&c, 0, NULL, 0), FIXTURE_NO_REPLY);
    assert_int_equal(fixture_allocate(&d), STUN_OK);
}

static void secure_stun_asks_for_credentials(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = stranger(f), d = fixture_client(f);
    f->config.secure_stun = true;
    assert_int_equal(bind_with(&c, 0, NULL, 0), STUN_UNAUTHENTICATED);
    assert_int_equal(bind_with(&d, 0, NULL, 0), STUN_OK);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
    d.password = "wrong";
    assert_int_equal(bind_with(&d, 0, NULL, 0), STUN_UNAUTHENTICATED);
    d.password = "wonder";
    assert_int_equal(bind_with(&d, 0x7f01, NULL, 0), STUN_UNKNOWN_ATTRIBUTE);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
}

int main(void) {
#define WITH_CORE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_CORE(success_tells_the_source_and_nothing_else),
        WITH_CORE(options_add_their_attributes),
        WITH_CORE(fingerprint_is_answered_with_one),
        WITH_CORE(wrong_fingerprint_is_dropped_unseen),
        WITH_CORE(ice_checks_are_tolerated),
        WITH_CORE(unknown_required_attributes_are_named_once),
        WITH_CORE(list_of_unknown_attributes_is_bounded),
        WITH_CORE(indications_and_responses_get_no_answer),
        WITH_CORE(no_stun_leaves_it_unanswered),
        WITH_CORE(secure_stun_asks_for_credentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
