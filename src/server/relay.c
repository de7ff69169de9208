#include "relay.h"

#include "channel_data.h"
#include "relay_local.h"

static_assert((int)RX_HEADROOM_BYTES >= (int)DATA_INDICATION_MAX_BYTES, "headers are prepended in place");

/* Counts a packet that came in. Returns its datagrams, or 0 when it is dropped as a whole. */
static uint32_t count_in(struct relay_direction *direction, const struct rx_packet *packet) {
    uint32_t n_datagrams = rx_packet_datagrams(packet);
    counter_add(&direction->rx_datagrams, n_datagrams);
    counter_add(&direction->rx_bytes, packet->n_bytes);
    if (packet->truncated || packet->source.port == 0) {
        relay_drop(direction, packet->truncated ? DROP_TRUNCATED : DROP_SOURCE_PORT_ZERO, n_datagrams);
        return 0;
    }
    return n_datagrams;
}

/* The i-th datagram of a packet. */
static uint8_t *segment_of(const struct rx_packet *packet, uint32_t i, uint32_t *out_n_bytes) {
    if (packet->segment_bytes == 0) {
        *out_n_bytes = packet->n_bytes;
        return packet->data;
    }
    uint32_t at = i * packet->segment_bytes;
    uint32_t left = packet->n_bytes - at;
    *out_n_bytes = left < packet->segment_bytes ? left : packet->segment_bytes;
    return packet->data + at;
}

/* ---- towards the client ---- */

static void send_to_client(struct relay *relay, struct allocation *allocation,
                           const struct tx_datagram *datagram, uint32_t n_payload) {
    allocation->client_leg.tx_packets++;
    allocation->client_leg.tx_bytes += datagram->n_head + datagram->n_body;
    counter_add(&relay->counters->downlink.tx_datagrams, 1);
    counter_add(&relay->counters->downlink.tx_bytes, n_payload);
    client_link_send(allocation->client_link, relay->tx, &allocation->downlink, &allocation->five_tuple,
                     datagram, relay->now.now_us);
}

static void deliver_channel_data(struct relay *relay, const struct relay_delivery *d) {
    uint8_t *header = d->room_before ? d->data - CHANNEL_HEADER_BYTES
                                     : tx_batch_scratch(relay->tx, CHANNEL_HEADER_BYTES, relay->now.now_us);
    channel_data_encode_header(header, d->channel->number, (uint16_t)d->n_data);
    const struct tx_datagram datagram = {
        .head = header, .n_head = CHANNEL_HEADER_BYTES, .body = d->data, .n_body = d->n_data, .tos = d->tos};
    send_to_client(relay, d->allocation, &datagram, d->n_data);
}

/* A Data indication whose padding has no room behind the payload: the bytes that follow belong to the next
 * segment. They are lent for the length of one flush. */
static void deliver_indication_flushed(struct relay *relay, const struct relay_delivery *d,
                                       struct tx_datagram *datagram, uint32_t n_padding) {
    uint8_t saved[4];
    uint8_t *after = d->data + d->n_data;
    memcpy(saved, after, n_padding);
    memset(after, 0, n_padding);
    datagram->n_body += n_padding;
    send_to_client(relay, d->allocation, datagram, d->n_data);
    tx_batch_flush(relay->tx, relay->now.now_us);
    memcpy(after, saved, n_padding);
}

static void deliver_data_indication(struct relay *relay, const struct relay_delivery *d) {
    /* The transaction id of an indication is only a label (RFC 8489, 6.1): thread and count. */
    uint8_t id[STUN_TRANSACTION_ID_BYTES];
    wire_put_u32(id, relay->thread);
    wire_put_u32(id + 4, (uint32_t)(relay->next_data_id >> 32));
    wire_put_u32(id + 8, (uint32_t)relay->next_data_id);
    relay->next_data_id++;
    size_t n_header = d->peer->family == AF_INET6 ? DATA_INDICATION_V6_BYTES : DATA_INDICATION_V4_BYTES;
    uint8_t *header = d->room_before
                          ? d->data - n_header
                          : tx_batch_scratch(relay->tx, DATA_INDICATION_MAX_BYTES, relay->now.now_us);
    if (stun_encode_data_indication_header(header, d->peer, (uint16_t)d->n_data, id) == 0) {
        /* The largest datagrams of all do not fit into an indication. */
        relay_drop(&relay->counters->downlink, DROP_TOO_BIG, 1);
        return;
    }
    uint32_t n_padding = stun_padding(d->n_data);
    struct tx_datagram datagram = {
        .head = header, .n_head = (uint32_t)n_header, .body = d->data, .n_body = d->n_data, .tos = d->tos};
    if (n_padding > 0 && !d->room_after) {
        deliver_indication_flushed(relay, d, &datagram, n_padding);
        return;
    }
    memset(d->data + d->n_data, 0, n_padding);
    datagram.n_body += n_padding;
    send_to_client(relay, d->allocation, &datagram, d->n_data);
}

