#include "peer_policy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fault.h"

static struct endpoint at(const char *text) {
    struct endpoint e;
    assert_int_equal(endpoint_parse(&e, text, 0), 0);
    return e;
}

static struct peer_policy *policy_with(bool allow_loopback, bool allow_private) {
    const struct peer_policy_params params = {allow_loopback, allow_private};
    struct peer_policy *policy;
    assert_int_equal(peer_policy_create(&policy, &params), 0);
    return policy;
}

/* The usual server: nothing configured. */
static struct peer_policy *usual_policy(void) {
    return policy_with(false, true);
}

static bool allows(const struct peer_policy *policy, const char *peer, const char **out_rule) {
    struct endpoint e = at(peer);
    return peer_policy_allows(policy, &e, out_rule);
}

static void assert_allowed(const struct peer_policy *policy, const char *const *peers, size_t n) {
    const char *rule;
    for (size_t i = 0; i < n; i++) {
        if (!allows(policy, peers[i], &rule)) {
            fail_msg("%s is refused by %s", peers[i], rule);
        }
    }
}

static void assert_refused(const struct peer_policy *policy, const char *const *peers, size_t n) {
    const char *rule;
    for (size_t i = 0; i < n; i++) {
        if (allows(policy, peers[i], &rule)) {
            fail_msg("%s is allowed", peers[i]);
        }
        assert_non_null(rule);
    }
}

#define ALLOWED(policy, ...)                                                                                 \
    do {                                                                                                     \
        const char *const peers_[] = {__VA_ARGS__};                                                          \
        assert_allowed(policy, peers_, sizeof peers_ / sizeof peers_[0]);                                    \
    } while (0)
#define REFUSED(policy, ...)                                                                                 \
    do {                                                                                                     \
        const char *const peers_[] = {__VA_ARGS__};                                                          \
        assert_refused(policy, peers_, sizeof peers_ / sizeof peers_[0]);                                    \
    } while (0)

