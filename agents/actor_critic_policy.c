/* A policy that draws its actions from what an actor-critic network says, and tells the adder how
 * probable they were. The state of a recurrent network is in the slot of its row. */
#include "actor_critic.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core_slots.h"
#include "policy_net.h"

struct actor_critic_policy {
    trp_policy base;
    struct action_space space;
    bool greedy;
    struct policy_net net;
    struct actor_critic_outputs outputs;
    float *log_probs; /* [rows] */
    float *samples;   /* [rows][size], where actions are continuous */
    struct core_slots core;
    struct {
        size_t mask, sample, core; /* places of extras */
    } extra;
};

static trp_status say(struct actor_critic_policy *policy, const trp_act *act)
{
    trp_net_rows rows = {.state = policy->core.states, .end_state = policy->core.states};
    actor_critic_outputs_of(&policy->outputs, rows.outputs);
    return policy_net_say(&policy->net, act, &rows);
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
    TRP_TRY(policy_net_check(&policy->net, act));
    core_slots_recall(&policy->core, act);
    if (act->extras && policy->core.width > 0) /* as it is before the step */
        memcpy(act->extras[policy->extra.core], policy->core.states,
               act->rows * policy->core.width * sizeof(float));
    TRP_TRY(say(policy, act));
    core_slots_keep(&policy->core, act);
    struct decisions decisions = {.space = policy->space,
                                  .rows = act->rows,
                                  .says = policy->outputs.says,
                                  .log_std = policy->outputs.log_std,
                                  .mask = act->mask};
    void *drawn = policy->space.continuous ? policy->samples : act->actions;
    decisions_draw(&decisions, act->rng, policy->greedy, drawn, policy->log_probs);
    if (policy->space.continuous)
        cut_samples(policy, act->rows, act->actions);
    if (act->extras)
        write_extras(policy, act);
    return TRP_OK;
}

static trp_status load_params(trp_policy *base, const float *params, size_t count)
{
    struct actor_critic_policy *policy = (struct actor_critic_policy *)base;
    return policy_net_load(&policy->net, params, count);
}

static void destroy_policy(trp_policy *base)
{
    struct actor_critic_policy *policy = (struct actor_critic_policy *)base;
    policy_net_cleanup(&policy->net);
    float *floats[] = {policy->outputs.says, policy->outputs.log_std, policy->outputs.values,
                       policy->log_probs, policy->samples};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        trp_floats_destroy(floats[i]);
    core_slots_cleanup(&policy->core);
    free(policy);
}

static void make_policy_room(struct actor_critic_policy *policy, const trp_net_spec *spec,
                             uint32_t slots)
{
    size_t rows = policy->net.rows, size = policy->space.size;
    policy->outputs.says = trp_floats_create(rows * size);
    policy->outputs.values = trp_floats_create(rows);
    policy->log_probs = trp_floats_create(rows);
    if (policy->space.continuous) {
        policy->outputs.log_std = trp_floats_create(rows * size);
        policy->samples = trp_floats_create(rows * size);
    }
    core_slots_create(&policy->core, slots ? slots : rows, rows, trp_net_state_width(spec));
}

trp_status actor_critic_policy_create(const struct actor_critic *options, const trp_env_spec *env,
                                      const trp_policy_options *place, trp_policy **out)
{
    static const trp_policy_impl impl = {
        .act = draw_actions, .load = load_params, .destroy = destroy_policy};
    *out = NULL;
    struct actor_critic_policy *policy = xcalloc(1, sizeof *policy);
    policy->base.impl = &impl;
    policy->space = action_space(env);
    policy->greedy = place->greedy;
    trp_net_spec spec = actor_critic_spec(options, env);
    trp_status status =
        policy_net_create(&policy->net, &policy->base,
                          &(struct policy_net_options){.who = options->who,
                                                       .spec = &spec,
                                                       .env = env,
                                                       .place = place,
                                                       .network = options->network,
                                                       .precision = options->precision});
    if (status != TRP_OK) {
        trp_policy_destroy(&policy->base);
        return status;
    }
    actor_critic_extras(options, env, &policy->base.extras);
    policy->extra.mask = trp_columns_find(&policy->base.extras, AC_MASK);
    policy->extra.sample = trp_columns_find(&policy->base.extras, AC_SAMPLE);
    policy->extra.core = trp_columns_find(&policy->base.extras, AC_CORE);
    make_policy_room(policy, &spec, place->slots);
    *out = &policy->base;
    return TRP_OK;
}
