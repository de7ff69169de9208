#include "stun_integrity.h"

#include <assert.h>
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdlib.h>
#include <stringprep.h>

#include "crc32.h"

enum {
    SHA1_BYTES = 20,
    SHA256_BYTES = 32,
    SHA256_MIN_BYTES = 16, /* RFC 8489, 14.6 */
    FINGERPRINT_XOR = 0x5354554e,
    ATTRIBUTE_HEADER_BYTES = 4,
};

/* A key is given to the MAC contexts for every message; the digests stay set in them. */
struct stun_crypto {
    EVP_MD *md5, *sha256;
    EVP_MD_CTX *digest;
    EVP_MAC_CTX *hmac_sha1, *hmac_sha256;
};

struct span {
    const void *bytes;
    size_t n_bytes;
};

static EVP_MAC_CTX *hmac_context(EVP_MAC *hmac, const char *digest_name) {
    char name[16]; /* OSSL_PARAM wants it writable */
    assert(strlen(digest_name) < sizeof name);
    memcpy(name, digest_name, strlen(digest_name) + 1);
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0),
                           OSSL_PARAM_construct_end()};
    EVP_MAC_CTX *context = EVP_MAC_CTX_new(hmac);
    if (context != NULL && !EVP_MAC_CTX_set_params(context, params)) {
        EVP_MAC_CTX_free(context);
        return NULL;
    }
    return context;
}

int stun_crypto_create(struct stun_crypto **out) {
    struct stun_crypto *crypto = calloc(1, sizeof *crypto);
    if (crypto == NULL) {
        return -ENOMEM;
    }
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    crypto->md5 = EVP_MD_fetch(NULL, "MD5", NULL);
    crypto->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    crypto->digest = EVP_MD_CTX_new();
    if (hmac != NULL) {
        crypto->hmac_sha1 = hmac_context(hmac, "SHA1");
        crypto->hmac_sha256 = hmac_context(hmac, "SHA256");
        EVP_MAC_free(hmac); /* the contexts hold references */
    }
    if (crypto->md5 == NULL || crypto->sha256 == NULL || crypto->digest == NULL ||
        crypto->hmac_sha1 == NULL || crypto->hmac_sha256 == NULL) {
        stun_crypto_destroy(crypto);
        return -ENOTSUP;
    }
    *out = crypto;
    return 0;
}

void stun_crypto_destroy(struct stun_crypto *crypto) {
    if (crypto == NULL) {
        return;
    }
    EVP_MAC_CTX_free(crypto->hmac_sha1);
    EVP_MAC_CTX_free(crypto->hmac_sha256);
    EVP_MD_CTX_free(crypto->digest);
    EVP_MD_free(crypto->md5);
    EVP_MD_free(crypto->sha256);
    free(crypto);
}

static bool digest_spans(struct stun_crypto *crypto, EVP_MD *md, uint8_t *out, const struct span *spans,
                         size_t n_spans) {
    bool ok = EVP_DigestInit_ex2(crypto->digest, md, NULL) == 1;
    for (size_t i = 0; ok && i < n_spans; i++) {
        ok = EVP_DigestUpdate(crypto->digest, spans[i].bytes, spans[i].n_bytes) == 1;
    }
    return ok && EVP_DigestFinal_ex(crypto->digest, out, NULL) == 1;
}

static bool hmac_spans(EVP_MAC_CTX *context, uint8_t *out, size_t n_out, struct span key,
                       const struct span *spans, size_t n_spans) {
    /* A NULL key would mean "the last one". */
    const void *key_bytes = key.n_bytes > 0 ? key.bytes : "";
    size_t n_written = 0;
    bool ok = EVP_MAC_init(context, key_bytes, key.n_bytes, NULL) == 1;
    for (size_t i = 0; ok && i < n_spans; i++) {
        ok = EVP_MAC_update(context, spans[i].bytes, spans[i].n_bytes) == 1;
    }
    return ok && EVP_MAC_final(context, out, &n_written, n_out) == 1 && n_written == n_out;
}

