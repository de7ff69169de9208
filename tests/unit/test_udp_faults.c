/* Failures of each sending call at each place: exactly the failing datagram is lost, the others keep their
 * order, and each is counted once. */
#include "udp_batch.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fault.h"
#include "fake_udp_kernel.h"
#include "udp_batch_private.h"
#include "udp_loopback.h"

#ifdef TURN_UDP_BACKEND_LINUX
enum { IS_LINUX = 1 };
#else
enum { IS_LINUX = 0 };
#endif

enum { DATAGRAM_BYTES = 100 };

static const uint64_t now_us = 5000000;

/* ---- a batch on that kernel ---- */

enum { N_FLOWS = 4 };

struct world {
    struct tx_batch *batch;
    struct udp_socket socket;
    struct endpoint to[N_FLOWS];
    struct tx_flow flows[N_FLOWS];
    uint32_t n_added;
};

static uint8_t bytes_of[FAKE_UDP_MAX_SENT][DATAGRAM_BYTES];

static void world_open_family(struct world *w, int family, bool gso) {
    const struct tx_batch_params params = {.gso = gso, .batched = true};
    fake_udp_kernel_reset();
    *w = (struct world){.socket = {.fd = FAKE_UDP_FD, .gso = true, .local = {.family = (uint8_t)family}}};
    for (uint32_t i = 0; i < N_FLOWS; i++) {
        w->to[i] =
            (struct endpoint){.family = (uint8_t)family, .port = (uint16_t)(1 + i), .ip = {127, 0, 0, 1}};
    }
    assert_int_equal(tx_batch_create(&w->batch, &params), 0);
    tx_batch_set_syscalls(w->batch, &fake_udp_syscalls);
}

static void world_open(struct world *w, bool gso) {
    world_open_family(w, AF_INET, gso);
}

static void world_close(struct world *w) {
    tx_batch_destroy(w->batch);
}

struct how {
    uint32_t n_bytes;
    uint8_t tos;
    bool dont_fragment;
};

static void add_as(struct world *w, uint32_t flow, struct how how) {
    uint32_t seq = w->n_added++;
    datagram_fill(bytes_of[seq], how.n_bytes, seq);
    const struct tx_target target = {.socket = &w->socket, .to = &w->to[flow]};
    const struct tx_datagram d = {
        .body = bytes_of[seq], .n_body = how.n_bytes, .tos = how.tos, .dont_fragment = how.dont_fragment};
    tx_batch_add(w->batch, &w->flows[flow], &target, &d, now_us);
}

static void add(struct world *w, uint32_t flow) {
    add_as(w, flow, (struct how){.n_bytes = DATAGRAM_BYTES});
}

static void flush(struct world *w) {
    tx_batch_flush(w->batch, now_us);
}

/* Every datagram added was counted once; inside each flow those that left did so in order. */
static void expect_accounts(const struct world *w) {
    int64_t last[N_FLOWS + 1] = {-1, -1, -1, -1, -1};
    for (uint32_t i = 0; i < fake_udp_kernel.n_sent; i++) {
        assert_true(fake_udp_kernel.sent[i].port >= 1 && fake_udp_kernel.sent[i].port <= N_FLOWS);
        assert_true((int64_t)fake_udp_kernel.sent[i].seq > last[fake_udp_kernel.sent[i].port]);
        last[fake_udp_kernel.sent[i].port] = fake_udp_kernel.sent[i].seq;
    }
    const struct tx_counters *c = &w->batch->counters;
    assert_int_equal(tx_counters_accounted(c), w->n_added);
    assert_int_equal(counter_read(&c->datagrams), fake_udp_kernel.n_sent);
    assert_int_equal(counter_read(&c->run_length.sum), fake_udp_kernel.n_sent);
    uint32_t n_in_runs = 0;
    for (uint32_t i = 0; i < fake_udp_kernel.n_sent; i++) {
        n_in_runs += fake_udp_kernel.sent[i].in_run;
    }
    assert_int_equal(counter_read(&c->gso_datagrams), n_in_runs);
}

static bool was_sent(uint32_t seq) {
    for (uint32_t i = 0; i < fake_udp_kernel.n_sent; i++) {
        if (fake_udp_kernel.sent[i].seq == seq) {
            return true;
        }
    }
    return false;
}

