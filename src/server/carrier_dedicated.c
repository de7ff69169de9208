#include <errno.h>
#include <stdlib.h>

#include "carrier.h"

/* Random picks before the range is walked; with a range half full the odds of needing the walk are 1 in 2^20.
 */
enum { RANDOM_TRIES = 20 };

struct carrier_dedicated {
    struct carrier_params params;
    uint32_t next_ip; /* relay addresses of a family are used in turn */
};

static uint32_t random_below(struct carrier_dedicated *c, uint32_t n) {
    uint32_t r;
    c->params.random_bytes(c->params.random_context, &r, sizeof r);
    return (uint32_t)(((uint64_t)r * n) >> 32);
}

static bool serves(void *context, enum relay_family family) {
    const struct carrier_dedicated *c = context;
    for (size_t i = 0; i < c->params.n_ips; i++) {
        if (relay_family_of(&c->params.ips[i].local) == family) {
            return true;
        }
    }
    return false;
}

static const struct relay_ip *pick_ip(struct carrier_dedicated *c, enum relay_family family) {
    for (size_t i = 0; i < c->params.n_ips; i++) {
        const struct relay_ip *ip = &c->params.ips[c->next_ip++ % c->params.n_ips];
        if (relay_family_of(&ip->local) == family) {
            return ip;
        }
    }
    return NULL;
}

/* Claims and opens one port. 0, -EADDRINUSE (try another), or what else the system said. */
static int open_port(struct carrier_dedicated *c, const struct relay_ip *ip, uint16_t port,
                     struct udp_socket *out) {
    struct endpoint local = ip->local;
    local.port = port;
    if (!relay_registry_claim(c->params.registry, &local, c->params.thread)) {
        return -EADDRINUSE;
    }
    int err = relay_socket_open_udp(out, &local, c->params.buffer_bytes);
    if (err < 0) {
        relay_registry_unclaim(c->params.registry, &local);
    }
    return err;
}

static void close_port(struct carrier_dedicated *c, struct udp_socket *socket) {
    struct endpoint local = socket->local;
    udp_socket_close(socket);
    relay_registry_unclaim(c->params.registry, &local);
}

/* Opens port, and for a reservation the next one as well. */
static int open_ports(struct carrier_dedicated *c, const struct relay_ip *ip, uint16_t port,
                      struct udp_socket *out, struct udp_socket *out_next) {
    int err = open_port(c, ip, port, out);
    if (err < 0 || out_next == NULL) {
        return err;
    }
    err = open_port(c, ip, (uint16_t)(port + 1), out_next);
    if (err < 0) {
        close_port(c, out);
    }
    return err;
}

/* Finds a free port: at random (RFC 6056; peers must not be able to guess it), then by walking from a random
 * start, so that a nearly full range is still used up to the last port. */
static int find_ports(struct carrier_dedicated *c, const struct relay_ip *ip, bool even,
                      struct udp_socket *out, struct udp_socket *out_next) {
    uint32_t step = even ? 2 : 1;
    uint32_t first = c->params.min_port;
    uint32_t last = c->params.max_port;
    if (even) {
        first += first & 1;
        last -= out_next != NULL ? 1 : 0;
    }
    if (first > last) {
        return -EADDRINUSE;
    }
    uint32_t n = (last - first) / step + 1;
    uint32_t start = 0;
    int err = -EADDRINUSE;
    for (int i = 0; i < RANDOM_TRIES && err == -EADDRINUSE; i++) {
        start = random_below(c, n);
        err = open_ports(c, ip, (uint16_t)(first + start * step), out, out_next);
    }
    for (uint32_t i = 1; i < n && err == -EADDRINUSE; i++) {
        err = open_ports(c, ip, (uint16_t)(first + (start + i) % n * step), out, out_next);
    }
    return err;
}

static enum stun_status finish(struct carrier_dedicated *c, const struct relay_ip *ip, struct udp_socket *udp,
                               struct relayed_address **out) {
    const struct relay_socket_params params = {.advertised_ip = ip->advertised};
    struct relay_socket *socket;
    if (relay_socket_create(&socket, c->params.index, c->params.watch, &params, udp) < 0) {
        close_port(c, udp);
        return STUN_INSUFFICIENT_CAPACITY;
    }
    *out = &socket->address;
    return STUN_OK;
}

static const struct relay_ip *ip_of(const struct carrier_dedicated *c, const struct endpoint *local) {
    for (size_t i = 0; i < c->params.n_ips; i++) {
        if (endpoint_same_ip(&c->params.ips[i].local, local)) {
            return &c->params.ips[i];
        }
    }
    return NULL;
}

static enum stun_status acquire_reserved(struct carrier_dedicated *c, const struct relay_request *request,
                                         struct relayed_address **out) {
    struct udp_socket udp;
    if (!relay_registry_redeem(c->params.registry, request->token, &udp, *c->params.now_us)) {
        return STUN_INSUFFICIENT_CAPACITY;
    }
    relay_registry_transfer(c->params.registry, &udp.local, c->params.thread);
    return finish(c, ip_of(c, &udp.local), &udp, out);
}

static enum stun_status acquire(void *context, const struct relay_request *request,
                                struct relayed_address **out,
                                uint8_t out_token[STUN_RESERVATION_TOKEN_BYTES]) {
    struct carrier_dedicated *c = context;
    if (request->token != NULL) {
        return acquire_reserved(c, request, out);
    }
    const struct relay_ip *ip = pick_ip(c, request->family);
    if (ip == NULL) {
        return STUN_ADDRESS_FAMILY_NOT_SUPPORTED;
    }
    struct udp_socket udp, next;
    bool reserve = request->even_port && request->reserve_next;
    if (find_ports(c, ip, request->even_port, &udp, reserve ? &next : NULL) < 0) {
        return STUN_INSUFFICIENT_CAPACITY;
    }
    if (reserve) {
        c->params.random_bytes(c->params.random_context, out_token, STUN_RESERVATION_TOKEN_BYTES);
        if (relay_registry_reserve(c->params.registry, out_token, &next, *c->params.now_us) < 0) {
            close_port(c, &next);
            close_port(c, &udp);
            return STUN_INSUFFICIENT_CAPACITY;
        }
    }
    return finish(c, ip, &udp, out);
}

static void release(void *context, struct relayed_address *address) {
    struct carrier_dedicated *c = context;
    struct endpoint local = address->local;
    relay_socket_destroy(relay_socket_of(address), c->params.index, c->params.watch);
    relay_registry_unclaim(c->params.registry, &local);
}

static bool locate(void *context, const struct endpoint *peer, struct relay_location *out) {
    const struct carrier_dedicated *c = context;
    return relay_registry_locate(c->params.registry, peer, out);
}

int carrier_dedicated_create(struct relay_carrier *out, const struct carrier_params *params) {
    struct carrier_dedicated *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return -ENOMEM;
    }
    c->params = *params;
    *out = (struct relay_carrier){
        .context = c, .serves = serves, .acquire = acquire, .release = release, .locate = locate};
    return 0;
}

void carrier_dedicated_destroy(struct relay_carrier *carrier) {
    free(carrier->context);
    carrier->context = NULL;
}
