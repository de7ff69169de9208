#include "client_link_udp.h"

static void send_udp(struct client_link *link, struct tx_batch *tx, struct tx_flow *flow,
                     const struct five_tuple *tuple, const struct tx_datagram *datagram, uint64_t now_us) {
    struct client_link_udp *udp = (struct client_link_udp *)link;
    /* The reply leaves from the address the request came to; a wildcard socket has to be told. */
    const struct tx_target target = {
        .socket = &udp->socket,
        .to = &tuple->client,
        .from = udp->socket.packet_info ? &tuple->server : NULL,
    };
    tx_batch_add(tx, flow, &target, datagram, now_us);
}

static const struct client_link_ops udp_ops = {.name = "UDP", .send = send_udp};

int client_link_udp_open(struct client_link_udp *udp, const struct endpoint *local, int buffer_bytes) {
    const struct udp_socket_params params = {
        .local = *local,
        .reuse_port = true,
        .gro = true,
        .buffer_bytes = buffer_bytes,
    };
    udp->link.ops = &udp_ops;
    return udp_socket_open(&udp->socket, &params);
}

void client_link_udp_close(struct client_link_udp *udp) {
    udp_socket_close(&udp->socket);
}
