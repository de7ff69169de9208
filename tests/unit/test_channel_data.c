#include "channel_data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool decode(const uint8_t *bytes, size_t n_bytes, uint16_t *number, uint32_t *n_payload) {
    const uint8_t *payload = NULL;
    bool ok = channel_data_decode(bytes, n_bytes, number, &payload, n_payload);
    assert_true(!ok || payload == bytes + CHANNEL_HEADER_BYTES);
    return ok;
}

static void only_01_in_the_top_bits_is_channel_data(void **state) {
    (void)state;
    assert_false(channel_data_is_first_byte(0x00));
    assert_false(channel_data_is_first_byte(0x3f));
    assert_true(channel_data_is_first_byte(0x40));
    assert_true(channel_data_is_first_byte(0x4f));
    assert_true(channel_data_is_first_byte(0x7f));
    assert_false(channel_data_is_first_byte(0x80));
    assert_false(channel_data_is_first_byte(0xff));
}

static void the_length_is_bounded_by_the_datagram(void **state) {
    (void)state;
    uint8_t bytes[8] = {0x40, 0x01, 0, 4, 'a', 'b', 'c', 'd'};
    uint16_t number;
    uint32_t n_payload;
    assert_true(decode(bytes, 8, &number, &n_payload));
    assert_int_equal(number, 0x4001);
    assert_int_equal(n_payload, 4);
    assert_false(decode(bytes, 7, &number, &n_payload)); /* one byte is missing */
    bytes[3] = 5;
    assert_false(decode(bytes, 8, &number, &n_payload));
    bytes[3] = 3; /* one byte of padding */
    assert_true(decode(bytes, 8, &number, &n_payload));
    assert_int_equal(n_payload, 3);
    bytes[2] = 0xff, bytes[3] = 0xff;
    assert_false(decode(bytes, 8, &number, &n_payload));
}

static void a_header_alone_is_an_empty_frame_and_less_is_none(void **state) {
    (void)state;
    const uint8_t bytes[4] = {0x7f, 0xfe, 0, 0};
    uint16_t number;
    uint32_t n_payload = 9;
    assert_true(decode(bytes, 4, &number, &n_payload));
    assert_int_equal(number, CHANNEL_NUMBER_MAX_5766);
    assert_int_equal(n_payload, 0);
    for (size_t n = 0; n < 4; n++) {
        assert_false(decode(bytes, n, &number, &n_payload));
    }
}

static void the_longest_frame_fits(void **state) {
    (void)state;
    size_t n_bytes = CHANNEL_HEADER_BYTES + 0xffff;
    uint8_t *bytes = calloc(1, n_bytes);
    assert_non_null(bytes);
    uint16_t number;
    uint32_t n_payload;
    channel_data_encode_header(bytes, 0x4fff, 0xffff);
    assert_memory_equal(bytes, "\x4f\xff\xff\xff", 4);
    assert_true(decode(bytes, n_bytes, &number, &n_payload));
    assert_int_equal(number, CHANNEL_NUMBER_MAX);
    assert_int_equal(n_payload, 0xffff);
    assert_false(decode(bytes, n_bytes - 1, &number, &n_payload));
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_01_in_the_top_bits_is_channel_data),
        cmocka_unit_test(the_length_is_bounded_by_the_datagram),
        cmocka_unit_test(a_header_alone_is_an_empty_frame_and_less_is_none),
        cmocka_unit_test(the_longest_frame_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
