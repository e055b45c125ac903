/* Inner to server/: passes over long ranges of numbers, in parts on several threads. Each number is
 * computed by itself, so that parts change no bit. */
#ifndef TRP_LEARNER_SERVER_PASSES_H
#define TRP_LEARNER_SERVER_PASSES_H

#include <stddef.h>
#include <stdint.h>

struct team;

struct passes {
    uint32_t threads;  /* the calling one among them; 0: as there are cores, at most
                          PASS_THREADS_MAX */
    struct team *team; /* NULL before the first long pass, and with one thread */
};

/* Calls pass(arg, first, size) for parts that make up [0, count); returns when all are done. One
 * call at a time. `passes` NULL: on the calling thread. */
void passes_run(struct passes *passes, size_t count,
                void (*pass)(void *arg, size_t first, size_t size), void *arg);

/* No pass follows soon: threads that spin for one would keep whoever waits for this one from its
 * core. `passes` NULL is fine. */
void passes_rest(struct passes *passes);

void passes_cleanup(struct passes *passes); /* zeroed is fine */

#endif
