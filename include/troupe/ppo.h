/* PPO (Schulman et al. 2017, "Proximal Policy Optimization Algorithms"): sequences of an actor's
 * steps, generalised advantages (Schulman et al. 2016), and epochs of minibatches of the clipped
 * surrogate, with the values' loss and an entropy bonus. Values may be clipped, too (Engstrom et
 * al. 2020). Actions are choices, whose masks are honoured, several choices, or numbers: a Gaussian
 * whose deviation does not depend on the state.
 *
 * Distributed, actors insert into a queue and wait for the version that is made of what they did:
 * with N actors of E copies, batch_size = N * E and trp_actor_options .sync_every_items = E. Fused,
 * the learner steps the environments itself (trp_learner_options .envs = batch_size). */
#ifndef TRP_PPO_H
#define TRP_PPO_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/agent.h>
#include <troupe/nn.h>
#include <troupe/optimizer.h>
#include <troupe/torso.h>

TRP_BEGIN_DECLS

/* Zero means default everywhere; a negative number means 0 where that is said. Defaults are those
 * of CleanRL's ppo.py (fe8d8a03), but that the learning rate falls only with schedule_steps; they,
 * ranges and units are in the agent's option table: `PROGRAM --options` prints it, and `troupe
 * options ppo`. */
typedef struct {
    trp_torso network;
    uint32_t hidden[TRP_NET_HIDDEN_MAX]; /* of mlp; ends at the first zero */
    trp_activation activation;           /* of them */
    bool shared; /* of mlp: policy and value read the same layers; of images they always do */
    trp_precision precision;

    float discount;      /* gamma */
    float gae_lambda;    /* negative: 0 */
    uint32_t unroll;     /* steps of a sequence, the rows of final observations counted */
    uint32_t batch_size; /* sequences of an update */
    uint32_t epochs;
    uint32_t minibatches; /* an epoch's; they part its decisions evenly */

    float learning_rate; /* of Adam */
    trp_rate_schedule rate_schedule;
    float final_learning_rate;
    uint64_t schedule_steps; /* learner steps of all epochs: where target_kl leaves some out the
                                rate falls later than the clips of anneal_clip; 0: no schedule */
    float adam_epsilon;
    float max_gradient_norm; /* global norm; negative: no clipping */

    float clip;
    float value_clip;     /* negative: values are not clipped */
    bool anneal_clip;     /* both fall to 0 within schedule_steps, linearly */
    float entropy_weight; /* negative: 0 */
    float value_weight;
    bool raw_advantages; /* they are not normalised in each minibatch */
    float target_kl; /* no more epochs once one's mean of KL(old || new) is above it; the learner
                        waits for its device once an epoch then; 0: all epochs */
} trp_ppo_options;

/* Never fails: options are checked when a node is made and by trp_agent_check(). NULL: defaults. */
TRP_API trp_agent trp_ppo(const trp_ppo_options *options);

/* Of these options, for who prints or sets them without a program. */
TRP_API const trp_option_table *trp_ppo_option_table(void);

TRP_END_DECLS
#endif
