/* The options of A3C. Sources are named in include/troupe/a3c.h. */
#include "a3c.h"

#include "limits.h"
#include "options.h"

_Static_assert(sizeof(trp_a3c_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(trp_a3c_options, member), __VA_ARGS__                                           \
    }

static const trp_option a3c_rows[] = {
    ROW(network, .choices = option_networks, .fixed = true,
        .help = "auto: nature for images of bytes, else mlp"),
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
    ROW(unroll, .fallback = "5", .min = 1, .max = UNROLL_MAX, .unit = "steps", .fixed = true,
        .help = "of a sequence, t_max: what an update is made of"),
    ROW(batch_size, .fallback = "1", .min = 1, .max = SEQUENCES_MAX, .unit = "sequences",
        .help = "of an update: more than one of a learner that steps as many envs is A2C"),
    ROW(adam, .fixed = true, .help = "the optimizer is Adam, in place of RMSProp"),
    ROW(learning_rate, .fallback = "7e-4", .max = 1e6, .help = "of the optimizer"),
    ROW(rate_schedule, .fallback = "linear", .choices = option_schedules,
        .help = "how the learning rate goes to final_learning_rate within schedule_steps"),
    ROW(final_learning_rate, .max = 1e6, .needs = "rate_schedule=linear|cosine",
        .help = "where a rate_schedule ends"),
    ROW(schedule_steps, .max = 1e9, .unit = "learner steps",
        .help = "of rate_schedule, all learners' together; 0: none"),
    ROW(rmsprop_alpha, .fallback = "0.99", .max = 0.999999, .negative_is_zero = true,
        .needs = "adam=false", .help = "how much of the mean square is kept"),
    ROW(optimizer_epsilon, .fallback = "1e-5", .min = 1e-30, .max = 1,
        .help = "of the optimizer; RMSProp's is under the root"),
    ROW(max_gradient_norm, .fallback = "0.5", .max = 1e30, .negative_is_zero = true,
        .help = "gradients are scaled down to this global norm; 0: not at all"),
    ROW(entropy_weight, .fallback = "0.01", .max = 1e6, .negative_is_zero = true,
        .help = "what a nat of entropy is worth"),
    ROW(value_weight, .fallback = "1", .max = 1e6,
        .help = "of the loss of values, which is half a squared error"),
};

const trp_option_table a3c_option_table = TRP_OPTION_TABLE("a3c", a3c_rows, trp_a3c_options);

const trp_option_table *trp_a3c_option_table(void)
{
    return &a3c_option_table;
}
