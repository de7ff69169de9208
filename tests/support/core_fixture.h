/* A whole turn_core with a fake carrier, a clock set by hand and random numbers that repeat, and clients that
 * talk to it in messages. Used by the tests of requests. Everything is checked with assert: a broken fixture
 * is no test result. One thread. */
#ifndef TURN_CORE_FIXTURE_H
#define TURN_CORE_FIXTURE_H

#include "fake_carrier.h"
#include "turn_core.h"

enum { FIXTURE_NO_REPLY = -1, FIXTURE_MAX_EVENTS = 64, FIXTURE_WALL_S = 1800000000 };

/* Zeroed means: users alice:wonder and bob:builder, realm example.org, dedicated addresses of both families.
 */
struct core_fixture_params {
    const char *const *users;   /* NULL-terminated; NULL: the two above */
    const char *const *secrets; /* NULL-terminated; NULL: none */
    const char *const *denied;  /* NULL-terminated peer ranges */
    bool no_auth;
    uint32_t user_quota, total_quota;
    uint32_t max_lifetime_s;   /* 0: 3600 */
    uint32_t nonce_lifetime_s; /* 0: 600 */
    struct fake_carrier_params carrier;
};

struct core_fixture {
    struct core_config config; /* may be changed between messages */
    struct core_host host;
    struct fake_carrier *carrier;
    struct credential_store *credentials;
    struct peer_policy *policy;
    struct quota *quota;
    struct stun_crypto *crypto;
    struct turn_core *core;
    struct core_time now;
    uint8_t nonce_key[32];
    uint64_t random_state;
    uint32_t n_clients, n_transactions;
    /* events in order, the oldest forgotten; pointers inside are only good for comparing with NULL */
    struct core_event_info events[FIXTURE_MAX_EVENTS];
    size_t n_events;
    /* the last reply */
    uint8_t reply_bytes[CORE_REPLY_MAX_BYTES];
    struct stun_message reply;
    size_t n_reply_bytes;
};

/* 0 or -ENOMEM. */
int core_fixture_create(struct core_fixture **out, const struct core_fixture_params *params);
void core_fixture_destroy(struct core_fixture *f);
/* Lets time pass on both clocks and expires what is due. */
void core_fixture_pass(struct core_fixture *f, uint32_t seconds);
/* Events of the kind so far, and the last event of any kind. */
size_t core_fixture_count(const struct core_fixture *f, enum core_event event);
const struct core_event_info *core_fixture_last_event(const struct core_fixture *f);

struct fixture_client {
    struct core_fixture *f;
    struct five_tuple tuple;
    const char *username, *password; /* username NULL: never signs */
    char realm[STUN_MAX_REALM_BYTES + 1];
    char nonce[STUN_MAX_NONCE_BYTES + 1]; /* "": none yet */
    uint16_t algorithm;                   /* MD5; SHA-256 sends PASSWORD-ALGORITHM(S) as well */
    enum stun_integrity_kind kind;
    bool use_userhash;
    struct stun_key key; /* of the last signed message */
};

/* A client with a 5-tuple of its own and alice's credentials. */
struct fixture_client fixture_client(struct core_fixture *f);
struct fixture_client fixture_client_of(struct core_fixture *f, const char *username, const char *password);

struct fixture_message {
    uint8_t bytes[8192];
    struct wire_writer w;
};

void fixture_begin(struct core_fixture *f, struct fixture_message *m, enum stun_class class, uint16_t method);
/* USERNAME (or USERHASH), REALM, NONCE and integrity as the client is set; logs in first if need be. */
void fixture_sign(struct fixture_client *c, struct fixture_message *m);
/* Sends as it is. Returns STUN_OK for a success response, the code of an error response or FIXTURE_NO_REPLY.
 * The reply has been checked: class, method, transaction id, FINGERPRINT, and, to a signed message, integrity
 * where (and only where) it has to be. */
int fixture_send(struct fixture_client *c, const struct fixture_message *m);
int fixture_send_bytes(struct fixture_client *c, const uint8_t *bytes, size_t n_bytes);
/* Signs and sends. */
int fixture_ask(struct fixture_client *c, struct fixture_message *m);
/* Fetches realm and nonce with an unsigned Refresh. */
void fixture_log_in(struct fixture_client *c);
/* Takes realm and nonce from the last reply. */
void fixture_learn(struct fixture_client *c);

/* Whole requests of the usual form. */
int fixture_allocate(struct fixture_client *c);
int fixture_allocate_with(struct fixture_client *c, void (*add)(struct wire_writer *w));
int fixture_refresh(struct fixture_client *c, uint32_t lifetime_s);
int fixture_permit(struct fixture_client *c, const char *peer);
int fixture_bind(struct fixture_client *c, uint16_t number, const char *peer);

struct endpoint fixture_endpoint(const char *text);
struct allocation *fixture_allocation(const struct fixture_client *c);
void fixture_write_peer(struct fixture_message *m, const char *peer);

/* In the last reply. */
bool fixture_has(const struct core_fixture *f, uint16_t type);
size_t fixture_count(const struct core_fixture *f, uint16_t type);
uint32_t fixture_u32(const struct core_fixture *f, uint16_t type);
struct endpoint fixture_address(const struct core_fixture *f, uint16_t type, size_t index);

#endif
