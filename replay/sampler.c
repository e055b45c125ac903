/* Batches are ready before they are asked for: a thread keeps requests on their way, unpacks what
 * comes straight into the columns of a free batch, and hands full ones over in order. With prefetch
 * 0 the same code runs on the caller's thread and asks for exactly the batch that is wanted.
 *
 * The server reads a request only when the one before is satisfied, so requests sent ahead keep it
 * busy while ours are unpacked; SAMPLER_BATCHES_AHEAD bounds how much is drawn before it is wanted
 * (priorities go stale, a queue's items are gone once drawn). Those in flight are lost when the
 * sampler stops, never more.
 *
 * A stream that ends because the limiter held it back for limiter_timeout_ms, or because the server
 * went away, is an event for whoever waits in trp_sampler_next(); the rows that came before it stay
 * in their batch. Any other end, and any sample that is not what was asked for, is final. */
#include <troupe/sampler.h>

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/thread.h"
#include "sample_source.h"
#include "unary.h"
#include "unpack.h"

struct trp_sampler {
    struct sample_source source; /* of whoever fills batches: the thread, or the caller */
    uint32_t batch_size;
    uint32_t batches_ahead;

    struct batch *batches; /* a ring: [lent] [full ...] [filling] */
    uint32_t batch_count;

    struct mutex mutex; /* guards what follows */
    struct cond changed;
    uint32_t first, full; /* the oldest full batch and how many follow it */
    bool lent;            /* the batch before `first` is the caller's */
    bool waiting;         /* a caller wants a batch */
    bool stopped;
    trp_status event;   /* passing: the next waiter gets it */
    trp_status failure; /* final */
    char *event_text, *failure_text;
    struct thread thread;
};

static trp_status fill(trp_sampler *sampler, struct batch *batch, struct deadline deadline)
{
    return source_fill(&sampler->source, batch,
                       (int64_t)sampler->batches_ahead * sampler->batch_size, sampler->batch_size,
                       deadline);
}

