/* The one decision about which peers may be reached (every path that creates a permission or sends asks it).
 * Addresses are reduced first: IPv4 inside IPv6 in every spelling counts as that IPv4 address. Built at
 * start, read-only afterwards, shared by all threads. */
#ifndef TURN_PEER_POLICY_H
#define TURN_PEER_POLICY_H

#include "endpoint.h"

struct peer_policy;

struct peer_policy_params {
    bool allow_loopback; /* allow-loopback-peers */
    bool allow_private;  /* allow-private-peers: RFC 1918, 100.64/10, benchmarking. Unique-local IPv6 is
                            refused either way until a range allows it. */
};

int peer_policy_create(struct peer_policy **out, const struct peer_policy_params *params);
void peer_policy_destroy(struct peer_policy *policy);

/* "IP", "IP-IP" or "IP/BITS". Allow beats deny, what is denied by default included. -EINVAL or -ENOMEM. */
int peer_policy_allow(struct peer_policy *policy, const char *range);
int peer_policy_deny(struct peer_policy *policy, const char *range);
/* An endpoint of our own (listener, admin, store): IP and port; a wildcard IP means every local address given
 * by peer_policy_add_local. */
int peer_policy_deny_endpoint(struct peer_policy *policy, const struct endpoint *own);
int peer_policy_add_local(struct peer_policy *policy, const struct endpoint *ip);

/* True when the peer may be reached. *out_rule names the rule that decided (static or owned by the policy),
 * NULL when none had to. Port 0 (a permission for an IP) is judged by address alone. Own endpoints stay
 * refused inside allowed ranges. */
bool peer_policy_allows(const struct peer_policy *policy, const struct endpoint *peer, const char **out_rule);

#endif
