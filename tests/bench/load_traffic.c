#include "load_traffic.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CHANNEL_HEADER_BYTES = 4,
    STAMP_MAGIC = 0x62656e63,
    SNAP_BYTES = LOAD_FRAME_HEAD_BYTES + CHANNEL_HEADER_BYTES + LOAD_STAMP_BYTES + 4,
    STALL_NS = 100000000,
    DRAIN_IDLE_NS = 60000000,
    DRAIN_MAX_NS = 1000000000,
    WINDOW_BITS = 64,
};

/* First bytes of every payload. Host byte order: both ends are this process. */
struct stamp {
    uint32_t magic;
    uint32_t flow;
    uint32_t sequence; /* of the flow and direction */
    uint16_t epoch;    /* warm-up or measured window */
    uint16_t direction;
    uint64_t sent_ns; /* CLOCK_REALTIME */
};
_Static_assert(sizeof(struct stamp) == LOAD_STAMP_BYTES, "the head of every payload");

struct flow_state {
    uint32_t next_tx, next_rx;
    uint64_t seen; /* bit i: next_rx - 1 - i has come */
};

struct leg {
    enum load_direction direction;
    struct load_port *tx, *rx;
    struct flow_state *states;
    uint32_t next_flow, next_size;
    uint64_t in_flight, received_any, n_bursts;
    uint64_t last_rx_ns; /* monotonic */
    struct load_leg_result *result;
};

struct traffic {
    const struct load_traffic_params *params;
    struct load_flow *flows;
    struct leg legs[LOAD_DIRECTIONS];
    uint16_t epoch;
    bool ended; /* receiving what is still on its way */
    uint64_t now_ns, stamp_ns;
};

/* ---- sending ---- */

static uint32_t next_size(struct leg *leg, const struct load_traffic_params *p) {
    uint32_t size = p->sizes[leg->next_size];
    leg->next_size = leg->next_size + 1 == p->n_sizes ? 0 : leg->next_size + 1;
    return size;
}

/* One frame of n datagrams of the flow. */
static void add_frame(struct traffic *t, struct leg *leg, uint32_t flow_index, uint32_t size, uint32_t n) {
    struct load_flow *flow = &t->flows[flow_index];
    struct flow_state *state = &leg->states[flow_index];
    bool is_up = leg->direction == LOAD_UP;
    uint32_t header_bytes = is_up ? CHANNEL_HEADER_BYTES : 0;
    uint8_t *at = load_port_add(leg->tx, is_up ? &flow->up : &flow->down, header_bytes + LOAD_STAMP_BYTES,
                                size - LOAD_STAMP_BYTES, n);
    for (uint32_t i = 0; i < n; i++) {
        if (is_up) {
            at[0] = (uint8_t)(flow->channel >> 8), at[1] = (uint8_t)flow->channel;
            at[2] = (uint8_t)(size >> 8), at[3] = (uint8_t)size;
            at += CHANNEL_HEADER_BYTES;
        }
        struct stamp stamp = {.magic = STAMP_MAGIC,
                              .flow = flow_index,
                              .sequence = state->next_tx++,
                              .epoch = t->epoch,
                              .direction = (uint16_t)leg->direction,
                              .sent_ns = t->stamp_ns};
        memcpy(at, &stamp, sizeof stamp);
        at += sizeof stamp;
    }
    leg->result->offered += n;
    leg->in_flight += n;
}

static void add_burst(struct traffic *t, struct leg *leg) {
    const struct load_traffic_params *p = t->params;
    uint32_t flow = leg->next_flow;
    leg->next_flow = flow + 1 == p->n_flows ? 0 : flow + 1;
    leg->n_bursts++;
    if (p->gso) {
        add_frame(t, leg, flow, next_size(leg, p), p->burst);
        return;
    }
    for (uint32_t i = 0; i < p->burst; i++) {
        add_frame(t, leg, flow, next_size(leg, p), 1);
    }
}

