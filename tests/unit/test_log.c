#include "log.h"

#include "alloc_fault.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a folder of its own, captured descriptors, files as text ---- */

struct fixture {
    char folder[64];
    char path[80], rotated[80];
};

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->folder, "/tmp/turn_test_log_XXXXXX");
    if (mkdtemp(f->folder) == NULL) {
        free(f);
        return -1;
    }
    snprintf(f->path, sizeof f->path, "%s/log", f->folder);
    snprintf(f->rotated, sizeof f->rotated, "%s/log.1", f->folder);
    *state = f;
    log_set_level(LOG_LEVEL_INFO);
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    alloc_fault_disarm();
    log_stop();
    unlink(f->path);
    unlink(f->rotated);
    rmdir(f->folder);
    free(f);
    return 0;
}

struct capture {
    int fd, saved;
    FILE *file;
};

static struct capture capture_start(int fd) {
    fflush(NULL);
    struct capture c = {.fd = fd, .saved = dup(fd), .file = tmpfile()};
    assert_true(c.saved >= 0 && c.file != NULL);
    assert_int_equal(dup2(fileno(c.file), fd), fd);
    return c;
}

/* What was written to the descriptor since; the caller frees it. */
static char *capture_end(struct capture *c) {
    fflush(NULL);
    dup2(c->saved, c->fd);
    close(c->saved);
    struct stat status;
    assert_int_equal(fstat(fileno(c->file), &status), 0);
    char *text = calloc(1, (size_t)status.st_size + 1);
    assert_int_equal(pread(fileno(c->file), text, (size_t)status.st_size, 0), status.st_size);
    fclose(c->file);
    return text;
}

static char *read_file(const char *path) {
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    struct stat status;
    assert_int_equal(fstat(fd, &status), 0);
    char *text = calloc(1, (size_t)status.st_size + 1);
    assert_int_equal(read(fd, text, (size_t)status.st_size), status.st_size);
    close(fd);
    return text;
}

static void assert_file_is(const char *path, const char *expected) {
    char *text = read_file(path);
    assert_string_equal(text, expected);
    free(text);
}

static int start(const char *file, enum log_level level) {
    /* Without a stamp, lines can be compared as they are; one blank stays. */
    return log_start(
        &(struct log_params){.file = file, .iso_timestamps = true, .timestamp_format = "T", .level = level});
}

/* ---- lines ---- */

static bool looks_like_iso_stamp(const char *text) {
    static const char pattern[] = "dddd-dd-ddTdd:dd:dd.ddd+dddd ";
    for (size_t i = 0; pattern[i] != '\0'; i++) {
        char c = text[i];
        bool ok = pattern[i] == 'd'   ? isdigit((unsigned char)c) != 0
                  : pattern[i] == '+' ? c == '+' || c == '-'
                                      : c == pattern[i];
        if (!ok) {
            return false;
        }
    }
    return true;
}

enum { ISO_STAMP_BYTES = 29 };

static void before_start_lines_go_to_stderr(void **state) {
    (void)state;
    struct capture c = capture_start(STDERR_FILENO);
    log_error("event=early n=%d", 7);
    log_debug("not shown");
    char *text = capture_end(&c);
    assert_true(looks_like_iso_stamp(text));
    assert_string_equal(text + ISO_STAMP_BYTES, "ERROR event=early n=7\n");
    free(text);
}

static void default_stamp_is_the_time(void **state) {
    struct fixture *f = *state;
    time_t before = time(NULL);
    assert_int_equal(log_start(&(struct log_params){.file = f->path, .iso_timestamps = true}), 0);
    log_info("hello");
    log_stop();
    time_t after = time(NULL);
    char *text = read_file(f->path);
    assert_true(looks_like_iso_stamp(text));
    assert_string_equal(text + ISO_STAMP_BYTES, "INFO hello\n");
    struct tm tm = {.tm_isdst = -1};
    assert_non_null(strptime(text, "%Y-%m-%dT%H:%M:%S", &tm));
    time_t stamped = mktime(&tm);
    assert_true(stamped >= before && stamped <= after);
    free(text);
}

