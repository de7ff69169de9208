/* The turnserver process: options, log, background, sockets, privileges, then the main loop. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "memory.h"
#include "process.h"
#include "server.h"

static const char DEFAULT_LOG_FILE[] = "/var/log/turnserver.log";

static enum log_level wanted_level(const struct options *o) {
    if (o->very_verbose) {
        return LOG_LEVEL_DEBUG;
    }
    const char *level = o->log_min_level;
    if (level == NULL || strcmp(level, "info") == 0) {
        return LOG_LEVEL_INFO;
    }
    if (strcmp(level, "debug") == 0) {
        return LOG_LEVEL_DEBUG;
    }
    return strcmp(level, "warning") == 0 ? LOG_LEVEL_WARNING : LOG_LEVEL_ERROR;
}

static int start_log(const struct options *o) {
    const char *file = o->log_file;
    if (o->syslog) {
        file = "syslog";
    } else if (file == NULL && o->daemon) {
        file = DEFAULT_LOG_FILE;
    }
    const struct log_params params = {
        .file = file,
        .also_stdout = !o->no_stdout_log && !o->daemon && !o->syslog,
        .iso_timestamps = o->new_log_timestamp,
        .timestamp_format = o->new_log_timestamp_format,
        .syslog_facility = o->syslog_facility,
        .level = wanted_level(o),
    };
    int err = log_start(&params);
    if (err < 0) {
        log_error("cannot open the log file %s: %s", file == NULL ? "-" : file, strerror(-err));
    }
    return err;
}

/* The server with its sockets open, until it is told to stop. */
static int serve(const struct options *o, const struct server_config *config, int ready_fd) {
    struct server *server;
    int err = server_create(&server, config, o);
    if (err < 0) {
        return err;
    }
    if (o->pidfile != NULL && (err = process_write_pid(o->pidfile)) < 0) {
        log_warning("cannot write the pid file %s: %s", o->pidfile, strerror(-err));
    }
    err = process_become(o->proc_user, o->proc_group);
    err = err < 0 ? err : server_start(server);
    if (err == 0) {
        log_write(LOG_LEVEL_INFO, "Turntable %s serves with %u relay threads", TURN_VERSION,
                  config->n_threads);
        process_ready(ready_fd);
        err = server_run(server);
    }
    server_destroy(server);
    if (o->pidfile != NULL) {
        process_remove_pid(o->pidfile);
    }
    return err;
}

static int run(const struct options *o, struct option_report *report) {
    int ready_fd = -1;
    int err = o->daemon ? process_daemonize(&ready_fd) : 0;
    if (err < 0) {
        fprintf(stderr, "ERROR: cannot go to the background: %s\n", strerror(-err));
        return err;
    }
    err = start_log(o);
    if (err < 0) {
        return err;
    }
    options_report_log(report);
    process_raise_descriptors();
    struct server_config *config;
    err = server_config_create(&config, o);
    if (err == 0) {
        err = serve(o, config, ready_fd);
        server_config_destroy(config);
    } else {
        log_error("the server does not start: %s", strerror(-err));
    }
    if (err == 0) {
        log_write(LOG_LEVEL_INFO, "stopped");
    }
    log_stop();
    return err;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* a log that nobody reads any more ends no server */
    memory_return_eagerly();
    struct option_report report = {0};
    struct options *options;
    int err = options_load(&options, argc, argv, &report);
    if (err == 0) {
        err = run(options, &report);
        options_destroy(options);
    } else if (err == OPTIONS_EXIT_OK) {
        err = 0;
    }
    option_report_deinit(&report);
    return err < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
