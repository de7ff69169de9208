/* Linux receiving: recvmmsg into slots wired once, UDP_GRO, control data. Sending is in udp_tx_linux.c. */
#include "udp_batch.h"

#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "log.h"
#include "udp_batch_private.h"

enum {
    CONTROL_BYTES = 192,     /* GRO size, TOS, packet info and drop count of one message, with room */
    PENDING_ERRORS_MAX = 16, /* swallowed in one call of fill, so that a flood of them cannot hold it */
    SLOT_KEEP_BYTES = 16384, /* a slot's memory beyond this is given back when long unused */
    SLOT_UNUSED_RELEASES = 4096,
};

struct rx_backend {
    struct mmsghdr *messages;
    struct iovec *iov;
    union endpoint_sockaddr *names;
    uint8_t *control; /* CONTROL_BYTES for each slot */
    uint8_t *slots;
    size_t n_slot_bytes;
    uint32_t *big_at; /* release count when a slot last held more than SLOT_KEEP_BYTES; 0: never */
    uint32_t n_releases;
    bool single;
    bool said_no_gro;
    const struct udp_syscalls *syscalls;
};

const char *udp_backend_name(void) {
    return "linux";
}

const struct udp_syscalls udp_libc_syscalls = {
    .sendmmsg = sendmmsg,
    .sendmsg = sendmsg,
    .recvmmsg = recvmmsg,
    .recvmsg = recvmsg,
    .sendto = sendto,
    .recvfrom = recvfrom,
    .setsockopt = setsockopt,
};

/* The only place that resets what the kernel writes into a message header. */
static void reset_slots(struct rx_backend *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        struct msghdr *m = &b->messages[i].msg_hdr;
        m->msg_namelen = sizeof b->names[i];
        m->msg_controllen = CONTROL_BYTES;
        m->msg_flags = 0;
    }
}

static void wire_slots(struct rx_ring *ring) {
    struct rx_backend *b = ring->backend;
    for (uint32_t i = 0; i < ring->n_slots; i++) {
        uint8_t *data = rx_slot_data(b->slots, i);
        ring->packets[i].data = data;
        b->iov[i] = (struct iovec){.iov_base = data, .iov_len = RX_SLOT_BYTES};
        b->messages[i].msg_hdr = (struct msghdr){
            .msg_name = &b->names[i],
            .msg_iov = &b->iov[i],
            .msg_iovlen = 1,
            .msg_control = b->control + (size_t)i * CONTROL_BYTES,
        };
    }
    reset_slots(b, ring->n_slots);
}

int rx_backend_create(struct rx_ring *ring, const struct rx_ring_params *params) {
    struct rx_backend *b = ring->backend = calloc(1, sizeof *b);
    if (b == NULL) {
        return -ENOMEM;
    }
    uint32_t n = ring->n_slots;
    b->messages = calloc(n, sizeof *b->messages);
    b->iov = calloc(n, sizeof *b->iov);
    b->names = calloc(n, sizeof *b->names);
    b->control = calloc(n, CONTROL_BYTES);
    b->big_at = calloc(n, sizeof *b->big_at);
    b->slots = rx_slots_map(n, &b->n_slot_bytes);
    if (b->messages == NULL || b->iov == NULL || b->names == NULL || b->control == NULL ||
        b->big_at == NULL || b->slots == NULL) {
        return -ENOMEM;
    }
    b->single = params->single;
    b->syscalls = &udp_libc_syscalls;
    wire_slots(ring);
    return 0;
}

void rx_backend_destroy(struct rx_backend *b) {
    if (b == NULL) {
        return;
    }
    rx_slots_unmap(b->slots, b->n_slot_bytes);
    free(b->big_at);
    free(b->control);
    free(b->names);
    free(b->iov);
    free(b->messages);
    free(b);
}

void rx_ring_set_syscalls(struct rx_ring *ring, const struct udp_syscalls *syscalls) {
    ring->backend->syscalls = syscalls;
}

static void note_kernel_drops(struct rx_ring *ring, struct udp_socket *socket, uint32_t total) {
    counter_add(&ring->counters.kernel_drops, (uint32_t)(total - socket->kernel_drops));
    socket->kernel_drops = total;
}

static uint32_t read_u32(const void *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void read_control_message(struct rx_ring *ring, struct udp_socket *socket, struct rx_packet *packet,
                                 const struct cmsghdr *c) {
    const uint8_t *data = CMSG_DATA(c);
    if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
        packet->segment_bytes = read_u32(data);
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
        packet->tos = data[0];
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
        packet->tos = (uint8_t)read_u32(data);
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
        memcpy(packet->destination.ip, data + offsetof(struct in_pktinfo, ipi_spec_dst), 4);
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
        memcpy(packet->destination.ip, data + offsetof(struct in6_pktinfo, ipi6_addr), 16);
    } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
        note_kernel_drops(ring, socket, read_u32(data));
    }
}

static void read_control(struct rx_ring *ring, struct udp_socket *socket, struct rx_packet *packet,
                         const struct msghdr *m) {
    const uint8_t *at = m->msg_control;
    size_t left = m->msg_controllen;
    while (left >= sizeof(struct cmsghdr)) {
        const struct cmsghdr *c = (const struct cmsghdr *)at;
        if (c->cmsg_len < sizeof *c || c->cmsg_len > left) {
            return;
        }
        read_control_message(ring, socket, packet, c);
        size_t step = CMSG_ALIGN(c->cmsg_len);
        if (step >= left) {
            return;
        }
        at += step;
        left -= step;
    }
}

