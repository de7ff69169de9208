#include "relay_socket.h"

#include <errno.h>
#include <stdlib.h>

#include "hash.h"

static uint64_t endpoint_hash(const struct relay_socket_index *index, const struct endpoint *e) {
    return hash_bytes(&index->key, e, sizeof *e);
}

static bool socket_has_endpoint(const void *item, const void *key) {
    return endpoint_equal(&((const struct relay_socket *)item)->udp.local, key);
}

void relay_socket_index_init(struct relay_socket_index *index, const struct hash_key *key) {
    hash_table_init(&index->by_endpoint);
    index->key = *key;
    index->next_id = 1;
}

void relay_socket_index_deinit(struct relay_socket_index *index) {
    hash_table_deinit(&index->by_endpoint);
}

struct relay_socket *relay_socket_find(const struct relay_socket_index *index, const struct endpoint *local) {
    return hash_table_find(&index->by_endpoint, endpoint_hash(index, local), socket_has_endpoint, local);
}

int relay_socket_open_udp(struct udp_socket *out, const struct endpoint *local, int buffer_bytes) {
    /* No SO_REUSEPORT: a second server must not take part of the traffic unnoticed. */
    const struct udp_socket_params params = {
        .local = *local,
        .gro = true,
        .error_queue = true,
        .buffer_bytes = buffer_bytes,
    };
    return udp_socket_open(out, &params);
}

int relay_socket_create(struct relay_socket **out, struct relay_socket_index *index,
                        const struct relay_watch *watch, const struct relay_socket_params *params,
                        const struct udp_socket *adopted) {
    struct relay_socket *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return -ENOMEM;
    }
    int err = 0;
    if (adopted != NULL) {
        s->udp = *adopted;
    } else {
        err = relay_socket_open_udp(&s->udp, &params->local, params->buffer_bytes);
    }
    if (err < 0) {
        free(s);
        return err;
    }
    s->address.id = index->next_id++;
    s->address.shared = params->shared;
    s->address.local = s->udp.local;
    s->address.advertised = params->advertised_ip;
    s->address.advertised.port = s->udp.local.port;
    s->address.socket = &s->udp;
    err = hash_table_add(&index->by_endpoint, endpoint_hash(index, &s->udp.local), s);
    if (err < 0) {
        goto fail;
    }
    err = watch->add(watch->context, s);
    if (err < 0) {
        hash_table_remove(&index->by_endpoint, endpoint_hash(index, &s->udp.local), s);
        goto fail;
    }
    *out = s;
    return 0;
fail:
    if (adopted == NULL) {
        udp_socket_close(&s->udp); /* an adopted one stays the caller's */
    }
    free(s);
    return err;
}

void relay_socket_destroy(struct relay_socket *socket, struct relay_socket_index *index,
                          const struct relay_watch *watch) {
    if (socket == NULL) {
        return;
    }
    watch->remove(watch->context, socket);
    hash_table_remove(&index->by_endpoint, endpoint_hash(index, &socket->udp.local), socket);
    udp_socket_close(&socket->udp);
    free(socket);
}
