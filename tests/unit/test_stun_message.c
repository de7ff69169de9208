#include "stun_message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "stun_attribute.h"

static const uint8_t id[STUN_TRANSACTION_ID_BYTES] = "twelve bytes";

/* Header and n_body bytes of body, a copy of exactly that size so that a sanitizer sees reads past it. */
static bool decodes(const void *body, size_t n_body, size_t length_field) {
    uint8_t *bytes = malloc(STUN_HEADER_BYTES + n_body);
    assert_non_null(bytes);
    memcpy(bytes, "\x00\x01\x00\x00\x21\x12\xA4\x42twelve bytes", STUN_HEADER_BYTES);
    wire_put_u16(bytes + 2, (uint16_t)length_field);
    if (n_body > 0) {
        memcpy(bytes + STUN_HEADER_BYTES, body, n_body);
    }
    struct stun_message m;
    bool ok = stun_message_decode(&m, bytes, STUN_HEADER_BYTES + n_body);
    free(bytes);
    return ok;
}

static void a_header_alone_is_a_message(void **state) {
    (void)state;
    uint8_t bytes[STUN_HEADER_BYTES + 1];
    struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
    stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_BINDING, id);
    assert_int_equal(stun_message_end(&w), STUN_HEADER_BYTES);
    assert_memory_equal(bytes, "\x00\x01\x00\x00\x21\x12\xA4\x42twelve bytes", STUN_HEADER_BYTES);
    struct stun_message m;
    assert_true(stun_message_decode(&m, bytes, STUN_HEADER_BYTES));
    assert_int_equal(m.class, STUN_REQUEST);
    assert_int_equal(m.method, STUN_METHOD_BINDING);
    assert_ptr_equal(m.transaction_id, bytes + 8);
    struct stun_attribute at = {0};
    assert_false(stun_message_next(&m, &at));
    assert_false(stun_message_find(&m, STUN_ATTR_SOFTWARE, &at));
    assert_false(stun_message_decode(&m, bytes, STUN_HEADER_BYTES - 1));
    assert_false(stun_message_decode(&m, bytes, STUN_HEADER_BYTES + 1));
    assert_false(stun_message_decode(&m, bytes, 0));
}

