/* One request on its way through the core: what is known about it so far, and the reply that grows. Private
 * to the request_*.c files, authentication, reply and turn_core; lives on the stack of
 * turn_core_handle_request. */
#ifndef TURN_REQUEST_H
#define TURN_REQUEST_H

#include "turn_core.h"

struct turn_core {
    const struct core_config *config;
    const struct core_host *host;
    const struct relay_carrier *carrier;
    struct allocation_table *allocations;
    struct stun_crypto *crypto;
    struct hash_key hash_key;
};

enum {
    REQUEST_MAX_UNKNOWN = 64, /* types that one 420 names */
    DEFAULT_LIFETIME_S = 600, /* RFC 8656, 3.2 */
};

struct request {
    struct turn_core *core;
    const struct core_client *client;
    const struct stun_message *message;
    struct core_time now;
    struct allocation *allocation; /* of the 5-tuple; NULL: none (any more) */

    struct stun_integrity_place integrity; /* of the request; attributes beyond its limit do not exist */
    bool has_fingerprint;
    bool is_authenticated; /* credential is valid, the reply is signed */
    struct credential credential;
    struct stun_attribute username; /* as claimed; value NULL: not said */

    struct wire_writer reply;
    uint16_t unknown[REQUEST_MAX_UNKNOWN]; /* for the 420 */
    size_t n_unknown;

    /* for the event */
    enum core_event done_event; /* what success is called */
    const char *detail;
    struct endpoint peer; /* AF_UNSPEC: none in question */
    uint32_t lifetime_s;
};

/* The first attribute of the type among those that integrity protects (RFC 8489, 14.5). */
static inline bool request_find(const struct request *r, uint16_t type, struct stun_attribute *out) {
    *out = (struct stun_attribute){0};
    while (stun_message_next(r->message, out) && out->offset < r->integrity.limit) {
        if (out->type == type) {
            return true;
        }
    }
    return false;
}

static inline bool request_has(const struct request *r, uint16_t type) {
    struct stun_attribute unused;
    return request_find(r, type, &unused);
}

/* Refuses with a reason for the log (static text). */
static inline enum stun_status request_refuse(struct request *r, enum stun_status status,
                                              const char *detail) {
    r->detail = detail;
    return status;
}

/* Judges one peer of a CreatePermission or ChannelBind: STUN_OK, 443 or 403, with what the event needs. */
static inline enum stun_status request_check_peer(struct request *r, const struct endpoint *peer) {
    const char *rule;
    if (r->allocation->relay[relay_family_of(peer)].address == NULL) {
        r->peer = *peer;
        return request_refuse(r, STUN_PEER_ADDRESS_FAMILY_MISMATCH,
                              "no relayed address of the peer's family");
    }
    if (!peer_policy_allows(r->core->config->policy, peer, &rule)) {
        r->peer = *peer;
        return request_refuse(r, STUN_FORBIDDEN, rule);
    }
    return STUN_OK;
}

#endif
