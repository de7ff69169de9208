#include "peer_policy.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* An address as a number: IPv4 in the low 32 bits of lo. */
struct address {
    uint64_t hi, lo;
    bool is_v6;
};

struct range {
    struct address first, last;
    char *rule; /* as written, owned */
};

struct range_list {
    struct range *items;
    size_t n_items;
};

struct endpoint_list {
    struct endpoint *items;
    size_t n_items;
};

struct peer_policy {
    struct peer_policy_params params;
    struct range_list allowed, denied;
    struct endpoint_list own, local;
    /* First octets that any deny rule touches, by family: most peers are let through by one look. */
    uint8_t touched[2][256 / 8];
};

/* ---- what is refused unless it is allowed by name (IANA special-purpose registries) ---- */

enum builtin_kind { BUILTIN_ALWAYS, BUILTIN_LOOPBACK, BUILTIN_PRIVATE };

/* Documentation ranges are not here: nothing lives there but test suites. */
static const struct builtin {
    const char *prefix;
    uint8_t bits;
    bool is_v6;
    uint8_t ip[16];
    enum builtin_kind kind;
} builtins[] = {
    {"0.0.0.0/8 (this host)", 8, false, {0}, BUILTIN_ALWAYS},
    {"127.0.0.0/8 (loopback)", 8, false, {127}, BUILTIN_LOOPBACK},
    {"169.254.0.0/16 (link-local)", 16, false, {169, 254}, BUILTIN_ALWAYS},
    {"192.0.0.0/24 (IETF protocols)", 24, false, {192, 0, 0}, BUILTIN_ALWAYS},
    {"192.88.99.0/24 (6to4 relays)", 24, false, {192, 88, 99}, BUILTIN_ALWAYS},
    {"224.0.0.0/4 (multicast)", 4, false, {224}, BUILTIN_ALWAYS},
    {"255.255.255.255/32 (broadcast)", 32, false, {255, 255, 255, 255}, BUILTIN_ALWAYS},
    {"240.0.0.0/4 (reserved)", 4, false, {240}, BUILTIN_ALWAYS},
    {"10.0.0.0/8 (private)", 8, false, {10}, BUILTIN_PRIVATE},
    {"172.16.0.0/12 (private)", 12, false, {172, 16}, BUILTIN_PRIVATE},
    {"192.168.0.0/16 (private)", 16, false, {192, 168}, BUILTIN_PRIVATE},
    {"100.64.0.0/10 (shared)", 10, false, {100, 64}, BUILTIN_PRIVATE},
    {"198.18.0.0/15 (benchmarking)", 15, false, {198, 18}, BUILTIN_PRIVATE},
    {"::/128 (unspecified)", 128, true, {0}, BUILTIN_ALWAYS},
    {"::1/128 (loopback)", 128, true, {[15] = 1}, BUILTIN_LOOPBACK},
    {"100::/64 (discard)", 64, true, {1, 0}, BUILTIN_ALWAYS},
    {"2001:2::/48 (benchmarking)", 48, true, {0x20, 0x01, 0, 0x02}, BUILTIN_PRIVATE},
    {"5f00::/16 (segment routing)", 16, true, {0x5f, 0}, BUILTIN_ALWAYS},
    {"fc00::/7 (unique-local)", 7, true, {0xfc}, BUILTIN_ALWAYS},
    {"fe80::/10 (link-local)", 10, true, {0xfe, 0x80}, BUILTIN_ALWAYS},
    {"fec0::/10 (site-local)", 10, true, {0xfe, 0xc0}, BUILTIN_ALWAYS},
    {"ff00::/8 (multicast)", 8, true, {0xff}, BUILTIN_ALWAYS},
};
enum { N_BUILTINS = sizeof builtins / sizeof builtins[0] };

static const char own_endpoint_rule[] = "own endpoint";

/* ---- addresses ---- */

