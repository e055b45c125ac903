/* Losses of actors that follow a critic of states and actions, online (DDPG, TD3, D4PG, SAC, MPO)
 * and from a data set (TD3+BC, CQL, IQL). Pure functions on rows, as those of losses.h: they take
 * what critics and policies say of actions, and write derivatives. Those of a critic's values
 * become those of actions in trp_net_backward() with `inputs`, and those of actions and
 * log-probabilities become those of a policy's outputs in distributions.h. What a critic learns is
 * trp_value_loss() (of a distribution trp_c51_loss()) with the targets below.
 *
 *     // What SAC's policy learns; critics of [state, action] have one output each.
 *     static void follow(trp_net *critics[2], float *params[2], const trp_net_rows passes[2],
 *                        const trp_sac_batch *batch, float *dq[2], float *dlog_probs,
 *                        float *daction[2])
 *     {
 *         trp_net_forward(critics[0], params[0], &passes[0]); // into batch->q
 *         trp_net_forward(critics[1], params[1], &passes[1]); // into batch->q2
 *         trp_sac_policy_loss(batch, dq[0], dq[1], dlog_probs);
 *         for (int i = 0; i < 2; i++)
 *             trp_net_backward(critics[i], params[i], &passes[i],
 *                              &(trp_net_grads){.outputs = {dq[i]}, .inputs = {NULL, daction[i]}});
 *     }
 *
 * A mean divides by the number of rows, whatever their weights. What is not finite in what a row's
 * loss depends on makes the loss not finite: look at it before a step is made of its gradient. */
#ifndef TRP_ACTOR_CRITIC_LOSSES_H
#define TRP_ACTOR_CRITIC_LOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/losses.h>
#include <troupe/rng.h>

TRP_BEGIN_DECLS

/* ---- critics --------------------------------------------------------------------------------- */

/* Transitions and what is said of the policy's actions at the next states; everything is borrowed.
 */
typedef struct {
    uint32_t rows;
    const float *rewards;        /* [rows]; n-step returns */
    const float *discounts;      /* [rows]; of the next value: 0 where the episode terminated */
    const float *next_q;         /* [rows]: by the target critic, or the value of the next state */
    const float *next_q2;        /* [rows]: by the second one; NULL: there is one */
    const float *next_log_probs; /* [rows]; NULL: the policy's entropy is worth nothing */
    float temperature;           /* alpha: what a nat of entropy is worth */
} trp_critic_batch;

/* targets[i] = rewards[i] + discounts[i] * (the lesser of next_q[i] and next_q2[i] - temperature *
 * next_log_probs[i]): with one critic DDPG (Lillicrap et al. 2016), and IQL's from values of states
 * (Kostrikov et al. 2022: the loss of its critics); with two TD3 (Fujimoto et al. 2018, clipped
 * double Q-learning); with log-probabilities SAC (Haarnoja et al. 2018, "Soft Actor-Critic
 * Algorithms and Applications": the soft Bellman residual). */
TRP_API void trp_critic_targets(const trp_critic_batch *batch, float *targets);

typedef struct {
    float deviation;         /* of the noise; 0: 0.2 */
    float clip;              /* how far noise goes; 0: 0.5 */
    const float *low, *high; /* [size]: bounds of actions; NULL: -1 and 1 */
} trp_smoothing_options;

/* TD3's target policy smoothing (Fujimoto et al. 2018): adds clipped normal noise to the target
 * policy's actions, [rows][size], and keeps them within their bounds. Deviation and clip are in
 * halves of the distance between the bounds. `options` may be NULL. Draws one normal number for
 * each of them. */
TRP_API void trp_smooth_actions(const trp_smoothing_options *options, uint32_t rows, uint32_t size,
                                trp_rng *rng, float *actions);

/* ---- policies -------------------------------------------------------------------------------- */

