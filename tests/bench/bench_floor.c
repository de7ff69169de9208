/* The floor: a bare UDP forwarder with the system calls a relay needs and nothing else. recvmmsg into a ring
 * with UDP_GRO, one hash lookup, ChannelData header off on the way up and on on the way down, runs to one
 * destination as UDP_SEGMENT messages, one sendmmsg. No TURN, no permissions, no lifetimes. One thread. It
 * shares no code with the server, because it is what the server is compared with.
 *
 * The table is fixed at start by a rule that bench_load follows as well: with P ports to an address, flow i
 * is client (first + i / P):(port + i % P), peer (first + i / P):(port + i % P), channel 0x4000 + i % 4096.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    RING_SLOTS = 512,
    SLOT_BYTES = 65536,
    MAX_ITEMS = 40960, /* datagrams of one batch: 512 slots of at most 64 coalesced ones, and then some */
    MAX_RUN_SEGMENTS = 64,
    MAX_RUN_BYTES = 65487,
    HEADER_BYTES = 4,
    PREFETCH_AHEAD = 4,
    HOLD_BUCKETS = 40,
    CONTROL_BYTES = 64,
};

enum direction { UP, DOWN };

union address {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

/* Where datagrams go, with its open run of the current batch. */
struct destination {
    union address to;
    socklen_t to_bytes;
    uint16_t channel;
    uint32_t generation;
    uint32_t run;
};

struct table_slot {
    uint64_t hi, lo;
    uint32_t port; /* with the direction in bit 16, so that the two sides never meet */
    uint32_t destination;
};

struct table {
    struct table_slot *slots;
    struct destination *destinations; /* [0]: none */
    uint32_t mask;
};

struct item {
    uint8_t *data;
    uint32_t n_bytes;
    uint32_t next;
};

struct run {
    struct destination *destination;
    uint32_t first, last;
    uint32_t n, n_bytes;
    uint32_t segment_bytes; /* on the wire */
    bool closed;
    uint8_t head[HEADER_BYTES], tail_head[HEADER_BYTES];
};

union segment_control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(uint16_t))];
};

struct counters {
    uint64_t recv_calls, recv_empty, messages, datagrams, send_calls, sent, gso_messages, gso_datagrams;
    uint64_t drop_unknown, drop_malformed, drop_refused, batches, turns;
    uint64_t hold[HOLD_BUCKETS], hold_max_us, hold_sum_ns;
};

struct side {
    int fd;
    enum direction direction; /* of what is received here */
    int out_fd;
};

struct floor_options {
    uint32_t n_flows, ports_per_address, ring, max_segments, buffer_bytes;
    union address listen, relay, client, peer;
    bool gro, gso;
};

struct forwarder {
    struct floor_options options;
    struct table table;
    struct side sides[2];
    int epoll_fd;
    uint32_t generation, n_items, n_runs, n_iovecs;
    struct mmsghdr rx[RING_SLOTS];
    struct iovec rx_iov[RING_SLOTS];
    union address source[RING_SLOTS];
    uint64_t rx_control[RING_SLOTS][CONTROL_BYTES / sizeof(uint64_t)];
    struct item items[MAX_ITEMS];
    struct run runs[MAX_ITEMS];
    struct mmsghdr tx[MAX_ITEMS];
    struct iovec tx_iov[2 * MAX_ITEMS];
    union segment_control tx_control[MAX_ITEMS];
    struct counters counters;
};

/* Written by the signal handler only. */
static volatile sig_atomic_t stop_asked;

static void ask_stop(int signal_number) {
    (void)signal_number;
    stop_asked = 1;
}

