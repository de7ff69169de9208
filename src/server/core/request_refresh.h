/* Refresh (RFC 8656, 8.2): prolongs or deletes an allocation, or one family of it. */
#ifndef TURN_REQUEST_REFRESH_H
#define TURN_REQUEST_REFRESH_H

#include "request.h"

/* STUN_OK with the success response begun in r->reply, or the status to answer with nothing changed. */
enum stun_status request_refresh_handle(struct request *r);

#endif
