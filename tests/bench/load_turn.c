#include "load_turn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER_BYTES = 20,
    COOKIE = 0x2112A442,
    TRANSACTION_MARK = 0x62656e63,
    RETRANSMIT_NS = 500000000,
    MAX_TRIES = 10,
    MAX_CHALLENGES = 4,
    MAX_SENDS = 2 * (MAX_CHALLENGES + 1), /* of one flow in one phase, retransmissions aside */
    MAX_REALM_BYTES = 128,
    METHOD_ALLOCATE = 0x003,
    METHOD_REFRESH = 0x004,
    METHOD_CHANNEL_BIND = 0x009,
    CLASS_SUCCESS = 0x100,
    CLASS_ERROR = 0x110,
    ATTR_USERNAME = 0x0006,
    ATTR_MESSAGE_INTEGRITY = 0x0008,
    ATTR_ERROR_CODE = 0x0009,
    ATTR_CHANNEL_NUMBER = 0x000C,
    ATTR_LIFETIME = 0x000D,
    ATTR_XOR_PEER_ADDRESS = 0x0012,
    ATTR_REALM = 0x0014,
    ATTR_NONCE = 0x0015,
    ATTR_XOR_RELAYED_ADDRESS = 0x0016,
    ATTR_REQUESTED_ADDRESS_FAMILY = 0x0017,
    ATTR_REQUESTED_TRANSPORT = 0x0019,
    INTEGRITY_BYTES = 20,
};

enum step { STEP_NONE, STEP_ALLOCATE, STEP_CHANNEL_BIND, STEP_RELEASE };

struct client {
    uint32_t serial; /* of the request in flight; part of the transaction id */
    uint8_t step, n_tries, n_challenges, n_nonce;
    bool has_allocation;
    uint8_t nonce[LOAD_NONCE_BYTES];
};

/* Requests in the order they were sent; the wait is the same for all, so the oldest is due first. */
struct pending {
    uint32_t flow, serial;
    uint64_t due_ns;
};

struct load_turn {
    struct load_turn_params params;
    struct load_port *port;
    struct load_flow *flows;
    struct client *clients;
    struct pending *queue; /* ring */
    uint32_t queue_mask, queue_head, queue_tail;
    uint32_t n_in_flight, next_flow;
    struct load_turn_result *result;
    bool has_answer, has_key;
    uint8_t key[16];
    char realm[MAX_REALM_BYTES];
    uint8_t nonce[LOAD_NONCE_BYTES]; /* the last seen: a first guess for everybody */
    uint8_t n_nonce;
    uint64_t now_ns;
};

int load_turn_create(struct load_turn **out, const struct load_turn_params *params, struct load_port *clients,
                     struct load_flow *flows) {
    struct load_turn *turn = calloc(1, sizeof *turn);
    if (turn == NULL) {
        return -ENOMEM;
    }
    turn->params = *params;
    turn->port = clients;
    turn->flows = flows;
    uint32_t n_queue = 65536;
    while (n_queue < 4 * MAX_SENDS * params->window) {
        n_queue *= 2;
    }
    turn->queue_mask = n_queue - 1;
    turn->queue = calloc(n_queue, sizeof *turn->queue);
    turn->clients = calloc(params->n_flows, sizeof *turn->clients);
    if (turn->queue == NULL || turn->clients == NULL) {
        load_turn_destroy(turn);
        return -ENOMEM;
    }
    *out = turn;
    return 0;
}

void load_turn_destroy(struct load_turn *turn) {
    if (turn != NULL) {
        free(turn->queue);
        free(turn->clients);
        free(turn);
    }
}

/* ---- composing ---- */

struct message {
    uint8_t bytes[LOAD_MAX_MESSAGE_BYTES];
    uint32_t n;
};

static void put_u16(uint8_t *at, uint32_t v) {
    at[0] = (uint8_t)(v >> 8), at[1] = (uint8_t)v;
}

static void put_u32(uint8_t *at, uint32_t v) {
    put_u16(at, v >> 16), put_u16(at + 2, v);
}

static void message_begin(struct message *m, uint16_t method, uint32_t flow, uint32_t serial) {
    put_u16(m->bytes, (method & 0xFu) | (method & 0x70u) << 1 | (method & 0xF80u) << 2);
    put_u16(m->bytes + 2, 0);
    put_u32(m->bytes + 4, COOKIE);
    put_u32(m->bytes + 8, TRANSACTION_MARK);
    put_u32(m->bytes + 12, flow);
    put_u32(m->bytes + 16, serial);
    m->n = HEADER_BYTES;
}

