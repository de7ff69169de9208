/* Sending in batches, over real loopback sockets. */
#include "udp_batch.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "alloc_fault.h"
#include "udp_batch_private.h"
#include "udp_loopback.h"

#ifdef TURN_UDP_BACKEND_LINUX
enum { HAS_RUNS = 1 };
#else
enum { HAS_RUNS = 0 };
#endif

static const uint64_t now_us = 1000000;

static struct tx_batch *batch_create(bool gso, bool batched) {
    struct tx_batch *batch = NULL;
    const struct tx_batch_params params = {.gso = gso, .batched = batched};
    assert_int_equal(tx_batch_create(&batch, &params), 0);
    return batch;
}

/* A sender, a receiver and a flow between them. */
struct line {
    struct udp_socket out, in;
    struct tx_flow flow;
    struct tx_target target;
};

static void line_open(struct line *line, const char *ip) {
    *line = (struct line){0};
    loopback_open(&line->out, ip, false);
    loopback_open(&line->in, ip, false);
    line->target = (struct tx_target){.socket = &line->out, .to = &line->in.local};
}

static void line_close(struct line *line) {
    udp_socket_close(&line->out);
    udp_socket_close(&line->in);
}

static void add(struct tx_batch *batch, struct line *line, const uint8_t *bytes, size_t n_bytes) {
    const struct tx_datagram datagram = {.body = bytes, .n_body = (uint32_t)n_bytes};
    tx_batch_add(batch, &line->flow, &line->target, &datagram, now_us);
}

static void expect_datagram(const struct line *line, uint32_t n_bytes, uint32_t seq) {
    static uint8_t bytes[65536];
    struct endpoint source;
    assert_int_equal(loopback_receive(line->in.fd, bytes, sizeof bytes, &source), n_bytes);
    assert_true(endpoint_equal(&source, &line->target.socket->local));
    assert_true(datagram_matches(bytes, n_bytes, seq));
}

/* Sends n datagrams of one size and perhaps a shorter one as one batch, and checks each byte of them. */
static void check_run(struct tx_batch *batch, struct line *line, uint32_t n, uint32_t n_bytes,
                      uint32_t n_tail) {
    static uint8_t bytes[65 * 1500];
    for (uint32_t i = 0; i < n; i++) {
        datagram_fill(bytes + (size_t)i * n_bytes, n_bytes, i);
        add(batch, line, bytes + (size_t)i * n_bytes, n_bytes);
    }
    if (n_tail > 0) {
        datagram_fill(bytes + (size_t)n * n_bytes, n_tail, n);
        add(batch, line, bytes + (size_t)n * n_bytes, n_tail);
    }
    tx_batch_flush(batch, now_us);
    for (uint32_t i = 0; i < n; i++) {
        expect_datagram(line, n_bytes, i);
    }
    if (n_tail > 0) {
        expect_datagram(line, n_tail, n);
    }
    assert_true(loopback_is_empty(line->in.fd));
}

static void check_runs_of_all_lengths(const char *ip) {
    struct line line;
    line_open(&line, ip);
    struct tx_batch *batch = batch_create(true, true);
    uint64_t n_sent = 0, n_messages = 0;
    for (uint32_t n = 1; n <= 64; n++) {
        check_run(batch, &line, n, 320, 0);
        n_sent += n;
        n_messages++;
    }
    for (uint32_t n = 1; n <= 63; n++) {
        check_run(batch, &line, n, 320, 1 + n % 319);
        n_sent += n + 1;
        n_messages++;
    }
    assert_int_equal(counter_read(&batch->counters.datagrams), n_sent);
    assert_int_equal(tx_counters_dropped(&batch->counters), 0);
    if (HAS_RUNS) {
        assert_int_equal(counter_read(&batch->counters.calls), n_messages);
        assert_int_equal(counter_read(&batch->counters.gso_messages), n_messages - 1);
        assert_int_equal(counter_read(&batch->counters.gso_datagrams), n_sent - 1);
        assert_int_equal(counter_read(&batch->counters.gso_fallbacks), 0);
        assert_int_equal(counter_read(&batch->counters.run_length.n_values), n_messages);
        assert_int_equal(counter_read(&batch->counters.run_length.max), 64);
    }
    tx_batch_destroy(batch);
    line_close(&line);
}

