#include "quota.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hash.h"
#include "hash_table.h"

/* One user's places; exists while any of them is held. The allocations of a user share it. */
struct quota_unit {
    uint64_t n_held;
    uint64_t hash;
    size_t n_user;
    char *user; /* behind the struct, in the same memory */
};

struct quota {
    pthread_mutex_t lock;
    uint32_t per_user, total; /* 0: unlimited */
    uint64_t n_total;
    struct hash_key hash_key;
    struct hash_table users;
    struct quota_unit nobody; /* where only the total counts */
};

struct user_key {
    const char *user;
    size_t n_user;
};

static bool unit_is_of(const void *item, const void *key) {
    const struct quota_unit *unit = item;
    const struct user_key *wanted = key;
    return unit->n_user == wanted->n_user && memcmp(unit->user, wanted->user, wanted->n_user) == 0;
}

int quota_create(struct quota **out, uint32_t per_user, uint32_t total) {
    struct quota *quota = calloc(1, sizeof *quota);
    if (quota == NULL) {
        return -ENOMEM;
    }
    /* Users may choose their names, hence a key that they do not know. */
    if (getentropy(&quota->hash_key, sizeof quota->hash_key) != 0) {
        int err = -errno;
        free(quota);
        return err;
    }
    int err = pthread_mutex_init(&quota->lock, NULL);
    if (err != 0) {
        free(quota);
        return -err;
    }
    quota->per_user = per_user;
    quota->total = total;
    hash_table_init(&quota->users);
    *out = quota;
    return 0;
}

void quota_destroy(struct quota *quota) {
    if (quota == NULL) {
        return;
    }
    for (size_t i = 0; quota->users.slots != NULL && i <= quota->users.mask; i++) {
        free(quota->users.slots[i].item);
    }
    hash_table_deinit(&quota->users);
    pthread_mutex_destroy(&quota->lock);
    free(quota);
}

/* The user's unit, made when it is not there yet; NULL without memory. */
static struct quota_unit *unit_get(struct quota *quota, const char *user, size_t n_user) {
    struct user_key key = {user, n_user};
    uint64_t hash = hash_bytes(&quota->hash_key, user, n_user);
    struct quota_unit *unit = hash_table_find(&quota->users, hash, unit_is_of, &key);
    if (unit != NULL) {
        return unit;
    }
    unit = calloc(1, sizeof *unit + n_user);
    if (unit == NULL) {
        return NULL;
    }
    unit->hash = hash;
    unit->n_user = n_user;
    unit->user = (char *)(unit + 1);
    memcpy(unit->user, user, n_user);
    if (hash_table_add(&quota->users, hash, unit) < 0) {
        free(unit);
        return NULL;
    }
    return unit;
}

static int acquire_locked(struct quota *quota, struct quota_unit **out, const char *user, size_t n_user) {
    if (quota->total != 0 && quota->n_total >= quota->total) {
        return -EDQUOT;
    }
    struct quota_unit *unit = &quota->nobody;
    if (user != NULL && quota->per_user != 0) {
        unit = unit_get(quota, user, n_user);
        if (unit == NULL) {
            return -ENOMEM;
        }
        if (unit->n_held >= quota->per_user) {
            return -EDQUOT; /* it holds some, so it was there before */
        }
    }
    unit->n_held++;
    quota->n_total++;
    *out = unit;
    return 0;
}

int quota_acquire(struct quota *quota, struct quota_unit **out, const char *user, size_t n_user) {
    pthread_mutex_lock(&quota->lock);
    int err = acquire_locked(quota, out, user, n_user);
    pthread_mutex_unlock(&quota->lock);
    return err;
}

void quota_release(struct quota *quota, struct quota_unit *unit) {
    pthread_mutex_lock(&quota->lock);
    assert(unit->n_held > 0 && quota->n_total > 0);
    unit->n_held--;
    quota->n_total--;
    if (unit->n_held == 0 && unit != &quota->nobody) {
        hash_table_remove(&quota->users, unit->hash, unit);
        free(unit);
    }
    pthread_mutex_unlock(&quota->lock);
}

uint64_t quota_total(struct quota *quota) {
    pthread_mutex_lock(&quota->lock);
    uint64_t n = quota->n_total;
    pthread_mutex_unlock(&quota->lock);
    return n;
}
