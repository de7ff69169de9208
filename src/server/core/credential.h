/* Long-term credentials (RFC 8489, 9.2): static users, and time-limited ones of the TURN REST scheme; both
 * may be on together, the REST form is tried first. Built at start, read-only afterwards, shared by all
 * threads. */
#ifndef TURN_CREDENTIAL_H
#define TURN_CREDENTIAL_H

#include "stun_integrity.h"

struct credential_store;

struct credential_params {
    const char *realm;   /* copied; NULL counts as "" */
    char rest_separator; /* ':' */
    bool no_auth;        /* requests are served without credentials */
};

int credential_store_create(struct credential_store **out, const struct credential_params *params);
void credential_store_destroy(struct credential_store *store);

/* "NAME:PASSWORD" (the first colon splits) or "NAME:0xHEXKEY" (MD5 key, 32 digits). SASLprep is applied.
 * -EINVAL when malformed (no name, no password, 0x with another number of hexadecimal digits), -EEXIST for a
 * second line of one name (the last one counts; the caller warns), -ENOMEM. */
int credential_store_add_user(struct credential_store *store, const char *line);
/* Another REST secret; all are tried. */
int credential_store_add_secret(struct credential_store *store, const char *secret);

bool credential_store_is_open(const struct credential_store *store); /* no_auth */
bool credential_store_has_users(const struct credential_store *store);
bool credential_store_has_secrets(const struct credential_store *store);
/* False when all there is are users known by their MD5 key alone: SHA-256 can then not be offered. */
bool credential_store_has_passwords(const struct credential_store *store);

enum credential_result { CREDENTIAL_FOUND, CREDENTIAL_UNKNOWN, CREDENTIAL_EXPIRED };

struct credential {
    struct stun_key key;
    char username[STUN_MAX_USERNAME_BYTES + 1]; /* the full name, also when USERHASH was given */
    size_t n_user_part;                         /* REST: the user part's place in it, for quotas; else all */
    const char *user_part;                      /* points into username: not to be copied with the struct */
};

/* What the request said about its user. Exactly one of username and userhash. */
struct credential_query {
    const char *username; /* not NUL-terminated */
    size_t n_username;
    const uint8_t *userhash; /* STUN_USERHASH_BYTES */
    uint16_t password_algorithm;
    int64_t wall_s;
    bool skip_expiry; /* an existing allocation goes on after its credential's end */
};
/* More than one key may be right (several REST secrets, a static user of the same name): `attempt` counts
 * from 0; the caller checks integrity and asks again with the next attempt until the answer is another than
 * CREDENTIAL_FOUND. CREDENTIAL_EXPIRED at the end tells that the name's time is over. */
enum credential_result credential_find(const struct credential_store *store, struct stun_crypto *crypto,
                                       const struct credential_query *query, unsigned attempt,
                                       struct credential *out);

#endif