static uint64_t load_u64(const uint8_t *p) {
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

static struct address address_of_v4(const uint8_t ip[4]) {
    uint32_t v = (uint32_t)ip[0] << 24 | (uint32_t)ip[1] << 16 | (uint32_t)ip[2] << 8 | ip[3];
    return (struct address){.hi = 0, .lo = v, .is_v6 = false};
}

static struct address address_of_v6(const uint8_t ip[16]) {
    return (struct address){.hi = load_u64(ip), .lo = load_u64(ip + 8), .is_v6 = true};
}

static struct address address_of(const struct endpoint *e) {
    return e->family == AF_INET6 ? address_of_v6(e->ip) : address_of_v4(e->ip);
}

static int address_compare(const struct address *a, const struct address *b) {
    if (a->hi != b->hi) {
        return a->hi < b->hi ? -1 : 1;
    }
    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

static bool address_in(const struct address *a, const struct address *first, const struct address *last) {
    return a->is_v6 == first->is_v6 && address_compare(first, a) <= 0 && address_compare(a, last) <= 0;
}

static uint8_t first_octet(const struct address *a) {
    return (uint8_t)(a->is_v6 ? a->hi >> 56 : a->lo >> 24);
}

/* The ends of the block of `bits` leading bits that a lies in. */
static void block_of(const struct address *a, unsigned bits, struct address *first, struct address *last) {
    *first = *last = *a;
    if (!a->is_v6) {
        uint64_t host = bits >= 32 ? 0 : UINT32_MAX >> bits;
        first->lo &= ~host;
        last->lo |= host;
        return;
    }
    uint64_t host_hi = bits >= 64 ? 0 : UINT64_MAX >> bits;
    uint64_t host_lo = bits >= 128 ? 0 : bits <= 64 ? UINT64_MAX : UINT64_MAX >> (bits - 64);
    first->hi &= ~host_hi, first->lo &= ~host_lo;
    last->hi |= host_hi, last->lo |= host_lo;
}

/* ---- spellings: IPv4 inside IPv6 ---- */

enum { MAX_SPELLINGS = 4 };

/* Every address that a datagram to it may reach: itself, and the IPv4 addresses found inside. */
struct spellings {
    struct address items[MAX_SPELLINGS];
    size_t n_items;
};

static void add_v4(struct spellings *s, const uint8_t v4[4]) {
    assert(s->n_items < MAX_SPELLINGS);
    s->items[s->n_items++] = address_of_v4(v4);
}

static bool starts_with(const uint8_t ip[16], const uint8_t *prefix, size_t n) {
    return memcmp(ip, prefix, n) == 0;
}

/* IPv4-mapped ::ffff:0:0/96, IPv4-translated ::ffff:0:0:0/96 (RFC 2765) and IPv4-compatible ::/96. Returns
 * false when the address has none of these forms. */
static bool add_zero_prefixed(struct spellings *s, const uint8_t ip[16]) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t translated[12] = {[8] = 0xff, [9] = 0xff};
    static const uint8_t compatible[12] = {0};
    bool is_embedded = starts_with(ip, mapped, 12) || starts_with(ip, translated, 12);
    if (!is_embedded && starts_with(ip, compatible, 12)) {
        /* :: and ::1 are addresses of their own. */
        is_embedded = ip[12] != 0 || ip[13] != 0 || ip[14] != 0 || ip[15] > 1;
    }
    if (is_embedded) {
        add_v4(s, ip + 12);
    }
    return is_embedded;
}

/* 64:ff9b:1::/48 (RFC 8215) holds IPv4 as a /48 prefix does (RFC 6052, 2.2: around the zero octet 8) or, when
 * the network uses /96 prefixes inside it, in the last four octets. Whichever can be meant is looked at. */
static void add_local_nat64(struct spellings *s, const uint8_t ip[16]) {
    const uint8_t split[4] = {ip[6], ip[7], ip[9], ip[10]};
    bool has_tail = ip[12] != 0 || ip[13] != 0 || ip[14] != 0 || ip[15] != 0;
    if (has_tail) {
        add_v4(s, ip + 12);
    }
    if (split[0] != 0 || !has_tail) {
        add_v4(s, split);
    }
}

static void find_spellings(struct spellings *s, const struct endpoint *e) {
    static const uint8_t six_to_four[2] = {0x20, 0x02};
    static const uint8_t teredo[4] = {0x20, 0x01, 0, 0};
    static const uint8_t nat64[12] = {0, 0x64, 0xff, 0x9b};
    static const uint8_t local_nat64[6] = {0, 0x64, 0xff, 0x9b, 0, 1};
    const uint8_t *ip = e->ip;
    s->items[0] = address_of(e);
    s->n_items = 1;
    if (e->family != AF_INET6 || add_zero_prefixed(s, ip)) {
        return;
    }
    if (starts_with(ip, six_to_four, 2)) {
        add_v4(s, ip + 2);
    } else if (starts_with(ip, teredo, 4)) {
        const uint8_t client[4] = {ip[12] ^ 0xff, ip[13] ^ 0xff, ip[14] ^ 0xff,
                                   ip[15] ^ 0xff}; /* RFC 4380, 4 */
        add_v4(s, client);
    } else if (starts_with(ip, nat64, 12)) {
        add_v4(s, ip + 12);
    } else if (starts_with(ip, local_nat64, 6)) {
        add_local_nat64(s, ip);
    }
    /* ISATAP interface identifiers (RFC 5214, 6.1) stand behind any prefix. */
    if ((ip[8] & 0xfd) == 0 && ip[9] == 0 && ip[10] == 0x5e && ip[11] == 0xfe) {
        add_v4(s, ip + 12);
    }
}

/* ---- building ---- */

static void touch(struct peer_policy *policy, const struct address *first, const struct address *last) {
    for (unsigned octet = first_octet(first); octet <= first_octet(last); octet++) {
        policy->touched[first->is_v6][octet / 8] |= (uint8_t)(1u << (octet % 8));
    }
}

static bool builtin_applies(const struct peer_policy *policy, const struct builtin *b) {
    return b->kind == BUILTIN_ALWAYS || (b->kind == BUILTIN_LOOPBACK && !policy->params.allow_loopback) ||
           (b->kind == BUILTIN_PRIVATE && !policy->params.allow_private);
}

static void builtin_range(const struct builtin *b, struct address *first, struct address *last) {
    struct address a = b->is_v6 ? address_of_v6(b->ip) : address_of_v4(b->ip);
    block_of(&a, b->bits, first, last);
}

int peer_policy_create(struct peer_policy **out, const struct peer_policy_params *params) {
    struct peer_policy *policy = calloc(1, sizeof *policy);
    if (policy == NULL) {
        return -ENOMEM;
    }
    policy->params = *params;
    for (size_t i = 0; i < N_BUILTINS; i++) {
        struct address first, last;
        builtin_range(&builtins[i], &first, &last);
        if (builtin_applies(policy, &builtins[i])) {
            touch(policy, &first, &last);
        }
    }
    *out = policy;
    return 0;
}

static void range_list_free(struct range_list *list) {
    for (size_t i = 0; i < list->n_items; i++) {
        free(list->items[i].rule);
    }
    free(list->items);
}

void peer_policy_destroy(struct peer_policy *policy) {
    if (policy == NULL) {
        return;
    }
    range_list_free(&policy->allowed);
    range_list_free(&policy->denied);
    free(policy->own.items);
    free(policy->local.items);
    free(policy);
}

/* An IP alone: no port, no brackets, no zone. */
static bool parse_ip(struct endpoint *out, const char *text, size_t n_text) {
    char buffer[INET6_ADDRSTRLEN];
    if (n_text == 0 || n_text >= sizeof buffer) {
        return false;
    }
    memcpy(buffer, text, n_text);
    buffer[n_text] = '\0';
    *out = (struct endpoint){.family = AF_INET};
    if (inet_pton(AF_INET, buffer, out->ip) == 1) {
        return true;
    }
    out->family = AF_INET6;
    return inet_pton(AF_INET6, buffer, out->ip) == 1;
}

static bool parse_bits(unsigned *out, const char *text, unsigned max) {
    unsigned bits = 0;
    if (*text == '\0' || strlen(text) > 3) {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            return false;
        }
        bits = bits * 10 + (unsigned)(*text - '0');
    }
    *out = bits;
    return bits <= max;
}

