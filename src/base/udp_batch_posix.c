/* The portable back end: one recvfrom or sendto for each datagram, in the order they were added. No
 * coalescing, no control data: TOS is not carried, and a wildcard socket's replies leave from the address
 * that routing chooses. */
#include "udp_batch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "udp_batch_private.h"

enum {
    PENDING_ERRORS_MAX = 16, /* swallowed in one call of fill, so that a flood of them cannot hold it */
    BLOCKED_MAX = 2, /* datagrams in a row that find the send buffer full before the rest is dropped */
    SEND_TRIES = 4,
};

struct rx_backend {
    uint8_t *slots;
    size_t n_slot_bytes;
    const struct udp_syscalls *syscalls;
};

struct tx_sender {
    uint8_t joined[TX_DATAGRAM_MAX_BYTES]; /* a datagram in two pieces is put together here */
};

const char *udp_backend_name(void) {
    return "posix";
}

const struct udp_syscalls udp_libc_syscalls = {
    .sendto = sendto,
    .recvfrom = recvfrom,
    .setsockopt = setsockopt,
};

/* ---- receiving ---- */

int rx_backend_create(struct rx_ring *ring, const struct rx_ring_params *params) {
    (void)params; /* always single */
    struct rx_backend *b = ring->backend = calloc(1, sizeof *b);
    if (b == NULL) {
        return -ENOMEM;
    }
    b->syscalls = &udp_libc_syscalls;
    b->slots = rx_slots_map(ring->n_slots, &b->n_slot_bytes);
    if (b->slots == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < ring->n_slots; i++) {
        ring->packets[i].data = rx_slot_data(b->slots, i);
    }
    return 0;
}

void rx_backend_destroy(struct rx_backend *b) {
    if (b == NULL) {
        return;
    }
    rx_slots_unmap(b->slots, b->n_slot_bytes);
    free(b);
}

void rx_ring_set_syscalls(struct rx_ring *ring, const struct udp_syscalls *syscalls) {
    ring->backend->syscalls = syscalls;
}

static void load_packet(struct rx_packet *packet, const struct udp_socket *socket,
                        const union endpoint_sockaddr *name, size_t n_bytes) {
    packet->n_bytes = (uint32_t)n_bytes;
    packet->segment_bytes = 0;
    packet->destination = socket->local;
    packet->tos = 0;
    packet->truncated = n_bytes > TX_DATAGRAM_MAX_BYTES; /* the slot is one byte larger than any datagram */
    endpoint_from_kernel(&packet->source, name);
}

/* Takes one datagram into the next slot. 1, or -errno. */
static int receive(struct rx_ring *ring, struct udp_socket *socket) {
    const struct udp_syscalls *syscalls = ring->backend->syscalls;
    struct rx_packet *packet = &ring->packets[ring->n_filled];
    for (int i = 0; i < PENDING_ERRORS_MAX; i++) {
        union endpoint_sockaddr name = {0};
        socklen_t n_name = sizeof name;
        counter_add(&ring->counters.calls, 1);
        ssize_t n = syscalls->recvfrom(socket->fd, packet->data, RX_SLOT_BYTES, 0, &name.sa, &n_name);
        if (n >= 0) {
            load_packet(packet, socket, &name, (size_t)n);
            return 1;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            counter_add(&ring->counters.would_block, 1);
            return -EAGAIN;
        }
        counter_add(&ring->counters.errors, 1);
        if (!udp_error_is_pending_kind(errno) && errno != EINTR) {
            return -errno;
        }
    }
    return -EAGAIN;
}

uint32_t rx_ring_fill(struct rx_ring *ring, struct udp_socket *socket, uint32_t max, bool *out_drained) {
    uint32_t left = ring->n_slots - ring->n_filled;
    uint32_t n_wanted = max < left ? max : left;
    uint32_t n_taken = 0;
    while (n_taken < n_wanted && receive(ring, socket) > 0) {
        if (ring->packets[ring->n_filled].truncated) {
            counter_add(&ring->counters.truncated, 1);
        }
        ring->n_filled++;
        n_taken++;
    }
    counter_add(&ring->counters.packets, n_taken);
    counter_add(&ring->counters.datagrams, n_taken);
    if (n_taken > 0) {
        histogram_add(&ring->counters.occupancy, 1, n_taken);
    }
    *out_drained = n_taken < n_wanted;
    if (!*out_drained && n_wanted < max) {
        counter_add(&ring->counters.no_buffer, 1);
    }
    return n_taken;
}

