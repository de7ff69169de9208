#include "credential.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "alloc_fault.h"

enum { NOW_S = 1800000000 };

static const char realm[] = "example.org";

struct world {
    struct credential_store *store;
    struct stun_crypto *crypto;
};

static int set_up(void **state) {
    struct world *w = calloc(1, sizeof *w);
    const struct credential_params params = {realm, ':', false};
    assert_non_null(w);
    assert_int_equal(credential_store_create(&w->store, &params), 0);
    assert_int_equal(stun_crypto_create(&w->crypto), 0);
    *state = w;
    return 0;
}

static int tear_down(void **state) {
    struct world *w = *state;
    credential_store_destroy(w->store);
    stun_crypto_destroy(w->crypto);
    free(w);
    return 0;
}

static struct credential_query query_of(const char *name) {
    return (struct credential_query){.username = name,
                                     .n_username = strlen(name),
                                     .password_algorithm = STUN_PASSWORD_ALGORITHM_MD5,
                                     .wall_s = NOW_S};
}

static enum credential_result find(struct world *w, const char *name, unsigned attempt,
                                   struct credential *out) {
    struct credential_query query = query_of(name);
    return credential_find(w->store, w->crypto, &query, attempt, out);
}

static void assert_key(struct world *w, const struct credential *c, uint16_t algorithm, const char *name,
                       const char *password) {
    struct stun_key key;
    assert_int_equal(stun_key_derive(w->crypto, &key, algorithm, name, strlen(name), realm, password), 0);
    assert_int_equal(c->key.n_bytes, key.n_bytes);
    assert_memory_equal(c->key.bytes, key.bytes, key.n_bytes);
}

static void assert_user_part(const struct credential *c, const char *user) {
    assert_int_equal(c->n_user_part, strlen(user));
    assert_memory_equal(c->user_part, user, c->n_user_part);
}

static void static_user_is_found_by_name(void **state) {
    struct world *w = *state;
    struct credential c;
    assert_false(credential_store_has_users(w->store));
    assert_int_equal(credential_store_add_user(w->store, "alice:wonder"), 0);
    assert_true(credential_store_has_users(w->store) && credential_store_has_passwords(w->store));
    assert_int_equal(find(w, "alice", 0, &c), CREDENTIAL_FOUND);
    assert_key(w, &c, STUN_PASSWORD_ALGORITHM_MD5, "alice", "wonder");
    assert_string_equal(c.username, "alice");
    assert_user_part(&c, "alice");
    assert_int_equal(find(w, "alice", 1, &c), CREDENTIAL_UNKNOWN);
    assert_int_equal(find(w, "alic", 0, &c), CREDENTIAL_UNKNOWN);
    assert_int_equal(find(w, "Alice", 0, &c), CREDENTIAL_UNKNOWN);
    assert_int_equal(find(w, "alicee", 0, &c), CREDENTIAL_UNKNOWN);
    assert_int_equal(find(w, "", 0, &c), CREDENTIAL_UNKNOWN);
}

static void first_colon_splits_the_line(void **state) {
    struct world *w = *state;
    struct credential c;
    assert_int_equal(credential_store_add_user(w->store, "carl@x.org:a:b#;= \"c"), 0);
    assert_int_equal(find(w, "carl@x.org", 0, &c), CREDENTIAL_FOUND);
    assert_key(w, &c, STUN_PASSWORD_ALGORITHM_MD5, "carl@x.org", "a:b#;= \"c");
}

static void sha256_key_is_derived_as_well(void **state) {
    struct world *w = *state;
    struct credential c;
    struct credential_query query = query_of("alice");
    query.password_algorithm = STUN_PASSWORD_ALGORITHM_SHA256;
    assert_int_equal(credential_store_add_user(w->store, "alice:wonder"), 0);
    assert_int_equal(credential_find(w->store, w->crypto, &query, 0, &c), CREDENTIAL_FOUND);
    assert_key(w, &c, STUN_PASSWORD_ALGORITHM_SHA256, "alice", "wonder");
}