/* ---- one bad datagram ---- */

struct reason {
    int err;
    size_t counter_offset;
};

#define REASON(err, field)                                                                                   \
    { err, offsetof(struct tx_counters, field) }
static const struct reason reasons[] = {
    REASON(EINVAL, drop_invalid),
    REASON(EDESTADDRREQ, drop_invalid),
    REASON(EAFNOSUPPORT, drop_invalid),
    REASON(EOPNOTSUPP, drop_invalid),
    REASON(EPERM, drop_denied),
    REASON(EACCES, drop_denied),
    REASON(EMSGSIZE, drop_too_big),
    REASON(ENETUNREACH, drop_unreachable),
    REASON(EHOSTUNREACH, drop_unreachable),
    REASON(EADDRNOTAVAIL, drop_unreachable),
    REASON(ENETDOWN, drop_unreachable),
    REASON(EAGAIN, drop_would_block),
    REASON(ENOBUFS, drop_would_block),
    REASON(EIO, drop_other),
};
#undef REASON
enum { N_REASONS = sizeof reasons / sizeof reasons[0] };

static uint64_t reason_count(const struct world *w, const struct reason *reason) {
    return counter_read((const counter *)((const char *)&w->batch->counters + reason->counter_offset));
}

/* Datagrams in turn to four flows, each a message of its own; the one at `at` never gets out. */
static void check_one_bad_message(const struct reason *reason, int at, bool error_queue) {
    enum { N = 9 };
    struct world w;
    world_open(&w, false);
    w.socket.error_queue = error_queue;
    fake_udp_kernel.fail_seq = at;
    fake_udp_kernel.fail_seq_err = reason->err;
    for (uint32_t i = 0; i < N; i++) {
        add(&w, i % N_FLOWS);
    }
    flush(&w);
    assert_int_equal(fake_udp_kernel.n_sent, N - 1);
    assert_false(was_sent((uint32_t)at));
    assert_int_equal(reason_count(&w, reason), 1);
    expect_accounts(&w);
    assert_true(fake_udp_kernel.n_calls <= (IS_LINUX ? 4 : N));
    assert_int_equal(counter_read(&w.batch->counters.calls), fake_udp_kernel.n_calls);
    world_close(&w);
}

static void one_bad_message_is_lost_alone(void **state) {
    (void)state;
    static const int places[] = {0, 4, 8};
    for (size_t r = 0; r < N_REASONS; r++) {
        for (size_t p = 0; p < 3; p++) {
            check_one_bad_message(&reasons[r], places[p], false);
            check_one_bad_message(&reasons[r], places[p], true);
        }
    }
}

/* A datagram inside a run that the kernel refuses: what concerns it alone must not take the others along. */
static void one_bad_datagram_in_a_run_is_lost_alone(void **state) {
    (void)state;
    static const int errors[] = {EINVAL, EMSGSIZE, EIO, EOPNOTSUPP, ENOPROTOOPT};
    static const int places[] = {0, 7, 15};
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
        for (size_t p = 0; p < 3; p++) {
            struct world w;
            world_open(&w, true);
            fake_udp_kernel.fail_seq = places[p];
            fake_udp_kernel.fail_seq_err = errors[e];
            for (uint32_t i = 0; i < 16; i++) {
                add(&w, 0);
            }
            flush(&w);
            assert_int_equal(fake_udp_kernel.n_sent, 15);
            assert_false(was_sent((uint32_t)places[p]));
            assert_int_equal(counter_read(&w.batch->counters.gso_fallbacks), IS_LINUX);
            expect_accounts(&w);
            world_close(&w);
        }
    }
}

/* ---- runs that the route does not take ---- */

