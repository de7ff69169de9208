#include "turn_client_world.h"

#include <errno.h>
#include <stdlib.h>

/* ---- Allocate ---- */

static void allocate_answers_a_challenge(void **state) {
    (void)state;
    struct world t;
    world_open_allocated(&t);
    assert_int_equal(t.server.n_requests, 2);
    assert_true(t.server.seen.was_authenticated);
    assert_int_equal(t.server.seen.integrity, STUN_INTEGRITY_SHA1);
    const struct turn_client_allocation *a = turn_client_get_allocation(t.client);
    assert_true(endpoint_equal(&a->relayed[0], &fake_relayed4));
    assert_int_equal(a->relayed[1].family, AF_UNSPEC);
    assert_true(endpoint_equal(&a->mapped, &fake_mapped));
    assert_int_equal(a->lifetime_s, 600);
    assert_int_equal(a->expires_at_us, t.now_us + 600 * S);
    assert_false(a->has_reservation_token);
    assert_int_equal(turn_client_allocate(t.client, t.now_us), -EALREADY);
    world_close(&t);
}

static void a_new_transaction_has_a_new_id(void **state) {
    (void)state;
    struct world t;
    uint8_t first[STUN_TRANSACTION_ID_BYTES];
    world_open(&t);
    world_create(&t);
    assert_int_equal(turn_client_allocate(t.client, t.now_us), 0);
    assert_true(world_exchange_one(&t));
    memcpy(first, t.server.seen.id, sizeof first);
    assert_true(world_exchange_one(&t));
    assert_memory_not_equal(first, t.server.seen.id, sizeof first);
    world_close(&t);
}

static void sha256_is_used_when_offered(void **state) {
    (void)state;
    struct world t;
    world_open(&t);
    t.server.offers_algorithms = true;
    t.server.nonce = "obMatJos2gAAAnonce"; /* both features, counted from the most significant bit */
    world_create(&t);
    world_allocate(&t);
    assert_int_equal(t.server.seen.integrity, STUN_INTEGRITY_SHA256);
    assert_int_equal(t.server.seen.algorithm, STUN_PASSWORD_ALGORITHM_SHA256);
    assert_false(t.server.seen.had_userhash);
    world_close(&t);
}

static void md5_is_used_when_it_is_the_only_one_known(void **state) {
    (void)state;
    static const uint16_t list[] = {9, STUN_PASSWORD_ALGORITHM_MD5};
    struct world t;
    world_open(&t);
    t.server.algorithms = list;
    t.server.n_algorithms = 2;
    world_create(&t);
    world_allocate(&t);
    assert_int_equal(t.server.seen.integrity, STUN_INTEGRITY_SHA256); /* RFC 8489, 9.2.5 */
    assert_int_equal(t.server.seen.algorithm, STUN_PASSWORD_ALGORITHM_MD5);
    world_close(&t);
}

static void a_list_of_unknown_algorithms_is_an_error(void **state) {
    (void)state;
    static const uint16_t list[] = {9, 10};
    struct world t;
    world_open(&t);
    t.server.algorithms = list;
    t.server.n_algorithms = 2;
    world_create(&t);
    assert_int_equal(turn_client_allocate(t.client, t.now_us), 0);
    world_exchange(&t);
    world_assert_error(&t, STUN_METHOD_ALLOCATE, 401, -EPROTO);
    assert_int_equal(turn_client_get_state(t.client), TURN_CLIENT_IDLE);
    world_close(&t);
}

static void a_promised_list_that_is_missing_is_a_bid_down(void **state) {
    (void)state;
    static const char *const nonces[] = {"obMatJos2gAAAnonce", "obMatJos2AAABnonce"};
    for (size_t i = 0; i < 2; i++) {
        struct world t;
        world_open(&t);
        t.server.nonce = nonces[i];
        world_create(&t);
        assert_int_equal(turn_client_allocate(t.client, t.now_us), 0);
        world_exchange(&t);
        world_assert_error(&t, STUN_METHOD_ALLOCATE, 401, -EPROTO);
        assert_int_equal(t.server.n_requests, 1);
        world_close(&t);
    }
}

static void legacy_integrity_looks_at_no_feature(void **state) {
    (void)state;
    struct world t;
    world_open(&t);
    t.server.offers_algorithms = true;
    t.server.nonce = "obMatJos2wAAAnonce";
    t.params.legacy_integrity = t.params.userhash = true;
    world_create(&t);
    world_allocate(&t);
    assert_int_equal(t.server.seen.integrity, STUN_INTEGRITY_SHA1);
    assert_false(t.server.seen.had_userhash);
    world_close(&t);
}

