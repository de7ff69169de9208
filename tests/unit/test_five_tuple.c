#include "five_tuple.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "drop_reason.h"
#include "state_fixture.h"

static const struct hash_key key = {3, 5};

static struct five_tuple sample(void) {
    return (struct five_tuple){.client = state_fixture_endpoint("203.0.113.7:40000"),
                               .server = state_fixture_endpoint("192.0.2.1:3478"),
                               .transport = CLIENT_UDP};
}

static void equal_tuples_hash_alike(void **state) {
    (void)state;
    struct five_tuple a = sample(), b = sample();
    assert_true(five_tuple_equal(&a, &b));
    assert_true(five_tuple_hash(&key, &a) == five_tuple_hash(&key, &b));
}

static void every_byte_that_counts_makes_a_difference(void **state) {
    (void)state;
    struct five_tuple a = sample();
    for (size_t i = 0; i < sizeof a; i++) {
        struct five_tuple b = a;
        ((uint8_t *)&b)[i] ^= 1;
        assert_false(five_tuple_equal(&a, &b));
        assert_true(five_tuple_hash(&key, &a) != five_tuple_hash(&key, &b));
    }
}

static void another_key_gives_another_hash(void **state) {
    (void)state;
    struct five_tuple a = sample();
    const struct hash_key other = {3, 6};
    assert_true(five_tuple_hash(&key, &a) != five_tuple_hash(&other, &a));
}

static void every_drop_reason_has_its_own_name(void **state) {
    (void)state;
    assert_string_equal(drop_reason_name(DROP_NONE), "none");
    assert_string_equal(drop_reason_name(DROP_NO_MEMORY), "no_memory");
    for (unsigned i = 0; i < DROP_REASON_COUNT; i++) {
        for (unsigned j = 0; j < i; j++) {
            assert_string_not_equal(drop_reason_name((enum drop_reason)i),
                                    drop_reason_name((enum drop_reason)j));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_tuples_hash_alike),
        cmocka_unit_test(every_byte_that_counts_makes_a_difference),
        cmocka_unit_test(another_key_gives_another_hash),
        cmocka_unit_test(every_drop_reason_has_its_own_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
