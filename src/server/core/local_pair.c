/* Relay to relay on shared addresses: which allocation a sending allocation means, as learned from ICE
 * checks. */
#include "allocation_private.h"

#include <errno.h>
#include <stdlib.h>

struct pair_key {
    const struct relayed_address *relayed;
    uint64_t sender_uid;
};

static const struct relayed_address *pair_relayed(const struct local_pair *pair) {
    return allocation_relayed(pair->receiver, &pair->form);
}

static bool pair_equal(const void *item, const void *key) {
    const struct local_pair *pair = item;
    const struct pair_key *k = key;
    return pair->sender_uid == k->sender_uid && pair_relayed(pair) == k->relayed;
}

static uint64_t pair_hash(const struct allocation_table *t, const struct relayed_address *relayed,
                          uint64_t sender_uid) {
    uint64_t words[2] = {sender_uid, relayed->id};
    return hash_words(&t->params.hash_key, words, 2);
}

struct local_pair *local_pair_find(const struct allocation_table *table,
                                   const struct relayed_address *relayed, uint64_t sender_uid) {
    struct pair_key key = {.relayed = relayed, .sender_uid = sender_uid};
    return hash_table_find(&table->pairs, pair_hash(table, relayed, sender_uid), pair_equal, &key);
}

static void pair_destroy(struct local_pair *pair) {
    struct allocation_table *t = pair->receiver->table;
    hash_table_remove(&t->pairs, pair_hash(t, pair_relayed(pair), pair->sender_uid), pair);
    *pair->link_of_receiver = pair->next_of_receiver;
    if (pair->next_of_receiver != NULL) {
        pair->next_of_receiver->link_of_receiver = pair->link_of_receiver;
    }
    if (pair->link_of_sender != NULL) {
        *pair->link_of_sender = pair->next_of_sender;
        if (pair->next_of_sender != NULL) {
            pair->next_of_sender->link_of_sender = pair->link_of_sender;
        }
    }
    pair->receiver->n_pairs--;
    free(pair);
}

static void link_receiver(struct local_pair *pair) {
    struct allocation *a = pair->receiver;
    pair->next_of_receiver = a->pairs;
    pair->link_of_receiver = &a->pairs;
    if (a->pairs != NULL) {
        a->pairs->link_of_receiver = &pair->next_of_receiver;
    }
    a->pairs = pair;
    a->n_pairs++;
}

static void link_sender(struct local_pair *pair, struct allocation *sender) {
    pair->next_of_sender = sender->sent_pairs;
    pair->link_of_sender = &sender->sent_pairs;
    if (sender->sent_pairs != NULL) {
        sender->sent_pairs->link_of_sender = &pair->next_of_sender;
    }
    sender->sent_pairs = pair;
}

/* Senders of other threads end without a word, so the oldest pair makes room. */
static void make_room(struct allocation *receiver) {
    if (receiver->n_pairs < ALLOCATION_MAX_PAIRS) {
        return;
    }
    struct local_pair *oldest = receiver->pairs;
    while (oldest->next_of_receiver != NULL) {
        oldest = oldest->next_of_receiver;
    }
    pair_destroy(oldest);
}

void local_pair_learn(struct permission *permission, uint64_t sender_uid, struct allocation *sender,
                      const struct endpoint *form) {
    struct allocation *receiver = permission->allocation;
    struct allocation_table *t = receiver->table;
    const struct relayed_address *relayed = allocation_relayed(receiver, form);
    struct local_pair *pair = local_pair_find(t, relayed, sender_uid);
    if (pair != NULL && pair->receiver == receiver) {
        pair->permission = permission;
        pair->form = *form;
        return;
    }
    struct local_pair *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL || hash_table_add(&t->pairs, pair_hash(t, relayed, sender_uid), fresh) < 0) {
        free(fresh);
        return;
    }
    if (pair != NULL) {
        pair_destroy(pair);
    }
    make_room(receiver);
    fresh->sender_uid = sender_uid;
    fresh->permission = permission;
    fresh->receiver = receiver;
    fresh->form = *form;
    link_receiver(fresh);
    if (sender != NULL) {
        link_sender(fresh, sender);
    }
}

void local_pair_forget_permission(struct permission *permission) {
    struct local_pair *next;
    for (struct local_pair *p = permission->allocation->pairs; p != NULL; p = next) {
        next = p->next_of_receiver;
        if (p->permission == permission) {
            pair_destroy(p);
        }
    }
}

void local_pair_forget_sender(struct allocation *sender, enum relay_family family) {
    struct local_pair *next;
    for (struct local_pair *p = sender->sent_pairs; p != NULL; p = next) {
        next = p->next_of_sender;
        if (relay_family_of(&p->form) == family) {
            pair_destroy(p);
        }
    }
}
