/* Fork and join for steps of half a millisecond. The caller and its workers take the parts of a job
 * one by one, the caller first 0: whoever has a core goes on, and a worker that has none holds
 * nobody up before it took a part. A worker spins for a moment after a job, because the next one
 * usually follows at once, and then sleeps, so that an idle team costs nothing; so does the caller
 * while others finish theirs, which makes the scheduler prefer it afterwards to whoever kept the
 * core. The caller sleeps on a semaphore and not on a condition: in a repeatable run it must not
 * hand its turn away inside a step. */
#include "team.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "limits.h"
#include "core/thread.h"

struct team {
    struct team *other;  /* the next one in `teams` */
    const void *founder; /* stands for the thread whose jobs share it */
    uint32_t members;    /* that joined */
    atomic_bool busy;
    uint32_t threads;
    struct thread *workers; /* [threads - 1] */
    cpu_set_t cores;        /* that workers may run on, but for the caller's, */
    cpu_set_t given;        /* and that they were told to keep to */
    int apart_from;         /* the core that workers stay off; -1: none yet */
    void (*work)(void *arg, uint32_t index);
    void *arg;
    atomic_uint next;     /* the part to take; `threads` and more: none is left */
    atomic_uint pending;  /* parts that are not finished, and whether the caller sleeps */
    sem_t finished;       /* the caller's */
    atomic_uint sleeping; /* workers */
    atomic_bool rests;    /* no job follows soon */
    atomic_bool stop;
    struct mutex mutex;
    struct cond wake;
};

enum { CALLER_SLEEPS = 1 << 30 };

static struct team *teams;
static struct mutex teams_mutex;
static struct once teams_once = ONCE_INIT;

static void teams_init(void)
{
    mutex_init(&teams_mutex);
}

/* Until `is_over`, or for TEAM_SPIN_NS; false: it is not. */
static bool spin(struct team *team, bool (*is_over)(struct team *team))
{
    uint64_t start = clock_now_ns(&clock_monotonic);
    do {
        for (int i = 0; i < TEAM_SPINS; i++) {
            if (is_over(team))
                return true;
#ifdef __x86_64__
            __builtin_ia32_pause();
#endif
        }
    } while (clock_now_ns(&clock_monotonic) - start < TEAM_SPIN_NS);
    return false;
}

static bool must_rise(struct team *team)
{
    return atomic_load(&team->next) < team->threads || atomic_load(&team->stop);
}

static bool must_rise_or_rest(struct team *team)
{
    return must_rise(team) || atomic_load_explicit(&team->rests, memory_order_relaxed);
}

static void wait_for_job(struct team *team)
{
    if (spin(team, must_rise_or_rest) && must_rise(team))
        return;
    mutex_lock(&team->mutex);
    atomic_fetch_add(&team->sleeping, 1);
    while (!must_rise(team))
        (void)cond_wait(&team->wake, &team->mutex, DEADLINE_NEVER); /* destroy wakes it */
    atomic_fetch_sub(&team->sleeping, 1);
    mutex_unlock(&team->mutex);
}

/* A number is only given out once a job, and the next job begins when all of them came back: what
 * was read of the job after the number is the job's. */
static bool take_part(struct team *team, uint32_t *part)
{
    *part = atomic_load(&team->next);
    while (*part < team->threads)
        if (atomic_compare_exchange_weak(&team->next, part, *part + 1))
            return true;
    return false;
}

static void work_on_part(struct team *team, uint32_t part)
{
    team->work(team->arg, part);
    if (atomic_fetch_sub(&team->pending, 1) == (CALLER_SLEEPS | 1))
        sem_post(&team->finished);
}

