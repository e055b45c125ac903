/* Fork and join for steps of half a millisecond. A worker spins for a moment after a job, because
 * the next one usually follows at once, and then sleeps, so that an idle plan costs nothing. The
 * caller waits for its workers without a condition variable: in a repeatable run it must not hand
 * its turn away inside a step. On a busy machine it yields its core to them. */
#include "team.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "limits.h"
#include "core/thread.h"

struct team_worker {
    struct team *team;
    uint32_t index;
    struct thread thread;
};

struct team {
    uint32_t threads;
    struct team_worker *workers; /* [threads - 1] */
    void (*work)(void *arg, uint32_t index);
    void *arg;
    atomic_uint_fast64_t job; /* counts up; a worker runs each number once */
    atomic_uint pending;      /* workers that have not finished the job */
    atomic_uint sleeping;
    atomic_bool stop;
    struct mutex mutex;
    struct cond wake;
};

static void pause_briefly(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

static bool job_differs(struct team *team, uint64_t last)
{
    return atomic_load(&team->job) != last || atomic_load(&team->stop);
}

static void wait_for_job(struct team *team, uint64_t last)
{
    for (int i = 0; i < TEAM_SPINS_MAX; i++) {
        if (job_differs(team, last))
            return;
        pause_briefly();
    }
    mutex_lock(&team->mutex);
    atomic_fetch_add(&team->sleeping, 1);
    while (!job_differs(team, last))
        (void)cond_wait(&team->wake, &team->mutex, DEADLINE_NEVER); /* destroy wakes it */
    atomic_fetch_sub(&team->sleeping, 1);
    mutex_unlock(&team->mutex);
}

static void team_worker_run(void *arg)
{
    struct team_worker *worker = arg;
    struct team *team = worker->team;
    for (uint64_t last = 0;; last++) {
        wait_for_job(team, last);
        if (atomic_load(&team->stop))
            return;
        team->work(team->arg, worker->index);
        atomic_fetch_sub(&team->pending, 1);
    }
}

static void wake_sleepers(struct team *team)
{
    if (atomic_load(&team->sleeping) == 0)
        return;
    mutex_lock(&team->mutex);
    cond_broadcast(&team->wake);
    mutex_unlock(&team->mutex);
}

trp_status team_create(struct team **out, uint32_t threads)
{
    struct team *team = xcalloc(1, sizeof *team);
    team->threads = threads;
    team->workers = xcalloc(threads - 1, sizeof *team->workers);
    mutex_init(&team->mutex);
    cond_init(&team->wake);
    trp_status status = TRP_OK;
    for (uint32_t i = 0; i + 1 < threads && status == TRP_OK; i++) {
        team->workers[i] = (struct team_worker){.team = team, .index = i + 1};
        status = thread_start(&team->workers[i].thread, "nn", team_worker_run, &team->workers[i]);
    }
    if (status != TRP_OK) {
        team_destroy(team);
        return status;
    }
    *out = team;
    return TRP_OK;
}

void team_destroy(struct team *team)
{
    if (!team)
        return;
    atomic_store(&team->stop, true);
    wake_sleepers(team);
    for (uint32_t i = 0; i + 1 < team->threads; i++)
        thread_stop(&team->workers[i].thread);
    cond_cleanup(&team->wake);
    mutex_cleanup(&team->mutex);
    free(team->workers);
    free(team);
}

void team_run(struct team *team, void (*work)(void *arg, uint32_t index), void *arg)
{
    team->work = work;
    team->arg = arg;
    atomic_store(&team->pending, team->threads - 1);
    atomic_fetch_add(&team->job, 1);
    wake_sleepers(team);
    work(arg, 0);
    for (int i = 0; atomic_load(&team->pending) > 0; i++) {
        if (i < TEAM_SPINS_MAX)
            pause_briefly();
        else
            sched_yield();
    }
}
