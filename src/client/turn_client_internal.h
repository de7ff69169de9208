/* What the files of turn_client share. Not installed. */
#ifndef TURN_CLIENT_INTERNAL_H
#define TURN_CLIENT_INTERNAL_H

#include "turn_client.h"

enum {
    MAX_ALGORITHMS_BYTES = 64, /* of PASSWORD-ALGORITHMS as the server sent it */
    MAX_AUTH_RETRIES = 3,
    DEFAULT_PERMISSION_LIFETIME_S = 300,
    DEFAULT_CHANNEL_LIFETIME_S = 600,
    REQUEST_MAX_SENDS = 7, /* Rc */
    LAST_WAIT_RTOS = 16,   /* Rm */
};

#define NEVER UINT64_MAX
#define SECOND_US UINT64_C(1000000)

/* What is asked, apart from who asks: enough to make the message again after 401 or 438. */
struct turn_request {
    uint16_t method;
    bool authenticate; /* once challenged; Binding is not authenticated before */
    bool move;         /* Refresh with the mobility ticket */
    uint8_t n_auth_retries, n_peers;
    bool has_lifetime;
    uint32_t lifetime_s, connection_id;
    uint64_t started_us;
    struct endpoint connect_peer;
    uint32_t peers[TURN_CLIENT_MAX_PEERS_PER_REQUEST];
};

static inline bool turn_request_is_release(const struct turn_request *request) {
    return request->method == STUN_METHOD_REFRESH && request->has_lifetime && request->lifetime_s == 0;
}

struct turn_transaction {
    struct turn_transaction *next;
    struct turn_request request;
    bool is_authenticated, is_pending; /* pending: to be sent */
    uint8_t n_sent;
    uint64_t deadline_us;
    uint8_t id[STUN_TRANSACTION_ID_BYTES];
    size_t n_bytes;
    uint8_t bytes[];
};

struct turn_peer {
    struct endpoint address;
    enum turn_peer_state state;
    bool wants_channel, has_channel; /* asked for, confirmed */
    bool is_busy;                    /* a request about it is under way */
    uint64_t refresh_at_us;
};

/* Bytes of a length known only from the server. */
struct turn_blob {
    uint8_t *bytes;
    size_t n_bytes;
};

struct turn_client {
    struct turn_client_params params; /* its strings are not used after creation */
    char *username, *password, *software;
    enum turn_client_state state;
    struct turn_client_allocation allocation;
    uint64_t refresh_at_us;
    bool is_refreshing;

    /* what the server challenged with */
    char *realm; /* NULL: not challenged yet */
    struct turn_blob nonce, ticket;
    struct stun_key key;
    enum stun_integrity_kind integrity;
    uint16_t password_algorithm; /* 0: the server named none */
    uint8_t n_algorithms;        /* bytes, as sent back */
    uint8_t algorithms[MAX_ALGORITHMS_BYTES];
    bool use_userhash;
    uint8_t userhash[STUN_USERHASH_BYTES];

    struct turn_transaction *transactions; /* oldest first */
    size_t n_transactions;

    struct turn_peer *peers;
    size_t n_peers, peers_capacity;
    size_t last_peer; /* where the last indication's peer was found */
    uint8_t indication_id[STUN_TRANSACTION_ID_BYTES];
};

int turn_request_start(struct turn_client *client, const struct turn_request *request, uint64_t now_us);
void turn_transaction_remove(struct turn_client *client, struct turn_transaction *t);
/* From the n-th send to the next one, or to giving up. */
uint64_t turn_retransmission_wait_us(const struct turn_client_params *params, unsigned n_sent);

/* Takes the challenge of a 401 or 438 over. 0, -EBADMSG, -EPROTO or -ENOMEM; unchanged then. */
int turn_challenge_accept(struct turn_client *client, const struct stun_message *message, size_t limit);
void turn_challenge_forget(struct turn_client *client);

/* What integrity does not cover is as if it were not there. */
static inline bool turn_find_within(const struct stun_message *message, size_t limit, uint16_t type,
                                    struct stun_attribute *out) {
    return stun_message_find(message, type, out) && out->offset < limit;
}

int turn_blob_set(struct turn_blob *blob, const uint8_t *bytes, size_t n_bytes);

/* The message is a response or indication; *event is zeroed before. */
bool turn_input_response(struct turn_client *client, const struct stun_message *message, uint64_t now_us,
                         struct turn_event *event);
bool turn_input_indication(struct turn_client *client, const struct stun_message *message,
                           struct turn_event *event);

/* A request came to nothing: puts states right and fills *event's method, peers and times. */
void turn_request_failed(struct turn_client *client, const struct turn_request *request, uint64_t now_us,
                         struct turn_event *event);
void turn_event_describe(struct turn_event *event, const struct turn_request *request, uint64_t now_us);
void turn_allocation_lost(struct turn_client *client);

#endif
