/* Typed attribute values of RFC 8489, 8656, 6062, 8016 and 5780. Readers return false when the value is not
 * exactly what the RFC says; writers append a whole attribute. Any thread. */
#ifndef TURN_STUN_ATTRIBUTE_H
#define TURN_STUN_ATTRIBUTE_H

#include "endpoint.h"
#include "stun_message.h"

enum stun_attribute_type {
    STUN_ATTR_MAPPED_ADDRESS = 0x0001,
    STUN_ATTR_CHANGE_REQUEST = 0x0003, /* RFC 5780 */
    STUN_ATTR_USERNAME = 0x0006,
    STUN_ATTR_MESSAGE_INTEGRITY = 0x0008,
    STUN_ATTR_ERROR_CODE = 0x0009,
    STUN_ATTR_UNKNOWN_ATTRIBUTES = 0x000A,
    STUN_ATTR_CHANNEL_NUMBER = 0x000C,
    STUN_ATTR_LIFETIME = 0x000D,
    STUN_ATTR_XOR_PEER_ADDRESS = 0x0012,
    STUN_ATTR_DATA = 0x0013,
    STUN_ATTR_REALM = 0x0014,
    STUN_ATTR_NONCE = 0x0015,
    STUN_ATTR_XOR_RELAYED_ADDRESS = 0x0016,
    STUN_ATTR_REQUESTED_ADDRESS_FAMILY = 0x0017,
    STUN_ATTR_EVEN_PORT = 0x0018,
    STUN_ATTR_REQUESTED_TRANSPORT = 0x0019,
    STUN_ATTR_DONT_FRAGMENT = 0x001A,
    STUN_ATTR_ACCESS_TOKEN = 0x001B,
    STUN_ATTR_MESSAGE_INTEGRITY_SHA256 = 0x001C,
    STUN_ATTR_PASSWORD_ALGORITHM = 0x001D,
    STUN_ATTR_USERHASH = 0x001E,
    STUN_ATTR_XOR_MAPPED_ADDRESS = 0x0020,
    STUN_ATTR_RESERVATION_TOKEN = 0x0022,
    STUN_ATTR_PRIORITY = 0x0024,      /* RFC 8445 */
    STUN_ATTR_USE_CANDIDATE = 0x0025, /* RFC 8445 */
    STUN_ATTR_PADDING = 0x0026,       /* RFC 5780 */
    STUN_ATTR_RESPONSE_PORT = 0x0027, /* RFC 5780 */
    STUN_ATTR_CONNECTION_ID = 0x002A, /* RFC 6062 */
    STUN_ATTR_ADDITIONAL_ADDRESS_FAMILY = 0x8000,
    STUN_ATTR_ADDRESS_ERROR_CODE = 0x8001,
    STUN_ATTR_PASSWORD_ALGORITHMS = 0x8002,
    STUN_ATTR_ALTERNATE_DOMAIN = 0x8003,
    STUN_ATTR_ICMP = 0x8004,
    STUN_ATTR_SOFTWARE = 0x8022,
    STUN_ATTR_ALTERNATE_SERVER = 0x8023,
    STUN_ATTR_FINGERPRINT = 0x8028,
    STUN_ATTR_ICE_CONTROLLED = 0x8029,
    STUN_ATTR_ICE_CONTROLLING = 0x802A,
    STUN_ATTR_RESPONSE_ORIGIN = 0x802B, /* RFC 5780 */
    STUN_ATTR_OTHER_ADDRESS = 0x802C,   /* RFC 5780 */
    STUN_ATTR_MOBILITY_TICKET = 0x8030, /* RFC 8016 */
};

enum {
    STUN_FAMILY_IPV4 = 1,
    STUN_FAMILY_IPV6 = 2,
    STUN_TRANSPORT_TCP = 6,
    STUN_TRANSPORT_UDP = 17,
    STUN_RESERVATION_TOKEN_BYTES = 8,
    STUN_USERHASH_BYTES = 32,
    STUN_MAX_USERNAME_BYTES = 508, /* RFC 8489, 14.3: shorter than 509 */
    STUN_MAX_REALM_BYTES = 763,
    STUN_MAX_NONCE_BYTES = 763,
    STUN_PASSWORD_ALGORITHM_MD5 = 1,
    STUN_PASSWORD_ALGORITHM_SHA256 = 2,
};

/* True for the comprehension-required range 0x0000-0x7FFF. */
static inline bool stun_attribute_is_required(uint16_t type) {
    return type < 0x8000;
}

