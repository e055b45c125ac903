#include "control_batch.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "bodies/moves.h"
#include "replayed.h"

trp_status control_batch_create(struct control_batch *batch, const trp_env_spec *env, uint32_t rows,
                                struct room *room)
{
    batch->box = box_of(env);
    size_t floats = rows * sizeof(float), bounds = batch->box.size * sizeof(float);
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&batch->low, bounds},
                  {&batch->high, bounds},
                  {&batch->actions, floats * batch->box.size},
                  {&batch->discounts, floats},
                  {&batch->errors, floats},
                  {&batch->weight_room, floats},
                  {&batch->seed_room, sizeof *batch->seed_room}};
    for (size_t i = 0; i < 2; i++) {
        batch->turns[i].weights = xcalloc(rows, sizeof(float));
        batch->turns[i].errors = xcalloc(rows, sizeof(float));
    }
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(room, pieces[i].bytes, pieces[i].memory));
    return TRP_OK;
}

void control_batch_cleanup(struct control_batch *batch)
{
    for (size_t i = 0; i < 2; i++) {
        free(batch->turns[i].weights);
        free(batch->turns[i].errors);
    }
}

static void discounts_on(trp_queue *queue, const struct discounts_arguments *job)
{
    static const trp_kernel kernel = {.name = "control.discounts", .run = discounts_run};
    size_t floats = job->rows * sizeof(float);
    trp_operand operands[] = {
        {offsetof(struct discounts_arguments, item_discounts), floats, TRP_READ},
        {offsetof(struct discounts_arguments, discounts), floats, TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, 2);
}

trp_status control_batch_take(struct control_batch *batch, const trp_update *update)
{
    size_t bounds = batch->box.size * sizeof(float);
    uint64_t *seed = &batch->turns[update->step % 2].seed;
    *seed = trp_rng_u64(update->rng);
    batch->seed = trp_queue_upload(update->queue, batch->seed_room, seed, sizeof *seed);
    struct box box = {batch->box.size,
                      trp_queue_upload(update->queue, batch->low, batch->box.low, bounds),
                      trp_queue_upload(update->queue, batch->high, batch->box.high, bounds)};
    batch->rows = update->batches->rows;
    batch->states = trp_update_device_column(update, 0, "observation");
    batch->next_states = trp_update_device_column(update, 0, "next_observation");
    batch->rewards = trp_update_device_column(update, 0, "reward");
    TRP_TRY(replayed_weights(update, (double)batch->importance_exponent,
                             batch->turns[update->step % 2].weights, batch->weight_room,
                             &batch->weights));
    box_shrink_on(update->queue, &box, batch->rows, trp_update_device_column(update, 0, "action"),
                  batch->actions);
    discounts_on(update->queue,
                 &(struct discounts_arguments){batch->rows, batch->discount,
                                               trp_update_device_column(update, 0, "discount"),
                                               batch->discounts});
    return TRP_OK;
}

void control_batch_leave(const struct control_batch *batch, const trp_update *update)
{
    if (update->priorities[0])
        trp_queue_copy(update->queue, batch->turns[update->step % 2].errors, batch->errors,
                       update->batches->rows * sizeof(float));
}

void control_batch_collect(const struct control_batch *batch, const trp_update *update)
{
    const float *errors = batch->turns[update->step % 2].errors;
    double *priorities = update->priorities[0];
    for (uint32_t row = 0; priorities && row < update->batches->rows; row++)
        priorities[row] = (double)errors[row] + (double)batch->priority_epsilon;
}
