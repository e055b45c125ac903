/* IMPALA (Espeholt et al. 2018, "IMPALA: Scalable Distributed Deep-RL with Importance Weighted
 * Actor-Learner Architectures"): actors go on with parameters that are a little old, and V-trace
 * corrects for that. A step is one pass over a batch of sequences: the policy gradient with
 * V-trace's advantages, the values' loss on its targets, and an entropy bonus. The network may have
 * a recurrent core, whose state before a sequence the actor stores. Actions are choices, whose
 * masks are honoured, several choices, or numbers: a Gaussian whose deviation does not depend on
 * the state.
 *
 * Distributed, actors insert into a queue of queue_batches and wait for nothing but room in it. As
 * in the paper they ask for parameters once an unroll (of every copy), unless told otherwise; how
 * many versions they are behind is reported ("lag"). Fused, the learner steps the environments
 * itself (trp_learner_options .envs = batch_size), and no ratio is other than 1.
 *
 * The paper's optimizer is .optimizer = TRP_RMSPROP with .rmsprop_epsilon_inside and an
 * .optimizer_epsilon of 0.1 (0.01 for Atari), whose rate falls to 0; its rewards are cut to
 * [-1, 1], which is a wrapper of the environment (clip_reward=1, env.h). */
#ifndef TRP_IMPALA_H
#define TRP_IMPALA_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/agent.h>
#include <troupe/nn.h>
#include <troupe/optimizer.h>
#include <troupe/torso.h>

TRP_BEGIN_DECLS

/* Zero means default everywhere; a negative number means 0 where that is said. Defaults are those
 * of Acme's IMPALAConfig (770bc75) but for the networks; bars are the paper's. They, ranges and
 * units are in the agent's option table: `PROGRAM --options` prints it, and `troupe options
 * impala`. */
typedef struct {
    trp_torso network;
    uint32_t hidden[TRP_NET_HIDDEN_MAX]; /* of mlp; ends at the first zero */
    trp_activation activation;           /* of them */
    bool separate; /* of mlp without a core: the value has layers of its own, as many */
    trp_core core; /* what remembers, behind these layers */
    uint32_t core_size;
    trp_precision precision;

    float discount;         /* gamma */
    uint32_t unroll;        /* steps of a sequence, the rows of final observations counted */
    uint32_t batch_size;    /* sequences of an update */
    uint32_t queue_batches; /* that wait in the queue at most */

    trp_optimizer_kind optimizer;
    float learning_rate;
    trp_rate_schedule rate_schedule;
    float final_learning_rate;
    uint64_t schedule_steps;     /* learner steps; 0: no schedule */
    float adam_beta1;            /* Adam, AdamW, LAMB, and so is this: */
    float adam_beta2;            /* negative: 0 */
    float optimizer_epsilon;     /* of all but SGD */
    float momentum;              /* SGD, RMSProp */
    float rmsprop_alpha;         /* negative: 0 */
    bool rmsprop_epsilon_inside; /* under the root */
    float max_gradient_norm;     /* global norm; negative: no clipping */

    float rho_bar;        /* of ratios in V-trace's errors: what its values are of */
    float c_bar;          /* of its traces: how far back errors reach; at most rho_bar */
    float policy_rho_bar; /* of the policy gradient's weights */
    float lambda;         /* what traces are multiplied by */
    float entropy_weight; /* negative: 0 */
    float value_weight;   /* of half the squared error: 1 is Acme's 0.5 of the whole */
} trp_impala_options;

/* Never fails: options are checked when a node is made and by trp_agent_check(). NULL: defaults. */
TRP_API trp_agent trp_impala(const trp_impala_options *options);

/* Of these options, for who prints or sets them without a program. */
TRP_API const trp_option_table *trp_impala_option_table(void);

TRP_END_DECLS
#endif
