/* Allocate (RFC 8656, 7.2): checks everything, then takes quota and relayed addresses, then creates. */
#ifndef TURN_REQUEST_ALLOCATE_H
#define TURN_REQUEST_ALLOCATE_H

#include "request.h"

/* STUN_OK with the success response begun in r->reply, or the status to answer with nothing changed. */
enum stun_status request_allocate_handle(struct request *r);

#endif
