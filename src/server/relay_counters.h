/* What one relay thread counts. The thread is the only writer; anyone may read (relaxed). For each leg and
 * direction: received = sent + drops by reason. */
#ifndef TURN_RELAY_COUNTERS_H
#define TURN_RELAY_COUNTERS_H

#include <stdalign.h>

#include "drop_reason.h"
#include "histogram.h"

struct relay_direction {
    counter rx_datagrams, rx_bytes; /* payload as received, relayed traffic and control alike */
    counter tx_datagrams, tx_bytes; /* relayed onwards: handed to the send batch or to another thread */
    counter drops[DROP_REASON_COUNT];
};

struct relay_counters {
    alignas(64) struct relay_direction uplink;
    struct relay_direction downlink;
    counter control_requests; /* STUN requests and indications that are not Send */
    counter control_replies;
    counter local_posted, local_received; /* relay to relay through mailboxes */
    counter icmp_errors, icmp_delivered;
    counter turns;            /* loop turns */
    struct histogram hold_us; /* receive to flush, one value a datagram */
};

#endif
