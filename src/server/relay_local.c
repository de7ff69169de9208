#include "relay_local.h"

#include "mailbox.h"

/* What goes before the payload in a mailbox. */
struct local_message {
    struct relay_sender sender;
    struct endpoint to; /* the receiving relayed address, as bound */
    uint32_t n_data;
    uint8_t tos;
};

/* Bytes after the payload that the receiver may overwrite (a Data indication's padding). */
enum { LOCAL_SLACK_BYTES = 3 };

static void describe_sender(struct relay_sender *out, const struct allocation *from,
                            enum relay_family family) {
    const struct relayed_address *address = from->relay[family].address;
    out->uid = from->uid;
    out->user_hash = from->user_hash;
    out->advertised = address->advertised;
    out->local = address->local;
}

/* Finds the receiver on this thread and delivers. */
static enum drop_reason deliver_here(struct relay *relay, const struct local_message *m, uint8_t *data,
                                     bool room_before, bool room_after) {
    struct relay_socket *socket = relay_socket_find(relay->sockets, &m->to);
    if (socket == NULL) {
        return DROP_NO_RELAYED_ADDRESS;
    }
    struct peer_match match = {0};
    struct endpoint peer;
    peer_table_match_local(relay->allocations, &socket->address, &m->sender, data, m->n_data,
                           relay->now.now_us, &match, &peer);
    if (match.allocation == NULL) {
        return match.reason;
    }
    counter_add(&relay->counters->downlink.rx_datagrams, 1);
    counter_add(&relay->counters->downlink.rx_bytes, m->n_data);
    const struct relay_delivery delivery = {
        .allocation = match.allocation,
        .channel = match.channel,
        .peer = &peer,
        .data = data,
        .n_data = m->n_data,
        .tos = m->tos,
        .room_before = room_before,
        .room_after = room_after,
    };
    relay_deliver(relay, &delivery);
    return DROP_NONE;
}

static enum drop_reason post(struct relay *relay, uint32_t thread, const struct local_message *m,
                             const struct relay_local_send *send) {
    /* The slack is copied along so that the receiver has room for padding; whatever it holds is overwritten.
     */
    static const uint8_t no_slack[LOCAL_SLACK_BYTES];
    struct mailbox *to = thread < relay->n_threads ? relay->to[thread] : NULL;
    if (to == NULL) {
        return DROP_NO_RELAYED_ADDRESS;
    }
    int err;
    if (send->n_data == 0) {
        err = mailbox_post(to, m, sizeof *m, no_slack, sizeof no_slack);
    } else {
        err = mailbox_post(to, m, sizeof *m, send->data, send->n_data + LOCAL_SLACK_BYTES);
    }
    if (err < 0) {
        return DROP_MAILBOX_FULL;
    }
    counter_add(&relay->counters->local_posted, 1);
    return DROP_NONE;
}

void relay_local_send(struct relay *relay, const struct relay_local_send *send) {
    struct relay_direction *direction = &relay->counters->uplink;
    struct local_message m = {.n_data = send->n_data, .tos = send->tos};
    struct relay_location location = send->location;
    /* A dedicated address may have changed hands since the peer was named. */
    if (!relay->carrier->locate(relay->carrier->context, send->to, &location)) {
        relay_drop(direction, DROP_NO_RELAYED_ADDRESS, 1);
        return;
    }
    describe_sender(&m.sender, send->from, relay_family_of(send->to));
    m.to = location.local;
    send->from->peer_leg.tx_packets++;
    send->from->peer_leg.tx_bytes += send->n_data;
    enum drop_reason reason = location.thread == relay->thread
                                  ? deliver_here(relay, &m, send->data, send->room_before, send->room_after)
                                  : post(relay, location.thread, &m, send);
    if (reason != DROP_NONE) {
        relay_drop(direction, reason, 1);
        return;
    }
    counter_add(&direction->tx_datagrams, 1);
    counter_add(&direction->tx_bytes, send->n_data);
}

uint32_t relay_local_receive(struct relay *relay, struct mailbox *from) {
    uint32_t n = 0;
    size_t n_bytes;
    const void *bytes;
    while ((bytes = mailbox_peek(from, &n_bytes)) != NULL) {
        const struct local_message *m = bytes;
        uint8_t *data = (uint8_t *)(uintptr_t)(m + 1); /* the record is ours until it is given back */
        n++;
        counter_add(&relay->counters->local_received, 1);
        enum drop_reason reason = deliver_here(relay, m, data, false, true);
        if (reason != DROP_NONE) {
            counter_add(&relay->counters->downlink.rx_datagrams, 1);
            counter_add(&relay->counters->downlink.rx_bytes, m->n_data);
            relay_drop(&relay->counters->downlink, reason, 1);
        }
    }
    return n;
}
