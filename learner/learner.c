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
#include "saver.h"
#include "update.h"

struct trp_learner {
    trp_learner_loop_options options;
    char *checkpoint_dir, *group_name, *listen, *sites;
    trp_updater *updater;
    trp_source **sources;
    size_t source_count;
    struct trp_update_run update;
    uint32_t publish_every;                        /* steps */
    trp_batch batches[2][TRP_UPDATER_SOURCES_MAX]; /* of the last update and the one to come */
    uint64_t updates;                              /* a round without batches is none */
    uint64_t owed;                                 /* the step that is to be collected; 0: none */
    bool torn; /* the updater failed: its vectors may be of no step */
    trp_publisher *publisher;
    bool acts;      /* one of the sources does */
    size_t opened;  /* sources */
    size_t fetched; /* of them, for the round that comes */
    bool ended;     /* one of them has no more batches */
    bool away;      /* a replay server is, until then at most: */
    struct deadline give_up;
    bool stops, over, all_ended; /* as all learners agreed in the last round */
    char **names;                /* of what several sources report */
    size_t name_count;
    uint32_t name_room;
    uint64_t number; /* of the last step, of those of this learner */
    struct learner_progress progress;
    struct saver saver;
    uint64_t begun_steps; /* of the last checkpoint that was begun */
    int64_t begun_ns;     /* the first step of this life, by the monotonic clock; 0: none has */
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
    learner->own.uploaded_bytes = learner->update.uploaded_bytes;
    const struct learners *group = learner->update.mode->group;
    learner->own.rank = group ? group->rank : 0;
    learner->own.size = group ? group->size : 1;
    learner->own.checkpoints = learner->saver.written;
    mutex_lock(&learner->mutex);
    learner->shared = learner->own;
    learner->shared.metric_count = learner->update.metric_count;
    memcpy(learner->shared.metrics, learner->update.metrics, sizeof learner->shared.metrics);
    mutex_unlock(&learner->mutex);
}