static void die(const char *what) {
    fprintf(stderr, "bench_floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the table ---- */

static struct table_slot key_of(const union address *a, enum direction direction) {
    struct table_slot key = {0};
    if (a->sa.sa_family == AF_INET) {
        key.lo = a->in.sin_addr.s_addr;
        key.port = a->in.sin_port;
    } else {
        memcpy(&key.hi, a->in6.sin6_addr.s6_addr, 8);
        memcpy(&key.lo, a->in6.sin6_addr.s6_addr + 8, 8);
        key.port = a->in6.sin6_port;
    }
    key.port |= (uint32_t)direction << 16;
    return key;
}

static uint32_t hash_of(const struct table_slot *key) {
    uint64_t h = (key->lo ^ (key->hi << 29 | key->hi >> 35)) * UINT64_C(0x9E3779B97F4A7C15) + key->port;
    h *= UINT64_C(0xD6E8FEB86659FD93);
    return (uint32_t)(h >> 32);
}

static void table_add(struct table *table, const union address *from, enum direction direction,
                      uint32_t index) {
    struct table_slot key = key_of(from, direction);
    uint32_t at = hash_of(&key) & table->mask;
    while (table->slots[at].destination != 0) {
        at = (at + 1) & table->mask;
    }
    key.destination = index;
    table->slots[at] = key;
}

static struct destination *table_find(const struct table *table, const struct table_slot *key,
                                      uint32_t hash) {
    for (uint32_t at = hash & table->mask;; at = (at + 1) & table->mask) {
        const struct table_slot *slot = &table->slots[at];
        if (slot->destination == 0) {
            return NULL;
        }
        if (slot->lo == key->lo && slot->port == key->port && slot->hi == key->hi) {
            return &table->destinations[slot->destination];
        }
    }
}

static union address address_of_flow(const union address *first, uint32_t flow, uint32_t ports_per_address) {
    union address a = *first;
    uint32_t n = flow / ports_per_address;
    uint16_t port_step = (uint16_t)(flow % ports_per_address);
    if (a.sa.sa_family == AF_INET) {
        a.in.sin_addr.s_addr = htonl(ntohl(a.in.sin_addr.s_addr) + n);
        a.in.sin_port = htons((uint16_t)(ntohs(a.in.sin_port) + port_step));
    } else {
        uint32_t low;
        memcpy(&low, a.in6.sin6_addr.s6_addr + 12, 4);
        low = htonl(ntohl(low) + n);
        memcpy(a.in6.sin6_addr.s6_addr + 12, &low, 4);
        a.in6.sin6_port = htons((uint16_t)(ntohs(a.in6.sin6_port) + port_step));
    }
    return a;
}

static socklen_t address_bytes(const union address *a) {
    return a->sa.sa_family == AF_INET ? sizeof a->in : sizeof a->in6;
}

static void table_fill(struct table *table, const struct floor_options *o) {
    uint32_t size = 64;
    while (size < 4 * o->n_flows) {
        size *= 2;
    }
    table->mask = size - 1;
    table->slots = calloc(size, sizeof *table->slots);
    table->destinations = calloc(2 * (size_t)o->n_flows + 1, sizeof *table->destinations);
    if (table->slots == NULL || table->destinations == NULL) {
        die("table");
    }
    for (uint32_t i = 0; i < o->n_flows; i++) {
        union address client = address_of_flow(&o->client, i, o->ports_per_address);
        union address peer = address_of_flow(&o->peer, i, o->ports_per_address);
        uint16_t channel = (uint16_t)(0x4000 + i % 4096);
        table->destinations[2 * i + 1] =
            (struct destination){.to = peer, .to_bytes = address_bytes(&peer), .channel = channel};
        table->destinations[2 * i + 2] =
            (struct destination){.to = client, .to_bytes = address_bytes(&client), .channel = channel};
        table_add(table, &client, UP, 2 * i + 1);
        table_add(table, &peer, DOWN, 2 * i + 2);
    }
}

/* ---- the send batch ---- */

static void write_header(uint8_t head[HEADER_BYTES], uint16_t channel, uint32_t n_bytes) {
    head[0] = (uint8_t)(channel >> 8), head[1] = (uint8_t)channel;
    head[2] = (uint8_t)(n_bytes >> 8), head[3] = (uint8_t)n_bytes;
}

/* Room in the destination's open run for a datagram of so many bytes on the wire. */
static bool run_takes(const struct run *run, uint32_t wire_bytes, uint32_t max_segments) {
    return !run->closed && wire_bytes <= run->segment_bytes && run->n < max_segments &&
           run->n_bytes + wire_bytes <= MAX_RUN_BYTES;
}

static void batch_add(struct forwarder *f, struct destination *d, enum direction direction, uint8_t *data,
                      uint32_t n_bytes) {
    uint32_t wire_bytes = n_bytes + (direction == DOWN ? HEADER_BYTES : 0);
    uint32_t item = f->n_items++;
    f->items[item] = (struct item){.data = data, .n_bytes = n_bytes};
    if (d->generation == f->generation) {
        struct run *open = &f->runs[d->run];
        if (run_takes(open, wire_bytes, f->options.max_segments)) {
            f->items[open->last].next = item;
            open->last = item;
            open->n++;
            open->n_bytes += wire_bytes;
            if (wire_bytes < open->segment_bytes) {
                open->closed = true;
                write_header(open->tail_head, d->channel, n_bytes);
            }
            return;
        }
    }
    struct run *run = &f->runs[f->n_runs];
    run->destination = d;
    run->first = run->last = item;
    run->n = 1;
    run->n_bytes = run->segment_bytes = wire_bytes;
    run->closed = wire_bytes == 0;
    write_header(run->head, d->channel, n_bytes);
    d->generation = f->generation;
    d->run = f->n_runs++;
}

static void run_to_message(struct forwarder *f, uint32_t index, enum direction direction) {
    struct run *run = &f->runs[index];
    struct msghdr *m = &f->tx[index].msg_hdr;
    m->msg_name = &run->destination->to;
    m->msg_namelen = run->destination->to_bytes;
    m->msg_iov = &f->tx_iov[f->n_iovecs];
    uint32_t item = run->first;
    for (uint32_t i = 0; i < run->n; i++, item = f->items[item].next) {
        if (direction == DOWN) {
            bool is_tail = run->closed && i > 0 && i + 1 == run->n;
            f->tx_iov[f->n_iovecs++] = (struct iovec){is_tail ? run->tail_head : run->head, HEADER_BYTES};
        }
        f->tx_iov[f->n_iovecs++] = (struct iovec){f->items[item].data, f->items[item].n_bytes};
    }
    m->msg_iovlen = (size_t)(&f->tx_iov[f->n_iovecs] - m->msg_iov);
    m->msg_control = NULL;
    m->msg_controllen = 0;
    if (run->n > 1) {
        union segment_control *control = &f->tx_control[index];
        control->header = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(uint16_t)), .cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT};
        uint16_t segment_bytes = (uint16_t)run->segment_bytes;
        memcpy(CMSG_DATA(&control->header), &segment_bytes, sizeof segment_bytes);
        m->msg_control = control;
        m->msg_controllen = sizeof *control;
    }
}

