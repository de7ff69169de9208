#include "request.h"

/* What a Send indication brings, from one walk over it. The first of a kind counts (RFC 8489, 14). */
struct parts {
    struct stun_attribute peer, data; /* value NULL: missing */
    bool dont_fragment, has_fingerprint;
};

/* False for a comprehension-required attribute that has no business here (RFC 8489, 6.3.2). */
static bool take_part(struct parts *parts, const struct stun_attribute *at) {
    switch (at->type) {
    case STUN_ATTR_XOR_PEER_ADDRESS:
        parts->peer = parts->peer.value == NULL ? *at : parts->peer;
        return true;
    case STUN_ATTR_DATA:
        parts->data = parts->data.value == NULL ? *at : parts->data;
        return true;
    case STUN_ATTR_DONT_FRAGMENT:
        parts->dont_fragment = true;
        return true;
    case STUN_ATTR_FINGERPRINT:
        parts->has_fingerprint = true;
        return true;
    case STUN_ATTR_USERNAME:
    case STUN_ATTR_REALM:
    case STUN_ATTR_NONCE:
    case STUN_ATTR_USERHASH:
    case STUN_ATTR_PASSWORD_ALGORITHM:
    case STUN_ATTR_MESSAGE_INTEGRITY:
    case STUN_ATTR_MESSAGE_INTEGRITY_SHA256:
        return true; /* indications are not authenticated (RFC 8656, 5) */
    default:
        return !stun_attribute_is_required(at->type);
    }
}

static bool take_apart(struct parts *parts, const struct stun_message *message) {
    struct stun_attribute at = {0};
    bool unused;
    while (stun_message_next(message, &at)) {
        if (!take_part(parts, &at)) {
            return false;
        }
    }
    return parts->peer.value != NULL && parts->data.value != NULL &&
           (!parts->has_fingerprint || stun_fingerprint_check(message, &unused));
}

enum drop_reason indication_send_decode(struct turn_core *core, const struct allocation *allocation,
                                        const struct stun_message *message, struct send_indication *out) {
    struct parts parts = {0};
    const char *rule;
    if (!take_apart(&parts, message) || !stun_read_xor_address(&out->peer, &parts.peer, message) ||
        out->peer.port == 0) {
        return DROP_MALFORMED;
    }
    if (allocation->relay[relay_family_of(&out->peer)].address == NULL) {
        return DROP_PEER_FAMILY;
    }
    if (!peer_policy_allows(core->config->policy, &out->peer, &rule)) {
        return DROP_PEER_DENIED;
    }
    out->permission = permission_find(allocation, &out->peer);
    if (out->permission == NULL) {
        return DROP_NO_PERMISSION;
    }
    out->data = parts.data.value;
    out->n_data = parts.data.n_bytes;
    out->dont_fragment = parts.dont_fragment;
    out->is_local = core->carrier->locate(core->carrier->context, &out->peer, &out->location);
    return DROP_NONE;
}
