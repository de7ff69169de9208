#include "turn_client_world.h"

#include <errno.h>
#include <stdlib.h>

#include "alloc_fault.h"

/* ---- Binding ---- */

static void binding_tells_the_mapped_address_and_the_time_it_took(void **state) {
    (void)state;
    struct world t;
    const uint8_t *bytes;
    uint8_t answer[256];
    size_t n_bytes;
    world_open(&t);
    world_create(&t);
    assert_int_equal(turn_client_binding(t.client, t.now_us), 0);
    assert_true(turn_client_next_output(t.client, &bytes, &n_bytes));
    assert_int_equal(n_bytes, STUN_HEADER_BYTES);
    size_t n = fake_turn_server_answer(&t.server, bytes, n_bytes, answer, sizeof answer);
    t.now_us += 30 * MS;
    assert_true(world_input(&t, answer, n));
    assert_int_equal(t.event.kind, TURN_EVENT_RESPONSE);
    assert_int_equal(t.event.method, STUN_METHOD_BINDING);
    assert_true(endpoint_equal(&t.event.peer, &fake_mapped));
    assert_int_equal(t.event.elapsed_us, 30 * MS);
    assert_false(world_input(&t, answer, n)); /* once more */
    assert_int_equal(turn_client_next_deadline_us(t.client), UINT64_MAX);
    world_close(&t);
}

static void a_lost_request_is_sent_seven_times_on_schedule(void **state) {
    (void)state;
    static const uint64_t sends_ms[] = {500, 1500, 3500, 7500, 15500, 31500};
    struct world t;
    world_open(&t);
    world_create(&t);
    uint64_t start_us = t.now_us;
    assert_int_equal(turn_client_binding(t.client, start_us), 0);
    assert_int_equal(world_lose(&t), 1);
    for (size_t i = 0; i < 6; i++) {
        uint64_t due_us = start_us + sends_ms[i] * MS;
        assert_int_equal(turn_client_next_deadline_us(t.client), due_us);
        world_advance_to(&t, due_us - 1);
        assert_int_equal(world_lose(&t), 0);
        world_advance_to(&t, due_us);
        assert_int_equal(world_lose(&t), 1);
        assert_int_equal(t.n_events, 0);
    }
    assert_int_equal(turn_client_next_deadline_us(t.client), start_us + 39500 * MS);
    world_advance_to(&t, start_us + 39500 * MS - 1);
    assert_int_equal(t.n_events, 0);
    world_advance_to(&t, start_us + 39500 * MS);
    assert_int_equal(t.n_events, 1);
    assert_int_equal(t.event.kind, TURN_EVENT_TIMEOUT);
    assert_int_equal(t.event.method, STUN_METHOD_BINDING);
    assert_int_equal(t.event.elapsed_us, 39500 * MS);
    assert_int_equal(world_lose(&t), 0);
    assert_int_equal(turn_client_next_deadline_us(t.client), UINT64_MAX);
    world_close(&t);
}

static void a_retransmission_is_the_same_message(void **state) {
    (void)state;
    struct world t;
    const uint8_t *bytes;
    uint8_t first[256];
    size_t n_first, n_bytes;
    world_open(&t);
    world_create(&t);
    assert_int_equal(turn_client_allocate(t.client, t.now_us), 0);
    assert_true(turn_client_next_output(t.client, &bytes, &n_first));
    memcpy(first, bytes, n_first);
    world_advance_to(&t, t.now_us + 500 * MS);
    assert_true(turn_client_next_output(t.client, &bytes, &n_bytes));
    assert_int_equal(n_bytes, n_first);
    assert_memory_equal(bytes, first, n_first);
    world_close(&t);
}

static void over_a_stream_nothing_is_sent_twice(void **state) {
    (void)state;
    struct world t;
    world_open(&t);
    t.params.is_stream = true;
    world_create(&t);
    uint64_t start_us = t.now_us;
    assert_int_equal(turn_client_binding(t.client, start_us), 0);
    assert_int_equal(world_lose(&t), 1);
    assert_int_equal(turn_client_next_deadline_us(t.client), start_us + 39500 * MS);
    world_advance_to(&t, start_us + 39500 * MS - 1);
    assert_int_equal(world_lose(&t) + t.n_events, 0);
    world_advance_to(&t, start_us + 39500 * MS);
    assert_int_equal(t.event.kind, TURN_EVENT_TIMEOUT);
    world_close(&t);
}

static void the_rto_may_be_set(void **state) {
    (void)state;
    struct world t;
    world_open(&t);
    t.params.rto_us = 100000;
    world_create(&t);
    assert_int_equal(turn_client_binding(t.client, t.now_us), 0);
    assert_int_equal(turn_client_next_deadline_us(t.client), t.now_us + 100 * MS);
    world_close(&t);
}

