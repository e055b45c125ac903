/* The policy of R2D2: epsilon-greedy on the values of a network that remembers. The state of its
 * core is kept slot by slot, and its value before a step goes with the step. */
#include "r2d2.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core_slots.h"
#include "policy_net.h"

struct r2d2_policy {
    trp_policy base;
    trp_r2d2_options options;
    trp_policy_options place; /* of this actor in its group */
    struct policy_net net;
    uint32_t outputs;
    struct core_slots core;
    float *values; /* [rows][outputs] */
};

static double r2d2_epsilon(const trp_policy *base, uint64_t steps)
{
    const struct r2d2_policy *policy = (const struct r2d2_policy *)base;
    struct exploration exploration = r2d2_exploration(&policy->options);
    return exploration_rate(&exploration, &policy->place, steps);
}

static void write_r2d2_extras(const struct r2d2_policy *policy, const trp_act *act)
{
    memcpy(act->extras[0], policy->core.states, act->rows * policy->core.width * sizeof(float));
    if (policy->base.extras.count > 1) /* r2d2_extras() */
        memcpy(act->extras[1], act->mask, (size_t)act->rows * policy->outputs);
}

static trp_status r2d2_policy_act(trp_policy *base, const trp_act *act)
{
    struct r2d2_policy *policy = (struct r2d2_policy *)base;
    TRP_TRY(policy_net_check(&policy->net, act));
    core_slots_recall(&policy->core, act);
    if (act->extras)
        write_r2d2_extras(policy, act);
    TRP_TRY(policy_net_say(&policy->net, act,
                           &(trp_net_rows){.outputs = {policy->values},
                                           .state = policy->core.states,
                                           .end_state = policy->core.states}));
    core_slots_keep(&policy->core, act);
    exploration_draw(r2d2_epsilon(base, act->steps), act, policy->outputs);
    exploration_finish(act, policy->outputs, policy->values);
    return TRP_OK;
}

static trp_status r2d2_policy_load(trp_policy *base, const float *params, size_t count)
{
    struct r2d2_policy *policy = (struct r2d2_policy *)base;
    return policy_net_load(&policy->net, params, count);
}

static void r2d2_policy_destroy(trp_policy *base)
{
    struct r2d2_policy *policy = (struct r2d2_policy *)base;
    policy_net_cleanup(&policy->net);
    core_slots_cleanup(&policy->core);
    trp_floats_destroy(policy->values);
    free(policy);
}

static size_t r2d2_policy_metrics(const trp_policy *base, uint64_t steps, trp_metric *metrics)
{
    metrics[0] = (trp_metric){"epsilon", r2d2_epsilon(base, steps)};
    return 1;
}

static const trp_policy_impl r2d2_policy_impl = {
    .act = r2d2_policy_act,
    .load = r2d2_policy_load,
    .metrics = r2d2_policy_metrics,
    .destroy = r2d2_policy_destroy,
};

trp_status r2d2_policy_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_policy_options *options, trp_policy **out)
{
    *out = NULL;
    struct r2d2_policy *policy = xcalloc(1, sizeof *policy);
    policy->base.impl = &r2d2_policy_impl;
    policy->options = r2d2_options(agent);
    policy->place = *options;
    policy->outputs = (uint32_t)env->action_count;
    r2d2_extras(&policy->options, env, &policy->base.extras);
    struct q_net net = r2d2_net(&policy->options);
    trp_net_spec spec = q_net_spec(&net, env);
    trp_status status =
        policy_net_create(&policy->net, &policy->base,
                          &(struct policy_net_options){.who = "r2d2",
                                                       .spec = &spec,
                                                       .env = env,
                                                       .place = options,
                                                       .network = policy->options.network,
                                                       .precision = policy->options.precision});
    if (status != TRP_OK) {
        trp_policy_destroy(&policy->base);
        return status;
    }
    size_t rows = policy->net.rows;
    core_slots_create(&policy->core, options->slots ? options->slots : rows, rows,
                      trp_net_state_width(&spec));
    policy->values = trp_floats_create(rows * policy->outputs);
    *out = &policy->base;
    return TRP_OK;
}