/* Makes packets[index] of what the kernel wrote into the slot; returns its datagrams. */
static uint32_t load_packet(struct rx_ring *ring, struct udp_socket *socket, uint32_t index) {
    struct rx_backend *b = ring->backend;
    const struct mmsghdr *m = &b->messages[index];
    struct rx_packet *packet = &ring->packets[index];
    packet->n_bytes = m->msg_len;
    packet->segment_bytes = 0;
    packet->destination = socket->local;
    packet->tos = 0;
    packet->truncated = (m->msg_hdr.msg_flags & MSG_TRUNC) != 0;
    endpoint_from_kernel(&packet->source, &b->names[index]);
    if (m->msg_hdr.msg_controllen > 0) {
        read_control(ring, socket, packet, &m->msg_hdr);
    }
    if (packet->truncated) {
        counter_add(&ring->counters.truncated, 1);
    }
    if (packet->n_bytes > SLOT_KEEP_BYTES) {
        b->big_at[index] = b->n_releases | 1;
    }
    return rx_packet_datagrams(packet);
}

/* One system call for up to n slots from `first`. How many came, or -errno. */
static int receive_once(struct rx_backend *b, int fd, uint32_t first, uint32_t n) {
    struct mmsghdr *m = &b->messages[first];
    if (!b->single) {
        int got = b->syscalls->recvmmsg(fd, m, n, MSG_DONTWAIT, NULL);
        return got < 0 ? -errno : got;
    }
    ssize_t n_bytes = b->syscalls->recvmsg(fd, &m->msg_hdr, MSG_DONTWAIT);
    if (n_bytes < 0) {
        return -errno;
    }
    m->msg_len = (unsigned)n_bytes;
    return 1;
}

/* The kernel has no recvmmsg, or not for this socket. Where ICMP errors are on, EOPNOTSUPP may also be one
 * of those, which a stranger can send: it is believed only when it does not go away. */
static bool is_missing(int err, bool error_queue, int n_tries) {
    return err == ENOSYS || (err == EOPNOTSUPP && (!error_queue || n_tries + 2 == PENDING_ERRORS_MAX));
}

/* receive_once, over what is not this drain's failure: an error of an earlier datagram, a signal, a kernel
 * without recvmmsg. */
static int receive(struct rx_ring *ring, struct udp_socket *socket, uint32_t first, uint32_t n) {
    struct rx_backend *b = ring->backend;
    int got = 0;
    for (int i = 0; i < PENDING_ERRORS_MAX; i++) {
        counter_add(&ring->counters.calls, 1);
        got = receive_once(b, socket->fd, first, n);
        if (got >= 0) {
            return got;
        }
        if (!b->single && is_missing(-got, socket->error_queue, i)) {
            b->single = true;
            counter_add(&ring->counters.unavailable, 1);
            log_warning("event=recvmmsg_unavailable error=%d fallback=recvmsg", -got);
        } else if (got == -EAGAIN) {
            counter_add(&ring->counters.would_block, 1);
            return got;
        } else {
            counter_add(&ring->counters.errors, 1);
            if (!udp_error_is_pending_kind(-got) && got != -EINTR) {
                return got;
            }
        }
    }
    return got;
}

static void say_no_gro(struct rx_backend *b) {
    b->said_no_gro = true;
    log_warning("event=udp_gro_unavailable fallback=single_datagrams");
}

uint32_t rx_ring_fill(struct rx_ring *ring, struct udp_socket *socket, uint32_t max, bool *out_drained) {
    struct rx_backend *b = ring->backend;
    if (socket->gro_refused && !b->said_no_gro) {
        say_no_gro(b);
    }
    uint32_t left = ring->n_slots - ring->n_filled;
    uint32_t n_wanted = max < left ? max : left;
    uint32_t n_taken = 0;
    bool drained = false;
    while (n_taken < n_wanted && !drained) {
        uint32_t n = b->single ? 1 : n_wanted - n_taken;
        int got = receive(ring, socket, ring->n_filled, n);
        n = b->single ? 1 : n; /* it may just have fallen back */
        uint32_t n_datagrams = 0;
        for (int i = 0; i < got; i++) {
            n_datagrams += load_packet(ring, socket, ring->n_filled + (uint32_t)i);
        }
        if (got > 0) {
            ring->n_filled += (uint32_t)got;
            n_taken += (uint32_t)got;
            counter_add(&ring->counters.packets, (uint64_t)got);
            counter_add(&ring->counters.datagrams, n_datagrams);
            histogram_add(&ring->counters.occupancy, n_datagrams, 1);
        }
        drained = got < (int)n;
    }
    if (!drained && n_wanted < max) {
        counter_add(&ring->counters.no_buffer, 1);
    }
    *out_drained = drained;
    return n_taken;
}

/* Looks at one slot a release, in turn, and gives back memory that only a long past burst had touched. */
static void trim_one_slot(struct rx_ring *ring) {
    struct rx_backend *b = ring->backend;
    uint32_t index = b->n_releases++ & (ring->n_slots - 1);
    if (b->big_at[index] == 0 || b->n_releases - b->big_at[index] < SLOT_UNUSED_RELEASES) {
        return;
    }
    b->big_at[index] = 0;
    uintptr_t end = (uintptr_t)ring->packets[index].data + RX_SLOT_BYTES;
    uintptr_t keep = (uintptr_t)ring->packets[index].data + SLOT_KEEP_BYTES;
    enum { PAGE = 4096 };
    keep = (keep + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    end &= ~(uintptr_t)(PAGE - 1);
    (void)madvise((void *)keep, end - keep, MADV_DONTNEED);
}

void rx_ring_release(struct rx_ring *ring) {
    reset_slots(ring->backend, ring->n_filled);
    ring->n_filled = 0;
    trim_one_slot(ring);
}