/* ---- Refresh and the end ---- */

static void the_allocation_is_refreshed_a_minute_before_it_ends(void **state) {
    (void)state;
    struct world t;
    world_open_allocated(&t);
    uint64_t start_us = t.now_us;
    assert_int_equal(turn_client_next_deadline_us(t.client), start_us + 540 * S);
    world_advance_to(&t, start_us + 540 * S - 1);
    assert_int_equal(world_lose(&t), 0);
    world_advance_to(&t, start_us + 540 * S);
    world_exchange(&t);
    assert_int_equal(t.event.kind, TURN_EVENT_RESPONSE);
    assert_int_equal(t.event.method, STUN_METHOD_REFRESH);
    assert_int_equal(t.server.seen.method, STUN_METHOD_REFRESH);
    assert_false(t.server.seen.had_lifetime);
    assert_int_equal(turn_client_get_allocation(t.client)->expires_at_us, start_us + 1140 * S);
    assert_int_equal(turn_client_next_deadline_us(t.client), start_us + 1080 * S);
    world_close(&t);
}

static void short_lifetimes_are_refreshed_at_half(void **state) {
    (void)state;
    const struct {
        uint32_t lifetime_s;
        uint64_t wait_us;
    } cases[] = {{1, 500 * MS}, {120, 60 * S}, {121, 61 * S}, {3600, 3540 * S}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world t;
        world_open(&t);
        t.server.lifetime_s = cases[i].lifetime_s;
        world_create(&t);
        world_allocate(&t);
        assert_int_equal(turn_client_next_deadline_us(t.client), t.now_us + cases[i].wait_us);
        world_close(&t);
    }
}

static void a_refresh_that_is_lost_goes_again_and_the_allocation_lives(void **state) {
    (void)state;
    struct world t;
    world_open_allocated(&t);
    uint64_t due_us = t.now_us + 540 * S;
    world_advance_to(&t, due_us);
    assert_int_equal(world_lose(&t), 1);
    world_advance_to(&t, due_us + 500 * MS);
    world_exchange(&t);
    assert_int_equal(t.n_events, 1);
    assert_int_equal(t.event.kind, TURN_EVENT_RESPONSE);
    world_close(&t);
}

static void without_any_answer_the_allocation_expires(void **state) {
    (void)state;
    struct world t;
    uint32_t index;
    world_open_allocated(&t);
    uint64_t start_us = t.now_us;
    assert_int_equal(turn_client_bind_channel(t.client, &world_peer4, t.now_us, &index), 0);
    world_exchange(&t);
    t.n_events = 0;
    while (t.event.kind != TURN_EVENT_EXPIRED) {
        uint64_t next_us = turn_client_next_deadline_us(t.client);
        assert_true(next_us <= start_us + 600 * S);
        world_advance_to(&t, next_us);
        (void)world_lose(&t);
    }
    assert_int_equal(t.now_us, start_us + 600 * S);
    assert_int_equal(turn_client_get_state(t.client), TURN_CLIENT_IDLE);
    assert_int_equal(turn_client_peer_state(t.client, index), TURN_PEER_FAILED);
    assert_int_equal(turn_client_refresh(t.client, t.now_us), -ENOTCONN);
    /* a new allocation starts without peers, and old requests do not disturb it */
    world_allocate(&t);
    assert_int_equal(turn_client_n_peers(t.client), 0);
    world_close(&t);
}

static void a_failed_refresh_is_tried_again_while_there_is_time(void **state) {
    (void)state;
    struct world t;
    world_open_allocated(&t);
    uint64_t start_us = t.now_us;
    t.server.error = STUN_SERVER_ERROR;
    world_advance_to(&t, start_us + 540 * S);
    world_exchange(&t);
    world_assert_error(&t, STUN_METHOD_REFRESH, 500, 0);
    assert_int_equal(turn_client_get_state(t.client), TURN_CLIENT_ALLOCATED);
    assert_int_equal(turn_client_next_deadline_us(t.client), start_us + 570 * S);
    t.server.error = 0;
    world_advance_to(&t, start_us + 570 * S);
    world_exchange(&t);
    assert_int_equal(t.event.kind, TURN_EVENT_RESPONSE);
    world_close(&t);
}

static void a_refresh_answered_437_means_the_allocation_is_gone(void **state) {
    (void)state;
    struct world t;
    world_open_allocated(&t);
    t.server.error = STUN_ALLOCATION_MISMATCH;
    assert_int_equal(turn_client_refresh(t.client, t.now_us), 0);
    world_exchange(&t);
    world_assert_error(&t, STUN_METHOD_REFRESH, 437, 0);
    assert_int_equal(turn_client_get_state(t.client), TURN_CLIENT_IDLE);
    assert_int_equal(turn_client_next_deadline_us(t.client), UINT64_MAX);
    world_close(&t);
}

