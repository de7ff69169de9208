/* The running server: all relay threads and the main thread's loop of signals and statistics. */
#ifndef TURN_SERVER_H
#define TURN_SERVER_H

#include "server_config.h"

struct server;

/* Opens every socket of every thread; logs an error line naming the address that failed. 0 or -errno. */
int server_create(struct server **out, const struct server_config *config, const struct options *options);
/* Starts the threads. 0 or -errno. */
int server_start(struct server *server);
/* Runs the main loop until SIGTERM or SIGINT. 0 or -errno. */
int server_run(struct server *server);
/* Ends all allocations, stops and joins the threads, frees everything. */
void server_destroy(struct server *server);

#endif
