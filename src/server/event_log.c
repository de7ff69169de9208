#include "event_log.h"

#include <inttypes.h>
#include <stdio.h>

#include "clock.h"

enum { SESSION_TEXT_BYTES = 32 };

/* 18 digits: thread * 10^15 + count. */
static const char *session_text(const struct allocation *a, char out[SESSION_TEXT_BYTES]) {
    uint64_t thread = a == NULL ? 0 : a->uid >> 48;
    uint64_t count = a == NULL ? 0 : a->uid & ((UINT64_C(1) << 48) - 1);
    snprintf(out, SESSION_TEXT_BYTES, "%018" PRIu64, thread * UINT64_C(1000000000000000) + count);
    return out;
}

static const char *text_or_empty(const char *s) {
    return s == NULL ? "" : s;
}

static void write_created(const struct core_event_info *info, const char *client) {
    const struct allocation *a = info->allocation;
    char session[SESSION_TEXT_BYTES];
    char relayed[RELAY_FAMILIES][ENDPOINT_TEXT_BYTES] = {"-", "-"};
    for (int f = 0; f < RELAY_FAMILIES; f++) {
        if (a->relay[f].address != NULL) {
            endpoint_format(&a->relay[f].address->advertised, relayed[f]);
        }
    }
    log_info("session %s: new, realm=<%s>, username=<%s>, lifetime=%u, client=%s, relayed=%s, relayed6=%s",
             session_text(a, session), text_or_empty(a->realm), text_or_empty(a->username), info->lifetime_s,
             client, relayed[RELAY_V4], relayed[RELAY_V6]);
}

static void write_refreshed(const struct core_event_info *info, const char *client) {
    const struct allocation *a = info->allocation;
    char session[SESSION_TEXT_BYTES];
    log_info("session %s: refreshed, realm=<%s>, username=<%s>, lifetime=%u, client=%s",
             session_text(a, session), text_or_empty(a->realm), text_or_empty(a->username), info->lifetime_s,
             client);
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

static void write_ended(const struct core_event_info *info, const char *client) {
    const struct allocation *a = info->allocation;
    char session[SESSION_TEXT_BYTES];
    session_text(a, session);
    const struct leg_counters *c = &a->client_leg, *p = &a->peer_leg;
    log_info("session %s: usage: realm=<%s>, username=<%s>, rp=%" PRIu64 ", rb=%" PRIu64 ", sp=%" PRIu64
             ", sb=%" PRIu64 ", client=%s",
             session, text_or_empty(a->realm), text_or_empty(a->username), c->rx_packets, c->rx_bytes,
             c->tx_packets, c->tx_bytes, client);
    log_info("session %s: peer usage: realm=<%s>, username=<%s>, rp=%" PRIu64 ", rb=%" PRIu64 ", sp=%" PRIu64
             ", sb=%" PRIu64 ", client=%s",
             session, text_or_empty(a->realm), text_or_empty(a->username), p->rx_packets, p->rx_bytes,
             p->tx_packets, p->tx_bytes, client);
    log_info("session %s: delete: realm=<%s>, username=<%s>, reason: %s, client=%s", session,
             text_or_empty(a->realm), text_or_empty(a->username), end_text(info->end), client);
}

static void write_request(const struct core_event_info *info, const char *client) {
    const struct allocation *a = info->allocation;
    char session[SESSION_TEXT_BYTES];
    log_debug("session %s: realm <%s> user <%s>: incoming packet %s processed, success, client=%s",
              session_text(a, session), text_or_empty(a == NULL ? NULL : a->realm),
              text_or_empty(a == NULL ? NULL : a->username), stun_method_name(info->method), client);
}

static void write_refused(struct event_log *log, const struct core_event_info *info, const char *client) {
    uint64_t suppressed;
    struct log_limit *limit = info->status == STUN_FORBIDDEN ? &log->denied : &log->refused;
    if (!log_limit_pass(limit, clock_now_us(), &suppressed)) {
        return;
    }
    const struct allocation *a = info->allocation;
    char session[SESSION_TEXT_BYTES], peer[ENDPOINT_TEXT_BYTES] = "-";
    if (info->peer != NULL) {
        endpoint_format(info->peer, peer);
    }
    log_info("session %s: realm <%s> user <%s>: incoming packet %s processed, error %d: %s, peer=%s, "
             "detail=<%s>, suppressed=%" PRIu64 ", client=%s",
             session_text(a, session), text_or_empty(a == NULL ? NULL : a->realm),
             text_or_empty(a == NULL ? NULL : a->username), stun_method_name(info->method), (int)info->status,
             stun_status_phrase(info->status), peer, text_or_empty(info->detail), suppressed, client);
}

void event_log_write(void *context, const struct core_event_info *info) {
    struct event_log *log = context;
    if (!log->verbose || !log_is_on(LOG_LEVEL_INFO)) {
        return;
    }
    char client[ENDPOINT_TEXT_BYTES] = "-";
    if (info->five_tuple != NULL) {
        endpoint_format(&info->five_tuple->client, client);
    }
    switch (info->event) {
    case CORE_ALLOCATION_CREATED:
        write_created(info, client);
        break;
    case CORE_ALLOCATION_REFRESHED:
        write_refreshed(info, client);
        break;
    case CORE_ALLOCATION_ENDED:
        write_ended(info, client);
        break;
    case CORE_REQUEST_DONE:
        write_request(info, client);
        break;
    case CORE_REQUEST_REFUSED:
        /* The first 401 (which has no detail) and a stale nonce are how every client begins and goes on. */
        if (info->status != STUN_STALE_NONCE &&
            (info->status != STUN_UNAUTHENTICATED || info->detail != NULL)) {
            write_refused(log, info, client);
        }
        break;
    }
}
