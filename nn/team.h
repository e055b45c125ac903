/* The threads of one plan: fork and join around one function. */
#ifndef TRP_NN_TEAM_H
#define TRP_NN_TEAM_H

#include <stdint.h>

#include <troupe/status.h>

struct team;

/* `threads` >= 1 with the calling one; starts the others. */
TRP_MUST_USE trp_status team_create(struct team **out, uint32_t threads);
void team_destroy(struct team *team); /* NULL is fine */

/* Runs work(arg, part) for every part < threads, on the calling thread and those of the workers
 * that have a core to run on; returns when all parts are done. */
void team_run(struct team *team, void (*work)(void *arg, uint32_t index), void *arg);

#endif
