/* The learner's loop: next batch -> update -> priorities -> publish -> checkpoint, all on the
 * thread that calls run(). Batches are made ahead by the sampler's own thread; new priorities are
 * sent without waiting for the answer. So a step waits for the network only when replay is slower.
 *
 * What the algorithm does is the updater's; the loop knows its tensors only as names and memory.
 * Steps are counted once an update is whole, so a checkpoint, written between two updates, is a
 * state that the run was in: a resumed learner goes on bit for bit where batches are the same. */
#include <troupe/learner.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/status.h"
#include "limits.h"
#include "core/thread.h"
#include "publisher.h"
#include "save.h"

struct trp_learner {
    trp_learner_loop_options options;
    char *checkpoint_dir;
    trp_updater *updater;
    struct publisher *publisher;
    trp_sampler *sampler;
    trp_priority_writer *priority_writer;
    double *priorities; /* batch_size */
    struct learner_progress progress;
    uint64_t saved_steps; /* of the last checkpoint */
    struct deadline end, save_due;
    trp_learner_counters own; /* the loop's; `shared` is what others read */
    struct mutex mutex;
    trp_learner_counters shared;
};

void trp_updater_destroy(trp_updater *updater)
{
    if (updater)
        updater->impl->destroy(updater);
}

static void learner_share_counters(trp_learner *learner)
{
    learner->own.steps = learner->progress.steps;
    learner->own.version = learner->progress.version;
    mutex_lock(&learner->mutex);
    learner->shared = learner->own;
    mutex_unlock(&learner->mutex);
}

static void publish(trp_learner *learner)
{
    learner->progress.version++;
    publisher_publish(learner->publisher, learner->updater->params, learner->progress.version,
                      learner->progress.steps);
}

/* ---- checkpoints --------------------------------------------------------------------------- */

static trp_status load(trp_learner *learner)
{
    if (!learner->checkpoint_dir)
        return TRP_OK;
    TRP_TRY(save_prepare(learner->checkpoint_dir, !learner->options.resume));
    bool found = false;
    TRP_TRY(save_load(learner->checkpoint_dir, learner->updater, learner->publisher,
                      &learner->progress, &found));
    if (!found)
        return TRP_OK;
    learner->own.resumed_from = learner->progress.steps;
    learner->progress.version += LEARNER_VERSION_GAP;
    trp_log(TRP_INFO, "learner resumed steps=%" PRIu64 " version=%" PRIu64, learner->progress.steps,
            learner->progress.version + 1);
    return TRP_OK;
}

static void schedule_save(trp_learner *learner)
{
    uint32_t seconds = learner->options.checkpoint_every_s;
    learner->save_due = deadline_in_ms(
        &clock_monotonic, 1000 * (int64_t)(seconds ? seconds : LEARNER_CHECKPOINT_EVERY_S));
    learner->saved_steps = learner->progress.steps;
}

static trp_status save(trp_learner *learner)
{
    if (!learner->checkpoint_dir)
        return TRP_OK;
    TRP_TRY(save_write(learner->checkpoint_dir, learner->updater, learner->publisher,
                       &learner->progress));
    learner->own.checkpoints++;
    schedule_save(learner);
    return TRP_OK;
}

static bool save_is_due(const trp_learner *learner)
{
    uint64_t every = learner->options.checkpoint_every_steps;
    if (every > 0 && learner->progress.steps - learner->saved_steps >= every)
        return true;
    return deadline_passed(learner->save_due, &clock_monotonic);
}

/* ---- creation ------------------------------------------------------------------------------ */

static trp_status learner_check_options(const trp_learner_loop_options *options)
{
    if (options->prefetch > LEARNER_PREFETCH_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "learner: prefetch %" PRIu32 " is above %d",
                        options->prefetch, LEARNER_PREFETCH_MAX);
    if (!options->checkpoint_dir && options->resume)
        return trp_fail(TRP_INVALID_ARGUMENT, "learner: resume without a checkpoint directory");
    return TRP_OK;
}

