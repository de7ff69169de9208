#include "hash_table.h"

#include "alloc_fault.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct item {
    uint64_t key;
    uint64_t hash;
    bool present;
};

static bool item_has_key(const void *item, const void *key) {
    return ((const struct item *)item)->key == *(const uint64_t *)key;
}

static struct item *find(const struct hash_table *table, uint64_t hash, uint64_t key) {
    return hash_table_find(table, hash, item_has_key, &key);
}

static uint64_t next_random(uint64_t *seed) {
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *seed;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static size_t n_slots(const struct hash_table *table) {
    return table->slots == NULL ? 0 : table->mask + 1;
}

/* What linear probing without tombstones promises, looked at from outside. */
static void assert_sound(const struct hash_table *table) {
    size_t n_found = 0;
    for (size_t i = 0; i < n_slots(table); i++) {
        const struct hash_slot *slot = &table->slots[i];
        if (slot->item == NULL) {
            continue;
        }
        n_found++;
        for (size_t at = slot->hash & table->mask; at != i; at = (at + 1) & table->mask) {
            assert_non_null(table->slots[at].item); /* no hole on the way */
        }
    }
    assert_int_equal(n_found, table->n_items);
    assert_true(2 * table->n_items <= n_slots(table));
    assert_int_equal(n_slots(table) & (n_slots(table) - 1), 0);
}

static void zeroed_table_is_empty_and_valid(void **state) {
    (void)state;
    struct hash_table table = {0};
    struct item item = {.key = 1};
    assert_null(find(&table, 1, 1));
    assert_false(hash_table_remove(&table, 1, &item));
    hash_table_deinit(&table);
    assert_int_equal(hash_table_add(&table, 1, &item), 0);
    assert_ptr_equal(find(&table, 1, 1), &item);
    hash_table_deinit(&table);
    assert_null(table.slots);
    assert_int_equal(table.n_items, 0);
    hash_table_init(&table);
    assert_null(find(&table, 1, 1));
}

static void items_of_one_hash_live_together(void **state) {
    (void)state;
    struct hash_table table = {0};
    struct item items[40];
    for (uint64_t i = 0; i < 40; i++) {
        items[i] = (struct item){.key = i};
        assert_int_equal(hash_table_add(&table, UINT64_MAX, &items[i]), 0); /* home is the last slot */
        assert_sound(&table);
    }
    for (uint64_t i = 0; i < 40; i += 2) {
        assert_true(hash_table_remove(&table, UINT64_MAX, &items[i]));
        assert_sound(&table);
    }
    for (uint64_t i = 0; i < 40; i++) {
        assert_ptr_equal(find(&table, UINT64_MAX, i), i % 2 == 0 ? NULL : &items[i]);
    }
    hash_table_deinit(&table);
}

static void only_the_very_item_is_removed(void **state) {
    (void)state;
    struct hash_table table = {0};
    struct item one = {.key = 1}, twin = {.key = 1};
    assert_int_equal(hash_table_add(&table, 7, &one), 0);
    assert_false(hash_table_remove(&table, 7, &twin));
    assert_false(hash_table_remove(&table, 8, &one)); /* the next slot */
    assert_false(hash_table_remove(&table, 7, NULL));
    assert_ptr_equal(find(&table, 7, 1), &one);
    assert_null(find(&table, 7, 2));
    assert_null(find(&table, 15, 1)); /* same slot, other hash */
    assert_true(hash_table_remove(&table, 7, &one));
    assert_false(hash_table_remove(&table, 7, &one));
    hash_table_deinit(&table);
}

/* Hashes from a narrow range make long clusters that run over the end of the slots. */
static void compare_with_model(uint64_t seed, uint64_t hash_mask, unsigned n_steps) {
    enum { ITEMS = 600 };
    static struct item items[ITEMS];
    struct hash_table table = {0};
    size_t n_present = 0;
    for (uint64_t i = 0; i < ITEMS; i++) {
        items[i] = (struct item){.key = i, .hash = next_random(&seed) & hash_mask};
    }
    for (unsigned step = 0; step < n_steps; step++) {
        /* The share of additions swings, so that the table grows and shrinks again and again. */
        bool adding = next_random(&seed) % 100 < (step / 1500 % 2 == 0 ? 80u : 20u);
        struct item *item = &items[next_random(&seed) % ITEMS];
        if (adding && !item->present) {
            assert_int_equal(hash_table_add(&table, item->hash, item), 0);
            item->present = true;
            n_present++;
        } else if (!adding) {
            assert_int_equal(hash_table_remove(&table, item->hash, item), item->present);
            n_present -= item->present;
            item->present = false;
        }
        assert_int_equal(table.n_items, n_present);
        if (step % 16 == 0) {
            assert_sound(&table);
            for (uint64_t i = 0; i < ITEMS; i++) {
                assert_ptr_equal(find(&table, items[i].hash, i), items[i].present ? &items[i] : NULL);
            }
        }
    }
    hash_table_deinit(&table);
}

static void random_operations_agree_with_a_model(void **state) {
    (void)state;
    compare_with_model(1, UINT64_MAX, 12000);
    compare_with_model(2, 0x3f, 9000);
    compare_with_model(3, UINT64_C(0xfffffffffffffff0), 9000); /* every 16th slot is a home */
    compare_with_model(4, 1, 4000);
}

static void memory_follows_the_number_of_items(void **state) {
    (void)state;
    enum { ITEMS = 20000 };
    struct item *items = calloc(ITEMS, sizeof *items);
    struct hash_table table = {0};
    uint64_t seed = 5;
    for (uint64_t i = 0; i < ITEMS; i++) {
        items[i] = (struct item){.key = i, .hash = next_random(&seed)};
        assert_int_equal(hash_table_add(&table, items[i].hash, &items[i]), 0);
        assert_in_range(n_slots(&table), 2 * table.n_items, 8 > 4 * table.n_items ? 8 : 4 * table.n_items);
    }
    for (uint64_t i = 0; i < ITEMS; i++) {
        assert_true(hash_table_remove(&table, items[i].hash, &items[i]));
        assert_in_range(n_slots(&table), 2 * table.n_items, 8 > 8 * table.n_items ? 8 : 8 * table.n_items);
    }
    assert_int_equal(table.n_items, 0);
    hash_table_deinit(&table);
    free(items);
}

/* At the edge of growth or shrinking, one item coming and going must not move the table each time. */
static void no_thrashing_at_the_bounds(void **state) {
    (void)state;
    struct item items[65];
    struct hash_table table = {0};
    for (uint64_t i = 0; i < 64; i++) {
        items[i] = (struct item){.key = i, .hash = i};
        assert_int_equal(hash_table_add(&table, i, &items[i]), 0);
    }
    assert_int_equal(n_slots(&table), 128); /* exactly half full */
    items[64] = (struct item){.key = 64, .hash = 64};
    alloc_fault_arm(0);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(hash_table_add(&table, 64, &items[64]), 0);
        assert_true(hash_table_remove(&table, 64, &items[64]));
    }
    assert_int_equal(alloc_fault_count(), 1);
    assert_int_equal(n_slots(&table), 256);
    for (uint64_t i = 63; i >= 32; i--) {
        assert_true(hash_table_remove(&table, i, &items[i]));
    }
    assert_int_equal(n_slots(&table), 256); /* exactly an eighth full */
    assert_true(hash_table_remove(&table, 31, &items[31]));
    assert_int_equal(n_slots(&table), 128); /* 31 of 256 is under an eighth */
    alloc_fault_arm(0);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(hash_table_add(&table, 31, &items[31]), 0);
        assert_true(hash_table_remove(&table, 31, &items[31]));
    }
    assert_int_equal(alloc_fault_count(), 0);
    alloc_fault_disarm();
    hash_table_deinit(&table);
}

