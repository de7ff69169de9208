#include "turn_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "channel_data.h"
#include "stun_attribute.h"

/* A stream of a Binding request, ChannelData of 5 bytes (padded by 3), an empty one, and one of 4 bytes. */
static const uint8_t wire_bytes[] = "\x00\x01\x00\x08\x21\x12\xA4\x42twelve bytes\x80\x22\x00\x04turn"
                                    "\x40\x01\x00\x05hello\x99\x99\x99"
                                    "\x7f\xff\x00\x00"
                                    "\x40\x02\x00\x04"
                                    "four";
enum { N_WIRE = sizeof wire_bytes - 1, N_FRAMES = 4 };
static const size_t frame_sizes[N_FRAMES] = {28, 9, 4, 8};
static const size_t frame_starts[N_FRAMES] = {0, 28, 40, 44};

/* Feeds the stream in pieces of n_piece bytes into a buffer of n_buffer; all frames have to come out. */
static void feed_in_pieces(size_t n_piece, size_t n_buffer) {
    uint8_t *buffer = malloc(n_buffer);
    assert_non_null(buffer);
    struct turn_stream stream;
    turn_stream_init(&stream, buffer, n_buffer);
    size_t n_fed = 0, n_frames = 0;
    while (n_fed < N_WIRE) {
        size_t n_room, n = N_WIRE - n_fed < n_piece ? N_WIRE - n_fed : n_piece;
        uint8_t *to = turn_stream_space(&stream, &n_room);
        assert_true(n_room > 0);
        n = n < n_room ? n : n_room;
        memcpy(to, wire_bytes + n_fed, n);
        turn_stream_added(&stream, n);
        n_fed += n;
        const uint8_t *frame;
        for (size_t n_frame; turn_stream_next(&stream, &frame, &n_frame); n_frames++) {
            assert_true(n_frames < N_FRAMES);
            assert_int_equal(n_frame, frame_sizes[n_frames]);
            assert_memory_equal(frame, wire_bytes + frame_starts[n_frames], n_frame);
        }
        assert_false(stream.failed);
    }
    assert_int_equal(n_frames, N_FRAMES);
    free(buffer);
}

static void frames_come_out_whole_however_the_stream_is_cut(void **state) {
    (void)state;
    for (size_t n_piece = 1; n_piece <= N_WIRE; n_piece++) {
        feed_in_pieces(n_piece, 28); /* just the largest frame */
        feed_in_pieces(n_piece, 29);
        feed_in_pieces(n_piece, 4096);
    }
}

static void measure(const void *bytes, size_t n_bytes, enum turn_frame_result result, size_t n_frame,
                    size_t n_total) {
    uint8_t *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n_bytes);
    size_t frame, total;
    assert_int_equal(turn_frame_measure(copy, n_bytes, &frame, &total), result);
    assert_int_equal(frame, n_frame);
    assert_int_equal(total, n_total);
    free(copy);
}

static void the_length_is_known_with_four_bytes(void **state) {
    (void)state;
    measure("", 0, TURN_FRAME_MORE, 0, 0);
    measure("\x40\x00\x00", 3, TURN_FRAME_MORE, 0, 0);
    measure("\x40\x00\x00\x05", 4, TURN_FRAME_MORE, 9, 12);
    measure("\x40\x00\x00\x05hello\0\0", 11, TURN_FRAME_MORE, 9, 12);
    measure("\x40\x00\x00\x05hello\0\0\0", 12, TURN_FRAME_WHOLE, 9, 12);
    measure("\x40\x00\xff\xff", 4, TURN_FRAME_MORE, 65539, 65540);
    measure("\x00\x01\x00\x00", 4, TURN_FRAME_MORE, 20, 20);
    measure("\x00\x01\xff\xfc", 4, TURN_FRAME_MORE, TURN_FRAME_MAX_BYTES, TURN_FRAME_MAX_BYTES);
}

static void what_is_neither_is_noticed_with_the_first_wrong_byte(void **state) {
    (void)state;
    measure("\x80", 1, TURN_FRAME_BAD, 0, 0);
    measure("\xc0", 1, TURN_FRAME_BAD, 0, 0);
    measure("\x16\x03\x01\x02", 4, TURN_FRAME_BAD, 0, 0); /* TLS: 0x0102 is no multiple of four */
    measure("\x00\x01\x00\x02", 4, TURN_FRAME_BAD, 0, 0);
    measure("\x00\x01\x00\x00\x21", 5, TURN_FRAME_MORE, 20, 20);
    measure("\x00\x01\x00\x00\x22", 5, TURN_FRAME_BAD, 0, 0);
    measure("\x00\x01\x00\x00\x21\x12\xA4", 7, TURN_FRAME_MORE, 20, 20);
    measure("\x00\x01\x00\x00\x21\x12\xA4\x43", 8, TURN_FRAME_BAD, 0, 0);
    measure("\x00\x01\x00\x00\x21\x12\xA4\x42", 8, TURN_FRAME_MORE, 20, 20);
}

static void feed(struct turn_stream *stream, const void *bytes, size_t n_bytes) {
    size_t n_room;
    uint8_t *to = turn_stream_space(stream, &n_room);
    assert_true(n_room >= n_bytes);
    memcpy(to, bytes, n_bytes);
    turn_stream_added(stream, n_bytes);
}

static void a_frame_larger_than_the_buffer_fails_the_stream_at_once(void **state) {
    (void)state;
    uint8_t buffer[16];
    struct turn_stream stream;
    const uint8_t *frame;
    size_t n_frame, n_room;
    turn_stream_init(&stream, buffer, sizeof buffer);
    feed(&stream, "\x40\x00\x00\x0c", 4); /* 16 in all: fits */
    assert_false(turn_stream_next(&stream, &frame, &n_frame));
    assert_false(stream.failed);
    turn_stream_init(&stream, buffer, sizeof buffer);
    feed(&stream, "\x40\x00\x00\x0d", 4); /* 17, 20 with padding */
    assert_false(turn_stream_next(&stream, &frame, &n_frame));
    assert_true(stream.failed);
    (void)turn_stream_space(&stream, &n_room);
    assert_int_equal(n_room, 0);
}

static void a_failed_stream_stays_failed(void **state) {
    (void)state;
    uint8_t buffer[64];
    struct turn_stream stream;
    const uint8_t *frame;
    size_t n_frame;
    turn_stream_init(&stream, buffer, sizeof buffer);
    feed(&stream, "\x40\x00\x00\x00\xff\x40\x00\x00\x00", 9);
    assert_true(turn_stream_next(&stream, &frame, &n_frame)); /* what was whole before is still good */
    assert_int_equal(n_frame, 4);
    assert_false(turn_stream_next(&stream, &frame, &n_frame));
    assert_true(stream.failed);
    assert_false(turn_stream_next(&stream, &frame, &n_frame));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_out_whole_however_the_stream_is_cut),
        cmocka_unit_test(the_length_is_known_with_four_bytes),
        cmocka_unit_test(what_is_neither_is_noticed_with_the_first_wrong_byte),
        cmocka_unit_test(a_frame_larger_than_the_buffer_fails_the_stream_at_once),
        cmocka_unit_test(a_failed_stream_stays_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
