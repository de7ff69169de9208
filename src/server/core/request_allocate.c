#include "request_allocate.h"

#include <errno.h>

#include "lifetime.h"
#include "reply.h"

/* What the client asks for, checked as far as that goes without taking anything. */
struct wish {
    bool families[RELAY_FAMILIES];
    bool is_dual; /* ADDITIONAL-ADDRESS-FAMILY: one family will do if the other cannot be had */
    bool even_port, reserve_next;
    const uint8_t *token; /* RESERVATION-TOKEN, NULL: none */
    uint32_t lifetime_s;
};

/* What was taken for it and has to be given back if the allocation does not come to be. */
struct taken {
    struct quota_unit *quota;
    struct relayed_address *relayed[RELAY_FAMILIES];
    enum stun_status address_error; /* why a dual wish got one family only */
    uint8_t token[STUN_RESERVATION_TOKEN_BYTES];
    bool has_token;
};

/* ---- reading ---- */

static enum stun_status read_transport(struct request *r) {
    struct stun_attribute a;
    uint8_t transport;
    if (!request_find(r, STUN_ATTR_REQUESTED_TRANSPORT, &a) || !stun_read_u8_reserved(&transport, &a)) {
        return request_refuse(r, STUN_BAD_REQUEST, "REQUESTED-TRANSPORT missing or malformed");
    }
    if (transport != STUN_TRANSPORT_UDP || r->core->config->no_udp_relay) {
        return request_refuse(r, STUN_UNSUPPORTED_TRANSPORT, "transport not relayed");
    }
    return STUN_OK;
}

static enum stun_status read_lifetime(struct request *r, struct wish *wish) {
    uint32_t wish_s;
    if (!lifetime_read(r, &wish_s)) {
        return request_refuse(r, STUN_BAD_REQUEST, "LIFETIME malformed");
    }
    wish->lifetime_s = lifetime_clamp(wish_s, r->core->config->max_allocate_lifetime_s);
    return STUN_OK;
}

static enum stun_status read_ports(struct request *r, struct wish *wish) {
    struct stun_attribute even_port, token;
    wish->even_port = request_find(r, STUN_ATTR_EVEN_PORT, &even_port);
    if (wish->even_port && !stun_read_even_port(&wish->reserve_next, &even_port)) {
        return request_refuse(r, STUN_BAD_REQUEST, "EVEN-PORT malformed");
    }
    if (!request_find(r, STUN_ATTR_RESERVATION_TOKEN, &token)) {
        return STUN_OK;
    }
    if (token.n_bytes != STUN_RESERVATION_TOKEN_BYTES) {
        return request_refuse(r, STUN_BAD_REQUEST, "RESERVATION-TOKEN malformed");
    }
    if (wish->even_port || request_has(r, STUN_ATTR_REQUESTED_ADDRESS_FAMILY) ||
        request_has(r, STUN_ATTR_ADDITIONAL_ADDRESS_FAMILY)) {
        return request_refuse(r, STUN_BAD_REQUEST, "RESERVATION-TOKEN beside what it already decides");
    }
    wish->token = token.value;
    return STUN_OK;
}

static enum relay_family default_family(const struct request *r) {
    switch (r->core->config->default_family) {
    case FAMILY_DEFAULT_IPV4:
        return RELAY_V4;
    case FAMILY_DEFAULT_IPV6:
        return RELAY_V6;
    case FAMILY_DEFAULT_KEEP:
        return relay_family_of(&r->client->five_tuple->client);
    }
    return RELAY_V4;
}

static enum stun_status read_requested_family(struct request *r, const struct stun_attribute *a,
                                              struct wish *wish) {
    uint8_t family;
    if (!stun_read_u8_reserved(&family, a)) {
        return request_refuse(r, STUN_BAD_REQUEST, "REQUESTED-ADDRESS-FAMILY malformed");
    }
    if (family != STUN_FAMILY_IPV4 && family != STUN_FAMILY_IPV6) {
        return request_refuse(r, STUN_ADDRESS_FAMILY_NOT_SUPPORTED, "unknown address family");
    }
    wish->families[family == STUN_FAMILY_IPV6 ? RELAY_V6 : RELAY_V4] = true;
    return STUN_OK;
}

static enum stun_status read_additional_family(struct request *r, const struct stun_attribute *a,
                                               struct wish *wish) {
    uint8_t family;
    if (!stun_read_u8_reserved(&family, a) || family != STUN_FAMILY_IPV6) {
        return request_refuse(r, STUN_BAD_REQUEST, "ADDITIONAL-ADDRESS-FAMILY is not IPv6");
    }
    if (wish->reserve_next) {
        return request_refuse(r, STUN_BAD_REQUEST, "EVEN-PORT reserves beside ADDITIONAL-ADDRESS-FAMILY");
    }
    wish->families[RELAY_V4] = wish->families[RELAY_V6] = wish->is_dual = true;
    return STUN_OK;
}