static void each_failing_allocation_while_growing_changes_nothing(void **state) {
    (void)state;
    enum { ITEMS = 300 };
    struct item items[ITEMS];
    uint64_t seed = 6;
    bool hit = true;
    for (uint64_t n = 1; hit; n++) {
        struct hash_table table = {0};
        alloc_fault_arm(n);
        unsigned n_refused = 0;
        for (uint64_t i = 0; i < ITEMS; i++) {
            items[i] = (struct item){.key = i, .hash = next_random(&seed)};
            struct hash_table before = table;
            int err = hash_table_add(&table, items[i].hash, &items[i]);
            if (err < 0) {
                assert_int_equal(err, -ENOMEM);
                assert_memory_equal(&table, &before, sizeof table);
                assert_null(find(&table, items[i].hash, i));
                n_refused++;
                assert_int_equal(hash_table_add(&table, items[i].hash, &items[i]), 0);
            }
            assert_sound(&table);
        }
        hit = alloc_fault_hit();
        alloc_fault_disarm();
        assert_int_equal(n_refused, hit ? 1 : 0);
        for (uint64_t i = 0; i < ITEMS; i++) {
            assert_ptr_equal(find(&table, items[i].hash, i), &items[i]);
        }
        hash_table_deinit(&table);
        assert_true(n <= 9);
    }
}

