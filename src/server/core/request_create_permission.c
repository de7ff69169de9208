#include "request_create_permission.h"

#include "reply.h"

enum { MAX_PEERS = 128 }; /* more than a datagram of ordinary size has room for */

static enum stun_status read_peers(struct request *r, struct endpoint peers[MAX_PEERS], size_t *out_n) {
    struct stun_attribute at = {0};
    *out_n = 0;
    while (stun_message_next(r->message, &at) && at.offset < r->integrity.limit) {
        if (at.type != STUN_ATTR_XOR_PEER_ADDRESS) {
            continue;
        }
        if (*out_n == MAX_PEERS) {
            return request_refuse(r, STUN_INSUFFICIENT_CAPACITY, "too many peers in one request");
        }
        if (!stun_read_xor_address(&peers[*out_n], &at, r->message)) {
            return request_refuse(r, STUN_BAD_REQUEST, "XOR-PEER-ADDRESS malformed");
        }
        (*out_n)++;
    }
    return *out_n > 0 ? STUN_OK : request_refuse(r, STUN_BAD_REQUEST, "no XOR-PEER-ADDRESS");
}

enum stun_status request_create_permission_handle(struct request *r) {
    struct endpoint peers[MAX_PEERS];
    size_t n_peers;
    enum stun_status status = read_peers(r, peers, &n_peers);
    for (size_t i = 0; status == STUN_OK && i < n_peers; i++) {
        status = request_check_peer(r, &peers[i]);
    }
    if (status == STUN_OK) {
        status = permission_install(r->allocation, peers, n_peers, r->now.now_us);
        r->peer = peers[0];
    }
    if (status == STUN_OK) {
        reply_begin_success(r);
    }
    return status;
}
