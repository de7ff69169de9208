#include "stun_attribute.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const uint8_t id[STUN_TRANSACTION_ID_BYTES] = "twelve bytes";
static const struct endpoint v4 = {.family = AF_INET, .port = 0x8055, .ip = {192, 0, 2, 1}};
static const struct endpoint v6 = {
    .family = AF_INET6, .port = 65535, .ip = {0x20, 1, 0xd, 0xb8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};

/* One message with one attribute, as written by the code under test. */
struct written {
    uint8_t bytes[128];
    struct wire_writer w;
    struct stun_message message;
    struct stun_attribute a;
};

static void begin(struct written *t) {
    memset(t, 0xee, sizeof *t);
    t->w = wire_writer_over(t->bytes, sizeof t->bytes);
    stun_message_begin(&t->w, STUN_REQUEST, STUN_METHOD_BINDING, id);
}

static void end(struct written *t, uint16_t type, const void *value, size_t n_value) {
    size_t n_bytes = stun_message_end(&t->w);
    assert_true(stun_message_decode(&t->message, t->bytes, n_bytes));
    assert_true(stun_message_find(&t->message, type, &t->a));
    assert_int_equal(t->a.n_bytes, n_value);
    assert_memory_equal(t->a.value, value, n_value);
    for (size_t i = t->a.offset + 4 + n_value; i < n_bytes; i++) {
        assert_int_equal(t->bytes[i], 0);
    }
}

/* An attribute over a copy of the value that is exactly as long, so that a sanitizer sees every read past it.
 */
static struct stun_attribute value_of(const void *value, size_t n_bytes) {
    uint8_t *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, value, n_bytes);
    return (struct stun_attribute){.type = 1, .n_bytes = (uint16_t)n_bytes, .value = copy, .offset = 20};
}

static void drop(struct stun_attribute *a) {
    free((void *)(uintptr_t)a->value);
}

/* Every reader here takes a value of n_good bytes and of no other length. */
#define ASSERT_ONLY_LENGTH(n_good, read_call)                                                                \
    for (size_t n = 0; n <= 40; n++) {                                                                       \
        struct stun_attribute a = value_of(zeros, n);                                                        \
        assert_int_equal((read_call), n == (n_good));                                                        \
        drop(&a);                                                                                            \
    }

static const uint8_t zeros[40];

static void fixed_values_have_exactly_their_length(void **state) {
    (void)state;
    uint32_t u32;
    uint16_t u16;
    uint8_t u8;
    bool flag;
    ASSERT_ONLY_LENGTH(4, stun_read_u32(&u32, &a));
    ASSERT_ONLY_LENGTH(4, stun_read_u16_reserved(&u16, &a));
    ASSERT_ONLY_LENGTH(4, stun_read_u8_reserved(&u8, &a));
    ASSERT_ONLY_LENGTH(1, stun_read_even_port(&flag, &a));
    ASSERT_ONLY_LENGTH(8, stun_read_icmp(&u8, &u16, &u32, &a));
    ASSERT_ONLY_LENGTH(4, stun_read_password_algorithm(&u16, &a));
}

static void numbers_come_back(void **state) {
    (void)state;
    struct written t;
    uint32_t u32;
    uint16_t u16;
    uint8_t u8;
    begin(&t);
    stun_write_u32(&t.w, STUN_ATTR_LIFETIME, 0xfedcba98);
    end(&t, STUN_ATTR_LIFETIME, "\xfe\xdc\xba\x98", 4);
    assert_true(stun_read_u32(&u32, &t.a));
    assert_int_equal(u32, 0xfedcba98);
    begin(&t);
    stun_write_u16_reserved(&t.w, STUN_ATTR_CHANNEL_NUMBER, 0xfedc);
    end(&t, STUN_ATTR_CHANNEL_NUMBER, "\xfe\xdc\0\0", 4);
    assert_true(stun_read_u16_reserved(&u16, &t.a));
    assert_int_equal(u16, 0xfedc);
    begin(&t);
    stun_write_u8_reserved(&t.w, STUN_ATTR_REQUESTED_TRANSPORT, 0xfe);
    end(&t, STUN_ATTR_REQUESTED_TRANSPORT, "\xfe\0\0\0", 4);
    assert_true(stun_read_u8_reserved(&u8, &t.a));
    assert_int_equal(u8, 0xfe);
}

static void reserved_bytes_are_ignored(void **state) {
    (void)state;
    struct stun_attribute a = value_of("\x40\x01\xff\xff", 4);
    uint16_t u16;
    uint8_t u8;
    assert_true(stun_read_u16_reserved(&u16, &a));
    assert_int_equal(u16, 0x4001);
    assert_true(stun_read_u8_reserved(&u8, &a));
    assert_int_equal(u8, 0x40);
    drop(&a);
}

