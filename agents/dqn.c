/* DQN as an agent: its options, its table, its adder. Sources are named in include/troupe/dqn.h.
 *
 * Options are resolved once, in trp_dqn(): after it every number means itself, so that the nodes of
 * a program, which all get copies of the agent, cannot disagree about a default. */
#include "dqn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limits.h"
#include "core/limits.h"

_Static_assert(sizeof(trp_dqn_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

static float option_or(float value, float otherwise)
{
    return value == 0 ? otherwise : value;
}

/* Negative: 0. */
static float or_default_or_none(float value, float otherwise)
{
    return value < 0 ? 0 : option_or(value, otherwise);
}

static void resolve_network(trp_dqn_options *to, const trp_dqn_options *from)
{
    for (size_t i = 0; i < TRP_NET_HIDDEN_MAX && from->hidden[i]; i++)
        to->hidden[i] = from->hidden[i];
    if (to->hidden[0] == 0)
        to->hidden[0] = to->hidden[1] = 64;
    to->activation = from->activation;
    to->dueling = from->dueling;
    to->no_double = from->no_double;
}

static void resolve_learning(trp_dqn_options *to, const trp_dqn_options *from)
{
    to->n_step = from->n_step ? from->n_step : 3;
    to->discount = option_or(from->discount, 0.99F);
    to->learning_rate = option_or(from->learning_rate, 1e-3F);
    to->adam_epsilon = option_or(from->adam_epsilon, 1e-8F);
    to->max_gradient_norm = or_default_or_none(from->max_gradient_norm, 10);
    to->huber_delta = option_or(from->huber_delta, 1);
    to->batch_size = from->batch_size ? from->batch_size : 128;
    to->target_period = from->target_period ? from->target_period : 100;
    to->target_rate = from->target_rate;
    to->priority_exponent = or_default_or_none(from->priority_exponent, 0.6F);
    to->importance_exponent = or_default_or_none(from->importance_exponent, 0.4F);
    to->priority_epsilon = option_or(from->priority_epsilon, 1e-3F);
}

static void resolve_experience(trp_dqn_options *to, const trp_dqn_options *from)
{
    to->epsilon_start = or_default_or_none(from->epsilon_start, 1);
    to->epsilon_end = or_default_or_none(from->epsilon_end, 0.05F);
    to->epsilon_steps = from->epsilon_steps ? from->epsilon_steps : 10000;
    to->epsilon_alpha = from->epsilon_alpha;
    to->replay_size = from->replay_size ? from->replay_size : 100000;
    to->min_replay_size = from->min_replay_size ? from->min_replay_size : 1000;
    to->samples_per_insert = or_default_or_none(from->samples_per_insert, 8);
    to->insert_tolerance = option_or(from->insert_tolerance, 0.1F);
}

trp_dqn_options dqn_options(const trp_agent *agent)
{
    trp_dqn_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

trp_net_spec dqn_net_spec(const trp_dqn_options *options, const trp_env_spec *env)
{
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec); /* compared and hashed as bytes */
    spec.inputs = (uint32_t)(trp_tensor_bytes(&env->observation) / sizeof(float));
    spec.outputs = (uint32_t)env->action_count;
    memcpy(spec.hidden, options->hidden, sizeof spec.hidden);
    spec.activation = options->activation;
    spec.dueling = options->dueling;
    return spec;
}

double dqn_epsilon(const trp_dqn_options *options, uint32_t index, uint32_t count, uint64_t steps)
{
    double done = (double)steps / (double)options->epsilon_steps;
    double epsilon = options->epsilon_start +
                     (options->epsilon_end - options->epsilon_start) * (done < 1 ? done : 1);
    if (count < 2)
        return epsilon;
    return pow(epsilon, 1 + options->epsilon_alpha * index / (count - 1));
}

/* ---- checks -------------------------------------------------------------------------------- */

struct option_range {
    const char *name;
    double value, low, high;
};

static trp_status check_ranges(const trp_dqn_options *options)
{
    const struct option_range ranges[] = {
        {"n_step", options->n_step, 1, NSTEP_MAX},
        {"discount", options->discount, 0, 1},
        {"learning_rate", options->learning_rate, 0, 1e6},
        {"adam_epsilon", options->adam_epsilon, 0, 1},
        {"max_gradient_norm", options->max_gradient_norm, 0, 1e30},
        {"huber_delta", options->huber_delta, 1e-30, 1e30},
        {"batch_size", options->batch_size, 1, DQN_BATCH_MAX},
        {"target_rate", options->target_rate, 0, 1},
        {"epsilon_start", options->epsilon_start, 0, 1},
        {"epsilon_end", options->epsilon_end, 0, 1},
        {"epsilon_alpha", options->epsilon_alpha, 0, 1e6},
        {"replay_size", (double)options->replay_size, 1, (double)TABLE_ITEMS_MAX},
        {"min_replay_size", (double)options->min_replay_size, 1, (double)options->replay_size},
        {"samples_per_insert", options->samples_per_insert, 0, 1e9},
        {"insert_tolerance", options->insert_tolerance, 0, 1e9},
        {"priority_exponent", options->priority_exponent, 0, 100},
        {"importance_exponent", options->importance_exponent, 0, 100},
        {"priority_epsilon", options->priority_epsilon, 0, 1e30},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        const struct option_range *range = &ranges[i];
        if (!(range->value >= range->low && range->value <= range->high))
            return trp_fail(TRP_INVALID_ARGUMENT, "dqn: %s is %g, must be in [%g, %g]", range->name,
                            range->value, range->low, range->high);
    }
    return TRP_OK;
}

static trp_status dqn_check(const trp_agent *agent, const trp_env_spec *env)
{
    if (env->action_kind != TRP_ACTION_DISCRETE)
        return trp_fail(TRP_INVALID_ARGUMENT, "dqn: %s has continuous actions, needs choices",
                        env->name);
    if (env->observation.dtype != TRP_FLOAT32)
        return trp_fail(TRP_INVALID_ARGUMENT, "dqn: %s observes %s, needs float32", env->name,
                        trp_dtype_name(env->observation.dtype));
    trp_dqn_options options = dqn_options(agent);
    TRP_TRY(check_ranges(&options));
    trp_net_spec spec = dqn_net_spec(&options, env);
    TRP_TRY(trp_net_spec_check(&spec));
    size_t bytes = trp_net_param_count(&spec) * sizeof(float);
    if (bytes > PARAMS_BYTES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "dqn: the network's %zu parameters are %.1f MiB; actors can pull %.1f MiB "
                        "at most: make .hidden smaller",
                        bytes / sizeof(float), (double)bytes / (1 << 20),
                        (double)PARAMS_BYTES_MAX / (1 << 20));
    return TRP_OK;
}

/* ---- table and adder ----------------------------------------------------------------------- */

/* The number that was written, not the float nearest to it: 0.6, not 0.60000002384. Tables are
 * described in decimal. */
static double decimal(float value)
{
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return strtod(text, NULL);
}

/* Acme's rule for the error buffer, but never narrower than one insert is worth. */
static trp_rate_limiter limiter(const trp_dqn_options *options)
{
    double ratio = decimal(options->samples_per_insert);
    if (ratio == 0)
        return trp_limiter_min_size(options->min_replay_size);
    double buffer = (double)options->min_replay_size * decimal(options->insert_tolerance) * ratio;
    double least = 2 * fmax(1, ratio);
    return trp_limiter_samples_per_insert(ratio, options->min_replay_size, fmax(buffer, least));
}

static trp_status dqn_tables(const trp_agent *agent, const trp_env_spec *env,
                             trp_agent_table_list *list)
{
    trp_dqn_options options = dqn_options(agent);
    trp_tensor_spec columns[TRP_NSTEP_COLUMNS];
    trp_nstep_columns(env, columns);
    trp_table_options *table = &list->tables[0];
    *table = (trp_table_options){
        .name = DQN_TABLE,
        .sampler = {.kind = TRP_UNIFORM},
        .max_size = options.replay_size,
        .limiter = limiter(&options),
    };
    if (options.priority_exponent > 0)
        table->sampler = (trp_selector){TRP_PRIORITIZED, decimal(options.priority_exponent)};
    TRP_TRY(trp_signature_encode(columns, TRP_NSTEP_COLUMNS, &table->signature));
    list->count = 1;
    return TRP_OK;
}

static trp_status dqn_adder(const trp_agent *agent, const trp_env_spec *env,
                            const trp_adder_options *options, trp_adder **out)
{
    trp_dqn_options dqn = dqn_options(agent);
    return trp_nstep_adder_create(out, &(trp_nstep_options){.replay = options->replay,
                                                            .table = DQN_TABLE,
                                                            .env = env,
                                                            .copies = options->copies,
                                                            .n_step = dqn.n_step,
                                                            .discount = dqn.discount,
                                                            .seed = options->seed});
}

static const trp_agent_impl dqn_impl = {
    .name = "dqn",
    .check = dqn_check,
    .tables = dqn_tables,
    .policy = dqn_policy_create,
    .adder = dqn_adder,
    .updater = dqn_updater_create,
};

trp_agent trp_dqn(const trp_dqn_options *options)
{
    static const trp_dqn_options none;
    const trp_dqn_options *from = options ? options : &none;
    trp_dqn_options resolved;
    memset(&resolved, 0, sizeof resolved); /* padding too: agents are hashed as bytes */
    resolve_network(&resolved, from);
    resolve_learning(&resolved, from);
    resolve_experience(&resolved, from);
    trp_agent agent;
    memset(&agent, 0, sizeof agent);
    agent.impl = &dqn_impl;
    memcpy(agent.options.bytes, &resolved, sizeof resolved);
    return agent;
}