static void every_wrong_bit_of_the_fixed_header_is_refused(void **state) {
    (void)state;
    for (size_t bit = 0; bit < 64; bit++) {
        uint8_t bytes[STUN_HEADER_BYTES] = "\x00\x01\x00\x00\x21\x12\xA4\x42twelve byte";
        bytes[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
        struct stun_message m;
        /* but for the 14 bits of the type, all are fixed here: top bits, length, cookie */
        bool is_type = bit >= 2 && bit < 16;
        assert_int_equal(stun_message_decode(&m, bytes, sizeof bytes), is_type);
    }
}

static void every_class_and_method_survives(void **state) {
    (void)state;
    for (unsigned method = 0; method <= 0xFFF; method++) {
        for (unsigned class = STUN_REQUEST; class <= STUN_ERROR; class ++) {
            uint8_t bytes[STUN_HEADER_BYTES];
            struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
            stun_message_begin(&w, (enum stun_class) class, (uint16_t)method, id);
            struct stun_message m;
            assert_true(stun_message_decode(&m, bytes, stun_message_end(&w)));
            assert_int_equal(m.class, class);
            assert_int_equal(m.method, method);
        }
    }
}

static void known_types_have_the_known_numbers(void **state) {
    (void)state;
    const struct {
        enum stun_class class;
        uint16_t method, type;
    } known[] = {
        {STUN_REQUEST, STUN_METHOD_BINDING, 0x0001},      {STUN_INDICATION, STUN_METHOD_BINDING, 0x0011},
        {STUN_SUCCESS, STUN_METHOD_BINDING, 0x0101},      {STUN_ERROR, STUN_METHOD_BINDING, 0x0111},
        {STUN_REQUEST, STUN_METHOD_ALLOCATE, 0x0003},     {STUN_ERROR, STUN_METHOD_ALLOCATE, 0x0113},
        {STUN_INDICATION, STUN_METHOD_SEND, 0x0016},      {STUN_INDICATION, STUN_METHOD_DATA, 0x0017},
        {STUN_SUCCESS, STUN_METHOD_CHANNEL_BIND, 0x0109}, {STUN_REQUEST, 0xFFF, 0x3EEF},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint8_t bytes[STUN_HEADER_BYTES];
        struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
        stun_message_begin(&w, known[i].class, known[i].method, id);
        assert_int_equal(bytes[0] << 8 | bytes[1], known[i].type);
    }
}

static void attributes_must_fill_the_body_exactly(void **state) {
    (void)state;
    assert_true(decodes("\x80\x22\x00\x00", 4, 4));
    assert_true(decodes("\x80\x22\x00\x01x\0\0\0", 8, 8));
    assert_true(decodes("\x80\x22\x00\x04wxyz", 8, 8));
    assert_true(decodes("\x80\x22\x00\x04wxyz\x00\x06\x00\x00", 12, 12));
    assert_false(decodes("\x80\x22\x00\x05wxyz", 8, 8));     /* one byte beyond */
    assert_false(decodes("\x80\x22\x00\x01", 4, 4));         /* the value is missing */
    assert_false(decodes("\x80\x22\xff\xffwxyz", 8, 8));     /* far beyond */
    assert_false(decodes("\x80\x22\xff\xfdwxyz", 8, 8));     /* the padding would wrap 16 bits */
    assert_false(decodes("\x80\x22\x00\x00\x80\x22", 6, 6)); /* not a multiple of four */
    assert_false(decodes("\x80\x22\x00\x01x\0\0", 7, 7));    /* padding cut off */
    assert_false(decodes("\x80\x22\x00\x00", 4, 0));         /* length field too small */
    assert_false(decodes("\x80\x22\x00\x00", 4, 8));         /* and too large */
    assert_false(decodes("\x80\x22\x00\x00", 4, 0xfffc));
}

static void padding_may_be_anything_and_is_not_part_of_the_value(void **state) {
    (void)state;
    uint8_t bytes[] = "\x00\x01\x00\x0c\x21\x12\xA4\x42twelve bytes"
                      "\x80\x22\x00\x01x\x99\x99\x99\x00\x06\x00\x00";
    struct stun_message m;
    struct stun_attribute at = {0};
    assert_true(stun_message_decode(&m, bytes, sizeof bytes - 1));
    assert_true(stun_message_next(&m, &at));
    assert_int_equal(at.type, STUN_ATTR_SOFTWARE);
    assert_int_equal(at.n_bytes, 1);
    assert_int_equal(at.offset, 20);
    assert_int_equal(at.value[0], 'x');
    assert_true(stun_message_next(&m, &at));
    assert_int_equal(at.type, STUN_ATTR_USERNAME);
    assert_int_equal(at.n_bytes, 0);
    assert_int_equal(at.offset, 28);
    assert_false(stun_message_next(&m, &at));
    assert_false(stun_message_next(&m, &at));
}

static void the_first_of_a_kind_is_found(void **state) {
    (void)state;
    uint8_t bytes[64];
    struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
    stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_BINDING, id);
    stun_write_bytes(&w, STUN_ATTR_REALM, "r", 1);
    stun_write_bytes(&w, STUN_ATTR_USERNAME, "one", 3);
    stun_write_bytes(&w, STUN_ATTR_USERNAME, "two", 3);
    struct stun_message m;
    struct stun_attribute a;
    assert_true(stun_message_decode(&m, bytes, stun_message_end(&w)));
    assert_true(stun_message_find(&m, STUN_ATTR_USERNAME, &a));
    assert_memory_equal(a.value, "one", 3);
    assert_int_equal(a.offset, 28);
}

static void the_longest_message_decodes(void **state) {
    (void)state;
    size_t n_bytes = STUN_HEADER_BYTES + 0xfffc;
    uint8_t *bytes = malloc(n_bytes + 4);
    assert_non_null(bytes);
    struct wire_writer w = wire_writer_over(bytes, n_bytes + 4);
    stun_message_begin(&w, STUN_INDICATION, STUN_METHOD_DATA, id);
    uint8_t *length = stun_attribute_open(&w, STUN_ATTR_DATA);
    memset(wire_reserve(&w, 0xfff5), 7, 0xfff5); /* 65528 with padding, 4 for the header */
    stun_attribute_close(&w, length);
    assert_int_equal(stun_message_end(&w), n_bytes);
    assert_memory_equal(bytes + n_bytes - 3, "\0\0\0", 3);
    struct stun_message m;
    struct stun_attribute a;
    assert_true(stun_message_decode(&m, bytes, n_bytes));
    assert_true(stun_message_find(&m, STUN_ATTR_DATA, &a));
    assert_int_equal(a.n_bytes, 0xfff5);
    /* four bytes more do not fit into the length field */
    stun_write_bytes(&w, STUN_ATTR_DONT_FRAGMENT, NULL, 0);
    assert_false(w.failed);
    assert_int_equal(stun_message_end(&w), 0);
    assert_true(w.failed);
    free(bytes);
}