static void batch_flush(struct forwarder *f, const struct side *side) {
    struct counters *c = &f->counters;
    for (uint32_t i = 0; i < f->n_runs; i++) {
        run_to_message(f, i, side->direction);
    }
    for (uint32_t at = 0; at < f->n_runs;) {
        int n = sendmmsg(side->out_fd, f->tx + at, f->n_runs - at, MSG_DONTWAIT);
        c->send_calls++;
        if (n <= 0) { /* exactly this message is lost */
            c->drop_refused += f->runs[at].n;
            at++;
            continue;
        }
        for (uint32_t i = at; i < at + (uint32_t)n; i++) {
            c->sent += f->runs[i].n;
            c->gso_messages += f->runs[i].n > 1;
            c->gso_datagrams += f->runs[i].n > 1 ? f->runs[i].n : 0;
        }
        at += (uint32_t)n;
    }
    f->n_items = f->n_runs = f->n_iovecs = 0;
    f->generation++;
}

/* ---- receiving ---- */

static uint32_t segment_bytes_of(struct msghdr *m) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
            int n;
            memcpy(&n, CMSG_DATA(c), sizeof n);
            return (uint32_t)n;
        }
    }
    return 0;
}

static void forward_datagram(struct forwarder *f, const struct side *side, struct destination *d,
                             uint8_t *data, uint32_t n_bytes) {
    f->counters.datagrams++;
    if (side->direction == DOWN) {
        batch_add(f, d, DOWN, data, n_bytes);
        return;
    }
    if (n_bytes < HEADER_BYTES || (data[0] << 8 | data[1]) != d->channel) {
        f->counters.drop_malformed++;
        return;
    }
    uint32_t length = (uint32_t)data[2] << 8 | data[3];
    if (length > n_bytes - HEADER_BYTES) {
        f->counters.drop_malformed++;
        return;
    }
    batch_add(f, d, UP, data + HEADER_BYTES, length);
}

