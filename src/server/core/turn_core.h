/* TURN decisions of one relay thread: message in, reply out. No sockets, clock or random of its own. One
 * thread.
 *
 * turn_core owns the thread's allocation_table. Requests go through turn_core_handle_request; the relay path
 * (ChannelData, Send, datagrams from peers) uses the tables directly and indication_send_decode. */
#ifndef TURN_TURN_CORE_H
#define TURN_TURN_CORE_H

#include "allocation.h"
#include "credential.h"
#include "drop_reason.h"
#include "peer_policy.h"
#include "quota.h"
#include "stun_integrity.h"

/* Settings, read-only for all threads; strings stay the caller's. */
struct core_config {
    const struct credential_store *credentials; /* never NULL; says itself whether there is authentication */
    const struct peer_policy *policy;
    struct quota *quota; /* shared by all threads */
    const char *realm;
    const char *software;      /* SOFTWARE attribute, NULL: none */
    const uint8_t *nonce_key;  /* 32 bytes, the same for all threads */
    uint32_t nonce_lifetime_s; /* 0: a nonce never goes stale */
    uint32_t max_allocate_lifetime_s, channel_lifetime_s, permission_lifetime_s;
    uint32_t max_peers; /* multiplex-peer-max-peers */
    enum { FAMILY_DEFAULT_IPV4, FAMILY_DEFAULT_IPV6, FAMILY_DEFAULT_KEEP } default_family;
    bool fingerprint; /* always, not only in answer to one */
    bool stun_only, no_stun, secure_stun;
    bool no_udp_relay;
    bool channel_numbers_5766;   /* accept 0x5000-0x7FFE */
    bool backward_compatibility; /* MAPPED-ADDRESS beside XOR-MAPPED-ADDRESS */
    bool reason_strings;         /* descriptive text in ERROR-CODE */
};

struct core_time {
    uint64_t now_us; /* monotonic */
    int64_t wall_s;  /* Unix seconds, for nonces and REST names */
};

enum core_event {
    CORE_ALLOCATION_CREATED,
    CORE_ALLOCATION_REFRESHED,
    CORE_ALLOCATION_ENDED,
    CORE_REQUEST_REFUSED,
    CORE_REQUEST_DONE
};

/* What happened, for logs and counters. Called on the thread, must not block. Every request that was answered
 * gives one event other than CORE_ALLOCATION_ENDED; a deleting Refresh gives CORE_ALLOCATION_ENDED before its
 * own. */
struct core_event_info {
    enum core_event event;
    const struct allocation *allocation; /* may be NULL */
    const struct five_tuple *five_tuple;
    uint16_t method;
    enum stun_status status;
    const char *detail;          /* static text or a rule of the policy: why it was refused; may be NULL */
    const struct endpoint *peer; /* the peer in question, may be NULL */
    uint32_t lifetime_s;
    enum allocation_end end;
    /* Who asked: not NUL-terminated and a mere claim unless authenticated; NULL when not said. */
    const char *username;
    size_t n_username;
    bool authenticated;
};

struct core_host {
    void *context;
    void (*random_bytes)(void *context, void *out, size_t n);
    void (*quiesce)(void *context); /* flush the send batch */
    void (*event)(void *context, const struct core_event_info *info);
};

struct core_params {
    const struct core_config *config;
    const struct core_host *host;
    const struct relay_carrier *carrier;
    struct hash_key hash_key;
    uint32_t thread;
};

struct turn_core;

int turn_core_create(struct turn_core **out, const struct core_params *params, struct core_time now);
void turn_core_destroy(struct turn_core *core);
void turn_core_advance(struct turn_core *core, struct core_time now);
struct allocation_table *turn_core_allocations(struct turn_core *core);

enum { CORE_REPLY_MAX_BYTES = 2048 };

struct core_client {
    const struct five_tuple *five_tuple;
    void *link; /* goes into the allocation */
};

/* Handles a request (any method) or a Binding indication whose header decoded. Writes the reply into out
 * (CORE_REPLY_MAX_BYTES) and returns its length; 0: no reply. FINGERPRINT is checked here; the reply goes
 * back to the client on the address the request came to. */
size_t turn_core_handle_request(struct turn_core *core, const struct core_client *client,
                                const struct stun_message *message, struct core_time now, uint8_t *out);

/* A Send indication (RFC 8656, 11.2), decoded and allowed: permission looked up, policy asked. */
struct send_indication {
    struct endpoint peer;
    const uint8_t *data;
    uint32_t n_data;
    bool dont_fragment;
    struct permission *permission; /* never NULL when allowed */
    bool is_local;                 /* the peer is one of our relayed addresses */
    struct relay_location location;
};
/* DROP_NONE and *out, or why it is dropped. */
enum drop_reason indication_send_decode(struct turn_core *core, const struct allocation *allocation,
                                        const struct stun_message *message, struct send_indication *out);

#endif
