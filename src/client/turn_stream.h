/* Takes a byte stream (TCP, TLS) apart into STUN messages and ChannelData frames (RFC 8656, 12.5; RFC
 * 8489, 6.2.2). Incremental, bounded by the caller's buffer, no allocation. One thread at a time for each
 * stream. */
#ifndef TURN_STREAM_H
#define TURN_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum turn_frame_result {
    TURN_FRAME_WHOLE, /* the lengths are known and all bytes are there */
    TURN_FRAME_MORE,  /* not yet */
    TURN_FRAME_BAD,   /* neither STUN nor ChannelData: the stream can't be followed any further */
};

enum {
    TURN_FRAME_MAX_BYTES = 65552, /* a STUN message with the longest body; ChannelData is shorter */
};

/* Looks at the start of the stream. *out_n_frame is the message or frame without padding, *out_n_total what
 * it takes up in the stream; both are set for WHOLE, and for MORE as soon as four bytes are there (0 before).
 */
enum turn_frame_result turn_frame_measure(const uint8_t *bytes, size_t n_bytes, size_t *out_n_frame,
                                          size_t *out_n_total);

/* A plain value over the caller's buffer. A frame that does not fit into the buffer fails the stream. */
struct turn_stream {
    uint8_t *buffer;
    size_t capacity, start, end;
    bool failed;
};

void turn_stream_init(struct turn_stream *stream, void *buffer, size_t n_bytes);

/* Where to read the next bytes to, and how many fit. Frames handed out before become invalid. It has room
 * unless the stream failed or a whole frame is still waiting to be taken. */
uint8_t *turn_stream_space(struct turn_stream *stream, size_t *out_n_bytes);
/* n_bytes were read there. */
void turn_stream_added(struct turn_stream *stream, size_t n_bytes);

/* The next whole frame (padding left out), valid until _space. False: read more, or stream->failed. */
bool turn_stream_next(struct turn_stream *stream, const uint8_t **out_frame, size_t *out_n_frame);

#endif
