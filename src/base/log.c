#include "log.h"

#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

enum {
    QUEUE_LINES = 1024, /* a power of two */
    TEXT_BYTES = 1000,
    STAMP_BYTES = 128,
    OUTPUT_BYTES = 32768, /* what one write hands to a file at most */
    FORMAT_BYTES = 256,
    STALL_MS = 200, /* how long a sink may take to become writable before its lines are dropped */
};
static const char default_format[] = "%FT%T.%f%z";

struct line {
    struct timespec wall;
    uint64_t monotonic_us;
    enum log_level level;
    uint16_t n_text;
    char text[TEXT_BYTES + 1]; /* not terminated in the queue */
};

/* Where bytes go. Used by the writer alone once it runs. */
struct sink {
    int fd; /* -1: not used */
    bool is_regular;
    bool stalled;       /* did not take bytes last time: not waited for again */
    bool inside_line;   /* the last bytes taken did not end a line */
    uint64_t n_dropped; /* lines, since the last report in this sink */
};

/* What log_start was asked for; constant while the writer runs. */
struct settings {
    char *path; /* NULL: no file */
    char format[FORMAT_BYTES];
    bool iso_timestamps;
    bool to_syslog;
    int facility;
    uint64_t started_us;
};

/* The process has one log. The mutex is held for a copy of one line at most. */
static struct {
    _Atomic int level;
    _Atomic uint64_t n_lost;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    pthread_t writer;
    struct settings settings;
    struct sink file, out;
    /* under the mutex */
    bool running;
    struct line *queue;
    uint64_t head, tail; /* lines put in and taken out since start */
    uint64_t n_overflowed;
    bool reopen;
    uint64_t reopen_at; /* value of head when the reopening was asked for */
} the_log = {
    .level = LOG_LEVEL_INFO,
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
    .file.fd = -1,
    .out.fd = -1,
};

static const char *level_name(enum log_level level) {
    switch (level) {
    case LOG_LEVEL_DEBUG:
        return "DEBUG";
    case LOG_LEVEL_INFO:
        return "INFO";
    case LOG_LEVEL_WARNING:
        return "WARNING";
    case LOG_LEVEL_ERROR:
        return "ERROR";
    }
    return "ERROR";
}

static int syslog_priority(enum log_level level) {
    switch (level) {
    case LOG_LEVEL_DEBUG:
        return LOG_DEBUG;
    case LOG_LEVEL_INFO:
        return LOG_INFO;
    case LOG_LEVEL_WARNING:
        return LOG_WARNING;
    case LOG_LEVEL_ERROR:
        return LOG_ERR;
    }
    return LOG_ERR;
}

/* A facility's name, with or without LOG_ before it, in any case. */
static int syslog_facility(int *out, const char *name) {
    static const struct {
        const char *name;
        int facility;
    } known[] = {
        {"auth", LOG_AUTH},     {"authpriv", LOG_AUTHPRIV}, {"cron", LOG_CRON},     {"daemon", LOG_DAEMON},
        {"ftp", LOG_FTP},       {"kern", LOG_KERN},         {"lpr", LOG_LPR},       {"mail", LOG_MAIL},
        {"news", LOG_NEWS},     {"syslog", LOG_SYSLOG},     {"user", LOG_USER},     {"uucp", LOG_UUCP},
        {"local0", LOG_LOCAL0}, {"local1", LOG_LOCAL1},     {"local2", LOG_LOCAL2}, {"local3", LOG_LOCAL3},
        {"local4", LOG_LOCAL4}, {"local5", LOG_LOCAL5},     {"local6", LOG_LOCAL6}, {"local7", LOG_LOCAL7},
    };
    if (strncasecmp(name, "LOG_", 4) == 0) {
        name += 4;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcasecmp(name, known[i].name) == 0) {
            *out = known[i].facility;
            return 0;
        }
    }
    return -EINVAL;
}

/* ---- text of a line ---- */