static void a_stale_nonce_in_the_middle_is_unseen_from_outside(void **state) {
    (void)state;
    struct world t;
    uint32_t index;
    world_open_allocated(&t);
    t.server.nonce = "nonce-2";
    unsigned n_before = t.server.n_requests;
    assert_int_equal(turn_client_create_permissions(t.client, &world_peer4, 1, t.now_us, &index), 0);
    world_exchange(&t);
    assert_int_equal(t.server.n_requests, n_before + 2);
    assert_int_equal(t.n_events, 1);
    assert_int_equal(t.event.kind, TURN_EVENT_RESPONSE);
    assert_int_equal(turn_client_peer_state(t.client, index), TURN_PEER_ACTIVE);
    assert_true(endpoint_equal(&t.server.seen.peer, &world_peer4));
    world_close(&t);
}

static void two_requests_may_meet_one_stale_nonce(void **state) {
    (void)state;
    struct world t;
    uint32_t a, b;
    const uint8_t *bytes;
    uint8_t answers[2][512];
    size_t n_bytes, n[2];
    world_open_allocated(&t);
    t.server.nonce = "nonce-2";
    assert_int_equal(turn_client_create_permissions(t.client, &world_peer4, 1, t.now_us, &a), 0);
    assert_int_equal(turn_client_bind_channel(t.client, &world_peer6, t.now_us, &b), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_true(turn_client_next_output(t.client, &bytes, &n_bytes));
        n[i] = fake_turn_server_answer(&t.server, bytes, n_bytes, answers[i], 512);
    }
    assert_false(world_input(&t, answers[1], n[1]));
    assert_false(world_input(&t, answers[0], n[0]));
    world_exchange(&t);
    assert_int_equal(turn_client_peer_state(t.client, a), TURN_PEER_ACTIVE);
    assert_int_equal(turn_client_peer_state(t.client, b), TURN_PEER_ACTIVE);
    assert_int_equal(t.n_events, 2);
    world_close(&t);
}

static void release_ends_the_allocation(void **state) {
    (void)state;
    for (int is_gone = 0; is_gone <= 1; is_gone++) {
        struct world t;
        world_open_allocated(&t);
        t.server.error = is_gone ? STUN_ALLOCATION_MISMATCH : 0;
        assert_int_equal(turn_client_release(t.client, t.now_us), 0);
        assert_int_equal(turn_client_get_state(t.client), TURN_CLIENT_RELEASING);
        assert_int_equal(turn_client_release(t.client, t.now_us), -ENOTCONN);
        world_exchange(&t);
        assert_int_equal(t.event.kind, TURN_EVENT_RESPONSE);
        assert_int_equal(t.event.method, STUN_METHOD_REFRESH);
        assert_int_equal(t.event.code, 0);
        assert_int_equal(t.server.seen.lifetime_s, 0);
        assert_int_equal(turn_client_get_state(t.client), TURN_CLIENT_IDLE);
        assert_int_equal(turn_client_next_deadline_us(t.client), UINT64_MAX);
        world_close(&t);
    }
}

static void mobility_carries_the_ticket(void **state) {
    (void)state;
    struct world t;
    world_open(&t);
    t.params.mobility = true;
    t.server.ticket = "ticket-1";
    world_create(&t);
    assert_int_equal(turn_client_move(t.client, t.now_us), -ENOTCONN);
    world_allocate(&t);
    t.server.ticket = "longer ticket-2";
    assert_int_equal(turn_client_move(t.client, t.now_us), 0);
    world_exchange(&t);
    assert_int_equal(t.server.seen.n_ticket, 8);
    assert_int_equal(turn_client_move(t.client, t.now_us), 0);
    world_exchange(&t);
    assert_int_equal(t.server.seen.n_ticket, 15);
    assert_int_equal(turn_client_refresh(t.client, t.now_us), 0);
    world_exchange(&t);
    assert_false(t.server.seen.had_ticket);
    world_close(&t);
    world_open_allocated(&t); /* no ticket, no move */
    assert_int_equal(turn_client_move(t.client, t.now_us), -ENOTCONN);
    world_close(&t);
}

/* ---- creation, and want of memory ---- */

