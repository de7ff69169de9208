#include "stun_integrity.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "alloc_fault.h"
#include "crc32.h"

static const uint8_t id[STUN_TRANSACTION_ID_BYTES] = "twelve bytes";

static int setup(void **state) {
    struct stun_crypto *crypto;
    int err = stun_crypto_create(&crypto);
    *state = err == 0 ? crypto : NULL;
    return err;
}

static int teardown(void **state) {
    stun_crypto_destroy(*state);
    return 0;
}

static void to_hex(char *out, const uint8_t *bytes, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) {
        sprintf(out + 2 * i, "%02x", bytes[i]);
    }
}

/* A message with USERNAME, the integrity of kind, and FINGERPRINT if wanted; returns its length. */
struct message_bytes {
    uint8_t bytes[256];
    size_t n_bytes;
};

static struct stun_key key_of(const char *text) {
    struct stun_key key = {.n_bytes = (uint8_t)strlen(text)};
    memcpy(key.bytes, text, key.n_bytes);
    return key;
}

static struct message_bytes compose(struct stun_crypto *crypto, enum stun_integrity_kind kind,
                                    bool with_fingerprint) {
    struct message_bytes m;
    struct stun_key key = key_of("secret");
    struct wire_writer w = wire_writer_over(m.bytes, sizeof m.bytes);
    stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_REFRESH, id);
    stun_write_bytes(&w, STUN_ATTR_USERNAME, "alice", 5);
    stun_integrity_append(crypto, &w, kind, &key);
    if (with_fingerprint) {
        stun_fingerprint_append(&w);
    }
    m.n_bytes = stun_message_end(&w);
    assert_true(m.n_bytes > 0);
    return m;
}

static bool is_valid(struct stun_crypto *crypto, const struct message_bytes *m, const char *key_text) {
    struct stun_message message;
    struct stun_integrity_place place;
    struct stun_key key = key_of(key_text);
    if (!stun_message_decode(&message, m->bytes, m->n_bytes)) {
        return false;
    }
    stun_integrity_find(&message, &place);
    return stun_integrity_check(crypto, &message, &place, &key);
}

static void a_change_of_any_byte_is_noticed(void **state) {
    for (int kind = STUN_INTEGRITY_SHA1; kind <= STUN_INTEGRITY_SHA256; kind++) {
        struct message_bytes good = compose(*state, (enum stun_integrity_kind)kind, false);
        assert_true(is_valid(*state, &good, "secret"));
        assert_false(is_valid(*state, &good, "secreT"));
        for (size_t i = 0; i < good.n_bytes; i++) {
            for (unsigned bit = 0; bit < 8; bit++) {
                struct message_bytes bad = good;
                bad.bytes[i] ^= (uint8_t)(1u << bit);
                assert_false(is_valid(*state, &bad, "secret"));
            }
        }
    }
}

static void a_fingerprint_after_integrity_does_not_disturb_it(void **state) {
    for (int kind = STUN_INTEGRITY_SHA1; kind <= STUN_INTEGRITY_SHA256; kind++) {
        struct message_bytes m = compose(*state, (enum stun_integrity_kind)kind, true);
        struct stun_message message;
        bool has_fingerprint = false;
        assert_true(is_valid(*state, &m, "secret"));
        assert_true(stun_message_decode(&message, m.bytes, m.n_bytes));
        assert_true(stun_fingerprint_check(&message, &has_fingerprint));
        assert_true(has_fingerprint);
        for (size_t i = 0; i < m.n_bytes; i++) {
            struct message_bytes bad = m;
            bad.bytes[i] ^= 0x10;
            bool decodes = stun_message_decode(&message, bad.bytes, bad.n_bytes);
            /* FINGERPRINT's own type turned into another leaves none */
            assert_true(!decodes || !stun_fingerprint_check(&message, &has_fingerprint) || !has_fingerprint);
        }
    }
}

