/* The learner's loop: next batches -> update -> priorities -> publish -> checkpoint, all on the
 * thread that calls run(). Sources make batches ahead on threads of their own and send priorities
 * without waiting for the answer. So a step waits for the network only when replay is slower.
 *
 * What the algorithm does is the updater's; the loop knows its vectors only as names and memory.
 * Steps are counted once an update is whole, so a checkpoint, written between two updates, is a
 * state that the run was in: a resumed learner goes on bit for bit where batches are the same.
 *
 * An updater that collects later owes the numbers of its last step: they are fetched once the next
 * one has begun, so that a device always has work, or before anybody reads what the learner has. */
#include <troupe/learner.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/array.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/status.h"
#include "limits.h"
#include "core/thread.h"
#include <troupe/publisher.h>
#include "save.h"
#include "update.h"

struct trp_learner {
    trp_learner_loop_options options;
    char *checkpoint_dir;
    trp_updater *updater;
    trp_source **sources;
    size_t source_count;
    struct trp_update_run update;
    uint32_t publish_every;                        /* steps */
    trp_batch batches[2][TRP_UPDATER_SOURCES_MAX]; /* of the last step and the one before */
    uint64_t owed;                                 /* the step that is to be collected; 0: none */
    bool torn; /* the updater failed: its vectors may be of no step */
    trp_publisher *publisher;
    size_t opened; /* sources */
    bool ended;    /* one of them has no more batches */
    char **names;  /* of what several sources report */
    size_t name_count;
    uint32_t name_room;
    struct learner_progress progress;
    uint64_t saved_steps; /* of the last checkpoint */
    struct deadline end, save_due;
    trp_learner_counters own; /* the loop's; `shared` is what others read */
    struct mutex mutex;
    trp_learner_counters shared;
};

static void learner_share_counters(trp_learner *learner)
{
    learner->own.steps = learner->progress.steps;
    learner->own.version = learner->progress.version;
    learner->own.left_out = learner->update.left_out;
    mutex_lock(&learner->mutex);
    learner->shared = learner->own;
    learner->shared.metric_count = learner->update.metric_count;
    memcpy(learner->shared.metrics, learner->update.metrics, sizeof learner->shared.metrics);
    mutex_unlock(&learner->mutex);
}

static trp_status publish(trp_learner *learner)
{
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    TRP_TRY(update_fetch_published(&learner->update));
    learner->update.version = ++learner->progress.version;
    trp_publisher_publish(learner->publisher, update_published(&learner->update).values,
                          learner->progress.version, learner->progress.steps);
    learner->own.publish_ns += (uint64_t)(clock_now_ns(&clock_monotonic) - since_ns);
    return TRP_OK;
}

/* ---- what a step owes ---------------------------------------------------------------------- */

/* Priorities that do not arrive make sampling a little worse, not wrong. */
static trp_status write_priorities(trp_learner *learner, size_t index, const trp_update *update)
{
    trp_source *source = learner->sources[index];
    const double *priorities = update->priorities[index];
    if (!priorities || !source->impl->update_priorities)
        return TRP_OK;
    trp_status status = source->impl->update_priorities(source, &update->batches[index], priorities,
                                                        LEARNER_PRIORITY_MS);
    if (!status_is_transient(status))
        return status;
    if (learner->own.skipped_priorities++ == 0)
        trp_log(TRP_WARN, "priorities not written reason=%s", trp_last_error());
    return TRP_OK;
}

static trp_status updater_returned(trp_learner *learner, trp_status status)
{
    learner->torn = learner->torn || status != TRP_OK;
    return status;
}

/* The numbers and priorities of the step that owes them. */
static trp_status collect_owed(trp_learner *learner)
{
    if (learner->owed == 0)
        return TRP_OK;
    const trp_update *update = update_of_step(&learner->update, learner->owed);
    learner->owed = 0;
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    TRP_TRY(updater_returned(learner, update_collect(&learner->update, update->step)));
    learner->own.update_ns += (uint64_t)(clock_now_ns(&clock_monotonic) - since_ns);
    for (size_t i = 0; i < learner->source_count; i++)
        TRP_TRY(write_priorities(learner, i, update));
    return TRP_OK;
}

/* ---- checkpoints --------------------------------------------------------------------------- */