static void user_with_md5_key_has_no_sha256(void **state) {
    struct world *w = *state;
    struct credential c;
    struct credential_query query = query_of("hasher");
    assert_int_equal(credential_store_add_user(w->store, "hasher:0x00112233445566778899aAbBcCdDeEfF"), 0);
    assert_true(credential_store_has_users(w->store));
    assert_false(credential_store_has_passwords(w->store));
    assert_int_equal(credential_find(w->store, w->crypto, &query, 0, &c), CREDENTIAL_FOUND);
    assert_int_equal(c.key.n_bytes, 16);
    for (uint8_t i = 0; i < 16; i++) {
        assert_int_equal(c.key.bytes[i], i * 0x11);
    }
    query.password_algorithm = STUN_PASSWORD_ALGORITHM_SHA256;
    assert_int_equal(credential_find(w->store, w->crypto, &query, 0, &c), CREDENTIAL_UNKNOWN);
}

static void malformed_lines_are_refused(void **state) {
    struct world *w = *state;
    char line[600];
    const char *const bad[] = {"",
                               "alice",
                               ":wonder",
                               "alice:",
                               "alice:0x",
                               "alice:0x0011",
                               "alice:0x00112233445566778899aabbccddeef",   /* 31 digits */
                               "alice:0x00112233445566778899aabbccddeeff0", /* 33 digits */
                               "alice:\xff\xfe",                            /* no UTF-8 */
                               "al\x01ice:wonder",                          /* prohibited */
                               "alice:\xc2\xad"};                           /* mapped to nothing */
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(credential_store_add_user(w->store, bad[i]), -EINVAL);
    }
    assert_false(credential_store_has_users(w->store));
    memset(line, 'u', sizeof line);
    memcpy(line + 508, ":p", 3);
    assert_int_equal(credential_store_add_user(w->store, line), 0);
    memset(line, 'v', sizeof line);
    memcpy(line + 509, ":p", 3);
    assert_int_equal(credential_store_add_user(w->store, line), -EINVAL);
    /* not a key: a letter that is no digit makes it a password */
    assert_int_equal(credential_store_add_user(w->store, "dave:0xgold"), 0);
    struct credential c;
    assert_int_equal(find(w, "dave", 0, &c), CREDENTIAL_FOUND);
    assert_key(w, &c, STUN_PASSWORD_ALGORITHM_MD5, "dave", "0xgold");
}

static void second_line_of_a_name_replaces_the_first(void **state) {
    struct world *w = *state;
    struct credential c;
    assert_int_equal(credential_store_add_user(w->store, "alice:first"), 0);
    assert_int_equal(credential_store_add_user(w->store, "alice:second"), -EEXIST);
    assert_int_equal(find(w, "alice", 0, &c), CREDENTIAL_FOUND);
    assert_key(w, &c, STUN_PASSWORD_ALGORITHM_MD5, "alice", "second");
    assert_int_equal(credential_store_add_user(w->store, "alice:0x00112233445566778899aabbccddeeff"),
                     -EEXIST);
    assert_false(credential_store_has_passwords(w->store));
    assert_int_equal(credential_store_add_user(w->store, "alice:third"), -EEXIST);
    assert_true(credential_store_has_passwords(w->store));
}

static void names_and_passwords_are_prepared(void **state) {
    struct world *w = *state;
    struct credential c;
    /* RFC 5769, 2.4: soft hyphen goes, the ordinal and the Roman numeral are folded */
    static const char matrix[] = "\xe3\x83\x9e\xe3\x83\x88\xe3\x83\xaa\xe3\x83\x83\xe3\x82\xaf\xe3\x82\xb9";
    char line[100];
    snprintf(line, sizeof line, "%s:The\xc2\xadM\xc2\xaatr\xe2\x85\xa8", matrix);
    assert_int_equal(credential_store_add_user(w->store, line), 0);
    assert_int_equal(find(w, matrix, 0, &c), CREDENTIAL_FOUND);
    assert_key(w, &c, STUN_PASSWORD_ALGORITHM_MD5, matrix, "TheMatrIX");
}