static void a_refused_run_goes_out_as_singles(void **state) {
    (void)state;
    static const int errors[] = {EIO, EINVAL, EMSGSIZE, EOPNOTSUPP, ENOPROTOOPT, ENXIO};
    if (!IS_LINUX) {
        skip();
    }
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
        struct world w;
        world_open(&w, true);
        fake_udp_kernel.run_err = errors[e];
        fake_udp_kernel.run_err_port = 2; /* one destination's device cannot; the others can */
        for (uint32_t i = 0; i < 64; i++) {
            add(&w, i % N_FLOWS);
        }
        flush(&w);
        assert_int_equal(fake_udp_kernel.n_sent, 64);
        expect_accounts(&w);
        assert_int_equal(counter_read(&w.batch->counters.gso_fallbacks), 1);
        assert_int_equal(counter_read(&w.batch->counters.gso_datagrams), 48);
        assert_int_equal(w.flows[0].gso_off_until_us, 0);
        assert_int_equal(w.flows[1].gso_off_until_us, now_us + 10000000);
        assert_true(w.socket.gso);

        /* Until the pause is over that flow is sent singly, without asking again. */
        for (uint32_t i = 0; i < 8; i++) {
            add(&w, 1);
        }
        flush(&w);
        assert_int_equal(counter_read(&w.batch->counters.gso_fallbacks), 1);
        assert_int_equal(fake_udp_kernel.n_sent, 72);

        fake_udp_kernel.run_err = 0;
        const struct tx_target target = {.socket = &w.socket, .to = &w.to[1]};
        for (uint64_t k = 0; k < 2; k++) { /* just before its end, and at it */
            uint64_t later_us = now_us + 10000000 - 1 + k;
            for (uint32_t i = 0; i < 2; i++) {
                uint32_t seq = w.n_added++;
                datagram_fill(bytes_of[seq], DATAGRAM_BYTES, seq);
                const struct tx_datagram d = {.body = bytes_of[seq], .n_body = DATAGRAM_BYTES};
                tx_batch_add(w.batch, &w.flows[1], &target, &d, later_us);
            }
            tx_batch_flush(w.batch, later_us);
            assert_int_equal(fake_udp_kernel.sent[fake_udp_kernel.n_sent - 1].in_run, k == 1);
        }
        expect_accounts(&w);
        world_close(&w);
    }
}

static void a_kernel_without_segments_is_noticed(void **state) {
    (void)state;
    if (!IS_LINUX) {
        skip();
    }
    static const int errors[] = {ENOPROTOOPT, EOPNOTSUPP};
    for (size_t e = 0; e < 2; e++) {
        struct world w;
        world_open(&w, true);
        fake_udp_kernel.run_err = errors[e]; /* everywhere, on the self check's loopback too */
        for (uint32_t i = 0; i < 64; i++) {
            add(&w, i % N_FLOWS);
        }
        flush(&w);
        assert_int_equal(fake_udp_kernel.n_sent, 64);
        assert_false(w.socket.gso);
        uint32_t n_calls = fake_udp_kernel.n_calls;
        for (uint32_t i = 0; i < 64; i++) {
            add(&w, i % N_FLOWS);
        }
        flush(&w);
        assert_int_equal(fake_udp_kernel.n_calls, n_calls + 1); /* not asked again */
        assert_int_equal(fake_udp_kernel.n_sent, 128);
        expect_accounts(&w);
        world_close(&w);
    }
}

/* Errors of the route or a filter: singles would meet them too, so nothing is sent twice. */
static void an_unreachable_run_is_not_taken_apart(void **state) {
    (void)state;
    static const struct reason cases[] = {
        {EPERM, offsetof(struct tx_counters, drop_denied)},
        {ENETUNREACH, offsetof(struct tx_counters, drop_unreachable)},
        {EHOSTUNREACH, offsetof(struct tx_counters, drop_unreachable)},
        {EAGAIN, offsetof(struct tx_counters, drop_would_block)},
        {ENOBUFS, offsetof(struct tx_counters, drop_would_block)},
    };
    if (!IS_LINUX) {
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world w;
        world_open(&w, true);
        fake_udp_kernel.run_err = cases[i].err;
        fake_udp_kernel.run_err_port = 1;
        for (uint32_t k = 0; k < 32; k++) {
            add(&w, k % 2);
        }
        flush(&w);
        assert_int_equal(fake_udp_kernel.n_sent, 16);
        assert_int_equal(reason_count(&w, &cases[i]), 16);
        assert_int_equal(counter_read(&w.batch->counters.gso_fallbacks), 0);
        assert_int_equal(w.flows[0].gso_off_until_us, 0);
        expect_accounts(&w);
        world_close(&w);
    }
}

