#include <errno.h>
#include <stdlib.h>

#include "turn_client_internal.h"

enum { REQUEST_MAX_BYTES = 4096 };

static void write_text(struct wire_writer *w, uint16_t type, const char *text) {
    stun_write_bytes(w, type, text, strlen(text));
}

static void write_allocate(struct wire_writer *w, const struct turn_client_params *p) {
    uint8_t transport = p->requested_transport != 0 ? p->requested_transport : STUN_TRANSPORT_UDP;
    stun_write_u8_reserved(w, STUN_ATTR_REQUESTED_TRANSPORT, transport);
    if (p->lifetime_s != 0) {
        stun_write_u32(w, STUN_ATTR_LIFETIME, p->lifetime_s);
    }
    if (p->requested_family != 0) {
        stun_write_u8_reserved(w, STUN_ATTR_REQUESTED_ADDRESS_FAMILY, p->requested_family);
    }
    if (p->additional_family != 0) {
        stun_write_u8_reserved(w, STUN_ATTR_ADDITIONAL_ADDRESS_FAMILY, p->additional_family);
    }
    if (p->even_port) {
        stun_write_even_port(w, p->reserve_next);
    }
    if (p->has_reservation_token) {
        stun_write_bytes(w, STUN_ATTR_RESERVATION_TOKEN, p->reservation_token, sizeof p->reservation_token);
    }
    if (p->dont_fragment) {
        stun_write_bytes(w, STUN_ATTR_DONT_FRAGMENT, NULL, 0);
    }
    if (p->mobility) {
        stun_write_bytes(w, STUN_ATTR_MOBILITY_TICKET, NULL, 0); /* RFC 8016, 3.1.1: empty asks for one */
    }
}

static void write_method_attributes(const struct turn_client *client, struct wire_writer *w,
                                    const struct turn_request *request, const uint8_t *id) {
    if (request->method == STUN_METHOD_ALLOCATE) {
        write_allocate(w, &client->params);
    }
    if (request->method == STUN_METHOD_CHANNEL_BIND) {
        stun_write_u16_reserved(w, STUN_ATTR_CHANNEL_NUMBER,
                                (uint16_t)(CHANNEL_NUMBER_MIN + request->peers[0]));
    }
    if (request->method == STUN_METHOD_CONNECTION_BIND) {
        stun_write_u32(w, STUN_ATTR_CONNECTION_ID, request->connection_id);
    }
    if (request->method == STUN_METHOD_CONNECT) {
        stun_write_xor_address(w, STUN_ATTR_XOR_PEER_ADDRESS, &request->connect_peer, id);
    }
    if (request->has_lifetime) {
        stun_write_u32(w, STUN_ATTR_LIFETIME, request->lifetime_s);
    }
    if (request->move) {
        stun_write_bytes(w, STUN_ATTR_MOBILITY_TICKET, client->ticket.bytes, client->ticket.n_bytes);
    }
    for (size_t i = 0; i < request->n_peers; i++) {
        stun_write_xor_address(w, STUN_ATTR_XOR_PEER_ADDRESS, &client->peers[request->peers[i]].address, id);
    }
}

static void write_credentials(const struct turn_client *client, struct wire_writer *w) {
    if (client->use_userhash) {
        stun_write_bytes(w, STUN_ATTR_USERHASH, client->userhash, sizeof client->userhash);
    } else {
        write_text(w, STUN_ATTR_USERNAME, client->username);
    }
    write_text(w, STUN_ATTR_REALM, client->realm);
    stun_write_bytes(w, STUN_ATTR_NONCE, client->nonce.bytes, client->nonce.n_bytes);
    if (client->password_algorithm != 0) {
        stun_write_bytes(w, STUN_ATTR_PASSWORD_ALGORITHMS, client->algorithms, client->n_algorithms);
        stun_write_password_algorithm(w, client->password_algorithm);
    }
    stun_integrity_append(client->params.crypto, w, client->integrity, &client->key);
}

static bool request_is_authenticated(const struct turn_client *client, const struct turn_request *request) {
    return client->realm != NULL && (request->authenticate || request->method != STUN_METHOD_BINDING);
}

static size_t request_encode(const struct turn_client *client, uint8_t out[REQUEST_MAX_BYTES],
                             const struct turn_request *request, const uint8_t *id) {
    struct wire_writer w = wire_writer_over(out, REQUEST_MAX_BYTES);
    stun_message_begin(&w, STUN_REQUEST, request->method, id);
    write_method_attributes(client, &w, request, id);
    if (client->software != NULL) {
        write_text(&w, STUN_ATTR_SOFTWARE, client->software);
    }
    if (request_is_authenticated(client, request)) {
        write_credentials(client, &w);
    }
    if (client->params.fingerprint) {
        stun_fingerprint_append(&w);
    }
    return stun_message_end(&w);
}

