/* The relay path with real tables, batches and loopback sockets, driven packet by packet: what comes out is
 * byte exact, coalesced packets come apart again, every datagram is accounted for, and an established flow
 * costs no allocation and no lock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "alloc_fault.h"
#include "carrier.h"
#include "channel_data.h"
#include "client_link_udp.h"
#include "nonce.h"
#include "relay.h"
#include "relay_local.h"

enum { BUFFER_BYTES = 80000, NOW_US = 1000000 };

/* Counted by the linker's --wrap. */
static unsigned long n_locks;
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    n_locks++;
    return __real_pthread_mutex_lock(mutex);
}

struct rig {
    struct relay relay;
    struct relay_counters counters;
    struct relay_registry *registry;
    struct relay_socket_index index;
    struct relay_watch watch;
    struct relay_socket *opened; /* the last peer socket */
    struct relay_carrier carrier;
    bool shared;
    struct client_link_udp listener;
    struct credential_store *credentials;
    struct peer_policy *policy;
    struct quota *quota;
    struct core_config config;
    struct core_host host;
    struct relay_ip ip;
    uint8_t nonce_key[NONCE_KEY_BYTES];
    int client_fd, peer_fd;
    struct endpoint client, peer;
    uint8_t buffer[BUFFER_BYTES];
};

static void test_random(void *context, void *out, size_t n) {
    (void)context;
    for (size_t i = 0; i < n; i++) {
        ((uint8_t *)out)[i] = (uint8_t)rand();
    }
}

static void test_quiesce(void *context) {
    struct rig *r = context;
    tx_batch_flush(r->relay.tx, r->relay.now.now_us);
}

static void test_event(void *context, const struct core_event_info *info) {
    struct rig *r = context;
    if (info->event == CORE_ALLOCATION_ENDED) {
        relay_forget(&r->relay, info->allocation);
    }
}

static int watch_add(void *context, struct relay_socket *socket) {
    ((struct rig *)context)->opened = socket;
    return 0;
}

static void watch_remove(void *context, struct relay_socket *socket) {
    (void)context, (void)socket;
}

static int open_plain(struct endpoint *out) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof in;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &n), 0);
    endpoint_from_sockaddr(out, (struct sockaddr *)&in);
    return fd;
}

static void open_core(struct rig *r) {
    const struct credential_params credentials = {.realm = "r", .rest_separator = ':', .no_auth = true};
    const struct peer_policy_params policy = {.allow_loopback = true, .allow_private = true};
    assert_int_equal(credential_store_create(&r->credentials, &credentials), 0);
    assert_int_equal(peer_policy_create(&r->policy, &policy), 0);
    assert_int_equal(quota_create(&r->quota, 0, 0), 0);
    r->config = (struct core_config){
        .credentials = r->credentials,
        .policy = r->policy,
        .quota = r->quota,
        .realm = "r",
        .nonce_key = r->nonce_key,
        .max_allocate_lifetime_s = 3600,
        .channel_lifetime_s = 600,
        .permission_lifetime_s = 300,
        .max_peers = 256,
    };
    r->host = (struct core_host){
        .context = r, .random_bytes = test_random, .quiesce = test_quiesce, .event = test_event};
    const struct core_params params = {
        .config = &r->config, .host = &r->host, .carrier = &r->carrier, .hash_key = {1, 2}};
    assert_int_equal(turn_core_create(&r->relay.core, &params, r->relay.now), 0);
    r->relay.allocations = turn_core_allocations(r->relay.core);
}

