/* A learner for tests of devices: batches that follow from their number, an environment of images,
 * and a run with them. */
#ifndef TRP_TESTS_DEVICE_RUN_H
#define TRP_TESTS_DEVICE_RUN_H

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/troupe.h>

#include "tests/nn/nn_tools.h"

enum { BATCH = 8, STEPS = 40 };

/* ---- a source whose batches follow from their number ----------------------------------------- */

struct drawn_source {
    trp_source base;
    const trp_batch_spec *spec;
    uint64_t given, first; /* so far; before the first */
    uint32_t held;
    void **columns[2];
    uint64_t keys[BATCH];
    int64_t table_sizes[BATCH];
    double probabilities[BATCH];
    uint64_t nan_at;   /* this batch has such a reward */
    uint64_t fails_at; /* this one does not come; 0: all do */
    trp_device *device;
    void (*closes)(trp_device *device); /* what is asserted of it then; NULL: nothing */
    void (*gives)(trp_device *device, uint64_t number); /* the same of each batch */
    double *priorities;
    size_t priority_count;
};

static inline trp_status drawn_open(trp_source *base, const trp_source_use *use)
{
    struct drawn_source *source = (struct drawn_source *)base;
    source->spec = use->spec;
    source->held = use->held;
    for (size_t k = 0; k < 2; k++) {
        source->columns[k] = xcalloc(use->spec->columns.count, sizeof(void *));
        for (size_t i = 0; i < use->spec->columns.count; i++)
            source->columns[k][i] = xcalloc(BATCH, trp_tensor_bytes(&use->spec->columns.specs[i]));
    }
    return TRP_OK;
}

static inline void fill(const trp_tensor_spec *spec, trp_rng *rng, void *values)
{
    size_t bytes = BATCH * trp_tensor_bytes(spec);
    bool mask = spec->dtype == TRP_BOOL, action = spec->dtype == TRP_INT32;
    size_t count = bytes / trp_dtype_size(spec->dtype);
    for (size_t i = 0; i < count; i++)
        if (action)
            ((int32_t *)values)[i] = (int32_t)trp_rng_below(rng, 2);
        else if (spec->dtype == TRP_FLOAT32)
            ((float *)values)[i] = (float)trp_rng_double(rng);
        else
            ((uint8_t *)values)[i] = (uint8_t)(mask ? 1 : trp_rng_below(rng, 256));
}

/* Each stack of a sequence is the one before it and a frame. */
static inline void stack_frames(const trp_batch_spec *spec, size_t column, uint8_t *values)
{
    const trp_tensor_spec *of = &spec->columns.specs[column];
    size_t row = trp_tensor_bytes(of), stack = spec->stacks.frames * spec->stacks.bytes;
    if (stack == 0 || of->dtype != TRP_UINT8 || row % stack != 0)
        return;
    for (size_t at = 0; at < BATCH * row; at += stack)
        if (at % row > 0)
            memcpy(values + at, values + at - stack + spec->stacks.bytes,
                   stack - spec->stacks.bytes);
}

/* A batch that is no longer held is overwritten. */
static inline trp_status drawn_next(trp_source *base, trp_batch *batch, int64_t timeout_ms)
{
    (void)timeout_ms;
    struct drawn_source *source = (struct drawn_source *)base;
    uint64_t number = source->first + ++source->given;
    void **columns = source->columns[number % source->held];
    const trp_columns *specs = &source->spec->columns;
    trp_rng rng;
    if (source->gives)
        source->gives(source->device, number);
    if (number == source->fails_at)
        return trp_fail(TRP_DATA_LOSS, "batch %" PRIu64 " is damaged", number);
    trp_rng_init(&rng, 5, number);
    for (size_t i = 0; i < specs->count; i++)
        fill(&specs->specs[i], &rng, columns[i]);
    for (size_t i = 0; i < specs->count; i++)
        stack_frames(source->spec, i, columns[i]);
    if (number == source->nan_at)
        ((float *)columns[trp_columns_find(specs, "reward")])[3] = NAN;
    for (size_t i = 0; i < BATCH; i++) {
        source->table_sizes[i] = 100;
        source->probabilities[i] = 0.001 * (double)(i + number % 7 + 1);
    }
    *batch = (trp_batch){.rows = BATCH,
                         .columns = columns,
                         .keys = source->keys,
                         .table_sizes = source->table_sizes,
                         .probabilities = source->probabilities};
    return TRP_OK;
}

static inline trp_status drawn_update(trp_source *base, const trp_batch *batch,
                                      const double *priorities, int64_t timeout_ms)
{
    (void)timeout_ms;
    struct drawn_source *source = (struct drawn_source *)base;
    source->priorities =
        xrealloc(source->priorities, (source->priority_count + batch->rows) * sizeof(double));
    memcpy(source->priorities + source->priority_count, priorities, batch->rows * sizeof(double));
    source->priority_count += batch->rows;
    return TRP_OK;
}

static inline void drawn_destroy(trp_source *base)
{
    struct drawn_source *source = (struct drawn_source *)base;
    if (source->closes && source->device)
        source->closes(source->device);
    for (size_t k = 0; k < 2 && source->spec; k++) {
        for (size_t i = 0; i < source->spec->columns.count; i++)
            free(source->columns[k][i]);
        free(source->columns[k]);
    }
    source->spec = NULL; /* the priorities are read afterwards */
}

static const trp_source_impl drawn_impl = {.open = drawn_open,
                                           .next = drawn_next,
                                           .update_priorities = drawn_update,
                                           .destroy = drawn_destroy};

/* ---- images ------------------------------------------------------------------------------------
 */

