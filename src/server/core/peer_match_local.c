/* Relay to relay: whose is a datagram that another allocation of this server sent? */
#include "peer_table.h"

#include "allocation_private.h"

/* A permission for the sender, and the form of the sender's address that it is for. */
struct local_target {
    struct permission *permission;
    const struct endpoint *form;
};

static bool target_has_channel(const struct allocation *a, const struct endpoint *form) {
    const struct peer_endpoint *record = peer_endpoint_find(a, form);
    return record != NULL && record->permission != NULL && record->channel != NULL;
}

/* Does the allocation permit the sender, by which of its addresses? A form with a channel comes first. */
static bool target_of(struct local_target *out, const struct allocation *a,
                      const struct relay_sender *sender) {
    struct permission *by_advertised = permission_find(a, &sender->advertised);
    struct permission *by_local = permission_find(a, &sender->local);
    bool prefer_local =
        by_local != NULL && (by_advertised == NULL || (!target_has_channel(a, &sender->advertised) &&
                                                       target_has_channel(a, &sender->local)));
    out->permission = prefer_local ? by_local : by_advertised;
    out->form = prefer_local ? &sender->local : &sender->advertised;
    return out->permission != NULL;
}

static void deliver(const struct local_target *target, struct peer_match *out, struct endpoint *out_peer) {
    struct peer_endpoint *record = peer_endpoint_find(target->permission->allocation, target->form);
    out->allocation = target->permission->allocation;
    out->peer = record;
    out->channel = record == NULL ? NULL : record->channel;
    out->reason = DROP_NONE;
    *out_peer = *target->form;
}

static void match_dedicated(const struct relayed_address *relayed, const struct relay_sender *sender,
                            struct peer_match *out, struct endpoint *out_peer) {
    struct local_target target;
    if (relayed->owner == NULL) {
        out->reason = DROP_NO_RELAYED_ADDRESS;
    } else if (!target_of(&target, relayed->owner, sender)) {
        out->reason = DROP_NO_PERMISSION;
    } else {
        deliver(&target, out, out_peer);
    }
}

struct local_inbound {
    struct allocation_table *table;
    struct relayed_address *relayed;
    const struct relay_sender *sender;
    const uint8_t *payload;
    uint32_t n_payload;
    uint64_t now_us;
};

/* The allocation whose check, sent to `form`, this message answers or mirrors; `known` wins among several. */
static bool stun_target(struct local_target *out, const struct local_inbound *in, const struct endpoint *form,
                        const struct allocation *known) {
    uint64_t uids[ICE_WATCH_WAYS];
    size_t n =
        ice_watch_find(in->table->ice, in->relayed->id, form, in->payload, in->n_payload, in->now_us, uids);
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        struct local_target target;
        const struct allocation *a = allocation_find_watched(in->table, uids[i]);
        if (a == NULL || a->uid == in->sender->uid || allocation_relayed(a, form) != in->relayed ||
            !target_of(&target, a, in->sender)) {
            continue;
        }
        if (!found || a == known) {
            *out = target;
            found = true;
        }
    }
    return found;
}

/* Both directions at once: whoever may be answered, can be. */
static void learn(const struct local_target *target, const struct local_inbound *in) {
    struct allocation *receiver = target->permission->allocation;
    struct allocation *sender = allocation_find_watched(in->table, in->sender->uid);
    local_pair_learn(target->permission, in->sender->uid, sender, target->form);
    if (sender == NULL) {
        return;
    }
    const struct relayed_address *back = allocation_relayed(sender, target->form);
    struct local_target reverse;
    struct relay_sender answerer = {
        .uid = receiver->uid, .advertised = in->relayed->advertised, .local = in->relayed->local};
    if (back != NULL && back->shared && target_of(&reverse, sender, &answerer)) {
        local_pair_learn(reverse.permission, receiver->uid, receiver, reverse.form);
    }
}

/* Counts allocations other than the sender and `seen` that permit the IP; stops at two. */
static unsigned count_others(const struct local_inbound *in, const struct endpoint *form,
                             const struct allocation *seen, struct permission **out) {
    unsigned n = 0;
    struct permission *p = permission_first_on(in->table, in->relayed, form);
    for (; p != NULL && n < 2; p = p->next_same_ip) {
        if (p->allocation->uid != in->sender->uid && p->allocation != seen) {
            *out = p;
            n++;
        }
    }
    return n;
}

static enum drop_reason only_other_target(struct local_target *out, const struct local_inbound *in) {
    struct permission *p = NULL;
    unsigned n = count_others(in, &in->sender->advertised, NULL, &p);
    if (!endpoint_same_ip(&in->sender->advertised, &in->sender->local) && n < 2) {
        n += count_others(in, &in->sender->local, n == 0 ? NULL : p->allocation, &p);
    }
    if (n != 1) {
        return n == 0 ? DROP_UNKNOWN_PEER : DROP_AMBIGUOUS_PEER;
    }
    target_of(out, p->allocation, in->sender);
    return DROP_NONE;
}

static void match_shared(const struct local_inbound *in, struct peer_match *out, struct endpoint *out_peer) {
    const struct relay_sender *sender = in->sender;
    struct local_target target;
    struct local_pair *pair = local_pair_find(in->table, in->relayed, sender->uid);
    const struct allocation *known = pair == NULL ? NULL : pair->receiver;
    if (in->payload != NULL && stun_looks_like_message(in->payload, in->n_payload) &&
        (stun_target(&target, in, &sender->advertised, known) ||
         (!endpoint_same_ip(&sender->advertised, &sender->local) &&
          stun_target(&target, in, &sender->local, known)))) {
        learn(&target, in);
        deliver(&target, out, out_peer);
        return;
    }
    if (known != NULL && target_of(&target, known, sender)) {
        deliver(&target, out, out_peer);
        return;
    }
    out->reason = only_other_target(&target, in);
    if (out->reason == DROP_NONE) {
        deliver(&target, out, out_peer);
    }
}

void peer_table_match_local(struct allocation_table *table, struct relayed_address *relayed,
                            const struct relay_sender *sender, const uint8_t *payload, uint32_t n_payload,
                            uint64_t now_us, struct peer_match *out, struct endpoint *out_peer) {
    *out = (struct peer_match){0};
    if (relay_family_of(&sender->advertised) != relay_family_of(&relayed->local)) {
        out->reason = DROP_PEER_FAMILY;
        return;
    }
    if (!relayed->shared) {
        match_dedicated(relayed, sender, out, out_peer);
        return;
    }
    struct local_inbound in = {table, relayed, sender, payload, n_payload, now_us};
    match_shared(&in, out, out_peer);
}
