#include "core_fixture.h"

#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "nonce.h"

static void random_bytes(void *context, void *out, size_t n) {
    struct core_fixture *f = context;
    uint8_t *p = out;
    for (size_t i = 0; i < n; i++) {
        f->random_state = f->random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        p[i] = (uint8_t)(f->random_state >> 56);
    }
}

static void quiesce(void *context) {
    (void)context;
}

static void note_event(void *context, const struct core_event_info *info) {
    struct core_fixture *f = context;
    f->events[f->n_events++ % FIXTURE_MAX_EVENTS] = *info;
}

static int add_credentials(struct core_fixture *f, const struct core_fixture_params *params) {
    static const char *const usual[] = {"alice:wonder", "bob:builder", NULL};
    const char *const *users = params->users != NULL ? params->users : usual;
    int err = 0;
    for (; err == 0 && *users != NULL; users++) {
        err = credential_store_add_user(f->credentials, *users);
    }
    for (const char *const *s = params->secrets; err == 0 && s != NULL && *s != NULL; s++) {
        err = credential_store_add_secret(f->credentials, *s);
    }
    return err;
}

static int build(struct core_fixture *f, const struct core_fixture_params *params) {
    const struct credential_params credentials = {"example.org", ':', params->no_auth};
    const struct peer_policy_params policy = {.allow_loopback = false, .allow_private = true};
    int err = fake_carrier_create(&f->carrier, &params->carrier);
    err = err < 0 ? err : credential_store_create(&f->credentials, &credentials);
    err = err < 0 ? err : add_credentials(f, params);
    err = err < 0 ? err : peer_policy_create(&f->policy, &policy);
    for (const char *const *d = params->denied; err == 0 && d != NULL && *d != NULL; d++) {
        err = peer_policy_deny(f->policy, *d);
    }
    err = err < 0 ? err : quota_create(&f->quota, params->user_quota, params->total_quota);
    err = err < 0 ? err : stun_crypto_create(&f->crypto);
    return err;
}

static void configure(struct core_fixture *f, const struct core_fixture_params *params) {
    random_bytes(f, f->nonce_key, sizeof f->nonce_key);
    f->config = (struct core_config){
        .credentials = f->credentials,
        .policy = f->policy,
        .quota = f->quota,
        .realm = "example.org",
        .nonce_key = f->nonce_key,
        .nonce_lifetime_s = params->nonce_lifetime_s == 0 ? 600 : params->nonce_lifetime_s,
        .max_allocate_lifetime_s = params->max_lifetime_s == 0 ? 3600 : params->max_lifetime_s,
        .channel_lifetime_s = 600,
        .permission_lifetime_s = 300,
        .max_peers = 256,
    };
    f->host = (struct core_host){f, random_bytes, quiesce, note_event};
}

int core_fixture_create(struct core_fixture **out, const struct core_fixture_params *params) {
    struct core_fixture *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return -ENOMEM;
    }
    f->random_state = 1;
    f->now = (struct core_time){.now_us = UINT64_C(5000000000), .wall_s = FIXTURE_WALL_S};
    int err = build(f, params);
    if (err == 0) {
        configure(f, params);
        const struct core_params core = {&f->config, &f->host, &f->carrier->carrier, {1, 2}, 0};
        err = turn_core_create(&f->core, &core, f->now);
    }
    if (err < 0) {
        core_fixture_destroy(f);
        return err;
    }
    *out = f;
    return 0;
}

void core_fixture_destroy(struct core_fixture *f) {
    turn_core_destroy(f->core);
    stun_crypto_destroy(f->crypto);
    quota_destroy(f->quota);
    peer_policy_destroy(f->policy);
    credential_store_destroy(f->credentials);
    if (f->carrier != NULL) {
        fake_carrier_destroy(f->carrier);
    }
    free(f);
}

void core_fixture_pass(struct core_fixture *f, uint32_t seconds) {
    f->now.now_us += (uint64_t)seconds * 1000000;
    f->now.wall_s += seconds;
    turn_core_advance(f->core, f->now);
}

size_t core_fixture_count(const struct core_fixture *f, enum core_event event) {
    size_t n = 0;
    assert(f->n_events <= FIXTURE_MAX_EVENTS);
    for (size_t i = 0; i < f->n_events; i++) {
        n += f->events[i].event == event;
    }
    return n;
}

const struct core_event_info *core_fixture_last_event(const struct core_fixture *f) {
    assert(f->n_events > 0);
    return &f->events[(f->n_events - 1) % FIXTURE_MAX_EVENTS];
}

struct endpoint fixture_endpoint(const char *text) {
    struct endpoint e;
    int err = endpoint_parse(&e, text, 0);
    assert(err == 0);
    return e;
}

struct fixture_client fixture_client_of(struct core_fixture *f, const char *username, const char *password) {
    struct fixture_client c = {
        .f = f,
        .username = username,
        .password = password,
        .algorithm = STUN_PASSWORD_ALGORITHM_MD5,
        .kind = STUN_INTEGRITY_SHA1,
    };
    c.tuple.client = fixture_endpoint("198.51.100.11");
    c.tuple.client.port = (uint16_t)(20000 + f->n_clients++);
    c.tuple.server = fixture_endpoint("198.51.100.1:3478");
    c.tuple.transport = CLIENT_UDP;
    return c;
}

