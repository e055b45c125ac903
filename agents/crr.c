/* CRR as an agent: its options, its table, its adder. Sources are named in include/troupe/crr.h. */
#include "crr.h"

#include <string.h>

#include "limits.h"
#include "options.h"

_Static_assert(sizeof(trp_crr_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(trp_crr_options, member), __VA_ARGS__                                           \
    }

static const trp_option crr_rows[] = {
    ROW(hidden, .fallback = "256,256", .max = 65536, .fixed = true,
        .help = "widths of the hidden layers of all networks; an empty list: none"),
    ROW(activation, .fallback = "relu", .choices = option_activations, .fixed = true,
        .help = "of the hidden layers"),
    ROW(precision, .choices = option_precisions,
        .help = "bf16: factors of products are rounded to bfloat16, which may be faster"),
    ROW(discount, .fallback = "0.99", .max = 1, .fixed = true, .help = "gamma"),
    ROW(critics, .fallback = "1", .min = 1, .max = 2, .fixed = true,
        .help = "2: the lesser of both targets is learned; advantages are the first one's"),
    ROW(samples, .fallback = "4", .min = 1, .max = 1024, .unit = "actions",
        .help = "that are drawn at a state for an advantage"),
    ROW(max, .help = "the advantage is over the largest of their values, not over the mean"),
    ROW(binary, .help = "weights are 1 where the advantage is above 0, else 0"),
    ROW(temperature, .fallback = "1", .min = 1e-6, .max = 1e6,
        .help = "weights are exp(advantage / temperature), at most 20"),
    ROW(learning_rate, .fallback = "3e-4", .max = 1e6, .help = "of Adam, the policy's"),
    ROW(critic_learning_rate, .fallback = "3e-4", .max = 1e6, .help = "of Adam, the critic's"),
    ROW(max_gradient_norm, .max = 1e30,
        .help = "gradients are scaled down to this global norm; 0: not at all"),
    ROW(target_period, .fallback = "100", .min = 1, .max = UINT32_MAX, .unit = "learner steps",
        .help = "between copies to the target networks"),
    ROW(batch_size, .fallback = "256", .min = 1, .max = BATCH_MAX, .unit = "items",
        .help = "of an update"),
};

static const trp_option_table crr_option_table = TRP_OPTION_TABLE("crr", crr_rows, trp_crr_options);

const trp_option_table *trp_crr_option_table(void)
{
    return &crr_option_table;
}

trp_crr_options crr_options(const trp_agent *agent)
{
    trp_crr_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

struct control_agent crr_parts(const trp_crr_options *options)
{
    return offline_parts(&(struct offline){.who = "crr",
                                           .hidden = options->hidden,
                                           .activation = options->activation,
                                           .precision = options->precision,
                                           .critics = options->critics,
                                           .discount = options->discount});
}

static trp_status crr_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_crr_options options = crr_options(agent);
    struct control_agent parts = crr_parts(&options);
    TRP_TRY(control_agent_check_rows("crr", options.batch_size, options.samples));
    return control_agent_check(&parts, env);
}

static trp_status crr_tables(const trp_agent *agent, const trp_env_spec *env,
                             trp_agent_table_list *list)
{
    trp_crr_options options = crr_options(agent);
    struct control_agent parts = crr_parts(&options);
    return transitions_tables(&parts.transitions, env, NULL, list);
}

static trp_status crr_policy(const trp_agent *agent, const trp_env_spec *env,
                             const trp_policy_options *place, trp_policy **out)
{
    trp_crr_options options = crr_options(agent);
    struct control_agent parts = crr_parts(&options);
    return control_policy_create(&parts.control, env, place, out);
}

static trp_status crr_adder(const trp_agent *agent, const trp_adder_options *options,
                            trp_adder **out)
{
    trp_crr_options crr = crr_options(agent);
    struct control_agent parts = crr_parts(&crr);
    return transitions_adder(&parts.transitions, options, out);
}

static const trp_agent_impl crr_impl = {
    .name = "crr",
    .options = &crr_option_table,
    .check = crr_check,
    .tables = crr_tables,
    .policy = crr_policy,
    .adder = crr_adder,
    .updater = crr_updater_create,
};

trp_agent trp_crr(const trp_crr_options *options)
{
    return trp_agent_make(&crr_impl, options);
}
