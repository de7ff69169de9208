/* Whole sessions with the core: the input is a script of steps by three clients (challenge, Allocate,
 * permission, channel, Send, data from peers, time), each request well-formed or spoiled. Whatever it says:
 * replies are sound, nothing is granted without credentials, and in the end nothing is held. */
#undef NDEBUG
#include <assert.h>
#include <stdlib.h>

#include "peer_table.h"
#include "turn_core.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

enum { N_CLIENTS = 3, N_ADDRESSES = 6, MAX_STEPS = 200, SHARED_V4 = 4, SHARED_V6 = 5 };

struct client {
    struct five_tuple tuple;
    const char *username, *password;
    char nonce[STUN_MAX_NONCE_BYTES + 1];
};

/* Four addresses of their own (EVEN-PORT reserves in pairs) and a shared one of each family. */
struct world {
    struct relayed_address addresses[N_ADDRESSES];
    bool taken[N_ADDRESSES];
    int reserved; /* index, or -1 */
    uint32_t n_held;
    bool shared;
    struct relay_carrier carrier;
    struct core_config config;
    struct core_host host;
    struct turn_core *core;
    struct core_time now;
    struct client clients[N_CLIENTS];
    uint32_t n_random, n_transactions;
    uint8_t request[2048], reply[CORE_REPLY_MAX_BYTES];
    struct stun_message reply_message;
};

/* What all inputs share and none can change. */
struct fixed {
    struct stun_crypto *crypto;
    struct credential_store *credentials;
    struct peer_policy *policy;
    struct quota *quota;
};

/* ---- the carrier and the host ---- */

static bool serves(void *context, enum relay_family family) {
    (void)context, (void)family;
    return true;
}

static int choose_address(struct world *w, const struct relay_request *request) {
    if (request->token != NULL) {
        int reserved = w->reserved;
        w->reserved = -1;
        return reserved >= 0 && request->token[0] == reserved ? reserved : -1;
    }
    if (w->shared && !request->even_port) {
        return request->family == RELAY_V6 ? SHARED_V6 : SHARED_V4;
    }
    for (int i = 0; i < SHARED_V4; i += 2) {
        if (!w->taken[i] && i != w->reserved && w->addresses[i].local.family == AF_INET &&
            request->family == RELAY_V4 &&
            (!request->reserve_next || (w->reserved < 0 && !w->taken[i + 1]))) {
            return i;
        }
    }
    return !w->taken[3] && w->reserved != 3 && request->family == RELAY_V6 ? 3 : -1;
}

static enum stun_status acquire(void *context, const struct relay_request *request,
                                struct relayed_address **out,
                                uint8_t out_token[STUN_RESERVATION_TOKEN_BYTES]) {
    struct world *w = context;
    int i = choose_address(w, request);
    if (i < 0) {
        return STUN_INSUFFICIENT_CAPACITY;
    }
    if (request->reserve_next && request->token == NULL && i < SHARED_V4) {
        w->reserved = i + 1;
        memset(out_token, 0, STUN_RESERVATION_TOKEN_BYTES);
        out_token[0] = (uint8_t)(i + 1);
    }
    assert(!w->taken[i] || i >= SHARED_V4);
    w->taken[i] = true;
    w->n_held++;
    *out = &w->addresses[i];
    return STUN_OK;
}

static void release(void *context, struct relayed_address *address) {
    struct world *w = context;
    assert(w->n_held > 0 && w->taken[address - w->addresses]);
    w->n_held--;
    w->taken[address - w->addresses] = address->shared;
}

static bool locate(void *context, const struct endpoint *peer, struct relay_location *out) {
    struct world *w = context;
    for (int i = 0; i < N_ADDRESSES; i++) {
        if (endpoint_equal(&w->addresses[i].advertised, peer)) {
            *out = (struct relay_location){.thread = 0, .local = w->addresses[i].local};
            return true;
        }
    }
    return false;
}

static void random_bytes(void *context, void *out, size_t n) {
    struct world *w = context;
    memset(out, (int)++w->n_random, n);
}

static void quiesce(void *context) {
    (void)context;
}

static void event(void *context, const struct core_event_info *info) {
    (void)context;
    assert(info->five_tuple != NULL && (info->username != NULL || info->n_username == 0));
}

/* ---- building ---- */

static void fixed_init(struct fixed *fixed) {
    const struct credential_params credentials = {"example.org", ':', false};
    const struct peer_policy_params policy = {false, true};
    int err = stun_crypto_create(&fixed->crypto);
    err |= credential_store_create(&fixed->credentials, &credentials);
    err |= credential_store_add_user(fixed->credentials, "alice:wonder");
    err |= credential_store_add_user(fixed->credentials, "bob:builder");
    err |= credential_store_add_secret(fixed->credentials, "north");
    err |= peer_policy_create(&fixed->policy, &policy);
    err |= peer_policy_deny(fixed->policy, "203.0.113.4");
    err |= quota_create(&fixed->quota, 2, 0);
    assert(err == 0);
}

