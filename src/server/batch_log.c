#include "batch_log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "log.h"

enum { LINE_BYTES = 1000, OCCUPANCY_BUCKETS = 11, RUN_BUCKETS = 7, HOLD_BUCKETS = 16 };

/* Counts of one thread as last written. */
struct seen {
    uint64_t calls, datagrams, would_block, unavailable, no_buffer, packets, kernel_drops;
    struct histogram_snapshot rx_occupancy;
    uint64_t flushes, sent, gso_messages, gso_datagrams, send_calls, fallbacks;
    struct histogram_snapshot tx_occupancy, run_length, hold_us;
};

struct batch_log {
    uint32_t n_threads;
    bool receive_lines, send_lines;
    struct seen seen[];
};

int batch_log_create(struct batch_log **out, uint32_t n_threads, bool receive_lines, bool send_lines) {
    struct batch_log *log = calloc(1, sizeof *log + n_threads * sizeof log->seen[0]);
    if (log == NULL) {
        return -ENOMEM;
    }
    log->n_threads = n_threads;
    log->receive_lines = receive_lines;
    log->send_lines = send_lines;
    *out = log;
    return 0;
}

void batch_log_destroy(struct batch_log *log) {
    free(log);
}

/* A line under construction; what does not fit is left out. */
struct line {
    char text[LINE_BYTES];
    size_t n;
};

static void __attribute__((format(printf, 2, 3))) put(struct line *line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line->text + line->n, sizeof line->text - line->n, format, args);
    va_end(args);
    if (n > 0 && line->n + (size_t)n < sizeof line->text) {
        line->n += (size_t)n;
    }
}

static uint64_t take(const counter *c, uint64_t *seen) {
    uint64_t now = counter_read(c);
    uint64_t difference = now - *seen;
    *seen = now;
    return difference;
}

static void take_histogram(struct histogram *h, struct histogram_snapshot *seen,
                           struct histogram_snapshot *out) {
    struct histogram_snapshot now;
    histogram_take(h, &now);
    histogram_interval(out, &now, seen);
    *seen = now;
}

/* "hist_1=N hist_2=N hist_3_4=N ..."; the last bucket takes all above. */
static void put_buckets(struct line *line, const char *name, const struct histogram_snapshot *s, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        uint64_t count = s->buckets[i];
        uint64_t low = i == 0 ? 1 : (UINT64_C(1) << (i - 1)) + 1;
        uint64_t high = UINT64_C(1) << i;
        if (i == n - 1) {
            for (unsigned j = n; j < HISTOGRAM_BUCKETS; j++) {
                count += s->buckets[j];
            }
            put(line, " %s_%" PRIu64 "_up=%" PRIu64, name, low, count);
        } else if (low == high) {
            put(line, " %s_%" PRIu64 "=%" PRIu64, name, low, count);
        } else {
            put(line, " %s_%" PRIu64 "_%" PRIu64 "=%" PRIu64, name, low, high, count);
        }
    }
}

static double ratio(uint64_t a, uint64_t b) {
    return b == 0 ? 0 : (double)a / (double)b;
}

static void write_receive(struct seen *seen, const struct relay_thread_view *view) {
    struct rx_counters *rx = view->rx;
    uint64_t calls = take(&rx->calls, &seen->calls);
    uint64_t datagrams = take(&rx->datagrams, &seen->datagrams);
    uint64_t would_block = take(&rx->would_block, &seen->would_block);
    uint64_t unavailable = take(&rx->unavailable, &seen->unavailable);
    uint64_t no_buffer = take(&rx->no_buffer, &seen->no_buffer);
    uint64_t packets = take(&rx->packets, &seen->packets);
    uint64_t kernel_drops = take(&rx->kernel_drops, &seen->kernel_drops);
    struct histogram_snapshot occupancy;
    take_histogram(&rx->occupancy, &seen->rx_occupancy, &occupancy);
    if (datagrams == 0 && kernel_drops == 0) {
        return;
    }
    struct line line = {.n = 0};
    put(&line, "udp-recvmmsg stats: calls=%" PRIu64 " packets=%" PRIu64 " avg_batch=%.2f wouldblock=%" PRIu64,
        calls, datagrams, ratio(occupancy.sum, occupancy.n_values), would_block);
    put(&line, " unavailable=%" PRIu64 " no_buffer=%" PRIu64, unavailable, no_buffer);
    put_buckets(&line, "hist", &occupancy, OCCUPANCY_BUCKETS);
    put(&line, " thread=%u messages=%" PRIu64 " kernel_drops=%" PRIu64 " total_packets=%" PRIu64, view->index,
        packets, kernel_drops, seen->datagrams);
    log_write(LOG_LEVEL_INFO, "%s", line.text);
}

static void write_send(struct seen *seen, const struct relay_thread_view *view) {
    struct tx_counters *tx = view->tx;
    uint64_t flushes = take(&tx->flushes, &seen->flushes);
    uint64_t datagrams = take(&tx->datagrams, &seen->sent);
    uint64_t gso_messages = take(&tx->gso_messages, &seen->gso_messages);
    uint64_t gso_datagrams = take(&tx->gso_datagrams, &seen->gso_datagrams);
    uint64_t calls = take(&tx->calls, &seen->send_calls);
    uint64_t fallbacks = take(&tx->gso_fallbacks, &seen->fallbacks);
    struct histogram_snapshot occupancy, runs, hold;
    take_histogram(&tx->occupancy, &seen->tx_occupancy, &occupancy);
    take_histogram(&tx->run_length, &seen->run_length, &runs);
    take_histogram(&view->relay->hold_us, &seen->hold_us, &hold);
    if (flushes == 0) {
        return;
    }
    struct line line = {.n = 0};
    put(&line, "udp-sendmmsg stats: flushes=%" PRIu64 " datagrams=%" PRIu64 " avg_batch=%.2f", flushes,
        datagrams, ratio(occupancy.sum, occupancy.n_values));
    put(&line, " gso_flushes=%" PRIu64 " gso_datagrams=%" PRIu64 " gso_frac=%.3f", gso_messages,
        gso_datagrams, ratio(gso_datagrams, datagrams));
    put_buckets(&line, "hist", &occupancy, OCCUPANCY_BUCKETS);
    put(&line, " thread=%u calls=%" PRIu64 " gso_fallbacks=%" PRIu64 " avg_run=%.2f", view->index, calls,
        fallbacks, ratio(runs.sum, runs.n_values));
    put_buckets(&line, "run", &runs, RUN_BUCKETS);
    put(&line, " hold_avg_us=%.1f hold_p99_us=%" PRIu64 " hold_max_us=%" PRIu64,
        ratio(hold.sum, hold.n_values), histogram_quantile(&hold, 0.99), hold.max);
    put_buckets(&line, "hold_us", &hold, HOLD_BUCKETS);
    put(&line, " total_datagrams=%" PRIu64, seen->sent);
    log_write(LOG_LEVEL_INFO, "%s", line.text);
}

void batch_log_write(struct batch_log *log, struct relay_thread *thread) {
    struct relay_thread_view view;
    relay_thread_view(thread, &view);
    struct seen *seen = &log->seen[view.index];
    if (log->receive_lines) {
        write_receive(seen, &view);
    }
    if (log->send_lines) {
        write_send(seen, &view);
    }
}