int stun_key_derive(struct stun_crypto *crypto, struct stun_key *out, uint16_t password_algorithm,
                    const char *username, size_t n_username, const char *realm, const char *password) {
    const struct span spans[] = {
        {username, n_username}, {":", 1}, {realm, strlen(realm)}, {":", 1}, {password, strlen(password)}};
    *out = (struct stun_key){0};
    if (password_algorithm != STUN_PASSWORD_ALGORITHM_MD5 &&
        password_algorithm != STUN_PASSWORD_ALGORITHM_SHA256) {
        return -EINVAL;
    }
    bool md5 = password_algorithm == STUN_PASSWORD_ALGORITHM_MD5;
    if (!digest_spans(crypto, md5 ? crypto->md5 : crypto->sha256, out->bytes, spans, 5)) {
        return -ENOMEM;
    }
    out->n_bytes = md5 ? 16 : 32;
    return 0;
}

/* SASLprep leaves printable ASCII as it is. */
static bool is_printable_ascii(const char *text) {
    for (; *text != '\0'; text++) {
        if (*text < 0x20 || *text > 0x7E) {
            return false;
        }
    }
    return true;
}

int stun_saslprep(char **out, const char *text) {
    if (is_printable_ascii(text)) {
        *out = strdup(text);
        return *out == NULL ? -ENOMEM : 0;
    }
    switch (stringprep_profile(text, out, "SASLprep", STRINGPREP_NO_UNASSIGNED)) {
    case STRINGPREP_OK:
        return 0;
    case STRINGPREP_MALLOC_ERROR:
        return -ENOMEM;
    default:
        return -EINVAL;
    }
}

bool stun_userhash(struct stun_crypto *crypto, uint8_t out[STUN_USERHASH_BYTES], const char *username,
                   size_t n_username, const char *realm) {
    const struct span spans[] = {{username, n_username}, {":", 1}, {realm, strlen(realm)}};
    bool ok = digest_spans(crypto, crypto->sha256, out, spans, 3);
    if (!ok) {
        memset(out, 0, STUN_USERHASH_BYTES);
    }
    return ok;
}

bool stun_rest_password(struct stun_crypto *crypto, char out[32], const char *secret, const char *username,
                        size_t n_username) {
    const struct span user = {username, n_username};
    uint8_t mac[SHA1_BYTES];
    out[0] = '\0';
    if (!hmac_spans(crypto->hmac_sha1, mac, sizeof mac, (struct span){secret, strlen(secret)}, &user, 1)) {
        return false;
    }
    return EVP_EncodeBlock((unsigned char *)out, mac, sizeof mac) == 28;
}

bool stun_hmac_sha256(struct stun_crypto *crypto, uint8_t *out, size_t n_out, const void *key, size_t n_key,
                      const void *bytes, size_t n_bytes) {
    const struct span text = {bytes, n_bytes};
    uint8_t mac[SHA256_BYTES] = {0};
    bool ok = n_out <= sizeof mac &&
              hmac_spans(crypto->hmac_sha256, mac, sizeof mac, (struct span){key, n_key}, &text, 1);
    memcpy(out, mac, n_out <= sizeof mac ? n_out : 0);
    return ok;
}

void stun_integrity_find(const struct stun_message *message, struct stun_integrity_place *out) {
    *out = (struct stun_integrity_place){.kind = STUN_INTEGRITY_NONE, .limit = message->n_bytes};
    struct stun_attribute at = {0};
    while (stun_message_next(message, &at)) {
        if (at.type == STUN_ATTR_MESSAGE_INTEGRITY && out->kind == STUN_INTEGRITY_NONE) {
            *out = (struct stun_integrity_place){STUN_INTEGRITY_SHA1, at, at.offset};
        }
        if (at.type == STUN_ATTR_MESSAGE_INTEGRITY_SHA256) {
            /* What stands between the two is ignored as well (RFC 8489, 14.5). */
            size_t limit = out->kind == STUN_INTEGRITY_SHA1 ? out->limit : at.offset;
            *out = (struct stun_integrity_place){STUN_INTEGRITY_SHA256, at, limit};
            return; /* 14.6: nothing after it but FINGERPRINT counts */
        }
    }
}

/* The MAC of the n_before bytes of a message that an integrity attribute of n_value bytes follows: the
 * header's length then covers that attribute and nothing after it (RFC 8489, 14.5). */
