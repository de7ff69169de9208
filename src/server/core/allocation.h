/* The state RFC 8656 names: allocations with their relayed addresses, permissions and channels, found by
 * 5-tuple, by (relayed address, peer), by channel number. One allocation_table a relay thread, shared with
 * nobody. Nothing here decides about requests or touches a socket; time is handed in. */
#ifndef TURN_ALLOCATION_H
#define TURN_ALLOCATION_H

#include "five_tuple.h"
#include "hash_table.h"
#include "relay_address.h"
#include "stun_integrity.h"
#include "timer_wheel.h"
#include "udp_batch.h"

struct allocation_table;
struct permission;
struct peer_endpoint;
struct local_pair;

/* Permissions an allocation may have at once; beyond: STUN_INSUFFICIENT_CAPACITY. A bound on what one client
 * can make the server remember, far above what any application needs. */
enum { ALLOCATION_MAX_PERMISSIONS = 8192 };

/* Counts of one leg; own thread writes, plain numbers. */
struct leg_counters {
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
};

struct channel {
    uint16_t number;
    struct peer_endpoint *peer; /* never NULL */
    struct wheel_timer timer;
};

/* How an exact peer came to be known. Only an unnamed one without a channel gives way when max_peers is
 * reached. */
enum peer_standing {
    PEER_UNNAMED, /* sent to or heard from */
    PEER_NAMED,   /* named in a request */
    PEER_ADDING,  /* new in the request being carried out */
    PEER_NAMING,  /* unnamed until the request being carried out */
};

/* An exact peer (IP and port) of an allocation: bound to a channel, or, on a shared relayed address, named,
 * sent to or heard from. */
struct peer_endpoint {
    struct tx_flow uplink; /* groups datagrams to this peer */
    struct allocation *allocation;
    struct permission *permission; /* NULL: expired; nothing passes either way until it is renewed */
    struct channel *channel;       /* NULL: none */
    struct relayed_address *relayed;
    struct endpoint peer;
    bool is_local;                  /* the peer is a relayed address of this server */
    bool has_claim;                 /* this record is the exact entry of the peer table */
    bool is_contested;              /* another allocation wanted the exact entry as well */
    uint8_t standing;               /* enum peer_standing */
    struct relay_location location; /* where, when is_local */
    uint64_t last_sent_us;          /* last data (not STUN checks) from the client to it; 0: never */
    struct peer_endpoint *next_of_permission, **link_of_permission;
};

/* Outlives its expiry, no longer live, while a channel is bound to its IP. */
struct permission {
    struct allocation *allocation;
    struct endpoint ip; /* port 0 */
    bool is_live;
    struct wheel_timer timer;
    struct peer_endpoint *peers; /* exact endpoints on this IP */
    struct permission *next_of_allocation, **link_of_allocation;
    struct permission *next_same_ip;     /* others' live permissions for this IP on this relayed address */
    struct permission *previous_same_ip; /* NULL: the first */
};

struct allocation_relay {
    struct relayed_address *address; /* NULL: no relayed address of this family */
    struct wheel_timer timer;        /* its time-to-expiry (RFC 8656, 8.2: a family can be refreshed alone) */
    uint64_t expires_us;
};

struct channel_map {
    struct channel **slots; /* open addressing by keyed number; NULL while there is none */
    uint32_t mask, n_channels;
    struct channel *single; /* the slots of an allocation with one channel */
};

struct allocation {
    /* relay path */
    struct tx_flow downlink;
    void *client_link; /* the server's: how the client is reached */
    struct five_tuple five_tuple;
    struct channel_map channels;
    struct allocation_relay relay[RELAY_FAMILIES];
    struct leg_counters client_leg, peer_leg;
    /* control path */
    struct allocation_table *table;
    uint64_t
        uid; /* unique in the process: thread index in the top 16 bits, below it a count: newer is larger */
    uint64_t user_hash; /* equal users have equal hashes (of the user part and realm) */
    char *username;     /* NULL with no-auth; lives in the allocation's own block, as does realm */
    char *realm;        /* NULL with no-auth */
    struct stun_key key;
    enum stun_integrity_kind integrity : 8;
    uint8_t transaction_id[STUN_TRANSACTION_ID_BYTES]; /* of the Allocate: retransmissions (RFC 8656, 7.2) */
    uint8_t reservation_token[STUN_RESERVATION_TOKEN_BYTES];
    bool has_reservation_token;
    bool has_permission_index, has_peer_index; /* so many that they are found by hash */
    bool is_watched;                           /* found by uid: it sent ICE checks */
    uint16_t address_error; /* what ADDRESS-ERROR-CODE said about the additional family, 0: nothing */
    uint16_t n_pairs;
    uint32_t n_permissions, n_peers;          /* live permissions; exact endpoints */
    uint32_t n_known_permissions;             /* those that wait as well */
    uint32_t n_shared_peers, n_unnamed_peers; /* of the endpoints: on shared addresses; that may give way */
    void *quota;                              /* what quota_acquire gave */
    struct permission
        *permissions;         /* live ones and those that wait with a channel; their peers hang on them */
    struct local_pair *pairs; /* relay to relay: senders known to mean this allocation, newest first */
    struct local_pair *sent_pairs; /* relay to relay: receivers of the same thread that this one sends to */
};

