/* Optimizers as data: which rule turns gradients into steps, how its rate changes, what it clips.
 * Who has the vectors applies it, to any range of them.
 *
 *     static void descend(float *params, const float *grads, float *const *state, size_t count)
 *     {
 *         trp_optimizer adam = {.learning_rate = 3e-4, .max_norm = 0.5};
 *         double norm2 = trp_norm2(grads, 0, count);
 *         trp_optimizer_step(&adam, 1, trp_clip_scale(norm2, (float)adam.max_norm), params, grads,
 *                            state, 0, count); // `state`: trp_optimizer_states(&adam) vectors of 0
 *     }
 */
#ifndef TRP_OPTIMIZER_H
#define TRP_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef enum {
    TRP_ADAM, /* Kingma and Ba 2015, bias corrected, epsilon outside the root, as in PyTorch */
    TRP_SGD,  /* params -= rate * v, v = momentum * v + gradient (Polyak 1964), as in PyTorch */
} trp_optimizer_kind;

typedef enum {
    TRP_RATE_CONSTANT,
    TRP_RATE_LINEAR, /* from learning_rate to final_rate within schedule_steps, then that */
    TRP_RATE_COSINE, /* the same along half a cosine (Loshchilov and Hutter 2017) */
} trp_rate_schedule;

/* Plain data: compared and hashed as such after zeroing. */
typedef struct {
    trp_optimizer_kind kind;
    trp_rate_schedule schedule;
    double learning_rate; /* 0: 1e-3 */
    double final_rate;
    uint64_t schedule_steps;
    uint64_t warmup_steps; /* the rate grows to its value linearly within so many; 0: at once */
    double beta1, beta2;   /* Adam; 0: 0.9 and 0.999 */
    double epsilon;        /* Adam; 0: 1e-8 */
    double momentum;       /* SGD */
    double max_norm;       /* of the whole gradient, which is scaled down to it; 0: any */
    bool skip_not_finite;  /* a gradient that is not finite is left out instead of ending the run */
} trp_optimizer;

enum { TRP_OPTIMIZER_STATES_MAX = 2 };

/* INVALID_ARGUMENT names the field, its value and its range; `who` ("params") begins the message.
 */
TRP_API TRP_MUST_USE trp_status trp_optimizer_check(const trp_optimizer *optimizer,
                                                    const char *who);

/* How many vectors of state it has beside the parameters, and what they are called: "adam.m". */
TRP_API size_t trp_optimizer_states(const trp_optimizer *optimizer);
TRP_API const char *trp_optimizer_state_name(const trp_optimizer *optimizer, size_t index);

/* The rate of step `step`, which counts from 1. */
TRP_API double trp_optimizer_rate(const trp_optimizer *optimizer, uint64_t step);

/* Updates [lo, hi) of params and state with scale * grads. Ranges in any order give the same bits.
 * `step` counts from 1 and is the caller's to save with the state. */
TRP_API void trp_optimizer_step(const trp_optimizer *optimizer, uint64_t step, float scale,
                                float *params, const float *grads, float *const *state, size_t lo,
                                size_t hi);

/* Sum of squares of [lo, hi), summed in double. */
TRP_API double trp_norm2(const float *values, size_t lo, size_t hi);

/* The scale that clips a gradient of squared norm `norm2` to `max_norm` (<= 0: no clipping). No
 * scale mends a norm that is not finite: look at it first. */
TRP_API float trp_clip_scale(double norm2, float max_norm);

TRP_END_DECLS
#endif
