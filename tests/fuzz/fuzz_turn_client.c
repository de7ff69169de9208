/* A TURN client through a whole session. The input is a program: each step says what the caller does, or what
 * arrives. What arrives as a response is given the identifier of the client's last request, so that it
 * counts, and may be signed with the user's key. */
#include <stdlib.h>

#include "turn_client.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void count_up(void *context, void *out, size_t n_bytes) {
    uint64_t *n = context;
    memset(out, 0, n_bytes);
    (*n)++;
    memcpy(out, n, sizeof *n < n_bytes ? sizeof *n : n_bytes);
}

struct session {
    struct turn_client *client;
    struct stun_crypto *crypto;
    struct wire_reader program;
    uint64_t now_us, random;
    uint8_t last_id[STUN_TRANSACTION_ID_BYTES];
    enum stun_integrity_kind last_integrity;
};

static struct endpoint read_peer(struct session *s) {
    uint8_t n = wire_read_u8(&s->program);
    struct endpoint e = {
        .family = n & 1 ? AF_INET6 : AF_INET, .port = (uint16_t)(1 + (n >> 4)), .ip = {192, 0, 2}};
    e.ip[3] = n & 7;
    return e;
}

static void ask(struct session *s, uint8_t what) {
    uint32_t index;
    struct endpoint peer;
    switch (what % 9) {
    case 0:
        (void)turn_client_binding(s->client, s->now_us);
        break;
    case 1:
        (void)turn_client_allocate(s->client, s->now_us);
        break;
    case 2:
        (void)turn_client_refresh(s->client, s->now_us);
        break;
    case 3:
        (void)turn_client_release(s->client, s->now_us);
        break;
    case 4:
        (void)turn_client_move(s->client, s->now_us);
        break;
    case 5:
        peer = read_peer(s);
        (void)turn_client_create_permissions(s->client, &peer, 1, s->now_us, &index);
        break;
    case 6:
        peer = read_peer(s);
        (void)turn_client_bind_channel(s->client, &peer, s->now_us, &index);
        break;
    case 7:
        peer = read_peer(s);
        (void)turn_client_connect(s->client, &peer, s->now_us);
        break;
    default:
        (void)turn_client_connection_bind(s->client, 1, s->now_us);
        break;
    }
}

static void send_all(struct session *s) {
    const uint8_t *bytes;
    size_t n_bytes;
    while (turn_client_next_output(s->client, &bytes, &n_bytes)) {
        struct stun_message m;
        struct stun_integrity_place place;
        if (!stun_message_decode(&m, bytes, n_bytes) || m.class != STUN_REQUEST) {
            abort();
        }
        stun_integrity_find(&m, &place);
        memcpy(s->last_id, m.transaction_id, sizeof s->last_id);
        s->last_integrity = place.kind;
    }
}

static void look_at(const struct turn_event *event, const uint8_t *bytes, size_t n_bytes) {
    if (event->kind == TURN_EVENT_DATA &&
        (event->payload < bytes || event->payload + event->n_payload > bytes + n_bytes)) {
        abort();
    }
}

/* Bytes as they are. */
static void arrive_raw(struct session *s, uint8_t n_bytes) {
    struct turn_event event;
    const uint8_t *p = wire_take(&s->program, n_bytes);
    uint8_t *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    if (p != NULL && copy != NULL) {
        memcpy(copy, p, n_bytes);
        (void)turn_client_input(s->client, copy, n_bytes, s->now_us, &event);
        look_at(&event, copy, n_bytes);
    }
    free(copy);
}

/* A response or indication with the attributes that the program gives, in their raw form. */
static void arrive_message(struct session *s, uint8_t n_body) {
    uint8_t bytes[512];
    struct turn_event event;
    struct stun_key key;
    uint8_t type = wire_read_u8(&s->program);
    const uint8_t *body = wire_take(&s->program, n_body);
    struct wire_writer w = wire_writer_over(bytes, sizeof bytes);
    stun_message_begin(&w, (enum stun_class)(type >> 4 & 3), type & 0xF, s->last_id);
    if (body != NULL) {
        wire_write_bytes(&w, body, n_body);
    }
    if ((type & 0x80) != 0 && s->last_integrity != STUN_INTEGRITY_NONE) {
        uint16_t algorithm =
            (type & 0x40) != 0 ? STUN_PASSWORD_ALGORITHM_SHA256 : STUN_PASSWORD_ALGORITHM_MD5;
        if (stun_key_derive(s->crypto, &key, algorithm, "u", 1, "r", "p") == 0) {
            stun_integrity_append(s->crypto, &w, s->last_integrity, &key);
        }
    }
    size_t n_bytes = stun_message_end(&w);
    (void)turn_client_input(s->client, bytes, n_bytes, s->now_us, &event);
    look_at(&event, bytes, n_bytes);
}

static void let_time_pass(struct session *s, uint8_t n) {
    struct turn_event event;
    s->now_us += (uint64_t)n * n * 10000;
    while (turn_client_advance(s->client, s->now_us, &event)) {
        look_at(&event, NULL, 0);
    }
    if (turn_client_next_deadline_us(s->client) <= s->now_us) {
        abort(); /* the caller would spin */
    }
}

static void send_data(struct session *s, uint8_t index) {
    uint8_t room[TURN_CLIENT_HEADROOM_BYTES + 5 + TURN_CLIENT_TAILROOM_BYTES] = {0}, *bytes;
    size_t n_bytes;
    if (turn_client_frame_data(s->client, index, room + TURN_CLIENT_HEADROOM_BYTES, 5, &bytes, &n_bytes) ==
            0 &&
        (bytes < room || bytes + n_bytes > room + sizeof room)) {
        abort();
    }
}

static void step(struct session *s) {
    uint8_t what = wire_read_u8(&s->program), operand = wire_read_u8(&s->program);
    switch (what % 5) {
    case 0:
        ask(s, operand);
        break;
    case 1:
        arrive_message(s, operand);
        break;
    case 2:
        let_time_pass(s, operand);
        break;
    case 3:
        send_data(s, operand);
        break;
    default:
        arrive_raw(s, operand);
        break;
    }
    send_all(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    struct session s = {.program = wire_reader_over(bytes, n_bytes)};
    uint8_t flags = wire_read_u8(&s.program);
    if (stun_crypto_create(&s.crypto) < 0) {
        return 0;
    }
    struct turn_client_params params = {.crypto = s.crypto,
                                        .random = count_up,
                                        .random_context = &s.random,
                                        .username = flags & 1 ? NULL : "u",
                                        .password = "p",
                                        .is_stream = flags & 2,
                                        .legacy_integrity = flags & 4,
                                        .userhash = flags & 8,
                                        .mobility = flags & 16,
                                        .dont_fragment = flags & 32,
                                        .fingerprint = flags & 64};
    if (turn_client_create(&s.client, &params) == 0) {
        while (wire_left(&s.program) > 0) {
            step(&s);
        }
    }
    turn_client_destroy(s.client);
    stun_crypto_destroy(s.crypto);
    return 0;
}
