/* Allocate (RFC 8656, 7.2): message in, reply out. */
#include "core_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "alloc_fault.h"

static struct core_fixture *fixture_with(struct core_fixture_params params) {
    struct core_fixture *f;
    assert_int_equal(core_fixture_create(&f, &params), 0);
    return f;
}

static int set_up(void **state) {
    *state = fixture_with((struct core_fixture_params){0});
    return 0;
}

/* Whatever was asked, in the end nothing is held. */
static int tear_down(void **state) {
    struct core_fixture *f = *state;
    core_fixture_pass(f, 4000);
    assert_int_equal(f->carrier->n_held, 0);
    assert_int_equal(quota_total(f->quota), 0);
    core_fixture_destroy(f);
    return 0;
}

static uint64_t n_allocations(struct core_fixture *f) {
    struct allocation_table_stats stats;
    allocation_table_stats(turn_core_allocations(f->core), &stats);
    return stats.n_allocations;
}

/* Refused with this code, and nothing taken. */
static void assert_refused(struct core_fixture *f, int status, int wanted) {
    assert_int_equal(status, wanted);
    assert_int_equal(n_allocations(f), 0);
    assert_int_equal(f->carrier->n_held, 0);
    assert_int_equal(quota_total(f->quota), 0);
    assert_int_equal(core_fixture_last_event(f)->event, CORE_REQUEST_REFUSED);
    assert_int_equal(core_fixture_last_event(f)->status, wanted);
}

/* ---- what the tests add to an Allocate ---- */

static void add_lifetime_0(struct wire_writer *w) {
    stun_write_u32(w, STUN_ATTR_LIFETIME, 0);
}
static void add_lifetime_599(struct wire_writer *w) {
    stun_write_u32(w, STUN_ATTR_LIFETIME, 599);
}
static void add_lifetime_601(struct wire_writer *w) {
    stun_write_u32(w, STUN_ATTR_LIFETIME, 601);
}
static void add_lifetime_3600(struct wire_writer *w) {
    stun_write_u32(w, STUN_ATTR_LIFETIME, 3600);
}
static void add_lifetime_max(struct wire_writer *w) {
    stun_write_u32(w, STUN_ATTR_LIFETIME, UINT32_MAX);
}
static void add_lifetime_malformed(struct wire_writer *w) {
    stun_write_bytes(w, STUN_ATTR_LIFETIME, "abc", 3);
}
static void add_requested_v4(struct wire_writer *w) {
    stun_write_u8_reserved(w, STUN_ATTR_REQUESTED_ADDRESS_FAMILY, STUN_FAMILY_IPV4);
}
static void add_requested_v6(struct wire_writer *w) {
    stun_write_u8_reserved(w, STUN_ATTR_REQUESTED_ADDRESS_FAMILY, STUN_FAMILY_IPV6);
}
static void add_requested_7(struct wire_writer *w) {
    stun_write_u8_reserved(w, STUN_ATTR_REQUESTED_ADDRESS_FAMILY, 7);
}
static void add_requested_malformed(struct wire_writer *w) {
    stun_write_bytes(w, STUN_ATTR_REQUESTED_ADDRESS_FAMILY, "\1\0", 2);
}
static void add_additional_v6(struct wire_writer *w) {
    stun_write_u8_reserved(w, STUN_ATTR_ADDITIONAL_ADDRESS_FAMILY, STUN_FAMILY_IPV6);
}
static void add_additional_v4(struct wire_writer *w) {
    stun_write_u8_reserved(w, STUN_ATTR_ADDITIONAL_ADDRESS_FAMILY, STUN_FAMILY_IPV4);
}
static void add_additional_malformed(struct wire_writer *w) {
    stun_write_bytes(w, STUN_ATTR_ADDITIONAL_ADDRESS_FAMILY, "\2", 1);
}
static void add_both_families(struct wire_writer *w) {
    add_requested_v4(w), add_additional_v6(w);
}
static void add_even_port(struct wire_writer *w) {
    stun_write_even_port(w, false);
}
static void add_even_port_reserving(struct wire_writer *w) {
    stun_write_even_port(w, true);
}
static void add_even_port_malformed(struct wire_writer *w) {
    stun_write_bytes(w, STUN_ATTR_EVEN_PORT, "\0\0", 2);
}
static void add_even_port_and_additional(struct wire_writer *w) {
    add_even_port(w), add_additional_v6(w);
}
static void add_even_port_reserving_and_additional(struct wire_writer *w) {
    add_even_port_reserving(w), add_additional_v6(w);
}
static void add_token(struct wire_writer *w) {
    stun_write_bytes(w, STUN_ATTR_RESERVATION_TOKEN, "ABCDEFGH", 8);
}
static void add_token_short(struct wire_writer *w) {
    stun_write_bytes(w, STUN_ATTR_RESERVATION_TOKEN, "ABCDEFG", 7);
}
static void add_token_and_even_port(struct wire_writer *w) {
    add_token(w), add_even_port(w);
}
static void add_token_and_requested(struct wire_writer *w) {
    add_token(w), add_requested_v4(w);
}
static void add_token_and_additional(struct wire_writer *w) {
    add_token(w), add_additional_v6(w);
}
static void add_dont_fragment(struct wire_writer *w) {
    stun_write_bytes(w, STUN_ATTR_DONT_FRAGMENT, NULL, 0);
}
static void add_unknown_required(struct wire_writer *w) {
    stun_write_bytes(w, 0x7f11, "12", 2);
}
static void add_unknown_optional(struct wire_writer *w) {
    stun_write_bytes(w, 0xc057, "abcde", 5);
}

