/* The lifetime that an Allocate or Refresh is granted (RFC 8656, 7.2 and 8.2). Private to the core. */
#ifndef TURN_LIFETIME_H
#define TURN_LIFETIME_H

#include "request.h"

/* Between the default and the maximum; a maximum below the default wins. */
static inline uint32_t lifetime_clamp(uint32_t wish_s, uint32_t max_s) {
    uint32_t at_least_s = wish_s < DEFAULT_LIFETIME_S ? DEFAULT_LIFETIME_S : wish_s;
    return at_least_s > max_s ? max_s : at_least_s;
}

/* LIFETIME of the request, the default without one; false when malformed. */
static inline bool lifetime_read(const struct request *r, uint32_t *out_wish_s) {
    struct stun_attribute a;
    *out_wish_s = DEFAULT_LIFETIME_S;
    return !request_find(r, STUN_ATTR_LIFETIME, &a) || stun_read_u32(out_wish_s, &a);
}

#endif
