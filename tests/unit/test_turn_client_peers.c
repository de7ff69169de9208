#include "turn_client_world.h"

#include <errno.h>
#include <stdlib.h>

/* ---- permissions and channels ---- */

static void permissions_are_refreshed_together(void **state) {
    (void)state;
    struct world t;
    struct endpoint peers[TURN_CLIENT_MAX_PEERS_PER_REQUEST];
    uint32_t first, second;
    world_open_allocated(&t);
    uint64_t start_us = t.now_us;
    for (uint8_t i = 0; i < TURN_CLIENT_MAX_PEERS_PER_REQUEST; i++) {
        peers[i] = world_peer4;
        peers[i].ip[3] = i;
    }
    assert_int_equal(turn_client_create_permissions(t.client, peers, 16, t.now_us, &first), 0);
    assert_int_equal(turn_client_create_permissions(t.client, &world_peer6, 1, t.now_us, &second), 0);
    assert_int_equal(first, 0);
    assert_int_equal(second, 16);
    assert_int_equal(turn_client_peer_state(t.client, 0), TURN_PEER_REQUESTED);
    world_exchange(&t);
    assert_int_equal(turn_client_n_peers(t.client), 17);
    assert_int_equal(turn_client_peer_state(t.client, 15), TURN_PEER_ACTIVE);
    assert_int_equal(turn_client_next_deadline_us(t.client), start_us + 240 * S);
    unsigned n_before = t.server.n_requests;
    world_advance_to(&t, start_us + 240 * S - 1);
    assert_int_equal(world_lose(&t), 0);
    world_advance_to(&t, start_us + 240 * S);
    assert_true(world_exchange_one(&t));
    assert_int_equal(t.server.seen.method, STUN_METHOD_CREATE_PERMISSION);
    assert_int_equal(t.server.seen.n_peers, 16);
    assert_int_equal(t.event.n_peers, 16);
    assert_int_equal(t.event.peers[15], 15);
    assert_true(world_exchange_one(&t));
    assert_int_equal(t.server.seen.n_peers, 1);
    assert_true(endpoint_equal(&t.server.seen.peer, &world_peer6));
    assert_false(world_exchange_one(&t));
    assert_int_equal(t.server.n_requests, n_before + 2);
    assert_int_equal(turn_client_next_deadline_us(t.client), start_us + 480 * S);
    world_close(&t);
}

static void the_number_of_peers_in_a_request_is_bounded(void **state) {
    (void)state;
    struct world t;
    struct endpoint peers[17];
    uint32_t index;
    for (size_t i = 0; i < 17; i++) {
        peers[i] = world_peer4;
    }
    world_open(&t);
    world_create(&t);
    assert_int_equal(turn_client_create_permissions(t.client, peers, 1, t.now_us, &index), -ENOTCONN);
    assert_int_equal(turn_client_bind_channel(t.client, peers, t.now_us, &index), -ENOTCONN);
    assert_int_equal(turn_client_connect(t.client, peers, t.now_us), -ENOTCONN);
    world_allocate(&t);
    assert_int_equal(turn_client_create_permissions(t.client, peers, 0, t.now_us, &index), -EINVAL);
    assert_int_equal(turn_client_create_permissions(t.client, peers, 17, t.now_us, &index), -EINVAL);
    assert_int_equal(turn_client_create_permissions(t.client, peers, 16, t.now_us, &index), 0);
    world_close(&t);
}

static void a_refused_permission_is_not_refreshed(void **state) {
    (void)state;
    struct world t;
    uint32_t index;
    world_open_allocated(&t);
    t.server.error = STUN_FORBIDDEN;
    assert_int_equal(turn_client_create_permissions(t.client, &world_peer4, 1, t.now_us, &index), 0);
    world_exchange(&t);
    world_assert_error(&t, STUN_METHOD_CREATE_PERMISSION, 403, 0);
    assert_int_equal(t.event.n_peers, 1);
    assert_int_equal(t.event.peers[0], index);
    assert_int_equal(turn_client_peer_state(t.client, index), TURN_PEER_FAILED);
    assert_int_equal(turn_client_next_deadline_us(t.client), t.now_us + 540 * S); /* only the allocation's */
    world_close(&t);
}