/* Bursts that may leave now. */
static uint64_t bursts_due(const struct traffic *t, struct leg *leg, uint64_t start_ns) {
    const struct load_traffic_params *p = t->params;
    if (leg->result->offered >= p->max_datagrams) {
        return 0;
    }
    if (p->window > 0) {
        return leg->in_flight >= p->window ? 0 : (p->window - leg->in_flight) / p->burst;
    }
    double elapsed_ns = (double)(t->now_ns - start_ns), interval_ns = 1e9 * p->burst / p->rate;
    uint64_t due = (uint64_t)(elapsed_ns / interval_ns) + 1;
    if (due <= leg->n_bursts) {
        return 0;
    }
    uint64_t late_ns = (uint64_t)(elapsed_ns - (double)leg->n_bursts * interval_ns);
    if (late_ns > leg->result->late_ns_max) {
        leg->result->late_ns_max = late_ns;
    }
    return due - leg->n_bursts;
}

static void send_due(struct traffic *t, struct leg *leg, uint64_t start_ns) {
    uint64_t n = bursts_due(t, leg, start_ns);
    uint64_t frames_per_burst = t->params->gso ? 1 : t->params->burst;
    uint64_t max = LOAD_TX_MESSAGES / frames_per_burst;
    n = n < max ? n : max;
    if (n == 0) {
        return;
    }
    t->stamp_ns = load_clock_ns(CLOCK_REALTIME);
    for (uint64_t i = 0; i < n; i++) {
        add_burst(t, leg);
    }
    load_port_flush(leg->tx);
}

/* ---- receiving ---- */

