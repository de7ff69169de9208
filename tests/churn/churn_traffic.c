#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "churn.h"
#include "clock.h"

enum { EVENTS = 64, MAX_DATAGRAM_BYTES = 2048 };

/* Sends from the member to one of its client's peers. */
static void send_framed(struct churn *c, struct member *m, uint32_t peer, struct tag *tag, uint32_t n_bytes) {
    uint8_t buffer[TURN_CLIENT_HEADROOM_BYTES + CHURN_MAX_BYTES + TURN_CLIENT_TAILROOM_BYTES];
    uint8_t *out, *payload = buffer + TURN_CLIENT_HEADROOM_BYTES;
    size_t n_out;
    if (turn_client_peer_state(m->client, peer) != TURN_PEER_ACTIVE) {
        return;
    }
    tag->from_uid = m->uid;
    tag_write(c, tag, payload, n_bytes);
    if (turn_client_frame_data(m->client, peer, payload, n_bytes, &out, &n_out) == 0) {
        union endpoint_sockaddr to;
        socklen_t n_to = endpoint_to_sockaddr(&to, &c->options.server);
        sendto(m->fd, out, n_out, 0, &to.sa, n_to);
    }
}

void churn_send_up(struct churn *c, struct member *m, uint32_t i, uint32_t n_bytes) {
    struct tag tag = {.kind = TAG_UP, .site = m->sites[i]};
    send_framed(c, m, m->peers[i], &tag, n_bytes);
}

static void send_local(struct churn *c, struct member *m, uint32_t n_bytes) {
    struct member *other = m->friend_uid == 0 ? NULL : churn_find(c, m->friend_uid);
    if (other == NULL || other->state != MEMBER_LIVE) {
        return;
    }
    struct tag tag = {.kind = TAG_LOCAL, .to_uid = other->uid, .relayed = c->past[other->uid].relayed};
    send_framed(c, m, m->friend_peer, &tag, n_bytes);
}

/* A site sends to the relayed address of the member. */
static void send_from_site(struct churn *c, enum tag_kind kind, const struct site *site, uint32_t to_uid,
                           uint32_t n_bytes) {
    uint8_t payload[CHURN_MAX_BYTES];
    struct tag tag = {.kind = kind, .to_uid = to_uid, .site = (uint32_t)(site - c->sites)};
    tag.relayed = c->past[to_uid].relayed;
    tag_write(c, &tag, payload, n_bytes);
    union endpoint_sockaddr to;
    socklen_t n_to = endpoint_to_sockaddr(&to, &tag.relayed);
    sendto(site->fd, payload, n_bytes, 0, &to.sa, n_to);
}

/* Any site sends to the member's relayed address. On a shared one it may be another member that has the site.
 */
static void send_stray(struct churn *c, const struct site *site, const struct member *m, uint32_t n_bytes) {
    bool is_owned =
        site->owner != 0 && endpoint_equal(&c->past[site->owner].relayed, &c->past[m->uid].relayed);
    send_from_site(c, is_owned ? TAG_DOWN : TAG_STRAY, site, is_owned ? site->owner : m->uid, n_bytes);
}

static void send_one(struct churn *c, struct member *m, uint32_t n_bytes) {
    uint32_t dice = (uint32_t)(churn_random(c) % 100);
    uint32_t i = (uint32_t)(churn_random(c) % CHURN_OWN_SITES);
    const struct site *site = &c->sites[m->sites[i]];
    if (dice < 45) {
        /* Once its user is back under another allocation, the old one is silent. */
        if (m->replaced_by == 0) {
            churn_send_up(c, m, i, n_bytes);
        }
    } else if (dice < 90) {
        if (site->owner != 0) {
            send_from_site(c, TAG_DOWN, site, site->owner, n_bytes);
        }
    } else if (dice < 95) {
        send_stray(c, &c->sites[churn_random(c) % c->n_sites], m, n_bytes);
    } else if (m->replaced_by == 0) {
        send_local(c, m, n_bytes);
    }
}

static struct member *random_live(struct churn *c) {
    for (int tries = 0; tries < 200; tries++) {
        struct member *m = &c->members[churn_random(c) % CHURN_MAX_MEMBERS];
        if (m->state == MEMBER_LIVE) {
            return m;
        }
    }
    return NULL;
}

static void site_input(struct churn *c, struct site *site, const uint8_t *bytes, size_t n_bytes,
                       const struct endpoint *source) {
    struct tag tag;
    if (!churn_judge_site(c, site, source, bytes, n_bytes, &tag)) {
        return;
    }
    const struct member *from = churn_find(c, tag.from_uid);
    bool has_it = from != NULL && from->state == MEMBER_LIVE && from->replaced_by == 0 &&
                  (from->sites[0] == tag.site || from->sites[1] == tag.site);
    if (has_it && tag.from_uid > site->owner) {
        site->owner = tag.from_uid;
    }
}

/* Takes one datagram from the event's socket. False when none was there. */
static bool take_one(struct churn *c, uint32_t index) {
    uint8_t bytes[MAX_DATAGRAM_BYTES];
    union endpoint_sockaddr from;
    socklen_t n_from = sizeof from;
    struct member *m = index < CHURN_MAX_MEMBERS ? &c->members[index] : NULL;
    struct site *site = m == NULL ? &c->sites[index - CHURN_MAX_MEMBERS] : NULL;
    if (m != NULL && m->state == MEMBER_FREE) {
        return false;
    }
    ssize_t n = recvfrom(m != NULL ? m->fd : site->fd, bytes, sizeof bytes, MSG_DONTWAIT, &from.sa, &n_from);
    if (n < 0) {
        return false;
    }
    struct endpoint source;
    endpoint_from_sockaddr(&source, &from.sa);
    if (m == NULL) {
        site_input(c, site, bytes, (size_t)n, &source);
    } else if (endpoint_equal(&source, &c->options.server)) {
        churn_member_input(c, m, bytes, (size_t)n);
    }
    return true;
}

void churn_drain(struct churn *c, int quiet_ms) {
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(c->epoll_fd, events, EVENTS, quiet_ms);
        c->now_us = clock_now_us();
        if (n <= 0) {
            return;
        }
        for (int i = 0; i < n; i++) {
            while (take_one(c, events[i].data.u32)) {
            }
        }
    }
}

void churn_burst(struct churn *c, uint32_t n) {
    uint32_t sizes[4] = {sizeof(struct tag), 200, 1000, CHURN_MAX_BYTES};
    uint32_t size = sizes[churn_random(c) % 4];
    bool mixed = churn_random(c) % 2 == 0;
    uint32_t run = churn_random(c) % 4 == 0 ? 24 : 1; /* datagrams in a row with one member */
    for (uint32_t i = 0; i < n; i += run) {
        struct member *m = random_live(c);
        for (uint32_t k = 0; m != NULL && k < run; k++) {
            if (mixed) {
                size =
                    (uint32_t)(sizeof(struct tag) + churn_random(c) % (CHURN_MAX_BYTES - sizeof(struct tag)));
            }
            send_one(c, m, size);
        }
    }
}