/* ---- plain ---- */

static void success_tells_addresses_and_lifetime(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    const struct allocation *a = fixture_allocation(&c);
    assert_non_null(a);
    struct endpoint relayed = fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0);
    struct endpoint mapped = fixture_address(f, STUN_ATTR_XOR_MAPPED_ADDRESS, 0);
    assert_true(endpoint_equal(&relayed, &a->relay[RELAY_V4].address->advertised));
    assert_true(endpoint_equal(&mapped, &c.tuple.client));
    assert_int_equal(fixture_u32(f, STUN_ATTR_LIFETIME), 600);
    assert_int_equal(fixture_count(f, STUN_ATTR_XOR_RELAYED_ADDRESS), 1);
    assert_false(fixture_has(f, STUN_ATTR_RESERVATION_TOKEN));
    assert_false(fixture_has(f, STUN_ATTR_ADDRESS_ERROR_CODE));
    assert_false(fixture_has(f, STUN_ATTR_SOFTWARE));
    assert_string_equal(a->username, "alice");
    assert_string_equal(a->realm, "example.org");
    assert_ptr_equal(a->client_link, &c);
    const struct core_event_info *e = core_fixture_last_event(f);
    assert_int_equal(e->event, CORE_ALLOCATION_CREATED);
    assert_ptr_equal(e->allocation, a);
    assert_int_equal(e->method, STUN_METHOD_ALLOCATE);
    assert_int_equal(e->lifetime_s, 600);
    assert_true(e->authenticated);
}

static void external_ip_is_what_clients_are_told(void **state) {
    (void)state;
    struct core_fixture *f =
        fixture_with((struct core_fixture_params){.carrier = {.advertised_v4 = "192.0.2.200"}});
    struct fixture_client c = fixture_client(f);
    char text[ENDPOINT_TEXT_BYTES];
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    struct endpoint relayed = fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0);
    assert_string_equal(endpoint_format_ip(&relayed, text), "192.0.2.200");
    core_fixture_destroy(f);
}

static void lifetime_is_clamped(void **state) {
    struct core_fixture *f = *state;
    static const struct {
        void (*add)(struct wire_writer *w);
        uint32_t wanted;
    } rows[] = {{NULL, 600},
                {add_lifetime_0, 600},
                {add_lifetime_599, 600},
                {add_lifetime_601, 601},
                {add_lifetime_3600, 3600},
                {add_lifetime_max, 3600}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fixture_client c = fixture_client(f);
        assert_int_equal(fixture_allocate_with(&c, rows[i].add), STUN_OK);
        assert_int_equal(fixture_u32(f, STUN_ATTR_LIFETIME), rows[i].wanted);
    }
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate_with(&c, add_lifetime_malformed), STUN_BAD_REQUEST);
    assert_null(fixture_allocation(&c));
}

