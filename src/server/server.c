#include "server.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "batch_log.h"
#include "event_log.h"
#include "log.h"
#include "relay_thread.h"

enum { SIGNALS = 5 };

struct server {
    const struct server_config *config;
    const struct options *options;
    struct relay_registry *registry;
    struct relay_thread **threads;
    struct event_log *event_logs; /* one a thread */
    uint32_t n_threads;           /* created so far */
    struct batch_log *batch_log;
    struct event_base *base;
    struct event *signals[SIGNALS];
    struct event *statistics;
};

/* SO_REUSEPORT lets a second server of the same user bind the same port and silently take half the clients; a
 * socket without it finds out. */
static int refuse_if_taken(const struct endpoint *listening) {
    const struct udp_socket_params params = {.local = *listening};
    struct udp_socket probe;
    int err = udp_socket_open(&probe, &params);
    if (err == 0) {
        udp_socket_close(&probe);
    }
    return err;
}

static int explain_bind_failure(const struct endpoint *local, int err) {
    char text[ENDPOINT_TEXT_BYTES];
    if (local->family == AF_UNSPEC) {
        log_error("cannot start a relay thread: %s", strerror(-err));
    } else {
        log_error("cannot bind UDP %s: %s", endpoint_format(local, text), strerror(-err));
    }
    return err;
}

static int create_registry(struct server *s) {
    const struct server_config *c = s->config;
    const struct relay_registry_params params = {
        .ips = c->ips,
        .n_ips = c->n_ips,
        .n_threads = c->n_threads,
        .shared_base = c->shared ? (uint16_t)s->options->multiplex_peer_port : 0,
        .shared_pairs = c->shared_pairs,
    };
    return relay_registry_create(&s->registry, &params);
}

static int create_thread(struct server *s, uint32_t index, const struct hash_key *key) {
    const struct server_config *c = s->config;
    const struct options *o = s->options;
    s->event_logs[index].verbose = o->verbose || o->very_verbose;
    struct relay_thread_params params = {
        .index = index,
        .n_threads = c->n_threads,
        .listening = c->listening,
        .n_listening = c->n_listening,
        .ips = c->ips,
        .n_ips = c->n_ips,
        .registry = s->registry,
        .core = &c->core,
        .hash_key = *key,
        .shared = c->shared,
        .shared_pairs = c->shared_pairs,
        .even_port_dedicated =
            o->multiplex_peer_even_port != NULL && strcmp(o->multiplex_peer_even_port, "dedicated") == 0,
        .min_port = (uint16_t)o->min_port,
        .max_port = (uint16_t)o->max_port,
        .buffer_bytes = (int)o->sock_buf_size,
        .recvmmsg = o->udp_recvmmsg,
        .sendmmsg = o->udp_sendmmsg,
        .gso = o->udp_gso,
        .event = event_log_write,
        .event_context = &s->event_logs[index],
    };
    struct endpoint failed;
    int err = relay_thread_create(&s->threads[index], &params, &failed);
    if (err < 0) {
        return explain_bind_failure(&failed, err);
    }
    s->n_threads++;
    return 0;
}

