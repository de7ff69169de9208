#include "udp_loopback.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void loopback_open(struct udp_socket *out, const char *ip, bool gro) {
    struct udp_socket_params params = {.gro = gro, .buffer_bytes = 4 * 1024 * 1024};
    int err = endpoint_parse(&params.local, ip, 0);
    if (err == 0) {
        err = udp_socket_open(out, &params);
    }
    if (err != 0) {
        (void)fprintf(stderr, "no socket on %s: %s\n", ip, strerror(-err));
        abort();
    }
}

ssize_t loopback_receive(int fd, uint8_t *bytes, size_t n_bytes, struct endpoint *out_source) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, 2000) != 1) {
        return -1;
    }
    union endpoint_sockaddr source = {0};
    socklen_t n_source = sizeof source;
    ssize_t n = recvfrom(fd, bytes, n_bytes, 0, &source.sa, &n_source);
    if (n >= 0 && out_source != NULL) {
        endpoint_from_sockaddr(out_source, &source.sa);
    }
    return n;
}

bool loopback_is_empty(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

static uint8_t datagram_byte(size_t at, uint32_t seq) {
    return at < 4 ? (uint8_t)(seq >> (8 * at)) : (uint8_t)(seq * 31 + at * 7 + (at >> 8));
}

void datagram_fill(uint8_t *bytes, size_t n_bytes, uint32_t seq) {
    for (size_t i = 0; i < n_bytes; i++) {
        bytes[i] = datagram_byte(i, seq);
    }
}

bool datagram_matches(const uint8_t *bytes, size_t n_bytes, uint32_t seq) {
    for (size_t i = 0; i < n_bytes; i++) {
        if (bytes[i] != datagram_byte(i, seq)) {
            return false;
        }
    }
    return true;
}

uint64_t tx_counters_dropped(const struct tx_counters *c) {
    return counter_read(&c->drop_would_block) + counter_read(&c->drop_unreachable) +
           counter_read(&c->drop_denied) + counter_read(&c->drop_too_big) + counter_read(&c->drop_invalid) +
           counter_read(&c->drop_other);
}

uint64_t tx_counters_accounted(const struct tx_counters *c) {
    return counter_read(&c->datagrams) + tx_counters_dropped(c);
}
