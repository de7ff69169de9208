#include <errno.h>

#include "turn_client_internal.h"

static bool find_xor_address(const struct stun_message *message, size_t limit, uint16_t type,
                             struct endpoint *out) {
    struct stun_attribute a;
    return turn_find_within(message, limit, type, &a) && stun_read_xor_address(out, &a, message);
}

/* The comprehension-required attributes that a response or indication may carry. */
static bool attribute_is_known(uint16_t type) {
    switch (type) {
    case STUN_ATTR_MAPPED_ADDRESS:
    case STUN_ATTR_USERNAME:
    case STUN_ATTR_MESSAGE_INTEGRITY:
    case STUN_ATTR_ERROR_CODE:
    case STUN_ATTR_UNKNOWN_ATTRIBUTES:
    case STUN_ATTR_CHANNEL_NUMBER:
    case STUN_ATTR_LIFETIME:
    case STUN_ATTR_XOR_PEER_ADDRESS:
    case STUN_ATTR_DATA:
    case STUN_ATTR_REALM:
    case STUN_ATTR_NONCE:
    case STUN_ATTR_XOR_RELAYED_ADDRESS:
    case STUN_ATTR_REQUESTED_ADDRESS_FAMILY:
    case STUN_ATTR_REQUESTED_TRANSPORT:
    case STUN_ATTR_DONT_FRAGMENT:
    case STUN_ATTR_MESSAGE_INTEGRITY_SHA256:
    case STUN_ATTR_PASSWORD_ALGORITHM:
    case STUN_ATTR_USERHASH:
    case STUN_ATTR_XOR_MAPPED_ADDRESS:
    case STUN_ATTR_RESERVATION_TOKEN:
    case STUN_ATTR_CONNECTION_ID:
        return true;
    default:
        return !stun_attribute_is_required(type);
    }
}

static bool attributes_are_known(const struct stun_message *message, size_t limit) {
    struct stun_attribute at = {0};
    while (stun_message_next(message, &at) && at.offset < limit) {
        if (!attribute_is_known(at.type)) {
            return false;
        }
    }
    return true;
}

/* ---- indications ---- */

/* RFC 8656, 11.4: data from an address that was not permitted is dropped. The last one found is tried first.
 */
static bool peer_is_permitted(struct turn_client *client, const struct endpoint *address) {
    for (size_t i = 0; i < client->n_peers; i++) {
        size_t at = (client->last_peer + i) % client->n_peers;
        const struct turn_peer *peer = &client->peers[at];
        if (peer->state != TURN_PEER_FAILED && endpoint_same_ip(&peer->address, address)) {
            client->last_peer = at;
            return true;
        }
    }
    return false;
}

static bool input_data(struct turn_client *client, const struct stun_message *message,
                       struct turn_event *event) {
    struct stun_attribute a;
    if (!find_xor_address(message, message->n_bytes, STUN_ATTR_XOR_PEER_ADDRESS, &event->peer) ||
        !peer_is_permitted(client, &event->peer)) {
        return false;
    }
    if (stun_message_find(message, STUN_ATTR_DATA, &a)) {
        event->kind = TURN_EVENT_DATA;
        event->payload = a.value;
        event->n_payload = a.n_bytes;
        return true;
    }
    if (stun_message_find(message, STUN_ATTR_ICMP, &a) &&
        stun_read_icmp(&event->icmp_type, &event->icmp_code, &event->icmp_data, &a)) {
        event->kind = TURN_EVENT_ICMP;
        return true;
    }
    return false;
}

static bool input_connection_attempt(const struct stun_message *message, struct turn_event *event) {
    struct stun_attribute a;
    event->kind = TURN_EVENT_CONNECTION_ATTEMPT;
    return find_xor_address(message, message->n_bytes, STUN_ATTR_XOR_PEER_ADDRESS, &event->peer) &&
           stun_message_find(message, STUN_ATTR_CONNECTION_ID, &a) &&
           stun_read_u32(&event->connection_id, &a);
}