static void bad_parameters_are_refused(void **state) {
    (void)state;
    struct world t;
    char name[STUN_MAX_USERNAME_BYTES + 2];
    world_open(&t);
    memset(name, 'x', sizeof name);
    name[STUN_MAX_USERNAME_BYTES + 1] = '\0';
    t.params.username = name;
    assert_int_equal(turn_client_create(&t.client, &t.params), -EINVAL);
    name[STUN_MAX_USERNAME_BYTES] = '\0';
    assert_int_equal(turn_client_create(&t.client, &t.params), 0);
    turn_client_destroy(t.client);
    t.params.username = "a\x07";
    assert_int_equal(turn_client_create(&t.client, &t.params), -EINVAL);
    t.params.username = "alice";
    t.params.password = NULL;
    assert_int_equal(turn_client_create(&t.client, &t.params), -EINVAL);
    t.params.password = "wonder";
    turn_client_random_fn random = t.params.random;
    t.params.random = NULL;
    assert_int_equal(turn_client_create(&t.client, &t.params), -EINVAL);
    t.params.random = random;
    t.params.crypto = NULL;
    assert_int_equal(turn_client_create(&t.client, &t.params), -EINVAL);
    t.client = NULL;
    world_close(&t);
}

/* A whole life; returns false when a step failed. Whatever fails, nothing leaks and nothing breaks. */
static bool live(struct world *t) {
    uint32_t index;
    struct framed f;
    if (turn_client_create(&t->client, &t->params) < 0) {
        t->client = NULL;
        return false;
    }
    bool ok = turn_client_allocate(t->client, t->now_us) == 0;
    world_exchange(t);
    ok = ok && turn_client_create_permissions(t->client, &world_peer4, 1, t->now_us, &index) == 0;
    world_exchange(t);
    ok = ok && turn_client_bind_channel(t->client, &world_peer6, t->now_us, &index) == 0;
    world_exchange(t);
    ok = ok && world_frame_data(t, &f, index, "hello") == 0;
    uint64_t end_us = t->now_us + 700 * S;
    while (turn_client_next_deadline_us(t->client) < end_us) {
        world_advance_to(t, turn_client_next_deadline_us(t->client));
        world_exchange(t);
    }
    ok = ok && turn_client_release(t->client, t->now_us) == 0;
    world_exchange(t);
    return ok && turn_client_get_state(t->client) == TURN_CLIENT_IDLE && t->event.kind == TURN_EVENT_RESPONSE;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    bool hit = true;
    unsigned n_failed = 0;
    for (uint64_t n = 1; hit; n++) {
        struct world t;
        world_open(&t);
        t.params.software = "load";
        t.params.mobility = true;
        t.server.ticket = "ticket";
        alloc_fault_arm(n);
        bool ok = live(&t);
        hit = alloc_fault_hit();
        alloc_fault_disarm();
        n_failed += !ok;
        assert_true(hit || ok);
        world_close(&t);
    }
    assert_true(n_failed > 5);
}

static void a_refresh_that_finds_no_memory_is_put_off(void **state) {
    (void)state;
    struct world t;
    uint32_t index;
    world_open_allocated(&t);
    assert_int_equal(turn_client_bind_channel(t.client, &world_peer4, t.now_us, &index), 0);
    world_exchange(&t);
    uint64_t due_us = t.now_us + 240 * S;
    alloc_fault_arm(1);
    world_advance_to(&t, due_us);
    alloc_fault_disarm();
    assert_int_equal(world_lose(&t), 0);
    assert_int_equal(turn_client_next_deadline_us(t.client), due_us + 1 * S);
    world_advance_to(&t, due_us + 1 * S);
    world_exchange(&t);
    assert_int_equal(t.server.seen.method, STUN_METHOD_CHANNEL_BIND);
    assert_int_equal(turn_client_peer_state(t.client, index), TURN_PEER_ACTIVE);
    world_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binding_tells_the_mapped_address_and_the_time_it_took),
        cmocka_unit_test(a_lost_request_is_sent_seven_times_on_schedule),
        cmocka_unit_test(a_retransmission_is_the_same_message),
        cmocka_unit_test(over_a_stream_nothing_is_sent_twice),
        cmocka_unit_test(the_rto_may_be_set),
        cmocka_unit_test(the_allocation_is_refreshed_a_minute_before_it_ends),
        cmocka_unit_test(short_lifetimes_are_refreshed_at_half),
        cmocka_unit_test(a_refresh_that_is_lost_goes_again_and_the_allocation_lives),
        cmocka_unit_test(without_any_answer_the_allocation_expires),
        cmocka_unit_test(a_failed_refresh_is_tried_again_while_there_is_time),
        cmocka_unit_test(a_refresh_answered_437_means_the_allocation_is_gone),
        cmocka_unit_test(a_stale_nonce_in_the_middle_is_unseen_from_outside),
        cmocka_unit_test(two_requests_may_meet_one_stale_nonce),
        cmocka_unit_test(release_ends_the_allocation),
        cmocka_unit_test(mobility_carries_the_ticket),
        cmocka_unit_test(bad_parameters_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_refresh_that_finds_no_memory_is_put_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
