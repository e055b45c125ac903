/* R2D2 as an agent: its options, its table, its adder. Sources are named in include/troupe/r2d2.h.
 * Options are resolved once, by trp_r2d2(): after it every number means itself. */
#include "r2d2.h"

#include <math.h>
#include <string.h>

#include "core/limits.h"
#include "limits.h"
#include "options.h"
#include "replayed.h"

_Static_assert(sizeof(trp_r2d2_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(trp_r2d2_options, member), __VA_ARGS__                                          \
    }

static const trp_option r2d2_rows[] = {
    ROW(network, .choices = option_networks, .fixed = true,
        .help = "auto: nature for images of bytes, else mlp"),
    ROW(hidden, .fallback = "64", .max = 65536, .fixed = true, .needs = "network=auto|mlp",
        .help = "widths of the hidden layers of mlp, before the core; an empty list: none"),
    ROW(activation, .fallback = "relu", .choices = option_activations, .fixed = true,
        .needs = "network=auto|mlp", .help = "of the hidden layers of mlp"),
    ROW(core, .fallback = "lstm", .choices = option_cores, .fixed = true,
        .help = "what remembers; not none"),
    ROW(core_size, .fallback = "128", .min = 1, .max = 65536, .fixed = true,
        .help = "hidden units of the core"),
    ROW(dueling, .fixed = true, .help = "a value and an advantage stream"),
    ROW(precision, .choices = option_precisions,
        .help = "bf16: factors of products are rounded to bfloat16, which may be faster"),
    ROW(burn_in, .fallback = "40", .max = UNROLL_MAX, .negative_is_zero = true, .unit = "steps",
        .fixed = true,
        .help = "an item's first steps, which only bring the core's state up to date"),
    ROW(trace, .fallback = "80", .min = 1, .max = UNROLL_MAX, .unit = "steps", .fixed = true,
        .help = "an item's other steps, which are learned from"),
    ROW(period, .fallback = "40", .min = 1, .max = UNROLL_MAX, .unit = "steps", .fixed = true,
        .help = "between the beginnings of two items of an episode"),
    ROW(n_step, .fallback = "5", .min = 1, .max = UNROLL_MAX, .unit = "steps",
        .help = "rewards of a return before it bootstraps"),
    ROW(discount, .fallback = "0.997", .max = 1, .help = "gamma"),
    ROW(rescaling_epsilon, .fallback = "1e-3", .min = 1e-30, .max = 1,
        .help = "of h, in which values are learned"),
    ROW(huber_delta, .max = 1e30, .help = "an error beyond it counts linearly; 0: none does"),
    ROW(learning_rate, .fallback = "1e-3", .max = 1e6, .help = "of Adam"),
    ROW(adam_epsilon, .fallback = "1e-3", .max = 1, .help = "of Adam; the paper's"),
    ROW(max_gradient_norm, .fallback = "40", .max = 1e30, .negative_is_zero = true,
        .help = "gradients are scaled down to this global norm; 0: not at all"),
    ROW(batch_size, .fallback = "64", .min = 1, .max = SEQUENCES_MAX, .unit = "items",
        .help = "of an update"),
    ROW(target_period, .fallback = "2500", .min = 1, .max = UINT32_MAX, .unit = "learner steps",
        .help = "between copies to the target network"),
    ROW(epsilon_start, .fallback = "1", .max = 1, .negative_is_zero = true,
        .help = "exploration rate at the first step"),
    ROW(epsilon_end, .fallback = "0.05", .max = 1, .negative_is_zero = true,
        .help = "exploration rate after epsilon_steps"),
    ROW(epsilon_steps, .fallback = "10000", .min = 1, .max = INFINITY, .unit = "actor steps",
        .help = "of all actors together, during which exploration falls"),
    ROW(epsilon_alpha, .max = 1e6,
        .help = "how much less the last actor explores; 0: all alike; the paper has 7"),
    ROW(replay_size, .fallback = "2500", .min = 1, .max = TABLE_ITEMS_MAX, .unit = "items",
        .help = "that the table keeps"),
    ROW(min_replay_size, .fallback = "1250", .min = 1, .max = TABLE_ITEMS_MAX, .unit = "items",
        .help = "before the first update; at most replay_size"),
    ROW(samples_per_insert, .fallback = "4", .max = 1e9, .negative_is_zero = true,
        .help = "how often an item is sampled on average; 0: as fast as both can"),
    ROW(insert_tolerance, .fallback = "0.1", .max = 1e9, .needs = "samples_per_insert!=0",
        .help = "error buffer: min_replay_size * insert_tolerance * samples_per_insert"),
    ROW(priority_exponent, .fallback = "0.9", .max = 100, .negative_is_zero = true,
        .help = "of prioritized replay; 0: uniform replay"),
    ROW(priority_eta, .fallback = "0.9", .max = 1, .negative_is_zero = true,
        .needs = "priority_exponent!=0",
        .help = "what an item's largest error weighs in its priority, 1 - eta being the mean's"),
    ROW(importance_exponent, .fallback = "0.6", .max = 1, .negative_is_zero = true,
        .needs = "priority_exponent!=0",
        .help = "beta of the importance weights; 0: no correction"),
};

const trp_option_table r2d2_option_table = TRP_OPTION_TABLE("r2d2", r2d2_rows, trp_r2d2_options);

const trp_option_table *trp_r2d2_option_table(void)
{
    return &r2d2_option_table;
}

trp_r2d2_options r2d2_options(const trp_agent *agent)
{
    trp_r2d2_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

struct q_net r2d2_net(const trp_r2d2_options *options)
{
    return (struct q_net){.who = "r2d2",
                          .network = options->network,
                          .hidden = options->hidden,
                          .activation = options->activation,
                          .dueling = options->dueling,
                          .atoms = 1,
                          .core = options->core,
                          .core_size = options->core_size};
}

struct exploration r2d2_exploration(const trp_r2d2_options *options)
{
    return (struct exploration){options->epsilon_start, options->epsilon_end,
                                options->epsilon_alpha, options->epsilon_steps};
}

/* ---- items --------------------------------------------------------------------------------- */

trp_sequence_options r2d2_sequence(const trp_r2d2_options *options)
{
    static const char *const first_extras[] = {R2D2_STATE, NULL};
    return (trp_sequence_options){.length = (uint32_t)options->burn_in + options->trace + 1,
                                  .period = options->period,
                                  .end = TRP_END_PAD,
                                  .first_extras = first_extras};
}

void r2d2_extras(const trp_r2d2_options *options, const trp_env_spec *env, trp_columns *extras)
{
    struct q_net net = r2d2_net(options);
    trp_net_spec spec = q_net_spec(&net, env);
    trp_columns_add(
        extras, R2D2_STATE,
        &(trp_tensor_spec){.dtype = TRP_FLOAT32, .rank = 1, .shape = {trp_net_state_width(&spec)}});
    if (env->masked)
        trp_columns_add(
            extras, R2D2_MASK,
            &(trp_tensor_spec){.dtype = TRP_BOOL, .rank = 1, .shape = {env->action_count}});
}

static struct replayed r2d2_replayed(const trp_r2d2_options *options)
{
    return (struct replayed){options->replay_size, options->min_replay_size,
                             options->samples_per_insert, options->insert_tolerance,
                             options->priority_exponent};
}

trp_status r2d2_check_batch(const trp_r2d2_options *options, uint32_t batch_size)
{
    uint32_t rows = r2d2_sequence(options).length;
    if ((uint64_t)rows * batch_size <= UPDATE_ROWS_MAX)
        return TRP_OK;
    return trp_fail(
        TRP_INVALID_ARGUMENT,
        "r2d2: %u rows of an item times batch_size %u are more than %d, which an update "
        "may have",
        rows, batch_size, UPDATE_ROWS_MAX);
}

static trp_status check_items(const trp_r2d2_options *options)
{
    uint32_t steps = r2d2_sequence(options).length - 1;
    if (options->core == TRP_NO_CORE)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "r2d2: core is none, must be lstm or gru: without one it is dqn");
    if (steps > UNROLL_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "r2d2: burn_in + trace is %u steps, must be in [1, %d]", steps, UNROLL_MAX);
    if (options->period > options->trace)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "r2d2: period is %u, must be in [1, %u], which is trace: what lies between "
                        "two traces is never learned from",
                        options->period, options->trace);
    return r2d2_check_batch(options, options->batch_size);
}

