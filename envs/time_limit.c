/* Another limit than the environment's own; the interface keeps it. */
#include "wrapper.h"

struct time_limit {
    trp_wrapping wrapping;
    int64_t time_limit;
};

static const trp_option rows[] = {
    {TRP_OPTION(struct time_limit, time_limit), .min = 1, .max = 1e15, .unit = "steps",
     .help = "of an episode"},
};
static const trp_option_table table = TRP_OPTION_TABLE("time_limit", rows, struct time_limit);

static trp_status time_limit_configure(void *arguments, void *user, trp_env_spec *spec)
{
    (void)user;
    spec->max_episode_steps = ((const struct time_limit *)arguments)->time_limit;
    return TRP_OK;
}

const trp_env_impl time_limit_impl = {
    .state_bytes = sizeof(trp_wrapped),
    .options = &table,
    .configure = time_limit_configure,
    .reset = trp_wrapped_reset,
    .step = trp_wrapped_step,
    .observe = trp_wrapped_observe,
};
