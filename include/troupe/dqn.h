/* DQN (Mnih et al. 2015) with double Q-learning (van Hasselt et al. 2016), n-step returns (Sutton
 * 1988; in DQN: Hessel et al. 2018), prioritized replay (Schaul et al. 2016), optionally dueling
 * networks (Wang et al. 2016) and noisy ones (Fortunato et al. 2018), one exploration rate per
 * actor (Horgan et al. 2018), and other losses than its own: Munchausen, C51, QR-DQN. */
#ifndef TRP_DQN_H
#define TRP_DQN_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/agent.h>
#include <troupe/nn.h>
#include <troupe/optimizer.h>
#include <troupe/torso.h>

TRP_BEGIN_DECLS

/* What an action's value is, and what the network learns it from (losses.h). Distributions have a
 * network of more outputs, of dueling streams, too (Hessel et al. 2018, "The Integrated Agent");
 * policies act by their means. */
typedef enum {
    TRP_DQN_HUBER,      /* a number: double Q-learning, or not (`no_double`) */
    TRP_DQN_MUNCHAUSEN, /* a number; rewards and next values of a soft policy (Vieillard et al.
                           2020; there with n_step 1). Where actions are masked, items have a column
                           "mask" of what could be done at `observation` */
    TRP_DQN_C51,        /* a distribution over `atoms` values (Bellemare et al. 2017) */
    TRP_DQN_QUANTILE,   /* `quantiles` of it (Dabney et al. 2018); huber_delta is its kappa */
} trp_dqn_loss;

/* Zero means default everywhere; a negative number means 0 where that is said. Defaults, ranges and
 * units are in the agent's option table: `PROGRAM --options` prints it, and `troupe options dqn`.
 * Defaults are for small tasks, and of several sources:
 *
 *   Acme      learning_rate, discount, target_period, epsilon_end, min_replay_size,
 *             insert_tolerance, priority_exponent (agents/jax/dqn/config.py at 770bc75)
 *   Rainbow   n_step, and importance_exponent, which begins there (0.4) and goes to 1; Acme has
 *             5 and 0.2 (Hessel et al. 2018)
 *   CleanRL   batch_size, epsilon_start; Acme has 256 and 0.05 (dqn.py at fe8d8a03)
 *   papers    huber_delta, munchausen_*, atoms, value_least, value_most, quantiles,
 *             max_gradient_norm (those of the losses and of dueling networks)
 *   ours      hidden, epsilon_steps, priority_epsilon; replay_size and samples_per_insert, of
 *             which Acme has 1 000 000 and 0.5 */
typedef struct {
    trp_torso network;                   /* `dueling` and `noisy` are of all of them */
    uint32_t hidden[TRP_NET_HIDDEN_MAX]; /* ends at the first zero */
    trp_activation activation;
    bool dueling;
    bool noisy; /* explores by noise on the weights, which is learned, and not by epsilon: new
                   for every call of a policy, whose rows share it, and each network of an
                   update */
    trp_precision precision; /* of the learner's network and of policies' */
    bool no_double;          /* max of the target network, as in the first DQN */

    trp_dqn_loss loss;
    float munchausen_temperature;
    float munchausen_scale; /* alpha; negative: 0 */
    float munchausen_least; /* of temperature * log policy */
    uint32_t atoms;
    float value_least, value_most; /* of the atoms: returns beyond them cannot be told apart; 0 is
                                      the default as everywhere: a bound there is 1e-6 */
    uint32_t quantiles;

    uint32_t n_step;
    float discount; /* gamma */

    /* What these do is in optimizer.h; those of another optimizer are left alone, but a momentum of
     * what has none is refused. */
    trp_optimizer_kind optimizer;
    float learning_rate;
    trp_rate_schedule rate_schedule;
    float final_learning_rate;
    uint64_t schedule_steps, warmup_steps;
    float weight_decay;
    float adam_beta1, adam_beta2; /* of LAMB, too; negative: 0 */
    float optimizer_epsilon;      /* 0: the optimizer's own default */
    float momentum;
    bool nesterov;
    float rmsprop_alpha; /* negative: 0 */
    bool rmsprop_centered;
    bool rmsprop_epsilon_inside;
    float max_gradient_norm; /* global norm; negative: no clipping */

    float huber_delta;
    uint32_t batch_size;
    uint32_t target_period; /* learner steps between copies to the target network */
    float target_rate;      /* > 0: instead of copies, target += rate * (params - target) a step
                               (Lillicrap et al. 2016) */

    /* Actor i of N explores at e^(1 + epsilon_alpha * i / (N - 1)) (Horgan et al. 2018, section 4),
     * where e falls linearly from epsilon_start to epsilon_end (negative: 0) while all actors
     * together take epsilon_steps steps. */
    float epsilon_start;
    float epsilon_end;
    uint64_t epsilon_steps;
    float epsilon_alpha; /* 0: the same for all; Ape-X has 7 */

    int64_t replay_size;      /* items */
    int64_t min_replay_size;  /* items before the first update */
    float samples_per_insert; /* negative: as fast as both can */
    float insert_tolerance;   /* the table's error buffer is min_replay_size *
                                 insert_tolerance * samples_per_insert, as in Acme */

    float priority_exponent;   /* negative: uniform replay */
    float importance_exponent; /* beta; weights (size * P)^-beta, divided by the batch's largest;
                                  negative: no correction */
    float priority_epsilon;    /* added to |td error| */
} trp_dqn_options;

/* Never fails: options are checked when a node is made and by trp_agent_check(). NULL: defaults. */
TRP_API trp_agent trp_dqn(const trp_dqn_options *options);

/* Of these options, for who prints or sets them without a program. */
TRP_API const trp_option_table *trp_dqn_option_table(void);

TRP_END_DECLS
#endif