bool turn_input_indication(struct turn_client *client, const struct stun_message *message,
                           struct turn_event *event) {
    if (!attributes_are_known(message, message->n_bytes)) {
        return false; /* RFC 8489, 6.3.2 */
    }
    if (message->method == STUN_METHOD_DATA) {
        return input_data(client, message, event);
    }
    return message->method == STUN_METHOD_CONNECTION_ATTEMPT && input_connection_attempt(message, event);
}

/* ---- successes ---- */

static void allocation_starts(struct turn_client *client, uint32_t lifetime_s, uint64_t now_us) {
    uint64_t lifetime_us = (uint64_t)lifetime_s * SECOND_US;
    /* A minute ahead leaves room for all retransmissions; half of a lifetime that is short. */
    uint64_t wait_us = lifetime_s > 120 ? lifetime_us - 60 * SECOND_US : lifetime_us / 2;
    client->allocation.lifetime_s = lifetime_s;
    client->allocation.expires_at_us = now_us + lifetime_us;
    client->refresh_at_us = now_us + wait_us;
}

/* Up to one relayed address of each family. */
static bool read_relayed(struct turn_client_allocation *out, const struct stun_message *message,
                         size_t limit) {
    struct stun_attribute at = {0};
    size_t n = 0;
    while (stun_message_next(message, &at) && at.offset < limit) {
        if (at.type != STUN_ATTR_XOR_RELAYED_ADDRESS) {
            continue;
        }
        if (n == 2 || !stun_read_xor_address(&out->relayed[n], &at, message)) {
            return false;
        }
        n++;
    }
    return n > 0;
}

static int keep_ticket(struct turn_client *client, const struct stun_message *message, size_t limit) {
    struct stun_attribute a;
    if (!client->params.mobility || !turn_find_within(message, limit, STUN_ATTR_MOBILITY_TICKET, &a)) {
        return 0;
    }
    return turn_blob_set(&client->ticket, a.value, a.n_bytes);
}

static int allocate_succeeded(struct turn_client *client, const struct stun_message *message, size_t limit,
                              uint64_t now_us) {
    struct turn_client_allocation allocation = {0};
    struct stun_attribute a;
    uint32_t lifetime_s;
    if (!read_relayed(&allocation, message, limit) ||
        !find_xor_address(message, limit, STUN_ATTR_XOR_MAPPED_ADDRESS, &allocation.mapped) ||
        !turn_find_within(message, limit, STUN_ATTR_LIFETIME, &a) || !stun_read_u32(&lifetime_s, &a)) {
        return -EBADMSG;
    }
    if (turn_find_within(message, limit, STUN_ATTR_RESERVATION_TOKEN, &a)) {
        if (a.n_bytes != STUN_RESERVATION_TOKEN_BYTES) {
            return -EBADMSG;
        }
        allocation.has_reservation_token = true;
        memcpy(allocation.reservation_token, a.value, STUN_RESERVATION_TOKEN_BYTES);
    }
    if (turn_find_within(message, limit, STUN_ATTR_ADDRESS_ERROR_CODE, &a) &&
        !stun_read_address_error(&allocation.refused_family, &allocation.refused_code, &a)) {
        return -EBADMSG;
    }
    int err = keep_ticket(client, message, limit);
    if (err < 0) {
        return err;
    }
    client->state = TURN_CLIENT_ALLOCATED;
    client->allocation = allocation;
    allocation_starts(client, lifetime_s, now_us);
    return 0;
}

static int refresh_succeeded(struct turn_client *client, const struct turn_request *request,
                             const struct stun_message *message, size_t limit, uint64_t now_us) {
    struct stun_attribute a;
    uint32_t lifetime_s;
    if (!turn_find_within(message, limit, STUN_ATTR_LIFETIME, &a) || !stun_read_u32(&lifetime_s, &a)) {
        return -EBADMSG;
    }
    if (turn_request_is_release(request)) {
        turn_allocation_lost(client);
        return 0;
    }
    if (client->state != TURN_CLIENT_ALLOCATED) {
        return 0; /* being released, or gone */
    }
    client->is_refreshing = false;
    int err = keep_ticket(client, message, limit);
    allocation_starts(client, lifetime_s, now_us);
    return err;
}

