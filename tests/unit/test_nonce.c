#include "nonce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { WALL_S = 1800000000, LIFETIME_S = 600, FEATURES = NONCE_FEATURE_PASSWORD_ALGORITHMS };

static const uint8_t key[NONCE_KEY_BYTES] = {1, 2, 3};
static const char realm[] = "example.org";

static int set_up(void **state) {
    struct stun_crypto *crypto;
    int err = stun_crypto_create(&crypto);
    *state = crypto;
    return err;
}

static int tear_down(void **state) {
    stun_crypto_destroy(*state);
    return 0;
}

static enum nonce_state check_at(struct stun_crypto *crypto, const char *nonce, int64_t wall_s,
                                 uint32_t lifetime_s) {
    return nonce_check(crypto, key, realm, FEATURES, nonce, strlen(nonce), wall_s, lifetime_s);
}

static void nonce_begins_with_cookie_and_features(void **state) {
    char nonce[NONCE_TEXT_BYTES];
    size_t n = nonce_create(*state, nonce, key, realm,
                            NONCE_FEATURE_PASSWORD_ALGORITHMS | NONCE_FEATURE_USERNAME_ANONYMITY, WALL_S, 1);
    assert_int_equal(n, strlen(nonce));
    assert_int_equal(n, 36);
    assert_memory_equal(nonce, "obMatJos2wAAA", 13);
    nonce_create(*state, nonce, key, realm, 0, WALL_S, 1);
    assert_memory_equal(nonce, "obMatJos2AAAA", 13);
    nonce_create(*state, nonce, key, realm, 0xffffff, WALL_S, 1);
    assert_memory_equal(nonce, "obMatJos2////", 13);
}

static void nonces_of_one_second_differ_by_salt(void **state) {
    char a[NONCE_TEXT_BYTES], b[NONCE_TEXT_BYTES];
    nonce_create(*state, a, key, realm, FEATURES, WALL_S, 1);
    nonce_create(*state, b, key, realm, FEATURES, WALL_S, 2);
    assert_string_not_equal(a, b);
    assert_int_equal(check_at(*state, a, WALL_S, LIFETIME_S), NONCE_FRESH);
    assert_int_equal(check_at(*state, b, WALL_S, LIFETIME_S), NONCE_FRESH);
}

static void nonce_goes_stale_after_its_lifetime(void **state) {
    char nonce[NONCE_TEXT_BYTES];
    nonce_create(*state, nonce, key, realm, FEATURES, WALL_S, 7);
    assert_int_equal(check_at(*state, nonce, WALL_S + LIFETIME_S, LIFETIME_S), NONCE_FRESH);
    assert_int_equal(check_at(*state, nonce, WALL_S + LIFETIME_S + 1, LIFETIME_S), NONCE_STALE);
    assert_int_equal(check_at(*state, nonce, WALL_S + 1000000, 0), NONCE_FRESH);
}

static void nonce_from_another_hosts_clock_passes_within_the_skew(void **state) {
    char nonce[NONCE_TEXT_BYTES];
    nonce_create(*state, nonce, key, realm, FEATURES, WALL_S, 7);
    assert_int_equal(check_at(*state, nonce, WALL_S - 5, LIFETIME_S), NONCE_FRESH);
    assert_int_equal(check_at(*state, nonce, WALL_S - 6, LIFETIME_S), NONCE_FORGED);
    assert_int_equal(check_at(*state, nonce, WALL_S - 6, 0), NONCE_FORGED);
}

static void time_is_told_right_across_32_bits(void **state) {
    const int64_t edge = INT64_C(1) << 32;
    char nonce[NONCE_TEXT_BYTES];
    nonce_create(*state, nonce, key, realm, FEATURES, edge - 1, 7);
    assert_int_equal(check_at(*state, nonce, edge - 1 + LIFETIME_S, LIFETIME_S), NONCE_FRESH);
    assert_int_equal(check_at(*state, nonce, edge + LIFETIME_S, LIFETIME_S), NONCE_STALE);
}

