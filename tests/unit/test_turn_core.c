/* What the core does with any request before a handler sees it, and with the core as a whole. */
#include "core_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

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

static int ask(struct fixture_client *c, uint16_t method) {
    struct fixture_message m;
    fixture_begin(c->f, &m, STUN_REQUEST, method);
    return fixture_ask(c, &m);
}

static void unknown_methods_are_answered_on_an_allocation_only(void **state) {
    struct core_fixture *f = *state;
    static const uint16_t unknown[] = {
        0, 2, 5, STUN_METHOD_SEND, STUN_METHOD_DATA, STUN_METHOD_CONNECT, 0x0fe, 0xfff};
    struct fixture_client c = fixture_client(f), stranger = fixture_client_of(f, NULL, NULL);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_int_equal(ask(&stranger, unknown[i]), FIXTURE_NO_REPLY);
        assert_int_equal(ask(&c, unknown[i]), STUN_BAD_REQUEST);
    }
    assert_non_null(fixture_allocation(&c));
    /* somebody who only has the client's address learns no more than anybody */
    stranger.tuple = c.tuple;
    assert_int_equal(ask(&stranger, 0x0fe), STUN_UNAUTHENTICATED);
}

static void ice_attributes_are_known_to_binding_alone(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_ALLOCATE);
    stun_write_u8_reserved(&m.w, STUN_ATTR_REQUESTED_TRANSPORT, STUN_TRANSPORT_UDP);
    stun_write_u32(&m.w, STUN_ATTR_PRIORITY, 1);
    assert_int_equal(fixture_ask(&c, &m), STUN_UNKNOWN_ATTRIBUTE);
    assert_null(fixture_allocation(&c));
}

static void stun_only_serves_binding_alone(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client_of(f, NULL, NULL);
    static const uint16_t methods[] = {STUN_METHOD_ALLOCATE, STUN_METHOD_REFRESH,
                                       STUN_METHOD_CREATE_PERMISSION, STUN_METHOD_CHANNEL_BIND, 0x0fe};
    f->config.stun_only = true;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        assert_int_equal(ask(&c, methods[i]), FIXTURE_NO_REPLY);
    }
    assert_int_equal(ask(&c, STUN_METHOD_BINDING), STUN_OK);
}

static void responses_and_indications_are_dropped(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    static const enum stun_class classes[] = {STUN_INDICATION, STUN_SUCCESS, STUN_ERROR};
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    size_t n_events = f->n_events;
    for (uint16_t method = 0; method < 16; method++) {
        for (size_t i = 0; i < 3; i++) {
            struct fixture_message m;
            fixture_begin(f, &m, classes[i], method);
            fixture_sign(&c, &m);
            assert_int_equal(fixture_send(&c, &m), FIXTURE_NO_REPLY);
        }
    }
    assert_int_equal(f->n_events, n_events);
}

static void unauthenticated_senders_leave_nothing(void **state) {
    struct core_fixture *f = *state;
    struct allocation_table_stats stats;
    for (int i = 0; i < 2000; i++) {
        struct fixture_client c = fixture_client_of(f, NULL, NULL);
        struct fixture_message m;
        c.tuple.client.port = (uint16_t)(1 + i);
        fixture_begin(f, &m, STUN_REQUEST, (uint16_t)(i % 10));
        if (i % 3 == 0) {
            stun_write_bytes(&m.w, STUN_ATTR_MESSAGE_INTEGRITY, "01234567890123456789", 20);
        }
        fixture_send(&c, &m);
        f->n_events = 0;
    }
    allocation_table_stats(turn_core_allocations(f->core), &stats);
    assert_int_equal(stats.n_allocations, 0);
    assert_int_equal(quota_total(f->quota), 0);
    assert_int_equal(f->carrier->n_acquires, 0);
}

/* Both long texts and everything else an error can carry, in the room there is. */
static void longest_reply_fits(void **state) {
    struct core_fixture *f = *state;
    static char realm[STUN_MAX_REALM_BYTES + 1], software[STUN_MAX_REALM_BYTES + 1];
    struct fixture_client c = fixture_client_of(f, NULL, NULL);
    memset(realm, 'r', STUN_MAX_REALM_BYTES);
    memset(software, 's', STUN_MAX_REALM_BYTES);
    f->config.realm = realm;
    f->config.software = software;
    f->config.fingerprint = true;
    f->config.reason_strings = true;
    assert_int_equal(ask(&c, STUN_METHOD_ALLOCATE), STUN_UNAUTHENTICATED);
    assert_in_range(f->n_reply_bytes, 1500, CORE_REPLY_MAX_BYTES);
    struct fixture_message m;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_BINDING);
    for (uint16_t i = 0; i < 1000; i++) {
        stun_write_bytes(&m.w, (uint16_t)(0x4000 + i), NULL, 0);
    }
    assert_int_equal(fixture_send(&c, &m), STUN_UNKNOWN_ATTRIBUTE);
}

