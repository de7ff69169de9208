#include "credential.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "hash.h"
#include "hash_table.h"

struct static_user {
    char *name; /* SASLprep applied, owned */
    size_t n_name;
    struct stun_key md5, sha256; /* sha256 is empty when only the MD5 key is known */
    uint8_t userhash[STUN_USERHASH_BYTES];
};

struct credential_store {
    char *realm;
    char rest_separator;
    bool no_auth;
    struct stun_crypto *crypto; /* for building only; lookups bring their own */
    struct hash_table by_name, by_userhash;
    size_t n_with_password;
    char **secrets;
    size_t n_secrets;
};

/* Strangers look names up but cannot add any, so nobody can aim collisions: a fixed key will do. */
static const struct hash_key name_key = {UINT64_C(0x74757274616265), UINT64_C(0x63726564)};

struct text {
    const char *at;
    size_t n;
};

static bool user_has_name(const void *item, const void *key) {
    const struct static_user *user = item;
    const struct text *name = key;
    return user->n_name == name->n && memcmp(user->name, name->at, name->n) == 0;
}

static bool user_has_hash(const void *item, const void *key) {
    const struct static_user *user = item;
    return memcmp(user->userhash, key, STUN_USERHASH_BYTES) == 0;
}

static uint64_t name_hash(const char *name, size_t n_name) {
    return hash_bytes(&name_key, name, n_name);
}

static uint64_t userhash_hash(const uint8_t userhash[STUN_USERHASH_BYTES]) {
    return hash_bytes(&name_key, userhash, STUN_USERHASH_BYTES);
}

int credential_store_create(struct credential_store **out, const struct credential_params *params) {
    struct credential_store *store = calloc(1, sizeof *store);
    if (store == NULL) {
        return -ENOMEM;
    }
    store->rest_separator = params->rest_separator;
    store->no_auth = params->no_auth;
    store->realm = strdup(params->realm != NULL ? params->realm : "");
    int err = store->realm == NULL ? -ENOMEM : stun_crypto_create(&store->crypto);
    if (err < 0) {
        credential_store_destroy(store);
        return err;
    }
    *out = store;
    return 0;
}

/* Keys and passwords do not stay behind in freed memory. */
static void wipe(void *bytes, size_t n_bytes) {
    explicit_bzero(bytes, n_bytes);
}

static void wipe_text(char *text) {
    if (text != NULL) {
        wipe(text, strlen(text));
        free(text);
    }
}

static void user_free(struct static_user *user) {
    free(user->name);
    wipe(user, sizeof *user);
    free(user);
}

