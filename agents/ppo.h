/* The parts of PPO: tables and adder in ppo.c, its update in files of their own. */
#ifndef TRP_AGENTS_PPO_H
#define TRP_AGENTS_PPO_H

#include <troupe/ppo.h>
#include <troupe/returns.h>
#include "bodies/unrolls.h"
#include "unroll.h"

#define PPO_TABLE "rollouts"

extern const trp_option_table ppo_option_table;

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_ppo_options ppo_options(const trp_agent *agent);

/* Its network and its items; refers to the options. */
struct unroll ppo_unroll(const trp_ppo_options *options);

/* In phases: as many as steps of all epochs have. */
struct unroll_rate ppo_rate(const trp_ppo_options *options);

/* ---- the loss of a minibatch --------------------------------------------------------------- */

/* On a queue. */
void ppo_loss_on(trp_queue *queue, const struct ppo_loss_arguments *job);

void ppo_advantages_on(trp_queue *queue, const struct ppo_advantages_arguments *job);

TRP_MUST_USE trp_status ppo_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                           const trp_updater_options *options, trp_updater **out);

#endif