static void userhash_goes_where_it_is_offered_and_wanted(void **state) {
    (void)state;
    const struct {
        const char *nonce;
        bool wanted, used;
    } cases[] = {
        {"obMatJos2wAAAnonce", true, true},  {"obMatJos2AAADnonce", true, true},
        {"obMatJos2QAAAnonce", true, true},  {"obMatJos2wAAAnonce", false, false},
        {"obMatJos2gAAAnonce", true, false}, {"plain", true, false},
        {"obMatJos2wA!Anonce", true, false}, {"obMatJos2wAA", true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world t;
        world_open(&t);
        t.server.offers_algorithms = true;
        t.server.nonce = cases[i].nonce;
        t.params.userhash = cases[i].wanted;
        world_create(&t);
        world_allocate(&t);
        assert_int_equal(t.server.seen.had_userhash, cases[i].used);
        world_close(&t);
    }
}

static void rest_credentials(void **state) {
    (void)state;
    char password[32];
    struct world t;
    world_open(&t);
    t.params.username = t.server.username = "2000000000:alice";
    t.params.password = NULL;
    t.params.rest_secret = "north";
    assert_true(stun_rest_password(t.crypto, password, "north", t.params.username, 16));
    t.server.password = password;
    world_create(&t);
    world_allocate(&t);
    world_close(&t);
}

static void credentials_are_prepared(void **state) {
    (void)state;
    struct world t;
    world_open(&t);
    t.params.username = "al\xc2\xadice"; /* a soft hyphen */
    t.params.password = "w\xc2\xaander";
    t.server.password = "wander";
    world_create(&t);
    world_allocate(&t);
    world_close(&t);
}

static void a_wrong_password_is_told_once(void **state) {
    (void)state;
    struct world t;
    world_open(&t);
    t.params.password = "wrong";
    world_create(&t);
    assert_int_equal(turn_client_allocate(t.client, t.now_us), 0);
    world_exchange(&t);
    world_assert_error(&t, STUN_METHOD_ALLOCATE, 401, 0);
    assert_int_equal(t.server.n_requests, 2);
    assert_int_equal(turn_client_get_state(t.client), TURN_CLIENT_IDLE);
    world_close(&t);
}

static void without_a_user_401_is_the_end(void **state) {
    (void)state;
    struct world t;
    world_open(&t);
    t.params.username = NULL;
    world_create(&t);
    assert_int_equal(turn_client_allocate(t.client, t.now_us), 0);
    world_exchange(&t);
    world_assert_error(&t, STUN_METHOD_ALLOCATE, 401, 0);
    assert_int_equal(t.server.n_requests, 1);
    world_close(&t);
}

static void a_server_without_users_asks_nothing(void **state) {
    (void)state;
    struct world t;
    world_open(&t);
    t.server.username = NULL;
    world_create(&t);
    world_allocate(&t);
    assert_int_equal(t.server.n_requests, 1);
    world_close(&t);
}

static void errors_of_allocate_are_told_and_it_may_be_tried_again(void **state) {
    (void)state;
    static const uint16_t codes[] = {300, 400, 403, 437, 440, 441, 442, 486, 500, 508};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        struct world t;
        world_open(&t);
        t.server.error = codes[i];
        world_create(&t);
        assert_int_equal(turn_client_allocate(t.client, t.now_us), 0);
        world_exchange(&t);
        world_assert_error(&t, STUN_METHOD_ALLOCATE, codes[i], 0);
        assert_int_equal(endpoint_equal(&t.event.peer, &fake_alternate), codes[i] == 300);
        assert_int_equal(t.n_events, 1);
        assert_int_equal(turn_client_get_state(t.client), TURN_CLIENT_IDLE);
        t.server.error = 0;
        world_allocate(&t);
        assert_int_equal(t.server.n_requests, 3); /* realm and nonce are known by now */
        world_close(&t);
    }
}

static void an_endless_438_ends(void **state) {
    (void)state;
    struct world t;
    world_open(&t);
    t.server.error = STUN_STALE_NONCE;
    world_create(&t);
    assert_int_equal(turn_client_allocate(t.client, t.now_us), 0);
    world_exchange(&t);
    world_assert_error(&t, STUN_METHOD_ALLOCATE, 438, 0);
    assert_true(t.server.n_requests <= 6);
    world_close(&t);
}

