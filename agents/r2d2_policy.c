/* The policy of R2D2: epsilon-greedy on the values of a network that remembers. The state of its
 * core is kept slot by slot, and its value before a step goes with the step. */
#include "r2d2.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core_slots.h"
#include "torso.h"

struct r2d2_policy {
    trp_policy base;
    trp_r2d2_options options;
    trp_policy_options place; /* of this actor in its group; rows and slots are filled in */
    trp_net *net;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    uint32_t outputs;
    struct torso_image image;
    uint8_t *pixels; /* rows of it; NULL: as they come */
    float *params;
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
    if (act->rows > policy->place.rows)
        return trp_fail(TRP_INVALID_ARGUMENT, "r2d2 policy: %" PRIu32 " rows, made for %" PRIu32,
                        act->rows, policy->place.rows);
    core_slots_recall(&policy->core, act);
    if (act->extras)
        write_r2d2_extras(policy, act);
    trp_net_forward(policy->net, policy->params,
                    &(trp_net_rows){.rows = act->rows,
                                    .inputs = {torso_pixels(&policy->image, act->rows,
                                                            act->observations[0], policy->pixels)},
                                    .outputs = {policy->values},
                                    .state = policy->core.states,
                                    .end_state = policy->core.states});
    core_slots_keep(&policy->core, act);
    exploration_draw(r2d2_epsilon(base, act->steps), act, policy->outputs);
    exploration_finish(act, policy->outputs, policy->values);
    return TRP_OK;
}

static trp_status r2d2_policy_load(trp_policy *base, const float *params, size_t count)
{
    struct r2d2_policy *policy = (struct r2d2_policy *)base;
    if (count != policy->base.param_count)
        return trp_fail(TRP_INVALID_ARGUMENT, "r2d2 policy: %zu parameters, the network has %zu",
                        count, policy->base.param_count);
    memcpy(policy->params, params, count * sizeof *params);
    return TRP_OK;
}

static void r2d2_policy_destroy(trp_policy *base)
{
    struct r2d2_policy *policy = (struct r2d2_policy *)base;
    trp_net_destroy(policy->net);
    trp_floats_destroy(policy->params);
    core_slots_cleanup(&policy->core);
    trp_floats_destroy(policy->values);
    free(policy->pixels);
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

static void make_buffers(struct r2d2_policy *policy, const trp_net_spec *spec)
{
    size_t rows = policy->place.rows;
    policy->base.param_count = trp_net_param_count(spec);
    policy->params = trp_floats_create(policy->base.param_count);
    core_slots_create(&policy->core, policy->place.slots, rows, trp_net_state_width(spec));
    policy->values = trp_floats_create(rows * policy->outputs);
    if (torso_pixels_bytes(&policy->image) > 0)
        policy->pixels = xcalloc(rows, torso_pixels_bytes(&policy->image));
}

trp_status r2d2_policy_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_policy_options *options, trp_policy **out)
{
    *out = NULL;
    struct r2d2_policy *policy = xcalloc(1, sizeof *policy);
    policy->base.impl = &r2d2_policy_impl;
    policy->options = r2d2_options(agent);
    policy->place = *options;
    policy->place.rows = options->rows ? options->rows : 1;
    policy->place.slots = options->slots ? options->slots : policy->place.rows;
    policy->outputs = (uint32_t)env->action_count;
    policy->image = torso_image(policy->options.network, env);
    r2d2_extras(&policy->options, env, &policy->base.extras);
    struct q_net net = r2d2_net(&policy->options);
    trp_net_spec spec = q_net_spec(&net, env);
    make_buffers(policy, &spec);
    policy->base.tensors = policy->tensors;
    policy->base.tensor_count = trp_net_tensors(&spec, policy->tensors);
    trp_status status =
        trp_net_create(&policy->net, &(trp_net_options){.spec = &spec,
                                                        .batch = policy->place.rows,
                                                        .forward_only = true,
                                                        .precision = policy->options.precision});
    if (status != TRP_OK) {
        trp_policy_destroy(&policy->base);
        return status;
    }
    *out = &policy->base;
    return TRP_OK;
}
