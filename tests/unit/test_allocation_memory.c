/* What an idle allocation costs, and that the memory comes back. */
#include "allocation.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "allocation_private.h"
#include "state_fixture.h"

enum { IDLE = 100000, MAX_BYTES_EACH = 1024 };

/* Sanitizers keep freed memory and pad what is in use. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEASURED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define MEASURED 0
#endif
#endif
#ifndef MEASURED
#define MEASURED 1
#endif

static size_t resident_bytes(void) {
    unsigned long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static struct endpoint peer_of(unsigned i) {
    struct endpoint p = state_fixture_endpoint("198.51.100.0:5000");
    memcpy(p.ip, &i, sizeof i);
    p.ip[3] |= 0x40;
    return p;
}

static void fill(struct state_fixture *f) {
    for (unsigned i = 0; i < IDLE; i++) {
        struct allocation *a = fixture_allocate_v4(f, "1700000000:somebody");
        assert_int_equal(state_fixture_bind(f, a, 0x4000, peer_of(i)), STUN_OK);
    }
}

static void an_idle_allocation_costs_less_than_a_kibibyte(void **state) {
    (void)state;
    struct state_fixture f;
    assert_int_equal(fixture_create(&f, &(struct fixture_params){.carrier.shared = true}), 0);
    size_t before = resident_bytes();
    fill(&f);
    size_t each = (resident_bytes() - before) / IDLE;
    print_message("%zu bytes each\n", each);
    assert_true(!MEASURED || each <= MAX_BYTES_EACH);
    struct allocation_table_stats s;
    allocation_table_stats(f.table, &s);
    assert_true(s.n_allocations == IDLE && s.n_permissions == IDLE && s.n_channels == IDLE);
    for (unsigned i = 0; i < 20 * FIXTURE_LIFETIME_S; i++) {
        fixture_advance(&f, 0.1);
    }
    assert_int_equal(f.n_ended, IDLE);
    fixture_advance(&f, 1.1);
    size_t after = resident_bytes();
    print_message("%zu bytes kept of %zu\n", after > before ? after - before : 0, each * IDLE);
    assert_true(!MEASURED || after < before + each * IDLE / 10);
    assert_int_equal(fixture_table_items(&f), 0);
    assert_true(f.table->by_tuple.mask < 64 && f.table->claims.mask < 64 && f.table->permitted.mask < 64);
    assert_true(fixture_destroy(&f));
}

/* All of one IP: the chain of its permissions is as long as it gets, and no operation walks it. */
static void a_crowd_behind_one_ip_comes_and_goes(void **state) {
    (void)state;
    struct state_fixture f;
    enum { CROWD = 50000 };
    assert_int_equal(fixture_create(&f, &(struct fixture_params){.carrier.shared = true}), 0);
    for (unsigned i = 0; i < CROWD; i++) {
        struct allocation *a = fixture_allocate_v4(&f, "ann");
        assert_int_equal(state_fixture_bind(&f, a, 0x4000, fixture_peer(1, 10000)), STUN_OK);
        state_fixture_send(&f, a, fixture_peer(1, 10000));
    }
    fixture_advance(&f, FIXTURE_PERMISSION_S + 0.2);
    assert_int_equal(f.table->permitted.n_items, 0);
    fixture_advance(&f, FIXTURE_LIFETIME_S);
    assert_int_equal(fixture_table_items(&f), 0);
    assert_true(fixture_destroy(&f));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_allocation_costs_less_than_a_kibibyte),
        cmocka_unit_test(a_crowd_behind_one_ip_comes_and_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
