#include "stun_attribute.h"

enum { ADDRESS_V4_BYTES = 8, ADDRESS_V6_BYTES = 20 };

/* The cookie and the transaction id, as they stand in the header, mask an address (RFC 8489, 14.2). */
struct address_mask {
    uint8_t bytes[16];
};

static struct address_mask address_mask(const uint8_t transaction_id[STUN_TRANSACTION_ID_BYTES]) {
    struct address_mask mask;
    wire_put_u32(mask.bytes, STUN_MAGIC_COOKIE);
    memcpy(mask.bytes + 4, transaction_id, STUN_TRANSACTION_ID_BYTES);
    return mask;
}

static bool read_masked_address(struct endpoint *out, const struct stun_attribute *a,
                                const struct address_mask *mask) {
    struct wire_reader r = stun_attribute_reader(a);
    (void)wire_read_u8(&r); /* RFC 8489, 14.1: ignored on reception */
    uint8_t family = wire_read_u8(&r);
    uint16_t port = wire_read_u16(&r);
    size_t n_ip = family == STUN_FAMILY_IPV4 ? 4 : family == STUN_FAMILY_IPV6 ? 16 : 0;
    const uint8_t *ip = wire_take(&r, n_ip);
    if (n_ip == 0 || !wire_finished(&r)) {
        return false;
    }
    *out = (struct endpoint){.family = n_ip == 4 ? AF_INET : AF_INET6};
    out->port = (uint16_t)(port ^ (mask->bytes[0] << 8 | mask->bytes[1]));
    for (size_t i = 0; i < n_ip; i++) {
        out->ip[i] = ip[i] ^ mask->bytes[i];
    }
    return true;
}

/* Puts the value at p, which has room for it; returns its length. */
static size_t put_masked_address(uint8_t *p, const struct endpoint *e, const struct address_mask *mask) {
    size_t n_ip = e->family == AF_INET ? 4 : 16;
    p[0] = 0;
    p[1] = e->family == AF_INET ? STUN_FAMILY_IPV4 : STUN_FAMILY_IPV6;
    wire_put_u16(p + 2, (uint16_t)(e->port ^ (mask->bytes[0] << 8 | mask->bytes[1])));
    for (size_t i = 0; i < n_ip; i++) {
        p[4 + i] = e->ip[i] ^ mask->bytes[i];
    }
    return 4 + n_ip;
}

static void write_masked_address(struct wire_writer *w, uint16_t type, const struct endpoint *e,
                                 const struct address_mask *mask) {
    if (e->family != AF_INET && e->family != AF_INET6) {
        w->failed = true;
        return;
    }
    uint8_t value[ADDRESS_V6_BYTES];
    stun_write_bytes(w, type, value, put_masked_address(value, e, mask));
}

bool stun_read_xor_address(struct endpoint *out, const struct stun_attribute *a,
                           const struct stun_message *m) {
    struct address_mask mask = address_mask(m->transaction_id);
    return read_masked_address(out, a, &mask);
}

void stun_write_xor_address(struct wire_writer *w, uint16_t type, const struct endpoint *e,
                            const uint8_t transaction_id[STUN_TRANSACTION_ID_BYTES]) {
    struct address_mask mask = address_mask(transaction_id);
    write_masked_address(w, type, e, &mask);
}

bool stun_read_address(struct endpoint *out, const struct stun_attribute *a) {
    static const struct address_mask none = {{0}};
    return read_masked_address(out, a, &none);
}

void stun_write_address(struct wire_writer *w, uint16_t type, const struct endpoint *e) {
    static const struct address_mask none = {{0}};
    write_masked_address(w, type, e, &none);
}

bool stun_read_u32(uint32_t *out, const struct stun_attribute *a) {
    struct wire_reader r = stun_attribute_reader(a);
    *out = wire_read_u32(&r);
    return wire_finished(&r);
}

void stun_write_u32(struct wire_writer *w, uint16_t type, uint32_t value) {
    uint8_t *length = stun_attribute_open(w, type);
    wire_write_u32(w, value);
    stun_attribute_close(w, length);
}

