#include "relay_thread.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "carrier.h"
#include "client_link_udp.h"
#include "clock.h"
#include "mailbox.h"
#include "relay.h"
#include "relay_local.h"

enum {
    RX_SLOTS = 512, /* a drain of some hundred datagrams is what finds runs among interleaved flows */
    MAX_FILLS = 64, /* receives between two flushes whose time is kept apart */
    TICK_US = 100000,
    ERRORS_A_DRAIN = 64, /* ICMP errors taken at once */
    ERRORS_EVERY = 16,   /* drains of a busy socket between two looks at its error queue */
    MAILBOX_BYTES = 1 << 20,
};

struct listener {
    struct client_link_udp udp;
    struct event *readable;
    struct relay_thread *thread;
};

/* When the datagrams of one receive call came, for the hold time. */
struct fill {
    uint64_t at_us;
    uint32_t n_datagrams;
};

struct relay_thread {
    struct relay_thread_params params;
    struct event_base *base;
    struct event *tick, *wake;
    int wake_fd;
    struct rx_ring *rx;
    struct tx_batch *tx;
    struct relay relay;
    struct relay_counters counters;
    struct relay_socket_index sockets;
    struct relay_watch watch;
    struct relay_carrier carrier;
    struct core_host host;
    struct listener *listeners;
    size_t n_listeners;
    struct mailbox **to, **from; /* by thread index; own entry NULL */
    struct fill fills[MAX_FILLS];
    uint32_t n_fills;
    uint32_t n_drains;
    bool tick_due, mail_read;
    bool started;
    atomic_bool stopping;
    pthread_t id;
};

/* ---- the send side of a turn ---- */

static void count_hold_time(struct relay_thread *t) {
    if (t->n_fills == 0) {
        return;
    }
    uint64_t now_us = clock_now_us();
    for (uint32_t i = 0; i < t->n_fills; i++) {
        histogram_add(&t->counters.hold_us, now_us - t->fills[i].at_us, t->fills[i].n_datagrams);
    }
    t->n_fills = 0;
}

/* Everything that was received goes out, then its memory is given back. */
static void flush(struct relay_thread *t) {
    tx_batch_flush(t->tx, t->relay.now.now_us);
    count_hold_time(t);
    rx_ring_release(t->rx);
    if (t->mail_read) {
        for (uint32_t i = 0; i < t->params.n_threads; i++) {
            if (t->from[i] != NULL) {
                mailbox_release(t->from[i]);
            }
        }
        t->mail_read = false;
    }
}

static void read_clocks(struct relay_thread *t) {
    t->relay.now.now_us = clock_now_us();
    t->relay.now.wall_s = clock_wall_s();
}

static void end_turn(struct relay_thread *t) {
    flush(t);
    for (uint32_t i = 0; i < t->params.n_threads; i++) {
        if (t->to[i] != NULL) {
            mailbox_wake(t->to[i]);
        }
    }
    counter_add(&t->counters.turns, 1);
    if (t->tick_due) {
        t->tick_due = false;
        read_clocks(t);
        turn_core_advance(t->relay.core, t->relay.now);
        if (t->params.index == 0) {
            relay_registry_expire(t->params.registry, t->relay.now.now_us);
        }
    }
}

/* ---- the receive side ---- */

/* One drain round of a socket into the ring; returns the first of the n packets. */
static struct rx_packet *drain(struct relay_thread *t, struct udp_socket *socket, uint32_t *out_n) {
    if (t->rx->n_slots - t->rx->n_filled < t->rx->n_slots / 2) {
        flush(t); /* the next socket gets a fair share of the ring as well */
    }
    uint32_t first = t->rx->n_filled;
    bool drained;
    *out_n = rx_ring_fill(t->rx, socket, t->rx->n_slots - first, &drained);
    read_clocks(t);
    if (*out_n > 0) {
        if (t->n_fills == MAX_FILLS) {
            flush(t); /* never happens with a ring of this size, but the array stays bounded */
        }
        uint32_t n_datagrams = 0;
        for (uint32_t i = 0; i < *out_n; i++) {
            n_datagrams += rx_packet_datagrams(&t->rx->packets[first + i]);
        }
        t->fills[t->n_fills++] = (struct fill){.at_us = t->relay.now.now_us, .n_datagrams = n_datagrams};
    }
    return &t->rx->packets[first];
}

