/* bench_load: sets up flows through a TURN server, or takes a bare forwarder as it is, offers traffic from
 * both ends and prints one line of JSON about what became of it. See README.md for the options and how to
 * read the figures. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load_traffic.h"

enum { PORT_BUFFER_BYTES = 128 << 20, MAX_RUN_PAYLOAD = 65487 };

enum load_mode { MODE_CLOSED, MODE_PACED, MODE_IDLE };

struct load_options {
    enum load_mode mode;
    struct load_port_params clients, peers;
    struct load_turn_params turn;
    struct load_traffic_params traffic;
    struct load_address first_peer, relayed; /* relayed: without TURN */
    bool use_turn, one_peer, keep, gate;
    double rate_per_flow;
    uint32_t n_pids;
};

static void fail(const char *what) {
    fprintf(stderr, "bench_load: %s\n", what);
    exit(2);
}

static void usage(void) {
    puts("bench_load: traffic through a TURN server, both ends in one process\n"
         "  --server IP:PORT                       the server's listener\n"
         "  --client IP:PORT --peer IP:PORT        of flow 0; ports, then addresses count up\n"
         "  --clients-netns PATH --clients-device NAME, --peers-netns PATH --peers-device NAME\n"
         "  --client-mac, --client-gateway-mac, --peer-mac, --peer-gateway-mac XX:XX:XX:XX:XX:XX\n"
         "  --flows N --ports-per-address N        (100, 20000)\n"
         "  --one-peer                             all flows to the same peer address and port\n"
         "setting up:\n"
         "  --user NAME --password TEXT --lifetime S --setup-window N --setup-deadline S\n"
         "  --relayed IP:PORT                      no TURN: a bare forwarder has this peer side address\n"
         "  --keep                                 leave the allocations at the end\n"
         "  --gate                                 wait for a line on stdin before the traffic, and after "
         "the report\n"
         "traffic:\n"
         "  --mode closed|paced|idle               idle: set up, print a line, obey 'release' and 'quit' on "
         "stdin\n"
         "  --window N                             closed: datagrams in flight in each direction\n"
         "  --rate N | --rate-per-flow X           paced: datagrams/s in each direction, all flows or each\n"
         "  --burst N [--gso]                      of one flow back to back; --gso: as one offloaded frame\n"
         "  --sizes N[,N...]                       payload bytes, taken in turn (at least 24)\n"
         "  --direction up|down|both --warmup S --duration S --max-datagrams N --verify\n"
         "  --kernel-stamps                        arrival times from the kernel (latency)\n"
         "  --pid PID                              the server; again for what else is its cost");
    exit(2);
}

/* ---- options ---- */

static uint32_t parse_u32(const char *text, uint32_t min, uint32_t max) {
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno != 0 || *text == '\0' || *end != '\0' || v < min || v > max) {
        fail(text);
    }
    return (uint32_t)v;
}

static double parse_real(const char *text) {
    char *end;
    double v = strtod(text, &end);
    if (*text == '\0' || *end != '\0' || !(v >= 0) || isinf(v)) {
        fail(text);
    }
    return v;
}

static struct load_address parse_address(const char *text) {
    struct load_address a;
    if (!load_address_parse(&a, text)) {
        fail(text);
    }
    return a;
}

static void parse_mac(uint8_t out[LOAD_MAC_BYTES], const char *text) {
    unsigned b[LOAD_MAC_BYTES];
    if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5]) != LOAD_MAC_BYTES) {
        fail(text);
    }
    for (int i = 0; i < LOAD_MAC_BYTES; i++) {
        out[i] = (uint8_t)b[i];
    }
}

static void parse_sizes(struct load_traffic_params *t, const char *text) {
    t->n_sizes = 0;
    for (const char *at = text;; at++) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0') || v < LOAD_STAMP_BYTES || v > 65000 ||
            t->n_sizes == LOAD_MAX_SIZES) {
            fail(text);
        }
        t->sizes[t->n_sizes++] = (uint32_t)v;
        at = end;
        if (*at == '\0') {
            return;
        }
    }
}

static void parse_mode(struct load_options *o, const char *text) {
    static const char *const names[] = {"closed", "paced", "idle"};
    for (int i = 0; i <= MODE_IDLE; i++) {
        if (strcmp(text, names[i]) == 0) {
            o->mode = (enum load_mode)i;
            return;
        }
    }
    fail(text);
}