static void a_value_over_64_KiB_fails(void **state) {
    (void)state;
    uint8_t *bytes = malloc(0x20010);
    assert_non_null(bytes);
    struct wire_writer w = wire_writer_over(bytes, 0x20010);
    uint8_t *length = stun_attribute_open(&w, STUN_ATTR_DATA);
    memset(wire_reserve(&w, 0xffff), 7, 0xffff);
    stun_attribute_close(&w, length);
    assert_false(w.failed);
    assert_int_equal(wire_written(&w), 4 + 0x10000);
    length = stun_attribute_open(&w, STUN_ATTR_DATA);
    assert_non_null(wire_reserve(&w, 0x10000 - 4));
    wire_write_u32(&w, 0);
    stun_attribute_close(&w, length);
    assert_true(w.failed);
    free(bytes);
}

static void padding_is_zero_for_every_length(void **state) {
    (void)state;
    for (size_t n = 0; n <= 9; n++) {
        uint8_t bytes[STUN_HEADER_BYTES + 16];
        memset(bytes, 0xee, sizeof bytes);
        struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
        stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_BINDING, id);
        stun_write_bytes(&w, STUN_ATTR_SOFTWARE, "123456789", n);
        size_t n_bytes = stun_message_end(&w);
        assert_int_equal(n_bytes, STUN_HEADER_BYTES + 4 + (n + 3) / 4 * 4);
        for (size_t i = STUN_HEADER_BYTES + 4 + n; i < n_bytes; i++) {
            assert_int_equal(bytes[i], 0);
        }
        assert_int_equal(stun_padding((uint32_t)n), (n + 3) / 4 * 4 - n);
    }
}

static void composing_without_room_fails_at_every_size(void **state) {
    (void)state;
    uint8_t bytes[STUN_HEADER_BYTES + 12];
    for (size_t room = 0; room <= sizeof bytes; room++) {
        struct wire_writer w = wire_writer_over(bytes, room);
        stun_message_begin(&w, STUN_REQUEST, STUN_METHOD_BINDING, id);
        stun_write_bytes(&w, STUN_ATTR_SOFTWARE, "12345", 5);
        size_t expected = room == sizeof bytes ? sizeof bytes : 0;
        assert_int_equal(stun_message_end(&w), expected);
        assert_int_equal(w.failed, expected == 0);
    }
}

static void a_close_without_an_open_fails(void **state) {
    (void)state;
    uint8_t bytes[8];
    struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
    stun_attribute_close(&w, NULL);
    assert_true(w.failed);
    struct wire_writer empty = wire_writer_over(bytes, sizeof bytes);
    assert_int_equal(stun_message_end(&empty), 0); /* no header */
}

static void phrases_and_names(void **state) {
    (void)state;
    assert_string_equal(stun_status_phrase(STUN_STALE_NONCE), "Stale Nonce");
    assert_string_equal(stun_status_phrase(STUN_INSUFFICIENT_CAPACITY), "Insufficient Capacity");
    assert_string_equal(stun_status_phrase((enum stun_status)499), "");
    assert_string_equal(stun_method_name(STUN_METHOD_ALLOCATE), "ALLOCATE");
    assert_string_equal(stun_method_name(STUN_METHOD_CONNECTION_ATTEMPT), "CONNECTION_ATTEMPT");
    assert_string_equal(stun_method_name(2), "UNKNOWN");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_alone_is_a_message),
        cmocka_unit_test(every_wrong_bit_of_the_fixed_header_is_refused),
        cmocka_unit_test(every_class_and_method_survives),
        cmocka_unit_test(known_types_have_the_known_numbers),
        cmocka_unit_test(attributes_must_fill_the_body_exactly),
        cmocka_unit_test(padding_may_be_anything_and_is_not_part_of_the_value),
        cmocka_unit_test(the_first_of_a_kind_is_found),
        cmocka_unit_test(the_longest_message_decodes),
        cmocka_unit_test(a_value_over_64_KiB_fails),
        cmocka_unit_test(padding_is_zero_for_every_length),
        cmocka_unit_test(composing_without_room_fails_at_every_size),
        cmocka_unit_test(a_close_without_an_open_fails),
        cmocka_unit_test(phrases_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
