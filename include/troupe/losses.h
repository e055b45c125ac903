/* Losses on what networks say of values, and the targets of one step that go with them: pure
 * functions on rows of outputs. A loss writes its gradient with respect to the outputs, which is
 * what trp_net_backward() wants, and returns the mean over the rows; nothing is allocated. Rows
 * have weights (importance sampling, padding of sequences): the mean is of weight * loss and
 * divides by the number of rows. Targets are constants: no gradient goes through them.
 *
 *     // Double Q-learning; `next` are rows of both networks at the next states.
 *     static float double_q(const trp_q_batch *batch, const float *q, const float *next_online,
 *                           const float *next_target, float *targets, float *errors, float *dq)
 *     {
 *         trp_double_q_targets(batch, next_online, next_target, targets);
 *         return trp_q_loss(batch, 1, q, targets, errors, dq).loss;
 *     }
 *
 * What is not finite in what a row's loss depends on makes the loss not finite: look at it before
 * a step is made of its gradient. returns.h has targets over many steps. */
#ifndef TRP_LOSSES_H
#define TRP_LOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/returns.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

/* The index of the largest of `count` > 0 values that `mask` allows (NULL: all); the first one of
 * equals. NaN is the least. With a mask that allows nothing it is some index. */
TRP_API uint32_t trp_argmax(const float *values, const bool *mask, uint32_t count);

typedef struct {
    float loss;  /* mean over the rows of weight * a row's loss */
    float value; /* mean of the value that the network gives the actions taken */
} trp_loss;

/* ---- values of actions ------------------------------------------------------------------- */

/* A batch of transitions as these losses see it; everything is borrowed. */
typedef struct {
    uint32_t rows, actions;
    const int32_t *taken;   /* [rows]; in [0, actions) (asserted); NULL: 0, of C51 and quantiles of
                               one action, such as a critic's of continuous ones */
    const float *rewards;   /* [rows]; n-step returns */
    const float *discounts; /* [rows]; of the value at the next state: 0 where it terminated */
    const float *weights;   /* [rows]; NULL: 1 */
    const bool *next_mask;  /* [rows][actions]: what may be done at the next state; NULL: all */
    const bool *mask; /* the same at the state itself: trp_munchausen_targets() alone reads it */
} trp_q_batch;

/* targets[i] = rewards[i] + discounts[i] * next_target[i][argmax next_online[i]]: double Q-learning
 * (van Hasselt et al. 2016, "Deep Reinforcement Learning with Double Q-learning"), of n steps where
 * rewards are n-step returns. With next_target given twice: DQN (Mnih et al. 2015). Both are
 * [rows][actions]. */
TRP_API void trp_double_q_targets(const trp_q_batch *batch, const float *next_online,
                                  const float *next_target, float *targets);

typedef struct {
    float temperature; /* 0: 0.03 */
    float scale;       /* of the policy's logarithm, alpha; 0: 0.9; negative: 0, soft DQN */
    float least;       /* of temperature * log policy; 0: -1 */
} trp_munchausen_options;

/* Munchausen DQN (Vieillard et al. 2020, "Munchausen Reinforcement Learning": M-DQN with its
 * clipped log-policy): the policy is softmax(target / temperature), the reward has scale *
 * [temperature * log policy(taken)] added, and the next value is the policy's with its entropy.
 * `target` are values of the target network at the states, next_target at the next ones. `options`
 * may be NULL. */
TRP_API void trp_munchausen_targets(const trp_munchausen_options *options, const trp_q_batch *batch,
                                    const float *target, const float *next_target, float *targets);

/* The Huber loss (half the square up to huber_delta, linear beyond; 0: 1, INFINITY: half the
 * square) of errors[i] = targets[i] - q[i][taken[i]]. The absolute values of errors are the
 * priorities of prioritized replay (Schaul et al. 2016). dq, [rows][actions], may be q. Of `batch`
 * rewards, discounts and masks are not read. */
TRP_API trp_loss trp_q_loss(const trp_q_batch *batch, float huber_delta, const float *q,
                            const float *targets, float *errors, float *dq);

/* ---- distributions of values --------------------------------------------------------------- */

/* C51: a distribution over `atoms` values from least to most, by logits, [rows][actions][atoms]. */
typedef struct {
    uint32_t atoms; /* at least 2 */
    float least, most;
} trp_support;

/* The expected value of each of `count` distributions: q of [rows][actions], to act and to choose
 * by. */
TRP_API void trp_c51_values(const trp_support *support, size_t count, const float *logits,
                            float *values);

/* targets, [rows][atoms]: the distribution that next_target gives the action that is best on
 * average by next_online, moved by reward and discount and projected back on the atoms (Bellemare
 * et al. 2017, "A Distributional Perspective on Reinforcement Learning": the categorical
 * algorithm). next_target twice: not double. */
