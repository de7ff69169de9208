#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "churn.h"

enum { TAG_MAGIC = 0x43485552 };

static uint8_t pattern(uint64_t number, size_t at) {
    return (uint8_t)(number * 37 + (number >> 8) + at);
}

void tag_write(struct churn *c, struct tag *tag, uint8_t *out, uint32_t n_bytes) {
    tag->magic = TAG_MAGIC;
    tag->number = c->next_number++;
    tag->sent_at_us = c->now_us;
    tag->n_bytes = n_bytes;
    tag->zero = 0;
    memcpy(out, tag, sizeof *tag);
    for (size_t i = sizeof *tag; i < n_bytes; i++) {
        out[i] = pattern(tag->number, i);
    }
    c->tally.sent[tag->kind]++;
}

__attribute__((format(printf, 3, 4))) static bool violation(struct churn *c, const struct tag *tag,
                                                            const char *format, ...) {
    struct tally *t = &c->tally;
    if (t->violations++ == 0) {
        char what[200], relayed[ENDPOINT_TEXT_BYTES];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(what, sizeof what, format, arguments);
        va_end(arguments);
        snprintf(t->first_violation, sizeof t->first_violation,
                 "%s (kind %u number %" PRIu64 " from %u to %u site %u relayed %s, %" PRIu64 " us old)", what,
                 tag->kind, tag->number, tag->from_uid, tag->to_uid, tag->site,
                 endpoint_format(&tag->relayed, relayed), c->now_us - tag->sent_at_us);
    }
    return false;
}

/* Whole, ours and seen for the first time. */
static bool tag_read(struct churn *c, struct tag *tag, const uint8_t *payload, size_t n_payload) {
    memset(tag, 0, sizeof *tag);
    if (n_payload < sizeof *tag) {
        return violation(c, tag, "%zu bytes that nobody sent", n_payload);
    }
    memcpy(tag, payload, sizeof *tag);
    if (tag->magic != TAG_MAGIC || tag->kind == 0 || tag->kind >= TAG_KINDS ||
        tag->number >= c->next_number || tag->from_uid >= c->next_uid || tag->to_uid >= c->next_uid ||
        tag->site >= c->n_sites) {
        return violation(c, tag, "a tag that nobody wrote");
    }
    if (tag->n_bytes != n_payload) {
        return violation(c, tag, "%zu bytes of %u", n_payload, tag->n_bytes);
    }
    for (size_t i = sizeof *tag; i < n_payload; i++) {
        if (payload[i] != pattern(tag->number, i)) {
            return violation(c, tag, "byte %zu is not what was sent", i);
        }
    }
    uint8_t bit = (uint8_t)(1u << (tag->number & 7));
    uint8_t *seen = &c->seen[(tag->number >> 3) % c->n_seen_bytes];
    if (*seen & bit) {
        return violation(c, tag, "delivered twice");
    }
    *seen |= bit;
    return true;
}

static bool has_site(const struct member *m, uint32_t site) {
    return m->sites[0] == site || m->sites[1] == site;
}

/* The member that is meant got it, or there is a reason why another may have it: the relayed address passed
 * on after the end of its owner; on a shared one also the claims below. */
static bool is_owner(struct churn *c, const struct member *m, const struct tag *tag) {
    if (tag->to_uid == m->uid) {
        return true;
    }
    bool is_late = c->past[tag->to_uid].left_at_us != 0;
    if (!c->options.own_ports && !is_late) {
        /* A site that nobody has is a peer on an unnamed port, heard by the only one that permits its IP. A
         * site that some member has is its user's latest allocation's, even before the site heard of that. */
        is_late = tag->kind == TAG_STRAY || tag->kind == TAG_LOCAL ||
                  (m->uid > tag->to_uid && has_site(m, tag->site));
    }
    c->tally.late[tag->kind] += is_late;
    return is_late;
}

static bool judge_source(struct churn *c, const struct member *m, const struct endpoint *peer,
                         const struct tag *tag) {
    const struct past *past = &c->past[m->uid];
    if (tag->kind == TAG_LOCAL) {
        if (!endpoint_equal(peer, &c->past[tag->from_uid].relayed)) {
            return violation(c, tag, "member %u was told another source", m->uid);
        }
        if (tag->from_uid == m->uid) {
            return violation(c, tag, "member %u got its own datagram", m->uid);
        }
        return past->permits_relay_ip || violation(c, tag, "member %u has no permission for it", m->uid);
    }
    const struct site *site = &c->sites[tag->site];
    if (!endpoint_equal(peer, &site->address)) {
        return violation(c, tag, "member %u was told another source", m->uid);
    }
    return (past->permitted_ips >> site->ip & 1) != 0 ||
           violation(c, tag, "member %u has no permission for it", m->uid);
}

void churn_judge_member(struct churn *c, const struct member *m, const struct endpoint *peer,
                        const uint8_t *payload, size_t n_payload) {
    struct tag tag;
    if (!tag_read(c, &tag, payload, n_payload) || !judge_source(c, m, peer, &tag)) {
        return;
    }
    if (tag.kind == TAG_UP) {
        violation(c, &tag, "member %u got what was sent to a peer", m->uid);
        return;
    }
    if (!endpoint_equal(&tag.relayed, &c->past[m->uid].relayed)) {
        violation(c, &tag, "member %u has another relayed address", m->uid);
        return;
    }
    if (!is_owner(c, m, &tag)) {
        const struct past *meant = &c->past[tag.to_uid];
        violation(c, &tag,
                  "member %u (live for %" PRIu64
                  " us, replaced by %u, %s the site) got what is another's (live for "
                  "%" PRIu64 " us)",
                  m->uid, c->now_us - c->past[m->uid].live_at_us, m->replaced_by,
                  has_site(m, tag.site) ? "with" : "without", c->now_us - meant->live_at_us);
        return;
    }
    c->tally.delivered[tag.kind]++;
}

bool churn_judge_site(struct churn *c, const struct site *site, const struct endpoint *source,
                      const uint8_t *payload, size_t n_payload, struct tag *out) {
    if (!tag_read(c, out, payload, n_payload)) {
        return false;
    }
    if (out->kind != TAG_UP || &c->sites[out->site] != site) {
        return violation(c, out, "site %td got what was not for it", site - c->sites);
    }
    if (!endpoint_equal(source, &c->past[out->from_uid].relayed)) {
        return violation(c, out, "came from another relayed address than the sender's");
    }
    c->tally.delivered[TAG_UP]++;
    return true;
}