static void a_channel_is_bound_again_before_its_permission_ends(void **state) {
    (void)state;
    struct world t;
    uint32_t index;
    world_open_allocated(&t);
    uint64_t start_us = t.now_us;
    assert_int_equal(turn_client_bind_channel(t.client, &world_peer4, t.now_us, &index), 0);
    assert_int_equal(turn_client_peer_channel(t.client, index), 0);
    world_exchange(&t);
    assert_int_equal(t.server.seen.channel, 0x4000);
    assert_int_equal(turn_client_peer_channel(t.client, index), 0x4000);
    assert_int_equal(turn_client_next_deadline_us(t.client), start_us + 240 * S);
    world_advance_to(&t, start_us + 240 * S);
    world_exchange(&t);
    assert_int_equal(t.server.seen.method, STUN_METHOD_CHANNEL_BIND);
    assert_int_equal(t.server.seen.channel, 0x4000);
    assert_true(endpoint_equal(&t.server.seen.peer, &world_peer4));
    assert_int_equal(turn_client_next_deadline_us(t.client), start_us + 480 * S);
    world_close(&t);
}

static void lifetimes_the_server_is_set_to_are_kept(void **state) {
    (void)state;
    struct world t;
    uint32_t index;
    world_open(&t);
    t.params.permission_lifetime_s = 100;
    t.params.channel_lifetime_s = 50;
    world_create(&t);
    world_allocate(&t);
    assert_int_equal(turn_client_create_permissions(t.client, &world_peer4, 1, t.now_us, &index), 0);
    world_exchange(&t);
    assert_int_equal(turn_client_next_deadline_us(t.client), t.now_us + 80 * S);
    assert_int_equal(turn_client_bind_channel(t.client, &world_peer6, t.now_us, &index), 0);
    world_exchange(&t);
    assert_int_equal(turn_client_next_deadline_us(t.client), t.now_us + 40 * S);
    world_close(&t);
}

static void a_known_peer_keeps_its_index_when_bound(void **state) {
    (void)state;
    struct world t;
    uint32_t first, index;
    const struct endpoint peers[2] = {world_peer4, world_peer6};
    world_open_allocated(&t);
    assert_int_equal(turn_client_create_permissions(t.client, peers, 2, t.now_us, &first), 0);
    world_exchange(&t);
    assert_int_equal(turn_client_bind_channel(t.client, &world_peer6, t.now_us, &index), 0);
    assert_int_equal(index, 1);
    world_exchange(&t);
    assert_int_equal(turn_client_peer_channel(t.client, 1), 0x4001);
    assert_int_equal(turn_client_peer_channel(t.client, 0), 0);
    assert_int_equal(turn_client_n_peers(t.client), 2);
    world_close(&t);
}

static void channel_numbers_run_out_at_4096(void **state) {
    (void)state;
    struct world t;
    uint32_t index = 0;
    struct endpoint peer = world_peer4;
    world_open_allocated(&t);
    for (unsigned i = 0; i < 4096; i++) {
        peer.port = (uint16_t)(1 + i);
        assert_int_equal(turn_client_bind_channel(t.client, &peer, t.now_us, &index), 0);
        world_exchange(&t);
    }
    assert_int_equal(turn_client_peer_channel(t.client, index), CHANNEL_NUMBER_MAX);
    peer.port = 5000;
    assert_int_equal(turn_client_bind_channel(t.client, &peer, t.now_us, &index), -ENOSPC);
    /* all are refreshed, never more than the limit at once */
    world_advance_to(&t, t.now_us + 240 * S);
    unsigned n_before = t.server.n_requests;
    for (unsigned i = 0; i < 100; i++) {
        world_exchange(&t);
        world_advance_to(&t, t.now_us);
    }
    assert_int_equal(t.server.n_requests, n_before + 4096);
    world_close(&t);
}

