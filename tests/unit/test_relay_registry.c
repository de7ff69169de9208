/* Which thread owns which relayed port, and reservations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "relay_registry.h"

static const uint8_t TOKEN[STUN_RESERVATION_TOKEN_BYTES] = "abcdefgh";

static struct endpoint address(const char *text) {
    struct endpoint e;
    assert_int_equal(endpoint_parse(&e, text, 0), 0);
    return e;
}

static struct relay_registry *create(uint16_t shared_base) {
    const struct relay_ip ips[] = {
        {.local = address("10.0.0.1"), .advertised = address("192.0.2.1")},
        {.local = address("2001:db8::1"), .advertised = address("2001:db8::1")},
    };
    const struct relay_registry_params params = {
        .ips = ips, .n_ips = 2, .n_threads = 3, .shared_base = shared_base, .shared_pairs = 2};
    struct relay_registry *r;
    assert_int_equal(relay_registry_create(&r, &params), 0);
    return r;
}

static void port_has_one_owner(void **state) {
    (void)state;
    struct relay_registry *r = create(0);
    struct endpoint e = address("10.0.0.1:50000");
    struct relay_location at;
    assert_false(relay_registry_locate(r, &e, &at));
    assert_true(relay_registry_claim(r, &e, 2));
    assert_false(relay_registry_claim(r, &e, 1));
    assert_true(relay_registry_locate(r, &e, &at));
    assert_int_equal(at.thread, 2);
    struct endpoint public = address("192.0.2.1:50000");
    assert_true(relay_registry_locate(r, &public, &at));
    assert_true(endpoint_equal(&at.local, &e));
    relay_registry_transfer(r, &e, 0);
    assert_true(relay_registry_locate(r, &e, &at));
    assert_int_equal(at.thread, 0);
    relay_registry_unclaim(r, &e);
    assert_false(relay_registry_locate(r, &public, &at));
    assert_true(relay_registry_claim(r, &e, 1));
    struct endpoint stranger = address("10.0.0.2:50000");
    assert_false(relay_registry_claim(r, &stranger, 1));
    assert_false(relay_registry_locate(r, &stranger, &at));
    relay_registry_destroy(r);
}

static void shared_ports_follow_the_formula(void **state) {
    (void)state;
    struct relay_registry *r = create(3480);
    for (uint32_t thread = 0; thread < 3; thread++) {
        for (uint32_t pair = 0; pair < 2; pair++) {
            uint16_t v4 = relay_registry_shared_port(r, thread, pair, RELAY_V4);
            uint16_t v6 = relay_registry_shared_port(r, thread, pair, RELAY_V6);
            assert_int_equal(v4, 3480 + 2 * (thread * 2 + pair));
            assert_int_equal(v6, v4 + 1);
            struct endpoint e = address("192.0.2.1");
            e.port = v4;
            struct relay_location at;
            assert_true(relay_registry_locate(r, &e, &at));
            assert_int_equal(at.thread, thread);
            e.port = v6; /* an odd port is IPv6's */
            assert_false(relay_registry_locate(r, &e, &at));
        }
    }
    struct relay_location at;
    struct endpoint before = address("192.0.2.1:3478"), after = address("192.0.2.1:3492");
    assert_false(relay_registry_locate(r, &before, &at));
    assert_false(relay_registry_locate(r, &after, &at));
    relay_registry_destroy(r);
}

static void reservation_is_redeemed_once(void **state) {
    (void)state;
    struct relay_registry *r = create(0);
    struct udp_socket socket = {.fd = -1, .local = address("10.0.0.1:50001")}, out;
    assert_true(relay_registry_claim(r, &socket.local, 0));
    assert_int_equal(relay_registry_reserve(r, TOKEN, &socket, 1000), 0);
    assert_false(relay_registry_redeem(r, (const uint8_t *)"abcdefgi", &out, 2000));
    assert_true(relay_registry_redeem(r, TOKEN, &out, 1000 + RELAY_RESERVATION_US - 1));
    assert_true(endpoint_equal(&out.local, &socket.local));
    assert_false(relay_registry_redeem(r, TOKEN, &out, 2000));
    relay_registry_destroy(r);
}

static void reservation_runs_out(void **state) {
    (void)state;
    struct relay_registry *r = create(0);
    struct udp_socket socket = {.fd = -1, .local = address("10.0.0.1:50001")}, out;
    struct relay_location at;
    assert_true(relay_registry_claim(r, &socket.local, 0));
    assert_int_equal(relay_registry_reserve(r, TOKEN, &socket, 1000), 0);
    relay_registry_expire(r, 1000 + RELAY_RESERVATION_US - 1);
    assert_true(relay_registry_locate(r, &socket.local, &at));
    assert_false(relay_registry_redeem(r, TOKEN, &out, 1000 + RELAY_RESERVATION_US));
    relay_registry_expire(r, 1000 + RELAY_RESERVATION_US);
    assert_false(relay_registry_locate(r, &socket.local, &at));
    assert_true(relay_registry_claim(r, &socket.local, 1));
    relay_registry_destroy(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(port_has_one_owner),
        cmocka_unit_test(shared_ports_follow_the_formula),
        cmocka_unit_test(reservation_is_redeemed_once),
        cmocka_unit_test(reservation_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