static void both_families_a_token_and_a_refusal(void **state) {
    (void)state;
    struct world t;
    world_open(&t);
    t.params.additional_family = STUN_FAMILY_IPV6;
    t.params.even_port = t.params.reserve_next = true;
    t.params.dont_fragment = true;
    t.server.gives_second_address = t.server.gives_token = true;
    world_create(&t);
    world_allocate(&t);
    const struct turn_client_allocation *a = turn_client_get_allocation(t.client);
    assert_true(endpoint_equal(&a->relayed[1], &fake_relayed6));
    assert_true(a->has_reservation_token);
    assert_memory_equal(a->reservation_token, "8 bytes!", 8);
    assert_int_equal(a->refused_family, 0);
    world_close(&t);
    world_open(&t);
    t.server.refuses_second_family = true;
    world_create(&t);
    world_allocate(&t);
    a = turn_client_get_allocation(t.client);
    assert_int_equal(a->refused_family, STUN_FAMILY_IPV6);
    assert_int_equal(a->refused_code, 440);
    world_close(&t);
}

/* The Allocate as the client sends it first. */
static struct stun_message first_allocate(struct world *t, uint8_t copy[512]) {
    const uint8_t *bytes;
    size_t n_bytes;
    struct stun_message m;
    world_create(t);
    assert_int_equal(turn_client_allocate(t->client, t->now_us), 0);
    assert_true(turn_client_next_output(t->client, &bytes, &n_bytes));
    assert_true(n_bytes <= 512);
    memcpy(copy, bytes, n_bytes);
    assert_true(stun_message_decode(&m, copy, n_bytes));
    return m;
}

static void allocate_carries_what_was_asked_for(void **state) {
    (void)state;
    struct world t;
    uint8_t copy[512];
    struct stun_attribute a;
    world_open(&t);
    t.params.lifetime_s = 777;
    t.params.requested_family = STUN_FAMILY_IPV6;
    t.params.additional_family = STUN_FAMILY_IPV6;
    t.params.requested_transport = STUN_TRANSPORT_TCP;
    t.params.even_port = true;
    t.params.has_reservation_token = true;
    memcpy(t.params.reservation_token, "01234567", 8);
    t.params.dont_fragment = t.params.mobility = t.params.fingerprint = true;
    t.params.software = "load";
    struct stun_message m = first_allocate(&t, copy);
    world_assert_value(&m, STUN_ATTR_LIFETIME, "\0\0\x03\x09", 4);
    world_assert_value(&m, STUN_ATTR_REQUESTED_ADDRESS_FAMILY, "\x02\0\0\0", 4);
    world_assert_value(&m, STUN_ATTR_ADDITIONAL_ADDRESS_FAMILY, "\x02\0\0\0", 4);
    world_assert_value(&m, STUN_ATTR_REQUESTED_TRANSPORT, "\x06\0\0\0", 4);
    world_assert_value(&m, STUN_ATTR_EVEN_PORT, "\0", 1);
    world_assert_value(&m, STUN_ATTR_RESERVATION_TOKEN, "01234567", 8);
    world_assert_value(&m, STUN_ATTR_DONT_FRAGMENT, "", 0);
    world_assert_value(&m, STUN_ATTR_MOBILITY_TICKET, "", 0);
    world_assert_value(&m, STUN_ATTR_SOFTWARE, "load", 4);
    bool has_fingerprint;
    assert_true(stun_fingerprint_check(&m, &has_fingerprint));
    assert_true(has_fingerprint);
    world_close(&t);
    world_open(&t); /* and nothing that was not */
    m = first_allocate(&t, copy);
    world_assert_value(&m, STUN_ATTR_REQUESTED_TRANSPORT, "\x11\0\0\0", 4);
    assert_int_equal(m.n_bytes, STUN_HEADER_BYTES + 8);
    assert_false(stun_message_find(&m, STUN_ATTR_FINGERPRINT, &a));
    world_close(&t);
}

/* ---- answers that are not to be believed ---- */

static void a_success_without_right_integrity_never_came(void **state) {
    (void)state;
    for (int damage = 0; damage <= 1; damage++) {
        struct world t;
        world_open(&t);
        world_create(&t);
        assert_int_equal(turn_client_allocate(t.client, t.now_us), 0);
        t.server.leaves_out_integrity = damage == 0;
        t.server.damages_integrity = damage == 1;
        world_exchange(&t);
        assert_int_equal(t.n_events, 0);
        assert_int_equal(turn_client_get_state(t.client), TURN_CLIENT_ALLOCATING);
        t.server.leaves_out_integrity = t.server.damages_integrity = false;
        world_advance_to(&t, t.now_us + 500 * MS);
        world_exchange(&t);
        assert_int_equal(turn_client_get_state(t.client), TURN_CLIENT_ALLOCATED);
        world_close(&t);
    }
}