static void runs_arrive_byte_for_byte_v4(void **state) {
    (void)state;
    check_runs_of_all_lengths("127.0.0.1");
}

static void runs_arrive_byte_for_byte_v6(void **state) {
    (void)state;
    check_runs_of_all_lengths("::1");
}

/* 64 datagrams of 1,472 bytes are more than one message may hold. */
static void runs_stay_within_the_datagram_limit(void **state) {
    (void)state;
    static const struct {
        const char *ip;
        uint32_t n_bytes, n_messages;
    } cases[] = {
        {"127.0.0.1", 100, 1},  {"127.0.0.1", 1000, 1}, {"127.0.0.1", 1023, 1},
        {"127.0.0.1", 1024, 2}, {"127.0.0.1", 1200, 2}, {"127.0.0.1", 1472, 2},
        {"::1", 1023, 1},       {"::1", 1024, 2},       {"::1", 1452, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct line line;
        line_open(&line, cases[i].ip);
        struct tx_batch *batch = batch_create(true, true);
        check_run(batch, &line, 64, cases[i].n_bytes, 0);
        if (HAS_RUNS) {
            assert_int_equal(counter_read(&batch->counters.run_length.n_values), cases[i].n_messages);
            assert_int_equal(counter_read(&batch->counters.gso_fallbacks), 0);
        }
        tx_batch_destroy(batch);
        line_close(&line);
    }
}

static void the_65th_datagram_opens_a_run(void **state) {
    (void)state;
    struct line line;
    line_open(&line, "127.0.0.1");
    struct tx_batch *batch = batch_create(true, true);
    check_run(batch, &line, 65, 64, 0);
    if (HAS_RUNS) {
        assert_int_equal(counter_read(&batch->counters.gso_messages), 1);
        assert_int_equal(counter_read(&batch->counters.gso_datagrams), 64);
        assert_int_equal(counter_read(&batch->counters.calls), 1);
    }
    tx_batch_destroy(batch);
    line_close(&line);
}

/* A shorter datagram ends its run, a longer one opens the next: what comes later stays later. */
static void sizes_never_overtake(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1200, 1200, 1200, 200, 200, 1200, 0, 1200, 0, 0, 5, 6, 5, 1200, 1200, 1};
    enum { N_SIZES = sizeof sizes / sizeof sizes[0], N_ROUNDS = 20 };
    static uint8_t bytes[N_ROUNDS * N_SIZES][1200];
    struct line line;
    line_open(&line, "127.0.0.1");
    struct tx_batch *batch = batch_create(true, true);
    for (uint32_t i = 0; i < N_ROUNDS * N_SIZES; i++) {
        datagram_fill(bytes[i], sizes[i % N_SIZES], i);
        add(batch, &line, bytes[i], sizes[i % N_SIZES]);
    }
    tx_batch_flush(batch, now_us);
    for (uint32_t i = 0; i < N_ROUNDS * N_SIZES; i++) {
        expect_datagram(&line, sizes[i % N_SIZES], i);
    }
    assert_int_equal(counter_read(&batch->counters.datagrams), N_ROUNDS * N_SIZES);
    if (HAS_RUNS) {
        assert_int_equal(counter_read(&batch->counters.calls), 1);
        /* Of each round: 1200x3+200, 200 alone, 1200 alone, empty, 1200, two empty, 5, 6+5, 1200x2+1. */
        assert_int_equal(counter_read(&batch->counters.gso_messages), N_ROUNDS * 3);
        assert_int_equal(counter_read(&batch->counters.gso_datagrams), N_ROUNDS * 9);
    }
    tx_batch_destroy(batch);
    line_close(&line);
}

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Many flows from two sockets, interleaved at random with random sizes: each receives its own, in order. */
static void interleaved_flows_keep_their_order(void **state) {
    (void)state;
    enum { N_FLOWS = 100, N_DATAGRAMS = 3000, MAX_BYTES = 700 };
    static struct line lines[N_FLOWS];
    static uint8_t bytes[N_DATAGRAMS][MAX_BYTES];
    static uint32_t expected[N_FLOWS][N_DATAGRAMS], sizes[N_DATAGRAMS], n_expected[N_FLOWS];
    struct udp_socket out[2];
    loopback_open(&out[0], "127.0.0.1", false);
    loopback_open(&out[1], "127.0.0.1", false);
    for (uint32_t i = 0; i < N_FLOWS; i++) {
        line_open(&lines[i], "127.0.0.1");
        lines[i].target.socket = &out[i % 2];
    }
    struct tx_batch *batch = batch_create(true, true);
    uint32_t seed = 1;
    for (uint32_t i = 0; i < N_DATAGRAMS; i++) {
        uint32_t f = next_random(&seed) % N_FLOWS;
        sizes[i] = 4 + (next_random(&seed) % 3) * 300;
        datagram_fill(bytes[i], sizes[i], i);
        expected[f][n_expected[f]++] = i;
        add(batch, &lines[f], bytes[i], sizes[i]);
        if (next_random(&seed) % 500 == 0) {
            tx_batch_flush(batch, now_us);
        }
    }
    tx_batch_flush(batch, now_us);
    for (uint32_t f = 0; f < N_FLOWS; f++) {
        for (uint32_t i = 0; i < n_expected[f]; i++) {
            expect_datagram(&lines[f], sizes[expected[f][i]], expected[f][i]);
        }
        line_close(&lines[f]);
    }
    assert_int_equal(counter_read(&batch->counters.datagrams), N_DATAGRAMS);
    if (HAS_RUNS) {
        assert_true(counter_read(&batch->counters.gso_datagrams) > N_DATAGRAMS / 2);
        assert_int_equal(counter_read(&batch->counters.gso_fallbacks), 0);
    }
    udp_socket_close(&out[0]);
    udp_socket_close(&out[1]);
    tx_batch_destroy(batch);
}

