/* Process-wide knowledge of relayed addresses: which thread owns which port of which relay address, and ports
 * held for RESERVATION-TOKENs. Written when allocations come and go, read (one relaxed load) when a client
 * names one of our own addresses as its peer. Any thread. */
#ifndef TURN_RELAY_REGISTRY_H
#define TURN_RELAY_REGISTRY_H

#include "relay_address.h"
#include "udp_socket.h"

struct relay_registry;

/* A relay address: as bound and as told to clients (external-ip). Ports are 0. */
struct relay_ip {
    struct endpoint local;
    struct endpoint advertised;
};

struct relay_registry_params {
    const struct relay_ip *ips;
    size_t n_ips;
    uint32_t n_threads;
    /* shared carrier: ports base .. base + 2 * n_threads * pairs - 1; 0: not used */
    uint16_t shared_base;
    uint32_t shared_pairs; /* per thread */
};

int relay_registry_create(struct relay_registry **out, const struct relay_registry_params *params);
void relay_registry_destroy(struct relay_registry *registry);

/* Marks a port of a relay address as this thread's. False when another allocation has it. */
bool relay_registry_claim(struct relay_registry *registry, const struct endpoint *local, uint32_t thread);
/* Moves a claimed port to another thread (a reserved port that is now used). */
void relay_registry_transfer(struct relay_registry *registry, const struct endpoint *local, uint32_t thread);
void relay_registry_unclaim(struct relay_registry *registry, const struct endpoint *local);

/* See relay_carrier.locate. */
bool relay_registry_locate(const struct relay_registry *registry, const struct endpoint *peer,
                           struct relay_location *out);

/* The shared port of a thread's pair for a family: base + 2 * (thread * pairs + pair) (+ 1 for IPv6). */
uint16_t relay_registry_shared_port(const struct relay_registry *registry, uint32_t thread, uint32_t pair,
                                    enum relay_family family);

enum { RELAY_RESERVATION_US = 30 * 1000000 }; /* RFC 8656, 7.2: at least 30 seconds */

/* Keeps an open, claimed socket under a token. 0 or -ENOMEM (the socket stays the caller's). */
int relay_registry_reserve(struct relay_registry *registry, const uint8_t token[STUN_RESERVATION_TOKEN_BYTES],
                           const struct udp_socket *socket, uint64_t now_us);
/* Takes a reserved socket out; the caller owns it. False when the token is unknown or used. */
bool relay_registry_redeem(struct relay_registry *registry, const uint8_t token[STUN_RESERVATION_TOKEN_BYTES],
                           struct udp_socket *out, uint64_t now_us);
/* Closes reservations that ran out. */
void relay_registry_expire(struct relay_registry *registry, uint64_t now_us);

#endif
