/* Rows of decisions: actions as a network's outputs say them, whatever their kind. */
#ifndef TRP_AGENTS_BODIES_DECISIONS_H
#define TRP_AGENTS_BODIES_DECISIONS_H

#include "nn/cuda/forms.h"
#include "nn/loss/batch_distributions.h"

struct action_space {
    bool continuous;
    bool masked;
    uint32_t size;  /* columns of what says it: choices of all parts together, or dimensions */
    uint32_t parts; /* numbers of an action */
    const int32_t *sizes; /* [parts]: choices of each; not read of one part, or where continuous */
    const float *low, *high;
};

/* Actions of rows, by what a network says there. */
struct decisions {
    struct action_space space;
    uint32_t rows;
    float *says;         /* [rows][size]: logits, or means */
    float *log_std;      /* [rows][size]; NULL where not continuous */
    const bool *mask;    /* [rows][size]: what may be done; NULL: all */
    const void *actions; /* [rows][parts]: int32, or float before it was cut to its bounds */
};

KERNEL_BODY trp_categorical decisions_categorical(const struct decisions *decisions)
{
    trp_categorical policy;
    policy.rows = decisions->rows;
    policy.choices = decisions->space.size;
    policy.parts = decisions->space.parts;
    policy.sizes = decisions->space.sizes;
    policy.logits = decisions->says;
    policy.mask = decisions->mask;
    return policy;
}

KERNEL_BODY trp_gaussian decisions_gaussian(const struct decisions *decisions)
{
    trp_gaussian policy;
    policy.rows = decisions->rows;
    policy.size = decisions->space.size;
    policy.mean = decisions->says;
    policy.log_std = decisions->log_std;
    policy.shared = policy.squashed = false;
    policy.low = policy.high = NULL;
    policy.least_log_std = policy.most_log_std = 0;
    return policy;
}

/* log_probs, entropies: [rows]. */
KERNEL_BODY void decisions_judge_at(const struct decisions *decisions, float *log_probs,
                                    float *entropies, size_t row)
{
    if (decisions->space.continuous) {
        trp_gaussian gaussian = decisions_gaussian(decisions);
        log_probs[row] = gaussian_log_prob_at(&gaussian, (const float *)decisions->actions, row);
        entropies[row] = gaussian_entropy_at(&gaussian, NULL, row);
    } else {
        trp_categorical categorical = decisions_categorical(decisions);
        log_probs[row] =
            categorical_log_prob_at(&categorical, (const int32_t *)decisions->actions, row);
        entropies[row] = categorical_entropy_at(&categorical, row);
    }
}

/* Makes of derivatives of them, [rows], those of `says` and `log_std`, in their place. */
KERNEL_BODY void decisions_back_at(const struct decisions *decisions, const float *dlog_probs,
                                   const float *dentropies, size_t row)
{
    if (decisions->space.continuous) {
        trp_gaussian gaussian = decisions_gaussian(decisions);
        trp_gaussian_grads grads;
        grads.actions = (const float *)decisions->actions;
        grads.log_probs = dlog_probs;
        grads.noise = grads.sample_actions = grads.sample_log_probs = NULL;
        grads.entropies = dentropies;
        grads.mean = decisions->says;
        grads.log_std = decisions->log_std;
        grads.add = false;
        gaussian_back_at(&gaussian, &grads, row);
    } else {
        trp_categorical categorical = decisions_categorical(decisions);
        trp_categorical_grads grads;
        grads.actions = (const int32_t *)decisions->actions;
        grads.log_probs = dlog_probs;
        grads.entropies = dentropies;
        grads.logits = decisions->says;
        grads.add = false;
        categorical_back_at(&categorical, &grads, row);
    }
}

#endif
