#include "turn_client.h"

#include <errno.h>
#include <stdlib.h>

#include "turn_client_internal.h"

enum { MAX_CHANNELS = CHANNEL_NUMBER_MAX - CHANNEL_NUMBER_MIN + 1 };

/* ---- life ---- */

static int copy_text(char **out, const char *text) {
    *out = text == NULL ? NULL : strdup(text);
    return text != NULL && *out == NULL ? -ENOMEM : 0;
}

static int copy_password(struct turn_client *client, const struct turn_client_params *params) {
    if (params->password != NULL) {
        return stun_saslprep(&client->password, params->password);
    }
    char password[32];
    if (params->rest_secret == NULL) {
        return -EINVAL;
    }
    if (!stun_rest_password(params->crypto, password, params->rest_secret, client->username,
                            strlen(client->username))) {
        return -ENOMEM;
    }
    return copy_text(&client->password, password);
}

static int copy_credentials(struct turn_client *client, const struct turn_client_params *params) {
    if (params->username == NULL) {
        return 0;
    }
    int err = stun_saslprep(&client->username, params->username);
    if (err < 0) {
        return err;
    }
    if (strlen(client->username) > STUN_MAX_USERNAME_BYTES) {
        return -EINVAL;
    }
    return copy_password(client, params);
}

static uint32_t value_or(uint32_t value, uint32_t otherwise) {
    return value != 0 ? value : otherwise;
}

int turn_client_create(struct turn_client **out, const struct turn_client_params *params) {
    if (params->crypto == NULL || params->random == NULL) {
        return -EINVAL;
    }
    struct turn_client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        return -ENOMEM;
    }
    client->params = *params;
    client->params.rto_us = value_or(params->rto_us, TURN_CLIENT_RTO_US);
    client->params.permission_lifetime_s =
        value_or(params->permission_lifetime_s, DEFAULT_PERMISSION_LIFETIME_S);
    client->params.channel_lifetime_s = value_or(params->channel_lifetime_s, DEFAULT_CHANNEL_LIFETIME_S);
    client->refresh_at_us = NEVER;
    int err = copy_credentials(client, params);
    if (err == 0) {
        err = copy_text(&client->software, params->software);
    }
    if (err < 0) {
        turn_client_destroy(client);
        return err;
    }
    client->params.username = client->params.password = NULL;
    client->params.rest_secret = client->params.software = NULL;
    params->random(params->random_context, client->indication_id, sizeof client->indication_id);
    *out = client;
    return 0;
}

void turn_client_destroy(struct turn_client *client) {
    if (client == NULL) {
        return;
    }
    while (client->transactions != NULL) {
        turn_transaction_remove(client, client->transactions);
    }
    turn_challenge_forget(client);
    free(client->ticket.bytes);
    free(client->peers);
    free(client->username);
    free(client->password);
    free(client->software);
    free(client);
}

enum turn_client_state turn_client_get_state(const struct turn_client *client) {
    return client->state;
}

const struct turn_client_allocation *turn_client_get_allocation(const struct turn_client *client) {
    return &client->allocation;
}

/* ---- requests ---- */

static int start(struct turn_client *client, struct turn_request request, uint64_t now_us) {
    request.started_us = now_us;
    return turn_request_start(client, &request, now_us);
}

int turn_client_binding(struct turn_client *client, uint64_t now_us) {
    return start(client, (struct turn_request){.method = STUN_METHOD_BINDING}, now_us);
}

/* Drops the peers, and what is still under way about an earlier allocation. */
static void forget_allocation(struct turn_client *client) {
    struct turn_transaction *t = client->transactions, *next;
    for (; t != NULL; t = next) {
        next = t->next;
        if (t->request.method != STUN_METHOD_BINDING) {
            turn_transaction_remove(client, t);
        }
    }
    client->n_peers = client->last_peer = 0;
}

int turn_client_allocate(struct turn_client *client, uint64_t now_us) {
    if (client->state != TURN_CLIENT_IDLE) {
        return -EALREADY;
    }
    forget_allocation(client);
    int err = start(client, (struct turn_request){.method = STUN_METHOD_ALLOCATE}, now_us);
    if (err == 0) {
        client->state = TURN_CLIENT_ALLOCATING;
        client->allocation = (struct turn_client_allocation){0};
    }
    return err;
}

