/* Streams: the frames are the same whatever pieces the stream comes in. The first byte gives the size of the
 * pieces, the rest is the stream. */
#include "turn_stream.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

enum { BUFFER_BYTES = 600 };

struct result {
    size_t n_frames, n_frame_bytes;
    uint32_t sum;
    bool failed;
};

static void take_frames(struct turn_stream *stream, struct result *result) {
    const uint8_t *frame;
    size_t n_frame;
    while (turn_stream_next(stream, &frame, &n_frame)) {
        result->n_frames++;
        result->n_frame_bytes += n_frame;
        for (size_t i = 0; i < n_frame; i++) {
            result->sum = result->sum * 31 + frame[i];
        }
    }
}

static struct result run(const uint8_t *bytes, size_t n_bytes, size_t n_piece) {
    struct result result = {0};
    struct turn_stream stream;
    uint8_t *buffer = malloc(BUFFER_BYTES);
    if (buffer == NULL) {
        return result;
    }
    turn_stream_init(&stream, buffer, BUFFER_BYTES);
    for (size_t at = 0; at < n_bytes && !stream.failed;) {
        size_t n_room, n = n_bytes - at < n_piece ? n_bytes - at : n_piece;
        uint8_t *to = turn_stream_space(&stream, &n_room);
        if (n_room == 0) {
            abort(); /* all whole frames were taken, and the one that is begun fits */
        }
        n = n < n_room ? n : n_room;
        memcpy(to, bytes + at, n);
        turn_stream_added(&stream, n);
        take_frames(&stream, &result);
        at += n;
    }
    result.failed = stream.failed;
    free(buffer);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    if (n_bytes < 1) {
        return 0;
    }
    struct result pieces = run(bytes + 1, n_bytes - 1, 1u + bytes[0]);
    struct result whole = run(bytes + 1, n_bytes - 1, n_bytes);
    if (pieces.n_frames != whole.n_frames || pieces.n_frame_bytes != whole.n_frame_bytes ||
        pieces.sum != whole.sum || pieces.failed != whole.failed) {
        abort();
    }
    return 0;
}
