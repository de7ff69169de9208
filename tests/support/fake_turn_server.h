/* A TURN server for tests of the client: one request in, one answer out, no state but what is set here. It
 * checks what the client sends as strictly as a server would and remembers what it saw. */
#ifndef TURN_FAKE_TURN_SERVER_H
#define TURN_FAKE_TURN_SERVER_H

#include "stun_integrity.h"

struct fake_turn_server {
    struct stun_crypto *crypto;
    const char *realm, *nonce;
    const char *username, *password; /* NULL: nobody is asked to authenticate */
    bool offers_algorithms;          /* PASSWORD-ALGORITHMS: SHA-256, MD5 */
    const uint16_t *algorithms;      /* another list, NULL: the one above */
    size_t n_algorithms;
    bool leaves_out_integrity;   /* successes carry none */
    bool damages_integrity;      /* and here it is wrong */
    bool adds_unknown_attribute; /* a comprehension-required one */

    uint16_t error; /* answer with this code instead; applies to authenticated requests */
    uint32_t lifetime_s;
    bool gives_second_address, refuses_second_family, gives_token;
    const char *ticket; /* NULL: none */
    uint32_t connection_id;
    bool leaves_out_relayed; /* Allocate success without XOR-RELAYED-ADDRESS */

    /* what the last request had */
    struct {
        enum stun_method method;
        bool was_authenticated, had_userhash, had_fingerprint, had_ticket, had_lifetime;
        enum stun_integrity_kind integrity;
        uint32_t lifetime_s;
        uint16_t channel, algorithm;
        size_t n_peers, n_ticket;
        struct endpoint peer; /* the first */
        uint8_t id[STUN_TRANSACTION_ID_BYTES];
    } seen;
    unsigned n_requests;
};

/* The addresses it tells. */
extern const struct endpoint fake_relayed4, fake_relayed6, fake_mapped, fake_alternate;

/* Returns the answer's length, 0 when the request is malformed. */
size_t fake_turn_server_answer(struct fake_turn_server *server, const uint8_t *request, size_t n_bytes,
                               uint8_t *out, size_t out_size);

#endif