void relay_deliver(struct relay *relay, const struct relay_delivery *delivery) {
    struct allocation *allocation = delivery->allocation;
    allocation->peer_leg.rx_packets++;
    allocation->peer_leg.rx_bytes += delivery->n_data;
    if (delivery->channel != NULL) {
        deliver_channel_data(relay, delivery);
    } else {
        deliver_data_indication(relay, delivery);
    }
}

/* ---- downlink ---- */

/* An established, uncontested endpoint: all segments of a coalesced packet have the same owner. */
static bool match_holds_for_all(const struct relayed_address *relayed, const struct peer_match *match) {
    return !relayed->shared || (match->peer != NULL && !match->peer->is_contested);
}

static void downlink_packet(struct relay *relay, struct relayed_address *relayed,
                            const struct rx_packet *packet, uint64_t hash) {
    struct relay_direction *direction = &relay->counters->downlink;
    uint32_t n_datagrams = count_in(direction, packet);
    struct peer_match match = {0};
    for (uint32_t i = 0; i < n_datagrams; i++) {
        uint32_t n;
        uint8_t *data = segment_of(packet, i, &n);
        if (i == 0 || !match_holds_for_all(relayed, &match)) {
            const struct peer_datagram datagram = {
                .peer = &packet->source, .payload = data, .n_payload = n, .hash = hash};
            peer_table_match(relay->allocations, relayed, &datagram, relay->now.now_us, &match);
        }
        if (match.allocation == NULL) {
            relay_drop(direction, match.reason, 1);
            continue;
        }
        const struct relay_delivery delivery = {
            .allocation = match.allocation,
            .channel = match.channel,
            .peer = &packet->source,
            .data = data,
            .n_data = n,
            .tos = packet->tos,
            .room_before = i == 0,
            .room_after = i == n_datagrams - 1,
        };
        relay_deliver(relay, &delivery);
    }
}

void relay_icmp_error(struct relay *relay, struct relayed_address *relayed, const struct udp_error *error) {
    counter_add(&relay->counters->icmp_errors, 1);
    struct allocation *allocation = peer_table_match_error(relay->allocations, relayed, &error->peer);
    if (allocation == NULL) {
        return;
    }
    uint8_t id[STUN_TRANSACTION_ID_BYTES] = {0};
    wire_put_u32(id + 8, (uint32_t)relay->next_data_id++);
    enum { ICMP_INDICATION_BYTES = 128 };
    uint8_t *bytes = tx_batch_scratch(relay->tx, ICMP_INDICATION_BYTES, relay->now.now_us);
    struct wire_writer w = wire_writer_over(bytes, ICMP_INDICATION_BYTES);
    stun_message_begin(&w, STUN_INDICATION, STUN_METHOD_DATA, id);
    stun_write_xor_address(&w, STUN_ATTR_XOR_PEER_ADDRESS, &error->peer, id);
    stun_write_icmp(&w, error->icmp_type, error->icmp_code, error->info);
    uint32_t n = (uint32_t)stun_message_end(&w);
    counter_add(&relay->counters->icmp_delivered, 1);
    const struct tx_datagram datagram = {.body = bytes, .n_body = n};
    client_link_send(allocation->client_link, relay->tx, NULL, &allocation->five_tuple, &datagram,
                     relay->now.now_us);
}

/* ---- uplink ---- */

/* What one datagram of a client is relayed with. */
struct uplink {
    struct relay *relay;
    struct client_link *link;
    struct five_tuple tuple;
    uint64_t hash;                 /* of the 5-tuple, 0: not known */
    struct allocation *allocation; /* NULL: none on this 5-tuple */
    uint8_t tos;
    bool first, last; /* of the coalesced packet: there is room before, after */
};

static void send_to_peer(struct uplink *u, struct relayed_address *relayed, struct tx_flow *flow,
                         const struct endpoint *peer, const struct tx_datagram *datagram) {
    struct relay *relay = u->relay;
    u->allocation->peer_leg.tx_packets++;
    u->allocation->peer_leg.tx_bytes += datagram->n_body;
    counter_add(&relay->counters->uplink.tx_datagrams, 1);
    counter_add(&relay->counters->uplink.tx_bytes, datagram->n_body);
    const struct tx_target target = {.socket = relayed->socket, .to = peer};
    tx_batch_add(relay->tx, flow, &target, datagram, relay->now.now_us);
}