static void hundreds_of_sockets_share_a_batch(void **state) {
    (void)state;
    enum { N_SOCKETS = 300 };
    static struct line lines[N_SOCKETS];
    static uint8_t bytes[N_SOCKETS * 2][64];
    struct tx_batch *batch = batch_create(true, true);
    for (uint32_t i = 0; i < N_SOCKETS; i++) {
        line_open(&lines[i], i % 2 == 0 ? "127.0.0.1" : "::1");
    }
    for (uint32_t i = 0; i < 2 * N_SOCKETS; i++) {
        datagram_fill(bytes[i], sizeof bytes[i], i);
        add(batch, &lines[i % N_SOCKETS], bytes[i], sizeof bytes[i]);
    }
    tx_batch_flush(batch, now_us);
    for (uint32_t i = 0; i < 2 * N_SOCKETS; i++) {
        expect_datagram(&lines[i % N_SOCKETS], sizeof bytes[i], i);
    }
    assert_int_equal(counter_read(&batch->counters.flushes), 1);
    if (HAS_RUNS) {
        assert_int_equal(counter_read(&batch->counters.calls), N_SOCKETS);
    }
    for (uint32_t i = 0; i < N_SOCKETS; i++) {
        line_close(&lines[i]);
    }
    tx_batch_destroy(batch);
}

static void datagrams_of_extreme_sizes(void **state) {
    (void)state;
    static uint8_t bytes[70000];
    struct line line;
    line_open(&line, "127.0.0.1");
    struct tx_batch *batch = batch_create(true, true);
    static const uint32_t sizes[] = {0, 1, 65506, 65507, 65507, 65508, 65535, 65536, 70000, 2, 0};
    enum { N_SIZES = sizeof sizes / sizeof sizes[0] };
    datagram_fill(bytes, sizeof bytes, 7);
    for (uint32_t i = 0; i < N_SIZES; i++) {
        add(batch, &line, bytes, sizes[i]);
    }
    const struct tx_datagram wrapping = {.head = bytes, .body = bytes, .n_head = UINT32_MAX, .n_body = 1};
    tx_batch_add(batch, &line.flow, &line.target, &wrapping, now_us);
    tx_batch_flush(batch, now_us);
    for (uint32_t i = 0; i < N_SIZES; i++) {
        if (sizes[i] <= 65507) {
            expect_datagram(&line, sizes[i], 7);
        }
    }
    assert_true(loopback_is_empty(line.in.fd));
    assert_int_equal(counter_read(&batch->counters.datagrams), 7);
    assert_int_equal(counter_read(&batch->counters.drop_too_big), 5);
    assert_int_equal(tx_counters_accounted(&batch->counters), N_SIZES + 1);
    tx_batch_destroy(batch);
    line_close(&line);
}

