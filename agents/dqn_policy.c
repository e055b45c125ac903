/* The policy of DQN: epsilon-greedy on the values of a network that only runs forward. Rows that
 * explore are drawn first, so that a call in which all of them do skips the network. */
#include "dqn.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/losses.h>
#include "core/alloc.h"
#include "policy_net.h"

struct dqn_policy {
    trp_policy base;
    trp_dqn_options options;
    trp_policy_options place; /* of this actor in its group */
    struct policy_net net;
    uint32_t outputs;
    float *said;   /* [rows][outputs][atoms] */
    float *values; /* [rows][outputs] */
};

static double dqn_epsilon(const trp_policy *base, uint64_t steps)
{
    const struct dqn_policy *policy = (const struct dqn_policy *)base;
    struct exploration exploration = dqn_exploration(&policy->options);
    return exploration_rate(&exploration, &policy->place, steps);
}

static trp_status policy_act(trp_policy *base, const trp_act *act)
{
    struct dqn_policy *policy = (struct dqn_policy *)base;
    TRP_TRY(policy_net_check(&policy->net, act));
    if (act->extras && policy->base.extras.count > 0) /* dqn_extras() */
        memcpy(act->extras[0], act->mask, (size_t)act->rows * policy->outputs);
    if (!exploration_draw(dqn_epsilon(base, act->steps), act, policy->outputs))
        return TRP_OK;
    if (!policy->place.greedy)
        policy_net_resample(&policy->net, act->rng);
    TRP_TRY(policy_net_say(&policy->net, act, &(trp_net_rows){.outputs = {policy->said}}));
    const float *values = dqn_values(&policy->options, (size_t)act->rows * policy->outputs,
                                     policy->said, policy->values);
    exploration_finish(act, policy->outputs, values);
    return TRP_OK;
}

static trp_status policy_load(trp_policy *base, const float *params, size_t count)
{
    struct dqn_policy *policy = (struct dqn_policy *)base;
    return policy_net_load(&policy->net, params, count);
}

static void policy_destroy(trp_policy *base)
{
    struct dqn_policy *policy = (struct dqn_policy *)base;
    policy_net_cleanup(&policy->net);
    trp_floats_destroy(policy->said);
    trp_floats_destroy(policy->values);
    free(policy);
}

static size_t policy_metrics(const trp_policy *base, uint64_t steps, trp_metric *metrics)
{
    metrics[0] = (trp_metric){"epsilon", dqn_epsilon(base, steps)};
    return 1;
}

static const trp_policy_impl policy_impl = {
    .act = policy_act,
    .load = policy_load,
    .metrics = policy_metrics,
    .destroy = policy_destroy,
};

trp_status dqn_policy_create(const trp_agent *agent, const trp_env_spec *env,
                             const trp_policy_options *options, trp_policy **out)
{
    *out = NULL;
    struct dqn_policy *policy = xcalloc(1, sizeof *policy);
    policy->base.impl = &policy_impl;
    policy->options = dqn_options(agent);
    policy->place = *options;
    struct q_net net = dqn_net(&policy->options);
    trp_net_spec spec = q_net_spec(&net, env);
    policy->outputs = (uint32_t)env->action_count;
    dqn_extras(&policy->options, env, &policy->base.extras);
    trp_status status =
        policy_net_create(&policy->net, &policy->base,
                          &(struct policy_net_options){.who = "dqn",
                                                       .spec = &spec,
                                                       .env = env,
                                                       .place = options,
                                                       .network = policy->options.network,
                                                       .precision = policy->options.precision});
    if (status != TRP_OK) {
        trp_policy_destroy(&policy->base);
        return status;
    }
    size_t values = (size_t)policy->net.rows * policy->outputs;
    policy->said = trp_floats_create(values * dqn_atoms(&policy->options));
    policy->values = trp_floats_create(values);
    *out = &policy->base;
    return TRP_OK;
}
