#include "request_binding.h"

#include "reply.h"

enum stun_status request_binding_handle(struct request *r) {
    const struct endpoint *client = &r->client->five_tuple->client;
    reply_begin_success(r);
    stun_write_xor_address(&r->reply, STUN_ATTR_XOR_MAPPED_ADDRESS, client, r->message->transaction_id);
    if (r->core->config->backward_compatibility) {
        stun_write_address(&r->reply, STUN_ATTR_MAPPED_ADDRESS, client);
    }
    return STUN_OK;
}