/* The ways in which a datagram may come in two pieces; the head of all is the same four bytes. */
static void pieces_are_joined(void **state) {
    (void)state;
    enum { N = 40, HEAD = 4, BODY = 96 };
    static uint8_t bodies[N][BODY];
    static const uint8_t head[HEAD] = {0x40, 0x01, 0, BODY};
    uint8_t contiguous[HEAD + BODY], got[200];
    struct line line;
    line_open(&line, "127.0.0.1");
    struct tx_batch *batch = batch_create(true, true);
    for (uint32_t i = 0; i < N; i++) {
        datagram_fill(bodies[i], BODY, i);
        const struct tx_datagram d = {.head = head, .n_head = HEAD, .body = bodies[i], .n_body = BODY};
        tx_batch_add(batch, &line.flow, &line.target, &d, now_us);
    }
    memcpy(contiguous, head, HEAD);
    datagram_fill(contiguous + HEAD, BODY, N);
    const struct tx_datagram one = {
        .head = contiguous, .n_head = HEAD, .body = contiguous + HEAD, .n_body = BODY};
    tx_batch_add(batch, &line.flow, &line.target, &one, now_us);
    const struct tx_datagram only_head = {.head = head, .n_head = HEAD};
    tx_batch_add(batch, &line.flow, &line.target, &only_head, now_us);
    tx_batch_flush(batch, now_us);
    for (uint32_t i = 0; i <= N; i++) {
        assert_int_equal(loopback_receive(line.in.fd, got, sizeof got, NULL), HEAD + BODY);
        assert_memory_equal(got, head, HEAD);
        assert_true(datagram_matches(got + HEAD, BODY, i));
    }
    assert_int_equal(loopback_receive(line.in.fd, got, sizeof got, NULL), HEAD);
    assert_memory_equal(got, head, HEAD);
    assert_int_equal(counter_read(&batch->counters.gso_messages), HAS_RUNS);
    tx_batch_destroy(batch);
    line_close(&line);
}

static void a_datagram_without_flow_is_never_grouped(void **state) {
    (void)state;
    uint8_t bytes[4][100];
    struct line line;
    line_open(&line, "127.0.0.1");
    struct tx_batch *batch = batch_create(true, true);
    for (uint32_t i = 0; i < 4; i++) {
        datagram_fill(bytes[i], sizeof bytes[i], i);
        const struct tx_datagram d = {.body = bytes[i], .n_body = sizeof bytes[i]};
        tx_batch_add(batch, NULL, &line.target, &d, now_us);
    }
    tx_batch_flush(batch, now_us);
    for (uint32_t i = 0; i < 4; i++) {
        expect_datagram(&line, sizeof bytes[i], i);
    }
    assert_int_equal(counter_read(&batch->counters.gso_messages), 0);
    assert_int_equal(counter_read(&batch->counters.calls), HAS_RUNS ? 1 : 4);
    tx_batch_destroy(batch);
    line_close(&line);
}

static void batching_can_be_switched_off(void **state) {
    (void)state;
    struct line line;
    line_open(&line, "127.0.0.1");
    struct tx_batch *single = batch_create(true, false);
    check_run(single, &line, 20, 100, 3);
    assert_int_equal(counter_read(&single->counters.calls), 21);
    assert_int_equal(counter_read(&single->counters.gso_messages), 0);
    assert_int_equal(counter_read(&single->counters.datagrams), 21);
    tx_batch_destroy(single);
    struct tx_batch *without_gso = batch_create(false, true);
    check_run(without_gso, &line, 20, 100, 3);
    assert_int_equal(counter_read(&without_gso->counters.calls), HAS_RUNS ? 1 : 21);
    assert_int_equal(counter_read(&without_gso->counters.gso_messages), 0);
    assert_int_equal(counter_read(&without_gso->counters.datagrams), 21);
    tx_batch_destroy(without_gso);
    line.out.gso = false;
    struct tx_batch *socket_without = batch_create(true, true);
    check_run(socket_without, &line, 20, 100, 3);
    assert_int_equal(counter_read(&socket_without->counters.gso_messages), 0);
    tx_batch_destroy(socket_without);
    line_close(&line);
}