static void transactions_are_bounded(void **state) {
    (void)state;
    struct world t;
    uint32_t index;
    world_open_allocated(&t);
    for (unsigned i = 0; i < TURN_CLIENT_MAX_TRANSACTIONS; i++) {
        assert_int_equal(turn_client_binding(t.client, t.now_us), 0);
    }
    assert_int_equal(turn_client_binding(t.client, t.now_us), -EBUSY);
    assert_int_equal(turn_client_create_permissions(t.client, &world_peer4, 1, t.now_us, &index), -EBUSY);
    assert_int_equal(turn_client_bind_channel(t.client, &world_peer4, t.now_us, &index), -EBUSY);
    assert_int_equal(turn_client_n_peers(t.client), 0);
    world_exchange(&t);
    assert_int_equal(t.n_events, TURN_CLIENT_MAX_TRANSACTIONS);
    assert_int_equal(turn_client_binding(t.client, t.now_us), 0);
    world_close(&t);
}

/* ---- data ---- */

static void data_goes_by_channel_once_it_is_confirmed(void **state) {
    (void)state;
    for (int is_stream = 0; is_stream <= 1; is_stream++) {
        struct world t;
        struct framed f;
        uint32_t index;
        world_open(&t);
        t.params.is_stream = is_stream;
        world_create(&t);
        world_allocate(&t);
        assert_int_equal(turn_client_bind_channel(t.client, &world_peer4, t.now_us, &index), 0);
        assert_int_equal(world_frame_data(&t, &f, index, "hello"), -EAGAIN);
        world_exchange(&t);
        assert_int_equal(world_frame_data(&t, &f, index, "hello"), 0);
        assert_int_equal(f.n_bytes, is_stream ? 12 : 9);
        assert_memory_equal(f.bytes, "\x40\0\0\x05hello\0\0\0", f.n_bytes);
        assert_int_equal(f.bytes[is_stream ? 12 : 9], 0xee);
        assert_int_equal(world_frame_data(&t, &f, index, ""), 0);
        assert_int_equal(f.n_bytes, 4);
        assert_int_equal(world_frame_data(&t, &f, index + 1, "hello"), -EAGAIN);
        world_close(&t);
    }
}

static void data_goes_by_indication_without_a_channel(void **state) {
    (void)state;
    const struct endpoint *peers[] = {&world_peer4, &world_peer6};
    for (unsigned i = 0; i < 4; i++) {
        struct world t;
        struct framed f;
        struct stun_message m;
        struct stun_attribute a;
        struct endpoint peer;
        uint32_t index;
        world_open(&t);
        t.params.dont_fragment = i >= 2;
        world_create(&t);
        world_allocate(&t);
        assert_int_equal(turn_client_create_permissions(t.client, peers[i % 2], 1, t.now_us, &index), 0);
        world_exchange(&t);
        assert_int_equal(world_frame_data(&t, &f, index, "hello"), 0);
        assert_true(stun_message_decode(&m, f.bytes, f.n_bytes));
        assert_int_equal(m.class, STUN_INDICATION);
        assert_int_equal(m.method, STUN_METHOD_SEND);
        assert_true(stun_message_find(&m, STUN_ATTR_XOR_PEER_ADDRESS, &a));
        assert_true(stun_read_xor_address(&peer, &a, &m));
        assert_true(endpoint_equal(&peer, peers[i % 2]));
        world_assert_value(&m, STUN_ATTR_DATA, "hello", 5);
        assert_int_equal(stun_message_find(&m, STUN_ATTR_DONT_FRAGMENT, &a), i >= 2);
        assert_int_equal(f.bytes + f.n_bytes - f.room, TURN_CLIENT_HEADROOM_BYTES + 8);
        assert_int_equal(f.bytes[f.n_bytes], 0xee);
        uint8_t first_id[STUN_TRANSACTION_ID_BYTES];
        memcpy(first_id, m.transaction_id, sizeof first_id);
        assert_int_equal(world_frame_data(&t, &f, index, "again"), 0);
        assert_memory_not_equal(first_id, f.bytes + 8, sizeof first_id);
        world_close(&t);
    }
}

