#include "load_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

enum {
    VNET_BYTES = sizeof(struct virtio_net_hdr),
    ETHERNET_BYTES = sizeof(struct ether_header),
    UDP_BYTES = sizeof(struct udphdr),
    CONTROL_BYTES = 64,
    FILLER_BYTES = 65536,
    TX_IOVECS = 1 + 2 * LOAD_MAX_SEGMENTS,
};

struct load_port {
    int fd, device_stats_fd;
    uint8_t own_mac[LOAD_MAC_BYTES], gateway_mac[LOAD_MAC_BYTES];
    bool kernel_stamps;
    uint32_t n_tx, snap_bytes;
    struct load_port_counts counts;
    struct mmsghdr tx[LOAD_TX_MESSAGES], rx[LOAD_RX_MESSAGES];
    uint32_t tx_datagrams[LOAD_TX_MESSAGES];
    struct iovec tx_iov[LOAD_TX_MESSAGES][TX_IOVECS], rx_iov[LOAD_RX_MESSAGES];
    uint8_t tx_bytes[LOAD_TX_MESSAGES][LOAD_TX_SLOT_BYTES];
    uint64_t rx_control[LOAD_RX_MESSAGES][CONTROL_BYTES / sizeof(uint64_t)];
    uint8_t *rx_bytes;
    uint8_t filler[FILLER_BYTES];
};

/* ---- addresses ---- */

bool load_address_parse(struct load_address *out, const char *text) {
    *out = (struct load_address){0};
    char ip[64];
    const char *colon = strrchr(text, ':');
    size_t n = colon == NULL ? 0 : (size_t)(colon - text);
    bool bracketed = n > 2 && text[0] == '[' && text[n - 1] == ']';
    if (n == 0 || n >= sizeof ip) {
        return false;
    }
    snprintf(ip, sizeof ip, "%.*s", (int)(bracketed ? n - 2 : n), text + bracketed);
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (*end != '\0' || port > 65535) {
        return false;
    }
    out->family = bracketed ? AF_INET6 : AF_INET;
    out->port = (uint16_t)port;
    return inet_pton(out->family, ip, out->ip) == 1;
}

static uint32_t low_word(const struct load_address *a) {
    uint32_t word;
    memcpy(&word, a->ip + (a->family == AF_INET ? 0 : 12), sizeof word);
    return ntohl(word);
}

struct load_address load_address_of_flow(const struct load_address *first, uint32_t flow,
                                         uint32_t ports_per_address) {
    struct load_address a = *first;
    uint32_t word = htonl(low_word(first) + flow / ports_per_address);
    memcpy(a.ip + (a.family == AF_INET ? 0 : 12), &word, sizeof word);
    a.port = (uint16_t)(a.port + flow % ports_per_address);
    return a;
}

uint32_t load_flow_of_address(const struct load_address *first, const struct load_address *address,
                              uint32_t ports_per_address, uint32_t n_flows) {
    uint32_t port_step = (uint32_t)address->port - first->port;
    uint64_t flow = (uint64_t)(low_word(address) - low_word(first)) * ports_per_address + port_step;
    if (port_step >= ports_per_address || flow >= n_flows || address->family != first->family) {
        return UINT32_MAX;
    }
    return (uint32_t)flow;
}

/* ---- opening ---- */

static int enter_netns(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int err = setns(fd, CLONE_NEWNET) < 0 ? -errno : 0;
    close(fd);
    return err;
}

static int set_buffer(int fd, int force, int plain, int n_bytes) {
    if (setsockopt(fd, SOL_SOCKET, force, &n_bytes, sizeof n_bytes) == 0) {
        return 0;
    }
    return setsockopt(fd, SOL_SOCKET, plain, &n_bytes, sizeof n_bytes);
}

