#include "request_refresh.h"

#include "lifetime.h"
#include "reply.h"

/* Which families are meant: all the allocation has, or the one that REQUESTED-ADDRESS-FAMILY names. */
static enum stun_status read_families(struct request *r, bool wanted[RELAY_FAMILIES]) {
    struct stun_attribute a;
    uint8_t family;
    for (int f = 0; f < RELAY_FAMILIES; f++) {
        wanted[f] = r->allocation->relay[f].address != NULL;
    }
    if (!request_find(r, STUN_ATTR_REQUESTED_ADDRESS_FAMILY, &a)) {
        return STUN_OK;
    }
    if (!stun_read_u8_reserved(&family, &a)) {
        return request_refuse(r, STUN_BAD_REQUEST, "REQUESTED-ADDRESS-FAMILY malformed");
    }
    wanted[RELAY_V4] = wanted[RELAY_V4] && family == STUN_FAMILY_IPV4;
    wanted[RELAY_V6] = wanted[RELAY_V6] && family == STUN_FAMILY_IPV6;
    if (!wanted[RELAY_V4] && !wanted[RELAY_V6]) {
        return request_refuse(r, STUN_PEER_ADDRESS_FAMILY_MISMATCH, "no relayed address of that family");
    }
    return STUN_OK;
}

/* The last family takes the allocation with it. */
static void delete_families(struct request *r, const bool wanted[RELAY_FAMILIES]) {
    for (int f = 0; f < RELAY_FAMILIES && r->allocation != NULL; f++) {
        if (wanted[f] &&
            allocation_remove_family(r->allocation, (enum relay_family)f, ALLOCATION_END_REFRESH_0)) {
            r->allocation = NULL;
        }
    }
}

enum stun_status request_refresh_handle(struct request *r) {
    bool wanted[RELAY_FAMILIES];
    uint32_t wish_s;
    if (!lifetime_read(r, &wish_s)) {
        return request_refuse(r, STUN_BAD_REQUEST, "LIFETIME malformed");
    }
    enum stun_status status = read_families(r, wanted);
    if (status != STUN_OK) {
        return status;
    }
    r->done_event = CORE_ALLOCATION_REFRESHED;
    if (wish_s == 0) {
        delete_families(r, wanted);
    } else {
        r->lifetime_s = lifetime_clamp(wish_s, r->core->config->max_allocate_lifetime_s);
        for (int f = 0; f < RELAY_FAMILIES; f++) {
            if (wanted[f]) {
                allocation_refresh(r->allocation, (enum relay_family)f, (uint64_t)r->lifetime_s * 1000000,
                                   r->now.now_us);
            }
        }
    }
    reply_begin_success(r);
    stun_write_u32(&r->reply, STUN_ATTR_LIFETIME, r->lifetime_s);
    return STUN_OK;
}