static void userhash_finds_static_users_only(void **state) {
    struct world *w = *state;
    struct credential c;
    uint8_t userhash[STUN_USERHASH_BYTES];
    struct credential_query query = {
        .userhash = userhash, .password_algorithm = STUN_PASSWORD_ALGORITHM_SHA256, .wall_s = NOW_S};
    assert_int_equal(credential_store_add_user(w->store, "bob:builder"), 0);
    assert_int_equal(credential_store_add_user(w->store, "alice:wonder"), 0);
    assert_int_equal(credential_store_add_secret(w->store, "north"), 0);
    stun_userhash(w->crypto, userhash, "alice", 5, realm);
    assert_int_equal(credential_find(w->store, w->crypto, &query, 0, &c), CREDENTIAL_FOUND);
    assert_string_equal(c.username, "alice");
    assert_int_equal(credential_find(w->store, w->crypto, &query, 1, &c), CREDENTIAL_UNKNOWN);
    userhash[31] ^= 1;
    assert_int_equal(credential_find(w->store, w->crypto, &query, 0, &c), CREDENTIAL_UNKNOWN);
}

static void many_users_are_each_found(void **state) {
    struct world *w = *state;
    char line[64];
    struct credential c;
    for (int i = 0; i < 2000; i++) {
        snprintf(line, sizeof line, "user%d:password%d", i, i);
        assert_int_equal(credential_store_add_user(w->store, line), 0);
    }
    for (int i = 0; i < 2000; i++) {
        char password[64];
        snprintf(line, sizeof line, "user%d", i);
        snprintf(password, sizeof password, "password%d", i);
        assert_int_equal(find(w, line, 0, &c), CREDENTIAL_FOUND);
        assert_key(w, &c, STUN_PASSWORD_ALGORITHM_MD5, line, password);
    }
    assert_int_equal(find(w, "user2000", 0, &c), CREDENTIAL_UNKNOWN);
}

/* ---- names of the REST scheme ---- */

static void assert_rest_key(struct world *w, const struct credential *c, const char *secret,
                            const char *name) {
    char password[32];
    stun_rest_password(w->crypto, password, secret, name, strlen(name));
    assert_key(w, c, STUN_PASSWORD_ALGORITHM_MD5, name, password);
    assert_string_equal(c->username, name);
}

static void rest_names_are_read_in_all_forms(void **state) {
    struct world *w = *state;
    static const struct {
        const char *name, *user;
    } good[] = {
        {"1800000600:alice", "alice"},
        {"alice:1800000600", "alice"},
        {"1800000600", "1800000600"},
        {"1800000600:", "1800000600:"},
        {"1800000600:a:b", "a:b"},
        {"a:b:1800000600", "a:b"},
        {"1800000600:1801", "1801"},
        {":1800000600", ":1800000600"},
        {"1800000600:al\xc3\xaf"
         "ce",
         "al\xc3\xaf"
         "ce"},
        {"2147483647:alice", "alice"},         /* 2^31 - 1 */
        {"2147483648:alice", "alice"},         /* 2^31 */
        {"4294967295:alice", "alice"},         /* 2^32 - 1 */
        {"4294967296:alice", "alice"},         /* 2^32 */
        {"999999999999999999:alice", "alice"}, /* 18 digits, the most */
        {"0001800000600:alice", "alice"},
    };
    struct credential c;
    assert_int_equal(credential_store_add_secret(w->store, "north"), 0);
    assert_true(credential_store_has_secrets(w->store) && credential_store_has_passwords(w->store));
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(find(w, good[i].name, 0, &c), CREDENTIAL_FOUND);
        assert_rest_key(w, &c, "north", good[i].name);
        assert_user_part(&c, good[i].user);
        assert_int_equal(find(w, good[i].name, 1, &c), CREDENTIAL_UNKNOWN);
    }
}