trp_status trp_learner_create(trp_learner **out, const trp_learner_loop_options *options)
{
    *out = NULL;
    trp_learner *learner = xcalloc(1, sizeof *learner);
    mutex_init(&learner->mutex);
    learner->options = *options;
    learner->updater = options->updater;
    learner->publisher = publisher_create(options->updater->param_count);
    learner->priorities = xcalloc(options->updater->batch_size, sizeof *learner->priorities);
    if (options->checkpoint_dir)
        learner->checkpoint_dir = xstrdup(options->checkpoint_dir);
    trp_status status = learner_check_options(options);
    if (status == TRP_OK)
        status = load(learner);
    if (status != TRP_OK) {
        trp_learner_destroy(learner);
        return status;
    }
    publish(learner);
    learner_share_counters(learner);
    *out = learner;
    return TRP_OK;
}

ProtobufCService *trp_learner_service(trp_learner *learner)
{
    return publisher_service(learner->publisher);
}

/* ---- one step ------------------------------------------------------------------------------ */

/* In turns the server itself answers at once that it has nothing (limiter_timeout_ms is 0), so
 * that no clock decides whose turn it is; the wait is only for a server that is away. */
static int64_t wait_ms(int64_t otherwise_ms)
{
    return turns_active() ? LEARNER_REPLAY_GIVE_UP_MS : otherwise_ms;
}

/* The slow path of next: the table holds back, or its server is away. */
static trp_status next_batch_waiting(trp_learner *learner, trp_batch *batch, trp_status status)
{
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    struct deadline give_up = DEADLINE_NEVER;
    while (status_is_transient(status)) {
        if (trp_stop_requested(learner->options.stop) ||
            deadline_passed(learner->end, &clock_monotonic))
            return trp_fail(TRP_CANCELLED, "learner: stopped while it waited for a batch");
        if (status == TRP_DEADLINE_EXCEEDED) {
            give_up = DEADLINE_NEVER;
        } else if (give_up.at_ns == DEADLINE_NEVER.at_ns) {
            give_up = deadline_in_ms(&clock_monotonic, LEARNER_REPLAY_GIVE_UP_MS);
            trp_log(TRP_WARN, "replay server is away, waiting reason=%s", trp_last_error());
        } else if (deadline_passed(give_up, &clock_monotonic)) {
            break;
        } else if (!turns_active() && learner->options.stop) {
            trp_stop_wait(learner->options.stop, LEARNER_RETRY_MS);
        }
        turns_pass();
        status = trp_sampler_next(learner->sampler, batch, wait_ms(LEARNER_WAIT_MS));
    }
    learner->own.blocked_ns += (uint64_t)(clock_now_ns(&clock_monotonic) - since_ns);
    return status;
}

static trp_status learner_next_batch(trp_learner *learner, trp_batch *batch)
{
    trp_status status = trp_sampler_next(learner->sampler, batch, wait_ms(0));
    return status == TRP_OK ? TRP_OK : next_batch_waiting(learner, batch, status);
}

/* Priorities that do not arrive make sampling a little worse, not wrong. */
static trp_status write_priorities(trp_learner *learner, const trp_batch *batch)
{
    if (!learner->updater->writes_priorities)
        return TRP_OK;
    trp_status status = trp_priority_writer_update_batch(learner->priority_writer, batch,
                                                         learner->priorities, LEARNER_PRIORITY_MS);
    if (!status_is_transient(status))
        return status;
    if (learner->own.skipped_priorities++ == 0)
        trp_log(TRP_WARN, "priorities not written reason=%s", trp_last_error());
    return TRP_OK;
}

static trp_status step(trp_learner *learner)
{
    trp_batch batch;
    trp_updater *updater = learner->updater;
    TRP_TRY(learner_next_batch(learner, &batch));
    TRP_TRY(updater->impl->step(updater, &batch, learner->priorities, &learner->own.last));
    learner->progress.steps++;
    TRP_TRY(write_priorities(learner, &batch));
    uint32_t every = learner->options.publish_every;
    if (learner->progress.steps % (every ? every : LEARNER_PUBLISH_EVERY) == 0)
        publish(learner);
    return save_is_due(learner) ? save(learner) : TRP_OK;
}

/* ---- the loop ------------------------------------------------------------------------------ */

