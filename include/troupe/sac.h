/* SAC (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications"): a policy that is
 * paid for its entropy, the tanh of a normal variable between an action's bounds. Two critics learn
 * the lesser of both target critics' values of an action that the policy draws at the next state,
 * less temperature * its log-probability, the policy follows the lesser of the critics, and the
 * temperature is learned so that the entropy stays near a target, or fixed. Returns may be of
 * several steps, and draws prioritized (Schaul et al. 2016). With `conservative` critics are made
 * to think less of actions that nobody did, which is CQL(H) (Kumar et al. 2020, "Conservative
 * Q-Learning for Offline Reinforcement Learning"): for learning from what others stored.
 *
 * Actions are numbers within finite bounds, observations a row of floats; anything else is refused
 * by name. Networks have actions from -1 to 1, and entropies and log-probabilities are of these. */
#ifndef TRP_SAC_H
#define TRP_SAC_H

#include <stdint.h>

#include <troupe/agent.h>
#include <troupe/nn.h>

TRP_BEGIN_DECLS

/* Zero means default everywhere; a negative number means 0 where that is said. Defaults are Acme's
 * (agents/jax/sac/config.py at 770bc75), but random_steps, which the authors' code has
 * (n_initial_exploration_steps); they, ranges and units are in the agent's option table: `PROGRAM
 * --options` prints it, and `troupe options sac`. */
typedef struct {
    uint32_t hidden[TRP_NET_HIDDEN_MAX]; /* of policy and critics; ends at the first zero */
    trp_activation activation;
    trp_precision precision; /* of the learner's networks and of policies' */

    uint32_t n_step; /* rewards of later steps lack the entropy's: 1 is the paper's */
    float discount;  /* gamma */

    float learning_rate; /* of Adam, the policy's */
    float critic_learning_rate;
    float max_gradient_norm; /* global norm, of policy and critics each; 0: no clipping */
    uint32_t batch_size;
    float target_rate; /* target += rate * (params - target) at each step */

    float temperature;         /* what a nat of entropy is worth, for good; 0: it is learned */
    float initial_temperature; /* of a learned one, as what follows */
    float temperature_learning_rate; /* of Adam, of its logarithm */
    float target_entropy;            /* in nats; 0: minus the numbers of an action */

    float conservative; /* alpha of CQL, beside half a squared error as in the paper; 0: SAC. Its
                           authors' code and Acme have 5 beside all of it, which is 2.5 here. Acme's
                           CQL also has a learning_rate of 3e-5, and no entropy: a temperature of
                           1e-30 */
    uint32_t conservative_samples; /* actions of each of three kinds, at a state; Acme's 10 */
    int64_t bc_steps; /* of CQL: in its first steps the policy learns what was done, the
                         log-probability of it, while critics and temperature learn as ever;
                         Acme's 50 000 (num_bc_iters of agents/jax/cql/config.py); negative: 0 */

    int64_t random_steps; /* any action, each as likely, while all actors together take so many;
                             negative: 0 */

    int64_t replay_size;      /* items */
    int64_t min_replay_size;  /* items before the first update */
    float samples_per_insert; /* negative: as fast as both can */
    float insert_tolerance;   /* the table's error buffer is min_replay_size *
                                 insert_tolerance * samples_per_insert, as in Acme */

    float priority_exponent;   /* 0: uniform replay */
    float importance_exponent; /* beta; weights (size * P)^-beta of the critics' losses, divided by
                                  the batch's largest; negative: no correction */
    float priority_epsilon;    /* added to the larger |td error| of both critics */
} trp_sac_options;

/* Never fails: options are checked when a node is made and by trp_agent_check(). NULL: defaults. */
TRP_API trp_agent trp_sac(const trp_sac_options *options);

/* Of these options, for who prints or sets them without a program. */
TRP_API const trp_option_table *trp_sac_option_table(void);

TRP_END_DECLS
#endif
