/* The options of PPO. Sources are named in include/troupe/ppo.h. */
#include "ppo.h"

#include "limits.h"
#include "options.h"

_Static_assert(sizeof(trp_ppo_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(trp_ppo_options, member), __VA_ARGS__                                           \
    }

static const trp_option ppo_rows[] = {
    ROW(network, .choices = option_networks, .fixed = true,
        .help = "auto: nature for images of bytes, else mlp"),
    ROW(hidden, .fallback = "64,64", .max = 65536, .fixed = true, .needs = "network=auto|mlp",
        .help = "widths of the hidden layers of mlp; an empty list: none"),
    ROW(activation, .fallback = "tanh", .choices = option_activations, .fixed = true,
        .needs = "network=auto|mlp", .help = "of the hidden layers of mlp"),
    ROW(shared, .fixed = true, .needs = "network=auto|mlp",
        .help = "policy and value read the same layers of mlp"),
    ROW(precision, .choices = option_precisions,
        .help = "bf16: factors of products are rounded to bfloat16, which may be faster"),
    ROW(discount, .fallback = "0.99", .max = 1, .fixed = true, .help = "gamma"),
    ROW(gae_lambda, .fallback = "0.95", .max = 1, .negative_is_zero = true,
        .help = "how far back errors of values reach in an advantage"),
    ROW(unroll, .fallback = "128", .min = 1, .max = UNROLL_MAX, .unit = "steps", .fixed = true,
        .help = "of a sequence"),
    ROW(batch_size, .fallback = "4", .min = 1, .max = BATCH_MAX, .unit = "sequences",
        .help = "of an update"),
    ROW(epochs, .fallback = "4", .min = 1, .max = 1000, .help = "of an update: passes over it"),
    ROW(minibatches, .fallback = "4", .min = 1, .max = BATCH_MAX,
        .help = "that an epoch has, each of which is a step of the optimizer"),
    ROW(learning_rate, .fallback = "2.5e-4", .max = 1e6, .help = "of Adam"),
    ROW(rate_schedule, .fallback = "linear", .choices = option_schedules,
        .help = "how the learning rate goes to final_learning_rate within schedule_steps"),
    ROW(final_learning_rate, .max = 1e6, .needs = "rate_schedule=linear|cosine",
        .help = "where a rate_schedule ends"),
    ROW(schedule_steps, .max = 1e9, .unit = "learner steps",
        .help = "of rate_schedule and anneal_clip; 0: neither"),
    ROW(adam_epsilon, .fallback = "1e-5", .min = 1e-30, .max = 1, .help = "of Adam"),
    ROW(max_gradient_norm, .fallback = "0.5", .max = 1e30, .negative_is_zero = true,
        .help = "gradients are scaled down to this global norm; 0: not at all"),
    ROW(clip, .fallback = "0.2", .min = 1e-6, .max = 1e6,
        .help = "how far ratios of probabilities pay"),
    ROW(value_clip, .fallback = "0.2", .max = 1e30, .negative_is_zero = true,
        .help = "how far values go at once; 0: any"),
    ROW(anneal_clip, .help = "clip and value_clip fall to 0 within schedule_steps"),
    ROW(entropy_weight, .fallback = "0.01", .max = 1e6, .negative_is_zero = true,
        .help = "what a nat of entropy is worth"),
    ROW(value_weight, .fallback = "0.5", .max = 1e6, .help = "of the loss of values"),
    ROW(raw_advantages, .help = "advantages are not normalised in each minibatch"),
    ROW(target_kl, .max = 1e6,
        .help = "no more epochs once the policy has gone so far, in nats; 0: all"),
};

const trp_option_table ppo_option_table = TRP_OPTION_TABLE("ppo", ppo_rows, trp_ppo_options);

const trp_option_table *trp_ppo_option_table(void)
{
    return &ppo_option_table;
}