/* What a flow remembers of an earlier batch, or of another one, must not name a run of this one. */
static void stale_flows_join_nothing(void **state) {
    (void)state;
    struct line a, b;
    uint8_t bytes[6][50];
    line_open(&a, "127.0.0.1");
    line_open(&b, "127.0.0.1");
    for (uint32_t i = 0; i < 6; i++) {
        datagram_fill(bytes[i], sizeof bytes[i], i);
    }
    struct tx_batch *one = batch_create(true, true);
    struct tx_batch *two = batch_create(true, true);
    add(one, &a, bytes[0], sizeof bytes[0]);
    add(two, &b, bytes[1], sizeof bytes[1]);
    add(two, &a, bytes[2], sizeof bytes[2]); /* same generation number, other batch */
    add(one, &a, bytes[3], sizeof bytes[3]);
    add(two, &b, bytes[4], sizeof bytes[4]);
    tx_batch_flush(two, now_us);
    tx_batch_flush(one, now_us);
    expect_datagram(&b, sizeof bytes[1], 1);
    expect_datagram(&b, sizeof bytes[4], 4);
    expect_datagram(&a, sizeof bytes[2], 2);
    expect_datagram(&a, sizeof bytes[0], 0);
    expect_datagram(&a, sizeof bytes[3], 3);
    assert_int_equal(counter_read(&one->counters.datagrams), 2);
    assert_int_equal(counter_read(&two->counters.datagrams), 3);

    one->generation = UINT32_MAX; /* the generation comes round: a zeroed flow must still be new */
    tx_batch_flush(one, now_us);
    assert_int_equal(one->generation, 1);
    a.flow = (struct tx_flow){0};
    b.flow = (struct tx_flow){.generation = 1, .run = 0}; /* 4 billion flushes ago */
    add(one, &a, bytes[0], sizeof bytes[0]);
    add(one, &b, bytes[1], sizeof bytes[1]);
    b.flow = (struct tx_flow){.generation = 1, .run = 77};
    add(one, &b, bytes[2], sizeof bytes[2]);
    tx_batch_flush(one, now_us);
    expect_datagram(&a, sizeof bytes[0], 0);
    expect_datagram(&b, sizeof bytes[1], 1);
    expect_datagram(&b, sizeof bytes[2], 2);
    tx_batch_destroy(one);
    tx_batch_destroy(two);
    line_close(&a);
    line_close(&b);
}

static void generation_changes_with_each_flush(void **state) {
    (void)state;
    struct tx_batch *batch = batch_create(true, true);
    assert_int_not_equal(batch->generation, 0);
    for (int i = 0; i < 3; i++) {
        uint32_t before = batch->generation;
        tx_batch_flush(batch, now_us);
        assert_int_not_equal(batch->generation, before);
    }
    assert_int_equal(counter_read(&batch->counters.flushes), 0); /* there was nothing to send */
    tx_batch_destroy(batch);
}

