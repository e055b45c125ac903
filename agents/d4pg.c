/* D4PG as an agent: its options, its table, its adder. Sources are named in include/troupe/d4pg.h.
 * Options are resolved once, by trp_d4pg(): after it every number means itself. */
#include "d4pg.h"

#include <string.h>

#include "core/limits.h"
#include "limits.h"
#include "options.h"

_Static_assert(sizeof(trp_d4pg_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(trp_d4pg_options, member), __VA_ARGS__                                          \
    }

static const trp_option d4pg_rows[] = {
    ROW(hidden, .fallback = "300,200", .max = 65536, .fixed = true,
        .help = "widths of the hidden layers of the policy; an empty list: none"),
    ROW(critic_hidden, .fallback = "400,300", .max = 65536, .fixed = true,
        .help = "widths of the hidden layers of the critic; an empty list: none"),
    ROW(activation, .fallback = "elu", .choices = option_activations, .fixed = true,
        .help = "of the hidden layers, but that with the layer norm"),
    ROW(no_layer_norm, .fixed = true,
        .help = "no layer norm and tanh behind the first hidden layer of each"),
    ROW(precision, .choices = option_precisions,
        .help = "bf16: factors of products are rounded to bfloat16, which may be faster"),
    ROW(atoms, .fallback = "51", .min = 2, .max = ATOMS_MAX, .fixed = true,
        .help = "values of the critic's distribution"),
    ROW(value_least, .fallback = "-150", .min = -1e30, .max = 1e30, .help = "the first atom"),
    ROW(value_most, .fallback = "150", .min = -1e30, .max = 1e30,
        .help = "the last atom; all returns lie between the two"),
    ROW(n_step, .fallback = "5", .min = 1, .max = NSTEP_MAX, .unit = "steps", .fixed = true,
        .help = "rewards of an item before it bootstraps"),
    ROW(discount, .fallback = "0.99", .max = 1, .fixed = true, .help = "gamma"),
    ROW(learning_rate, .fallback = "1e-4", .max = 1e6, .help = "of Adam, the policy's"),
    ROW(critic_learning_rate, .fallback = "1e-4", .max = 1e6, .help = "of Adam, the critic's"),
    ROW(max_gradient_norm, .fallback = "40", .max = 1e30, .negative_is_zero = true,
        .help = "gradients are scaled down to this global norm; 0: not at all"),
    ROW(max_action_gradient, .fallback = "1", .max = 1e30, .negative_is_zero = true,
        .help = "what a policy follows is scaled down to this norm, row by row; 0: not at all"),
    ROW(batch_size, .fallback = "256", .min = 1, .max = BATCH_MAX, .unit = "items",
        .help = "of an update"),
    ROW(target_period, .fallback = "100", .min = 1, .max = UINT32_MAX, .unit = "learner steps",
        .needs = "target_rate=0", .help = "between copies to the target networks"),
    ROW(target_rate, .max = 1,
        .help = "above 0: the target networks move this share of the way at each step"),
    ROW(noise, .fallback = "0.3", .max = 1e6, .negative_is_zero = true,
        .help = "deviation of the noise on actors' actions, in halves of their bounds' distance"),
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
        .help = "added to the divergence of the critic from its target"),
};

const trp_option_table d4pg_option_table = TRP_OPTION_TABLE("d4pg", d4pg_rows, trp_d4pg_options);

const trp_option_table *trp_d4pg_option_table(void)
{
    return &d4pg_option_table;
}

trp_d4pg_options d4pg_options(const trp_agent *agent)
{
    trp_d4pg_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

struct control_agent d4pg_parts(const trp_d4pg_options *options)
{
    return (struct control_agent){
        .control = {.who = "d4pg",
                    .kind = CONTROL_DETERMINISTIC,
                    .hidden = {options->hidden, options->activation, !options->no_layer_norm},
                    .head_variance = 1e-4F,
                    .precision = options->precision,
                    .noise = options->noise,
                    .random_steps = options->random_steps},
        .critics = {.who = "d4pg",
                    .count = 1,
                    .outputs = options->atoms,
                    .hidden = {options->critic_hidden, options->activation,
                               !options->no_layer_norm},
                    .precision = options->precision},
        .transitions = {options->n_step,
                        options->discount,
                        {options->replay_size, options->min_replay_size,
                         options->samples_per_insert, options->insert_tolerance,
                         options->priority_exponent}}};
}

static trp_status d4pg_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_d4pg_options options = d4pg_options(agent);
    struct control_agent parts = d4pg_parts(&options);
    if (options.value_least >= options.value_most)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "d4pg: value_least is %g, must be below value_most, which is %g",
                        (double)options.value_least, (double)options.value_most);
    return control_agent_check(&parts, env);
}

static trp_status d4pg_tables(const trp_agent *agent, const trp_env_spec *env,
                              trp_agent_table_list *list)
{
    trp_d4pg_options options = d4pg_options(agent);
    struct control_agent parts = d4pg_parts(&options);
    return transitions_tables(&parts.transitions, env, NULL, list);
}

static trp_status d4pg_policy(const trp_agent *agent, const trp_env_spec *env,
                              const trp_policy_options *place, trp_policy **out)
{
    trp_d4pg_options options = d4pg_options(agent);
    struct control_agent parts = d4pg_parts(&options);
    return control_policy_create(&parts.control, env, place, out);
}

static trp_status d4pg_adder(const trp_agent *agent, const trp_adder_options *options,
                             trp_adder **out)
{
    trp_d4pg_options d4pg = d4pg_options(agent);
    struct control_agent parts = d4pg_parts(&d4pg);
    return transitions_adder(&parts.transitions, options, out);
}

static const trp_agent_impl d4pg_impl = {
    .name = "d4pg",
    .options = &d4pg_option_table,
    .check = d4pg_check,
    .tables = d4pg_tables,
    .policy = d4pg_policy,
    .adder = d4pg_adder,
    .updater = d4pg_updater_create,
};

trp_agent trp_d4pg(const trp_d4pg_options *options)
{
    return trp_agent_make(&d4pg_impl, options);
}
