/* An allocation table over a fake carrier and a clock that only moves when told, and short ways to make
 * allocations, peers and ICE messages. For tests of the core's state. */
#ifndef TURN_STATE_FIXTURE_H
#define TURN_STATE_FIXTURE_H

#include "allocation.h"
#include "fake_carrier.h"
#include "peer_table.h"

enum {
    FIXTURE_PERMISSION_S = 300,
    FIXTURE_CHANNEL_S = 600,
    FIXTURE_CLAIM_IDLE_S = 30,
    FIXTURE_LIFETIME_S = 600,
    FIXTURE_STUN_BYTES = 256,
};

struct state_fixture {
    struct fake_carrier *carrier;
    struct allocation_table *table;
    uint64_t now_us;
    uint32_t next_client; /* makes client addresses differ */
    unsigned n_quiesced;
    unsigned n_ended;
    enum allocation_end last_end;
};

struct fixture_params {
    struct fake_carrier_params carrier;
    uint32_t max_peers;    /* 0: 256 */
    uint32_t permission_s; /* 0: FIXTURE_PERMISSION_S */
    uint32_t channel_s;    /* 0: FIXTURE_CHANNEL_S */
};

/* 0 or -ENOMEM. */
int fixture_create(struct state_fixture *f, const struct fixture_params *params);
/* Ends all allocations. Returns false when anything was left: an address held, a table not empty before its
 * end. */
bool fixture_destroy(struct state_fixture *f);
void fixture_advance(struct state_fixture *f, double seconds);

/* An allocation with an address of each family asked for; NULL when memory or addresses run out (then nothing
 * is held). user NULL: no name. */
struct allocation *state_fixture_allocate(struct state_fixture *f, const char *user, bool v4, bool v6);
struct allocation *fixture_allocate_v4(struct state_fixture *f, const char *user);

struct endpoint state_fixture_endpoint(const char *text);
/* 198.51.100.HOST:PORT */
struct endpoint fixture_peer(unsigned host, uint16_t port);

enum stun_status state_fixture_permit(struct state_fixture *f, struct allocation *a, struct endpoint peer);
enum stun_status state_fixture_bind(struct state_fixture *f, struct allocation *a, uint16_t number,
                                    struct endpoint peer);

/* A STUN message of the given type; the transaction id is filled with `id`; username may be NULL. */
struct fixture_stun {
    uint8_t bytes[FIXTURE_STUN_BYTES];
    uint32_t n_bytes;
};
struct fixture_stun fixture_binding(enum stun_class class, uint8_t id, const char *username);

/* The client sends: data, or a STUN message. */
struct peer_endpoint *state_fixture_send(struct state_fixture *f, struct allocation *a, struct endpoint peer);
struct peer_endpoint *fixture_send_stun(struct state_fixture *f, struct allocation *a, struct endpoint peer,
                                        struct fixture_stun message);
/* A peer sends to the relayed address of its family that `at` has. */
struct peer_match fixture_receive(struct state_fixture *f, const struct allocation *at, struct endpoint peer);
struct peer_match fixture_receive_stun(struct state_fixture *f, const struct allocation *at,
                                       struct endpoint peer, struct fixture_stun message);
/* Allocation `from` sends to the relayed address of `at`, over IPv4. */
struct peer_match fixture_local(struct state_fixture *f, const struct allocation *from,
                                const struct allocation *at, const struct fixture_stun *message,
                                struct endpoint *out_peer);
struct relay_sender fixture_sender(const struct allocation *from);

/* Items over all tables. */
size_t fixture_table_items(const struct state_fixture *f);

#endif
