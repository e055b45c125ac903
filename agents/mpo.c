/* MPO as an agent: its options, its table, its adder. Sources are named in include/troupe/mpo.h.
 * Options are resolved once, by trp_mpo(): after it every number means itself. */
#include "mpo.h"

#include <string.h>

#include "core/limits.h"
#include "limits.h"
#include "options.h"

_Static_assert(sizeof(trp_mpo_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(trp_mpo_options, member), __VA_ARGS__                                           \
    }

static const trp_option mpo_rows[] = {
    ROW(hidden, .fallback = "256,256,256", .max = 65536, .fixed = true,
        .help = "widths of the hidden layers of the policy; an empty list: none"),
    ROW(critic_hidden, .fallback = "512,512,256", .max = 65536, .fixed = true,
        .help = "widths of the hidden layers of the critic; an empty list: none"),
    ROW(activation, .fallback = "elu", .choices = option_activations, .fixed = true,
        .help = "of the hidden layers, but that with the layer norm"),
    ROW(no_layer_norm, .fixed = true,
        .help = "no layer norm and tanh behind the first hidden layer of each"),
    ROW(precision, .choices = option_precisions,
        .help = "bf16: factors of products are rounded to bfloat16, which may be faster"),
    ROW(initial_deviation, .fallback = "0.7", .min = 1e-6, .max = 7,
        .help = "of the policy, in halves of the distance between the bounds"),
    ROW(n_step, .fallback = "5", .min = 1, .max = NSTEP_MAX, .unit = "steps", .fixed = true,
        .help = "rewards of an item before it bootstraps"),
    ROW(discount, .fallback = "0.99", .max = 1, .fixed = true, .help = "gamma"),
    ROW(learning_rate, .fallback = "1e-4", .max = 1e6, .help = "of Adam, the policy's"),
    ROW(critic_learning_rate, .fallback = "1e-4", .max = 1e6, .help = "of Adam, the critic's"),
    ROW(dual_learning_rate, .fallback = "1e-2", .max = 1e6,
        .help = "of Adam, of temperatures and multipliers"),
    ROW(max_gradient_norm, .fallback = "40", .max = 1e30, .negative_is_zero = true,
        .help = "gradients are scaled down to this global norm; 0: not at all"),
    ROW(batch_size, .fallback = "256", .min = 1, .max = BATCH_MAX, .unit = "items",
        .help = "of an update"),
    ROW(target_period, .fallback = "100", .min = 1, .max = UINT32_MAX, .unit = "learner steps",
        .needs = "target_rate=0", .help = "between copies to the target networks"),
    ROW(target_rate, .max = 1,
        .help = "above 0: the target networks move this share of the way at each step"),
    ROW(samples, .fallback = "20", .min = 2, .max = MPO_SAMPLES_MAX, .unit = "actions",
        .help = "of the target policy at each state"),
    ROW(epsilon, .fallback = "0.1", .min = 1e-9, .max = 1e6, .unit = "nats",
        .help = "how far the weighted policy is from the target policy"),
    ROW(epsilon_penalty, .fallback = "0.001", .min = 1e-9, .max = 1e6, .unit = "nats",
        .needs = "no_action_penalty=false",
        .help = "the same of the one that is weighted by costs beyond the bounds"),
    ROW(epsilon_mean, .fallback = "0.0025", .min = 1e-9, .max = 1e6, .unit = "nats",
        .help = "how far the policy is from the target policy, if only means differed"),
    ROW(epsilon_deviation, .fallback = "1e-6", .min = 1e-9, .max = 1e6, .unit = "nats",
        .help = "the same, if only deviations differed"),
    ROW(joint_bounds, .fixed = true,
        .help = "both of all numbers of an action together, not of each one"),
    ROW(no_action_penalty, .fixed = true, .help = "actions beyond the bounds cost nothing"),
    ROW(initial_temperature, .fallback = "10", .min = -18, .max = 1e6,
        .help = "the number whose softplus the temperatures are"),
    ROW(initial_alpha_mean, .fallback = "10", .min = -18, .max = 1e6,
        .help = "the number whose softplus multiplies the divergence by means"),
    ROW(initial_alpha_deviation, .fallback = "1000", .min = -18, .max = 1e6,
        .help = "the number whose softplus multiplies the divergence by deviations"),
    ROW(random_steps, .max = 1e15, .unit = "actor steps",
        .help = "of all actors together, in which they do anything, each action as likely"),
    ROW(replay_size, .fallback = "1000000", .min = 1, .max = TABLE_ITEMS_MAX, .unit = "items",
        .help = "that the table keeps"),
    ROW(min_replay_size, .fallback = "1000", .min = 1, .max = TABLE_ITEMS_MAX, .unit = "items",
        .help = "before the first update; at most replay_size"),
    ROW(samples_per_insert, .fallback = "32", .max = 1e9, .negative_is_zero = true,
        .help = "how often an item is sampled on average; 0: as fast as both can"),
    ROW(insert_tolerance, .fallback = "0.1", .max = 1e9, .needs = "samples_per_insert!=0",
        .help = "error buffer: min_replay_size * insert_tolerance * samples_per_insert"),
    ROW(priority_exponent, .max = 100, .help = "of prioritized replay; 0: uniform replay"),
    ROW(importance_exponent, .fallback = "0.4", .max = 1, .negative_is_zero = true,
        .needs = "priority_exponent!=0",
        .help = "beta of the importance weights of prioritized replay; 0: no correction"),
    ROW(priority_epsilon, .fallback = "1e-3", .max = 1e30, .needs = "priority_exponent!=0",
        .help = "added to |td error|"),
};

const trp_option_table mpo_option_table = TRP_OPTION_TABLE("mpo", mpo_rows, trp_mpo_options);

const trp_option_table *trp_mpo_option_table(void)
{
    return &mpo_option_table;
}

trp_mpo_options mpo_options(const trp_agent *agent)
{
    trp_mpo_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

struct control_agent mpo_parts(const trp_mpo_options *options)
{
    return (struct control_agent){
        .control = {.who = "mpo",
                    .kind = CONTROL_GAUSSIAN,
                    .hidden = {options->hidden, options->activation, !options->no_layer_norm},
                    .head_variance = 1e-4F,
                    .precision = options->precision,
                    .random_steps = options->random_steps},
        .critics = {.who = "mpo",
                    .count = 1,
                    .outputs = 1,
                    .hidden = {options->critic_hidden, options->activation,
                               !options->no_layer_norm},
                    .precision = options->precision},
        .transitions = {options->n_step,
                        options->discount,
                        {options->replay_size, options->min_replay_size,
                         options->samples_per_insert, options->insert_tolerance,
                         options->priority_exponent}}};
}

static trp_status mpo_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_mpo_options options = mpo_options(agent);
    struct control_agent parts = mpo_parts(&options);
    TRP_TRY(control_agent_check_rows("mpo", options.batch_size, options.samples));
    return control_agent_check(&parts, env);
}

static trp_status mpo_tables(const trp_agent *agent, const trp_env_spec *env,
                             trp_agent_table_list *list)
{
    trp_mpo_options options = mpo_options(agent);
    struct control_agent parts = mpo_parts(&options);
    return transitions_tables(&parts.transitions, env, NULL, list);
}

static trp_status mpo_policy(const trp_agent *agent, const trp_env_spec *env,
                             const trp_policy_options *place, trp_policy **out)
{
    trp_mpo_options options = mpo_options(agent);
    struct control_agent parts = mpo_parts(&options);
    return control_policy_create(&parts.control, env, place, out);
}

static trp_status mpo_adder(const trp_agent *agent, const trp_adder_options *options,
                            trp_adder **out)
{
    trp_mpo_options mpo = mpo_options(agent);
    struct control_agent parts = mpo_parts(&mpo);
    return transitions_adder(&parts.transitions, options, out);
}

static const trp_agent_impl mpo_impl = {
    .name = "mpo",
    .options = &mpo_option_table,
    .check = mpo_check,
    .tables = mpo_tables,
    .policy = mpo_policy,
    .adder = mpo_adder,
    .updater = mpo_updater_create,
};

trp_agent trp_mpo(const trp_mpo_options *options)
{
    return trp_agent_make(&mpo_impl, options);
}