static void a_message_without_integrity_is_never_valid(void **state) {
    struct message_bytes m = compose(*state, STUN_INTEGRITY_NONE, false);
    struct stun_message message;
    struct stun_integrity_place place;
    assert_true(stun_message_decode(&message, m.bytes, m.n_bytes));
    stun_integrity_find(&message, &place);
    assert_int_equal(place.kind, STUN_INTEGRITY_NONE);
    assert_int_equal(place.limit, m.n_bytes);
    assert_false(is_valid(*state, &m, "secret"));
}

static void an_empty_key_is_never_right(void **state) {
    struct message_bytes m;
    struct stun_key none = {0};
    struct wire_writer w = wire_writer_over(m.bytes, sizeof m.bytes);
    stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_REFRESH, id);
    stun_integrity_append(*state, &w, STUN_INTEGRITY_SHA1, &none);
    m.n_bytes = stun_message_end(&w);
    assert_true(m.n_bytes > 0);
    assert_false(is_valid(*state, &m, ""));
}

/* The place of integrity in a message that has the attributes of the given types, four bytes of value each.
 */
static struct stun_integrity_place place_in(const uint16_t *types, size_t n_types) {
    static uint8_t bytes[256];
    struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
    struct stun_message message;
    struct stun_integrity_place place;
    stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_REFRESH, id);
    for (size_t i = 0; i < n_types; i++) {
        stun_write_u32(&w, types[i], 0);
    }
    assert_true(stun_message_decode(&message, bytes, stun_message_end(&w)));
    stun_integrity_find(&message, &place);
    return place;
}

static void what_follows_integrity_is_outside_the_limit(void **state) {
    (void)state;
    enum {
        MI = STUN_ATTR_MESSAGE_INTEGRITY,
        MI256 = STUN_ATTR_MESSAGE_INTEGRITY_SHA256,
        X = STUN_ATTR_LIFETIME
    };
    const struct {
        uint16_t types[4];
        size_t n_types;
        enum stun_integrity_kind kind;
        unsigned at, limit; /* which attribute counts, and from which on all is ignored */
    } cases[] = {
        {{X, X}, 2, STUN_INTEGRITY_NONE, 0, 2},
        {{X, MI}, 2, STUN_INTEGRITY_SHA1, 1, 1},
        {{X, MI, X}, 3, STUN_INTEGRITY_SHA1, 1, 1},
        {{MI, X, MI}, 3, STUN_INTEGRITY_SHA1, 0, 0}, /* the first counts */
        {{X, MI256, X}, 3, STUN_INTEGRITY_SHA256, 1, 1},
        {{X, MI, MI256, X}, 4, STUN_INTEGRITY_SHA256, 2, 1},
        {{X, MI, X, MI256}, 4, STUN_INTEGRITY_SHA256, 3, 1}, /* what stands between is ignored */
        {{X, MI256, MI, X}, 4, STUN_INTEGRITY_SHA256, 1, 1},
        {{MI256, MI256}, 2, STUN_INTEGRITY_SHA256, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stun_integrity_place place = place_in(cases[i].types, cases[i].n_types);
        assert_int_equal(place.kind, cases[i].kind);
        assert_int_equal(place.limit, STUN_HEADER_BYTES + 8 * cases[i].limit);
        if (place.kind != STUN_INTEGRITY_NONE) {
            assert_int_equal(place.attribute.offset, STUN_HEADER_BYTES + 8 * cases[i].at);
        }
    }
}

static void both_integrity_attributes_are_each_over_what_precedes(void **state) {
    struct message_bytes m;
    struct stun_key key = key_of("secret");
    struct stun_message message;
    struct stun_integrity_place place;
    struct wire_writer w = wire_writer_over(m.bytes, sizeof m.bytes);
    stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_REFRESH, id);
    stun_write_u32(&w, STUN_ATTR_LIFETIME, 600);
    stun_integrity_append(*state, &w, STUN_INTEGRITY_SHA1, &key);
    stun_integrity_append(*state, &w, STUN_INTEGRITY_SHA256, &key);
    stun_write_u32(&w, STUN_ATTR_LIFETIME, 700); /* appended by somebody else */
    m.n_bytes = stun_message_end(&w);
    assert_true(stun_message_decode(&message, m.bytes, m.n_bytes));
    stun_integrity_find(&message, &place);
    assert_int_equal(place.kind, STUN_INTEGRITY_SHA256);
    assert_true(stun_integrity_check(*state, &message, &place, &key));
    struct stun_integrity_place sha1 = {.kind = STUN_INTEGRITY_SHA1};
    assert_true(stun_message_find(&message, STUN_ATTR_MESSAGE_INTEGRITY, &sha1.attribute));
    assert_true(stun_integrity_check(*state, &message, &sha1, &key));
    m.bytes[28 + 4] ^= 1; /* in SHA-1's value: SHA-256 covers it */
    assert_false(stun_integrity_check(*state, &message, &place, &key));
    assert_false(stun_integrity_check(*state, &message, &sha1, &key));
}

