/* Losses on what a policy says of actions: on-policy ones and imitation. Pure functions on rows, as
 * those of losses.h: they take log-probabilities and entropies, which distributions.h makes of a
 * network's outputs, and write derivatives, which it takes back.
 *
 *     // PPO on a minibatch of 64 rows: what has to change in a network's logits.
 *     static float learn(const trp_policy_batch *batch, const trp_categorical *policy,
 *                        const int32_t *actions, float *dlogits)
 *     {
 *         float log_probs[64], entropies[64];
 *         trp_categorical_log_prob(policy, actions, log_probs);
 *         trp_categorical_entropy(policy, entropies);
 *         float loss = trp_ppo_loss(batch, log_probs, entropies, log_probs, entropies).loss;
 *         trp_categorical_backward(policy, &(trp_categorical_grads){.actions = actions,
 *                                                                   .log_probs = log_probs,
 *                                                                   .entropies = entropies,
 *                                                                   .logits = dlogits});
 *         return loss;
 *     }
 *
 * A mean divides by the number of rows, whatever their weights. Of a row whose weight is 0
 * (padding, and what is no step) nothing else is read, and its derivatives are 0. What is not
 * finite in another row makes the loss not finite: look at it before a step is made of its
 * gradient. */
#ifndef TRP_POLICY_LOSSES_H
#define TRP_POLICY_LOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/distributions.h>

TRP_BEGIN_DECLS

/* ---- policy gradients ------------------------------------------------------------------------ */

/* Actions taken, as these losses see them; everything is borrowed. */
typedef struct {
    uint32_t rows;
    const float *advantages;    /* [rows]: of the actions */
    const float *weights;       /* [rows]; NULL: 1 */
    float entropy;              /* what is subtracted from a row's loss is this times its entropy */
    const float *old_log_probs; /* [rows]: of the policy that acted; trp_ppo_loss() alone reads
                                   them, and the next */
    float clip;                 /* how far ratios of probabilities pay; 0: 0.2 */
} trp_policy_batch;

typedef struct {
    float loss;    /* mean over the rows of weight * a row's loss */
    float entropy; /* mean over the rows whose weight is not 0, as what follows */
    float
        divergence; /* trp_ppo_loss(): about KL(old || new), by ratio - 1 - log ratio, which is 0
                       or above and has that mean (Schulman 2020, "Approximating KL Divergence") */
    float clipped;  /* trp_ppo_loss(): the share of ratios further than `clip` from 1 */
} trp_policy_loss;

/* The policy gradient: -advantage * log-probability, less the entropy bonus (Williams 1992, with
 * its baseline; A2C is this with n-step advantages, Mnih et al. 2016, and IMPALA with those of
 * trp_vtrace(), which have its truncated ratio in them, Espeholt et al. 2018). log_probs, [rows]:
 * of the actions. entropies, [rows], NULL: not wanted, and then dentropies is not written.
 * dlog_probs may be log_probs, and dentropies entropies. */
TRP_API trp_policy_loss trp_policy_gradient_loss(const trp_policy_batch *batch,
                                                 const float *log_probs, const float *entropies,
                                                 float *dlog_probs, float *dentropies);

/* PPO's clipped surrogate, -min(ratio * advantage, clip(ratio, 1 - clip, 1 + clip) * advantage)
 * where ratio = exp(log_prob - old_log_prob) (Schulman et al. 2017: L^CLIP), less the entropy bonus
 * of L^CLIP+VF+S, whose loss of values is trp_value_loss(). Arguments as above. */
TRP_API trp_policy_loss trp_ppo_loss(const trp_policy_batch *batch, const float *log_probs,
                                     const float *entropies, float *dlog_probs, float *dentropies);

/* (advantage - mean) / (deviation + 1e-8) over the rows whose weight is not 0 (NULL: all), as PPO's
 * implementations have it, with the deviation of the rows themselves (not of a sample); others get
 * 0. `normalized` may be advantages. */
TRP_API void trp_normalize_advantages(uint32_t rows, const float *weights, const float *advantages,
                                      float *normalized);

/* ---- imitation ------------------------------------------------------------------------------- */

/* Behaviour cloning: the mean of weight * -log-probability of what was done (weights NULL: 1).
 * dlog_probs may be log_probs. With the weights below it is CRR's. */
TRP_API float trp_cloning_loss(uint32_t rows, const float *weights, const float *log_probs,
                               float *dlog_probs);

/* What an action was worth, by a critic, beside `samples` actions of the policy at the same state.
 */
typedef struct {
    uint32_t rows, samples;
    const float *q;        /* [rows]: of the action that was taken */
    const float *policy_q; /* [rows][samples]: of actions drawn from the policy; with one sample, a
                              value of the state does as well */
    const float *weights;  /* [rows]: results are multiplied by them; NULL: 1 */
    bool max;              /* the advantage is over the largest of policy_q, not over their mean */
    bool binary;           /* 1 where the advantage is above 0, else 0; not its exponential */
    float temperature;     /* beta: exp(advantage / temperature); 0: 1 */
    float most;            /* of the exponential; 0: 20 */
} trp_crr_batch;

/* Critic regularized regression's weights of rows, [rows], for trp_cloning_loss() (Wang et al.
 * 2020, "Critic Regularized Regression": f binary or exponential, advantages by mean or max). They
 * are constants: no gradient goes through them. */
TRP_API void trp_crr_weights(const trp_crr_batch *batch, float *weights);

TRP_END_DECLS
#endif
