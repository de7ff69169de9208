/* Lines about allocations and requests: the words that scrapers know, the client's address, and no surprises
 * from events without an allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "event_log.h"

static char text[8192];

/* What one event writes. */
static const char *written(struct event_log *log, const struct core_event_info *info) {
    char path[] = "/tmp/test-event-log-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    const struct log_params params = {.file = path, .iso_timestamps = true, .level = LOG_LEVEL_DEBUG};
    assert_int_equal(log_start(&params), 0);
    event_log_write(log, info);
    log_stop();
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    fclose(f);
    unlink(path);
    return text;
}

static struct five_tuple tuple_of(const char *client) {
    struct five_tuple t = {0};
    assert_int_equal(endpoint_parse(&t.client, client, 0), 0);
    return t;
}

static void refresh_that_deleted_has_no_allocation(void **state) {
    (void)state;
    struct event_log log = {.verbose = true};
    const struct five_tuple tuple = tuple_of("192.0.2.7:5000");
    const struct core_event_info info = {.event = CORE_ALLOCATION_REFRESHED,
                                         .five_tuple = &tuple,
                                         .method = STUN_METHOD_REFRESH,
                                         .username = "alice and more",
                                         .n_username = 5};
    assert_non_null(strstr(written(&log, &info), "session 000000000000000000: refreshed, realm=<>, "
                                                 "username=<alice>, lifetime=0, client=192.0.2.7:5000"));
}

static void life_of_an_allocation(void **state) {
    (void)state;
    struct event_log log = {.verbose = true};
    struct relayed_address relayed = {0};
    assert_int_equal(endpoint_parse(&relayed.advertised, "198.51.100.1:50000", 0), 0);
    char user[] = "alice", realm[] = "example.org";
    struct allocation a = {.uid = UINT64_C(2) << 48 | 7,
                           .username = user,
                           .realm = realm,
                           .client_leg = {1, 2, 3, 4},
                           .peer_leg = {5, 6, 7, 8}};
    a.relay[RELAY_V4].address = &relayed;
    const struct five_tuple tuple = tuple_of("[2001:db8::1]:9");
    struct core_event_info info = {
        .event = CORE_ALLOCATION_CREATED, .allocation = &a, .five_tuple = &tuple, .lifetime_s = 600};
    assert_non_null(strstr(written(&log, &info),
                           "session 002000000000000007: new, realm=<example.org>, username=<alice>, "
                           "lifetime=600, client=[2001:db8::1]:9, relayed=198.51.100.1:50000"));
    info.event = CORE_ALLOCATION_ENDED;
    info.end = ALLOCATION_END_EXPIRED;
    const char *lines = written(&log, &info);
    assert_non_null(strstr(lines, "002000000000000007: usage: realm=<example.org>, username=<alice>, rp=1, "
                                  "rb=2, sp=3, sb=4"));
    assert_non_null(
        strstr(lines, "peer usage: realm=<example.org>, username=<alice>, rp=5, rb=6, sp=7, sb=8"));
    assert_non_null(
        strstr(lines, "delete: realm=<example.org>, username=<alice>, reason: allocation timeout"));
    log.verbose = false;
    assert_string_equal(written(&log, &info), "");
}

static void refusals_name_peer_and_rule_once_a_second(void **state) {
    (void)state;
    struct event_log log = {.verbose = true};
    const struct five_tuple tuple = tuple_of("192.0.2.7:5000");
    struct endpoint peer;
    assert_int_equal(endpoint_parse(&peer, "127.0.0.1:80", 0), 0);
    struct core_event_info info = {.event = CORE_REQUEST_REFUSED,
                                   .five_tuple = &tuple,
                                   .method = STUN_METHOD_CREATE_PERMISSION,
                                   .status = STUN_FORBIDDEN,
                                   .peer = &peer,
                                   .detail = "127.0.0.0/8"};
    const char *line = written(&log, &info);
    assert_non_null(strstr(line, "error 403: Forbidden, peer=127.0.0.1:80, detail=<127.0.0.0/8>"));
    assert_non_null(strstr(line, "client=192.0.2.7:5000"));
    assert_string_equal(written(&log, &info), "");
    info.status = STUN_UNAUTHENTICATED;
    info.detail = NULL;
    assert_string_equal(written(&log, &info), ""); /* how every client begins */
    info.detail = "wrong key";
    assert_non_null(strstr(written(&log, &info), "error 401"));
    info.status = STUN_STALE_NONCE;
    assert_string_equal(written(&log, &info), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refresh_that_deleted_has_no_allocation),
        cmocka_unit_test(life_of_an_allocation),
        cmocka_unit_test(refusals_name_peer_and_rule_once_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
