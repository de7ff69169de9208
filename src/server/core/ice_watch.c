#include "ice_watch.h"

#include <errno.h>
#include <stdlib.h>

#include "stun_attribute.h"

struct watch_note {
    uint64_t hash;
    uint64_t uid; /* 0: free */
    uint64_t noted_us;
};

struct watch_table {
    struct watch_note *notes;
    size_t set_mask;
    uint64_t lifetime_us;
};

struct ice_watch {
    struct hash_key key;
    struct watch_table transactions, fragments;
};

static int table_init(struct watch_table *t, size_t n_sets, uint64_t lifetime_us) {
    t->notes = calloc(n_sets * ICE_WATCH_WAYS, sizeof *t->notes);
    t->set_mask = n_sets - 1;
    t->lifetime_us = lifetime_us;
    return t->notes == NULL ? -ENOMEM : 0;
}

int ice_watch_create(struct ice_watch **out, const struct hash_key *key) {
    struct ice_watch *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return -ENOMEM;
    }
    w->key = *key;
    int err = table_init(&w->transactions, ICE_WATCH_TRANSACTION_SETS, ICE_WATCH_TRANSACTION_US);
    if (err == 0) {
        err = table_init(&w->fragments, ICE_WATCH_FRAGMENT_SETS, ICE_WATCH_FRAGMENT_US);
    }
    if (err < 0) {
        ice_watch_destroy(w);
        return err;
    }
    *out = w;
    return 0;
}

void ice_watch_destroy(struct ice_watch *watch) {
    if (watch != NULL) {
        free(watch->transactions.notes);
        free(watch->fragments.notes);
        free(watch);
    }
}

static struct watch_note *table_set(const struct watch_table *t, uint64_t hash) {
    return &t->notes[((hash >> 32) & t->set_mask) * ICE_WATCH_WAYS];
}

static bool note_is_alive(const struct watch_table *t, const struct watch_note *n, uint64_t now_us) {
    return n->uid != 0 && now_us - n->noted_us <= t->lifetime_us;
}

/* How readily a note of the set makes room for one of uid: at once when it is past its age, else the more the
 * more its allocation has here, and one's own before others'. */
static unsigned note_rank(const struct watch_table *t, const struct watch_note *set,
                          const struct watch_note *n, uint64_t uid, uint64_t now_us) {
    if (!note_is_alive(t, n, now_us)) {
        return 2 * ICE_WATCH_WAYS + 2;
    }
    unsigned n_its = 0;
    for (unsigned i = 0; i < ICE_WATCH_WAYS; i++) {
        n_its += set[i].uid == n->uid && note_is_alive(t, &set[i], now_us);
    }
    return 2 * n_its + (n->uid == uid);
}

static void table_note(struct watch_table *t, uint64_t hash, uint64_t uid, uint64_t now_us) {
    struct watch_note *set = table_set(t, hash), *victim = &set[0];
    unsigned rank = 0;
    for (unsigned i = 0; i < ICE_WATCH_WAYS; i++) {
        struct watch_note *n = &set[i];
        if (n->hash == hash && n->uid == uid) {
            victim = n;
            break;
        }
        unsigned its = note_rank(t, set, n, uid, now_us);
        if (its > rank || (its == rank && n->noted_us < victim->noted_us)) {
            victim = n;
            rank = its;
        }
    }
    *victim = (struct watch_note){.hash = hash, .uid = uid, .noted_us = now_us};
}

static size_t table_find(const struct watch_table *t, uint64_t hash, uint64_t now_us,
                         uint64_t out[ICE_WATCH_WAYS]) {
    const struct watch_note *set = table_set(t, hash);
    uint64_t noted_us[ICE_WATCH_WAYS];
    size_t n_found = 0;
    for (unsigned i = 0; i < ICE_WATCH_WAYS; i++) {
        if (set[i].hash != hash || !note_is_alive(t, &set[i], now_us)) {
            continue;
        }
        size_t at = n_found++;
        for (; at > 0 && noted_us[at - 1] < set[i].noted_us; at--) {
            noted_us[at] = noted_us[at - 1];
            out[at] = out[at - 1];
        }
        noted_us[at] = set[i].noted_us;
        out[at] = set[i].uid;
    }
    return n_found;
}

