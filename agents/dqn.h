/* The parts of DQN: tables and adder in dqn.c, policy and updater in files of their own. */
#ifndef TRP_AGENTS_DQN_H
#define TRP_AGENTS_DQN_H

#include <troupe/dqn.h>
#include <troupe/losses.h>
#include "bodies/dqn.h"
#include "exploration.h"
#include "q_net.h"
#include "torso.h"
#include "transitions.h"

#define DQN_MASK "mask"

extern const trp_option_table dqn_option_table;

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_dqn_options dqn_options(const trp_agent *agent);

/* Its network, which borrows the options. */
struct q_net dqn_net(const trp_dqn_options *options);

/* Numbers of the network for an action: atoms, quantiles, or 1. */
uint32_t dqn_atoms(const trp_dqn_options *options);

/* The value of each of `count` actions: in `values`, or the outputs themselves. */
const float *dqn_values(const trp_dqn_options *options, size_t count, const float *outputs,
                        float *values);

/* INVALID_ARGUMENT: options that do not go with the loss. */
TRP_MUST_USE trp_status dqn_loss_check(const trp_dqn_options *options);

/* What the loss wants the policy to say of a step: what could have been done, DQN_MASK. */
void dqn_extras(const trp_dqn_options *options, const trp_env_spec *env, trp_columns *extras);

bool dqn_reads_target_now(const trp_dqn_options *options);

/* The loss on a queue. */
void dqn_loss_on(trp_queue *queue, const struct dqn_loss_arguments *job);

/* What learns it. */
trp_optimizer dqn_optimizer(const trp_dqn_options *options);

/* Its items. */
struct transitions dqn_transitions(const trp_dqn_options *options);

struct exploration dqn_exploration(const trp_dqn_options *options);

TRP_MUST_USE trp_status dqn_policy_create(const trp_agent *agent, const trp_env_spec *env,
                                          const trp_policy_options *options, trp_policy **out);
TRP_MUST_USE trp_status dqn_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                           const trp_updater_options *options, trp_updater **out);

#endif
