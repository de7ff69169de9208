/* What a lookup of the core costs with 1,000 entries and with many more: the allocation by 5-tuple with its
 * channel (the way up), and the owner of a peer's datagram on a shared relayed address (the way down).
 * Lookups come in batches as the relay thread does them, prefetched a batch ahead, in an order without
 * locality. Prints a table and one line of JSON. Entries are allocations with one permission and one channel
 * each, so their memory is printed as well. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "allocation.h"
#include "peer_table.h"

enum {
    BATCH = 64,
    PORTS_PER_ADDRESS = 60000,
    FIRST_PORT = 2000,
    MAX_SIZES = 8,
    BUSY_ENTRIES = 1000,
    FIRST_CLIENT = 0x0A000001, /* 10.0.0.1 */
    FIRST_PEER = 0x0B000001,
};

struct bench {
    struct allocation_table *table;
    struct relayed_address relayed;
    struct relay_carrier carrier;
    uint32_t n_entries;
    uint32_t *order; /* entry of each lookup */
    uint32_t n_lookups;
};

struct lookup_times {
    double up_ns, down_ns;
};

struct bench_result {
    uint32_t n_entries;
    struct lookup_times busy, all; /* looking up BUSY_ENTRIES of them, and all of them */
    double create_ns, destroy_ns, bytes;
};