bool stun_read_u16_reserved(uint16_t *out, const struct stun_attribute *a) {
    struct wire_reader r = stun_attribute_reader(a);
    *out = wire_read_u16(&r);
    (void)wire_read_u16(&r);
    return wire_finished(&r);
}

void stun_write_u16_reserved(struct wire_writer *w, uint16_t type, uint16_t value) {
    stun_write_u32(w, type, (uint32_t)value << 16);
}

bool stun_read_u8_reserved(uint8_t *out, const struct stun_attribute *a) {
    struct wire_reader r = stun_attribute_reader(a);
    *out = wire_read_u8(&r);
    (void)wire_take(&r, 3);
    return wire_finished(&r);
}

void stun_write_u8_reserved(struct wire_writer *w, uint16_t type, uint8_t value) {
    stun_write_u32(w, type, (uint32_t)value << 24);
}

bool stun_read_even_port(bool *out_reserve_next, const struct stun_attribute *a) {
    struct wire_reader r = stun_attribute_reader(a);
    *out_reserve_next = (wire_read_u8(&r) & 0x80) != 0;
    return wire_finished(&r);
}

void stun_write_even_port(struct wire_writer *w, bool reserve_next) {
    uint8_t value = reserve_next ? 0x80 : 0;
    stun_write_bytes(w, STUN_ATTR_EVEN_PORT, &value, 1);
}

void stun_write_bytes(struct wire_writer *w, uint16_t type, const void *bytes, size_t n_bytes) {
    uint8_t *length = stun_attribute_open(w, type);
    wire_write_bytes(w, bytes, n_bytes);
    stun_attribute_close(w, length);
}

/* The three low bits are the hundreds, the next byte the rest (RFC 8489, 14.8). */
static bool read_code(uint16_t *out_code, struct wire_reader *r) {
    unsigned class = wire_read_u8(r) & 7u, number = wire_read_u8(r);
    *out_code = (uint16_t)(class * 100 + number);
    return !r->failed && class >= 3 && class <= 6 && number <= 99;
}

static void write_code_and_phrase(struct wire_writer *w, enum stun_status status, const char *phrase) {
    wire_write_u8(w, (uint8_t)(status / 100));
    wire_write_u8(w, (uint8_t)(status % 100));
    wire_write_bytes(w, phrase, strlen(phrase));
}

bool stun_read_error(uint16_t *out_code, const struct stun_attribute *a) {
    struct wire_reader r = stun_attribute_reader(a);
    (void)wire_read_u16(&r);
    return read_code(out_code, &r);
}

void stun_write_error(struct wire_writer *w, enum stun_status status, const char *phrase) {
    uint8_t *length = stun_attribute_open(w, STUN_ATTR_ERROR_CODE);
    wire_write_u16(w, 0);
    write_code_and_phrase(w, status, phrase != NULL ? phrase : stun_status_phrase(status));
    stun_attribute_close(w, length);
}

bool stun_read_address_error(uint8_t *out_family, uint16_t *out_code, const struct stun_attribute *a) {
    struct wire_reader r = stun_attribute_reader(a);
    *out_family = wire_read_u8(&r);
    (void)wire_read_u8(&r);
    return read_code(out_code, &r) && (*out_family == STUN_FAMILY_IPV4 || *out_family == STUN_FAMILY_IPV6);
}

void stun_write_address_error(struct wire_writer *w, uint8_t family, enum stun_status status) {
    uint8_t *length = stun_attribute_open(w, STUN_ATTR_ADDRESS_ERROR_CODE);
    wire_write_u8(w, family);
    wire_write_u8(w, 0);
    write_code_and_phrase(w, status, stun_status_phrase(status));
    stun_attribute_close(w, length);
}

void stun_write_unknown(struct wire_writer *w, const uint16_t *types, size_t n_types) {
    uint8_t *length = stun_attribute_open(w, STUN_ATTR_UNKNOWN_ATTRIBUTES);
    for (size_t i = 0; i < n_types; i++) {
        wire_write_u16(w, types[i]);
    }
    stun_attribute_close(w, length);
}