struct fixture_client fixture_client(struct core_fixture *f) {
    return fixture_client_of(f, "alice", "wonder");
}

/* ---- messages ---- */

void fixture_begin(struct core_fixture *f, struct fixture_message *m, enum stun_class class,
                   uint16_t method) {
    uint8_t transaction_id[STUN_TRANSACTION_ID_BYTES] = "fixture";
    wire_put_u32(transaction_id + 8, ++f->n_transactions);
    m->w = wire_writer_over(m->bytes, sizeof m->bytes);
    stun_message_begin(&m->w, class, method, transaction_id);
}

static bool find_in_reply(const struct core_fixture *f, uint16_t type, struct stun_attribute *out) {
    return f->n_reply_bytes > 0 && stun_message_find(&f->reply, type, out);
}

static void copy_text(char *out, size_t n_out, const struct stun_attribute *a) {
    assert(a->n_bytes < n_out);
    memcpy(out, a->value, a->n_bytes);
    out[a->n_bytes] = '\0';
}

void fixture_learn(struct fixture_client *c) {
    struct stun_attribute realm, nonce;
    bool found = find_in_reply(c->f, STUN_ATTR_REALM, &realm) && find_in_reply(c->f, STUN_ATTR_NONCE, &nonce);
    assert(found);
    copy_text(c->realm, sizeof c->realm, &realm);
    copy_text(c->nonce, sizeof c->nonce, &nonce);
}

void fixture_log_in(struct fixture_client *c) {
    struct fixture_message m;
    fixture_begin(c->f, &m, STUN_REQUEST, STUN_METHOD_REFRESH);
    int status = fixture_send(c, &m);
    assert(status == STUN_UNAUTHENTICATED);
    fixture_learn(c);
}

void fixture_sign(struct fixture_client *c, struct fixture_message *m) {
    static const uint16_t offered[] = {STUN_PASSWORD_ALGORITHM_MD5, STUN_PASSWORD_ALGORITHM_SHA256};
    if (c->nonce[0] == '\0') {
        fixture_log_in(c);
    }
    size_t n_username = strlen(c->username);
    if (c->use_userhash) {
        uint8_t userhash[STUN_USERHASH_BYTES];
        stun_userhash(c->f->crypto, userhash, c->username, n_username, c->realm);
        stun_write_bytes(&m->w, STUN_ATTR_USERHASH, userhash, sizeof userhash);
    } else {
        stun_write_bytes(&m->w, STUN_ATTR_USERNAME, c->username, n_username);
    }
    stun_write_bytes(&m->w, STUN_ATTR_REALM, c->realm, strlen(c->realm));
    stun_write_bytes(&m->w, STUN_ATTR_NONCE, c->nonce, strlen(c->nonce));
    if (c->algorithm == STUN_PASSWORD_ALGORITHM_SHA256) {
        stun_write_password_algorithms(&m->w, offered, 2);
        stun_write_password_algorithm(&m->w, c->algorithm);
    }
    int err =
        stun_key_derive(c->f->crypto, &c->key, c->algorithm, c->username, n_username, c->realm, c->password);
    assert(err == 0);
    stun_integrity_append(c->f->crypto, &m->w, c->kind, &c->key);
}

/* A reply to a signed request is signed the same way, but for challenges, and for what was refused before the
 * signature was looked at. */
static void check_integrity(struct fixture_client *c, const struct stun_integrity_place *request,
                            int status) {
    struct core_fixture *f = c->f;
    struct stun_integrity_place place;
    stun_integrity_find(&f->reply, &place);
    if (place.kind == STUN_INTEGRITY_NONE) {
        return;
    }
    assert(status != STUN_UNAUTHENTICATED && status != STUN_STALE_NONCE);
    assert(place.kind == request->kind);
    assert(stun_integrity_check(f->crypto, &f->reply, &place, &c->key));
}

static int reply_status(const struct core_fixture *f) {
    struct stun_attribute a;
    uint16_t code;
    if (f->reply.class == STUN_SUCCESS) {
        return STUN_OK;
    }
    bool found = find_in_reply(f, STUN_ATTR_ERROR_CODE, &a) && stun_read_error(&code, &a);
    assert(f->reply.class == STUN_ERROR && found);
    return code;
}

