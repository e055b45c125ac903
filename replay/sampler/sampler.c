/* Batches are ready before they are asked for: each worker, a thread, keeps requests to one server
 * on their way, unpacks what comes straight into the columns of a free batch, and queues full ones.
 * With prefetch 0 the same code runs on the caller's thread and asks for exactly the batch that is
 * wanted. So it does for a caller that is back for the next batch before a thread could be woken:
 * two switches of threads would cost as much as a batch of small items. Workers share nothing but
 * the list of free batches and the queue of full ones, so that several servers are sampled side by
 * side; a batch comes from one of them.
 *
 * SAMPLER_BATCHES_AHEAD bounds how much is drawn before it is wanted (priorities go stale, items of
 * a queue are gone once drawn). Those in flight are lost when the sampler stops, never more.
 *
 * A stream that ends because the limiter held it back for limiter_timeout_ms, or because the server
 * went away, is an event for whoever waits in trp_sampler_next() when no other worker can help; the
 * rows that came before it stay in their batch. Any other end, and any sample that is not what was
 * asked for, is final. */
#include "sampler.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/status.h"
#include "limits.h"
#include "core/thread.h"
#include "sample_source.h"
#include "replay/client/unary.h"
#include "unpack.h"

struct sampler_worker {
    trp_sampler *sampler;
    struct sample_source source;
    uint32_t server;
    struct thread thread;

    /* Guarded by the sampler's mutex. */
    struct batch *batch; /* begun; NULL: none */
    bool filling;        /* a thread or the caller is at it */
    bool troubled;       /* the last batch failed in passing */
    bool rests;          /* until somebody waits */
    bool over;           /* nothing will come any more */
};

struct trp_sampler {
    char *table;
    uint32_t batch_size;
    size_t column_count;
    struct sampling sampling;
    struct sampler_worker *workers;
    uint32_t worker_count;
    struct batch *batches;
    uint32_t batch_count;

    struct mutex mutex;   /* guards what follows */
    struct cond changed;  /* for the caller */
    struct cond wanted;   /* for the threads */
    struct batch **free;  /* a stack */
    struct batch **ready; /* a ring of full batches */
    uint32_t free_count, first, full;
    struct batch *out[SAMPLER_HELD_MAX]; /* the caller's, oldest first */
    uint32_t out_count, held;            /* so many at most */
    uint32_t running;                    /* workers that may still bring something */
    bool waiting;                        /* a caller wants a batch */
    bool ahead;                          /* threads fill what they can */
    bool stopped;

    struct deadline away_until; /* the caller's, as the next: when it was away */
    uint32_t quick;             /* how often in a row it was not */
    trp_status trouble;         /* a passing one is for the next waiter, any other is final */
    char *trouble_text;
};

/* ---- filling --------------------------------------------------------------------------------- */

static void note_locked(trp_sampler *sampler, trp_status status)
{
    free(sampler->trouble_text);
    sampler->trouble = status;
    sampler->trouble_text = status == TRP_OK ? NULL : error_keep();
}

static bool has_failed_locked(const trp_sampler *sampler)
{
    return sampler->trouble != TRP_OK && !status_is_transient(sampler->trouble);
}

/* True when no worker can bring anything before its trouble is over. */
static bool all_troubled_locked(const trp_sampler *sampler)
{
    for (uint32_t i = 0; i < sampler->worker_count; i++)
        if (!sampler->workers[i].troubled)
            return false;
    return true;
}

/* Goes on with the batch that was begun, or with a free one; without the mutex meanwhile. */
static trp_status fill_locked(struct sampler_worker *worker, struct deadline deadline)
{
    trp_sampler *sampler = worker->sampler;
    if (!worker->batch)
        worker->batch = sampler->free[--sampler->free_count];
    worker->batch->server = worker->server;
    worker->filling = true;
    mutex_unlock(&sampler->mutex);
    trp_status status = source_fill(&worker->source, worker->batch, deadline);
    mutex_lock(&sampler->mutex);
    worker->filling = false;
    return status;
}

/* Notes the outcome of filling. After a limiter's timeout nothing is asked for until somebody waits
 * again: a server that answers at once would be asked for ever. */
static void settle_locked(struct sampler_worker *worker, trp_status status)
{
    trp_sampler *sampler = worker->sampler;
    bool exhausted = status == TRP_OK && source_is_exhausted(&worker->source);
    worker->troubled = exhausted || status_is_transient(status);
    if (status == TRP_OK && worker->batch->rows > 0) {
        sampler->ready[(sampler->first + sampler->full++) % sampler->batch_count] = worker->batch;
        worker->batch = NULL;
    } else if (status != TRP_OK && !has_failed_locked(sampler) &&
               (!status_is_transient(status) ||
                (sampler->waiting && all_troubled_locked(sampler)))) {
        note_locked(sampler, status);
    }
    worker->over = exhausted || has_failed_locked(sampler);
    sampler->running -= worker->over;
    worker->rests =
        status == TRP_DEADLINE_EXCEEDED && (!sampler->waiting || sampler->trouble != TRP_OK);
}

