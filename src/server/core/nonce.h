/* Stateless nonces: "obMatJos2" + 4 base64 characters of security features (RFC 8489, 9.2) + issue time +
 * salt + MAC over them and the realm. Pure functions; no state per source. */
#ifndef TURN_NONCE_H
#define TURN_NONCE_H

#include "stun_integrity.h"

enum {
    NONCE_FEATURE_PASSWORD_ALGORITHMS = 1u << 23, /* bit 0, the most significant of 24 */
    NONCE_FEATURE_USERNAME_ANONYMITY = 1u << 22,
    NONCE_TEXT_BYTES = 64, /* room incl. NUL */
    NONCE_KEY_BYTES = 32,
};

enum nonce_state { NONCE_FRESH, NONCE_STALE, NONCE_FORGED };

/* Writes a nonce (NUL-terminated); salt makes two of one second differ. Returns its length, 0 without memory.
 */
size_t nonce_create(struct stun_crypto *crypto, char out[NONCE_TEXT_BYTES],
                    const uint8_t key[NONCE_KEY_BYTES], const char *realm, uint32_t features, int64_t wall_s,
                    uint32_t salt);
/* lifetime_s 0: never stale. Times up to 5 s in the future pass (another host's clock), beyond: forged. */
enum nonce_state nonce_check(struct stun_crypto *crypto, const uint8_t key[NONCE_KEY_BYTES],
                             const char *realm, uint32_t features, const void *nonce, size_t n_nonce,
                             int64_t wall_s, uint32_t lifetime_s);

#endif
