#include "histogram.h"

void histogram_take(struct histogram *h, struct histogram_snapshot *out) {
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        out->buckets[i] = counter_read(&h->buckets[i]);
    }
    out->n_values = counter_read(&h->n_values);
    out->sum = counter_read(&h->sum);
    out->max = atomic_exchange_explicit(&h->max, 0, memory_order_relaxed);
}

void histogram_interval(struct histogram_snapshot *out, const struct histogram_snapshot *now,
                        const struct histogram_snapshot *before) {
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        out->buckets[i] = now->buckets[i] - before->buckets[i];
    }
    out->n_values = now->n_values - before->n_values;
    out->sum = now->sum - before->sum;
    out->max = now->max;
}

/* How many of total values, lowest first, have to be passed: at least one, at most all. */
static uint64_t quantile_rank(uint64_t total, double quantile) {
    double exact = quantile * (double)total;
    if (!(exact > 1.0)) { /* also when quantile is not a number */
        return 1;
    }
    if (exact >= (double)total) {
        return total;
    }
    uint64_t rank = (uint64_t)exact;
    return (double)rank < exact ? rank + 1 : rank;
}

uint64_t histogram_quantile(const struct histogram_snapshot *s, double quantile) {
    /* The buckets are summed because n_values was read at a slightly different time. */
    uint64_t total = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        total += s->buckets[i];
    }
    if (total == 0) {
        return 0;
    }
    uint64_t n_to_pass = quantile_rank(total, quantile);
    unsigned bucket = 0;
    while (n_to_pass > s->buckets[bucket]) {
        n_to_pass -= s->buckets[bucket];
        bucket++;
    }
    return UINT64_C(1) << bucket;
}