/* Protocol 0 at first: nothing is received before all options stand. */
static int open_packet_socket(const struct load_port_params *params) {
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -errno;
    }
    int on = 1;
    struct sockaddr_ll at = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex(params->device)};
    bool done = at.sll_ifindex > 0 && setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) == 0 &&
                setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) == 0 &&
                set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, params->buffer_bytes) == 0 &&
                set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, params->buffer_bytes) == 0 &&
                (!params->kernel_stamps || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) == 0) &&
                bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (!done) {
        int err = -errno;
        close(fd);
        return err;
    }
    return fd;
}

static int open_in_netns(struct load_port *port, const struct load_port_params *params) {
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0) {
        return -errno;
    }
    int err = params->netns == NULL ? 0 : enter_netns(params->netns);
    if (err == 0) {
        port->fd = open_packet_socket(params);
        err = port->fd < 0 ? port->fd : 0;
        port->device_stats_fd = open("/proc/thread-self/net/dev", O_RDONLY | O_CLOEXEC);
        if (setns(home, CLONE_NEWNET) < 0 && err == 0) {
            err = -errno;
        }
    }
    close(home);
    return err;
}

static void wire_receive(struct load_port *port) {
    for (uint32_t i = 0; i < LOAD_RX_MESSAGES; i++) {
        port->rx_iov[i].iov_base = port->rx_bytes + (size_t)i * LOAD_RX_SLOT_BYTES;
        port->rx[i].msg_hdr = (struct msghdr){.msg_iov = &port->rx_iov[i], .msg_iovlen = 1};
        if (port->kernel_stamps) {
            port->rx[i].msg_hdr.msg_control = port->rx_control[i];
            port->rx[i].msg_hdr.msg_controllen = CONTROL_BYTES;
        }
    }
    load_port_set_snap(port, LOAD_RX_SLOT_BYTES);
}

int load_port_open(struct load_port **out, const struct load_port_params *params) {
    struct load_port *port = calloc(1, sizeof *port);
    if (port == NULL) {
        return -ENOMEM;
    }
    port->fd = port->device_stats_fd = -1;
    port->kernel_stamps = params->kernel_stamps;
    memcpy(port->own_mac, params->own_mac, LOAD_MAC_BYTES);
    memcpy(port->gateway_mac, params->gateway_mac, LOAD_MAC_BYTES);
    int err = open_in_netns(port, params);
    if (err < 0) {
        goto fail;
    }
    void *bytes = mmap(NULL, (size_t)LOAD_RX_MESSAGES * LOAD_RX_SLOT_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) {
        err = -ENOMEM;
        goto fail;
    }
    port->rx_bytes = bytes;
    wire_receive(port);
    *out = port;
    return 0;
fail:
    load_port_close(port);
    return err;
}

void load_port_close(struct load_port *port) {
    if (port == NULL) {
        return;
    }
    if (port->fd >= 0) {
        close(port->fd);
    }
    if (port->device_stats_fd >= 0) {
        close(port->device_stats_fd);
    }
    if (port->rx_bytes != NULL) {
        munmap(port->rx_bytes, (size_t)LOAD_RX_MESSAGES * LOAD_RX_SLOT_BYTES);
    }
    free(port);
}

/* ---- frames ---- */

static uint32_t sum_words(const uint8_t *bytes, size_t n_bytes) {
    uint32_t sum = 0;
    for (size_t i = 0; i < n_bytes; i += 2) {
        sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
    }
    return sum;
}

static uint16_t fold(uint32_t sum) {
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    return (uint16_t)sum;
}

static void init_ipv4(uint8_t *ip, const struct load_address *from, const struct load_address *to) {
    struct iphdr header = {
        .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP, .frag_off = htons(IP_DF)};
    memcpy(&header.saddr, from->ip, 4);
    memcpy(&header.daddr, to->ip, 4);
    memcpy(ip, &header, sizeof header);
}

static void init_ipv6(uint8_t *ip, const struct load_address *from, const struct load_address *to) {
    struct ip6_hdr header = {0};
    header.ip6_flow = htonl(6u << 28);
    header.ip6_nxt = IPPROTO_UDP;
    header.ip6_hlim = 64;
    memcpy(&header.ip6_src, from->ip, 16);
    memcpy(&header.ip6_dst, to->ip, 16);
    memcpy(ip, &header, sizeof header);
}