static void forward_message(struct forwarder *f, const struct side *side, uint32_t slot,
                            struct destination *d) {
    uint32_t n_bytes = f->rx[slot].msg_len;
    if (d == NULL) {
        f->counters.datagrams++;
        f->counters.drop_unknown++;
        return;
    }
    uint32_t step = segment_bytes_of(&f->rx[slot].msg_hdr);
    if (step == 0) {
        step = n_bytes;
    }
    uint8_t *data = f->rx_iov[slot].iov_base;
    uint32_t at = 0;
    do {
        uint32_t n = n_bytes - at < step ? n_bytes - at : step;
        if (f->n_items == MAX_ITEMS) {
            batch_flush(f, side);
        }
        forward_datagram(f, side, d, data + at, n);
        at += n;
    } while (at < n_bytes);
}

static void count_hold(struct counters *c, uint64_t ns, uint64_t n_datagrams) {
    uint64_t us = (ns + 999) / 1000;
    unsigned bucket = us <= 1 ? 0 : 64u - (unsigned)__builtin_clzll(us - 1);
    c->hold[bucket < HOLD_BUCKETS ? bucket : HOLD_BUCKETS - 1] += n_datagrams;
    c->hold_sum_ns += ns * n_datagrams;
    if (us > c->hold_max_us) {
        c->hold_max_us = us;
    }
}

static void pump(struct forwarder *f, const struct side *side) {
    struct counters *c = &f->counters;
    int n = recvmmsg(side->fd, f->rx, f->options.ring, MSG_DONTWAIT, NULL);
    c->recv_calls++;
    if (n <= 0) { /* nothing, or an ICMP error of an earlier send: taken by this very call */
        c->recv_empty++;
        return;
    }
    uint64_t received_ns = now_ns(), datagrams_before = c->datagrams;
    struct table_slot keys[PREFETCH_AHEAD];
    uint32_t hashes[PREFETCH_AHEAD];
    for (int i = 0; i < n + PREFETCH_AHEAD; i++) {
        uint32_t lane = (uint32_t)i % PREFETCH_AHEAD;
        if (i >= PREFETCH_AHEAD) {
            uint32_t slot = (uint32_t)(i - PREFETCH_AHEAD);
            forward_message(f, side, slot, table_find(&f->table, &keys[lane], hashes[lane]));
        }
        if (i < n) {
            keys[lane] = key_of(&f->source[i], side->direction);
            hashes[lane] = hash_of(&keys[lane]);
            __builtin_prefetch(&f->table.slots[hashes[lane] & f->table.mask]);
        }
    }
    batch_flush(f, side);
    for (int i = 0; i < n; i++) {
        f->rx[i].msg_hdr.msg_namelen = sizeof f->source[i];
        f->rx[i].msg_hdr.msg_controllen = CONTROL_BYTES;
    }
    c->messages += (uint64_t)n;
    c->batches++;
    count_hold(c, now_ns() - received_ns, c->datagrams - datagrams_before);
}

static void forward_until_stopped(struct forwarder *f) {
    while (!stop_asked) {
        struct epoll_event events[2];
        int n = epoll_wait(f->epoll_fd, events, 2, 500);
        if (n < 0 && errno != EINTR) {
            die("epoll_wait");
        }
        f->counters.turns++;
        for (int i = 0; i < n; i++) {
            pump(f, &f->sides[events[i].data.u32]);
        }
    }
}

/* ---- start and end ---- */

