/* IQL as an agent: its options, its table, its adder. Sources are named in include/troupe/iql.h. */
#include "iql.h"

#include <string.h>

#include "limits.h"
#include "options.h"

_Static_assert(sizeof(trp_iql_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(trp_iql_options, member), __VA_ARGS__                                           \
    }

static const trp_option iql_rows[] = {
    ROW(hidden, .fallback = "256,256", .max = 65536, .fixed = true,
        .help = "widths of the hidden layers of all networks; an empty list: none"),
    ROW(activation, .fallback = "relu", .choices = option_activations, .fixed = true,
        .help = "of the hidden layers"),
    ROW(precision, .choices = option_precisions,
        .help = "bf16: factors of products are rounded to bfloat16, which may be faster"),
    ROW(discount, .fallback = "0.99", .max = 1, .fixed = true, .help = "gamma"),
    ROW(expectile, .fallback = "0.7", .min = 0.001, .max = 0.999,
        .help = "of the values of states"),
    ROW(beta, .fallback = "3", .max = 1e6, .min = 1e-6,
        .help = "what a unit of advantage is worth in the logarithm of a weight"),
    ROW(learning_rate, .fallback = "3e-4", .max = 1e6, .help = "of Adam, of all networks"),
    ROW(target_rate, .fallback = "0.005", .min = 1e-9, .max = 1,
        .help = "share of the way that target critics go at once"),
    ROW(batch_size, .fallback = "256", .min = 1, .max = BATCH_MAX, .unit = "items",
        .help = "of an update"),
};

static const trp_option_table iql_option_table = TRP_OPTION_TABLE("iql", iql_rows, trp_iql_options);

const trp_option_table *trp_iql_option_table(void)
{
    return &iql_option_table;
}

trp_iql_options iql_options(const trp_agent *agent)
{
    trp_iql_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

struct control_agent iql_parts(const trp_iql_options *options)
{
    return offline_parts(&(struct offline){.who = "iql",
                                           .hidden = options->hidden,
                                           .activation = options->activation,
                                           .precision = options->precision,
                                           .critics = 2,
                                           .discount = options->discount});
}

static trp_status iql_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_iql_options options = iql_options(agent);
    struct control_agent parts = iql_parts(&options);
    return control_agent_check(&parts, env);
}

static trp_status iql_tables(const trp_agent *agent, const trp_env_spec *env,
                             trp_agent_table_list *list)
{
    trp_iql_options options = iql_options(agent);
    struct control_agent parts = iql_parts(&options);
    return transitions_tables(&parts.transitions, env, NULL, list);
}

static trp_status iql_policy(const trp_agent *agent, const trp_env_spec *env,
                             const trp_policy_options *place, trp_policy **out)
{
    trp_iql_options options = iql_options(agent);
    struct control_agent parts = iql_parts(&options);
    return control_policy_create(&parts.control, env, place, out);
}

static trp_status iql_adder(const trp_agent *agent, const trp_adder_options *options,
                            trp_adder **out)
{
    trp_iql_options iql = iql_options(agent);
    struct control_agent parts = iql_parts(&iql);
    return transitions_adder(&parts.transitions, options, out);
}

static const trp_agent_impl iql_impl = {
    .name = "iql",
    .options = &iql_option_table,
    .check = iql_check,
    .tables = iql_tables,
    .policy = iql_policy,
    .adder = iql_adder,
    .updater = iql_updater_create,
};

trp_agent trp_iql(const trp_iql_options *options)
{
    return trp_agent_make(&iql_impl, options);
}
