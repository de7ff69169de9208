/* A kernel that sends as it is told: it notes each datagram that would leave, and fails where a test wants it
 * to. Behind the system calls of a tx_batch; one for the program. */
#ifndef TURN_FAKE_UDP_KERNEL_H
#define TURN_FAKE_UDP_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "udp_batch_private.h"

enum {
    FAKE_UDP_FD = 1000, /* the descriptor of the sockets under test; others are self checks */
    FAKE_UDP_MAX_SENT = 8192,
    FAKE_UDP_NO_SEQ = -1,
};

/* A datagram that left. Its sequence number is that of datagram_fill, whose bytes are checked. */
struct fake_udp_sent {
    uint32_t seq;
    uint32_t n_bytes;
    uint16_t port;
    uint8_t tos;
    bool in_run, no_fragment;
};

/* An attempt is one message; a call may hold several. */
struct fake_udp_kernel {
    struct fake_udp_sent sent[FAKE_UDP_MAX_SENT];
    uint32_t n_sent, n_attempts, n_calls;
    int fail_seq, fail_seq_err;         /* a datagram that never gets out, alone or in a run */
    int run_err;                        /* of every message with a segment size */
    uint16_t run_err_port;              /* not 0: only to this port */
    int tos_err;                        /* of every message with a TOS */
    uint32_t pending_at, pending_times; /* attempts from this number on report somebody else's error */
    int pending_err;
    uint32_t blocked_from, blocked_times; /* attempts from this number on find the buffer full */
    int blocked_err;
    int sendmmsg_err, setsockopt_err;
    bool no_fragment; /* the socket is switched to it */
    uint32_t n_switches;
};

extern struct fake_udp_kernel fake_udp_kernel;
extern const struct udp_syscalls fake_udp_syscalls;

/* Nothing fails and nothing was sent. */
void fake_udp_kernel_reset(void);

#endif