static void team_worker_run(void *arg)
{
    struct team *team = arg;
    while (!atomic_load(&team->stop)) {
        uint32_t part;
        wait_for_job(team);
        while (take_part(team, &part))
            work_on_part(team, part);
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

static void team_destroy(struct team *team)
{
    atomic_store(&team->stop, true);
    wake_sleepers(team);
    for (uint32_t i = 0; i + 1 < team->threads; i++)
        thread_stop(&team->workers[i]);
    sem_destroy(&team->finished);
    cond_cleanup(&team->wake);
    mutex_cleanup(&team->mutex);
    free(team->workers);
    free(team);
}

static trp_status team_create(struct team **out, uint32_t threads)
{
    struct team *team = xcalloc(1, sizeof *team);
    team->threads = threads;
    team->workers = xcalloc(threads - 1, sizeof *team->workers);
    mutex_init(&team->mutex);
    cond_init(&team->wake);
    sem_init(&team->finished, 0, 0);
    atomic_store(&team->next, threads);
    team->apart_from = -1;
    if (sched_getaffinity(0, sizeof team->cores, &team->cores) != 0)
        CPU_ZERO(&team->cores);
    team->given = team->cores;
    trp_status status = TRP_OK;
    for (uint32_t i = 0; i + 1 < threads && status == TRP_OK; i++)
        status = thread_start(&team->workers[i], "team", team_worker_run, team);
    if (status != TRP_OK) {
        team_destroy(team);
        return status;
    }
    *out = team;
    return TRP_OK;
}

static _Thread_local char founder; /* its address stands for the thread */

trp_status team_join(struct team **out, uint32_t threads)
{
    once_run(&teams_once, teams_init);
    mutex_lock(&teams_mutex);
    struct team *team = teams;
    while (team && (team->founder != &founder || team->threads != threads))
        team = team->other;
    trp_status status = team ? TRP_OK : team_create(&team, threads);
    if (status == TRP_OK && team->members++ == 0) {
        team->founder = &founder;
        team->other = teams;
        teams = team;
    }
    mutex_unlock(&teams_mutex);
    *out = team;
    return status;
}

void team_leave(struct team *team)
{
    if (!team)
        return;
    mutex_lock(&teams_mutex);
    bool last = --team->members == 0;
    struct team **at = &teams;
    while (*at != team)
        at = &(*at)->other;
    if (last)
        *at = team->other;
    mutex_unlock(&teams_mutex);
    if (last)
        team_destroy(team);
}

struct team *team_join_here(void)
{
    struct team *largest = NULL;
    once_run(&teams_once, teams_init);
    mutex_lock(&teams_mutex);
    for (struct team *team = teams; team; team = team->other)
        if (team->founder == &founder && (!largest || team->threads > largest->threads))
            largest = team;
    if (largest)
        largest->members++;
    mutex_unlock(&teams_mutex);
    return largest;
}

uint32_t team_size(const struct team *team)
{
    return team->threads;
}

static bool is_finished(struct team *team)
{
    return atomic_load(&team->pending) == 0;
}

/* For the parts that others took. */
static void wait_for_others(struct team *team)
{
    if (spin(team, is_finished))
        return;
    if (atomic_fetch_or(&team->pending, CALLER_SLEEPS) > 0)
        while (sem_wait(&team->finished) != 0 && errno == EINTR)
            ;
}

/* A scheduler may well wake a worker on the core of who wakes it while another one has nothing to
 * do; then the two take turns. So workers stay off the caller's, where each has one. Where that
 * cannot be they run where they may. Who gives the threads of a process other cores meanwhile
 * (`taskset -ap`) has given them to workers, too. */
static void keep_apart(struct team *team)
{
    int core = sched_getcpu();
    cpu_set_t now;
    if (core < 0 || core == team->apart_from || team->threads == 1)
        return;
    if (thread_cores(&team->workers[0], &now) && !CPU_EQUAL(&now, &team->given))
        team->cores = team->given = now;
    team->apart_from = core;
    if (team->threads > (uint32_t)CPU_COUNT(&team->cores))
        return;
    team->given = team->cores;
    CPU_CLR((size_t)core, &team->given);
    for (uint32_t i = 0; i + 1 < team->threads; i++)
        thread_keep_to(&team->workers[i], &team->given);
}

static void run_together(struct team *team, void (*work)(void *arg, uint32_t index), void *arg)
{
    team->work = work;
    team->arg = arg;
    keep_apart(team);
    atomic_store(&team->pending, team->threads);
    atomic_store_explicit(&team->rests, false, memory_order_relaxed);
    atomic_store(&team->next, 1);
    wake_sleepers(team);
    uint32_t part = 0;
    do
        work_on_part(team, part);
    while (take_part(team, &part));
    wait_for_others(team);
}

void team_run(struct team *team, void (*work)(void *arg, uint32_t index), void *arg)
{
    if (atomic_exchange(&team->busy, true)) {
        for (uint32_t part = 0; part < team->threads; part++)
            work(arg, part);
        return;
    }
    run_together(team, work, arg);
    atomic_store(&team->busy, false);
}

void team_rest(struct team *team)
{
    atomic_store_explicit(&team->rests, true, memory_order_relaxed);
}