static void send_local(struct uplink *u, const struct endpoint *peer, const struct relay_location *location,
                       const uint8_t *data, uint32_t n_data) {
    const struct relay_local_send send = {
        .from = u->allocation,
        .to = peer,
        .location = *location,
        .data = (uint8_t *)(uintptr_t)data, /* points into the receive slot, which is ours to write */
        .n_data = n_data,
        .tos = u->tos,
        .room_before = u->first,
        .room_after = u->last,
    };
    relay_local_send(u->relay, &send);
}

static enum drop_reason uplink_channel_data(struct uplink *u, const uint8_t *bytes, uint32_t n_bytes) {
    uint16_t number;
    const uint8_t *payload;
    uint32_t n_payload;
    if (u->allocation == NULL) {
        return DROP_NO_ALLOCATION;
    }
    if (!channel_data_decode(bytes, n_bytes, &number, &payload, &n_payload)) {
        return DROP_MALFORMED;
    }
    struct channel *channel = channel_find(u->allocation, number);
    if (channel == NULL) {
        return DROP_NO_CHANNEL;
    }
    struct peer_endpoint *peer = channel->peer;
    if (peer->permission == NULL || !peer->permission->is_live) {
        return DROP_NO_PERMISSION;
    }
    if (peer->relayed->shared) {
        peer_table_note_sent(u->allocation, peer, &peer->peer, payload, n_payload, u->relay->now.now_us);
    }
    if (peer->is_local) {
        send_local(u, &peer->peer, &peer->location, payload, n_payload);
        return DROP_NONE;
    }
    const struct tx_datagram datagram = {.body = payload, .n_body = n_payload, .tos = u->tos};
    send_to_peer(u, peer->relayed, &peer->uplink, &peer->peer, &datagram);
    return DROP_NONE;
}

static enum drop_reason uplink_send_indication(struct uplink *u, const struct stun_message *message) {
    if (u->allocation == NULL) {
        return DROP_NO_ALLOCATION;
    }
    struct send_indication send;
    enum drop_reason reason = indication_send_decode(u->relay->core, u->allocation, message, &send);
    if (reason != DROP_NONE) {
        return reason;
    }
    struct relayed_address *relayed = u->allocation->relay[relay_family_of(&send.peer)].address;
    struct peer_endpoint *peer = NULL;
    if (relayed->shared) {
        peer = peer_table_note_sent(u->allocation, NULL, &send.peer, send.data, send.n_data,
                                    u->relay->now.now_us);
    }
    if (send.is_local) {
        send_local(u, &send.peer, &send.location, send.data, send.n_data);
        return DROP_NONE;
    }
    const struct tx_datagram datagram = {
        .body = send.data, .n_body = send.n_data, .tos = u->tos, .dont_fragment = send.dont_fragment};
    send_to_peer(u, relayed, peer == NULL ? NULL : &peer->uplink, &send.peer, &datagram);
    return DROP_NONE;
}

static void answer_control(struct uplink *u, const struct stun_message *message) {
    struct relay *relay = u->relay;
    uint8_t reply[CORE_REPLY_MAX_BYTES];
    counter_add(&relay->counters->control_requests, 1);
    const struct core_client client = {.five_tuple = &u->tuple, .link = u->link};
    size_t n = turn_core_handle_request(relay->core, &client, message, relay->now, reply);
    /* The request may have made or ended the allocation. */
    u->allocation = NULL;
    relay->last_allocation = NULL;
    if (n == 0) {
        return;
    }
    counter_add(&relay->counters->control_replies, 1);
    uint8_t *bytes = tx_batch_scratch(relay->tx, (uint32_t)n, relay->now.now_us);
    memcpy(bytes, reply, n);
    const struct tx_datagram datagram = {.body = bytes, .n_body = (uint32_t)n};
    client_link_send(u->link, relay->tx, NULL, &u->tuple, &datagram, relay->now.now_us);
}

static void find_allocation(struct uplink *u) {
    struct relay *relay = u->relay;
    if (relay->last_allocation == NULL || !five_tuple_equal(&relay->last_tuple, &u->tuple)) {
        relay->last_tuple = u->tuple;
        relay->last_allocation = u->hash != 0 ? allocation_find_hashed(relay->allocations, &u->tuple, u->hash)
                                              : allocation_find(relay->allocations, &u->tuple);
    }
    u->allocation = relay->last_allocation;
}

