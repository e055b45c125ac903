/* Rewards within a bound, as Atari agents learn from. */
#include "wrapper.h"

struct clip_reward {
    trp_wrapping wrapping;
    float clip_reward;
};

static const trp_option rows[] = {
    {TRP_OPTION(struct clip_reward, clip_reward), .min = 1e-6, .max = 1e6,
     .help = "the largest reward, and the smallest below 0"},
};
static const trp_option_table table = TRP_OPTION_TABLE("clip_reward", rows, struct clip_reward);

static trp_status clip_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    const trp_wrapping *wrapping = ((trp_wrapped *)state)->wrapping;
    float bound = ((const struct clip_reward *)(const void *)wrapping)->clip_reward;
    TRP_TRY(trp_wrapped_step(state, rng, action, outcome));
    if (outcome->reward > bound)
        outcome->reward = bound;
    if (outcome->reward < -bound)
        outcome->reward = -bound;
    return TRP_OK;
}

const trp_env_impl clip_reward_impl = {
    .state_bytes = sizeof(trp_wrapped),
    .options = &table,
    .reset = trp_wrapped_reset,
    .step = clip_step,
    .observe = trp_wrapped_observe,
};
