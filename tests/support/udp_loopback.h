/* Loopback sockets and datagrams whose bytes tell their sequence number, for the tests of UDP sockets and
 * batches. Failures of the machine itself end the program. */
#ifndef TURN_UDP_LOOPBACK_H
#define TURN_UDP_LOOPBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "udp_batch.h"
#include "udp_socket.h"

/* Opens a socket on ip, any port, with buffers large enough that a test's datagrams are not lost. */
void loopback_open(struct udp_socket *out, const char *ip, bool gro);

/* Waits up to two seconds for a datagram. Its length, or -1. out_source may be NULL. */
ssize_t loopback_receive(int fd, uint8_t *bytes, size_t n_bytes, struct endpoint *out_source);

/* True when nothing waits on the socket. */
bool loopback_is_empty(int fd);

/* Fills n bytes that depend on seq: its four bytes first, as far as they fit. */
void datagram_fill(uint8_t *bytes, size_t n_bytes, uint32_t seq);

/* True when the bytes are those of seq. */
bool datagram_matches(const uint8_t *bytes, size_t n_bytes, uint32_t seq);

/* All datagrams the counters account for: sent, and lost for each reason. */
uint64_t tx_counters_accounted(const struct tx_counters *counters);
uint64_t tx_counters_dropped(const struct tx_counters *counters);

#endif