static trp_status r2d2_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_r2d2_options options = r2d2_options(agent);
    struct replayed replayed = r2d2_replayed(&options);
    struct q_net net = r2d2_net(&options);
    TRP_TRY(check_items(&options));
    TRP_TRY(replayed_check(&replayed, "r2d2"));
    return q_net_check(&net, env);
}

static trp_status r2d2_tables(const trp_agent *agent, const trp_env_spec *env,
                              trp_agent_table_list *list)
{
    trp_r2d2_options options = r2d2_options(agent);
    trp_sequence_options sequence = r2d2_sequence(&options);
    struct replayed replayed = r2d2_replayed(&options);
    trp_columns columns = {0}, extras = {0};
    r2d2_extras(&options, env, &extras);
    trp_sequence_columns(env, &extras, &sequence, &columns);
    trp_columns_cleanup(&extras);
    trp_table_options table = replayed_table(&replayed, R2D2_TABLE);
    return trp_agent_table_list_add(list, &table, &columns);
}

static trp_status r2d2_adder(const trp_agent *agent, const trp_adder_options *options,
                             trp_adder **out)
{
    trp_r2d2_options r2d2 = r2d2_options(agent);
    trp_sequence_options sequence = r2d2_sequence(&r2d2);
    trp_adder_options own = *options;
    own.table = R2D2_TABLE;
    return trp_sequence_adder_create(out, &own, &sequence);
}

static const trp_agent_impl r2d2_impl = {
    .name = "r2d2",
    .options = &r2d2_option_table,
    .check = r2d2_check,
    .tables = r2d2_tables,
    .policy = r2d2_policy_create,
    .adder = r2d2_adder,
    .updater = r2d2_updater_create,
};

trp_agent trp_r2d2(const trp_r2d2_options *options)
{
    return trp_agent_make(&r2d2_impl, options);
}
