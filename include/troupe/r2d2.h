/* R2D2, recurrent experience replay in distributed reinforcement learning (Kapturowski et al.
 * 2019): double Q-learning over sequences with a network that remembers. An item is burn_in + trace
 * steps and one row to bootstrap from, with the state that the actor's core had before its first
 * step. The learner brings that state up to date over the burn-in, without a gradient and without a
 * loss, and learns from the rest: n-step returns in rescaled values, priorities of the largest and
 * the mean error.
 *
 * So the first burn_in steps of an episode are learned from by no item, as in the paper and Acme;
 * of episodes that are not much longer than that, burn_in = 0 (negative here) learns all. */
#ifndef TRP_R2D2_H
#define TRP_R2D2_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/agent.h>
#include <troupe/nn.h>
#include <troupe/torso.h>

TRP_BEGIN_DECLS

/* Zero means default everywhere; a negative number means 0 where that is said. Defaults are Acme's
 * (agents/jax/r2d2), where it has any, but for replay_size and min_replay_size, a fortieth of its
 * 100 000 and 50 000 items, adam_epsilon, the paper's, and max_gradient_norm, where Acme clips
 * nothing; ranges and units are in the agent's option table: `PROGRAM --options` prints it, and
 * `troupe options r2d2`. Actions are one
 * choice; of masked ones the items have a column "mask", and the state after a truncated episode is
 * taken as one where everything may be done. */
typedef struct {
    trp_torso network;
    uint32_t hidden[TRP_NET_HIDDEN_MAX]; /* ends at the first zero */
    trp_activation activation;
    trp_core core; /* 0: an LSTM */
    uint32_t core_size;
    bool dueling;
    trp_precision precision; /* of the learner's network and of policies' */

    int32_t burn_in; /* negative: 0 */
    uint32_t trace;
    uint32_t period; /* steps between the first ones of two items of an episode */
    uint32_t n_step;
    float discount;          /* gamma */
    float rescaling_epsilon; /* of h (losses.h) */
    float huber_delta; /* of errors of rescaled values; 0: half their squares, as in the paper */

    float learning_rate; /* of Adam */
    float adam_epsilon;
    float max_gradient_norm; /* global norm; negative: no clipping */
    uint32_t batch_size;
    uint32_t target_period; /* learner steps between copies to the target network */

    /* As DQN's (dqn.h), whose defaults they have, too; the paper and Acme have 0.4, 0.4 and an
     * alpha of 7. */
    float epsilon_start;
    float epsilon_end;
    uint64_t epsilon_steps;
    float epsilon_alpha;

    int64_t replay_size;      /* items */
    int64_t min_replay_size;  /* items before the first update */
    float samples_per_insert; /* negative: as fast as both can */
    float insert_tolerance;

    float priority_exponent;   /* negative: uniform replay */
    float priority_eta;        /* of the largest error, 1 - eta of the mean; negative: 0 */
    float importance_exponent; /* beta; negative: no correction */
} trp_r2d2_options;

/* Never fails: options are checked when a node is made and by trp_agent_check(). NULL: defaults. */
TRP_API trp_agent trp_r2d2(const trp_r2d2_options *options);

/* Of these options, for who prints or sets them without a program. */
TRP_API const trp_option_table *trp_r2d2_option_table(void);

TRP_END_DECLS
#endif