/* ---- the threads ----------------------------------------------------------------------------- */

static bool may_fill_locked(const struct sampler_worker *worker)
{
    const trp_sampler *sampler = worker->sampler;
    return !worker->over && !worker->filling && (worker->batch || sampler->free_count > 0);
}

/* Until there is something to fill. False: the thread is done. */
static bool wait_for_work_locked(const struct sampler_worker *worker)
{
    trp_sampler *sampler = worker->sampler;
    while (!sampler->stopped && !worker->over &&
           (!sampler->ahead || worker->rests || !may_fill_locked(worker)))
        cond_wait(&sampler->wanted, &sampler->mutex, DEADLINE_NEVER);
    return !sampler->stopped && !worker->over;
}

static void sampler_worker_run(void *arg)
{
    struct sampler_worker *worker = arg;
    trp_sampler *sampler = worker->sampler;
    mutex_lock(&sampler->mutex);
    while (wait_for_work_locked(worker)) {
        trp_status status = fill_locked(worker, DEADLINE_NEVER);
        if (sampler->stopped)
            break;
        settle_locked(worker, status);
        mutex_unlock(&sampler->mutex); /* who is told can have it at once */
        cond_signal(&sampler->changed);
        mutex_lock(&sampler->mutex);
    }
    mutex_unlock(&sampler->mutex);
}

/* ---- the caller ------------------------------------------------------------------------------ */

static void hold_locked(trp_sampler *sampler, trp_batch *batch)
{
    struct batch *from = sampler->ready[sampler->first];
    *batch = (trp_batch){
        .rows = from->rows,
        .server = from->server,
        .columns = from->columns,
        .keys = from->keys,
        .priorities = from->priorities,
        .probabilities = from->probabilities,
        .table_sizes = from->table_sizes,
        .times_sampled = from->times_sampled,
        .policy_versions = from->policy_versions,
        .rate_limited = from->rate_limited,
    };
    sampler->out[sampler->out_count++] = from;
    sampler->first = (sampler->first + 1) % sampler->batch_count;
    sampler->full--;
}

/* Makes room for one more: the batch held longest is free again. */
static void take_back_locked(trp_sampler *sampler)
{
    if (sampler->out_count < sampler->held)
        return;
    sampler->out[0]->rows = 0;
    sampler->free[sampler->free_count++] = sampler->out[0];
    memmove(sampler->out, sampler->out + 1, --sampler->out_count * sizeof(struct batch *));
}

static bool all_unreachable(const trp_sampler *sampler)
{
    for (uint32_t i = 0; i < sampler->worker_count; i++)
        if (!sampler->workers[i].source.unreachable)
            return false;
    return true;
}

/* Called without the mutex: it asks the server why. */
static trp_status sampler_timed_out(const trp_sampler *sampler, int64_t timeout_ms)
{
    char words[LIMITER_EXPLAIN_BYTES] = "";
    const struct sampler_worker *worker = &sampler->workers[0];
    const char *address = trp_channel_address(worker->source.link.channel);
    bool away = all_unreachable(sampler);
    if (away ? timeout_ms >= SAMPLER_ASK_MS : timeout_ms != 0)
        away &= !limiter_ask(worker->source.link.channel, sampler->table, true, words);
    if (away)
        return trp_fail(TRP_UNAVAILABLE, "%s is away and has not answered for %" PRId64 " ms",
                        address, timeout_ms);
    return trp_fail(TRP_DEADLINE_EXCEEDED,
                    "table '%s' at %s gave no batch of %u in %" PRId64 " ms%s", sampler->table,
                    address, sampler->batch_size, timeout_ms, words);
}

/* Who wants a batch fills it, unless a thread is at it. False: `deadline` has passed. */
static bool fill_or_wait_locked(trp_sampler *sampler, struct deadline deadline)
{
    struct sampler_worker *worker = &sampler->workers[0];
    if (sampler->worker_count > 1 || !may_fill_locked(worker))
        return cond_wait(&sampler->changed, &sampler->mutex, deadline);
    trp_status status = fill_locked(worker, deadline);
    if (status == TRP_DEADLINE_EXCEEDED && deadline_passed(deadline, &clock_monotonic))
        return false;
    if (!sampler->stopped)
        settle_locked(worker, status);
    return true;
}

