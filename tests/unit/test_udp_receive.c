/* Draining sockets, and what travels beside the bytes: TOS, local addresses, coalesced datagrams. */
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
enum { IS_LINUX = 1 };
#else
enum { IS_LINUX = 0 };
#endif

static const uint64_t now_us = 1000000;

static struct rx_ring *ring_create(uint32_t n_slots, bool single) {
    struct rx_ring *ring = NULL;
    const struct rx_ring_params params = {.n_slots = n_slots, .single = single};
    assert_int_equal(rx_ring_create(&ring, &params), 0);
    return ring;
}

static void send_from(const struct udp_socket *out, const struct endpoint *to, uint32_t n_bytes,
                      uint32_t seq) {
    static uint8_t bytes[65536];
    union endpoint_sockaddr address;
    socklen_t n = endpoint_to_sockaddr(&address, to);
    datagram_fill(bytes, n_bytes, seq);
    assert_int_equal(sendto(out->fd, bytes, n_bytes, 0, &address.sa, n), n_bytes);
}

static void ring_sizes_have_bounds(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 1, 8, 15, 17, 48, 1023, 1025, 2048, UINT32_MAX};
    static const uint32_t good[] = {16, 32, 512, 1024};
    struct rx_ring *ring = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct rx_ring_params params = {.n_slots = bad[i]};
        assert_int_equal(rx_ring_create(&ring, &params), -EINVAL);
        assert_null(ring);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        rx_ring_destroy(ring_create(good[i], false));
    }
    rx_ring_destroy(NULL);
}

static void check_drain(const char *ip, bool single) {
    struct udp_socket in, out;
    bool drained;
    loopback_open(&in, ip, false);
    loopback_open(&out, ip, false);
    struct rx_ring *ring = ring_create(16, single);
    assert_int_equal(rx_ring_fill(ring, &in, 16, &drained), 0);
    assert_true(drained);
    assert_int_equal(counter_read(&ring->counters.would_block), 1);
    for (uint32_t i = 0; i < 20; i++) {
        send_from(&out, &in.local, i == 3 ? 0 : 10 + i, i);
    }
    assert_int_equal(rx_ring_fill(ring, &in, 5, &drained), 5);
    assert_false(drained);
    assert_int_equal(rx_ring_fill(ring, &in, 40, &drained), 11); /* the ring is full */
    assert_false(drained);
    assert_int_equal(counter_read(&ring->counters.no_buffer), 1);
    assert_int_equal(rx_ring_fill(ring, &in, 1, &drained), 0);
    assert_int_equal(ring->n_filled, 16);
    for (uint32_t i = 0; i < 16; i++) {
        const struct rx_packet *p = &ring->packets[i];
        assert_int_equal(p->n_bytes, i == 3 ? 0 : 10 + i);
        assert_true(datagram_matches(p->data, p->n_bytes, i));
        assert_true(endpoint_equal(&p->source, &out.local));
        assert_true(endpoint_equal(&p->destination, &in.local));
        assert_false(p->truncated);
        assert_int_equal(p->tos, 0);
        assert_int_equal(rx_packet_datagrams(p), 1);
        memset(p->data - RX_HEADROOM_BYTES, 0xee, RX_HEADROOM_BYTES); /* ours to write */
    }
    for (uint32_t i = 0; i < 16; i++) {
        assert_true(datagram_matches(ring->packets[i].data, ring->packets[i].n_bytes, i));
    }
    rx_ring_release(ring);
    assert_int_equal(rx_ring_fill(ring, &in, 16, &drained), 4);
    assert_true(drained);
    assert_int_equal(ring->packets[3].n_bytes, 10 + 19);
    rx_ring_release(ring);
    assert_int_equal(counter_read(&ring->counters.packets), 20);
    assert_int_equal(counter_read(&ring->counters.datagrams), 20);
    assert_int_equal(counter_read(&ring->counters.occupancy.sum), 20);
    assert_int_equal(counter_read(&ring->counters.occupancy.max), IS_LINUX && !single ? 11 : 1);
    assert_int_equal(counter_read(&ring->counters.errors), 0);
    /* An empty look, 5, 11, 4 in batches; or one call each and a last one that finds nothing. */
    assert_int_equal(counter_read(&ring->counters.calls), IS_LINUX && !single ? 4 : 22);
    rx_ring_destroy(ring);
    udp_socket_close(&in);
    udp_socket_close(&out);
}

static void drains_are_bounded_and_in_order(void **state) {
    (void)state;
    check_drain("127.0.0.1", false);
    check_drain("::1", false);
}