static void a_failed_shrink_is_no_error(void **state) {
    (void)state;
    enum { ITEMS = 256 };
    struct item items[ITEMS];
    uint64_t seed = 7;
    bool hit = true;
    for (uint64_t n = 1; hit; n++) {
        struct hash_table table = {0};
        for (uint64_t i = 0; i < ITEMS; i++) {
            items[i] = (struct item){.key = i, .hash = next_random(&seed)};
            assert_int_equal(hash_table_add(&table, items[i].hash, &items[i]), 0);
        }
        alloc_fault_arm(n);
        for (uint64_t i = 0; i < ITEMS; i++) {
            assert_true(hash_table_remove(&table, items[i].hash, &items[i]));
            assert_sound(&table);
            for (uint64_t k = 0; k < ITEMS; k++) {
                assert_ptr_equal(find(&table, items[k].hash, k), k <= i ? NULL : &items[k]);
            }
        }
        hit = alloc_fault_hit();
        alloc_fault_disarm();
        assert_int_equal(n_slots(&table), 8);
        hash_table_deinit(&table);
        assert_true(n <= 8);
    }
}

static void a_million_items(void **state) {
    (void)state;
    enum { ITEMS = 1000000 };
    struct item *items = calloc(ITEMS, sizeof *items);
    struct hash_table table = {0};
    uint64_t seed = 8;
    alloc_fault_arm(0);
    for (uint64_t i = 0; i < ITEMS; i++) {
        items[i] = (struct item){.key = i, .hash = next_random(&seed)};
        assert_int_equal(hash_table_add(&table, items[i].hash, &items[i]), 0);
    }
    assert_int_equal(alloc_fault_count(), 19); /* 8 slots, doubled up to 2^21 */
    alloc_fault_disarm();
    uint64_t longest = 0;
    for (size_t i = 0; i < n_slots(&table); i++) {
        if (table.slots[i].item != NULL) {
            uint64_t steps = (i - table.slots[i].hash) & table.mask;
            longest = steps > longest ? steps : longest;
        }
    }
    assert_in_range(longest, 1, 120);
    for (uint64_t i = 0; i < ITEMS; i++) {
        assert_ptr_equal(find(&table, items[i].hash, i), &items[i]);
    }
    for (uint64_t i = 0; i < ITEMS; i++) {
        assert_true(hash_table_remove(&table, items[i].hash, &items[i]));
    }
    assert_int_equal(n_slots(&table), 8);
    hash_table_deinit(&table);
    free(items);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeroed_table_is_empty_and_valid),
        cmocka_unit_test(items_of_one_hash_live_together),
        cmocka_unit_test(only_the_very_item_is_removed),
        cmocka_unit_test(random_operations_agree_with_a_model),
        cmocka_unit_test(memory_follows_the_number_of_items),
        cmocka_unit_test(no_thrashing_at_the_bounds),
        cmocka_unit_test(each_failing_allocation_while_growing_changes_nothing),
        cmocka_unit_test(a_failed_shrink_is_no_error),
        cmocka_unit_test(a_million_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