/* The strftime format with every %f replaced by milliseconds; cut when it does not fit. */
static void expand_format(char out[FORMAT_BYTES], const char *format, long nanoseconds) {
    size_t n = 0;
    for (const char *at = format; *at != '\0' && n + 4 < FORMAT_BYTES; at++) {
        if (at[0] == '%' && at[1] == 'f') {
            n += (size_t)snprintf(out + n, 4, "%03u", (unsigned)(nanoseconds / 1000000) % 1000);
            at++;
        } else {
            out[n++] = *at;
            if (at[0] == '%' && at[1] != '\0') {
                out[n++] = *++at; /* "%%f" is no %f */
            }
        }
    }
    out[n] = '\0';
}

/* The format is the operator's, so the compiler can't check it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static size_t print_time(char out[STAMP_BYTES], const char *format, const struct timespec *wall) {
    char expanded[FORMAT_BYTES];
    expand_format(expanded, format, wall->tv_nsec);
    struct tm tm;
    return localtime_r(&wall->tv_sec, &tm) == NULL ? 0 : strftime(out, STAMP_BYTES - 1, expanded, &tm);
}
#pragma GCC diagnostic pop

static size_t print_stamp(char out[STAMP_BYTES], const struct settings *settings, const struct line *line) {
    if (!settings->iso_timestamps) {
        uint64_t since_us = line->monotonic_us - settings->started_us;
        return (size_t)snprintf(out, STAMP_BYTES, "%llu: ", (unsigned long long)(since_us / 1000000));
    }
    size_t n = print_time(out, settings->format, &line->wall);
    out[n] = ' ';
    return n + 1;
}

enum { PRINTED_BYTES = STAMP_BYTES + 16 + TEXT_BYTES };

/* The whole line with its newline; returns its length. */
static size_t print_line(char out[PRINTED_BYTES], const struct settings *settings, const struct line *line) {
    size_t n = print_stamp(out, settings, line);
    int rest = snprintf(out + n, PRINTED_BYTES - n, "%s %.*s\n", level_name(line->level), (int)line->n_text,
                        line->text);
    return n + (size_t)rest;
}

__attribute__((format(printf, 3, 0))) static void fill_line(struct line *line, enum log_level level,
                                                            const char *format, va_list arguments) {
    clock_gettime(CLOCK_REALTIME, &line->wall);
    line->monotonic_us = clock_now_us();
    line->level = level;
    int n = vsnprintf(line->text, sizeof line->text, format, arguments);
    size_t n_text = n < 0 ? 0 : (size_t)n;
    line->n_text = (uint16_t)(n_text < TEXT_BYTES ? n_text : TEXT_BYTES);
    for (size_t i = 0; i < line->n_text; i++) {
        unsigned char c = (unsigned char)line->text[i];
        if (c < 0x20 || c == 0x7f) {
            line->text[i] = '?';
        }
    }
}

/* A line of the log's own. */
__attribute__((format(printf, 3, 4))) static void fill_own_line(struct line *line, enum log_level level,
                                                                const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fill_line(line, level, format, arguments);
    va_end(arguments);
}

/* ---- callers ---- */

static void write_stderr(const struct line *line) {
    static const struct settings plain = {.iso_timestamps = true, .format = "%FT%T.%f%z"};
    char printed[PRINTED_BYTES];
    size_t n = print_line(printed, &plain, line);
    for (size_t at = 0; at < n;) {
        ssize_t taken = write(STDERR_FILENO, printed + at, n - at);
        if (taken > 0) {
            at += (size_t)taken;
        } else if (taken == 0 || errno != EINTR) {
            return;
        }
    }
}

static size_t line_bytes(const struct line *line) {
    return offsetof(struct line, text) + line->n_text;
}