static uint64_t low_bits(uint32_t n) {
    return n >= WINDOW_BITS ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

static void take_in_flight(struct leg *leg, uint64_t n) {
    leg->in_flight -= n < leg->in_flight ? n : leg->in_flight;
}

/* Counts n datagrams of the flow from this sequence number on. A gap is loss until the missing ones turn up.
 */
static void account(struct leg *leg, struct flow_state *state, uint32_t sequence, uint32_t n) {
    struct load_leg_result *r = leg->result;
    int32_t ahead = (int32_t)(sequence - state->next_rx);
    if (ahead >= 0) {
        uint32_t shift = (uint32_t)ahead + n;
        state->seen = shift >= WINDOW_BITS ? 0 : state->seen << shift;
        state->seen |= low_bits(n);
        state->next_rx = sequence + n;
        r->received += n;
        r->lost += (uint32_t)ahead;
        take_in_flight(leg, shift);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t behind = state->next_rx - 1 - (sequence + i);
        if (behind >= WINDOW_BITS || (state->seen >> behind & 1) != 0) {
            r->duplicates++;
            continue;
        }
        state->seen |= UINT64_C(1) << behind;
        r->received++;
        r->reordered++;
        r->lost -= r->lost > 0;
    }
}

static bool same_address(const struct load_address *a, const struct load_address *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

/* Right source, right destination, and going down the right channel. */
static bool is_routed_right(const struct traffic *t, const struct leg *leg, const struct load_flow *flow,
                            const struct load_received *r) {
    if (leg->direction == LOAD_UP) {
        return same_address(&r->destination, &flow->peer) && same_address(&r->source, &flow->relayed);
    }
    return same_address(&r->destination, &flow->client) && same_address(&r->source, &t->params->server) &&
           (r->payload[0] << 8 | r->payload[1]) == flow->channel;
}

/* verify: every segment stands where it should, with the right length in its header. */
static bool are_segments_right(const struct leg *leg, const struct load_received *r,
                               const struct stamp *first) {
    uint32_t header_bytes = leg->direction == LOAD_DOWN ? CHANNEL_HEADER_BYTES : 0;
    if (r->n_copied < r->n_bytes) {
        return false;
    }
    for (uint32_t i = 0, at = 0; at < r->n_bytes; i++, at += r->segment_bytes) {
        uint32_t n = r->n_bytes - at < r->segment_bytes ? r->n_bytes - at : r->segment_bytes;
        const uint8_t *segment = r->payload + at;
        struct stamp stamp;
        if (n < header_bytes + sizeof stamp) {
            return false;
        }
        memcpy(&stamp, segment + header_bytes, sizeof stamp);
        bool length_right = header_bytes == 0 || (uint32_t)(segment[2] << 8 | segment[3]) == n - header_bytes;
        if (!length_right || stamp.magic != STAMP_MAGIC || stamp.flow != first->flow ||
            stamp.sequence != first->sequence + i || stamp.direction != leg->direction) {
            return false;
        }
    }
    return true;
}

static void take_frame(struct traffic *t, struct leg *leg, const struct load_received *r) {
    uint32_t header_bytes = leg->direction == LOAD_DOWN ? CHANNEL_HEADER_BYTES : 0;
    struct stamp stamp;
    if (r->n_copied < header_bytes + sizeof stamp) {
        return;
    }
    memcpy(&stamp, r->payload + header_bytes, sizeof stamp);
    if (stamp.magic != STAMP_MAGIC) {
        return; /* a late STUN answer */
    }
    if (stamp.flow >= t->params->n_flows || stamp.direction != leg->direction) {
        leg->result->misrouted += r->n_datagrams;
        return;
    }
    if (stamp.epoch != t->epoch) {
        return; /* came after its own window was closed, and counted there as lost */
    }
    if (!is_routed_right(t, leg, &t->flows[stamp.flow], r)) {
        leg->result->misrouted += r->n_datagrams;
        return;
    }
    if (t->params->verify && !are_segments_right(leg, r, &stamp)) {
        leg->result->corrupt += r->n_datagrams;
        return;
    }
    account(leg, &leg->states[stamp.flow], stamp.sequence, r->n_datagrams);
    leg->received_any += r->n_datagrams;
    leg->last_rx_ns = t->now_ns;
    uint64_t latency_ns = r->stamp_ns > stamp.sent_ns ? r->stamp_ns - stamp.sent_ns : 0;
    latency_add(&leg->result->latency, latency_ns, r->n_datagrams);
}

static void take_from_clients(void *context, const struct load_received *r) {
    struct traffic *t = context;
    take_frame(t, &t->legs[LOAD_DOWN], r);
}

static void take_from_peers(void *context, const struct load_received *r) {
    struct traffic *t = context;
    take_frame(t, &t->legs[LOAD_UP], r);
}

static void receive_all(struct traffic *t) {
    load_port_receive(t->legs[LOAD_DOWN].rx, take_from_clients, t);
    load_port_receive(t->legs[LOAD_UP].rx, take_from_peers, t);
}

/* ---- a window ---- */

/* Closed loop: what was lost at the tail of every flow never shows as a gap; after a pause it is given up. */
static void unstall(struct traffic *t, struct leg *leg) {
    if (t->params->window == 0 || leg->in_flight == 0 || t->now_ns - leg->last_rx_ns < STALL_NS) {
        return;
    }
    leg->result->stalls++;
    leg->in_flight = 0;
    leg->last_rx_ns = t->now_ns;
}

static bool all_arrived(const struct traffic *t) {
    for (int d = 0; d < LOAD_DIRECTIONS; d++) {
        const struct load_leg_result *r = t->legs[d].result;
        if (r->received + r->lost < r->offered) {
            return false;
        }
    }
    return true;
}

static void drain(struct traffic *t) {
    uint64_t start_ns = load_clock_ns(CLOCK_MONOTONIC), idle_from_ns = start_ns, before = 0;
    while (!all_arrived(t)) {
        t->now_ns = load_clock_ns(CLOCK_MONOTONIC);
        receive_all(t);
        uint64_t received = t->legs[LOAD_UP].received_any + t->legs[LOAD_DOWN].received_any;
        if (received != before) {
            before = received;
            idle_from_ns = t->now_ns;
        }
        if (t->now_ns - idle_from_ns > DRAIN_IDLE_NS || t->now_ns - start_ns > DRAIN_MAX_NS) {
            return;
        }
    }
}

static void reset_flows(struct traffic *t) {
    for (int d = 0; d < LOAD_DIRECTIONS; d++) {
        struct leg *leg = &t->legs[d];
        leg->in_flight = leg->received_any = leg->n_bursts = 0;
        leg->last_rx_ns = load_clock_ns(CLOCK_MONOTONIC);
        for (uint32_t i = 0; i < t->params->n_flows; i++) {
            leg->states[i] = (struct flow_state){0};
        }
    }
}

/* Offers for so long, then waits for what is on its way. */
static void run_window(struct traffic *t, double seconds, struct load_traffic_result *out) {
    const struct load_traffic_params *p = t->params;
    reset_flows(t);
    t->epoch++;
    uint64_t start_ns = load_clock_ns(CLOCK_MONOTONIC), end_ns = start_ns + (uint64_t)(seconds * 1e9);
    for (t->now_ns = start_ns; t->now_ns < end_ns; t->now_ns = load_clock_ns(CLOCK_MONOTONIC)) {
        receive_all(t);
        bool is_done = true;
        for (int d = 0; d < LOAD_DIRECTIONS; d++) {
            if (p->directions[d]) {
                unstall(t, &t->legs[d]);
                send_due(t, &t->legs[d], start_ns);
                is_done = is_done && t->legs[d].result->offered >= p->max_datagrams;
            }
        }
        if (is_done) {
            break;
        }
    }
    out->send_seconds = (double)(load_clock_ns(CLOCK_MONOTONIC) - start_ns) / 1e9;
    drain(t);
    uint64_t last_ns = start_ns;
    for (int d = 0; d < LOAD_DIRECTIONS; d++) {
        last_ns = t->legs[d].last_rx_ns > last_ns ? t->legs[d].last_rx_ns : last_ns;
    }
    out->seconds = (double)(last_ns - start_ns) / 1e9;
}

/* ---- what the server used ---- */

struct reading {
    uint64_t cpu_ns[LOAD_MAX_PIDS], user_ticks, system_ticks, generator_cpu_ns;
    uint64_t buffer_drops, server_device_drops, device_drops[LOAD_DIRECTIONS];
    uint64_t accepted[LOAD_DIRECTIONS];
};

static int read_cpu_clock(uint64_t *out, int pid) {
    clockid_t clock;
    struct timespec t;
    int err = clock_getcpuclockid(pid, &clock);
    if (err != 0 || clock_gettime(clock, &t) < 0) {
        return -ESRCH;
    }
    *out = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    return 0;
}

static size_t read_proc(int pid, const char *name, char *out, size_t n_out) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    FILE *f = fopen(path, "re");
    size_t n = f == NULL ? 0 : fread(out, 1, n_out - 1, f);
    out[n] = '\0';
    if (f != NULL) {
        fclose(f);
    }
    return n;
}

static void read_ticks(struct reading *r, int pid) {
    char text[1024];
    read_proc(pid, "stat", text, sizeof text);
    const char *after_name = strrchr(text, ')');
    unsigned long long user = 0, kernel = 0;
    if (after_name != NULL &&
        sscanf(after_name, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &kernel) == 2) {
        r->user_ticks = user, r->system_ticks = kernel;
    }
}

/* "Udp: names" and then "Udp: numbers"; RcvbufErrors is the sixth (fifth after InDatagrams, counted from 1).
 */
static uint64_t buffer_errors_v4(const char *text) {
    const char *names = strstr(text, "\nUdp: "),
               *numbers = names == NULL ? NULL : strstr(names + 1, "\nUdp: ");
    unsigned long long n = 0;
    if (numbers != NULL) {
        sscanf(numbers, " Udp: %*u %*u %*u %*u %llu", &n);
    }
    return n;
}

static void read_drops(struct reading *r, int pid) {
    char text[16384];
    read_proc(pid, "net/snmp", text, sizeof text);
    r->buffer_drops = buffer_errors_v4(text);
    read_proc(pid, "net/snmp6", text, sizeof text);
    const char *v6 = strstr(text, "Udp6RcvbufErrors");
    r->buffer_drops += v6 == NULL ? 0 : strtoull(v6 + strlen("Udp6RcvbufErrors"), NULL, 10);
    read_proc(pid, "net/dev", text, sizeof text);
    r->server_device_drops = load_device_drops_in(text);
}

static int take_reading(struct reading *r, const struct traffic *t) {
    const struct load_traffic_params *p = t->params;
    *r = (struct reading){0};
    for (int i = 0; i < LOAD_MAX_PIDS && p->pids[i] > 0; i++) {
        int err = read_cpu_clock(&r->cpu_ns[i], p->pids[i]);
        if (err < 0) {
            return err;
        }
    }
    if (p->pids[0] > 0) {
        read_ticks(r, p->pids[0]);
        read_drops(r, p->pids[0]);
    }
    r->generator_cpu_ns = load_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int d = 0; d < LOAD_DIRECTIONS; d++) {
        r->device_drops[d] = load_port_device_drops(t->legs[d].tx);
        r->accepted[d] = load_port_counts(t->legs[d].tx)->accepted;
    }
    return 0;
}

