/* A policy that draws its actions from what an actor-critic network says, and tells the adder how
 * probable they were. The state of a recurrent network is in the slot of its row. */
#include "actor_critic.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core_slots.h"

struct actor_critic_policy {
    trp_policy base;
    const char *who;
    struct action_space space;
    trp_policy_options place;
    trp_net *net;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    struct torso_image image;
    uint8_t *pixels; /* rows of it; NULL: as they come */
    float *params;
    struct actor_critic_outputs outputs;
    float *log_probs; /* [rows] */
    float *samples;   /* [rows][size], where actions are continuous */
    struct core_slots core;
    struct {
        size_t mask, sample, core; /* places of extras */
    } extra;
};

static void say(struct actor_critic_policy *policy, const trp_act *act)
{
    trp_net_rows rows = {
        .rows = act->rows,
        .inputs = {torso_pixels(&policy->image, act->rows, act->observations[0], policy->pixels)}};
    actor_critic_outputs_of(&policy->outputs, rows.outputs);
    if (policy->core.width > 0)
        rows.state = rows.end_state = policy->core.states;
    trp_net_forward(policy->net, policy->params, &rows);
}

/* An environment gets what lies between its bounds; how probable it is, is said of the sample. */
static void cut_samples(const struct actor_critic_policy *policy, uint32_t rows, float *actions)
{
    const struct action_space *space = &policy->space;
    for (size_t i = 0; i < (size_t)rows * space->size; i++) {
        size_t k = i % space->size;
        actions[i] = fminf(fmaxf(policy->samples[i], space->low[k]), space->high[k]);
    }
}

static void write_extras(const struct actor_critic_policy *policy, const trp_act *act)
{
    memcpy(act->extras[0], policy->log_probs, act->rows * sizeof(float));
    if (policy->space.masked)
        memcpy(act->extras[policy->extra.mask], act->mask, (size_t)act->rows * policy->space.size);
    if (policy->space.continuous)
        memcpy(act->extras[policy->extra.sample], policy->samples,
               (size_t)act->rows * policy->space.size * sizeof(float));
}

static trp_status draw_actions(trp_policy *base, const trp_act *act)
{
    struct actor_critic_policy *policy = (struct actor_critic_policy *)base;
    if (act->rows > policy->place.rows)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s policy: %" PRIu32 " rows, made for %" PRIu32,
                        policy->who, act->rows, policy->place.rows);
    core_slots_recall(&policy->core, act);
    if (act->extras && policy->core.width > 0) /* as it is before the step */
        memcpy(act->extras[policy->extra.core], policy->core.states,
               act->rows * policy->core.width * sizeof(float));
    say(policy, act);
    core_slots_keep(&policy->core, act);
    struct decisions decisions = {.space = policy->space,
                                  .rows = act->rows,
                                  .says = policy->outputs.says,
                                  .log_std = policy->outputs.log_std,
                                  .mask = act->mask};
    void *drawn = policy->space.continuous ? policy->samples : act->actions;
    decisions_draw(&decisions, act->rng, policy->place.greedy, drawn, policy->log_probs);
    if (policy->space.continuous)
        cut_samples(policy, act->rows, act->actions);
    if (act->extras)
        write_extras(policy, act);
    return TRP_OK;
}

static trp_status load_params(trp_policy *base, const float *params, size_t count)
{
    struct actor_critic_policy *policy = (struct actor_critic_policy *)base;
    if (count != base->param_count)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s policy: %zu parameters, the network has %zu",
                        policy->who, count, base->param_count);
    memcpy(policy->params, params, count * sizeof *params);
    return TRP_OK;
}

static void destroy_policy(trp_policy *base)
{
    struct actor_critic_policy *policy = (struct actor_critic_policy *)base;
    trp_net_destroy(policy->net);
    float *floats[] = {policy->params,         policy->outputs.says, policy->outputs.log_std,
                       policy->outputs.values, policy->log_probs,    policy->samples};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        trp_floats_destroy(floats[i]);
    core_slots_cleanup(&policy->core);
    free(policy->pixels);
    free(policy);
}

static void make_policy_room(struct actor_critic_policy *policy, const trp_net_spec *spec)
{
    size_t rows = policy->place.rows, size = policy->space.size;
    policy->params = trp_floats_create(policy->base.param_count);
    policy->outputs.says = trp_floats_create(rows * size);
    policy->outputs.values = trp_floats_create(rows);
    policy->log_probs = trp_floats_create(rows);
    if (policy->space.continuous) {
        policy->outputs.log_std = trp_floats_create(rows * size);
        policy->samples = trp_floats_create(rows * size);
    }
    if (torso_pixels_bytes(&policy->image) > 0)
        policy->pixels = xcalloc(rows, torso_pixels_bytes(&policy->image));
    core_slots_create(&policy->core, policy->place.slots, rows, trp_net_state_width(spec));
}

trp_status actor_critic_policy_create(const struct actor_critic *options, const trp_env_spec *env,
                                      const trp_policy_options *place, trp_policy **out)
{
    static const trp_policy_impl impl = {
        .act = draw_actions, .load = load_params, .destroy = destroy_policy};
    *out = NULL;
    struct actor_critic_policy *policy = xcalloc(1, sizeof *policy);
    policy->base.impl = &impl;
    policy->who = options->who;
    policy->space = action_space(env);
    policy->place = *place;
    policy->place.rows = place->rows ? place->rows : 1;
    policy->place.slots = place->slots ? place->slots : policy->place.rows;
    trp_net_spec spec = actor_critic_spec(options, env);
    trp_status status =
        trp_net_create(&policy->net, &(trp_net_options){.spec = &spec,
                                                        .batch = policy->place.rows,
                                                        .forward_only = true,
                                                        .precision = options->precision});
    if (status != TRP_OK) {
        trp_policy_destroy(&policy->base);
        return status;
    }
    actor_critic_extras(options, env, &policy->base.extras);
    policy->extra.mask = trp_columns_find(&policy->base.extras, AC_MASK);
    policy->extra.sample = trp_columns_find(&policy->base.extras, AC_SAMPLE);
    policy->extra.core = trp_columns_find(&policy->base.extras, AC_CORE);
    policy->base.param_count = trp_net_param_count(&spec);
    policy->base.tensors = policy->tensors;
    policy->base.tensor_count = trp_net_tensors(&spec, policy->tensors);
    policy->image = torso_image(options->network, env);
    make_policy_room(policy, &spec);
    *out = &policy->base;
    return TRP_OK;
}