/* A right SHA-256 value, cut to n bytes and the length in the header with it. */
static bool truncated_is_valid(struct stun_crypto *crypto, size_t n_value) {
    struct message_bytes m;
    uint8_t mac[32], covered[256];
    struct wire_writer w = wire_writer_over(m.bytes, sizeof m.bytes);
    stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_REFRESH, id);
    stun_write_bytes(&w, STUN_ATTR_USERNAME, "alice", 5);
    size_t n_before = stun_message_end(&w);
    memcpy(covered, m.bytes, n_before);
    wire_put_u16(covered + 2, (uint16_t)(n_before - STUN_HEADER_BYTES + 4 + n_value));
    assert_true(stun_hmac_sha256(crypto, mac, sizeof mac, "secret", 6, covered, n_before));
    uint8_t value[40] = {0};
    memcpy(value, mac, sizeof mac);
    stun_write_bytes(&w, STUN_ATTR_MESSAGE_INTEGRITY_SHA256, value, n_value);
    m.n_bytes = stun_message_end(&w);
    return is_valid(crypto, &m, "secret");
}

static void sha256_may_be_cut_to_a_multiple_of_four_from_16_on(void **state) {
    for (size_t n = 0; n <= 40; n++) {
        assert_int_equal(truncated_is_valid(*state, n), n >= 16 && n <= 32 && n % 4 == 0);
    }
}

static void sha1_has_exactly_20_bytes(void **state) {
    struct message_bytes m = compose(*state, STUN_INTEGRITY_SHA1, false);
    struct stun_message message;
    struct stun_integrity_place place;
    struct stun_key key = key_of("secret");
    assert_true(stun_message_decode(&message, m.bytes, m.n_bytes));
    stun_integrity_find(&message, &place);
    for (uint16_t n = 0; n < 20; n++) {
        place.attribute.n_bytes = n;
        assert_false(stun_integrity_check(*state, &message, &place, &key));
    }
}

static void appending_without_room_fails_the_writer(void **state) {
    struct stun_key key = key_of("secret");
    uint8_t bytes[128];
    const struct {
        enum stun_integrity_kind kind;
        size_t n_needed;
    } cases[] = {{STUN_INTEGRITY_SHA1, 24}, {STUN_INTEGRITY_SHA256, 36}};
    for (size_t i = 0; i < 2; i++) {
        for (size_t room = 0; room <= STUN_HEADER_BYTES + cases[i].n_needed; room++) {
            struct wire_writer w = wire_writer_over(bytes, room);
            stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_REFRESH, id);
            stun_integrity_append(*state, &w, cases[i].kind, &key);
            assert_int_equal(w.failed, room < STUN_HEADER_BYTES + cases[i].n_needed);
        }
    }
    for (size_t room = 0; room <= STUN_HEADER_BYTES + 8; room++) {
        struct wire_writer w = wire_writer_over(bytes, room);
        stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_REFRESH, id);
        stun_fingerprint_append(&w);
        assert_int_equal(w.failed, room < STUN_HEADER_BYTES + 8);
    }
}

