#include "server_config.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "local_addresses.h"
#include "log.h"

static const char SOFTWARE[] = "Turntable " TURN_VERSION;

/* ---- addresses ---- */

static int parse_list(const struct option_list *list, uint16_t port, const char *name, struct endpoint **out,
                      size_t *out_n) {
    *out = calloc(list->n_items + 1, sizeof **out);
    if (*out == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < list->n_items; i++) {
        if (endpoint_parse(&(*out)[i], list->items[i], 0) < 0) {
            log_error("%s=%s is not an IP address", name, list->items[i]);
            return -EINVAL;
        }
        (*out)[i].port = port;
    }
    *out_n = list->n_items;
    return 0;
}

static int choose_listening(struct server_config *c, const struct options *o) {
    uint16_t port = (uint16_t)o->listening_port;
    if (o->listening_ip.n_items > 0) {
        return parse_list(&o->listening_ip, port, "listening-ip", &c->listening, &c->n_listening);
    }
    int err = local_addresses_list(&c->listening, &c->n_listening, false);
    for (size_t i = 0; err == 0 && i < c->n_listening; i++) {
        c->listening[i].port = port;
    }
    return err;
}

/* Relay addresses: those named, else the listening ones, a wildcard standing for the host's addresses. */
static int choose_relay_addresses(struct server_config *c, const struct options *o, struct endpoint **out,
                                  size_t *out_n) {
    if (o->relay_ip.n_items > 0) {
        return parse_list(&o->relay_ip, 0, "relay-ip", out, out_n);
    }
    for (size_t i = 0; i < c->n_listening; i++) {
        if (endpoint_is_unspecified(&c->listening[i])) {
            return local_addresses_list(out, out_n, false);
        }
    }
    *out = calloc(c->n_listening + 1, sizeof **out);
    if (*out == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < c->n_listening; i++) {
        (*out)[i] = c->listening[i];
        (*out)[i].port = 0;
    }
    *out_n = c->n_listening;
    return 0;
}

/* "PUBLIC" or "PUBLIC/PRIVATE". */
static int parse_external(const char *text, struct endpoint *out_public, struct endpoint *out_private) {
    char copy[2 * ENDPOINT_TEXT_BYTES];
    if (strlen(text) >= sizeof copy) {
        return -EINVAL;
    }
    memcpy(copy, text, strlen(text) + 1);
    char *slash = strchr(copy, '/');
    *out_private = (struct endpoint){0};
    if (slash != NULL) {
        *slash = '\0';
        if (endpoint_parse(out_private, slash + 1, 0) < 0) {
            return -EINVAL;
        }
    }
    return endpoint_parse(out_public, copy, 0);
}

/* Puts a public address on the relay addresses it stands for: the named private one, or all of its family. */
static int apply_external(struct server_config *c, const char *text) {
    struct endpoint public, private;
    if (parse_external(text, &public, &private) < 0 || endpoint_is_unspecified(&public)) {
        log_error("external-ip=%s is neither PUBLIC nor PUBLIC/PRIVATE", text);
        return -EINVAL;
    }
    bool used = false;
    for (size_t i = 0; i < c->n_ips; i++) {
        struct relay_ip *ip = &c->ips[i];
        bool stands_for = private.family == AF_UNSPEC ? ip->local.family == public.family
                                                      : endpoint_same_ip(&ip->local, &private);
        if (stands_for && ip->local.family == public.family) {
            ip->advertised = public;
            used = true;
        }
    }
    if (!used) {
        log_warning("external-ip=%s matches no relay address of its family and has no effect", text);
    }
    return 0;
}

static bool is_private(const struct endpoint *e) {
    return e->family == AF_INET &&
           (e->ip[0] == 10 || (e->ip[0] == 172 && (e->ip[1] & 0xf0) == 16) ||
            (e->ip[0] == 192 && e->ip[1] == 168) || (e->ip[0] == 100 && (e->ip[1] & 0xc0) == 64));
}