/* Four fifths of the lifetime; a ChannelBind renews the permission as well (RFC 8656, 12), so a channel's
 * peer needs no CreatePermission if it is bound anew in time for both. */
static uint64_t peer_refresh_wait_us(const struct turn_client *client, const struct turn_peer *peer) {
    uint32_t lifetime_s = client->params.permission_lifetime_s;
    if (peer->wants_channel && client->params.channel_lifetime_s < lifetime_s) {
        lifetime_s = client->params.channel_lifetime_s;
    }
    return (uint64_t)lifetime_s * SECOND_US / 5 * 4;
}

static void peers_succeeded(struct turn_client *client, const struct turn_request *request, uint64_t now_us) {
    if (client->state == TURN_CLIENT_IDLE) {
        return; /* the allocation was lost in the meantime */
    }
    for (size_t i = 0; i < request->n_peers; i++) {
        struct turn_peer *peer = &client->peers[request->peers[i]];
        peer->state = TURN_PEER_ACTIVE;
        peer->has_channel = peer->has_channel || request->method == STUN_METHOD_CHANNEL_BIND;
        peer->refresh_at_us = now_us + peer_refresh_wait_us(client, peer);
    }
}

static int request_succeeded(struct turn_client *client, const struct turn_request *request,
                             const struct stun_message *message, size_t limit, uint64_t now_us,
                             struct turn_event *event) {
    struct stun_attribute a;
    switch (request->method) {
    case STUN_METHOD_BINDING:
        return find_xor_address(message, limit, STUN_ATTR_XOR_MAPPED_ADDRESS, &event->peer) ||
                       (turn_find_within(message, limit, STUN_ATTR_MAPPED_ADDRESS, &a) &&
                        stun_read_address(&event->peer, &a))
                   ? 0
                   : -EBADMSG;
    case STUN_METHOD_ALLOCATE:
        return allocate_succeeded(client, message, limit, now_us);
    case STUN_METHOD_REFRESH:
        return refresh_succeeded(client, request, message, limit, now_us);
    case STUN_METHOD_CONNECT:
        return turn_find_within(message, limit, STUN_ATTR_CONNECTION_ID, &a) &&
                       stun_read_u32(&event->connection_id, &a)
                   ? 0
                   : -EBADMSG;
    default:
        peers_succeeded(client, request, now_us);
        return 0;
    }
}

/* ---- errors ---- */

/* 401 and 438 lead to the same request once more, with what the server now asks for. 0: it is on its way;
 * -EACCES: the server has had the last word. */
static int request_again(struct turn_client *client, struct turn_request request, bool was_authenticated,
                         uint16_t code, const struct stun_message *message, size_t limit, uint64_t now_us) {
    bool may_retry = client->username != NULL && request.n_auth_retries < MAX_AUTH_RETRIES &&
                     (code == STUN_STALE_NONCE || (code == STUN_UNAUTHENTICATED && !was_authenticated));
    if (!may_retry) {
        return -EACCES;
    }
    int err = turn_challenge_accept(client, message, limit);
    if (err < 0) {
        return err;
    }
    request.authenticate = true;
    request.n_auth_retries++;
    return turn_request_start(client, &request, now_us);
}

static uint16_t read_error_code(const struct stun_message *message, size_t limit) {
    struct stun_attribute a;
    uint16_t code;
    bool is_good = attributes_are_known(message, limit) &&
                   turn_find_within(message, limit, STUN_ATTR_ERROR_CODE, &a) && stun_read_error(&code, &a);
    return is_good ? code : 0;
}

/* RFC 8656, 7.3: an allocation that is not there any more is released. */
static bool error_is_success(const struct turn_request *request, uint16_t code) {
    return turn_request_is_release(request) && code == STUN_ALLOCATION_MISMATCH;
}

