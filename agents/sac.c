/* SAC as an agent: its options, its table, its adder. Sources are named in include/troupe/sac.h.
 * Options are resolved once, by trp_sac(): after it every number means itself. */
#include "sac.h"

#include <string.h>

#include "conservative.h"
#include "core/limits.h"
#include "limits.h"
#include "options.h"

_Static_assert(sizeof(trp_sac_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(trp_sac_options, member), __VA_ARGS__                                           \
    }

static const trp_option sac_rows[] = {
    ROW(hidden, .fallback = "256,256", .max = 65536, .fixed = true,
        .help = "widths of the hidden layers of policy and critics; an empty list: none"),
    ROW(activation, .fallback = "relu", .choices = option_activations, .fixed = true,
        .help = "of the hidden layers"),
    ROW(precision, .choices = option_precisions,
        .help = "bf16: factors of products are rounded to bfloat16, which may be faster"),
    ROW(n_step, .fallback = "1", .min = 1, .max = NSTEP_MAX, .unit = "steps", .fixed = true,
        .help = "rewards of an item before it bootstraps"),
    ROW(discount, .fallback = "0.99", .max = 1, .fixed = true, .help = "gamma"),
    ROW(learning_rate, .fallback = "3e-4", .max = 1e6, .help = "of Adam, the policy's"),
    ROW(critic_learning_rate, .fallback = "3e-4", .max = 1e6, .help = "of Adam, the critics'"),
    ROW(max_gradient_norm, .max = 1e30,
        .help = "gradients are scaled down to this global norm; 0: not at all"),
    ROW(batch_size, .fallback = "256", .min = 1, .max = BATCH_MAX, .unit = "items",
        .help = "of an update"),
    ROW(target_rate, .fallback = "0.005", .min = 1e-9, .max = 1,
        .help = "share of the way that target critics go at once"),
    ROW(temperature, .max = 1e6, .fixed = true,
        .help = "what a nat of entropy is worth; 0: it is learned"),
    ROW(initial_temperature, .fallback = "1", .min = 1e-6, .max = 1e6, .needs = "temperature=0",
        .help = "where a learned temperature begins"),
    ROW(temperature_learning_rate, .fallback = "3e-4", .max = 1e6, .needs = "temperature=0",
        .help = "of Adam, the temperature's"),
    ROW(target_entropy, .min = -1e6, .max = 1e6, .unit = "nats", .needs = "temperature=0",
        .help = "of actions in [-1, 1]; 0: minus the numbers of an action"),
    ROW(conservative, .max = 1e6, .fixed = true,
        .help = "CQL: what critics are made to think less of actions that nobody did; 0: SAC"),
    ROW(conservative_samples, .fallback = "10", .min = 1, .max = 1024, .unit = "actions",
        .fixed = true, .needs = "conservative!=0",
        .help = "of each kind at a state: uniform, the policy's there, the policy's at the next"),
    ROW(bc_steps, .fallback = "50000", .max = 1e15, .negative_is_zero = true,
        .unit = "learner steps", .needs = "conservative!=0",
        .help = "CQL: the first, in which the policy learns to do what was done"),
    ROW(random_steps, .fallback = "10000", .max = 1e15, .negative_is_zero = true,
        .unit = "actor steps",
        .help = "of all actors together, in which they do anything, each action as likely"),
    ROW(replay_size, .fallback = "1000000", .min = 1, .max = TABLE_ITEMS_MAX, .unit = "items",
        .help = "that the table keeps"),
    ROW(min_replay_size, .fallback = "10000", .min = 1, .max = TABLE_ITEMS_MAX, .unit = "items",
        .help = "before the first update; at most replay_size"),
    ROW(samples_per_insert, .fallback = "256", .max = 1e9, .negative_is_zero = true,
        .help = "how often an item is sampled on average; 0: as fast as both can"),
    ROW(insert_tolerance, .fallback = "0.1", .max = 1e9, .needs = "samples_per_insert!=0",
        .help = "error buffer: min_replay_size * insert_tolerance * samples_per_insert"),
    ROW(priority_exponent, .max = 100, .help = "of prioritized replay; 0: uniform replay"),
    ROW(importance_exponent, .fallback = "0.4", .max = 1, .negative_is_zero = true,
        .needs = "priority_exponent!=0",
        .help = "beta of the importance weights of prioritized replay; 0: no correction"),
    ROW(priority_epsilon, .fallback = "1e-3", .max = 1e30, .needs = "priority_exponent!=0",
        .help = "added to the larger |td error| of both critics"),
};

const trp_option_table sac_option_table = TRP_OPTION_TABLE("sac", sac_rows, trp_sac_options);

const trp_option_table *trp_sac_option_table(void)
{
    return &sac_option_table;
}

trp_sac_options sac_options(const trp_agent *agent)
{
    trp_sac_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

struct control_agent sac_parts(const trp_sac_options *options)
{
    struct torso_hidden hidden = {.hidden = options->hidden, .activation = options->activation};
    return (struct control_agent){
        .control = {.who = "sac",
                    .kind = CONTROL_SQUASHED,
                    .hidden = hidden,
                    .precision = options->precision,
                    .random_steps = options->random_steps},
        .critics = {.who = "sac",
                    .count = 2,
                    .outputs = 1,
                    .hidden = hidden,
                    .precision = options->precision},
        .transitions = {options->n_step,
                        options->discount,
                        {options->replay_size, options->min_replay_size,
                         options->samples_per_insert, options->insert_tolerance,
                         options->priority_exponent}}};
}

uint32_t sac_samples(const trp_sac_options *options)
{
    return options->conservative > 0 ? conservative_rows(options->conservative_samples) : 1;
}

static trp_status sac_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_sac_options options = sac_options(agent);
    struct control_agent parts = sac_parts(&options);
    TRP_TRY(control_agent_check_rows("sac", options.batch_size, sac_samples(&options)));
    return control_agent_check(&parts, env);
}

static trp_status sac_tables(const trp_agent *agent, const trp_env_spec *env,
                             trp_agent_table_list *list)
{
    trp_sac_options options = sac_options(agent);
    struct control_agent parts = sac_parts(&options);
    return transitions_tables(&parts.transitions, env, NULL, list);
}

static trp_status sac_policy(const trp_agent *agent, const trp_env_spec *env,
                             const trp_policy_options *place, trp_policy **out)
{
    trp_sac_options options = sac_options(agent);
    struct control_agent parts = sac_parts(&options);
    return control_policy_create(&parts.control, env, place, out);
}

static trp_status sac_adder(const trp_agent *agent, const trp_adder_options *options,
                            trp_adder **out)
{
    trp_sac_options sac = sac_options(agent);
    struct control_agent parts = sac_parts(&sac);
    return transitions_adder(&parts.transitions, options, out);
}

static const trp_agent_impl sac_impl = {
    .name = "sac",
    .options = &sac_option_table,
    .check = sac_check,
    .tables = sac_tables,
    .policy = sac_policy,
    .adder = sac_adder,
    .updater = sac_updater_create,
};

trp_agent trp_sac(const trp_sac_options *options)
{
    return trp_agent_make(&sac_impl, options);
}
