/* MESSAGE-INTEGRITY, MESSAGE-INTEGRITY-SHA256, FINGERPRINT and long-term keys (RFC
 * 8489, 9.2, 14.5-14.7, 18.5). A stun_crypto holds fetched digests and MAC contexts; one thread at a time
 * uses it. */
#ifndef TURN_STUN_INTEGRITY_H
#define TURN_STUN_INTEGRITY_H

#include "stun_attribute.h"

struct stun_crypto;

/* Fetches the algorithms once. 0, -ENOMEM, or -ENOTSUP when OpenSSL lacks one. */
int stun_crypto_create(struct stun_crypto **out);
void stun_crypto_destroy(struct stun_crypto *crypto);

/* The long-term key: MD5(username:realm:password), 16 bytes, or SHA-256 of the same, 32 bytes. */
struct stun_key {
    uint8_t bytes[32];
    uint8_t n_bytes; /* 0: none */
};

/* Inputs are taken as they are (see stun_saslprep). Returns 0, -EINVAL for an unknown algorithm, or -ENOMEM;
 * *out is the empty key then. */
int stun_key_derive(struct stun_crypto *crypto, struct stun_key *out, uint16_t password_algorithm,
                    const char *username, size_t n_username, const char *realm, const char *password);

/* SASLprep (RFC 4013, stored string) of an UTF-8 text. *out is malloc'ed; 0, -EINVAL (prohibited or no
 * UTF-8), -ENOMEM. */
int stun_saslprep(char **out, const char *text);

/* The three below return false when OpenSSL fails, which is for want of memory; out is then zero,
 * respectively
 * "": never take it for a secret. */

/* USERHASH = SHA-256(username ":" realm) (RFC 8489, 14.4). */
bool stun_userhash(struct stun_crypto *crypto, uint8_t out[STUN_USERHASH_BYTES], const char *username,
                   size_t n_username, const char *realm);

/* Base64 of HMAC-SHA1(secret, username): the password of the TURN REST scheme. out: at least 29 bytes. */
bool stun_rest_password(struct stun_crypto *crypto, char out[32], const char *secret, const char *username,
                        size_t n_username);

/* HMAC-SHA256 truncated to n_out <= 32 bytes; for nonces and tickets. */
bool stun_hmac_sha256(struct stun_crypto *crypto, uint8_t *out, size_t n_out, const void *key, size_t n_key,
                      const void *bytes, size_t n_bytes);

enum stun_integrity_kind { STUN_INTEGRITY_NONE, STUN_INTEGRITY_SHA1, STUN_INTEGRITY_SHA256 };

/* Where the message's integrity attribute stands and of which kind: with both present, SHA-256 counts
 * (RFC 8489, 9.2.4). Attributes after it, but for SHA-256 and FINGERPRINT, are to be ignored: _limit is the
 * offset up to which attributes are protected (the message's end when there is none). */
struct stun_integrity_place {
    enum stun_integrity_kind kind;
    struct stun_attribute attribute;
    size_t limit;
};
void stun_integrity_find(const struct stun_message *message, struct stun_integrity_place *out);

/* Constant-time check of that attribute under key. SHA-256 values of 16 to 32 bytes, a multiple of 4, are
 * accepted (RFC 8489, 14.6). */
bool stun_integrity_check(struct stun_crypto *crypto, const struct stun_message *message,
                          const struct stun_integrity_place *place, const struct stun_key *key);

/* Appends the attribute over what was written so far (and patches the header's length); the message starts at
 * w->start. The writer fails when there is no room or no memory; STUN_INTEGRITY_NONE appends nothing. */
void stun_integrity_append(struct stun_crypto *crypto, struct wire_writer *w, enum stun_integrity_kind kind,
                           const struct stun_key *key);

/* FINGERPRINT: CRC-32 ^ 0x5354554e. check: true when absent or right and last. */
bool stun_fingerprint_check(const struct stun_message *message, bool *out_present);
void stun_fingerprint_append(struct wire_writer *w);

/* True when equal, in time that depends on n only. */
bool stun_equal_constant_time(const void *a, const void *b, size_t n);

#endif