void credential_store_destroy(struct credential_store *store) {
    if (store == NULL) {
        return;
    }
    for (size_t i = 0; store->by_name.slots != NULL && i <= store->by_name.mask; i++) {
        if (store->by_name.slots[i].item != NULL) {
            user_free(store->by_name.slots[i].item);
        }
    }
    hash_table_deinit(&store->by_name);
    hash_table_deinit(&store->by_userhash);
    for (size_t i = 0; i < store->n_secrets; i++) {
        wipe_text(store->secrets[i]);
    }
    free(store->secrets);
    stun_crypto_destroy(store->crypto);
    free(store->realm);
    free(store);
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "0x" and nothing but hexadecimal digits: meant as a key. */
static bool is_hex_key(const char *secret) {
    if (secret[0] != '0' || (secret[1] != 'x' && secret[1] != 'X')) {
        return false;
    }
    for (secret += 2; *secret != '\0'; secret++) {
        if (hex_value(*secret) < 0) {
            return false;
        }
    }
    return true;
}

static int read_hex_key(struct stun_key *out, const char *secret) {
    enum { MD5_BYTES = 16 };
    if (strlen(secret) != 2 + 2 * MD5_BYTES) {
        return -EINVAL; /* a key with a digit lost must not become a password that nobody knows */
    }
    for (size_t i = 0; i < MD5_BYTES; i++) {
        out->bytes[i] = (uint8_t)(hex_value(secret[2 + 2 * i]) * 16 + hex_value(secret[3 + 2 * i]));
    }
    out->n_bytes = MD5_BYTES;
    return 0;
}

static int derive_keys(struct credential_store *store, struct static_user *user, const char *secret) {
    char *password;
    if (is_hex_key(secret)) {
        return read_hex_key(&user->md5, secret);
    }
    int err = stun_saslprep(&password, secret);
    if (err < 0) {
        return err;
    }
    err = password[0] == '\0' ? -EINVAL : 0; /* nothing but characters that are mapped to nothing */
    if (err == 0) {
        err = stun_key_derive(store->crypto, &user->md5, STUN_PASSWORD_ALGORITHM_MD5, user->name,
                              user->n_name, store->realm, password);
    }
    if (err == 0) {
        err = stun_key_derive(store->crypto, &user->sha256, STUN_PASSWORD_ALGORITHM_SHA256, user->name,
                              user->n_name, store->realm, password);
    }
    wipe_text(password);
    return err;
}

/* Everything about one line, not yet in the tables. */
static int user_create(struct static_user **out, struct credential_store *store, const char *line) {
    const char *colon = strchr(line, ':');
    if (colon == NULL || colon == line || colon[1] == '\0') {
        return -EINVAL;
    }
    struct static_user *user = calloc(1, sizeof *user);
    char *raw_name = strndup(line, (size_t)(colon - line));
    int err = user == NULL || raw_name == NULL ? -ENOMEM : stun_saslprep(&user->name, raw_name);
    free(raw_name);
    if (err < 0) {
        free(user);
        return err;
    }
    user->n_name = strlen(user->name);
    err = user->n_name == 0 || user->n_name > STUN_MAX_USERNAME_BYTES ? -EINVAL : 0;
    if (err == 0) {
        err = derive_keys(store, user, colon + 1);
    }
    if (err == 0 && !stun_userhash(store->crypto, user->userhash, user->name, user->n_name, store->realm)) {
        err = -ENOMEM;
    }
    if (err < 0) {
        user_free(user);
        return err;
    }
    *out = user;
    return 0;
}

/* The later line takes the place of the earlier one: same name, same user hash, so the tables stay as they
 * are. */
static void user_replace(struct credential_store *store, struct static_user *old, struct static_user *new) {
    store->n_with_password -= old->sha256.n_bytes != 0;
    store->n_with_password += new->sha256.n_bytes != 0;
    old->md5 = new->md5;
    old->sha256 = new->sha256;
    user_free(new);
}

int credential_store_add_user(struct credential_store *store, const char *line) {
    struct static_user *user;
    int err = user_create(&user, store, line);
    if (err < 0) {
        return err;
    }
    struct text name = {user->name, user->n_name};
    uint64_t hash = name_hash(user->name, user->n_name);
    struct static_user *old = hash_table_find(&store->by_name, hash, user_has_name, &name);
    if (old != NULL) {
        user_replace(store, old, user);
        return -EEXIST;
    }
    err = hash_table_add(&store->by_name, hash, user);
    if (err < 0) {
        user_free(user);
        return err;
    }
    err = hash_table_add(&store->by_userhash, userhash_hash(user->userhash), user);
    if (err < 0) {
        hash_table_remove(&store->by_name, hash, user);
        user_free(user);
        return err;
    }
    store->n_with_password += user->sha256.n_bytes != 0;
    return 0;
}

int credential_store_add_secret(struct credential_store *store, const char *secret) {
    if (secret[0] == '\0') {
        return -EINVAL; /* everybody knows the empty secret */
    }
    char **secrets = realloc(store->secrets, (store->n_secrets + 1) * sizeof *secrets);
    if (secrets == NULL) {
        return -ENOMEM;
    }
    store->secrets = secrets;
    char *copy = strdup(secret);
    if (copy == NULL) {
        return -ENOMEM;
    }
    secrets[store->n_secrets++] = copy;
    return 0;
}

bool credential_store_is_open(const struct credential_store *store) {
    return store->no_auth;
}

bool credential_store_has_users(const struct credential_store *store) {
    return store->by_name.n_items > 0;
}

bool credential_store_has_secrets(const struct credential_store *store) {
    return store->n_secrets > 0;
}

bool credential_store_has_passwords(const struct credential_store *store) {
    return store->n_secrets > 0 || store->n_with_password > 0;
}

/* ---- names of the REST scheme ---- */

/* Unix seconds in digits alone; false otherwise, and for 0, which no issuer means. */
static bool read_expiry(int64_t *out, const char *text, size_t n_text) {
    enum { MAX_DIGITS = 18 };
    int64_t value = 0;
    if (n_text == 0 || n_text > MAX_DIGITS) {
        return false;
    }
    for (size_t i = 0; i < n_text; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        value = value * 10 + (text[i] - '0');
    }
    *out = value;
    return value > 0;
}

struct rest_name {
    int64_t expiry_s;
    struct text user; /* within the name; all of it when there is no user part */
};

static const char *find_last(const char *text, size_t n_text, char c) {
    while (n_text > 0) {
        if (text[--n_text] == c) {
            return text + n_text;
        }
    }
    return NULL;
}

/* EXPIRY<sep>USER, USER<sep>EXPIRY or EXPIRY alone. A name of two numbers is the first form: else a user with
 * a large number for a name would have credentials without end. */
static bool read_rest_name(struct rest_name *out, char separator, const char *name, size_t n_name) {
    const char *end = name + n_name;
    const char *first = memchr(name, separator, n_name);
    const char *last = find_last(name, n_name, separator);
    out->user = (struct text){name, n_name};
    if (first == NULL) {
        return read_expiry(&out->expiry_s, name, n_name);
    }
    bool is_number_first = first > name;
    for (const char *p = name; p < first; p++) {
        is_number_first = is_number_first && *p >= '0' && *p <= '9';
    }
    if (is_number_first) {
        if (first + 1 < end) {
            out->user = (struct text){first + 1, (size_t)(end - first - 1)};
        }
        return read_expiry(&out->expiry_s, name, (size_t)(first - name));
    }
    if (last > name) {
        out->user = (struct text){name, (size_t)(last - name)};
    }
    return read_expiry(&out->expiry_s, last + 1, (size_t)(end - last - 1));
}

/* ---- looking up ---- */

static enum credential_result fill_rest(const struct credential_store *store, struct stun_crypto *crypto,
                                        const struct credential_query *query, const struct rest_name *rest,
                                        unsigned attempt, struct credential *out) {
    char password[32];
    memcpy(out->username, query->username, query->n_username);
    out->username[query->n_username] = '\0';
    out->user_part = out->username + (rest->user.at - query->username);
    out->n_user_part = rest->user.n;
    bool ok =
        stun_rest_password(crypto, password, store->secrets[attempt], query->username, query->n_username) &&
        stun_key_derive(crypto, &out->key, query->password_algorithm, query->username, query->n_username,
                        store->realm, password) == 0;
    wipe(password, sizeof password);
    return ok ? CREDENTIAL_FOUND : CREDENTIAL_UNKNOWN;
}

static bool fill_static(const struct static_user *user, uint16_t password_algorithm, struct credential *out) {
    const struct stun_key *key =
        password_algorithm == STUN_PASSWORD_ALGORITHM_SHA256 ? &user->sha256 : &user->md5;
    if (key->n_bytes == 0) {
        return false;
    }
    out->key = *key;
    memcpy(out->username, user->name, user->n_name + 1);
    out->user_part = out->username;
    out->n_user_part = user->n_name;
    return true;
}

static const struct static_user *find_static(const struct credential_store *store,
                                             const struct credential_query *query) {
    if (query->userhash != NULL) {
        return hash_table_find(&store->by_userhash, userhash_hash(query->userhash), user_has_hash,
                               query->userhash);
    }
    assert(query->username != NULL);
    struct text name = {query->username, query->n_username};
    return hash_table_find(&store->by_name, name_hash(name.at, name.n), user_has_name, &name);
}

/* Attempts 0..n_secrets-1 are the REST keys, when the name is of that form and in time; the one after them
 * (the first, otherwise) is the static user. */
enum credential_result credential_find(const struct credential_store *store, struct stun_crypto *crypto,
                                       const struct credential_query *query, unsigned attempt,
                                       struct credential *out) {
    bool is_expired = false;
    if (query->username != NULL) {
        struct rest_name rest;
        if (query->n_username > STUN_MAX_USERNAME_BYTES ||
            memchr(query->username, 0, query->n_username) != NULL) {
            return CREDENTIAL_UNKNOWN;
        }
        if (store->n_secrets > 0 &&
            read_rest_name(&rest, store->rest_separator, query->username, query->n_username)) {
            is_expired = rest.expiry_s < query->wall_s && !query->skip_expiry;
            if (!is_expired && attempt < store->n_secrets) {
                return fill_rest(store, crypto, query, &rest, attempt, out);
            }
            attempt -= is_expired ? 0 : (unsigned)store->n_secrets;
        }
    }
    const struct static_user *user = attempt == 0 ? find_static(store, query) : NULL;
    if (user != NULL && fill_static(user, query->password_algorithm, out)) {
        return CREDENTIAL_FOUND;
    }
    return is_expired ? CREDENTIAL_EXPIRED : CREDENTIAL_UNKNOWN;
}
