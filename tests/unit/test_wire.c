#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void reading_takes_exactly_what_is_there(void **state) {
    (void)state;
    const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7};
    struct wire_reader r = wire_reader_over(bytes, sizeof bytes);
    assert_int_equal(wire_left(&r), 7);
    assert_int_equal(wire_read_u8(&r), 0x01);
    assert_int_equal(wire_read_u16(&r), 0x0203);
    assert_false(wire_finished(&r));
    assert_int_equal(wire_read_u32(&r), 0x04050607);
    assert_int_equal(wire_left(&r), 0);
    assert_true(wire_finished(&r));
}

static void reading_one_byte_too_many_fails_for_good(void **state) {
    (void)state;
    const uint8_t bytes[] = {0xff, 0xff, 0xff};
    struct wire_reader r = wire_reader_over(bytes, sizeof bytes);
    assert_int_equal(wire_read_u32(&r), 0);
    assert_true(r.failed);
    assert_int_equal(wire_left(&r), 0);
    /* one byte would be there, but failure sticks */
    assert_int_equal(wire_read_u8(&r), 0);
    assert_int_equal(wire_read_u16(&r), 0);
    assert_null(wire_take(&r, 0));
    assert_false(wire_finished(&r));
}

static void nothing_can_be_read_of_nothing(void **state) {
    (void)state;
    const uint8_t none = 0;
    struct wire_reader r = wire_reader_over(&none, 0);
    assert_true(wire_finished(&r));
    assert_non_null(wire_take(&r, 0));
    assert_null(wire_take(&r, 1));
    assert_false(wire_finished(&r));
}

static void a_huge_count_does_not_wrap(void **state) {
    (void)state;
    uint8_t bytes[8] = {0};
    struct wire_reader r = wire_reader_over(bytes, sizeof bytes);
    assert_null(wire_take(&r, SIZE_MAX));
    struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
    assert_null(wire_reserve(&w, SIZE_MAX));
    assert_true(w.failed);
}

static void values_come_back_as_they_were_written(void **state) {
    (void)state;
    uint8_t bytes[10];
    struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
    wire_write_u8(&w, 0xfe);
    wire_write_u16(&w, 0xfedc);
    wire_write_u32(&w, 0xfedcba98);
    wire_write_bytes(&w, "abc", 3);
    assert_int_equal(wire_written(&w), 10);
    assert_memory_equal(bytes,
                        "\xfe\xfe\xdc\xfe\xdc\xba\x98"
                        "abc",
                        10);
    wire_write_bytes(&w, NULL, 0);
    assert_int_equal(wire_written(&w), 10);
}

static void writing_past_the_end_fails_for_good_and_touches_nothing(void **state) {
    (void)state;
    uint8_t bytes[8];
    memset(bytes, 0x55, sizeof bytes);
    struct wire_writer w = wire_writer_over(bytes, 3);
    wire_write_u16(&w, 0x0102);
    wire_write_u16(&w, 0x0304); /* one byte short */
    wire_write_u8(&w, 9);       /* would fit */
    wire_write_u32(&w, 9);
    wire_write_bytes(&w, "z", 1);
    assert_true(w.failed);
    assert_int_equal(wire_written(&w), 0);
    assert_memory_equal(bytes, "\x01\x02\x55\x55\x55\x55\x55\x55", 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_takes_exactly_what_is_there),
        cmocka_unit_test(reading_one_byte_too_many_fails_for_good),
        cmocka_unit_test(nothing_can_be_read_of_nothing),
        cmocka_unit_test(a_huge_count_does_not_wrap),
        cmocka_unit_test(values_come_back_as_they_were_written),
        cmocka_unit_test(writing_past_the_end_fails_for_good_and_touches_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
