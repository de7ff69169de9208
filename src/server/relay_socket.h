/* A peer socket of a relay thread together with the relayed transport address it carries, and the thread's
 * index of them by bound endpoint. */
#ifndef TURN_RELAY_SOCKET_H
#define TURN_RELAY_SOCKET_H

#include "hash.h"
#include "hash_table.h"
#include "relay_address.h"
#include "udp_socket.h"

struct event;

struct relay_socket {
    struct relayed_address address; /* first: the core hands this back */
    struct udp_socket udp;
    struct event *readable; /* NULL until it is watched */
};

static inline struct relay_socket *relay_socket_of(struct relayed_address *address) {
    return (struct relay_socket *)address;
}

/* Watches or stops watching a socket for readability; the relay thread provides it. */
struct relay_watch {
    void *context;
    int (*add)(void *context, struct relay_socket *socket); /* 0 or -errno */
    void (*remove)(void *context, struct relay_socket *socket);
};

/* All peer sockets of a thread by bound endpoint. One thread's. */
struct relay_socket_index {
    struct hash_table by_endpoint;
    struct hash_key key;
    uint32_t next_id;
};

void relay_socket_index_init(struct relay_socket_index *index, const struct hash_key *key);
void relay_socket_index_deinit(struct relay_socket_index *index);
struct relay_socket *relay_socket_find(const struct relay_socket_index *index, const struct endpoint *local);

struct relay_socket_params {
    struct endpoint local, advertised_ip; /* port 0 of local: any */
    bool shared;
    int buffer_bytes;
};

/* Opens (or, with adopted != NULL, takes over an open socket), watches and indexes. 0 or -errno. */
int relay_socket_create(struct relay_socket **out, struct relay_socket_index *index,
                        const struct relay_watch *watch, const struct relay_socket_params *params,
                        const struct udp_socket *adopted);
void relay_socket_destroy(struct relay_socket *socket, struct relay_socket_index *index,
                          const struct relay_watch *watch);

/* Opens a plain peer socket as relay_socket_create would. */
int relay_socket_open_udp(struct udp_socket *out, const struct endpoint *local, int buffer_bytes);

#endif