static void parse_direction(struct load_traffic_params *t, const char *text) {
    bool both = strcmp(text, "both") == 0;
    t->directions[LOAD_UP] = both || strcmp(text, "up") == 0;
    t->directions[LOAD_DOWN] = both || strcmp(text, "down") == 0;
    if (!t->directions[LOAD_UP] && !t->directions[LOAD_DOWN]) {
        fail(text);
    }
}

static void add_pid(struct load_options *o, const char *text) {
    if (o->n_pids == LOAD_MAX_PIDS) {
        fail("too many --pid");
    }
    o->traffic.pids[o->n_pids++] = (int)parse_u32(text, 1, INT32_MAX);
}

enum option_id {
    OPT_SERVER = 256,
    OPT_CLIENT,
    OPT_PEER,
    OPT_CLIENTS_NETNS,
    OPT_CLIENTS_DEVICE,
    OPT_PEERS_NETNS,
    OPT_PEERS_DEVICE,
    OPT_CLIENT_MAC,
    OPT_CLIENT_GATEWAY_MAC,
    OPT_PEER_MAC,
    OPT_PEER_GATEWAY_MAC,
    OPT_FLOWS,
    OPT_PORTS_PER_ADDRESS,
    OPT_ONE_PEER,
    OPT_USER,
    OPT_PASSWORD,
    OPT_LIFETIME,
    OPT_SETUP_WINDOW,
    OPT_SETUP_DEADLINE,
    OPT_RELAYED,
    OPT_KEEP,
    OPT_GATE,
    OPT_MODE,
    OPT_WINDOW,
    OPT_RATE,
    OPT_RATE_PER_FLOW,
    OPT_BURST,
    OPT_GSO,
    OPT_SIZES,
    OPT_DIRECTION,
    OPT_WARMUP,
    OPT_DURATION,
    OPT_MAX_DATAGRAMS,
    OPT_VERIFY,
    OPT_KERNEL_STAMPS,
    OPT_PID,
};

static const struct option option_names[] = {{"server", 1, 0, OPT_SERVER},
                                             {"client", 1, 0, OPT_CLIENT},
                                             {"peer", 1, 0, OPT_PEER},
                                             {"clients-netns", 1, 0, OPT_CLIENTS_NETNS},
                                             {"clients-device", 1, 0, OPT_CLIENTS_DEVICE},
                                             {"peers-netns", 1, 0, OPT_PEERS_NETNS},
                                             {"peers-device", 1, 0, OPT_PEERS_DEVICE},
                                             {"client-mac", 1, 0, OPT_CLIENT_MAC},
                                             {"client-gateway-mac", 1, 0, OPT_CLIENT_GATEWAY_MAC},
                                             {"peer-mac", 1, 0, OPT_PEER_MAC},
                                             {"peer-gateway-mac", 1, 0, OPT_PEER_GATEWAY_MAC},
                                             {"flows", 1, 0, OPT_FLOWS},
                                             {"ports-per-address", 1, 0, OPT_PORTS_PER_ADDRESS},
                                             {"one-peer", 0, 0, OPT_ONE_PEER},
                                             {"user", 1, 0, OPT_USER},
                                             {"password", 1, 0, OPT_PASSWORD},
                                             {"lifetime", 1, 0, OPT_LIFETIME},
                                             {"setup-window", 1, 0, OPT_SETUP_WINDOW},
                                             {"setup-deadline", 1, 0, OPT_SETUP_DEADLINE},
                                             {"relayed", 1, 0, OPT_RELAYED},
                                             {"keep", 0, 0, OPT_KEEP},
                                             {"gate", 0, 0, OPT_GATE},
                                             {"mode", 1, 0, OPT_MODE},
                                             {"window", 1, 0, OPT_WINDOW},
                                             {"rate", 1, 0, OPT_RATE},
                                             {"rate-per-flow", 1, 0, OPT_RATE_PER_FLOW},
                                             {"burst", 1, 0, OPT_BURST},
                                             {"gso", 0, 0, OPT_GSO},
                                             {"sizes", 1, 0, OPT_SIZES},
                                             {"direction", 1, 0, OPT_DIRECTION},
                                             {"warmup", 1, 0, OPT_WARMUP},
                                             {"duration", 1, 0, OPT_DURATION},
                                             {"max-datagrams", 1, 0, OPT_MAX_DATAGRAMS},
                                             {"verify", 0, 0, OPT_VERIFY},
                                             {"kernel-stamps", 0, 0, OPT_KERNEL_STAMPS},
                                             {"pid", 1, 0, OPT_PID},
                                             {0, 0, 0, 0}};

