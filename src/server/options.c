#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "options_internal.h"

enum option_group {
    OPTION_GROUP_COMMAND,
    OPTION_GROUP_LISTENERS,
    OPTION_GROUP_RELAY,
    OPTION_GROUP_THREADS,
    OPTION_GROUP_CREDENTIALS,
    OPTION_GROUP_LIMITS,
    OPTION_GROUP_PEERS,
    OPTION_GROUP_PROTOCOL,
    OPTION_GROUP_TLS,
    OPTION_GROUP_LOG,
    OPTION_GROUP_PROCESS,
    OPTION_GROUP_STORES,
    OPTION_GROUP_METRICS,
    OPTION_GROUP_ADMIN,
    OPTION_GROUP_FLEET,
    OPTION_GROUPS
};

static const char *const groups[OPTION_GROUPS] = {
    [OPTION_GROUP_COMMAND] = "Command line",
    [OPTION_GROUP_LISTENERS] = "Listeners",
    [OPTION_GROUP_RELAY] = "Relayed addresses",
    [OPTION_GROUP_THREADS] = "Threads, shared sockets and batches",
    [OPTION_GROUP_CREDENTIALS] = "Credentials",
    [OPTION_GROUP_LIMITS] = "Limits and lifetimes",
    [OPTION_GROUP_PEERS] = "Peers",
    [OPTION_GROUP_PROTOCOL] = "STUN and TURN",
    [OPTION_GROUP_TLS] = "TLS and DTLS",
    [OPTION_GROUP_LOG] = "Log",
    [OPTION_GROUP_PROCESS] = "Process",
    [OPTION_GROUP_STORES] = "User databases",
    [OPTION_GROUP_METRICS] = "Metrics",
    [OPTION_GROUP_ADMIN] = "Administration",
    [OPTION_GROUP_FLEET] = "Other servers",
};

static const struct option_spec specs[] = {
#define OPT(field, name, letter, kind, def, min, max, unit, reload, flags, status, group, note, help)        \
    {name,                                                                                                   \
     letter,                                                                                                 \
     OPTION_##kind,                                                                                          \
     offsetof(struct options, field),                                                                        \
     def,                                                                                                    \
     min,                                                                                                    \
     max,                                                                                                    \
     unit,                                                                                                   \
     OPTION_##reload,                                                                                        \
     flags,                                                                                                  \
     OPTION_##status,                                                                                        \
     OPTION_GROUP_##group,                                                                                   \
     note,                                                                                                   \
     help},
#include "options.def"
};

static const struct option_alias aliases[] = {
#define OPT_ALIAS(name, target) {name, target},
#include "options.def"
};

const struct option_table options_table = {
    .specs = specs,
    .n_specs = sizeof specs / sizeof specs[0],
    .aliases = aliases,
    .n_aliases = sizeof aliases / sizeof aliases[0],
    .removed = options_removed,
    .n_removed = OPTIONS_REMOVED_COUNT,
    .groups = groups,
    .n_groups = OPTION_GROUPS,
};

/* ---------------------------------------------------------------- files */

int options_find_file(char out[OPTIONS_PATH_BYTES], const char *name) {
    static const char *const directories[] = {"",
                                              "etc/",
                                              "/etc/",
                                              "/etc/turnserver/",
                                              "/etc/coturn/",
                                              "/usr/local/etc/",
                                              "/usr/local/etc/turnserver/",
                                              "/usr/local/etc/coturn/"};
    size_t n = name[0] == '/' ? 1 : sizeof directories / sizeof directories[0];
    for (size_t i = 0; i < n; i++) {
        struct stat status;
        int n_path = snprintf(out, OPTIONS_PATH_BYTES, "%s%s", directories[i], name);
        if (n_path < OPTIONS_PATH_BYTES && stat(out, &status) == 0) {
            return 0;
        }
    }
    return -ENOENT;
}

static int read_all(int fd, char *text, size_t n_max, size_t *out_bytes) {
    size_t n = 0;
    while (n < n_max) {
        ssize_t got = read(fd, text + n, n_max - n);
        if (got < 0 && errno != EINTR) {
            return -errno;
        }
        if (got == 0) {
            break;
        }
        n += got > 0 ? (size_t)got : 0;
    }
    *out_bytes = n;
    return 0;
}

int options_read_whole(char **out_text, size_t *out_bytes, const char *path) {
    *out_text = NULL;
    *out_bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    struct stat status;
    char *text = NULL;
    int err = fstat(fd, &status) < 0 ? -errno : 0;
    /* Pipes and some special files have no size; what comes is read up to the limit. */
    size_t n_max = OPTIONS_FILE_MAX_BYTES + 1;
    if (err == 0 && status.st_size > 0 && status.st_size < OPTIONS_FILE_MAX_BYTES) {
        n_max = (size_t)status.st_size;
    }
    if (err == 0) {
        text = malloc(n_max + 1);
        err = text == NULL ? -ENOMEM : read_all(fd, text, n_max, out_bytes);
    }
    if (err == 0 && *out_bytes > OPTIONS_FILE_MAX_BYTES) {
        err = -EFBIG;
    }
    close(fd);
    if (err < 0) {
        free(text);
        return err;
    }
    text[*out_bytes] = '\0';
    *out_text = text;
    return 0;
}