static void special_purpose_ranges_are_refused_by_default(void **state) {
    (void)state;
    struct peer_policy *p = usual_policy();
    REFUSED(p, "0.0.0.0", "0.0.0.1", "0.1.2.3", "0.255.255.255");
    REFUSED(p, "127.0.0.0", "127.0.0.1", "127.8.8.8", "127.255.255.255");
    REFUSED(p, "169.254.0.0", "169.254.169.254", "169.254.255.255");
    REFUSED(p, "192.0.0.0", "192.0.0.255", "192.88.99.0", "192.88.99.255");
    REFUSED(p, "224.0.0.0", "224.0.0.1", "239.255.255.250", "240.0.0.0", "255.255.255.254",
            "255.255.255.255");
    REFUSED(p, "::", "::1", "fe80::", "fe80::1", "febf:ffff::1", "fec0::1", "feff:ffff::1");
    REFUSED(p, "fc00::", "fd00::1", "fd12:3456::5", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    REFUSED(p, "ff00::", "ff02::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "100::", "100::ffff:ffff:ffff:ffff");
    REFUSED(p, "5f00::1");
    peer_policy_destroy(p);
}

static void neighbours_of_special_ranges_are_allowed(void **state) {
    (void)state;
    struct peer_policy *p = usual_policy();
    ALLOWED(p, "1.0.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0");
    ALLOWED(p, "191.255.255.255", "192.0.1.0", "192.88.98.255", "192.88.100.0", "223.255.255.255", "8.8.8.8");
    ALLOWED(p, "fe00::1", "fbff:ffff::1", "100:0:0:1::", "ff:ffff::1", "2a00:1450:4001::8", "5eff::1",
            "5f01::1");
    peer_policy_destroy(p);
}

static void documentation_ranges_are_not_refused(void **state) {
    (void)state;
    struct peer_policy *p = usual_policy();
    ALLOWED(p, "192.0.2.1", "198.51.100.11", "203.0.113.21", "2001:db8:200::21", "3fff::1");
    peer_policy_destroy(p);
}

static void private_ranges_follow_the_setting(void **state) {
    (void)state;
    static const char *const private[] = {
        "10.0.0.0",   "10.255.255.255",  "172.16.0.0", "172.31.255.255", "192.168.0.0",     "192.168.255.255",
        "100.64.0.0", "100.127.255.255", "198.18.0.0", "198.19.255.255", "2001:2:0:ffff::1"};
    enum { N = sizeof private / sizeof private[0] };
    struct peer_policy *p = usual_policy();
    assert_allowed(p, private, N);
    peer_policy_destroy(p);
    p = policy_with(false, false);
    assert_refused(p, private, N);
    REFUSED(p, "64:ff9b::10.0.0.1", "::ffff:192.168.1.1");
    ALLOWED(p, "9.255.255.255", "11.0.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0");
    ALLOWED(p, "100.63.255.255", "100.128.0.0", "198.17.255.255", "198.20.0.0", "2001:2:1::1");
    peer_policy_destroy(p);
}

static void loopback_follows_the_setting(void **state) {
    (void)state;
    struct peer_policy *p = policy_with(true, true);
    ALLOWED(p, "127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1");
    REFUSED(p, "0.0.0.0", "::", "169.254.169.254", "fe80::1");
    peer_policy_destroy(p);
}

/* The loopback address in every spelling that carries IPv4, and 192.0.2.33 in the same. */
static void ipv4_counts_in_every_spelling(void **state) {
    (void)state;
    struct peer_policy *p = usual_policy();
    REFUSED(p, "::ffff:127.0.0.1", "::ffff:7f00:2", "::127.0.0.1", "::7f08:808", "::ffff:0:127.0.0.1");
    REFUSED(p, "2002:7f00:1::", "2002:7f00:1:5:6:7:8:9");
    REFUSED(p, "64:ff9b::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::169.254.169.254");
    REFUSED(p, "64:ff9b:1:7f00:0:100::", "64:ff9b:1::127.0.0.1", "64:ff9b:1:2:3:4:127.0.0.1", "64:ff9b:1::");
    REFUSED(p, "2001:0:4136:e378:8000:63bf:80ff:fffe"); /* Teredo: ~127.0.0.1 */
    REFUSED(p, "2001:db8::5efe:127.0.0.1", "2001:db8::200:5efe:127.0.0.1", "fe80::5efe:192.0.2.33");
    REFUSED(p, "::ffff:0.0.0.0", "::2", "::255.255.255.255", "2002:e000:1::", "2002::", "64:ff9b::");
    ALLOWED(p, "::ffff:192.0.2.33", "::192.0.2.33", "::ffff:0:192.0.2.33", "2002:c000:221::1");
    ALLOWED(p, "64:ff9b::192.0.2.33", "64:ff9b:1:c000:2:2100::", "64:ff9b:1::192.0.2.33");
    ALLOWED(p, "2001:0:4136:e378:8000:63bf:3fff:fdde"); /* Teredo: ~192.0.2.33 */
    ALLOWED(p, "2001:db8::5efe:192.0.2.33", "2001:db8::200:5efe:192.0.2.33");
    /* close to a spelling, but none */
    ALLOWED(p, "2001:1:4136:e378:8000:63bf:80ff:fffe", "2003:7f00:1::", "64:ff9b:2::127.0.0.1");
    ALLOWED(p, "2001:db8::5eff:127.0.0.1", "2001:db8::100:5efe:127.0.0.1", "::1:0:0:7f00:1");
    peer_policy_destroy(p);
}

static void configured_ranges_count_in_every_spelling(void **state) {
    (void)state;
    struct peer_policy *p = usual_policy();
    assert_int_equal(peer_policy_deny(p, "203.0.113.21"), 0);
    REFUSED(p, "203.0.113.21", "::ffff:203.0.113.21", "::203.0.113.21",
            "2002:cb00:7115::", "64:ff9b::203.0.113.21", "2001:0:4136:e378:8000:63bf:34ff:8eea",
            "2001:db8::5efe:203.0.113.21");
    ALLOWED(p, "203.0.113.20", "203.0.113.22", "::ffff:203.0.113.20",
            "2002:cb00:7114::", "64:ff9b::203.0.113.22");
    /* written as IPv4-mapped, meant as IPv4 */
    assert_int_equal(peer_policy_deny(p, "::ffff:198.51.100.0/120"), 0);
    REFUSED(p, "198.51.100.0", "198.51.100.255", "::ffff:198.51.100.7");
    ALLOWED(p, "198.51.99.255", "198.51.101.0");
    peer_policy_destroy(p);
}

static void ranges_have_both_ends(void **state) {
    (void)state;
    struct peer_policy *p = usual_policy();
    const char *rule;
    assert_int_equal(peer_policy_deny(p, "203.0.113.100-203.0.113.110"), 0);
    assert_int_equal(peer_policy_deny(p, "198.51.100.77/28"), 0);
    assert_int_equal(peer_policy_deny(p, "2001:db8:200::20-2001:db8:200::22"), 0);
    assert_int_equal(peer_policy_deny(p, "2001:db8:300::/41"), 0);
    assert_int_equal(peer_policy_deny(p, "2001:db8:500:1::8/125"), 0);
    REFUSED(p, "203.0.113.100", "203.0.113.105", "203.0.113.110", "198.51.100.64", "198.51.100.79");
    REFUSED(p, "2001:db8:200::20", "2001:db8:200::22",
            "2001:db8:300::", "2001:db8:37f:ffff:ffff:ffff:ffff:ffff");
    REFUSED(p, "2001:db8:500:1::8", "2001:db8:500:1::f");
    ALLOWED(p, "203.0.113.99", "203.0.113.111", "198.51.100.63", "198.51.100.80", "2001:db8:200::1f");
    ALLOWED(p, "2001:db8:200::23", "2001:db8:2ff:ffff:ffff:ffff:ffff:ffff", "2001:db8:380::");
    ALLOWED(p, "2001:db8:500:1::7", "2001:db8:500:1::10");
    assert_false(allows(p, "203.0.113.105", &rule));
    assert_string_equal(rule, "203.0.113.100-203.0.113.110");
    assert_true(allows(p, "203.0.113.99", &rule));
    assert_null(rule);
    peer_policy_destroy(p);
}

static void everything_can_be_denied(void **state) {
    (void)state;
    struct peer_policy *p = usual_policy();
    assert_int_equal(peer_policy_deny(p, "0.0.0.0-255.255.255.255"), 0);
    assert_int_equal(peer_policy_deny(p, "::/0"), 0);
    assert_int_equal(peer_policy_allow(p, "192.0.2.7/32"), 0);
    assert_int_equal(peer_policy_allow(p, "2001:db8::7/128"), 0);
    REFUSED(p, "8.8.8.8", "192.0.2.6", "192.0.2.8", "2a00::1", "2001:db8::6", "2001:db8::8");
    ALLOWED(p, "192.0.2.7", "2001:db8::7");
    peer_policy_destroy(p);
}

static void allow_beats_deny_whichever_comes_first(void **state) {
    (void)state;
    struct peer_policy *p = usual_policy();
    const char *rule;
    assert_int_equal(peer_policy_allow(p, "203.0.113.21"), 0);
    assert_int_equal(peer_policy_deny(p, "203.0.113.0/24"), 0);
    assert_int_equal(peer_policy_allow(p, "203.0.113.22"), 0);
    ALLOWED(p, "203.0.113.21", "203.0.113.22", "64:ff9b::203.0.113.22");
    REFUSED(p, "203.0.113.20", "203.0.113.23");
    assert_true(allows(p, "203.0.113.21", &rule));
    assert_string_equal(rule, "203.0.113.21");
    /* what is refused by default as well */
    assert_int_equal(peer_policy_allow(p, "127.0.0.2"), 0);
    assert_int_equal(peer_policy_allow(p, "fd12::/16"), 0);
    ALLOWED(p, "127.0.0.2", "fd12:3456::5");
    REFUSED(p, "127.0.0.1", "127.0.0.3", "fd13::1");
    peer_policy_destroy(p);
}

static void allowed_prefix_opens_no_address_inside_it(void **state) {
    (void)state;
    struct peer_policy *p = usual_policy();
    assert_int_equal(peer_policy_allow(p, "64:ff9b::/96"), 0);
    assert_int_equal(peer_policy_allow(p, "2002::/16"), 0);
    REFUSED(p, "64:ff9b::127.0.0.1", "2002:7f00:1::1");
    ALLOWED(p, "64:ff9b::8.8.8.8", "2002:808:808::1");
    peer_policy_destroy(p);
}

static void malformed_ranges_are_refused(void **state) {
    (void)state;
    struct peer_policy *p = usual_policy();
    static const char *const bad[] = {
        "",
        "nonsense",
        "1.2.3",
        "1.2.3.4.5",
        "1.2.3.256",
        "1.2.3.4/33",
        "1.2.3.4/",
        "1.2.3.4/-1",
        "1.2.3.4/x",
        "1.2.3.4/8 ",
        "1.2.3.4/0008",
        "1.2.3.4-",
        "-1.2.3.4",
        "1.2.3.9-1.2.3.8",
        "1.2.3.4-2001:db8::1",
        "2001:db8::1-1.2.3.4",
        "2001:db8::/129",
        "[::1]",
        "1.2.3.4:80",
        " 1.2.3.4",
        "1.2.3.4 - 1.2.3.5",
        "fe80::1%lo",
        "2001:db8::2-2001:db8::1",
        "/8",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(peer_policy_deny(p, bad[i]), -EINVAL);
        assert_int_equal(peer_policy_allow(p, bad[i]), -EINVAL);
    }
    ALLOWED(p, "1.2.3.4", "8.8.8.8", "2001:db8::1");
    peer_policy_destroy(p);
}

static void own_endpoints_are_refused_by_address_and_port(void **state) {
    (void)state;
    struct peer_policy *p = usual_policy();
    struct endpoint listener = at("198.51.100.1:3478"), listener6 = at("[2001:db8:100::1]:3478");
    const char *rule;
    assert_int_equal(peer_policy_deny_endpoint(p, &listener), 0);
    assert_int_equal(peer_policy_deny_endpoint(p, &listener6), 0);
    REFUSED(p, "198.51.100.1:3478", "[::ffff:198.51.100.1]:3478", "[64:ff9b::198.51.100.1]:3478",
            "[2002:c633:6401::]:3478", "[2001:db8:100::1]:3478");
    ALLOWED(p, "198.51.100.1:3479", "198.51.100.2:3478", "198.51.100.1", "[2001:db8:100::1]:3480",
            "2001:db8:100::1");
    assert_false(allows(p, "198.51.100.1:3478", &rule));
    assert_string_equal(rule, "own endpoint");
    /* a media server beside us is a reason to allow our address, not our listener */
    assert_int_equal(peer_policy_allow(p, "198.51.100.1"), 0);
    REFUSED(p, "198.51.100.1:3478");
    ALLOWED(p, "198.51.100.1:10000");
    peer_policy_destroy(p);
}

static void wildcard_endpoint_is_every_local_address(void **state) {
    (void)state;
    struct peer_policy *p = policy_with(true, true);
    struct endpoint any = at("0.0.0.0:3478"), any6 = at("[::]:5349");
    struct endpoint local = at("198.51.100.1"), local6 = at("2001:db8:100::1"),
                    mapped = at("::ffff:198.51.100.2");
    assert_int_equal(peer_policy_deny_endpoint(p, &any), 0);
    assert_int_equal(peer_policy_deny_endpoint(p, &any6), 0);
    ALLOWED(p, "198.51.100.1:3478");
    assert_int_equal(peer_policy_add_local(p, &local), 0);
    assert_int_equal(peer_policy_add_local(p, &local6), 0);
    assert_int_equal(peer_policy_add_local(p, &mapped), 0);
    REFUSED(p, "198.51.100.1:3478", "198.51.100.2:3478", "198.51.100.1:5349", "[2001:db8:100::1]:5349",
            "[2001:db8:100::1]:3478", "127.0.0.1:3478", "127.9.9.9:3478", "[::1]:5349");
    ALLOWED(p, "198.51.100.1:3479", "198.51.100.3:3478", "[2001:db8:100::2]:5349", "127.0.0.1:80");
    peer_policy_destroy(p);
}

static int build_policy(struct peer_policy **p) {
    const struct peer_policy_params params = {false, true};
    struct endpoint listener = at("198.51.100.1:3478");
    int err = peer_policy_create(p, &params);
    err = err < 0 ? err : peer_policy_deny(*p, "10.0.0.0/8");
    err = err < 0 ? err : peer_policy_allow(*p, "10.0.0.1");
    err = err < 0 ? err : peer_policy_deny_endpoint(*p, &listener);
    return err < 0 ? err : peer_policy_add_local(*p, &listener);
}

static void failed_allocations_are_told_and_leak_nothing(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct peer_policy *p = NULL;
        alloc_fault_arm(n);
        int err = build_policy(&p);
        alloc_fault_disarm();
        assert_int_equal(err, alloc_fault_hit() ? -ENOMEM : 0);
        if (p != NULL) {
            ALLOWED(p, "8.8.8.8");
        }
        peer_policy_destroy(p);
        if (!alloc_fault_hit()) {
            assert_int_equal(n, 8);
            break;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_purpose_ranges_are_refused_by_default),
        cmocka_unit_test(neighbours_of_special_ranges_are_allowed),
        cmocka_unit_test(documentation_ranges_are_not_refused),
        cmocka_unit_test(private_ranges_follow_the_setting),
        cmocka_unit_test(loopback_follows_the_setting),
        cmocka_unit_test(ipv4_counts_in_every_spelling),
        cmocka_unit_test(configured_ranges_count_in_every_spelling),
        cmocka_unit_test(ranges_have_both_ends),
        cmocka_unit_test(everything_can_be_denied),
        cmocka_unit_test(allow_beats_deny_whichever_comes_first),
        cmocka_unit_test(allowed_prefix_opens_no_address_inside_it),
        cmocka_unit_test(malformed_ranges_are_refused),
        cmocka_unit_test(own_endpoints_are_refused_by_address_and_port),
        cmocka_unit_test(wildcard_endpoint_is_every_local_address),
        cmocka_unit_test(failed_allocations_are_told_and_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
