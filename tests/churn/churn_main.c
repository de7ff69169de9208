/* See churn.h. Prints one line of JSON: what was sent, what was delivered, what was wrong. Exit status 0 when
 * nothing was wrong, 1 when something was, 2 when it could not be tried. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "churn.h"
#include "clock.h"

enum { BURST = 192, MAX_UIDS = 200000, SPARE_NUMBERS = 1 << 20, SITE_BUFFER_BYTES = 4 << 20 };

uint64_t churn_random(struct churn *c) { /* xorshift64* */
    c->random ^= c->random >> 12, c->random ^= c->random << 25, c->random ^= c->random >> 27;
    return c->random * UINT64_C(2685821657736338717) >> 8;
}

static _Noreturn void give_up(const char *what) {
    fprintf(stderr, "relay_churn: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void enter(const char *namespace_path) {
    int fd = open(namespace_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0) {
        give_up(namespace_path);
    }
    close(fd);
}

static void open_site(struct churn *c, struct site *site) {
    union endpoint_sockaddr local;
    socklen_t n_local = endpoint_to_sockaddr(&local, &site->address);
    site->fd = socket(local.sa.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (site->fd < 0 || bind(site->fd, &local.sa, n_local) < 0 ||
        getsockname(site->fd, &local.sa, &n_local) < 0) {
        give_up("a peer's socket");
    }
    int bytes = SITE_BUFFER_BYTES;
    setsockopt(site->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    endpoint_from_sockaddr(&site->address, &local.sa);
    struct epoll_event event = {.events = EPOLLIN,
                                .data.u32 = CHURN_MAX_MEMBERS + (uint32_t)(site - c->sites)};
    if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, site->fd, &event) < 0) {
        give_up("epoll");
    }
}

static struct churn *create(const struct churn_options *options) {
    struct churn *c = calloc(1, sizeof *c);
    if (c == NULL) {
        give_up("memory");
    }
    c->options = *options;
    c->random = options->seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
    c->next_uid = 1;
    c->n_past = MAX_UIDS;
    c->past = calloc(c->n_past, sizeof *c->past);
    c->n_seen_bytes = (options->n_datagrams + SPARE_NUMBERS) / 8;
    c->seen = calloc(1, c->n_seen_bytes);
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (c->past == NULL || c->seen == NULL || c->epoll_fd < 0 || stun_crypto_create(&c->crypto) < 0) {
        give_up("memory");
    }
    enter(options->peer_ns);
    for (uint32_t i = 0; i < options->n_ips * CHURN_SITES_PER_IP; i++) {
        struct site *site = &c->sites[c->n_sites++];
        site->ip = i % options->n_ips;
        site->address = options->peer_ips[site->ip];
        open_site(c, site);
    }
    enter(options->client_ns);
    return c;
}

static void gather_members(struct churn *c) {
    uint64_t end_us = c->now_us + 20000000;
    for (uint32_t n = 0; n < c->options.n_members; n++) {
        churn_join(c);
        churn_drain(c, 0);
    }
    for (uint32_t n_live = 0; n_live < c->options.n_members && c->now_us < end_us;) {
        churn_drain(c, 20);
        churn_advance(c);
        n_live = 0;
        for (uint32_t i = 0; i < CHURN_MAX_MEMBERS; i++) {
            n_live += c->members[i].state == MEMBER_LIVE;
        }
    }
}

/* Datagrams for somebody that have not come, and were not given up yet. */
static uint64_t under_way(const struct churn *c, uint64_t given_up) {
    const struct tally *t = &c->tally;
    uint64_t missing = t->sent[TAG_UP] + t->sent[TAG_DOWN] - t->delivered[TAG_UP] - t->delivered[TAG_DOWN];
    return missing > given_up ? missing - given_up : 0;
}

static void run(struct churn *c) {
    c->now_us = clock_now_us();
    gather_members(c);
    uint64_t given_up = 0, end_us = c->now_us + c->options.seconds * 1000000;
    for (uint64_t turn = 0; c->next_number < c->options.n_datagrams && c->now_us < end_us; turn++) {
        churn_burst(c, BURST);
        if (turn % 4 == 0) {
            churn_step(c);
        }
        churn_drain(c, turn % 8 == 0 ? 0 : 1); /* now and then, a burst meets the one before */
        if (under_way(c, given_up) > 2 * BURST) {
            churn_drain(c, 50); /* whatever it is busy with, no buffer is to overflow */
            given_up += under_way(c, given_up);
        }
        churn_advance(c);
    }
    churn_drain(c, 300);
}

static void report(const struct churn *c) {
    static const char *const names[TAG_KINDS] = {"", "up", "down", "stray", "local"};
    const struct tally *t = &c->tally;
    printf("{\"datagrams\": %" PRIu64 ", \"violations\": %" PRIu64 ", \"first_violation\": \"%s\", "
           "\"joined\": %" PRIu64 ", \"left\": %" PRIu64 ", \"reloaded\": %" PRIu64 ", \"failed\": %" PRIu64,
           c->next_number, t->violations, t->first_violation, t->joined, t->left, t->reloaded, t->failed);
    for (int k = TAG_UP; k < TAG_KINDS; k++) {
        printf(", \"%s\": {\"sent\": %" PRIu64 ", \"delivered\": %" PRIu64 ", \"late\": %" PRIu64 "}",
               names[k], t->sent[k], t->delivered[k], t->late[k]);
    }
    printf("}\n");
}

static struct endpoint parse(const char *text) {
    struct endpoint e;
    if (endpoint_parse(&e, text, 0) < 0) {
        errno = EINVAL;
        give_up(text);
    }
    return e;
}

static void parse_options(struct churn_options *o, int argc, char **argv) {
    static const struct option names[] = {
        {"server", 1, NULL, 's'},    {"client-ip", 1, NULL, 'c'}, {"peer-ip", 1, NULL, 'p'},
        {"client-ns", 1, NULL, 'C'}, {"peer-ns", 1, NULL, 'P'},   {"secret", 1, NULL, 'k'},
        {"members", 1, NULL, 'm'},   {"datagrams", 1, NULL, 'n'}, {"seconds", 1, NULL, 't'},
        {"seed", 1, NULL, 'r'},      {"own-ports", 0, NULL, 'o'}, {0}};
    for (int letter; (letter = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (letter) {
        case 's':
            o->server = parse(optarg);
            break;
        case 'c':
            o->client_ip = parse(optarg);
            break;
        case 'p':
            if (o->n_ips < CHURN_MAX_IPS) {
                o->peer_ips[o->n_ips++] = parse(optarg);
            }
            break;
        case 'C':
            o->client_ns = optarg;
            break;
        case 'P':
            o->peer_ns = optarg;
            break;
        case 'k':
            o->secret = optarg;
            break;
        case 'm':
            o->n_members = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'n':
            o->n_datagrams = strtoull(optarg, NULL, 10);
            break;
        case 't':
            o->seconds = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            o->seed = strtoull(optarg, NULL, 10);
            break;
        case 'o':
            o->own_ports = true;
            break;
        default:
            exit(2);
        }
    }
    if (o->client_ns == NULL || o->peer_ns == NULL || o->secret == NULL || o->n_ips == 0 ||
        o->n_members > CHURN_MAX_MEMBERS / 2) {
        fprintf(stderr, "relay_churn: something is missing\n");
        exit(2);
    }
}

int main(int argc, char **argv) {
    struct churn_options options = {.n_members = 120, .n_datagrams = 100000, .seconds = 60, .seed = 1};
    parse_options(&options, argc, argv);
    struct churn *c = create(&options);
    run(c);
    report(c);
    bool was_wrong = c->tally.violations > 0 || c->tally.failed > 0;
    churn_close_all(c);
    stun_crypto_destroy(c->crypto);
    close(c->epoll_fd);
    free(c->past);
    free(c->seen);
    free(c);
    return was_wrong ? 1 : 0;
}
