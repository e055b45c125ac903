/* DQN as an agent: its options, its table, its adder. Sources are named in include/troupe/dqn.h.
 *
 * Options are resolved once, by trp_dqn(): after it every number means itself, so that the nodes of
 * a program, which all get copies of the agent, cannot disagree about a default. */
#include "dqn.h"

#include <string.h>

#include "options.h"

trp_dqn_options dqn_options(const trp_agent *agent)
{
    trp_dqn_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

trp_optimizer dqn_optimizer(const trp_dqn_options *options)
{
    return (trp_optimizer){
        .kind = options->optimizer,
        .schedule = options->rate_schedule,
        .learning_rate = option_itself((double)options->learning_rate),
        .final_rate = (double)options->final_learning_rate,
        .schedule_steps = options->schedule_steps,
        .warmup_steps = options->warmup_steps,
        .weight_decay = option_decimal(options->weight_decay),
        .beta1 = option_itself(option_decimal(options->adam_beta1)),
        .beta2 = option_itself(option_decimal(options->adam_beta2)),
        .alpha = option_itself(option_decimal(options->rmsprop_alpha)),
        .epsilon = option_decimal(options->optimizer_epsilon),
        .momentum = option_decimal(options->momentum),
        .nesterov = options->nesterov,
        .centered = options->rmsprop_centered,
        .epsilon_inside = options->rmsprop_epsilon_inside,
        .max_norm = (double)options->max_gradient_norm,
    };
}

struct exploration dqn_exploration(const trp_dqn_options *options)
{
    if (options->noisy)
        return (struct exploration){.steps = 1};
    return (struct exploration){options->epsilon_start, options->epsilon_end,
                                options->epsilon_alpha, options->epsilon_steps};
}

struct q_net dqn_net(const trp_dqn_options *options)
{
    return (struct q_net){.who = "dqn",
                          .network = options->network,
                          .hidden = options->hidden,
                          .activation = options->activation,
                          .dueling = options->dueling,
                          .noisy = options->noisy,
                          .atoms = dqn_atoms(options)};
}

/* ---- checks -------------------------------------------------------------------------------- */

struct transitions dqn_transitions(const trp_dqn_options *options)
{
    return (struct transitions){options->n_step,
                                options->discount,
                                {options->replay_size, options->min_replay_size,
                                 options->samples_per_insert, options->insert_tolerance,
                                 options->priority_exponent}};
}

static trp_status dqn_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_dqn_options options = dqn_options(agent);
    struct transitions transitions = dqn_transitions(&options);
    struct q_net net = dqn_net(&options);
    trp_optimizer optimizer = dqn_optimizer(&options);
    TRP_TRY(q_net_check(&net, env));
    TRP_TRY(replayed_check(&transitions.replayed, "dqn"));
    TRP_TRY(trp_optimizer_check(&optimizer, "dqn"));
    return dqn_loss_check(&options);
}

/* ---- table and adder ----------------------------------------------------------------------- */

static trp_status dqn_tables(const trp_agent *agent, const trp_env_spec *env,
                             trp_agent_table_list *list)
{
    trp_dqn_options options = dqn_options(agent);
    struct transitions transitions = dqn_transitions(&options);
    trp_columns extras = {0};
    dqn_extras(&options, env, &extras);
    trp_status status = transitions_tables(&transitions, env, &extras, list);
    trp_columns_cleanup(&extras);
    return status;
}

static trp_status dqn_adder(const trp_agent *agent, const trp_adder_options *options,
                            trp_adder **out)
{
    trp_dqn_options dqn = dqn_options(agent);
    struct transitions transitions = dqn_transitions(&dqn);
    return transitions_adder(&transitions, options, out);
}

static const trp_agent_impl dqn_impl = {
    .name = "dqn",
    .options = &dqn_option_table,
    .check = dqn_check,
    .tables = dqn_tables,
    .policy = dqn_policy_create,
    .adder = dqn_adder,
    .updater = dqn_updater_create,
};

trp_agent trp_dqn(const trp_dqn_options *options)
{
    return trp_agent_make(&dqn_impl, options);
}