static void put_difference(struct load_traffic_result *out, const struct reading *a,
                           const struct reading *b) {
    for (int i = 0; i < LOAD_MAX_PIDS; i++) {
        out->cpu_ns[i] = b->cpu_ns[i] - a->cpu_ns[i];
    }
    out->user_ticks = b->user_ticks - a->user_ticks;
    out->system_ticks = b->system_ticks - a->system_ticks;
    out->generator_cpu_ns = b->generator_cpu_ns - a->generator_cpu_ns;
    out->server_buffer_drops = b->buffer_drops - a->buffer_drops;
    out->server_device_drops = b->server_device_drops - a->server_device_drops;
    for (int d = 0; d < LOAD_DIRECTIONS; d++) {
        out->device_drops[d] = b->device_drops[d] - a->device_drops[d];
        out->legs[d].accepted = b->accepted[d] - a->accepted[d];
    }
}

/* What is missing at the end was lost as well, if it was ever accepted. */
static void settle(struct load_leg_result *r) {
    r->lost = r->accepted > r->received ? r->accepted - r->received : 0;
}

static int run_measured(struct traffic *t, struct load_traffic_result *out) {
    struct reading before, after;
    memset(out, 0, sizeof *out);
    for (int d = 0; d < LOAD_DIRECTIONS; d++) {
        load_port_take_drops(t->legs[d].rx);
    }
    int err = take_reading(&before, t);
    if (err < 0) {
        return err;
    }
    run_window(t, t->params->duration_s, out);
    err = take_reading(&after, t);
    put_difference(out, &before, &after);
    for (int d = 0; d < LOAD_DIRECTIONS; d++) {
        out->legs[d].own_drops = load_port_take_drops(t->legs[d].rx);
        settle(&out->legs[d]);
    }
    return err;
}