static void maximum_below_the_default_wins(void **state) {
    (void)state;
    struct core_fixture *f = fixture_with((struct core_fixture_params){.max_lifetime_s = 4});
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate_with(&c, add_lifetime_3600), STUN_OK);
    assert_int_equal(fixture_u32(f, STUN_ATTR_LIFETIME), 4);
    core_fixture_pass(f, 3);
    assert_non_null(fixture_allocation(&c));
    core_fixture_pass(f, 2);
    assert_null(fixture_allocation(&c));
    assert_int_equal(core_fixture_last_event(f)->event, CORE_ALLOCATION_ENDED);
    assert_int_equal(core_fixture_last_event(f)->end, ALLOCATION_END_EXPIRED);
    core_fixture_destroy(f);
}

/* ---- the 5-tuple in use ---- */

static void retransmission_gets_the_same_success(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_ALLOCATE);
    stun_write_u8_reserved(&m.w, STUN_ATTR_REQUESTED_TRANSPORT, STUN_TRANSPORT_UDP);
    fixture_sign(&c, &m);
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
    struct endpoint first = fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0);
    core_fixture_pass(f, 2);
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
    struct endpoint second = fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0);
    assert_true(endpoint_equal(&first, &second));
    assert_int_equal(fixture_u32(f, STUN_ATTR_LIFETIME), 598);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
    assert_int_equal(n_allocations(f), 1);
    assert_int_equal(f->carrier->n_acquires, 1);
    assert_int_equal(quota_total(f->quota), 1);
    assert_int_equal(core_fixture_count(f, CORE_ALLOCATION_CREATED), 1);
    assert_int_equal(core_fixture_last_event(f)->event, CORE_REQUEST_DONE);
}

static void another_transaction_gets_437_signed(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    assert_int_equal(fixture_allocate(&c), STUN_ALLOCATION_MISMATCH);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
    assert_non_null(fixture_allocation(&c));
    /* another user on the same 5-tuple: the Allocate is not the owner's, but 5-tuple comes first */
    c.username = "bob", c.password = "builder";
    assert_int_equal(fixture_allocate(&c), STUN_ALLOCATION_MISMATCH);
    assert_int_equal(n_allocations(f), 1);
}

static void another_users_transaction_id_is_no_retransmission(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    f->n_transactions = 0; /* the same id again */
    c.username = "bob", c.password = "builder";
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_ALLOCATE);
    stun_write_u8_reserved(&m.w, STUN_ATTR_REQUESTED_TRANSPORT, STUN_TRANSPORT_UDP);
    assert_memory_equal(m.bytes + 8, fixture_allocation(&c)->transaction_id, STUN_TRANSACTION_ID_BYTES);
    assert_int_equal(fixture_ask(&c, &m), STUN_ALLOCATION_MISMATCH);
}

/* ---- transport and unknown attributes ---- */

static void transport_has_to_be_udp(void **state) {
    struct core_fixture *f = *state;
    static const struct {
        uint8_t transport;
        int wanted;
    } rows[] = {{0, 442}, {6, 442}, {16, 442}, {18, 442}, {132, 442}, {255, 442}};
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_ALLOCATE);
        stun_write_u8_reserved(&m.w, STUN_ATTR_REQUESTED_TRANSPORT, rows[i].transport);
        assert_refused(f, fixture_ask(&c, &m), rows[i].wanted);
    }
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_ALLOCATE);
    assert_refused(f, fixture_ask(&c, &m), STUN_BAD_REQUEST);
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_ALLOCATE);
    stun_write_bytes(&m.w, STUN_ATTR_REQUESTED_TRANSPORT, "\x11", 1);
    assert_refused(f, fixture_ask(&c, &m), STUN_BAD_REQUEST);
    f->config.no_udp_relay = true;
    assert_refused(f, fixture_allocate(&c), STUN_UNSUPPORTED_TRANSPORT);
}

static void unknown_required_attribute_is_named(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct stun_attribute a;
    assert_refused(f, fixture_allocate_with(&c, add_unknown_required), STUN_UNKNOWN_ATTRIBUTE);
    assert_true(stun_message_find(&f->reply, STUN_ATTR_UNKNOWN_ATTRIBUTES, &a));
    assert_int_equal(a.n_bytes, 2);
    assert_memory_equal(a.value, "\x7f\x11", 2);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
    assert_int_equal(fixture_allocate_with(&c, add_unknown_optional), STUN_OK);
}

