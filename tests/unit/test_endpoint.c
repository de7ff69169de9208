#include "endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void assert_parses(const char *text, uint8_t family, const char *ip, uint16_t port) {
    struct endpoint e;
    assert_int_equal(endpoint_parse(&e, text, 3478), 0);
    assert_int_equal(e.family, family);
    assert_int_equal(e.port, port);
    assert_int_equal(e.zero, 0);
    uint8_t expected[16] = {0};
    assert_int_equal(inet_pton(family, ip, expected), 1);
    assert_memory_equal(e.ip, expected, sizeof expected);
}

static void assert_refuses(const char *text) {
    struct endpoint e;
    struct endpoint before;
    memset(&before, 0xa5, sizeof before);
    e = before;
    if (endpoint_parse(&e, text, 3478) != -EINVAL) {
        fail_msg("\"%s\" was taken", text);
    }
    assert_memory_equal(&e, &before, sizeof e);
}

static void ipv4_with_and_without_port(void **state) {
    (void)state;
    assert_parses("1.2.3.4", AF_INET, "1.2.3.4", 3478);
    assert_parses("1.2.3.4:5", AF_INET, "1.2.3.4", 5);
    assert_parses("0.0.0.0", AF_INET, "0.0.0.0", 3478);
    assert_parses("255.255.255.255:65535", AF_INET, "255.255.255.255", 65535);
    assert_parses("10.0.0.1:0", AF_INET, "10.0.0.1", 0);
}

static void ipv6_with_and_without_port(void **state) {
    (void)state;
    assert_parses("2001:db8::1", AF_INET6, "2001:db8::1", 3478);
    assert_parses("[2001:db8::1]", AF_INET6, "2001:db8::1", 3478);
    assert_parses("[2001:db8::1]:5", AF_INET6, "2001:db8::1", 5);
    assert_parses("::", AF_INET6, "::", 3478);
    assert_parses("[::]:0", AF_INET6, "::", 0);
    assert_parses("[::1]:65535", AF_INET6, "::1", 65535);
    assert_parses("::ffff:192.0.2.1", AF_INET6, "::ffff:192.0.2.1", 3478);
    assert_parses("[0000:0000:0000:0000:0000:ffff:255.255.255.255]:1", AF_INET6, "::ffff:255.255.255.255", 1);
    assert_parses("0000:0000:0000:0000:0000:ffff:255.255.255.255", AF_INET6, "::ffff:255.255.255.255", 3478);
    assert_parses("2001:DB8::A", AF_INET6, "2001:db8::a", 3478);
}

static void malformed_addresses_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        ":",
        ":5",
        "1",
        "1.2.3",
        "1.2.3.4.5",
        "300.1.2.3",
        "1.2.3.256",
        "01.2.3.4",
        "1.2.3.04",
        "0x1.2.3.4",
        "1.2.3.-4",
        " 1.2.3.4",
        "1.2.3.4 ",
        "1.2.3.4\n",
        "1.2..4",
        "1.2.3.",
        ".1.2.3",
        "+1.2.3.4",
        "localhost",
        "example.org:5",
        "-",
        "[",
        "]",
        "[]",
        "[]:5",
        "[::1",
        "::1]",
        "[::1]]",
        "[[::1]]",
        "[1.2.3.4]",
        "[1.2.3.4]:5",
        ":::",
        "1:2:3:4:5:6:7:8:9",
        "12345::",
        "::g",
        "fe80::1%lo",
        "[fe80::1%1]",
        "[fe80::1%lo]:5",
        "::1::",
        "::300.1.2.3",
        "1:2:3:4:5:6:7",
        "::ffff:1.2.3.04",
        "0000:0000:0000:0000:0000:ffff:255.255.255.2555",
        "0000:0000:0000:0000:0000:ffff:255.255.255.25555",
        "2001:db8:00000000000000000000000000000000000000000000000000000::1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_refuses(bad[i]);
    }
}