static bool take_network_option(struct load_options *o, int id, const char *value) {
    switch (id) {
    case OPT_SERVER:
        o->turn.server = o->traffic.server = parse_address(value);
        return true;
    case OPT_CLIENT:
        o->turn.first_client = parse_address(value);
        return true;
    case OPT_PEER:
        o->first_peer = parse_address(value);
        return true;
    case OPT_CLIENTS_NETNS:
        o->clients.netns = value;
        return true;
    case OPT_CLIENTS_DEVICE:
        o->clients.device = value;
        return true;
    case OPT_PEERS_NETNS:
        o->peers.netns = value;
        return true;
    case OPT_PEERS_DEVICE:
        o->peers.device = value;
        return true;
    case OPT_CLIENT_MAC:
        parse_mac(o->clients.own_mac, value);
        return true;
    case OPT_CLIENT_GATEWAY_MAC:
        parse_mac(o->clients.gateway_mac, value);
        return true;
    case OPT_PEER_MAC:
        parse_mac(o->peers.own_mac, value);
        return true;
    case OPT_PEER_GATEWAY_MAC:
        parse_mac(o->peers.gateway_mac, value);
        return true;
    default:
        return false;
    }
}

static bool take_setup_option(struct load_options *o, int id, const char *value) {
    switch (id) {
    case OPT_FLOWS:
        o->turn.n_flows = o->traffic.n_flows = parse_u32(value, 1, 4000000);
        return true;
    case OPT_PORTS_PER_ADDRESS:
        o->turn.ports_per_address = parse_u32(value, 1, 65535);
        return true;
    case OPT_ONE_PEER:
        o->one_peer = true;
        return true;
    case OPT_USER:
        o->turn.user = value;
        return true;
    case OPT_PASSWORD:
        o->turn.password = value;
        return true;
    case OPT_LIFETIME:
        o->turn.lifetime_s = parse_u32(value, 1, 86400);
        return true;
    case OPT_SETUP_WINDOW:
        o->turn.window = parse_u32(value, 1, 10000);
        return true;
    case OPT_SETUP_DEADLINE:
        o->turn.deadline_s = parse_u32(value, 1, 3600);
        return true;
    case OPT_RELAYED:
        o->relayed = parse_address(value), o->use_turn = false;
        return true;
    case OPT_KEEP:
        o->keep = true;
        return true;
    case OPT_GATE:
        o->gate = true;
        return true;
    default:
        return false;
    }
}

static bool take_traffic_option(struct load_options *o, int id, const char *value) {
    struct load_traffic_params *t = &o->traffic;
    switch (id) {
    case OPT_MODE:
        parse_mode(o, value);
        return true;
    case OPT_WINDOW:
        t->window = parse_u32(value, 1, 1000000);
        return true;
    case OPT_RATE:
        t->rate = parse_real(value);
        return true;
    case OPT_RATE_PER_FLOW:
        o->rate_per_flow = parse_real(value);
        return true;
    case OPT_BURST:
        t->burst = parse_u32(value, 1, LOAD_MAX_SEGMENTS);
        return true;
    case OPT_GSO:
        t->gso = true;
        return true;
    case OPT_SIZES:
        parse_sizes(t, value);
        return true;
    case OPT_DIRECTION:
        parse_direction(t, value);
        return true;
    case OPT_WARMUP:
        t->warmup_s = parse_real(value);
        return true;
    case OPT_DURATION:
        t->duration_s = parse_real(value);
        return true;
    case OPT_MAX_DATAGRAMS:
        t->max_datagrams = parse_u32(value, 1, UINT32_MAX);
        return true;
    case OPT_VERIFY:
        t->verify = true;
        return true;
    case OPT_KERNEL_STAMPS:
        o->clients.kernel_stamps = o->peers.kernel_stamps = true;
        return true;
    case OPT_PID:
        add_pid(o, value);
        return true;
    default:
        return false;
    }
}