static void names_without_a_time_are_refused(void **state) {
    struct world *w = *state;
    static const char *const bad[] = {
        "",
        "alice",
        ":alice",
        "0:alice",
        "abc:alice",
        "alice:0",
        "0",
        "-5:alice",
        "18e9:alice",
        "1800000600x:alice",
        " 1800000600",
        "+1800000600",
        "alice:",
        ":",
        "1999999999999999999:alice", /* 19 digits */
        "00:alice",
        "alice/1800000600",
    };
    struct credential c;
    assert_int_equal(credential_store_add_secret(w->store, "north"), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(find(w, bad[i], 0, &c), CREDENTIAL_UNKNOWN);
    }
}

static void expiry_is_checked_to_the_second(void **state) {
    struct world *w = *state;
    struct credential c;
    assert_int_equal(credential_store_add_secret(w->store, "north"), 0);
    assert_int_equal(find(w, "1800000000:alice", 0, &c), CREDENTIAL_FOUND);
    assert_int_equal(find(w, "1799999999:alice", 0, &c), CREDENTIAL_EXPIRED);
    assert_int_equal(find(w, "alice:1799999999", 0, &c), CREDENTIAL_EXPIRED);
    assert_int_equal(find(w, "1", 0, &c), CREDENTIAL_EXPIRED);
    /* A user's number for a name is no time: the number in front is. */
    assert_int_equal(find(w, "1799999999:9999999999", 0, &c), CREDENTIAL_EXPIRED);
    struct credential_query query = query_of("1799999999:alice");
    query.skip_expiry = true;
    assert_int_equal(credential_find(w->store, w->crypto, &query, 0, &c), CREDENTIAL_FOUND);
    assert_rest_key(w, &c, "north", "1799999999:alice");
}

static void all_secrets_are_tried_then_static_users(void **state) {
    struct world *w = *state;
    static const char name[] = "1800000600:alice";
    struct credential c;
    assert_int_equal(credential_store_add_secret(w->store, ""), -EINVAL);
    assert_int_equal(credential_store_add_secret(w->store, "north"), 0);
    assert_int_equal(credential_store_add_secret(w->store, "south"), 0);
    assert_int_equal(find(w, name, 0, &c), CREDENTIAL_FOUND);
    assert_rest_key(w, &c, "north", name);
    assert_int_equal(find(w, name, 1, &c), CREDENTIAL_FOUND);
    assert_rest_key(w, &c, "south", name);
    assert_int_equal(find(w, name, 2, &c), CREDENTIAL_UNKNOWN);
    /* a static user whose name looks like a time: as password only the first colon is special */
    assert_int_equal(credential_store_add_user(w->store, "1700000000:static"), 0);
    assert_int_equal(find(w, "1700000000", 0, &c), CREDENTIAL_FOUND);
    assert_key(w, &c, STUN_PASSWORD_ALGORITHM_MD5, "1700000000", "static");
    assert_int_equal(find(w, "1700000000", 1, &c), CREDENTIAL_EXPIRED);
    assert_int_equal(credential_store_add_user(w->store, "1800000600:static"), 0);
    assert_int_equal(find(w, "1800000600", 2, &c), CREDENTIAL_FOUND);
    assert_key(w, &c, STUN_PASSWORD_ALGORITHM_MD5, "1800000600", "static");
    assert_int_equal(find(w, "1800000600", 3, &c), CREDENTIAL_UNKNOWN);
}

static void separator_can_be_another(void **state) {
    struct world *w = *state;
    const struct credential_params params = {realm, '|', false};
    struct credential_store *store;
    struct credential c;
    struct credential_query query = query_of("1800000600|a:b");
    assert_int_equal(credential_store_create(&store, &params), 0);
    assert_int_equal(credential_store_add_secret(store, "north"), 0);
    assert_int_equal(credential_find(store, w->crypto, &query, 0, &c), CREDENTIAL_FOUND);
    assert_user_part(&c, "a:b");
    query = query_of("1800000600:alice");
    assert_int_equal(credential_find(store, w->crypto, &query, 0, &c), CREDENTIAL_UNKNOWN);
    credential_store_destroy(store);
}