static void seconds_since_start(void **state) {
    struct fixture *f = *state;
    assert_int_equal(log_start(&(struct log_params){.file = f->path}), 0);
    log_warning("hello");
    log_stop();
    assert_file_is(f->path, "0: WARNING hello\n");
}

static void stamp_in_the_operators_format(void **state) {
    struct fixture *f = *state;
    struct log_params params = {.file = f->path, .iso_timestamps = true, .timestamp_format = "<%%f %f %Y>"};
    assert_int_equal(log_start(&params), 0);
    log_info("x");
    log_stop();
    char *text = read_file(f->path);
    unsigned milliseconds, year;
    int end = 0;
    assert_int_equal(sscanf(text, "<%%f %3u %4u> INFO x\n%n", &milliseconds, &year, &end), 2);
    assert_int_equal(end, strlen(text));
    assert_in_range(year, 2020, 9999);
    free(text);
}

static void odd_formats_do_no_harm(void **state) {
    struct fixture *f = *state;
    char too_long[300], expands[250];
    memset(too_long, 'x', sizeof too_long);
    too_long[256] = '\0';
    memset(expands, 0, sizeof expands);
    for (size_t i = 0; i + 2 < sizeof expands; i += 2) {
        memcpy(expands + i, i % 4 == 0 ? "%f" : "%c", 2);
    }
    const char *odd[] = {"", "%", "%f%", "%%", expands, too_long + 1};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct log_params params = {.file = f->path, .iso_timestamps = true, .timestamp_format = odd[i]};
        assert_int_equal(log_start(&params), 0);
        log_info("survived %zu", i);
        log_stop();
        char expected[40];
        snprintf(expected, sizeof expected, " INFO survived %zu\n", i);
        char *text = read_file(f->path);
        assert_non_null(strstr(text, expected));
        free(text);
    }
    struct log_params params = {.file = f->path, .iso_timestamps = true, .timestamp_format = too_long};
    assert_int_equal(log_start(&params), -EINVAL);
}

static void levels(void **state) {
    struct fixture *f = *state;
    assert_int_equal(start(f->path, LOG_LEVEL_WARNING), 0);
    assert_false(log_is_on(LOG_LEVEL_INFO));
    assert_true(log_is_on(LOG_LEVEL_WARNING));
    log_debug("no");
    log_info("no");
    log_warning("w");
    log_error("e");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("d");
    log_info("i");
    log_set_level(LOG_LEVEL_ERROR);
    log_warning("no");
    log_write(LOG_LEVEL_INFO, "no");
    log_error("e2");
    log_stop();
    assert_file_is(f->path, "T WARNING w\nT ERROR e\nT DEBUG d\nT INFO i\nT ERROR e2\n");
}

static void lines_are_cut_at_a_thousand_bytes(void **state) {
    struct fixture *f = *state;
    char text[1202];
    memset(text, 'x', sizeof text);
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    log_info("%.*s", 999, text);
    log_info("%.*s", 1000, text);
    log_info("%.*s", 1001, text);
    log_info("%.*s", 1200, text);
    log_info("%s", "");
    log_stop();
    static const size_t expected[] = {999, 1000, 1000, 1000, 0};
    char *all = read_file(f->path), *at = all;
    for (size_t i = 0; i < 5; i++) {
        assert_memory_equal(at, "T INFO ", 7);
        assert_int_equal(strcspn(at + 7, "\n"), expected[i]);
        assert_int_equal(strspn(at + 7, "x"), expected[i]);
        at += 7 + expected[i] + 1;
    }
    assert_int_equal(*at, '\0');
    free(all);
}

static void text_cannot_forge_lines(void **state) {
    struct fixture *f = *state;
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    log_info("user=%s", "a\nT ERROR forged\r\x1b[31m\t\x7f\x01\x1f \xc3\xa4~");
    log_stop();
    assert_file_is(f->path, "T INFO user=a?T ERROR forged??[31m???? \xc3\xa4~\n");
}