static struct rig *rig_create(bool shared) {
    struct rig *r = aligned_alloc(64, (sizeof *r + 63) / 64 * 64);
    memset(r, 0, sizeof *r);
    r->shared = shared;
    r->relay.now = (struct core_time){.now_us = NOW_US, .wall_s = 1000};
    r->client_fd = open_plain(&r->client);
    r->peer_fd = open_plain(&r->peer);
    assert_int_equal(endpoint_parse(&r->ip.local, "127.0.0.1", 0), 0);
    r->ip.advertised = r->ip.local;
    const struct relay_registry_params registry = {
        .ips = &r->ip, .n_ips = 1, .n_threads = 1, .shared_base = shared ? 61000 : 0, .shared_pairs = 1};
    assert_int_equal(relay_registry_create(&r->registry, &registry), 0);
    const struct hash_key key = {3, 4};
    relay_socket_index_init(&r->index, &key);
    r->watch = (struct relay_watch){.context = r, .add = watch_add, .remove = watch_remove};
    const struct carrier_params carrier = {
        .registry = r->registry,
        .index = &r->index,
        .watch = &r->watch,
        .ips = &r->ip,
        .n_ips = 1,
        .min_port = 61100,
        .max_port = 61999,
        .shared_pairs = 1,
        .now_us = &r->relay.now.now_us,
        .random_bytes = test_random,
    };
    struct endpoint failed;
    assert_int_equal(shared ? carrier_shared_create(&r->carrier, &carrier, &failed)
                            : carrier_dedicated_create(&r->carrier, &carrier),
                     0);
    const struct tx_batch_params tx = {.gso = true, .batched = true};
    assert_int_equal(tx_batch_create(&r->relay.tx, &tx), 0);
    struct endpoint listening = r->ip.local;
    assert_int_equal(client_link_udp_open(&r->listener, &listening, 0), 0);
    r->relay.counters = &r->counters;
    r->relay.sockets = &r->index;
    r->relay.carrier = &r->carrier;
    r->relay.n_threads = 1;
    open_core(r);
    return r;
}

static void rig_destroy(struct rig *r) {
    turn_core_destroy(r->relay.core);
    r->shared ? carrier_shared_destroy(&r->carrier) : carrier_dedicated_destroy(&r->carrier);
    client_link_udp_close(&r->listener);
    tx_batch_destroy(r->relay.tx);
    relay_socket_index_deinit(&r->index);
    relay_registry_destroy(r->registry);
    credential_store_destroy(r->credentials);
    peer_policy_destroy(r->policy);
    quota_destroy(r->quota);
    close(r->client_fd);
    close(r->peer_fd);
    free(r);
}

/* A packet in the rig's buffer, as the receive ring would hand it over. */
static struct rx_packet packet_of(struct rig *r, const struct endpoint *from, const struct endpoint *to,
                                  const void *bytes, uint32_t n, uint32_t segment) {
    uint8_t *data = r->buffer + RX_HEADROOM_BYTES;
    if (n > 0) {
        memcpy(data, bytes, n);
    }
    return (struct rx_packet){
        .data = data, .n_bytes = n, .segment_bytes = segment, .source = *from, .destination = *to};
}

static void up(struct rig *r, const void *bytes, uint32_t n, uint32_t segment) {
    struct rx_packet p = packet_of(r, &r->client, &r->listener.socket.local, bytes, n, segment);
    relay_uplink(&r->relay, &r->listener.link, CLIENT_UDP, &p, 1);
    tx_batch_flush(r->relay.tx, NOW_US);
}

static void down(struct rig *r, struct relayed_address *relayed, const void *bytes, uint32_t n,
                 uint32_t segment) {
    struct rx_packet p = packet_of(r, &r->peer, &relayed->local, bytes, n, segment);
    relay_downlink(&r->relay, relayed, &p, 1);
    tx_batch_flush(r->relay.tx, NOW_US);
}

/* The next datagram, or -1 when none comes. */
static ssize_t take(int fd, uint8_t *out, size_t n) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 200) == 1 ? recv(fd, out, n, 0) : -1;
}

static size_t request(struct wire_writer *w, uint8_t *bytes, size_t n_bytes, uint16_t method, uint8_t id) {
    const uint8_t transaction[STUN_TRANSACTION_ID_BYTES] = {id};
    *w = wire_writer_over(bytes, n_bytes);
    stun_message_begin(w, STUN_REQUEST, method, transaction);
    return 0;
}

static void expect_success(struct rig *r) {
    uint8_t reply[512];
    ssize_t n = take(r->client_fd, reply, sizeof reply);
    struct stun_message m;
    assert_true(n > 0);
    assert_true(stun_message_decode(&m, reply, (size_t)n));
    assert_int_equal(m.class, STUN_SUCCESS);
}

static void allocate(struct rig *r) {
    uint8_t bytes[128];
    struct wire_writer w;
    request(&w, bytes, sizeof bytes, STUN_METHOD_ALLOCATE, 1);
    stun_write_u8_reserved(&w, STUN_ATTR_REQUESTED_TRANSPORT, STUN_TRANSPORT_UDP);
    up(r, bytes, (uint32_t)stun_message_end(&w), 0);
    expect_success(r);
}