static const struct fixed *fixed_get(void) {
    static struct fixed fixed; /* kept reachable until the process ends */
    if (fixed.crypto == NULL) {
        fixed_init(&fixed);
    }
    return &fixed;
}

static struct endpoint parse(const char *text) {
    struct endpoint e;
    int err = endpoint_parse(&e, text, 0);
    assert(err == 0);
    return e;
}

static void world_init(struct world *w, const struct fixed *fixed, uint8_t flags) {
    static const uint8_t nonce_key[32] = {1};
    static const char *const texts[N_ADDRESSES] = {"192.0.2.1:50000", "192.0.2.1:50001",
                                                   "192.0.2.1:50002", "[2001:db8::1]:50003",
                                                   "192.0.2.1:3480",  "[2001:db8::1]:3481"};
    static const char *const users[N_CLIENTS][2] = {
        {"alice", "wonder"}, {"bob", "builder"}, {"alice", "wrong"}};
    for (int i = 0; i < N_ADDRESSES; i++) {
        w->addresses[i].id = (uint32_t)i + 1;
        w->addresses[i].shared = i >= SHARED_V4;
        w->addresses[i].local = w->addresses[i].advertised = parse(texts[i]);
    }
    for (int i = 0; i < N_CLIENTS; i++) {
        w->clients[i].username = users[i][0], w->clients[i].password = users[i][1];
        w->clients[i].tuple.client = parse("198.51.100.11:5000");
        w->clients[i].tuple.client.port = (uint16_t)(5000 + i);
        w->clients[i].tuple.server = parse("198.51.100.1:3478");
    }
    w->reserved = -1;
    w->shared = (flags & 1) != 0;
    w->carrier = (struct relay_carrier){w, serves, acquire, release, locate};
    w->host = (struct core_host){w, random_bytes, quiesce, event};
    w->config = (struct core_config){
        .credentials = fixed->credentials,
        .policy = fixed->policy,
        .quota = fixed->quota,
        .realm = "example.org",
        .nonce_key = nonce_key,
        .nonce_lifetime_s = 600,
        .max_allocate_lifetime_s = 3600,
        .channel_lifetime_s = 600,
        .permission_lifetime_s = 300,
        .max_peers = 8,
        .fingerprint = (flags & 2) != 0,
        .secure_stun = (flags & 4) != 0,
        .channel_numbers_5766 = (flags & 8) != 0,
        .reason_strings = (flags & 16) != 0,
    };
    w->now = (struct core_time){.now_us = 5000000000, .wall_s = 1800000000};
    const struct core_params params = {&w->config, &w->host, &w->carrier, {1, 2}, 0};
    int err = turn_core_create(&w->core, &params, w->now);
    assert(err == 0);
}

/* ---- steps ---- */

static void learn_nonce(struct world *w, struct client *c) {
    struct stun_attribute a;
    if (stun_message_find(&w->reply_message, STUN_ATTR_NONCE, &a) && a.n_bytes < sizeof c->nonce) {
        memcpy(c->nonce, a.value, a.n_bytes);
        c->nonce[a.n_bytes] = '\0';
    }
}

/* Send indications go the way the relay takes them, all else is a request or to be ignored. */
static void deliver(struct world *w, struct client *c, const uint8_t *bytes, size_t n_bytes, bool is_honest) {
    struct stun_message m;
    if (!stun_message_decode(&m, bytes, n_bytes)) {
        return;
    }
    struct allocation *a = allocation_find(turn_core_allocations(w->core), &c->tuple);
    if (m.class == STUN_INDICATION && m.method == STUN_METHOD_SEND) {
        struct send_indication out;
        if (a != NULL && indication_send_decode(w->core, a, &m, &out) == DROP_NONE) {
            assert(out.permission != NULL && out.data >= bytes && out.data + out.n_data <= bytes + n_bytes);
            peer_table_note_sent(a, NULL, &out.peer, out.data, out.n_data, w->now.now_us);
        }
        return;
    }
    const struct core_client client = {&c->tuple, c};
    size_t n = turn_core_handle_request(w->core, &client, &m, w->now, w->reply);
    if (n == 0) {
        return;
    }
    bool unused, ok = stun_message_decode(&w->reply_message, w->reply, n);
    assert(ok && m.class == STUN_REQUEST && w->reply_message.method == m.method);
    assert(stun_fingerprint_check(&w->reply_message, &unused));
    assert(w->reply_message.class == STUN_ERROR || is_honest || m.method == STUN_METHOD_BINDING);
    learn_nonce(w, c);
}

