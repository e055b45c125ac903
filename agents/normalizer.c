#include "normalizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/moments.h>
#include <troupe/source.h>
#include "bodies/moves.h"
#include "core/alloc.h"
#include "limits.h"

struct normalizer normalizer_of(const trp_env_spec *env, bool normalizes)
{
    size_t bytes = normalizes ? trp_tensor_bytes(&env->observations[0]) : 0;
    return (struct normalizer){(uint32_t)(bytes / sizeof(float))};
}

size_t normalizer_tensors(const struct normalizer *normalizer, trp_net_tensor *tensors)
{
    static const char *const names[] = {"states.mean", "states.deviation"};
    for (size_t i = 0; i < 2 && normalizer->size > 0; i++) {
        tensors[i] = (trp_net_tensor){.rank = 1,
                                      .shape = {normalizer->size},
                                      .offset = i * normalizer->size,
                                      .count = normalizer->size,
                                      .axis_count = 1,
                                      .axes = {{normalizer->size, 1}}};
        snprintf(tensors[i].name, sizeof tensors[i].name, "%s", names[i]);
    }
    return normalizer->size > 0 ? 2 : 0;
}

/* ---- a pass over the dataset --------------------------------------------------------------- */

static void add_batch(const struct normalizer *normalizer, const trp_batch *batch, size_t column,
                      trp_moments *moments)
{
    const float *states = batch->columns[column];
    for (size_t i = 0; i < (size_t)batch->rows * normalizer->size; i++)
        trp_moments_add(&moments[i % normalizer->size], (double)states[i]);
}

static trp_status read_all(const struct normalizer *normalizer, trp_source *source,
                           const trp_batch_spec *spec, trp_moments *moments)
{
    size_t column = 0;
    while (strcmp(spec->columns.specs[column].name, "observation") != 0)
        column++;
    TRP_TRY(source->impl->open(source, &(trp_source_use){.spec = spec, .held = 1}));
    for (;;) {
        trp_batch batch;
        trp_status status = source->impl->next(source, &batch, NORMALIZER_WAIT_MS);
        if (status == TRP_DEADLINE_EXCEEDED)
            continue; /* it is a disk's to be slow; what fails says so */
        if (status != TRP_OK)
            return status == TRP_OUT_OF_RANGE ? TRP_OK : status;
        add_batch(normalizer, &batch, column, moments);
    }
}

static trp_status find_moments(const struct normalizer *normalizer, const char *dir,
                               const trp_batch_spec *spec, trp_moments *moments)
{
    trp_source *source;
    trp_batch_spec pass = *spec; /* as long as the source */
    pass.batch_size = NORMALIZER_BATCH;
    TRP_TRY(
        trp_dataset_source_create(&source, &(trp_dataset_source_options){.dir = dir, .epochs = 1}));
    trp_status status = read_all(normalizer, source, &pass, moments);
    trp_source_destroy(source);
    return status;
}

trp_status normalizer_read(const struct normalizer *normalizer, const char *who, const char *dir,
                           const trp_batch_spec *source, float *numbers)
{
    size_t size = normalizer->size;
    if (!dir)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: normalize_states takes means and deviations of a dataset, and the "
                        "learner has no .dataset",
                        who);
    trp_moments *moments = xcalloc(size, sizeof *moments);
    trp_status status = find_moments(normalizer, dir, source, moments);
    for (size_t i = 0; i < size && status == TRP_OK; i++) {
        numbers[i] = (float)moments[i].mean;
        numbers[size + i] = (float)(sqrt(trp_moments_variance(&moments[i])) + 1e-3);
        if (!isfinite(numbers[i]) || !isfinite(numbers[size + i]))
            status = trp_fail(TRP_INVALID_ARGUMENT,
                              "%s: number %zu of 'observation' has no finite mean and deviation in "
                              "table '%s' of %s",
                              who, i, source->table, dir);
    }
    free(moments);
    return status;
}

/* ---- rows ---------------------------------------------------------------------------------- */

void normalizer_rows(const struct normalizer *normalizer, const float *numbers, uint32_t rows,
                     const float *states, float *normal)
{
    struct normalize_arguments job = {rows, normalizer->size, numbers, states, normal};
    for (size_t i = 0; i < normalize_count(&job); i++)
        normalize_each(&job, i);
}

void normalizer_rows_on(trp_queue *queue, const struct normalizer *normalizer, const float *numbers,
                        uint32_t rows, const float *states, float *normal)
{
    static const trp_kernel kernel = {.name = "states.normalize", .run = normalize_run};
    struct normalize_arguments job = {rows, normalizer->size, numbers, states, normal};
    size_t bytes = normalize_count(&job) * sizeof(float);
    trp_operand operands[] = {
        {offsetof(struct normalize_arguments, numbers),
         normalizer_count(normalizer) * sizeof(float), TRP_READ},
        {offsetof(struct normalize_arguments, states), bytes, TRP_READ},
        {offsetof(struct normalize_arguments, normal), bytes, TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, sizeof operands / sizeof *operands);
}