static void dont_fragment_is_accepted(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate_with(&c, add_dont_fragment), STUN_OK);
}

/* ---- families ---- */

static bool is_v6(struct endpoint e) {
    return e.family == AF_INET6;
}

static void default_family_is_ipv4_for_everybody(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client v6 = fixture_client(f);
    v6.tuple.client = fixture_endpoint("[2001:db8:100::11]:5000");
    v6.tuple.server = fixture_endpoint("[2001:db8:100::1]:3478");
    assert_int_equal(fixture_allocate(&v6), STUN_OK);
    assert_false(is_v6(fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0)));
    struct endpoint mapped = fixture_address(f, STUN_ATTR_XOR_MAPPED_ADDRESS, 0);
    assert_true(endpoint_equal(&mapped, &v6.tuple.client));
}

static void default_family_follows_the_setting(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client v4 = fixture_client(f), v4b = fixture_client(f), v6 = fixture_client(f);
    v6.tuple.client = fixture_endpoint("[2001:db8:100::11]:5000");
    f->config.default_family = FAMILY_DEFAULT_IPV6;
    assert_int_equal(fixture_allocate(&v4), STUN_OK);
    assert_true(is_v6(fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0)));
    f->config.default_family = FAMILY_DEFAULT_KEEP;
    assert_int_equal(fixture_allocate(&v4b), STUN_OK);
    assert_false(is_v6(fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0)));
    assert_int_equal(fixture_allocate(&v6), STUN_OK);
    assert_true(is_v6(fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0)));
}

static void requested_family_is_given(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client a = fixture_client(f), b = fixture_client(f), c = fixture_client(f);
    assert_int_equal(fixture_allocate_with(&a, add_requested_v6), STUN_OK);
    assert_true(is_v6(fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0)));
    assert_int_equal(fixture_count(f, STUN_ATTR_XOR_RELAYED_ADDRESS), 1);
    assert_int_equal(fixture_allocate_with(&b, add_requested_v4), STUN_OK);
    assert_false(is_v6(fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0)));
    assert_int_equal(fixture_allocate_with(&c, add_requested_7), STUN_ADDRESS_FAMILY_NOT_SUPPORTED);
    assert_int_equal(fixture_allocate_with(&c, add_requested_malformed), STUN_BAD_REQUEST);
    assert_int_equal(fixture_allocate_with(&c, add_both_families), STUN_BAD_REQUEST);
    assert_null(fixture_allocation(&c));
}

static void family_not_served_gets_440(void **state) {
    (void)state;
    struct core_fixture *f = fixture_with((struct core_fixture_params){.carrier = {.no_v6 = true}});
    struct fixture_client c = fixture_client(f);
    assert_refused(f, fixture_allocate_with(&c, add_requested_v6), STUN_ADDRESS_FAMILY_NOT_SUPPORTED);
    core_fixture_destroy(f);
    f = fixture_with((struct core_fixture_params){.carrier = {.no_v4 = true}});
    c = fixture_client(f);
    assert_refused(f, fixture_allocate(&c), STUN_ADDRESS_FAMILY_NOT_SUPPORTED);
    core_fixture_destroy(f);
}

static void additional_family_gives_both(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f), d = fixture_client(f);
    assert_int_equal(fixture_allocate_with(&c, add_additional_v6), STUN_OK);
    assert_int_equal(fixture_count(f, STUN_ATTR_XOR_RELAYED_ADDRESS), 2);
    assert_false(is_v6(fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0)));
    assert_true(is_v6(fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 1)));
    assert_false(fixture_has(f, STUN_ATTR_ADDRESS_ERROR_CODE));
    assert_int_equal(quota_total(f->quota), 1);
    assert_int_equal(fixture_allocate_with(&d, add_additional_v4), STUN_BAD_REQUEST);
    assert_int_equal(fixture_allocate_with(&d, add_additional_malformed), STUN_BAD_REQUEST);
    assert_int_equal(fixture_allocate_with(&d, add_even_port_and_additional), STUN_OK);
    assert_int_equal(fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0).port % 2, 0);
}

