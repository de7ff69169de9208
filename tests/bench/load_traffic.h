/* Offers traffic over flows that are set up, takes it back at the other end, and accounts for every datagram:
 * offered, accepted by the kernel, received, lost, duplicated, reordered, misrouted, dropped by the
 * generator's own sockets. One thread. */
#ifndef TURN_LOAD_TRAFFIC_H
#define TURN_LOAD_TRAFFIC_H

#include "latency.h"
#include "load_turn.h"

enum load_direction { LOAD_UP, LOAD_DOWN, LOAD_DIRECTIONS };
enum { LOAD_STAMP_BYTES = 24, LOAD_MAX_SIZES = 16, LOAD_MAX_PIDS = 8 };

struct load_traffic_params {
    uint32_t n_flows;
    struct load_address server;
    bool directions[LOAD_DIRECTIONS];
    uint32_t window; /* closed loop: datagrams in flight in each direction; 0: paced */
    double rate;     /* paced: datagrams/s in each direction, over all flows */
    uint32_t burst;  /* datagrams of one flow back to back */
    bool gso;        /* a burst leaves as one offloaded frame */
    uint32_t sizes[LOAD_MAX_SIZES], n_sizes; /* payload bytes, taken in turn (a GSO burst has one) */
    double warmup_s, duration_s;
    uint64_t max_datagrams;  /* in each direction and window */
    bool verify;             /* look into every segment, not only at the first stamp of a frame */
    int pids[LOAD_MAX_PIDS]; /* [0] the server, then what else counts as its cost; 0 ends the list */
};

struct load_leg_result {
    uint64_t offered, accepted, received, lost, duplicates, reordered, misrouted, corrupt, stalls,
        late_ns_max;
    uint64_t own_drops; /* of the receiving socket, frames */
    struct latency latency;
};

struct load_traffic_result {
    struct load_leg_result legs[LOAD_DIRECTIONS];
    double send_seconds, seconds;      /* offering; until the last datagram came */
    uint64_t cpu_ns[LOAD_MAX_PIDS];    /* process CPU clock: user and system of all threads */
    uint64_t user_ticks, system_ticks; /* of pids[0] */
    uint64_t generator_cpu_ns;
    uint64_t server_buffer_drops; /* UDP receive buffer errors in the server's namespace */
    uint64_t server_device_drops,
        device_drops[LOAD_DIRECTIONS]; /* full veth rings; [i]: at the sender's side */
};

/* 0 or -errno (a pid that is gone: -ESRCH). Runs the warm-up, then the measured window. */
int load_traffic_run(const struct load_traffic_params *params, struct load_port *clients,
                     struct load_port *peers, struct load_flow *flows, struct load_traffic_result *out);

#endif
