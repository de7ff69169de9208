#include "turn_client_world.h"

#include <stdlib.h>

const struct endpoint world_peer4 = {.family = AF_INET, .port = 7000, .ip = {192, 0, 2, 10}};
const struct endpoint world_peer6 = {.family = AF_INET6, .port = 7001, .ip = {0x20, 1, 0xd, 0xb8, 9}};

/* Counts up, so that every identifier is another one and each run is the same. */
static void count_up(void *context, void *out, size_t n_bytes) {
    uint64_t *n = context;
    memset(out, 0, n_bytes);
    (*n)++;
    memcpy(out, n, n_bytes < sizeof *n ? n_bytes : sizeof *n);
}

void world_open(struct world *t) {
    memset(t, 0, sizeof *t);
    assert_int_equal(stun_crypto_create(&t->crypto), 0);
    t->now_us = 1000 * S;
    t->server = (struct fake_turn_server){.crypto = t->crypto,
                                          .realm = "example.org",
                                          .nonce = "nonce-1",
                                          .username = "alice",
                                          .password = "wonder",
                                          .lifetime_s = 600};
    t->params = (struct turn_client_params){.crypto = t->crypto,
                                            .random = count_up,
                                            .random_context = &t->random,
                                            .username = "alice",
                                            .password = "wonder"};
}

void world_create(struct world *t) {
    assert_int_equal(turn_client_create(&t->client, &t->params), 0);
}

void world_close(struct world *t) {
    turn_client_destroy(t->client);
    stun_crypto_destroy(t->crypto);
}

static void note(struct world *t, const struct turn_event *event) {
    t->event = *event;
    t->n_events++;
}

bool world_input(struct world *t, const void *bytes, size_t n_bytes) {
    struct turn_event event;
    bool told = turn_client_input(t->client, bytes, n_bytes, t->now_us, &event);
    assert_int_equal(told, event.kind != TURN_EVENT_NONE);
    if (told) {
        note(t, &event);
    }
    return told;
}

bool world_exchange_one(struct world *t) {
    const uint8_t *bytes;
    uint8_t answer[2048];
    size_t n_bytes;
    if (!turn_client_next_output(t->client, &bytes, &n_bytes)) {
        return false;
    }
    size_t n = fake_turn_server_answer(&t->server, bytes, n_bytes, answer, sizeof answer);
    assert_true(n > 0);
    (void)world_input(t, answer, n);
    return true;
}

void world_exchange(struct world *t) {
    for (unsigned i = 0; world_exchange_one(t); i++) {
        assert_true(i < 100);
    }
}

unsigned world_lose(struct world *t) {
    const uint8_t *bytes;
    size_t n_bytes;
    unsigned n = 0;
    while (turn_client_next_output(t->client, &bytes, &n_bytes)) {
        n++;
    }
    return n;
}

void world_advance_to(struct world *t, uint64_t now_us) {
    struct turn_event event;
    t->now_us = now_us;
    for (unsigned i = 0; turn_client_advance(t->client, now_us, &event); i++) {
        assert_true(i < 1000);
        note(t, &event);
    }
    assert_true(turn_client_next_deadline_us(t->client) > now_us); /* nothing due is left undone */
}

void world_allocate(struct world *t) {
    assert_int_equal(turn_client_allocate(t->client, t->now_us), 0);
    world_exchange(t);
    assert_int_equal(turn_client_get_state(t->client), TURN_CLIENT_ALLOCATED);
    assert_int_equal(t->event.kind, TURN_EVENT_RESPONSE);
    assert_int_equal(t->event.method, STUN_METHOD_ALLOCATE);
}

void world_open_allocated(struct world *t) {
    world_open(t);
    world_create(t);
    world_allocate(t);
    t->n_events = 0;
}

void world_assert_error(const struct world *t, uint16_t method, uint16_t code, int err) {
    assert_int_equal(t->event.kind, TURN_EVENT_ERROR);
    assert_int_equal(t->event.method, method);
    assert_int_equal(t->event.code, code);
    assert_int_equal(t->event.err, err);
}

int world_frame_data(struct world *t, struct framed *f, uint32_t index, const char *text) {
    memset(f->room, 0xee, sizeof f->room);
    memcpy(f->room + TURN_CLIENT_HEADROOM_BYTES, text, strlen(text));
    return turn_client_frame_data(t->client, index, f->room + TURN_CLIENT_HEADROOM_BYTES, strlen(text),
                                  &f->bytes, &f->n_bytes);
}

void world_assert_value(const struct stun_message *m, uint16_t type, const void *value, size_t n_value) {
    struct stun_attribute a;
    assert_true(stun_message_find(m, type, &a));
    assert_int_equal(a.n_bytes, n_value);
    assert_memory_equal(a.value, value, n_value);
}