static void even_port_is_the_top_bit(void **state) {
    (void)state;
    for (int reserve = 0; reserve <= 1; reserve++) {
        struct written t;
        bool flag;
        begin(&t);
        stun_write_even_port(&t.w, reserve == 1);
        end(&t, STUN_ATTR_EVEN_PORT, reserve == 1 ? "\x80" : "\0", 1);
        assert_true(stun_read_even_port(&flag, &t.a));
        assert_int_equal(flag, reserve);
    }
    struct stun_attribute low = value_of("\x7f", 1), high = value_of("\xff", 1);
    bool flag;
    assert_true(stun_read_even_port(&flag, &low));
    assert_false(flag);
    assert_true(stun_read_even_port(&flag, &high));
    assert_true(flag);
    drop(&low), drop(&high);
}

static void plain_addresses_come_back(void **state) {
    (void)state;
    struct written t;
    struct endpoint e;
    begin(&t);
    stun_write_address(&t.w, STUN_ATTR_MAPPED_ADDRESS, &v4);
    end(&t, STUN_ATTR_MAPPED_ADDRESS, "\0\x01\x80\x55\xc0\0\x02\x01", 8);
    assert_true(stun_read_address(&e, &t.a));
    assert_true(endpoint_equal(&e, &v4));
    begin(&t);
    stun_write_address(&t.w, STUN_ATTR_OTHER_ADDRESS, &v6);
    end(&t, STUN_ATTR_OTHER_ADDRESS,
        "\0\x02\xff\xff\x20\x01\x0d\xb8\0\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b", 20);
    assert_true(stun_read_address(&e, &t.a));
    assert_true(endpoint_equal(&e, &v6));
}

static void xor_addresses_are_masked_with_cookie_and_id(void **state) {
    (void)state;
    struct written t;
    struct endpoint e;
    begin(&t);
    stun_write_xor_address(&t.w, STUN_ATTR_XOR_PEER_ADDRESS, &v4, id);
    end(&t, STUN_ATTR_XOR_PEER_ADDRESS, "\0\x01\xa1\x47\xe1\x12\xa6\x43", 8);
    assert_true(stun_read_xor_address(&e, &t.a, &t.message));
    assert_true(endpoint_equal(&e, &v4));
    uint8_t expected[20] = {0,           2,           0xff ^ 0x21, 0xff ^ 0x12,
                            0x20 ^ 0x21, 0x01 ^ 0x12, 0x0d ^ 0xa4, 0xb8 ^ 0x42};
    for (size_t i = 0; i < STUN_TRANSACTION_ID_BYTES; i++) {
        expected[8 + i] = v6.ip[4 + i] ^ id[i];
    }
    begin(&t);
    stun_write_xor_address(&t.w, STUN_ATTR_XOR_RELAYED_ADDRESS, &v6, id);
    end(&t, STUN_ATTR_XOR_RELAYED_ADDRESS, expected, 20);
    assert_true(stun_read_xor_address(&e, &t.a, &t.message));
    assert_true(endpoint_equal(&e, &v6));
}

static void an_address_has_the_length_of_its_family(void **state) {
    (void)state;
    for (unsigned family = 0; family <= 255; family++) {
        for (size_t n = 0; n <= 24; n++) {
            uint8_t value[24] = {0x99, (uint8_t)family}; /* the first byte is ignored */
            struct stun_attribute a = value_of(value, n);
            struct endpoint e;
            bool is_good = (family == 1 && n == 8) || (family == 2 && n == 20);
            assert_int_equal(stun_read_address(&e, &a), is_good);
            drop(&a);
        }
    }
}

static void an_address_of_no_family_cannot_be_written(void **state) {
    (void)state;
    const struct endpoint none = {0};
    struct written t;
    begin(&t);
    stun_write_address(&t.w, STUN_ATTR_MAPPED_ADDRESS, &none);
    assert_true(t.w.failed);
    begin(&t);
    stun_write_xor_address(&t.w, STUN_ATTR_XOR_MAPPED_ADDRESS, &none, id);
    assert_true(t.w.failed);
}

