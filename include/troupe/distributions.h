/* Distributions of actions, made of what a network says: categorical ones, several of them side by
 * side, Gaussians, and Gaussians squashed into (-1, 1). Pure functions on rows; nothing is
 * allocated. A loss (policy_losses.h) takes log-probabilities, entropies and actions, and gives its
 * derivatives with respect to these; *_backward() makes of them the gradient of the network's
 * outputs, which is what trp_net_backward() wants.
 *
 *     // A row's action and its log-probability; `logits` are a network's output.
 *     static void act(const float logits[4], const bool mask[4], trp_rng *rng, int32_t *action,
 *                     float *log_prob)
 *     {
 *         trp_categorical policy = {.rows = 1, .choices = 4, .logits = logits, .mask = mask};
 *         trp_categorical_sample(&policy, rng, action);
 *         trp_categorical_log_prob(&policy, action, log_prob);
 *     }
 *
 * What is not finite in what a number depends on makes it not finite. */
#ifndef TRP_DISTRIBUTIONS_H
#define TRP_DISTRIBUTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/rng.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

/* ---- categorical ----------------------------------------------------------------------------- */

/* One choice a row, by the softmax of its logits; or one in each of several `parts`, which are
 * independent, with their logits one behind the other. Everything is borrowed.
 *
 * A masked choice is never drawn: its probability is 0, its log-probability -INFINITY, its gradient
 * 0, and its logit is not read. A logit of -INFINITY makes a choice as impossible. A part whose
 * mask allows nothing has some choice, of log-probability -INFINITY, and no entropy. */
typedef struct {
    uint32_t rows;
    uint32_t choices;     /* columns of a row: of all parts together */
    uint32_t parts;       /* 0: 1 */
    const int32_t *sizes; /* [parts]: choices of each, `choices` in sum (asserted), as in
                             trp_env_spec.action_choices; not read of one part */
    const float *logits;  /* [rows][choices] */
    const bool *mask;     /* [rows][choices]: what may be done; NULL: all */
} trp_categorical;

/* actions, here and below: [rows][parts]. Each part draws one number from `rng`. */
TRP_API void trp_categorical_sample(const trp_categorical *policy, trp_rng *rng, int32_t *actions);

/* The most probable choices, the first of equals. */
TRP_API void trp_categorical_mode(const trp_categorical *policy, int32_t *actions);

/* log_probs, [rows]: of the actions, which are in [0, size) of their part (asserted). */
TRP_API void trp_categorical_log_prob(const trp_categorical *policy, const int32_t *actions,
                                      float *log_probs);

/* entropies, [rows], in nats. */
TRP_API void trp_categorical_entropy(const trp_categorical *policy, float *entropies);

/* Derivatives of a loss, and where its gradient goes. */
typedef struct {
    const int32_t *actions; /* with log_probs: those that they are of */
    const float *log_probs; /* [rows]: d loss / d log-probability; NULL: zeros */
    const float *entropies; /* [rows]: d loss / d entropy; NULL: zeros */
    float *logits;          /* [rows][choices]: written; may be the policy's logits */
    bool add;               /* to what is there, instead */
} trp_categorical_grads;

TRP_API void trp_categorical_backward(const trp_categorical *policy,
                                      const trp_categorical_grads *grads);

/* divergences, [rows]: Kullback-Leibler, KL(p || q) = sum p log(p / q), of two of the same shape.
 * INFINITY where q forbids what p does. */
TRP_API void trp_categorical_kl(const trp_categorical *p, const trp_categorical *q,
                                float *divergences);

typedef struct {
    const float *divergences;   /* [rows]: d loss / d divergence */
    float *p_logits, *q_logits; /* [rows][choices]: written; NULL: not wanted. Not in place */
    bool add;                   /* to what is there, instead */
} trp_categorical_kl_grads;

TRP_API void trp_categorical_kl_backward(const trp_categorical *p, const trp_categorical *q,
                                         const trp_categorical_kl_grads *grads);

/* ---- Gaussian -------------------------------------------------------------------------------- */

/* Independent normal variables u, one a dimension, with mean and exp(log_std); the action is u, or
 * where it is `squashed` tanh(u), in (-1, 1), or middle + half tanh(u), in (low, high). Everything
 * is borrowed. */
