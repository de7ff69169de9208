#include "fake_turn_server.h"

const struct endpoint fake_relayed4 = {.family = AF_INET, .port = 50000, .ip = {198, 51, 100, 1}};
const struct endpoint fake_relayed6 = {.family = AF_INET6, .port = 50001, .ip = {0x20, 1, 0xd, 0xb8, 1}};
const struct endpoint fake_mapped = {.family = AF_INET, .port = 40000, .ip = {203, 0, 113, 7}};
const struct endpoint fake_alternate = {.family = AF_INET, .port = 3478, .ip = {203, 0, 113, 9}};

static const uint16_t default_algorithms[] = {STUN_PASSWORD_ALGORITHM_SHA256, STUN_PASSWORD_ALGORITHM_MD5};

static bool text_is(const struct stun_message *m, uint16_t type, const char *text) {
    struct stun_attribute a;
    return stun_message_find(m, type, &a) && a.n_bytes == strlen(text) &&
           memcmp(a.value, text, a.n_bytes) == 0;
}

static void look_at(struct fake_turn_server *server, const struct stun_message *m) {
    struct stun_attribute a = {0};
    memset(&server->seen, 0, sizeof server->seen);
    server->seen.method = (enum stun_method)m->method;
    memcpy(server->seen.id, m->transaction_id, STUN_TRANSACTION_ID_BYTES);
    while (stun_message_next(m, &a)) {
        if (a.type == STUN_ATTR_XOR_PEER_ADDRESS && server->seen.n_peers++ == 0) {
            (void)stun_read_xor_address(&server->seen.peer, &a, m);
        }
    }
    server->seen.had_lifetime =
        stun_message_find(m, STUN_ATTR_LIFETIME, &a) && stun_read_u32(&server->seen.lifetime_s, &a);
    if (stun_message_find(m, STUN_ATTR_CHANNEL_NUMBER, &a)) {
        (void)stun_read_u16_reserved(&server->seen.channel, &a);
    }
    server->seen.had_ticket = stun_message_find(m, STUN_ATTR_MOBILITY_TICKET, &a);
    server->seen.n_ticket = server->seen.had_ticket ? a.n_bytes : 0;
}

static bool is_user(struct fake_turn_server *server, const struct stun_message *m) {
    struct stun_attribute a;
    uint8_t hash[STUN_USERHASH_BYTES];
    if (!stun_message_find(m, STUN_ATTR_USERHASH, &a)) {
        return text_is(m, STUN_ATTR_USERNAME, server->username);
    }
    server->seen.had_userhash = true;
    return stun_userhash(server->crypto, hash, server->username, strlen(server->username), server->realm) &&
           a.n_bytes == sizeof hash && memcmp(hash, a.value, sizeof hash) == 0;
}

/* The status of the request's credentials; *key is what the answer is signed with. */
static enum stun_status authenticate(struct fake_turn_server *server, const struct stun_message *m,
                                     struct stun_key *key) {
    struct stun_integrity_place place;
    struct stun_attribute a;
    uint16_t algorithm = STUN_PASSWORD_ALGORITHM_MD5;
    stun_integrity_find(m, &place);
    if (server->username == NULL) {
        return STUN_OK;
    }
    if (place.kind == STUN_INTEGRITY_NONE || !is_user(server, m) ||
        !text_is(m, STUN_ATTR_REALM, server->realm)) {
        return STUN_UNAUTHENTICATED;
    }
    if (stun_message_find(m, STUN_ATTR_PASSWORD_ALGORITHM, &a) &&
        !stun_read_password_algorithm(&algorithm, &a)) {
        return STUN_BAD_REQUEST;
    }
    if (stun_key_derive(server->crypto, key, algorithm, server->username, strlen(server->username),
                        server->realm, server->password) < 0 ||
        !stun_integrity_check(server->crypto, m, &place, key)) {
        return STUN_UNAUTHENTICATED;
    }
    server->seen.was_authenticated = true;
    server->seen.integrity = place.kind;
    server->seen.algorithm = algorithm;
    return text_is(m, STUN_ATTR_NONCE, server->nonce) ? STUN_OK : STUN_STALE_NONCE;
}

