#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "churn.h"

enum { RELOADED_LINGER_US = 1000000 };

static void fill_random(void *context, void *out, size_t n_bytes) {
    struct churn *c = context;
    uint8_t *bytes = out;
    for (size_t i = 0; i < n_bytes; i++) {
        bytes[i] = (uint8_t)(churn_random(c) >> 24);
    }
}

struct member *churn_find(struct churn *c, uint32_t uid) {
    for (uint32_t i = 0; i < CHURN_MAX_MEMBERS; i++) {
        if (c->members[i].state != MEMBER_FREE && c->members[i].uid == uid) {
            return &c->members[i];
        }
    }
    return NULL;
}

/* Any live member that is not replaced; NULL when there seems to be none. */
static struct member *pick_live(struct churn *c) {
    for (int tries = 0; tries < 200; tries++) {
        struct member *m = &c->members[churn_random(c) % CHURN_MAX_MEMBERS];
        if (m->state == MEMBER_LIVE && m->replaced_by == 0) {
            return m;
        }
    }
    return NULL;
}

void churn_member_output(struct churn *c, struct member *m) {
    const uint8_t *bytes;
    size_t n_bytes;
    union endpoint_sockaddr to;
    socklen_t n_to = endpoint_to_sockaddr(&to, &c->options.server);
    while (turn_client_next_output(m->client, &bytes, &n_bytes)) {
        sendto(m->fd, bytes, n_bytes, 0, &to.sa, n_to);
    }
}

static int open_client_socket(struct churn *c, struct member *m) {
    union endpoint_sockaddr local;
    socklen_t n_local = endpoint_to_sockaddr(&local, &c->options.client_ip);
    m->fd = socket(local.sa.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (m->fd < 0 || bind(m->fd, &local.sa, n_local) < 0) {
        return -errno;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)(m - c->members)};
    return epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, m->fd, &event) < 0 ? -errno : 0;
}

static int create_client(struct churn *c, struct member *m) {
    char username[64];
    snprintf(username, sizeof username, "%lld:user%u", (long long)time(NULL) + 86400, m->user);
    struct turn_client_params params = {
        .crypto = c->crypto,
        .random = fill_random,
        .random_context = c,
        .username = username,
        .rest_secret = c->options.secret,
    };
    return turn_client_create(&m->client, &params);
}

static struct member *start_member(struct churn *c, uint32_t user) {
    struct member *m = NULL;
    for (uint32_t i = 0; i < CHURN_MAX_MEMBERS && m == NULL; i++) {
        m = c->members[i].state == MEMBER_FREE ? &c->members[i] : NULL;
    }
    if (m == NULL || c->next_uid == c->n_past) {
        return NULL;
    }
    *m = (struct member){.state = MEMBER_ALLOCATING, .fd = -1, .uid = c->next_uid++};
    m->user = user != 0 ? user : m->uid;
    if (open_client_socket(c, m) < 0 || create_client(c, m) < 0 ||
        turn_client_allocate(m->client, c->now_us) < 0) {
        perror("relay_churn: a new client");
        exit(2);
    }
    churn_member_output(c, m);
    return m;
}

static bool take_free_site(struct churn *c, uint32_t *out) {
    uint32_t start = (uint32_t)(churn_random(c) % c->n_sites);
    for (uint32_t i = 0; i < c->n_sites; i++) {
        struct site *s = &c->sites[(start + i) % c->n_sites];
        if (!s->is_taken) {
            s->is_taken = true;
            s->owner = 0;
            *out = (uint32_t)(s - c->sites);
            return true;
        }
    }
    return false;
}

void churn_join(struct churn *c) {
    struct member *m = start_member(c, 0);
    if (m == NULL) {
        return;
    }
    for (int i = 0; i < CHURN_OWN_SITES; i++) {
        if (!take_free_site(c, &m->sites[i])) {
            fprintf(stderr, "relay_churn: too few sites\n");
            exit(2);
        }
    }
    c->tally.joined++;
}

