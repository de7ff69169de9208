/* Latency in nanoseconds, in buckets of 1.6 %: 64 steps to each power of two. One thread. */
#ifndef TURN_LATENCY_H
#define TURN_LATENCY_H

#include <stdint.h>

enum { LATENCY_STEPS = 64, LATENCY_POWERS = 34, LATENCY_BUCKETS = LATENCY_STEPS * LATENCY_POWERS };

struct latency {
    uint64_t n, sum_ns, max_ns;
    uint32_t buckets[LATENCY_BUCKETS];
};

static inline uint32_t latency_bucket(uint64_t ns) {
    if (ns < LATENCY_STEPS) {
        return (uint32_t)ns;
    }
    uint32_t shift = 57u - (uint32_t)__builtin_clzll(ns); /* leaves 64..127 */
    uint32_t bucket = shift * LATENCY_STEPS + (uint32_t)(ns >> shift);
    return bucket < LATENCY_BUCKETS ? bucket : LATENCY_BUCKETS - 1;
}

static inline void latency_add(struct latency *l, uint64_t ns, uint32_t times) {
    l->buckets[latency_bucket(ns)] += times;
    l->n += times;
    l->sum_ns += ns * times;
    if (ns > l->max_ns) {
        l->max_ns = ns;
    }
}

/* Middle of the bucket in which the quantile falls, in microseconds; 0 when nothing was counted. */
static inline double latency_quantile_us(const struct latency *l, double quantile) {
    double seen = 0;
    for (uint32_t i = 0; i < LATENCY_BUCKETS; i++) {
        seen += l->buckets[i];
        if (l->n > 0 && seen >= quantile * (double)l->n) {
            uint32_t shift = i < 2 * LATENCY_STEPS ? 0 : i / LATENCY_STEPS - 1;
            double low = (double)((uint64_t)(i - shift * LATENCY_STEPS) << shift);
            double ns = low + (double)((UINT64_C(1) << shift) - 1) / 2;
            return (ns < (double)l->max_ns ? ns : (double)l->max_ns) / 1000;
        }
    }
    return 0;
}

#endif