static void write_error(const struct fake_turn_server *server, struct wire_writer *w,
                        enum stun_status status) {
    stun_write_error(w, status, NULL);
    if (status == STUN_TRY_ALTERNATE) {
        stun_write_address(w, STUN_ATTR_ALTERNATE_SERVER, &fake_alternate);
    }
    if (status != STUN_UNAUTHENTICATED && status != STUN_STALE_NONCE) {
        return;
    }
    stun_write_bytes(w, STUN_ATTR_REALM, server->realm, strlen(server->realm));
    stun_write_bytes(w, STUN_ATTR_NONCE, server->nonce, strlen(server->nonce));
    if (server->algorithms != NULL) {
        stun_write_password_algorithms(w, server->algorithms, server->n_algorithms);
    } else if (server->offers_algorithms) {
        stun_write_password_algorithms(w, default_algorithms, 2);
    }
}

static void write_allocated(const struct fake_turn_server *server, struct wire_writer *w, const uint8_t *id) {
    if (!server->leaves_out_relayed) {
        stun_write_xor_address(w, STUN_ATTR_XOR_RELAYED_ADDRESS, &fake_relayed4, id);
    }
    if (server->gives_second_address) {
        stun_write_xor_address(w, STUN_ATTR_XOR_RELAYED_ADDRESS, &fake_relayed6, id);
    }
    if (server->refuses_second_family) {
        stun_write_address_error(w, STUN_FAMILY_IPV6, STUN_ADDRESS_FAMILY_NOT_SUPPORTED);
    }
    if (server->gives_token) {
        stun_write_bytes(w, STUN_ATTR_RESERVATION_TOKEN, "8 bytes!", 8);
    }
}

static void write_success(const struct fake_turn_server *server, struct wire_writer *w, const uint8_t *id) {
    enum stun_method method = server->seen.method;
    if (method == STUN_METHOD_ALLOCATE) {
        write_allocated(server, w, id);
    }
    if (method == STUN_METHOD_BINDING || method == STUN_METHOD_ALLOCATE) {
        stun_write_xor_address(w, STUN_ATTR_XOR_MAPPED_ADDRESS, &fake_mapped, id);
    }
    if (method == STUN_METHOD_ALLOCATE || method == STUN_METHOD_REFRESH) {
        bool is_release = server->seen.had_lifetime && server->seen.lifetime_s == 0;
        stun_write_u32(w, STUN_ATTR_LIFETIME, is_release ? 0 : server->lifetime_s);
        if (server->ticket != NULL) {
            stun_write_bytes(w, STUN_ATTR_MOBILITY_TICKET, server->ticket, strlen(server->ticket));
        }
    }
    if (method == STUN_METHOD_CONNECT) {
        stun_write_u32(w, STUN_ATTR_CONNECTION_ID, server->connection_id);
    }
    if (server->adds_unknown_attribute) {
        stun_write_u32(w, 0x7FFF, 1);
    }
}

size_t fake_turn_server_answer(struct fake_turn_server *server, const uint8_t *request, size_t n_bytes,
                               uint8_t *out, size_t out_size) {
    struct stun_message m;
    struct stun_key key = {0};
    bool has_fingerprint;
    if (!stun_message_decode(&m, request, n_bytes) || m.class != STUN_REQUEST ||
        !stun_fingerprint_check(&m, &has_fingerprint)) {
        return 0;
    }
    server->n_requests++;
    look_at(server, &m);
    server->seen.had_fingerprint = has_fingerprint;
    enum stun_status status = m.method == STUN_METHOD_BINDING ? STUN_OK : authenticate(server, &m, &key);
    if (status == STUN_OK && server->error != 0) {
        status = (enum stun_status)server->error;
    }
    struct wire_writer w = wire_writer_over(out, out_size);
    stun_message_begin(&w, status == STUN_OK ? STUN_SUCCESS : STUN_ERROR, m.method, m.transaction_id);
    if (status == STUN_OK) {
        write_success(server, &w, m.transaction_id);
    } else {
        write_error(server, &w, status);
    }
    if (server->seen.was_authenticated && !server->leaves_out_integrity) {
        key.bytes[0] ^= server->damages_integrity;
        stun_integrity_append(server->crypto, &w, server->seen.integrity, &key);
    }
    return stun_message_end(&w);
}