static int refuse_binary(struct option_state *state, const char *path, const char *text) {
    struct option_origin where = {.source = OPTION_FROM_FILE, .file = path, .line = 1};
    for (; *text != '\0'; text++) {
        where.line += *text == '\n';
    }
    option_report_add(state->report, OPTION_ERROR, &where, "a zero byte; this is not a text file");
    return -EINVAL;
}

int options_read_text(struct option_state *state, const char *path, char *text, size_t n_bytes) {
    if (strlen(text) != n_bytes) {
        return refuse_binary(state, path, text);
    }
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0) { /* the byte order mark that some editors write */
        text += 3;
    }
    return options_is_libconfig(text) ? options_read_libconfig(state, path, text)
                                      : options_read_flat(state, path, text);
}

/* ---------------------------------------------------------------- loading */

int options_create(struct options **out) {
    *out = calloc(1, sizeof **out);
    return *out == NULL ? -ENOMEM : 0;
}

void options_destroy(struct options *options) {
    if (options == NULL) {
        return;
    }
    option_values_deinit(&options_table, options);
    free(options->file);
    free(options);
}

void options_state_of(struct option_state *state, struct options *options, struct option_report *report) {
    *state = (struct option_state){
        .table = &options_table, .values = options, .origins = options->origins, .report = report};
}

/* The file asked for, or one found; options->file stays NULL when there is none and none was asked for. */
static int choose_file(struct options *options, struct option_report *report) {
    char path[OPTIONS_PATH_BYTES];
    if (options->no_config) {
        return 0;
    }
    const char *name = options->config_file != NULL ? options->config_file : "turnserver.conf";
    if (options_find_file(path, name) < 0) {
        if (options->config_file == NULL) {
            option_report_add(report, OPTION_NOTE, NULL,
                              "no configuration file; the command line says everything");
            return 0;
        }
        option_report_add(report, OPTION_ERROR, NULL, "cannot find the configuration file %s", name);
        return -EINVAL;
    }
    options->file = strdup(path);
    return options->file == NULL ? -ENOMEM : 0;
}

static int read_file(struct option_state *state, struct options *options) {
    int err = choose_file(options, state->report);
    if (err < 0 || options->file == NULL) {
        return err;
    }
    char *text;
    size_t n_bytes;
    err = options_read_whole(&text, &n_bytes, options->file);
    if (err < 0) {
        if (err != -ENOMEM) {
            option_report_add(state->report, OPTION_ERROR, NULL, "cannot read the configuration file %s: %s",
                              options->file, strerror(-err));
            err = -EINVAL;
        }
        return err;
    }
    err = options_read_text(state, options->file, text, n_bytes);
    explicit_bzero(text, n_bytes);
    free(text);
    return err;
}

/* True when the command line asks for something to be printed instead of a server. */
static bool print_asked(const struct options *options, FILE *to) {
    if (options->help) {
        options_print_help(to);
    } else if (options->version) {
        options_print_version(to);
    } else if (options->dump == NULL) {
        return false;
    } else if (strcmp(options->dump, "man") == 0) {
        options_print_man(to);
    } else if (strcmp(options->dump, "sample") == 0) {
        options_print_sample(to);
    } else {
        options_print_markdown(to);
    }
    return true;
}

static int load(struct options *options, int argc, char *const *argv, struct option_report *report) {
    struct option_state state;
    FILE *out = report->out != NULL ? report->out : stdout;
    options_state_of(&state, options, report);
    int err = option_state_init(&state);
    err = err < 0 ? err : option_parse_arguments(&state, argc, argv);
    if (err == 0 && print_asked(options, out)) {
        return OPTIONS_EXIT_OK;
    }
    err = err < 0 ? err : read_file(&state, options);
    err = err < 0 ? err : options_check(options, report);
    if (err == 0 && report->out_of_memory) {
        err = -ENOMEM;
    }
    if (err == 0 && options->check_config) {
        option_report_print(report, report->err != NULL ? report->err : stderr);
        options_print_effective(options, out);
        return OPTIONS_EXIT_OK;
    }
    return err;
}

int options_load(struct options **out, int argc, char *const *argv, struct option_report *report) {
    struct options *options;
    *out = NULL;
    int err = options_create(&options);
    if (err == 0) {
        err = load(options, argc, argv, report);
    }
    if (err == -ENOMEM) {
        report->out_of_memory = true;
    }
    if (err < 0) {
        option_report_print(report, report->err != NULL ? report->err : stderr);
    }
    if (err != 0) {
        options_destroy(options);
        return err;
    }
    *out = options;
    return 0;
}

void options_report_log(struct option_report *report) {
    for (size_t i = 0; i < report->n_messages; i++) {
        const struct option_message *message = &report->messages[i];
        switch (message->severity) {
        case OPTION_NOTE:
            log_info("%s", message->text);
            break;
        case OPTION_WARNING:
            log_warning("%s", message->text);
            break;
        case OPTION_ERROR:
            log_error("%s", message->text);
            break;
        }
    }
    option_report_deinit(report);
}