static void data_too_long_to_frame_is_refused(void **state) {
    (void)state;
    struct world t;
    uint32_t by_channel, by_indication;
    uint8_t *room = malloc(TURN_CLIENT_HEADROOM_BYTES + 70000), *bytes;
    size_t n_bytes;
    assert_non_null(room);
    uint8_t *payload = room + TURN_CLIENT_HEADROOM_BYTES;
    world_open_allocated(&t);
    assert_int_equal(turn_client_bind_channel(t.client, &world_peer4, t.now_us, &by_channel), 0);
    assert_int_equal(turn_client_create_permissions(t.client, &world_peer6, 1, t.now_us, &by_indication), 0);
    world_exchange(&t);
    assert_int_equal(turn_client_frame_data(t.client, by_channel, payload, 65535, &bytes, &n_bytes), 0);
    assert_int_equal(turn_client_frame_data(t.client, by_channel, payload, 65536, &bytes, &n_bytes),
                     -EMSGSIZE);
    assert_int_equal(turn_client_frame_data(t.client, by_indication, payload, 65504, &bytes, &n_bytes), 0);
    assert_int_equal(n_bytes, STUN_HEADER_BYTES + 0xfffc);
    assert_int_equal(turn_client_frame_data(t.client, by_indication, payload, 65505, &bytes, &n_bytes),
                     -EMSGSIZE);
    world_close(&t);
    free(room);
}

static void data_comes_by_channel(void **state) {
    (void)state;
    struct world t;
    uint32_t index;
    world_open_allocated(&t);
    const uint8_t bytes[] = "\x40\0\0\x05hello\0\0\0";
    assert_false(world_input(&t, bytes, 12)); /* nothing is bound */
    assert_int_equal(turn_client_bind_channel(t.client, &world_peer4, t.now_us, &index), 0);
    world_exchange(&t);
    assert_true(world_input(&t, bytes, 12));
    assert_int_equal(t.event.kind, TURN_EVENT_DATA);
    assert_int_equal(t.event.channel, 0x4000);
    assert_true(endpoint_equal(&t.event.peer, &world_peer4));
    assert_int_equal(t.event.n_payload, 5);
    assert_ptr_equal(t.event.payload, bytes + 4);
    assert_true(world_input(&t, bytes, 9));
    assert_false(world_input(&t, bytes, 8)); /* cut */
    assert_false(world_input(&t, "\x40\x01\0\0", 4));
    assert_false(world_input(&t, "\x7f\xff\0\0", 4));
    world_close(&t);
}

/* A Data indication of the server's: with data, with ICMP, or with an attribute nobody knows. */
static size_t indication(uint8_t out[128], const struct endpoint *peer, uint16_t type, const void *value,
                         size_t n_value) {
    const uint8_t *id = (const uint8_t *)"indicationid";
    struct wire_writer w = wire_writer_over(out, 128);
    stun_message_begin(&w, STUN_INDICATION, STUN_METHOD_DATA, id);
    if (peer != NULL) {
        stun_write_xor_address(&w, STUN_ATTR_XOR_PEER_ADDRESS, peer, id);
    }
    stun_write_bytes(&w, type, value, n_value);
    return stun_message_end(&w);
}

static void data_comes_by_indication_from_permitted_peers(void **state) {
    (void)state;
    struct world t;
    uint8_t bytes[128];
    uint32_t index;
    struct endpoint other_port = world_peer4;
    other_port.port++;
    world_open_allocated(&t);
    assert_false(world_input(&t, bytes, indication(bytes, &world_peer4, STUN_ATTR_DATA, "hi", 2)));
    assert_int_equal(turn_client_create_permissions(t.client, &world_peer6, 1, t.now_us, &index), 0);
    assert_int_equal(turn_client_create_permissions(t.client, &world_peer4, 1, t.now_us, &index), 0);
    world_exchange(&t);
    assert_true(world_input(&t, bytes, indication(bytes, &other_port, STUN_ATTR_DATA, "hi", 2)));
    assert_int_equal(t.event.kind, TURN_EVENT_DATA);
    assert_int_equal(t.event.channel, 0);
    assert_true(endpoint_equal(&t.event.peer, &other_port));
    assert_int_equal(t.event.n_payload, 2);
    assert_memory_equal(t.event.payload, "hi", 2);
    assert_true(world_input(&t, bytes, indication(bytes, &world_peer6, STUN_ATTR_DATA, "", 0)));
    assert_int_equal(t.event.n_payload, 0);
    assert_false(world_input(&t, bytes, indication(bytes, NULL, STUN_ATTR_DATA, "hi", 2)));
    assert_false(world_input(&t, bytes, indication(bytes, &world_peer4, STUN_ATTR_SOFTWARE, "hi", 2)));
    assert_false(world_input(&t, bytes, indication(bytes, &world_peer4, 0x7fff, "hi", 2)));
    other_port.ip[3]++;
    assert_false(world_input(&t, bytes, indication(bytes, &other_port, STUN_ATTR_DATA, "hi", 2)));
    world_close(&t);
}