static void errno_is_left_alone(void **state) {
    struct fixture *f = *state;
    struct capture c = capture_start(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = EXDEV;
    log_error("nobody can read this");
    int after_direct = errno;
    free(capture_end(&c));
    assert_int_equal(after_direct, EXDEV);
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    errno = EXDEV;
    log_error("%m");
    assert_int_equal(errno, EXDEV);
}

/* ---- start, stop, sinks ---- */

static void starting_twice_and_stopping_twice(void **state) {
    struct fixture *f = *state;
    log_stop();
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    assert_int_equal(start(f->rotated, LOG_LEVEL_INFO), -EALREADY);
    log_info("one");
    log_stop();
    log_stop();
    struct capture c = capture_start(STDERR_FILENO);
    log_info("between");
    char *text = capture_end(&c);
    assert_string_equal(text + ISO_STAMP_BYTES, "INFO between\n");
    free(text);
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    log_info("two");
    log_stop();
    assert_file_is(f->path, "T INFO one\nT INFO two\n"); /* appended */
}

static void what_cannot_be_opened_leaves_stderr(void **state) {
    struct fixture *f = *state;
    char missing[128];
    snprintf(missing, sizeof missing, "%s/no/such/log", f->folder);
    assert_int_equal(start(missing, LOG_LEVEL_INFO), -ENOENT);
    assert_int_equal(start(f->folder, LOG_LEVEL_INFO), -EISDIR);
    struct capture c = capture_start(STDERR_FILENO);
    log_info("still here");
    char *text = capture_end(&c);
    assert_string_equal(text + ISO_STAMP_BYTES, "INFO still here\n");
    free(text);
}

static void a_fifo_without_reader_does_not_hold_up_the_start(void **state) {
    struct fixture *f = *state;
    assert_int_equal(mkfifo(f->path, 0600), 0);
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), -ENXIO);
}

static void stdout_by_every_name(void **state) {
    (void)state;
    static const char *const names[] = {NULL, "stdout", "-"};
    for (size_t i = 0; i < 3; i++) {
        struct capture c = capture_start(STDOUT_FILENO);
        int err = start(names[i], LOG_LEVEL_INFO);
        log_info("to stdout");
        log_stop();
        log_set_level(LOG_LEVEL_ERROR);
        char *text = capture_end(&c);
        assert_int_equal(err, 0);
        assert_string_equal(text, "T INFO to stdout\n");
        free(text);
    }
}

static void file_and_stdout(void **state) {
    struct fixture *f = *state;
    struct log_params params = {.file = f->path,
                                .also_stdout = true,
                                .iso_timestamps = true,
                                .timestamp_format = "T",
                                .level = LOG_LEVEL_INFO};
    struct capture c = capture_start(STDOUT_FILENO);
    int err = log_start(&params);
    log_info("both");
    log_reopen();
    log_info("both again");
    log_stop();
    char *text = capture_end(&c);
    assert_int_equal(err, 0);
    assert_string_equal(text, "T INFO both\nT INFO both again\n");
    assert_file_is(f->path, text);
    free(text);
}