static void listener_readable(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    struct listener *listener = arg;
    struct relay_thread *t = listener->thread;
    uint32_t n;
    const struct rx_packet *packets = drain(t, &listener->udp.socket, &n);
    relay_uplink(&t->relay, &listener->udp.link, CLIENT_UDP, packets, n);
}

static void drain_errors(struct relay_thread *t, struct relay_socket *socket) {
    struct udp_error error;
    for (int i = 0; i < ERRORS_A_DRAIN && udp_socket_next_error(&socket->udp, &error) == 1; i++) {
        relay_icmp_error(&t->relay, &socket->address, &error);
    }
}

/* What a peer socket's event carries. */
struct peer_watch {
    struct relay_thread *thread;
    struct relay_socket *socket;
};

static void peer_readable(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    struct peer_watch *watch = arg;
    struct relay_thread *t = watch->thread;
    struct relay_socket *socket = watch->socket;
    uint32_t n;
    const struct rx_packet *packets = drain(t, &socket->udp, &n);
    relay_downlink(&t->relay, &socket->address, packets, n);
    if (socket->udp.error_queue && (n == 0 || ++t->n_drains % ERRORS_EVERY == 0)) {
        drain_errors(t, socket);
    }
}

static int watch_add(void *context, struct relay_socket *socket) {
    struct relay_thread *t = context;
    struct peer_watch *watch = malloc(sizeof *watch);
    if (watch == NULL) {
        return -ENOMEM;
    }
    *watch = (struct peer_watch){.thread = t, .socket = socket};
    socket->readable = event_new(t->base, socket->udp.fd, EV_READ | EV_PERSIST, peer_readable, watch);
    if (socket->readable == NULL || event_add(socket->readable, NULL) != 0) {
        if (socket->readable != NULL) {
            event_free(socket->readable);
            socket->readable = NULL;
        }
        free(watch);
        return -ENOMEM;
    }
    return 0;
}

static void watch_remove(void *context, struct relay_socket *socket) {
    (void)context;
    if (socket->readable != NULL) {
        void *watch = event_get_callback_arg(socket->readable);
        event_free(socket->readable);
        socket->readable = NULL;
        free(watch);
    }
}

static void tick(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    ((struct relay_thread *)arg)->tick_due = true; /* timers run between batches, see end_turn */
}

static void woken(evutil_socket_t fd, short what, void *arg) {
    (void)what;
    struct relay_thread *t = arg;
    uint64_t n;
    if (read(fd, &n, sizeof n) < 0 && errno != EAGAIN) {
        return;
    }
    read_clocks(t);
    for (uint32_t i = 0; i < t->params.n_threads; i++) {
        if (t->from[i] != NULL && relay_local_receive(&t->relay, t->from[i]) > 0) {
            t->mail_read = true;
        }
    }
}

/* ---- what the core asks of its host ---- */

static void random_bytes(void *context, void *out, size_t n) {
    (void)context;
    uint8_t *at = out;
    while (n > 0) {
        ssize_t got = getrandom(at, n, 0);
        if (got < 0 && errno != EINTR) {
            abort(); /* no safe way on: nonces and ports must not be guessed */
        }
        if (got > 0) {
            at += got;
            n -= (size_t)got;
        }
    }
}

static void quiesce(void *context) {
    struct relay_thread *t = context;
    tx_batch_flush(t->tx, t->relay.now.now_us);
}

static void core_event(void *context, const struct core_event_info *info) {
    struct relay_thread *t = context;
    if (info->event == CORE_ALLOCATION_ENDED && info->allocation != NULL) {
        relay_forget(&t->relay, info->allocation);
    }
    if (t->params.event != NULL) {
        t->params.event(t->params.event_context, info);
    }
}

/* ---- life ---- */

