/* The control side of the load generator: many TURN clients at once, requests pipelined and retransmitted. A
 * codec of its own, small and one-sided, so that the server is not checked with the server's own code. One
 * thread. */
#ifndef TURN_LOAD_TURN_H
#define TURN_LOAD_TURN_H

#include "load_port.h"

enum { LOAD_NONCE_BYTES = 128, LOAD_ERROR_CODES = 700 };

struct load_flow {
    struct load_template up, down; /* client to server, peer to relayed address */
    struct load_address client, peer, relayed;
    uint16_t channel;
};

struct load_turn_params {
    const char *user, *password;
    struct load_address server, first_client;
    uint32_t n_flows, ports_per_address;
    uint32_t window;     /* requests in flight */
    uint32_t lifetime_s; /* LIFETIME of the Allocate; 0: none asked */
    uint32_t deadline_s; /* of one phase over all flows */
};

enum load_turn_phase { LOAD_TURN_SETUP, LOAD_TURN_TEARDOWN };

struct load_turn_result {
    uint32_t n_done, n_failed, n_retransmits, n_challenges;
    uint32_t errors[LOAD_ERROR_CODES]; /* by code; [0]: no answer */
    double seconds;
};

struct load_turn;

/* 0 or -ENOMEM. Flows and the port (client side) are the caller's and outlive it. */
int load_turn_create(struct load_turn **out, const struct load_turn_params *params, struct load_port *clients,
                     struct load_flow *flows);
void load_turn_destroy(struct load_turn *turn);

/* SETUP: Allocate, then ChannelBind (which installs the permission); fills in each flow's relayed address.
 * TEARDOWN: Refresh with LIFETIME 0. Returns true when all flows succeeded. */
bool load_turn_run(struct load_turn *turn, enum load_turn_phase phase, struct load_turn_result *out);

#endif
