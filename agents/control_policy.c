/* Acting by a network that says continuous actions: with noise, or drawn, or where nobody explores
 * the mode; and at random before anything was learned, for which the network is not asked. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/nn.h>
#include "box.h"
#include "control.h"
#include "core/alloc.h"

struct control_policy {
    trp_policy base;
    struct control control;
    struct box box;
    trp_policy_options place;
    trp_net *net;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    float *params;
    float *mean, *log_std; /* [rows][size] */
};

static void add_noise(const struct control_policy *policy, const trp_act *act, float *actions)
{
    for (size_t i = 0; i < (size_t)act->rows * policy->box.size; i++)
        actions[i] += policy->control.noise * (float)trp_rng_normal(act->rng);
}

static void act_deterministic(struct control_policy *policy, const trp_act *act)
{
    float *actions = act->actions;
    trp_net_forward(
        policy->net, policy->params,
        &(trp_net_rows){.rows = act->rows, .inputs = {act->observations[0]}, .outputs = {actions}});
    if (!policy->place.greedy && policy->control.noise > 0)
        add_noise(policy, act, actions);
    box_stretch(&policy->box, act->rows, actions);
}

static void act_gaussian(struct control_policy *policy, const trp_act *act)
{
    trp_net_forward(policy->net, policy->params,
                    &(trp_net_rows){.rows = act->rows,
                                    .inputs = {act->observations[0]},
                                    .outputs = {policy->mean, policy->log_std}});
    trp_gaussian says = control_gaussian(policy->control.kind, act->rows, policy->box.size,
                                         policy->mean, policy->log_std);
    if (says.squashed) {
        says.low = policy->box.low;
        says.high = policy->box.high;
    }
    if (policy->place.greedy)
        trp_gaussian_mode(&says, act->actions);
    else
        trp_gaussian_sample(&says, act->rng, act->actions, act->actions, NULL);
    if (!says.squashed)
        box_stretch(&policy->box, act->rows, act->actions);
}

static trp_status control_policy_act(trp_policy *base, const trp_act *act)
{
    struct control_policy *policy = (struct control_policy *)base;
    if (act->rows > policy->place.rows)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s policy: %" PRIu32 " rows, made for %" PRIu32,
                        policy->control.who, act->rows, policy->place.rows);
    if (!policy->place.greedy && act->steps < (uint64_t)policy->control.random_steps)
        box_draw(&policy->box, act->rng, act->rows, act->actions);
    else if (policy->control.kind == CONTROL_DETERMINISTIC)
        act_deterministic(policy, act);
    else
        act_gaussian(policy, act);
    return TRP_OK;
}

static trp_status control_policy_load(trp_policy *base, const float *params, size_t count)
{
    struct control_policy *policy = (struct control_policy *)base;
    if (count != base->param_count)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s policy: %zu parameters, the network has %zu",
                        policy->control.who, count, base->param_count);
    memcpy(policy->params, params, count * sizeof *params);
    return TRP_OK;
}

static void control_policy_destroy(trp_policy *base)
{
    struct control_policy *policy = (struct control_policy *)base;
    trp_net_destroy(policy->net);
    trp_floats_destroy(policy->params);
    trp_floats_destroy(policy->mean);
    trp_floats_destroy(policy->log_std);
    free(policy);
}

trp_status control_policy_create(const struct control *control, const trp_env_spec *env,
                                 const trp_policy_options *place, trp_policy **out)
{
    static const trp_policy_impl impl = {
        .act = control_policy_act, .load = control_policy_load, .destroy = control_policy_destroy};
    *out = NULL;
    struct control_policy *policy = xcalloc(1, sizeof *policy);
    policy->base.impl = &impl;
    policy->control = *control;
    policy->box = box_of(env);
    policy->place = *place;
    policy->place.rows = place->rows ? place->rows : 1;
    trp_net_spec spec = control_spec(control, env);
    trp_status status =
        trp_net_create(&policy->net, &(trp_net_options){.spec = &spec,
                                                        .batch = policy->place.rows,
                                                        .forward_only = true,
                                                        .precision = control->precision});
    if (status != TRP_OK) {
        trp_policy_destroy(&policy->base);
        return status;
    }
    policy->base.param_count = trp_net_param_count(&spec);
    policy->base.tensors = policy->tensors;
    policy->base.tensor_count = trp_net_tensors(&spec, policy->tensors);
    policy->params = trp_floats_create(policy->base.param_count);
    size_t numbers = (size_t)policy->place.rows * policy->box.size;
    policy->mean = trp_floats_create(numbers);
    policy->log_std = trp_floats_create(numbers);
    *out = &policy->base;
    return TRP_OK;
}