static void reason_strings_reach_authenticated_clients(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct stun_attribute a;
    assert_int_equal(fixture_refresh(&c, 600), STUN_ALLOCATION_MISMATCH);
    assert_true(stun_message_find(&f->reply, STUN_ATTR_ERROR_CODE, &a));
    assert_int_equal(a.n_bytes, 4 + strlen("Allocation Mismatch"));
    assert_memory_equal(a.value,
                        "\0\0\4\x25"
                        "Allocation Mismatch",
                        a.n_bytes);
    f->config.reason_strings = true;
    assert_int_equal(fixture_refresh(&c, 600), STUN_ALLOCATION_MISMATCH);
    assert_true(stun_message_find(&f->reply, STUN_ATTR_ERROR_CODE, &a));
    assert_int_equal(a.n_bytes, 4 + strlen("no allocation"));
    assert_memory_equal(a.value + 4, "no allocation", a.n_bytes - 4);
}

static void destroying_the_core_ends_allocations(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client a = fixture_client(f), b = fixture_client_of(f, "bob", "builder");
    assert_int_equal(fixture_allocate(&a), STUN_OK);
    assert_int_equal(fixture_allocate(&b), STUN_OK);
    assert_int_equal(quota_total(f->quota), 2);
    turn_core_destroy(f->core);
    f->core = NULL;
    assert_int_equal(core_fixture_count(f, CORE_ALLOCATION_ENDED), 2);
    assert_int_equal(core_fixture_last_event(f)->end, ALLOCATION_END_SHUTDOWN);
    assert_int_equal(quota_total(f->quota), 0);
    assert_int_equal(f->carrier->n_held, 0);
    turn_core_destroy(NULL);
}

/* The connection of a stream client is closed: the server ends the allocation, and everything comes back. */
static void closing_gives_everything_back(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    allocation_destroy(fixture_allocation(&c), ALLOCATION_END_CLOSED);
    assert_int_equal(core_fixture_last_event(f)->end, ALLOCATION_END_CLOSED);
    assert_int_equal(quota_total(f->quota), 0);
    assert_int_equal(f->carrier->n_held, 0);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
}

/* A client's server address and transport are part of who it is. */
static void five_tuples_are_told_apart(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client a = fixture_client(f), b = a, c = a;
    b.tuple.server.port++;
    c.tuple.transport = CLIENT_TCP;
    assert_int_equal(fixture_allocate(&a), STUN_OK);
    assert_int_equal(fixture_allocate(&b), STUN_OK);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    assert_true(fixture_allocation(&a) != fixture_allocation(&b) &&
                fixture_allocation(&b) != fixture_allocation(&c));
}

/* Every byte of a whole signed Allocate changed in turn: no reply or a refusal, never an allocation. */
static void any_changed_byte_keeps_the_door_shut(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_ALLOCATE);
    stun_write_u8_reserved(&m.w, STUN_ATTR_REQUESTED_TRANSPORT, STUN_TRANSPORT_UDP);
    fixture_sign(&c, &m);
    size_t n = wire_written(&m.w);
    for (size_t i = 0; i < n; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            uint8_t *copy = malloc(n);
            assert_non_null(copy);
            memcpy(copy, m.bytes, n);
            copy[i] ^= (uint8_t)(1u << bit);
            int status = fixture_send_bytes(&c, copy, n);
            free(copy);
            /* one bit makes it a Binding request, which is anybody's */
            assert_true(status != STUN_OK || f->reply.method == STUN_METHOD_BINDING);
            assert_null(fixture_allocation(&c));
            f->n_events = 0;
        }
    }
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
}

int main(void) {
#define WITH_CORE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_CORE(unknown_methods_are_answered_on_an_allocation_only),
        WITH_CORE(ice_attributes_are_known_to_binding_alone),
        WITH_CORE(stun_only_serves_binding_alone),
        WITH_CORE(responses_and_indications_are_dropped),
        WITH_CORE(unauthenticated_senders_leave_nothing),
        WITH_CORE(longest_reply_fits),
        WITH_CORE(reason_strings_reach_authenticated_clients),
        WITH_CORE(destroying_the_core_ends_allocations),
        WITH_CORE(closing_gives_everything_back),
        WITH_CORE(five_tuples_are_told_apart),
        WITH_CORE(any_changed_byte_keeps_the_door_shut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
