/* Bounded big-endian reading and writing with sticky failure: go straight through, ask once at the end.
 * No allocation, no state but the cursor; any thread. */
#ifndef TURN_WIRE_H
#define TURN_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct wire_reader {
    const uint8_t *at, *end;
    bool failed;
};

static inline struct wire_reader wire_reader_over(const void *bytes, size_t n_bytes) {
    const uint8_t *p = bytes;
    return (struct wire_reader){.at = p, .end = p + n_bytes, .failed = false};
}

static inline size_t wire_left(const struct wire_reader *r) {
    return r->failed ? 0 : (size_t)(r->end - r->at);
}

/* The next n bytes, or NULL and failure. */
static inline const uint8_t *wire_take(struct wire_reader *r, size_t n_bytes) {
    if (r->failed || (size_t)(r->end - r->at) < n_bytes) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *p = r->at;
    r->at += n_bytes;
    return p;
}

static inline uint8_t wire_read_u8(struct wire_reader *r) {
    const uint8_t *p = wire_take(r, 1);
    return p == NULL ? 0 : p[0];
}

static inline uint16_t wire_read_u16(struct wire_reader *r) {
    const uint8_t *p = wire_take(r, 2);
    return p == NULL ? 0 : (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t wire_read_u32(struct wire_reader *r) {
    const uint8_t *p = wire_take(r, 4);
    return p == NULL ? 0 : (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Nothing missing and nothing left over. */
static inline bool wire_finished(const struct wire_reader *r) {
    return !r->failed && r->at == r->end;
}

struct wire_writer {
    uint8_t *start, *at, *end;
    bool failed; /* out of room; nothing is ever written past end */
};

static inline struct wire_writer wire_writer_over(void *bytes, size_t n_bytes) {
    uint8_t *p = bytes;
    return (struct wire_writer){.start = p, .at = p, .end = p + n_bytes, .failed = false};
}

static inline uint8_t *wire_reserve(struct wire_writer *w, size_t n_bytes) {
    if (w->failed || (size_t)(w->end - w->at) < n_bytes) {
        w->failed = true;
        return NULL;
    }
    uint8_t *p = w->at;
    w->at += n_bytes;
    return p;
}

static inline void wire_put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)(v >> 8), p[1] = (uint8_t)v;
}

static inline void wire_put_u32(uint8_t *p, uint32_t v) {
    wire_put_u16(p, (uint16_t)(v >> 16)), wire_put_u16(p + 2, (uint16_t)v);
}

static inline void wire_write_u8(struct wire_writer *w, uint8_t v) {
    uint8_t *p = wire_reserve(w, 1);
    if (p != NULL) {
        p[0] = v;
    }
}

static inline void wire_write_u16(struct wire_writer *w, uint16_t v) {
    uint8_t *p = wire_reserve(w, 2);
    if (p != NULL) {
        wire_put_u16(p, v);
    }
}

static inline void wire_write_u32(struct wire_writer *w, uint32_t v) {
    uint8_t *p = wire_reserve(w, 4);
    if (p != NULL) {
        wire_put_u32(p, v);
    }
}

static inline void wire_write_bytes(struct wire_writer *w, const void *bytes, size_t n_bytes) {
    uint8_t *p = wire_reserve(w, n_bytes);
    if (p != NULL && n_bytes > 0) {
        memcpy(p, bytes, n_bytes);
    }
}

static inline size_t wire_written(const struct wire_writer *w) {
    return w->failed ? 0 : (size_t)(w->at - w->start);
}

#endif