static void names_with_nul_or_too_long_are_unknown(void **state) {
    struct world *w = *state;
    char name[600];
    struct credential c;
    assert_int_equal(credential_store_add_user(w->store, "alice:wonder"), 0);
    assert_int_equal(credential_store_add_secret(w->store, "north"), 0);
    struct credential_query query = query_of("alice");
    query.username = "alice\0x";
    query.n_username = 7;
    assert_int_equal(credential_find(w->store, w->crypto, &query, 0, &c), CREDENTIAL_UNKNOWN);
    query.username = "1800000600:a\0b";
    query.n_username = 14;
    assert_int_equal(credential_find(w->store, w->crypto, &query, 0, &c), CREDENTIAL_UNKNOWN);
    memset(name, 'x', sizeof name);
    memcpy(name, "1800000600:", 11);
    query.username = name;
    query.n_username = STUN_MAX_USERNAME_BYTES;
    assert_int_equal(credential_find(w->store, w->crypto, &query, 0, &c), CREDENTIAL_FOUND);
    assert_int_equal(strlen(c.username), STUN_MAX_USERNAME_BYTES);
    query.n_username = STUN_MAX_USERNAME_BYTES + 1;
    assert_int_equal(credential_find(w->store, w->crypto, &query, 0, &c), CREDENTIAL_UNKNOWN);
}

static void without_secrets_times_mean_nothing(void **state) {
    struct world *w = *state;
    struct credential c;
    assert_int_equal(find(w, "1800000600:alice", 0, &c), CREDENTIAL_UNKNOWN);
    assert_int_equal(find(w, "1:alice", 0, &c), CREDENTIAL_UNKNOWN);
}

static void open_store_says_so(void **state) {
    const struct credential_params params = {NULL, ':', true};
    struct credential_store *store;
    struct world *w = *state;
    assert_false(credential_store_is_open(w->store));
    assert_int_equal(credential_store_create(&store, &params), 0);
    assert_true(credential_store_is_open(store));
    credential_store_destroy(store);
    credential_store_destroy(NULL);
}

static int build_store(struct world *w) {
    const struct credential_params params = {realm, ':', false};
    int err = credential_store_create(&w->store, &params);
    err = err < 0 ? err : credential_store_add_user(w->store, "alice:wonder");
    err = err < 0 ? err : credential_store_add_user(w->store, "bob:0x00112233445566778899aabbccddeeff");
    err = err < 0 ? err : credential_store_add_secret(w->store, "north");
    err = err < 0 ? err : credential_store_add_user(w->store, "alice:other");
    return err == -EEXIST ? 0 : err;
}

static void failed_allocations_are_told_and_leak_nothing(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct world w = {0};
        alloc_fault_arm(n);
        int err = build_store(&w);
        alloc_fault_disarm();
        if (!alloc_fault_hit()) {
            assert_int_equal(err, 0);
            credential_store_destroy(w.store);
            assert_true(n > 8);
            break;
        }
        assert_int_equal(err, -ENOMEM);
        credential_store_destroy(w.store);
    }
}

int main(void) {
#define WITH_WORLD(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_WORLD(static_user_is_found_by_name),
        WITH_WORLD(first_colon_splits_the_line),
        WITH_WORLD(sha256_key_is_derived_as_well),
        WITH_WORLD(user_with_md5_key_has_no_sha256),
        WITH_WORLD(malformed_lines_are_refused),
        WITH_WORLD(second_line_of_a_name_replaces_the_first),
        WITH_WORLD(names_and_passwords_are_prepared),
        WITH_WORLD(userhash_finds_static_users_only),
        WITH_WORLD(many_users_are_each_found),
        WITH_WORLD(rest_names_are_read_in_all_forms),
        WITH_WORLD(names_without_a_time_are_refused),
        WITH_WORLD(expiry_is_checked_to_the_second),
        WITH_WORLD(all_secrets_are_tried_then_static_users),
        WITH_WORLD(separator_can_be_another),
        WITH_WORLD(names_with_nul_or_too_long_are_unknown),
        WITH_WORLD(without_secrets_times_mean_nothing),
        WITH_WORLD(open_store_says_so),
        cmocka_unit_test(failed_allocations_are_told_and_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