static void rest_no_more_locked(trp_sampler *sampler)
{
    for (uint32_t i = 0; i < sampler->worker_count; i++)
        sampler->workers[i].rests = false;
    if (sampler->ahead)
        cond_broadcast(&sampler->wanted);
}

static trp_status sampler_wait_locked(trp_sampler *sampler, struct deadline deadline, bool *late)
{
    bool in_time = true;
    if (status_is_transient(sampler->trouble))
        note_locked(sampler, TRP_OK);
    sampler->waiting = true;
    rest_no_more_locked(sampler);
    while (!sampler->full && !sampler->stopped && sampler->trouble == TRP_OK &&
           sampler->running > 0 && in_time)
        in_time = fill_or_wait_locked(sampler, deadline);
    sampler->waiting = false;
    if (sampler->stopped)
        return trp_fail(TRP_CANCELLED, "the sampler of table '%s' was stopped", sampler->table);
    if (sampler->full)
        return TRP_OK;
    if (sampler->trouble != TRP_OK)
        return trp_fail(sampler->trouble, "%s", sampler->trouble_text);
    if (sampler->running == 0)
        return trp_fail(TRP_OUT_OF_RANGE, "the samples of table '%s' have ended", sampler->table);
    *late = true;
    return TRP_DEADLINE_EXCEEDED;
}

/* Threads make batches ahead unless the caller was back at once more often in a row than for those
 * that can be ready. */
static void look_ahead_locked(trp_sampler *sampler)
{
    bool away = deadline_passed(sampler->away_until, &clock_monotonic);
    sampler->quick = away || sampler->worker_count > 1 ? 0 : sampler->quick + 1;
    sampler->ahead = sampler->quick <= 2 * sampler->batch_count;
}

trp_status trp_sampler_next(trp_sampler *sampler, trp_batch *batch, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    bool late = false;
    mutex_lock(&sampler->mutex);
    take_back_locked(sampler);
    look_ahead_locked(sampler);
    trp_status status = sampler_wait_locked(sampler, deadline, &late);
    if (status == TRP_OK)
        hold_locked(sampler, batch);
    if (late)
        sampler->quick = 0;
    mutex_unlock(&sampler->mutex);
    if (sampler->ahead)
        cond_broadcast(&sampler->wanted);
    sampler->away_until.at_ns = clock_now_ns(&clock_monotonic) + SAMPLER_AWAY_NS;
    return late ? sampler_timed_out(sampler, timeout_ms) : status;
}

void trp_sampler_stop(trp_sampler *sampler)
{
    mutex_lock(&sampler->mutex);
    sampler->stopped = true; /* first: what ends the stream must not look like a failure */
    cond_broadcast(&sampler->changed);
    cond_broadcast(&sampler->wanted);
    mutex_unlock(&sampler->mutex);
    for (uint32_t i = 0; i < sampler->worker_count; i++)
        link_stop(&sampler->workers[i].source.link);
}

/* ---- life ------------------------------------------------------------------------------------ */

static trp_status sampler_check_options(const trp_sampler_options *options, size_t servers)
{
    if (!options->table || !*options->table)
        return trp_fail(TRP_INVALID_ARGUMENT, "sampler: no table was named");
    if (options->batch_size == 0 || options->column_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "sampler of '%s': a batch of %u rows, %zu columns",
                        options->table, options->batch_size, options->column_count);
    if (options->prefetch >= SAMPLER_PREFETCH_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "sampler of '%s': prefetch %u, at most %d",
                        options->table, options->prefetch, SAMPLER_PREFETCH_MAX - 1);
    if (options->workers > SAMPLER_WORKERS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "sampler of '%s': %u workers, at most %d",
                        options->table, options->workers, SAMPLER_WORKERS_MAX);
    if (options->held > SAMPLER_HELD_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "sampler of '%s': %u batches held, at most %d",
                        options->table, options->held, SAMPLER_HELD_MAX);
    if (options->prefetch == 0 && (servers > 1 || options->workers > 1))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "sampler of '%s': several servers or workers need a prefetch of 1 or more",
                        options->table);
    for (size_t i = 0; i < options->column_count; i++)
        if (trp_tensor_bytes(&options->columns[i]) == 0)
            return trp_fail(TRP_INVALID_ARGUMENT, "sampler of '%s': column %zu (%s) is no tensor",
                            options->table, i,
                            options->columns[i].name ? options->columns[i].name : "unnamed");
    return TRP_OK;
}

static int64_t or_no_bound(uint64_t bound)
{
    return bound && bound < INT64_MAX / 2 ? (int64_t)bound : INT64_MAX / 2;
}

