/* Integrity and fingerprint: checked on what comes in, and what we append to it is right and stays right. */
#include <stdlib.h>

#include "stun_integrity.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static const struct stun_key key = {.bytes = "0123456789abcdef", .n_bytes = 16};

static void check(struct stun_crypto *crypto, const struct stun_message *m) {
    struct stun_integrity_place place;
    bool has_fingerprint;
    stun_integrity_find(m, &place);
    if (place.limit > m->n_bytes || place.limit < STUN_HEADER_BYTES) {
        abort();
    }
    (void)stun_integrity_check(crypto, m, &place, &key);
    (void)stun_fingerprint_check(m, &has_fingerprint);
}

static void append_and_check(struct stun_crypto *crypto, const struct stun_message *m,
                             enum stun_integrity_kind kind) {
    uint8_t bytes[2048];
    struct stun_integrity_place before, place;
    struct stun_message signed_message;
    bool has_fingerprint;
    stun_integrity_find(m, &before);
    bool had_fingerprint = !stun_fingerprint_check(m, &has_fingerprint) || has_fingerprint;
    struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
    wire_write_bytes(&w, m->bytes, m->n_bytes);
    stun_integrity_append(crypto, &w, kind, &key);
    stun_fingerprint_append(&w);
    size_t n_bytes = stun_message_end(&w);
    if (n_bytes == 0) {
        return; /* no room */
    }
    if (!stun_message_decode(&signed_message, bytes, n_bytes)) {
        abort();
    }
    stun_integrity_find(&signed_message, &place);
    if (before.kind == STUN_INTEGRITY_NONE && !stun_integrity_check(crypto, &signed_message, &place, &key)) {
        abort();
    }
    if (!had_fingerprint && !stun_fingerprint_check(&signed_message, &has_fingerprint)) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    struct stun_message m;
    struct stun_crypto *crypto;
    if (!stun_message_decode(&m, bytes, n_bytes) || stun_crypto_create(&crypto) < 0) {
        return 0;
    }
    check(crypto, &m);
    append_and_check(crypto, &m, STUN_INTEGRITY_SHA1);
    append_and_check(crypto, &m, STUN_INTEGRITY_SHA256);
    stun_crypto_destroy(crypto);
    return 0;
}
