#include "turn_stream.h"

#include <assert.h>
#include <string.h>

#include "channel_data.h"
#include "stun_attribute.h"

static const uint8_t magic_cookie[4] = {0x21, 0x12, 0xA4, 0x42};

/* What is there of the cookie has to be right, so that a stream of something else is noticed at once. */
static bool cookie_may_be_right(const uint8_t *bytes, size_t n_bytes) {
    size_t n_there = n_bytes < 4 ? 0 : n_bytes < 8 ? n_bytes - 4 : sizeof magic_cookie;
    return memcmp(bytes + (n_there > 0 ? 4 : 0), magic_cookie, n_there) == 0;
}

enum turn_frame_result turn_frame_measure(const uint8_t *bytes, size_t n_bytes, size_t *out_n_frame,
                                          size_t *out_n_total) {
    *out_n_frame = *out_n_total = 0;
    if (n_bytes == 0) {
        return TURN_FRAME_MORE;
    }
    bool is_channel = channel_data_is_first_byte(bytes[0]);
    if (!is_channel && (bytes[0] & 0xC0) != 0) {
        return TURN_FRAME_BAD;
    }
    if (n_bytes < CHANNEL_HEADER_BYTES) {
        return TURN_FRAME_MORE;
    }
    uint32_t length = (uint32_t)bytes[2] << 8 | bytes[3];
    if (!is_channel && (length % 4 != 0 || !cookie_may_be_right(bytes, n_bytes))) {
        return TURN_FRAME_BAD;
    }
    *out_n_frame = length + (is_channel ? (uint32_t)CHANNEL_HEADER_BYTES : (uint32_t)STUN_HEADER_BYTES);
    *out_n_total = *out_n_frame + stun_padding(length);
    return n_bytes < *out_n_total ? TURN_FRAME_MORE : TURN_FRAME_WHOLE;
}

void turn_stream_init(struct turn_stream *stream, void *buffer, size_t n_bytes) {
    *stream = (struct turn_stream){.buffer = buffer, .capacity = n_bytes};
}

uint8_t *turn_stream_space(struct turn_stream *stream, size_t *out_n_bytes) {
    size_t n_left = stream->end - stream->start;
    if (stream->start > 0) {
        memmove(stream->buffer, stream->buffer + stream->start, n_left); /* a part of one frame */
        stream->start = 0;
        stream->end = n_left;
    }
    *out_n_bytes = stream->failed ? 0 : stream->capacity - stream->end;
    return stream->buffer + stream->end;
}

void turn_stream_added(struct turn_stream *stream, size_t n_bytes) {
    assert(n_bytes <= stream->capacity - stream->end);
    stream->end += n_bytes;
}

bool turn_stream_next(struct turn_stream *stream, const uint8_t **out_frame, size_t *out_n_frame) {
    if (stream->failed) {
        return false;
    }
    const uint8_t *at = stream->buffer + stream->start;
    size_t n_frame, n_total;
    enum turn_frame_result result = turn_frame_measure(at, stream->end - stream->start, &n_frame, &n_total);
    stream->failed = result == TURN_FRAME_BAD || n_total > stream->capacity;
    if (stream->failed || result != TURN_FRAME_WHOLE) {
        return false;
    }
    stream->start += n_total;
    *out_frame = at;
    *out_n_frame = n_frame;
    return true;
}