static int refresh(struct turn_client *client, bool is_move, uint64_t now_us) {
    struct turn_request request = {.method = STUN_METHOD_REFRESH,
                                   .move = is_move,
                                   .has_lifetime = client->params.lifetime_s != 0,
                                   .lifetime_s = client->params.lifetime_s};
    int err = start(client, request, now_us);
    client->is_refreshing = client->is_refreshing || err == 0;
    return err;
}

int turn_client_refresh(struct turn_client *client, uint64_t now_us) {
    return client->state != TURN_CLIENT_ALLOCATED ? -ENOTCONN : refresh(client, false, now_us);
}

int turn_client_move(struct turn_client *client, uint64_t now_us) {
    bool has_ticket = client->state == TURN_CLIENT_ALLOCATED && client->ticket.n_bytes > 0;
    return has_ticket ? refresh(client, true, now_us) : -ENOTCONN;
}

int turn_client_release(struct turn_client *client, uint64_t now_us) {
    if (client->state != TURN_CLIENT_ALLOCATED) {
        return -ENOTCONN;
    }
    struct turn_request request = {.method = STUN_METHOD_REFRESH, .has_lifetime = true, .lifetime_s = 0};
    int err = start(client, request, now_us);
    if (err == 0) {
        client->state = TURN_CLIENT_RELEASING;
    }
    return err;
}

static int reserve_peers(struct turn_client *client, size_t n_more) {
    if (client->n_peers + n_more <= client->peers_capacity) {
        return 0;
    }
    size_t capacity = client->n_peers * 2 + n_more;
    struct turn_peer *peers = realloc(client->peers, capacity * sizeof *peers);
    if (peers == NULL) {
        return -ENOMEM;
    }
    client->peers = peers;
    client->peers_capacity = capacity;
    return 0;
}

static uint32_t add_peer(struct turn_client *client, const struct endpoint *address) {
    client->peers[client->n_peers] = (struct turn_peer){.address = *address, .refresh_at_us = NEVER};
    return (uint32_t)client->n_peers++;
}

int turn_client_create_permissions(struct turn_client *client, const struct endpoint *peers, size_t n_peers,
                                   uint64_t now_us, uint32_t *out_first_index) {
    if (client->state != TURN_CLIENT_ALLOCATED) {
        return -ENOTCONN;
    }
    if (n_peers == 0 || n_peers > TURN_CLIENT_MAX_PEERS_PER_REQUEST) {
        return -EINVAL;
    }
    int err = reserve_peers(client, n_peers);
    if (err < 0) {
        return err;
    }
    struct turn_request request = {.method = STUN_METHOD_CREATE_PERMISSION, .n_peers = (uint8_t)n_peers};
    size_t n_before = client->n_peers;
    for (size_t i = 0; i < n_peers; i++) {
        request.peers[i] = add_peer(client, &peers[i]);
    }
    err = start(client, request, now_us);
    if (err < 0) {
        client->n_peers = n_before;
        return err;
    }
    *out_first_index = (uint32_t)n_before;
    return 0;
}

static size_t find_peer(const struct turn_client *client, const struct endpoint *address) {
    size_t i = 0;
    while (i < client->n_peers && !endpoint_equal(&client->peers[i].address, address)) {
        i++;
    }
    return i;
}

static int bind_peer(struct turn_client *client, uint32_t index, uint64_t now_us) {
    struct turn_request request = {.method = STUN_METHOD_CHANNEL_BIND, .n_peers = 1, .peers = {index}};
    return start(client, request, now_us);
}

int turn_client_bind_channel(struct turn_client *client, const struct endpoint *peer, uint64_t now_us,
                             uint32_t *out_index) {
    if (client->state != TURN_CLIENT_ALLOCATED) {
        return -ENOTCONN;
    }
    size_t index = find_peer(client, peer), n_before = client->n_peers;
    if (index >= MAX_CHANNELS) {
        return -ENOSPC;
    }
    if (index == n_before) {
        int err = reserve_peers(client, 1);
        if (err < 0) {
            return err;
        }
        (void)add_peer(client, peer);
    }
    int err = bind_peer(client, (uint32_t)index, now_us);
    if (err < 0) {
        client->n_peers = n_before;
        return err;
    }
    struct turn_peer *entry = &client->peers[index];
    entry->wants_channel = true;
    if (entry->state == TURN_PEER_FAILED) {
        entry->state = TURN_PEER_REQUESTED;
    }
    *out_index = (uint32_t)index;
    return 0;
}