/* Actions that the policy draws now, at states of the batch. */
typedef struct {
    uint32_t rows;
    const float *q, *q2;    /* [rows]: by both critics; q2 NULL: there is one */
    const float *log_probs; /* [rows] */
    const float *weights;   /* [rows]; NULL: 1 */
    float temperature;
} trp_sac_batch;

/* SAC's loss of policies: temperature * log-probability - the lesser of q and q2 (Haarnoja et al.
 * 2018: the reparameterized objective of policies, with two critics). Through the critic with the
 * greater value goes nothing. dq may be q, dq2 q2 (NULL without q2) and dlog_probs log_probs.
 * `value` is the mean of the lesser. */
TRP_API trp_loss trp_sac_policy_loss(const trp_sac_batch *batch, float *dq, float *dq2,
                                     float *dlog_probs);

/* The loss of a multiplier's logarithm, exp(log_multiplier) * (bound - value): the multiplier grows
 * while `value`, the mean of what is constrained, is above `bound`. *dlog is its derivative. Of
 * SAC's temperature the value is the mean of log-probabilities, and the bound is minus the entropy
 * that is wanted: `size` where that is -size, as usual for actions of `size` numbers (Haarnoja et
 * al. 2018: automating entropy adjustment). Of CQL's scale they are the gap and its threshold. */
TRP_API float trp_multiplier_loss(float log_multiplier, float value, float bound, float *dlog);

typedef struct {
    uint32_t rows, size;
    const float *q;       /* [rows]: by one critic, of the policy's actions */
    const float *actions; /* [rows][size]: those; read with `taken` alone, as what follows */
    const float *taken;   /* [rows][size]: the batch's actions, which the policy stays near; NULL:
                             need not */
    float imitation;      /* TD3+BC's alpha, the weight of q beside imitation; 0: 2.5 */
    const float *weights; /* [rows]; NULL: 1 */
} trp_td3_batch;

/* The deterministic policy gradient: -q (Silver et al. 2014: the theorem of that name). With
 * `taken` TD3+BC: -lambda q + the mean over `size` of (action - taken)^2, where lambda = imitation
 * / the mean of |q|, a constant (Fujimoto and Gu 2021, "A Minimalist Approach to Offline
 * Reinforcement Learning"). dq may be q. dactions, [rows][size]: of imitation alone, what comes
 * through the critic is added by the caller; NULL without `taken`; it may be actions. `value` is
 * the mean of q. */
TRP_API trp_loss trp_td3_policy_loss(const trp_td3_batch *batch, float *dq, float *dactions);

/* The same for a critic that gives C51's distribution of a state and an action, [rows][atoms]: D4PG
 * (Barth-Maron et al. 2018), the loss of policies is - the distribution's mean. What the critic
 * learns is trp_c51_targets() and trp_c51_loss() with one action, whose index is 0. weights:
 * [rows]; NULL: 1. dlogits may be logits. */
TRP_API trp_loss trp_d4pg_policy_loss(const trp_support *support, uint32_t rows,
                                      const float *weights, const float *logits, float *dlogits);

/* ---- MPO ------------------------------------------------------------------------------------- */

/* Both duals of MPO are softplus of a learned number, which counts as -18 below that, plus 1e-8: as
 * in Acme. This is that, to report it and to begin with. */
TRP_API float trp_mpo_dual(float number);

/* Actions drawn from the target policy at each state. */
typedef struct {
    uint32_t rows, samples;
    const float *q;    /* [rows][samples]: by the target critic */
    float temperature; /* the learned number */
    float bound;       /* epsilon of the E-step's divergence, in nats; 0: 0.1 */
} trp_mpo_batch;

/* The E-step (Abdolmaleki et al. 2018, "Maximum a Posteriori Policy Optimisation"): weights,
 * [rows][samples], samples * the softmax of q / eta over each row's samples, so that their mean is
 * 1; eta is trp_mpo_dual(temperature). Returns the temperature's loss, its dual function eta *
 * (bound + the mean over rows of log mean exp(q / eta)); *dtemperature: its derivative. The M-step
 * is trp_cloning_loss() with these weights and log-probabilities of the same samples, as rows *
 * samples rows, decoupled ("Relative Entropy Regularized Policy Iteration"): once of N(mean, the
 * target's deviation) and once of N(the target's mean, deviation). Costs of actions beyond their
 * bounds are a second call, with q = -costs and a temperature of its own, whose weights are added,
 * as in Acme. weights may be q. */
