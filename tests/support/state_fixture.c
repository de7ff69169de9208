#include "state_fixture.h"

#include <assert.h>
#include <stdio.h>

#include "allocation_private.h"

static const uint64_t US_PER_S = 1000 * 1000;

static void on_quiesce(void *context) {
    ((struct state_fixture *)context)->n_quiesced++;
}

static void on_ended(void *context, struct allocation *allocation, enum allocation_end why) {
    struct state_fixture *f = context;
    assert(allocation->relay[RELAY_V4].address != NULL || allocation->relay[RELAY_V6].address != NULL);
    (void)allocation;
    f->n_ended++;
    f->last_end = why;
}

static uint32_t or_default(uint32_t value, uint32_t otherwise) {
    return value == 0 ? otherwise : value;
}

int fixture_create(struct state_fixture *f, const struct fixture_params *params) {
    *f = (struct state_fixture){.now_us = US_PER_S};
    int err = fake_carrier_create(&f->carrier, &params->carrier);
    if (err < 0) {
        return err;
    }
    struct allocation_table_params p = {
        .hash_key = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)},
        .thread = params->carrier.thread,
        .carrier = &f->carrier->carrier,
        .permission_lifetime_us = or_default(params->permission_s, FIXTURE_PERMISSION_S) * US_PER_S,
        .channel_lifetime_us = or_default(params->channel_s, FIXTURE_CHANNEL_S) * US_PER_S,
        .max_peers = or_default(params->max_peers, 256),
        .claim_idle_us = FIXTURE_CLAIM_IDLE_S * US_PER_S,
        .context = f,
        .quiesce = on_quiesce,
        .ended = on_ended,
    };
    err = allocation_table_create(&f->table, &p, f->now_us);
    if (err < 0) {
        fake_carrier_destroy(f->carrier);
    }
    return err;
}

size_t fixture_table_items(const struct state_fixture *f) {
    const struct allocation_table *t = f->table;
    return t->by_tuple.n_items + t->by_uid.n_items + t->claims.n_items + t->permitted.n_items +
           t->own_permissions.n_items + t->own_peers.n_items + t->pairs.n_items + t->wheel.n_armed;
}

bool fixture_destroy(struct state_fixture *f) {
    allocation_table_destroy(f->table); /* asserts that its tables are empty at the end */
    bool clean = f->carrier->n_held == 0;
    fake_carrier_destroy(f->carrier);
    return clean;
}

void fixture_advance(struct state_fixture *f, double seconds) {
    f->now_us += (uint64_t)(seconds * 1e6);
    allocation_table_advance(f->table, f->now_us);
}

static struct relayed_address *acquire(struct state_fixture *f, enum relay_family family) {
    const struct relay_carrier *c = &f->carrier->carrier;
    struct relay_request request = {.family = family};
    struct relayed_address *address = NULL;
    uint8_t token[STUN_RESERVATION_TOKEN_BYTES];
    return c->acquire(c->context, &request, &address, token) == STUN_OK ? address : NULL;
}

static void release(struct state_fixture *f, struct relayed_address *address) {
    const struct relay_carrier *c = &f->carrier->carrier;
    if (address != NULL) {
        c->release(c->context, address);
    }
}

static uint64_t user_hash(const char *user) {
    const struct hash_key key = {1, 2};
    return user == NULL ? 0 : hash_bytes(&key, user, strlen(user));
}

static struct five_tuple next_tuple(struct state_fixture *f) {
    struct five_tuple tuple = {.client = state_fixture_endpoint("203.0.113.1:1"),
                               .server = state_fixture_endpoint("192.0.2.1:3478"),
                               .transport = CLIENT_UDP};
    uint32_t n = f->next_client++;
    memcpy(tuple.client.ip, &n, sizeof n);
    return tuple;
}

struct allocation *state_fixture_allocate(struct state_fixture *f, const char *user, bool v4, bool v6) {
    struct allocation_params p = {
        .five_tuple = next_tuple(f),
        .username = user,
        .realm = user == NULL ? NULL : "example.org",
        .user_hash = user_hash(user),
        .relayed = {v4 ? acquire(f, RELAY_V4) : NULL, v6 ? acquire(f, RELAY_V6) : NULL},
        .lifetime_us = FIXTURE_LIFETIME_S * US_PER_S,
    };
    struct allocation *a = NULL;
    bool have_all = (!v4 || p.relayed[RELAY_V4] != NULL) && (!v6 || p.relayed[RELAY_V6] != NULL);
    if (!have_all || allocation_create(&a, f->table, &p, f->now_us) < 0) {
        release(f, p.relayed[RELAY_V4]);
        release(f, p.relayed[RELAY_V6]);
    }
    return a;
}