int turn_client_connect(struct turn_client *client, const struct endpoint *peer, uint64_t now_us) {
    if (client->state != TURN_CLIENT_ALLOCATED) {
        return -ENOTCONN;
    }
    return start(client, (struct turn_request){.method = STUN_METHOD_CONNECT, .connect_peer = *peer}, now_us);
}

int turn_client_connection_bind(struct turn_client *client, uint32_t connection_id, uint64_t now_us) {
    struct turn_request request = {.method = STUN_METHOD_CONNECTION_BIND, .connection_id = connection_id};
    return start(client, request, now_us);
}

size_t turn_client_n_peers(const struct turn_client *client) {
    return client->n_peers;
}

enum turn_peer_state turn_client_peer_state(const struct turn_client *client, uint32_t index) {
    return index < client->n_peers ? client->peers[index].state : TURN_PEER_FAILED;
}

uint16_t turn_client_peer_channel(const struct turn_client *client, uint32_t index) {
    bool has_channel = index < client->n_peers && client->peers[index].has_channel;
    return has_channel ? (uint16_t)(CHANNEL_NUMBER_MIN + index) : 0;
}

/* ---- what became of requests ---- */

void turn_event_describe(struct turn_event *event, const struct turn_request *request, uint64_t now_us) {
    event->method = request->method;
    event->elapsed_us = now_us - request->started_us;
    event->n_peers = request->n_peers;
    memcpy(event->peers, request->peers, sizeof event->peers);
}

void turn_allocation_lost(struct turn_client *client) {
    client->state = TURN_CLIENT_IDLE;
    client->refresh_at_us = NEVER;
    client->is_refreshing = false;
    client->ticket.n_bytes = 0;
    for (size_t i = 0; i < client->n_peers; i++) {
        client->peers[i].state = TURN_PEER_FAILED;
        client->peers[i].has_channel = false;
    }
}

/* Another try at half of what is left, as long as that is worth it. */
static void refresh_failed(struct turn_client *client, const struct turn_request *request, uint16_t code,
                           uint64_t now_us) {
    if (turn_request_is_release(request) || code == STUN_ALLOCATION_MISMATCH) {
        turn_allocation_lost(client);
        return;
    }
    uint64_t expires_at_us = client->allocation.expires_at_us;
    uint64_t left_us = expires_at_us > now_us ? expires_at_us - now_us : 0;
    client->is_refreshing = false;
    client->refresh_at_us = left_us < 2 * SECOND_US ? NEVER : now_us + left_us / 2;
}

void turn_request_failed(struct turn_client *client, const struct turn_request *request, uint64_t now_us,
                         struct turn_event *event) {
    turn_event_describe(event, request, now_us);
    if (request->method == STUN_METHOD_ALLOCATE) {
        client->state = TURN_CLIENT_IDLE;
    }
    if (request->method == STUN_METHOD_REFRESH) {
        refresh_failed(client, request, event->code, now_us);
    }
    for (size_t i = 0; i < request->n_peers; i++) {
        struct turn_peer *peer = &client->peers[request->peers[i]];
        peer->state = TURN_PEER_FAILED;
        peer->has_channel = false;
    }
}

/* ---- bytes ---- */

bool turn_client_next_output(struct turn_client *client, const uint8_t **out_bytes, size_t *out_n_bytes) {
    for (struct turn_transaction *t = client->transactions; t != NULL; t = t->next) {
        if (t->is_pending) {
            t->is_pending = false;
            *out_bytes = t->bytes;
            *out_n_bytes = t->n_bytes;
            return true;
        }
    }
    return false;
}

static bool input_channel_data(struct turn_client *client, const uint8_t *bytes, size_t n_bytes,
                               struct turn_event *event) {
    uint16_t number;
    uint32_t n_payload;
    if (!channel_data_decode(bytes, n_bytes, &number, &event->payload, &n_payload)) {
        return false;
    }
    size_t index = (size_t)number - CHANNEL_NUMBER_MIN;
    if (index >= client->n_peers || !client->peers[index].wants_channel ||
        client->peers[index].state == TURN_PEER_FAILED) {
        return false;
    }
    event->kind = TURN_EVENT_DATA;
    event->channel = number;
    event->peer = client->peers[index].address;
    event->n_payload = n_payload;
    return true;
}