static void assert_address_error(struct core_fixture *f, uint8_t wanted_family, uint16_t wanted_code) {
    struct stun_attribute a;
    uint8_t family;
    uint16_t code;
    assert_true(stun_message_find(&f->reply, STUN_ATTR_ADDRESS_ERROR_CODE, &a));
    assert_true(stun_read_address_error(&family, &code, &a));
    assert_int_equal(family, wanted_family);
    assert_int_equal(code, wanted_code);
    assert_int_equal(fixture_count(f, STUN_ATTR_XOR_RELAYED_ADDRESS), 1);
    assert_int_equal(is_v6(fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0)),
                     wanted_family == STUN_FAMILY_IPV4);
}

static void one_family_of_two_is_enough(void **state) {
    (void)state;
    static const struct {
        struct fake_carrier_params carrier;
        uint8_t missing;
    } rows[] = {{{.no_v6 = true}, STUN_FAMILY_IPV6}, {{.no_v4 = true}, STUN_FAMILY_IPV4}};
    for (size_t i = 0; i < 2; i++) {
        struct core_fixture *f = fixture_with((struct core_fixture_params){.carrier = rows[i].carrier});
        struct fixture_client c = fixture_client(f);
        assert_int_equal(fixture_allocate_with(&c, add_additional_v6), STUN_OK);
        assert_address_error(f, rows[i].missing, 440);
        assert_int_equal(core_fixture_last_event(f)->event, CORE_ALLOCATION_CREATED);
        assert_null(core_fixture_last_event(f)->detail);
        core_fixture_destroy(f);
    }
}

static void exhausted_second_family_is_told_with_508(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    f->carrier->refuse = STUN_INSUFFICIENT_CAPACITY;
    f->carrier->refuse_after = 1;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_ALLOCATE);
    stun_write_u8_reserved(&m.w, STUN_ATTR_REQUESTED_TRANSPORT, STUN_TRANSPORT_UDP);
    add_additional_v6(&m.w);
    fixture_sign(&c, &m);
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
    assert_address_error(f, STUN_FAMILY_IPV6, 508);
    /* said again to a retransmission */
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
    assert_address_error(f, STUN_FAMILY_IPV6, 508);
}

static void both_families_refused_is_a_refusal(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    f->carrier->refuse = STUN_INSUFFICIENT_CAPACITY;
    assert_refused(f, fixture_allocate_with(&c, add_additional_v6), STUN_INSUFFICIENT_CAPACITY);
}

/* ---- EVEN-PORT and RESERVATION-TOKEN ---- */

static uint8_t kept_token[STUN_RESERVATION_TOKEN_BYTES];

static void add_kept_token(struct wire_writer *w) {
    stun_write_bytes(w, STUN_ATTR_RESERVATION_TOKEN, kept_token, sizeof kept_token);
}

static void keep_token(struct core_fixture *f) {
    struct stun_attribute a;
    assert_true(stun_message_find(&f->reply, STUN_ATTR_RESERVATION_TOKEN, &a));
    assert_int_equal(a.n_bytes, sizeof kept_token);
    memcpy(kept_token, a.value, sizeof kept_token);
}

static void reservation_gives_the_next_port_once(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client a = fixture_client(f), b = fixture_client(f), c = fixture_client(f);
    assert_int_equal(fixture_allocate_with(&a, add_even_port), STUN_OK);
    assert_int_equal(fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0).port % 2, 0);
    assert_false(fixture_has(f, STUN_ATTR_RESERVATION_TOKEN));
    assert_int_equal(fixture_allocate_with(&b, add_even_port_reserving), STUN_OK);
    struct endpoint first = fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0);
    assert_int_equal(first.port % 2, 0);
    keep_token(f);
    assert_int_equal(fixture_allocate_with(&c, add_kept_token), STUN_OK);
    struct endpoint second = fixture_address(f, STUN_ATTR_XOR_RELAYED_ADDRESS, 0);
    assert_int_equal(second.port, first.port + 1);
    assert_true(endpoint_same_ip(&first, &second));
    struct fixture_client d = fixture_client(f);
    assert_int_equal(fixture_allocate_with(&d, add_kept_token), STUN_INSUFFICIENT_CAPACITY);
    assert_null(fixture_allocation(&d));
}

