/* The sample messages of RFC 5769 and of RFC 8489, appendix B.1 (as corrected by its erratum). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "stun_integrity.h"

#define MATRIX "\xe3\x83\x9e\xe3\x83\x88\xe3\x83\xaa\xe3\x83\x83\xe3\x82\xaf\xe3\x82\xb9"

static const char sample_request[] =
    "000100582112a442b7e7a701bc34d686fa87dfae802200105354554e207465737420636c69656e74"
    "002400046e0001ff80290008932ff9b151263b36000600096576746a3a68367659202020"
    "000800149aeaa70cbfd8cb56781ef2b5b2d3f249c1b571a280280004e57a3bcf";
static const char sample_response4[] =
    "0101003c2112a442b7e7a701bc34d686fa87dfae8022000b7465737420766563746f7220"
    "002000080001a147e112a643000800142b91f599fd9e90c38c7489f92af9ba53f06be7d7"
    "80280004c07d4c96";
static const char sample_response6[] =
    "010100482112a442b7e7a701bc34d686fa87dfae8022000b7465737420766563746f7220"
    "002000140002a1470113a9faa5d3f179bc25f4b5bed2b9d900080014a382954e4be67bf11784c97c"
    "8292c275bfe3ed4180280004c8fb0b4c";
static const char sample_long_term[] =
    "000100602112a44278ad3433c6ad72c029da412e00060012e3839ee38388e383aae38383e382afe382b9"
    "00000015001c662f2f3439396b39353464364f4c33346f4c394653547679363473410014000b6578616d"
    "706c652e6f72670000080014f67024656dd64a3e02b8e0712e85c9a28ca89666";
static const char sample_sha256[] =
    "000100902112a44278ad3433c6ad72c029da412e"
    "001e00204a3cf38fef6992bda952c6780417da0f24819415569e60b205c46e41407f1704"
    "001500296f624d61744a6f733241414143662f2f3439396b39353464364f4c33346f4c39465354767936347341000000"
    "0014000b6578616d706c652e6f726700001d000400020000"
    "001c0020b5c7bf005b6c52a21c51c5e892f81924136296cb927c43149309278cc6518e65";

struct sample {
    struct stun_crypto *crypto;
    uint8_t bytes[256];
    struct stun_message message;
    struct stun_integrity_place place;
};

static void load(struct sample *s, const char *hex) {
    size_t n_bytes = strlen(hex) / 2;
    assert_true(n_bytes <= sizeof s->bytes);
    for (size_t i = 0; i < n_bytes; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        s->bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    assert_int_equal(stun_crypto_create(&s->crypto), 0);
    assert_true(stun_message_decode(&s->message, s->bytes, n_bytes));
    stun_integrity_find(&s->message, &s->place);
}

static bool is_signed_with(struct sample *s, const struct stun_key *key) {
    return stun_integrity_check(s->crypto, &s->message, &s->place, key);
}

/* The short-term password of the samples is the key as it stands. */
static struct stun_key short_term(const char *password) {
    struct stun_key key = {.n_bytes = (uint8_t)strlen(password)};
    memcpy(key.bytes, password, key.n_bytes);
    return key;
}

static void assert_attribute(const struct sample *s, uint16_t type, const char *text) {
    struct stun_attribute a;
    assert_true(stun_message_find(&s->message, type, &a));
    assert_int_equal(a.n_bytes, strlen(text));
    assert_memory_equal(a.value, text, a.n_bytes);
}

static void check_short_term(struct sample *s) {
    struct stun_key right = short_term("VOkJxbRl1RmTxUk/WvJxBt"),
                    wrong = short_term("VOkJxbRl1RmTxUk/WvJxBT");
    bool has_fingerprint;
    assert_int_equal(s->place.kind, STUN_INTEGRITY_SHA1);
    assert_true(is_signed_with(s, &right));
    assert_false(is_signed_with(s, &wrong));
    assert_true(stun_fingerprint_check(&s->message, &has_fingerprint));
    assert_true(has_fingerprint);
    stun_crypto_destroy(s->crypto);
}

static void sample_2_1_request(void **state) {
    (void)state;
    struct sample s;
    struct stun_attribute a;
    uint32_t priority;
    load(&s, sample_request);
    assert_int_equal(s.message.class, STUN_REQUEST);
    assert_int_equal(s.message.method, STUN_METHOD_BINDING);
    assert_attribute(&s, STUN_ATTR_SOFTWARE, "STUN test client");
    assert_attribute(&s, STUN_ATTR_USERNAME, "evtj:h6vY"); /* padded with spaces */
    assert_true(stun_message_find(&s.message, STUN_ATTR_PRIORITY, &a));
    assert_true(stun_read_u32(&priority, &a));
    assert_int_equal(priority, 0x6e0001ff);
    check_short_term(&s);
}