/* Never stepped here: only what it observes counts. */
static inline trp_status dots_reset(void *state, trp_rng *rng)
{
    (void)state, (void)rng;
    return TRP_OK;
}

static inline trp_status dots_step(void *state, trp_rng *rng, const void *action,
                                   trp_env_outcome *outcome)
{
    (void)state, (void)rng, (void)action, (void)outcome;
    return TRP_OK;
}

static inline void dots_observe(const void *state, void *const *observations)
{
    (void)state, (void)observations;
}

static const trp_env_impl dots_impl = {
    .spec = {.name = "Dots",
             .observations = {{.dtype = TRP_UINT8, .rank = 3, .shape = {8, 9, 1}}},
             .action_count = 2},
    .state_bytes = 1,
    .reset = dots_reset,
    .step = dots_step,
    .observe = dots_observe,
};

/* ---- a run ------------------------------------------------------------------------------------
 */

struct run {
    struct drawn_source source;
    trp_learner *learner;
    size_t vector_count; /* of its updater */
    trp_status status;
    char *dir;
};

struct wanted {
    const char *env;
    trp_agent agent;
    trp_device *device; /* NULL: the host's */
    void (*closes)(trp_device *device);
    void (*gives)(trp_device *device, uint64_t number);
    uint64_t steps, first, nan_at, fails_at;
    uint32_t publish_every;
    uint32_t threads;
    const char *dir; /* NULL: one of its own */
    bool resume;
    trp_rendezvous *rendezvous; /* NULL: the learner is alone */
    uint32_t members;
};

static inline trp_status run_create(struct run *run, const struct wanted *wanted)
{
    const trp_env_spec *env;
    *run = (struct run){.source = {.base = {&drawn_impl},
                                   .first = wanted->first,
                                   .nan_at = wanted->nan_at,
                                   .fails_at = wanted->fails_at,
                                   .device = wanted->device,
                                   .closes = wanted->closes,
                                   .gives = wanted->gives}};
    run->dir = xstrdup(wanted->dir ? wanted->dir : "/tmp/test_device_learner.XXXXXX");
    if (!wanted->dir)
        assert_non_null(mkdtemp(run->dir));
    trp_source *source = &run->source.base;
    trp_learner_loop_options loop = {
        .sources = &source,
        .source_count = 1,
        .seed = 3,
        .publish_every = wanted->publish_every,
        .checkpoint_dir = run->dir,
        .checkpoint_every_s = 3600, /* at the end alone */
        .resume = wanted->resume,
        .max_steps = wanted->steps,
        .group = {.rendezvous = wanted->rendezvous, .count = wanted->members, .timeout_ms = 20000}};
    OR_FAIL(trp_agent_check(&wanted->agent, wanted->env));
    OR_FAIL(trp_env_find(wanted->env, &env));
    TRP_TRY(wanted->agent.impl->updater(&wanted->agent, env,
                                        &(trp_updater_options){.batch_size = BATCH,
                                                               .device = wanted->device,
                                                               .threads = wanted->threads},
                                        &loop.updater));
    run->vector_count = loop.updater->vector_count;
    return trp_learner_create(&run->learner, &loop);
}

static inline void run_begin(struct run *run, const struct wanted *wanted)
{
    OR_FAIL(run_create(run, wanted));
    run->status = trp_learner_run(run->learner);
}

static inline void run_end(struct run *run)
{
    trp_learner_destroy(run->learner);
    free(run->source.priorities);
    free(run->dir);
}

static inline void remove_dir(const char *dir)
{
    char *command = xasprintf("rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    free(command);
}
/* The newest checkpoint of each directory, for trp_checkpoint_destroy(); returns how many tensors
 * both have. */
static inline size_t read_both(const char *dir, const char *other, trp_checkpoint *checkpoints[2])
{
    const char *dirs[] = {dir, other};
    for (size_t i = 0; i < 2; i++) {
        char *path;
        OR_FAIL(trp_learner_checkpoint_find(dirs[i], &path));
        OR_FAIL(trp_checkpoint_read(&checkpoints[i], path));
        free(path);
    }
    size_t count = trp_checkpoint_tensor_count(checkpoints[0]);
    assert_int_equal(count, trp_checkpoint_tensor_count(checkpoints[1]));
    return count;
}

/* What differs, beside what there is. */
static inline double apart(const trp_checkpoint_tensor *a, const trp_checkpoint_tensor *b)
{
    double difference = 0, all = 0;
    size_t count = 1;
    for (uint32_t k = 0; k < a->rank; k++)
        count *= a->shape[k];
    for (size_t i = 0; i < count; i++) {
        double x = (double)((const float *)a->data)[i], y = (double)((const float *)b->data)[i];
        difference += (x - y) * (x - y);
        all += y * y;
    }
    return all > 0 ? sqrt(difference / all) : sqrt(difference);
}

/* The largest of all vectors and their optimizers' states. */
static inline double worst_tensor(const char *dir, const char *other)
{
    trp_checkpoint *checkpoints[2];
    double worst = 0;
    size_t count = read_both(dir, other, checkpoints);
    for (size_t i = 0; i < count; i++) {
        const trp_checkpoint_tensor *a = trp_checkpoint_tensor_at(checkpoints[0], i);
        if (a->type != TRP_CHECKPOINT_F32)
            continue;
        double away = apart(a, trp_checkpoint_tensor_at(checkpoints[1], i));
        worst = isnan(away) ? INFINITY : fmax(worst, away);
    }
    trp_checkpoint_destroy(checkpoints[0]);
    trp_checkpoint_destroy(checkpoints[1]);
    return worst;
}

#endif
