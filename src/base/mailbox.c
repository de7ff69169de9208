#include "mailbox.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORD_ALIGN = 8, MIN_CAPACITY_BYTES = 256, CACHE_LINE_BYTES = 64 };
static const size_t max_capacity_bytes = (size_t)1 << 30;

/* Stands before each message. Sizes are multiples of it, so one always fits before the ring's end. */
struct record {
    uint32_t n_bytes;
    uint32_t is_wrap; /* the next record is at the ring's start */
};
static_assert(sizeof(struct record) == RECORD_ALIGN, "messages follow it aligned");

/* Positions count bytes since creation and never wrap; masked, they are offsets in the ring. Padding keeps
 * what one side writes out of the cache lines that the other side writes. */
struct mailbox {
    uint8_t *ring;
    size_t capacity;
    int wake_fd;
    uint8_t pad0[CACHE_LINE_BYTES];
    /* producer's */
    _Atomic size_t posted;
    size_t released_seen; /* last value of `released` the producer has looked at */
    bool wake_needed;
    uint8_t pad1[CACHE_LINE_BYTES];
    /* consumer's */
    _Atomic size_t released;
    size_t peeked;
    size_t posted_seen;
};

static size_t round_up(size_t n_bytes) {
    return (n_bytes + RECORD_ALIGN - 1) & ~(size_t)(RECORD_ALIGN - 1);
}

int mailbox_create(struct mailbox **out, size_t capacity_bytes, int wake_fd) {
    if (capacity_bytes > max_capacity_bytes) {
        return -EINVAL;
    }
    size_t capacity = MIN_CAPACITY_BYTES;
    while (capacity < capacity_bytes) {
        capacity *= 2;
    }
    struct mailbox *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return -ENOMEM;
    }
    m->ring = malloc(capacity);
    if (m->ring == NULL) {
        free(m);
        return -ENOMEM;
    }
    m->capacity = capacity;
    m->wake_fd = wake_fd;
    *out = m;
    return 0;
}

void mailbox_destroy(struct mailbox *mailbox) {
    if (mailbox != NULL) {
        free(mailbox->ring);
        free(mailbox);
    }
}

/* Is there room from `posted` on for n_bytes? The consumer's counter is only looked at when needed. */
static bool has_room(struct mailbox *m, size_t posted, size_t n_bytes) {
    if (m->capacity - (posted - m->released_seen) >= n_bytes) {
        return true;
    }
    m->released_seen = atomic_load_explicit(&m->released, memory_order_acquire);
    return m->capacity - (posted - m->released_seen) >= n_bytes;
}

static void put_record(struct mailbox *m, size_t position, struct record record) {
    memcpy(m->ring + (position & (m->capacity - 1)), &record, sizeof record);
}

int mailbox_post(struct mailbox *mailbox, const void *head, size_t n_head, const void *body, size_t n_body) {
    struct mailbox *m = mailbox;
    size_t n_max = m->capacity / 4;
    if (n_head > n_max || n_body > n_max - n_head) {
        return -ENOBUFS;
    }
    size_t posted = atomic_load_explicit(&m->posted, memory_order_relaxed);
    size_t n_record = sizeof(struct record) + round_up(n_head + n_body);
    size_t n_to_end = m->capacity - (posted & (m->capacity - 1));
    size_t n_skipped = n_record > n_to_end ? n_to_end : 0;
    if (!has_room(m, posted, n_skipped + n_record)) {
        return -ENOBUFS;
    }
    if (n_skipped > 0) {
        put_record(m, posted, (struct record){.is_wrap = 1});
        posted += n_skipped;
    }
    put_record(m, posted, (struct record){.n_bytes = (uint32_t)(n_head + n_body)});
    uint8_t *message = m->ring + (posted & (m->capacity - 1)) + sizeof(struct record);
    if (n_head > 0) {
        memcpy(message, head, n_head);
    }
    if (n_body > 0) {
        memcpy(message + n_head, body, n_body);
    }
    atomic_store_explicit(&m->posted, posted + n_record, memory_order_release);
    m->wake_needed = true;
    return 0;
}

void mailbox_wake(struct mailbox *mailbox) {
    if (!mailbox->wake_needed) {
        return;
    }
    mailbox->wake_needed = false;
    if (mailbox->wake_fd < 0) {
        return;
    }
    uint64_t one = 1;
    ssize_t n;
    do {
        n = write(mailbox->wake_fd, &one, sizeof one);
    } while (n < 0 && errno == EINTR);
    /* EAGAIN means that the counter is at its limit: the receiver is being woken already. */
}

const void *mailbox_peek(struct mailbox *mailbox, size_t *out_n_bytes) {
    struct mailbox *m = mailbox;
    if (m->peeked == m->posted_seen) {
        m->posted_seen = atomic_load_explicit(&m->posted, memory_order_acquire);
        if (m->peeked == m->posted_seen) {
            return NULL;
        }
    }
    size_t offset = m->peeked & (m->capacity - 1);
    struct record record;
    memcpy(&record, m->ring + offset, sizeof record);
    if (record.is_wrap) {
        /* A wrap and the message after it are posted as one, so there is a message. */
        m->peeked += m->capacity - offset;
        offset = 0;
        memcpy(&record, m->ring, sizeof record);
    }
    m->peeked += sizeof record + round_up(record.n_bytes);
    *out_n_bytes = record.n_bytes;
    return m->ring + offset + sizeof record;
}

void mailbox_release(struct mailbox *mailbox) {
    atomic_store_explicit(&mailbox->released, mailbox->peeked, memory_order_release);
}
