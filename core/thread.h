/* Threads, mutexes, conditions, and turns. The only place that knows pthread.
 *
 * Turns make a run of several threads repeatable: threads that joined one `struct turns` run one
 * at a time, in the order of their indices. A thread gives its turn away at turns_pass() and
 * whenever it would wait on a condition (which then returns like a spurious wake-up). So nothing
 * below needs to know whether a run is deterministic. */
#ifndef TRP_CORE_THREAD_H
#define TRP_CORE_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include <troupe/status.h>
#include "core/clock.h"

struct mutex {
    pthread_mutex_t handle;
};

struct cond {
    pthread_cond_t handle; /* waits on CLOCK_MONOTONIC */
};

struct once {
    pthread_once_t handle;
};

#define ONCE_INIT                                                                                  \
    {                                                                                              \
        .handle = PTHREAD_ONCE_INIT                                                                \
    }

struct thread {
    pthread_t handle;
    bool running;
};

void mutex_init(struct mutex *mutex);
void mutex_cleanup(struct mutex *mutex);
void mutex_lock(struct mutex *mutex);
void mutex_unlock(struct mutex *mutex);

/* The first call with `once` runs `run`; every other one returns after it. */
void once_run(struct once *once, void (*run)(void));

void cond_init(struct cond *cond);
void cond_cleanup(struct cond *cond);
void cond_signal(struct cond *cond);
void cond_broadcast(struct cond *cond);

/* Waits with `mutex` held; may wake without reason. False: the deadline (monotonic) passed. */
bool cond_wait(struct cond *cond, struct mutex *mutex, struct deadline deadline);

/* The same for what only a thread outside the turns will bring: the turn is kept, so the caller may
 * hold other mutexes that who has the next turn may want. */
bool cond_wait_in_turn(struct cond *cond, struct mutex *mutex, struct deadline deadline);

/* Starts `run(arg)` on a thread named `name` (at most 15 bytes shown). All signals are blocked in
 * it, so that the main thread takes them. The caller joins with thread_stop(). */
trp_status thread_start(struct thread *thread, const char *name, void (*run)(void *), void *arg);

/* Whether addresses are left (`ulimit -v`) for so many threads, and as much again for what they
 * have to do; libraries wait for ever for a thread of theirs that did not start.
 * RESOURCE_EXHAUSTED: with how many it takes. */
TRP_MUST_USE trp_status threads_fit(uint32_t count);

/* Joins; a thread that was never started is fine. */
void thread_stop(struct thread *thread);

/* It runs on these cores only, or where it did if none of them is to be had. */
void thread_keep_to(const struct thread *thread, const cpu_set_t *cores);
bool thread_cores(const struct thread *thread, cpu_set_t *cores); /* false: nobody knows */

/* Instead: nobody joins it, its resources go with it. */
void thread_detach(struct thread *thread);

struct turns;

/* `count` participants, indices 0 to count - 1; the first turn begins when all have joined. */
struct turns *turns_create(uint32_t count);
void turns_destroy(struct turns *turns); /* after every participant left */

/* The calling thread becomes participant `index` and waits for its turn. */
void turns_join(struct turns *turns, uint32_t index);

/* Hands the turn to the next participant and waits for it to come back. Does nothing on a thread
 * that joined no turns. */
void turns_pass(void);

/* The calling thread hands its turn on for good. */
void turns_leave(void);

/* True on a thread that joined turns. */
bool turns_active(void);

#endif