static bool tell_error(struct turn_client *client, const struct turn_request *request,
                       const struct stun_message *message, size_t limit, uint64_t now_us,
                       struct turn_event *event) {
    struct stun_attribute a;
    if (event->code == STUN_TRY_ALTERNATE &&
        turn_find_within(message, limit, STUN_ATTR_ALTERNATE_SERVER, &a) &&
        !stun_read_address(&event->peer, &a)) {
        event->err = -EBADMSG;
    }
    bool is_success = error_is_success(request, event->code);
    turn_request_failed(client, request, now_us, event);
    event->kind = is_success ? TURN_EVENT_RESPONSE : TURN_EVENT_ERROR;
    event->code = is_success ? 0 : event->code;
    return true;
}

static bool input_error(struct turn_client *client, struct turn_transaction *t,
                        const struct stun_message *message, size_t limit, uint64_t now_us,
                        struct turn_event *event) {
    struct turn_request request = t->request;
    bool was_authenticated = t->is_authenticated;
    turn_transaction_remove(client, t);
    event->code = read_error_code(message, limit);
    if (event->code == 0) {
        event->err = -EBADMSG;
    }
    if (event->code == STUN_UNAUTHENTICATED || event->code == STUN_STALE_NONCE) {
        int err = request_again(client, request, was_authenticated, event->code, message, limit, now_us);
        if (err == 0) {
            return false;
        }
        event->err = err == -EACCES ? 0 : err;
    }
    return tell_error(client, &request, message, limit, now_us, event);
}

/* ---- responses ---- */

/* What an authenticated request gets has to be authenticated, but for errors, which a server may send before
 * it knows the key (RFC 8489, 9.2.5). */
static bool response_is_authentic(const struct turn_client *client, const struct turn_transaction *t,
                                  const struct stun_message *message,
                                  const struct stun_integrity_place *place) {
    if (!t->is_authenticated) {
        return true;
    }
    if (place->kind == STUN_INTEGRITY_NONE) {
        return message->class == STUN_ERROR;
    }
    return place->kind == client->integrity &&
           stun_integrity_check(client->params.crypto, message, place, &client->key);
}

static struct turn_transaction *find_transaction(const struct turn_client *client,
                                                 const struct stun_message *message) {
    for (struct turn_transaction *t = client->transactions; t != NULL; t = t->next) {
        if (t->request.method == message->method &&
            memcmp(t->id, message->transaction_id, STUN_TRANSACTION_ID_BYTES) == 0) {
            return t;
        }
    }
    return NULL;
}

static bool input_success(struct turn_client *client, struct turn_transaction *t,
                          const struct stun_message *message, size_t limit, uint64_t now_us,
                          struct turn_event *event) {
    struct turn_request request = t->request;
    turn_transaction_remove(client, t);
    if (!attributes_are_known(message, limit)) {
        event->code = STUN_UNKNOWN_ATTRIBUTE; /* RFC 8489, 6.3.3 */
    } else {
        event->err = request_succeeded(client, &request, message, limit, now_us, event);
    }
    if (event->code != 0 || event->err != 0) {
        event->kind = TURN_EVENT_ERROR;
        turn_request_failed(client, &request, now_us, event);
        return true;
    }
    event->kind = TURN_EVENT_RESPONSE;
    turn_event_describe(event, &request, now_us);
    return true;
}

bool turn_input_response(struct turn_client *client, const struct stun_message *message, uint64_t now_us,
                         struct turn_event *event) {
    struct turn_transaction *t = find_transaction(client, message);
    struct stun_integrity_place place;
    if (t == NULL) {
        return false; /* late or repeated */
    }
    stun_integrity_find(message, &place);
    if (!response_is_authentic(client, t, message, &place)) {
        return false; /* as if it had never come */
    }
    if (message->class == STUN_SUCCESS) {
        return input_success(client, t, message, place.limit, now_us, event);
    }
    return input_error(client, t, message, place.limit, now_us, event);
}
