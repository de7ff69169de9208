/* What options say together: what one implies for another, and what does not fit. */
#include "options_internal.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "endpoint.h"

enum { RANGE_TEXT_BYTES = 2 * ENDPOINT_TEXT_BYTES, HOST_NAME_BYTES = 256, KEY_HEX_DIGITS = 32 };

#define ERROR_AT(id, ...) option_report_add(report, OPTION_ERROR, &o->origins[OPTIONS_ID_##id], __VA_ARGS__)
#define WARN_AT(id, ...) option_report_add(report, OPTION_WARNING, &o->origins[OPTIONS_ID_##id], __VA_ARGS__)
#define NOTE_AT(id, ...) option_report_add(report, OPTION_NOTE, &o->origins[OPTIONS_ID_##id], __VA_ARGS__)

/* ---------------------------------------------------------------- addresses */

static bool parse_ip(struct endpoint *out, const char *text) {
    return endpoint_parse(out, text, 0) == 0 && out->port == 0;
}

/* Both ends of a pair that `separator` divides. */
static bool parse_pair(const char *text, char separator, struct endpoint *first, const char **out_rest,
                       char buffer[RANGE_TEXT_BYTES]) {
    size_t n = strlen(text);
    if (n >= RANGE_TEXT_BYTES) {
        return false;
    }
    memcpy(buffer, text, n + 1);
    char *middle = strchr(buffer, separator);
    if (middle == NULL) {
        return false;
    }
    *middle = '\0';
    *out_rest = middle + 1;
    return parse_ip(first, buffer);
}

bool options_is_peer_range(const char *text) {
    char buffer[RANGE_TEXT_BYTES];
    struct endpoint first, last;
    const char *rest;
    if (strchr(text, '/') != NULL) {
        uint32_t bits;
        return parse_pair(text, '/', &first, &rest, buffer) &&
               option_parse_u32(&bits, rest, 0, (uint32_t)endpoint_ip_bytes(&first) * 8);
    }
    if (strchr(text, '-') != NULL) {
        return parse_pair(text, '-', &first, &rest, buffer) && parse_ip(&last, rest) &&
               first.family == last.family && memcmp(first.ip, last.ip, sizeof first.ip) <= 0;
    }
    return parse_ip(&first, text);
}

static void check_ranges(const struct option_list *list, const char *name, struct option_report *report) {
    for (size_t i = 0; i < list->n_items; i++) {
        if (!options_is_peer_range(list->items[i])) {
            option_report_add(report, OPTION_ERROR, &list->origins[i],
                              "%s: '%.80s' is wrong; expected an address, FIRST-LAST or ADDRESS/BITS", name,
                              list->items[i]);
        }
    }
}

static bool parse_external(const char *text, struct endpoint *out_public, bool *out_bare) {
    char buffer[RANGE_TEXT_BYTES];
    struct endpoint local;
    const char *rest;
    *out_bare = strchr(text, '/') == NULL;
    bool good = *out_bare ? parse_ip(out_public, text)
                          : parse_pair(text, '/', out_public, &rest, buffer) && parse_ip(&local, rest) &&
                                local.family == out_public->family;
    return good && !endpoint_is_unspecified(out_public);
}

static void check_external(const struct options *o, struct option_report *report) {
    bool bare4 = false, bare6 = false;
    for (size_t i = 0; i < o->external_ip.n_items; i++) {
        const char *text = o->external_ip.items[i];
        const struct option_origin *where = &o->external_ip.origins[i];
        struct endpoint public;
        bool bare;
        if (!parse_external(text, &public, &bare)) {
            option_report_add(report, OPTION_ERROR, where,
                              "external-ip: '%.80s' is wrong; expected PUBLIC, or PUBLIC/LOCAL of one family",
                              text);
            continue;
        }
        bool *seen = public.family == AF_INET6 ? &bare6 : &bare4;
        if (bare && *seen) {
            option_report_add(report, OPTION_ERROR, where,
                              "external-ip: a second bare address of one family; write PUBLIC/LOCAL pairs");
        }
        *seen = *seen || bare;
    }
}

