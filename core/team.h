/* Threads for one pass over much: fork and join around one function. */
#ifndef TRP_CORE_TEAM_H
#define TRP_CORE_TEAM_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>

struct team;

/* Workers run on the cores that the founder may run on when the team is made, or that were given to
 * them since, but for the one that the caller of a job is on, where there is one for each thread.
 *
 * The team of `threads` >= 1, the calling one among them, that all share which join it on the
 * calling thread, as the plans of a learner: it runs them one after another, and each with workers
 * of its own would find its cores taken by those that wait for the other's next job. Starts the
 * others for the first. */
TRP_MUST_USE trp_status team_join(struct team **out, uint32_t threads);
void team_leave(struct team *team); /* NULL is fine; the last one ends the threads */

/* Joins the largest team joined on the calling thread, for work between that of its members, who
 * may leave meanwhile on other threads. NULL: there is none. */
struct team *team_join_here(void);

uint32_t team_size(const struct team *team);

/* Where share `share` of `count` elements begins, the last one's end being that of share `shares`:
 * whole vectors from the first on. */
static inline size_t team_share(size_t count, uint32_t share, uint32_t shares)
{
    return share == shares ? count : count / shares * share / 64 * 64;
}

/* Runs work(arg, part) for every part < threads, on the calling thread and those of the workers
 * that have a core to run on; returns when all parts are done. While the team works for another
 * thread (jobs may come from elsewhere than where the team was joined), the calling one does all of
 * them. */
void team_run(struct team *team, void (*work)(void *arg, uint32_t index), void *arg);

/* After a job: the next one will not follow at once, so that workers leave their cores to others
 * without spinning for it. */
void team_rest(struct team *team);

#endif
