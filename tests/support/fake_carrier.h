/* A relay_carrier without sockets for tests: shared addresses, or dedicated ones with even ports and
 * reservations; can be told to refuse. Acquiring allocates no memory. One thread. */
#ifndef TURN_FAKE_CARRIER_H
#define TURN_FAKE_CARRIER_H

#include "relay_address.h"

enum { FAKE_CARRIER_FIRST_PORT = 40000, FAKE_CARRIER_SHARED_PORT = 3480 };

struct fake_carrier_params {
    bool shared;               /* shared addresses; else dedicated */
    uint32_t n_shared;         /* shared addresses per family, 0: 1 */
    uint32_t n_dedicated;      /* dedicated addresses in all, 0: 1024; also EVEN-PORT's in shared mode */
    bool even_port_dedicated;  /* shared: EVEN-PORT gets a dedicated address; else 508 */
    bool no_v4, no_v6;         /* family not served */
    uint32_t thread;           /* told by locate */
    const char *advertised_v4; /* external-ip; NULL: as local. Local is 192.0.2.1 and 2001:db8::1 */
};

struct fake_carrier {
    struct relay_carrier carrier;
    uint32_t n_held;         /* acquired and not yet released, counted per allocation */
    enum stun_status refuse; /* other than STUN_OK: what acquire answers from now on */
    uint32_t refuse_after;   /* so many acquires still succeed before `refuse` counts */
    uint32_t n_acquires, n_releases;
    struct fake_carrier_state *state; /* private */
};

int fake_carrier_create(struct fake_carrier **out, const struct fake_carrier_params *params);
/* Asserts nothing; tests check n_held themselves. */
void fake_carrier_destroy(struct fake_carrier *carrier);

/* A relayed address of another thread, for locate. At most 16. */
void fake_carrier_add_remote(struct fake_carrier *carrier, uint32_t thread, const char *local,
                             const char *advertised);
/* The i-th shared address of the family. */
struct relayed_address *fake_carrier_shared(struct fake_carrier *carrier, enum relay_family family,
                                            uint32_t i);

#endif
