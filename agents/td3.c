/* TD3 as an agent: its options, its table, its adder. Sources are named in include/troupe/td3.h.
 * Options are resolved once, by trp_td3(): after it every number means itself. */
#include "td3.h"

#include <string.h>

#include "core/limits.h"
#include "limits.h"
#include "options.h"

_Static_assert(sizeof(trp_td3_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(trp_td3_options, member), __VA_ARGS__                                           \
    }

static const trp_option td3_rows[] = {
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
    ROW(policy_delay, .fallback = "2", .min = 1, .max = UINT32_MAX, .unit = "learner steps",
        .help = "from one step of the policy and the targets to the next"),
    ROW(target_rate, .fallback = "0.005", .min = 1e-9, .max = 1,
        .help = "share of the way that targets go at once"),
    ROW(target_noise, .fallback = "0.2", .max = 1e6, .negative_is_zero = true,
        .help = "deviation of the noise on the target policy's actions, in halves of their bounds' "
                "distance"),
    ROW(target_noise_clip, .fallback = "0.5", .min = 1e-9, .max = 1e6, .needs = "target_noise!=0",
        .help = "how far that noise goes"),
    ROW(imitation, .max = 1e6,
        .help = "TD3+BC: what following the critic weighs beside doing what was done; 0: TD3"),
    ROW(normalize_states, .fixed = true,
        .help = "networks see states of mean 0 and deviation 1 over the learner's dataset"),
    ROW(noise, .fallback = "0.1", .max = 1e6, .negative_is_zero = true,
        .help = "deviation of the noise on actors' actions, in halves of their bounds' distance"),
    ROW(random_steps, .fallback = "1000", .max = 1e15, .negative_is_zero = true,
        .unit = "actor steps",
        .help = "of all actors together, in which they do anything, each action as likely"),
    ROW(replay_size, .fallback = "1000000", .min = 1, .max = TABLE_ITEMS_MAX, .unit = "items",
        .help = "that the table keeps"),
    ROW(min_replay_size, .fallback = "1000", .min = 1, .max = TABLE_ITEMS_MAX, .unit = "items",
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

const trp_option_table td3_option_table = TRP_OPTION_TABLE("td3", td3_rows, trp_td3_options);

const trp_option_table *trp_td3_option_table(void)
{
    return &td3_option_table;
}

trp_td3_options td3_options(const trp_agent *agent)
{
    trp_td3_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

struct control_agent td3_parts(const trp_td3_options *options)
{
    struct torso_hidden hidden = {.hidden = options->hidden, .activation = options->activation};
    return (struct control_agent){
        .control = {.who = "td3",
                    .kind = CONTROL_DETERMINISTIC,
                    .hidden = hidden,
                    .precision = options->precision,
                    .normalize_states = options->normalize_states,
                    .noise = options->noise,
                    .random_steps = options->random_steps},
        .critics = {.who = "td3",
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

static trp_status td3_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_td3_options options = td3_options(agent);
    struct control_agent parts = td3_parts(&options);
    return control_agent_check(&parts, env);
}

static trp_status td3_tables(const trp_agent *agent, const trp_env_spec *env,
                             trp_agent_table_list *list)
{
    trp_td3_options options = td3_options(agent);
    struct control_agent parts = td3_parts(&options);
    return transitions_tables(&parts.transitions, env, NULL, list);
}

static trp_status td3_policy(const trp_agent *agent, const trp_env_spec *env,
                             const trp_policy_options *place, trp_policy **out)
{
    trp_td3_options options = td3_options(agent);
    struct control_agent parts = td3_parts(&options);
    return control_policy_create(&parts.control, env, place, out);
}

static trp_status td3_adder(const trp_agent *agent, const trp_adder_options *options,
                            trp_adder **out)
{
    trp_td3_options td3 = td3_options(agent);
    struct control_agent parts = td3_parts(&td3);
    return transitions_adder(&parts.transitions, options, out);
}

static const trp_agent_impl td3_impl = {
    .name = "td3",
    .options = &td3_option_table,
    .check = td3_check,
    .tables = td3_tables,
    .policy = td3_policy,
    .adder = td3_adder,
    .updater = td3_updater_create,
};

trp_agent trp_td3(const trp_td3_options *options)
{
    return trp_agent_make(&td3_impl, options);
}