void rx_ring_release(struct rx_ring *ring) {
    ring->n_filled = 0;
}

/* ---- sending ---- */

bool tx_sender_can_group(void) {
    return false;
}

int tx_sender_create(struct tx_sender **out) {
    *out = malloc(sizeof **out);
    return *out == NULL ? -ENOMEM : 0;
}

void tx_sender_destroy(struct tx_sender *s) {
    free(s);
}

/* Where the system can forbid fragmentation for a socket it is switched around the datagram; only the
 * socket's own thread sends on it. */
static int switch_fragmenting(const struct tx_batch *batch, const struct tx_run *run, bool forbid) {
    const struct udp_syscalls *syscalls = batch->backend->syscalls;
    int fd = run->socket->fd;
    if (run->to.family == AF_INET6) {
#ifdef IPV6_DONTFRAG
        int value = forbid;
        return syscalls->setsockopt(fd, IPPROTO_IPV6, IPV6_DONTFRAG, &value, sizeof value) < 0 ? errno : 0;
#endif
    } else {
#if defined(IP_DONTFRAG)
        int value = forbid;
        return syscalls->setsockopt(fd, IPPROTO_IP, IP_DONTFRAG, &value, sizeof value) < 0 ? errno : 0;
#elif defined(IP_MTU_DISCOVER)
        int value = forbid ? IP_PMTUDISC_DO : IP_PMTUDISC_DONT;
        return syscalls->setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &value, sizeof value) < 0 ? errno : 0;
#endif
    }
    (void)syscalls;
    (void)fd;
    return forbid ? EOPNOTSUPP : 0;
}

static const uint8_t *join_pieces(struct tx_sender *s, const struct tx_entry *entry) {
    if (entry->n_head == 0) {
        return entry->n_body > 0 ? entry->body : s->joined;
    }
    memcpy(s->joined, entry->head, entry->n_head);
    memcpy(s->joined + entry->n_head, entry->body, entry->n_body);
    return s->joined;
}

/* 0 or the errno that stays. What a datagram sent earlier met is not this one's. */
static int send_datagram(struct tx_batch *batch, struct tx_run *run, const struct tx_entry *entry) {
    struct tx_backend *b = batch->backend;
    const uint8_t *bytes = join_pieces(b->sender, entry);
    size_t n = (size_t)entry->n_head + entry->n_body;
    socklen_t n_address = endpoint_to_kernel(&run->address, &run->to);
    int err = 0;
    for (int i = 0; i < SEND_TRIES; i++) {
        counter_add(&batch->counters.calls, 1);
        if (b->syscalls->sendto(run->socket->fd, bytes, n, 0, &run->address.sa, n_address) >= 0) {
            return 0;
        }
        err = errno == EWOULDBLOCK ? EAGAIN : errno;
        if (err != EINTR && err != ECONNREFUSED) {
            return err;
        }
    }
    return err;
}

static int send_run(struct tx_batch *batch, struct tx_run *run) {
    const struct tx_entry *entry = &batch->backend->entries[run->first];
    if (!run->dont_fragment) {
        return send_datagram(batch, run, entry);
    }
    int err = switch_fragmenting(batch, run, true);
    if (err != 0) {
        return err;
    }
    err = send_datagram(batch, run, entry);
    (void)switch_fragmenting(batch, run, false);
    return err;
}

void tx_sender_send(struct tx_batch *batch, const struct tx_queue *queue, uint64_t now_us) {
    (void)now_us;
    struct tx_backend *b = batch->backend;
    uint32_t n_blocked = 0, n_sent = 0;
    int err = 0;
    for (uint32_t i = queue->first; i != TX_NONE; i = b->runs[i].next) {
        if (n_blocked < BLOCKED_MAX && err != EBADF) {
            err = send_run(batch, &b->runs[i]);
        }
        if (err == 0) {
            n_sent++;
            n_blocked = 0;
            continue;
        }
        tx_count_drop(&batch->counters, err, 1);
        n_blocked += err == EAGAIN || err == ENOBUFS;
    }
    counter_add(&batch->counters.datagrams, n_sent);
    if (n_sent > 0) {
        histogram_add(&batch->counters.run_length, 1, n_sent);
    }
}
