#include "relay_registry.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "stun_integrity.h"

enum { PORTS = 65536 };

struct reservation {
    struct reservation *next;
    uint8_t token[STUN_RESERVATION_TOKEN_BYTES];
    struct udp_socket socket;
    uint64_t expires_us;
};

/* owner[port]: 0 free, else thread index + 1. */
struct port_owners {
    _Atomic uint16_t thread[PORTS];
};

struct relay_registry {
    struct relay_ip *ips;
    struct port_owners **owners; /* one for each of ips */
    size_t n_ips;
    uint32_t n_threads;
    uint16_t shared_base;
    uint32_t shared_pairs;
    pthread_mutex_t lock; /* reservations only */
    struct reservation *reservations;
};

int relay_registry_create(struct relay_registry **out, const struct relay_registry_params *params) {
    struct relay_registry *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return -ENOMEM;
    }
    pthread_mutex_init(&r->lock, NULL);
    r->n_threads = params->n_threads;
    r->shared_base = params->shared_base;
    r->shared_pairs = params->shared_pairs;
    r->ips = calloc(params->n_ips, sizeof *r->ips);
    r->owners = calloc(params->n_ips, sizeof(struct port_owners *));
    if (r->ips == NULL || r->owners == NULL) {
        relay_registry_destroy(r);
        return -ENOMEM;
    }
    for (size_t i = 0; i < params->n_ips; i++) {
        r->ips[i] = params->ips[i];
        r->owners[i] = calloc(1, sizeof *r->owners[i]);
        r->n_ips++;
        if (r->owners[i] == NULL) {
            relay_registry_destroy(r);
            return -ENOMEM;
        }
    }
    *out = r;
    return 0;
}

void relay_registry_destroy(struct relay_registry *registry) {
    if (registry == NULL) {
        return;
    }
    while (registry->reservations != NULL) {
        struct reservation *next = registry->reservations->next;
        udp_socket_close(&registry->reservations->socket);
        free(registry->reservations);
        registry->reservations = next;
    }
    for (size_t i = 0; i < registry->n_ips; i++) {
        free(registry->owners[i]);
    }
    free(registry->owners);
    free(registry->ips);
    pthread_mutex_destroy(&registry->lock);
    free(registry);
}

static struct port_owners *owners_of(const struct relay_registry *registry, const struct endpoint *local) {
    for (size_t i = 0; i < registry->n_ips; i++) {
        if (endpoint_same_ip(&registry->ips[i].local, local)) {
            return registry->owners[i];
        }
    }
    return NULL;
}

bool relay_registry_claim(struct relay_registry *registry, const struct endpoint *local, uint32_t thread) {
    struct port_owners *owners = owners_of(registry, local);
    uint16_t none = 0;
    return owners != NULL &&
           atomic_compare_exchange_strong(&owners->thread[local->port], &none, (uint16_t)(thread + 1));
}

void relay_registry_transfer(struct relay_registry *registry, const struct endpoint *local, uint32_t thread) {
    struct port_owners *owners = owners_of(registry, local);
    if (owners != NULL) {
        atomic_store(&owners->thread[local->port], (uint16_t)(thread + 1));
    }
}

void relay_registry_unclaim(struct relay_registry *registry, const struct endpoint *local) {
    struct port_owners *owners = owners_of(registry, local);
    if (owners != NULL) {
        atomic_store(&owners->thread[local->port], 0);
    }
}

uint16_t relay_registry_shared_port(const struct relay_registry *registry, uint32_t thread, uint32_t pair,
                                    enum relay_family family) {
    uint32_t port = registry->shared_base + 2 * (thread * registry->shared_pairs + pair);
    return (uint16_t)(port + (family == RELAY_V6 ? 1 : 0));
}

/* The thread of a shared port, or -1. The port's parity has to fit the family. */
static int shared_owner(const struct relay_registry *registry, const struct endpoint *e) {
    if (registry->shared_base == 0 || e->port < registry->shared_base) {
        return -1;
    }
    uint32_t offset = (uint32_t)(e->port - registry->shared_base);
    if ((offset & 1) != (e->family == AF_INET6 ? 1u : 0u)) {
        return -1;
    }
    uint32_t thread = offset / 2 / registry->shared_pairs;
    return thread < registry->n_threads ? (int)thread : -1;
}

bool relay_registry_locate(const struct relay_registry *registry, const struct endpoint *peer,
                           struct relay_location *out) {
    for (size_t i = 0; i < registry->n_ips; i++) {
        const struct relay_ip *ip = &registry->ips[i];
        if (!endpoint_same_ip(&ip->local, peer) && !endpoint_same_ip(&ip->advertised, peer)) {
            continue;
        }
        int thread = shared_owner(registry, peer);
        if (thread < 0) {
            thread =
                (int)atomic_load_explicit(&registry->owners[i]->thread[peer->port], memory_order_relaxed) - 1;
        }
        if (thread >= 0) {
            out->thread = (uint32_t)thread;
            out->local = ip->local;
            out->local.port = peer->port;
            return true;
        }
    }
    return false;
}

int relay_registry_reserve(struct relay_registry *registry, const uint8_t token[STUN_RESERVATION_TOKEN_BYTES],
                           const struct udp_socket *socket, uint64_t now_us) {
    struct reservation *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return -ENOMEM;
    }
    memcpy(r->token, token, sizeof r->token);
    r->socket = *socket;
    r->expires_us = now_us + RELAY_RESERVATION_US;
    pthread_mutex_lock(&registry->lock);
    r->next = registry->reservations;
    registry->reservations = r;
    pthread_mutex_unlock(&registry->lock);
    return 0;
}

/* Unlinks the first reservation that token names (or, token NULL, that has run out). Lock held. */
static struct reservation *unlink_reservation(struct relay_registry *registry, const uint8_t *token,
                                              uint64_t now_us) {
    for (struct reservation **at = &registry->reservations; *at != NULL; at = &(*at)->next) {
        struct reservation *r = *at;
        bool wanted = token != NULL ? stun_equal_constant_time(r->token, token, sizeof r->token) &&
                                          r->expires_us > now_us
                                    : r->expires_us <= now_us;
        if (wanted) {
            *at = r->next;
            return r;
        }
    }
    return NULL;
}

bool relay_registry_redeem(struct relay_registry *registry, const uint8_t token[STUN_RESERVATION_TOKEN_BYTES],
                           struct udp_socket *out, uint64_t now_us) {
    pthread_mutex_lock(&registry->lock);
    struct reservation *r = unlink_reservation(registry, token, now_us);
    pthread_mutex_unlock(&registry->lock);
    if (r == NULL) {
        return false;
    }
    *out = r->socket;
    free(r);
    return true;
}

void relay_registry_expire(struct relay_registry *registry, uint64_t now_us) {
    for (;;) {
        pthread_mutex_lock(&registry->lock);
        struct reservation *r = unlink_reservation(registry, NULL, now_us);
        pthread_mutex_unlock(&registry->lock);
        if (r == NULL) {
            return;
        }
        struct endpoint local = r->socket.local;
        udp_socket_close(&r->socket);
        relay_registry_unclaim(registry, &local);
        free(r);
    }
}
