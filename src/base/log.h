/* Log lines: "2026-11-30T17:56:31.998+0000 LEVEL text". Callers format into a bounded queue and never wait
 * for the disk; one writer thread appends to the sinks. A full queue or a failing sink drops lines, counts
 * them and says so when it can. Any thread may log; secrets and payload stay out. */
#ifndef TURN_LOG_H
#define TURN_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };

struct log_params {
    const char *file;             /* path, "stdout", "-", "syslog", or NULL for stdout alone */
    bool also_stdout;             /* copy to stdout besides the file */
    bool iso_timestamps;          /* false: seconds since log_start, as "12: LEVEL text" */
    const char *timestamp_format; /* strftime with %f for milliseconds; NULL: "%FT%T.%f%z" */
    const char *syslog_facility;  /* NULL: daemon */
    enum log_level level;
};

/* Before log_start (and after log_stop) lines go to stderr at once. Returns 0 or -errno of the open, after
 * which logging goes on to stderr; -EINVAL for a facility that is not known, -EALREADY when it runs. Strings
 * are copied. To be called after the last fork, by the thread that calls log_stop. A sink that does not take
 * its lines (full disk, pipe that nobody reads) loses them, never the others' and never the callers' time. */
int log_start(const struct log_params *params);

/* Writes out what is queued, ends the writer. Nothing happens when it does not run. */
void log_stop(void);

/* Closes and opens the file again (log rotation): lines written before the call go to the old file, later
 * ones to the new. Returns at once. When the file can't be opened, the old one stays and an error is logged.
 * Async-signal-unsafe; any thread. */
void log_reopen(void);

void log_set_level(enum log_level level);
bool log_is_on(enum log_level level);

/* One line, no newline at the end; longer than 1,000 bytes is cut. Control characters, which would let a
 * stranger's text forge lines, become '?'. errno is left as it was. */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Lines lost so far because the queue was full or a sink refused them; any thread. */
uint64_t log_dropped_lines(void);

#define log_debug(...) (log_is_on(LOG_LEVEL_DEBUG) ? log_write(LOG_LEVEL_DEBUG, __VA_ARGS__) : (void)0)
#define log_info(...) (log_is_on(LOG_LEVEL_INFO) ? log_write(LOG_LEVEL_INFO, __VA_ARGS__) : (void)0)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)

/* Lets one line a second through for what a stranger can trigger. A zeroed struct is ready. One thread. */
struct log_limit {
    uint64_t second;
    uint64_t n_suppressed;
};
/* True when this one may be written; *out_suppressed tells how many were not since the last one. */
bool log_limit_pass(struct log_limit *limit, uint64_t now_us, uint64_t *out_suppressed);

#endif
