/* Failures of the receiving calls: an error of somebody's datagram delays nobody, and missing calls are
 * replaced. */
#include "udp_batch.h"

#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cmocka.h>

#include "alloc_fault.h"
#include "udp_batch_private.h"

#ifdef TURN_UDP_BACKEND_LINUX
enum { IS_LINUX = 1 };
#else
enum { IS_LINUX = 0 };
#endif

static struct {
    int errors[64]; /* of the calls in turn; 0: a datagram comes */
    uint32_t n_errors, n_calls, n_many, n_one;
    int many_err; /* of every recvmmsg */
} source;

static int next_fault(void) {
    uint32_t i = source.n_calls++;
    return i < source.n_errors ? source.errors[i] : EAGAIN;
}

static void give(struct sockaddr *name, socklen_t *n_name) {
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(7), .sin_addr.s_addr = htonl(0x7f000001)};
    memcpy(name, &in, sizeof in);
    *n_name = sizeof in;
}

#ifdef TURN_UDP_BACKEND_LINUX

static ssize_t give_message(struct msghdr *m) {
    /* The in/out fields must have been reset, whatever happened before. */
    assert_int_equal(m->msg_namelen, sizeof(union endpoint_sockaddr));
    assert_true(m->msg_controllen >= 128);
    assert_int_equal(m->msg_flags, 0);
    memset(m->msg_iov[0].iov_base, 1, 5);
    give(m->msg_name, &m->msg_namelen);
    m->msg_controllen = 0;
    m->msg_flags = MSG_TRUNC;
    return 5;
}

static ssize_t fake_recvmsg(int fd, struct msghdr *m, int flags) {
    (void)fd;
    assert_true((flags & MSG_DONTWAIT) != 0);
    source.n_one++;
    errno = next_fault();
    return errno != 0 ? -1 : give_message(m);
}

static int fake_recvmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout) {
    (void)fd;
    assert_true((flags & MSG_DONTWAIT) != 0);
    assert_null(timeout);
    source.n_many++;
    if (source.many_err != 0) {
        errno = source.many_err;
        return -1;
    }
    unsigned i = 0;
    while (i < n) {
        int err = next_fault();
        if (err != 0) {
            errno = err;
            return i > 0 ? (int)i : -1;
        }
        messages[i].msg_len = (unsigned)give_message(&messages[i].msg_hdr);
        i++;
    }
    return (int)i;
}

static const struct udp_syscalls fake_source = {.recvmmsg = fake_recvmmsg, .recvmsg = fake_recvmsg};

#else

static ssize_t fake_recvfrom(int fd, void *bytes, size_t n, int flags, struct sockaddr *from,
                             socklen_t *n_from) {
    (void)fd;
    (void)flags;
    assert_true(n >= 65535);
    source.n_one++;
    errno = next_fault();
    if (errno != 0) {
        return -1;
    }
    memset(bytes, 1, 5);
    give(from, n_from);
    return 5;
}

static const struct udp_syscalls fake_source = {.recvfrom = fake_recvfrom};

#endif

static struct rx_ring *source_open(struct udp_socket *socket, bool single) {
    struct rx_ring *ring = NULL;
    const struct rx_ring_params params = {.n_slots = 16, .single = single};
    memset(&source, 0, sizeof source);
    *socket = (struct udp_socket){.fd = 1000, .error_queue = true, .local = {.family = AF_INET, .port = 1}};
    assert_int_equal(rx_ring_create(&ring, &params), 0);
    rx_ring_set_syscalls(ring, &fake_source);
    return ring;
}

static void pending_errors_are_read_over(void **state) {
    (void)state;
    static const int pending[] = {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EMSGSIZE, EACCES, EPROTO, EINTR};
    for (int single = 0; single < 2; single++) {
        for (size_t e = 0; e < sizeof pending / sizeof pending[0]; e++) {
            struct udp_socket socket;
            bool drained;
            struct rx_ring *ring = source_open(&socket, single);
            source.errors[0] = source.errors[1] = source.errors[2] = pending[e];
            source.n_errors = 8; /* three errors, five datagrams */
            alloc_fault_arm(0);
            assert_int_equal(rx_ring_fill(ring, &socket, 16, &drained), 5);
            alloc_fault_disarm();
            assert_int_equal(alloc_fault_count(), 0);
            assert_true(drained);
            assert_int_equal(counter_read(&ring->counters.errors), 3);
            assert_int_equal(counter_read(&ring->counters.packets), 5);
            rx_ring_release(ring);
            assert_int_equal(rx_ring_fill(ring, &socket, 16, &drained), 0);
            rx_ring_destroy(ring);
        }
    }
}

