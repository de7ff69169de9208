/* ChannelBind (RFC 8656, 12.2). */
#ifndef TURN_REQUEST_CHANNEL_BIND_H
#define TURN_REQUEST_CHANNEL_BIND_H

#include "request.h"

/* STUN_OK with the success response begun in r->reply, or the status to answer with nothing changed. */
enum stun_status request_channel_bind_handle(struct request *r);

#endif