void load_template_init(struct load_template *t, const struct load_port *port,
                        const struct load_address *from, const struct load_address *to) {
    memset(t, 0, sizeof *t);
    uint8_t *at = t->bytes + VNET_BYTES;
    struct ether_header ethernet = {.ether_type =
                                        htons(from->family == AF_INET ? ETHERTYPE_IP : ETHERTYPE_IPV6)};
    memcpy(ethernet.ether_dhost, port->gateway_mac, LOAD_MAC_BYTES);
    memcpy(ethernet.ether_shost, port->own_mac, LOAD_MAC_BYTES);
    memcpy(at, &ethernet, sizeof ethernet);
    at += sizeof ethernet;
    size_t ip_bytes = sizeof(struct iphdr);
    if (from->family == AF_INET) {
        init_ipv4(at, from, to);
    } else {
        ip_bytes = sizeof(struct ip6_hdr);
        init_ipv6(at, from, to);
    }
    at += ip_bytes;
    struct udphdr udp = {.source = htons(from->port), .dest = htons(to->port)};
    memcpy(at, &udp, sizeof udp);
    t->n_bytes = (uint8_t)(VNET_BYTES + ETHERNET_BYTES + ip_bytes + UDP_BYTES);
}

static void put_u16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 8), at[1] = (uint8_t)value;
}

/* Length fields and checksums; the UDP checksum is left to whoever needs it, as a network card's driver does.
 */
static void template_set_size(struct load_template *t, uint32_t payload_bytes, uint32_t segment_bytes) {
    uint32_t ip_bytes = t->n_bytes - (uint32_t)(VNET_BYTES + ETHERNET_BYTES + UDP_BYTES);
    bool is_v4 = ip_bytes == sizeof(struct iphdr);
    uint32_t udp_bytes = UDP_BYTES + payload_bytes;
    if (t->udp_bytes == udp_bytes && t->segment_bytes == segment_bytes) {
        return;
    }
    t->udp_bytes = udp_bytes, t->segment_bytes = segment_bytes;
    uint8_t *ip = t->bytes + VNET_BYTES + ETHERNET_BYTES, *udp = ip + ip_bytes;
    uint32_t pseudo = IPPROTO_UDP + udp_bytes;
    if (is_v4) {
        put_u16(ip + offsetof(struct iphdr, tot_len), ip_bytes + udp_bytes);
        put_u16(ip + offsetof(struct iphdr, check), 0);
        put_u16(ip + offsetof(struct iphdr, check), (uint16_t)~fold(sum_words(ip, ip_bytes)));
        pseudo += sum_words(ip + offsetof(struct iphdr, saddr), 8);
    } else {
        put_u16(ip + 4, udp_bytes);
        pseudo += sum_words(ip + 8, 32);
    }
    put_u16(udp + offsetof(struct udphdr, len), udp_bytes);
    put_u16(udp + offsetof(struct udphdr, check), fold(pseudo));
    struct virtio_net_hdr vnet = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                  .csum_start = (uint16_t)(ETHERNET_BYTES + ip_bytes),
                                  .csum_offset = offsetof(struct udphdr, check)};
    if (segment_bytes > 0) {
        vnet.gso_type = VIRTIO_NET_HDR_GSO_UDP_L4;
        vnet.gso_size = (uint16_t)segment_bytes;
        vnet.hdr_len = (uint16_t)(ETHERNET_BYTES + ip_bytes + UDP_BYTES);
    }
    memcpy(t->bytes, &vnet, sizeof vnet);
}

/* ---- sending ---- */

bool load_port_is_full(const struct load_port *port) {
    return port->n_tx == LOAD_TX_MESSAGES;
}

