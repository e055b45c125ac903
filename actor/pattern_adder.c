/* The pattern adder: rows of every copy on one side, a structured writer for each copy on the
 * other, because patterns are about the steps of one writer.
 *
 * Adding never blocks: it queues rows and ends of episodes; push() does them as far as its time
 * goes. */
#include <troupe/adder.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "adder.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/status.h"

enum {
    /* What a vector step can leave of one copy: what was dropped, the step, the final row. */
    TASKS_PER_STEP = 4,
};

struct pattern_copy {
    trp_structured_writer *writer; /* NULL before its first row */
    uint8_t *latest;               /* a blob: what the next step acts on */
    uint64_t version;              /* of the last step */
    bool first;                    /* the next row begins an episode, */
    bool running;                  /* of which there are rows */
};

/* A row for the writer, or what becomes of the rows before. */
struct pattern_task {
    enum { TASK_ROW, TASK_END, TASK_DROP } kind;
    bool begun; /* the row is in the writer, items of it may be missing */
    uint32_t copy;
    uint64_t version;
    uint8_t *row; /* a blob */
};

struct pattern_adder {
    trp_adder base;
    trp_channel *replay;
    trp_columns rows; /* the columns of one row */
    trp_writer_options writer_options;
    trp_rng seeds;               /* of writers, if writer_options.seed is not 0 */
    const trp_pattern *patterns; /* borrowed */
    size_t pattern_count;
    struct blob observation, row;
    uint8_t *zeros; /* a row */
    uint32_t copies;
    struct pattern_copy *copy;
    struct pattern_task *tasks;
    size_t task_count, tasks_done;
    uint64_t items;
    int64_t emptied_ns; /* when the writers kept no items last; 0: before the first push */
};

/* ---- adding ---------------------------------------------------------------------------------- */

static struct pattern_task *add_task(struct pattern_adder *adder, uint32_t copy)
{
    assert(adder->task_count < (size_t)adder->copies * TASKS_PER_STEP);
    struct pattern_task *task = &adder->tasks[adder->task_count++];
    task->copy = copy;
    task->begun = false;
    task->version = adder->copy[copy].version;
    return task;
}

/* The latest observation and what was done there; `transition` NULL: nothing, it is the final one.
 */
static void keep_row(struct pattern_adder *adder, uint32_t index, const trp_transition *transition)
{
    static const bool yes = true;
    struct pattern_copy *copy = &adder->copy[index];
    struct pattern_task *task = add_task(adder, index);
    const void *parts[BLOB_PARTS_MAX];
    int64_t version = (int64_t)copy->version;
    size_t at = adder->observation.count;
    blob_parts(&adder->row, adder->zeros, parts);
    blob_parts(&adder->observation, copy->latest, parts);
    if (transition) {
        const void *const step[] = {transition->action,
                                    &transition->reward,
                                    &transition->discount,
                                    &copy->first,
                                    &yes,
                                    &version};
        memcpy(&parts[at], step, sizeof step);
        at += sizeof step / sizeof *step;
        for (size_t i = 0; i < adder->base.extras.count; i++)
            parts[at + i] = transition->extras[i];
    }
    task->kind = TASK_ROW;
    blob_fill(&adder->row, task->row, parts);
    copy->first = false;
    copy->running = true;
}

static void pattern_first(trp_adder *base, uint32_t index, const void *const *observations)
{
    struct pattern_adder *adder = (struct pattern_adder *)base;
    assert(index < adder->copies);
    struct pattern_copy *copy = &adder->copy[index];
    if (copy->running)
        add_task(adder, index)->kind = TASK_DROP;
    copy->running = false;
    copy->first = true;
    blob_fill(&adder->observation, copy->latest, observations);
}

static void pattern_add(trp_adder *base, uint32_t index, const trp_transition *transition)
{
    struct pattern_adder *adder = (struct pattern_adder *)base;
    assert(index < adder->copies);
    struct pattern_copy *copy = &adder->copy[index];
    copy->version = transition->version;
    keep_row(adder, index, transition);
    blob_fill(&adder->observation, copy->latest, transition->next_observations);
    if (!transition->last)
        return;
    keep_row(adder, index, NULL);
    add_task(adder, index)->kind = TASK_END;
    copy->running = false;
}

/* ---- pushing --------------------------------------------------------------------------------- */