static void check_options(struct load_options *o) {
    struct load_traffic_params *t = &o->traffic;
    if (o->turn.server.family == 0 || o->turn.first_client.family == 0 || o->first_peer.family == 0 ||
        o->clients.device == NULL || o->peers.device == NULL) {
        usage();
    }
    uint32_t last_port = o->turn.ports_per_address - 1;
    if (o->turn.first_client.port + last_port > 65535 || o->first_peer.port + last_port > 65535) {
        fail("ports beyond 65535");
    }
    if (o->turn.first_client.family != o->turn.server.family) {
        fail("client and server of different families");
    }
    if (o->turn.user == NULL || o->turn.password == NULL ||
        strlen(o->turn.user) + strlen(o->turn.password) > 400) {
        fail("--user and --password are too long or missing");
    }
    t->window = o->mode == MODE_CLOSED ? t->window : 0;
    t->rate = o->rate_per_flow > 0 ? o->rate_per_flow * t->n_flows : t->rate;
    if (o->mode == MODE_PACED && !(t->rate > 0)) {
        fail("paced without a rate");
    }
    if (o->mode == MODE_CLOSED && t->window < t->burst) {
        fail("the window is smaller than a burst");
    }
    for (uint32_t i = 0; i < t->n_sizes; i++) {
        if (t->gso && t->burst * (t->sizes[i] + 4) > MAX_RUN_PAYLOAD) {
            fail("an offloaded burst holds at most 65487 bytes");
        }
    }
}

static void parse_options(struct load_options *o, int argc, char **argv) {
    *o = (struct load_options){.use_turn = true,
                               .turn = {.user = "bench",
                                        .password = "bench",
                                        .n_flows = 100,
                                        .ports_per_address = 20000,
                                        .window = 256,
                                        .deadline_s = 120},
                               .traffic = {.n_flows = 100,
                                           .directions = {true, true},
                                           .window = 1024,
                                           .burst = 1,
                                           .sizes = {320},
                                           .n_sizes = 1,
                                           .warmup_s = 0.5,
                                           .duration_s = 2,
                                           .max_datagrams = 100000000}};
    o->clients.buffer_bytes = o->peers.buffer_bytes = PORT_BUFFER_BYTES;
    for (int id; (id = getopt_long(argc, argv, "", option_names, NULL)) != -1;) {
        if (!take_network_option(o, id, optarg) && !take_setup_option(o, id, optarg) &&
            !take_traffic_option(o, id, optarg)) {
            usage();
        }
    }
    if (optind != argc) {
        usage();
    }
    check_options(o);
}

/* ---- flows ---- */

static void init_flow(struct load_flow *f, const struct load_options *o, uint32_t index,
                      struct load_port *clients, struct load_port *peers) {
    uint32_t ports = o->turn.ports_per_address;
    f->client = load_address_of_flow(&o->turn.first_client, index, ports);
    f->peer = o->one_peer ? o->first_peer : load_address_of_flow(&o->first_peer, index, ports);
    f->channel = (uint16_t)(0x4000 + index % 4096);
    load_template_init(&f->up, clients, &f->client, &o->turn.server);
    if (!o->use_turn) {
        f->relayed = o->relayed;
        load_template_init(&f->down, peers, &f->peer, &f->relayed);
    }
}

static void aim_downlinks(struct load_flow *flows, uint32_t n_flows, struct load_port *peers) {
    for (uint32_t i = 0; i < n_flows; i++) {
        load_template_init(&flows[i].down, peers, &flows[i].peer, &flows[i].relayed);
    }
}

/* ---- the report ---- */

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

static void print_turn(const char *name, const struct load_turn_result *r) {
    printf("\"%s\":{\"done\":%u,\"failed\":%u,\"retransmits\":%u,\"challenges\":%u,\"seconds\":%.3f,"
           "\"errors\":{",
           name, r->n_done, r->n_failed, r->n_retransmits, r->n_challenges, r->seconds);
    const char *comma = "";
    for (unsigned code = 0; code < LOAD_ERROR_CODES; code++) {
        if (r->errors[code] > 0) {
            printf("%s\"%u\":%u", comma, code, r->errors[code]);
            comma = ",";
        }
    }
    printf("}}");
}