static void malformed_ports_are_refused(void **state) {
    (void)state;
    static const char *const bad_port[] = {":",
                                           ":65536",
                                           ":99999",
                                           ":4294967297",
                                           ":18446744073709551617",
                                           ":-1",
                                           ":+1",
                                           ": 1",
                                           ":1 ",
                                           ":1x",
                                           ":0x10",
                                           ":01",
                                           ":00",
                                           ":1:2",
                                           "::",
                                           "5",
                                           "/5",
                                           ":999999999999999999999999999999"};
    for (size_t i = 0; i < sizeof bad_port / sizeof bad_port[0]; i++) {
        char text[80];
        snprintf(text, sizeof text, "1.2.3.4%s", bad_port[i]);
        if (strcmp(bad_port[i], "5") != 0) { /* 1.2.3.45 is an address */
            assert_refuses(text);
        }
        snprintf(text, sizeof text, "[2001:db8::1]%s", bad_port[i]);
        assert_refuses(text);
    }
}

static void format_and_parse_are_inverse(void **state) {
    (void)state;
    static const char *const texts[] = {
        "1.2.3.4:5",
        "0.0.0.0:0",
        "255.255.255.255:65535",
        "[2001:db8::1]:5",
        "[::]:0",
        "[::ffff:192.0.2.1]:65535",
        "[1111:2222:3333:4444:5555:6666:7777:8888]:65535",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct endpoint e, again;
        char buffer[ENDPOINT_TEXT_BYTES];
        assert_int_equal(endpoint_parse(&e, texts[i], 9), 0);
        assert_ptr_equal(endpoint_format(&e, buffer), buffer);
        assert_string_equal(buffer, texts[i]);
        assert_ptr_equal(endpoint_format_ip(&e, buffer), buffer);
        assert_int_equal(endpoint_parse(&again, buffer, e.port), 0);
        assert_true(endpoint_equal(&e, &again));
    }
    struct endpoint e;
    char buffer[ENDPOINT_TEXT_BYTES];
    assert_int_equal(endpoint_parse(&e, "[2001:db8::1]:5", 0), 0);
    assert_string_equal(endpoint_format_ip(&e, buffer), "2001:db8::1");
}

static void no_endpoint_prints_as_a_dash(void **state) {
    (void)state;
    struct endpoint none = {.family = AF_UNSPEC};
    char buffer[ENDPOINT_TEXT_BYTES];
    assert_string_equal(endpoint_format(&none, buffer), "-");
    assert_string_equal(endpoint_format_ip(&none, buffer), "-");
    assert_int_equal(endpoint_ip_bytes(&none), 0);
    assert_false(endpoint_is_unspecified(&none));
    union endpoint_sockaddr sa;
    assert_int_equal(endpoint_to_sockaddr(&sa, &none), 0);
}

static void sockaddr_round_trip(void **state) {
    (void)state;
    static const char *const texts[] = {"192.0.2.1:3478", "[2001:db8::7]:1", "[::ffff:192.0.2.1]:80"};
    static const socklen_t lengths[] = {sizeof(struct sockaddr_in), sizeof(struct sockaddr_in6),
                                        sizeof(struct sockaddr_in6)};
    for (size_t i = 0; i < 3; i++) {
        struct endpoint e, back;
        union endpoint_sockaddr sa;
        memset(&sa, 0xff, sizeof sa);
        memset(&back, 0xff, sizeof back);
        assert_int_equal(endpoint_parse(&e, texts[i], 0), 0);
        assert_int_equal(endpoint_to_sockaddr(&sa, &e), lengths[i]);
        assert_int_equal(sa.sa.sa_family, e.family);
        endpoint_from_sockaddr(&back, &sa.sa);
        assert_true(endpoint_equal(&e, &back)); /* mapped addresses are kept as they are */
    }
}

