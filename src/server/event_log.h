/* Log lines about allocations and requests, in the words that coturn's users search for, with the client's
 * address at the end. One for each relay thread; called on it. */
#ifndef TURN_EVENT_LOG_H
#define TURN_EVENT_LOG_H

#include "log.h"
#include "turn_core.h"

struct event_log {
    bool verbose;             /* lines about sessions */
    struct log_limit refused; /* what strangers can trigger: one line a second */
    struct log_limit denied;
};

/* context: struct event_log. */
void event_log_write(void *context, const struct core_event_info *info);

#endif
