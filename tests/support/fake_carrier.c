#include "fake_carrier.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { REMOTES_MAX = 16, SHARED_MAX = 16, IDS_PER_KIND = 100000 };

struct dedicated_slot {
    struct relayed_address address;
    bool in_use;
    bool reserved; /* waits for its token, which is its index + 1 */
};

struct remote_address {
    uint32_t thread;
    struct endpoint local, advertised;
};

struct fake_carrier_state {
    struct fake_carrier_params params;
    struct relayed_address shared[RELAY_FAMILIES][SHARED_MAX];
    uint32_t n_shared, next_shared;
    struct dedicated_slot *dedicated; /* slot i has port FAKE_CARRIER_FIRST_PORT + i */
    uint32_t n_dedicated;
    struct remote_address remotes[REMOTES_MAX];
    uint32_t n_remotes;
};

static void address_set(const struct fake_carrier_state *s, struct relayed_address *a,
                        enum relay_family family, uint16_t port) {
    int err = endpoint_parse(&a->local, family == RELAY_V4 ? "192.0.2.1" : "2001:db8::1", port);
    assert(err == 0);
    a->advertised = a->local;
    if (family == RELAY_V4 && s->params.advertised_v4 != NULL) {
        err = endpoint_parse(&a->advertised, s->params.advertised_v4, port);
        assert(err == 0);
    }
    (void)err;
}

static bool fake_serves(void *context, enum relay_family family) {
    const struct fake_carrier *c = context;
    return !(family == RELAY_V4 ? c->state->params.no_v4 : c->state->params.no_v6);
}

static struct relayed_address *take_reserved(struct fake_carrier_state *s, const uint8_t *token) {
    uint32_t index_plus_1 = 0;
    memcpy(&index_plus_1, token, sizeof index_plus_1);
    if (index_plus_1 == 0 || index_plus_1 > s->n_dedicated || !s->dedicated[index_plus_1 - 1].reserved) {
        return NULL;
    }
    struct dedicated_slot *slot = &s->dedicated[index_plus_1 - 1];
    slot->reserved = false;
    slot->in_use = true;
    return &slot->address;
}

static bool slot_is_free(const struct fake_carrier_state *s, uint32_t i) {
    return i < s->n_dedicated && !s->dedicated[i].in_use && !s->dedicated[i].reserved;
}

static struct relayed_address *take_dedicated(struct fake_carrier_state *s,
                                              const struct relay_request *request, uint8_t *out_token) {
    for (uint32_t i = 0; i < s->n_dedicated; i += request->even_port ? 2 : 1) {
        if (!slot_is_free(s, i) || (request->reserve_next && !slot_is_free(s, i + 1))) {
            continue;
        }
        s->dedicated[i].in_use = true;
        address_set(s, &s->dedicated[i].address, request->family, (uint16_t)(FAKE_CARRIER_FIRST_PORT + i));
        if (request->reserve_next) {
            uint32_t index_plus_1 = i + 2;
            s->dedicated[i + 1].reserved = true;
            address_set(s, &s->dedicated[i + 1].address, request->family,
                        (uint16_t)(FAKE_CARRIER_FIRST_PORT + i + 1));
            memset(out_token, 0, STUN_RESERVATION_TOKEN_BYTES);
            memcpy(out_token, &index_plus_1, sizeof index_plus_1);
        }
        return &s->dedicated[i].address;
    }
    return NULL;
}

static enum stun_status fake_acquire(void *context, const struct relay_request *request,
                                     struct relayed_address **out,
                                     uint8_t out_token[STUN_RESERVATION_TOKEN_BYTES]) {
    struct fake_carrier *c = context;
    struct fake_carrier_state *s = c->state;
    if (c->refuse != STUN_OK) {
        if (c->refuse_after == 0) {
            return c->refuse;
        }
        c->refuse_after--;
    }
    struct relayed_address *a = NULL;
    if (request->token != NULL) {
        a = take_reserved(s, request->token);
    } else if (!fake_serves(c, request->family)) {
        return STUN_ADDRESS_FAMILY_NOT_SUPPORTED;
    } else if (s->params.shared && !request->even_port) {
        a = &s->shared[request->family][s->next_shared++ % s->n_shared];
    } else if (!s->params.shared || s->params.even_port_dedicated) {
        a = take_dedicated(s, request, out_token);
    }
    if (a == NULL) {
        return STUN_INSUFFICIENT_CAPACITY;
    }
    c->n_held++;
    c->n_acquires++;
    *out = a;
    return STUN_OK;
}

