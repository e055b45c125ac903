/* The options of IMPALA. Sources are named in include/troupe/impala.h. */
#include "impala.h"

#include "limits.h"
#include "options.h"

_Static_assert(sizeof(trp_impala_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(trp_impala_options, member), __VA_ARGS__                                        \
    }

static const trp_option impala_rows[] = {
    ROW(network, .choices = option_networks, .fixed = true,
        .help = "auto: nature for images of bytes, else mlp; impala: the paper's large one"),
    ROW(hidden, .fallback = "64,64", .max = 65536, .fixed = true, .needs = "network=auto|mlp",
        .help = "widths of the hidden layers of mlp; an empty list: none"),
    ROW(activation, .fallback = "tanh", .choices = option_activations, .fixed = true,
        .needs = "network=auto|mlp", .help = "of the hidden layers of mlp"),
    ROW(separate, .fixed = true, .needs = "network=auto|mlp",
        .help = "policy and value have layers of their own in mlp; without a core"),
    ROW(core, .choices = option_cores, .fixed = true, .help = "what remembers, behind the network"),
    ROW(core_size, .fallback = "256", .min = 1, .max = 65536, .fixed = true,
        .needs = "core=lstm|gru", .help = "hidden units of the core"),
    ROW(precision, .choices = option_precisions,
        .help = "bf16: factors of products are rounded to bfloat16, which may be faster"),
    ROW(discount, .fallback = "0.99", .max = 1, .help = "gamma"),
    ROW(unroll, .fallback = "20", .min = 1, .max = UNROLL_MAX, .unit = "steps", .fixed = true,
        .help = "of a sequence"),
    ROW(batch_size, .fallback = "32", .min = 1, .max = SEQUENCES_MAX, .unit = "sequences",
        .help = "of an update"),
    ROW(queue_batches, .fallback = "10", .min = 1, .max = IMPALA_QUEUE_MAX, .unit = "batches",
        .help = "that the queue holds: the more, the older is what is learned from"),
    ROW(optimizer, .choices = option_optimizers, .fixed = true,
        .help = "turns gradients into steps"),
    ROW(learning_rate, .fallback = "2e-4", .max = 1e6, .help = "of the optimizer"),
    ROW(rate_schedule, .fallback = "linear", .choices = option_schedules,
        .help = "how the learning rate goes to final_learning_rate within schedule_steps"),
    ROW(final_learning_rate, .max = 1e6, .needs = "rate_schedule=linear|cosine",
        .help = "where a rate_schedule ends"),
    ROW(schedule_steps, .max = 1e9, .unit = "learner steps", .help = "of rate_schedule; 0: none"),
    ROW(adam_beta1, .max = 0.999999, .needs = "optimizer=adam|adamw|lamb",
        .help = "how much of the mean gradient is kept"),
    ROW(adam_beta2, .fallback = "0.99", .max = 0.999999, .negative_is_zero = true,
        .needs = "optimizer=adam|adamw|lamb", .help = "how much of the mean square is kept"),
    ROW(optimizer_epsilon, .max = 1, .needs = "optimizer=adam|adamw|rmsprop|lamb|adagrad",
        .help = "0: the optimizer's own, which is 1e-8, 1e-6 of lamb, 1e-10 of adagrad"),
    ROW(momentum, .max = 0.999999, .needs = "optimizer=sgd|rmsprop", .help = "of the optimizer"),
    ROW(rmsprop_alpha, .fallback = "0.99", .max = 0.999999, .negative_is_zero = true,
        .needs = "optimizer=rmsprop", .help = "how much of the mean square is kept"),
    ROW(rmsprop_epsilon_inside, .needs = "optimizer=rmsprop",
        .help = "the epsilon is under the root, as in TensorFlow"),
    ROW(max_gradient_norm, .fallback = "40", .max = 1e30, .negative_is_zero = true,
        .help = "gradients are scaled down to this global norm; 0: not at all"),
    ROW(rho_bar, .fallback = "1", .min = 1e-6, .max = 1e6,
        .help = "where V-trace cuts ratios off: what its values are of"),
    ROW(c_bar, .fallback = "1", .min = 1e-6, .max = 1e6,
        .help = "the same of its traces: how far back errors reach; at most rho_bar"),
    ROW(policy_rho_bar, .fallback = "1", .min = 1e-6, .max = 1e6,
        .help = "the same of the policy gradient's weights"),
    ROW(lambda, .fallback = "1", .min = 1e-6, .max = 1, .help = "what traces are multiplied by"),
    ROW(entropy_weight, .fallback = "0.01", .max = 1e6, .negative_is_zero = true,
        .help = "what a nat of entropy is worth"),
    ROW(value_weight, .fallback = "1", .max = 1e6,
        .help = "of the loss of values, which is half a squared error"),
};

const trp_option_table impala_option_table =
    TRP_OPTION_TABLE("impala", impala_rows, trp_impala_options);

const trp_option_table *trp_impala_option_table(void)
{
    return &impala_option_table;
}
