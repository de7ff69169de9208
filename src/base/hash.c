#include "hash.h"

/* Little-endian whatever the machine, so that the same key and bytes give the same hash everywhere. */
static uint64_t load_le(const uint8_t *bytes, size_t n_bytes) {
    uint64_t word = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        word |= (uint64_t)bytes[i] << (8 * i);
    }
    return word;
}

uint64_t hash_bytes(const struct hash_key *key, const void *bytes, size_t n_bytes) {
    const uint8_t *at = bytes;
    uint64_t v0 = key->k0 ^ UINT64_C(0x736f6d6570736575);
    uint64_t v1 = key->k1 ^ UINT64_C(0x646f72616e646f6d);
    uint64_t v2 = key->k0 ^ UINT64_C(0x6c7967656e657261);
    uint64_t v3 = key->k1 ^ UINT64_C(0x7465646279746573);
    size_t n_left = n_bytes;
    for (; n_left >= 8; at += 8, n_left -= 8) {
        uint64_t word = load_le(at, 8);
        v3 ^= word;
        HASH_ROUND(v0, v1, v2, v3);
        v0 ^= word;
    }
    uint64_t last = (uint64_t)n_bytes << 56 | load_le(at, n_left);
    v3 ^= last;
    HASH_ROUND(v0, v1, v2, v3);
    v0 ^= last;
    v2 ^= 0xff;
    HASH_ROUND(v0, v1, v2, v3);
    HASH_ROUND(v0, v1, v2, v3);
    HASH_ROUND(v0, v1, v2, v3);
    return v0 ^ v1 ^ v2 ^ v3;
}