typedef struct {
    uint32_t rows, size;  /* size: dimensions of an action */
    const float *mean;    /* [rows][size] */
    const float *log_std; /* [rows][size] */
    bool shared;          /* log_std is [size], the same for all rows: it reads no state */
    bool squashed;
    /* [size] each, low < high, of squashed ones: what an action lies between, as in trp_env_spec
     * (action_low); both NULL: -1 and 1. Rounding moves no action out. */
    const float *low, *high;
    float least_log_std, most_log_std; /* log_std is kept in between, and has no gradient outside;
                                          both 0: it is not. SAC's implementations have -20 and 2 */
} trp_gaussian;

/* noise, here and below: [rows][size], standard normal numbers; actions are [rows][size]. */

/* The actions that noise makes: mean + exp(log_std) noise, squashed if they are, and log_probs of
 * them, [rows], which are exact where the action itself is rounded to an end; NULL: not wanted.
 * `noise` may be `actions`. */
TRP_API void trp_gaussian_transform(const trp_gaussian *policy, const float *noise, float *actions,
                                    float *log_probs);

/* The same with noise that is drawn, and kept for the gradients that go through the actions. Who
 * wants none of these gives `actions` twice. */
TRP_API void trp_gaussian_sample(const trp_gaussian *policy, trp_rng *rng, float *noise,
                                 float *actions, float *log_probs);

/* The mean, squashed if actions are: the mode of what is not. */
TRP_API void trp_gaussian_mode(const trp_gaussian *policy, float *actions);

/* log_probs, [rows], of any actions. Of squashed ones it is that of u less the sum of log(1 -
 * tanh(u)^2) (Haarnoja et al. 2018, "Soft Actor-Critic", equation 21), as 2 (log 2 - u -
 * softplus(-2 u)), and of log half; an action whose tanh(u) is no float below 1 in size counts as
 * the largest one. */
TRP_API void trp_gaussian_log_prob(const trp_gaussian *policy, const float *actions,
                                   float *log_probs);

/* entropies, [rows], in nats. That of a squashed one has no closed form: it is the entropy of u,
 * and log(1 - tanh(u)^2) + log half of the one sample that `noise` makes: an estimate without bias.
 * For others noise is not read. */
TRP_API void trp_gaussian_entropy(const trp_gaussian *policy, const float *noise, float *entropies);

/* Derivatives of a loss, and where its gradient goes. What is NULL is zeros. */
typedef struct {
    /* Of actions that were given, which are constants: */
    const float *actions;   /* with log_probs: those that they are of */
    const float *log_probs; /* [rows]: d loss / d log-probability */
    /* Of actions that noise made, through which gradients go: */
    const float *noise;            /* with what follows */
    const float *sample_actions;   /* [rows][size]: d loss / d action */
    const float *sample_log_probs; /* [rows]: d loss / d log-probability */
    const float *entropies;        /* [rows]: d loss / d entropy; needs noise only where squashed */
    float *mean;                   /* [rows][size]: written; may be the policy's mean */
    float *log_std;                /* as the policy's: written, and it may be that unless shared */
    bool add;                      /* to what is there, instead */
} trp_gaussian_grads;

TRP_API void trp_gaussian_backward(const trp_gaussian *policy, const trp_gaussian_grads *grads);

/* divergences, [rows]: Kullback-Leibler, KL(p || q), which squashing does not change. Both have the
 * same rows and size. */
TRP_API void trp_gaussian_kl(const trp_gaussian *p, const trp_gaussian *q, float *divergences);

/* What would be the divergence if only the mean were q's, and if only the deviation were, dimension
 * by dimension: means, stds, [rows][size] (MPO's bounds on either, Abdolmaleki et al. 2018). A
 * row's sums are KL(N(p's mean, p's deviation) || N(q's mean, p's deviation)), and with the parts
 * turned round. */
TRP_API void trp_gaussian_decoupled_kl(const trp_gaussian *p, const trp_gaussian *q, float *means,
                                       float *stds);

/* Where the gradient of one of them goes; NULL: not wanted. Not in place. */
typedef struct {
    float *mean;    /* [rows][size] */
    float *log_std; /* as the policy's */
} trp_gaussian_outputs;

typedef struct {
    const float *divergences;  /* [rows]: d loss / d divergence; NULL: zeros */
    const float *means, *stds; /* [rows][size]: d loss / d those of the decoupled one; NULL: zeros.
                                  p is a constant of them, and gets no gradient of theirs */
    trp_gaussian_outputs p, q; /* written */
    bool add;                  /* to what is there, instead */
} trp_gaussian_kl_grads;

TRP_API void trp_gaussian_kl_backward(const trp_gaussian *p, const trp_gaussian *q,
                                      const trp_gaussian_kl_grads *grads);

TRP_END_DECLS
#endif
