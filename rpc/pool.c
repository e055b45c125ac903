/* Handlers of protobuf-c services may take long or block, so those of remote callers, and blocking
 * ones of local callers, run on a few threads behind one bounded queue. The threads start with the
 * first job, or with the server.
 *
 * Most handlers take less time than waking a thread does. So a method whose runs have been short is
 * quick: quick jobs wake a worker when several have come or the group ends, and nobody while one
 * runs such jobs; their answers are handed to the reactor several at a time. Should a quick job
 * take long this once, the reactor sees that jobs wait and wakes another worker. */
#include "pool.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "server.h"

enum {
    QUICK_NS = 20000,
    JOBS_TOGETHER = 64,
    ANSWERS_TOGETHER = 16, /* so an answer waits for at most 16 x 20 us of other jobs */
    AVERAGE_WEIGHT = 8,
};

struct rpc_worker {
    struct rpc_pool *pool;
    struct thread thread;
    struct rpc_post *first, *last; /* not handed over yet */
    uint32_t posts;
};

struct rpc_pool {
    trp_server *server;
    struct mutex mutex; /* guards the rest */
    struct cond not_empty;
    struct rpc_worker *workers;
    uint32_t running;      /* workers started */
    uint32_t idle;         /* of them waiting for a job */
    uint32_t quick_active; /* of them at a quick job */
    bool waking;           /* one was woken and has not come yet */
    struct rpc_job *first, *last;
    uint32_t waiting; /* jobs in the list */
    bool stopped;
};

struct rpc_pool *rpc_pool_create(trp_server *server)
{
    struct rpc_pool *pool = xcalloc(1, sizeof *pool);
    pool->server = server;
    pool->workers = xcalloc(server->options.threads, sizeof *pool->workers);
    mutex_init(&pool->mutex);
    cond_init(&pool->not_empty);
    return pool;
}

void rpc_pool_destroy(struct rpc_pool *pool)
{
    if (!pool)
        return;
    rpc_pool_stop(pool);
    cond_cleanup(&pool->not_empty);
    mutex_cleanup(&pool->mutex);
    free(pool->workers);
    free(pool);
}

void rpc_worker_post(struct rpc_worker *worker, struct rpc_post *post)
{
    post->next = NULL;
    if (worker->last)
        worker->last->next = post;
    else
        worker->first = post;
    worker->last = post;
    worker->posts++;
}

static void hand_over(struct rpc_worker *worker)
{
    if (!worker->first)
        return;
    rpc_server_post(worker->pool->server, worker->first, worker->last);
    worker->first = worker->last = NULL;
    worker->posts = 0;
}

static bool is_quick(const struct rpc_job *job)
{
    uint32_t average =
        job->average_ns ? atomic_load_explicit(job->average_ns, memory_order_relaxed) : 0;
    return average > 0 && average < QUICK_NS;
}

static void note_duration(_Atomic uint32_t *average_ns, int64_t ns)
{
    int64_t before = atomic_load_explicit(average_ns, memory_order_relaxed);
    int64_t now = before == 0 ? ns : before + (ns - before) / AVERAGE_WEIGHT;
    now = now < 1 ? 1 : now > UINT32_MAX ? UINT32_MAX : now;
    atomic_store_explicit(average_ns, (uint32_t)now, memory_order_relaxed);
}

static void run_job(struct rpc_worker *worker, struct rpc_job *job)
{
    _Atomic uint32_t *average_ns = job->average_ns;
    if (!average_ns) {
        job->run(job, worker);
        return;
    }
    int64_t start = clock_now_ns(&clock_monotonic);
    job->run(job, worker);
    note_duration(average_ns, clock_now_ns(&clock_monotonic) - start);
}

static struct rpc_job *pop_locked(struct rpc_pool *pool)
{
    struct rpc_job *job = pool->first;
    if (!job)
        return NULL;
    pool->first = job->next;
    if (!pool->first)
        pool->last = NULL;
    pool->waiting--;
    return job;
}

