/* Numbers that policies draw, as kernels (nn/cuda/forms.h). A step has a seed, in the device's
 * memory, so that arguments are the same at each step; a draw has a number in its step, and what is
 * drawn in one place follows from the three alone. */
#ifndef TRP_AGENTS_BODIES_DRAWS_H
#define TRP_AGENTS_BODIES_DRAWS_H

#include "core/rng_body.h"
#include "nn/cuda/forms.h"
#include "nn/loss/batch_actor_critics.h"
#include "nn/loss/batch_distributions.h"

struct draw {
    const uint64_t *seed; /* of the step */
    uint32_t number;      /* in it */
};

KERNEL_BODY trp_rng draw_begin(const struct draw *draw, size_t place)
{
    trp_rng rng;
    rng_begin(&rng, *draw->seed, (uint64_t)draw->number << 32 | place);
    return rng;
}

enum control_kind {
    CONTROL_DETERMINISTIC, /* one output, "action", which tanh brings into [-1, 1] (D4PG, TD3) */
    CONTROL_SQUASHED,      /* outputs "mean" and "log_std" of a squashed Gaussian (SAC) */
    CONTROL_GAUSSIAN,      /* the same of one that is not squashed, but cut to the bounds (MPO) */
};

/* What those of a distribution say at `rows`, as distributions.h has it: of squashed ones with its
 * bounds (NULL: -1 and 1). log_std is kept in [-20, 2], as in SAC's implementations. */
KERNEL_BODY trp_gaussian control_gaussian(enum control_kind kind, uint32_t rows, uint32_t size,
                                          const float *mean, const float *log_std)
{
    trp_gaussian gaussian;
    gaussian.rows = rows;
    gaussian.size = size;
    gaussian.mean = mean;
    gaussian.log_std = log_std;
    gaussian.shared = false;
    gaussian.squashed = kind == CONTROL_SQUASHED;
    gaussian.low = gaussian.high = NULL;
    gaussian.least_log_std = -20;
    gaussian.most_log_std = 2;
    return gaussian;
}

KERNEL_BODY void draw_normals(trp_rng *rng, uint32_t size, float *noise)
{
    for (uint32_t i = 0; i < size; i++)
        noise[i] = (float)rng_normal(rng);
}

/* ---- squashed.draw, squashed.backward: one action a row, and gradients through it --------------
 */

struct squashed {
    uint32_t rows, size;
    float *mean, *log_std; /* [rows][size]: what control_spec()'s network says; gradients after
                              squashed_backward_on() */
    float *noise;          /* [rows][size], written by a draw, and what follows */
    float *actions;        /* [rows][size], in [-1, 1] */
    float *log_probs;      /* [rows] */
};

struct squashed_draw_arguments {
    struct squashed squashed;
    struct draw draw;
};

KERNEL_BODY trp_gaussian squashed_gaussian(const struct squashed *squashed)
{
    return control_gaussian(CONTROL_SQUASHED, squashed->rows, squashed->size, squashed->mean,
                            squashed->log_std);
}

KERNEL_BODY size_t squashed_draw_count(const struct squashed_draw_arguments *a)
{
    return a->squashed.rows;
}

KERNEL_BODY void squashed_draw_each(const struct squashed_draw_arguments *a, size_t row)
{
    const struct squashed *to = &a->squashed;
    trp_gaussian says = squashed_gaussian(to);
    trp_rng rng = draw_begin(&a->draw, row);
    draw_normals(&rng, to->size, to->noise + row * to->size);
    to->log_probs[row] = gaussian_transform_at(&says, to->noise, to->actions, row);
}

EACH_KERNEL(squashed_draw)

struct squashed_backward_arguments {
    struct squashed squashed;
    const float *dactions;
};

KERNEL_BODY size_t squashed_backward_count(const struct squashed_backward_arguments *a)
{
    return a->squashed.rows;
}

KERNEL_BODY void squashed_backward_each(const struct squashed_backward_arguments *a, size_t row)
{
    const struct squashed *to = &a->squashed;
    trp_gaussian says = squashed_gaussian(to);
    trp_gaussian_grads grads;
    grads.actions = grads.log_probs = grads.entropies = NULL;
    grads.noise = to->noise;
    grads.sample_actions = a->dactions;
    grads.sample_log_probs = to->log_probs;
    grads.mean = to->mean;
    grads.log_std = to->log_std;
    grads.add = false;
    gaussian_back_at(&says, &grads, row);
}

EACH_KERNEL(squashed_backward)

/* ---- samples.draw: several actions a row -------------------------------------------------------
 */

struct samples_arguments {
    enum control_kind kind; /* of a distribution */
    uint32_t rows, size;
    uint32_t count, stride; /* `count` draws a row, of the `stride` that what is written has room
                               for; 0: as many as are drawn */
    const float *mean, *log_std; /* [rows][size] */
    struct draw draw;
    float *actions;   /* [rows][stride][size], in [-1, 1]: cut where not squashed */
    float *log_probs; /* [rows][stride]: of squashed ones; NULL: not wanted */
};

KERNEL_BODY size_t samples_count(const struct samples_arguments *a)
{
    return (size_t)a->rows * a->count;
}

KERNEL_BODY void samples_each(const struct samples_arguments *a, size_t i)
{
    size_t row = i / a->count, at = row * a->stride + i % a->count;
    float *action = a->actions + at * a->size;
    trp_gaussian says =
        control_gaussian(a->kind, 1, a->size, a->mean + row * a->size, a->log_std + row * a->size);
    trp_rng rng = draw_begin(&a->draw, i);
    draw_normals(&rng, a->size, action);
    float log_prob = gaussian_transform_at(&says, action, action, 0);
    if (a->log_probs)
        a->log_probs[at] = log_prob;
    for (uint32_t k = 0; k < a->size; k++)
        action[k] = kept_within(action[k], -1, 1);
}

EACH_KERNEL(samples)

/* ---- conservative.uniform: the same, each action as likely -------------------------------------
 */

struct uniform_arguments {
    uint32_t rows, size, count, stride; /* as above */
    struct draw draw;
    float *actions, *log_probs;
};

KERNEL_BODY size_t uniform_count(const struct uniform_arguments *a)
{
    return (size_t)a->rows * a->count;
}

KERNEL_BODY void uniform_each(const struct uniform_arguments *a, size_t i)
{
    size_t at = i / a->count * a->stride + i % a->count;
    trp_rng rng = draw_begin(&a->draw, i);
    for (size_t k = 0; k < a->size; k++)
        a->actions[at * a->size + k] = (float)(2 * rng_unit(&rng) - 1);
    a->log_probs[at] = (float)(-0.69314718055994530942 * a->size);
}

EACH_KERNEL(uniform)

/* ---- td3.smooth: noise on a target policy's actions --------------------------------------------
 */

struct smooth_arguments {
    trp_smoothing_options options; /* without bounds */
    struct draw draw;
    uint32_t rows, size;
    float *actions;
};

KERNEL_BODY size_t smooth_count(const struct smooth_arguments *a)
{
    return a->rows;
}

KERNEL_BODY void smooth_each(const struct smooth_arguments *a, size_t row)
{
    float *actions = a->actions + row * a->size;
    trp_rng rng = draw_begin(&a->draw, row);
    for (uint32_t i = 0; i < a->size; i++)
        actions[i] = smoothed_action(&a->options, actions[i], i, rng_normal(&rng));
}

EACH_KERNEL(smooth)

#endif