static int open_listeners(struct relay_thread *t, struct endpoint *out_failed) {
    t->listeners = calloc(t->params.n_listening + 1, sizeof *t->listeners);
    if (t->listeners == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < t->params.n_listening; i++) {
        struct listener *l = &t->listeners[i];
        l->thread = t;
        int err = client_link_udp_open(&l->udp, &t->params.listening[i], t->params.buffer_bytes);
        if (err < 0) {
            *out_failed = t->params.listening[i];
            return err;
        }
        t->n_listeners++;
        l->readable = event_new(t->base, l->udp.socket.fd, EV_READ | EV_PERSIST, listener_readable, l);
        if (l->readable == NULL || event_add(l->readable, NULL) != 0) {
            return -ENOMEM;
        }
    }
    return 0;
}

static int open_carrier(struct relay_thread *t, struct endpoint *out_failed) {
    const struct relay_thread_params *p = &t->params;
    const struct carrier_params params = {
        .registry = p->registry,
        .index = &t->sockets,
        .watch = &t->watch,
        .ips = p->ips,
        .n_ips = p->n_ips,
        .thread = p->index,
        .buffer_bytes = p->buffer_bytes,
        .min_port = p->min_port,
        .max_port = p->max_port,
        .shared_pairs = p->shared_pairs,
        .even_port_dedicated = p->even_port_dedicated,
        .now_us = &t->relay.now.now_us,
        .random_bytes = random_bytes,
    };
    return p->shared ? carrier_shared_create(&t->carrier, &params, out_failed)
                     : carrier_dedicated_create(&t->carrier, &params);
}

static int open_core(struct relay_thread *t) {
    const struct relay_thread_params *p = &t->params;
    t->host = (struct core_host){
        .context = t, .random_bytes = random_bytes, .quiesce = quiesce, .event = core_event};
    const struct core_params params = {
        .config = p->core,
        .host = &t->host,
        .carrier = &t->carrier,
        .hash_key = p->hash_key,
        .thread = p->index,
    };
    int err = turn_core_create(&t->relay.core, &params, t->relay.now);
    if (err == 0) {
        t->relay.allocations = turn_core_allocations(t->relay.core);
    }
    return err;
}

static int open_loop(struct relay_thread *t) {
    struct event_config *config = event_config_new();
    if (config == NULL) {
        return -ENOMEM;
    }
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    t->base = event_base_new_with_config(config);
    event_config_free(config);
    t->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (t->base == NULL || t->wake_fd < 0) {
        return t->base == NULL ? -ENOMEM : -errno;
    }
    const struct timeval period = {.tv_usec = TICK_US};
    t->tick = event_new(t->base, -1, EV_PERSIST, tick, t);
    t->wake = event_new(t->base, t->wake_fd, EV_READ | EV_PERSIST, woken, t);
    if (t->tick == NULL || t->wake == NULL || event_add(t->tick, &period) != 0 ||
        event_add(t->wake, NULL) != 0) {
        return -ENOMEM;
    }
    return 0;
}

static int open_batches(struct relay_thread *t) {
    const struct rx_ring_params rx = {.n_slots = RX_SLOTS, .single = !t->params.recvmmsg};
    const struct tx_batch_params tx = {.gso = t->params.gso, .batched = t->params.sendmmsg};
    t->to = calloc(t->params.n_threads, sizeof(struct mailbox *));
    t->from = calloc(t->params.n_threads, sizeof(struct mailbox *));
    if (t->to == NULL || t->from == NULL) {
        return -ENOMEM;
    }
    int err = rx_ring_create(&t->rx, &rx);
    return err < 0 ? err : tx_batch_create(&t->tx, &tx);
}

int relay_thread_create(struct relay_thread **out, const struct relay_thread_params *params,
                        struct endpoint *out_failed) {
    *out_failed = (struct endpoint){0};
    void *memory;
    if (posix_memalign(&memory, 64, sizeof(struct relay_thread)) != 0) {
        return -ENOMEM;
    }
    struct relay_thread *t = memset(memory, 0, sizeof *t);
    t->params = *params;
    t->wake_fd = -1;
    t->watch = (struct relay_watch){.context = t, .add = watch_add, .remove = watch_remove};
    relay_socket_index_init(&t->sockets, &params->hash_key);
    read_clocks(t);
    int err = open_loop(t);
    err = err < 0 ? err : open_batches(t);
    err = err < 0 ? err : open_listeners(t, out_failed);
    err = err < 0 ? err : open_carrier(t, out_failed);
    err = err < 0 ? err : open_core(t);
    if (err < 0) {
        relay_thread_destroy(t);
        return err;
    }
    t->relay.tx = t->tx;
    t->relay.counters = &t->counters;
    t->relay.sockets = &t->sockets;
    t->relay.carrier = &t->carrier;
    t->relay.thread = params->index;
    t->relay.n_threads = params->n_threads;
    t->relay.to = t->to;
    *out = t;
    return 0;
}

