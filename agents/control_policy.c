/* Acting by a network that says continuous actions: with noise, or drawn, or where nobody explores
 * the mode; and at random before anything was learned, for which the network is not asked. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/nn.h>
#include "box.h"
#include "control.h"
#include "core/alloc.h"
#include "normalizer.h"
#include "policy_net.h"

struct control_policy {
    trp_policy base;
    struct control control;
    struct box box;
    trp_policy_options place;
    struct policy_net net;
    struct normalizer normalizer;
    float *normalizer_numbers;
    float *normal_states;                            /* [rows][size of a state] */
    trp_net_tensor tensors[2 + TRP_NET_TENSORS_MAX]; /* the normaliser's, then the network's */
    float *mean, *log_std;                           /* [rows][size] */
};

static void add_noise(const struct control_policy *policy, const trp_act *act, float *actions)
{
    for (size_t i = 0; i < (size_t)act->rows * policy->box.size; i++)
        actions[i] += policy->control.noise * (float)trp_rng_normal(act->rng);
}

/* What the network says of states as it knows them. */
static trp_status say_normal(struct control_policy *policy, const trp_act *act, trp_net_rows *rows)
{
    if (policy->normalizer.size == 0)
        return policy_net_say(&policy->net, act, rows);
    trp_act normal = *act;
    normal.observations = (const void *const[]){policy->normal_states};
    normalizer_rows(&policy->normalizer, policy->normalizer_numbers, act->rows,
                    act->observations[0], policy->normal_states);
    return policy_net_say(&policy->net, &normal, rows);
}

static trp_status act_deterministic(struct control_policy *policy, const trp_act *act)
{
    float *actions = act->actions;
    TRP_TRY(say_normal(policy, act, &(trp_net_rows){.outputs = {actions}}));
    if (!policy->place.greedy && policy->control.noise > 0)
        add_noise(policy, act, actions);
    box_stretch(&policy->box, act->rows, actions);
    return TRP_OK;
}

static trp_status act_gaussian(struct control_policy *policy, const trp_act *act)
{
    TRP_TRY(say_normal(policy, act, &(trp_net_rows){.outputs = {policy->mean, policy->log_std}}));
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
    return TRP_OK;
}

static trp_status control_policy_act(trp_policy *base, const trp_act *act)
{
    struct control_policy *policy = (struct control_policy *)base;
    TRP_TRY(policy_net_check(&policy->net, act));
    if (policy->place.greedy || act->steps >= (uint64_t)policy->control.random_steps)
        return policy->control.kind == CONTROL_DETERMINISTIC ? act_deterministic(policy, act)
                                                             : act_gaussian(policy, act);
    box_draw(&policy->box, act->rng, act->rows, act->actions);
    return TRP_OK;
}

static trp_status control_policy_load(trp_policy *base, const float *params, size_t count)
{
    struct control_policy *policy = (struct control_policy *)base;
    size_t first = normalizer_count(&policy->normalizer);
    if (count != base->param_count)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s policy: %zu parameters, the policy has %zu",
                        policy->control.who, count, base->param_count);
    if (first > 0)
        memcpy(policy->normalizer_numbers, params, first * sizeof *params);
    return policy_net_load(&policy->net, params + first, count - first);
}

static void control_policy_destroy(trp_policy *base)
{
    struct control_policy *policy = (struct control_policy *)base;
    policy_net_cleanup(&policy->net);
    trp_floats_destroy(policy->normalizer_numbers);
    trp_floats_destroy(policy->normal_states);
    trp_floats_destroy(policy->mean);
    trp_floats_destroy(policy->log_std);
    free(policy);
}

/* Its parameters are the normaliser's numbers, then the network's. */
static void add_normalizer(struct control_policy *policy, const trp_net_spec *spec,
                           const trp_env_spec *env)
{
    policy->normalizer = normalizer_of(env, policy->control.normalize_states);
    size_t first = normalizer_count(&policy->normalizer);
    if (first == 0)
        return;
    policy->normalizer_numbers = trp_floats_create(first);
    policy->normal_states = trp_floats_create((size_t)policy->net.rows * policy->normalizer.size);
    size_t tensors = normalizer_tensors(&policy->normalizer, policy->tensors);
    tensors += trp_net_tensors_at(spec, first, policy->tensors + tensors);
    policy->base.param_count += first;
    policy->base.tensors = policy->tensors;
    policy->base.tensor_count = tensors;
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
    trp_net_spec spec = control_spec(control, env);
    trp_status status =
        policy_net_create(&policy->net, &policy->base,
                          &(struct policy_net_options){.who = control->who,
                                                       .spec = &spec,
                                                       .env = env,
                                                       .place = place,
                                                       .network = TRP_TORSO_MLP,
                                                       .precision = control->precision});
    if (status != TRP_OK) {
        trp_policy_destroy(&policy->base);
        return status;
    }
    add_normalizer(policy, &spec, env);
    size_t numbers = (size_t)policy->net.rows * policy->box.size;
    policy->mean = trp_floats_create(numbers);
    policy->log_std = trp_floats_create(numbers);
    *out = &policy->base;
    return TRP_OK;
}