static void bind_channel(struct rig *r, uint16_t number) {
    uint8_t bytes[128];
    struct wire_writer w;
    request(&w, bytes, sizeof bytes, STUN_METHOD_CHANNEL_BIND, 2);
    const uint8_t id[STUN_TRANSACTION_ID_BYTES] = {2};
    stun_write_u16_reserved(&w, STUN_ATTR_CHANNEL_NUMBER, number);
    stun_write_xor_address(&w, STUN_ATTR_XOR_PEER_ADDRESS, &r->peer, id);
    up(r, bytes, (uint32_t)stun_message_end(&w), 0);
    expect_success(r);
}

static void permit(struct rig *r, const struct endpoint *peer) {
    uint8_t bytes[128];
    struct wire_writer w;
    request(&w, bytes, sizeof bytes, STUN_METHOD_CREATE_PERMISSION, 3);
    const uint8_t id[STUN_TRANSACTION_ID_BYTES] = {3};
    stun_write_xor_address(&w, STUN_ATTR_XOR_PEER_ADDRESS, peer, id);
    up(r, bytes, (uint32_t)stun_message_end(&w), 0);
    expect_success(r);
}

static uint64_t drops(const struct relay_direction *d) {
    uint64_t sum = 0;
    for (int i = 0; i < DROP_REASON_COUNT; i++) {
        sum += counter_read(&d->drops[i]);
    }
    return sum;
}

static void balance(const struct rig *r) {
    const struct relay_direction *u = &r->counters.uplink, *d = &r->counters.downlink;
    assert_int_equal(counter_read(&u->rx_datagrams),
                     counter_read(&u->tx_datagrams) + drops(u) + counter_read(&r->counters.control_requests));
    assert_int_equal(counter_read(&d->rx_datagrams), counter_read(&d->tx_datagrams) + drops(d));
}

static void fill(uint8_t *out, size_t n, uint8_t seed) {
    for (size_t i = 0; i < n; i++) {
        out[i] = (uint8_t)(seed + i * 7);
    }
}

/* n segments of ChannelData frames in one buffer; the last one `tail` bytes of payload. */
static uint32_t frames(uint8_t *out, uint16_t number, uint32_t n, uint32_t payload, uint32_t tail) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t size = i == n - 1 ? tail : payload;
        channel_data_encode_header(out + at, number, (uint16_t)size);
        fill(out + at + 4, size, (uint8_t)i);
        at += 4 + size;
    }
    return at;
}

static void channel_both_ways(bool shared) {
    struct rig *r = rig_create(shared);
    static uint8_t bytes[BUFFER_BYTES], got[BUFFER_BYTES], want[BUFFER_BYTES];
    allocate(r);
    bind_channel(r, 0x4001);
    for (uint32_t payload = 1; payload <= 1201; payload += 300) {
        uint32_t n = frames(bytes, 0x4001, 5, payload, payload > 1 ? payload - 1 : 1);
        up(r, bytes, n, payload + 4);
        for (uint32_t i = 0; i < 5; i++) {
            uint32_t size = i == 4 && payload > 1 ? payload - 1 : payload;
            assert_int_equal(take(r->peer_fd, got, sizeof got), size);
            fill(want, size, (uint8_t)i);
            assert_memory_equal(got, want, size);
        }
        fill(bytes, 4 * payload, 9);
        down(r, &r->opened->address, bytes, 4 * payload - (payload > 1 ? 1 : 0), payload);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t size = i == 3 && payload > 1 ? payload - 1 : payload;
            assert_int_equal(take(r->client_fd, got, sizeof got), size + 4);
            channel_data_encode_header(want, 0x4001, (uint16_t)size);
            memcpy(want + 4, bytes + i * payload, size);
            assert_memory_equal(got, want, size + 4);
        }
    }
    balance(r);
    assert_int_equal(drops(&r->counters.uplink) + drops(&r->counters.downlink), 0);
    rig_destroy(r);
}

static void channel_both_ways_dedicated(void **state) {
    (void)state;
    channel_both_ways(false);
}

static void channel_both_ways_shared(void **state) {
    (void)state;
    channel_both_ways(true);
}