/* ---- somebody else's ICMP error ---- */

static void a_pending_error_loses_nothing(void **state) {
    (void)state;
    static const int errors[] = {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EMSGSIZE,
                                 EACCES,       ENOPROTOOPT,  EPROTO};
    if (!IS_LINUX) {
        skip();
    }
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
        for (uint32_t at = 0; at < 6; at++) {
            for (int gso = 0; gso < 2; gso++) {
                struct world w;
                world_open(&w, gso);
                w.socket.error_queue = true;
                fake_udp_kernel.pending_err = errors[e];
                fake_udp_kernel.pending_at = at;
                fake_udp_kernel.pending_times = 1;
                for (uint32_t i = 0; i < 12; i++) {
                    add(&w, i % 3);
                    add(&w, i % 3);
                }
                flush(&w);
                assert_int_equal(fake_udp_kernel.n_sent, 24);
                assert_int_equal(counter_read(&w.batch->counters.gso_fallbacks), 0);
                expect_accounts(&w);
                world_close(&w);
            }
        }
    }
}

/* The second try is each message's own: one that used it up takes it from no other. */
static void each_message_is_tried_again(void **state) {
    (void)state;
    if (!IS_LINUX) {
        skip();
    }
    struct world w;
    world_open(&w, false);
    w.socket.error_queue = true;
    fake_udp_kernel.fail_seq = 3;
    fake_udp_kernel.fail_seq_err = EHOSTUNREACH;
    fake_udp_kernel.pending_err = EHOSTUNREACH;
    fake_udp_kernel.pending_at = 8; /* datagram 6: 3 took three attempts */
    fake_udp_kernel.pending_times = 2;
    for (uint32_t i = 0; i < 12; i++) {
        add(&w, i % N_FLOWS);
    }
    flush(&w);
    assert_int_equal(fake_udp_kernel.n_sent, 11);
    assert_false(was_sent(3));
    expect_accounts(&w);

    fake_udp_kernel.fail_seq = 12; /* and the next ones meet the other's error at once */
    fake_udp_kernel.pending_at = fake_udp_kernel.n_attempts + 2;
    fake_udp_kernel.pending_times = 1;
    for (uint32_t i = 0; i < 4; i++) {
        add(&w, i);
    }
    flush(&w);
    assert_int_equal(fake_udp_kernel.n_sent, 14);
    expect_accounts(&w);
    world_close(&w);
}

static void refusals_in_a_row_lose_nothing(void **state) {
    (void)state;
    struct world w;
    world_open(&w, true);
    w.socket.error_queue = true;
    fake_udp_kernel.pending_err = ECONNREFUSED;
    fake_udp_kernel.pending_at = 1;
    fake_udp_kernel.pending_times = 3;
    for (uint32_t i = 0; i < 6; i++) {
        add(&w, i % 3);
    }
    flush(&w);
    assert_int_equal(fake_udp_kernel.n_sent, 6);
    expect_accounts(&w);
    world_close(&w);
}

static void an_error_that_stays_is_bounded(void **state) {
    (void)state;
    static const int errors[] = {ECONNREFUSED, EINTR, EHOSTUNREACH};
    for (size_t e = 0; e < 3; e++) {
        struct world w;
        world_open(&w, true);
        w.socket.error_queue = true;
        fake_udp_kernel.pending_err = errors[e];
        fake_udp_kernel.pending_times = UINT32_MAX;
        for (uint32_t i = 0; i < 40; i++) {
            add(&w, i % N_FLOWS);
        }
        flush(&w);
        assert_int_equal(fake_udp_kernel.n_sent, 0);
        expect_accounts(&w);
        assert_true(fake_udp_kernel.n_calls <= 40 * 6);
        world_close(&w);
    }
}

/* ---- a full send buffer ---- */

