/* Networks that say of a state what to do, as a distribution of actions, and what it is worth; and
 * the policy that draws from one. A3C, IMPALA and PPO have these. */
#ifndef TRP_AGENTS_ACTOR_CRITIC_H
#define TRP_AGENTS_ACTOR_CRITIC_H

#include <troupe/agent.h>
#include "decisions.h"
#include "torso.h"

/* What the policy says of a step beside its action. */
#define AC_LOG_PROB "log_prob"
#define AC_MASK     "mask"   /* where the environment masks: what could be done */
#define AC_SAMPLE   "sample" /* of continuous actions: the action before it was cut to its bounds */
#define AC_CORE     "core"   /* of a recurrent network: its state before the step */

struct actor_critic {
    const char *who; /* "ppo": begins messages */
    trp_torso network;
    struct torso_hidden hidden;
    bool separate; /* of mlp: the value has layers of its own, "value.0" ... */
    trp_core core;
    uint32_t core_size;
    trp_initializer init; /* of weights; with orthogonal ones, heads begin small: the policy's with
                             a gain of 0.01, the value's with 1, and others with sqrt 2 */
    trp_precision precision;
};

/* INVALID_ARGUMENT: what of the environment does not fit. */
TRP_MUST_USE trp_status actor_critic_check(const struct actor_critic *options,
                                           const trp_env_spec *env);

/* Outputs: logits and value, or mean, log_std and value. */
trp_net_spec actor_critic_spec(const struct actor_critic *options, const trp_env_spec *env);

/* What its outputs are for a pass over `rows`; [rows][...]. */
struct actor_critic_outputs {
    float *says, *log_std, *values; /* log_std NULL where actions are not continuous */
};

void actor_critic_outputs_of(const struct actor_critic_outputs *outputs,
                             float *array[TRP_NET_OUTPUTS_MAX]);

/* Appends the extras of its policy. */
void actor_critic_extras(const struct actor_critic *options, const trp_env_spec *env,
                         trp_columns *extras);

TRP_MUST_USE trp_status actor_critic_policy_create(const struct actor_critic *options,
                                                   const trp_env_spec *env,
                                                   const trp_policy_options *place,
                                                   trp_policy **out);

#endif