static void expect_indication(struct rig *r, const uint8_t *payload, uint32_t size) {
    uint8_t got[2048];
    ssize_t n = take(r->client_fd, got, sizeof got);
    struct stun_message m;
    struct stun_attribute a;
    struct endpoint peer;
    assert_int_equal(n, 36 + size + stun_padding(size));
    assert_true(stun_message_decode(&m, got, (size_t)n));
    assert_int_equal(m.class, STUN_INDICATION);
    assert_int_equal(m.method, STUN_METHOD_DATA);
    assert_true(stun_message_find(&m, STUN_ATTR_XOR_PEER_ADDRESS, &a));
    assert_true(stun_read_xor_address(&peer, &a, &m));
    assert_true(endpoint_equal(&peer, &r->peer));
    assert_true(stun_message_find(&m, STUN_ATTR_DATA, &a));
    assert_int_equal(a.n_bytes, size);
    assert_memory_equal(a.value, payload, size);
    for (ssize_t i = 36 + (ssize_t)size; i < n; i++) {
        assert_int_equal(got[i], 0); /* padding carries no old bytes */
    }
}

static void data_indications_of_coalesced_packets(void **state) {
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct rig *r = rig_create(shared == 1);
        allocate(r);
        permit(r, &r->peer);
        static uint8_t bytes[4096];
        fill(bytes, sizeof bytes, 0xA0);
        for (uint32_t size = 101; size <= 104; size++) {
            down(r, &r->opened->address, bytes, 3 * size - 2, size);
            for (uint32_t i = 0; i < 3; i++) {
                expect_indication(r, bytes + i * size, i == 2 ? size - 2 : size);
            }
        }
        down(r, &r->opened->address, bytes, 0, 0);
        expect_indication(r, bytes, 0);
        balance(r);
        rig_destroy(r);
    }
}

static void established_flow_costs_no_allocation_and_no_lock(void **state) {
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct rig *r = rig_create(shared == 1);
        static uint8_t bytes[4096], got[4096];
        allocate(r);
        bind_channel(r, 0x4001);
        uint32_t n = frames(bytes, 0x4001, 3, 200, 100);
        up(r, bytes, n, 204); /* the first may learn */
        down(r, &r->opened->address, bytes, 600, 200);
        alloc_fault_arm(1000000);
        n_locks = 0;
        for (int i = 0; i < 10; i++) {
            up(r, bytes, n, 204);
            down(r, &r->opened->address, bytes, 600, 200);
        }
        assert_int_equal(alloc_fault_count(), 0);
        assert_int_equal(n_locks, 0);
        alloc_fault_disarm();
        int got_up = 0, got_down = 0;
        while (got_up < 33 && take(r->peer_fd, got, sizeof got) >= 0) {
            got_up++;
        }
        while (got_down < 33 && take(r->client_fd, got, sizeof got) >= 0) {
            got_down++;
        }
        assert_int_equal(got_up, 33);
        assert_int_equal(got_down, 33);
        rig_destroy(r);
    }
}

static void every_drop_has_its_reason(void **state) {
    (void)state;
    struct rig *r = rig_create(false);
    struct relay_direction *u = &r->counters.uplink, *d = &r->counters.downlink;
    uint8_t bytes[256] = {0};
    channel_data_encode_header(bytes, 0x4001, 8);
    up(r, bytes, 12, 0);
    assert_int_equal(counter_read(&u->drops[DROP_NO_ALLOCATION]), 1);
    allocate(r);
    up(r, bytes, 12, 0);
    assert_int_equal(counter_read(&u->drops[DROP_NO_CHANNEL]), 1);
    up(r, bytes, 11, 0); /* LENGTH beyond the datagram */
    up(r, bytes, 3, 0);
    assert_int_equal(counter_read(&u->drops[DROP_MALFORMED]), 2);
    memset(bytes, 0xff, sizeof bytes);
    up(r, bytes, 40, 0);
    up(r, bytes, 0, 0);
    assert_int_equal(counter_read(&u->drops[DROP_NOT_TURN]), 2);
    down(r, &r->opened->address, bytes, 40, 0);
    assert_int_equal(counter_read(&d->drops[DROP_NO_PERMISSION]) + counter_read(&d->drops[DROP_UNKNOWN_PEER]),
                     1);
    struct endpoint port_zero = r->client;
    port_zero.port = 0;
    struct rx_packet p = packet_of(r, &port_zero, &r->listener.socket.local, bytes, 40, 0);
    relay_uplink(&r->relay, &r->listener.link, CLIENT_UDP, &p, 1);
    assert_int_equal(counter_read(&u->drops[DROP_SOURCE_PORT_ZERO]), 1);
    p = packet_of(r, &r->client, &r->listener.socket.local, bytes, 40, 0);
    p.truncated = true;
    relay_uplink(&r->relay, &r->listener.link, CLIENT_UDP, &p, 1);
    assert_int_equal(counter_read(&u->drops[DROP_TRUNCATED]), 1);
    balance(r);
    rig_destroy(r);
}