static void print_leg(const char *name, const struct load_leg_result *r) {
    const struct latency *l = &r->latency;
    printf("\"%s\":{\"offered\":%" PRIu64 ",\"accepted\":%" PRIu64 ",\"received\":%" PRIu64
           ",\"lost\":%" PRIu64,
           name, r->offered, r->accepted, r->received, r->lost);
    if (r->own_drops > 0) { /* whose loss it was cannot be told */
        printf(",\"loss\":null");
    } else {
        printf(",\"loss\":%.6f", ratio((double)r->lost, (double)r->accepted));
    }
    printf(",\"own_drops\":%" PRIu64 ",\"duplicates\":%" PRIu64 ",\"reordered\":%" PRIu64
           ",\"misrouted\":%" PRIu64 ",\"corrupt\":%" PRIu64 ",\"stalls\":%" PRIu64 ",\"late_us_max\":%.1f",
           r->own_drops, r->duplicates, r->reordered, r->misrouted, r->corrupt, r->stalls,
           (double)r->late_ns_max / 1000);
    printf(",\"latency_us\":{\"mean\":%.2f,\"p50\":%.2f,\"p99\":%.2f,\"p99.9\":%.2f,\"max\":%.2f}}",
           ratio((double)l->sum_ns, (double)l->n) / 1000, latency_quantile_us(l, 0.5),
           latency_quantile_us(l, 0.99), latency_quantile_us(l, 0.999), (double)l->max_ns / 1000);
}

static void print_warnings(const struct load_options *o, const struct load_traffic_result *r) {
    static const char *const names[] = {"up", "down"};
    const struct load_traffic_params *t = &o->traffic;
    const char *comma = "";
    printf("\"warnings\":[");
    for (int d = 0; d < LOAD_DIRECTIONS; d++) {
        const struct load_leg_result *leg = &r->legs[d];
        double asked = t->rate * r->send_seconds;
        if (leg->own_drops > 0) {
            printf("%s\"%s: the generator's own socket dropped, loss is not the server's\"", comma, names[d]);
            comma = ",";
        }
        if (r->device_drops[d] > 0) {
            printf("%s\"%s: a device of the rig dropped\"", comma, names[d]);
            comma = ",";
        }
        if (t->directions[d] && t->rate > 0 && (double)leg->accepted < 0.99 * asked &&
            leg->offered < t->max_datagrams) {
            printf("%s\"%s: the asked rate was not held\"", comma, names[d]);
            comma = ",";
        }
        if (leg->received == 0 && t->directions[d]) {
            printf("%s\"%s: nothing came\"", comma, names[d]);
            comma = ",";
        }
    }
    printf("]");
}

static void print_traffic(const struct load_options *o, const struct load_traffic_result *r) {
    const struct load_traffic_params *t = &o->traffic;
    uint64_t delivered = r->legs[LOAD_UP].received + r->legs[LOAD_DOWN].received, cpu_ns = 0;
    printf(
        "\"flows\":%u,\"burst\":%u,\"gso\":%s,\"send_seconds\":%.4f,\"seconds\":%.4f,\"delivered\":%" PRIu64
        ",\"delivered_per_s\":%.0f,",
        t->n_flows, t->burst, t->gso ? "true" : "false", r->send_seconds, r->seconds, delivered,
        ratio((double)delivered, r->seconds));
    print_leg("up", &r->legs[LOAD_UP]);
    printf(",");
    print_leg("down", &r->legs[LOAD_DOWN]);
    printf(",\"cpu_ns\":[");
    for (uint32_t i = 0; i < o->n_pids; i++) {
        printf("%s%" PRIu64, i > 0 ? "," : "", r->cpu_ns[i]);
        cpu_ns += r->cpu_ns[i];
    }
    double wall_ns = r->seconds * 1e9;
    printf("],\"cpu_ns_per_datagram\":%.1f,\"server_ns_per_datagram\":%.1f,\"server_busy\":%.3f,\"user_"
           "share\":%.3f"
           ",\"generator_busy\":%.3f",
           ratio((double)cpu_ns, (double)delivered), ratio((double)r->cpu_ns[0], (double)delivered),
           ratio((double)cpu_ns, wall_ns),
           ratio((double)r->user_ticks, (double)(r->user_ticks + r->system_ticks)),
           ratio((double)r->generator_cpu_ns, wall_ns));
    printf(",\"server_buffer_drops\":%" PRIu64 ",\"server_device_drops\":%" PRIu64
           ",\"device_drops\":[%" PRIu64 ",%" PRIu64 "],",
           r->server_buffer_drops, r->server_device_drops, r->device_drops[LOAD_UP],
           r->device_drops[LOAD_DOWN]);
    print_warnings(o, r);
}