static trp_status init_batches(trp_sampler *sampler, const trp_sampler_options *options)
{
    sampler->batch_count = sampler->held;
    if (options->prefetch > 0)
        sampler->batch_count += options->prefetch + sampler->worker_count - 1;
    sampler->batches = xcalloc(sampler->batch_count, sizeof *sampler->batches);
    sampler->free = xcalloc(sampler->batch_count, sizeof(struct batch *));
    sampler->ready = xcalloc(sampler->batch_count, sizeof(struct batch *));
    for (uint32_t i = 0; i < sampler->batch_count; i++) {
        TRP_TRY(batch_init(&sampler->batches[i], options->columns, options->column_count,
                           options->batch_size, options->allocator, "sampler"));
        sampler->free[sampler->free_count++] = &sampler->batches[i];
    }
    return TRP_OK;
}

static void init_workers(trp_sampler *sampler, trp_channel *const *channels, size_t servers,
                         const trp_sampler_options *options)
{
    uint32_t each = options->workers ? options->workers : 1;
    sampler->worker_count = sampler->running = each * (uint32_t)servers;
    sampler->workers = xcalloc(sampler->worker_count, sizeof *sampler->workers);
    for (uint32_t i = 0; i < sampler->worker_count; i++) {
        struct sampler_worker *worker = &sampler->workers[i];
        worker->sampler = sampler;
        worker->server = i % (uint32_t)servers;
        source_init(&worker->source, channels[worker->server], &sampler->sampling, options);
    }
}

static trp_status start_workers(trp_sampler *sampler)
{
    trp_status status = TRP_OK;
    mutex_lock(&sampler->mutex);
    sampler->ahead = true;
    for (uint32_t i = 0; i < sampler->worker_count && status == TRP_OK; i++)
        status = thread_start(&sampler->workers[i].thread, "sampler", sampler_worker_run,
                              &sampler->workers[i]);
    mutex_unlock(&sampler->mutex);
    return status;
}

trp_status sampler_create(trp_sampler **out, trp_channel *const *channels, size_t servers,
                          const trp_sampler_options *options)
{
    *out = NULL;
    TRP_TRY(sampler_check_options(options, servers));
    for (size_t i = 0; i < servers && !options->unchecked; i++)
        TRP_TRY(info_check_columns(channels[i], options->table, options->columns,
                                   options->column_count));
    trp_sampler *sampler = xcalloc(1, sizeof *sampler);
    sampler->table = xstrdup(options->table);
    sampler->batch_size = options->batch_size;
    sampler->column_count = options->column_count;
    sampler->held = options->held ? options->held : 1;
    sampler->sampling.step = options->batch_size;
    sampler->sampling.ahead =
        options->prefetch ? SAMPLER_BATCHES_AHEAD * sampler->sampling.step : 0;
    sampler->sampling.in_flight_max = or_no_bound(options->max_in_flight);
    sampler->sampling.on_stream_max = or_no_bound(options->max_samples_per_stream);
    sampler->sampling.end_on_timeout = options->end_on_timeout;
    atomic_init(&sampler->sampling.budget, or_no_bound(options->max_samples));
    mutex_init(&sampler->mutex);
    cond_init(&sampler->changed);
    cond_init(&sampler->wanted);
    init_workers(sampler, channels, servers, options);
    trp_status status = init_batches(sampler, options);
    if (status == TRP_OK && options->prefetch)
        status = start_workers(sampler);
    if (status == TRP_OK)
        *out = sampler;
    else
        trp_sampler_destroy(sampler);
    return status;
}

trp_status trp_sampler_create(trp_sampler **out, trp_channel *channel,
                              const trp_sampler_options *options)
{
    return sampler_create(out, &channel, 1, options);
}

void trp_sampler_destroy(trp_sampler *sampler)
{
    if (!sampler)
        return;
    trp_sampler_stop(sampler);
    for (uint32_t i = 0; i < sampler->worker_count; i++)
        thread_stop(&sampler->workers[i].thread);
    for (uint32_t i = 0; i < sampler->batch_count; i++)
        batch_cleanup(&sampler->batches[i], sampler->column_count);
    for (uint32_t i = 0; i < sampler->worker_count; i++)
        source_cleanup(&sampler->workers[i].source);
    free(sampler->workers);
    free(sampler->batches);
    free(sampler->free);
    free(sampler->ready);
    free(sampler->table);
    free(sampler->trouble_text);
    cond_cleanup(&sampler->changed);
    cond_cleanup(&sampler->wanted);
    mutex_cleanup(&sampler->mutex);
    free(sampler);
}