static void scope_and_flow_of_a_sockaddr_are_left_out(void **state) {
    (void)state;
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
                               .sin6_port = htons(7),
                               .sin6_scope_id = 3,
                               .sin6_flowinfo = 9,
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct endpoint from, parsed;
    endpoint_from_sockaddr(&from, (struct sockaddr *)&in6);
    assert_int_equal(endpoint_parse(&parsed, "[::1]:7", 0), 0);
    assert_true(endpoint_equal(&from, &parsed));
    union endpoint_sockaddr sa;
    endpoint_to_sockaddr(&sa, &from);
    assert_int_equal(sa.in6.sin6_scope_id, 0);
    assert_int_equal(sa.in6.sin6_flowinfo, 0);
}

static void foreign_families_give_none(void **state) {
    (void)state;
    struct endpoint e, none = {.family = AF_UNSPEC};
    struct sockaddr sa = {.sa_family = AF_UNIX};
    memset(&e, 0xff, sizeof e);
    endpoint_from_sockaddr(&e, &sa);
    assert_true(endpoint_equal(&e, &none));
}

static void unaligned_sockaddr_is_read(void **state) {
    (void)state;
    _Alignas(8) uint8_t bytes[sizeof(struct sockaddr_in6) + 2] = {0};
    union endpoint_sockaddr sa;
    struct endpoint e, back;
    assert_int_equal(endpoint_parse(&e, "[2001:db8::7]:1", 0), 0);
    endpoint_to_sockaddr(&sa, &e);
    memcpy(bytes + 2, &sa, sizeof sa.in6);
    endpoint_from_sockaddr(&back, (const struct sockaddr *)(const void *)(bytes + 2));
    assert_true(endpoint_equal(&e, &back));
}

static void equality_looks_at_everything_same_ip_not_at_the_port(void **state) {
    (void)state;
    struct endpoint a, b, other_ip, v6;
    assert_int_equal(endpoint_parse(&a, "1.2.3.4:5", 0), 0);
    assert_int_equal(endpoint_parse(&b, "1.2.3.4:6", 0), 0);
    assert_int_equal(endpoint_parse(&other_ip, "1.2.3.5:5", 0), 0);
    assert_int_equal(endpoint_parse(&v6, "[102:304::]:5", 0), 0); /* the same 16 bytes as 1.2.3.4 */
    assert_true(endpoint_equal(&a, &a));
    assert_false(endpoint_equal(&a, &b));
    assert_true(endpoint_same_ip(&a, &b));
    assert_false(endpoint_same_ip(&a, &other_ip));
    assert_memory_equal(a.ip, v6.ip, 16);
    assert_false(endpoint_equal(&a, &v6));
    assert_false(endpoint_same_ip(&a, &v6));
}

static void unspecified_addresses(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool is_unspecified;
    } cases[] = {{"0.0.0.0:5", true}, {"::", true},      {"0.0.0.1", false},       {"1.0.0.0", false},
                 {"::1", false},      {"8000::", false}, {"::ffff:0.0.0.0", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct endpoint e;
        assert_int_equal(endpoint_parse(&e, cases[i].text, 0), 0);
        assert_int_equal(endpoint_is_unspecified(&e), cases[i].is_unspecified);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ipv4_with_and_without_port),
        cmocka_unit_test(ipv6_with_and_without_port),
        cmocka_unit_test(malformed_addresses_are_refused),
        cmocka_unit_test(malformed_ports_are_refused),
        cmocka_unit_test(format_and_parse_are_inverse),
        cmocka_unit_test(no_endpoint_prints_as_a_dash),
        cmocka_unit_test(sockaddr_round_trip),
        cmocka_unit_test(scope_and_flow_of_a_sockaddr_are_left_out),
        cmocka_unit_test(foreign_families_give_none),
        cmocka_unit_test(unaligned_sockaddr_is_read),
        cmocka_unit_test(equality_looks_at_everything_same_ip_not_at_the_port),
        cmocka_unit_test(unspecified_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