static int choose_relay_ips(struct server_config *c, const struct options *o) {
    struct endpoint *addresses = NULL;
    size_t n = 0;
    int err = choose_relay_addresses(c, o, &addresses, &n);
    if (err == 0) {
        c->ips = calloc(n + 1, sizeof *c->ips);
        err = c->ips == NULL ? -ENOMEM : 0;
    }
    for (size_t i = 0; err == 0 && i < n; i++) {
        if (endpoint_is_unspecified(&addresses[i])) {
            log_error("relay-ip must be an address that peers can send to, not a wildcard");
            err = -EINVAL;
        }
        c->ips[i].local = c->ips[i].advertised = addresses[i];
    }
    c->n_ips = n;
    free(addresses);
    for (size_t i = 0; err == 0 && i < o->external_ip.n_items; i++) {
        err = apply_external(c, o->external_ip.items[i]);
    }
    for (size_t i = 0; err == 0 && i < n; i++) {
        char text[ENDPOINT_TEXT_BYTES];
        if (is_private(&c->ips[i].advertised)) {
            log_info("relay address %s is private and no external-ip maps it: clients outside this network "
                     "cannot be reached through it",
                     endpoint_format_ip(&c->ips[i].advertised, text));
        }
    }
    return err;
}

/* ---- credentials and policy ---- */

static int make_credentials(struct server_config *c, const struct options *o) {
    const struct credential_params params = {
        .realm = c->core.realm,
        .rest_separator = o->rest_api_separator != NULL && o->rest_api_separator[0] != '\0'
                              ? o->rest_api_separator[0]
                              : ':',
        .no_auth = o->no_auth,
    };
    int err = credential_store_create(&c->credentials, &params);
    for (size_t i = 0; err == 0 && i < o->static_auth_secret.n_items; i++) {
        err = credential_store_add_secret(c->credentials, o->static_auth_secret.items[i]);
    }
    for (size_t i = 0; err == 0 && i < o->user.n_items; i++) {
        err = credential_store_add_user(c->credentials, o->user.items[i]);
        if (err == -EEXIST) {
            log_warning("user line %zu repeats a name: the last one counts", i + 1);
            err = 0;
        } else if (err == -EINVAL) {
            log_error("user line %zu is malformed: NAME:PASSWORD or NAME:0xKEY is expected", i + 1);
        }
    }
    return err;
}

static int apply_ranges(struct peer_policy *policy, const struct option_list *list, const char *name,
                        int (*add)(struct peer_policy *, const char *)) {
    for (size_t i = 0; i < list->n_items; i++) {
        int err = add(policy, list->items[i]);
        if (err < 0) {
            log_error("%s=%s is no address, range or CIDR block", name, list->items[i]);
            return err;
        }
    }
    return 0;
}

/* The listeners are no peers, neither as bound nor as seen from outside (F55: loops). */
static int deny_own_listeners(struct server_config *c, const struct options *o) {
    struct endpoint *local;
    size_t n_local;
    int err = local_addresses_list(&local, &n_local, true);
    if (err < 0) {
        return err;
    }
    for (size_t i = 0; err == 0 && i < n_local; i++) {
        err = peer_policy_add_local(c->policy, &local[i]);
    }
    free(local);
    for (size_t i = 0; err == 0 && i < c->n_listening; i++) {
        err = peer_policy_deny_endpoint(c->policy, &c->listening[i]);
    }
    for (size_t i = 0; err == 0 && i < c->n_ips; i++) {
        struct endpoint public = c->ips[i].advertised;
        public.port = (uint16_t)o->listening_port;
        err = peer_policy_deny_endpoint(c->policy, &public);
    }
    return err;
}

static int make_policy(struct server_config *c, const struct options *o) {
    const struct peer_policy_params params = {
        .allow_loopback = o->allow_loopback_peers,
        .allow_private = o->allow_private_peers,
    };
    int err = peer_policy_create(&c->policy, &params);
    err = err < 0 ? err : apply_ranges(c->policy, &o->allowed_peer_ip, "allowed-peer-ip", peer_policy_allow);
    err = err < 0 ? err : apply_ranges(c->policy, &o->denied_peer_ip, "denied-peer-ip", peer_policy_deny);
    return err < 0 ? err : deny_own_listeners(c, o);
}

/* ---- the rest ---- */

