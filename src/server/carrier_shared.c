#include <errno.h>
#include <stdlib.h>

#include "carrier.h"

struct carrier_shared {
    struct carrier_params params;
    struct relay_socket **sockets; /* the thread's: for each relay address, shared_pairs of them */
    size_t n_sockets;
    size_t next;                    /* where the search for the least used one starts */
    struct relay_carrier dedicated; /* for EVEN-PORT; context NULL when it is refused */
};

static bool serves(void *context, enum relay_family family) {
    const struct carrier_shared *c = context;
    for (size_t i = 0; i < c->n_sockets; i++) {
        if (relay_family_of(&c->sockets[i]->address.local) == family) {
            return true;
        }
    }
    return false;
}

/* The address with the fewest allocations; ties go round, so that one user's allocations spread. */
static struct relay_socket *least_used(struct carrier_shared *c, enum relay_family family) {
    struct relay_socket *best = NULL;
    size_t best_at = 0;
    for (size_t i = 0; i < c->n_sockets; i++) {
        size_t at = (c->next + i) % c->n_sockets;
        struct relay_socket *s = c->sockets[at];
        if (relay_family_of(&s->address.local) != family) {
            continue;
        }
        if (best == NULL || s->address.n_allocations < best->address.n_allocations) {
            best = s;
            best_at = at;
        }
    }
    if (best != NULL) {
        c->next = best_at + 1;
    }
    return best;
}

static enum stun_status acquire(void *context, const struct relay_request *request,
                                struct relayed_address **out,
                                uint8_t out_token[STUN_RESERVATION_TOKEN_BYTES]) {
    struct carrier_shared *c = context;
    if (request->token != NULL || request->even_port) {
        /* A shared port is nobody's to choose or reserve (RFC 8656, 7.2: 508). */
        return c->dedicated.context == NULL
                   ? STUN_INSUFFICIENT_CAPACITY
                   : c->dedicated.acquire(c->dedicated.context, request, out, out_token);
    }
    struct relay_socket *s = least_used(c, request->family);
    if (s == NULL) {
        return STUN_ADDRESS_FAMILY_NOT_SUPPORTED;
    }
    *out = &s->address;
    return STUN_OK;
}

static void release(void *context, struct relayed_address *address) {
    struct carrier_shared *c = context;
    if (!address->shared) {
        c->dedicated.release(c->dedicated.context, address);
    }
}

static bool locate(void *context, const struct endpoint *peer, struct relay_location *out) {
    const struct carrier_shared *c = context;
    return relay_registry_locate(c->params.registry, peer, out);
}

static int open_sockets(struct carrier_shared *c, struct endpoint *out_failed) {
    const struct carrier_params *p = &c->params;
    for (size_t i = 0; i < p->n_ips; i++) {
        for (uint32_t pair = 0; pair < p->shared_pairs; pair++) {
            enum relay_family family = relay_family_of(&p->ips[i].local);
            struct relay_socket_params params = {
                .local = p->ips[i].local,
                .advertised_ip = p->ips[i].advertised,
                .shared = true,
                .buffer_bytes = p->buffer_bytes,
            };
            params.local.port = relay_registry_shared_port(p->registry, p->thread, pair, family);
            int err = relay_socket_create(&c->sockets[c->n_sockets], p->index, p->watch, &params, NULL);
            if (err < 0) {
                *out_failed = params.local;
                return err;
            }
            c->n_sockets++;
        }
    }
    return 0;
}

int carrier_shared_create(struct relay_carrier *out, const struct carrier_params *params,
                          struct endpoint *out_failed) {
    *out = (struct relay_carrier){0};
    *out_failed = (struct endpoint){0};
    struct carrier_shared *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return -ENOMEM;
    }
    c->params = *params;
    out->context = c;
    c->sockets = calloc(params->n_ips * params->shared_pairs, sizeof(struct relay_socket *));
    int err = c->sockets == NULL ? -ENOMEM : open_sockets(c, out_failed);
    if (err == 0 && params->even_port_dedicated) {
        err = carrier_dedicated_create(&c->dedicated, params);
    }
    if (err < 0) {
        carrier_shared_destroy(out);
        return err;
    }
    *out = (struct relay_carrier){
        .context = c, .serves = serves, .acquire = acquire, .release = release, .locate = locate};
    return 0;
}

void carrier_shared_destroy(struct relay_carrier *carrier) {
    struct carrier_shared *c = carrier->context;
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->n_sockets; i++) {
        relay_socket_destroy(c->sockets[i], c->params.index, c->params.watch);
    }
    if (c->dedicated.context != NULL) {
        carrier_dedicated_destroy(&c->dedicated);
    }
    free(c->sockets);
    free(c);
    carrier->context = NULL;
}