static enum stun_status read_families(struct request *r, struct wish *wish) {
    struct stun_attribute requested, additional;
    bool has_requested = request_find(r, STUN_ATTR_REQUESTED_ADDRESS_FAMILY, &requested);
    bool has_additional = request_find(r, STUN_ATTR_ADDITIONAL_ADDRESS_FAMILY, &additional);
    if (has_requested && has_additional) {
        return request_refuse(r, STUN_BAD_REQUEST, "REQUESTED- beside ADDITIONAL-ADDRESS-FAMILY");
    }
    if (has_requested) {
        return read_requested_family(r, &requested, wish);
    }
    if (has_additional) {
        return read_additional_family(r, &additional, wish);
    }
    wish->families[default_family(r)] = true;
    return STUN_OK;
}

static enum stun_status read_wish(struct request *r, struct wish *wish) {
    enum stun_status status = read_transport(r);
    if (status == STUN_OK) {
        status = read_lifetime(r, wish);
    }
    if (status == STUN_OK) {
        status = read_ports(r, wish);
    }
    if (status == STUN_OK) {
        status = read_families(r, wish);
    }
    return status;
}

/* ---- taking and giving back ---- */

/* Equal for the allocations of one user on any thread. Without authentication a client is known by its
 * address. */
static uint64_t user_hash(const struct request *r) {
    const struct hash_key *key = &r->core->hash_key;
    if (!r->is_authenticated) {
        struct endpoint ip = r->client->five_tuple->client;
        ip.port = 0;
        return hash_bytes(key, &ip, sizeof ip);
    }
    const char *realm = r->core->config->realm;
    return hash_bytes(key, r->credential.user_part, r->credential.n_user_part) ^
           hash_rotate(hash_bytes(key, realm, strlen(realm)), 32);
}

static enum stun_status take_quota(struct request *r, struct taken *taken) {
    const char *user = r->is_authenticated ? r->credential.user_part : NULL;
    int err = quota_acquire(r->core->config->quota, &taken->quota, user,
                            user == NULL ? 0 : r->credential.n_user_part);
    if (err == 0) {
        return STUN_OK;
    }
    return err == -EDQUOT ? request_refuse(r, STUN_ALLOCATION_QUOTA_REACHED, "quota")
                          : request_refuse(r, STUN_INSUFFICIENT_CAPACITY, "no memory");
}

static enum stun_status take_reserved(struct request *r, const struct wish *wish, struct taken *taken) {
    const struct relay_carrier *carrier = r->core->carrier;
    const struct relay_request request = {.token = wish->token, .user_hash = user_hash(r)};
    uint8_t unused[STUN_RESERVATION_TOKEN_BYTES];
    struct relayed_address *address;
    enum stun_status status = carrier->acquire(carrier->context, &request, &address, unused);
    if (status != STUN_OK) {
        return request_refuse(r, status, "reservation not found");
    }
    taken->relayed[relay_family_of(&address->local)] = address;
    return STUN_OK;
}

static enum stun_status take_family(struct request *r, const struct wish *wish, enum relay_family family,
                                    struct taken *taken) {
    const struct relay_carrier *carrier = r->core->carrier;
    const struct relay_request request = {
        .family = family,
        /* Of two addresses the first is the one that RTP-style port pairs are about. */
        .even_port = wish->even_port && !(wish->is_dual && family == RELAY_V6),
        .reserve_next = wish->reserve_next,
        .user_hash = user_hash(r),
    };
    if (!carrier->serves(carrier->context, family)) {
        return request_refuse(r, STUN_ADDRESS_FAMILY_NOT_SUPPORTED, "address family not served");
    }
    enum stun_status status =
        carrier->acquire(carrier->context, &request, &taken->relayed[family], taken->token);
    if (status != STUN_OK) {
        taken->relayed[family] = NULL;
        return request_refuse(r, status, "no relayed address free");
    }
    taken->has_token = wish->reserve_next;
    return STUN_OK;
}

/* RFC 8656, 7.2: of two families one is enough, and ADDRESS-ERROR-CODE tells about the other. */
static enum stun_status take_relayed(struct request *r, const struct wish *wish, struct taken *taken) {
    if (wish->token != NULL) {
        return take_reserved(r, wish, taken);
    }
    enum stun_status failure = STUN_OK;
    bool has_any = false;
    for (int f = 0; f < RELAY_FAMILIES; f++) {
        if (!wish->families[f]) {
            continue;
        }
        enum stun_status status = take_family(r, wish, (enum relay_family)f, taken);
        has_any = has_any || status == STUN_OK;
        failure = failure == STUN_OK ? status : failure;
    }
    if (!has_any) {
        return failure;
    }
    taken->address_error = failure;
    return STUN_OK;
}

