/* STUN messages: decoding, walking, every reader over every attribute. */
#include <stdlib.h>

#include "stun_attribute.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void read_all(const struct stun_message *m, const struct stun_attribute *a) {
    struct endpoint e;
    uint32_t u32;
    uint16_t u16, list[4];
    uint8_t u8;
    bool flag;
    size_t n;
    (void)stun_read_xor_address(&e, a, m);
    (void)stun_read_address(&e, a);
    (void)stun_read_u32(&u32, a);
    (void)stun_read_u16_reserved(&u16, a);
    (void)stun_read_u8_reserved(&u8, a);
    (void)stun_read_even_port(&flag, a);
    (void)stun_read_address_error(&u8, &u16, a);
    (void)stun_read_icmp(&u8, &u16, &u32, a);
    (void)stun_read_password_algorithm(&u16, a);
    if (stun_read_error(&u16, a) && (u16 < 300 || u16 > 699)) {
        abort();
    }
    if (stun_read_password_algorithms(list, 4, &n, a) && (n == 0 || n > 4)) {
        abort();
    }
}

/* Written again attribute by attribute, a message is the same but for its padding. */
static void write_again(const struct stun_message *m) {
    uint8_t *bytes = malloc(m->n_bytes);
    if (bytes == NULL) {
        return;
    }
    struct wire_writer w = wire_writer_over(bytes, m->n_bytes);
    struct stun_attribute at = {0};
    stun_message_begin(&w, m->class, m->method, m->transaction_id);
    while (stun_message_next(m, &at)) {
        stun_write_bytes(&w, at.type, at.value, at.n_bytes);
    }
    if (stun_message_end(&w) != m->n_bytes || memcmp(bytes, m->bytes, STUN_HEADER_BYTES) != 0) {
        abort();
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    struct stun_message m;
    struct stun_attribute at = {0}, first;
    if (!stun_message_decode(&m, bytes, n_bytes)) {
        return 0;
    }
    while (stun_message_next(&m, &at)) {
        if (at.value + at.n_bytes > bytes + n_bytes || !stun_message_find(&m, at.type, &first) ||
            first.offset > at.offset) {
            abort();
        }
        read_all(&m, &at);
        if (at.offset > 4096) {
            break; /* finding the first of each would be quadratic */
        }
    }
    write_again(&m);
    return 0;
}