static void write_peer(struct world *w, struct wire_writer *out, struct wire_reader *script) {
    uint8_t choice = wire_read_u8(script);
    struct endpoint e = parse(choice & 0x80 ? "2001:db8:200::1" : "203.0.113.0");
    if (choice & 0x40) {
        e = w->addresses[choice % N_ADDRESSES].advertised;
    } else {
        e.ip[choice & 0x80 ? 15 : 3] = choice & 7;
        e.port = (uint16_t)(5000 + (choice >> 3 & 7));
    }
    stun_write_xor_address(out, STUN_ATTR_XOR_PEER_ADDRESS, &e, w->request + 8);
}

static void write_usual_attributes(struct world *w, struct wire_writer *out, uint16_t method,
                                   struct wire_reader *script) {
    switch (method) {
    case STUN_METHOD_ALLOCATE:
        stun_write_u8_reserved(out, STUN_ATTR_REQUESTED_TRANSPORT, STUN_TRANSPORT_UDP);
        break;
    case STUN_METHOD_REFRESH:
        stun_write_u32(out, STUN_ATTR_LIFETIME, (uint32_t)wire_read_u8(script) * 20);
        break;
    case STUN_METHOD_CHANNEL_BIND:
        stun_write_u16_reserved(out, STUN_ATTR_CHANNEL_NUMBER, (uint16_t)(0x3ffe + wire_read_u8(script) % 8));
        write_peer(w, out, script);
        break;
    case STUN_METHOD_SEND:
        stun_write_bytes(out, STUN_ATTR_DATA, "some data", 9);
        write_peer(w, out, script);
        break;
    case STUN_METHOD_CREATE_PERMISSION:
        for (unsigned n = wire_read_u8(script) % 4; n > 0; n--) {
            write_peer(w, out, script);
        }
        break;
    default:
        break;
    }
}

/* Any attribute with any value. */
static void write_extra(struct wire_writer *out, struct wire_reader *script) {
    static const uint16_t types[] = {STUN_ATTR_EVEN_PORT,
                                     STUN_ATTR_RESERVATION_TOKEN,
                                     STUN_ATTR_REQUESTED_ADDRESS_FAMILY,
                                     STUN_ATTR_ADDITIONAL_ADDRESS_FAMILY,
                                     STUN_ATTR_LIFETIME,
                                     STUN_ATTR_XOR_PEER_ADDRESS,
                                     STUN_ATTR_DATA,
                                     STUN_ATTR_DONT_FRAGMENT,
                                     STUN_ATTR_USERHASH,
                                     STUN_ATTR_PASSWORD_ALGORITHM,
                                     STUN_ATTR_PASSWORD_ALGORITHMS,
                                     STUN_ATTR_MESSAGE_INTEGRITY,
                                     STUN_ATTR_FINGERPRINT,
                                     0x7f01,
                                     0xc001};
    uint8_t choice = wire_read_u8(script);
    size_t n = wire_read_u8(script) % 40;
    n = n < wire_left(script) ? n : wire_left(script);
    const uint8_t *value = wire_take(script, n);
    if (value != NULL) {
        stun_write_bytes(out, types[choice % (sizeof types / sizeof types[0])], value, n);
    }
}

static void sign(struct world *w, const struct fixed *fixed, const struct client *c, uint8_t how,
                 struct wire_writer *out) {
    static const uint16_t offered[] = {STUN_PASSWORD_ALGORITHM_MD5, STUN_PASSWORD_ALGORITHM_SHA256};
    uint16_t algorithm = (how & 1) != 0 ? STUN_PASSWORD_ALGORITHM_SHA256 : STUN_PASSWORD_ALGORITHM_MD5;
    struct stun_key key;
    (void)w;
    stun_write_bytes(out, STUN_ATTR_USERNAME, c->username, strlen(c->username));
    stun_write_bytes(out, STUN_ATTR_REALM, "example.org", 11);
    stun_write_bytes(out, STUN_ATTR_NONCE, c->nonce, strlen(c->nonce));
    if ((how & 1) != 0) {
        stun_write_password_algorithms(out, offered, 2);
        stun_write_password_algorithm(out, algorithm);
    }
    int err = stun_key_derive(fixed->crypto, &key, algorithm, c->username, strlen(c->username), "example.org",
                              c->password);
    assert(err == 0);
    stun_integrity_append(fixed->crypto, out, (how & 2) != 0 ? STUN_INTEGRITY_SHA256 : STUN_INTEGRITY_SHA1,
                          &key);
}