/* False when no writer runs. A full queue takes the line and forgets it. */
static bool enqueue(const struct line *line) {
    pthread_mutex_lock(&the_log.mutex);
    bool running = the_log.running;
    bool was_empty = the_log.head == the_log.tail;
    if (running && the_log.head - the_log.tail < QUEUE_LINES) {
        memcpy(&the_log.queue[the_log.head % QUEUE_LINES], line, line_bytes(line));
        the_log.head++;
    } else if (running) {
        the_log.n_overflowed++;
        atomic_fetch_add_explicit(&the_log.n_lost, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&the_log.mutex);
    if (running && was_empty) {
        pthread_cond_signal(&the_log.wake);
    }
    return running;
}

void log_write(enum log_level level, const char *format, ...) {
    if (!log_is_on(level)) {
        return;
    }
    int saved_errno = errno;
    struct line line;
    va_list arguments;
    va_start(arguments, format);
    fill_line(&line, level, format, arguments);
    va_end(arguments);
    if (!enqueue(&line)) {
        write_stderr(&line);
    }
    errno = saved_errno;
}

void log_set_level(enum log_level level) {
    atomic_store_explicit(&the_log.level, (int)level, memory_order_relaxed);
}

bool log_is_on(enum log_level level) {
    return (int)level >= atomic_load_explicit(&the_log.level, memory_order_relaxed);
}

uint64_t log_dropped_lines(void) {
    return atomic_load_explicit(&the_log.n_lost, memory_order_relaxed);
}

bool log_limit_pass(struct log_limit *limit, uint64_t now_us, uint64_t *out_suppressed) {
    uint64_t second = now_us / 1000000 + 1; /* 0 is "never" */
    if (limit->second == second) {
        limit->n_suppressed++;
        return false;
    }
    limit->second = second;
    *out_suppressed = limit->n_suppressed;
    limit->n_suppressed = 0;
    return true;
}

void log_reopen(void) {
    pthread_mutex_lock(&the_log.mutex);
    bool signalled = the_log.running && !the_log.reopen;
    if (signalled) {
        the_log.reopen = true;
        the_log.reopen_at = the_log.head;
    }
    pthread_mutex_unlock(&the_log.mutex);
    if (signalled) {
        pthread_cond_signal(&the_log.wake);
    }
}

/* ---- sinks ---- */

/* Without O_NONBLOCK a FIFO that nobody reads would hold up the opening and the writing. */
static int open_file(const char *path) {
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
    return fd < 0 ? -errno : fd;
}

static void sink_set(struct sink *sink, int fd) {
    struct stat status;
    *sink = (struct sink){.fd = fd};
    sink->is_regular = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

/* Waits a little for a sink that has just become slow, not at all for one known to be stalled. */
static bool sink_is_writable(const struct sink *sink) {
    if (sink->is_regular) {
        return true;
    }
    struct pollfd p = {.fd = sink->fd, .events = POLLOUT};
    int n;
    do {
        n = poll(&p, 1, sink->stalled ? 0 : STALL_MS);
    } while (n < 0 && errno == EINTR);
    return n > 0 && (p.revents & POLLOUT) != 0;
}

/* How much to write at once: a pipe that is writable takes PIPE_BUF bytes without blocking. Ends with a line
 * where possible, so that lines stay whole beside other writers of the same pipe. */
static size_t chunk_bytes(const struct sink *sink, const char *bytes, size_t n_bytes) {
    if (sink->is_regular || n_bytes <= PIPE_BUF) {
        return n_bytes;
    }
    size_t n = PIPE_BUF;
    while (n > 0 && bytes[n - 1] != '\n') {
        n--;
    }
    return n > 0 ? n : PIPE_BUF;
}

/* Returns how many bytes the sink took. */
static size_t sink_push(struct sink *sink, const char *bytes, size_t n_bytes) {
    size_t at = 0;
    while (at < n_bytes && sink_is_writable(sink)) {
        ssize_t n = write(sink->fd, bytes + at, chunk_bytes(sink, bytes + at, n_bytes - at));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break;
        }
        at += (size_t)n;
        sink->stalled = false;
        sink->inside_line = bytes[at - 1] != '\n';
    }
    sink->stalled = at < n_bytes;
    return at;
}

static uint64_t count_lines(const char *bytes, size_t n_bytes) {
    uint64_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        n += bytes[i] == '\n';
    }
    return n;
}