static bool is_passing(trp_status status)
{
    return status == TRP_DEADLINE_EXCEEDED || status == TRP_UNAVAILABLE;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void note_locked(trp_status status, trp_status *code, char **text)
{
    free(*text);
    *code = status;
    *text = status == TRP_OK ? NULL : xstrdup(trp_last_error());
}

/* What filling came to. After a limiter's timeout nothing is asked for until somebody waits again:
 * a server that answers at once would be asked for ever. False: the thread is done. */
static bool settle_locked(trp_sampler *sampler, trp_status status)
{
    if (status == TRP_OK)
        sampler->full++;
    else if (!is_passing(status))
        note_locked(status, &sampler->failure, &sampler->failure_text);
    else if (sampler->waiting)
        note_locked(status, &sampler->event, &sampler->event_text);
    cond_broadcast(&sampler->changed);
    while (status == TRP_DEADLINE_EXCEEDED && !sampler->stopped &&
           (!sampler->waiting || sampler->event != TRP_OK))
        cond_wait(&sampler->changed, &sampler->mutex, DEADLINE_NEVER);
    return sampler->failure == TRP_OK;
}

/* The next batch to fill; NULL once stopped. */
static struct batch *free_batch_locked(trp_sampler *sampler)
{
    while (!sampler->stopped && sampler->full + sampler->lent == sampler->batch_count)
        cond_wait(&sampler->changed, &sampler->mutex, DEADLINE_NEVER);
    return sampler->stopped
               ? NULL
               : &sampler->batches[(sampler->first + sampler->full) % sampler->batch_count];
}

static void sampler_run(void *arg)
{
    trp_sampler *sampler = arg;
    bool running = true;
    mutex_lock(&sampler->mutex);
    while (running) {
        struct batch *batch = free_batch_locked(sampler);
        if (!batch)
            break;
        mutex_unlock(&sampler->mutex);
        trp_status status = fill(sampler, batch, DEADLINE_NEVER);
        mutex_lock(&sampler->mutex);
        running = !sampler->stopped && settle_locked(sampler, status);
    }
    mutex_unlock(&sampler->mutex);
}

/* ---- the caller ------------------------------------------------------------------------------ */

static void lend_locked(trp_sampler *sampler, trp_batch *batch)
{
    const struct batch *from = &sampler->batches[sampler->first];
    *batch = (trp_batch){
        .rows = from->rows,
        .columns = from->columns,
        .keys = from->keys,
        .priorities = from->priorities,
        .probabilities = from->probabilities,
        .table_sizes = from->table_sizes,
        .times_sampled = from->times_sampled,
    };
    sampler->lent = true;
    sampler->first = (sampler->first + 1) % sampler->batch_count;
    sampler->full--;
}

/* The batch lent before is free again. */
static void take_back_locked(trp_sampler *sampler)
{
    if (!sampler->lent)
        return;
    uint32_t lent = (sampler->first + sampler->batch_count - 1) % sampler->batch_count;
    sampler->batches[lent].rows = 0;
    sampler->lent = false;
}

static trp_status timed_out(const trp_sampler *sampler, int64_t timeout_ms)
{
    const char *address = trp_channel_address(sampler->source.link.channel);
    if (sampler->source.unreachable)
        return trp_fail(TRP_UNAVAILABLE, "%s went away and has not answered for %" PRId64 " ms",
                        address, timeout_ms);
    return trp_fail(TRP_DEADLINE_EXCEEDED, "table '%s' at %s gave no batch of %u in %" PRId64 " ms",
                    sampler->source.table, address, sampler->batch_size, timeout_ms);
}

static trp_status wait_locked(trp_sampler *sampler, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    bool in_time = true;
    note_locked(TRP_OK, &sampler->event, &sampler->event_text);
    sampler->waiting = true;
    cond_broadcast(&sampler->changed);
    while (!sampler->full && !sampler->stopped && sampler->failure == TRP_OK &&
           sampler->event == TRP_OK && in_time)
        in_time = cond_wait(&sampler->changed, &sampler->mutex, deadline);
    sampler->waiting = false;
    if (sampler->stopped)
        return trp_fail(TRP_CANCELLED, "the sampler of table '%s' was stopped",
                        sampler->source.table);
    if (sampler->full)
        return TRP_OK;
    if (sampler->failure != TRP_OK)
        return trp_fail(sampler->failure, "%s", sampler->failure_text);
    if (sampler->event != TRP_OK)
        return trp_fail(sampler->event, "%s", sampler->event_text);
    return timed_out(sampler, timeout_ms);
}

/* Without a thread: the caller fills the one batch there is. */
static trp_status next_inline(trp_sampler *sampler, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    if (sampler->failure != TRP_OK)
        return trp_fail(sampler->failure, "%s", sampler->failure_text);
    trp_status status = trp_stop_requested(sampler->source.link.stop)
                            ? TRP_CANCELLED
                            : fill(sampler, &sampler->batches[0], deadline);
    if (trp_stop_requested(sampler->source.link.stop))
        return trp_fail(TRP_CANCELLED, "the sampler of table '%s' was stopped",
                        sampler->source.table);
    if (status == TRP_OK)
        sampler->full = 1;
    else if (!is_passing(status))
        note_locked(status, &sampler->failure, &sampler->failure_text);
    if (status != TRP_DEADLINE_EXCEEDED || !deadline_passed(deadline, &clock_monotonic))
        return status;
    return timed_out(sampler, timeout_ms);
}

trp_status trp_sampler_next(trp_sampler *sampler, trp_batch *batch, int64_t timeout_ms)
{
    mutex_lock(&sampler->mutex);
    take_back_locked(sampler);
    trp_status status = sampler->thread.running ? wait_locked(sampler, timeout_ms)
                                                : next_inline(sampler, timeout_ms);
    if (status == TRP_OK)
        lend_locked(sampler, batch);
    mutex_unlock(&sampler->mutex);
    return status;
}

void trp_sampler_stop(trp_sampler *sampler)
{
    if (sampler->thread.running) { /* without one the waiting caller holds the mutex */
        mutex_lock(&sampler->mutex);
        sampler->stopped = true; /* first: what ends the stream must not look like a failure */
        cond_broadcast(&sampler->changed);
        mutex_unlock(&sampler->mutex);
    }
    source_stop(&sampler->source);
}

/* ---- life ------------------------------------------------------------------------------------ */

static trp_status check_options(const trp_sampler_options *options)
{
    if (!options->table || !*options->table)
        return trp_fail(TRP_INVALID_ARGUMENT, "sampler: no table was named");
    if (options->batch_size == 0 || options->column_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "sampler of '%s': a batch of %u rows, %zu columns",
                        options->table, options->batch_size, options->column_count);
    if (options->prefetch >= SAMPLER_PREFETCH_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "sampler of '%s': prefetch %u, at most %d",
                        options->table, options->prefetch, SAMPLER_PREFETCH_MAX - 1);
    return TRP_OK;
}

static trp_status init_batches(trp_sampler *sampler, const trp_sampler_options *options)
{
    sampler->batches = xcalloc(sampler->batch_count, sizeof *sampler->batches);
    for (uint32_t i = 0; i < sampler->batch_count; i++)
        TRP_TRY(batch_init(&sampler->batches[i], options->columns, options->column_count,
                           options->batch_size));
    return TRP_OK;
}

trp_status trp_sampler_create(trp_sampler **out, trp_channel *channel,
                              const trp_sampler_options *options)
{
    *out = NULL;
    TRP_TRY(check_options(options));
    TRP_TRY(info_check_columns(channel, options->table, options->columns, options->column_count));
    trp_sampler *sampler = xcalloc(1, sizeof *sampler);
    source_init(&sampler->source, channel, options->table, options->limiter_timeout_ms,
                options->columns, options->column_count);
    sampler->batch_size = options->batch_size;
    sampler->batches_ahead = options->prefetch ? SAMPLER_BATCHES_AHEAD : 0;
    sampler->batch_count = options->prefetch + 1;
    mutex_init(&sampler->mutex);
    cond_init(&sampler->changed);
    trp_status status = init_batches(sampler, options);
    if (status == TRP_OK && options->prefetch)
        status = thread_start(&sampler->thread, "sampler", sampler_run, sampler);
    if (status == TRP_OK)
        *out = sampler;
    else
        trp_sampler_destroy(sampler);
    return status;
}

void trp_sampler_destroy(trp_sampler *sampler)
{
    if (!sampler)
        return;
    trp_sampler_stop(sampler);
    thread_stop(&sampler->thread);
    size_t column_count;
    unpacker_columns(sampler->source.unpacker, &column_count);
    for (uint32_t i = 0; sampler->batches && i < sampler->batch_count; i++)
        batch_cleanup(&sampler->batches[i], column_count);
    free(sampler->batches);
    source_cleanup(&sampler->source);
    free(sampler->event_text);
    free(sampler->failure_text);
    cond_cleanup(&sampler->changed);
    mutex_cleanup(&sampler->mutex);
    free(sampler);
}
