/* The parts of PPO: tables and adder in ppo.c, its update in files of their own. */
#ifndef TRP_AGENTS_PPO_H
#define TRP_AGENTS_PPO_H

#include <troupe/ppo.h>
#include <troupe/returns.h>
#include "unroll.h"

#define PPO_TABLE "rollouts"

extern const trp_option_table ppo_option_table;

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_ppo_options ppo_options(const trp_agent *agent);

/* Its network and its items; refers to the options. */
struct unroll ppo_unroll(const trp_ppo_options *options);

/* ---- the loss of a minibatch --------------------------------------------------------------- */

/* Of all phases of a step, and of the last one: */
struct ppo_numbers {
    float loss;                                                          /* of the last phase */
    float policy_loss, value_loss, entropy, divergence, clipped, phases; /* sums */
};

/* On a queue; pointers are its device's. [rows] where nothing else is said. */
struct ppo_loss_job {
    struct decisions decisions; /* says and log_std are gradients afterwards */
    float *values;              /* the same */
    const float *old_log_probs, *old_values, *returns;
    float *advantages;            /* normalised afterwards */
    float *log_probs, *entropies; /* room */
    float clip, value_clip, entropy_weight, value_weight;
    bool raw_advantages;
    struct ppo_numbers *numbers;
};

void ppo_loss_on(trp_queue *queue, const struct ppo_loss_job *job);

/* Advantages and returns of sequences, [sequences][steps], on a queue; pointers are its device's.
 */
struct ppo_advantages_job {
    trp_trajectories items;      /* without discounts: */
    const float *item_discounts; /* they lack gamma */
    float *discounts;            /* written: they have it */
    float gamma, lambda;
    float *advantages, *returns;
};

void ppo_advantages_on(trp_queue *queue, const struct ppo_advantages_job *job);

TRP_MUST_USE trp_status ppo_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                           const trp_updater_options *options, trp_updater **out);

#endif
