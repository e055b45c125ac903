/* DQN as an agent: its options, its table, its adder. Sources are named in include/troupe/dqn.h.
 *
 * Options are resolved once, by trp_dqn(): after it every number means itself, so that the nodes of
 * a program, which all get copies of the agent, cannot disagree about a default. */
#include "dqn.h"

#include <math.h>
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

double dqn_epsilon(const trp_dqn_options *options, uint32_t index, uint32_t count, uint64_t steps)
{
    if (options->noisy)
        return 0;
    double done = (double)steps / (double)options->epsilon_steps;
    double epsilon = options->epsilon_start +
                     (options->epsilon_end - options->epsilon_start) * (done < 1 ? done : 1);
    if (count < 2)
        return epsilon;
    return pow(epsilon, 1 + options->epsilon_alpha * index / (count - 1));
}

/* ---- checks -------------------------------------------------------------------------------- */

static trp_status dqn_check(const trp_agent *agent, const trp_env_spec *env)
{
    static const char *const kinds[] = {[TRP_ACTION_BOX] = "continuous actions",
                                        [TRP_ACTION_MULTI_DISCRETE] =
                                            "choices in several dimensions",
                                        [TRP_ACTION_MULTI_BINARY] = "bits for actions"};
    if (env->action_kind != TRP_ACTION_DISCRETE)
        return trp_fail(TRP_INVALID_ARGUMENT, "dqn: %s has %s, needs one choice", env->name,
                        kinds[env->action_kind]);
    trp_dqn_options options = dqn_options(agent);
    if (options.min_replay_size > options.replay_size)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "dqn: min_replay_size is %lld, must be in [1, %lld], which is replay_size",
                        (long long)options.min_replay_size, (long long)options.replay_size);
    trp_optimizer optimizer = dqn_optimizer(&options);
    TRP_TRY(trp_optimizer_check(&optimizer, "dqn"));
    TRP_TRY(dqn_loss_check(&options));
    return dqn_net_check(&options, env);
}

/* ---- table and adder ----------------------------------------------------------------------- */

/* Acme's rule for the error buffer, but never narrower than one insert is worth. */
static trp_rate_limiter limiter(const trp_dqn_options *options)
{
    double ratio = option_decimal(options->samples_per_insert);
    if (ratio == 0)
        return trp_limiter_min_size(options->min_replay_size);
    double buffer =
        (double)options->min_replay_size * option_decimal(options->insert_tolerance) * ratio;
    double least = 2 * fmax(1, ratio);
    return trp_limiter_samples_per_insert(ratio, options->min_replay_size, fmax(buffer, least));
}

static trp_status dqn_tables(const trp_agent *agent, const trp_env_spec *env,
                             trp_agent_table_list *list)
{
    trp_dqn_options options = dqn_options(agent);
    trp_columns columns = {0}, extras = {0};
    dqn_extras(&options, env, &extras);
    trp_nstep_columns(env, &extras, &columns);
    trp_columns_cleanup(&extras);
    trp_table_options table = {
        .name = DQN_TABLE,
        .sampler = {.kind = TRP_UNIFORM},
        .max_size = options.replay_size,
        .limiter = limiter(&options),
    };
    if (options.priority_exponent > 0)
        table.sampler = (trp_selector){TRP_PRIORITIZED, option_decimal(options.priority_exponent)};
    return trp_agent_table_list_add(list, &table, &columns);
}

static trp_status dqn_adder(const trp_agent *agent, const trp_adder_options *options,
                            trp_adder **out)
{
    trp_dqn_options dqn = dqn_options(agent);
    trp_adder_options own = *options;
    own.table = DQN_TABLE;
    return trp_nstep_adder_create(
        out, &own, &(trp_nstep_options){.n_step = dqn.n_step, .discount = dqn.discount});
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
