/* One end of the load generator: a packet socket on a veth device in some namespace, which speaks UDP for any
 * number of addresses and ports. Nothing listens there in the kernel, so a system call moves a batch over all
 * flows, no socket per flow exists, and the far side's delivery cost stays small. GSO goes out and comes in
 * as one frame.
 *
 * The neighbours' addresses must be set by hand (see README.md): the generator's own hardware address differs
 * from the device's on purpose, which makes the kernel's IP layer pass over its frames. One thread. */
#ifndef TURN_LOAD_PORT_H
#define TURN_LOAD_PORT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

enum {
    LOAD_TX_MESSAGES = 256,
    LOAD_RX_MESSAGES = 512,
    LOAD_MAX_SEGMENTS = 64,
    LOAD_RX_SLOT_BYTES = 66560,
    LOAD_FRAME_HEAD_BYTES = 10 + 14 + 40 + 8, /* virtio-net header, Ethernet, IPv6, UDP */
    LOAD_MAX_HEAD_BYTES = 28,                 /* of each segment in a run: ChannelData header and stamp */
    LOAD_TX_SLOT_BYTES = 2048,
    LOAD_MAX_MESSAGE_BYTES = LOAD_TX_SLOT_BYTES - LOAD_FRAME_HEAD_BYTES,
    LOAD_RUN_MAX_BYTES = 65487,
    LOAD_MAC_BYTES = 6,
};

/* No padding: compared as bytes. */
struct load_address {
    uint8_t family; /* AF_INET or AF_INET6 */
    uint8_t zero;
    uint16_t port; /* host order */
    uint8_t ip[16];
};

/* "1.2.3.4:5" or "[2001:db8::1]:5"; false when malformed. */
bool load_address_parse(struct load_address *out, const char *text);
/* Flow i of the rule all bench programs share: ports count up first, then addresses. */
struct load_address load_address_of_flow(const struct load_address *first, uint32_t flow,
                                         uint32_t ports_per_address);
/* The inverse; UINT32_MAX when address is not of a flow below n_flows. */
uint32_t load_flow_of_address(const struct load_address *first, const struct load_address *address,
                              uint32_t ports_per_address, uint32_t n_flows);

/* Everything before the UDP payload, for one source and destination. */
struct load_template {
    uint8_t bytes[LOAD_FRAME_HEAD_BYTES];
    uint8_t n_bytes;
    uint32_t udp_bytes, segment_bytes; /* for which the length fields stand now */
};

struct load_port_params {
    const char *netns; /* path; NULL: this one */
    const char *device;
    uint8_t own_mac[LOAD_MAC_BYTES], gateway_mac[LOAD_MAC_BYTES];
    int buffer_bytes;
    bool kernel_stamps; /* time of arrival from the kernel, not of the read */
};

struct load_port;

struct load_received {
    const uint8_t *payload;
    uint32_t n_bytes;       /* of UDP payload, all segments */
    uint32_t n_copied;      /* of them readable at payload */
    uint32_t segment_bytes; /* n_bytes when there is one datagram */
    uint32_t n_datagrams;
    uint64_t stamp_ns; /* CLOCK_REALTIME */
    struct load_address source, destination;
};
typedef void (*load_received_fn)(void *context, const struct load_received *received);

struct load_port_counts {
    uint64_t accepted; /* datagrams the kernel took */
    uint64_t refused;  /* datagrams it did not */
    uint64_t tx_calls, rx_calls, rx_messages, rx_other, rx_errors;
};

/* Both return 0 or -errno. */
int load_port_open(struct load_port **out, const struct load_port_params *params);
void load_port_close(struct load_port *port);

void load_template_init(struct load_template *t, const struct load_port *port,
                        const struct load_address *from, const struct load_address *to);

/* Queues n_segments datagrams in one frame, each of head_bytes to be written by the caller at the address
 * returned (head after head, without gap) and filler_bytes of zeros. Never NULL: a full batch is sent first.
 */
uint8_t *load_port_add(struct load_port *port, struct load_template *t, uint32_t head_bytes,
                       uint32_t filler_bytes, uint32_t n_segments);
bool load_port_is_full(const struct load_port *port);
void load_port_flush(struct load_port *port);

/* How much of each frame is copied: enough for the first stamp, or everything. */
void load_port_set_snap(struct load_port *port, uint32_t n_bytes);
/* One recvmmsg; calls back for each UDP frame. Returns the number of messages. */
uint32_t load_port_receive(struct load_port *port, load_received_fn fn, void *context);
int load_port_fd(const struct load_port *port);
const struct load_port_counts *load_port_counts(const struct load_port *port);
/* Frames the kernel dropped for want of room in this socket, since the last call. */
uint64_t load_port_take_drops(struct load_port *port);
/* Sum of the drop columns in the text of a /proc/.../net/dev. */
uint64_t load_device_drops_in(const char *text);
/* Drops of the namespace's devices so far (a full veth ring). */
uint64_t load_port_device_drops(const struct load_port *port);

static inline uint64_t load_clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