static void drains_can_be_single(void **state) {
    (void)state;
    check_drain("127.0.0.1", true);
    check_drain("::1", true);
}

static void the_largest_datagram_fits_a_slot(void **state) {
    (void)state;
    struct udp_socket in, out;
    bool drained;
    loopback_open(&in, "127.0.0.1", true);
    loopback_open(&out, "127.0.0.1", false);
    struct rx_ring *ring = ring_create(64, false);
    for (uint32_t i = 0; i < 64; i++) {
        send_from(&out, &in.local, 65507, i);
        assert_int_equal(rx_ring_fill(ring, &in, 1, &drained), 1);
    }
    for (uint32_t i = 0; i < 64; i++) { /* no slot reaches into the next */
        assert_int_equal(ring->packets[i].n_bytes, 65507);
        assert_true(datagram_matches(ring->packets[i].data, 65507, i));
        assert_false(ring->packets[i].truncated);
    }
    rx_ring_release(ring);
    for (uint32_t i = 0; i < 10000; i++) { /* long enough for the slots' memory to be given back */
        rx_ring_release(ring);
    }
    send_from(&out, &in.local, 65507, 99);
    assert_int_equal(rx_ring_fill(ring, &in, 1, &drained), 1);
    assert_true(datagram_matches(ring->packets[0].data, 65507, 99));
    rx_ring_destroy(ring);
    udp_socket_close(&in);
    udp_socket_close(&out);
}

/* Slots share cache sets as little as possible, and a datagram of an Ethernet frame stays inside a page. */
static void slots_are_coloured(void **state) {
    (void)state;
    struct rx_ring *ring = ring_create(512, false);
    uint32_t n_of_set[64] = {0};
    for (uint32_t i = 0; i < 512; i++) {
        uintptr_t at = (uintptr_t)ring->packets[i].data;
        assert_int_equal(at % 64, 0);
        n_of_set[at / 64 % 64]++;
        assert_true(at % 4096 >= RX_HEADROOM_BYTES && at % 4096 + 1472 <= 4096);
    }
    for (size_t i = 0; i < 64; i++) {
        assert_true(n_of_set[i] <= 13);
    }
    rx_ring_destroy(ring);
}

static void receiving_allocates_nothing(void **state) {
    (void)state;
    struct udp_socket in, out;
    bool drained;
    loopback_open(&in, "127.0.0.1", true);
    loopback_open(&out, "127.0.0.1", false);
    struct rx_ring *ring = ring_create(32, false);
    for (uint32_t i = 0; i < 20; i++) {
        send_from(&out, &in.local, 100, i);
    }
    alloc_fault_arm(0);
    assert_int_equal(rx_ring_fill(ring, &in, 32, &drained), 20);
    rx_ring_release(ring);
    alloc_fault_disarm();
    assert_int_equal(alloc_fault_count(), 0);
    rx_ring_destroy(ring);
    udp_socket_close(&in);
    udp_socket_close(&out);
}

static void creation_survives_every_failed_allocation(void **state) {
    (void)state;
    const struct rx_ring_params params = {.n_slots = 16};
    uint64_t n = 0;
    int err;
    do {
        struct rx_ring *ring = NULL;
        alloc_fault_arm(++n);
        err = rx_ring_create(&ring, &params);
        alloc_fault_disarm();
        assert_true(err == 0 || err == -ENOMEM);
        assert_true((err == 0) == (ring != NULL));
        rx_ring_destroy(ring);
    } while (err != 0);
    assert_true(n > 3);
}

static void kernel_drops_are_counted(void **state) {
    (void)state;
    if (!IS_LINUX) {
        skip();
    }
    struct udp_socket_params params = {.buffer_bytes = 4096};
    struct udp_socket in, out;
    bool drained;
    assert_int_equal(endpoint_parse(&params.local, "127.0.0.1", 0), 0);
    assert_int_equal(udp_socket_open(&in, &params), 0);
    loopback_open(&out, "127.0.0.1", false);
    struct rx_ring *ring = ring_create(256, false);
    uint32_t n_received = 0;
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 100; i++) {
            send_from(&out, &in.local, 1000, i);
        }
        n_received += rx_ring_fill(ring, &in, 256, &drained);
        /* The count comes with the next datagram that finds room. */
        send_from(&out, &in.local, 1000, 0);
        n_received += rx_ring_fill(ring, &in, 256, &drained);
        rx_ring_release(ring);
    }
    assert_true(n_received < 202);
    assert_int_equal(counter_read(&ring->counters.kernel_drops), 202 - n_received);
    rx_ring_destroy(ring);
    udp_socket_close(&in);
    udp_socket_close(&out);
}

