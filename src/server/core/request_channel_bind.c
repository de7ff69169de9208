#include "request_channel_bind.h"

#include "channel_data.h"
#include "reply.h"

static enum stun_status read_number(struct request *r, uint16_t *out) {
    struct stun_attribute a;
    uint16_t max = r->core->config->channel_numbers_5766 ? CHANNEL_NUMBER_MAX_5766 : CHANNEL_NUMBER_MAX;
    if (!request_find(r, STUN_ATTR_CHANNEL_NUMBER, &a) || !stun_read_u16_reserved(out, &a)) {
        return request_refuse(r, STUN_BAD_REQUEST, "CHANNEL-NUMBER missing or malformed");
    }
    if (*out < CHANNEL_NUMBER_MIN || *out > max) {
        return request_refuse(r, STUN_BAD_REQUEST, "channel number out of range");
    }
    return STUN_OK;
}

/* Unlike a permission a channel is for an exact peer, which port 0 is not. */
static enum stun_status read_peer(struct request *r, struct endpoint *out) {
    struct stun_attribute a;
    if (!request_find(r, STUN_ATTR_XOR_PEER_ADDRESS, &a) || !stun_read_xor_address(out, &a, r->message) ||
        out->port == 0) {
        return request_refuse(r, STUN_BAD_REQUEST, "XOR-PEER-ADDRESS missing or malformed");
    }
    return STUN_OK;
}

enum stun_status request_channel_bind_handle(struct request *r) {
    struct endpoint peer;
    uint16_t number;
    enum stun_status status = read_number(r, &number);
    if (status == STUN_OK) {
        status = read_peer(r, &peer);
    }
    if (status == STUN_OK) {
        status = request_check_peer(r, &peer);
    }
    if (status != STUN_OK) {
        return status;
    }
    r->peer = peer;
    status = channel_bind(r->allocation, number, &peer, r->now.now_us);
    if (status == STUN_OK) {
        reply_begin_success(r);
    } else if (status == STUN_BAD_REQUEST) {
        r->detail = "channel or peer is bound otherwise";
    }
    return status;
}