static void leave(struct churn *c, struct member *m) {
    m->state = MEMBER_LEAVING;
    c->past[m->uid].left_at_us = c->now_us;
    turn_client_release(m->client, c->now_us);
    churn_member_output(c, m);
}

/* The same user once more, from a new port, towards the same sites; the old allocation lives on a little. */
static void reload(struct churn *c, struct member *old) {
    struct member *m = start_member(c, old->user);
    if (m == NULL) {
        return;
    }
    memcpy(m->sites, old->sites, sizeof m->sites);
    old->replaced_by = m->uid;
    old->leave_at_us = c->now_us + RELOADED_LINGER_US;
    c->tally.reloaded++;
}

void churn_step(struct churn *c) {
    uint32_t n_live = 0;
    for (uint32_t i = 0; i < CHURN_MAX_MEMBERS; i++) {
        n_live += c->members[i].state != MEMBER_FREE && c->members[i].replaced_by == 0;
    }
    struct member *m = pick_live(c);
    if (n_live < c->options.n_members || m == NULL) {
        churn_join(c);
    } else if (churn_random(c) % 3 == 0) {
        reload(c, m);
    } else {
        leave(c, m);
    }
}

/* An earlier allocation of the same user may live on, and hold what is claimed on a shared address. */
static bool is_wanted(const struct churn *c, const struct member *without, uint32_t site) {
    for (uint32_t i = 0; i < CHURN_MAX_MEMBERS; i++) {
        const struct member *m = &c->members[i];
        if (m != without && m->state != MEMBER_FREE && (m->sites[0] == site || m->sites[1] == site)) {
            return true;
        }
    }
    return false;
}

static void free_member(struct churn *c, struct member *m) {
    for (int i = 0; i < CHURN_OWN_SITES; i++) {
        if (!is_wanted(c, m, m->sites[i])) {
            c->sites[m->sites[i]].is_taken = false;
            c->sites[m->sites[i]].owner = 0;
        }
    }
    turn_client_destroy(m->client);
    close(m->fd);
    *m = (struct member){.state = MEMBER_FREE, .fd = -1};
    c->tally.left++;
}

static struct member *pick_friend(struct churn *c, const struct member *m) {
    struct member *other = pick_live(c);
    return other == m || churn_random(c) % 2 == 0 ? NULL : other;
}

static void bind_peers(struct churn *c, struct member *m) {
    struct past *past = &c->past[m->uid];
    past->relayed = turn_client_get_allocation(m->client)->relayed[0];
    const struct site *first = &c->sites[m->sites[0]], *second = &c->sites[m->sites[1]];
    past->permitted_ips = 1u << first->ip | 1u << second->ip;
    struct endpoint wanted[2] = {second->address};
    size_t n_wanted = 1;
    const struct member *other = pick_friend(c, m);
    if (other != NULL) {
        m->friend_uid = other->uid;
        past->permits_relay_ip = true;
        wanted[n_wanted++] = c->past[other->uid].relayed;
    }
    m->state = MEMBER_BINDING;
    if (turn_client_bind_channel(m->client, &first->address, c->now_us, &m->peers[0]) < 0 ||
        turn_client_create_permissions(m->client, wanted, n_wanted, c->now_us, &m->peers[1]) < 0) {
        fprintf(stderr, "relay_churn: member %u cannot ask for its peers\n", m->uid);
        exit(2);
    }
    m->friend_peer = m->peers[1] + 1;
}

static void go_live_when_bound(struct churn *c, struct member *m) {
    if (turn_client_peer_channel(m->client, m->peers[0]) == 0 ||
        turn_client_peer_state(m->client, m->peers[1]) != TURN_PEER_ACTIVE) {
        return;
    }
    m->state = MEMBER_LIVE;
    c->past[m->uid].live_at_us = c->now_us;
    for (uint32_t i = 0; i < CHURN_OWN_SITES; i++) {
        churn_send_up(c, m, i, 100); /* the sites learn who has them now */
    }
}

