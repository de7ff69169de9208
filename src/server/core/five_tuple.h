/* The 5-tuple that identifies an allocation (RFC 8656, 2): client, server, transport. A plain value. */
#ifndef TURN_FIVE_TUPLE_H
#define TURN_FIVE_TUPLE_H

#include "endpoint.h"
#include "hash.h"

enum client_transport { CLIENT_UDP, CLIENT_TCP, CLIENT_TLS, CLIENT_DTLS };

struct five_tuple {
    struct endpoint client;
    struct endpoint server;
    uint32_t transport; /* enum client_transport; 32 bits so that the struct has no padding */
};
static_assert(sizeof(struct five_tuple) == 44, "compared as bytes");

static inline bool five_tuple_equal(const struct five_tuple *a, const struct five_tuple *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

uint64_t five_tuple_hash(const struct hash_key *key, const struct five_tuple *tuple);

#endif
