/* Open-addressing hash table from a 64-bit keyed hash to a pointer. The items carry their own keys; the
 * caller hashes and compares. Linear probing, at most half full, shrinks as items leave (so memory comes
 * back), removal by back-shifting (no tombstones). One thread at a time. */
#ifndef TURN_HASH_TABLE_H
#define TURN_HASH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash_slot {
    uint64_t hash;
    void *item; /* NULL: free */
};

struct hash_table {
    struct hash_slot *slots; /* NULL while the table is empty and never grew */
    size_t mask;             /* number of slots - 1, 0 while there are none */
    size_t n_items;
};

typedef bool (*hash_table_equal_fn)(const void *item, const void *key);

/* A zeroed struct is a valid empty table; init exists for clarity. deinit frees slots, never items. */
void hash_table_init(struct hash_table *table);
void hash_table_deinit(struct hash_table *table);

/* Adds item; the caller has made sure that an equal one is not there (several may share one hash).
 * Returns 0 or -ENOMEM with nothing changed. */
int hash_table_add(struct hash_table *table, uint64_t hash, void *item);

/* Takes out this very item. Returns false when it is not there. Never fails for lack of memory. Moves other
 * items' slots, so it must not be called while the slots are walked. */
bool hash_table_remove(struct hash_table *table, uint64_t hash, const void *item);

/* The item that equal() accepts, or NULL. Inline so that a constant equal() is inlined as well. */
static inline void *hash_table_find(const struct hash_table *table, uint64_t hash, hash_table_equal_fn equal,
                                    const void *key) {
    if (table->slots == NULL) {
        return NULL;
    }
    for (size_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        const struct hash_slot *slot = &table->slots[i];
        if (slot->item == NULL) {
            return NULL;
        }
        if (slot->hash == hash && equal(slot->item, key)) {
            return slot->item;
        }
    }
}

#endif