static void a_full_buffer_costs_two_tries(void **state) {
    (void)state;
    static const int errors[] = {EAGAIN, ENOBUFS};
    for (size_t e = 0; e < 2; e++) {
        for (uint32_t from = 0; from < 8; from++) {
            struct world w;
            world_open(&w, false);
            fake_udp_kernel.blocked_err = errors[e];
            fake_udp_kernel.blocked_from = from;
            fake_udp_kernel.blocked_times = UINT32_MAX - from;
            for (uint32_t i = 0; i < 100; i++) {
                add(&w, i % N_FLOWS);
            }
            flush(&w);
            assert_int_equal(fake_udp_kernel.n_sent, from);
            assert_int_equal(counter_read(&w.batch->counters.drop_would_block), 100 - from);
            assert_true(fake_udp_kernel.n_attempts <= from + 3);
            expect_accounts(&w);

            fake_udp_kernel.blocked_err = 0; /* the next flush starts afresh */
            add(&w, 0);
            flush(&w);
            assert_int_equal(fake_udp_kernel.n_sent, from + 1);
            world_close(&w);
        }
    }
}

static void a_buffer_full_for_a_moment_loses_one(void **state) {
    (void)state;
    struct world w;
    world_open(&w, false);
    fake_udp_kernel.blocked_err = EAGAIN;
    fake_udp_kernel.blocked_from = 5;
    fake_udp_kernel.blocked_times =
        IS_LINUX ? 2 : 1; /* sendmmsg meets it once unseen, at the end of what went out */
    for (uint32_t i = 0; i < 20; i++) {
        add(&w, i % N_FLOWS);
    }
    flush(&w);
    assert_int_equal(fake_udp_kernel.n_sent, 19);
    assert_false(was_sent(5));
    expect_accounts(&w);
    world_close(&w);
}

/* Two that found it full, with others in between that did not, are not the end of the batch. */
static void a_buffer_full_now_and_then_loses_those(void **state) {
    (void)state;
    struct world w;
    world_open(&w, false);
    fake_udp_kernel.fail_seq = 3;
    fake_udp_kernel.fail_seq_err = EAGAIN;
    fake_udp_kernel.blocked_err = EAGAIN;
    fake_udp_kernel.blocked_from = IS_LINUX ? 11 : 10; /* datagram 10 */
    fake_udp_kernel.blocked_times = IS_LINUX ? 2 : 1;
    for (uint32_t i = 0; i < 20; i++) {
        add(&w, i % N_FLOWS);
    }
    flush(&w);
    assert_int_equal(fake_udp_kernel.n_sent, 18);
    assert_false(was_sent(3) || was_sent(10));
    expect_accounts(&w);
    world_close(&w);
}

static void a_full_buffer_stops_a_run_taken_apart(void **state) {
    (void)state;
    if (!IS_LINUX) {
        skip();
    }
    struct world w;
    world_open(&w, true);
    fake_udp_kernel.run_err = EIO;
    fake_udp_kernel.blocked_err = EAGAIN;
    fake_udp_kernel.blocked_from = 1 + 3; /* the run, three singles, then no more */
    fake_udp_kernel.blocked_times = 1000;
    for (uint32_t i = 0; i < 50; i++) {
        add(&w, 0);
    }
    add(&w, 1);
    flush(&w);
    assert_int_equal(fake_udp_kernel.n_sent, 3);
    assert_int_equal(fake_udp_kernel.n_attempts, 1 + 3 + 2);
    assert_int_equal(counter_read(&w.batch->counters.drop_would_block), 48);
    expect_accounts(&w);
    world_close(&w);
}

/* ---- refused control data, missing calls ---- */

static void a_refused_tos_is_left_out(void **state) {
    (void)state;
    static const int errors[] = {EINVAL, EIO, EOPNOTSUPP, ENOPROTOOPT};
    if (!IS_LINUX) {
        skip();
    }
    for (size_t e = 0; e < 4; e++) {
        for (int gso = 0; gso < 2; gso++) {
            struct world w;
            world_open(&w, gso);
            fake_udp_kernel.tos_err = errors[e];
            for (uint32_t i = 0; i < 30; i++) {
                add_as(&w, i % 3, (struct how){.n_bytes = DATAGRAM_BYTES, .tos = i % 3 == 1 ? 0xb8 : 0});
            }
            flush(&w);
            assert_int_equal(fake_udp_kernel.n_sent, 30);
            for (uint32_t i = 0; i < 30; i++) {
                assert_int_equal(fake_udp_kernel.sent[i].tos, 0);
            }
            if (gso) { /* two plain runs, the refused one twice, its first with TOS, then all ten without */
                assert_int_equal(fake_udp_kernel.n_attempts, 2 + 2 + 1 + 10);
            }
            expect_accounts(&w);
            world_close(&w);
        }
    }
}