static trp_status open_pattern_writer(struct pattern_adder *adder, struct pattern_copy *copy)
{
    if (copy->writer)
        return TRP_OK;
    trp_writer_options options = adder->writer_options;
    if (options.seed > 0)
        options.seed = trp_rng_u64(&adder->seeds) | 1;
    return trp_structured_writer_create(&copy->writer, adder->replay, &options, adder->patterns,
                                        adder->pattern_count);
}

/* A row that is in the writer already lacks some of its items: flush makes them. */
static trp_status push_row(struct pattern_adder *adder, struct pattern_copy *copy,
                           struct pattern_task *task, int64_t timeout_ms)
{
    const void *parts[BLOB_PARTS_MAX];
    if (task->begun)
        return trp_structured_writer_flush(copy->writer, UINT32_MAX, timeout_ms);
    TRP_TRY(open_pattern_writer(adder, copy));
    blob_parts(&adder->row, task->row, parts);
    trp_writer_set_policy_version(trp_structured_writer_writer(copy->writer), task->version);
    task->begun = true;
    return trp_structured_writer_append(copy->writer, parts, false, timeout_ms);
}

/* Only what the patterns made before is kept of an episode that is dropped. */
static trp_status drop_episode(struct pattern_copy *copy, int64_t timeout_ms)
{
    TRP_TRY(trp_structured_writer_flush(copy->writer, 0, timeout_ms));
    trp_structured_writer_destroy(copy->writer);
    copy->writer = NULL;
    return TRP_OK;
}

static trp_status push_task(struct pattern_adder *adder, struct pattern_task *task,
                            int64_t timeout_ms)
{
    struct pattern_copy *copy = &adder->copy[task->copy];
    uint64_t before = copy->writer ? trp_structured_writer_items(copy->writer) : 0;
    trp_status status = TRP_OK;
    if (task->kind == TASK_DROP)
        return drop_episode(copy, timeout_ms);
    if (task->kind == TASK_ROW)
        status = push_row(adder, copy, task, timeout_ms);
    else
        status = trp_structured_writer_end_episode(copy->writer, false, timeout_ms);
    if (copy->writer)
        adder->items += trp_structured_writer_items(copy->writer) - before;
    return status;
}

/* What the tables take now, of all copies; the rest has time until it is late again. */
static trp_status send_what_waits(struct pattern_adder *adder)
{
    adder->emptied_ns = clock_now_ns(&clock_coarse);
    for (uint32_t i = 0; i < adder->copies; i++) {
        if (!adder->copy[i].writer)
            continue;
        trp_status status = trp_structured_writer_flush(adder->copy[i].writer, UINT32_MAX, 0);
        if (!status_is_transient(status))
            TRP_TRY(status);
    }
    return TRP_OK;
}

static trp_status pattern_push(trp_adder *base, int64_t timeout_ms)
{
    struct pattern_adder *adder = (struct pattern_adder *)base;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    for (; adder->tasks_done < adder->task_count; adder->tasks_done++)
        TRP_TRY(push_task(adder, &adder->tasks[adder->tasks_done], adder_left_ms(deadline)));
    adder->task_count = adder->tasks_done = 0;
    return adder_is_late(&adder->emptied_ns) ? send_what_waits(adder) : TRP_OK;
}

static trp_status pattern_flush(trp_adder *base, int64_t timeout_ms)
{
    struct pattern_adder *adder = (struct pattern_adder *)base;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    TRP_TRY(pattern_push(base, timeout_ms));
    for (uint32_t i = 0; i < adder->copies; i++)
        if (adder->copy[i].writer)
            TRP_TRY(trp_structured_writer_flush(adder->copy[i].writer, 0, adder_left_ms(deadline)));
    return TRP_OK;
}

static uint64_t pattern_items(const trp_adder *base)
{
    return ((const struct pattern_adder *)base)->items;
}

static void pattern_reseed(trp_adder *base, uint64_t seed)
{
    struct pattern_adder *adder = (struct pattern_adder *)base;
    adder->writer_options.seed = seed;
    trp_rng_init(&adder->seeds, seed, 0);
}

