#include "histogram.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void buckets_at_both_sides_of_each_bound(void **state) {
    (void)state;
    assert_int_equal(histogram_bucket(0), 0);
    assert_int_equal(histogram_bucket(1), 0);
    assert_int_equal(histogram_bucket(2), 1);
    for (unsigned i = 1; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t upper = UINT64_C(1) << i;
        assert_int_equal(histogram_bucket(upper / 2 + 1), i);
        assert_int_equal(histogram_bucket(upper), i);
        assert_int_equal(histogram_bucket(upper + 1),
                         i + 1 < HISTOGRAM_BUCKETS ? i + 1 : HISTOGRAM_BUCKETS - 1);
    }
    assert_int_equal(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

static void counts_sums_and_maximum(void **state) {
    (void)state;
    struct histogram h = {0};
    struct histogram_snapshot s;
    histogram_take(&h, &s);
    assert_int_equal(s.n_values + s.sum + s.max, 0);
    histogram_add(&h, 1, 3);
    histogram_add(&h, 0, 1);
    histogram_add(&h, 64, 2);
    histogram_add(&h, 9, 1);
    histogram_take(&h, &s);
    assert_int_equal(s.n_values, 7);
    assert_int_equal(s.sum, 3 + 128 + 9);
    assert_int_equal(s.max, 64);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        assert_int_equal(s.buckets[i], i == 0 ? 4 : i == 6 ? 2 : i == 4 ? 1 : 0);
    }
}

static void maximum_starts_anew_with_each_reading(void **state) {
    (void)state;
    struct histogram h = {0};
    struct histogram_snapshot first, second, third, interval;
    histogram_add(&h, 100, 1);
    histogram_take(&h, &first);
    histogram_add(&h, 5, 2);
    histogram_take(&h, &second);
    assert_int_equal(first.max, 100);
    assert_int_equal(second.max, 5);
    histogram_take(&h, &third);
    assert_int_equal(third.max, 0);
    histogram_interval(&interval, &second, &first);
    assert_int_equal(interval.n_values, 2);
    assert_int_equal(interval.sum, 10);
    assert_int_equal(interval.max, 5);
    assert_int_equal(interval.buckets[histogram_bucket(5)], 2);
    assert_int_equal(interval.buckets[histogram_bucket(100)], 0);
}

static void interval_of_a_snapshot_with_itself_is_empty(void **state) {
    (void)state;
    struct histogram h = {0};
    struct histogram_snapshot s, interval;
    histogram_add(&h, 7, 5);
    histogram_take(&h, &s);
    histogram_interval(&interval, &s, &s);
    assert_int_equal(interval.n_values, 0);
    assert_int_equal(interval.sum, 0);
    assert_int_equal(histogram_quantile(&interval, 0.5), 0);
    histogram_interval(&s, &s, &interval); /* in place */
    assert_int_equal(s.n_values, 5);
}

static void quantiles(void **state) {
    (void)state;
    struct histogram h = {0};
    struct histogram_snapshot s;
    histogram_take(&h, &s);
    assert_int_equal(histogram_quantile(&s, 0.5), 0);
    histogram_add(&h, 1, 50);
    histogram_add(&h, 3, 40);
    histogram_add(&h, 100, 9);
    histogram_add(&h, 5000, 1);
    histogram_take(&h, &s);
    assert_int_equal(histogram_quantile(&s, 0.0), 1);
    assert_int_equal(histogram_quantile(&s, 0.5), 1);
    assert_int_equal(histogram_quantile(&s, 0.501), 4);
    assert_int_equal(histogram_quantile(&s, 0.9), 4);
    assert_int_equal(histogram_quantile(&s, 0.905), 128);
    assert_int_equal(histogram_quantile(&s, 0.99), 128);
    assert_int_equal(histogram_quantile(&s, 0.991), 8192);
    assert_int_equal(histogram_quantile(&s, 1.0), 8192);
}

static void quantiles_out_of_range_are_the_ends(void **state) {
    (void)state;
    struct histogram h = {0};
    struct histogram_snapshot s;
    histogram_add(&h, 2, 1);
    histogram_add(&h, UINT64_MAX, 1);
    histogram_take(&h, &s);
    assert_int_equal(s.max, UINT64_MAX);
    assert_int_equal(histogram_quantile(&s, -1.0), 2);
    assert_int_equal(histogram_quantile(&s, (double)NAN), 2);
    assert_int_equal(histogram_quantile(&s, 2.0), UINT64_C(1) << (HISTOGRAM_BUCKETS - 1));
    assert_int_equal(histogram_quantile(&s, (double)INFINITY), UINT64_C(1) << (HISTOGRAM_BUCKETS - 1));
}

/* Against the definition, on values of every size: the bound of the bucket of the value with that rank. */
static void quantiles_agree_with_sorted_values(void **state) {
    (void)state;
    enum { VALUES = 500 };
    uint64_t values[VALUES];
    struct histogram h = {0};
    for (unsigned i = 0; i < VALUES; i++) {
        values[i] = UINT64_C(1) << (i * 31 / VALUES); /* ascending, on bounds */
        histogram_add(&h, values[i], 1);
    }
    struct histogram_snapshot s;
    histogram_take(&h, &s);
    for (unsigned rank = 1; rank <= VALUES; rank++) {
        assert_int_equal(histogram_quantile(&s, ((double)rank - 0.5) / VALUES), values[rank - 1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_at_both_sides_of_each_bound),
        cmocka_unit_test(counts_sums_and_maximum),
        cmocka_unit_test(maximum_starts_anew_with_each_reading),
        cmocka_unit_test(interval_of_a_snapshot_with_itself_is_empty),
        cmocka_unit_test(quantiles),
        cmocka_unit_test(quantiles_out_of_range_are_the_ends),
        cmocka_unit_test(quantiles_agree_with_sorted_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
