/* Binding (RFC 8489, 3): tells the client its address. Serves the ICE checks of passers-by as well: what they
 * carry is not looked at. */
#ifndef TURN_REQUEST_BINDING_H
#define TURN_REQUEST_BINDING_H

#include "request.h"

/* STUN_OK with the success response begun in r->reply, or the status to answer with nothing changed. */
enum stun_status request_binding_handle(struct request *r);

#endif