static int open_socket(const union address *local, const struct floor_options *o) {
    int fd = socket(local->sa.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        die("socket");
    }
    int size = (int)o->buffer_bytes, on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) < 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    }
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) < 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    }
    if (o->gro && setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on) < 0) {
        die("UDP_GRO");
    }
    if (bind(fd, &local->sa, address_bytes(local)) < 0) {
        die("bind");
    }
    return fd;
}

static void wire_ring(struct forwarder *f) {
    size_t n_bytes = (size_t)f->options.ring * SLOT_BYTES;
    uint8_t *memory =
        mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        die("mmap");
    }
    for (uint32_t i = 0; i < f->options.ring; i++) {
        f->rx_iov[i] = (struct iovec){memory + (size_t)i * SLOT_BYTES, SLOT_BYTES};
        f->rx[i].msg_hdr = (struct msghdr){.msg_name = &f->source[i],
                                           .msg_namelen = sizeof f->source[i],
                                           .msg_iov = &f->rx_iov[i],
                                           .msg_iovlen = 1,
                                           .msg_control = f->rx_control[i],
                                           .msg_controllen = CONTROL_BYTES};
    }
}

static void start(struct forwarder *f) {
    wire_ring(f);
    table_fill(&f->table, &f->options);
    f->generation = 1;
    int listen_fd = open_socket(&f->options.listen, &f->options);
    int relay_fd = open_socket(&f->options.relay, &f->options);
    f->sides[UP] = (struct side){.fd = listen_fd, .direction = UP, .out_fd = relay_fd};
    f->sides[DOWN] = (struct side){.fd = relay_fd, .direction = DOWN, .out_fd = listen_fd};
    f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, f->sides[i].fd, &event) < 0) {
            die("epoll_ctl");
        }
    }
    if (!f->options.gso) {
        f->options.max_segments = 1;
    }
}

static uint64_t hold_quantile_us(const struct counters *c, double quantile) {
    uint64_t total = 0, seen = 0;
    for (unsigned i = 0; i < HOLD_BUCKETS; i++) {
        total += c->hold[i];
    }
    for (unsigned i = 0; i < HOLD_BUCKETS; i++) {
        seen += c->hold[i];
        if (total > 0 && (double)seen >= quantile * (double)total) {
            return UINT64_C(1) << i;
        }
    }
    return 0;
}

static double ratio(uint64_t a, uint64_t b) {
    return b == 0 ? 0 : (double)a / (double)b;
}

static void report(const struct counters *c) {
    printf("{\"recv_calls\":%" PRIu64 ",\"recv_empty\":%" PRIu64 ",\"messages\":%" PRIu64
           ",\"datagrams\":%" PRIu64 ",\"recv_avg_batch\":%.2f,\"send_calls\":%" PRIu64 ",\"sent\":%" PRIu64
           ",\"send_avg_batch\":%.2f",
           c->recv_calls, c->recv_empty, c->messages, c->datagrams,
           ratio(c->datagrams, c->recv_calls - c->recv_empty), c->send_calls, c->sent,
           ratio(c->sent, c->batches));
    printf(",\"gso_messages\":%" PRIu64 ",\"gso_datagrams\":%" PRIu64 ",\"gso_frac\":%.3f,\"turns\":%" PRIu64
           ",\"drop_unknown\":%" PRIu64 ",\"drop_malformed\":%" PRIu64 ",\"drop_refused\":%" PRIu64,
           c->gso_messages, c->gso_datagrams, ratio(c->gso_datagrams, c->sent), c->turns, c->drop_unknown,
           c->drop_malformed, c->drop_refused);
    printf(",\"hold_avg_us\":%.2f,\"hold_p50_us\":%" PRIu64 ",\"hold_p99_us\":%" PRIu64
           ",\"hold_max_us\":%" PRIu64 ",\"syscalls_per_datagram\":%.4f}\n",
           ratio(c->hold_sum_ns, c->datagrams) / 1000, hold_quantile_us(c, 0.5), hold_quantile_us(c, 0.99),
           c->hold_max_us, ratio(c->turns + c->recv_calls + c->send_calls, c->sent));
}