enum allocation_end {
    ALLOCATION_END_REFRESH_0,
    ALLOCATION_END_EXPIRED,
    ALLOCATION_END_CLOSED,
    ALLOCATION_END_SHUTDOWN
};

struct allocation_table_params {
    struct hash_key hash_key;
    uint32_t thread; /* index, for uids */
    const struct relay_carrier *carrier;
    uint64_t permission_lifetime_us, channel_lifetime_us;
    uint32_t max_peers;     /* exact endpoints an allocation may hold on shared addresses */
    uint64_t claim_idle_us; /* a claim without data for so long yields to another user's active one */
    void *context;
    void (*quiesce)(void *context); /* called before memory that a send batch may point at is freed */
    void (*ended)(void *context, struct allocation *allocation, enum allocation_end why); /* still whole */
};

int allocation_table_create(struct allocation_table **out, const struct allocation_table_params *params,
                            uint64_t now_us);
/* Ends every allocation (ALLOCATION_END_SHUTDOWN). */
void allocation_table_destroy(struct allocation_table *table);
/* Expires what is due. Called once a loop turn at most, outside a batch. */
void allocation_table_advance(struct allocation_table *table, uint64_t now_us);

struct allocation_table_stats {
    uint64_t n_allocations, n_permissions, n_channels, n_peer_endpoints;
};
void allocation_table_stats(const struct allocation_table *table, struct allocation_table_stats *out);

struct allocation *allocation_find(const struct allocation_table *table, const struct five_tuple *tuple);

/* Tables larger than the processor's caches answer slowly, one miss after the other. Warming a batch of
 * lookups goes through it in stages, so that the misses of all of them overlap. It changes nothing but the
 * caches. */
enum { LOOKUP_WARM_MAX = 64 };
/* False while everything fits the caches anyway. */
bool allocation_table_wants_warming(const struct allocation_table *table);
/* For up to LOOKUP_WARM_MAX calls of allocation_find_hashed and channel_find that follow; out_hashes is for
 * them. */
void allocation_warm(const struct allocation_table *table, const struct five_tuple *tuples, uint32_t n,
                     uint64_t *out_hashes);
struct allocation *allocation_find_hashed(const struct allocation_table *table,
                                          const struct five_tuple *tuple, uint64_t hash);

struct allocation_params {
    struct five_tuple five_tuple;
    void *client_link;
    const char *username, *realm; /* copied; may be NULL */
    uint64_t user_hash;
    struct stun_key key;
    enum stun_integrity_kind integrity;
    const uint8_t *transaction_id;
    struct relayed_address *relayed[RELAY_FAMILIES]; /* already acquired; taken over on success only */
    uint64_t lifetime_us;
    void *quota;
};
/* 0, or -ENOMEM with nothing changed (relayed addresses stay the caller's). */
int allocation_create(struct allocation **out, struct allocation_table *table,
                      const struct allocation_params *params, uint64_t now_us);
/* Frees everything it holds, at once: channels, permissions, claims, relayed addresses. */
void allocation_destroy(struct allocation *allocation, enum allocation_end why);
/* Sets the time-to-expiry of one family's relayed address. */
void allocation_refresh(struct allocation *allocation, enum relay_family family, uint64_t lifetime_us,
                        uint64_t now_us);
/* Removes one family's relayed address with its permissions and channels; the last one ends the allocation
 * (returns true: it is gone). */
bool allocation_remove_family(struct allocation *allocation, enum relay_family family,
                              enum allocation_end why);

/* Installs or renews permissions for all n peers (RFC 8656, 10.2), and on a shared relayed address notes the
 * exact endpoints with a port other than 0, claiming those that are free. All or nothing: STUN_OK,
 * STUN_INSUFFICIENT_CAPACITY beyond max_peers or ALLOCATION_MAX_PERMISSIONS, STUN_SERVER_ERROR without
 * memory. Families were checked by the caller. */
enum stun_status permission_install(struct allocation *allocation, const struct endpoint *peers,
                                    size_t n_peers, uint64_t now_us);
/* The live permission for the peer's IP (the port is not looked at), or NULL. */
struct permission *permission_find(const struct allocation *allocation, const struct endpoint *peer);

/* Binds or renews a channel, and installs or renews the permission (RFC 8656, 12.2). STUN_BAD_REQUEST when
 * the number has another peer or the peer another number; else as permission_install. */
enum stun_status channel_bind(struct allocation *allocation, uint16_t number, const struct endpoint *peer,
                              uint64_t now_us);
/* NULL when not bound. */
struct channel *channel_find(const struct allocation *allocation, uint16_t number);

#endif