/* Data for a client, then its Refresh(0), then more data, all before one flush: the first is sent, the rest
 * finds nobody, and nothing that was freed is touched (run under ASan). */
static void teardown_inside_a_batch(void **state) {
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct rig *r = rig_create(shared == 1);
        uint8_t bytes[256], got[256];
        struct wire_writer w;
        allocate(r);
        bind_channel(r, 0x4001);
        struct relayed_address *relayed = &r->opened->address;
        struct rx_packet p = packet_of(r, &r->peer, &relayed->local, "payload", 7, 0);
        relay_downlink(&r->relay, relayed, &p, 1);
        request(&w, bytes, sizeof bytes, STUN_METHOD_REFRESH, 4);
        stun_write_u32(&w, STUN_ATTR_LIFETIME, 0);
        uint8_t other[512];
        memcpy(other + 64, bytes, stun_message_end(&w));
        struct rx_packet refresh = {.data = other + 64,
                                    .n_bytes = (uint32_t)stun_message_end(&w),
                                    .source = r->client,
                                    .destination = r->listener.socket.local};
        relay_uplink(&r->relay, &r->listener.link, CLIENT_UDP, &refresh, 1);
        channel_data_encode_header(other + 64, 0x4001, 4);
        refresh.n_bytes = 8;
        relay_uplink(&r->relay, &r->listener.link, CLIENT_UDP, &refresh, 1);
        tx_batch_flush(r->relay.tx, NOW_US);
        assert_int_equal(take(r->client_fd, got, sizeof got), 11);
        expect_success(r);
        assert_int_equal(counter_read(&r->counters.uplink.drops[DROP_NO_ALLOCATION]), 1);
        rig_destroy(r);
    }
}

/* A client that names its own dedicated relayed address gets its datagram back, once, without the network. */
static void own_relayed_address_as_peer(void **state) {
    (void)state;
    struct rig *r = rig_create(false);
    allocate(r);
    r->peer = r->opened->address.advertised;
    bind_channel(r, 0x4002);
    uint8_t bytes[64], got[64];
    channel_data_encode_header(bytes, 0x4002, 5);
    memcpy(bytes + 4, "hello", 5);
    up(r, bytes, 9, 0);
    assert_int_equal(take(r->client_fd, got, sizeof got), 9);
    assert_memory_equal(got, bytes, 9);
    assert_int_equal(take(r->client_fd, got, sizeof got), -1);
    balance(r);
    rig_destroy(r);
}

static void icmp_error_becomes_an_indication(void **state) {
    (void)state;
    struct rig *r = rig_create(false);
    allocate(r);
    permit(r, &r->peer);
    const struct udp_error error = {.peer = r->peer, .icmp_type = 3, .icmp_code = 3};
    relay_icmp_error(&r->relay, &r->opened->address, &error);
    tx_batch_flush(r->relay.tx, NOW_US);
    uint8_t got[256], type;
    uint16_t code;
    uint32_t data;
    ssize_t n = take(r->client_fd, got, sizeof got);
    struct stun_message m;
    struct stun_attribute a;
    assert_true(n > 0 && stun_message_decode(&m, got, (size_t)n));
    assert_true(stun_message_find(&m, STUN_ATTR_ICMP, &a));
    assert_true(stun_read_icmp(&type, &code, &data, &a));
    assert_int_equal(type, 3);
    assert_int_equal(code, 3);
    rig_destroy(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channel_both_ways_dedicated),
        cmocka_unit_test(channel_both_ways_shared),
        cmocka_unit_test(data_indications_of_coalesced_packets),
        cmocka_unit_test(established_flow_costs_no_allocation_and_no_lock),
        cmocka_unit_test(every_drop_has_its_reason),
        cmocka_unit_test(teardown_inside_a_batch),
        cmocka_unit_test(own_relayed_address_as_peer),
        cmocka_unit_test(icmp_error_becomes_an_indication),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