/* A flow whose client moves (RFC 8016), or that names several ports of a peer, splits by destination. */
static void a_moved_destination_opens_a_run(void **state) {
    (void)state;
    struct line a, b;
    uint8_t bytes[6][50];
    line_open(&a, "127.0.0.1");
    line_open(&b, "127.0.0.1");
    struct tx_batch *batch = batch_create(true, true);
    for (uint32_t i = 0; i < 6; i++) {
        datagram_fill(bytes[i], sizeof bytes[i], i);
        struct tx_target target = {.socket = &a.out, .to = i < 2 || i > 3 ? &a.in.local : &b.in.local};
        const struct tx_datagram d = {.body = bytes[i], .n_body = sizeof bytes[i]};
        tx_batch_add(batch, &a.flow, &target, &d, now_us);
    }
    tx_batch_flush(batch, now_us);
    static const uint32_t to_a[] = {0, 1, 4, 5}, to_b[] = {2, 3};
    b.target.socket = &a.out;
    for (size_t i = 0; i < 4; i++) {
        expect_datagram(&a, sizeof bytes[0], to_a[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        expect_datagram(&b, sizeof bytes[0], to_b[i]);
    }
    assert_int_equal(counter_read(&batch->counters.gso_messages), HAS_RUNS ? 3 : 0);
    tx_batch_destroy(batch);
    line_close(&a);
    line_close(&b);
}

/* More datagrams than the batch holds: it sends by itself, and the header that all share stays what it was.
 */
static void a_full_batch_sends_by_itself(void **state) {
    (void)state;
    enum { N = TX_CAPACITY + 100, N_ROUNDS = 2 };
    uint8_t got[64];
    struct line line;
    line_open(&line, "127.0.0.1");
    struct tx_batch *batch = batch_create(true, true);
    uint8_t *head = tx_batch_scratch(batch, 4, now_us);
    memcpy(head, "head", 4);
    static uint8_t bodies[N][8];
    for (uint32_t i = 0; i < N; i++) {
        datagram_fill(bodies[i], sizeof bodies[i], i);
        const struct tx_datagram d = {.head = head, .n_head = 4, .body = bodies[i], .n_body = 8};
        tx_batch_add(batch, &line.flow, &line.target, &d, now_us);
        if (i == TX_CAPACITY) {
            assert_int_equal(batch->n_datagrams, 1);
            for (int k = 0; k < 100; k++) {
                memset(tx_batch_scratch(batch, 2048, now_us), 0xff,
                       2048); /* must not take the head's place */
            }
        }
    }
    tx_batch_flush(batch, now_us);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(loopback_receive(line.in.fd, got, sizeof got, NULL), 12);
        assert_memory_equal(got, "head", 4);
        assert_true(datagram_matches(got + 4, 8, i));
    }
    assert_int_equal(counter_read(&batch->counters.flushes), 2);
    assert_int_equal(counter_read(&batch->counters.datagrams), N);
    assert_int_equal(counter_read(&batch->counters.occupancy.n_values), 2);
    assert_int_equal(counter_read(&batch->counters.occupancy.max), TX_CAPACITY);
    tx_batch_destroy(batch);
    line_close(&line);
}

static void scratch_space_is_flushed_when_used_up(void **state) {
    (void)state;
    enum { N = 400 };
    struct line line;
    line_open(&line, "127.0.0.1");
    struct tx_batch *batch = batch_create(true, true);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t n = i % 2 == 0 ? 2048 : 2047 - i;
        uint8_t *bytes = tx_batch_scratch(batch, n, now_us);
        assert_int_equal((uintptr_t)bytes % 8, 0);
        datagram_fill(bytes, n, i);
        add(batch, &line, bytes, n);
    }
    tx_batch_flush(batch, now_us);
    for (uint32_t i = 0; i < N; i++) {
        expect_datagram(&line, i % 2 == 0 ? 2048 : 2047 - i, i);
    }
    assert_int_equal(counter_read(&batch->counters.flushes), 2);
    tx_batch_destroy(batch);
    line_close(&line);
}

static void impossible_destinations_cost_no_call(void **state) {
    (void)state;
    uint8_t bytes[10];
    struct line line;
    line_open(&line, "127.0.0.1");
    struct tx_batch *batch = batch_create(true, true);
    datagram_fill(bytes, sizeof bytes, 1);
    struct endpoint port_0 = line.in.local, v6 = {.family = AF_INET6, .port = 9};
    port_0.port = 0;
    const struct endpoint *destinations[] = {&port_0, &v6};
    for (size_t i = 0; i < 2; i++) {
        const struct tx_target target = {.socket = &line.out, .to = destinations[i]};
        const struct tx_datagram d = {.body = bytes, .n_body = sizeof bytes};
        tx_batch_add(batch, &line.flow, &target, &d, now_us);
        add(batch, &line, bytes, sizeof bytes);
    }
    tx_batch_flush(batch, now_us);
    expect_datagram(&line, sizeof bytes, 1);
    expect_datagram(&line, sizeof bytes, 1);
    assert_int_equal(counter_read(&batch->counters.drop_invalid), 2);
    assert_int_equal(tx_counters_accounted(&batch->counters), 4);
    tx_batch_destroy(batch);
    line_close(&line);
}

