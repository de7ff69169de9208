/* A relayed transport address as a value of its own, apart from the socket that carries it. The core asks a
 * relay_carrier for them; the server implements carriers: `shared` (one address for many allocations of a
 * thread) and `dedicated` (one each). One thread owns each relayed address. */
#ifndef TURN_RELAY_ADDRESS_H
#define TURN_RELAY_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "endpoint.h"
#include "stun_attribute.h"

enum relay_family { RELAY_V4, RELAY_V6, RELAY_FAMILIES };

static inline enum relay_family relay_family_of(const struct endpoint *e) {
    return e->family == AF_INET6 ? RELAY_V6 : RELAY_V4;
}

struct allocation;
struct udp_socket;

struct relayed_address {
    uint32_t id;                /* unique within the thread while in use; part of the peer table's key */
    bool shared;                /* several allocations may have it */
    struct endpoint local;      /* as bound */
    struct endpoint advertised; /* as told to clients: external-ip applied */
    struct udp_socket *socket;  /* the core never looks inside */
    struct allocation *owner;   /* its allocation, when not shared */
    uint32_t n_allocations;     /* maintained by allocation.c */
};

struct relay_request {
    enum relay_family family;
    bool even_port;       /* EVEN-PORT present */
    bool reserve_next;    /* its R bit */
    const uint8_t *token; /* RESERVATION-TOKEN, or NULL; then family and even_port do not matter */
    uint64_t user_hash;   /* hash of the user name: a carrier spreads one user's allocations */
};

/* Where a peer address that is one of the server's own relayed addresses lives. */
struct relay_location {
    uint32_t thread;       /* index of the relay thread */
    struct endpoint local; /* the address as bound there */
};

struct relay_carrier {
    void *context;
    /* True when addresses of the family are configured at all (else 440). */
    bool (*serves)(void *context, enum relay_family family);
    /* STUN_OK with *out, or 440 / 508. reserve_next: out_token gets RESERVATION-TOKEN's 8 bytes. The address
     * is the caller's until release. */
    enum stun_status (*acquire)(void *context, const struct relay_request *request,
                                struct relayed_address **out,
                                uint8_t out_token[STUN_RESERVATION_TOKEN_BYTES]);
    void (*release)(void *context, struct relayed_address *address);
    /* True when peer (as bound or as advertised) is a relayed address of this server, on any thread. */
    bool (*locate)(void *context, const struct endpoint *peer, struct relay_location *out);
};

#endif
