/* The host's own addresses, and how many processors the process may use. Start-up only. */
#ifndef TURN_LOCAL_ADDRESSES_H
#define TURN_LOCAL_ADDRESSES_H

#include "endpoint.h"

/* All addresses of interfaces that are up, without loopback and IPv6 link-local ones; on a host that has
 * none, the loopback addresses. Ports are 0. *out is malloc'ed. 0 or -errno. */
int local_addresses_list(struct endpoint **out, size_t *out_n, bool include_loopback);

/* Processors by affinity and by the control group's quota (cgroup v2, rounded up), at least 1, at most 128.
 */
uint32_t usable_processors(void);

#endif
