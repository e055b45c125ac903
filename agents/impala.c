/* IMPALA as an agent: its queue, its adder, its network. Sources are named in
 * include/troupe/impala.h. */
#include "impala.h"

#include <string.h>

#include "options.h"

trp_impala_options impala_options(const trp_agent *agent)
{
    trp_impala_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

struct unroll impala_unroll(const trp_impala_options *options)
{
    return (struct unroll){.network = {.who = "impala",
                                       .network = options->network,
                                       .hidden = {options->hidden, options->activation, false},
                                       .separate = options->separate,
                                       .core = options->core,
                                       .core_size = options->core_size,
                                       .init = TRP_INIT_ORTHOGONAL,
                                       .precision = options->precision},
                           .table = IMPALA_TABLE,
                           .steps = options->unroll,
                           .batch_size = options->batch_size,
                           .queue_size = options->queue_batches * options->batch_size};
}

static struct unroll_rate impala_rate(const trp_impala_options *options)
{
    return (struct unroll_rate){options->rate_schedule, options->final_learning_rate,
                                options->schedule_steps};
}

trp_optimizer impala_optimizer(const trp_impala_options *options)
{
    struct unroll_rate rate = impala_rate(options);
    trp_optimizer optimizer = {.kind = options->optimizer,
                               .learning_rate = option_itself((double)options->learning_rate),
                               .beta1 = option_itself(option_decimal(options->adam_beta1)),
                               .beta2 = option_itself(option_decimal(options->adam_beta2)),
                               .alpha = option_itself(option_decimal(options->rmsprop_alpha)),
                               .epsilon = option_decimal(options->optimizer_epsilon),
                               .momentum = option_decimal(options->momentum),
                               .epsilon_inside = options->rmsprop_epsilon_inside,
                               .max_norm = (double)options->max_gradient_norm};
    unroll_rate_set(&rate, &optimizer);
    return optimizer;
}

static trp_status impala_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_impala_options options = impala_options(agent);
    struct unroll unroll = impala_unroll(&options);
    trp_optimizer optimizer = impala_optimizer(&options);
    struct unroll_rate rate = impala_rate(&options);
    TRP_TRY(unroll_check(&unroll, env));
    TRP_TRY(unroll_rate_check(&rate, "impala"));
    if (options.c_bar > options.rho_bar)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "impala: c_bar is %g, must be in (0, %g], which is rho_bar",
                        (double)options.c_bar, (double)options.rho_bar);
    return trp_optimizer_check(&optimizer, "impala");
}

static trp_status impala_tables(const trp_agent *agent, const trp_env_spec *env,
                                trp_agent_table_list *list)
{
    trp_impala_options options = impala_options(agent);
    struct unroll unroll = impala_unroll(&options);
    return unroll_tables(&unroll, env, list);
}

static trp_status impala_adder(const trp_agent *agent, const trp_adder_options *options,
                               trp_adder **out)
{
    trp_impala_options impala = impala_options(agent);
    struct unroll unroll = impala_unroll(&impala);
    return unroll_adder(&unroll, options, out);
}

static trp_status impala_policy(const trp_agent *agent, const trp_env_spec *env,
                                const trp_policy_options *place, trp_policy **out)
{
    trp_impala_options options = impala_options(agent);
    struct unroll unroll = impala_unroll(&options);
    return actor_critic_policy_create(&unroll.network, env, place, out);
}

static const trp_agent_impl impala_impl = {
    .name = "impala",
    .options = &impala_option_table,
    .check = impala_check,
    .tables = impala_tables,
    .policy = impala_policy,
    .adder = impala_adder,
    .updater = impala_updater_create,
};

trp_agent trp_impala(const trp_impala_options *options)
{
    return trp_agent_make(&impala_impl, options);
}