static uint64_t transaction_hash(const struct ice_watch *w, uint32_t relayed_id, const uint8_t *message,
                                 const struct endpoint *peer) {
    uint64_t words[4];
    uint32_t tail;
    memcpy(&words[0], message + 8, 8);
    memcpy(&tail, message + 16, 4);
    words[1] = (uint64_t)relayed_id << 32 | tail;
    memcpy(&words[2], peer->ip, sizeof peer->ip);
    return hash_words(&w->key, words, 4);
}

struct fragment_key {
    uint32_t relayed_id;
    char text[STUN_MAX_USERNAME_BYTES];
};

static bool find_username(const uint8_t *payload, size_t n_payload, struct stun_attribute *out) {
    struct stun_message message;
    return stun_message_decode(&message, payload, n_payload) &&
           stun_message_find(&message, STUN_ATTR_USERNAME, out) && out->n_bytes >= 3 &&
           out->n_bytes <= STUN_MAX_USERNAME_BYTES;
}

static uint64_t fragment_hash(const struct ice_watch *w, const struct fragment_key *key, size_t n_text) {
    return hash_bytes(&w->key, key, offsetof(struct fragment_key, text) + n_text);
}

/* The client's check says "peer's:own"; the peer's checks to it will say "own:peer's" (RFC 8445, 7.2.2). */
static bool key_reversed(struct fragment_key *key, const struct stun_attribute *name) {
    const uint8_t *colon = memchr(name->value, ':', name->n_bytes);
    if (colon == NULL) {
        return false;
    }
    size_t n_first = (size_t)(colon - name->value), n_second = name->n_bytes - n_first - 1;
    memcpy(key->text, colon + 1, n_second);
    key->text[n_second] = ':';
    memcpy(key->text + n_second + 1, name->value, n_first);
    return true;
}

void ice_watch_note(struct ice_watch *watch, uint32_t relayed_id, uint64_t uid, const struct endpoint *peer,
                    const uint8_t *payload, size_t n_payload, uint64_t now_us) {
    struct stun_attribute name;
    struct fragment_key key = {.relayed_id = relayed_id};
    if (!ice_watch_is_check(payload, n_payload)) {
        return;
    }
    table_note(&watch->transactions, transaction_hash(watch, relayed_id, payload, peer), uid, now_us);
    if (find_username(payload, n_payload, &name) && key_reversed(&key, &name)) {
        table_note(&watch->fragments, fragment_hash(watch, &key, name.n_bytes), uid, now_us);
    }
}

size_t ice_watch_find(const struct ice_watch *watch, uint32_t relayed_id, const struct endpoint *peer,
                      const uint8_t *payload, size_t n_payload, uint64_t now_us,
                      uint64_t out[ICE_WATCH_WAYS]) {
    if (!stun_looks_like_message(payload, n_payload)) {
        return 0;
    }
    unsigned type = (unsigned)payload[0] << 8 | payload[1];
    if (type == 0x0101 || type == 0x0111) { /* Binding success and error (RFC 8489, 5) */
        return table_find(&watch->transactions, transaction_hash(watch, relayed_id, payload, peer), now_us,
                          out);
    }
    struct stun_attribute name;
    struct fragment_key key = {.relayed_id = relayed_id};
    if (type != 0x0001 || !find_username(payload, n_payload, &name)) {
        return 0;
    }
    memcpy(key.text, name.value, name.n_bytes);
    return table_find(&watch->fragments, fragment_hash(watch, &key, name.n_bytes), now_us, out);
}