/* The next job; NULL: the pool has stopped and nothing is left. */
static struct rpc_job *take_job(struct rpc_worker *worker)
{
    struct rpc_pool *pool = worker->pool;
    struct rpc_job *job;
    while (!(job = pop_locked(pool)) && !pool->stopped) {
        if (worker->first) {
            mutex_unlock(&pool->mutex);
            hand_over(worker);
            mutex_lock(&pool->mutex);
            continue;
        }
        pool->idle++;
        cond_wait(&pool->not_empty, &pool->mutex, DEADLINE_NEVER);
        pool->idle--;
        pool->waking = false;
    }
    return job;
}

static void pool_worker_run(void *arg)
{
    struct rpc_worker *worker = arg;
    struct rpc_pool *pool = worker->pool;
    mutex_lock(&pool->mutex);
    for (struct rpc_job *job; (job = take_job(worker));) {
        bool quick = is_quick(job);
        pool->quick_active += quick;
        if (!quick && pool->first && pool->idle > 0)
            cond_signal(&pool->not_empty); /* the others must not wait behind this one */
        mutex_unlock(&pool->mutex);
        if (!quick)
            hand_over(worker); /* nor must answers */
        run_job(worker, job);
        if (!quick || worker->posts >= ANSWERS_TOGETHER)
            hand_over(worker);
        mutex_lock(&pool->mutex);
        pool->quick_active -= quick;
    }
    mutex_unlock(&pool->mutex);
    hand_over(worker);
}

static trp_status start_locked(struct rpc_pool *pool)
{
    while (pool->running < pool->server->options.threads) {
        struct rpc_worker *worker = &pool->workers[pool->running];
        worker->pool = pool;
        TRP_TRY(thread_start(&worker->thread, "trp-handler", pool_worker_run, worker));
        pool->running++;
    }
    return TRP_OK;
}

static trp_status stopped_error(const struct rpc_pool *pool)
{
    return trp_fail(TRP_UNAVAILABLE, "the server %s has stopped", trp_server_address(pool->server));
}

trp_status rpc_pool_start(struct rpc_pool *pool)
{
    mutex_lock(&pool->mutex);
    trp_status status = pool->stopped ? stopped_error(pool) : start_locked(pool);
    mutex_unlock(&pool->mutex);
    return status;
}

void rpc_pool_stop(struct rpc_pool *pool)
{
    mutex_lock(&pool->mutex);
    pool->stopped = true;
    cond_broadcast(&pool->not_empty);
    uint32_t running = pool->running;
    mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i < running; i++)
        thread_stop(&pool->workers[i].thread);
}

/* Not for quick jobs alone while a worker is at such ones: it will come to them. */
static void wake_locked(struct rpc_pool *pool, bool another)
{
    if (pool->idle == 0 || (!another && (pool->quick_active > 0 || pool->waking)))
        return;
    pool->waking = true;
    cond_signal(&pool->not_empty);
}

static trp_status submit_locked(struct rpc_pool *pool, struct rpc_job *job)
{
    if (pool->stopped)
        return stopped_error(pool);
    if (pool->waiting >= pool->server->options.max_pending)
        return trp_fail(TRP_UNAVAILABLE, "%u calls wait for the handlers of %s already",
                        pool->waiting, trp_server_address(pool->server));
    TRP_TRY(start_locked(pool));
    job->next = NULL;
    if (pool->last)
        pool->last->next = job;
    else
        pool->first = job;
    pool->last = job;
    pool->waiting++;
    if (!is_quick(job) || pool->waiting >= JOBS_TOGETHER)
        wake_locked(pool, !is_quick(job));
    return TRP_OK;
}

trp_status rpc_pool_submit(struct rpc_pool *pool, struct rpc_job *job)
{
    mutex_lock(&pool->mutex);
    trp_status status = submit_locked(pool, job);
    mutex_unlock(&pool->mutex);
    return status;
}

void rpc_pool_wake(struct rpc_pool *pool, bool another)
{
    mutex_lock(&pool->mutex);
    if (pool->waiting > 0)
        wake_locked(pool, another);
    mutex_unlock(&pool->mutex);
}