static union address parse_address(const char *text) {
    union address a;
    memset(&a, 0, sizeof a);
    char ip[64];
    const char *colon = strrchr(text, ':');
    size_t n = colon == NULL ? 0 : (size_t)(colon - text);
    bool bracketed = n > 2 && text[0] == '[' && text[n - 1] == ']';
    if (n == 0 || n >= sizeof ip) {
        errno = EINVAL;
        die(text);
    }
    snprintf(ip, sizeof ip, "%.*s", (int)(bracketed ? n - 2 : n), text + bracketed);
    uint16_t port = htons((uint16_t)atoi(colon + 1));
    if (inet_pton(AF_INET, ip, &a.in.sin_addr) == 1) {
        a.in.sin_family = AF_INET;
        a.in.sin_port = port;
    } else if (inet_pton(AF_INET6, ip, &a.in6.sin6_addr) == 1) {
        a.in6.sin6_family = AF_INET6;
        a.in6.sin6_port = port;
    } else {
        errno = EINVAL;
        die(text);
    }
    return a;
}

static void usage(void) {
    puts("bench_floor: forwards ChannelData flows fixed at start\n"
         "  --listen IP:PORT --relay IP:PORT     the two sockets\n"
         "  --client IP:PORT --peer IP:PORT      of flow 0; the ports, then the addresses count up\n"
         "  --flows N --ports-per-address N      (100, 20000)\n"
         "  --ring N                             datagrams asked for in one recvmmsg (512)\n"
         "  --max-segments N                     of one GSO message (64)\n"
         "  --buffer BYTES                       socket buffers (8388608)\n"
         "  --no-gro --no-gso");
    exit(2);
}

static void parse_options(struct floor_options *o, int argc, char **argv) {
    static const struct option names[] = {
        {"listen", 1, 0, 'l'}, {"relay", 1, 0, 'r'},        {"client", 1, 0, 'c'},
        {"peer", 1, 0, 'p'},   {"flows", 1, 0, 'n'},        {"ports-per-address", 1, 0, 'P'},
        {"ring", 1, 0, 'R'},   {"max-segments", 1, 0, 's'}, {"buffer", 1, 0, 'b'},
        {"no-gro", 0, 0, 'G'}, {"no-gso", 0, 0, 'S'},       {0, 0, 0, 0}};
    *o = (struct floor_options){.n_flows = 100,
                                .ports_per_address = 20000,
                                .ring = RING_SLOTS,
                                .max_segments = MAX_RUN_SEGMENTS,
                                .buffer_bytes = 8388608,
                                .gro = true,
                                .gso = true};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 'l':
            o->listen = parse_address(optarg);
            break;
        case 'r':
            o->relay = parse_address(optarg);
            break;
        case 'c':
            o->client = parse_address(optarg);
            break;
        case 'p':
            o->peer = parse_address(optarg);
            break;
        case 'n':
            o->n_flows = (uint32_t)atoi(optarg);
            break;
        case 'P':
            o->ports_per_address = (uint32_t)atoi(optarg);
            break;
        case 'R':
            o->ring = (uint32_t)atoi(optarg);
            break;
        case 's':
            o->max_segments = (uint32_t)atoi(optarg);
            break;
        case 'b':
            o->buffer_bytes = (uint32_t)atoi(optarg);
            break;
        case 'G':
            o->gro = false;
            break;
        case 'S':
            o->gso = false;
            break;
        default:
            usage();
        }
    }
    if (o->n_flows < 1 || o->ports_per_address < 1 || o->ring < 1 || o->ring > RING_SLOTS ||
        o->max_segments < 1 || o->max_segments > MAX_RUN_SEGMENTS || o->listen.sa.sa_family == 0 ||
        o->relay.sa.sa_family == 0 || o->client.sa.sa_family == 0 || o->peer.sa.sa_family == 0) {
        usage();
    }
}

int main(int argc, char **argv) {
    struct forwarder *f = calloc(1, sizeof *f);
    if (f == NULL) {
        die("memory");
    }
    parse_options(&f->options, argc, argv);
    struct sigaction action = {.sa_handler = ask_stop}; /* no SA_RESTART: epoll_wait ends */
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    start(f);
    forward_until_stopped(f);
    report(&f->counters);
    return 0;
}