static void token_is_told_again_to_a_retransmission(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_ALLOCATE);
    stun_write_u8_reserved(&m.w, STUN_ATTR_REQUESTED_TRANSPORT, STUN_TRANSPORT_UDP);
    add_even_port_reserving(&m.w);
    fixture_sign(&c, &m);
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
    keep_token(f);
    uint8_t first[sizeof kept_token];
    memcpy(first, kept_token, sizeof first);
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
    keep_token(f);
    assert_memory_equal(first, kept_token, sizeof first);
}

static void port_attributes_that_contradict_get_400(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_refused(f, fixture_allocate_with(&c, add_even_port_malformed), STUN_BAD_REQUEST);
    assert_refused(f, fixture_allocate_with(&c, add_even_port_reserving_and_additional), STUN_BAD_REQUEST);
    assert_refused(f, fixture_allocate_with(&c, add_token_short), STUN_BAD_REQUEST);
    assert_refused(f, fixture_allocate_with(&c, add_token_and_even_port), STUN_BAD_REQUEST);
    assert_refused(f, fixture_allocate_with(&c, add_token_and_requested), STUN_BAD_REQUEST);
    assert_refused(f, fixture_allocate_with(&c, add_token_and_additional), STUN_BAD_REQUEST);
    assert_int_equal(f->carrier->n_acquires, 0);
    assert_refused(f, fixture_allocate_with(&c, add_token), STUN_INSUFFICIENT_CAPACITY);
}

static void even_port_that_cannot_be_had_gets_508(void **state) {
    (void)state;
    struct core_fixture *f = fixture_with((struct core_fixture_params){.carrier = {.shared = true}});
    struct fixture_client c = fixture_client(f);
    assert_refused(f, fixture_allocate_with(&c, add_even_port_reserving), STUN_INSUFFICIENT_CAPACITY);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    core_fixture_destroy(f);
}

/* ---- quota and resources ---- */

static void user_quota_refuses_exactly_at_the_limit(void **state) {
    (void)state;
    struct core_fixture *f = fixture_with((struct core_fixture_params){.user_quota = 2});
    struct fixture_client a = fixture_client(f), b = fixture_client(f), c = fixture_client(f);
    struct fixture_client bob = fixture_client_of(f, "bob", "builder");
    /* what is refused for other reasons costs nothing */
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fixture_allocate_with(&c, add_unknown_required), STUN_UNKNOWN_ATTRIBUTE);
        assert_int_equal(fixture_allocate_with(&c, add_token), STUN_INSUFFICIENT_CAPACITY);
        c.password = "wrong";
        assert_int_equal(fixture_allocate(&c), STUN_UNAUTHENTICATED);
        c.password = "wonder";
    }
    assert_int_equal(fixture_allocate(&a), STUN_OK);
    assert_int_equal(fixture_allocate(&b), STUN_OK);
    assert_int_equal(fixture_allocate(&c), STUN_ALLOCATION_QUOTA_REACHED);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
    assert_int_equal(f->carrier->n_held, 2);
    assert_int_equal(fixture_allocate(&bob), STUN_OK);
    assert_int_equal(fixture_refresh(&a, 0), STUN_OK);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    core_fixture_destroy(f);
}

static void total_quota_counts_everybody(void **state) {
    (void)state;
    struct core_fixture *f = fixture_with((struct core_fixture_params){.total_quota = 2});
    struct fixture_client a = fixture_client(f), b = fixture_client_of(f, "bob", "builder"),
                          c = fixture_client(f);
    assert_int_equal(fixture_allocate(&a), STUN_OK);
    assert_int_equal(fixture_allocate(&b), STUN_OK);
    assert_int_equal(fixture_allocate(&c), STUN_ALLOCATION_QUOTA_REACHED);
    core_fixture_pass(f, 700);
    assert_int_equal(quota_total(f->quota), 0);
    assert_int_equal(fixture_allocate(&c), STUN_STALE_NONCE);
    fixture_learn(&c);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    core_fixture_destroy(f);
}