int load_traffic_run(const struct load_traffic_params *params, struct load_port *clients,
                     struct load_port *peers, struct load_flow *flows, struct load_traffic_result *out) {
    struct traffic t = {.params = params, .flows = flows};
    t.legs[LOAD_UP] = (struct leg){.direction = LOAD_UP, .tx = clients, .rx = peers};
    t.legs[LOAD_DOWN] = (struct leg){.direction = LOAD_DOWN, .tx = peers, .rx = clients};
    int err = 0;
    for (int d = 0; d < LOAD_DIRECTIONS; d++) {
        t.legs[d].states = calloc(params->n_flows, sizeof *t.legs[d].states);
        t.legs[d].result = &out->legs[d];
        err = t.legs[d].states == NULL ? -ENOMEM : err;
    }
    if (err == 0) {
        uint32_t snap = params->verify ? LOAD_RX_SLOT_BYTES : SNAP_BYTES;
        load_port_set_snap(clients, snap);
        load_port_set_snap(peers, snap);
        memset(out, 0, sizeof *out);
        if (params->warmup_s > 0) {
            run_window(&t, params->warmup_s, out);
        }
        err = run_measured(&t, out);
    }
    for (int d = 0; d < LOAD_DIRECTIONS; d++) {
        free(t.legs[d].states);
    }
    return err;
}