/* XOR-MAPPED, XOR-PEER, XOR-RELAYED; the transaction id takes part for IPv6. */
bool stun_read_xor_address(struct endpoint *out, const struct stun_attribute *a,
                           const struct stun_message *m);
void stun_write_xor_address(struct wire_writer *w, uint16_t type, const struct endpoint *e,
                            const uint8_t transaction_id[STUN_TRANSACTION_ID_BYTES]);
/* MAPPED-ADDRESS, ALTERNATE-SERVER, RESPONSE-ORIGIN, OTHER-ADDRESS. */
bool stun_read_address(struct endpoint *out, const struct stun_attribute *a);
void stun_write_address(struct wire_writer *w, uint16_t type, const struct endpoint *e);

/* LIFETIME, CHANGE-REQUEST, PRIORITY, CONNECTION-ID: exactly four bytes. */
bool stun_read_u32(uint32_t *out, const struct stun_attribute *a);
void stun_write_u32(struct wire_writer *w, uint16_t type, uint32_t value);
/* CHANNEL-NUMBER, RESPONSE-PORT: two bytes and two reserved ones. */
bool stun_read_u16_reserved(uint16_t *out, const struct stun_attribute *a);
void stun_write_u16_reserved(struct wire_writer *w, uint16_t type, uint16_t value);
/* REQUESTED-TRANSPORT, REQUESTED-/ADDITIONAL-ADDRESS-FAMILY: one byte and three reserved ones. */
bool stun_read_u8_reserved(uint8_t *out, const struct stun_attribute *a);
void stun_write_u8_reserved(struct wire_writer *w, uint16_t type, uint8_t value);
/* EVEN-PORT: one byte, the top bit reserves the next port. */
bool stun_read_even_port(bool *out_reserve_next, const struct stun_attribute *a);
void stun_write_even_port(struct wire_writer *w, bool reserve_next);
/* Values that are just bytes (USERNAME, REALM, NONCE, DATA, SOFTWARE, tokens, flags with none). */
void stun_write_bytes(struct wire_writer *w, uint16_t type, const void *bytes, size_t n_bytes);

/* ERROR-CODE; phrase NULL takes the standard one. Reading: code 300-699. */
bool stun_read_error(uint16_t *out_code, const struct stun_attribute *a);
void stun_write_error(struct wire_writer *w, enum stun_status status, const char *phrase);
/* ADDRESS-ERROR-CODE (RFC 8656, 18.12): family and code. */
bool stun_read_address_error(uint8_t *out_family, uint16_t *out_code, const struct stun_attribute *a);
void stun_write_address_error(struct wire_writer *w, uint8_t family, enum stun_status status);
/* UNKNOWN-ATTRIBUTES. */
void stun_write_unknown(struct wire_writer *w, const uint16_t *types, size_t n_types);
/* ICMP (RFC 8656, 18.13): type 7 bits, code 9 bits, 4 bytes of data. */
bool stun_read_icmp(uint8_t *out_type, uint16_t *out_code, uint32_t *out_data,
                    const struct stun_attribute *a);
void stun_write_icmp(struct wire_writer *w, uint8_t type, uint16_t code, uint32_t data);

/* PASSWORD-ALGORITHM(S) (RFC 8489, 14.11 and 14.12): algorithm number and parameters (both known ones have
 * none). Reading the list fills up to max numbers, false when malformed. */
bool stun_read_password_algorithm(uint16_t *out, const struct stun_attribute *a);
bool stun_read_password_algorithms(uint16_t *out, size_t max, size_t *out_n, const struct stun_attribute *a);
void stun_write_password_algorithm(struct wire_writer *w, uint16_t algorithm);
void stun_write_password_algorithms(struct wire_writer *w, const uint16_t *algorithms, size_t n);

/* The bytes of a whole Data indication's header part up to and including DATA's type and length, so that the
 * payload can follow in place: 36 (IPv4 peer) or 48 (IPv6 peer). */
enum { DATA_INDICATION_V4_BYTES = 36, DATA_INDICATION_V6_BYTES = 48, DATA_INDICATION_MAX_BYTES = 48 };
/* Writes it for a payload of n_payload bytes; returns its length. The padding of DATA (0 to 3 zero bytes, see
 * the return of stun_padding) has to follow the payload. */
size_t stun_encode_data_indication_header(uint8_t out[DATA_INDICATION_MAX_BYTES], const struct endpoint *peer,
                                          uint16_t n_payload,
                                          const uint8_t transaction_id[STUN_TRANSACTION_ID_BYTES]);
static inline uint32_t stun_padding(uint32_t n_bytes) {
    return (4u - (n_bytes & 3u)) & 3u;
}

#endif