static void check_relay_ips(const struct options *o, struct option_report *report) {
    for (size_t i = 0; i < o->relay_ip.n_items; i++) {
        struct endpoint ip;
        if (endpoint_parse(&ip, o->relay_ip.items[i], 0) == 0 && endpoint_is_unspecified(&ip)) {
            option_report_add(
                report, OPTION_ERROR, &o->relay_ip.origins[i],
                "relay-ip: %s is told to clients and cannot be reached; give an address of this "
                "machine, or leave relay-ip out",
                o->relay_ip.items[i]);
        }
    }
}

/* ---------------------------------------------------------------- ports */

int options_check_shared_ports(const struct options *o, uint32_t n_threads, struct option_report *report) {
    uint64_t last = (uint64_t)o->multiplex_peer_port + 2 * (uint64_t)n_threads * o->multiplex_peer_ports - 1;
    if (last <= 65535) {
        return 0;
    }
    ERROR_AT(multiplex_peer_port,
             "multiplex-peer-port: %u threads with %u pairs of ports each, from %u on, would end at port "
             "%llu, above "
             "65535",
             n_threads, o->multiplex_peer_ports, o->multiplex_peer_port, (unsigned long long)last);
    return -EINVAL;
}

static int replace_string(char **field, const char *text) {
    char *copy = strdup(text);
    if (copy == NULL) {
        return -ENOMEM;
    }
    free(*field);
    *field = copy;
    return 0;
}

/* relay-addressing=shared and multiplex-peer are one thing under two names. */
static int check_addressing(struct options *o, struct option_report *report) {
    if (strcmp(o->relay_addressing, "steered") == 0) {
        ERROR_AT(relay_addressing,
                 "relay-addressing: steered is not in this version; use auto, dedicated or shared");
        return 0;
    }
    if (o->multiplex_peer && strcmp(o->relay_addressing, "dedicated") == 0) {
        ERROR_AT(relay_addressing,
                 "relay-addressing=dedicated contradicts multiplex-peer; leave one of them out");
        return 0;
    }
    if (strcmp(o->relay_addressing, "shared") == 0) {
        if (options_is_set(o, OPTIONS_ID_multiplex_peer) && !o->multiplex_peer) {
            ERROR_AT(multiplex_peer, "multiplex-peer=false contradicts relay-addressing=shared");
        }
        o->multiplex_peer = true;
    }
    if (!o->multiplex_peer) {
        return 0;
    }
    uint32_t n_threads = o->relay_threads != 0 ? o->relay_threads : o->cpus != 0 ? o->cpus : 1;
    (void)options_check_shared_ports(o, n_threads, report);
    return replace_string(&o->relay_addressing, "shared");
}

static void check_ports(const struct options *o, struct option_report *report) {
    if (o->min_port > o->max_port) {
        enum options_id id =
            options_is_set(o, OPTIONS_ID_min_port) ? OPTIONS_ID_min_port : OPTIONS_ID_max_port;
        option_report_add(report, OPTION_ERROR, &o->origins[id], "min-port %u is above max-port %u",
                          o->min_port, o->max_port);
    }
    if (o->no_udp) {
        ERROR_AT(no_udp, "no-udp: this version serves UDP clients only, so nothing would be served");
    }
    if (o->no_udp_relay && o->no_tcp_relay) {
        ERROR_AT(no_udp_relay,
                 "no-udp-relay together with no-tcp-relay leaves nothing to relay; for a STUN server "
                 "use stun-only");
    }
    if (o->stun_only && o->no_stun) {
        ERROR_AT(no_stun, "no-stun together with stun-only leaves nothing to serve");
    }
}

/* ---------------------------------------------------------------- credentials */

static bool is_key(const char *text) {
    size_t n = 0;
    while (isxdigit((unsigned char)text[n])) {
        n++;
    }
    return n == KEY_HEX_DIGITS && text[n] == '\0';
}