uint8_t *load_port_add(struct load_port *port, struct load_template *t, uint32_t head_bytes,
                       uint32_t filler_bytes, uint32_t n_segments) {
    if (load_port_is_full(port)) {
        load_port_flush(port);
    }
    uint32_t datagram_bytes = head_bytes + filler_bytes;
    template_set_size(t, n_segments * datagram_bytes, n_segments > 1 ? datagram_bytes : 0);
    uint32_t index = port->n_tx++;
    uint8_t *slot = port->tx_bytes[index], *heads = slot + t->n_bytes;
    memcpy(slot, t->bytes, t->n_bytes);
    struct iovec *iov = port->tx_iov[index];
    uint32_t n = 0;
    iov[n++] = (struct iovec){slot, t->n_bytes + head_bytes};
    for (uint32_t i = 0; i < n_segments; i++) {
        if (i > 0) {
            iov[n++] = (struct iovec){heads + i * head_bytes, head_bytes};
        }
        if (filler_bytes > 0) {
            iov[n++] = (struct iovec){port->filler, filler_bytes};
        }
    }
    port->tx[index].msg_hdr.msg_iov = iov;
    port->tx[index].msg_hdr.msg_iovlen = n;
    port->tx_datagrams[index] = n_segments;
    return heads;
}

void load_port_flush(struct load_port *port) {
    for (uint32_t at = 0; at < port->n_tx;) {
        int n = sendmmsg(port->fd, port->tx + at, port->n_tx - at, MSG_DONTWAIT);
        port->counts.tx_calls++;
        if (n <= 0) {
            port->counts.refused += port->tx_datagrams[at++];
            continue;
        }
        for (uint32_t end = at + (uint32_t)n; at < end; at++) {
            port->counts.accepted += port->tx_datagrams[at];
        }
    }
    port->n_tx = 0;
}

/* ---- receiving ---- */

void load_port_set_snap(struct load_port *port, uint32_t n_bytes) {
    port->snap_bytes = n_bytes < LOAD_RX_SLOT_BYTES ? n_bytes : LOAD_RX_SLOT_BYTES;
    for (uint32_t i = 0; i < LOAD_RX_MESSAGES; i++) {
        port->rx_iov[i].iov_len = port->snap_bytes;
    }
}

static uint64_t arrival_ns(struct msghdr *m, uint64_t fallback_ns) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(c), sizeof t);
            return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        }
    }
    return fallback_ns;
}

/* Fills addresses and returns the IP header's size, 0 for anything but UDP. */
static uint32_t parse_ip(struct load_received *r, const uint8_t *ip, uint16_t ether_type) {
    if (ether_type == ETHERTYPE_IP && ip[0] == 0x45 && ip[9] == IPPROTO_UDP) {
        r->source.family = r->destination.family = AF_INET;
        memcpy(r->source.ip, ip + offsetof(struct iphdr, saddr), 4);
        memcpy(r->destination.ip, ip + offsetof(struct iphdr, daddr), 4);
        return sizeof(struct iphdr);
    }
    if (ether_type == ETHERTYPE_IPV6 && ip[6] == IPPROTO_UDP) {
        r->source.family = r->destination.family = AF_INET6;
        memcpy(r->source.ip, ip + 8, 16);
        memcpy(r->destination.ip, ip + 24, 16);
        return sizeof(struct ip6_hdr);
    }
    return 0;
}