static void error_codes(void **state) {
    (void)state;
    struct written t;
    uint16_t code;
    begin(&t);
    stun_write_error(&t.w, STUN_STALE_NONCE, NULL);
    end(&t, STUN_ATTR_ERROR_CODE, "\0\0\x04\x26Stale Nonce", 15);
    assert_true(stun_read_error(&code, &t.a));
    assert_int_equal(code, 438);
    begin(&t);
    stun_write_error(&t.w, STUN_TRY_ALTERNATE, "");
    end(&t, STUN_ATTR_ERROR_CODE, "\0\0\x03\0", 4);
    const struct {
        const char *value;
        size_t n_bytes;
        uint16_t code; /* 0: malformed */
    } cases[] = {
        {"\xff\xff\xfb\x63", 4, 399},
        {"\0\0\x03\x00", 4, 300},
        {"\0\0\x06\x63", 4, 699},
        {"\0\0\x06\x64", 4, 0},
        {"\0\0\x02\x00", 4, 0},
        {"\0\0\x07\x00", 4, 0},
        {"\0\0\x04", 3, 0},
        {"\0\0\0\0", 4, 0},
        {"", 0, 0},
        {"\0\0\x04\x01Unauthorized", 16, 401},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stun_attribute a = value_of(cases[i].value, cases[i].n_bytes);
        assert_int_equal(stun_read_error(&code, &a), cases[i].code != 0);
        assert_true(cases[i].code == 0 || code == cases[i].code);
        drop(&a);
    }
}

static void address_error_codes(void **state) {
    (void)state;
    struct written t;
    uint16_t code;
    uint8_t family;
    begin(&t);
    stun_write_address_error(&t.w, STUN_FAMILY_IPV6, STUN_ADDRESS_FAMILY_NOT_SUPPORTED);
    end(&t, STUN_ATTR_ADDRESS_ERROR_CODE,
        "\x02\0\x04\x28"
        "Address Family not Supported",
        32);
    assert_true(stun_read_address_error(&family, &code, &t.a));
    assert_int_equal(family, STUN_FAMILY_IPV6);
    assert_int_equal(code, 440);
    for (unsigned f = 0; f <= 3; f++) {
        uint8_t value[4] = {(uint8_t)f, 0xff, 0xfc, 0x28};
        struct stun_attribute a = value_of(value, 4);
        assert_int_equal(stun_read_address_error(&family, &code, &a), f == 1 || f == 2);
        a.n_bytes = 3;
        assert_false(stun_read_address_error(&family, &code, &a));
        drop(&a);
    }
}

static void unknown_attributes(void **state) {
    (void)state;
    struct written t;
    const uint16_t types[] = {0x7fff, 0x0001, 0x1234};
    begin(&t);
    stun_write_unknown(&t.w, types, 3);
    end(&t, STUN_ATTR_UNKNOWN_ATTRIBUTES, "\x7f\xff\0\x01\x12\x34", 6);
    begin(&t);
    stun_write_unknown(&t.w, types, 0);
    end(&t, STUN_ATTR_UNKNOWN_ATTRIBUTES, "", 0);
    assert_true(stun_attribute_is_required(0x7fff));
    assert_false(stun_attribute_is_required(0x8000));
}

static void icmp_has_seven_and_nine_bits(void **state) {
    (void)state;
    struct written t;
    uint8_t type;
    uint16_t code;
    uint32_t data;
    begin(&t);
    stun_write_icmp(&t.w, 3, 4, 1400);
    end(&t, STUN_ATTR_ICMP, "\0\0\x06\x04\0\0\x05\x78", 8);
    assert_true(stun_read_icmp(&type, &code, &data, &t.a));
    assert_int_equal(type, 3);
    assert_int_equal(code, 4);
    assert_int_equal(data, 1400);
    begin(&t);
    stun_write_icmp(&t.w, 127, 511, UINT32_MAX);
    end(&t, STUN_ATTR_ICMP, "\0\0\xff\xff\xff\xff\xff\xff", 8);
    assert_true(stun_read_icmp(&type, &code, &data, &t.a));
    assert_int_equal(type, 127);
    assert_int_equal(code, 511);
}

static void one_password_algorithm(void **state) {
    (void)state;
    struct written t;
    uint16_t algorithm;
    begin(&t);
    stun_write_password_algorithm(&t.w, STUN_PASSWORD_ALGORITHM_SHA256);
    end(&t, STUN_ATTR_PASSWORD_ALGORITHM, "\0\x02\0\0", 4);
    assert_true(stun_read_password_algorithm(&algorithm, &t.a));
    assert_int_equal(algorithm, 2);
    const struct {
        const char *value;
        size_t n_bytes;
        bool good;
    } cases[] = {
        {"\0\x09\0\x03xyz\0", 8, true},                                    /* parameters of an unknown one */
        {"\0\x09\0\x03xyz", 7, false},                                     /* without padding */
        {"\0\x09\0\x05xyzu", 8, false},                                    /* beyond the value */
        {"\0\x09\xff\xffxyzu", 8, false},  {"\0\x02\0\x04xyzu", 8, false}, /* SHA-256 has none */
        {"\0\x01\0\x01x\0\0\0", 8, false}, {"\0\x01\0\0\0\0\0\0", 8, false}, /* a second one */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stun_attribute a = value_of(cases[i].value, cases[i].n_bytes);
        assert_int_equal(stun_read_password_algorithm(&algorithm, &a), cases[i].good);
        drop(&a);
    }
}