static bool input_message(struct turn_client *client, const uint8_t *bytes, size_t n_bytes, uint64_t now_us,
                          struct turn_event *event) {
    struct stun_message message;
    bool has_fingerprint;
    if (!stun_message_decode(&message, bytes, n_bytes) ||
        !stun_fingerprint_check(&message, &has_fingerprint)) {
        return false;
    }
    switch (message.class) {
    case STUN_REQUEST:
        return false;
    case STUN_INDICATION:
        return turn_input_indication(client, &message, event);
    case STUN_SUCCESS:
    case STUN_ERROR:
        return turn_input_response(client, &message, now_us, event);
    }
    return false;
}

bool turn_client_input(struct turn_client *client, const uint8_t *bytes, size_t n_bytes, uint64_t now_us,
                       struct turn_event *event) {
    memset(event, 0, sizeof *event);
    bool told = n_bytes > 0 && channel_data_is_first_byte(bytes[0])
                    ? input_channel_data(client, bytes, n_bytes, event)
                    : input_message(client, bytes, n_bytes, now_us, event);
    event->kind = told ? event->kind : TURN_EVENT_NONE;
    return told;
}

/* The identifiers of indications need only differ: a random start, counted up. */
static void next_indication_id(struct turn_client *client) {
    for (size_t i = STUN_TRANSACTION_ID_BYTES; i > 0; i--) {
        if (++client->indication_id[i - 1] != 0) {
            return;
        }
    }
}

static size_t send_header_encode(struct turn_client *client, uint8_t *out, const struct endpoint *peer,
                                 size_t n_payload) {
    struct wire_writer w = wire_writer_over(out, TURN_CLIENT_HEADROOM_BYTES);
    next_indication_id(client);
    stun_message_begin(&w, STUN_INDICATION, STUN_METHOD_SEND, client->indication_id);
    stun_write_xor_address(&w, STUN_ATTR_XOR_PEER_ADDRESS, peer, client->indication_id);
    if (client->params.dont_fragment) {
        stun_write_bytes(&w, STUN_ATTR_DONT_FRAGMENT, NULL, 0);
    }
    wire_write_u16(&w, STUN_ATTR_DATA);
    wire_write_u16(&w, (uint16_t)n_payload);
    size_t n_header = wire_written(&w);
    size_t n_body = n_header - STUN_HEADER_BYTES + n_payload + stun_padding((uint32_t)n_payload);
    if (n_header == 0 || n_body > UINT16_MAX) {
        return 0;
    }
    wire_put_u16(out + 2, (uint16_t)n_body);
    return n_header;
}

int turn_client_frame_data(struct turn_client *client, uint32_t peer_index, uint8_t *payload,
                           size_t n_payload, uint8_t **out_bytes, size_t *out_n_bytes) {
    if (n_payload > UINT16_MAX) {
        return -EMSGSIZE;
    }
    if (turn_client_peer_state(client, peer_index) != TURN_PEER_ACTIVE) {
        return -EAGAIN;
    }
    const struct turn_peer *peer = &client->peers[peer_index];
    uint8_t header[TURN_CLIENT_HEADROOM_BYTES];
    size_t n_header = CHANNEL_HEADER_BYTES;
    if (peer->has_channel) {
        channel_data_encode_header(header, (uint16_t)(CHANNEL_NUMBER_MIN + peer_index), (uint16_t)n_payload);
    } else {
        n_header = send_header_encode(client, header, &peer->address, n_payload);
    }
    if (n_header == 0) {
        return -EMSGSIZE;
    }
    /* RFC 8656, 12.5: ChannelData is padded over streams, and need not be over UDP. */
    bool is_padded = !peer->has_channel || client->params.is_stream;
    size_t n_padding = is_padded ? stun_padding((uint32_t)n_payload) : 0;
    memcpy(payload - n_header, header, n_header);
    memset(payload + n_payload, 0, n_padding);
    *out_bytes = payload - n_header;
    *out_n_bytes = n_header + n_payload + n_padding;
    return 0;
}
