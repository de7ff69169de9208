#include "stun_message.h"

#include "stun_attribute.h"

enum { ATTRIBUTE_HEADER_BYTES = 4, STUN_MAX_BODY_BYTES = 0xFFFC };

const char *stun_status_phrase(enum stun_status status) {
    switch (status) {
    case STUN_OK:
        return "OK";
    case STUN_TRY_ALTERNATE:
        return "Try Alternate";
    case STUN_BAD_REQUEST:
        return "Bad Request";
    case STUN_UNAUTHENTICATED:
        return "Unauthenticated";
    case STUN_FORBIDDEN:
        return "Forbidden";
    case STUN_MOBILITY_FORBIDDEN:
        return "Mobility Forbidden";
    case STUN_UNKNOWN_ATTRIBUTE:
        return "Unknown Attribute";
    case STUN_ALLOCATION_MISMATCH:
        return "Allocation Mismatch";
    case STUN_STALE_NONCE:
        return "Stale Nonce";
    case STUN_ADDRESS_FAMILY_NOT_SUPPORTED:
        return "Address Family not Supported";
    case STUN_WRONG_CREDENTIALS:
        return "Wrong Credentials";
    case STUN_UNSUPPORTED_TRANSPORT:
        return "Unsupported Transport Protocol";
    case STUN_PEER_ADDRESS_FAMILY_MISMATCH:
        return "Peer Address Family Mismatch";
    case STUN_CONNECTION_ALREADY_EXISTS:
        return "Connection Already Exists";
    case STUN_CONNECTION_TIMEOUT_OR_FAILURE:
        return "Connection Timeout or Failure";
    case STUN_ALLOCATION_QUOTA_REACHED:
        return "Allocation Quota Reached";
    case STUN_SERVER_ERROR:
        return "Server Error";
    case STUN_INSUFFICIENT_CAPACITY:
        return "Insufficient Capacity";
    }
    return "";
}

const char *stun_method_name(uint16_t method) {
    switch (method) {
    case STUN_METHOD_BINDING:
        return "BINDING";
    case STUN_METHOD_ALLOCATE:
        return "ALLOCATE";
    case STUN_METHOD_REFRESH:
        return "REFRESH";
    case STUN_METHOD_SEND:
        return "SEND";
    case STUN_METHOD_DATA:
        return "DATA";
    case STUN_METHOD_CREATE_PERMISSION:
        return "CREATE_PERMISSION";
    case STUN_METHOD_CHANNEL_BIND:
        return "CHANNEL_BIND";
    case STUN_METHOD_CONNECT:
        return "CONNECT";
    case STUN_METHOD_CONNECTION_BIND:
        return "CONNECTION_BIND";
    case STUN_METHOD_CONNECTION_ATTEMPT:
        return "CONNECTION_ATTEMPT";
    default:
        return "UNKNOWN";
    }
}

/* RFC 8489, 5: the class sits in bits 4 and 8, the method's bits around them. */
static uint16_t type_join(enum stun_class class, uint16_t method) {
    unsigned m = method & 0xFFF, c = class;
    return (uint16_t)((m & 0xF80) << 2 | (m & 0x70) << 1 | (m & 0xF) | (c & 2) << 7 | (c & 1) << 4);
}

static void type_split(uint16_t type, enum stun_class *out_class, uint16_t *out_method) {
    *out_class = (enum stun_class)((type & 0x100) >> 7 | (type & 0x10) >> 4);
    *out_method = (uint16_t)((type & 0x3E00) >> 2 | (type & 0xE0) >> 1 | (type & 0xF));
}

static bool attributes_fill(struct wire_reader body) {
    while (wire_left(&body) > 0) {
        (void)wire_read_u16(&body);
        uint32_t length = wire_read_u16(&body);
        (void)wire_take(&body, length + stun_padding(length));
    }
    return wire_finished(&body);
}

bool stun_message_decode(struct stun_message *out, const void *datagram, size_t n_bytes) {
    const uint8_t *bytes = datagram;
    if (!stun_looks_like_message(bytes, n_bytes)) {
        return false;
    }
    size_t length = (size_t)bytes[2] << 8 | bytes[3];
    if (length % 4 != 0 || length != n_bytes - STUN_HEADER_BYTES) {
        return false;
    }
    if (!attributes_fill(wire_reader_over(bytes + STUN_HEADER_BYTES, length))) {
        return false;
    }
    type_split((uint16_t)(bytes[0] << 8 | bytes[1]), &out->class, &out->method);
    out->bytes = bytes;
    out->n_bytes = n_bytes;
    out->transaction_id = bytes + 8;
    return true;
}

bool stun_message_next(const struct stun_message *message, struct stun_attribute *at) {
    size_t offset = STUN_HEADER_BYTES;
    if (at->offset != 0) {
        offset = at->offset + ATTRIBUTE_HEADER_BYTES + at->n_bytes + stun_padding(at->n_bytes);
    }
    if (offset > message->n_bytes || message->n_bytes - offset < ATTRIBUTE_HEADER_BYTES) {
        return false;
    }
    struct wire_reader r = wire_reader_over(message->bytes + offset, message->n_bytes - offset);
    uint16_t type = wire_read_u16(&r), length = wire_read_u16(&r);
    const uint8_t *value = wire_take(&r, length);
    if (value == NULL) {
        return false;
    }
    *at = (struct stun_attribute){.type = type, .n_bytes = length, .value = value, .offset = offset};
    return true;
}

bool stun_message_find(const struct stun_message *message, uint16_t type, struct stun_attribute *out) {
    struct stun_attribute at = {0};
    while (stun_message_next(message, &at)) {
        if (at.type == type) {
            *out = at;
            return true;
        }
    }
    return false;
}

void stun_message_begin(struct wire_writer *w, enum stun_class class, uint16_t method,
                        const uint8_t transaction_id[STUN_TRANSACTION_ID_BYTES]) {
    wire_write_u16(w, type_join(class, method));
    wire_write_u16(w, 0);
    wire_write_u32(w, STUN_MAGIC_COOKIE);
    wire_write_bytes(w, transaction_id, STUN_TRANSACTION_ID_BYTES);
}

uint8_t *stun_attribute_open(struct wire_writer *w, uint16_t type) {
    wire_write_u16(w, type);
    return wire_reserve(w, 2);
}

void stun_attribute_close(struct wire_writer *w, uint8_t *length) {
    if (w->failed || length == NULL) {
        w->failed = true;
        return;
    }
    size_t n_bytes = (size_t)(w->at - (length + 2));
    if (n_bytes > UINT16_MAX) {
        w->failed = true;
        return;
    }
    wire_put_u16(length, (uint16_t)n_bytes);
    uint32_t n_padding = stun_padding((uint32_t)n_bytes);
    uint8_t *padding = wire_reserve(w, n_padding);
    if (padding != NULL && n_padding > 0) {
        memset(padding, 0, n_padding);
    }
}

size_t stun_message_end(struct wire_writer *w) {
    size_t n_bytes = wire_written(w);
    if (n_bytes < STUN_HEADER_BYTES || n_bytes - STUN_HEADER_BYTES > STUN_MAX_BODY_BYTES) {
        w->failed = true;
        return 0;
    }
    wire_put_u16(w->start + 2, (uint16_t)(n_bytes - STUN_HEADER_BYTES));
    return n_bytes;
}