/* Ends a line that was cut by a failure, and reports what was lost. False while the sink still fails. */
static bool sink_recover(struct sink *sink) {
    if (sink->inside_line && sink_push(sink, "\n", 1) != 1) {
        return false;
    }
    if (sink->n_dropped == 0) {
        return true;
    }
    struct line line;
    fill_own_line(&line, LOG_LEVEL_WARNING, "event=log_lines_dropped reason=write_failed count=%llu",
                  (unsigned long long)sink->n_dropped);
    char printed[PRINTED_BYTES];
    size_t n = print_line(printed, &the_log.settings, &line);
    if (sink_push(sink, printed, n) != n) {
        return false;
    }
    sink->n_dropped = 0;
    return true;
}

/* Whole lines in; what the sink does not take is dropped. */
static void sink_write(struct sink *sink, const char *bytes, size_t n_bytes) {
    if (sink->fd < 0 || n_bytes == 0) {
        return;
    }
    size_t taken = sink_recover(sink) ? sink_push(sink, bytes, n_bytes) : 0;
    uint64_t n_lost = count_lines(bytes + taken, n_bytes - taken);
    if (n_lost > 0) {
        sink->n_dropped += n_lost;
        atomic_fetch_add_explicit(&the_log.n_lost, n_lost, memory_order_relaxed);
    }
}

/* ---- writer thread ---- */

struct output {
    size_t n_bytes;
    char bytes[OUTPUT_BYTES];
};

static void output_flush(struct output *output) {
    sink_write(&the_log.file, output->bytes, output->n_bytes);
    sink_write(&the_log.out, output->bytes, output->n_bytes);
    output->n_bytes = 0;
}

static void output_line(struct output *output, const struct line *line) {
    if (the_log.settings.to_syslog) {
        syslog(syslog_priority(line->level), "%.*s", (int)line->n_text, line->text);
    }
    if (the_log.file.fd < 0 && the_log.out.fd < 0) {
        return;
    }
    if (sizeof output->bytes - output->n_bytes < PRINTED_BYTES) {
        output_flush(output);
    }
    output->n_bytes += print_line(output->bytes + output->n_bytes, &the_log.settings, line);
}

static void reopen_file(struct output *output) {
    const char *path = the_log.settings.path;
    if (path == NULL) {
        return;
    }
    int fd = open_file(path);
    if (fd < 0) {
        struct line line;
        fill_own_line(&line, LOG_LEVEL_ERROR, "event=log_reopen_failed file=%s error=\"%s\"", path,
                      strerror(-fd));
        output_line(output, &line);
        output_flush(output);
        return;
    }
    uint64_t n_dropped = the_log.file.n_dropped;
    close(the_log.file.fd);
    sink_set(&the_log.file, fd);
    the_log.file.n_dropped = n_dropped;
}

/* What the writer does in one turn. */
struct work {
    uint64_t from, to; /* lines of the queue */
    uint64_t n_overflowed;
    bool reopen; /* after those lines */
    bool stop;   /* nothing more will come */
};

static struct work wait_for_work(void) {
    pthread_mutex_lock(&the_log.mutex);
    while (the_log.running && the_log.head == the_log.tail && !the_log.reopen && the_log.n_overflowed == 0) {
        pthread_cond_wait(&the_log.wake, &the_log.mutex);
    }
    struct work work = {
        .from = the_log.tail,
        .to = the_log.reopen ? the_log.reopen_at : the_log.head,
        .n_overflowed = the_log.n_overflowed,
        .reopen = the_log.reopen,
        .stop = !the_log.running && !the_log.reopen,
    };
    the_log.n_overflowed = 0;
    the_log.reopen = false;
    pthread_mutex_unlock(&the_log.mutex);
    return work;
}

/* Callers leave the lines between tail and head alone, so they are read without the mutex. */
static void do_work(struct output *output, const struct work *work) {
    for (uint64_t i = work->from; i < work->to; i++) {
        output_line(output, &the_log.queue[i % QUEUE_LINES]);
    }
    if (work->n_overflowed > 0) {
        struct line line;
        fill_own_line(&line, LOG_LEVEL_WARNING, "event=log_lines_dropped reason=queue_full count=%llu",
                      (unsigned long long)work->n_overflowed);
        output_line(output, &line);
    }
    output_flush(output);
    pthread_mutex_lock(&the_log.mutex);
    the_log.tail = work->to;
    pthread_mutex_unlock(&the_log.mutex);
    if (work->reopen) {
        reopen_file(output);
    }
}