static trp_status publish(trp_learner *learner)
{
    struct mode *mode = learner->update.mode;
    uint64_t *version = &learner->progress.version;
    *version = mode->impl->next_version ? mode->impl->next_version(mode, *version) : *version + 1;
    learner->update.version = *version;
    if (!mode->leads && !learner->acts)
        return TRP_OK;
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    TRP_TRY(update_fetch_published(&learner->update));
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

static trp_status load_newest_state(trp_learner *learner, bool *found)
{
    return save_load(learner->checkpoint_dir, &learner->update, learner->publisher,
                     &learner->progress, found);
}

/* Of a group only who leads knows, once they have met, whether checkpoints are another run's. */
static trp_status load(trp_learner *learner)
{
    bool in_group = learner->options.group.rendezvous, found = false;
    if (!learner->checkpoint_dir)
        return TRP_OK;
    TRP_TRY(save_prepare(learner->checkpoint_dir, !learner->options.resume && !in_group));
    if (learner->options.resume || !in_group)
        TRP_TRY(load_newest_state(learner, &found));
    if (!found && learner->options.resume && !in_group)
        save_tell_none(learner->checkpoint_dir);
    if (!found)
        return TRP_OK;
    learner->own.resumed_from = learner->number = learner->progress.steps;
    learner->progress.version += LEARNER_VERSION_GAP;
    if (learner->progress.generation > 0)
        learner->progress.generation++; /* which is at most the one that comes */
    trp_log(TRP_INFO, "learner resumed steps=%" PRIu64 " version=%" PRIu64, learner->progress.steps,
            learner->progress.version + 1);
    return TRP_OK;
}

/* A run that goes on has checkpoints from before, which frequent ones would push out. */
static int64_t save_interval_ms(const trp_learner *learner)
{
    if (learner->options.checkpoint_every_s > 0)
        return 1000 * (int64_t)learner->options.checkpoint_every_s;
    if (learner->own.resumed_from > 0)
        return LEARNER_CHECKPOINT_EVERY_MS;
    return saver_interval_ms((clock_now_ns(&clock_monotonic) - learner->begun_ns) / 1000000);
}

static void schedule_save(trp_learner *learner)
{
    learner->save_due = deadline_in_ms(&clock_monotonic, save_interval_ms(learner));
    learner->begun_steps = learner->progress.steps;
}

/* It may have waited for its first batch, and for its group, for long. */
static void note_first_batch(trp_learner *learner)
{
    if (learner->begun_ns > 0)
        return;
    learner->begun_ns = clock_now_ns(&clock_monotonic);
    schedule_save(learner);
}

static bool writes_checkpoints(const trp_learner *learner)
{
    return learner->checkpoint_dir && learner->update.mode->leads;
}

static trp_status write_checkpoint(trp_learner *learner, bool last)
{
    if (!writes_checkpoints(learner))
        return TRP_OK;
    TRP_TRY(update_fetch(&learner->update));
    trp_status (*write)(struct saver *, struct trp_update_run *, trp_publisher *,
                        const struct learner_progress *) = last ? saver_finish : saver_begin;
    return write(&learner->saver, &learner->update, learner->publisher, &learner->progress);
}

/* All learners of a group come here after the same step. `last`: there will be none after it. */
static trp_status save(trp_learner *learner, bool last)
{
    struct mode *mode = learner->update.mode;
    bool owes = last && mode->impl->gather; /* servers have what it has not pushed yet */
    if (!learner->checkpoint_dir && !mode->group && !owes)
        return TRP_OK;
    TRP_TRY(collect_owed(learner));
    if (mode->impl->gather)
        TRP_TRY(mode->impl->gather(mode));
    trp_status status = write_checkpoint(learner, last);
    if (mode->impl->release)
        mode->impl->release(mode);
    if (status == TRP_OK)
        schedule_save(learner);
    return status;
}

/* Once step `steps` is done. One that is due by time may be later; one that is due by steps waits
 * for the one before. */
static bool save_is_due(trp_learner *learner, uint64_t steps)
{
    uint64_t every = learner->options.checkpoint_every_steps;
    if (every > 0 && steps - learner->begun_steps >= every)
        return true;
    return deadline_passed(learner->save_due, &clock_monotonic) && !saver_is_busy(&learner->saver);
}

/* ---- the group ----------------------------------------------------------------------------- */

static trp_status reload(void *context, struct mode_meeting *meeting)
{
    trp_learner *learner = context;
    bool found = false;
    vectors_make_whole(&learner->update.vectors);
    TRP_TRY(saver_wait(&learner->saver));
    if (learner->checkpoint_dir)
        TRP_TRY(load_newest_state(learner, &found));
    if (!found)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "learner: who had the whole state is gone, and there is no checkpoint to "
                        "go back to");
    trp_log(TRP_WARN, "learner goes back to its checkpoint steps=%" PRIu64 " from=%" PRIu64,
            learner->progress.steps, meeting->steps);
    meeting->steps = learner->progress.steps;
    if (meeting->version < learner->progress.version) { /* a new member knows of none */
        meeting->version = learner->progress.version;
        meeting->generation = learner->progress.generation;
    }
    return TRP_OK;
}

/* Whether a new run may write into the directory. */
static trp_status check_checkpoint_dir(const trp_learner *learner)
{
    bool fresh = learner->progress.steps == 0 && !learner->options.resume;
    return writes_checkpoints(learner) && fresh ? save_prepare(learner->checkpoint_dir, true)
                                                : TRP_OK;
}

/* Until the group is complete. What this learner has of a step is gone, what it has of others'
 * state is the same as theirs. */