static void lists_of_password_algorithms(void **state) {
    (void)state;
    struct written t;
    const uint16_t both[] = {STUN_PASSWORD_ALGORITHM_SHA256, STUN_PASSWORD_ALGORITHM_MD5};
    uint16_t out[4] = {0};
    size_t n;
    begin(&t);
    stun_write_password_algorithms(&t.w, both, 2);
    end(&t, STUN_ATTR_PASSWORD_ALGORITHMS, "\0\x02\0\0\0\x01\0\0", 8);
    assert_true(stun_read_password_algorithms(out, 4, &n, &t.a));
    assert_int_equal(n, 2);
    assert_memory_equal(out, both, sizeof both);
    out[1] = 77;
    assert_true(stun_read_password_algorithms(out, 1, &n, &t.a)); /* no more than there is room for */
    assert_int_equal(n, 1);
    assert_int_equal(out[1], 77);

    struct stun_attribute mixed = value_of("\0\x07\0\x02xy\0\0\0\x02\0\0", 12);
    assert_true(stun_read_password_algorithms(out, 4, &n, &mixed));
    assert_int_equal(n, 2);
    assert_int_equal(out[0], 7);
    assert_int_equal(out[1], 2);
    for (uint16_t cut = 0; cut < 12; cut++) {
        mixed.n_bytes = cut;
        assert_int_equal(stun_read_password_algorithms(out, 4, &n, &mixed), cut == 8);
    }
    drop(&mixed);
}

static void the_data_indication_header_equals_a_written_message(void **state) {
    (void)state;
    const struct endpoint *peers[] = {&v4, &v6};
    for (size_t i = 0; i < 2; i++) {
        for (uint16_t n_payload = 0; n_payload <= 9; n_payload++) {
            uint8_t expected[128], bytes[128] = {0};
            struct wire_writer w = wire_writer_over(expected, sizeof expected);
            stun_message_begin(&w, STUN_INDICATION, STUN_METHOD_DATA, id);
            stun_write_xor_address(&w, STUN_ATTR_XOR_PEER_ADDRESS, peers[i], id);
            stun_write_bytes(&w, STUN_ATTR_DATA, "123456789", n_payload);
            size_t n_expected = stun_message_end(&w);
            size_t n = stun_encode_data_indication_header(bytes, peers[i], n_payload, id);
            assert_int_equal(n, i == 0 ? DATA_INDICATION_V4_BYTES : DATA_INDICATION_V6_BYTES);
            memcpy(bytes + n, "123456789", n_payload);
            assert_int_equal(n + n_payload + stun_padding(n_payload), n_expected);
            assert_memory_equal(bytes, expected, n_expected);
        }
    }
}

static void a_data_indication_beyond_the_length_field_is_refused(void **state) {
    (void)state;
    uint8_t bytes[DATA_INDICATION_MAX_BYTES];
    const struct endpoint none = {0};
    assert_int_equal(stun_encode_data_indication_header(bytes, &v4, 65516, id), 36); /* body 65532 */
    assert_memory_equal(bytes + 2, "\xff\xfc", 2);
    assert_int_equal(stun_encode_data_indication_header(bytes, &v4, 65517, id), 0);
    assert_int_equal(stun_encode_data_indication_header(bytes, &v4, 65535, id), 0);
    assert_int_equal(stun_encode_data_indication_header(bytes, &v6, 65504, id), 48);
    assert_int_equal(stun_encode_data_indication_header(bytes, &v6, 65505, id), 0);
    assert_int_equal(stun_encode_data_indication_header(bytes, &none, 1, id), 0);
    /* the largest datagrams of UDP fit */
    assert_int_equal(stun_encode_data_indication_header(bytes, &v4, 65507, id), 36);
    assert_int_equal(stun_encode_data_indication_header(bytes, &v6, 65487, id), 48);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_values_have_exactly_their_length),
        cmocka_unit_test(numbers_come_back),
        cmocka_unit_test(reserved_bytes_are_ignored),
        cmocka_unit_test(even_port_is_the_top_bit),
        cmocka_unit_test(plain_addresses_come_back),
        cmocka_unit_test(xor_addresses_are_masked_with_cookie_and_id),
        cmocka_unit_test(an_address_has_the_length_of_its_family),
        cmocka_unit_test(an_address_of_no_family_cannot_be_written),
        cmocka_unit_test(error_codes),
        cmocka_unit_test(address_error_codes),
        cmocka_unit_test(unknown_attributes),
        cmocka_unit_test(icmp_has_seven_and_nine_bits),
        cmocka_unit_test(one_password_algorithm),
        cmocka_unit_test(lists_of_password_algorithms),
        cmocka_unit_test(the_data_indication_header_equals_a_written_message),
        cmocka_unit_test(a_data_indication_beyond_the_length_field_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
