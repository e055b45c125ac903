/* A3C as an agent: its queue, its adder, its network. Sources are named in include/troupe/a3c.h. */
#include "a3c.h"

#include <string.h>

#include "options.h"

trp_a3c_options a3c_options(const trp_agent *agent)
{
    trp_a3c_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

struct unroll a3c_unroll(const trp_a3c_options *options)
{
    return (struct unroll){.network = {.who = "a3c",
                                       .network = options->network,
                                       .hidden = {options->hidden, options->activation, false},
                                       .separate = options->separate,
                                       .core = options->core,
                                       .core_size = options->core_size,
                                       .init = TRP_INIT_ORTHOGONAL,
                                       .precision = options->precision},
                           .table = A3C_TABLE,
                           .steps = options->unroll,
                           .batch_size = options->batch_size,
                           .queue_size = options->batch_size};
}

static struct unroll_rate a3c_rate(const trp_a3c_options *options)
{
    return (struct unroll_rate){options->rate_schedule, options->final_learning_rate,
                                options->schedule_steps};
}

trp_optimizer a3c_optimizer(const trp_a3c_options *options)
{
    struct unroll_rate rate = a3c_rate(options);
    trp_optimizer optimizer = {.kind = options->adam ? TRP_ADAM : TRP_RMSPROP,
                               .learning_rate = option_itself((double)options->learning_rate),
                               .epsilon = option_decimal(options->optimizer_epsilon),
                               .max_norm = (double)options->max_gradient_norm};
    unroll_rate_set(&rate, &optimizer);
    if (!options->adam) {
        optimizer.alpha = option_itself(option_decimal(options->rmsprop_alpha));
        optimizer.epsilon_inside = true;
    }
    return optimizer;
}

static trp_status a3c_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_a3c_options options = a3c_options(agent);
    struct unroll unroll = a3c_unroll(&options);
    struct unroll_rate rate = a3c_rate(&options);
    TRP_TRY(unroll_check(&unroll, env));
    return unroll_rate_check(&rate, "a3c");
}

static trp_status a3c_tables(const trp_agent *agent, const trp_env_spec *env,
                             trp_agent_table_list *list)
{
    trp_a3c_options options = a3c_options(agent);
    struct unroll unroll = a3c_unroll(&options);
    return unroll_tables(&unroll, env, list);
}

static trp_status a3c_adder(const trp_agent *agent, const trp_adder_options *options,
                            trp_adder **out)
{
    trp_a3c_options a3c = a3c_options(agent);
    struct unroll unroll = a3c_unroll(&a3c);
    return unroll_adder(&unroll, options, out);
}

static trp_status a3c_policy(const trp_agent *agent, const trp_env_spec *env,
                             const trp_policy_options *place, trp_policy **out)
{
    trp_a3c_options options = a3c_options(agent);
    struct unroll unroll = a3c_unroll(&options);
    return actor_critic_policy_create(&unroll.network, env, place, out);
}

static const trp_agent_impl a3c_impl = {
    .name = "a3c",
    .options = &a3c_option_table,
    .check = a3c_check,
    .tables = a3c_tables,
    .policy = a3c_policy,
    .adder = a3c_adder,
    .updater = a3c_updater_create,
};

trp_agent trp_a3c(const trp_a3c_options *options)
{
    return trp_agent_make(&a3c_impl, options);
}
