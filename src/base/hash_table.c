#include "hash_table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { MIN_SLOTS = 8 };

void hash_table_init(struct hash_table *table) {
    *table = (struct hash_table){0};
}

void hash_table_deinit(struct hash_table *table) {
    free(table->slots);
    hash_table_init(table);
}

static size_t slot_count(const struct hash_table *table) {
    return table->slots == NULL ? 0 : table->mask + 1;
}

static void put(struct hash_slot *slots, size_t mask, uint64_t hash, void *item) {
    size_t i = hash & mask;
    while (slots[i].item != NULL) {
        i = (i + 1) & mask;
    }
    slots[i] = (struct hash_slot){.hash = hash, .item = item};
}

/* All or nothing. With the slot a hash's low bits, items of neighbouring old slots land in two runs of
 * neighbouring new ones, so even a large table moves at the speed of memory. */
static int resize(struct hash_table *table, size_t n_slots) {
    struct hash_slot *slots = calloc(n_slots, sizeof *slots);
    if (slots == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0, n = slot_count(table); i < n; i++) {
        if (table->slots[i].item != NULL) {
            put(slots, n_slots - 1, table->slots[i].hash, table->slots[i].item);
        }
    }
    free(table->slots);
    table->slots = slots;
    table->mask = n_slots - 1;
    return 0;
}

int hash_table_add(struct hash_table *table, uint64_t hash, void *item) {
    assert(item != NULL);
    size_t n_slots = slot_count(table);
    if (2 * (table->n_items + 1) > n_slots) {
        int err = resize(table, n_slots == 0 ? MIN_SLOTS : 2 * n_slots);
        if (err < 0) {
            return err;
        }
    }
    put(table->slots, table->mask, hash, item);
    table->n_items++;
    return 0;
}

/* Empties slot `hole`, moving later items of the same cluster back so that every one stays reachable from
 * the slot its hash names without crossing a free one. */
static void close_gap(struct hash_table *table, size_t hole) {
    struct hash_slot *slots = table->slots;
    size_t mask = table->mask;
    for (size_t i = (hole + 1) & mask; slots[i].item != NULL; i = (i + 1) & mask) {
        size_t from_home = (i - slots[i].hash) & mask;
        size_t from_hole = (i - hole) & mask;
        if (from_home >= from_hole) {
            slots[hole] = slots[i];
            hole = i;
        }
    }
    slots[hole] = (struct hash_slot){0};
}

bool hash_table_remove(struct hash_table *table, uint64_t hash, const void *item) {
    if (table->slots == NULL || item == NULL) {
        return false;
    }
    size_t i = hash & table->mask;
    while (table->slots[i].item != item) {
        if (table->slots[i].item == NULL) {
            return false;
        }
        i = (i + 1) & table->mask;
    }
    close_gap(table, i);
    table->n_items--;
    if (table->mask + 1 > MIN_SLOTS && 8 * table->n_items < table->mask + 1) {
        (void)resize(table, (table->mask + 1) / 2); /* a table left too large is no error */
    }
    return true;
}