static void sendmmsg_may_be_missing(void **state) {
    (void)state;
    struct world w;
    if (!IS_LINUX) {
        skip();
    }
    world_open(&w, true);
    fake_udp_kernel.sendmmsg_err = ENOSYS;
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 40; i++) {
            add(&w, i % N_FLOWS);
        }
        flush(&w);
    }
    assert_int_equal(fake_udp_kernel.n_sent, 80);
    assert_int_equal(fake_udp_kernel.n_calls, 1 + 2 * N_FLOWS); /* asked once; runs still leave as runs */
    assert_int_equal(counter_read(&w.batch->counters.calls), fake_udp_kernel.n_calls);
    expect_accounts(&w);
    world_close(&w);
}

/* ---- do not fragment ---- */

static void unfragmented_datagrams_keep_their_place(void **state) {
    (void)state;
    struct world w;
    world_open(&w, true);
    static const bool asks[] = {true, false, false, true, true, false, true};
    for (uint32_t i = 0; i < 7; i++) {
        add_as(&w, 0, (struct how){.n_bytes = DATAGRAM_BYTES, .dont_fragment = asks[i]});
    }
    flush(&w);
    assert_int_equal(fake_udp_kernel.n_sent, 7);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(fake_udp_kernel.sent[i].seq, i);
        assert_int_equal(fake_udp_kernel.sent[i].no_fragment, asks[i]);
        assert_false(fake_udp_kernel.sent[i].no_fragment && fake_udp_kernel.sent[i].in_run);
    }
    assert_false(fake_udp_kernel.no_fragment); /* the socket is as it was */
    assert_int_equal(fake_udp_kernel.n_switches, IS_LINUX ? 6 : 8);
    expect_accounts(&w);
    world_close(&w);
}

static void unfragmented_ipv6_needs_no_switch(void **state) {
    (void)state;
    struct world w;
    if (!IS_LINUX) {
        skip();
    }
    world_open_family(&w, AF_INET6, true);
    for (uint32_t i = 0; i < 6; i++) {
        add_as(&w, 0, (struct how){.n_bytes = DATAGRAM_BYTES, .dont_fragment = i % 2 == 0, .tos = 0xb8});
    }
    flush(&w);
    assert_int_equal(fake_udp_kernel.n_calls, 1);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(fake_udp_kernel.sent[i].seq, i);
        assert_int_equal(fake_udp_kernel.sent[i].no_fragment, i % 2 == 0);
        assert_int_equal(fake_udp_kernel.sent[i].tos, 0xb8);
    }
    expect_accounts(&w);
    world_close(&w);
}

static void a_socket_that_cannot_switch_loses_those_that_ask(void **state) {
    (void)state;
    struct world w;
    world_open(&w, true);
    fake_udp_kernel.setsockopt_err = EINVAL;
    for (uint32_t i = 0; i < 6; i++) {
        add_as(&w, 0, (struct how){.n_bytes = DATAGRAM_BYTES, .dont_fragment = i == 2 || i == 3});
    }
    flush(&w);
    assert_int_equal(fake_udp_kernel.n_sent, 4);
    assert_int_equal(counter_read(&w.batch->counters.drop_invalid), 2);
    expect_accounts(&w);
    world_close(&w);
}

static void a_failed_switch_back_is_no_loss(void **state) {
    (void)state;
    struct world w;
    world_open(&w, true);
    fake_udp_kernel.fail_seq = 1;
    fake_udp_kernel.fail_seq_err = EMSGSIZE;
    for (uint32_t i = 0; i < 3; i++) {
        add_as(&w, 0, (struct how){.n_bytes = DATAGRAM_BYTES, .dont_fragment = i == 1});
    }
    flush(&w);
    assert_int_equal(fake_udp_kernel.n_sent, 2);
    assert_false(fake_udp_kernel.no_fragment);
    assert_int_equal(counter_read(&w.batch->counters.drop_too_big), 1);
    expect_accounts(&w);
    world_close(&w);
}