static void a_damaged_error_never_came_but_one_without_integrity_counts(void **state) {
    (void)state;
    struct world t;
    world_open_allocated(&t);
    t.server.error = STUN_SERVER_ERROR;
    t.server.damages_integrity = true;
    assert_int_equal(turn_client_refresh(t.client, t.now_us), 0);
    world_exchange(&t);
    assert_int_equal(t.n_events, 0);
    t.server.leaves_out_integrity = true;
    world_advance_to(&t, t.now_us + 500 * MS);
    world_exchange(&t);
    world_assert_error(&t, STUN_METHOD_REFRESH, 500, 0);
    world_close(&t);
}

static void malformed_successes_are_errors(void **state) {
    (void)state;
    struct world t;
    world_open(&t);
    t.server.leaves_out_relayed = true;
    world_create(&t);
    assert_int_equal(turn_client_allocate(t.client, t.now_us), 0);
    world_exchange(&t);
    world_assert_error(&t, STUN_METHOD_ALLOCATE, 0, -EBADMSG);
    t.server.leaves_out_relayed = false;
    t.server.adds_unknown_attribute = true;
    assert_int_equal(turn_client_allocate(t.client, t.now_us), 0);
    world_exchange(&t);
    world_assert_error(&t, STUN_METHOD_ALLOCATE, 420, 0);
    assert_int_equal(turn_client_get_state(t.client), TURN_CLIENT_IDLE);
    world_close(&t);
}

static void every_cut_and_every_changed_byte_of_an_answer_is_survived(void **state) {
    (void)state;
    struct world t;
    const uint8_t *bytes;
    uint8_t answer[512];
    size_t n_bytes;
    world_open(&t);
    world_create(&t);
    assert_int_equal(turn_client_allocate(t.client, t.now_us), 0);
    assert_true(world_exchange_one(&t));
    assert_true(turn_client_next_output(t.client, &bytes, &n_bytes));
    size_t n = fake_turn_server_answer(&t.server, bytes, n_bytes, answer, sizeof answer);
    for (size_t cut = 0; cut < n; cut++) {
        assert_false(world_input(&t, answer, cut));
    }
    for (size_t i = 0; i < n; i++) {
        answer[i] ^= 0x04;
        assert_false(world_input(&t, answer, n));
        answer[i] ^= 0x04;
    }
    assert_true(world_input(&t, answer, n));
    assert_int_equal(turn_client_get_state(t.client), TURN_CLIENT_ALLOCATED);
    world_close(&t);
}

static void requests_and_foreign_answers_are_not_ours(void **state) {
    (void)state;
    struct world t;
    uint8_t bytes[64];
    world_open_allocated(&t);
    for (int class = STUN_REQUEST; class <= STUN_ERROR; class ++) {
        struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
        stun_message_begin(&w, (enum stun_class) class, STUN_METHOD_ALLOCATE,
                           (const uint8_t *)"nobody's id.");
        assert_false(world_input(&t, bytes, stun_message_end(&w)));
    }
    world_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocate_answers_a_challenge),
        cmocka_unit_test(a_new_transaction_has_a_new_id),
        cmocka_unit_test(sha256_is_used_when_offered),
        cmocka_unit_test(md5_is_used_when_it_is_the_only_one_known),
        cmocka_unit_test(a_list_of_unknown_algorithms_is_an_error),
        cmocka_unit_test(a_promised_list_that_is_missing_is_a_bid_down),
        cmocka_unit_test(legacy_integrity_looks_at_no_feature),
        cmocka_unit_test(userhash_goes_where_it_is_offered_and_wanted),
        cmocka_unit_test(rest_credentials),
        cmocka_unit_test(credentials_are_prepared),
        cmocka_unit_test(a_wrong_password_is_told_once),
        cmocka_unit_test(without_a_user_401_is_the_end),
        cmocka_unit_test(a_server_without_users_asks_nothing),
        cmocka_unit_test(errors_of_allocate_are_told_and_it_may_be_tried_again),
        cmocka_unit_test(an_endless_438_ends),
        cmocka_unit_test(both_families_a_token_and_a_refusal),
        cmocka_unit_test(allocate_carries_what_was_asked_for),
        cmocka_unit_test(a_success_without_right_integrity_never_came),
        cmocka_unit_test(a_damaged_error_never_came_but_one_without_integrity_counts),
        cmocka_unit_test(malformed_successes_are_errors),
        cmocka_unit_test(every_cut_and_every_changed_byte_of_an_answer_is_survived),
        cmocka_unit_test(requests_and_foreign_answers_are_not_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