/* A closed port's ICMP answer on the shared socket: nobody else's datagram waits for it. */
static void icmp_errors_do_not_stop_a_drain(void **state) {
    (void)state;
    struct udp_socket_params params = {.error_queue = true};
    struct udp_socket in, out, closed;
    bool drained;
    assert_int_equal(endpoint_parse(&params.local, "127.0.0.1", 0), 0);
    assert_int_equal(udp_socket_open(&in, &params), 0);
    loopback_open(&out, "127.0.0.1", false);
    loopback_open(&closed, "127.0.0.1", false);
    udp_socket_close(&closed);
    for (int single = 0; single < 2; single++) {
        struct rx_ring *ring = ring_create(16, single);
        for (int round = 0; round < 3; round++) {
            send_from(&out, &in.local, 50, 1);
            send_from(&in, &closed.local, 10, 0);
            assert_int_equal(rx_ring_fill(ring, &in, 16, &drained), 1);
            assert_true(datagram_matches(ring->packets[0].data, 50, 1));
            rx_ring_release(ring);
        }
        assert_int_equal(counter_read(&ring->counters.errors), IS_LINUX ? 3 : 0);
        rx_ring_destroy(ring);
    }
    udp_socket_close(&in);
    udp_socket_close(&out);
}

/* ---- what the two halves carry between them ---- */

struct carried {
    struct udp_socket in, out;
    struct rx_ring *ring;
    struct tx_batch *batch;
    struct tx_flow flow;
};

static void carried_open(struct carried *c, const char *ip, bool gro) {
    const struct tx_batch_params params = {.gso = true, .batched = true};
    *c = (struct carried){.ring = ring_create(512, false)};
    loopback_open(&c->in, ip, gro);
    loopback_open(&c->out, ip, false);
    assert_int_equal(tx_batch_create(&c->batch, &params), 0);
}

static void carried_close(struct carried *c) {
    rx_ring_destroy(c->ring);
    tx_batch_destroy(c->batch);
    udp_socket_close(&c->in);
    udp_socket_close(&c->out);
}

static void carried_add(struct carried *c, const uint8_t *bytes, uint32_t n_bytes, uint8_t tos) {
    const struct tx_target target = {.socket = &c->out, .to = &c->in.local};
    const struct tx_datagram d = {.body = bytes, .n_body = n_bytes, .tos = tos};
    tx_batch_add(c->batch, &c->flow, &target, &d, now_us);
}

/* Drains n datagrams and checks that they are 0..n-1 of n_bytes each, the last one of n_last. */
static void carried_expect(struct carried *c, uint32_t n, uint32_t n_bytes, uint32_t n_last) {
    bool drained;
    uint32_t seq = 0;
    (void)rx_ring_fill(c->ring, &c->in, 512, &drained);
    for (uint32_t i = 0; i < c->ring->n_filled; i++) {
        const struct rx_packet *p = &c->ring->packets[i];
        uint32_t n_datagrams = rx_packet_datagrams(p);
        for (uint32_t k = 0; k < n_datagrams; k++, seq++) {
            uint32_t at = k * p->segment_bytes;
            uint32_t left = p->n_bytes - at;
            uint32_t size = p->segment_bytes > 0 && left > p->segment_bytes ? p->segment_bytes : left;
            assert_int_equal(size, seq + 1 == n ? n_last : n_bytes);
            assert_true(datagram_matches(p->data + at, size, seq));
        }
    }
    assert_int_equal(seq, n);
    rx_ring_release(c->ring);
}

static void check_gro(const char *ip) {
    static uint8_t bytes[64][1400];
    static const uint32_t sizes[] = {1, 2, 100, 1000};
    struct carried c;
    carried_open(&c, ip, true);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (uint32_t n = 1; n <= 64; n++) {
            uint32_t n_last = n % 3 == 0 ? (sizes[s] + 1) / 2 : sizes[s];
            for (uint32_t i = 0; i < n; i++) {
                uint32_t n_bytes = i + 1 == n ? n_last : sizes[s];
                datagram_fill(bytes[i], n_bytes, i);
                carried_add(&c, bytes[i], n_bytes, 0);
            }
            tx_batch_flush(c.batch, now_us);
            carried_expect(&c, n, sizes[s], n_last);
        }
    }
    assert_int_equal(counter_read(&c.batch->counters.gso_fallbacks), 0);
    assert_int_equal(counter_read(&c.ring->counters.datagrams), 4 * 65 * 32);
    if (c.in.gro) {
        assert_int_equal(counter_read(&c.ring->counters.packets), 4 * 64);
        assert_int_equal(counter_read(&c.ring->counters.occupancy.max), 64);
    }
    carried_close(&c);
}

