/* Rewards divided by the spread of the discounted sum of those so far in the episode: what a value
 * function learns has about the same size in every task, and the order of returns stays. */
#include "wrapper.h"

#include <math.h>

#include "limits.h"

struct normalize_return {
    trp_wrapping wrapping;
    double normalize_return;
};

struct returning {
    trp_wrapped wrapped;
    double sum; /* of the running episode, discounted */
};

static const trp_option rows[] = {
    {TRP_OPTION(struct normalize_return, normalize_return), .min = 0, .max = 1,
     .help = "the discount of the sums whose spread rewards are divided by"},
};
static const trp_option_table table =
    TRP_OPTION_TABLE("normalize_return", rows, struct normalize_return);

static trp_status return_configure(void *arguments, void *user, trp_env_spec *spec)
{
    (void)user;
    (void)spec;
    ((struct normalize_return *)arguments)->wrapping.statistics = 1;
    return TRP_OK;
}

static trp_status return_reset(void *state, trp_rng *rng)
{
    ((struct returning *)state)->sum = 0;
    return trp_wrapped_reset(state, rng);
}

static trp_status return_step(void *state, trp_rng *rng, const void *action,
                              trp_env_outcome *outcome)
{
    struct returning *returning = state;
    const struct normalize_return *arguments = (const void *)returning->wrapped.wrapping;
    const struct statistics *statistics = wrapped_statistics(state);
    TRP_TRY(trp_wrapped_step(state, rng, action, outcome));
    if (statistics->read_only || !isfinite(outcome->reward))
        return TRP_OK;
    returning->sum = arguments->normalize_return * returning->sum + (double)outcome->reward;
    trp_moments_add(&statistics->seen[wrapped_statistic(state)], returning->sum);
    double scaled =
        statistic_scale((double)outcome->reward, &statistics->used[wrapped_statistic(state)]);
    outcome->reward = (float)fmin(fmax(scaled, -ENV_REWARD_BOUND), ENV_REWARD_BOUND);
    return TRP_OK;
}

const trp_env_impl normalize_return_impl = {
    .state_bytes = sizeof(struct returning),
    .options = &table,
    .configure = return_configure,
    .reset = return_reset,
    .step = return_step,
    .observe = trp_wrapped_observe,
};