TRP_API float trp_mpo_weights(const trp_mpo_batch *batch, float *weights, float *dtemperature);

/* Divergences of the policy from the target policy, trp_gaussian_decoupled_kl() or
 * trp_categorical_kl(), which stay below a bound by multipliers. */
typedef struct {
    uint32_t rows, size;      /* size: 1, or of each dimension its own */
    const float *divergences; /* [rows][size] */
    const float *multipliers; /* [size]: the learned numbers */
    float bound;              /* of the mean over rows, of each */
} trp_mpo_bound;

/* The M-step's bound: the sum over `size` of alpha * the mean divergence, whose derivatives are
 * ddivergences (may be divergences), and of alpha * (bound - the mean divergence), whose
 * derivatives are dmultipliers, [size]: each treats the other's part as constant. `loss` is the
 * first and `value` the sum of the mean divergences. */
TRP_API trp_loss trp_mpo_bound_loss(const trp_mpo_bound *bound, float *ddivergences,
                                    float *dmultipliers);

/* ---- from a data set ------------------------------------------------------------------------- */

typedef struct {
    uint32_t rows;
    const float *targets; /* [rows]: the lesser of the target critics' values of actions taken */
    const float *weights; /* [rows]; NULL: 1 */
    float expectile;      /* in (0, 1); 0: 0.7 */
} trp_expectile_batch;

/* IQL's values of states: |expectile - 1{error < 0}| * error^2 of errors = targets - values
 * (Kostrikov et al. 2022, "Offline Reinforcement Learning with Implicit Q-Learning": expectile
 * regression). Its critics learn trp_critic_targets() with values of next states; its policy
 * trp_cloning_loss() with trp_crr_weights() of one "sample", the value of the state, a temperature
 * of 1 / beta and `most` 100 (advantage-weighted regression). dvalues may be values. */
TRP_API trp_loss trp_expectile_loss(const trp_expectile_batch *batch, const float *values,
                                    float *dvalues);

/* Actions that a critic should not think too much of. */
typedef struct {
    uint32_t rows, samples;
    const float *log_probs; /* [rows][samples]: the log-density that each was drawn with, of an
                               action that is uniform in a box - the logarithm of its volume. NULL:
                               they are all actions there are */
    const bool *mask;       /* [rows][samples]: what may be done; NULL: all */
    const int32_t *taken;   /* [rows]: which one was done, in [0, samples) (asserted). NULL: none,
                               and its value is in q */
    const float *q;         /* [rows]: of actions taken */
    const float *weights;   /* [rows]; NULL: 1 */
    float scale;            /* alpha; 0: 5, which goes with a whole squared error, where
                               trp_value_loss() has half of it */
    bool add;               /* derivatives to what is there: to those of the critic's own loss */
} trp_cql_batch;

typedef struct {
    float loss; /* scale * the mean of weight * a row's gap */
    float gap;  /* mean over the rows of log sum exp(q of samples) - q of the action taken */
} trp_cql;

/* What CQL(H) adds to a critic's loss: scale * (log sum over actions of exp Q - Q of the action
 * taken) (Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning"). Of
 * continuous actions the sum is estimated from samples of known density, exp(Q - log-density), and
 * their mean is the integral (as in that paper's appendix): usually some from a uniform
 * distribution, some of the policy at the state and some at the next one. sampled_q and dsampled_q,
 * [rows][samples], may be the same; dq is [rows], NULL with `taken`. */
TRP_API trp_cql trp_cql_loss(const trp_cql_batch *batch, const float *sampled_q, float *dsampled_q,
                             float *dq);

TRP_END_DECLS
#endif
