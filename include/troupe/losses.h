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
    const int32_t *taken;   /* [rows]; in [0, actions) (asserted) */
    const float *rewards;   /* [rows]; n-step returns */
    const float *discounts; /* [rows]; of the value at the next state: 0 where it terminated */
    const float *weights;   /* [rows]; NULL: 1 */
    const bool *next_mask;  /* [rows][actions]: what may be done at the next state; NULL: all */
} trp_q_batch;

/* targets[i] = rewards[i] + discounts[i] * next_target[i][argmax next_online[i]]: double
 * Q-learning (van Hasselt et al. 2016, equation 4), of n steps where rewards are n-step returns.
 * With next_target given twice: DQN (Mnih et al. 2015). Both are [rows][actions]. */
TRP_API void trp_double_q_targets(const trp_q_batch *batch, const float *next_online,
                                  const float *next_target, float *targets);

/* The Huber loss (half the square up to huber_delta, linear beyond; 0: 1, INFINITY: half the
 * square) of errors[i] = targets[i] - q[i][taken[i]]. The absolute values of errors are the
 * priorities of prioritized replay (Schaul et al. 2016). dq, [rows][actions], may be q. Of `batch`
 * rewards, discounts and masks are not read. */
TRP_API trp_loss trp_q_loss(const trp_q_batch *batch, float huber_delta, const float *q,
                            const float *targets, float *errors, float *dq);

TRP_END_DECLS
#endif
