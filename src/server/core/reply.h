/* Composes the reply to a request: the success response that a handler fills, or an error response. Adds
 * SOFTWARE, integrity and FINGERPRINT as the configuration and the request ask for. */
#ifndef TURN_REPLY_H
#define TURN_REPLY_H

#include "request.h"

/* Starts the success response; the handler appends its attributes to r->reply. */
void reply_begin_success(struct request *r);
/* Writes a whole error response in place of whatever was begun, but for what reply_finish adds. A 401 or 438
 * carries the challenge: REALM, a fresh NONCE and, where there is a choice, PASSWORD-ALGORITHMS. */
void reply_write_error(struct request *r, enum stun_status status);
/* Ends the reply and returns its length; 0 if it did not fit. */
size_t reply_finish(struct request *r);

#endif