/* A range written in IPv4-mapped form means the IPv4 addresses. */
static void unmap(struct range *range) {
    const uint64_t mapped = UINT64_C(0xffff);
    if (range->first.is_v6 && range->first.hi == 0 && range->last.hi == 0 &&
        range->first.lo >> 32 == mapped && range->last.lo >> 32 == mapped) {
        range->first = (struct address){.lo = range->first.lo & UINT32_MAX};
        range->last = (struct address){.lo = range->last.lo & UINT32_MAX};
    }
}

static bool parse_range(struct range *out, const char *text) {
    struct endpoint first, last;
    const char *slash = strchr(text, '/'), *dash = strchr(text, '-');
    size_t n_first = slash != NULL  ? (size_t)(slash - text)
                     : dash != NULL ? (size_t)(dash - text)
                                    : strlen(text);
    if (!parse_ip(&first, text, n_first)) {
        return false;
    }
    out->first = out->last = address_of(&first);
    if (slash != NULL) {
        unsigned bits;
        if (!parse_bits(&bits, slash + 1, first.family == AF_INET6 ? 128 : 32)) {
            return false;
        }
        struct address inside = out->first;
        block_of(&inside, bits, &out->first, &out->last);
    } else if (dash != NULL) {
        if (!parse_ip(&last, dash + 1, strlen(dash + 1)) || last.family != first.family) {
            return false;
        }
        out->last = address_of(&last);
    }
    unmap(out);
    return address_compare(&out->first, &out->last) <= 0;
}

static int range_list_add(struct range_list *list, const char *text, struct range *range) {
    if (!parse_range(range, text)) {
        return -EINVAL;
    }
    struct range *items = realloc(list->items, (list->n_items + 1) * sizeof *items);
    if (items == NULL) {
        return -ENOMEM;
    }
    list->items = items;
    range->rule = strdup(text);
    if (range->rule == NULL) {
        return -ENOMEM;
    }
    items[list->n_items++] = *range;
    return 0;
}

