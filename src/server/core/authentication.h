/* The long-term credential mechanism for one request (RFC 8489, 9.2.4). */
#ifndef TURN_AUTHENTICATION_H
#define TURN_AUTHENTICATION_H

#include "request.h"

/* What PASSWORD-ALGORITHMS offers, in this order. */
enum { AUTHENTICATION_N_ALGORITHMS = 2 };
extern const uint16_t authentication_algorithms[AUTHENTICATION_N_ALGORITHMS];

/* The security features that nonces announce for these credentials. */
uint32_t authentication_features(const struct credential_store *credentials);

/* STUN_OK: go on (r->is_authenticated tells whether under credentials or because none are asked for); else
 * the status to answer. Reads only; r->credential, r->username and r->detail are filled. */
enum stun_status authentication_check(struct request *r);

#endif