bool stun_read_icmp(uint8_t *out_type, uint16_t *out_code, uint32_t *out_data,
                    const struct stun_attribute *a) {
    struct wire_reader r = stun_attribute_reader(a);
    (void)wire_read_u16(&r);
    uint16_t type_and_code = wire_read_u16(&r);
    *out_type = (uint8_t)(type_and_code >> 9);
    *out_code = type_and_code & 0x1FF;
    *out_data = wire_read_u32(&r);
    return wire_finished(&r);
}

void stun_write_icmp(struct wire_writer *w, uint8_t type, uint16_t code, uint32_t data) {
    uint8_t *length = stun_attribute_open(w, STUN_ATTR_ICMP);
    wire_write_u16(w, 0);
    wire_write_u16(w, (uint16_t)((type & 0x7Fu) << 9 | (code & 0x1FFu)));
    wire_write_u32(w, data);
    stun_attribute_close(w, length);
}

/* One algorithm with its parameters, which are padded like an attribute (RFC 8489, 14.11). */
static bool read_algorithm(uint16_t *out, struct wire_reader *r) {
    *out = wire_read_u16(r);
    uint32_t n_parameters = wire_read_u16(r);
    (void)wire_take(r, n_parameters + stun_padding(n_parameters));
    bool known = *out == STUN_PASSWORD_ALGORITHM_MD5 || *out == STUN_PASSWORD_ALGORITHM_SHA256;
    return !r->failed && !(known && n_parameters != 0); /* 18.5.1: both have none */
}

bool stun_read_password_algorithm(uint16_t *out, const struct stun_attribute *a) {
    struct wire_reader r = stun_attribute_reader(a);
    return read_algorithm(out, &r) && wire_finished(&r);
}

bool stun_read_password_algorithms(uint16_t *out, size_t max, size_t *out_n, const struct stun_attribute *a) {
    struct wire_reader r = stun_attribute_reader(a);
    *out_n = 0;
    do {
        uint16_t algorithm;
        if (!read_algorithm(&algorithm, &r)) {
            return false;
        }
        if (*out_n < max) {
            out[(*out_n)++] = algorithm;
        }
    } while (wire_left(&r) > 0);
    return true;
}

void stun_write_password_algorithm(struct wire_writer *w, uint16_t algorithm) {
    stun_write_u32(w, STUN_ATTR_PASSWORD_ALGORITHM, (uint32_t)algorithm << 16);
}

void stun_write_password_algorithms(struct wire_writer *w, const uint16_t *algorithms, size_t n) {
    uint8_t *length = stun_attribute_open(w, STUN_ATTR_PASSWORD_ALGORITHMS);
    for (size_t i = 0; i < n; i++) {
        wire_write_u32(w, (uint32_t)algorithms[i] << 16);
    }
    stun_attribute_close(w, length);
}

size_t stun_encode_data_indication_header(uint8_t out[DATA_INDICATION_MAX_BYTES], const struct endpoint *peer,
                                          uint16_t n_payload,
                                          const uint8_t transaction_id[STUN_TRANSACTION_ID_BYTES]) {
    enum { DATA_INDICATION_TYPE = 0x0017 };
    if (peer->family != AF_INET && peer->family != AF_INET6) {
        return 0;
    }
    size_t n_address = peer->family == AF_INET ? ADDRESS_V4_BYTES : ADDRESS_V6_BYTES;
    size_t n_body = 4 + n_address + 4 + n_payload + stun_padding(n_payload);
    if (n_body > UINT16_MAX) {
        return 0;
    }
    struct address_mask mask = address_mask(transaction_id);
    wire_put_u16(out, DATA_INDICATION_TYPE);
    wire_put_u16(out + 2, (uint16_t)n_body);
    memcpy(out + 4, mask.bytes, sizeof mask.bytes); /* cookie and transaction id */
    uint8_t *p = out + STUN_HEADER_BYTES;
    wire_put_u16(p, STUN_ATTR_XOR_PEER_ADDRESS);
    wire_put_u16(p + 2, (uint16_t)n_address);
    p += 4 + put_masked_address(p + 4, peer, &mask);
    wire_put_u16(p, STUN_ATTR_DATA);
    wire_put_u16(p + 2, n_payload);
    return (size_t)(p + 4 - out);
}