static void nonce_for_another_realm_key_or_feature_set_is_not_ours(void **state) {
    const uint8_t other_key[NONCE_KEY_BYTES] = {1, 2, 4};
    char nonce[NONCE_TEXT_BYTES];
    size_t n = nonce_create(*state, nonce, key, realm, FEATURES, WALL_S, 7);
    assert_int_equal(nonce_check(*state, key, realm, FEATURES, nonce, n, WALL_S, 0), NONCE_FRESH);
    assert_int_equal(nonce_check(*state, key, "example.net", FEATURES, nonce, n, WALL_S, 0), NONCE_FORGED);
    assert_int_equal(nonce_check(*state, other_key, realm, FEATURES, nonce, n, WALL_S, 0), NONCE_FORGED);
    assert_int_equal(nonce_check(*state, key, realm, 0, nonce, n, WALL_S, 0), NONCE_FORGED);
    /* somebody on the path takes the feature bit out of the text */
    nonce[9] = 'A';
    assert_int_equal(nonce_check(*state, key, realm, FEATURES, nonce, n, WALL_S, 0), NONCE_FORGED);
    assert_int_equal(nonce_check(*state, key, realm, 0, nonce, n, WALL_S, 0), NONCE_FORGED);
}

static void every_changed_character_is_noticed(void **state) {
    static const char others[] = "A9-_+/= \xff";
    char nonce[NONCE_TEXT_BYTES];
    size_t n = nonce_create(*state, nonce, key, realm, FEATURES, WALL_S, 0xdeadbeef);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof others; k++) { /* the NUL as well */
            char kept = nonce[i];
            if (others[k] == kept) {
                continue;
            }
            nonce[i] = others[k];
            assert_int_equal(nonce_check(*state, key, realm, FEATURES, nonce, n, WALL_S, 0), NONCE_FORGED);
            nonce[i] = kept;
        }
    }
    /* The last character carries two bits that mean nothing; another spelling of the same bytes is refused.
     */
    nonce[n - 1] = (char)(nonce[n - 1] + 1);
    assert_int_equal(nonce_check(*state, key, realm, FEATURES, nonce, n, WALL_S, 0), NONCE_FORGED);
}

static void any_other_length_is_not_ours(void **state) {
    char nonce[256];
    memset(nonce, 'A', sizeof nonce);
    size_t right = nonce_create(*state, nonce, key, realm, FEATURES, WALL_S, 7);
    for (size_t n = 0; n < sizeof nonce; n++) {
        /* exactly n bytes of memory, so that reading beyond shows */
        char *copy = malloc(n == 0 ? 1 : n);
        assert_non_null(copy);
        memcpy(copy, nonce, n);
        enum nonce_state wanted = n == right ? NONCE_FRESH : NONCE_FORGED;
        assert_int_equal(nonce_check(*state, key, realm, FEATURES, copy, n, WALL_S, 0), wanted);
        free(copy);
    }
}

static void longest_realm_takes_part_whole(void **state) {
    char long_realm[STUN_MAX_REALM_BYTES + 1], nonce[NONCE_TEXT_BYTES];
    memset(long_realm, 'r', STUN_MAX_REALM_BYTES);
    long_realm[STUN_MAX_REALM_BYTES] = '\0';
    size_t n = nonce_create(*state, nonce, key, long_realm, FEATURES, WALL_S, 7);
    assert_int_equal(nonce_check(*state, key, long_realm, FEATURES, nonce, n, WALL_S, 0), NONCE_FRESH);
    long_realm[STUN_MAX_REALM_BYTES - 1] = 's';
    assert_int_equal(nonce_check(*state, key, long_realm, FEATURES, nonce, n, WALL_S, 0), NONCE_FORGED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonce_begins_with_cookie_and_features),
        cmocka_unit_test(nonces_of_one_second_differ_by_salt),
        cmocka_unit_test(nonce_goes_stale_after_its_lifetime),
        cmocka_unit_test(nonce_from_another_hosts_clock_passes_within_the_skew),
        cmocka_unit_test(time_is_told_right_across_32_bits),
        cmocka_unit_test(nonce_for_another_realm_key_or_feature_set_is_not_ours),
        cmocka_unit_test(every_changed_character_is_noticed),
        cmocka_unit_test(any_other_length_is_not_ours),
        cmocka_unit_test(longest_realm_takes_part_whole),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