/* Never shows the line: without a colon it may be a password. */
static void check_user(const char *line, const struct option_origin *where, struct option_report *report) {
    const char *colon = strchr(line, ':');
    if (colon == NULL || colon == line || colon[1] == '\0') {
        option_report_add(report, OPTION_ERROR, where,
                          "user: malformed, expected NAME:PASSWORD or NAME:0xKEY; %s",
                          colon == NULL ? "there is no ':'" : "a part is empty");
    } else if (strncmp(colon + 1, "0x", 2) == 0 && !is_key(colon + 3)) {
        option_report_add(report, OPTION_ERROR, where,
                          "user: malformed, the key of %.*s has not %d hexadecimal digits",
                          (int)(colon - line), line, KEY_HEX_DIGITS);
    }
}

static void check_contradictions(const struct options *o, struct option_report *report) {
    if (o->no_auth && (o->lt_cred_mech || o->use_auth_secret || o->static_auth_secret.n_items > 0)) {
        ERROR_AT(no_auth, "no-auth contradicts %s; leave one of them out",
                 o->lt_cred_mech      ? "lt-cred-mech"
                 : o->use_auth_secret ? "use-auth-secret"
                                      : "static-auth-secret");
    } else if (o->no_auth && o->user.n_items > 0) {
        WARN_AT(no_auth,
                "no-auth: everybody is served without credentials, so the user lines have no effect");
    } else if (o->no_auth) {
        WARN_AT(no_auth, "no-auth: everybody is served without credentials");
    }
    if (options_is_set(o, OPTIONS_ID_use_auth_secret) && !o->use_auth_secret &&
        o->static_auth_secret.n_items > 0) {
        ERROR_AT(use_auth_secret,
                 "use-auth-secret=false contradicts static-auth-secret; leave one of them out");
    }
    if (options_is_set(o, OPTIONS_ID_lt_cred_mech) && !o->lt_cred_mech && !o->no_auth &&
        o->user.n_items > 0) {
        ERROR_AT(lt_cred_mech, "lt-cred-mech=false contradicts user; leave one of them out");
    }
}

static bool needs_credentials(const struct options *o) {
    return !o->no_auth && (!o->stun_only || o->secure_stun);
}

static void check_credentials(struct options *o, struct option_report *report) {
    for (size_t i = 0; i < o->user.n_items; i++) {
        check_user(o->user.items[i], &o->user.origins[i], report);
    }
    check_contradictions(o, report);
    if (needs_credentials(o) && o->user.n_items == 0 && o->static_auth_secret.n_items == 0) {
        option_report_add(
            report, OPTION_ERROR, NULL,
            "nobody could log in: add static-auth-secret=SECRET, or lt-cred-mech and user=NAME:PASSWORD, "
            "or no-auth to serve everybody, or stun-only");
    }
    o->use_auth_secret = o->use_auth_secret || o->static_auth_secret.n_items > 0;
    o->lt_cred_mech = o->lt_cred_mech || (o->user.n_items > 0 && !o->no_auth);
    if (strlen(o->rest_api_separator) != 1) {
        ERROR_AT(rest_api_separator, "rest-api-separator: expected one character");
    }
}

/* The machine's domain, or what follows the first dot of its name. */
static bool find_domain(char out[HOST_NAME_BYTES]) {
    if (getdomainname(out, HOST_NAME_BYTES - 1) == 0 && out[0] != '\0' && strcmp(out, "(none)") != 0) {
        out[HOST_NAME_BYTES - 1] = '\0';
        return true;
    }
    char host[HOST_NAME_BYTES];
    if (gethostname(host, sizeof host - 1) < 0) {
        return false;
    }
    host[sizeof host - 1] = '\0';
    const char *dot = strchr(host, '.');
    if (dot == NULL || dot[1] == '\0') {
        return false;
    }
    snprintf(out, HOST_NAME_BYTES, "%s", dot + 1);
    return true;
}