static bool parse_frame(struct load_received *r, const uint8_t *frame, uint32_t n_frame, uint32_t n_copied) {
    if (n_frame < VNET_BYTES + ETHERNET_BYTES + sizeof(struct iphdr) + UDP_BYTES ||
        n_copied < LOAD_FRAME_HEAD_BYTES) {
        return false;
    }
    struct virtio_net_hdr vnet;
    memcpy(&vnet, frame, sizeof vnet);
    const uint8_t *ethernet = frame + VNET_BYTES, *ip = ethernet + ETHERNET_BYTES;
    *r = (struct load_received){0};
    uint32_t ip_bytes = parse_ip(r, ip, (uint16_t)(ethernet[12] << 8 | ethernet[13]));
    if (ip_bytes == 0) {
        return false;
    }
    const uint8_t *udp = ip + ip_bytes;
    r->source.port = (uint16_t)(udp[0] << 8 | udp[1]);
    r->destination.port = (uint16_t)(udp[2] << 8 | udp[3]);
    uint32_t head = (uint32_t)(VNET_BYTES + ETHERNET_BYTES) + ip_bytes + UDP_BYTES;
    uint32_t udp_bytes = (uint32_t)udp[4] << 8 | udp[5];
    bool is_run = (vnet.gso_type & ~VIRTIO_NET_HDR_GSO_ECN) == VIRTIO_NET_HDR_GSO_UDP_L4 && vnet.gso_size > 0;
    r->payload = frame + head;
    r->n_bytes = n_frame - head;
    if (!is_run && udp_bytes >= UDP_BYTES && udp_bytes - UDP_BYTES < r->n_bytes) {
        r->n_bytes = udp_bytes - (uint32_t)UDP_BYTES; /* Ethernet padding */
    }
    r->n_copied = n_copied - head < r->n_bytes ? n_copied - head : r->n_bytes;
    r->segment_bytes = is_run ? vnet.gso_size : r->n_bytes;
    r->n_datagrams = is_run ? (r->n_bytes + r->segment_bytes - 1) / r->segment_bytes : 1;
    return true;
}

uint32_t load_port_receive(struct load_port *port, load_received_fn fn, void *context) {
    int n = recvmmsg(port->fd, port->rx, LOAD_RX_MESSAGES, MSG_DONTWAIT | MSG_TRUNC, NULL);
    port->counts.rx_calls++;
    if (n < 0) {
        port->counts.rx_errors += errno != EAGAIN && errno != EINTR;
        return 0;
    }
    port->counts.rx_messages += (uint64_t)n;
    uint64_t read_ns = load_clock_ns(CLOCK_REALTIME);
    for (int i = 0; i < n; i++) {
        struct load_received r;
        uint32_t n_frame = port->rx[i].msg_len;
        uint32_t n_copied = n_frame < port->snap_bytes ? n_frame : port->snap_bytes;
        if (!parse_frame(&r, port->rx_iov[i].iov_base, n_frame, n_copied)) {
            port->counts.rx_other++;
            continue;
        }
        r.stamp_ns = port->kernel_stamps ? arrival_ns(&port->rx[i].msg_hdr, read_ns) : read_ns;
        fn(context, &r);
    }
    for (int i = 0; i < n; i++) { /* the kernel wrote how much it used */
        port->rx[i].msg_hdr.msg_controllen = port->rx[i].msg_hdr.msg_control == NULL ? 0 : CONTROL_BYTES;
    }
    return (uint32_t)n;
}

int load_port_fd(const struct load_port *port) {
    return port->fd;
}

const struct load_port_counts *load_port_counts(const struct load_port *port) {
    return &port->counts;
}

uint64_t load_port_take_drops(struct load_port *port) {
    struct tpacket_stats stats = {0};
    socklen_t n_bytes = sizeof stats;
    if (getsockopt(port->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &n_bytes) < 0) {
        return 0;
    }
    return stats.tp_drops;
}

uint64_t load_device_drops_in(const char *text) {
    uint64_t drops = 0;
    for (const char *line = strchr(text, ':'); line != NULL; line = strchr(line, ':')) {
        unsigned long long rx_drop = 0, tx_drop = 0;
        if (sscanf(++line, "%*u %*u %*u %llu %*u %*u %*u %*u %*u %*u %*u %llu", &rx_drop, &tx_drop) == 2) {
            drops += rx_drop + tx_drop;
        }
    }
    return drops;
}

uint64_t load_port_device_drops(const struct load_port *port) {
    char text[8192];
    ssize_t n = pread(port->device_stats_fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return load_device_drops_in(text);
}