static void icmp_is_told(void **state) {
    (void)state;
    struct world t;
    uint8_t bytes[128];
    uint32_t index;
    world_open_allocated(&t);
    assert_int_equal(turn_client_create_permissions(t.client, &world_peer4, 1, t.now_us, &index), 0);
    world_exchange(&t);
    assert_true(world_input(&t, bytes,
                            indication(bytes, &world_peer4, STUN_ATTR_ICMP, "\0\0\x06\x04\0\0\x05\x78", 8)));
    assert_int_equal(t.event.kind, TURN_EVENT_ICMP);
    assert_int_equal(t.event.icmp_type, 3);
    assert_int_equal(t.event.icmp_code, 4);
    assert_int_equal(t.event.icmp_data, 1400);
    assert_true(endpoint_equal(&t.event.peer, &world_peer4));
    assert_false(
        world_input(&t, bytes, indication(bytes, &world_peer4, STUN_ATTR_ICMP, "\0\0\x06\x04\0\0\x05", 7)));
    world_close(&t);
}

static void tcp_connections(void **state) {
    (void)state;
    struct world t;
    uint8_t bytes[128];
    const uint8_t *id = (const uint8_t *)"indicationid";
    world_open_allocated(&t);
    t.server.connection_id = 0xfeedface;
    assert_int_equal(turn_client_connect(t.client, &world_peer4, t.now_us), 0);
    world_exchange(&t);
    assert_int_equal(t.event.method, STUN_METHOD_CONNECT);
    assert_int_equal(t.event.connection_id, 0xfeedface);
    assert_true(endpoint_equal(&t.server.seen.peer, &world_peer4));
    struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
    stun_message_begin(&w, STUN_INDICATION, STUN_METHOD_CONNECTION_ATTEMPT, id);
    stun_write_xor_address(&w, STUN_ATTR_XOR_PEER_ADDRESS, &world_peer6, id);
    assert_false(world_input(&t, bytes, stun_message_end(&w))); /* without CONNECTION-ID */
    stun_write_u32(&w, STUN_ATTR_CONNECTION_ID, 77);
    assert_true(world_input(&t, bytes, stun_message_end(&w)));
    assert_int_equal(t.event.kind, TURN_EVENT_CONNECTION_ATTEMPT);
    assert_int_equal(t.event.connection_id, 77);
    assert_true(endpoint_equal(&t.event.peer, &world_peer6));
    world_close(&t);
    world_open(&t); /* the data connection is a client of its own, and is challenged */
    world_create(&t);
    assert_int_equal(turn_client_connection_bind(t.client, 77, t.now_us), 0);
    world_exchange(&t);
    assert_int_equal(t.event.kind, TURN_EVENT_RESPONSE);
    assert_int_equal(t.event.method, STUN_METHOD_CONNECTION_BIND);
    assert_int_equal(t.server.n_requests, 2);
    world_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permissions_are_refreshed_together),
        cmocka_unit_test(the_number_of_peers_in_a_request_is_bounded),
        cmocka_unit_test(a_refused_permission_is_not_refreshed),
        cmocka_unit_test(a_channel_is_bound_again_before_its_permission_ends),
        cmocka_unit_test(lifetimes_the_server_is_set_to_are_kept),
        cmocka_unit_test(a_known_peer_keeps_its_index_when_bound),
        cmocka_unit_test(channel_numbers_run_out_at_4096),
        cmocka_unit_test(transactions_are_bounded),
        cmocka_unit_test(data_goes_by_channel_once_it_is_confirmed),
        cmocka_unit_test(data_goes_by_indication_without_a_channel),
        cmocka_unit_test(data_too_long_to_frame_is_refused),
        cmocka_unit_test(data_comes_by_channel),
        cmocka_unit_test(data_comes_by_indication_from_permitted_peers),
        cmocka_unit_test(icmp_is_told),
        cmocka_unit_test(tcp_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