static void a_closed_socket_loses_its_datagrams_only(void **state) {
    (void)state;
    uint8_t bytes[10];
    struct line dead, alive;
    line_open(&dead, "127.0.0.1");
    line_open(&alive, "127.0.0.1");
    struct tx_batch *batch = batch_create(true, true);
    datagram_fill(bytes, sizeof bytes, 1);
    for (int i = 0; i < 3; i++) {
        dead.flow = (struct tx_flow){0}; /* three messages */
        add(batch, &dead, bytes, sizeof bytes);
        add(batch, &alive, bytes, sizeof bytes);
    }
    udp_socket_close(&dead.out);
    tx_batch_flush(batch, now_us);
    for (int i = 0; i < 3; i++) {
        expect_datagram(&alive, sizeof bytes, 1);
    }
    assert_int_equal(counter_read(&batch->counters.drop_other), 3);
    assert_int_equal(tx_counters_accounted(&batch->counters), 6);
    assert_int_equal(counter_read(&batch->counters.calls), HAS_RUNS ? 2 : 4);
    tx_batch_destroy(batch);
    line_close(&dead);
    line_close(&alive);
}

static void sending_allocates_nothing(void **state) {
    (void)state;
    struct line line;
    static uint8_t bytes[200][100];
    line_open(&line, "127.0.0.1");
    struct tx_batch *batch = batch_create(true, true);
    alloc_fault_arm(0);
    for (uint32_t i = 0; i < 200; i++) {
        datagram_fill(bytes[i], sizeof bytes[i], i);
        add(batch, &line, bytes[i], sizeof bytes[i]);
    }
    (void)tx_batch_scratch(batch, 2048, now_us);
    tx_batch_flush(batch, now_us);
    alloc_fault_disarm();
    assert_int_equal(alloc_fault_count(), 0);
    assert_int_equal(counter_read(&batch->counters.datagrams), 200);
    tx_batch_destroy(batch);
    line_close(&line);
}

static void creation_survives_every_failed_allocation(void **state) {
    (void)state;
    const struct tx_batch_params params = {.gso = true, .batched = true};
    uint64_t n = 0;
    int err;
    do {
        struct tx_batch *batch = NULL;
        alloc_fault_arm(++n);
        err = tx_batch_create(&batch, &params);
        alloc_fault_disarm();
        assert_true(err == 0 || err == -ENOMEM);
        assert_true((err == 0) == (batch != NULL));
        tx_batch_destroy(batch);
    } while (err != 0);
    assert_true(n > 4);
    tx_batch_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_arrive_byte_for_byte_v4),
        cmocka_unit_test(runs_arrive_byte_for_byte_v6),
        cmocka_unit_test(runs_stay_within_the_datagram_limit),
        cmocka_unit_test(the_65th_datagram_opens_a_run),
        cmocka_unit_test(sizes_never_overtake),
        cmocka_unit_test(interleaved_flows_keep_their_order),
        cmocka_unit_test(hundreds_of_sockets_share_a_batch),
        cmocka_unit_test(datagrams_of_extreme_sizes),
        cmocka_unit_test(pieces_are_joined),
        cmocka_unit_test(a_datagram_without_flow_is_never_grouped),
        cmocka_unit_test(batching_can_be_switched_off),
        cmocka_unit_test(stale_flows_join_nothing),
        cmocka_unit_test(generation_changes_with_each_flush),
        cmocka_unit_test(a_moved_destination_opens_a_run),
        cmocka_unit_test(a_full_batch_sends_by_itself),
        cmocka_unit_test(scratch_space_is_flushed_when_used_up),
        cmocka_unit_test(impossible_destinations_cost_no_call),
        cmocka_unit_test(a_closed_socket_loses_its_datagrams_only),
        cmocka_unit_test(sending_allocates_nothing),
        cmocka_unit_test(creation_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
