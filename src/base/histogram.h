/* Counts in power-of-two buckets (1, 2, 3-4, 5-8, 9-16, ...). One writer thread, any number of readers:
 * plain relaxed stores, no read-modify-write instruction. */
#ifndef TURN_HISTOGRAM_H
#define TURN_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

enum { HISTOGRAM_BUCKETS = 32 };

/* A counter with one writer. */
typedef _Atomic uint64_t counter;

static inline void counter_add(counter *c, uint64_t n) {
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline uint64_t counter_read(const counter *c) {
    return atomic_load_explicit(c, memory_order_relaxed);
}

struct histogram {
    counter buckets[HISTOGRAM_BUCKETS]; /* bucket 0: values 0 and 1; bucket i: 2^(i-1)+1 .. 2^i */
    counter n_values;
    counter sum;
    counter max; /* of all values since the last reader's reset request; see histogram_take_max */
};

static inline unsigned histogram_bucket(uint64_t value) {
    if (value <= 1) {
        return 0;
    }
    unsigned b = 64u - (unsigned)__builtin_clzll(value - 1);
    return b < HISTOGRAM_BUCKETS ? b : HISTOGRAM_BUCKETS - 1;
}

/* Counts value `times` times. Writer thread only. */
static inline void histogram_add(struct histogram *h, uint64_t value, uint64_t times) {
    counter_add(&h->buckets[histogram_bucket(value)], times);
    counter_add(&h->n_values, times);
    counter_add(&h->sum, value * times);
    if (value > counter_read(&h->max)) {
        atomic_store_explicit(&h->max, value, memory_order_relaxed);
    }
}

/* Plain copy for arithmetic: differences of two snapshots are an interval. */
struct histogram_snapshot {
    uint64_t buckets[HISTOGRAM_BUCKETS];
    uint64_t n_values, sum, max;
};

/* Reads all counts, and restarts the maximum (a value counted in the same instant may be missed in max). */
void histogram_take(struct histogram *h, struct histogram_snapshot *out);

/* out = now - before (max is that of now). */
void histogram_interval(struct histogram_snapshot *out, const struct histogram_snapshot *now,
                        const struct histogram_snapshot *before);

/* Upper bound of the bucket in which the quantile (0..1) falls; 0 for an empty snapshot. The last bucket also
 * holds all that is larger than its bound. */
uint64_t histogram_quantile(const struct histogram_snapshot *s, double quantile);

#endif