struct allocation *fixture_allocate_v4(struct state_fixture *f, const char *user) {
    return state_fixture_allocate(f, user, true, false);
}

struct endpoint state_fixture_endpoint(const char *text) {
    struct endpoint e = {0};
    int err = endpoint_parse(&e, text, 0);
    assert(err == 0);
    (void)err;
    return e;
}

struct endpoint fixture_peer(unsigned host, uint16_t port) {
    struct endpoint e = state_fixture_endpoint("198.51.100.0");
    e.ip[2] = (uint8_t)(e.ip[2] + (host >> 8));
    e.ip[3] = (uint8_t)host;
    e.port = port;
    return e;
}

enum stun_status state_fixture_permit(struct state_fixture *f, struct allocation *a, struct endpoint peer) {
    return permission_install(a, &peer, 1, f->now_us);
}

enum stun_status state_fixture_bind(struct state_fixture *f, struct allocation *a, uint16_t number,
                                    struct endpoint peer) {
    return channel_bind(a, number, &peer, f->now_us);
}

struct fixture_stun fixture_binding(enum stun_class class, uint8_t id, const char *username) {
    struct fixture_stun m = {0};
    struct wire_writer w = wire_writer_over(m.bytes, sizeof m.bytes);
    uint8_t transaction_id[STUN_TRANSACTION_ID_BYTES];
    memset(transaction_id, id, sizeof transaction_id);
    stun_message_begin(&w, class, STUN_METHOD_BINDING, transaction_id);
    if (username != NULL) {
        stun_write_bytes(&w, STUN_ATTR_USERNAME, username, strlen(username));
    }
    m.n_bytes = (uint32_t)stun_message_end(&w);
    return m;
}

static const uint8_t some_data[] = "\x80some media that is not STUN at all";

struct peer_endpoint *state_fixture_send(struct state_fixture *f, struct allocation *a,
                                         struct endpoint peer) {
    return peer_table_note_sent(a, NULL, &peer, some_data, sizeof some_data, f->now_us);
}

struct peer_endpoint *fixture_send_stun(struct state_fixture *f, struct allocation *a, struct endpoint peer,
                                        struct fixture_stun message) {
    return peer_table_note_sent(a, NULL, &peer, message.bytes, message.n_bytes, f->now_us);
}

static struct relayed_address *relayed_of(const struct allocation *a, const struct endpoint *peer) {
    return a->relay[relay_family_of(peer)].address;
}

struct peer_match fixture_receive(struct state_fixture *f, const struct allocation *at,
                                  struct endpoint peer) {
    struct peer_match match;
    const struct peer_datagram datagram = {
        .peer = &peer, .payload = some_data, .n_payload = sizeof some_data};
    peer_table_match(f->table, relayed_of(at, &peer), &datagram, f->now_us, &match);
    return match;
}

struct peer_match fixture_receive_stun(struct state_fixture *f, const struct allocation *at,
                                       struct endpoint peer, struct fixture_stun message) {
    struct peer_match match;
    const struct peer_datagram datagram = {
        .peer = &peer, .payload = message.bytes, .n_payload = (uint32_t)message.n_bytes};
    peer_table_match(f->table, relayed_of(at, &peer), &datagram, f->now_us, &match);
    return match;
}

struct relay_sender fixture_sender(const struct allocation *from) {
    const struct relayed_address *address = from->relay[RELAY_V4].address;
    return (struct relay_sender){.uid = from->uid,
                                 .user_hash = from->user_hash,
                                 .advertised = address->advertised,
                                 .local = address->local};
}

struct peer_match fixture_local(struct state_fixture *f, const struct allocation *from,
                                const struct allocation *at, const struct fixture_stun *message,
                                struct endpoint *out_peer) {
    struct peer_match match;
    struct relay_sender sender = fixture_sender(from);
    peer_table_match_local(
        f->table, at->relay[RELAY_V4].address, &sender, message == NULL ? some_data : message->bytes,
        message == NULL ? sizeof some_data : message->n_bytes, f->now_us, &match, out_peer);
    return match;
}
