/* A TURN client without I/O: bytes in, bytes out, time handed in (RFC 8489, 8656, 6062, 8016). It opens no
 * socket, reads no clock and has no random numbers of its own, so that thousands fit into one load generator
 * and every test is exact. One thread at a time for each client; clients of a thread may share a stun_crypto.
 *
 * How it is driven: call what is wanted (turn_client_allocate, ...); send everything turn_client_next_output
 * yields; hand every datagram (or frame of a stream, see turn_stream.h) to turn_client_input; at
 * turn_client_next_deadline_us, call turn_client_advance until it returns false. Look for output after each.
 * Authentication, retransmission and all refreshing go on inside. */
#ifndef TURN_CLIENT_H
#define TURN_CLIENT_H

#include "channel_data.h"
#include "stun_integrity.h"

struct turn_client;

typedef void (*turn_client_random_fn)(void *context, void *out, size_t n_bytes);

enum {
    TURN_CLIENT_HEADROOM_BYTES = 52, /* a Send indication to an IPv6 peer with DONT-FRAGMENT */
    TURN_CLIENT_TAILROOM_BYTES = 3,  /* padding */
    TURN_CLIENT_MAX_PEERS_PER_REQUEST = 16,
    TURN_CLIENT_MAX_TRANSACTIONS = 64,
    TURN_CLIENT_RTO_US = 500000, /* RFC 8489, 6.2.1 */
};

/* All zero but crypto and random is a fair start. Strings are copied. */
struct turn_client_params {
    struct stun_crypto *crypto; /* borrowed, outlives the client */
    turn_client_random_fn random;
    void *random_context;

    bool is_stream; /* TCP, TLS: nothing is retransmitted, ChannelData is padded */

    const char *username;    /* NULL: requests are never authenticated */
    const char *password;    /* NULL: made of rest_secret */
    const char *rest_secret; /* the TURN REST scheme: password = base64(HMAC-SHA1(secret, username)) */
    bool legacy_integrity;   /* as by RFC 5389: MD5 and SHA-1 even if the server offers better */
    bool userhash;           /* USERHASH in place of USERNAME where the server offers it */

    const char *software; /* SOFTWARE, NULL: left out */
    bool fingerprint;     /* FINGERPRINT in every request */

    /* Allocate */
    uint32_t lifetime_s;         /* 0: the server's default */
    uint8_t requested_transport; /* 0: STUN_TRANSPORT_UDP */
    uint8_t requested_family;    /* STUN_FAMILY_..., 0: not asked for */
    uint8_t additional_family;   /* STUN_FAMILY_IPV6 for both, 0: not asked for */
    bool even_port, reserve_next;
    bool has_reservation_token;
    uint8_t reservation_token[STUN_RESERVATION_TOKEN_BYTES];
    bool dont_fragment; /* in Allocate and in Send indications */
    bool mobility;      /* RFC 8016: asks for a ticket */

    /* 0: the RFC's values */
    uint32_t rto_us;
    uint32_t permission_lifetime_s, channel_lifetime_s; /* what the server is set to: 300 and 600 */
};

/* 0; -EINVAL: no random or crypto, username too long, text that SASLprep prohibits; -ENOMEM. */
int turn_client_create(struct turn_client **out, const struct turn_client_params *params);
void turn_client_destroy(struct turn_client *client);

enum turn_client_state {
    TURN_CLIENT_IDLE, /* no allocation */
    TURN_CLIENT_ALLOCATING,
    TURN_CLIENT_ALLOCATED,
    TURN_CLIENT_RELEASING,
};
enum turn_client_state turn_client_get_state(const struct turn_client *client);

/* What the last successful Allocate (and Refresh) said. */
struct turn_client_allocation {
    struct endpoint relayed[2]; /* AF_UNSPEC where there is none */
    struct endpoint mapped;
    uint32_t lifetime_s;
    uint64_t expires_at_us;
    bool has_reservation_token;
    uint8_t reservation_token[STUN_RESERVATION_TOKEN_BYTES];
    uint8_t refused_family; /* ADDRESS-ERROR-CODE, 0: none */
    uint16_t refused_code;
};
const struct turn_client_allocation *turn_client_get_allocation(const struct turn_client *client);

/* ---- requests: 0, -ENOMEM, -EBUSY (TURN_CLIENT_MAX_TRANSACTIONS are under way), -EMSGSIZE, or what is said
 * ---- */