static void rest_credentials_of_one_user_share_the_quota(void **state) {
    (void)state;
    static const char *const secrets[] = {"north", NULL};
    struct core_fixture *f = fixture_with((struct core_fixture_params){.secrets = secrets, .user_quota = 1});
    char first[32], second[32];
    stun_rest_password(f->crypto, first, "north", "1800000600:alice", 16);
    stun_rest_password(f->crypto, second, "north", "1800000700:alice", 16);
    struct fixture_client a = fixture_client_of(f, "1800000600:alice", first);
    struct fixture_client b = fixture_client_of(f, "1800000700:alice", second);
    struct fixture_client other = fixture_client_of(f, "bob", "builder");
    assert_int_equal(fixture_allocate(&a), STUN_OK);
    assert_int_equal(fixture_allocate(&b), STUN_ALLOCATION_QUOTA_REACHED);
    assert_int_equal(fixture_allocate(&other), STUN_OK);
    assert_int_equal(fixture_allocation(&a)->user_hash == fixture_allocation(&other)->user_hash, false);
    core_fixture_destroy(f);
}

static void one_users_allocations_have_one_hash(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client a = fixture_client(f), b = fixture_client(f),
                          bob = fixture_client_of(f, "bob", "builder");
    assert_int_equal(fixture_allocate(&a), STUN_OK);
    assert_int_equal(fixture_allocate(&b), STUN_OK);
    assert_int_equal(fixture_allocate(&bob), STUN_OK);
    assert_true(fixture_allocation(&a)->user_hash == fixture_allocation(&b)->user_hash);
    assert_true(fixture_allocation(&a)->user_hash != fixture_allocation(&bob)->user_hash);
}

static void carriers_refusal_is_passed_on(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    f->carrier->refuse = STUN_INSUFFICIENT_CAPACITY;
    assert_refused(f, fixture_allocate(&c), STUN_INSUFFICIENT_CAPACITY);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
    f->carrier->refuse = STUN_OK;
    assert_int_equal(fixture_allocate(&c), STUN_OK);
}

static void without_authentication_nobody_signs(void **state) {
    (void)state;
    struct core_fixture *f = fixture_with((struct core_fixture_params){.no_auth = true, .total_quota = 2});
    struct fixture_client a = fixture_client_of(f, NULL, NULL), b = fixture_client_of(f, NULL, NULL);
    assert_int_equal(fixture_allocate(&a), STUN_OK);
    assert_false(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
    assert_null(fixture_allocation(&a)->username);
    assert_null(fixture_allocation(&a)->realm);
    b.tuple.client = fixture_endpoint("198.51.100.99:5000");
    assert_int_equal(fixture_allocate(&b), STUN_OK);
    /* strangers do not count as one user */
    assert_true(fixture_allocation(&a)->user_hash != fixture_allocation(&b)->user_hash);
    struct fixture_client c = fixture_client_of(f, NULL, NULL);
    assert_int_equal(fixture_allocate(&c), STUN_ALLOCATION_QUOTA_REACHED);
    assert_int_equal(fixture_refresh(&a, 0), STUN_OK);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    core_fixture_destroy(f);
}

/* Every allocation of memory on the way of one request fails once: the reply is 508 and nothing is held, or
 * the request succeeds without it. */
static void assert_survives_lack_of_memory(void (*add)(struct wire_writer *w)) {
    struct core_fixture *f = fixture_with((struct core_fixture_params){.user_quota = 1});
    uint64_t n = 1;
    for (bool hit = true; hit; n++) {
        struct fixture_client c = fixture_client(f);
        fixture_log_in(&c);
        alloc_fault_arm(n);
        int status = fixture_allocate_with(&c, add);
        alloc_fault_disarm();
        hit = alloc_fault_hit();
        if (status != STUN_OK) {
            assert_true(hit);
            assert_refused(f, status, STUN_INSUFFICIENT_CAPACITY);
            assert_int_equal(fixture_allocate_with(&c, add), STUN_OK);
        }
        assert_int_equal(n_allocations(f), 1);
        assert_int_equal(fixture_refresh(&c, 0), STUN_OK);
        assert_int_equal(f->carrier->n_held, 0);
        assert_int_equal(quota_total(f->quota), 0);
        f->n_events = 0;
    }
    assert_true(n > 3); /* quota unit and allocation at least */
    core_fixture_destroy(f);
}

static void lack_of_memory_gives_everything_back(void **state) {
    (void)state;
    assert_survives_lack_of_memory(NULL);
    assert_survives_lack_of_memory(add_additional_v6);
    assert_survives_lack_of_memory(add_even_port);
}

/* The reservation made for a request that then fails does not stay behind. */
static void lack_of_memory_gives_the_reservation_back(void **state) {
    (void)state;
    struct core_fixture *f = fixture_with((struct core_fixture_params){.carrier = {.n_dedicated = 2}});
    for (uint64_t n = 1;; n++) {
        struct fixture_client c = fixture_client(f);
        fixture_log_in(&c);
        alloc_fault_arm(n);
        int status = fixture_allocate_with(&c, add_even_port_reserving);
        alloc_fault_disarm();
        if (status == STUN_OK) {
            break;
        }
        assert_refused(f, status, STUN_INSUFFICIENT_CAPACITY);
    }
    core_fixture_destroy(f);
}

static void core_creation_survives_lack_of_memory(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct core_fixture *f = NULL;
        const struct core_fixture_params params = {0};
        alloc_fault_arm(n);
        int err = core_fixture_create(&f, &params);
        alloc_fault_disarm();
        assert_int_equal(err, alloc_fault_hit() ? -ENOMEM : 0);
        if (err == 0) {
            core_fixture_destroy(f);
            break;
        }
    }
}

