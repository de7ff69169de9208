#include <errno.h>

#include "turn_client_internal.h"

static bool has_room(const struct turn_client *client) {
    return client->n_transactions < TURN_CLIENT_MAX_TRANSACTIONS;
}

static bool peer_needs_refresh(const struct turn_peer *peer) {
    return peer->state == TURN_PEER_ACTIVE && !peer->is_busy;
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t turn_client_next_deadline_us(const struct turn_client *client) {
    uint64_t deadline_us = NEVER;
    for (const struct turn_transaction *t = client->transactions; t != NULL; t = t->next) {
        deadline_us = earlier(deadline_us, t->deadline_us);
    }
    if (client->state != TURN_CLIENT_ALLOCATED) {
        return deadline_us;
    }
    deadline_us = earlier(deadline_us, client->allocation.expires_at_us);
    if (!has_room(client)) {
        return deadline_us; /* what else is due waits for an answer */
    }
    if (!client->is_refreshing) {
        deadline_us = earlier(deadline_us, client->refresh_at_us);
    }
    for (size_t i = 0; i < client->n_peers; i++) {
        if (peer_needs_refresh(&client->peers[i])) {
            deadline_us = earlier(deadline_us, client->peers[i].refresh_at_us);
        }
    }
    return deadline_us;
}

/* True when a request was given up. */
static bool advance_transactions(struct turn_client *client, uint64_t now_us, struct turn_event *event) {
    for (struct turn_transaction *t = client->transactions; t != NULL; t = t->next) {
        if (t->deadline_us > now_us) {
            continue;
        }
        if (client->params.is_stream || t->n_sent >= REQUEST_MAX_SENDS) {
            struct turn_request request = t->request;
            turn_transaction_remove(client, t);
            event->kind = TURN_EVENT_TIMEOUT;
            turn_request_failed(client, &request, now_us, event);
            return true;
        }
        t->n_sent++;
        t->is_pending = true;
        t->deadline_us = now_us + turn_retransmission_wait_us(&client->params, t->n_sent);
    }
    return false;
}

/* Memory may be back in a second. */
static void put_off(struct turn_client *client, const struct turn_request *request, uint64_t now_us) {
    for (size_t i = 0; i < request->n_peers; i++) {
        client->peers[request->peers[i]].refresh_at_us = now_us + SECOND_US;
    }
}

static void refresh_peers(struct turn_client *client, struct turn_request *request, uint64_t now_us) {
    request->started_us = now_us;
    if (request->n_peers > 0 && turn_request_start(client, request, now_us) < 0) {
        put_off(client, request, now_us);
    }
}

/* Channels by a ChannelBind each; permissions together, as many as one request may hold. */
static void advance_peers(struct turn_client *client, uint64_t now_us) {
    struct turn_request permissions = {.method = STUN_METHOD_CREATE_PERMISSION};
    for (size_t i = 0; i < client->n_peers && has_room(client); i++) {
        const struct turn_peer *peer = &client->peers[i];
        if (!peer_needs_refresh(peer) || peer->refresh_at_us > now_us) {
            continue;
        }
        if (peer->wants_channel) {
            struct turn_request bind = {
                .method = STUN_METHOD_CHANNEL_BIND, .n_peers = 1, .peers = {(uint32_t)i}};
            refresh_peers(client, &bind, now_us);
            continue;
        }
        permissions.peers[permissions.n_peers++] = (uint32_t)i;
        if (permissions.n_peers == TURN_CLIENT_MAX_PEERS_PER_REQUEST) {
            refresh_peers(client, &permissions, now_us);
            permissions.n_peers = 0;
        }
    }
    if (has_room(client)) {
        refresh_peers(client, &permissions, now_us);
    }
}

bool turn_client_advance(struct turn_client *client, uint64_t now_us, struct turn_event *event) {
    memset(event, 0, sizeof *event);
    if (advance_transactions(client, now_us, event)) {
        return true;
    }
    if (client->state != TURN_CLIENT_ALLOCATED) {
        return false;
    }
    if (client->allocation.expires_at_us <= now_us) {
        turn_allocation_lost(client);
        event->kind = TURN_EVENT_EXPIRED;
        return true;
    }
    if (!client->is_refreshing && client->refresh_at_us <= now_us && has_room(client) &&
        turn_client_refresh(client, now_us) < 0) {
        client->refresh_at_us = now_us + SECOND_US;
    }
    advance_peers(client, now_us);
    return false;
}