int turn_client_binding(struct turn_client *client, uint64_t now_us);
/* -EALREADY unless TURN_CLIENT_IDLE. Peers of an earlier allocation are forgotten. */
int turn_client_allocate(struct turn_client *client, uint64_t now_us);
/* Refresh out of turn. -ENOTCONN without an allocation. */
int turn_client_refresh(struct turn_client *client, uint64_t now_us);
/* Refresh with lifetime 0; TURN_CLIENT_IDLE once it is answered. -ENOTCONN without an allocation. */
int turn_client_release(struct turn_client *client, uint64_t now_us);
/* RFC 8016: Refresh with the ticket, after the caller has changed to another local address. -ENOTCONN without
 * an allocation or a ticket. */
int turn_client_move(struct turn_client *client, uint64_t now_us);

/* One CreatePermission for up to TURN_CLIENT_MAX_PEERS_PER_REQUEST peers (-EINVAL beyond, or none). The peers
 * get consecutive indices from *out_first_index on, and are refreshed until they fail. -ENOTCONN without an
 * allocation. */
int turn_client_create_permissions(struct turn_client *client, const struct endpoint *peers, size_t n_peers,
                                   uint64_t now_us, uint32_t *out_first_index);
/* ChannelBind; the number is ours to choose. A peer that is known keeps its index. -ENOSPC: no number is
 * left; -ENOTCONN without an allocation. */
int turn_client_bind_channel(struct turn_client *client, const struct endpoint *peer, uint64_t now_us,
                             uint32_t *out_index);

/* RFC 6062: Connect on the control connection, and ConnectionBind on a client made for the data connection.
 */
int turn_client_connect(struct turn_client *client, const struct endpoint *peer, uint64_t now_us);
int turn_client_connection_bind(struct turn_client *client, uint32_t connection_id, uint64_t now_us);

enum turn_peer_state { TURN_PEER_REQUESTED, TURN_PEER_ACTIVE, TURN_PEER_FAILED };
size_t turn_client_n_peers(const struct turn_client *client);
enum turn_peer_state turn_client_peer_state(const struct turn_client *client, uint32_t index);
/* The channel's number, 0 when the peer has none that is confirmed. */
uint16_t turn_client_peer_channel(const struct turn_client *client, uint32_t index);

/* ---- bytes and time ---- */

/* The next message to send; valid until the next call. False when there is nothing left. */
bool turn_client_next_output(struct turn_client *client, const uint8_t **out_bytes, size_t *out_n_bytes);

enum turn_event_kind {
    TURN_EVENT_NONE,
    TURN_EVENT_DATA,               /* peer, channel (0: indication), payload */
    TURN_EVENT_ICMP,               /* peer, icmp_* */
    TURN_EVENT_CONNECTION_ATTEMPT, /* RFC 6062: peer, connection_id */
    TURN_EVENT_RESPONSE, /* method succeeded; Connect: connection_id; Binding: peer is the mapped address */
    TURN_EVENT_ERROR,    /* method failed: code as sent, or err; 300: peer is the alternate server */
    TURN_EVENT_TIMEOUT,  /* method was never answered */
    TURN_EVENT_EXPIRED,  /* the allocation ran out */
};

struct turn_event {
    enum turn_event_kind kind;
    int err; /* -EBADMSG: malformed answer, -EPROTO: bid-down (RFC 8489, 9.2.5), -ENOMEM, -EMSGSIZE */
    uint16_t method, code, channel;
    uint8_t n_peers; /* that a CreatePermission or ChannelBind was about */
    uint8_t icmp_type;
    uint16_t icmp_code;
    uint32_t icmp_data, connection_id;
    uint32_t peers[TURN_CLIENT_MAX_PEERS_PER_REQUEST]; /* their indices */
    struct endpoint peer;
    const uint8_t *payload; /* into the bytes handed in */
    size_t n_payload;
    uint64_t elapsed_us; /* since the request was first made */
};

/* Takes one datagram or frame. True with *event set when there is something to tell; false: nothing, or
 * nothing of ours. */
bool turn_client_input(struct turn_client *client, const uint8_t *bytes, size_t n_bytes, uint64_t now_us,
                       struct turn_event *event);

/* Does what is due. True with *event set: call again; false: all done for now. */
bool turn_client_advance(struct turn_client *client, uint64_t now_us, struct turn_event *event);

/* When to call turn_client_advance next; UINT64_MAX: nothing is waiting. */
uint64_t turn_client_next_deadline_us(const struct turn_client *client);

/* Frames data to a peer in place: as ChannelData if its channel is confirmed, else as a Send indication.
 * There must be TURN_CLIENT_HEADROOM_BYTES before payload and TURN_CLIENT_TAILROOM_BYTES after it. 0;
 * -EAGAIN: the peer is not (or no longer) permitted; -EMSGSIZE: too long to frame. */
int turn_client_frame_data(struct turn_client *client, uint32_t peer_index, uint8_t *payload,
                           size_t n_payload, uint8_t **out_bytes, size_t *out_n_bytes);

#endif