int peer_policy_allow(struct peer_policy *policy, const char *range) {
    struct range parsed;
    return range_list_add(&policy->allowed, range, &parsed);
}

int peer_policy_deny(struct peer_policy *policy, const char *range) {
    struct range parsed;
    int err = range_list_add(&policy->denied, range, &parsed);
    if (err == 0) {
        touch(policy, &parsed.first, &parsed.last);
    }
    return err;
}

/* IPv4-mapped endpoints are kept as IPv4. */
static struct endpoint reduced(const struct endpoint *e) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct endpoint out = *e;
    if (e->family == AF_INET6 && memcmp(e->ip, mapped, 12) == 0) {
        out = (struct endpoint){.family = AF_INET, .port = e->port};
        memcpy(out.ip, e->ip + 12, 4);
    }
    return out;
}

static int endpoint_list_add(struct endpoint_list *list, const struct endpoint *e) {
    struct endpoint *items = realloc(list->items, (list->n_items + 1) * sizeof *items);
    if (items == NULL) {
        return -ENOMEM;
    }
    list->items = items;
    items[list->n_items++] = reduced(e);
    return 0;
}

int peer_policy_deny_endpoint(struct peer_policy *policy, const struct endpoint *own) {
    return endpoint_list_add(&policy->own, own);
}

int peer_policy_add_local(struct peer_policy *policy, const struct endpoint *ip) {
    return endpoint_list_add(&policy->local, ip);
}

/* ---- deciding ---- */

static const char *range_list_find(const struct range_list *list, const struct address *a) {
    for (size_t i = 0; i < list->n_items; i++) {
        if (address_in(a, &list->items[i].first, &list->items[i].last)) {
            return list->items[i].rule;
        }
    }
    return NULL;
}

static const char *builtin_find(const struct peer_policy *policy, const struct address *a) {
    for (size_t i = 0; i < N_BUILTINS; i++) {
        struct address first, last;
        builtin_range(&builtins[i], &first, &last);
        if (address_in(a, &first, &last) && builtin_applies(policy, &builtins[i])) {
            return builtins[i].prefix;
        }
    }
    return NULL;
}

static bool allows_address(const struct peer_policy *policy, const struct address *a, const char **out_rule) {
    uint8_t octet = first_octet(a);
    if ((policy->touched[a->is_v6][octet / 8] >> (octet % 8) & 1) == 0) {
        return true;
    }
    const char *rule = range_list_find(&policy->allowed, a);
    if (rule != NULL) {
        *out_rule = rule;
        return true;
    }
    rule = range_list_find(&policy->denied, a);
    if (rule == NULL) {
        rule = builtin_find(policy, a);
    }
    if (rule != NULL) {
        *out_rule = rule;
    }
    return rule == NULL;
}

static bool is_loopback(const struct address *a) {
    return a->is_v6 ? a->hi == 0 && a->lo == 1 : a->lo >> 24 == 127;
}

static bool is_address(const struct endpoint *e, const struct address *a) {
    struct address other = address_of(e);
    return other.is_v6 == a->is_v6 && address_compare(&other, a) == 0;
}

/* A listener on a wildcard address can be reached at every local address. */
static bool is_local(const struct peer_policy *policy, const struct address *a) {
    if (is_loopback(a)) {
        return true;
    }
    for (size_t i = 0; i < policy->local.n_items; i++) {
        if (is_address(&policy->local.items[i], a)) {
            return true;
        }
    }
    return false;
}

static bool is_own_endpoint(const struct peer_policy *policy, const struct address *a, uint16_t port) {
    for (size_t i = 0; i < policy->own.n_items; i++) {
        const struct endpoint *own = &policy->own.items[i];
        if (own->port == port && (endpoint_is_unspecified(own) ? is_local(policy, a) : is_address(own, a))) {
            return true;
        }
    }
    return false;
}

/* Each spelling has to pass by itself, so that allowing a translation prefix opens no more than it says. Own
 * endpoints stay shut even inside an allowed range: a media server beside us is a reason to allow our IP, not
 * our admin port. */
bool peer_policy_allows(const struct peer_policy *policy, const struct endpoint *peer,
                        const char **out_rule) {
    struct spellings spellings;
    *out_rule = NULL;
    find_spellings(&spellings, peer);
    for (size_t i = 0; i < spellings.n_items; i++) {
        const struct address *a = &spellings.items[i];
        if (!allows_address(policy, a, out_rule)) {
            return false;
        }
        if (peer->port != 0 && is_own_endpoint(policy, a, peer->port)) {
            *out_rule = own_endpoint_rule;
            return false;
        }
    }
    return true;
}