static void syslog_and_its_facilities(void **state) {
    (void)state;
    static const char *const good[] = {NULL, "daemon", "local0", "LOCAL7", "LOG_LOCAL3", "log_user"};
    static const char *const bad[] = {"", "LOG_", "local8", "local", "local0 ", "LOG_LOG_USER", "16"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct capture out = capture_start(STDOUT_FILENO);
        struct log_params params = {.file = "syslog", .syslog_facility = good[i]};
        int err = log_start(&params);
        log_info("event=test_of_syslog");
        log_reopen();
        log_stop();
        char *text = capture_end(&out);
        assert_int_equal(err, 0);
        assert_string_equal(text, "");
        free(text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct log_params params = {.file = "syslog", .syslog_facility = bad[i]};
        assert_int_equal(log_start(&params), -EINVAL);
    }
}

static void failing_allocations(void **state) {
    struct fixture *f = *state;
    bool hit = true;
    for (uint64_t n = 1; hit; n++) {
        alloc_fault_arm(n);
        int err = start(f->path, LOG_LEVEL_INFO);
        hit = alloc_fault_hit();
        alloc_fault_disarm();
        assert_int_equal(err, hit ? -ENOMEM : 0);
        assert_true(n <= 5);
    }
    alloc_fault_arm(0);
    for (unsigned i = 0; i < 100; i++) {
        log_info("line %u", i);
    }
    log_reopen();
    log_stop();
    assert_int_equal(alloc_fault_count(), 0); /* a line never allocates */
}

static void params_are_copied(void **state) {
    struct fixture *f = *state;
    char path[80], format[8] = "T";
    strcpy(path, f->path);
    struct log_params params = {.file = path, .iso_timestamps = true, .timestamp_format = format};
    assert_int_equal(log_start(&params), 0);
    memset(path, 'x', sizeof path);
    memset(format, 'x', sizeof format);
    log_reopen();
    log_info("a");
    log_stop();
    assert_file_is(f->path, "T INFO a\n");
}

/* ---- rotation ---- */

static void rotation_divides_the_lines_at_the_call(void **state) {
    struct fixture *f = *state;
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    char before[8192] = "", after[8192] = "";
    for (unsigned i = 0; i < 200; i++) {
        log_info("before %u", i);
        snprintf(before + strlen(before), 32, "T INFO before %u\n", i);
    }
    assert_int_equal(rename(f->path, f->rotated), 0);
    log_reopen();
    for (unsigned i = 0; i < 200; i++) {
        log_info("after %u", i);
        log_reopen(); /* asked for again while the first may be pending */
        snprintf(after + strlen(after), 32, "T INFO after %u\n", i);
    }
    log_stop();
    assert_file_is(f->rotated, before);
    assert_file_is(f->path, after);
}

static void a_failed_rotation_keeps_the_old_file(void **state) {
    struct fixture *f = *state;
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    log_info("one");
    assert_int_equal(rename(f->path, f->rotated), 0);
    assert_int_equal(mkdir(f->path, 0700), 0);
    log_reopen();
    log_info("two");
    log_stop();
    rmdir(f->path);
    char *text = read_file(f->rotated);
    assert_memory_equal(text, "T INFO one\nT ERROR event=log_reopen_failed file=", 48);
    assert_non_null(strstr(text, "\nT INFO two\n"));
    free(text);
}

static void reopening_a_log_that_does_not_run(void **state) {
    struct fixture *f = *state;
    log_reopen();
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    log_stop();
    log_reopen();
    assert_file_is(f->path, "");
}

/* ---- failing sinks ---- */

/* Waits for what the writer thread does; false after ten seconds. */
static bool dropped_reaches(uint64_t n) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    while (log_dropped_lines() < n) {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - from.tv_sec > 10) {
            return false;
        }
    }
    return true;
}

static bool file_comes_to_hold(const char *path, const char *text) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        bool holds = false;
        if (access(path, F_OK) == 0) {
            char *all = read_file(path);
            holds = strstr(all, text) != NULL;
            free(all);
        }
        if (holds) {
            return true;
        }
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - from.tv_sec < 10);
    return false;
}

static void an_idle_log_opens_its_file_again(void **state) {
    struct fixture *f = *state;
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    log_info("old");
    assert_true(file_comes_to_hold(f->path, "old\n"));
    assert_int_equal(rename(f->path, f->rotated), 0);
    log_reopen();
    assert_true(file_comes_to_hold(f->path, ""));
}

static void a_full_disk_drops_and_counts(void **state) {
    (void)state;
    uint64_t before = log_dropped_lines();
    assert_int_equal(start("/dev/full", LOG_LEVEL_INFO), 0);
    for (unsigned i = 0; i < 50; i++) {
        log_info("lost");
    }
    log_stop();
    assert_int_equal(log_dropped_lines() - before, 50);
}