static void more_messages_than_one_call_takes(void **state) {
    (void)state;
    enum { N = 2500 };
    struct world w;
    world_open(&w, false);
    for (uint32_t i = 0; i < N; i++) {
        add(&w, i % N_FLOWS);
    }
    flush(&w);
    assert_int_equal(fake_udp_kernel.n_sent, N);
    assert_int_equal(fake_udp_kernel.n_calls, IS_LINUX ? 3 : N);
    expect_accounts(&w);
    world_close(&w);
}

/* ---- faults at random, all at once ---- */

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void random_faults_keep_order_and_accounts(void **state) {
    (void)state;
    static const int errors[] = {EIO, EINVAL, EMSGSIZE, EPERM, EAGAIN, ENOBUFS, ECONNREFUSED, EHOSTUNREACH};
    for (uint32_t seed = 1; seed <= 300; seed++) {
        uint32_t random = seed;
        struct world w;
        world_open(&w, true);
        w.socket.error_queue = next_random(&random) % 2;
        for (int round = 0; round < 3; round++) {
            fake_udp_kernel.run_err = next_random(&random) % 2 ? errors[next_random(&random) % 8] : 0;
            fake_udp_kernel.run_err_port = (uint16_t)(next_random(&random) % 5);
            fake_udp_kernel.tos_err = next_random(&random) % 3 ? 0 : EINVAL;
            fake_udp_kernel.fail_seq = (int)(w.n_added + next_random(&random) % 100);
            fake_udp_kernel.fail_seq_err = errors[next_random(&random) % 8];
            fake_udp_kernel.pending_err = errors[next_random(&random) % 8];
            fake_udp_kernel.pending_at = fake_udp_kernel.n_attempts + next_random(&random) % 40;
            fake_udp_kernel.pending_times = next_random(&random) % 3;
            uint32_t n = next_random(&random) % 200;
            for (uint32_t i = 0; i < n; i++) {
                uint32_t r = next_random(&random);
                add_as(&w, r % N_FLOWS,
                       (struct how){.n_bytes = r / 4 % 3 ? DATAGRAM_BYTES : 4 + r / 16 % 90,
                                    .tos = r / 2048 % 8 ? 0 : 0xb8,
                                    .dont_fragment = r / 32768 % 16 == 0});
            }
            alloc_fault_arm(0);
            flush(&w);
            alloc_fault_disarm();
            assert_int_equal(alloc_fault_count(), 0); /* failing is no reason to allocate */
        }
        assert_false(fake_udp_kernel.no_fragment);
        expect_accounts(&w);
        world_close(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_bad_message_is_lost_alone),
        cmocka_unit_test(one_bad_datagram_in_a_run_is_lost_alone),
        cmocka_unit_test(a_refused_run_goes_out_as_singles),
        cmocka_unit_test(a_kernel_without_segments_is_noticed),
        cmocka_unit_test(an_unreachable_run_is_not_taken_apart),
        cmocka_unit_test(a_pending_error_loses_nothing),
        cmocka_unit_test(each_message_is_tried_again),
        cmocka_unit_test(refusals_in_a_row_lose_nothing),
        cmocka_unit_test(an_error_that_stays_is_bounded),
        cmocka_unit_test(a_full_buffer_costs_two_tries),
        cmocka_unit_test(a_buffer_full_for_a_moment_loses_one),
        cmocka_unit_test(a_buffer_full_now_and_then_loses_those),
        cmocka_unit_test(a_full_buffer_stops_a_run_taken_apart),
        cmocka_unit_test(a_refused_tos_is_left_out),
        cmocka_unit_test(sendmmsg_may_be_missing),
        cmocka_unit_test(unfragmented_datagrams_keep_their_place),
        cmocka_unit_test(unfragmented_ipv6_needs_no_switch),
        cmocka_unit_test(a_socket_that_cannot_switch_loses_those_that_ask),
        cmocka_unit_test(a_failed_switch_back_is_no_loss),
        cmocka_unit_test(more_messages_than_one_call_takes),
        cmocka_unit_test(random_faults_keep_order_and_accounts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
