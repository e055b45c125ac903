/* Every action is done several times. The limit of the inner environment counts inner steps. */
#include "wrapper.h"

struct action_repeat {
    trp_wrapping wrapping;
    uint32_t action_repeat;
    int64_t limit;
};

struct repeated {
    trp_wrapped wrapped;
    int64_t steps;
};

static const trp_option rows[] = {
    {TRP_OPTION(struct action_repeat, action_repeat), .min = 1, .max = 1000, .unit = "steps",
     .help = "of the same action"},
};
static const trp_option_table table = TRP_OPTION_TABLE("action_repeat", rows, struct action_repeat);

static trp_status repeat_configure(void *arguments, void *user, trp_env_spec *spec)
{
    (void)user;
    struct action_repeat *repeat = arguments;
    wrapping_keep_mask(&repeat->wrapping, spec);
    repeat->limit = spec->max_episode_steps;
    spec->max_episode_steps = 0;
    return TRP_OK;
}

static trp_status repeat_reset(void *state, trp_rng *rng)
{
    ((struct repeated *)state)->steps = 0;
    return trp_wrapped_reset(state, rng);
}

static trp_status repeat_step(void *state, trp_rng *rng, const void *action,
                              trp_env_outcome *outcome)
{
    struct repeated *repeated = state;
    const struct action_repeat *repeat = (const void *)repeated->wrapped.wrapping;
    return wrapped_repeat(state, rng, action, outcome, repeat->action_repeat, repeat->limit,
                          &repeated->steps, NULL);
}

const trp_env_impl action_repeat_impl = {
    .state_bytes = sizeof(struct repeated),
    .options = &table,
    .configure = repeat_configure,
    .reset = repeat_reset,
    .step = repeat_step,
    .observe = trp_wrapped_observe,
};