static void transaction_add(struct turn_client *client, struct turn_transaction *t) {
    struct turn_transaction **last = &client->transactions;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = t;
    client->n_transactions++;
    for (size_t i = 0; i < t->request.n_peers; i++) {
        client->peers[t->request.peers[i]].is_busy = true;
    }
}

int turn_request_start(struct turn_client *client, const struct turn_request *request, uint64_t now_us) {
    if (client->n_transactions >= TURN_CLIENT_MAX_TRANSACTIONS) {
        return -EBUSY;
    }
    uint8_t id[STUN_TRANSACTION_ID_BYTES], bytes[REQUEST_MAX_BYTES];
    client->params.random(client->params.random_context, id, sizeof id);
    size_t n_bytes = request_encode(client, bytes, request, id);
    if (n_bytes == 0) {
        return -EMSGSIZE;
    }
    struct turn_transaction *t = calloc(1, sizeof *t + n_bytes);
    if (t == NULL) {
        return -ENOMEM;
    }
    t->request = *request;
    t->is_authenticated = request_is_authenticated(client, request);
    t->is_pending = true;
    t->n_sent = 1;
    t->deadline_us = now_us + turn_retransmission_wait_us(&client->params, 1);
    t->n_bytes = n_bytes;
    memcpy(t->id, id, sizeof id);
    memcpy(t->bytes, bytes, n_bytes);
    transaction_add(client, t);
    return 0;
}

void turn_transaction_remove(struct turn_client *client, struct turn_transaction *t) {
    struct turn_transaction **at = &client->transactions;
    while (*at != t) {
        at = &(*at)->next;
    }
    *at = t->next;
    client->n_transactions--;
    for (size_t i = 0; i < t->request.n_peers; i++) {
        client->peers[t->request.peers[i]].is_busy = false;
    }
    free(t);
}

/* RFC 8489, 6.2.1: the RTO doubles; after the last of Rc = 7 sends, Rm = 16 RTOs are waited. 6.2.2: over a
 * stream there is one send, and the same time in all (Ti = 39.5 s by default). */
uint64_t turn_retransmission_wait_us(const struct turn_client_params *params, unsigned n_sent) {
    uint64_t rto_us = params->rto_us;
    if (params->is_stream) {
        return rto_us * ((1u << (REQUEST_MAX_SENDS - 1)) - 1 + LAST_WAIT_RTOS);
    }
    return n_sent >= REQUEST_MAX_SENDS ? rto_us * LAST_WAIT_RTOS : rto_us << (n_sent - 1);
}

/* ---- what the server challenges with ---- */

int turn_blob_set(struct turn_blob *blob, const uint8_t *bytes, size_t n_bytes) {
    uint8_t *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    if (copy == NULL) {
        return -ENOMEM;
    }
    if (n_bytes > 0) {
        memcpy(copy, bytes, n_bytes);
    }
    free(blob->bytes);
    *blob = (struct turn_blob){copy, n_bytes};
    return 0;
}

/* The 24 feature bits of a nonce that starts with the nonce cookie, else 0 (RFC 8489, 9.2). */
static uint32_t nonce_features(const struct stun_attribute *nonce) {
    static const char cookie[] = "obMatJos2";
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    enum { N_COOKIE = sizeof cookie - 1, N_FEATURES = 4 };
    if (nonce->n_bytes < N_COOKIE + N_FEATURES || memcmp(nonce->value, cookie, N_COOKIE) != 0) {
        return 0;
    }
    uint32_t features = 0;
    for (size_t i = 0; i < N_FEATURES; i++) {
        const char *digit = memchr(base64, nonce->value[N_COOKIE + i], sizeof base64 - 1);
        if (digit == NULL) {
            return 0;
        }
        features = features << 6 | (uint32_t)(digit - base64);
    }
    return features;
}

/* The RFC's text counts bits from the most significant one, its sample B.1 from the other end: both are
 * taken. */
enum {
    FEATURE_PASSWORD_ALGORITHMS = 1 << 23 | 1,
    FEATURE_USERNAME_ANONYMITY = 1 << 22 | 2,
};