/* Every value used here is bounded by the options' checks, so that the message always fits. */
static uint8_t *message_attribute(struct message *m, uint16_t type, uint32_t n_bytes) {
    uint8_t *at = m->bytes + m->n;
    uint32_t padded = (n_bytes + 3) & ~3u;
    put_u16(at, type);
    put_u16(at + 2, n_bytes);
    memset(at + 4 + n_bytes, 0, padded - n_bytes);
    m->n += 4 + padded;
    put_u16(m->bytes + 2, m->n - HEADER_BYTES);
    return at + 4;
}

static void message_u32(struct message *m, uint16_t type, uint32_t value) {
    put_u32(message_attribute(m, type, 4), value);
}

static void message_bytes(struct message *m, uint16_t type, const void *bytes, size_t n_bytes) {
    memcpy(message_attribute(m, type, (uint32_t)n_bytes), bytes, n_bytes);
}

static void message_xor_address(struct message *m, uint16_t type, const struct load_address *a) {
    uint32_t n_ip = a->family == AF_INET ? 4 : 16;
    uint8_t *value = message_attribute(m, type, 4 + n_ip);
    value[0] = 0, value[1] = a->family == AF_INET ? 1 : 2;
    put_u16(value + 2, a->port ^ (COOKIE >> 16));
    for (uint32_t i = 0; i < n_ip; i++) {
        value[4 + i] = a->ip[i] ^ m->bytes[4 + i]; /* cookie, then transaction id */
    }
}

static void message_sign(struct message *m, const struct load_turn *turn, const struct client *c) {
    message_bytes(m, ATTR_USERNAME, turn->params.user, strlen(turn->params.user));
    message_bytes(m, ATTR_REALM, turn->realm, strlen(turn->realm));
    message_bytes(m, ATTR_NONCE, c->nonce, c->n_nonce);
    uint32_t n_covered = m->n;
    uint8_t *value = message_attribute(m, ATTR_MESSAGE_INTEGRITY, INTEGRITY_BYTES);
    unsigned n_mac = INTEGRITY_BYTES;
    HMAC(EVP_sha1(), turn->key, sizeof turn->key, m->bytes, n_covered, value, &n_mac);
}

static void message_compose(struct message *m, const struct load_turn *turn, uint32_t flow) {
    const struct client *c = &turn->clients[flow];
    const struct load_flow *f = &turn->flows[flow];
    m->n = 0;
    switch ((enum step)c->step) {
    case STEP_NONE:
        return;
    case STEP_ALLOCATE:
        message_begin(m, METHOD_ALLOCATE, flow, c->serial);
        message_u32(m, ATTR_REQUESTED_TRANSPORT, 17u << 24);
        if (f->peer.family == AF_INET6) {
            message_u32(m, ATTR_REQUESTED_ADDRESS_FAMILY, 2u << 24);
        }
        if (turn->params.lifetime_s > 0) {
            message_u32(m, ATTR_LIFETIME, turn->params.lifetime_s);
        }
        break;
    case STEP_CHANNEL_BIND:
        message_begin(m, METHOD_CHANNEL_BIND, flow, c->serial);
        message_u32(m, ATTR_CHANNEL_NUMBER, (uint32_t)f->channel << 16);
        message_xor_address(m, ATTR_XOR_PEER_ADDRESS, &f->peer);
        break;
    case STEP_RELEASE:
        message_begin(m, METHOD_REFRESH, flow, c->serial);
        message_u32(m, ATTR_LIFETIME, 0);
        break;
    }
    if (turn->has_key && c->n_nonce > 0) {
        message_sign(m, turn, c);
    }
}

/* ---- requests in flight ---- */

static void enqueue(struct load_turn *turn, uint32_t flow) {
    turn->queue[turn->queue_tail++ & turn->queue_mask] = (struct pending){
        .flow = flow, .serial = turn->clients[flow].serial, .due_ns = turn->now_ns + RETRANSMIT_NS};
}

static void transmit(struct load_turn *turn, uint32_t flow) {
    struct message m;
    message_compose(&m, turn, flow);
    memcpy(load_port_add(turn->port, &turn->flows[flow].up, m.n, 0, 1), m.bytes, m.n);
    turn->clients[flow].n_tries++;
    enqueue(turn, flow);
}

static void begin_step(struct load_turn *turn, uint32_t flow, enum step step) {
    struct client *c = &turn->clients[flow];
    c->step = step;
    c->serial++;
    c->n_tries = 0;
    transmit(turn, flow);
}

static void finish(struct load_turn *turn, uint32_t flow, bool success, unsigned code) {
    turn->clients[flow].step = STEP_NONE;
    turn->clients[flow].serial++; /* its place in the queue counts no more */
    turn->n_in_flight--;
    if (success) {
        turn->result->n_done++;
    } else {
        turn->result->n_failed++;
        turn->result->errors[code < LOAD_ERROR_CODES ? code : 0]++;
    }
}

