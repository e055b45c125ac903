#include "target.h"

void target_follow(const struct target_rule *how, const trp_update *update, size_t target,
                   size_t params, size_t count)
{
    const float *from = update->vectors[params];
    float *to = update->vectors[target];
    if (update->partial)
        return;
    if (how->rate > 0)
        trp_polyak_update(update->queue, to, from, how->rate, count);
    else if (update->step % how->period == 0)
        trp_queue_copy(update->queue, to, from, count * sizeof *to);
}