enum { HOW_UNSIGNED = 4, HOW_EXTRA_BEFORE = 8, HOW_EXTRA_AFTER = 16, HOW_FINGERPRINT = 32, HOW_SPOIL = 64 };

static void step_message(struct world *w, const struct fixed *fixed, struct client *c, uint16_t method,
                         struct wire_reader *script) {
    uint8_t how = wire_read_u8(script);
    uint8_t transaction_id[STUN_TRANSACTION_ID_BYTES] = {[11] = (uint8_t)++w->n_transactions};
    struct wire_writer out = wire_writer_over(w->request, sizeof w->request);
    stun_message_begin(&out, method == STUN_METHOD_SEND ? STUN_INDICATION : STUN_REQUEST, method,
                       transaction_id);
    write_usual_attributes(w, &out, method, script);
    if ((how & HOW_EXTRA_BEFORE) != 0) {
        write_extra(&out, script);
    }
    if ((how & HOW_UNSIGNED) == 0) {
        sign(w, fixed, c, how, &out);
    }
    size_t n_signed = wire_written(&out);
    if ((how & HOW_EXTRA_AFTER) != 0) {
        write_extra(&out, script);
    }
    if ((how & HOW_FINGERPRINT) != 0) {
        stun_fingerprint_append(&out);
    }
    size_t n = stun_message_end(&out);
    bool is_honest = (how & HOW_UNSIGNED) == 0 && strcmp(c->password, "wrong") != 0;
    if ((how & HOW_SPOIL) != 0 && n > 0) {
        size_t at = wire_read_u16(script) % n;
        uint8_t change = wire_read_u8(script);
        w->request[at] ^= change;
        is_honest =
            is_honest && (change == 0 || at >= n_signed || at == 2 || at == 3); /* the length is patched */
    }
    deliver(w, c, w->request, n, is_honest);
}

static void step_raw(struct world *w, struct client *c, struct wire_reader *script) {
    size_t n = wire_read_u16(script) % sizeof w->request;
    n = n < wire_left(script) ? n : wire_left(script);
    const uint8_t *bytes = wire_take(script, n);
    if (bytes != NULL) {
        deliver(w, c, bytes, n, false);
    }
}

static void step_peer(struct world *w, struct wire_reader *script) {
    struct relayed_address *relayed = &w->addresses[wire_read_u8(script) % N_ADDRESSES];
    uint8_t choice = wire_read_u8(script);
    struct endpoint peer = parse(relayed->local.family == AF_INET6 ? "2001:db8:200::1" : "203.0.113.0");
    struct peer_match match;
    peer.ip[peer.family == AF_INET6 ? 15 : 3] = choice & 7;
    peer.port = (uint16_t)(5000 + (choice >> 3 & 7));
    if (relayed->n_allocations == 0) {
        return;
    }
    const struct peer_datagram datagram = {.peer = &peer};
    peer_table_match(turn_core_allocations(w->core), relayed, &datagram, w->now.now_us, &match);
    assert(match.allocation == NULL || permission_find(match.allocation, &peer) != NULL);
}

static void step_time(struct world *w, uint8_t amount) {
    w->now.now_us += (uint64_t)amount * 10000000;
    w->now.wall_s += amount * 10;
    turn_core_advance(w->core, w->now);
}

static void step(struct world *w, const struct fixed *fixed, struct wire_reader *script) {
    static const uint16_t methods[] = {STUN_METHOD_BINDING,      STUN_METHOD_ALLOCATE,
                                       STUN_METHOD_REFRESH,      STUN_METHOD_CREATE_PERMISSION,
                                       STUN_METHOD_CHANNEL_BIND, STUN_METHOD_SEND};
    uint8_t op = wire_read_u8(script);
    struct client *c = &w->clients[(op >> 4) % N_CLIENTS];
    switch (op & 15) {
    case 6:
        step_raw(w, c, script);
        break;
    case 7:
        step_peer(w, script);
        break;
    case 8:
        step_time(w, wire_read_u8(script));
        break;
    default:
        step_message(w, fixed, c, methods[(op & 15) % 6], script);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    const struct fixed *fixed = fixed_get();
    struct wire_reader script = wire_reader_over(bytes, n_bytes);
    struct world *w = calloc(1, sizeof *w);
    assert(w != NULL);
    world_init(w, fixed, wire_read_u8(&script));
    for (int i = 0; i < MAX_STEPS && wire_left(&script) > 0; i++) {
        step(w, fixed, &script);
    }
    turn_core_destroy(w->core);
    assert(w->n_held == 0 && quota_total(fixed->quota) == 0);
    free(w);
    return 0;
}
