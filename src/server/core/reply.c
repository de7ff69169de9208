#include "reply.h"

#include "authentication.h"
#include "nonce.h"

void reply_begin_success(struct request *r) {
    r->reply.at = r->reply.start;
    r->reply.failed = false;
    stun_message_begin(&r->reply, STUN_SUCCESS, r->message->method, r->message->transaction_id);
}

static bool is_challenge(enum stun_status status) {
    return status == STUN_UNAUTHENTICATED || status == STUN_STALE_NONCE;
}

static void write_challenge(struct request *r) {
    const struct core_config *config = r->core->config;
    uint32_t features = authentication_features(config->credentials);
    char nonce[NONCE_TEXT_BYTES];
    uint32_t salt;
    r->core->host->random_bytes(r->core->host->context, &salt, sizeof salt);
    size_t n_nonce =
        nonce_create(r->core->crypto, nonce, config->nonce_key, config->realm, features, r->now.wall_s, salt);
    r->reply.failed = r->reply.failed || n_nonce == 0;
    stun_write_bytes(&r->reply, STUN_ATTR_REALM, config->realm, strlen(config->realm));
    stun_write_bytes(&r->reply, STUN_ATTR_NONCE, nonce, n_nonce);
    if ((features & NONCE_FEATURE_PASSWORD_ALGORITHMS) != 0) {
        stun_write_password_algorithms(&r->reply, authentication_algorithms, AUTHENTICATION_N_ALGORITHMS);
    }
}

void reply_write_error(struct request *r, enum stun_status status) {
    /* What was wrong with a stranger's credentials is for the log alone. */
    bool tells_why = r->core->config->reason_strings && r->detail != NULL && !is_challenge(status);
    r->reply.at = r->reply.start;
    r->reply.failed = false;
    stun_message_begin(&r->reply, STUN_ERROR, r->message->method, r->message->transaction_id);
    stun_write_error(&r->reply, status, tells_why ? r->detail : NULL);
    if (status == STUN_UNKNOWN_ATTRIBUTE) {
        stun_write_unknown(&r->reply, r->unknown, r->n_unknown);
    }
    if (is_challenge(status)) {
        write_challenge(r);
    }
}

size_t reply_finish(struct request *r) {
    const struct core_config *config = r->core->config;
    if (config->software != NULL && config->software[0] != '\0') {
        stun_write_bytes(&r->reply, STUN_ATTR_SOFTWARE, config->software, strlen(config->software));
    }
    /* RFC 8489, 9.2.4: every reply to an authenticated request is signed, which leaves out challenges. */
    if (r->is_authenticated) {
        stun_integrity_append(r->core->crypto, &r->reply, r->integrity.kind, &r->credential.key);
    }
    if (r->has_fingerprint || config->fingerprint) {
        stun_fingerprint_append(&r->reply);
    }
    return stun_message_end(&r->reply);
}