static bool message_mac(struct stun_crypto *crypto, enum stun_integrity_kind kind, uint8_t out[SHA256_BYTES],
                        const uint8_t *bytes, size_t n_before, size_t n_value, const struct stun_key *key) {
    uint8_t length[2];
    wire_put_u16(length, (uint16_t)(n_before + ATTRIBUTE_HEADER_BYTES + n_value - STUN_HEADER_BYTES));
    const struct span spans[] = {{bytes, 2}, {length, 2}, {bytes + 4, n_before - 4}};
    bool sha1 = kind == STUN_INTEGRITY_SHA1;
    return hmac_spans(sha1 ? crypto->hmac_sha1 : crypto->hmac_sha256, out, sha1 ? SHA1_BYTES : SHA256_BYTES,
                      (struct span){key->bytes, key->n_bytes}, spans, 3);
}

static bool integrity_length_is_valid(enum stun_integrity_kind kind, size_t n_value) {
    switch (kind) {
    case STUN_INTEGRITY_NONE:
        return false;
    case STUN_INTEGRITY_SHA1:
        return n_value == SHA1_BYTES;
    case STUN_INTEGRITY_SHA256:
        return n_value >= SHA256_MIN_BYTES && n_value <= SHA256_BYTES && n_value % 4 == 0;
    }
    return false;
}

bool stun_integrity_check(struct stun_crypto *crypto, const struct stun_message *message,
                          const struct stun_integrity_place *place, const struct stun_key *key) {
    size_t n_value = place->attribute.n_bytes;
    if (key->n_bytes == 0 || !integrity_length_is_valid(place->kind, n_value)) {
        return false;
    }
    uint8_t mac[SHA256_BYTES];
    return message_mac(crypto, place->kind, mac, message->bytes, place->attribute.offset, n_value, key) &&
           stun_equal_constant_time(mac, place->attribute.value, n_value);
}

void stun_integrity_append(struct stun_crypto *crypto, struct wire_writer *w, enum stun_integrity_kind kind,
                           const struct stun_key *key) {
    if (kind == STUN_INTEGRITY_NONE) {
        return;
    }
    size_t n_before = wire_written(w), n_value = kind == STUN_INTEGRITY_SHA1 ? SHA1_BYTES : SHA256_BYTES;
    uint8_t mac[SHA256_BYTES];
    if (n_before < STUN_HEADER_BYTES || !message_mac(crypto, kind, mac, w->start, n_before, n_value, key)) {
        w->failed = true;
        return;
    }
    bool sha1 = kind == STUN_INTEGRITY_SHA1;
    stun_write_bytes(w, sha1 ? STUN_ATTR_MESSAGE_INTEGRITY : STUN_ATTR_MESSAGE_INTEGRITY_SHA256, mac,
                     n_value);
    (void)stun_message_end(w);
}

/* As for the MAC: the length is that of the message with the attribute (RFC 8489, 14.7). */
static uint32_t fingerprint(const uint8_t *bytes, size_t n_before) {
    uint8_t start[4] = {bytes[0], bytes[1]};
    wire_put_u16(start + 2, (uint16_t)(n_before + ATTRIBUTE_HEADER_BYTES + 4 - STUN_HEADER_BYTES));
    return crc32_update(crc32_update(0, start, 4), bytes + 4, n_before - 4) ^ FINGERPRINT_XOR;
}

bool stun_fingerprint_check(const struct stun_message *message, bool *out_present) {
    struct stun_attribute a;
    *out_present = stun_message_find(message, STUN_ATTR_FINGERPRINT, &a);
    if (!*out_present) {
        return true;
    }
    uint32_t value;
    return stun_read_u32(&value, &a) && a.offset + ATTRIBUTE_HEADER_BYTES + 4 == message->n_bytes &&
           value == fingerprint(message->bytes, a.offset);
}

void stun_fingerprint_append(struct wire_writer *w) {
    size_t n_before = wire_written(w);
    if (n_before < STUN_HEADER_BYTES) {
        w->failed = true;
        return;
    }
    stun_write_u32(w, STUN_ATTR_FINGERPRINT, fingerprint(w->start, n_before));
    (void)stun_message_end(w);
}

bool stun_equal_constant_time(const void *a, const void *b, size_t n) {
    return CRYPTO_memcmp(a, b, n) == 0;
}