static void *run_writer(void *context) {
    struct output *output = context;
    struct work work;
    do {
        work = wait_for_work();
        do_work(output, &work);
    } while (!work.stop);
    free(output);
    return NULL;
}

/* ---- start and stop ---- */

static void release_settings(void) {
    free(the_log.settings.path);
    the_log.settings.path = NULL;
    if (the_log.settings.to_syslog) {
        closelog();
        the_log.settings.to_syslog = false;
    }
    if (the_log.file.fd >= 0) {
        close(the_log.file.fd);
    }
    the_log.file.fd = the_log.out.fd = -1;
    free(the_log.queue);
    the_log.queue = NULL;
}

static bool names_stdout(const char *file) {
    return file == NULL || strcmp(file, "stdout") == 0 || strcmp(file, "-") == 0;
}

static int open_sinks(const struct log_params *params) {
    struct settings *settings = &the_log.settings;
    if (names_stdout(params->file) || params->also_stdout) {
        sink_set(&the_log.out, STDOUT_FILENO);
    }
    if (names_stdout(params->file)) {
        return 0;
    }
    if (strcmp(params->file, "syslog") == 0) {
        openlog(NULL, LOG_PID | LOG_NDELAY, settings->facility);
        settings->to_syslog = true;
        return 0;
    }
    settings->path = strdup(params->file);
    if (settings->path == NULL) {
        return -ENOMEM;
    }
    int fd = open_file(settings->path);
    if (fd < 0) {
        return fd;
    }
    sink_set(&the_log.file, fd);
    return 0;
}

static int apply_params(const struct log_params *params) {
    struct settings *settings = &the_log.settings;
    const char *format = params->timestamp_format != NULL ? params->timestamp_format : default_format;
    const char *facility = params->syslog_facility != NULL ? params->syslog_facility : "daemon";
    if (strlen(format) >= sizeof settings->format) {
        return -EINVAL;
    }
    memcpy(settings->format, format, strlen(format) + 1);
    settings->iso_timestamps = params->iso_timestamps;
    settings->started_us = clock_now_us();
    int err = syslog_facility(&settings->facility, facility);
    if (err < 0) {
        return err;
    }
    the_log.queue = malloc(QUEUE_LINES * sizeof *the_log.queue);
    return the_log.queue == NULL ? -ENOMEM : open_sinks(params);
}

/* Signals are the other threads' business. With all of them blocked, a closed pipe (SIGPIPE) or a file size
 * limit (SIGXFSZ) is a failed write and not the end of the process. */
static int create_writer(struct output *output) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&the_log.writer, NULL, run_writer, output);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -err;
}

static int start_writer(void) {
    struct output *output = malloc(sizeof *output);
    if (output == NULL) {
        return -ENOMEM;
    }
    output->n_bytes = 0;
    pthread_mutex_lock(&the_log.mutex);
    the_log.head = the_log.tail = the_log.n_overflowed = 0;
    the_log.reopen = false;
    int err = create_writer(output);
    the_log.running = err == 0; /* the writer looks at it only after this */
    pthread_mutex_unlock(&the_log.mutex);
    if (err < 0) {
        free(output);
    }
    return err;
}

int log_start(const struct log_params *params) {
    pthread_mutex_lock(&the_log.mutex);
    bool running = the_log.running;
    pthread_mutex_unlock(&the_log.mutex);
    if (running) {
        return -EALREADY;
    }
    int err = apply_params(params);
    if (err == 0) {
        err = start_writer();
    }
    if (err < 0) {
        release_settings();
        return err;
    }
    log_set_level(params->level);
    return 0;
}

void log_stop(void) {
    pthread_mutex_lock(&the_log.mutex);
    bool was_running = the_log.running;
    the_log.running = false;
    pthread_mutex_unlock(&the_log.mutex);
    if (!was_running) {
        return;
    }
    pthread_cond_signal(&the_log.wake);
    pthread_join(the_log.writer, NULL);
    release_settings();
}