static void die(const char *what) {
    fprintf(stderr, "bench_peer_table: %s\n", what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct endpoint endpoint_at(uint32_t first_ip, uint32_t i) {
    uint32_t ip = first_ip + i / PORTS_PER_ADDRESS;
    struct endpoint e = {.family = AF_INET, .port = (uint16_t)(FIRST_PORT + i % PORTS_PER_ADDRESS)};
    e.ip[0] = (uint8_t)(ip >> 24), e.ip[1] = (uint8_t)(ip >> 16), e.ip[2] = (uint8_t)(ip >> 8),
    e.ip[3] = (uint8_t)ip;
    return e;
}

static struct five_tuple tuple_of(uint32_t i) {
    struct five_tuple tuple = {.client = endpoint_at(FIRST_CLIENT, i), .transport = CLIENT_UDP};
    tuple.server = (struct endpoint){.family = AF_INET, .port = 3478, .ip = {192, 0, 2, 1}};
    return tuple;
}

static uint16_t channel_of(uint32_t i) {
    return (uint16_t)(0x4000 + i % 4096);
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* ---- the smallest carrier: one shared address ---- */

static void carrier_release(void *context, struct relayed_address *address) {
    (void)context, (void)address;
}

static bool carrier_locate(void *context, const struct endpoint *peer, struct relay_location *out) {
    (void)context, (void)peer, (void)out;
    return false;
}

static void ignore_quiesce(void *context) {
    (void)context;
}

static void ignore_end(void *context, struct allocation *allocation, enum allocation_end why) {
    (void)context, (void)allocation, (void)why;
}

/* ---- filling ---- */

static void add_entry(struct bench *b, uint32_t i) {
    uint8_t transaction_id[STUN_TRANSACTION_ID_BYTES] = {0};
    struct allocation_params params = {.five_tuple = tuple_of(i),
                                       .username = "bench",
                                       .realm = "bench",
                                       .user_hash = i,
                                       .transaction_id = transaction_id,
                                       .relayed = {[RELAY_V4] = &b->relayed},
                                       .lifetime_us = UINT64_C(3600000000)};
    struct allocation *allocation;
    struct endpoint peer = endpoint_at(FIRST_PEER, i);
    if (allocation_create(&allocation, b->table, &params, 1000000) < 0 ||
        channel_bind(allocation, channel_of(i), &peer, 1000000) != STUN_OK) {
        die("out of memory");
    }
}

static void bench_fill(struct bench *b, uint32_t n_entries) {
    b->n_entries = n_entries;
    b->carrier = (struct relay_carrier){.release = carrier_release, .locate = carrier_locate};
    b->relayed = (struct relayed_address){.id = 1, .shared = true};
    b->relayed.local = (struct endpoint){.family = AF_INET, .port = 3480, .ip = {198, 51, 100, 1}};
    b->relayed.advertised = b->relayed.local;
    struct allocation_table_params params = {.hash_key = {0x0123456789abcdef, 0xfedcba9876543210},
                                             .carrier = &b->carrier,
                                             .permission_lifetime_us = 300000000,
                                             .channel_lifetime_us = 600000000,
                                             .max_peers = 256,
                                             .claim_idle_us = 30000000,
                                             .quiesce = ignore_quiesce,
                                             .ended = ignore_end};
    if (allocation_table_create(&b->table, &params, 1000000) < 0) {
        die("out of memory");
    }
    for (uint32_t i = 0; i < n_entries; i++) {
        add_entry(b, i);
    }
}

/* Lookups go over so many entries, evenly spread over the table, in random order. */
static void bench_shuffle(struct bench *b, uint32_t n_busy) {
    uint64_t state = UINT64_C(0x9E3779B97F4A7C15);
    uint32_t step = b->n_entries / n_busy;
    for (uint32_t i = 0; i < b->n_lookups; i++) {
        b->order[i] = (uint32_t)(next_random(&state) % n_busy) * step;
    }
}

/* ---- looking up ---- */

/* Keys are made outside the measured loops, as the receive ring holds them ready. */
static double time_up(const struct bench *b) {
    struct five_tuple tuples[BATCH];
    uint64_t hashes[BATCH] = {0};
    uint64_t spent_ns = 0, found = 0;
    for (uint32_t at = 0; at + BATCH <= b->n_lookups; at += BATCH) {
        for (uint32_t i = 0; i < BATCH; i++) {
            tuples[i] = tuple_of(b->order[at + i]);
        }
        uint64_t start_ns = now_ns();
        if (allocation_table_wants_warming(b->table)) {
            allocation_warm(b->table, tuples, BATCH, hashes);
        }
        for (uint32_t i = 0; i < BATCH; i++) {
            const struct allocation *allocation =
                hashes[i] != 0 ? allocation_find_hashed(b->table, &tuples[i], hashes[i])
                               : allocation_find(b->table, &tuples[i]);
            found += allocation != NULL && channel_find(allocation, channel_of(b->order[at + i])) != NULL;
        }
        spent_ns += now_ns() - start_ns;
    }
    uint64_t n = b->n_lookups / BATCH * BATCH;
    if (found != n) {
        die("an allocation was not found");
    }
    return (double)spent_ns / (double)n;
}

static double time_down(struct bench *b) {
    struct endpoint peers[BATCH];
    const struct endpoint *peer_pointers[BATCH];
    uint64_t hashes[BATCH] = {0};
    static const uint8_t payload[32] = {0x80}; /* RTP, not STUN */
    uint64_t spent_ns = 0, found = 0;
    for (uint32_t at = 0; at + BATCH <= b->n_lookups; at += BATCH) {
        for (uint32_t i = 0; i < BATCH; i++) {
            peers[i] = endpoint_at(FIRST_PEER, b->order[at + i]);
            peer_pointers[i] = &peers[i];
        }
        uint64_t start_ns = now_ns();
        if (allocation_table_wants_warming(b->table)) {
            peer_table_warm(b->table, &b->relayed, peer_pointers, BATCH, hashes);
        }
        for (uint32_t i = 0; i < BATCH; i++) {
            struct peer_match match;
            const struct peer_datagram datagram = {
                .peer = &peers[i], .payload = payload, .n_payload = sizeof payload, .hash = hashes[i]};
            peer_table_match(b->table, &b->relayed, &datagram, 2000000, &match);
            found += match.allocation != NULL && match.channel != NULL &&
                     match.channel->number == channel_of(b->order[at + i]);
        }
        spent_ns += now_ns() - start_ns;
    }
    uint64_t n = b->n_lookups / BATCH * BATCH;
    if (found != n) {
        die("a peer's allocation was not found");
    }
    return (double)spent_ns / (double)n;
}

/* Two clock readings a batch, to be taken off: a lookup is a fraction of them. */
static double clock_cost_per_lookup(void) {
    enum { READINGS = 20000 };
    uint64_t start_ns = now_ns();
    for (int i = 0; i < READINGS - 1; i++) {
        now_ns();
    }
    return (double)(now_ns() - start_ns) / READINGS / BATCH;
}

static size_t resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    size_t total = 0, resident = 0;
    if (f == NULL || fscanf(f, "%zu %zu", &total, &resident) != 2) {
        die("/proc/self/statm");
    }
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* The best of the rounds: noise only adds. */
static struct lookup_times time_lookups(struct bench *b, uint32_t n_busy, uint32_t rounds) {
    struct lookup_times best = {.up_ns = 1e12, .down_ns = 1e12};
    double clock_ns = clock_cost_per_lookup();
    bench_shuffle(b, n_busy);
    for (uint32_t i = 0; i < rounds; i++) {
        double up_ns = time_up(b) - clock_ns, down_ns = time_down(b) - clock_ns;
        best.up_ns = up_ns < best.up_ns ? up_ns : best.up_ns;
        best.down_ns = down_ns < best.down_ns ? down_ns : best.down_ns;
    }
    return best;
}

static struct bench_result measure(uint32_t n_entries, uint32_t n_lookups, uint32_t rounds) {
    struct bench b = {.order = calloc(n_lookups, sizeof *b.order), .n_lookups = n_lookups};
    if (b.order == NULL) {
        die("out of memory");
    }
    struct bench_result r = {.n_entries = n_entries};
    malloc_trim(0);
    size_t before = resident_bytes();
    uint64_t start_ns = now_ns();
    bench_fill(&b, n_entries);
    r.create_ns = (double)(now_ns() - start_ns) / n_entries;
    r.bytes = (double)(resident_bytes() - before) / n_entries;
    r.busy = time_lookups(&b, n_entries < BUSY_ENTRIES ? n_entries : BUSY_ENTRIES, rounds);
    r.all = time_lookups(&b, n_entries, rounds);
    start_ns = now_ns();
    allocation_table_destroy(b.table);
    r.destroy_ns = (double)(now_ns() - start_ns) / n_entries;
    free(b.order);
    return r;
}

/* ---- options and report ---- */

struct bench_options {
    uint32_t sizes[MAX_SIZES], n_sizes, n_lookups, rounds;
};

static void parse_options(struct bench_options *o, int argc, char **argv) {
    static const struct option names[] = {
        {"entries", 1, 0, 'e'}, {"lookups", 1, 0, 'l'}, {"rounds", 1, 0, 'r'}, {0, 0, 0, 0}};
    *o = (struct bench_options){.n_lookups = 1 << 20, .rounds = 5};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        unsigned long value = optarg == NULL ? 0 : strtoul(optarg, NULL, 10);
        if (c == '?' || value < 1 || value > 10000000 || (c == 'e' && o->n_sizes == MAX_SIZES)) {
            die("usage: bench_peer_table [--entries N]... [--lookups N] [--rounds N]");
        }
        if (c == 'e') {
            o->sizes[o->n_sizes++] = (uint32_t)value;
        } else if (c == 'l') {
            o->n_lookups = value < BATCH ? BATCH : (uint32_t)value;
        } else {
            o->rounds = (uint32_t)value;
        }
    }
    if (o->n_sizes == 0) {
        o->sizes[0] = 1000, o->sizes[1] = 100000, o->sizes[2] = 1000000;
        o->n_sizes = 3;
    }
}

int main(int argc, char **argv) {
    struct bench_options o;
    struct bench_result results[MAX_SIZES];
    parse_options(&o, argc, argv);
    puts("Lookup times in ns, with the ratio to the first row. Busy: of 1,000 entries, the rest idle; all: "
         "of any entry.\n\n"
         "| allocations | way up, busy | way down, busy | way up, all | way down, all | create | destroy | "
         "bytes each |\n"
         "|---|---|---|---|---|---|---|---|");
    for (uint32_t i = 0; i < o.n_sizes; i++) {
        struct bench_result *r = &results[i];
        *r = measure(o.sizes[i], o.n_lookups, o.rounds);
        printf(
            "| %" PRIu32 " | %.1f (%.2f) | %.1f (%.2f) | %.1f (%.2f) | %.1f (%.2f) | %.0f | %.0f | %.0f |\n",
            r->n_entries, r->busy.up_ns, r->busy.up_ns / results[0].busy.up_ns, r->busy.down_ns,
            r->busy.down_ns / results[0].busy.down_ns, r->all.up_ns, r->all.up_ns / results[0].all.up_ns,
            r->all.down_ns, r->all.down_ns / results[0].all.down_ns, r->create_ns, r->destroy_ns, r->bytes);
        fflush(stdout);
    }
    printf("\n[");
    for (uint32_t i = 0; i < o.n_sizes; i++) {
        const struct bench_result *r = &results[i];
        printf("%s{\"entries\":%" PRIu32
               ",\"busy_up_ns\":%.2f,\"busy_down_ns\":%.2f,\"all_up_ns\":%.2f,\"all_down_ns\":%.2f,"
               "\"create_ns\":%.1f,\"destroy_ns\":%.1f,\"bytes\":%.1f}",
               i > 0 ? "," : "", r->n_entries, r->busy.up_ns, r->busy.down_ns, r->all.up_ns, r->all.down_ns,
               r->create_ns, r->destroy_ns, r->bytes);
    }
    puts("]");
    return 0;
}
