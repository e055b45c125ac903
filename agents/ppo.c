/* PPO as an agent: its queue, its adder, its network. Sources are named in include/troupe/ppo.h. */
#include "ppo.h"

#include <inttypes.h>
#include <string.h>

#include "limits.h"
#include "options.h"

trp_ppo_options ppo_options(const trp_agent *agent)
{
    trp_ppo_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

struct actor_critic ppo_actor_critic(const trp_ppo_options *options)
{
    return (struct actor_critic){.who = "ppo",
                                 .network = options->network,
                                 .hidden = {options->hidden, options->activation},
                                 .separate = !options->shared,
                                 .init = TRP_INIT_ORTHOGONAL,
                                 .precision = options->precision};
}

trp_sequence_options ppo_sequence(const trp_ppo_options *options)
{
    return (trp_sequence_options){
        .length = options->unroll + 1, .period = options->unroll, .end = TRP_END_CONTINUE};
}

static trp_status ppo_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_ppo_options options = ppo_options(agent);
    uint64_t steps = (uint64_t)options.unroll * options.batch_size;
    if (steps > UPDATE_ROWS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "ppo: unroll %" PRIu32 " times batch_size %" PRIu32
                        " are more steps than %d, which an update may have",
                        options.unroll, options.batch_size, UPDATE_ROWS_MAX);
    if (options.minibatches > steps)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "ppo: minibatches is %" PRIu32 ", must be in [1, %" PRIu64
                        "], which is unroll times batch_size",
                        options.minibatches, steps);
    if (options.anneal_clip && options.schedule_steps == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "ppo: anneal_clip needs schedule_steps");
    struct actor_critic network = ppo_actor_critic(&options);
    return actor_critic_check(&network, env);
}

static void item_columns(const trp_agent *agent, const trp_env_spec *env, trp_columns *columns)
{
    trp_ppo_options options = ppo_options(agent);
    struct actor_critic network = ppo_actor_critic(&options);
    trp_sequence_options sequence = ppo_sequence(&options);
    trp_columns extras = {0};
    actor_critic_extras(&network, env, &extras);
    trp_sequence_columns(env, &extras, &sequence, columns);
    trp_columns_cleanup(&extras);
}

static trp_status ppo_tables(const trp_agent *agent, const trp_env_spec *env,
                             trp_agent_table_list *list)
{
    trp_columns columns = {0};
    item_columns(agent, env, &columns);
    trp_table_options table = {.name = PPO_TABLE,
                               .sampler = {.kind = TRP_FIFO},
                               .max_times_sampled = 1,
                               .limiter = trp_limiter_queue(ppo_options(agent).batch_size)};
    return trp_agent_table_list_add(list, &table, &columns);
}

static trp_status ppo_adder(const trp_agent *agent, const trp_adder_options *options,
                            trp_adder **out)
{
    trp_ppo_options ppo = ppo_options(agent);
    trp_sequence_options sequence = ppo_sequence(&ppo);
    trp_adder_options own = *options;
    own.table = PPO_TABLE;
    return trp_sequence_adder_create(out, &own, &sequence);
}

static trp_status ppo_policy(const trp_agent *agent, const trp_env_spec *env,
                             const trp_policy_options *place, trp_policy **out)
{
    trp_ppo_options options = ppo_options(agent);
    struct actor_critic network = ppo_actor_critic(&options);
    return actor_critic_policy_create(&network, env, place, out);
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
