/* Keyed hashing of short keys (SipHash-1-3, 64-bit words). Keys are chosen by strangers, so every table
 * takes a random key of the process. Any thread may call it. */
#ifndef TURN_HASH_H
#define TURN_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash_key {
    uint64_t k0, k1;
};

static inline uint64_t hash_rotate(uint64_t x, unsigned n) {
    return (x << n) | (x >> (64 - n));
}

#define HASH_ROUND(v0, v1, v2, v3)                                                                           \
    do {                                                                                                     \
        (v0) += (v1), (v2) += (v3);                                                                          \
        (v1) = hash_rotate((v1), 13) ^ (v0), (v3) = hash_rotate((v3), 16) ^ (v2);                            \
        (v0) = hash_rotate((v0), 32);                                                                        \
        (v2) += (v1), (v0) += (v3);                                                                          \
        (v1) = hash_rotate((v1), 17) ^ (v2), (v3) = hash_rotate((v3), 21) ^ (v0);                            \
        (v2) = hash_rotate((v2), 32);                                                                        \
    } while (0)

/* SipHash-1-3 over n_words whole words; the word count takes the place of the byte count. */
static inline uint64_t hash_words(const struct hash_key *key, const uint64_t *words, size_t n_words) {
    uint64_t v0 = key->k0 ^ UINT64_C(0x736f6d6570736575);
    uint64_t v1 = key->k1 ^ UINT64_C(0x646f72616e646f6d);
    uint64_t v2 = key->k0 ^ UINT64_C(0x6c7967656e657261);
    uint64_t v3 = key->k1 ^ UINT64_C(0x7465646279746573);
    for (size_t i = 0; i < n_words; i++) {
        v3 ^= words[i];
        HASH_ROUND(v0, v1, v2, v3);
        v0 ^= words[i];
    }
    uint64_t last = (uint64_t)n_words << 56;
    v3 ^= last;
    HASH_ROUND(v0, v1, v2, v3);
    v0 ^= last;
    v2 ^= 0xff;
    HASH_ROUND(v0, v1, v2, v3);
    HASH_ROUND(v0, v1, v2, v3);
    HASH_ROUND(v0, v1, v2, v3);
    return v0 ^ v1 ^ v2 ^ v3;
}

/* Plain SipHash-1-3 over bytes of any length (not for the relay path). Not equal to hash_words() of the same
 * memory, which counts words. bytes may be NULL when n_bytes is 0. */
uint64_t hash_bytes(const struct hash_key *key, const void *bytes, size_t n_bytes);

#endif