/* ---- running ---- */

struct load_run {
    struct load_options options;
    struct load_port *clients, *peers;
    struct load_flow *flows;
    struct load_turn *turn;
    struct load_turn_result setup, teardown;
    struct load_traffic_result traffic;
};

static void run_open(struct load_run *run) {
    const struct load_options *o = &run->options;
    int err = load_port_open(&run->clients, &o->clients);
    if (err == 0) {
        err = load_port_open(&run->peers, &o->peers);
    }
    if (err < 0) {
        fail(strerror(-err));
    }
    run->flows = calloc(o->turn.n_flows, sizeof *run->flows);
    if (run->flows == NULL || load_turn_create(&run->turn, &o->turn, run->clients, run->flows) < 0) {
        fail("memory");
    }
    for (uint32_t i = 0; i < o->turn.n_flows; i++) {
        init_flow(&run->flows[i], o, i, run->clients, run->peers);
    }
}

static void run_close(struct load_run *run) {
    load_turn_destroy(run->turn);
    free(run->flows);
    load_port_close(run->clients);
    load_port_close(run->peers);
    free(run);
}

static bool release(struct load_run *run) {
    return load_turn_run(run->turn, LOAD_TURN_TEARDOWN, &run->teardown);
}

/* The rig measures the server while the flows lie idle, and says when they are to end. */
static bool run_idle(struct load_run *run) {
    printf("{\"event\":\"ready\",");
    print_turn("setup", &run->setup);
    puts("}");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL && strncmp(line, "quit", 4) != 0) {
        if (strncmp(line, "release", 7) == 0) {
            release(run);
            printf("{\"event\":\"released\",");
            print_turn("teardown", &run->teardown);
            puts("}");
            fflush(stdout);
        }
    }
    return run->setup.n_failed == 0 && run->teardown.n_failed == 0;
}

/* Lets the rig watch the server during the traffic and nothing else. */
static void wait_at_gate(const struct load_options *o) {
    char line[64];
    fflush(stdout);
    if (o->gate && fgets(line, sizeof line, stdin) == NULL) {
        fail("the gate is gone");
    }
}

static bool run_traffic(struct load_run *run) {
    const struct load_options *o = &run->options;
    if (o->gate) {
        puts("{\"event\":\"ready\"}");
    }
    wait_at_gate(o);
    int err = load_traffic_run(&o->traffic, run->clients, run->peers, run->flows, &run->traffic);
    if (err < 0) {
        fail(err == -ESRCH ? "the server is gone" : strerror(-err));
    }
    printf("{");
    print_traffic(o, &run->traffic);
    if (o->use_turn) {
        printf(",");
        print_turn("setup", &run->setup);
    }
    puts("}");
    wait_at_gate(o);
    bool released = !o->use_turn || o->keep || release(run);
    if (!released) {
        fprintf(stderr, "bench_load: %u allocations were not released\n", run->teardown.n_failed);
    }
    return released && run->traffic.legs[LOAD_UP].corrupt + run->traffic.legs[LOAD_DOWN].corrupt == 0;
}

int main(int argc, char **argv) {
    struct load_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        fail("memory");
    }
    parse_options(&run->options, argc, argv);
    run_open(run);
    bool success = true;
    if (run->options.use_turn) {
        success = load_turn_run(run->turn, LOAD_TURN_SETUP, &run->setup);
        aim_downlinks(run->flows, run->options.turn.n_flows, run->peers);
    }
    if (!success && run->options.mode != MODE_IDLE) {
        printf("{");
        print_turn("setup", &run->setup);
        puts("}");
        release(run);
    } else {
        success = run->options.mode == MODE_IDLE ? run_idle(run) : run_traffic(run);
    }
    run_close(run);
    return success ? 0 : 1;
}