TRP_API void trp_c51_targets(const trp_support *support, const trp_q_batch *batch,
                             const float *next_online, const float *next_target, float *targets);

/* The cross entropy between targets and the softmax of the action's logits (the same algorithm).
 * What priorities are made of is `divergences`, that less the targets' entropy: the
 * Kullback-Leibler divergence, as in Rainbow (Hessel et al. 2018). dlogits may be logits. */
TRP_API trp_loss trp_c51_loss(const trp_support *support, const trp_q_batch *batch,
                              const float *logits, const float *targets, float *divergences,
                              float *dlogits);

/* QR-DQN: quantiles at (i + 1/2) / count, [rows][actions][quantiles]. Their means: */
TRP_API void trp_quantile_values(uint32_t quantiles, size_t count, const float *theta,
                                 float *values);

/* targets, [rows][quantiles]: reward + discount * each quantile of the best action on average. */
TRP_API void trp_quantile_targets(uint32_t quantiles, const trp_q_batch *batch,
                                  const float *next_online, const float *next_target,
                                  float *targets);

/* Quantile regression with the Huber loss of kappa (0: 1): a sum over quantiles of means over
 * targets (Dabney et al. 2018, "Distributional Reinforcement Learning with Quantile Regression":
 * the quantile Huber loss). errors: means of the targets less those of the quantiles. dtheta may be
 * theta. */
TRP_API trp_loss trp_quantile_loss(uint32_t quantiles, const trp_q_batch *batch, float kappa,
                                   const float *theta, const float *targets, float *errors,
                                   float *dtheta);

/* ---- values of actions over sequences ------------------------------------------------------ */

/* A batch of sequences as a recurrent Q network sees it. Arrays of rows lie as `trajectories` says,
 * of which values and next_values are not read. */
typedef struct {
    trp_trajectories trajectories;
    uint32_t actions;
    const int32_t *taken; /* of rows; in [0, actions) where a step was taken (asserted) */
    const bool *mask;     /* [rows][actions]: what may be done at the row's state; NULL: all */
    const float *weights; /* [sequences]; NULL: 1 */
} trp_q_sequences;

typedef struct {
    uint32_t n_step;   /* 0: 5 */
    uint32_t burn_in;  /* first steps that only bring the recurrent state up to date: they have no
                          loss, no gradient and no priority */
    float epsilon;     /* of the rescaling; 0: 1e-3 */
    float eta;         /* of the priority; 0: 0.9; negative: 0 */
    float huber_delta; /* 0: 1, INFINITY: half the square */
} trp_r2d2_loss_options;

/* What R2D2 learns values in: h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x, and its inverse
 * (Pohlen et al. 2018, "Observe and Look Further": the transformed Bellman operator). */
TRP_API float trp_value_rescale(float x, float epsilon);
TRP_API float trp_value_unscale(float y, float epsilon);

/* R2D2 (Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement
 * Learning"): targets of rows, h(sum of n discounted rewards, and h^-1 of next_target's value for
 * the action that is best by next_online). `online` and `target` are [rows][actions] of all
 * steps. */
TRP_API void trp_r2d2_targets(const trp_r2d2_loss_options *options, const trp_q_sequences *batch,
                              const float *online, const float *target, float *targets);

/* The mean over sequences of weight * the sum over their steps of the Huber loss of errors =
 * targets - q of the action taken; `value` is the mean over steps. priorities, [sequences]: eta *
 * the largest of the absolute errors + (1 - eta) * their mean, as in that paper. errors and dq are
 * 0 where there is no step to learn from. dq may be q. */
TRP_API trp_loss trp_r2d2_loss(const trp_r2d2_loss_options *options, const trp_q_sequences *batch,
                               const float *q, const float *targets, float *errors,
                               float *priorities, float *dq);

/* ---- values of states ---------------------------------------------------------------------- */

/* Values of states, or a critic's of states and actions: one number a row. */
typedef struct {
    uint32_t rows;
    const float *targets;    /* [rows] */
    const float *weights;    /* [rows]; NULL: 1 */
    float huber_delta;       /* 0: half the square */
    float clip;              /* with old_values; 0: no clipping */
    const float *old_values; /* [rows]; what the network said when it acted */
} trp_value_batch;

/* Half the square (or Huber) of errors = targets - values. With `clip` the larger one of that and
 * the loss of old + (value - old kept within +-clip), as PPO's implementations have it (Engstrom et
 * al. 2020, "Implementation Matters in Deep Policy Gradients": value clipping). errors may be NULL;
 * dvalues may be values. */
TRP_API trp_loss trp_value_loss(const trp_value_batch *batch, const float *values, float *errors,
                                float *dvalues);

TRP_END_DECLS
#endif
