/* How a client is reached: one row of functions for each transport. The relay path knows no transport. */
#ifndef TURN_CLIENT_LINK_H
#define TURN_CLIENT_LINK_H

#include "five_tuple.h"
#include "udp_batch.h"

struct client_link;

struct client_link_ops {
    const char *name; /* "UDP" */
    /* Sends one frame (ChannelData or STUN) to the client named by tuple; the bytes stay until the flush.
     * flow groups, may be NULL. */
    void (*send)(struct client_link *link, struct tx_batch *tx, struct tx_flow *flow,
                 const struct five_tuple *tuple, const struct tx_datagram *datagram, uint64_t now_us);
};

/* First member of every transport's own struct. */
struct client_link {
    const struct client_link_ops *ops;
};

static inline void client_link_send(struct client_link *link, struct tx_batch *tx, struct tx_flow *flow,
                                    const struct five_tuple *tuple, const struct tx_datagram *datagram,
                                    uint64_t now_us) {
    link->ops->send(link, tx, flow, tuple, datagram, now_us);
}

#endif