static void coalesced_datagrams_come_apart(void **state) {
    (void)state;
    check_gro("127.0.0.1");
    check_gro("::1");
}

static void check_tos(const char *ip) {
    static uint8_t bytes[12][100];
    static const uint8_t tos[12] = {0, 0xb8, 0xb8, 0xb8, 0x88, 0x88, 0xb8, 1, 2, 3, 0xff, 0};
    struct carried c;
    bool drained;
    carried_open(&c, ip, false);
    for (uint32_t i = 0; i < 12; i++) {
        datagram_fill(bytes[i], sizeof bytes[i], i);
        carried_add(&c, bytes[i], sizeof bytes[i], tos[i]);
    }
    tx_batch_flush(c.batch, now_us);
    assert_int_equal(rx_ring_fill(c.ring, &c.in, 512, &drained), 12);
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(c.ring->packets[i].tos, IS_LINUX ? tos[i] : 0);
        assert_true(datagram_matches(c.ring->packets[i].data, sizeof bytes[i], i));
    }
    assert_int_equal(counter_read(&c.batch->counters.gso_messages), IS_LINUX ? 2 : 0);
    carried_close(&c);
}

static void tos_travels_with_each_datagram(void **state) {
    (void)state;
    check_tos("127.0.0.1");
    check_tos("::1");
}

/* Datagrams to several addresses of a wildcard socket: each reply leaves from the address it was asked at. */
static void check_packet_info(const char *wildcard, const char *const *addresses, size_t n_addresses) {
    struct carried c;
    struct udp_socket peer;
    bool drained;
    carried_open(&c, wildcard, false);
    loopback_open(&peer, addresses[0], false);
    assert_true(c.in.packet_info);
    struct endpoint asked[8];
    for (size_t i = 0; i < n_addresses; i++) {
        assert_int_equal(endpoint_parse(&asked[i], addresses[i], c.in.local.port), 0);
        send_from(&peer, &asked[i], 40, (uint32_t)i);
    }
    assert_int_equal(rx_ring_fill(c.ring, &c.in, 512, &drained), n_addresses);
    struct tx_flow flow = {0};
    for (size_t i = 0; i < n_addresses; i++) {
        struct rx_packet *p = &c.ring->packets[i];
        assert_true(endpoint_equal(&p->destination, &asked[i]));
        const struct tx_target target = {.socket = &c.in, .to = &p->source, .from = &p->destination};
        const struct tx_datagram d = {.body = p->data, .n_body = p->n_bytes};
        tx_batch_add(c.batch, &flow, &target, &d, now_us);
        tx_batch_add(c.batch, &flow, &target, &d, now_us);
    }
    tx_batch_flush(c.batch, now_us);
    rx_ring_release(c.ring);
    assert_int_equal(rx_ring_fill(c.ring, &peer, 512, &drained), 2 * n_addresses);
    for (size_t i = 0; i < 2 * n_addresses; i++) {
        assert_true(endpoint_equal(&c.ring->packets[i].source, &asked[i / 2]));
        assert_true(datagram_matches(c.ring->packets[i].data, 40, (uint32_t)i / 2));
    }
    assert_int_equal(counter_read(&c.batch->counters.gso_messages), n_addresses);
    udp_socket_close(&peer);
    carried_close(&c);
}

static void replies_leave_from_the_address_asked(void **state) {
    (void)state;
    if (!IS_LINUX) {
        skip();
    }
    static const char *const v4[] = {"127.0.0.1", "127.0.0.2", "127.0.0.3"};
    static const char *const v6[] = {"::1"};
    check_packet_info("0.0.0.0", v4, 3);
    check_packet_info("::", v6, 1);
}

static void a_vanished_source_address_loses_its_own(void **state) {
    (void)state;
    if (!IS_LINUX) {
        skip();
    }
    struct carried c;
    struct udp_socket wild;
    bool drained;
    uint8_t bytes[20];
    carried_open(&c, "127.0.0.1", false);
    loopback_open(&wild, "0.0.0.0", false);
    datagram_fill(bytes, sizeof bytes, 5);
    struct endpoint gone, here;
    assert_int_equal(endpoint_parse(&gone, "192.0.2.77", 0), 0);
    assert_int_equal(endpoint_parse(&here, "127.0.0.9", 0), 0);
    const struct endpoint *from[] = {&here, &gone, &here};
    for (size_t i = 0; i < 3; i++) {
        const struct tx_target target = {.socket = &wild, .to = &c.in.local, .from = from[i]};
        const struct tx_datagram d = {.body = bytes, .n_body = sizeof bytes};
        tx_batch_add(c.batch, &c.flow, &target, &d, now_us);
    }
    tx_batch_flush(c.batch, now_us);
    assert_int_equal(rx_ring_fill(c.ring, &c.in, 512, &drained), 2);
    assert_true(endpoint_same_ip(&c.ring->packets[1].source, &here));
    assert_int_equal(counter_read(&c.batch->counters.datagrams), 2);
    assert_int_equal(tx_counters_dropped(&c.batch->counters), 1);
    udp_socket_close(&wild);
    carried_close(&c);
}

