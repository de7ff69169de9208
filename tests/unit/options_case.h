/* One loading of turnserver's options in a test: from text in a file of its own and a command line, with all
 * that was printed kept. */
#ifndef TURN_OPTIONS_CASE_H
#define TURN_OPTIONS_CASE_H

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "options.h"

enum { CASE_MAX_ARGUMENTS = 32 };

struct options_case {
    struct option_report report;
    struct options *options;
    int result;
    char *out, *err; /* what was printed */
    char path[64];   /* of the file; "" without one */
    size_t n_out, n_err;
};

/* file NULL: no file. argv ends with NULL and has no program name in front. */
static inline void case_load_bytes(struct options_case *c, const char *file, size_t n_file,
                                   const char *const *argv) {
    char *all[CASE_MAX_ARGUMENTS] = {(char *)"turnserver"};
    int argc = 1;
    *c = (struct options_case){0};
    if (file != NULL) {
        strcpy(c->path, "/tmp/options-test-XXXXXX");
        int fd = mkstemp(c->path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, file, n_file), n_file);
        close(fd);
        all[argc++] = (char *)"-c";
        all[argc++] = c->path;
    }
    for (size_t i = 0; argv[i] != NULL; i++) {
        assert_true(argc < CASE_MAX_ARGUMENTS);
        all[argc++] = (char *)argv[i];
    }
    c->report.out = open_memstream(&c->out, &c->n_out);
    c->report.err = open_memstream(&c->err, &c->n_err);
    assert_non_null(c->report.out);
    assert_non_null(c->report.err);
    c->result = options_load(&c->options, argc, all, &c->report);
    if (c->result == 0) { /* notes and warnings, as the log would get them */
        option_report_print(&c->report, c->report.err);
    }
    fclose(c->report.out);
    fclose(c->report.err);
    if (c->path[0] != '\0') {
        unlink(c->path);
    }
}

static inline void case_end(struct options_case *c) {
    options_destroy(c->options);
    option_report_deinit(&c->report);
    free(c->out);
    free(c->err);
    *c = (struct options_case){0};
}

#define CASE_FILE(c, file, ...)                                                                              \
    case_load_bytes((c), (file), strlen(file), (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})
#define CASE_ARGUMENTS(c, ...) case_load_bytes((c), NULL, 0, (const char *const[]){"-n", __VA_ARGS__, NULL})

/* What every server needs so that only the tested thing can be wrong. */
#define LOGIN "lt-cred-mech\nrealm=example.org\nuser=alice:wonder\n"

static inline void assert_said(const struct options_case *c, const char *text) {
    if (strstr(c->err, text) == NULL) {
        fail_msg("not said: \"%s\"; said:\n%s", text, c->err);
    }
}

static inline void assert_unsaid(const struct options_case *c, const char *text) {
    if (strstr(c->err, text) != NULL) {
        fail_msg("said: \"%s\" in:\n%s", text, c->err);
    }
}

#endif