static void retransmit_due(struct load_turn *turn) {
    while (turn->queue_head != turn->queue_tail) {
        struct pending p = turn->queue[turn->queue_head & turn->queue_mask];
        bool is_stale = turn->clients[p.flow].serial != p.serial;
        if (!is_stale && p.due_ns > turn->now_ns) {
            return;
        }
        turn->queue_head++;
        if (is_stale) {
            continue;
        }
        if (turn->clients[p.flow].n_tries >= MAX_TRIES) {
            finish(turn, p.flow, false, 0);
            continue;
        }
        turn->result->n_retransmits++;
        transmit(turn, p.flow);
    }
}

/* Answered requests stay in the ring until those before them are answered or due. Half of it is kept for what
 * the flows already started will send. */
static bool queue_has_room(const struct load_turn *turn) {
    return turn->queue_tail - turn->queue_head < turn->queue_mask / 2;
}

/* ---- answers ---- */

struct answer {
    uint16_t method_and_class;
    unsigned code;
    const uint8_t *nonce, *realm, *relayed;
    uint32_t n_nonce, n_realm, n_relayed;
};

static uint32_t get_u16(const uint8_t *at) {
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t get_u32(const uint8_t *at) {
    return get_u16(at) << 16 | get_u16(at + 2);
}

static void answer_attribute(struct answer *a, uint32_t type, const uint8_t *value, uint32_t n) {
    switch (type) {
    case ATTR_ERROR_CODE:
        a->code = n >= 4 ? value[2] * 100u + value[3] : 0;
        break;
    case ATTR_NONCE:
        a->nonce = value, a->n_nonce = n;
        break;
    case ATTR_REALM:
        a->realm = value, a->n_realm = n;
        break;
    case ATTR_XOR_RELAYED_ADDRESS:
        a->relayed = value, a->n_relayed = n;
        break;
    default:
        break;
    }
}

static bool answer_decode(struct answer *a, const uint8_t *bytes, uint32_t n_bytes) {
    *a = (struct answer){0};
    if (n_bytes < HEADER_BYTES || get_u16(bytes + 2) != n_bytes - HEADER_BYTES ||
        get_u32(bytes + 4) != COOKIE) {
        return false;
    }
    a->method_and_class = (uint16_t)get_u16(bytes);
    for (uint32_t at = HEADER_BYTES; at + 4 <= n_bytes;) {
        uint32_t n = get_u16(bytes + at + 2);
        if (n > n_bytes - at - 4) {
            return false;
        }
        answer_attribute(a, get_u16(bytes + at), bytes + at + 4, n);
        at += 4 + ((n + 3) & ~3u);
    }
    return true;
}

static void derive_key(struct load_turn *turn) {
    char text[1024];
    int n = snprintf(text, sizeof text, "%s:%s:%s", turn->params.user, turn->realm, turn->params.password);
    if (n > 0 && (size_t)n < sizeof text) {
        turn->has_key = EVP_Digest(text, (size_t)n, turn->key, NULL, EVP_md5(), NULL) == 1;
    }
}

static void take_challenge(struct load_turn *turn, uint32_t flow, const struct answer *a) {
    struct client *c = &turn->clients[flow];
    turn->result->n_challenges++;
    if (a->n_nonce == 0 || a->n_nonce > LOAD_NONCE_BYTES || ++c->n_challenges > MAX_CHALLENGES) {
        finish(turn, flow, false, a->code);
        return;
    }
    if (!turn->has_key && a->n_realm > 0 && a->n_realm < MAX_REALM_BYTES) {
        memcpy(turn->realm, a->realm, a->n_realm);
        derive_key(turn);
    }
    memcpy(c->nonce, a->nonce, a->n_nonce);
    c->n_nonce = (uint8_t)a->n_nonce;
    memcpy(turn->nonce, a->nonce, a->n_nonce);
    turn->n_nonce = c->n_nonce;
    begin_step(turn, flow, (enum step)c->step);
}

static bool take_relayed(struct load_flow *f, const struct answer *a, const uint8_t *bytes) {
    uint32_t n_ip = f->peer.family == AF_INET ? 4 : 16;
    if (a->n_relayed != 4 + n_ip || a->relayed[1] != (f->peer.family == AF_INET ? 1 : 2)) {
        return false;
    }
    f->relayed = (struct load_address){.family = f->peer.family};
    f->relayed.port = (uint16_t)(get_u16(a->relayed + 2) ^ (COOKIE >> 16));
    for (uint32_t i = 0; i < n_ip && i < sizeof f->relayed.ip; i++) {
        f->relayed.ip[i] = a->relayed[4 + i] ^ bytes[4 + i];
    }
    return true;
}

static void take_success(struct load_turn *turn, uint32_t flow, const struct answer *a,
                         const uint8_t *bytes) {
    struct client *c = &turn->clients[flow];
    c->n_challenges = 0;
    c->has_allocation = c->step != STEP_RELEASE;
    if (c->step != STEP_ALLOCATE) {
        finish(turn, flow, true, 0);
    } else if (take_relayed(&turn->flows[flow], a, bytes)) {
        begin_step(turn, flow, STEP_CHANNEL_BIND);
    } else {
        finish(turn, flow, false, 0);
    }
}

static void take_answer(void *context, const struct load_received *r) {
    struct load_turn *turn = context;
    const struct load_turn_params *p = &turn->params;
    uint32_t flow = load_flow_of_address(&p->first_client, &r->destination, p->ports_per_address, p->n_flows);
    struct answer a;
    if (flow == UINT32_MAX || r->n_copied != r->n_bytes || !answer_decode(&a, r->payload, r->n_bytes)) {
        return;
    }
    const struct client *c = &turn->clients[flow];
    if (get_u32(r->payload + 8) != TRANSACTION_MARK || get_u32(r->payload + 12) != flow ||
        get_u32(r->payload + 16) != c->serial || c->step == STEP_NONE) {
        return;
    }
    turn->has_answer = true;
    uint32_t class = a.method_and_class & CLASS_ERROR;
    if (class == CLASS_SUCCESS) {
        take_success(turn, flow, &a, r->payload);
    } else if (class == CLASS_ERROR && (a.code == 401 || a.code == 438)) {
        take_challenge(turn, flow, &a);
    } else if (class == CLASS_ERROR && a.code == 437 && c->step == STEP_ALLOCATE && c->n_tries < MAX_TRIES) {
        turn->clients[flow]
            .serial++; /* the last allocation of this address lives on for a while: ask later */
        enqueue(turn, flow);
    } else if (class == CLASS_ERROR) {
        finish(turn, flow, false, a.code);
    }
}

/* ---- a phase ---- */

static void start_next(struct load_turn *turn, enum load_turn_phase phase) {
    uint32_t flow = turn->next_flow++;
    struct client *c = &turn->clients[flow];
    if (phase == LOAD_TURN_TEARDOWN && !c->has_allocation) {
        turn->result->n_done++;
        return;
    }
    if (c->n_nonce == 0) {
        memcpy(c->nonce, turn->nonce, turn->n_nonce);
        c->n_nonce = turn->n_nonce;
    }
    c->n_challenges = 0;
    turn->n_in_flight++;
    begin_step(turn, flow, phase == LOAD_TURN_SETUP ? STEP_ALLOCATE : STEP_RELEASE);
}

bool load_turn_run(struct load_turn *turn, enum load_turn_phase phase, struct load_turn_result *out) {
    const struct load_turn_params *p = &turn->params;
    memset(out, 0, sizeof *out);
    turn->result = out;
    turn->next_flow = turn->n_in_flight = 0;
    load_port_set_snap(turn->port, LOAD_TX_SLOT_BYTES);
    uint64_t start_ns = load_clock_ns(CLOCK_MONOTONIC);
    uint64_t end_ns = start_ns + (uint64_t)p->deadline_s * 1000000000u;
    while (out->n_done + out->n_failed < p->n_flows) {
        turn->now_ns = load_clock_ns(CLOCK_MONOTONIC);
        if (turn->now_ns > end_ns) {
            break;
        }
        /* Until the first answer taught realm and nonce, one client asks alone. */
        while (turn->next_flow < p->n_flows && queue_has_room(turn) &&
               turn->n_in_flight < (turn->has_answer ? p->window : 1)) {
            start_next(turn, phase);
        }
        retransmit_due(turn);
        load_port_flush(turn->port);
        if (load_port_receive(turn->port, take_answer, turn) == 0) {
            struct pollfd wait = {.fd = load_port_fd(turn->port), .events = POLLIN};
            poll(&wait, 1, 1);
        }
        load_port_flush(turn->port);
    }
    out->seconds = (double)(load_clock_ns(CLOCK_MONOTONIC) - start_ns) / 1e9;
    for (; turn->n_in_flight > 0; turn->n_in_flight--) {
        out->n_failed++, out->errors[0]++;
    }
    for (uint32_t i = 0; i < p->n_flows; i++) {
        turn->clients[i].step = STEP_NONE;
        turn->clients[i].serial++;
    }
    turn->queue_head = turn->queue_tail;
    return out->n_done == p->n_flows;
}
