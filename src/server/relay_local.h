/* Relay to relay: a peer address that is a relayed address of this server is served without the network,
 * through the owning thread's mailbox where that is another one (the receiver's permissions are checked all
 * the same). */
#ifndef TURN_RELAY_LOCAL_H
#define TURN_RELAY_LOCAL_H

#include "relay.h"

struct relay_local_send {
    struct allocation *from;
    const struct endpoint *to; /* as the client named it */
    struct relay_location location;
    uint8_t *data;
    uint32_t n_data;
    uint8_t tos;
    bool room_before, room_after; /* see relay_delivery */
};
void relay_local_send(struct relay *relay, const struct relay_local_send *send);

/* Delivers everything that waits in a mailbox. The payloads stay in it until mailbox_release, to be called
 * after the flush. Returns the number of datagrams. */
uint32_t relay_local_receive(struct relay *relay, struct mailbox *from);

#endif