/* The file may not grow past a limit in the middle of a line, then it may again. */
static void a_disk_with_room_again_says_what_was_lost(void **state) {
    struct fixture *f = *state;
    struct rlimit limit, saved;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &saved), 0);
    uint64_t before = log_dropped_lines();
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    limit = saved;
    limit.rlim_cur = 16 * 2 + 5;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (unsigned i = 0; i < 9; i++) {
        log_info("number %u", i); /* 16 bytes each */
    }
    bool waited = dropped_reaches(before + 7);
    setrlimit(RLIMIT_FSIZE, &saved);
    assert_true(waited);
    log_info("after");
    assert_true(file_comes_to_hold(f->path, "after\n"));
    log_info("and on"); /* the loss is told once */
    log_stop();
    assert_int_equal(log_dropped_lines() - before, 7);
    assert_file_is(f->path, "T INFO number 0\nT INFO number 1\nT INF\n"
                            "T WARNING event=log_lines_dropped reason=write_failed count=7\n"
                            "T INFO after\nT INFO and on\n");
}

static void what_was_lost_is_told_in_the_next_file(void **state) {
    struct fixture *f = *state;
    struct rlimit limit, saved;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &saved), 0);
    uint64_t before = log_dropped_lines();
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    limit = saved;
    limit.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    log_info("one");
    log_info("two");
    bool waited = dropped_reaches(before + 2);
    setrlimit(RLIMIT_FSIZE, &saved);
    assert_true(waited);
    assert_int_equal(rename(f->path, f->rotated), 0);
    log_reopen();
    log_info("three");
    log_stop();
    assert_file_is(f->rotated, "T I");
    assert_file_is(f->path, "T WARNING event=log_lines_dropped reason=write_failed count=2\nT INFO three\n");
}

