/* The options of DQN. Sources are named in include/troupe/dqn.h. */
#include "dqn.h"

#include <math.h>

#include "core/limits.h"
#include "limits.h"
#include "options.h"

_Static_assert(sizeof(trp_dqn_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(trp_dqn_options, member), __VA_ARGS__                                           \
    }

static const char *const losses[] = {"huber", "munchausen", "c51", "quantile", NULL};

static const trp_option dqn_rows[] = {
    ROW(network, .choices = option_networks, .fixed = true,
        .help = "auto: nature for images of bytes, else mlp"),
    ROW(hidden, .fallback = "64,64", .max = 65536, .fixed = true, .needs = "network=auto|mlp",
        .help = "widths of the hidden layers of mlp; an empty list: none"),
    ROW(activation, .fallback = "relu", .choices = option_activations, .fixed = true,
        .needs = "network=auto|mlp", .help = "of the hidden layers of mlp"),
    ROW(dueling, .fixed = true, .help = "a value and an advantage stream"),
    ROW(noisy, .fixed = true, .help = "explores by noise on the weights, not by epsilon"),
    ROW(precision, .choices = option_precisions,
        .help = "bf16: factors of products are rounded to bfloat16, which may be faster"),
    ROW(no_double, .help = "the target network's own maximum, as in the first DQN"),
    ROW(loss, .choices = losses, .fixed = true,
        .help = "what an action's value is and is learned from: a number, a distribution"),
    ROW(munchausen_temperature, .fallback = "0.03", .min = 1e-6, .max = 1e6,
        .needs = "loss=munchausen", .help = "of the soft policy of munchausen"),
    ROW(munchausen_scale, .fallback = "0.9", .max = 1e6, .negative_is_zero = true,
        .needs = "loss=munchausen",
        .help = "alpha of munchausen: how much of the policy's logarithm is reward"),
    ROW(munchausen_least, .fallback = "-1", .min = -1e30, .max = -1e-30, .needs = "loss=munchausen",
        .help = "where munchausen cuts temperature * log policy off"),
    ROW(atoms, .fallback = "51", .min = 2, .max = ATOMS_MAX, .fixed = true, .needs = "loss=c51",
        .help = "values of c51"),
    ROW(value_least, .fallback = "-10", .min = -1e30, .max = 1e30, .needs = "loss=c51",
        .help = "the first atom of c51"),
    ROW(value_most, .fallback = "10", .min = -1e30, .max = 1e30, .needs = "loss=c51",
        .help = "the last atom of c51"),
    ROW(quantiles, .fallback = "200", .min = 1, .max = ATOMS_MAX, .fixed = true,
        .needs = "loss=quantile", .help = "of the loss quantile"),
    ROW(n_step, .fallback = "3", .min = 1, .max = NSTEP_MAX, .unit = "steps", .fixed = true,
        .help = "rewards of an item before it bootstraps"),
    ROW(discount, .fallback = "0.99", .max = 1, .fixed = true, .help = "gamma"),
    ROW(optimizer, .choices = option_optimizers, .fixed = true,
        .help = "turns gradients into steps"),
    ROW(learning_rate, .fallback = "1e-3", .max = 1e6, .help = "of the optimizer"),
    ROW(rate_schedule, .choices = option_schedules,
        .help = "how the learning rate goes to final_learning_rate within schedule_steps"),
    ROW(final_learning_rate, .max = 1e6, .needs = "rate_schedule=linear|cosine",
        .help = "where a rate_schedule ends"),
    ROW(schedule_steps, .max = INFINITY, .unit = "learner steps",
        .needs = "rate_schedule=linear|cosine", .help = "of rate_schedule"),
    ROW(warmup_steps, .max = INFINITY, .unit = "learner steps",
        .help = "during which the learning rate grows from 0"),
    ROW(weight_decay, .max = 1e6,
        .help = "added to the gradient; with adamw and lamb, to the step instead"),
    ROW(adam_beta1, .fallback = "0.9", .max = 0.999999, .negative_is_zero = true,
        .needs = "optimizer=adam|adamw|lamb", .help = "how much of the mean gradient is kept"),
    ROW(adam_beta2, .fallback = "0.999", .max = 0.999999, .negative_is_zero = true,
        .needs = "optimizer=adam|adamw|lamb", .help = "how much of the mean square is kept"),
    ROW(optimizer_epsilon, .max = 1, .needs = "optimizer=adam|adamw|rmsprop|lamb|adagrad",
        .help = "0: the optimizer's own, which is 1e-8, 1e-6 of lamb, 1e-10 of adagrad"),
    ROW(momentum, .max = 0.999999, .needs = "optimizer=sgd|rmsprop", .help = "of the optimizer"),
    ROW(nesterov, .needs = "optimizer=sgd", .help = "sgd looks ahead along its momentum"),
    ROW(rmsprop_alpha, .fallback = "0.99", .max = 0.999999, .negative_is_zero = true,
        .needs = "optimizer=rmsprop", .help = "how much of the mean square is kept"),
    ROW(rmsprop_centered, .fixed = true, .needs = "optimizer=rmsprop",
        .help = "divides by a deviation, not by a mean square"),
    ROW(rmsprop_epsilon_inside, .needs = "optimizer=rmsprop",
        .help = "the epsilon is under the root, as in TensorFlow"),
    ROW(max_gradient_norm, .fallback = "10", .max = 1e30, .negative_is_zero = true,
        .help = "gradients are scaled down to this global norm; 0: not at all"),
    ROW(huber_delta, .fallback = "1", .min = 1e-30, .max = 1e30,
        .needs = "loss=huber|munchausen|quantile", .help = "an error beyond it counts linearly"),
    ROW(batch_size, .fallback = "128", .min = 1, .max = BATCH_MAX, .unit = "items",
        .help = "of an update"),
    ROW(target_period, .fallback = "100", .min = 1, .max = UINT32_MAX, .unit = "learner steps",
        .needs = "target_rate=0", .help = "between copies to the target network"),
    ROW(target_rate, .max = 1,
        .help = "above 0: the target network moves this share of the way at each step"),
    ROW(epsilon_start, .fallback = "1", .max = 1, .negative_is_zero = true, .needs = "noisy=false",
        .help = "exploration rate at the first step"),
    ROW(epsilon_end, .fallback = "0.05", .max = 1, .negative_is_zero = true, .needs = "noisy=false",
        .help = "exploration rate after epsilon_steps"),
    ROW(epsilon_steps, .fallback = "10000", .min = 1, .max = INFINITY, .unit = "actor steps",
        .needs = "noisy=false", .help = "of all actors together, during which exploration falls"),
    ROW(epsilon_alpha, .max = 1e6, .needs = "noisy=false",
        .help = "how much less the last actor explores; 0: all alike; Ape-X has 7"),
    ROW(replay_size, .fallback = "100000", .min = 1, .max = TABLE_ITEMS_MAX, .unit = "items",
        .help = "that the table keeps"),
    ROW(min_replay_size, .fallback = "1000", .min = 1, .max = TABLE_ITEMS_MAX, .unit = "items",
        .help = "before the first update; at most replay_size"),
    ROW(samples_per_insert, .fallback = "8", .max = 1e9, .negative_is_zero = true,
        .help = "how often an item is sampled on average; 0: as fast as both can"),
    ROW(insert_tolerance, .fallback = "0.1", .max = 1e9, .needs = "samples_per_insert!=0",
        .help = "error buffer: min_replay_size * insert_tolerance * samples_per_insert"),
    ROW(priority_exponent, .fallback = "0.6", .max = 100, .negative_is_zero = true,
        .help = "of prioritized replay; 0: uniform replay"),
    ROW(importance_exponent, .fallback = "0.4", .max = 1, .negative_is_zero = true,
        .needs = "priority_exponent!=0",
        .help = "beta of the importance weights; 0: no correction"),
    ROW(priority_epsilon, .fallback = "1e-3", .max = 1e30, .needs = "priority_exponent!=0",
        .help = "added to |td error|"),
};

const trp_option_table dqn_option_table = TRP_OPTION_TABLE("dqn", dqn_rows, trp_dqn_options);

const trp_option_table *trp_dqn_option_table(void)
{
    return &dqn_option_table;
}