/* The IPv4 header's "do not fragment" as a raw socket sees it; -1 when there is nothing to read. */
static int read_dont_fragment(int raw, uint16_t port, uint32_t *out_seq) {
    uint8_t bytes[2048];
    for (int i = 0; i < 1000; i++) {
        ssize_t n = loopback_receive(raw, bytes, sizeof bytes, NULL);
        if (n < 32) {
            return -1;
        }
        if (((bytes[22] << 8) | bytes[23]) == port) {
            *out_seq = bytes[28];
            return (bytes[6] & 0x40) != 0;
        }
    }
    return -1;
}

static void only_those_that_ask_are_not_fragmented(void **state) {
    (void)state;
    int raw = socket(AF_INET, SOCK_RAW, IPPROTO_UDP);
    if (raw < 0) {
        skip(); /* needs CAP_NET_RAW to see the header */
    }
    static uint8_t bytes[8][300];
    static const bool dont_fragment[8] = {false, false, true, true, false, false, true, false};
    struct carried c;
    carried_open(&c, "127.0.0.1", false);
    const struct tx_target target = {.socket = &c.out, .to = &c.in.local};
    for (uint32_t i = 0; i < 8; i++) {
        datagram_fill(bytes[i], sizeof bytes[i], i);
        const struct tx_datagram d = {
            .body = bytes[i], .n_body = sizeof bytes[i], .dont_fragment = dont_fragment[i]};
        tx_batch_add(c.batch, &c.flow, &target, &d, now_us);
    }
    tx_batch_flush(c.batch, now_us);
    for (uint32_t i = 0; i < 8;) { /* the pairs left as one message: each appears once, with its bytes */
        uint32_t seq = 0;
        int df = read_dont_fragment(raw, c.in.local.port, &seq);
        assert_int_equal(seq, i);
        assert_int_equal(df, dont_fragment[i]);
        i += IS_LINUX && (i == 0 || i == 4) ? 2 : 1;
    }
    carried_expect(&c, 8, 300, 300);
    assert_int_equal(counter_read(&c.batch->counters.gso_messages), IS_LINUX ? 2 : 0);
    (void)close(raw);
    carried_close(&c);
}

static void ipv6_may_ask_not_to_be_fragmented(void **state) {
    (void)state;
    static uint8_t bytes[4][300];
    struct carried c;
    carried_open(&c, "::1", false);
    const struct tx_target target = {.socket = &c.out, .to = &c.in.local};
    for (uint32_t i = 0; i < 4; i++) {
        datagram_fill(bytes[i], sizeof bytes[i], i);
        const struct tx_datagram d = {
            .body = bytes[i], .n_body = sizeof bytes[i], .dont_fragment = i % 2 == 0};
        tx_batch_add(c.batch, &c.flow, &target, &d, now_us);
    }
    tx_batch_flush(c.batch, now_us);
    carried_expect(&c, 4, 300, 300);
    carried_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_sizes_have_bounds),
        cmocka_unit_test(drains_are_bounded_and_in_order),
        cmocka_unit_test(drains_can_be_single),
        cmocka_unit_test(the_largest_datagram_fits_a_slot),
        cmocka_unit_test(slots_are_coloured),
        cmocka_unit_test(receiving_allocates_nothing),
        cmocka_unit_test(creation_survives_every_failed_allocation),
        cmocka_unit_test(kernel_drops_are_counted),
        cmocka_unit_test(icmp_errors_do_not_stop_a_drain),
        cmocka_unit_test(coalesced_datagrams_come_apart),
        cmocka_unit_test(tos_travels_with_each_datagram),
        cmocka_unit_test(replies_leave_from_the_address_asked),
        cmocka_unit_test(a_vanished_source_address_loses_its_own),
        cmocka_unit_test(only_those_that_ask_are_not_fragmented),
        cmocka_unit_test(ipv6_may_ask_not_to_be_fragmented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