static void a_flood_of_errors_is_bounded(void **state) {
    (void)state;
    struct udp_socket socket;
    bool drained;
    struct rx_ring *ring = source_open(&socket, false);
    for (size_t i = 0; i < 64; i++) {
        source.errors[i] = ECONNREFUSED;
    }
    source.n_errors = 64;
    assert_int_equal(rx_ring_fill(ring, &socket, 16, &drained), 0);
    assert_true(drained); /* the loop is told to go on elsewhere */
    assert_true(source.n_calls <= 16);
    rx_ring_destroy(ring);
}

static void other_errors_end_the_drain(void **state) {
    (void)state;
    static const int errors[] = {EBADF, ENOTSOCK, EFAULT, ENOMEM};
    for (size_t e = 0; e < 4; e++) {
        struct udp_socket socket;
        bool drained;
        struct rx_ring *ring = source_open(&socket, false);
        source.errors[0] = errors[e];
        source.n_errors = 3;
        assert_int_equal(rx_ring_fill(ring, &socket, 16, &drained), 0);
        assert_true(drained);
        assert_int_equal(source.n_calls, 1);
        assert_int_equal(counter_read(&ring->counters.errors), 1);
        assert_int_equal(rx_ring_fill(ring, &socket, 16, &drained), 2);
        rx_ring_destroy(ring);
    }
}

static void recvmmsg_may_be_missing(void **state) {
    (void)state;
    static const int errors[] = {ENOSYS, EOPNOTSUPP};
    if (!IS_LINUX) {
        skip();
    }
    for (size_t e = 0; e < 2; e++) {
        for (int error_queue = 0; error_queue < 2; error_queue++) {
            struct udp_socket socket;
            bool drained;
            struct rx_ring *ring = source_open(&socket, false);
            socket.error_queue = error_queue;
            source.many_err = errors[e];
            source.n_errors = 20;
            assert_int_equal(rx_ring_fill(ring, &socket, 4, &drained), 4);
            assert_false(drained);
            uint32_t n_many = source.n_many;
            assert_int_equal(rx_ring_fill(ring, &socket, 16, &drained), 12);
            assert_int_equal(source.n_many, n_many); /* not asked again */
            rx_ring_release(ring);
            assert_int_equal(rx_ring_fill(ring, &socket, 16, &drained), 4);
            assert_true(drained);
            assert_int_equal(counter_read(&ring->counters.unavailable), 1);
            assert_int_equal(counter_read(&ring->counters.packets), 20);
            rx_ring_destroy(ring);
        }
    }
}

/* An ICMP error that reads like a missing call must not switch the batches off for good. */
static void a_strangers_error_does_not_end_batching(void **state) {
    (void)state;
    if (!IS_LINUX) {
        skip();
    }
    struct udp_socket socket;
    bool drained;
    struct rx_ring *ring = source_open(&socket, false);
    source.errors[0] = source.errors[1] = EOPNOTSUPP;
    source.n_errors = 5;
    assert_int_equal(rx_ring_fill(ring, &socket, 16, &drained), 3);
    assert_int_equal(counter_read(&ring->counters.unavailable), 0);
    assert_int_equal(source.n_one, 0);
    rx_ring_destroy(ring);
}

static void truncation_is_told_and_counted(void **state) {
    (void)state;
    if (!IS_LINUX) {
        skip();
    }
    struct udp_socket socket;
    bool drained;
    struct rx_ring *ring = source_open(&socket, false);
    source.n_errors = 3;
    assert_int_equal(rx_ring_fill(ring, &socket, 16, &drained), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(ring->packets[i].truncated);
    }
    assert_int_equal(counter_read(&ring->counters.truncated), 3);
    rx_ring_destroy(ring);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pending_errors_are_read_over),
        cmocka_unit_test(a_flood_of_errors_is_bounded),
        cmocka_unit_test(other_errors_end_the_drain),
        cmocka_unit_test(recvmmsg_may_be_missing),
        cmocka_unit_test(a_strangers_error_does_not_end_batching),
        cmocka_unit_test(truncation_is_told_and_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
