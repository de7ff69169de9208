#include "mailbox.h"

#include "alloc_fault.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

static struct mailbox *create(size_t capacity_bytes, int wake_fd) {
    struct mailbox *m;
    assert_int_equal(mailbox_create(&m, capacity_bytes, wake_fd), 0);
    return m;
}

static void assert_next_is(struct mailbox *m, const char *text) {
    size_t n;
    const char *message = mailbox_peek(m, &n);
    assert_non_null(message);
    assert_int_equal((uintptr_t)message % 8, 0);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(message, text, n);
}

static void assert_empty(struct mailbox *m) {
    size_t n;
    assert_null(mailbox_peek(m, &n));
}

static void both_parts_arrive_as_one(void **state) {
    (void)state;
    struct mailbox *m = create(1024, -1);
    assert_empty(m);
    assert_int_equal(mailbox_post(m, "head", 4, "body", 4), 0);
    assert_int_equal(mailbox_post(m, "x", 1, NULL, 0), 0);
    assert_int_equal(mailbox_post(m, NULL, 0, "123456789", 9), 0);
    assert_int_equal(mailbox_post(m, NULL, 0, NULL, 0), 0);
    assert_next_is(m, "headbody");
    assert_next_is(m, "x");
    assert_next_is(m, "123456789");
    assert_next_is(m, "");
    assert_empty(m);
    assert_empty(m);
    mailbox_release(m);
    assert_empty(m);
    mailbox_destroy(m);
    mailbox_destroy(NULL);
}

static void messages_stay_until_they_are_released(void **state) {
    (void)state;
    struct mailbox *m = create(256, -1);
    unsigned n_posted = 0;
    while (mailbox_post(m, "0123456789abcdef", 16, NULL, 0) == 0) { /* 24 bytes with its header */
        n_posted++;
    }
    assert_int_equal(n_posted, 10);
    const char *seen[10];
    size_t n;
    for (unsigned i = 0; i < 10; i++) {
        seen[i] = mailbox_peek(m, &n);
        assert_non_null(seen[i]);
    }
    assert_empty(m);
    assert_int_equal(mailbox_post(m, "overwritten?", 12, NULL, 0), -ENOBUFS);
    for (unsigned i = 0; i < 10; i++) {
        assert_memory_equal(seen[i], "0123456789abcdef", 16);
    }
    mailbox_release(m);
    assert_int_equal(mailbox_post(m, "room again", 10, NULL, 0), 0);
    assert_next_is(m, "room again");
    mailbox_destroy(m);
}

static void the_ring_is_used_to_its_last_byte(void **state) {
    (void)state;
    static const uint8_t bytes[56]; /* 64 with its header */
    struct mailbox *m = create(256, -1);
    size_t n;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(mailbox_post(m, bytes, sizeof bytes, NULL, 0), 0);
        }
        assert_int_equal(mailbox_post(m, NULL, 0, NULL, 0), -ENOBUFS);
        for (unsigned i = 0; i < 4; i++) {
            assert_non_null(mailbox_peek(m, &n));
            assert_int_equal(n, sizeof bytes);
        }
        assert_empty(m);
        mailbox_release(m);
    }
    mailbox_destroy(m);
}

static void releasing_gives_back_what_was_peeked_only(void **state) {
    (void)state;
    struct mailbox *m = create(256, -1);
    assert_int_equal(mailbox_post(m, "one", 3, NULL, 0), 0);
    assert_int_equal(mailbox_post(m, "two", 3, NULL, 0), 0);
    assert_next_is(m, "one");
    mailbox_release(m);
    mailbox_release(m);
    assert_next_is(m, "two");
    mailbox_release(m);
    assert_empty(m);
    mailbox_destroy(m);
}

static void a_quarter_of_the_ring_is_the_largest_message(void **state) {
    (void)state;
    static const uint8_t bytes[300];
    struct mailbox *m = create(1024, -1);
    size_t n;
    for (unsigned round = 0; round < 50; round++) { /* from every place in the ring */
        assert_int_equal(mailbox_post(m, bytes, 100, bytes, 156), 0);
        assert_int_equal(mailbox_post(m, bytes, 100, bytes, 157), -ENOBUFS);
        assert_int_equal(mailbox_post(m, bytes, 257, NULL, 0), -ENOBUFS);
        assert_int_equal(mailbox_post(m, bytes, 1, bytes, SIZE_MAX), -ENOBUFS);
        assert_int_equal(mailbox_post(m, bytes, SIZE_MAX, bytes, 2), -ENOBUFS);
        assert_non_null(mailbox_peek(m, &n));
        assert_int_equal(n, 256);
        assert_empty(m);
        assert_int_equal(mailbox_post(m, bytes, round % 8 * 8, NULL, 0), 0);
        assert_non_null(mailbox_peek(m, &n));
        mailbox_release(m);
    }
    mailbox_destroy(m);
}

