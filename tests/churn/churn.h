/* Clients that join, leave and come back while tagged datagrams flow in all directions; every datagram that
 * arrives is judged. One thread.
 *
 * A site is a peer's socket. A member is one client with its allocation. It has two sites for itself: one
 * bound to a channel, one it sends indications to. Some members also know a friend: another member, reached
 * at its relayed address. */
#ifndef TURN_CHURN_H
#define TURN_CHURN_H

#include "endpoint.h"
#include "turn_client.h"

enum {
    CHURN_MAX_IPS = 16,
    CHURN_SITES_PER_IP = 64,
    CHURN_MAX_SITES = CHURN_MAX_IPS * CHURN_SITES_PER_IP,
    CHURN_MAX_MEMBERS = 400,
    CHURN_MAX_BYTES = 1200,
    CHURN_OWN_SITES = 2,
};

/* What a datagram carries, followed by a pattern that its number gives. */
enum tag_kind { TAG_UP = 1, TAG_DOWN, TAG_STRAY, TAG_LOCAL, TAG_KINDS };
struct tag {
    uint32_t magic;
    uint32_t kind;
    uint32_t from_uid;       /* UP, LOCAL: the member that sent it */
    uint32_t to_uid;         /* DOWN, STRAY, LOCAL: the member that is meant */
    uint32_t site;           /* all but LOCAL */
    uint32_t n_bytes;        /* of all */
    uint64_t number;         /* each is sent once */
    uint64_t sent_at_us;     /* monotonic */
    struct endpoint relayed; /* DOWN, STRAY, LOCAL: where it was sent */
    uint32_t zero;
};

struct site {
    int fd;
    struct endpoint address;
    uint32_t ip;    /* index */
    uint32_t owner; /* uid of the member heard last, 0: nobody */
    bool is_taken;  /* some member has it for itself */
};

enum member_state { MEMBER_FREE, MEMBER_ALLOCATING, MEMBER_BINDING, MEMBER_LIVE, MEMBER_LEAVING };

struct member {
    enum member_state state;
    struct turn_client *client;
    int fd;
    uint32_t uid, user;
    uint32_t sites[CHURN_OWN_SITES];
    uint32_t peers[CHURN_OWN_SITES];  /* their indices with the client */
    uint32_t friend_peer, friend_uid; /* uid 0: none */
    uint32_t replaced_by;             /* uid of the same user's next allocation, 0: none */
    uint64_t leave_at_us;
};

/* What stays known of a member for judging what comes late. */
struct past {
    struct endpoint relayed;
    uint64_t live_at_us, left_at_us; /* 0: not yet */
    uint32_t permitted_ips;          /* bits of site IPs */
    bool permits_relay_ip;
};

struct tally {
    uint64_t sent[TAG_KINDS], delivered[TAG_KINDS], late[TAG_KINDS];
    uint64_t joined, left, reloaded, failed;
    uint64_t violations;
    char first_violation[400];
};

struct churn_options {
    struct endpoint server, client_ip;
    struct endpoint peer_ips[CHURN_MAX_IPS];
    uint32_t n_ips, n_members;
    uint64_t n_datagrams, seconds, seed;
    bool own_ports; /* every allocation has a relayed address of its own */
    const char *secret, *client_ns, *peer_ns;
};

struct churn {
    struct churn_options options;
    struct stun_crypto *crypto;
    int epoll_fd;
    uint64_t random, now_us, next_number;
    uint32_t next_uid, n_sites;
    struct member members[CHURN_MAX_MEMBERS];
    struct site sites[CHURN_MAX_SITES];
    struct past *past; /* by uid */
    uint32_t n_past;
    uint8_t *seen; /* a bit for each number */
    size_t n_seen_bytes;
    struct tally tally;
};

uint64_t churn_random(struct churn *c);

/* ---- churn_member.c ---- */

/* Does one thing with some member: join, leave or reload. */
void churn_step(struct churn *c);
void churn_join(struct churn *c);
/* Time for retransmissions, refreshes and late leavers. */
void churn_advance(struct churn *c);
/* A datagram reached the member's socket. */
void churn_member_input(struct churn *c, struct member *m, const uint8_t *bytes, size_t n_bytes);
struct member *churn_find(struct churn *c, uint32_t uid);
/* Sends what the client has to say. */
void churn_member_output(struct churn *c, struct member *m);
void churn_close_all(struct churn *c);

/* ---- churn_traffic.c ---- */

/* Sends a burst of about n datagrams and takes what comes until it gets quiet. */
void churn_burst(struct churn *c, uint32_t n);
void churn_drain(struct churn *c, int quiet_ms);
/* One datagram from the member to its i-th site. */
void churn_send_up(struct churn *c, struct member *m, uint32_t i, uint32_t n_bytes);

/* ---- churn_verdict.c ---- */

/* Writes the tag with the next number and its pattern; `tag` gives kind, uids, site and relayed. */
void tag_write(struct churn *c, struct tag *tag, uint8_t *out, uint32_t n_bytes);
/* Judges what a member was given, with the peer it was told. */
void churn_judge_member(struct churn *c, const struct member *m, const struct endpoint *peer,
                        const uint8_t *payload, size_t n_payload);
/* Judges what came to a site. True when it is from a member that has the site; *out is the tag then. */
bool churn_judge_site(struct churn *c, const struct site *site, const struct endpoint *source,
                      const uint8_t *payload, size_t n_payload, struct tag *out);

#endif
