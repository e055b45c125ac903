#include "exploration.h"

#include <math.h>

#include <troupe/losses.h>

double exploration_rate(const struct exploration *exploration, const trp_policy_options *place,
                        uint64_t steps)
{
    if (place->greedy)
        return 0;
    double done = (double)steps / (double)exploration->steps;
    double rate =
        exploration->start + (exploration->end - exploration->start) * (done < 1 ? done : 1);
    if (place->count < 2)
        return rate;
    return pow(rate, 1 + exploration->alpha * place->index / (place->count - 1));
}

/* The flags of one row; NULL: everything is allowed. */
static const bool *row_mask(const trp_act *act, uint32_t choices, uint32_t row)
{
    return act->mask ? act->mask + (size_t)row * choices : NULL;
}

/* Any of the choices that are allowed, each as likely. */
static int32_t draw(uint32_t choices, trp_rng *rng, const bool *mask)
{
    if (!mask)
        return (int32_t)trp_rng_below(rng, choices);
    uint32_t allowed = 0, choice = 0;
    for (uint32_t i = 0; i < choices; i++)
        allowed += mask[i];
    for (uint64_t skip = trp_rng_below(rng, allowed); !mask[choice] || skip > 0; choice++)
        skip -= mask[choice];
    return (int32_t)choice;
}

bool exploration_draw(double rate, const trp_act *act, uint32_t choices)
{
    int32_t *actions = act->actions;
    bool others = false;
    for (uint32_t row = 0; row < act->rows; row++) {
        bool greedy = rate <= 0 || trp_rng_double(act->rng) >= rate;
        actions[row] = greedy ? -1 : draw(choices, act->rng, row_mask(act, choices, row));
        others = others || greedy;
    }
    return others;
}

void exploration_finish(const trp_act *act, uint32_t choices, const float *values)
{
    int32_t *actions = act->actions;
    for (uint32_t row = 0; row < act->rows; row++)
        if (actions[row] < 0)
            actions[row] = (int32_t)trp_argmax(values + (size_t)row * choices,
                                               row_mask(act, choices, row), choices);
}