static void check_mapped(const struct sample *s, const char *text) {
    struct stun_attribute a;
    struct endpoint e;
    char buffer[ENDPOINT_TEXT_BYTES];
    assert_int_equal(s->message.class, STUN_SUCCESS);
    assert_attribute(s, STUN_ATTR_SOFTWARE, "test vector");
    assert_true(stun_message_find(&s->message, STUN_ATTR_XOR_MAPPED_ADDRESS, &a));
    assert_true(stun_read_xor_address(&e, &a, &s->message));
    assert_string_equal(endpoint_format(&e, buffer), text);
}

static void sample_2_2_ipv4_response(void **state) {
    (void)state;
    struct sample s;
    load(&s, sample_response4);
    check_mapped(&s, "192.0.2.1:32853");
    check_short_term(&s);
}

static void sample_2_3_ipv6_response(void **state) {
    (void)state;
    struct sample s;
    load(&s, sample_response6);
    check_mapped(&s, "[2001:db8:1234:5678:11:2233:4455:6677]:32853");
    check_short_term(&s);
}

static void sample_2_4_long_term(void **state) {
    (void)state;
    struct sample s;
    struct stun_key key;
    char *password;
    load(&s, sample_long_term);
    assert_attribute(&s, STUN_ATTR_USERNAME, MATRIX);
    assert_attribute(&s, STUN_ATTR_REALM, "example.org");
    assert_attribute(&s, STUN_ATTR_NONCE, "f//499k954d6OL34oL9FSTvy64sA");
    /* SASLprep takes the soft hyphen out and maps the ordinal and the numeral to letters */
    assert_int_equal(stun_saslprep(&password, "The\xc2\xadM\xc2\xaatr\xe2\x85\xa8"), 0);
    assert_string_equal(password, "TheMatrIX");
    assert_int_equal(stun_key_derive(s.crypto, &key, STUN_PASSWORD_ALGORITHM_MD5, MATRIX, strlen(MATRIX),
                                     "example.org", password),
                     0);
    assert_int_equal(s.place.kind, STUN_INTEGRITY_SHA1);
    assert_true(is_signed_with(&s, &key));
    key.bytes[15] ^= 1;
    assert_false(is_signed_with(&s, &key));
    free(password);
    stun_crypto_destroy(s.crypto);
}

static void sample_2_4_is_rebuilt_byte_for_byte(void **state) {
    (void)state;
    struct sample s;
    struct stun_key key;
    uint8_t bytes[256];
    const char *nonce = "f//499k954d6OL34oL9FSTvy64sA";
    load(&s, sample_long_term);
    assert_int_equal(stun_key_derive(s.crypto, &key, STUN_PASSWORD_ALGORITHM_MD5, MATRIX, strlen(MATRIX),
                                     "example.org", "TheMatrIX"),
                     0);
    struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
    stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_BINDING, s.message.transaction_id);
    stun_write_bytes(&w, STUN_ATTR_USERNAME, MATRIX, strlen(MATRIX));
    stun_write_bytes(&w, STUN_ATTR_NONCE, nonce, strlen(nonce));
    stun_write_bytes(&w, STUN_ATTR_REALM, "example.org", 11);
    stun_integrity_append(s.crypto, &w, STUN_INTEGRITY_SHA1, &key);
    assert_int_equal(stun_message_end(&w), s.message.n_bytes);
    assert_memory_equal(bytes, s.bytes, s.message.n_bytes);
    stun_crypto_destroy(s.crypto);
}

static void sample_b_1_userhash_and_sha256(void **state) {
    (void)state;
    struct sample s;
    struct stun_key key;
    struct stun_attribute a;
    uint8_t userhash[STUN_USERHASH_BYTES];
    uint16_t algorithm;
    load(&s, sample_sha256);
    assert_true(stun_message_find(&s.message, STUN_ATTR_USERHASH, &a));
    assert_true(stun_userhash(s.crypto, userhash, MATRIX, strlen(MATRIX), "example.org"));
    assert_int_equal(a.n_bytes, sizeof userhash);
    assert_memory_equal(a.value, userhash, sizeof userhash);
    assert_true(stun_message_find(&s.message, STUN_ATTR_PASSWORD_ALGORITHM, &a));
    assert_true(stun_read_password_algorithm(&algorithm, &a));
    assert_int_equal(algorithm, STUN_PASSWORD_ALGORITHM_SHA256);
    assert_int_equal(
        stun_key_derive(s.crypto, &key, algorithm, MATRIX, strlen(MATRIX), "example.org", "TheMatrIX"), 0);
    assert_int_equal(s.place.kind, STUN_INTEGRITY_SHA256);
    assert_true(is_signed_with(&s, &key));
    s.bytes[30] ^= 1;
    assert_false(is_signed_with(&s, &key));
    stun_crypto_destroy(s.crypto);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sample_2_1_request),
        cmocka_unit_test(sample_2_2_ipv4_response),
        cmocka_unit_test(sample_2_3_ipv6_response),
        cmocka_unit_test(sample_2_4_long_term),
        cmocka_unit_test(sample_2_4_is_rebuilt_byte_for_byte),
        cmocka_unit_test(sample_b_1_userhash_and_sha256),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