static void handle_event(struct churn *c, struct member *m, const struct turn_event *event) {
    switch (event->kind) {
    case TURN_EVENT_RESPONSE:
        if (m->state == MEMBER_ALLOCATING && event->method == STUN_METHOD_ALLOCATE) {
            bind_peers(c, m);
        } else if (m->state == MEMBER_BINDING) {
            go_live_when_bound(c, m);
        }
        return;
    case TURN_EVENT_ERROR:
    case TURN_EVENT_TIMEOUT:
    case TURN_EVENT_EXPIRED:
        fprintf(stderr, "member %u: method %u failed: code %u, err %d\n", m->uid, event->method, event->code,
                event->err);
        c->tally.failed++;
        return;
    case TURN_EVENT_NONE:
    case TURN_EVENT_DATA:
    case TURN_EVENT_ICMP:
    case TURN_EVENT_CONNECTION_ATTEMPT:
        return;
    }
}

/* Data is taken apart here: the client would pass over what it has not asked for, and that is what is looked
 * for. True when it was data. */
static bool take_data(struct churn *c, struct member *m, const uint8_t *bytes, size_t n_bytes) {
    struct stun_message message;
    struct stun_attribute address, data;
    struct endpoint peer = {0};
    uint16_t channel;
    const uint8_t *payload;
    uint32_t n_payload;
    if (n_bytes > 0 && channel_data_is_first_byte(bytes[0])) {
        if (channel_data_decode(bytes, n_bytes, &channel, &payload, &n_payload)) {
            /* Any other number leaves the peer unknown, which no tag agrees with. */
            if (channel == turn_client_peer_channel(m->client, m->peers[0])) {
                peer = c->sites[m->sites[0]].address;
            }
            churn_judge_member(c, m, &peer, payload, n_payload);
        }
        return true;
    }
    if (!stun_message_decode(&message, bytes, n_bytes) || message.method != STUN_METHOD_DATA ||
        !stun_message_find(&message, STUN_ATTR_DATA, &data)) {
        return false;
    }
    if (stun_message_find(&message, STUN_ATTR_XOR_PEER_ADDRESS, &address)) {
        stun_read_xor_address(&peer, &address, &message);
    }
    churn_judge_member(c, m, &peer, data.value, data.n_bytes);
    return true;
}

void churn_member_input(struct churn *c, struct member *m, const uint8_t *bytes, size_t n_bytes) {
    struct turn_event event;
    if (!take_data(c, m, bytes, n_bytes) && turn_client_input(m->client, bytes, n_bytes, c->now_us, &event)) {
        handle_event(c, m, &event);
    }
    churn_member_output(c, m);
    if (m->state == MEMBER_LEAVING && turn_client_get_state(m->client) == TURN_CLIENT_IDLE) {
        free_member(c, m);
    }
}

void churn_advance(struct churn *c) {
    for (uint32_t i = 0; i < CHURN_MAX_MEMBERS; i++) {
        struct member *m = &c->members[i];
        if (m->state == MEMBER_FREE) {
            continue;
        }
        struct turn_event event;
        while (turn_client_next_deadline_us(m->client) <= c->now_us &&
               turn_client_advance(m->client, c->now_us, &event)) {
            handle_event(c, m, &event);
        }
        churn_member_output(c, m);
        if (m->state == MEMBER_LIVE && m->replaced_by != 0 && c->now_us >= m->leave_at_us) {
            leave(c, m);
        }
        if (m->state == MEMBER_LEAVING && turn_client_get_state(m->client) == TURN_CLIENT_IDLE) {
            free_member(c, m);
        }
    }
}

void churn_close_all(struct churn *c) {
    for (uint32_t i = 0; i < CHURN_MAX_MEMBERS; i++) {
        struct member *m = &c->members[i];
        if (m->state != MEMBER_FREE) {
            turn_client_release(m->client, c->now_us);
            churn_member_output(c, m);
            turn_client_destroy(m->client);
            close(m->fd);
        }
    }
    for (uint32_t i = 0; i < c->n_sites; i++) {
        close(c->sites[i].fd);
    }
}
