#include "unroll_steps.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "gather.h"

static void gather_unrolls(struct unroll_steps *steps, const struct unroll_updater *updater,
                           const trp_update *update)
{
    const struct gather_column columns[] = {
        {"observation", steps->observations, updater->x_bytes},
        {updater->action_column, steps->actions, updater->action_bytes},
        {"reward", steps->rewards, sizeof *steps->rewards},
        {"discount", steps->item_discounts, sizeof *steps->item_discounts},
        {"first", steps->first, sizeof *steps->first},
        {"valid", steps->valid, sizeof *steps->valid},
        {AC_LOG_PROB, steps->old_log_probs, sizeof *steps->old_log_probs},
        {AC_MASK, steps->mask, updater->space.size}};
    gather_steps_on(update, updater->rows, steps->orders[update->step % 2], steps->order, columns,
                    sizeof columns / sizeof *columns);
}

trp_net_rows unroll_steps_forward(struct unroll_steps *steps, const struct unroll_updater *updater,
                                  const trp_update *update)
{
    uint32_t rows = unroll_updater_rows(updater, update);
    gather_unrolls(steps, updater, update);
    const void *x =
        torso_pixels_on(update->queue, &updater->image, rows, steps->observations, updater->pixels);
    trp_net_rows pass = unroll_updater_pass(updater, update, x, rows);
    pass.state = trp_update_device_column(update, 0, AC_CORE);
    if (pass.state) {
        pass.steps = updater->rows;
        pass.resets = (const uint8_t *)steps->first;
    }
    trp_net_forward(updater->net, update->vectors[UNROLL_PARAMS], &pass);
    return pass;
}

struct decisions unroll_steps_decisions(const struct unroll_steps *steps,
                                        const struct unroll_updater *updater,
                                        const trp_update *update)
{
    return unroll_updater_decisions(updater, update, unroll_updater_rows(updater, update),
                                    steps->mask, steps->actions);
}

trp_trajectories unroll_steps_items(const struct unroll_steps *steps,
                                    const struct unroll_updater *updater, const trp_update *update)
{
    return (trp_trajectories){.steps = updater->rows,
                              .sequences = update->batches->rows,
                              .rewards = steps->rewards,
                              .valid = steps->valid,
                              .first = steps->first};
}

trp_status unroll_steps_apply(struct unroll_updater *updater, const trp_update *update,
                              const trp_net_rows *pass, const float *loss)
{
    unroll_updater_backward(updater, update, pass);
    trp_update_watch(update, UNROLL_PARAMS, loss, "loss");
    return trp_update_apply(update, UNROLL_PARAMS);
}

/* ---- its life -------------------------------------------------------------------------------- */

trp_status unroll_steps_init(struct unroll_steps *steps, struct unroll_updater *updater)
{
    size_t rows = (size_t)updater->base.sources[0].batch_size * updater->rows;
    size_t floats = rows * sizeof(float);
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&steps->order, rows * sizeof *steps->order},
                  {&steps->observations, rows * updater->x_bytes},
                  {&steps->actions, rows * updater->action_bytes},
                  {&steps->mask, updater->space.masked ? rows * updater->space.size : 0},
                  {&steps->first, rows},
                  {&steps->valid, rows},
                  {&steps->rewards, floats},
                  {&steps->item_discounts, floats},
                  {&steps->old_log_probs, floats},
                  {&steps->discounts, floats},
                  {&steps->log_probs, floats},
                  {&steps->entropies, floats},
                  {&steps->advantages, floats},
                  {&steps->returns, floats},
                  {&steps->weights, floats}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(&updater->room, pieces[i].bytes, pieces[i].memory));
    for (size_t i = 0; i < 2; i++)
        steps->orders[i] = xcalloc(rows, sizeof(int32_t));
    return TRP_OK;
}

void unroll_steps_cleanup(struct unroll_steps *steps)
{
    for (size_t i = 0; i < 2; i++)
        free(steps->orders[i]);
}
