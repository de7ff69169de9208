/* Bounded byte ring from one thread to one other, with an eventfd that wakes the receiver. One producer,
 * one consumer, no lock. Messages are copied in and read in place. */
#ifndef TURN_MAILBOX_H
#define TURN_MAILBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mailbox;

/* capacity_bytes (at most 1 GiB) is rounded up to a power of two, at least 256. wake_fd: the receiver's
 * eventfd, shared by all mailboxes of that receiver and owned by it; -1 for none. Returns 0 or -errno. */
int mailbox_create(struct mailbox **out, size_t capacity_bytes, int wake_fd);
void mailbox_destroy(struct mailbox *mailbox);

/* Producer: appends one message made of two parts. Returns 0, or -ENOBUFS when it is full (the caller counts
 * the drop) or the message is larger than a quarter of the ring. Does not wake the receiver. */
int mailbox_post(struct mailbox *mailbox, const void *head, size_t n_head, const void *body, size_t n_body);

/* Producer: wakes the receiver once for all that was posted since the last wake; nothing if nothing was. */
void mailbox_wake(struct mailbox *mailbox);

/* Consumer: the oldest message not peeked yet, contiguous and aligned to 8 bytes, or NULL when there is
 * none. Stays valid until mailbox_release, so several can be read before any is given back. */
const void *mailbox_peek(struct mailbox *mailbox, size_t *out_n_bytes);

/* Consumer: gives back every message peeked so far. */
void mailbox_release(struct mailbox *mailbox);

#endif
