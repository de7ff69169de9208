#include "turn_core.h"

#include <errno.h>
#include <stdlib.h>

#include "authentication.h"
#include "reply.h"
#include "request_allocate.h"
#include "request_binding.h"
#include "request_channel_bind.h"
#include "request_create_permission.h"
#include "request_refresh.h"

enum { CLAIM_IDLE_S = 30 }; /* longer than any gap in media, consent checks not counted */

static const uint64_t us_per_s = 1000000;

static void quiesce(void *context) {
    const struct turn_core *core = context;
    core->host->quiesce(core->host->context);
}

/* The one place where an allocation's quota comes back, whatever ended it. */
static void allocation_ended(void *context, struct allocation *allocation, enum allocation_end why) {
    const struct turn_core *core = context;
    if (allocation->quota != NULL) {
        quota_release(core->config->quota, allocation->quota);
        allocation->quota = NULL;
    }
    const struct core_event_info info = {
        .event = CORE_ALLOCATION_ENDED,
        .allocation = allocation,
        .five_tuple = &allocation->five_tuple,
        .status = STUN_OK,
        .end = why,
        .username = allocation->username,
        .n_username = allocation->username == NULL ? 0 : strlen(allocation->username),
        .authenticated = allocation->username != NULL,
    };
    core->host->event(core->host->context, &info);
}

int turn_core_create(struct turn_core **out, const struct core_params *params, struct core_time now) {
    struct turn_core *core = calloc(1, sizeof *core);
    if (core == NULL) {
        return -ENOMEM;
    }
    core->config = params->config;
    core->host = params->host;
    core->carrier = params->carrier;
    core->hash_key = params->hash_key;
    const struct allocation_table_params table = {
        .hash_key = params->hash_key,
        .thread = params->thread,
        .carrier = params->carrier,
        .permission_lifetime_us = params->config->permission_lifetime_s * us_per_s,
        .channel_lifetime_us = params->config->channel_lifetime_s * us_per_s,
        .max_peers = params->config->max_peers,
        .claim_idle_us = CLAIM_IDLE_S * us_per_s,
        .context = core,
        .quiesce = quiesce,
        .ended = allocation_ended,
    };
    int err = stun_crypto_create(&core->crypto);
    if (err == 0) {
        err = allocation_table_create(&core->allocations, &table, now.now_us);
    }
    if (err < 0) {
        turn_core_destroy(core);
        return err;
    }
    *out = core;
    return 0;
}

void turn_core_destroy(struct turn_core *core) {
    if (core == NULL) {
        return;
    }
    if (core->allocations != NULL) {
        allocation_table_destroy(core->allocations);
    }
    stun_crypto_destroy(core->crypto);
    free(core);
}

void turn_core_advance(struct turn_core *core, struct core_time now) {
    allocation_table_advance(core->allocations, now.now_us);
}

struct allocation_table *turn_core_allocations(struct turn_core *core) {
    return core->allocations;
}

/* ---- requests ---- */

/* A method that nobody serves is answered on an allocation only: a client is told what is wrong, a stranger
 * gets nothing. */
static enum stun_status handle_unknown_method(struct request *r) {
    return request_refuse(r, STUN_BAD_REQUEST, "unknown method");
}

struct method {
    uint16_t method;
    bool needs_allocation; /* 437 without one, 441 for another user's (RFC 8656, 5) */
    enum stun_status (*handle)(struct request *r);
};

static const struct method methods[] = {
    {STUN_METHOD_BINDING, false, request_binding_handle},
    {STUN_METHOD_ALLOCATE, false, request_allocate_handle},
    {STUN_METHOD_REFRESH, true, request_refresh_handle},
    {STUN_METHOD_CREATE_PERMISSION, true, request_create_permission_handle},
    {STUN_METHOD_CHANNEL_BIND, true, request_channel_bind_handle},
};
static const struct method unknown_method = {0, true, handle_unknown_method};

/* NULL: not served here, so not answered. */
static const struct method *find_method(const struct request *r) {
    const struct core_config *config = r->core->config;
    uint16_t wanted = r->message->method;
    if (wanted == STUN_METHOD_BINDING ? config->no_stun : config->stun_only) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (methods[i].method == wanted) {
            return &methods[i];
        }
    }
    return r->allocation == NULL ? NULL : &unknown_method;
}

