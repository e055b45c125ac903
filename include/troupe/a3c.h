/* A3C (Mnih et al. 2016, "Asynchronous Methods for Deep Reinforcement Learning", algorithm S3):
 * learners that play environments of their own with a copy of the parameters, and after every few
 * steps, at most `unroll`, add to the parameters of all what a step of one shared RMSProp makes of
 * the policy gradient with n-step advantages, the values' loss, and an entropy bonus. The network
 * may have a recurrent core, as the paper's A3C LSTM. Actions are choices, whose masks are
 * honoured, several choices, or numbers: a Gaussian whose deviation does not depend on the state.
 *
 *     trp_add_learner(program, "learner", &(trp_learner_options){
 *         .agent = &agent, .env = "CartPole-v1", .envs = 1, .count = 4, .mode = "hogwild"});
 *
 * With one learner, which steps as many environments together as a batch has sequences (.envs =
 * batch_size), it is A2C. Distributed, actors insert into a queue and wait for the version that is
 * made of what they did, as PPO's: nothing corrects for parameters that are older.
 *
 * The sums of the paper over the steps of a rollout are means here: RMSProp makes the same of both,
 * but for its epsilon. */
#ifndef TRP_A3C_H
#define TRP_A3C_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/agent.h>
#include <troupe/nn.h>
#include <troupe/optimizer.h>
#include <troupe/torso.h>

TRP_BEGIN_DECLS

/* Zero means default everywhere; a negative number means 0 where that is said. Defaults are the
 * paper's (t_max, gamma, alpha, beta), and where it has none those of OpenAI Baselines' A2C
 * (ea25b9e), whose networks are larger. They, ranges and units are in the agent's option table:
 * `PROGRAM --options` prints it, and `troupe options a3c`. */
typedef struct {
    trp_torso network;
    uint32_t hidden[TRP_NET_HIDDEN_MAX]; /* of mlp; ends at the first zero */
    trp_activation activation;           /* of them */
    bool separate; /* of mlp without a core: the value has layers of its own, as many */
    trp_core core; /* what remembers, behind these layers */
    uint32_t core_size;
    trp_precision precision;

    float discount;      /* gamma */
    uint32_t unroll;     /* t_max: steps of a sequence, the rows of final observations counted */
    uint32_t batch_size; /* sequences of an update; the paper has 1 */

    bool adam; /* in place of RMSProp, whose epsilon is under the root */
    float learning_rate;
    trp_rate_schedule rate_schedule;
    float final_learning_rate;
    uint64_t schedule_steps; /* of all learners together; 0: no schedule */
    float rmsprop_alpha;     /* negative: 0 */
    float optimizer_epsilon;
    float max_gradient_norm; /* global norm, each learner's own; negative: no clipping */

    float entropy_weight; /* beta; negative: 0 */
    float value_weight;   /* of half the squared error: 1 is Baselines' 0.5 of the whole */
} trp_a3c_options;

/* Never fails: options are checked when a node is made and by trp_agent_check(). NULL: defaults. */
TRP_API trp_agent trp_a3c(const trp_a3c_options *options);

/* Of these options, for who prints or sets them without a program. */
TRP_API const trp_option_table *trp_a3c_option_table(void);

TRP_END_DECLS
#endif