static void a_fingerprint_must_be_last_and_four_bytes(void **state) {
    (void)state;
    uint8_t bytes[64];
    struct stun_message message;
    bool present;
    struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
    stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_BINDING, id);
    assert_true(stun_message_decode(&message, bytes, stun_message_end(&w)));
    assert_true(stun_fingerprint_check(&message, &present)); /* absent */
    assert_false(present);
    stun_fingerprint_append(&w);
    assert_true(stun_message_decode(&message, bytes, stun_message_end(&w)));
    assert_true(stun_fingerprint_check(&message, &present));
    assert_true(present);
    stun_write_u32(&w, STUN_ATTR_LIFETIME, 1);
    assert_true(stun_message_decode(&message, bytes, stun_message_end(&w)));
    assert_false(stun_fingerprint_check(&message, &present));
    assert_true(present);
    w = wire_writer_over(bytes, sizeof bytes);
    stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_BINDING, id);
    stun_write_bytes(&w, STUN_ATTR_FINGERPRINT, "12345678", 8);
    assert_true(stun_message_decode(&message, bytes, stun_message_end(&w)));
    assert_false(stun_fingerprint_check(&message, &present));
}

static void crc32_of_the_check_string(void **state) {
    (void)state;
    assert_int_equal(crc32_update(0, "123456789", 9), 0xCBF43926);
    assert_int_equal(crc32_update(crc32_update(0, "1234", 4), "56789", 5), 0xCBF43926);
    assert_int_equal(crc32_update(0, "", 0), 0);
}

static void long_term_keys(void **state) {
    struct stun_key key;
    char hex[65];
    assert_int_equal(stun_key_derive(*state, &key, STUN_PASSWORD_ALGORITHM_MD5, "user", 4, "realm", "pass"),
                     0);
    to_hex(hex, key.bytes, key.n_bytes);
    assert_string_equal(hex, "8493fbc53ba582fb4c044c456bdc40eb"); /* RFC 8489, 9.2.2 */
    assert_int_equal(
        stun_key_derive(*state, &key, STUN_PASSWORD_ALGORITHM_SHA256, "user", 4, "realm", "pass"), 0);
    to_hex(hex, key.bytes, key.n_bytes);
    assert_string_equal(hex, "07e934117abd40836e7c6329b54731b2b2d2a5f9a71f544922d75e0730d8251b");
    assert_int_equal(stun_key_derive(*state, &key, 3, "user", 4, "realm", "pass"), -EINVAL);
    assert_int_equal(key.n_bytes, 0);
    assert_int_equal(stun_key_derive(*state, &key, 0, "user", 4, "realm", "pass"), -EINVAL);
    /* the name is counted, not ended by NUL */
    struct stun_key longer;
    assert_int_equal(stun_key_derive(*state, &key, 1, "user", 4, "realm", "pass"), 0);
    assert_int_equal(stun_key_derive(*state, &longer, 1, "userX", 4, "realm", "pass"), 0);
    assert_memory_equal(&key, &longer, sizeof key);
}

static void rest_passwords(void **state) {
    char password[32];
    const char *username = "1433895918:ninefingers";
    assert_true(stun_rest_password(*state, password, "north", username, strlen(username)));
    assert_string_equal(password, "jy8hTxmOO7UtEKXqSkSlvakPVYA=");
    assert_true(stun_rest_password(*state, password, "", username, strlen(username)));
    assert_string_equal(password, "1n/vojdbTGsbDKs+WRdVu0tCK+s=");
}