int relay_thread_connect(struct relay_thread **threads, uint32_t n_threads) {
    for (uint32_t i = 0; i < n_threads; i++) {
        for (uint32_t j = 0; j < n_threads; j++) {
            if (i == j) {
                continue;
            }
            int err = mailbox_create(&threads[i]->to[j], MAILBOX_BYTES, threads[j]->wake_fd);
            if (err < 0) {
                return err;
            }
            threads[j]->from[i] = threads[i]->to[j];
        }
    }
    return 0;
}

static void *run(void *arg) {
    struct relay_thread *t = arg;
    while (!atomic_load_explicit(&t->stopping, memory_order_relaxed)) {
        event_base_loop(t->base, EVLOOP_ONCE);
        end_turn(t);
    }
    return NULL;
}

int relay_thread_start(struct relay_thread *thread) {
    /* Signals are the main thread's. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&thread->id, NULL, run, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err != 0) {
        return -err;
    }
    char name[16];
    snprintf(name, sizeof name, "relay-%u", thread->params.index);
    pthread_setname_np(thread->id, name);
    thread->started = true;
    return 0;
}

void relay_thread_stop(struct relay_thread *thread) {
    if (!thread->started) {
        return;
    }
    atomic_store(&thread->stopping, true);
    const uint64_t one = 1;
    if (write(thread->wake_fd, &one, sizeof one) < 0) {
        /* The counter is full, so it is awake anyway; the tick would wake it as well. */
    }
    pthread_join(thread->id, NULL);
    thread->started = false;
}

static void close_listeners(struct relay_thread *t) {
    for (size_t i = 0; i < t->n_listeners; i++) {
        if (t->listeners[i].readable != NULL) {
            event_free(t->listeners[i].readable);
        }
        client_link_udp_close(&t->listeners[i].udp);
    }
    free(t->listeners);
}

void relay_thread_destroy(struct relay_thread *thread) {
    struct relay_thread *t = thread;
    if (t == NULL) {
        return;
    }
    relay_thread_stop(t);
    if (t->relay.core != NULL) {
        turn_core_destroy(t->relay.core);
    }
    if (t->carrier.context != NULL) {
        (t->params.shared ? carrier_shared_destroy : carrier_dedicated_destroy)(&t->carrier);
    }
    close_listeners(t);
    for (uint32_t i = 0; t->to != NULL && i < t->params.n_threads; i++) {
        mailbox_destroy(t->to[i]);
    }
    free(t->to);
    free(t->from);
    rx_ring_destroy(t->rx);
    tx_batch_destroy(t->tx);
    relay_socket_index_deinit(&t->sockets);
    if (t->tick != NULL) {
        event_free(t->tick);
    }
    if (t->wake != NULL) {
        event_free(t->wake);
    }
    if (t->wake_fd >= 0) {
        close(t->wake_fd);
    }
    if (t->base != NULL) {
        event_base_free(t->base);
    }
    free(t);
}

void relay_thread_view(struct relay_thread *thread, struct relay_thread_view *out) {
    *out = (struct relay_thread_view){
        .index = thread->params.index,
        .relay = &thread->counters,
        .rx = &thread->rx->counters,
        .tx = &thread->tx->counters,
    };
}

int relay_thread_granted_buffer(const struct relay_thread *thread) {
    int least = thread->params.buffer_bytes;
    for (size_t i = 0; i < thread->n_listeners; i++) {
        const struct udp_socket *s = &thread->listeners[i].udp.socket;
        int granted =
            s->receive_buffer_bytes < s->send_buffer_bytes ? s->receive_buffer_bytes : s->send_buffer_bytes;
        least = granted < least ? granted : least;
    }
    return least;
}