static int check_realm(struct options *o, struct option_report *report) {
    char domain[HOST_NAME_BYTES];
    if (o->realm != NULL || !needs_credentials(o)) {
        return 0;
    }
    if (!find_domain(domain)) {
        option_report_add(report, OPTION_ERROR, NULL,
                          "no realm is given and this machine has no domain name: add realm=example.org");
        return 0;
    }
    option_report_add(report, OPTION_WARNING, NULL,
                      "no realm is given; the domain of this machine is taken: %s", domain);
    return replace_string(&o->realm, domain);
}

/* ---------------------------------------------------------------- the rest */

static void check_facility(const struct options *o, struct option_report *report) {
    static const char *const known[] = {
        "auth", "authpriv", "cron",   "daemon", "ftp",    "kern",   "lpr",    "mail",   "news",   "syslog",
        "user", "uucp",     "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"};
    const char *facility = o->syslog_facility;
    if (facility == NULL) {
        return;
    }
    facility += strncasecmp(facility, "LOG_", 4) == 0 ? 4 : 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcasecmp(facility, known[i]) == 0) {
            return;
        }
    }
    ERROR_AT(syslog_facility, "syslog-facility: '%.80s' is not known", o->syslog_facility);
}

static void check_process(const struct options *o, struct option_report *report) {
    check_facility(o, report);
    if (o->proc_user != NULL && getpwnam(o->proc_user) == NULL) {
        ERROR_AT(proc_user, "proc-user: there is no user %.80s", o->proc_user);
    }
    if (o->proc_group != NULL && getgrnam(o->proc_group) == NULL) {
        ERROR_AT(proc_group, "proc-group: there is no group %.80s", o->proc_group);
    }
    if (o->allow_loopback_peers) {
        WARN_AT(allow_loopback_peers,
                "allow-loopback-peers: clients reach services on this machine's loopback");
    }
}

static void check_software(struct options *o, struct option_report *report) {
    if (!options_is_set(o, OPTIONS_ID_no_software_attribute)) {
        return;
    }
    if (options_is_set(o, OPTIONS_ID_software_attribute) &&
        o->software_attribute == o->no_software_attribute) {
        ERROR_AT(no_software_attribute,
                 "no-software-attribute contradicts software-attribute; leave one of them out");
    }
    o->software_attribute = !o->no_software_attribute;
}

static int check_family(struct options *o, struct option_report *report) {
    bool is_keep = strcmp(o->allocation_default_address_family, "keep") == 0;
    if (o->keep_address_family && !is_keep &&
        options_is_set(o, OPTIONS_ID_allocation_default_address_family)) {
        ERROR_AT(keep_address_family, "keep-address-family contradicts allocation-default-address-family=%s",
                 o->allocation_default_address_family);
        return 0;
    }
    o->keep_address_family = o->keep_address_family || is_keep;
    return o->keep_address_family ? replace_string(&o->allocation_default_address_family, "keep") : 0;
}

static void check_nonce(struct options *o, struct option_report *report) {
    if (!o->stateless_nonce) {
        NOTE_AT(stateless_nonce, "stateless-nonce=false has no effect; nonces are always stateless");
        o->stateless_nonce = true;
    }
}

int options_check(struct options *o, struct option_report *report) {
    check_ranges(&o->allowed_peer_ip, "allowed-peer-ip", report);
    check_ranges(&o->denied_peer_ip, "denied-peer-ip", report);
    check_external(o, report);
    check_relay_ips(o, report);
    check_ports(o, report);
    check_credentials(o, report);
    check_process(o, report);
    check_software(o, report);
    check_nonce(o, report);
    o->verbose = o->verbose || o->very_verbose;
    int err = check_addressing(o, report);
    err = err < 0 ? err : check_family(o, report);
    err = err < 0 ? err : check_realm(o, report);
    err = err < 0 ? err : options_check_certificates(o, report);
    err = err < 0 ? err : options_check_served(o, report);
    if (err < 0) {
        return err;
    }
    return report->n_errors > 0 ? -EINVAL : 0;
}
