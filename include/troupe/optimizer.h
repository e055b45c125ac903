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

#include <troupe/device.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

/* With p a parameter, g its gradient, clipped, and r the rate. Where weight_decay is not said to do
 * something else, g is that plus weight_decay * p. */
typedef enum {
    TRP_ADAM,    /* Kingma and Ba 2015, bias corrected, epsilon outside the root, as in PyTorch */
    TRP_ADAMW,   /* Adam; p is multiplied by 1 - r * weight_decay first (Loshchilov and Hutter
                    2019) */
    TRP_SGD,     /* p -= r * v, v = momentum * v + g (Polyak 1964), as in PyTorch; nesterov: v =
                    g + momentum * v stands in its place (Sutskever et al. 2013) */
    TRP_RMSPROP, /* v = momentum * v + g / (sqrt(s) + epsilon), p -= r * v, where s is the running
                    mean of g^2 (Tieleman and Hinton 2012), as in PyTorch; all of it begins at 0.
                    epsilon_inside: sqrt(s + epsilon), as in TensorFlow and for IMPALA. centered:
                    s less the square of the running mean of g (Graves 2013), as DQN's in 2015 */
    TRP_LAMB,    /* p -= r * |p| / |u| * u, u = Adam's step + weight_decay * p, for each tensor: the
                    norms are the tensor's, and a ratio with a norm of 0 is 1 (You et al. 2020:
                    LAMB, with phi(x) = x) */
    TRP_ADAGRAD, /* p -= r * g / (sqrt(s) + epsilon), s the sum of all g^2 (Duchi et al. 2011), as
                    in PyTorch */
} trp_optimizer_kind;

enum { TRP_OPTIMIZER_KINDS = TRP_ADAGRAD + 1 };

/* Times a warm-up, during which the rate grows linearly. */
typedef enum {
    TRP_RATE_CONSTANT,
    TRP_RATE_LINEAR, /* from learning_rate to final_rate within schedule_steps, then that */
    TRP_RATE_COSINE, /* the same along half a cosine (Loshchilov and Hutter 2017) */
} trp_rate_schedule;

/* Plain data: compared and hashed as such after zeroing. */
typedef struct {
    trp_optimizer_kind kind;
    trp_rate_schedule schedule;
    double learning_rate; /* 0: 1e-3; negative: 0 */
    double final_rate;
    uint64_t schedule_steps;
    uint64_t warmup_steps; /* the rate grows to its value linearly within so many; 0: at once */
    double weight_decay;
    double beta1, beta2;  /* Adam, AdamW, LAMB; 0: 0.9 and 0.999; negative: 0 */
    double alpha;         /* RMSProp: how much of a running mean is kept; 0: 0.99; negative: 0 */
    double epsilon;       /* 0: 1e-8, LAMB: 1e-6, AdaGrad: 1e-10 */
    double momentum;      /* SGD, RMSProp */
    bool nesterov;        /* SGD */
    bool centered;        /* RMSProp */
    bool epsilon_inside;  /* RMSProp */
    double max_norm;      /* of the whole gradient, which is scaled down to it; 0: any */
    bool skip_not_finite; /* a gradient that is not finite is left out instead of ending the run */
} trp_optimizer;

enum { TRP_OPTIMIZER_STATES_MAX = 3 };

/* INVALID_ARGUMENT names the field, its value and its range, or what the kind has not got (a
 * momentum of Adam's, a schedule without steps); `who` ("params") begins the message. */
TRP_API TRP_MUST_USE trp_status trp_optimizer_check(const trp_optimizer *optimizer,
                                                    const char *who);

/* "adam". */
TRP_API const char *trp_optimizer_name(trp_optimizer_kind kind);

/* How many vectors of state it has beside the parameters, and what they are called: "adam.m". A
 * checkpoint has them under these names; they begin with the optimizer's. */
TRP_API size_t trp_optimizer_states(const trp_optimizer *optimizer);
TRP_API const char *trp_optimizer_state_name(const trp_optimizer *optimizer, size_t index);

/* Whether a range must be a whole tensor, because its norm counts: LAMB. Other ranges may be cut
 * anywhere. */