static void give_back(struct request *r, struct taken *taken) {
    const struct relay_carrier *carrier = r->core->carrier;
    if (taken->has_token) {
        /* The reserved port is had by taking it up. */
        const struct relay_request request = {.token = taken->token};
        uint8_t unused[STUN_RESERVATION_TOKEN_BYTES];
        struct relayed_address *reserved;
        if (carrier->acquire(carrier->context, &request, &reserved, unused) == STUN_OK) {
            carrier->release(carrier->context, reserved);
        }
    }
    for (int f = 0; f < RELAY_FAMILIES; f++) {
        if (taken->relayed[f] != NULL) {
            carrier->release(carrier->context, taken->relayed[f]);
        }
    }
    if (taken->quota != NULL) {
        quota_release(r->core->config->quota, taken->quota);
    }
}

/* ---- answering ---- */

static void write_success(struct request *r, uint32_t lifetime_s) {
    const struct allocation *a = r->allocation;
    struct wire_writer *w = &r->reply;
    reply_begin_success(r);
    for (int f = 0; f < RELAY_FAMILIES; f++) {
        if (a->relay[f].address != NULL) {
            stun_write_xor_address(w, STUN_ATTR_XOR_RELAYED_ADDRESS, &a->relay[f].address->advertised,
                                   r->message->transaction_id);
        }
    }
    stun_write_xor_address(w, STUN_ATTR_XOR_MAPPED_ADDRESS, &r->client->five_tuple->client,
                           r->message->transaction_id);
    stun_write_u32(w, STUN_ATTR_LIFETIME, lifetime_s);
    if (a->has_reservation_token) {
        stun_write_bytes(w, STUN_ATTR_RESERVATION_TOKEN, a->reservation_token, sizeof a->reservation_token);
    }
    if (a->address_error != 0) {
        uint8_t family = a->relay[RELAY_V4].address == NULL ? STUN_FAMILY_IPV4 : STUN_FAMILY_IPV6;
        stun_write_address_error(w, family, (enum stun_status)a->address_error);
    }
}

static enum stun_status create(struct request *r, const struct wish *wish, const struct taken *taken) {
    struct allocation_params params = {
        .five_tuple = *r->client->five_tuple,
        .client_link = r->client->link,
        .username = r->is_authenticated ? r->credential.username : NULL,
        .realm = r->is_authenticated ? r->core->config->realm : NULL,
        .user_hash = user_hash(r),
        .transaction_id = r->message->transaction_id,
        .lifetime_us = (uint64_t)wish->lifetime_s * 1000000,
        .quota = taken->quota,
    };
    if (r->is_authenticated) {
        params.key = r->credential.key;
        params.integrity = r->integrity.kind;
    }
    for (int f = 0; f < RELAY_FAMILIES; f++) {
        params.relayed[f] = taken->relayed[f];
    }
    struct allocation *allocation;
    if (allocation_create(&allocation, r->core->allocations, &params, r->now.now_us) < 0) {
        return request_refuse(r, STUN_INSUFFICIENT_CAPACITY, "no memory");
    }
    allocation->address_error = (uint16_t)taken->address_error;
    allocation->has_reservation_token = taken->has_token;
    memcpy(allocation->reservation_token, taken->token, sizeof allocation->reservation_token);
    r->allocation = allocation;
    return STUN_OK;
}

static uint32_t remaining_s(const struct allocation *a, uint64_t now_us) {
    uint64_t expires_us = 0;
    for (int f = 0; f < RELAY_FAMILIES; f++) {
        if (a->relay[f].address != NULL && a->relay[f].expires_us > expires_us) {
            expires_us = a->relay[f].expires_us;
        }
    }
    return expires_us <= now_us ? 0 : (uint32_t)((expires_us - now_us + 999999) / 1000000);
}

/* RFC 8656, 7.2: the request whose reply was lost gets it again; any other finds the 5-tuple in use. */
static enum stun_status answer_existing(struct request *r) {
    const struct allocation *a = r->allocation;
    bool is_owner =
        !r->is_authenticated || (a->username != NULL && strcmp(a->username, r->credential.username) == 0);
    if (!is_owner || memcmp(a->transaction_id, r->message->transaction_id, sizeof a->transaction_id) != 0) {
        return request_refuse(r, STUN_ALLOCATION_MISMATCH, "5-tuple in use");
    }
    r->lifetime_s = remaining_s(a, r->now.now_us);
    write_success(r, r->lifetime_s);
    return STUN_OK;
}

enum stun_status request_allocate_handle(struct request *r) {
    struct wish wish = {0};
    struct taken taken = {0};
    if (r->allocation != NULL) {
        return answer_existing(r);
    }
    enum stun_status status = read_wish(r, &wish);
    if (status != STUN_OK) {
        return status;
    }
    status = take_quota(r, &taken);
    if (status == STUN_OK) {
        status = take_relayed(r, &wish, &taken);
    }
    if (status == STUN_OK) {
        status = create(r, &wish, &taken);
    }
    if (status != STUN_OK) {
        give_back(r, &taken);
        return status;
    }
    r->detail = NULL; /* one family's failure is no refusal */
    r->lifetime_s = wish.lifetime_s;
    r->done_event = CORE_ALLOCATION_CREATED;
    write_success(r, wish.lifetime_s);
    return STUN_OK;
}