/* A challenge while it is looked at; it takes the client's place once all of it is good. */
struct challenge {
    struct stun_attribute realm, nonce, algorithms;
    bool has_algorithms;
    uint32_t features;
    uint16_t password_algorithm;
};

/* SHA-256 if it is there, else MD5 (RFC 8489, 9.2.5). */
static int challenge_choose(struct challenge *c) {
    uint16_t numbers[MAX_ALGORITHMS_BYTES / 4];
    size_t n;
    if (!stun_read_password_algorithms(numbers, MAX_ALGORITHMS_BYTES / 4, &n, &c->algorithms)) {
        return -EBADMSG;
    }
    for (size_t i = 0; i < n; i++) {
        bool is_known =
            numbers[i] == STUN_PASSWORD_ALGORITHM_MD5 || numbers[i] == STUN_PASSWORD_ALGORITHM_SHA256;
        if (is_known && numbers[i] > c->password_algorithm) {
            c->password_algorithm = numbers[i];
        }
    }
    return c->password_algorithm != 0 && c->algorithms.n_bytes <= MAX_ALGORITHMS_BYTES ? 0 : -EPROTO;
}

static int challenge_read(struct challenge *c, const struct turn_client *client,
                          const struct stun_message *message, size_t limit) {
    *c = (struct challenge){0};
    if (!turn_find_within(message, limit, STUN_ATTR_REALM, &c->realm) ||
        !turn_find_within(message, limit, STUN_ATTR_NONCE, &c->nonce) ||
        c->realm.n_bytes > STUN_MAX_REALM_BYTES || c->nonce.n_bytes > STUN_MAX_NONCE_BYTES ||
        memchr(c->realm.value, '\0', c->realm.n_bytes) != NULL) {
        return -EBADMSG;
    }
    if (client->params.legacy_integrity) {
        return 0;
    }
    c->features = nonce_features(&c->nonce);
    c->has_algorithms = turn_find_within(message, limit, STUN_ATTR_PASSWORD_ALGORITHMS, &c->algorithms);
    if (c->has_algorithms) {
        return challenge_choose(c);
    }
    /* RFC 8489, 9.2.5: the list was promised, so somebody has taken it out. */
    return (c->features & FEATURE_PASSWORD_ALGORITHMS) != 0 ? -EPROTO : 0;
}

static void challenge_install(struct turn_client *client, const struct challenge *c, char *realm,
                              const struct stun_key *key) {
    free(client->realm);
    client->realm = realm;
    client->key = *key;
    client->integrity = c->has_algorithms ? STUN_INTEGRITY_SHA256 : STUN_INTEGRITY_SHA1;
    client->password_algorithm = c->password_algorithm;
    client->n_algorithms = 0;
    if (c->has_algorithms) {
        client->n_algorithms = (uint8_t)c->algorithms.n_bytes;
        memcpy(client->algorithms, c->algorithms.value, c->algorithms.n_bytes);
    }
}

int turn_challenge_accept(struct turn_client *client, const struct stun_message *message, size_t limit) {
    struct challenge c;
    int err = challenge_read(&c, client, message, limit);
    if (err < 0) {
        return err;
    }
    char *realm = strndup((const char *)c.realm.value, c.realm.n_bytes);
    if (realm == NULL) {
        return -ENOMEM;
    }
    struct stun_crypto *crypto = client->params.crypto;
    uint16_t algorithm = c.password_algorithm != 0 ? c.password_algorithm : STUN_PASSWORD_ALGORITHM_MD5;
    size_t n_username = strlen(client->username);
    struct stun_key key;
    uint8_t userhash[STUN_USERHASH_BYTES];
    bool use_userhash = client->params.userhash && (c.features & FEATURE_USERNAME_ANONYMITY) != 0;
    err = stun_key_derive(crypto, &key, algorithm, client->username, n_username, realm, client->password);
    if (err == 0 && !stun_userhash(crypto, userhash, client->username, n_username, realm)) {
        err = -ENOMEM;
    }
    if (err == 0) {
        err = turn_blob_set(&client->nonce, c.nonce.value, c.nonce.n_bytes);
    }
    if (err < 0) {
        free(realm);
        return err;
    }
    challenge_install(client, &c, realm, &key);
    client->use_userhash = use_userhash;
    memcpy(client->userhash, userhash, sizeof userhash);
    return 0;
}

void turn_challenge_forget(struct turn_client *client) {
    free(client->realm);
    free(client->nonce.bytes);
    client->realm = NULL;
    client->nonce = (struct turn_blob){NULL, 0};
    client->key = (struct stun_key){0};
}
