/* MPO (Abdolmaleki et al. 2018, "Maximum a Posteriori Policy Optimisation") with a Gaussian policy.
 * A critic learns the mean of what the target critic says of actions that the target policy draws
 * at the next state, n steps later. These actions have weights, the softmax of what they are worth
 * over a temperature, which is learned so that the weighted policy stays near the target policy
 * (the E-step). The policy learns the weighted actions, and stays near the target policy (the
 * M-step): apart for its mean and its deviation, each with a multiplier that is learned
 * (Abdolmaleki et al. 2018, "Relative Entropy Regularized Policy Iteration"). Actions beyond their
 * bounds weigh less, by a temperature of their own (Abdolmaleki et al. 2020, "A Distributional View
 * on Multi-Objective Policy Optimization"). Draws may be prioritized (Schaul et al. 2016).
 *
 * As in Acme's learner, both steps are made at the next states, so that one pass through the target
 * critic serves everything.
 *
 * Actions are numbers within finite bounds, observations a row of floats; anything else is refused
 * by name. Networks have actions from -1 to 1; a policy's that lie beyond are cut to the bounds,
 * where an actor takes them and where a critic judges them. */
#ifndef TRP_MPO_H
#define TRP_MPO_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/agent.h>
#include <troupe/nn.h>

TRP_BEGIN_DECLS

/* Zero means default everywhere; a negative number means 0 where that is said. Defaults are Acme's
 * (agents/jax/mpo: config.py, types.py, networks.py at 770bc75, with its critic of one number);
 * they, ranges and units are in the agent's option table: `PROGRAM --options` prints it, and
 * `troupe options mpo`. */
typedef struct {
    uint32_t hidden[TRP_NET_HIDDEN_MAX];        /* of the policy; ends at the first zero */
    uint32_t critic_hidden[TRP_NET_HIDDEN_MAX]; /* of the critic */
    trp_activation activation;
    bool no_layer_norm; /* else a layer norm and tanh stand behind the first hidden layer of each */
    trp_precision precision; /* of the learner's networks and of policies' */

    float initial_deviation; /* of the policy: the exponential of what its network says */

    uint32_t n_step;
    float discount; /* gamma */

    float learning_rate; /* of Adam, the policy's */
    float critic_learning_rate;
    float dual_learning_rate; /* of temperatures and multipliers */
    float max_gradient_norm;  /* global norm, of each of the three; negative: no clipping */
    uint32_t batch_size;
    uint32_t target_period; /* learner steps between copies to the targets */
    float target_rate;      /* above 0: target += rate * (params - target) at each step instead */

    uint32_t samples;      /* actions at each state */
    float epsilon;         /* bounds of divergences, in nats: of the weighted policy, */
    float epsilon_penalty; /* of the one that is weighted by costs beyond the bounds, */
    float epsilon_mean;    /* and of the policy's mean and deviation, of each number of an action */
    float epsilon_deviation;
    bool joint_bounds;         /* both of all numbers of an action together */
    bool no_action_penalty;    /* actions beyond the bounds cost nothing */
    float initial_temperature; /* of both; as what follows, the number that trp_mpo_dual() is of */
    float initial_alpha_mean;  /* multipliers */
    float initial_alpha_deviation;

    int64_t random_steps; /* any action, each as likely, while all actors together take so many */

    int64_t replay_size;      /* items */
    int64_t min_replay_size;  /* items before the first update */
    float samples_per_insert; /* negative: as fast as both can */
    float insert_tolerance;   /* the table's error buffer is min_replay_size *
                                 insert_tolerance * samples_per_insert, as in Acme */

    float priority_exponent;   /* 0: uniform replay */
    float importance_exponent; /* beta; weights (size * P)^-beta of the critic's loss, divided by
                                  the batch's largest; negative: no correction */
    float priority_epsilon;    /* added to |td error| */
} trp_mpo_options;

/* Never fails: options are checked when a node is made and by trp_agent_check(). NULL: defaults. */
TRP_API trp_agent trp_mpo(const trp_mpo_options *options);

/* Of these options, for who prints or sets them without a program. */
TRP_API const trp_option_table *trp_mpo_option_table(void);

TRP_END_DECLS
#endif
