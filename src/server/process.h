/* The process around the server: background, pid file, user and group. Start-up only. */
#ifndef TURN_PROCESS_H
#define TURN_PROCESS_H

#include <stdbool.h>

/* Goes to the background: the parent returns to the shell only after the child calls process_ready (status 0)
 * or ends (status 1). 0 or -errno. */
int process_daemonize(int *out_ready_fd);
/* Tells the waiting parent that the server serves. ready_fd -1 is ignored. */
void process_ready(int ready_fd);

/* Writes the process number to path. 0 or -errno. */
int process_write_pid(const char *path);
/* Removes path if it still holds this process's number. */
void process_remove_pid(const char *path);

/* Becomes user and group (either may be NULL or ""), supplementary groups included. Logs an error. 0 or
 * -errno. */
int process_become(const char *user, const char *group);

/* Raises the limit of open descriptors as far as it may. Returns the limit. */
unsigned long process_raise_descriptors(void);

#endif