TRP_API bool trp_optimizer_is_layerwise(const trp_optimizer *optimizer);

/* The rate of step `step`, which counts from 1. */
TRP_API double trp_optimizer_rate(const trp_optimizer *optimizer, uint64_t step);

/* Updates [lo, hi) of params and state with scale * grads. Ranges in any order give the same bits;
 * with trp_optimizer_is_layerwise(), [lo, hi) is one tensor. `step` counts from 1 and is the
 * caller's to save with the state. On x86 numbers below 1.2e-38 count, and are stored, as zeros. */
TRP_API void trp_optimizer_step(const trp_optimizer *optimizer, uint64_t step, float scale,
                                float *params, const float *grads, float *const *state, size_t lo,
                                size_t hi);

/* Sum of squares of [lo, hi), summed in double. */
TRP_API double trp_norm2(const float *values, size_t lo, size_t hi);

/* The scale that clips a gradient of squared norm `norm2` to `max_norm` (<= 0: no clipping). No
 * scale mends a norm that is not finite: look at it first. */
TRP_API float trp_clip_scale(double norm2, float max_norm);

/* ---- on a queue -------------------------------------------------------------------------- */

/* How the phases of a learned vector end, one after another: a phase is measured, then ranges of it
 * are stepped, then it is ended. The device decides and nobody waits for it: this lies in its
 * memory, 0 before the first phase. */
enum { TRP_PHASE_PARTS = 64 };
typedef struct {
    uint64_t steps;    /* taken */
    uint64_t left_out; /* phases that were not, with skip_not_finite */
    double norm2;      /* of the last gradient, before clipping */
    float value;       /* where refused, the number that was not finite, and its place: */
    uint64_t place;    /* in the gradient; behind it: it was the one watched */
    bool refused;      /* without skip_not_finite: no step is taken from there on */
    bool skipped;      /* this phase is */
    double parts[TRP_PHASE_PARTS]; /* a device's own, while it adds up */
} trp_phases;

/* Measures the gradient, [count]: its norm, and whether all of it and *watched (NULL: nothing) are
 * finite. Pointers are to memory of the queue's device. */
TRP_API void trp_phase_measure(trp_queue *queue, const trp_optimizer *optimizer, const float *grads,
                               size_t count, const float *watched, trp_phases *phases);

/* What one of several learners measured of a gradient: integers, so that parts may be added up
 * where all but one of them are 0. */
typedef struct {
    uint64_t norm2; /* the bits of a double */
    uint64_t place; /* of the first number that is not finite, and 1; 0: all are */
    uint64_t value; /* that number's bits */
} trp_phase_part;

/* Divides [lo, hi) of a gradient by *rows / batch_size and adds what it is then to *part, which is
 * 0 before the first range. The same ranges in the same order give the same bits. */
TRP_API void trp_phase_measure_range(trp_queue *queue, float *grads, size_t lo, size_t hi,
                                     const float *rows, float batch_size, trp_phase_part *part);

/* trp_phase_measure() of a gradient, [count], from its parts, in their order. */
TRP_API void trp_phase_measure_parts(trp_queue *queue, const trp_optimizer *optimizer,
                                     const trp_phase_part *parts, size_t part_count, size_t count,
                                     const float *watched, trp_phases *phases);

/* trp_optimizer_step() of [lo, hi) with the scale that clips the gradient measured, if the phase is
 * not skipped; of `phases` it changes the parts alone. `state` itself is the host's, and copied;
 * what it points to, the device's. */
TRP_API void trp_phase_step(trp_queue *queue, const trp_optimizer *optimizer, float *params,
                            const float *grads, float *const *state, size_t lo, size_t hi,
                            trp_phases *phases);

/* Counts it and zeroes the gradient. */
TRP_API void trp_phase_end(trp_queue *queue, float *grads, size_t count, trp_phases *phases);

/* target += rate * (params - target) over [count], a target network's Polyak averaging (Lillicrap
 * et al. 2016). */
TRP_API void trp_polyak_update(trp_queue *queue, float *target, const float *params, float rate,
                               size_t count);

TRP_END_DECLS
#endif
