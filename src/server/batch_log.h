/* The lines of --udp-recvmmsg-log and --udp-sendmmsg-log: one a relay thread and interval, with the counts of
 * that interval. Written by the main thread from the threads' relaxed counters. */
#ifndef TURN_BATCH_LOG_H
#define TURN_BATCH_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "relay_thread.h"

enum { BATCH_LOG_INTERVAL_S = 10 };

struct batch_log;

int batch_log_create(struct batch_log **out, uint32_t n_threads, bool receive_lines, bool send_lines);
void batch_log_destroy(struct batch_log *log);

/* Writes what changed on this thread since its last call; nothing when nothing did. */
void batch_log_write(struct batch_log *log, struct relay_thread *thread);

#endif
