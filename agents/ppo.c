/* PPO as an agent: its queue, its adder, its network. Sources are named in include/troupe/ppo.h. */
#include "ppo.h"

#include <inttypes.h>
#include <string.h>

#include "options.h"

trp_ppo_options ppo_options(const trp_agent *agent)
{
    trp_ppo_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

struct unroll ppo_unroll(const trp_ppo_options *options)
{
    return (struct unroll){.network = {.who = "ppo",
                                       .network = options->network,
                                       .hidden = {options->hidden, options->activation, false},
                                       .separate = !options->shared,
                                       .init = TRP_INIT_ORTHOGONAL,
                                       .precision = options->precision},
                           .table = PPO_TABLE,
                           .steps = options->unroll,
                           .batch_size = options->batch_size,
                           .queue_size = options->batch_size};
}

struct unroll_rate ppo_rate(const trp_ppo_options *options)
{
    uint64_t phases = (uint64_t)options->epochs * options->minibatches;
    return (struct unroll_rate){options->rate_schedule, options->final_learning_rate,
                                options->schedule_steps * phases};
}

static trp_status ppo_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_ppo_options options = ppo_options(agent);
    struct unroll unroll = ppo_unroll(&options);
    struct unroll_rate rate = ppo_rate(&options);
    TRP_TRY(unroll_check(&unroll, env));
    TRP_TRY(unroll_rate_check(&rate, "ppo"));
    uint32_t steps = options.unroll * options.batch_size;
    if (options.minibatches > steps)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "ppo: minibatches is %" PRIu32 ", must be in [1, %" PRIu32
                        "], which is unroll times batch_size",
                        options.minibatches, steps);
    if (options.anneal_clip && options.schedule_steps == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "ppo: anneal_clip needs schedule_steps");
    return TRP_OK;
}

static trp_status ppo_tables(const trp_agent *agent, const trp_env_spec *env,
                             trp_agent_table_list *list)
{
    trp_ppo_options options = ppo_options(agent);
    struct unroll unroll = ppo_unroll(&options);
    return unroll_tables(&unroll, env, list);
}

static trp_status ppo_adder(const trp_agent *agent, const trp_adder_options *options,
                            trp_adder **out)
{
    trp_ppo_options ppo = ppo_options(agent);
    struct unroll unroll = ppo_unroll(&ppo);
    return unroll_adder(&unroll, options, out);
}

static trp_status ppo_policy(const trp_agent *agent, const trp_env_spec *env,
                             const trp_policy_options *place, trp_policy **out)
{
    trp_ppo_options options = ppo_options(agent);
    struct unroll unroll = ppo_unroll(&options);
    return actor_critic_policy_create(&unroll.network, env, place, out);
}

static const trp_agent_impl ppo_impl = {
    .name = "ppo",
    .options = &ppo_option_table,
    .check = ppo_check,
    .tables = ppo_tables,
    .policy = ppo_policy,
    .adder = ppo_adder,
    .updater = ppo_updater_create,
};

trp_agent trp_ppo(const trp_ppo_options *options)
{
    return trp_agent_make(&ppo_impl, options);
}
