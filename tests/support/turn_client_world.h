/* A TURN client, the server it talks to, and a clock that the test sets. Failures are cmocka's. */
#ifndef TURN_TURN_CLIENT_WORLD_H
#define TURN_TURN_CLIENT_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_turn_server.h"
#include "turn_client.h"

#define MS UINT64_C(1000)
#define S UINT64_C(1000000)

extern const struct endpoint world_peer4, world_peer6;

struct world {
    struct stun_crypto *crypto;
    struct fake_turn_server server;
    struct turn_client_params params;
    struct turn_client *client;
    struct turn_event event; /* the last one there was */
    unsigned n_events;
    uint64_t random, now_us;
};

/* Sets up params and server with the same user; change them, then make the client. */
void world_open(struct world *t);
void world_create(struct world *t);
void world_close(struct world *t);
/* Allocates, and asserts that it went well. */
void world_allocate(struct world *t);
/* All of the above. */
void world_open_allocated(struct world *t);

bool world_input(struct world *t, const void *bytes, size_t n_bytes);
/* One request, if there is one, and its answer. */
bool world_exchange_one(struct world *t);
/* Until the client has nothing more to send. */
void world_exchange(struct world *t);
/* What the client sends is lost. Returns how many messages those were. */
unsigned world_lose(struct world *t);
/* Sets the clock and does all that is due. */
void world_advance_to(struct world *t, uint64_t now_us);

void world_assert_error(const struct world *t, uint16_t method, uint16_t code, int err);
void world_assert_value(const struct stun_message *m, uint16_t type, const void *value, size_t n_value);

/* Data framed in place, with one byte more behind the room for padding, which has to stay 0xee. */
struct framed {
    uint8_t room[TURN_CLIENT_HEADROOM_BYTES + 16 + TURN_CLIENT_TAILROOM_BYTES + 1];
    uint8_t *bytes;
    size_t n_bytes;
};
int world_frame_data(struct world *t, struct framed *f, uint32_t index, const char *text);

#endif
