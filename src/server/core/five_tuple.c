#include "five_tuple.h"

uint64_t five_tuple_hash(const struct hash_key *key, const struct five_tuple *tuple) {
    uint64_t words[(sizeof *tuple + 7) / 8] = {0};
    memcpy(words, tuple, sizeof *tuple);
    return hash_words(key, words, sizeof words / sizeof words[0]);
}
