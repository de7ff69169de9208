#include "quota.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fault.h"

static int acquire(struct quota *q, struct quota_unit **unit, const char *user) {
    return quota_acquire(q, unit, user, user == NULL ? 0 : strlen(user));
}

static void user_is_refused_exactly_at_the_limit(void **state) {
    (void)state;
    struct quota *q;
    struct quota_unit *a, *b, *c, *other;
    assert_int_equal(quota_create(&q, 2, 0), 0);
    assert_int_equal(acquire(q, &a, "alice"), 0);
    assert_int_equal(acquire(q, &b, "alice"), 0);
    assert_int_equal(acquire(q, &c, "alice"), -EDQUOT);
    assert_int_equal(acquire(q, &other, "bob"), 0);
    assert_int_equal(quota_total(q), 3);
    quota_release(q, a);
    assert_int_equal(acquire(q, &c, "alice"), 0);
    assert_int_equal(acquire(q, &a, "alice"), -EDQUOT);
    quota_release(q, b), quota_release(q, c), quota_release(q, other);
    assert_int_equal(quota_total(q), 0);
    quota_destroy(q);
}

static void total_is_refused_exactly_at_the_limit(void **state) {
    (void)state;
    struct quota *q;
    struct quota_unit *a, *b, *c;
    assert_int_equal(quota_create(&q, 0, 2), 0);
    assert_int_equal(acquire(q, &a, "alice"), 0);
    assert_int_equal(acquire(q, &b, NULL), 0);
    assert_int_equal(acquire(q, &c, "carol"), -EDQUOT);
    assert_int_equal(acquire(q, &c, NULL), -EDQUOT);
    quota_release(q, b);
    assert_int_equal(acquire(q, &c, "carol"), 0);
    quota_release(q, a), quota_release(q, c);
    assert_int_equal(quota_total(q), 0);
    quota_destroy(q);
}

static void without_limits_nobody_is_refused(void **state) {
    (void)state;
    struct quota *q;
    struct quota_unit *units[500];
    assert_int_equal(quota_create(&q, 0, 0), 0);
    for (size_t i = 0; i < 500; i++) {
        assert_int_equal(acquire(q, &units[i], i % 2 == 0 ? "alice" : NULL), 0);
    }
    assert_int_equal(quota_total(q), 500);
    for (size_t i = 0; i < 500; i++) {
        quota_release(q, units[i]);
    }
    assert_int_equal(quota_total(q), 0);
    quota_destroy(q);
}

static void users_are_told_apart_by_every_byte(void **state) {
    (void)state;
    struct quota *q;
    struct quota_unit *a, *b, *c, *d;
    assert_int_equal(quota_create(&q, 1, 0), 0);
    assert_int_equal(quota_acquire(q, &a, "user\0a", 6), 0);
    assert_int_equal(quota_acquire(q, &b, "user\0b", 6), 0);
    assert_int_equal(quota_acquire(q, &c, "user", 4), 0);
    assert_int_equal(quota_acquire(q, &d, "", 0), 0);
    quota_release(q, a), quota_release(q, b), quota_release(q, c), quota_release(q, d);
    quota_destroy(q);
}

static void memory_of_users_comes_back(void **state) {
    (void)state;
    struct quota *q;
    assert_int_equal(quota_create(&q, 1, 0), 0);
    for (int round = 0; round < 20000; round++) {
        char name[32];
        struct quota_unit *unit;
        snprintf(name, sizeof name, "user%d", round);
        assert_int_equal(acquire(q, &unit, name), 0);
        quota_release(q, unit);
    }
    assert_int_equal(quota_total(q), 0);
    quota_destroy(q); /* what is left over would be reported as a leak */
}

static void destroying_with_places_held_leaks_nothing(void **state) {
    (void)state;
    struct quota *q;
    struct quota_unit *unit;
    assert_int_equal(quota_create(&q, 5, 0), 0);
    assert_int_equal(acquire(q, &unit, "alice"), 0);
    assert_int_equal(acquire(q, &unit, "bob"), 0);
    quota_destroy(q);
    quota_destroy(NULL);
}

static void failed_allocations_cost_nothing(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct quota *q;
        struct quota_unit *unit;
        alloc_fault_arm(n);
        int err = quota_create(&q, 1, 1);
        if (err == 0) {
            err = acquire(q, &unit, "alice");
            alloc_fault_disarm();
            if (err < 0) {
                assert_int_equal(err, -ENOMEM);
                assert_int_equal(quota_total(q), 0);
                assert_int_equal(acquire(q, &unit, "alice"), 0);
            }
            quota_release(q, unit);
            quota_destroy(q);
        } else {
            assert_int_equal(err, -ENOMEM);
        }
        alloc_fault_disarm();
        if (!alloc_fault_hit()) {
            assert_true(n > 2);
            break;
        }
    }
}

struct worker {
    struct quota *q;
    int n_most; /* places this thread saw taken at once */
};

static void *churn(void *context) {
    struct worker *w = context;
    for (int round = 0; round < 3000; round++) {
        struct quota_unit *units[8];
        int n = 0;
        while (n < 8 && quota_acquire(w->q, &units[n], "alice", 5) == 0) {
            n++;
        }
        uint64_t total = quota_total(w->q);
        w->n_most = (int)total > w->n_most ? (int)total : w->n_most;
        while (n > 0) {
            quota_release(w->q, units[--n]);
        }
    }
    return NULL;
}

static void concurrent_bursts_stay_below_the_limit(void **state) {
    (void)state;
    struct quota *q;
    pthread_t threads[4];
    struct worker workers[4];
    assert_int_equal(quota_create(&q, 10, 0), 0);
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){q, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_in_range(workers[i].n_most, 0, 10);
    }
    assert_int_equal(quota_total(q), 0);
    quota_destroy(q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(user_is_refused_exactly_at_the_limit),
        cmocka_unit_test(total_is_refused_exactly_at_the_limit),
        cmocka_unit_test(without_limits_nobody_is_refused),
        cmocka_unit_test(users_are_told_apart_by_every_byte),
        cmocka_unit_test(memory_of_users_comes_back),
        cmocka_unit_test(destroying_with_places_held_leaks_nothing),
        cmocka_unit_test(failed_allocations_cost_nothing),
        cmocka_unit_test(concurrent_bursts_stay_below_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