/* Comprehension-required attributes that requests may carry here; those of ICE in a Binding request alone. */
static bool is_known_attribute(uint16_t type, uint16_t method) {
    switch (type) {
    case STUN_ATTR_PRIORITY:
    case STUN_ATTR_USE_CANDIDATE:
        return method == STUN_METHOD_BINDING;
    case STUN_ATTR_MAPPED_ADDRESS:
    case STUN_ATTR_USERNAME:
    case STUN_ATTR_MESSAGE_INTEGRITY:
    case STUN_ATTR_ERROR_CODE:
    case STUN_ATTR_UNKNOWN_ATTRIBUTES:
    case STUN_ATTR_CHANNEL_NUMBER:
    case STUN_ATTR_LIFETIME:
    case STUN_ATTR_XOR_PEER_ADDRESS:
    case STUN_ATTR_DATA:
    case STUN_ATTR_REALM:
    case STUN_ATTR_NONCE:
    case STUN_ATTR_XOR_RELAYED_ADDRESS:
    case STUN_ATTR_REQUESTED_ADDRESS_FAMILY:
    case STUN_ATTR_EVEN_PORT:
    case STUN_ATTR_REQUESTED_TRANSPORT:
    case STUN_ATTR_DONT_FRAGMENT:
    case STUN_ATTR_MESSAGE_INTEGRITY_SHA256:
    case STUN_ATTR_PASSWORD_ALGORITHM:
    case STUN_ATTR_USERHASH:
    case STUN_ATTR_XOR_MAPPED_ADDRESS:
    case STUN_ATTR_RESERVATION_TOKEN:
        return true;
    default:
        return false;
    }
}

static bool has_named(const struct request *r, uint16_t type) {
    for (size_t i = 0; i < r->n_unknown; i++) {
        if (r->unknown[i] == type) {
            return true;
        }
    }
    return false;
}

/* RFC 8489, 6.3.1: after authentication, before anything changes. */
static enum stun_status check_attributes(struct request *r) {
    struct stun_attribute at = {0};
    while (r->n_unknown < REQUEST_MAX_UNKNOWN && stun_message_next(r->message, &at) &&
           at.offset < r->integrity.limit) {
        if (stun_attribute_is_required(at.type) && !is_known_attribute(at.type, r->message->method) &&
            !has_named(r, at.type)) {
            r->unknown[r->n_unknown++] = at.type;
        }
    }
    return r->n_unknown == 0 ? STUN_OK : STUN_UNKNOWN_ATTRIBUTE;
}

static enum stun_status check_allocation(struct request *r, const struct method *method) {
    if (!method->needs_allocation) {
        return STUN_OK;
    }
    if (r->allocation == NULL) {
        return request_refuse(r, STUN_ALLOCATION_MISMATCH, "no allocation");
    }
    if (r->is_authenticated &&
        (r->allocation->username == NULL || strcmp(r->allocation->username, r->credential.username) != 0)) {
        return request_refuse(r, STUN_WRONG_CREDENTIALS, "allocation of another user");
    }
    return STUN_OK;
}

static enum stun_status serve(struct request *r, const struct method *method) {
    enum stun_status status = STUN_OK;
    if (method->method != STUN_METHOD_BINDING || r->core->config->secure_stun) {
        status = authentication_check(r);
    }
    if (status == STUN_OK) {
        status = check_attributes(r);
    }
    if (status == STUN_OK) {
        status = check_allocation(r, method);
    }
    return status == STUN_OK ? method->handle(r) : status;
}

static void report(const struct request *r, enum stun_status status) {
    struct core_event_info info = {
        .event = status == STUN_OK ? r->done_event : CORE_REQUEST_REFUSED,
        .allocation = r->allocation,
        .five_tuple = r->client->five_tuple,
        .method = r->message->method,
        .status = status,
        .detail = r->detail,
        .peer = r->peer.family == AF_UNSPEC ? NULL : &r->peer,
        .lifetime_s = r->lifetime_s,
        .username = (const char *)r->username.value,
        .n_username = r->username.n_bytes,
        .authenticated = r->is_authenticated,
    };
    if (r->is_authenticated) {
        info.username = r->credential.username;
        info.n_username = strlen(r->credential.username);
    }
    r->core->host->event(r->core->host->context, &info);
}

size_t turn_core_handle_request(struct turn_core *core, const struct core_client *client,
                                const struct stun_message *message, struct core_time now, uint8_t *out) {
    struct request r;
    bool has_fingerprint;
    /* RFC 8489, 6.3: indications of Binding keep a mapping alive, responses answer nothing of ours. */
    if (message->class != STUN_REQUEST || !stun_fingerprint_check(message, &has_fingerprint)) {
        return 0;
    }
    r.core = core;
    r.client = client;
    r.message = message;
    r.now = now;
    r.allocation = allocation_find(core->allocations, client->five_tuple);
    stun_integrity_find(message, &r.integrity);
    r.has_fingerprint = has_fingerprint;
    r.is_authenticated = false;
    r.username = (struct stun_attribute){0};
    r.reply = wire_writer_over(out, CORE_REPLY_MAX_BYTES);
    r.n_unknown = 0;
    r.done_event = CORE_REQUEST_DONE;
    r.detail = NULL;
    r.peer = (struct endpoint){0};
    r.lifetime_s = 0;

    const struct method *method = find_method(&r);
    if (method == NULL) {
        return 0;
    }
    enum stun_status status = serve(&r, method);
    if (status != STUN_OK) {
        reply_write_error(&r, status);
    }
    report(&r, status);
    return reply_finish(&r);
}
