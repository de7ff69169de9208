#include "authentication.h"

#include "nonce.h"

const uint16_t authentication_algorithms[AUTHENTICATION_N_ALGORITHMS] = {STUN_PASSWORD_ALGORITHM_MD5,
                                                                         STUN_PASSWORD_ALGORITHM_SHA256};

/* User hashes need a list of names to look in, so only static users have them. */
uint32_t authentication_features(const struct credential_store *credentials) {
    uint32_t features = 0;
    if (credential_store_has_passwords(credentials)) {
        features |= NONCE_FEATURE_PASSWORD_ALGORITHMS;
    }
    if (credential_store_has_users(credentials)) {
        features |= NONCE_FEATURE_USERNAME_ANONYMITY;
    }
    return features;
}

/* What the request says about itself, as far as it is there. */
struct claim {
    struct stun_attribute realm, nonce;
    struct credential_query query;
};

/* 400 when something is missing that has to stand beside MESSAGE-INTEGRITY. */
static enum stun_status read_claim(struct request *r, struct claim *claim) {
    struct stun_attribute userhash;
    bool has_username = request_find(r, STUN_ATTR_USERNAME, &r->username);
    bool has_userhash = request_find(r, STUN_ATTR_USERHASH, &userhash);
    if (!has_username) {
        r->username = (struct stun_attribute){0};
    }
    if (!request_find(r, STUN_ATTR_REALM, &claim->realm) ||
        !request_find(r, STUN_ATTR_NONCE, &claim->nonce) || (!has_username && !has_userhash)) {
        return request_refuse(r, STUN_BAD_REQUEST, "USERNAME, REALM or NONCE missing");
    }
    if (r->username.n_bytes > STUN_MAX_USERNAME_BYTES ||
        (has_userhash && userhash.n_bytes != STUN_USERHASH_BYTES)) {
        return request_refuse(r, STUN_BAD_REQUEST, "USERNAME too long or USERHASH malformed");
    }
    claim->query = (struct credential_query){
        .username = has_username ? (const char *)r->username.value : NULL,
        .n_username = r->username.n_bytes,
        .userhash = has_username ? NULL : userhash.value,
        .password_algorithm = STUN_PASSWORD_ALGORITHM_MD5,
        .wall_s = r->now.wall_s,
    };
    return STUN_OK;
}

static enum stun_status check_nonce(struct request *r, const struct stun_attribute *nonce,
                                    uint32_t features) {
    const struct core_config *config = r->core->config;
    switch (nonce_check(r->core->crypto, config->nonce_key, config->realm, features, nonce->value,
                        nonce->n_bytes, r->now.wall_s, config->nonce_lifetime_s)) {
    case NONCE_FRESH:
        return STUN_OK;
    case NONCE_STALE:
        return request_refuse(r, STUN_STALE_NONCE, "stale nonce");
    case NONCE_FORGED:
        return request_refuse(r, STUN_STALE_NONCE, "nonce not ours");
    }
    return STUN_STALE_NONCE;
}

/* The list has to be the very one we sent, or somebody on the path has shortened it. */
static bool is_list_we_sent(const struct stun_attribute *list) {
    uint8_t sent[4 + 4 * AUTHENTICATION_N_ALGORITHMS];
    struct wire_writer w = wire_writer_over(sent, sizeof sent);
    stun_write_password_algorithms(&w, authentication_algorithms, AUTHENTICATION_N_ALGORITHMS);
    return list->n_bytes == sizeof sent - 4 && memcmp(list->value, sent + 4, list->n_bytes) == 0;
}

/* RFC 8489, 9.2.4: neither attribute means MD5; otherwise both have to be there and fit what was offered.
 * Where nothing was offered (the nonce, which is ours, says so) they are not looked at. */