static void pattern_destroy(trp_adder *base)
{
    struct pattern_adder *adder = (struct pattern_adder *)base;
    for (uint32_t i = 0; i < adder->copies; i++) {
        trp_structured_writer_destroy(adder->copy[i].writer);
        free(adder->copy[i].latest);
    }
    for (size_t i = 0; i < (size_t)adder->copies * TASKS_PER_STEP; i++)
        free(adder->tasks[i].row);
    trp_columns_cleanup(&adder->rows);
    free(adder->zeros);
    free(adder->copy);
    free(adder->tasks);
    free(adder);
}

static const trp_adder_impl pattern_impl = {
    .first = pattern_first,
    .add = pattern_add,
    .push = pattern_push,
    .flush = pattern_flush,
    .items = pattern_items,
    .reseed = pattern_reseed,
    .destroy = pattern_destroy,
};

/* ---- creation -------------------------------------------------------------------------------- */

static int64_t pattern_length(const trp_pattern_column *column)
{
    int64_t step = column->step ? column->step : 1;
    return ((int64_t)column->stop - column->start + step - 1) / step;
}

void trp_pattern_columns(const trp_env_spec *env, const trp_columns *extras,
                         const trp_pattern *pattern, trp_columns *columns)
{
    trp_columns rows = {0};
    trp_row_columns(env, extras, &rows);
    for (size_t i = 0; i < pattern->column_count; i++) {
        const trp_pattern_column *column = &pattern->columns[i];
        if (column->column >= rows.count)
            continue;
        if (column->start == 0)
            trp_columns_add(columns, NULL, &rows.specs[column->column]);
        else
            trp_columns_add_steps(columns, NULL, &rows.specs[column->column],
                                  pattern_length(column));
    }
    trp_columns_cleanup(&rows);
}

static void prepare_pattern_adder(struct pattern_adder *adder, const trp_adder_options *options)
{
    if (options->extras)
        trp_columns_add_all(&adder->base.extras, options->extras);
    trp_row_columns(options->env, options->extras, &adder->rows);
    for (size_t i = 0; i < adder->rows.count; i++)
        blob_add(&adder->row, trp_tensor_bytes(&adder->rows.specs[i]));
    for (size_t i = 0; i < trp_env_observation_count(options->env); i++)
        blob_add(&adder->observation, adder->row.bytes[i]);
    adder->zeros = xcalloc(1, adder->row.size);
    adder->copies = options->copies ? options->copies : 1;
    adder->copy = xcalloc(adder->copies, sizeof *adder->copy);
    for (uint32_t i = 0; i < adder->copies; i++)
        adder->copy[i].latest = xcalloc(1, adder->observation.size);
    size_t tasks = (size_t)adder->copies * TASKS_PER_STEP;
    adder->tasks = xcalloc(tasks, sizeof *adder->tasks);
    for (size_t i = 0; i < tasks; i++)
        adder->tasks[i].row = xcalloc(1, adder->row.size);
}

trp_status trp_pattern_adder_create(trp_adder **out, const trp_adder_options *options,
                                    const trp_pattern *patterns, size_t pattern_count)
{
    static const char who[] = "pattern adder";
    *out = NULL;
    if (pattern_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: no patterns", who);
    if (options->rollout)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: it writes to tables, not into rollouts", who);
    trp_adder_options checked = *options;
    checked.table = patterns[0].table;
    TRP_TRY(adder_check_options(&checked, who));
    struct pattern_adder *adder = xcalloc(1, sizeof *adder);
    adder->base.impl = &pattern_impl;
    adder->replay = options->replay;
    adder->patterns = patterns;
    adder->pattern_count = pattern_count;
    prepare_pattern_adder(adder, options);
    trp_pattern_columns(options->env, options->extras, &patterns[0], &adder->base.columns);
    adder->writer_options = (trp_writer_options){.columns = adder->rows.specs,
                                                 .column_count = adder->rows.count,
                                                 .max_in_flight = options->max_in_flight,
                                                 .fast_in_flight = adder_fast_in_flight(options),
                                                 .batch_items = options->batch_items,
                                                 .seed = options->seed};
    trp_rng_init(&adder->seeds, options->seed, 0);
    /* The first writer shows whether the patterns are any. */
    trp_status status = open_pattern_writer(adder, &adder->copy[0]);
    trp_structured_writer_destroy(adder->copy[0].writer);
    adder->copy[0].writer = NULL;
    if (status != TRP_OK) {
        trp_adder_destroy(&adder->base);
        return status;
    }
    trp_rng_init(&adder->seeds, options->seed, 0);
    *out = &adder->base;
    return TRP_OK;
}