static void capacity_is_rounded_up_and_bounded(void **state) {
    (void)state;
    static const uint8_t bytes[4096];
    static const struct {
        size_t asked, largest;
    } cases[] = {{0, 64}, {1, 64}, {256, 64}, {257, 128}, {4096, 1024}, {4097, 2048}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mailbox *m = create(cases[i].asked, -1);
        assert_int_equal(mailbox_post(m, bytes, cases[i].largest + 1, NULL, 0), -ENOBUFS);
        assert_int_equal(mailbox_post(m, bytes, cases[i].largest, NULL, 0), 0);
        mailbox_destroy(m);
    }
    struct mailbox *none = NULL;
    assert_int_equal(mailbox_create(&none, ((size_t)1 << 30) + 1, -1), -EINVAL);
    assert_int_equal(mailbox_create(&none, SIZE_MAX, -1), -EINVAL);
    assert_null(none);
}

static uint64_t next_random(uint64_t *seed) {
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *seed;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Message i has a length and bytes that follow from i. */
static size_t message_length(uint64_t i, size_t n_max) {
    uint64_t seed = i;
    return next_random(&seed) % (n_max + 1);
}

static void fill_message(uint8_t *bytes, uint64_t i, size_t n) {
    for (size_t k = 0; k < n; k++) {
        bytes[k] = (uint8_t)(i * 31 + k * 7);
    }
}

static bool is_message(const uint8_t *bytes, size_t n, uint64_t i, size_t n_max) {
    if (n != message_length(i, n_max)) {
        return false;
    }
    for (size_t k = 0; k < n; k++) {
        if (bytes[k] != (uint8_t)(i * 31 + k * 7)) {
            return false;
        }
    }
    return true;
}

static void random_posts_and_reads_keep_order_and_content(void **state) {
    (void)state;
    enum { MAX = 128 };
    struct mailbox *m = create(4 * MAX, -1);
    uint8_t bytes[MAX];
    uint64_t seed = 1, n_posted = 0, n_read = 0, n_released = 0;
    for (unsigned step = 0; step < 200000; step++) {
        uint64_t choice = next_random(&seed) % 8;
        if (choice < 4) {
            size_t n = message_length(n_posted, MAX);
            size_t n_head = n == 0 ? 0 : next_random(&seed) % n;
            fill_message(bytes, n_posted, n);
            int err = mailbox_post(m, bytes, n_head, bytes + n_head, n - n_head);
            assert_true(err == 0 || err == -ENOBUFS);
            assert_true(err == 0 || n_posted > n_released); /* an empty ring takes anything */
            n_posted += err == 0;
        } else if (choice < 7) {
            size_t n;
            const uint8_t *message = mailbox_peek(m, &n);
            assert_int_equal(message != NULL, n_read < n_posted);
            if (message != NULL) {
                assert_true(is_message(message, n, n_read, MAX));
                n_read++;
            }
        } else {
            mailbox_release(m);
            n_released = n_read;
        }
    }
    assert_true(n_read > 10000);
    mailbox_destroy(m);
}

static uint64_t take_wakes(int fd) {
    uint64_t n = 0;
    return read(fd, &n, sizeof n) == sizeof n ? n : 0;
}

static void one_wake_for_all_that_was_posted(void **state) {
    (void)state;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_true(fd >= 0);
    struct mailbox *m = create(256, fd);
    mailbox_wake(m);
    assert_int_equal(take_wakes(fd), 0);
    mailbox_post(m, "a", 1, NULL, 0);
    mailbox_post(m, "b", 1, NULL, 0);
    assert_int_equal(take_wakes(fd), 0);
    mailbox_wake(m);
    mailbox_wake(m);
    assert_int_equal(take_wakes(fd), 1);
    mailbox_wake(m);
    assert_int_equal(take_wakes(fd), 0);
    mailbox_post(m, "c", 1, NULL, 0);
    mailbox_wake(m);
    assert_int_equal(take_wakes(fd), 1);
    mailbox_destroy(m);
    assert_int_equal(close(fd), 0); /* still the receiver's */
}

static void a_refused_message_does_not_wake(void **state) {
    (void)state;
    static const uint8_t bytes[100];
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct mailbox *m = create(256, fd);
    assert_int_equal(mailbox_post(m, bytes, 65, NULL, 0), -ENOBUFS);
    mailbox_wake(m);
    assert_int_equal(take_wakes(fd), 0);
    mailbox_destroy(m);
    close(fd);
}

static void waking_a_saturated_eventfd_does_not_block(void **state) {
    (void)state;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    uint64_t most = UINT64_MAX - 1;
    assert_int_equal(write(fd, &most, sizeof most), sizeof most);
    struct mailbox *m = create(256, fd);
    mailbox_post(m, "a", 1, NULL, 0);
    mailbox_wake(m);
    assert_true(take_wakes(fd) == most);
    mailbox_destroy(m);
    close(fd);
}

static void failing_allocations(void **state) {
    (void)state;
    bool hit = true;
    for (uint64_t n = 1; hit; n++) {
        struct mailbox *m = NULL;
        alloc_fault_arm(n);
        int err = mailbox_create(&m, 1024, -1);
        hit = alloc_fault_hit();
        alloc_fault_disarm();
        assert_int_equal(err, hit ? -ENOMEM : 0);
        assert_true((m == NULL) == hit);
        mailbox_destroy(m);
        assert_true(n <= 3);
    }
}

/* ---- two threads ---- */

enum { STREAM_MESSAGES = 60000, STREAM_MAX = 200 };

struct stream {
    struct mailbox *mailbox;
    uint64_t n_refused;
};

static void *run_producer(void *context) {
    struct stream *stream = context;
    uint8_t bytes[STREAM_MAX];
    for (uint64_t i = 0; i < STREAM_MESSAGES; i++) {
        size_t n = message_length(i, STREAM_MAX);
        fill_message(bytes, i, n);
        while (mailbox_post(stream->mailbox, bytes, n / 3, bytes + n / 3, n - n / 3) < 0) {
            stream->n_refused++;
            mailbox_wake(stream->mailbox);
            sched_yield();
        }
        if (i % 5 == 0) {
            mailbox_wake(stream->mailbox);
        }
    }
    mailbox_wake(stream->mailbox);
    return NULL;
}

/* The receiver sleeps whenever it has found nothing, so a lost wake shows as a timeout. */
static void two_threads(void **state) {
    (void)state;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct stream stream = {.mailbox = create(4 * STREAM_MAX, fd)};
    pthread_t producer;
    assert_int_equal(pthread_create(&producer, NULL, run_producer, &stream), 0);
    uint64_t n_read = 0;
    bool in_order = true, woken = true;
    while (n_read < STREAM_MESSAGES && in_order && woken) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        woken = poll(&p, 1, 20000) == 1;
        take_wakes(fd);
        size_t n;
        for (const uint8_t *message; (message = mailbox_peek(stream.mailbox, &n)) != NULL; n_read++) {
            in_order = in_order && is_message(message, n, n_read, STREAM_MAX);
            if (n_read % 3 == 0) {
                mailbox_release(stream.mailbox);
            }
        }
        mailbox_release(stream.mailbox);
    }
    assert_true(woken);
    assert_true(in_order);
    pthread_join(producer, NULL);
    assert_int_equal(n_read, STREAM_MESSAGES);
    assert_empty(stream.mailbox);
    mailbox_destroy(stream.mailbox);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_parts_arrive_as_one),
        cmocka_unit_test(messages_stay_until_they_are_released),
        cmocka_unit_test(the_ring_is_used_to_its_last_byte),
        cmocka_unit_test(releasing_gives_back_what_was_peeked_only),
        cmocka_unit_test(a_quarter_of_the_ring_is_the_largest_message),
        cmocka_unit_test(capacity_is_rounded_up_and_bounded),
        cmocka_unit_test(random_posts_and_reads_keep_order_and_content),
        cmocka_unit_test(one_wake_for_all_that_was_posted),
        cmocka_unit_test(a_refused_message_does_not_wake),
        cmocka_unit_test(waking_a_saturated_eventfd_does_not_block),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
