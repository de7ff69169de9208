/* Whose is a datagram from a peer? The order of the rules is that of peer_table.h. */
#include "peer_table.h"

#include "allocation_private.h"

static void match_record(struct peer_match *out, struct peer_endpoint *record) {
    out->allocation = record->allocation;
    out->channel = record->channel;
    out->peer = record;
    out->reason = DROP_NONE;
}

/* An address of its own: RFC 8656, 11.3, nothing to find out but the permission. */
static void match_dedicated(const struct allocation_table *table, const struct relayed_address *relayed,
                            const struct endpoint *peer, struct peer_match *out) {
    const struct permission *p = permission_first_on(table, relayed, peer);
    out->allocation = p == NULL ? NULL : p->allocation;
    out->reason = p == NULL ? DROP_NO_PERMISSION : DROP_NONE;
}

/* The live permission of an allocation that sent the check which this message answers or mirrors. The present
 * holder is preferred when it is one of them: allocations of one client share their fragments. */
static struct permission *match_stun(const struct allocation_table *table,
                                     const struct relayed_address *relayed,
                                     const struct peer_endpoint *record, const struct peer_datagram *in,
                                     uint64_t now_us) {
    const struct endpoint *peer = in->peer;
    uint64_t uids[ICE_WATCH_WAYS];
    size_t n = ice_watch_find(table->ice, relayed->id, peer, in->payload, in->n_payload, now_us, uids);
    struct permission *best = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct allocation *a = allocation_find_watched(table, uids[i]);
        if (a == NULL || allocation_relayed(a, peer) != relayed) {
            continue;
        }
        struct permission *p = permission_find(a, peer);
        bool holds = p != NULL && record != NULL && record->allocation == a;
        if (p != NULL && (best == NULL || holds)) {
            best = p;
        }
        if (holds) {
            break;
        }
    }
    return best;
}

/* Delivers to the permission's allocation and installs the exact entry, if there is room and nobody holds it.
 */
static void match_learned(struct permission *p, const struct endpoint *peer, uint64_t now_us,
                          struct peer_match *out) {
    struct allocation *a = p->allocation;
    struct peer_endpoint *record = peer_endpoint_find(a, peer);
    if (record == NULL && a->n_shared_peers < a->table->params.max_peers &&
        peer_endpoint_create(&record, p, peer, PEER_UNNAMED) < 0) {
        record = NULL;
    }
    out->allocation = a;
    out->reason = DROP_NONE;
    if (record != NULL) {
        peer_endpoint_claim(record, CLAIM_LEARNED, now_us);
        match_record(out, record);
    }
}

static void match_shared(const struct allocation_table *table, struct relayed_address *relayed,
                         struct peer_endpoint *record, const struct peer_datagram *in, uint64_t now_us,
                         struct peer_match *out) {
    struct permission *first = permission_first_on(table, relayed, in->peer);
    if (first == NULL) {
        out->reason = record != NULL ? DROP_NO_PERMISSION : DROP_UNKNOWN_PEER;
        return;
    }
    struct permission *meant = NULL;
    if (in->payload != NULL) {
        meant = match_stun(table, relayed, record, in, now_us);
    }
    bool holds = record != NULL && record->permission != NULL;
    if (meant == NULL && !holds && first->next_same_ip == NULL) {
        meant = first;
    }
    if (meant != NULL) {
        match_learned(meant, in->peer, now_us, out);
    } else if (holds) {
        match_record(out, record);
    } else {
        out->reason = DROP_AMBIGUOUS_PEER;
    }
}

void peer_table_match(struct allocation_table *table, struct relayed_address *relayed,
                      const struct peer_datagram *datagram, uint64_t now_us, struct peer_match *out) {
    *out = (struct peer_match){0};
    const struct endpoint *peer = datagram->peer;
    struct peer_endpoint *record = datagram->hash != 0
                                       ? peer_endpoint_holder_hashed(table, relayed, peer, datagram->hash)
                                       : peer_endpoint_holder(table, relayed, peer);
    if (record != NULL && record->permission != NULL) {
        bool ask_stun = record->is_contested && datagram->payload != NULL &&
                        stun_looks_like_message(datagram->payload, datagram->n_payload);
        if (!ask_stun) {
            match_record(out, record);
            return;
        }
    }
    if (!relayed->shared) {
        match_dedicated(table, relayed, peer, out);
        return;
    }
    match_shared(table, relayed, record, datagram, now_us, out);
}

struct allocation *peer_table_match_error(struct allocation_table *table, struct relayed_address *relayed,
                                          const struct endpoint *peer) {
    struct peer_endpoint *record = peer_endpoint_holder(table, relayed, peer);
    if (record != NULL && record->permission != NULL) {
        return record->is_contested ? NULL : record->allocation;
    }
    const struct permission *first = permission_first_on(table, relayed, peer);
    return first != NULL && first->next_same_ip == NULL ? first->allocation : NULL;
}
