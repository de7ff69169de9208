#include "nonce.h"

/* Text: cookie (9) + features (4) + base64url without padding of the 17 bytes below. A short MAC is enough: a
 * guessed nonce only lets its maker skip the challenge, it proves nothing about the password; and the reply
 * to an unproven sender stays small. */
enum {
    COOKIE_CHARS = 9,
    FEATURE_CHARS = 4,
    TIME_BYTES = 4,
    SALT_BYTES = 4,
    MAC_BYTES = 9,
    STAMP_BYTES = TIME_BYTES + SALT_BYTES,
    BODY_BYTES = STAMP_BYTES + MAC_BYTES,
    BODY_CHARS = (BODY_BYTES * 8 + 5) / 6,
    NONCE_CHARS = COOKIE_CHARS + FEATURE_CHARS + BODY_CHARS,
    FUTURE_SKEW_S = 5,
};
static_assert((int)NONCE_CHARS < (int)NONCE_TEXT_BYTES, "room for the NUL");

static const char cookie[COOKIE_CHARS + 1] = "obMatJos2"; /* RFC 8489, 9.2 */

/* The features are base64 proper (RFC 8489, 9.2), the rest may be anything: one alphabet serves both but for
 * its last two characters. */
static const char digits_common[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
static const char tail_standard[2] = {'+', '/'};
static const char tail_url[2] = {'-', '_'};

static char digit_of(uint32_t six_bits, const char tail[2]) {
    return six_bits < 62 ? digits_common[six_bits] : tail[six_bits - 62];
}

static size_t base64_encode(char *out, const uint8_t *bytes, size_t n_bytes, const char tail[2]) {
    uint32_t held = 0;
    unsigned n_held = 0;
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        held = (held << 8 | bytes[i]) & 0xffff;
        for (n_held += 8; n_held >= 6; n_held -= 6) {
            out[n++] = digit_of(held >> (n_held - 6) & 63, tail);
        }
    }
    if (n_held > 0) {
        out[n++] = digit_of(held << (6 - n_held) & 63, tail);
    }
    return n;
}

static int value_of(char c) {
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/* BODY_CHARS characters into BODY_BYTES; false for a character outside the alphabet. Bits left over at the
 * end have to be zero, so that a nonce has one spelling only. */
static bool body_decode(uint8_t out[BODY_BYTES], const char *text) {
    uint32_t held = 0;
    unsigned n_held = 0;
    size_t n = 0;
    for (size_t i = 0; i < BODY_CHARS; i++) {
        int value = value_of(text[i]);
        if (value < 0) {
            return false;
        }
        held = (held << 6 | (uint32_t)value) & 0xffff;
        n_held += 6;
        if (n_held >= 8) {
            n_held -= 8;
            out[n++] = (uint8_t)(held >> n_held);
        }
    }
    return (held & ((1u << n_held) - 1)) == 0;
}

static void write_prefix(char out[COOKIE_CHARS + FEATURE_CHARS], uint32_t features) {
    uint8_t bits[3] = {(uint8_t)(features >> 16), (uint8_t)(features >> 8), (uint8_t)features};
    memcpy(out, cookie, COOKIE_CHARS);
    base64_encode(out + COOKIE_CHARS, bits, sizeof bits, tail_standard);
}

/* MAC over features, time, salt and realm. A realm is cut at its longest legal length. False without memory.
 */
static bool compute_mac(struct stun_crypto *crypto, uint8_t out[MAC_BYTES],
                        const uint8_t key[NONCE_KEY_BYTES], const char *realm, uint32_t features,
                        const uint8_t stamp[STAMP_BYTES]) {
    uint8_t bytes[4 + STAMP_BYTES + STUN_MAX_REALM_BYTES];
    size_t n_realm = strnlen(realm, STUN_MAX_REALM_BYTES);
    wire_put_u32(bytes, features);
    memcpy(bytes + 4, stamp, STAMP_BYTES);
    memcpy(bytes + 4 + STAMP_BYTES, realm, n_realm);
    return stun_hmac_sha256(crypto, out, MAC_BYTES, key, NONCE_KEY_BYTES, bytes, 4 + STAMP_BYTES + n_realm);
}

size_t nonce_create(struct stun_crypto *crypto, char out[NONCE_TEXT_BYTES],
                    const uint8_t key[NONCE_KEY_BYTES], const char *realm, uint32_t features, int64_t wall_s,
                    uint32_t salt) {
    uint8_t body[BODY_BYTES];
    wire_put_u32(body, (uint32_t)wall_s);
    wire_put_u32(body + TIME_BYTES, salt);
    if (!compute_mac(crypto, body + STAMP_BYTES, key, realm, features, body)) {
        return 0;
    }
    write_prefix(out, features);
    base64_encode(out + COOKIE_CHARS + FEATURE_CHARS, body, BODY_BYTES, tail_url);
    out[NONCE_CHARS] = '\0';
    return NONCE_CHARS;
}

enum nonce_state nonce_check(struct stun_crypto *crypto, const uint8_t key[NONCE_KEY_BYTES],
                             const char *realm, uint32_t features, const void *nonce, size_t n_nonce,
                             int64_t wall_s, uint32_t lifetime_s) {
    const char *text = nonce;
    char prefix[COOKIE_CHARS + FEATURE_CHARS];
    uint8_t body[BODY_BYTES], mac[MAC_BYTES];
    write_prefix(prefix, features);
    if (n_nonce != NONCE_CHARS || memcmp(text, prefix, sizeof prefix) != 0 ||
        !body_decode(body, text + sizeof prefix)) {
        return NONCE_FORGED;
    }
    if (!compute_mac(crypto, mac, key, realm, features, body) ||
        !stun_equal_constant_time(mac, body + STAMP_BYTES, MAC_BYTES)) {
        return NONCE_FORGED;
    }
    uint32_t issued = (uint32_t)body[0] << 24 | (uint32_t)body[1] << 16 | (uint32_t)body[2] << 8 | body[3];
    /* The time is told modulo 2^32 s; the difference is right across the wrap of 2106. */
    int64_t age_s = (int32_t)((uint32_t)wall_s - issued);
    if (age_s < -FUTURE_SKEW_S) {
        return NONCE_FORGED;
    }
    return lifetime_s != 0 && age_s > (int64_t)lifetime_s ? NONCE_STALE : NONCE_FRESH;
}
