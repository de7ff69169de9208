#include "local_addresses.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_PROCESSORS = 128 };

static bool is_link_local(const struct endpoint *e) {
    return e->family == AF_INET6 && e->ip[0] == 0xfe && (e->ip[1] & 0xc0) == 0x80;
}

/* Appends e unless it is there. */
static int append(struct endpoint **list, size_t *n, const struct endpoint *e) {
    for (size_t i = 0; i < *n; i++) {
        if (endpoint_equal(&(*list)[i], e)) {
            return 0;
        }
    }
    struct endpoint *grown = realloc(*list, (*n + 1) * sizeof *grown);
    if (grown == NULL) {
        return -ENOMEM;
    }
    *list = grown;
    grown[(*n)++] = *e;
    return 0;
}

/* Collects addresses of interfaces that are loopback ones or not. */
static int collect(const struct ifaddrs *all, bool loopback, struct endpoint **list, size_t *n) {
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        bool is_loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
        if (i->ifa_addr == NULL || (i->ifa_flags & IFF_UP) == 0 || is_loopback != loopback) {
            continue;
        }
        struct endpoint e;
        endpoint_from_sockaddr(&e, i->ifa_addr);
        e.port = 0;
        if (e.family == AF_UNSPEC || is_link_local(&e)) {
            continue;
        }
        int err = append(list, n, &e);
        if (err < 0) {
            return err;
        }
    }
    return 0;
}

int local_addresses_list(struct endpoint **out, size_t *out_n, bool include_loopback) {
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0) {
        return -errno;
    }
    *out = NULL;
    *out_n = 0;
    int err = collect(all, false, out, out_n);
    if (err == 0 && (include_loopback || *out_n == 0)) {
        err = collect(all, true, out, out_n);
    }
    freeifaddrs(all);
    if (err < 0) {
        free(*out);
        *out = NULL;
    }
    return err;
}

/* cpu.max is "QUOTA PERIOD" in microseconds, or "max PERIOD". 0: no limit known. */
static uint32_t quota_processors(void) {
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f == NULL) {
        return 0;
    }
    unsigned long quota = 0, period = 0;
    int n = fscanf(f, "%lu %lu", &quota, &period);
    fclose(f);
    if (n != 2 || period == 0) {
        return 0;
    }
    unsigned long processors = (quota + period - 1) / period;
    return processors > MAX_PROCESSORS ? MAX_PROCESSORS : (uint32_t)processors;
}

uint32_t usable_processors(void) {
    cpu_set_t set;
    uint32_t n = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        n = (uint32_t)CPU_COUNT(&set);
    }
    uint32_t quota = quota_processors();
    if (quota > 0 && quota < n) {
        n = quota;
    }
    return n < 1 ? 1 : n > MAX_PROCESSORS ? MAX_PROCESSORS : n;
}