static void fake_release(void *context, struct relayed_address *address) {
    struct fake_carrier *c = context;
    assert(c->n_held > 0);
    c->n_held--;
    c->n_releases++;
    if (!address->shared) {
        struct dedicated_slot *slot = (struct dedicated_slot *)address;
        assert(slot->in_use);
        slot->in_use = false;
    }
}

static bool address_is(const struct endpoint *local, const struct endpoint *advertised,
                       const struct endpoint *peer) {
    return endpoint_equal(local, peer) || endpoint_equal(advertised, peer);
}

static bool locate_own(const struct fake_carrier_state *s, const struct endpoint *peer,
                       struct relay_location *out) {
    out->thread = s->params.thread;
    for (uint32_t i = 0; s->params.shared && i < s->n_shared; i++) {
        const struct relayed_address *a = &s->shared[relay_family_of(peer)][i];
        if (address_is(&a->local, &a->advertised, peer)) {
            out->local = a->local;
            return true;
        }
    }
    uint32_t at = (uint32_t)peer->port - FAKE_CARRIER_FIRST_PORT;
    if (at < s->n_dedicated && s->dedicated[at].in_use &&
        address_is(&s->dedicated[at].address.local, &s->dedicated[at].address.advertised, peer)) {
        out->local = s->dedicated[at].address.local;
        return true;
    }
    return false;
}

static bool fake_locate(void *context, const struct endpoint *peer, struct relay_location *out) {
    const struct fake_carrier_state *s = ((struct fake_carrier *)context)->state;
    for (uint32_t i = 0; i < s->n_remotes; i++) {
        if (address_is(&s->remotes[i].local, &s->remotes[i].advertised, peer)) {
            *out = (struct relay_location){.thread = s->remotes[i].thread, .local = s->remotes[i].local};
            return true;
        }
    }
    return locate_own(s, peer, out);
}

void fake_carrier_add_remote(struct fake_carrier *carrier, uint32_t thread, const char *local,
                             const char *advertised) {
    struct fake_carrier_state *s = carrier->state;
    assert(s->n_remotes < REMOTES_MAX);
    struct remote_address *r = &s->remotes[s->n_remotes++];
    r->thread = thread;
    int err = endpoint_parse(&r->local, local, 0);
    err |= endpoint_parse(&r->advertised, advertised, 0);
    assert(err == 0);
    (void)err;
}

struct relayed_address *fake_carrier_shared(struct fake_carrier *carrier, enum relay_family family,
                                            uint32_t i) {
    assert(i < carrier->state->n_shared);
    return &carrier->state->shared[family][i];
}

static void addresses_init(struct fake_carrier_state *s) {
    for (uint32_t i = 0; i < s->n_shared; i++) {
        for (uint32_t f = 0; f < RELAY_FAMILIES; f++) {
            struct relayed_address *a = &s->shared[f][i];
            a->shared = true;
            a->id = 1 + i * RELAY_FAMILIES + f;
            address_set(s, a, (enum relay_family)f, (uint16_t)(FAKE_CARRIER_SHARED_PORT + 2 * i + f));
        }
    }
    for (uint32_t i = 0; i < s->n_dedicated; i++) {
        s->dedicated[i].address.id = IDS_PER_KIND + i;
    }
}

int fake_carrier_create(struct fake_carrier **out, const struct fake_carrier_params *params) {
    struct fake_carrier *c = calloc(1, sizeof *c);
    struct fake_carrier_state *s = calloc(1, sizeof *s);
    uint32_t n_dedicated = params->n_dedicated == 0 ? 1024 : params->n_dedicated;
    struct dedicated_slot *dedicated = calloc(n_dedicated, sizeof *dedicated);
    if (c == NULL || s == NULL || dedicated == NULL) {
        free(c);
        free(s);
        free(dedicated);
        return -ENOMEM;
    }
    s->params = *params;
    s->n_shared = params->n_shared == 0 ? 1 : params->n_shared;
    assert(s->n_shared <= SHARED_MAX);
    s->dedicated = dedicated;
    s->n_dedicated = n_dedicated;
    addresses_init(s);
    c->state = s;
    c->carrier = (struct relay_carrier){.context = c,
                                        .serves = fake_serves,
                                        .acquire = fake_acquire,
                                        .release = fake_release,
                                        .locate = fake_locate};
    *out = c;
    return 0;
}

void fake_carrier_destroy(struct fake_carrier *carrier) {
    if (carrier != NULL) {
        free(carrier->state->dedicated);
        free(carrier->state);
        free(carrier);
    }
}