static void ten_thousand_cycles_leave_nothing(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    fixture_log_in(&c);
    for (int i = 0; i < 10000; i++) {
        assert_int_equal(fixture_allocate_with(&c, i % 3 == 0   ? add_even_port
                                                   : i % 3 == 1 ? add_additional_v6
                                                                : NULL),
                         STUN_OK);
        assert_int_equal(fixture_refresh(&c, 0), STUN_OK);
        f->n_events = 0;
    }
    assert_int_equal(f->carrier->n_held, 0);
    assert_int_equal(f->carrier->n_acquires, f->carrier->n_releases);
}

int main(void) {
#define WITH_CORE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_CORE(success_tells_addresses_and_lifetime),
        cmocka_unit_test(external_ip_is_what_clients_are_told),
        WITH_CORE(lifetime_is_clamped),
        cmocka_unit_test(maximum_below_the_default_wins),
        WITH_CORE(retransmission_gets_the_same_success),
        WITH_CORE(another_transaction_gets_437_signed),
        WITH_CORE(another_users_transaction_id_is_no_retransmission),
        WITH_CORE(transport_has_to_be_udp),
        WITH_CORE(unknown_required_attribute_is_named),
        WITH_CORE(dont_fragment_is_accepted),
        WITH_CORE(default_family_is_ipv4_for_everybody),
        WITH_CORE(default_family_follows_the_setting),
        WITH_CORE(requested_family_is_given),
        cmocka_unit_test(family_not_served_gets_440),
        WITH_CORE(additional_family_gives_both),
        cmocka_unit_test(one_family_of_two_is_enough),
        WITH_CORE(exhausted_second_family_is_told_with_508),
        WITH_CORE(both_families_refused_is_a_refusal),
        WITH_CORE(reservation_gives_the_next_port_once),
        WITH_CORE(token_is_told_again_to_a_retransmission),
        WITH_CORE(port_attributes_that_contradict_get_400),
        cmocka_unit_test(even_port_that_cannot_be_had_gets_508),
        cmocka_unit_test(user_quota_refuses_exactly_at_the_limit),
        cmocka_unit_test(total_quota_counts_everybody),
        cmocka_unit_test(rest_credentials_of_one_user_share_the_quota),
        WITH_CORE(one_users_allocations_have_one_hash),
        WITH_CORE(carriers_refusal_is_passed_on),
        cmocka_unit_test(without_authentication_nobody_signs),
        cmocka_unit_test(lack_of_memory_gives_everything_back),
        cmocka_unit_test(lack_of_memory_gives_the_reservation_back),
        cmocka_unit_test(core_creation_survives_lack_of_memory),
        WITH_CORE(ten_thousand_cycles_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
