/* An updater alone, with what a learner keeps for it, and batches that a test makes. */
#ifndef TESTS_AGENTS_STUDY_H
#define TESTS_AGENTS_STUDY_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/agent.h>
#include "core/alloc.h"
#include "learner/save.h"
#include "learner/update.h"

/* ---- batches ------------------------------------------------------------------------------- */

/* Of one source; columns are zeroed. */
struct items {
    const trp_columns *specs;
    void **columns;
    trp_batch batch;
};

static inline struct items *items_create(const trp_batch_spec *source, uint32_t rows)
{
    struct items *items = xcalloc(1, sizeof *items);
    items->specs = &source->columns;
    items->columns = xcalloc(source->columns.count, sizeof(void *));
    items->batch = (trp_batch){.rows = rows,
                               .columns = items->columns,
                               .keys = xcalloc(rows, sizeof(uint64_t)),
                               .policy_versions = xcalloc(rows, sizeof(uint64_t)),
                               .probabilities = xcalloc(rows, sizeof(double)),
                               .table_sizes = xcalloc(rows, sizeof(int64_t))};
    for (size_t i = 0; i < source->columns.count; i++)
        items->columns[i] = xcalloc(rows, trp_tensor_bytes(&source->columns.specs[i]));
    for (uint32_t i = 0; i < rows; i++) {
        ((uint64_t *)items->batch.keys)[i] = 100 + i;
        ((double *)items->batch.probabilities)[i] = 0.001;
        ((int64_t *)items->batch.table_sizes)[i] = 1000;
    }
    return items;
}

static inline void items_destroy(struct items *items)
{
    for (size_t i = 0; i < items->specs->count; i++)
        free(items->columns[i]);
    free(items->columns);
    free((void *)items->batch.keys);
    free((void *)items->batch.policy_versions);
    free((void *)items->batch.probabilities);
    free((void *)items->batch.table_sizes);
    free(items);
}

/* A column of that name; NULL: there is none. */
static inline void *items_column(const struct items *items, const char *name)
{
    size_t i = trp_columns_find(items->specs, name);
    return i < items->specs->count ? items->columns[i] : NULL;
}

/* ---- an updater ---------------------------------------------------------------------------- */

struct study {
    trp_updater *updater;
    struct trp_update_run run;
    uint64_t steps;
    size_t count; /* of the first vector */
    float *params;
};

static inline struct study *study_create_with(const trp_agent *agent, const trp_env_spec *env,
                                              const trp_updater_options *options, uint64_t seed)
{
    struct study *study = xcalloc(1, sizeof *study);
    if (agent->impl->updater(agent, env, options, &study->updater) != TRP_OK)
        fail_msg("%s", trp_last_error());
    assert_int_equal(update_prepare(&study->run, study->updater, seed), TRP_OK);
    study->count = study->updater->vectors[0].count;
    study->params = study->run.values[0];
    return study;
}

static inline struct study *study_create(const trp_agent *agent, const trp_env_spec *env,
                                         uint32_t batch_size, uint64_t seed)
{
    return study_create_with(agent, env, &(trp_updater_options){.batch_size = batch_size}, seed);
}

/* A batch of so many items is refused with these words. */
static inline void study_assert_too_large(const trp_agent *agent, const trp_env_spec *env,
                                          uint32_t batch_size, const char *words)
{
    trp_updater_options options = {.batch_size = batch_size};
    trp_updater *updater;
    assert_int_equal(agent->impl->updater(agent, env, &options, &updater), TRP_INVALID_ARGUMENT);
    assert_null(updater);
    assert_non_null(strstr(trp_last_error(), words));
}

static inline void study_destroy(struct study *study)
{
    update_cleanup(&study->run);
    trp_updater_destroy(study->updater);
    free(study);
}

static inline trp_status study_step(struct study *study, const trp_batch *batch)
{
    trp_status status = update_step(&study->run, study->steps + 1, batch);
    study->steps += status == TRP_OK;
    return status;
}

static inline double study_reported(const struct study *study, const char *name)
{
    for (size_t i = 0; i < study->run.metric_count; i++)
        if (strcmp(study->run.metrics[i].name, name) == 0)
            return study->run.metrics[i].value;
    fail_msg("no metric %s", name);
    return 0;
}

static inline void study_assert_same(struct study *a, struct study *b)
{
    trp_checkpoint_tensor left[UPDATE_TENSORS_MAX], right[UPDATE_TENSORS_MAX];
    size_t count = update_state(&a->run, left);
    assert_int_equal(update_state(&b->run, right), count);
    for (size_t i = 0; i < count; i++) {
        size_t element = left[i].type == TRP_CHECKPOINT_F32 ? sizeof(float) : sizeof(uint64_t);
        assert_memory_equal(left[i].data, right[i].data, left[i].shape[0] * element);
    }
}

/* All numbers of a tensor of a vector, which lies there as in the vector `like`, are NaN; false: it
 * has no such tensor. */
static inline bool study_spoil(struct study *study, size_t vector, size_t like, size_t tensor)
{
    const trp_vector_spec *spec = &study->updater->vectors[like];
    for (size_t i = 0; tensor < spec->tensor_count && i < spec->tensors[tensor].count; i++)
        study->run.values[vector][spec->tensors[tensor].offset + i] = NAN;
    return tensor < spec->tensor_count;
}

/* A step on what has a NaN somewhere is refused for it, and the first vector is as it was. */
static inline void study_assert_refuses_nan(struct study *study, const struct items *items,
                                            const char *where)
{
    float *before = trp_floats_create(study->count);
    memcpy(before, study->params, study->count * sizeof *before);
    if (study_step(study, &items->batch) != TRP_INTERNAL)
        fail_msg("a NaN in %s is learned from", where);
    if (!strstr(trp_last_error(), "nan"))
        fail_msg("a NaN in %s: '%s'", where, trp_last_error());
    assert_memory_equal(study->params, before, study->count * sizeof *before);
    trp_floats_destroy(before);
}

/* Two studies of the same agent with other seeds: the second goes on from what the first saved at
 * step `saved_at` of `count`, and ends with the same bits. */
static inline void study_assert_resumes(struct study *whole, struct study *resumed,
                                        struct items *const *items, size_t count, size_t saved_at)
{
    char dir[] = "/tmp/test_study.XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    trp_publisher *publisher = trp_publisher_create(1);
    struct learner_progress progress = {.steps = saved_at};
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(study_step(whole, &items[i]->batch), TRP_OK);
        if (i + 1 == saved_at)
            assert_int_equal(save_write(dir, &whole->run, publisher, &progress), TRP_OK);
    }
    bool found;
    assert_int_equal(save_load(dir, &resumed->run, publisher, &progress, &found), TRP_OK);
    assert_true(found);
    resumed->steps = progress.steps;
    for (size_t i = progress.steps; i < count; i++)
        assert_int_equal(study_step(resumed, &items[i]->batch), TRP_OK);
    study_assert_same(whole, resumed);
    trp_publisher_destroy(publisher);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

#endif