/* A secret that a fleet shares gives all its members the same key; else it is random for this process. */
static int make_nonce_key(struct server_config *c, const struct options *o) {
    static const char label[] = "turntable stateless nonce";
    if (o->stateless_nonce_secret == NULL || o->stateless_nonce_secret[0] == '\0') {
        return getrandom(c->nonce_key, sizeof c->nonce_key, 0) == sizeof c->nonce_key ? 0 : -EIO;
    }
    struct stun_crypto *crypto;
    int err = stun_crypto_create(&crypto);
    if (err < 0) {
        return err;
    }
    bool made = stun_hmac_sha256(crypto, c->nonce_key, sizeof c->nonce_key, o->stateless_nonce_secret,
                                 strlen(o->stateless_nonce_secret), label, sizeof label - 1);
    stun_crypto_destroy(crypto);
    return made ? 0 : -ENOMEM;
}

static void fill_core(struct server_config *c, const struct options *o) {
    struct core_config *core = &c->core;
    core->credentials = c->credentials;
    core->policy = c->policy;
    core->quota = c->quota;
    core->software = o->software_attribute ? SOFTWARE : NULL;
    core->nonce_key = c->nonce_key;
    core->nonce_lifetime_s = o->stale_nonce;
    core->max_allocate_lifetime_s = o->max_allocate_lifetime;
    core->channel_lifetime_s = o->channel_lifetime;
    core->permission_lifetime_s = o->permission_lifetime;
    core->max_peers = o->multiplex_peer_max_peers;
    core->fingerprint = o->fingerprint;
    core->stun_only = o->stun_only;
    core->no_stun = o->no_stun;
    core->secure_stun = o->secure_stun;
    core->no_udp_relay = o->no_udp_relay;
    core->channel_numbers_5766 = o->rfc5766_channel_numbers;
    core->backward_compatibility = o->stun_backward_compatibility;
    core->reason_strings = o->include_reason_string;
    const char *family = o->allocation_default_address_family;
    core->default_family = FAMILY_DEFAULT_IPV4;
    if (o->keep_address_family || (family != NULL && strcmp(family, "keep") == 0)) {
        core->default_family = FAMILY_DEFAULT_KEEP;
    } else if (family != NULL && strcmp(family, "ipv6") == 0) {
        core->default_family = FAMILY_DEFAULT_IPV6;
    }
}

static bool wants_shared(const struct options *o) {
    return o->multiplex_peer || (o->relay_addressing != NULL && strcmp(o->relay_addressing, "shared") == 0);
}

/* The number of threads is known only now when it is automatic. */
static int check_shared_ports(const struct server_config *c, const struct options *o) {
    if (!c->shared) {
        return 0;
    }
    struct option_report report = {0};
    int err = options_check_shared_ports(o, c->n_threads, &report);
    for (size_t i = 0; i < report.n_messages; i++) {
        log_error("%s", report.messages[i].text);
    }
    option_report_deinit(&report);
    return err;
}

int server_config_create(struct server_config **out, const struct options *options) {
    *out = NULL;
    struct server_config *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return -ENOMEM;
    }
    c->core.realm = options->realm != NULL ? options->realm : "";
    c->n_threads = options->relay_threads;
    if (c->n_threads == 0) {
        c->n_threads = options->cpus > 0 ? options->cpus : usable_processors();
    }
    c->shared = wants_shared(options);
    c->shared_pairs = options->multiplex_peer_ports;
    int err = check_shared_ports(c, options);
    err = err < 0 ? err : choose_listening(c, options);
    err = err < 0 ? err : choose_relay_ips(c, options);
    err = err < 0 ? err : make_credentials(c, options);
    err = err < 0 ? err : make_policy(c, options);
    err = err < 0 ? err : quota_create(&c->quota, options->user_quota, options->total_quota);
    err = err < 0 ? err : make_nonce_key(c, options);
    if (err < 0) {
        server_config_destroy(c);
        return err;
    }
    fill_core(c, options);
    *out = c;
    return 0;
}

void server_config_destroy(struct server_config *config) {
    if (config == NULL) {
        return;
    }
    credential_store_destroy(config->credentials);
    peer_policy_destroy(config->policy);
    quota_destroy(config->quota);
    free(config->listening);
    free(config->ips);
    explicit_bzero(config->nonce_key, sizeof config->nonce_key);
    free(config);
}
