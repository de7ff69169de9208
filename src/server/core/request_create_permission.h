/* CreatePermission (RFC 8656, 10.2): all peers of the request or none. */
#ifndef TURN_REQUEST_CREATE_PERMISSION_H
#define TURN_REQUEST_CREATE_PERMISSION_H

#include "request.h"

/* STUN_OK with the success response begun in r->reply, or the status to answer with nothing changed. */
enum stun_status request_create_permission_handle(struct request *r);

#endif
