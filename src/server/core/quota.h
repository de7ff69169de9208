/* Allocations per user and in total: the only counters that relay threads share. Any thread; allocation and
 * release only, never on the relay path. */
#ifndef TURN_QUOTA_H
#define TURN_QUOTA_H

#include <stddef.h>
#include <stdint.h>

struct quota;
struct quota_unit; /* one allocation's place */

/* Limits of 0 mean unlimited. */
int quota_create(struct quota **out, uint32_t per_user, uint32_t total);
void quota_destroy(struct quota *quota);

/* 0 with *out, -EDQUOT (486), -ENOMEM. user may be NULL (no-auth): only the total counts. */
int quota_acquire(struct quota *quota, struct quota_unit **out, const char *user, size_t n_user);
void quota_release(struct quota *quota, struct quota_unit *unit);
/* Held now. */
uint64_t quota_total(struct quota *quota);

#endif
