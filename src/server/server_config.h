/* What the relay threads need, made from the options once at start: addresses, credentials, policy, limits.
 */
#ifndef TURN_SERVER_CONFIG_H
#define TURN_SERVER_CONFIG_H

#include "nonce.h"
#include "options.h"
#include "relay_registry.h"
#include "turn_core.h"

struct server_config {
    struct endpoint *listening; /* with ports */
    size_t n_listening;
    struct relay_ip *ips;
    size_t n_ips;
    uint32_t n_threads;
    bool shared;
    uint32_t shared_pairs;
    struct credential_store *credentials;
    struct peer_policy *policy;
    struct quota *quota;
    uint8_t nonce_key[NONCE_KEY_BYTES];
    struct core_config core;
};

/* Logs an error line for what is wrong. 0 or -errno; *out is then NULL. options must outlive it. */
int server_config_create(struct server_config **out, const struct options *options);
void server_config_destroy(struct server_config *config);

#endif