/* The table's server may still be starting, or restarting. */
static trp_status open_replay(trp_learner *learner)
{
    const trp_updater *updater = learner->updater;
    uint32_t prefetch = learner->options.prefetch ? learner->options.prefetch : LEARNER_PREFETCH;
    TRP_TRY(
        trp_sampler_create(&learner->sampler, learner->options.replay,
                           &(trp_sampler_options){.table = updater->table,
                                                  .columns = updater->columns,
                                                  .column_count = updater->column_count,
                                                  .batch_size = updater->batch_size,
                                                  .prefetch = turns_active() ? 0 : prefetch,
                                                  .limiter_timeout_ms = turns_active() ? 0 : -1}));
    return trp_priority_writer_create(&learner->priority_writer, learner->options.replay,
                                      updater->table, LEARNER_PRIORITY_WINDOW);
}

static bool finished(trp_learner *learner)
{
    uint64_t limit = learner->options.max_steps;
    learner->own.finished = (limit > 0 && learner->progress.steps >= limit) ||
                            deadline_passed(learner->end, &clock_monotonic);
    return learner->own.finished;
}

static trp_status learner_loop(trp_learner *learner)
{
    if (trp_stop_requested(learner->options.stop))
        return TRP_OK;
    TRP_TRY(open_replay(learner));
    while (!trp_stop_requested(learner->options.stop) && !finished(learner)) {
        TRP_TRY(step(learner));
        learner_share_counters(learner);
        turns_pass();
    }
    return TRP_OK;
}

static void flush_priorities(trp_learner *learner)
{
    if (learner->priority_writer &&
        trp_priority_writer_flush(learner->priority_writer, LEARNER_PRIORITY_MS) != TRP_OK)
        trp_log(TRP_WARN, "priorities not confirmed at the end reason=%s", trp_last_error());
}

/* Whatever ended the loop (`status`, its message): what was learned is worth more than the reason,
 * so a checkpoint that cannot be written is the failure that is reported. */
static trp_status save_at_end(trp_learner *learner, trp_status status)
{
    char *kept = error_keep();
    trp_status saved = save(learner);
    if (saved == TRP_OK && status != TRP_OK)
        return error_back(status, kept);
    if (saved != TRP_OK)
        trp_fail(saved,
                 "the last checkpoint was not written, steps since the one before are lost "
                 "(%" PRIu64 " of %" PRIu64 "): %s%s%s",
                 learner->progress.steps - learner->saved_steps, learner->progress.steps,
                 trp_last_error(),
                 status == TRP_OK ? "" : "; it ended because of: ", status == TRP_OK ? "" : kept);
    free(kept);
    return saved;
}

trp_status trp_learner_run(trp_learner *learner)
{
    const trp_learner_loop_options *options = &learner->options;
    learner->end = options->max_seconds
                       ? deadline_in_ms(&clock_monotonic, 1000 * (int64_t)options->max_seconds)
                       : DEADLINE_NEVER;
    schedule_save(learner);
    trp_status status = learner_loop(learner);
    finished(learner);
    bool stopped = trp_stop_requested(options->stop) || learner->own.finished;
    if (status == TRP_CANCELLED && stopped)
        status = TRP_OK;
    if (status == TRP_OK)
        flush_priorities(learner);
    if (status == TRP_OK || status_is_transient(status)) /* the state is whole */
        status = save_at_end(learner, status);
    learner_share_counters(learner);
    return status;
}

trp_learner_counters trp_learner_read(const trp_learner *learner)
{
    struct mutex *mutex = (struct mutex *)&learner->mutex; /* the lock is no part of the value */
    mutex_lock(mutex);
    trp_learner_counters counters = learner->shared;
    mutex_unlock(mutex);
    struct client_counts totals = publisher_totals(learner->publisher);
    counters.actor_steps = totals.steps;
    counters.actor_episodes = totals.episodes;
    return counters;
}

void trp_learner_destroy(trp_learner *learner)
{
    if (!learner)
        return;
    trp_priority_writer_destroy(learner->priority_writer);
    trp_sampler_destroy(learner->sampler);
    trp_updater_destroy(learner->updater);
    publisher_destroy(learner->publisher);
    free(learner->priorities);
    free(learner->checkpoint_dir);
    mutex_cleanup(&learner->mutex);
    free(learner);
}
