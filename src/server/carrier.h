/* The two ways to carry relayed transport addresses, behind the core's relay_carrier. One a relay thread. */
#ifndef TURN_CARRIER_H
#define TURN_CARRIER_H

#include "relay_registry.h"
#include "relay_socket.h"

struct carrier_params {
    struct relay_registry *registry;
    struct relay_socket_index *index;
    const struct relay_watch *watch;
    const struct relay_ip *ips;
    size_t n_ips;
    uint32_t thread;
    int buffer_bytes;
    uint16_t min_port, max_port; /* dedicated */
    uint32_t shared_pairs;       /* shared: pairs of this thread */
    bool even_port_dedicated;    /* shared: EVEN-PORT is served by dedicated ports instead of 508 */
    const uint64_t *now_us;      /* the thread's batch time */
    void (*random_bytes)(void *context, void *out, size_t n);
    void *random_context;
};

/* `dedicated`: an own port from min_port..max_port, chosen at random, on an own socket. */
int carrier_dedicated_create(struct relay_carrier *out, const struct carrier_params *params);
void carrier_dedicated_destroy(struct relay_carrier *carrier);

/* `shared`: opens the thread's sockets for every relay address at once. On failure *out_failed names the
 * address that could not be bound. */
int carrier_shared_create(struct relay_carrier *out, const struct carrier_params *params,
                          struct endpoint *out_failed);
void carrier_shared_destroy(struct relay_carrier *carrier);

#endif