static int create_threads(struct server *s) {
    uint32_t n = s->config->n_threads;
    s->threads = calloc(n, sizeof(struct relay_thread *));
    s->event_logs = calloc(n, sizeof *s->event_logs);
    struct hash_key key;
    if (s->threads == NULL || s->event_logs == NULL) {
        return -ENOMEM;
    }
    if (getrandom(&key, sizeof key, 0) != sizeof key) {
        return -EIO;
    }
    for (size_t i = 0; i < s->config->n_listening; i++) {
        int err = refuse_if_taken(&s->config->listening[i]);
        if (err < 0) {
            return explain_bind_failure(&s->config->listening[i], err);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        int err = create_thread(s, i, &key);
        if (err < 0) {
            return err;
        }
    }
    return relay_thread_connect(s->threads, n);
}

static void describe_addressing(const struct server *s) {
    const struct server_config *c = s->config;
    for (size_t i = 0; i < c->n_listening; i++) {
        char text[ENDPOINT_TEXT_BYTES];
        log_write(LOG_LEVEL_INFO, "listening on UDP %s", endpoint_format(&c->listening[i], text));
    }
    uint32_t base = s->options->multiplex_peer_port;
    if (c->shared) {
        log_write(
            LOG_LEVEL_INFO,
            "relay-addressing=shared: %u threads, %u port pairs each, UDP ports %u-%u (even distance IPv4, "
            "odd IPv6)",
            c->n_threads, c->shared_pairs, base, base + 2 * c->n_threads * c->shared_pairs - 1);
    } else {
        log_write(LOG_LEVEL_INFO, "relay-addressing=dedicated: %u threads, UDP ports %u-%u", c->n_threads,
                  s->options->min_port, s->options->max_port);
    }
    for (size_t i = 0; i < c->n_ips; i++) {
        char local[ENDPOINT_TEXT_BYTES], advertised[ENDPOINT_TEXT_BYTES];
        log_write(LOG_LEVEL_INFO, "relay address %s, told to clients as %s",
                  endpoint_format_ip(&c->ips[i].local, local),
                  endpoint_format_ip(&c->ips[i].advertised, advertised));
    }
    int wanted = (int)s->options->sock_buf_size;
    int granted = relay_thread_granted_buffer(s->threads[0]);
    if (granted < wanted) {
        log_warning("sock-buf-size: %d bytes asked for, %d granted; raise net.core.rmem_max and wmem_max",
                    wanted, granted);
    }
}

/* ---- main loop ---- */

static void on_stop(evutil_socket_t signal, short what, void *arg) {
    (void)what;
    struct server *s = arg;
    log_write(LOG_LEVEL_INFO, "signal %d: stopping", (int)signal);
    event_base_loopbreak(s->base);
}

static void on_hangup(evutil_socket_t signal, short what, void *arg) {
    (void)signal, (void)what, (void)arg;
    log_reopen();
    log_write(LOG_LEVEL_INFO, "log reopened");
}

static void on_ignored(evutil_socket_t signal, short what, void *arg) {
    (void)what, (void)arg;
    log_write(LOG_LEVEL_WARNING, "signal %d has no use in this version", (int)signal);
}

static void on_statistics(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    struct server *s = arg;
    for (uint32_t i = 0; i < s->n_threads; i++) {
        batch_log_write(s->batch_log, s->threads[i]);
    }
}

static int watch_signals(struct server *s) {
    static const struct {
        int signal;
        event_callback_fn handler;
    } rows[SIGNALS] = {{SIGTERM, on_stop},
                       {SIGINT, on_stop},
                       {SIGHUP, on_hangup},
                       {SIGUSR1, on_ignored},
                       {SIGUSR2, on_ignored}};
    for (int i = 0; i < SIGNALS; i++) {
        s->signals[i] = evsignal_new(s->base, rows[i].signal, rows[i].handler, s);
        if (s->signals[i] == NULL || event_add(s->signals[i], NULL) != 0) {
            return -ENOMEM;
        }
    }
    return 0;
}

static int watch_statistics(struct server *s) {
    const struct options *o = s->options;
    if (!o->udp_recvmmsg_log && !o->udp_sendmmsg_log) {
        return 0;
    }
    int err = batch_log_create(&s->batch_log, s->n_threads, o->udp_recvmmsg_log, o->udp_sendmmsg_log);
    if (err < 0) {
        return err;
    }
    const struct timeval period = {.tv_sec = BATCH_LOG_INTERVAL_S};
    s->statistics = event_new(s->base, -1, EV_PERSIST, on_statistics, s);
    return s->statistics == NULL || event_add(s->statistics, &period) != 0 ? -ENOMEM : 0;
}

int server_create(struct server **out, const struct server_config *config, const struct options *options) {
    struct server *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return -ENOMEM;
    }
    s->config = config;
    s->options = options;
    int err = create_registry(s);
    err = err < 0 ? err : create_threads(s);
    if (err == 0) {
        s->base = event_base_new();
        err = s->base == NULL ? -ENOMEM : watch_signals(s);
    }
    err = err < 0 ? err : watch_statistics(s);
    if (err < 0) {
        server_destroy(s);
        return err;
    }
    describe_addressing(s);
    *out = s;
    return 0;
}

int server_start(struct server *server) {
    for (uint32_t i = 0; i < server->n_threads; i++) {
        int err = relay_thread_start(server->threads[i]);
        if (err < 0) {
            log_error("cannot start relay thread %u: %s", i, strerror(-err));
            return err;
        }
    }
    return 0;
}

int server_run(struct server *server) {
    return event_base_dispatch(server->base) < 0 ? -EIO : 0;
}

void server_destroy(struct server *server) {
    struct server *s = server;
    if (s == NULL) {
        return;
    }
    for (uint32_t i = 0; i < s->n_threads; i++) {
        relay_thread_stop(s->threads[i]);
    }
    if (s->batch_log != NULL) {
        for (uint32_t i = 0; i < s->n_threads; i++) {
            batch_log_write(s->batch_log, s->threads[i]);
        }
    }
    for (uint32_t i = 0; i < s->n_threads; i++) {
        relay_thread_destroy(s->threads[i]);
    }
    for (int i = 0; i < SIGNALS; i++) {
        if (s->signals[i] != NULL) {
            event_free(s->signals[i]);
        }
    }
    if (s->statistics != NULL) {
        event_free(s->statistics);
    }
    if (s->base != NULL) {
        event_base_free(s->base);
    }
    batch_log_destroy(s->batch_log);
    relay_registry_destroy(s->registry);
    free(s->threads);
    free(s->event_logs);
    free(s);
}
