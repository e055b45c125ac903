/* TD3 (Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods"):
 * two critics that learn the lesser of both target critics' values, at the target policy's actions
 * with clipped noise; a deterministic policy that follows the first critic, and targets that
 * follow, every policy_delay steps. Actors add noise to their actions. With `imitation` the policy
 * also stays near what was done, which is TD3+BC (Fujimoto and Gu 2021, "A Minimalist Approach to
 * Offline Reinforcement Learning"): for learning from what others stored. Returns may be of several
 * steps, and draws prioritized (Schaul et al. 2016).
 *
 * Actions are numbers within finite bounds, observations a row of floats; anything else is refused
 * by name. Networks have actions from -1 to 1, so deviations are in halves of the distance between
 * an action's bounds. */
#ifndef TRP_TD3_H
#define TRP_TD3_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/agent.h>
#include <troupe/nn.h>

TRP_BEGIN_DECLS

/* Zero means default everywhere; a negative number means 0 where that is said. Defaults are Acme's
 * (agents/jax/td3/config.py at 770bc75), but random_steps, which is the paper's for short episodes;
 * they, ranges and units are in the agent's option table: `PROGRAM --options` prints it, and
 * `troupe options td3`. */
typedef struct {
    uint32_t hidden[TRP_NET_HIDDEN_MAX]; /* of policy and critics; ends at the first zero */
    trp_activation activation;
    trp_precision precision; /* of the learner's networks and of policies' */

    uint32_t n_step;
    float discount; /* gamma */

    float learning_rate; /* of Adam, the policy's */
    float critic_learning_rate;
    float max_gradient_norm; /* global norm, of each; 0: no clipping */
    uint32_t batch_size;
    uint32_t policy_delay; /* learner steps from one of the policy and the targets to the next */
    float target_rate;     /* target += rate * (params - target) */
    float target_noise;    /* deviation of what smooths the target policy; negative: 0 */
    float target_noise_clip;
    float imitation; /* alpha: what following the critic weighs beside imitation, 2.5 in the paper;
                        0: nothing is imitated */
    bool normalize_states; /* networks see (state - mean) / (deviation + 1e-3) of the learner's
                              .dataset, as TD3+BC's paper has it and Acme's has not; without a
                              dataset the learner refuses to begin */

    float noise;          /* deviation of exploration; negative: 0 */
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
} trp_td3_options;

/* Never fails: options are checked when a node is made and by trp_agent_check(). NULL: defaults. */
TRP_API trp_agent trp_td3(const trp_td3_options *options);

/* Of these options, for who prints or sets them without a program. */
TRP_API const trp_option_table *trp_td3_option_table(void);

TRP_END_DECLS
#endif
