#include "event_log.h"

#include <inttypes.h>
#include <stdio.h>

#include "clock.h"

enum { SESSION_TEXT_BYTES = 32, USER_TEXT_BYTES = STUN_MAX_USERNAME_BYTES + 1 };

/* Who a line is about, as text. */
struct subject {
    char session[SESSION_TEXT_BYTES]; /* 18 digits: thread * 10^15 + count; zeros without an allocation */
    char user[USER_TEXT_BYTES];       /* of the allocation, else what the request claimed */
    const char *realm;
    char client[ENDPOINT_TEXT_BYTES];
};

static void describe(struct subject *out, const struct core_event_info *info) {
    const struct allocation *a = info->allocation;
    uint64_t thread = a == NULL ? 0 : a->uid >> 48;
    uint64_t count = a == NULL ? 0 : a->uid & ((UINT64_C(1) << 48) - 1);
    snprintf(out->session, sizeof out->session, "%018" PRIu64, thread * UINT64_C(1000000000000000) + count);
    out->realm = a == NULL || a->realm == NULL ? "" : a->realm;
    out->user[0] = '\0';
    if (a != NULL && a->username != NULL) {
        snprintf(out->user, sizeof out->user, "%s", a->username);
    } else if (info->username != NULL) {
        int n = info->n_username < sizeof out->user ? (int)info->n_username : (int)sizeof out->user - 1;
        snprintf(out->user, sizeof out->user, "%.*s", n, info->username);
    }
    out->client[0] = '-', out->client[1] = '\0';
    if (info->five_tuple != NULL) {
        endpoint_format(&info->five_tuple->client, out->client);
    }
}

static void write_created(const struct subject *who, const struct core_event_info *info) {
    char relayed[RELAY_FAMILIES][ENDPOINT_TEXT_BYTES] = {"-", "-"};
    for (int f = 0; f < RELAY_FAMILIES; f++) {
        if (info->allocation->relay[f].address != NULL) {
            endpoint_format(&info->allocation->relay[f].address->advertised, relayed[f]);
        }
    }
    log_info("session %s: new, realm=<%s>, username=<%s>, lifetime=%u, client=%s, relayed=%s, relayed6=%s",
             who->session, who->realm, who->user, info->lifetime_s, who->client, relayed[RELAY_V4],
             relayed[RELAY_V6]);
}

static void write_refreshed(const struct subject *who, const struct core_event_info *info) {
    log_info("session %s: refreshed, realm=<%s>, username=<%s>, lifetime=%u, client=%s", who->session,
             who->realm, who->user, info->lifetime_s, who->client);
}

static const char *end_text(enum allocation_end end) {
    switch (end) {
    case ALLOCATION_END_REFRESH_0:
        return "deleted by the client";
    case ALLOCATION_END_EXPIRED:
        return "allocation timeout";
    case ALLOCATION_END_CLOSED:
        return "client connection closed";
    case ALLOCATION_END_SHUTDOWN:
        return "server shutdown";
    }
    return "";
}

static void write_ended(const struct subject *who, const struct core_event_info *info) {
    const struct leg_counters *c = &info->allocation->client_leg, *p = &info->allocation->peer_leg;
    log_info("session %s: usage: realm=<%s>, username=<%s>, rp=%" PRIu64 ", rb=%" PRIu64 ", sp=%" PRIu64
             ", sb=%" PRIu64 ", client=%s",
             who->session, who->realm, who->user, c->rx_packets, c->rx_bytes, c->tx_packets, c->tx_bytes,
             who->client);
    log_info("session %s: peer usage: realm=<%s>, username=<%s>, rp=%" PRIu64 ", rb=%" PRIu64 ", sp=%" PRIu64
             ", sb=%" PRIu64 ", client=%s",
             who->session, who->realm, who->user, p->rx_packets, p->rx_bytes, p->tx_packets, p->tx_bytes,
             who->client);
    log_info("session %s: delete: realm=<%s>, username=<%s>, reason: %s, client=%s", who->session, who->realm,
             who->user, end_text(info->end), who->client);
}

static void write_request(const struct subject *who, const struct core_event_info *info) {
    log_debug("session %s: realm <%s> user <%s>: incoming packet %s processed, success, client=%s",
              who->session, who->realm, who->user, stun_method_name(info->method), who->client);
}

static void write_refused(struct event_log *log, const struct core_event_info *info) {
    uint64_t suppressed;
    struct log_limit *limit = info->status == STUN_FORBIDDEN ? &log->denied : &log->refused;
    if (!log_limit_pass(limit, clock_now_us(), &suppressed)) {
        return;
    }
    struct subject who;
    describe(&who, info);
    char peer[ENDPOINT_TEXT_BYTES] = "-";
    if (info->peer != NULL) {
        endpoint_format(info->peer, peer);
    }
    log_info("session %s: realm <%s> user <%s>: incoming packet %s processed, error %d: %s, peer=%s, "
             "detail=<%s>, suppressed=%" PRIu64 ", client=%s",
             who.session, who.realm, who.user, stun_method_name(info->method), (int)info->status,
             stun_status_phrase(info->status), peer, info->detail == NULL ? "" : info->detail, suppressed,
             who.client);
}

/* The first 401 (which has no detail) and a stale nonce are how every client begins and goes on. */
static bool is_ordinary_refusal(const struct core_event_info *info) {
    return info->status == STUN_STALE_NONCE || (info->status == STUN_UNAUTHENTICATED && info->detail == NULL);
}

void event_log_write(void *context, const struct core_event_info *info) {
    struct event_log *log = context;
    if (!log->verbose || !log_is_on(LOG_LEVEL_INFO)) {
        return;
    }
    if (info->event == CORE_REQUEST_REFUSED) {
        if (!is_ordinary_refusal(info)) {
            write_refused(log, info);
        }
        return;
    }
    struct subject who;
    describe(&who, info);
    switch (info->event) {
    case CORE_ALLOCATION_CREATED:
        write_created(&who, info);
        break;
    case CORE_ALLOCATION_REFRESHED:
        write_refreshed(&who, info);
        break;
    case CORE_ALLOCATION_ENDED:
        write_ended(&who, info);
        break;
    case CORE_REQUEST_DONE:
        write_request(&who, info);
        break;
    case CORE_REQUEST_REFUSED:
        break;
    }
}