static void hmac_sha256_is_truncated_from_the_left(void **state) {
    uint8_t mac[32], part[33] = {0};
    char hex[65];
    assert_true(stun_hmac_sha256(*state, mac, 32, "Jefe", 4, "what do ya want for nothing?", 28));
    to_hex(hex, mac, 32);
    assert_string_equal(hex,
                        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"); /* RFC 4231 */
    for (size_t n = 0; n <= 32; n++) {
        part[n] = 0x77;
        assert_true(stun_hmac_sha256(*state, part, n, "Jefe", 4, "what do ya want for nothing?", 28));
        assert_memory_equal(part, mac, n);
        assert_int_equal(part[n], 0x77);
    }
    part[0] = 0x77;
    assert_false(stun_hmac_sha256(*state, part, 33, "Jefe", 4, "", 0));
    assert_int_equal(part[0], 0x77);
    /* a key of nothing is not the key of before */
    assert_true(stun_hmac_sha256(*state, part, 32, "", 0, "", 0));
    to_hex(hex, part, 32);
    assert_string_equal(hex, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

static void saslprep(void **state) {
    (void)state;
    const struct {
        const char *in, *out; /* RFC 4013, 3, and more; NULL: refused */
    } cases[] = {
        {"I\xc2\xadX", "IX"},
        {"user", "user"},
        {"USER", "USER"},
        {"\xc2\xaa", "a"},
        {"\xe2\x85\xa8", "IX"},
        {"\x07", NULL},
        {"\xd8\xa7\x31", NULL}, /* RandALCat and a digit at the end */
        {"", ""},
        {"a b", "a b"},
        {"a\xc2\xa0"
         "b",
         "a b"}, /* a space that is not ASCII */
        {"a\x7f", NULL},
        {"\xff", NULL},     /* no UTF-8 */
        {"\xc3", NULL},     /* cut off */
        {"\xc8\xa1", NULL}, /* unassigned in Unicode 3.2: no stored string */
        {"e\xcc\x81", "\xc3\xa9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out = NULL;
        int err = stun_saslprep(&out, cases[i].in);
        if (cases[i].out == NULL) {
            assert_int_equal(err, -EINVAL);
            continue;
        }
        assert_int_equal(err, 0);
        assert_string_equal(out, cases[i].out);
        free(out);
    }
}

static void comparing_looks_at_every_byte(void **state) {
    (void)state;
    uint8_t a[32] = {0}, b[32] = {0};
    assert_true(stun_equal_constant_time(a, b, 32));
    for (size_t i = 0; i < 32; i++) {
        b[i] ^= 0x80;
        assert_false(stun_equal_constant_time(a, b, 32));
        assert_true(stun_equal_constant_time(a, b, i));
        b[i] ^= 0x80;
    }
}

static void out_of_memory_is_reported(void **state) {
    (void)state;
    struct stun_crypto *crypto;
    char *text;
    alloc_fault_arm(1);
    assert_int_equal(stun_crypto_create(&crypto), -ENOMEM);
    alloc_fault_arm(1);
    assert_int_equal(stun_saslprep(&text, "plain"), -ENOMEM);
    alloc_fault_disarm();
    stun_crypto_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_of_any_byte_is_noticed),
        cmocka_unit_test(a_fingerprint_after_integrity_does_not_disturb_it),
        cmocka_unit_test(a_message_without_integrity_is_never_valid),
        cmocka_unit_test(an_empty_key_is_never_right),
        cmocka_unit_test(what_follows_integrity_is_outside_the_limit),
        cmocka_unit_test(both_integrity_attributes_are_each_over_what_precedes),
        cmocka_unit_test(sha256_may_be_cut_to_a_multiple_of_four_from_16_on),
        cmocka_unit_test(sha1_has_exactly_20_bytes),
        cmocka_unit_test(appending_without_room_fails_the_writer),
        cmocka_unit_test(a_fingerprint_must_be_last_and_four_bytes),
        cmocka_unit_test(crc32_of_the_check_string),
        cmocka_unit_test(long_term_keys),
        cmocka_unit_test(rest_passwords),
        cmocka_unit_test(hmac_sha256_is_truncated_from_the_left),
        cmocka_unit_test(saslprep),
        cmocka_unit_test(comparing_looks_at_every_byte),
        cmocka_unit_test(out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