static trp_status meet_group(trp_learner *learner)
{
    struct mode *mode = learner->update.mode;
    if (!mode->impl->meet)
        return TRP_OK;
    TRP_TRY(collect_owed(learner));
    struct mode_meeting meeting = {.steps = learner->progress.steps,
                                   .version = learner->progress.version,
                                   .generation = learner->progress.generation,
                                   .version_gap = LEARNER_VERSION_GAP,
                                   .rng = &learner->update.rng,
                                   .reload = reload,
                                   .context = learner};
    TRP_TRY(mode->impl->meet(mode, &meeting));
    learner->number = learner->progress.steps = meeting.steps;
    learner->progress.version = meeting.version;
    learner->progress.generation = meeting.generation;
    learner->torn = false;
    learner->fetched = 0;
    update_adopt(&learner->update);
    TRP_TRY(check_checkpoint_dir(learner));
    if (writes_checkpoints(learner) && learner->options.resume && learner->progress.steps == 0)
        save_tell_none(learner->checkpoint_dir);
    return publish(learner);
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

static trp_status read_compression(const trp_compression_options *from, struct compress_options *to)
{
    *to = (struct compress_options){.ratio = from->ratio,
                                    .warmup_steps = from->warmup_steps,
                                    .momentum = from->momentum,
                                    .keep_momentum = from->keep_momentum,
                                    .rank = from->rank,
                                    .bits = from->bits};
    trp_status status = compress_find(from->kind, &to->kind);
    return status == TRP_OK ? TRP_OK : trp_fail(status, "learner: %s", trp_last_error());
}

static trp_status prepare(trp_learner *learner)
{
    const trp_learner_group_options *group = &learner->options.group;
    if (group->bucket_bytes > 0 && group->bucket_bytes < LEARNER_BUCKET_BYTES_MIN)
        return trp_fail(TRP_INVALID_ARGUMENT, "learner: bucket_bytes is %zu, must be %d or more",
                        group->bucket_bytes, LEARNER_BUCKET_BYTES_MIN);
    learner->group_name = xstrdup(group->name ? group->name : "learner");
    learner->listen = group->listen ? xstrdup(group->listen) : NULL;
    learner->sites = group->sites ? xstrdup(group->sites) : NULL;
    struct mode_options options = {.name = group->mode,
                                   .group = {.name = learner->group_name,
                                             .rendezvous = group->rendezvous,
                                             .listen = learner->listen,
                                             .insecure = group->insecure,
                                             .sites = learner->sites,
                                             .timeout_ms = group->timeout_ms,
                                             .no_share = learner->options.no_share,
                                             .stop = learner->options.stop},
                                   .count = group->count,
                                   .local_steps = group->local_steps,
                                   .outer_momentum = group->outer_momentum,
                                   .significance = group->significance,
                                   .site_slack = group->site_slack,
                                   .max_steps = learner->options.max_steps,
                                   .servers = group->servers,
                                   .bucket_bytes = group->bucket_bytes ? group->bucket_bytes
                                                                       : LEARNER_BUCKET_BYTES};
    TRP_TRY(read_compression(&group->compression, &options.compress));
    TRP_TRY(update_prepare(&learner->update, learner->updater, learner->options.seed));
    return update_use_mode(&learner->update, &options);
}

trp_status trp_learner_create(trp_learner **out, const trp_learner_loop_options *options)
{
    *out = NULL;
    trp_learner *learner = xcalloc(1, sizeof *learner);
    mutex_init(&learner->mutex);
    learner->options = *options;
    learner->give_up = DEADLINE_NEVER;
    learner->progress.generation = options->group.rendezvous ? 1 : 0; /* where version 0 is of */
    learner->updater = options->updater;
    learner->sources = xcalloc(options->source_count + 1, sizeof(trp_source *));
    learner->publish_every =
        options->publish_every ? options->publish_every : LEARNER_PUBLISH_EVERY;
    for (size_t i = 0; i < options->source_count; i++) {
        learner->sources[learner->source_count++] = options->sources[i];
        learner->acts = learner->acts || options->sources[i]->impl->acts;
    }
    if (learner->acts)
        learner->publish_every = 1;
    if (options->checkpoint_dir)
        learner->checkpoint_dir = learner->saver.dir = xstrdup(options->checkpoint_dir);
    trp_status status = learner_check_options(options);
    if (status == TRP_OK)
        status = prepare(learner);
    if (status == TRP_OK) {
        struct published published = update_published(&learner->update);
        learner->publisher = trp_publisher_create(published.count);
        trp_publisher_describe(learner->publisher, published.layout);
        if (options->no_share)
            trp_publisher_keep_private(learner->publisher);
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

static bool is_to_end(const trp_learner *learner)
{
    return trp_stop_requested(learner->options.stop) ||
           deadline_passed(learner->end, &clock_monotonic);
}

/* Whether a source that is away has been waited for long enough. */
static bool gives_up(trp_learner *learner, trp_status status)
{
    if (status == TRP_DEADLINE_EXCEEDED) {
        learner->give_up = DEADLINE_NEVER;
        return false;
    }
    if (learner->give_up.at_ns != DEADLINE_NEVER.at_ns)
        return deadline_passed(learner->give_up, &clock_monotonic);
    learner->give_up = deadline_in_ms(&clock_monotonic, LEARNER_REPLAY_GIVE_UP_MS);
    learner->away = true;
    trp_log(TRP_WARN, "replay server is away, waiting at_most_s=%d reason=%s",
            LEARNER_REPLAY_GIVE_UP_MS / 1000, trp_last_error());
    return false;
}

/* How long a batch is waited for while others wait for this learner. A source that acts is at work:
 * it has one before long, and half of the time that others wait is enough or nothing is. */
static struct deadline deadline_in_group(const trp_learner *learner, const trp_source *source)
{
    uint32_t timeout_ms = learner->options.group.timeout_ms;
    if (turns_active())
        return DEADLINE_NEVER;
    if (!source->impl->acts)
        return deadline_in_ms(&clock_monotonic, LEARNER_GROUP_WAIT_MS);
    return deadline_in_ms(&clock_monotonic, timeout_ms ? timeout_ms / 2 : LEARNER_ACTING_WAIT_MS);
}

/* The slow path of next: the source holds back, or its server is away. In a group it ends before
 * others wait for long, with a status that is transient and *later. */
static trp_status next_batch_waiting(trp_learner *learner, trp_source *source, trp_batch *batch,
                                     trp_status status, bool *later)
{
    bool in_group = learner->options.group.rendezvous;
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    struct deadline patience = in_group ? deadline_in_group(learner, source) : DEADLINE_NEVER;
    while (status_is_transient(status) && !*later) {
        if (is_to_end(learner) && !in_group)
            return trp_fail(TRP_CANCELLED, "learner: stopped while it waited for a batch");
        bool again = learner->give_up.at_ns != DEADLINE_NEVER.at_ns;
        if (gives_up(learner, status))
            break;
        if (again && status != TRP_DEADLINE_EXCEEDED && !turns_active() && learner->options.stop)
            trp_stop_wait(learner->options.stop, LEARNER_RETRY_MS);
        turns_pass();
        status = source->impl->next(source, batch, LEARNER_WAIT_MS);
        *later = in_group && status_is_transient(status) &&
                 (is_to_end(learner) || deadline_passed(patience, &clock_monotonic));
    }
    if (learner->away && status == TRP_OK) {
        learner->away = false;
        learner->give_up = DEADLINE_NEVER;
        trp_log(TRP_INFO, "replay server is there");
    }
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

/* Those that are not there yet; *later: not all are. */
static trp_status next_batches(trp_learner *learner, trp_batch *batches, bool *later)
{
    for (; learner->fetched < learner->source_count; learner->fetched++) {
        size_t i = learner->fetched;
        trp_source *source = learner->sources[i];
        int64_t wait_ms = source->impl->acts ? LEARNER_WAIT_MS : 0; /* one that acts is at work */
        trp_status status = source->impl->next(source, &batches[i], wait_ms);
        if (status_is_transient(status))
            status = next_batch_waiting(learner, source, &batches[i], status, later);
        if (*later)
            return TRP_OK;
        learner->ended = status == TRP_OUT_OF_RANGE;
        TRP_TRY(status);
        report_source(learner, i);
    }
    learner->fetched = 0;
    return TRP_OK;
}

/* What this learner has for the round. Where others still have batches its own may have ended, or
 * a stop have ended the wait for one: others hear of it in the round, and none is left in it. */
static trp_status bring(trp_learner *learner, trp_batch *batches, struct mode_round *round)
{
    struct mode *mode = learner->update.mode;
    bool later = mode->idle || learner->ended;
    trp_status status = later ? TRP_OK : next_batches(learner, batches, &later);
    bool stopped = status == TRP_CANCELLED && trp_stop_requested(learner->options.stop);
    if ((status == TRP_OUT_OF_RANGE || stopped) && mode->group) {
        status = TRP_OK;
        later = true;
    }
    round->has_batch = status == TRP_OK && !later;
    if (round->has_batch)
        note_first_batch(learner);
    round->stops = trp_stop_requested(learner->options.stop);
    round->over = deadline_passed(learner->end, &clock_monotonic);
    round->ended = learner->ended;
    round->saves =
        mode->leads && save_is_due(learner, learner->progress.steps + 1 + mode->more_steps);
    return status;
}

static trp_status update_of_round(trp_learner *learner, struct mode_round *round,
                                  const trp_batch *batches)
{
    struct mode *mode = learner->update.mode;
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    trp_status status = mode->impl->begin ? mode->impl->begin(mode, round) : TRP_OK;
    if (status == TRP_OK && round->has_batch)
        status = update_step(&learner->update, round->number, batches);
    if (status == TRP_OK && mode->impl->end)
        status = mode->impl->end(mode, round);
    if (status == TRP_OK)
        status = update_followed(&learner->update, round->number);
    learner->own.update_ns += (uint64_t)(clock_now_ns(&clock_monotonic) - since_ns);
    return updater_returned(learner, status);
}

/* One step, or a round of it. */
static trp_status step(trp_learner *learner)
{
    uint64_t number = learner->number + 1;
    struct mode_round round = {.number = number, .steps = number, .whole = true};
    bool publish_due = round.number % learner->publish_every == 0;
    bool at_once = !learner->updater->impl->collect || publish_due;
    trp_batch *batches = learner->batches[learner->updates % 2];
    TRP_TRY(saver_check(&learner->saver));
    TRP_TRY(bring(learner, batches, &round));
    bool updated = round.has_batch;
    learner->updates += updated;
    TRP_TRY(update_of_round(learner, &round, batches));
    if (round.whole) {
        learner->number = round.number;
        learner->progress.steps = round.steps;
    }
    TRP_TRY(collect_owed(learner)); /* the step before */
    if (updated)
        learner->owed = round.number;
    if (at_once || !round.whole)
        TRP_TRY(collect_owed(learner));
    learner->stops = round.stops;
    learner->over = round.over;
    if (round.whole && publish_due)
        TRP_TRY(publish(learner));
    if (round.whole && round.saves)
        TRP_TRY(save(learner, false));
    learner->all_ended = round.ended;
    return round.leaves && round.whole ? meet_group(learner) : TRP_OK;
}

/* ---- the loop ------------------------------------------------------------------------------ */

/* A table's server may still be starting, or restarting. */
static trp_status open_sources(trp_learner *learner)
{
    trp_source_use use = {.held = learner->updater->impl->collect ? 2 : 1,
                          .memory = trp_device_host_memory(learner->update.device),
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
    bool in_group = learner->update.mode->group;
    uint64_t limit = learner->options.max_steps;
    bool ended = in_group ? learner->all_ended : learner->ended;
    bool over = in_group ? learner->over : deadline_passed(learner->end, &clock_monotonic);
    learner->own.finished = ended || over || (limit > 0 && learner->progress.steps >= limit);
    return learner->own.finished;
}

/* Learners of a group stop after the same step. */
static bool is_stopped(const trp_learner *learner)
{
    return learner->update.mode->group ? learner->stops : trp_stop_requested(learner->options.stop);
}

static bool is_broken(const trp_learner *learner)
{
    const struct learners *group = learner->update.mode->group;
    return group && group->broken;
}

static trp_status learner_loop(trp_learner *learner)
{
    if (trp_stop_requested(learner->options.stop))
        return TRP_OK;
    TRP_TRY(meet_group(learner));
    TRP_TRY(open_sources(learner));
    while (!is_stopped(learner) && !finished(learner)) {
        trp_status status = step(learner);
        if (status != TRP_OK && is_broken(learner))
            status = meet_group(learner);
        if (status != TRP_OK)
            return learner->ended && status == TRP_OUT_OF_RANGE ? TRP_OK : status;
        learner_share_counters(learner);
        turns_pass();
    }
    return TRP_OK;
}

/* The others hear of a failure at once. */
static void abort_group(const trp_learner *learner, trp_status status)
{
    struct learners *group = learner->update.mode->group;
    if (!group || status == TRP_OK || status == TRP_CANCELLED)
        return;
    char *kept = error_keep();
    learners_abort(group, kept);
    error_back(status, kept);
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
 * so a checkpoint that cannot be written is the failure that is reported, unless it has nothing
 * new. */
static trp_status save_at_end(trp_learner *learner, trp_status status)
{
    char *kept = error_keep();
    trp_status saved = save(learner, true);
    bool nothing_lost = saved == TRP_OK || learner->progress.steps == learner->saver.saved_steps;
    if (nothing_lost && status != TRP_OK)
        return error_back(status, kept);
    if (saved != TRP_OK)
        trp_fail(saved,
                 "the last checkpoint was not written, steps since the one before are lost "
                 "(%" PRIu64 " of %" PRIu64 "): %s%s%s",
                 learner->progress.steps - learner->saver.saved_steps, learner->progress.steps,
                 trp_last_error(),
                 status == TRP_OK ? "" : "; it ended because of: ", status == TRP_OK ? "" : kept);
    free(kept);
    return saved;
}

/* `status` ended the loop, its message stays. */
static void leave_unsaved(trp_learner *learner, trp_status status)
{
    struct mode *mode = learner->update.mode;
    char *kept = error_keep();
    if (mode->impl->leave)
        mode->impl->leave(mode);
    error_back(status, kept);
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

/* All that steps need is there before the first one. */
static void log_memory(trp_device *device)
{
    trp_device_bytes bytes = trp_device_memory(device);
    if (bytes.used > 0)
        trp_log(TRP_INFO, "learner uses device=%s memory_mib=%.1f left_mib=%.1f",
                trp_device_name(device), (double)bytes.used / (1 << 20),
                (double)bytes.left / (1 << 20));
}

trp_status trp_learner_run(trp_learner *learner)
{
    const trp_learner_loop_options *options = &learner->options;
    log_vectors(learner->updater);
    log_memory(learner->update.device);
    learner->end = options->max_seconds > 0 && options->max_seconds < INT64_MAX / 1000
                       ? deadline_in_ms(&clock_monotonic, 1000 * (int64_t)options->max_seconds)
                       : DEADLINE_NEVER;
    schedule_save(learner);
    learner->saver.saved_steps = learner->progress.steps;
    trp_status status = learner_loop(learner);
    abort_group(learner, status);
    finished(learner);
    bool stopped = trp_stop_requested(options->stop) || learner->own.finished;
    if (status == TRP_CANCELLED && stopped && !learner->torn)
        status = TRP_OK;
    if (status == TRP_CANCELLED && stopped && writes_checkpoints(learner))
        trp_log(TRP_WARN,
                "learner wrote no last checkpoint: it was stopped in the middle of a step");
    if (status == TRP_OK)
        status = collect_owed(learner);
    if (status == TRP_OK)
        flush_priorities(learner);
    if (status == TRP_OK || (status_is_transient(status) && !learner->torn))
        status = save_at_end(learner, status);
    else
        leave_unsaved(learner, status);
    if (learner->update.mode->group)
        learners_leave(learner->update.mode->group);
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
    saver_cleanup(&learner->saver);
    update_cleanup(&learner->update); /* before the batches go that the device may still read */
    for (size_t i = 0; i < learner->source_count; i++)
        trp_source_destroy(learner->sources[i]);
    free(learner->sources);
    for (size_t i = 0; i < learner->name_count; i++)
        free(learner->names[i]);
    free(learner->names);
    trp_updater_destroy(learner->updater);
    trp_publisher_destroy(learner->publisher);
    free(learner->group_name);
    free(learner->listen);
    free(learner->sites);
    mutex_cleanup(&learner->mutex);
    free(learner);
}