static enum stun_status choose_algorithm(struct request *r, uint32_t features, uint16_t *out) {
    struct stun_attribute list, choice;
    bool has_list = request_find(r, STUN_ATTR_PASSWORD_ALGORITHMS, &list);
    bool has_choice = request_find(r, STUN_ATTR_PASSWORD_ALGORITHM, &choice);
    if ((features & NONCE_FEATURE_PASSWORD_ALGORITHMS) == 0 || (!has_list && !has_choice)) {
        return STUN_OK;
    }
    if (!has_list || !has_choice || !is_list_we_sent(&list)) {
        return request_refuse(r, STUN_BAD_REQUEST, "PASSWORD-ALGORITHMS not as offered");
    }
    if (!stun_read_password_algorithm(out, &choice)) {
        return request_refuse(r, STUN_BAD_REQUEST, "PASSWORD-ALGORITHM malformed");
    }
    for (size_t i = 0; i < AUTHENTICATION_N_ALGORITHMS; i++) {
        if (*out == authentication_algorithms[i]) {
            return STUN_OK;
        }
    }
    return request_refuse(r, STUN_BAD_REQUEST, "PASSWORD-ALGORITHM not offered");
}

static bool is_our_realm(const struct request *r, const struct stun_attribute *realm) {
    size_t n = strlen(r->core->config->realm);
    return realm->n_bytes == n && memcmp(realm->value, r->core->config->realm, n) == 0;
}

static bool claims_owner(const struct request *r, const struct credential_query *query) {
    const char *owner = r->allocation == NULL ? NULL : r->allocation->username;
    if (owner == NULL) {
        return false;
    }
    if (query->userhash != NULL) {
        uint8_t userhash[STUN_USERHASH_BYTES];
        return stun_userhash(r->core->crypto, userhash, owner, strlen(owner), r->core->config->realm) &&
               memcmp(userhash, query->userhash, sizeof userhash) == 0;
    }
    return strlen(owner) == query->n_username && memcmp(owner, query->username, query->n_username) == 0;
}

/* The owner of the allocation under the key it was made with: needs no look-up, and goes on when the secret
 * or the user has been taken away meanwhile. */
static bool check_owner_key(struct request *r, const struct credential_query *query) {
    const struct allocation *a = r->allocation;
    uint8_t n_key_bytes = query->password_algorithm == STUN_PASSWORD_ALGORITHM_SHA256 ? 32 : 16;
    if (a->key.n_bytes != n_key_bytes ||
        !stun_integrity_check(r->core->crypto, r->message, &r->integrity, &a->key)) {
        return false;
    }
    size_t n = strlen(a->username);
    memcpy(r->credential.username, a->username, n + 1);
    r->credential.user_part = r->credential.username;
    r->credential.n_user_part = n;
    r->credential.key = a->key;
    return true;
}

static enum stun_status check_credential(struct request *r, struct credential_query *query) {
    const struct credential_store *store = r->core->config->credentials;
    query->skip_expiry = claims_owner(r, query);
    if (query->skip_expiry && check_owner_key(r, query)) {
        return STUN_OK;
    }
    bool was_known = false;
    for (unsigned attempt = 0;; attempt++) {
        switch (credential_find(store, r->core->crypto, query, attempt, &r->credential)) {
        case CREDENTIAL_FOUND:
            if (stun_integrity_check(r->core->crypto, r->message, &r->integrity, &r->credential.key)) {
                return STUN_OK;
            }
            was_known = true;
            break;
        case CREDENTIAL_UNKNOWN:
            return request_refuse(r, STUN_UNAUTHENTICATED, was_known ? "wrong password" : "unknown user");
        case CREDENTIAL_EXPIRED:
            return request_refuse(r, STUN_UNAUTHENTICATED, "credential expired");
        }
    }
}

enum stun_status authentication_check(struct request *r) {
    const struct credential_store *store = r->core->config->credentials;
    struct claim claim;
    if (credential_store_is_open(store)) {
        return STUN_OK;
    }
    if (r->integrity.kind == STUN_INTEGRITY_NONE) {
        return STUN_UNAUTHENTICATED;
    }
    enum stun_status status = read_claim(r, &claim);
    if (status != STUN_OK) {
        return status;
    }
    uint32_t features = authentication_features(store);
    status = check_nonce(r, &claim.nonce, features);
    if (status == STUN_OK) {
        status = choose_algorithm(r, features, &claim.query.password_algorithm);
    }
    if (status == STUN_OK && !is_our_realm(r, &claim.realm)) {
        status = request_refuse(r, STUN_UNAUTHENTICATED, "unknown realm");
    }
    if (status == STUN_OK) {
        status = check_credential(r, &claim.query);
    }
    r->is_authenticated = status == STUN_OK;
    return status;
}
