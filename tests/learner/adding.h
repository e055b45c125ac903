/* An updater small enough to predict: it adds 1 to every parameter a step and gives an item of
 * value x the priority x + 2; at once, or a step later. */
#ifndef TRP_TESTS_LEARNER_ADDING_H
#define TRP_TESTS_LEARNER_ADDING_H

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/stop.h>
#include <troupe/updater.h>
#include "core/alloc.h"

enum { COUNT = 32, BATCH = 4 };

static const trp_tensor_spec columns[] = {{.name = "x", .dtype = TRP_FLOAT32}};

struct adding {
    trp_updater base;
    const float *params;
    uint64_t steps;
    uint64_t fail_at; /* this step fails; 0: none */
    uint64_t nan_at;  /* so does its gradient */
    trp_stop *stop;   /* requested by step `stop_at` */
    uint64_t stop_at;
    double seen;              /* sum of all sampled values */
    uint64_t collected;       /* steps, in order */
    uint64_t collected_later; /* of them, once the next step had begun */
    uint64_t fail_collect_at;
    const char *moves; /* a directory, elsewhere, by step `moves_at`; NULL: none */
    uint64_t moves_at;
    float given[2][BATCH]; /* the batches of the last two steps, as they were */
};

static void adding_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    (void)rng;
    ((struct adding *)base)->params = vectors[0];
}

static void adding_answer(const trp_update *update)
{
    const trp_batch *batch = update->batches;
    const float *values = batch->columns[0];
    for (uint32_t row = 0; row < batch->rows; row++)
        update->priorities[0][row] = (double)values[row] + 2;
    trp_update_report(update, "loss", (double)update->step);
}

static trp_status adding_collect(trp_updater *base, const trp_update *update)
{
    struct adding *updater = (struct adding *)base;
    const trp_batch *batch = update->batches;
    assert_int_equal(update->step, updater->collected + 1);
    assert_memory_equal(batch->columns[0], updater->given[update->step % 2],
                        batch->rows * sizeof(float));
    updater->collected++;
    updater->collected_later += updater->steps > update->step;
    if (update->step == updater->fail_collect_at)
        return trp_fail(TRP_INTERNAL, "adding: step %" PRIu64 " cannot be collected", update->step);
    adding_answer(update);
    return TRP_OK;
}

static trp_status adding_step(trp_updater *base, const trp_update *update)
{
    struct adding *updater = (struct adding *)base;
    const trp_batch *batch = update->batches;
    if (updater->steps + 1 == updater->fail_at)
        return trp_fail(TRP_INTERNAL, "adding: step %" PRIu64 " fails", updater->fail_at);
    updater->steps++;
    for (size_t i = 0; i < base->vectors[0].count; i++)
        update->grads[0][i] -= 1; /* SGD of rate 1 */
    if (updater->steps == updater->nan_at)
        update->grads[0][5] = NAN;
    TRP_TRY(trp_update_apply(update, 0));
    const float *values = trp_update_column(update, 0, "x");
    assert_ptr_equal(values, batch->columns[0]);
    assert_null(trp_update_column(update, 0, "y"));
    for (uint32_t row = 0; row < batch->rows; row++)
        updater->seen += (double)values[row];
    memcpy(updater->given[update->step % 2], values, batch->rows * sizeof *values);
    if (!base->impl->collect)
        adding_answer(update);
    if (updater->moves && updater->steps == updater->moves_at) {
        char *to = xasprintf("%s.moved", updater->moves);
        assert_int_equal(rename(updater->moves, to), 0);
        free(to);
    }
    if (updater->stop && updater->steps == updater->stop_at)
        trp_stop_request(updater->stop);
    return TRP_OK;
}

static size_t adding_state(trp_updater *base, trp_checkpoint_tensor *tensors)
{
    struct adding *updater = (struct adding *)base;
    tensors[0] = (trp_checkpoint_tensor){
        .name = "steps", .type = TRP_CHECKPOINT_U64, .rank = 0, .data = &updater->steps};
    return 1;
}

static void adding_destroy(trp_updater *base)
{
    free(base);
}

static const trp_updater_impl adding_impl = {
    .init = adding_init, .step = adding_step, .state = adding_state, .destroy = adding_destroy};

static const trp_updater_impl adding_later_impl = {.init = adding_init,
                                                   .step = adding_step,
                                                   .collect = adding_collect,
                                                   .state = adding_state,
                                                   .destroy = adding_destroy};

static struct adding *adding_create(void)
{
    struct adding *updater = xcalloc(1, sizeof *updater);
    updater->base.impl = &adding_impl;
    updater->base.source_count = updater->base.vector_count = 1;
    updater->base.sources[0] =
        (trp_batch_spec){.table = "t", .batch_size = BATCH, .writes_priorities = true};
    trp_columns_add(&updater->base.sources[0].columns, NULL, &columns[0]);
    updater->base.vectors[0] =
        (trp_vector_spec){.name = "params",
                          .count = COUNT,
                          .learned = true,
                          .optimizer = {.kind = TRP_SGD, .learning_rate = 1}};
    return updater;
}

#endif