/* One datagram. Relayed, answered, or why not. */
static enum drop_reason uplink_datagram(struct uplink *u, const uint8_t *bytes, uint32_t n_bytes) {
    if (n_bytes == 0) {
        return DROP_NOT_TURN;
    }
    find_allocation(u);
    if (u->allocation != NULL) {
        u->allocation->client_leg.rx_packets++;
        u->allocation->client_leg.rx_bytes += n_bytes;
    }
    if (channel_data_is_first_byte(bytes[0])) {
        return uplink_channel_data(u, bytes, n_bytes);
    }
    if (!stun_looks_like_message(bytes, n_bytes)) {
        return DROP_NOT_TURN;
    }
    struct stun_message message;
    if (!stun_message_decode(&message, bytes, n_bytes)) {
        return DROP_MALFORMED;
    }
    if (message.class == STUN_INDICATION && message.method == STUN_METHOD_SEND) {
        return uplink_send_indication(u, &message);
    }
    answer_control(u, &message);
    return DROP_NONE;
}

static void uplink_packet(struct relay *relay, struct client_link *link, enum client_transport transport,
                          const struct rx_packet *packet, uint64_t hash) {
    struct relay_direction *direction = &relay->counters->uplink;
    uint32_t n_datagrams = count_in(direction, packet);
    struct uplink u = {
        .relay = relay,
        .link = link,
        .tuple = {.client = packet->source, .server = packet->destination, .transport = transport},
        .hash = hash,
        .tos = packet->tos,
    };
    for (uint32_t i = 0; i < n_datagrams; i++) {
        uint32_t n;
        uint8_t *data = segment_of(packet, i, &n);
        u.first = i == 0;
        u.last = i == n_datagrams - 1;
        enum drop_reason reason = uplink_datagram(&u, data, n);
        if (reason != DROP_NONE) {
            relay_drop(direction, reason, 1);
        }
    }
}

/* ---- batches ---- */

static void warm_uplink(const struct relay *relay, enum client_transport transport,
                        const struct rx_packet *packets, uint32_t n, uint64_t *out_hashes) {
    struct five_tuple tuples[LOOKUP_WARM_MAX];
    for (uint32_t i = 0; i < n; i++) {
        tuples[i] = (struct five_tuple){
            .client = packets[i].source, .server = packets[i].destination, .transport = transport};
    }
    allocation_warm(relay->allocations, tuples, n, out_hashes);
}

void relay_uplink(struct relay *relay, struct client_link *link, enum client_transport transport,
                  const struct rx_packet *packets, uint32_t n) {
    uint64_t hashes[LOOKUP_WARM_MAX] = {0};
    bool warm = n > 1 && allocation_table_wants_warming(relay->allocations);
    for (uint32_t i = 0; i < n; i++) {
        if (warm && i % LOOKUP_WARM_MAX == 0) {
            uint32_t left = n - i < LOOKUP_WARM_MAX ? n - i : LOOKUP_WARM_MAX;
            warm_uplink(relay, transport, packets + i, left, hashes);
        }
        uplink_packet(relay, link, transport, &packets[i], hashes[i % LOOKUP_WARM_MAX]);
    }
}

static void warm_downlink(const struct relay *relay, const struct relayed_address *relayed,
                          const struct rx_packet *packets, uint32_t n, uint64_t *out_hashes) {
    const struct endpoint *peers[LOOKUP_WARM_MAX];
    for (uint32_t i = 0; i < n; i++) {
        peers[i] = &packets[i].source;
    }
    peer_table_warm(relay->allocations, relayed, peers, n, out_hashes);
}

void relay_downlink(struct relay *relay, struct relayed_address *relayed, const struct rx_packet *packets,
                    uint32_t n) {
    uint64_t hashes[LOOKUP_WARM_MAX] = {0};
    bool warm = n > 1 && allocation_table_wants_warming(relay->allocations);
    for (uint32_t i = 0; i < n; i++) {
        if (warm && i % LOOKUP_WARM_MAX == 0) {
            uint32_t left = n - i < LOOKUP_WARM_MAX ? n - i : LOOKUP_WARM_MAX;
            warm_downlink(relay, relayed, packets + i, left, hashes);
        }
        downlink_packet(relay, relayed, &packets[i], hashes[i % LOOKUP_WARM_MAX]);
    }
}

void relay_forget(struct relay *relay, const struct allocation *allocation) {
    if (relay->last_allocation == allocation) {
        relay->last_allocation = NULL;
    }
}
