/* STUN header, iteration over attributes, and composing messages (RFC 8489, 5 and 14). Pure functions over
 * caller's bytes; any thread. */
#ifndef TURN_STUN_MESSAGE_H
#define TURN_STUN_MESSAGE_H

#include "wire.h"

enum {
    STUN_HEADER_BYTES = 20,
    STUN_MAGIC_COOKIE = 0x2112A442,
    STUN_TRANSACTION_ID_BYTES = 12,
};

enum stun_class { STUN_REQUEST, STUN_INDICATION, STUN_SUCCESS, STUN_ERROR };

enum stun_method {
    STUN_METHOD_BINDING = 0x001,
    STUN_METHOD_ALLOCATE = 0x003,
    STUN_METHOD_REFRESH = 0x004,
    STUN_METHOD_SEND = 0x006,
    STUN_METHOD_DATA = 0x007,
    STUN_METHOD_CREATE_PERMISSION = 0x008,
    STUN_METHOD_CHANNEL_BIND = 0x009,
    STUN_METHOD_CONNECT = 0x00A,            /* RFC 6062 */
    STUN_METHOD_CONNECTION_BIND = 0x00B,    /* RFC 6062 */
    STUN_METHOD_CONNECTION_ATTEMPT = 0x00C, /* RFC 6062 */
};

/* What the protocol decides; the values are the codes on the wire. */
enum stun_status {
    STUN_OK = 0,
    STUN_TRY_ALTERNATE = 300,
    STUN_BAD_REQUEST = 400,
    STUN_UNAUTHENTICATED = 401,
    STUN_FORBIDDEN = 403,
    STUN_MOBILITY_FORBIDDEN = 405,
    STUN_UNKNOWN_ATTRIBUTE = 420,
    STUN_ALLOCATION_MISMATCH = 437,
    STUN_STALE_NONCE = 438,
    STUN_ADDRESS_FAMILY_NOT_SUPPORTED = 440,
    STUN_WRONG_CREDENTIALS = 441,
    STUN_UNSUPPORTED_TRANSPORT = 442,
    STUN_PEER_ADDRESS_FAMILY_MISMATCH = 443,
    STUN_CONNECTION_ALREADY_EXISTS = 446,
    STUN_CONNECTION_TIMEOUT_OR_FAILURE = 447,
    STUN_ALLOCATION_QUOTA_REACHED = 486,
    STUN_SERVER_ERROR = 500,
    STUN_INSUFFICIENT_CAPACITY = 508,
};

/* The standard reason phrase, "" for a code unknown here. */
const char *stun_status_phrase(enum stun_status status);
/* "ALLOCATE", "REFRESH", ...; "UNKNOWN" otherwise. */
const char *stun_method_name(uint16_t method);

/* A message whose header was checked. Points into the datagram. */
struct stun_message {
    enum stun_class class;
    uint16_t method; /* 12 bits, not necessarily a known one */
    const uint8_t *bytes;
    size_t n_bytes; /* header and body, exactly as the length field says */
    const uint8_t *transaction_id;
};

/* Checks: top bits 00, at least 20 bytes, magic cookie, length a multiple of four that equals the datagram's
 * (RFC 8489, 6.3), and that the attributes fill the body exactly. */
bool stun_message_decode(struct stun_message *out, const void *datagram, size_t n_bytes);

/* Cheap test for "may be STUN": top bits, length and cookie only. */
static inline bool stun_looks_like_message(const uint8_t *bytes, size_t n_bytes) {
    return n_bytes >= STUN_HEADER_BYTES && (bytes[0] & 0xC0) == 0 && bytes[4] == 0x21 && bytes[5] == 0x12 &&
           bytes[6] == 0xA4 && bytes[7] == 0x42;
}

struct stun_attribute {
    uint16_t type;
    uint16_t n_bytes; /* LENGTH, without padding */
    const uint8_t *value;
    size_t offset; /* of the attribute's header in the message */
};

/* Walks the attributes: start with a zeroed struct; false at the end. */
bool stun_message_next(const struct stun_message *message, struct stun_attribute *at);

/* The first attribute of the type, false if there is none. RFC 8489, 14: only the first of a kind counts
 * unless the attribute may repeat. */
bool stun_message_find(const struct stun_message *message, uint16_t type, struct stun_attribute *out);

/* A reader over the attribute's value. */
static inline struct wire_reader stun_attribute_reader(const struct stun_attribute *a) {
    return wire_reader_over(a->value, a->n_bytes);
}

/* ---- composing ---- */

/* Writes the header; the length is patched by stun_message_end (and by integrity and fingerprint). */
void stun_message_begin(struct wire_writer *w, enum stun_class class, uint16_t method,
                        const uint8_t transaction_id[STUN_TRANSACTION_ID_BYTES]);
/* Opens an attribute; returns the place of its length for _close (NULL once failed). */
uint8_t *stun_attribute_open(struct wire_writer *w, uint16_t type);
/* Patches the length and pads with zeros to four bytes. */
void stun_attribute_close(struct wire_writer *w, uint8_t *length);
/* Patches the header's length; returns the message's bytes, 0 when anything did not fit. */
size_t stun_message_end(struct wire_writer *w);

#endif