int fixture_send_bytes(struct fixture_client *c, const uint8_t *bytes, size_t n_bytes) {
    struct core_fixture *f = c->f;
    struct core_client client = {&c->tuple, c};
    struct stun_message message;
    struct stun_integrity_place place;
    bool has_fingerprint, asked_fingerprint;
    f->n_reply_bytes = 0;
    if (!stun_message_decode(&message, bytes, n_bytes)) {
        return FIXTURE_NO_REPLY;
    }
    f->n_reply_bytes = turn_core_handle_request(f->core, &client, &message, f->now, f->reply_bytes);
    if (f->n_reply_bytes == 0) {
        return FIXTURE_NO_REPLY;
    }
    bool ok = stun_message_decode(&f->reply, f->reply_bytes, f->n_reply_bytes);
    assert(ok && f->reply.method == message.method);
    assert(memcmp(f->reply.transaction_id, message.transaction_id, STUN_TRANSACTION_ID_BYTES) == 0);
    stun_fingerprint_check(&message, &asked_fingerprint);
    ok = stun_fingerprint_check(&f->reply, &has_fingerprint);
    assert(ok && has_fingerprint == (asked_fingerprint || f->config.fingerprint));
    int status = reply_status(f);
    stun_integrity_find(&message, &place);
    check_integrity(c, &place, status);
    return status;
}

int fixture_send(struct fixture_client *c, const struct fixture_message *m) {
    struct wire_writer w = m->w;
    size_t n_bytes = stun_message_end(&w);
    assert(n_bytes > 0);
    return fixture_send_bytes(c, m->bytes, n_bytes);
}

int fixture_ask(struct fixture_client *c, struct fixture_message *m) {
    if (c->username != NULL) {
        fixture_sign(c, m);
    }
    int status = fixture_send(c, m);
    struct stun_attribute unused;
    bool is_challenge = status == STUN_UNAUTHENTICATED || status == STUN_STALE_NONCE;
    bool is_signed = find_in_reply(c->f, STUN_ATTR_MESSAGE_INTEGRITY, &unused) ||
                     find_in_reply(c->f, STUN_ATTR_MESSAGE_INTEGRITY_SHA256, &unused);
    assert(c->username == NULL || is_challenge || is_signed || status == FIXTURE_NO_REPLY);
    return status;
}

int fixture_allocate_with(struct fixture_client *c, void (*add)(struct wire_writer *w)) {
    struct fixture_message m;
    fixture_begin(c->f, &m, STUN_REQUEST, STUN_METHOD_ALLOCATE);
    stun_write_u8_reserved(&m.w, STUN_ATTR_REQUESTED_TRANSPORT, STUN_TRANSPORT_UDP);
    if (add != NULL) {
        add(&m.w);
    }
    return fixture_ask(c, &m);
}

int fixture_allocate(struct fixture_client *c) {
    return fixture_allocate_with(c, NULL);
}

int fixture_refresh(struct fixture_client *c, uint32_t lifetime_s) {
    struct fixture_message m;
    fixture_begin(c->f, &m, STUN_REQUEST, STUN_METHOD_REFRESH);
    stun_write_u32(&m.w, STUN_ATTR_LIFETIME, lifetime_s);
    return fixture_ask(c, &m);
}

void fixture_write_peer(struct fixture_message *m, const char *peer) {
    struct endpoint e = fixture_endpoint(peer);
    stun_write_xor_address(&m->w, STUN_ATTR_XOR_PEER_ADDRESS, &e, m->bytes + 8);
}

int fixture_permit(struct fixture_client *c, const char *peer) {
    struct fixture_message m;
    fixture_begin(c->f, &m, STUN_REQUEST, STUN_METHOD_CREATE_PERMISSION);
    fixture_write_peer(&m, peer);
    return fixture_ask(c, &m);
}

int fixture_bind(struct fixture_client *c, uint16_t number, const char *peer) {
    struct fixture_message m;
    fixture_begin(c->f, &m, STUN_REQUEST, STUN_METHOD_CHANNEL_BIND);
    stun_write_u16_reserved(&m.w, STUN_ATTR_CHANNEL_NUMBER, number);
    fixture_write_peer(&m, peer);
    return fixture_ask(c, &m);
}

struct allocation *fixture_allocation(const struct fixture_client *c) {
    return allocation_find(turn_core_allocations(c->f->core), &c->tuple);
}

/* ---- replies ---- */

bool fixture_has(const struct core_fixture *f, uint16_t type) {
    struct stun_attribute unused;
    return find_in_reply(f, type, &unused);
}

size_t fixture_count(const struct core_fixture *f, uint16_t type) {
    struct stun_attribute at = {0};
    size_t n = 0;
    while (f->n_reply_bytes > 0 && stun_message_next(&f->reply, &at)) {
        n += at.type == type;
    }
    return n;
}

uint32_t fixture_u32(const struct core_fixture *f, uint16_t type) {
    struct stun_attribute a;
    uint32_t value;
    bool found = find_in_reply(f, type, &a) && stun_read_u32(&value, &a);
    assert(found);
    return value;
}

struct endpoint fixture_address(const struct core_fixture *f, uint16_t type, size_t index) {
    struct stun_attribute at = {0};
    struct endpoint e = {0};
    while (stun_message_next(&f->reply, &at)) {
        if (at.type == type && index-- == 0) {
            bool ok = stun_read_xor_address(&e, &at, &f->reply);
            assert(ok);
            return e;
        }
    }
    assert(!"no such address in the reply");
    return e;
}