static trp_status load(trp_learner *learner)
{
    if (!learner->checkpoint_dir)
        return TRP_OK;
    TRP_TRY(save_prepare(learner->checkpoint_dir, !learner->options.resume));
    bool found = false;
    TRP_TRY(save_load(learner->checkpoint_dir, &learner->update, learner->publisher,
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
    TRP_TRY(collect_owed(learner));
    TRP_TRY(update_fetch(&learner->update));
    TRP_TRY(save_write(learner->checkpoint_dir, &learner->update, learner->publisher,
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
    if (options->source_count != options->updater->source_count)
        return trp_fail(TRP_INVALID_ARGUMENT, "learner: %zu batch sources, the updater reads %zu",
                        options->source_count, options->updater->source_count);
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
    learner->sources = xcalloc(options->source_count + 1, sizeof(trp_source *));
    learner->publish_every =
        options->publish_every ? options->publish_every : LEARNER_PUBLISH_EVERY;
    for (size_t i = 0; i < options->source_count; i++) {
        learner->sources[learner->source_count++] = options->sources[i];
        if (options->sources[i]->impl->acts)
            learner->publish_every = 1;
    }
    if (options->checkpoint_dir)
        learner->checkpoint_dir = xstrdup(options->checkpoint_dir);
    trp_status status = learner_check_options(options);
    if (status == TRP_OK)
        status = update_prepare(&learner->update, learner->updater, options->seed);
    if (status == TRP_OK) {
        struct published published = update_published(&learner->update);
        learner->publisher = trp_publisher_create(published.count);
        trp_publisher_describe(learner->publisher, published.layout);
        if (options->statistic_count)
            trp_publisher_expect_statistics(learner->publisher, *options->statistic_count);
        status = load(learner);
    }
    if (status == TRP_OK)
        status = publish(learner);
    if (status != TRP_OK) {
        trp_learner_destroy(learner);
        return status;
    }
    learner_share_counters(learner);
    *out = learner;
    return TRP_OK;
}

ProtobufCService *trp_learner_service(trp_learner *learner)
{
    return trp_publisher_service(learner->publisher);
}

/* ---- one step ------------------------------------------------------------------------------ */

/* The slow path of next: the source holds back, or its server is away. */
static trp_status next_batch_waiting(trp_learner *learner, trp_source *source, trp_batch *batch,
                                     trp_status status)
{
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    struct deadline give_up = DEADLINE_NEVER;
    bool away = false;
    while (status_is_transient(status)) {
        if (trp_stop_requested(learner->options.stop) ||
            deadline_passed(learner->end, &clock_monotonic))
            return trp_fail(TRP_CANCELLED, "learner: stopped while it waited for a batch");
        if (status == TRP_DEADLINE_EXCEEDED) {
            give_up = DEADLINE_NEVER;
        } else if (give_up.at_ns == DEADLINE_NEVER.at_ns) {
            give_up = deadline_in_ms(&clock_monotonic, LEARNER_REPLAY_GIVE_UP_MS);
            away = true;
            trp_log(TRP_WARN, "replay server is away, waiting at_most_s=%d reason=%s",
                    LEARNER_REPLAY_GIVE_UP_MS / 1000, trp_last_error());
        } else if (deadline_passed(give_up, &clock_monotonic)) {
            break;
        } else if (!turns_active() && learner->options.stop) {
            trp_stop_wait(learner->options.stop, LEARNER_RETRY_MS);
        }
        turns_pass();
        status = source->impl->next(source, batch, LEARNER_WAIT_MS);
    }
    if (away && status == TRP_OK)
        trp_log(TRP_INFO, "replay server is there");
    learner->own.wait_ns += (uint64_t)(clock_now_ns(&clock_monotonic) - since_ns);
    return status;
}

/* What source `index` calls `name`, among several. Kept: reports are read until the end. */
static const char *name_of_source(trp_learner *learner, size_t index, const char *name)
{
    char *full = xasprintf("%zu.%s", index, name);
    for (size_t i = 0; i < learner->name_count; i++)
        if (strcmp(learner->names[i], full) == 0) {
            free(full);
            return learner->names[i];
        }
    *ARRAY_PUSH(learner->names, learner->name_count, learner->name_room) = full;
    return full;
}

static void report_source(trp_learner *learner, size_t index)
{
    const trp_source *source = learner->sources[index];
    trp_metric metrics[TRP_SOURCE_METRICS_MAX];
    size_t count = source->impl->metrics ? source->impl->metrics(source, metrics) : 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = metrics[i].name;
        if (learner->source_count > 1)
            name = name_of_source(learner, index, name);
        update_report(&learner->update, name, metrics[i].value);
    }
}

static trp_status next_batches(trp_learner *learner, trp_batch *batches)
{
    for (size_t i = 0; i < learner->source_count; i++) {
        trp_source *source = learner->sources[i];
        int64_t wait_ms = source->impl->acts ? LEARNER_WAIT_MS : 0; /* one that acts is at work */
        trp_status status = source->impl->next(source, &batches[i], wait_ms);
        if (status_is_transient(status))
            status = next_batch_waiting(learner, source, &batches[i], status);
        learner->ended = status == TRP_OUT_OF_RANGE;
        TRP_TRY(status);
        report_source(learner, i);
    }
    return TRP_OK;
}

static trp_status step(trp_learner *learner)
{
    uint64_t number = learner->progress.steps + 1;
    bool publish_due = number % learner->publish_every == 0;
    bool at_once = !learner->updater->impl->collect || publish_due;
    trp_batch *batches = learner->batches[number % 2];
    TRP_TRY(next_batches(learner, batches));
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    TRP_TRY(updater_returned(learner, update_step(&learner->update, number, batches)));
    learner->own.update_ns += (uint64_t)(clock_now_ns(&clock_monotonic) - since_ns);
    learner->progress.steps = number;
    TRP_TRY(collect_owed(learner)); /* the step before */
    learner->owed = number;
    if (at_once)
        TRP_TRY(collect_owed(learner));
    if (publish_due)
        TRP_TRY(publish(learner));
    return save_is_due(learner) ? save(learner) : TRP_OK;
}

/* ---- the loop ------------------------------------------------------------------------------ */

/* A table's server may still be starting, or restarting. */
static trp_status open_sources(trp_learner *learner)
{
    trp_source_use use = {.held = learner->updater->impl->collect ? 2 : 1,
                          .params = trp_learner_service(learner),
                          .stop = learner->options.stop};
    for (size_t i = 0; i < learner->source_count; i++) {
        use.spec = &learner->updater->sources[i];
        TRP_TRY(learner->sources[i]->impl->open(learner->sources[i], &use));
        learner->opened++;
    }
    return TRP_OK;
}

static bool finished(trp_learner *learner)
{
    uint64_t limit = learner->options.max_steps;
    learner->own.finished = learner->ended || (limit > 0 && learner->progress.steps >= limit) ||
                            deadline_passed(learner->end, &clock_monotonic);
    return learner->own.finished;
}

static trp_status learner_loop(trp_learner *learner)
{
    if (trp_stop_requested(learner->options.stop))
        return TRP_OK;
    TRP_TRY(open_sources(learner));
    while (!trp_stop_requested(learner->options.stop) && !finished(learner)) {
        trp_status status = step(learner);
        if (status != TRP_OK)
            return learner->ended ? TRP_OK : status;
        learner_share_counters(learner);
        turns_pass();
    }
    return TRP_OK;
}

static void flush_priorities(trp_learner *learner)
{
    for (size_t i = 0; i < learner->opened; i++) {
        trp_source *source = learner->sources[i];
        if (source->impl->flush && source->impl->flush(source, LEARNER_PRIORITY_MS) != TRP_OK)
            trp_log(TRP_WARN, "priorities not confirmed at the end reason=%s", trp_last_error());
    }
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

/* " body.0.weight=[64][4]", of every matrix of a vector; caller frees. */
static char *matrices_text(const trp_vector_spec *vector)
{
    struct buffer text = {0};
    for (size_t i = 0; i < vector->tensor_count; i++) {
        const trp_net_tensor *tensor = &vector->tensors[i];
        char part[sizeof tensor->name + 3];
        snprintf(part, sizeof part, " %s=", tensor->name);
        for (uint32_t axis = 0; tensor->rank > 1 && axis < tensor->rank; axis++) {
            buffer_append(&text, text_bytes(part));
            snprintf(part, sizeof part, "[%" PRIu64 "]", tensor->shape[axis]);
        }
        if (tensor->rank > 1)
            buffer_append(&text, text_bytes(part));
    }
    return buffer_text(&text);
}

/* Which networks they are is known nowhere else once an agent chose them by shapes. */
static void log_vectors(const trp_updater *updater)
{
    for (size_t i = 0; i < updater->vector_count; i++) {
        const trp_vector_spec *vector = &updater->vectors[i];
        if (!vector->learned)
            continue;
        char *matrices = matrices_text(vector);
        size_t numbers = vector->tensor_count > 0 ? 0 : vector->count;
        for (size_t k = 0; k < vector->tensor_count; k++)
            numbers += vector->tensors[k].count;
        trp_log(TRP_INFO, "learner learns vector=%s numbers=%zu%s", vector->name, numbers,
                matrices);
        free(matrices);
    }
}

trp_status trp_learner_run(trp_learner *learner)
{
    const trp_learner_loop_options *options = &learner->options;
    log_vectors(learner->updater);
    learner->end = options->max_seconds > 0 && options->max_seconds < INT64_MAX / 1000
                       ? deadline_in_ms(&clock_monotonic, 1000 * (int64_t)options->max_seconds)
                       : DEADLINE_NEVER;
    schedule_save(learner);
    trp_status status = learner_loop(learner);
    finished(learner);
    bool stopped = trp_stop_requested(options->stop) || learner->own.finished;
    if (status == TRP_CANCELLED && stopped && !learner->torn)
        status = TRP_OK;
    if (status == TRP_OK)
        status = collect_owed(learner);
    if (status == TRP_OK)
        flush_priorities(learner);
    if (status == TRP_OK || (status_is_transient(status) && !learner->torn))
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
    trp_client_counts totals = trp_publisher_totals(learner->publisher);
    counters.actor_steps = totals.steps;
    counters.actor_episodes = totals.episodes;
    return counters;
}

void trp_learner_destroy(trp_learner *learner)
{
    if (!learner)
        return;
    update_cleanup(&learner->update); /* before the batches go that the device may still read */
    for (size_t i = 0; i < learner->source_count; i++)
        trp_source_destroy(learner->sources[i]);
    free(learner->sources);
    for (size_t i = 0; i < learner->name_count; i++)
        free(learner->names[i]);
    free(learner->names);
    trp_updater_destroy(learner->updater);
    trp_publisher_destroy(learner->publisher);
    free(learner->checkpoint_dir);
    mutex_cleanup(&learner->mutex);
    free(learner);
}