static void a_reader_that_has_left_does_not_end_the_process(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    uint64_t before = log_dropped_lines();
    struct capture c = capture_start(STDOUT_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    int err = start(NULL, LOG_LEVEL_INFO);
    log_info("into the void");
    log_stop();
    free(capture_end(&c));
    close(ends[1]);
    assert_int_equal(err, 0);
    assert_int_equal(log_dropped_lines() - before, 1);
}

/* Counts what came through a pipe: lines, and lines reported as dropped. */
struct tally {
    char rest[4096];
    size_t n_rest;
    uint64_t n_lines, n_reported, n_reports_queue, n_broken;
    unsigned next; /* lowest number of a line that keeps the order */
};

static void tally_line(struct tally *t, const char *line) {
    uint64_t count;
    unsigned number;
    int end = 0;
    if (sscanf(line, "T WARNING event=log_lines_dropped reason=queue_full count=%" SCNu64, &count) == 1) {
        t->n_reported += count;
        t->n_reports_queue++;
    } else if (sscanf(line, "T WARNING event=log_lines_dropped reason=write_failed count=%" SCNu64, &count) ==
               1) {
        t->n_reported += count;
    } else if (sscanf(line, "T INFO line %u of a good length, so that a pipe is full soon%n", &number,
                      &end) == 1 &&
               end > 0 && line[end] == '\0' && number >= t->next) {
        t->n_lines++;
        t->next = number + 1;
    } else {
        t->n_broken++;
    }
}

static void tally_read(struct tally *t, int fd) {
    ssize_t n;
    while ((n = read(fd, t->rest + t->n_rest, sizeof t->rest - 1 - t->n_rest)) > 0) {
        t->n_rest += (size_t)n;
        t->rest[t->n_rest] = '\0';
        char *at = t->rest;
        for (char *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
            *end = '\0';
            tally_line(t, at);
        }
        t->n_rest = strlen(at);
        memmove(t->rest, at, t->n_rest + 1);
    }
}

/* Nobody reads the FIFO at first: the callers go on, what is lost is counted to the line, and reported once
 * somebody reads. */
static void a_stalled_reader_costs_lines_only(void **state) {
    struct fixture *f = *state;
    enum { LINES = 8000 };
    assert_int_equal(mkfifo(f->path, 0600), 0);
    int fd = open(f->path, O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    uint64_t before = log_dropped_lines();
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    for (unsigned i = 0; i < LINES; i++) {
        log_info("line %u of a good length, so that a pipe is full soon", i);
    }
    struct tally t = {0};
    assert_true(dropped_reaches(before + 1));
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        tally_read(&t, fd);
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (t.n_lines + log_dropped_lines() - before < LINES && now.tv_sec - from.tv_sec < 20);
    log_info("line %u of a good length, so that a pipe is full soon", LINES);
    log_stop();
    tally_read(&t, fd);
    close(fd);
    assert_int_equal(t.n_broken, 0);
    assert_true(t.n_reported > 0);
    assert_true(t.n_reports_queue > 0);
    assert_int_equal(t.n_lines + t.n_reported, LINES + 1);
    assert_int_equal(log_dropped_lines() - before, t.n_reported);
}

static void fill_pipe(int fd) {
    char block[4096];
    memset(block, 'x', sizeof block);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (write(fd, block, sizeof block) > 0) {
    }
    fcntl(fd, F_SETFL, 0); /* from here on a write blocks for ever */
}

static void a_stalled_stdout_does_not_hold_up_the_file(void **state) {
    struct fixture *f = *state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct log_params params = {.file = f->path,
                                .also_stdout = true,
                                .iso_timestamps = true,
                                .timestamp_format = "T",
                                .level = LOG_LEVEL_INFO};
    fill_pipe(ends[1]);
    uint64_t before = log_dropped_lines();
    struct capture c = capture_start(STDOUT_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    int err = log_start(&params);
    for (unsigned i = 0; i < 3; i++) {
        log_info("%u", i);
    }
    log_stop();
    free(capture_end(&c));
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(err, 0);
    assert_file_is(f->path, "T INFO 0\nT INFO 1\nT INFO 2\n");
    assert_int_equal(log_dropped_lines() - before, 3);
}

/* A pipe may be writable for less than there is to be written. */
static void a_pipe_with_little_room_does_not_hold_up_the_end(void **state) {
    (void)state;
    int ends[2];
    char drained[8192];
    assert_int_equal(pipe(ends), 0);
    fill_pipe(ends[1]);
    uint64_t before = log_dropped_lines();
    struct capture c = capture_start(STDOUT_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    int err = start(NULL, LOG_LEVEL_INFO);
    for (unsigned i = 0; i < 100; i++) {
        log_info("a line of a good length%300s", "");
    }
    ssize_t n_drained = read(ends[0], drained, sizeof drained);
    log_stop();
    free(capture_end(&c));
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(err, 0);
    assert_int_equal(n_drained, sizeof drained);
    assert_in_range(log_dropped_lines() - before, 70, 100);
}

/* ---- threads ---- */

enum { THREADS = 4, THREAD_LINES = 4000 };

static void *run_logger(void *context) {
    unsigned id = *(unsigned *)context;
    for (unsigned i = 0; i < THREAD_LINES; i++) {
        char fill[64];
        unsigned n_fill = (id * 7 + i) % 60;
        memset(fill, (int)('a' + id), sizeof fill);
        log_info("thread=%u line=%u %.*s", id, i, (int)n_fill, fill);
        if (i % 1000 == 500) {
            log_reopen();
        }
        if (i % 64 == 0) {
            sched_yield();
        }
    }
    return NULL;
}

static bool check_thread_line(const char *line, unsigned next[THREADS]) {
    unsigned id, i;
    int end = 0;
    if (sscanf(line, "T INFO thread=%u line=%u %n", &id, &i, &end) != 2 || id >= THREADS || end == 0) {
        return false;
    }
    char fill[2] = {(char)('a' + id), '\0'};
    size_t n_fill = strspn(line + end, fill);
    bool in_order = i >= next[id];
    next[id] = i + 1;
    return in_order && n_fill == (id * 7 + i) % 60 && line[(size_t)end + n_fill] == '\0';
}

static void lines_of_many_threads_stay_whole_and_in_order(void **state) {
    struct fixture *f = *state;
    uint64_t before = log_dropped_lines();
    assert_int_equal(start(f->path, LOG_LEVEL_INFO), 0);
    pthread_t threads[THREADS];
    unsigned ids[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        ids[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, run_logger, &ids[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    log_stop();
    char *text = read_file(f->path), *rest = text;
    unsigned next[THREADS] = {0};
    uint64_t n_lines = 0, n_reported = 0, count;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';) {
        if (sscanf(line, "T WARNING event=log_lines_dropped reason=queue_full count=%" SCNu64, &count) == 1) {
            n_reported += count;
        } else {
            assert_true(check_thread_line(line, next));
            n_lines++;
        }
    }
    assert_int_equal(n_lines + n_reported, THREADS * THREAD_LINES);
    assert_int_equal(log_dropped_lines() - before, n_reported);
    free(text);
}

struct chatter {
    _Atomic bool ends;
};

static void *run_chatter(void *context) {
    struct chatter *chatter = context;
    while (!chatter->ends) {
        log_warning("chatter");
        log_reopen();
        sched_yield();
    }
    return NULL;
}

static void starting_and_stopping_while_others_log(void **state) {
    struct fixture *f = *state;
    struct chatter chatter = {.ends = false};
    struct capture c = capture_start(STDERR_FILENO);
    pthread_t thread;
    int err = pthread_create(&thread, NULL, run_chatter, &chatter);
    for (unsigned i = 0; i < 100 && err == 0; i++) {
        err = start(f->path, LOG_LEVEL_INFO);
        log_info("round %u", i);
        log_stop();
    }
    chatter.ends = true;
    pthread_join(thread, NULL);
    free(capture_end(&c));
    assert_int_equal(err, 0);
    char *text = read_file(f->path), expected[32];
    for (unsigned i = 0; i < 100; i++) {
        snprintf(expected, sizeof expected, "T INFO round %u\n", i);
        assert_non_null(strstr(text, expected));
    }
    free(text);
}

/* ---- one line a second ---- */

static void one_line_a_second_for_strangers(void **state) {
    (void)state;
    struct log_limit limit = {0};
    uint64_t n = 99;
    assert_true(log_limit_pass(&limit, 0, &n)); /* the first second of the clock counts, too */
    assert_int_equal(n, 0);
    assert_false(log_limit_pass(&limit, 1, &n));
    assert_false(log_limit_pass(&limit, 999999, &n));
    assert_true(log_limit_pass(&limit, 1000000, &n));
    assert_int_equal(n, 2);
    assert_true(log_limit_pass(&limit, 2000000, &n));
    assert_int_equal(n, 0);
    assert_false(log_limit_pass(&limit, 2999999, &n));
    assert_true(log_limit_pass(&limit, 900000000, &n));
    assert_int_equal(n, 1);
}

#define LOG_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        LOG_TEST(before_start_lines_go_to_stderr),
        LOG_TEST(default_stamp_is_the_time),
        LOG_TEST(seconds_since_start),
        LOG_TEST(stamp_in_the_operators_format),
        LOG_TEST(odd_formats_do_no_harm),
        LOG_TEST(levels),
        LOG_TEST(lines_are_cut_at_a_thousand_bytes),
        LOG_TEST(text_cannot_forge_lines),
        LOG_TEST(errno_is_left_alone),
        LOG_TEST(starting_twice_and_stopping_twice),
        LOG_TEST(what_cannot_be_opened_leaves_stderr),
        LOG_TEST(a_fifo_without_reader_does_not_hold_up_the_start),
        LOG_TEST(stdout_by_every_name),
        LOG_TEST(file_and_stdout),
        LOG_TEST(syslog_and_its_facilities),
        LOG_TEST(failing_allocations),
        LOG_TEST(params_are_copied),
        LOG_TEST(rotation_divides_the_lines_at_the_call),
        LOG_TEST(a_failed_rotation_keeps_the_old_file),
        LOG_TEST(reopening_a_log_that_does_not_run),
        LOG_TEST(an_idle_log_opens_its_file_again),
        LOG_TEST(a_full_disk_drops_and_counts),
        LOG_TEST(a_disk_with_room_again_says_what_was_lost),
        LOG_TEST(what_was_lost_is_told_in_the_next_file),
        LOG_TEST(a_reader_that_has_left_does_not_end_the_process),
        LOG_TEST(a_stalled_reader_costs_lines_only),
        LOG_TEST(a_stalled_stdout_does_not_hold_up_the_file),
        LOG_TEST(a_pipe_with_little_room_does_not_hold_up_the_end),
        LOG_TEST(lines_of_many_threads_stay_whole_and_in_order),
        LOG_TEST(starting_and_stopping_while_others_log),
        LOG_TEST(one_line_a_second_for_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
