/* SAC (Haarnoja et al. 2018), toy sized: continuous actions, uniform replay, and three phases of a
 * step, each with a vector of its own: critic, policy, temperature. Only the policy is pulled. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

/* ---- an environment: hold a point at 0 ----------------------------------------------------- */

struct point {
    float place;
};

static trp_status point_reset(void *state, trp_rng *rng)
{
    ((struct point *)state)->place = (float)(2 * trp_rng_double(rng) - 1);
    return TRP_OK;
}

static trp_status point_step(void *state, trp_rng *rng, const void *action,
                             trp_env_outcome *outcome)
{
    struct point *point = state;
    (void)rng;
    point->place += 0.1F * *(const float *)action;
    outcome->reward = -point->place * point->place;
    outcome->terminated = fabsf(point->place) > 2;
    return TRP_OK;
}

static void point_observe(const void *state, void *const *observations)
{
    *(float *)observations[0] = ((const struct point *)state)->place;
}

static const float low = -1, high = 1;
static const trp_env_impl point = {
    .spec = {.name = "Point",
             .observations = {{.name = "place", .dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
             .action_kind = TRP_ACTION_BOX,
             .action_count = 1,
             .action_low = &low,
             .action_high = &high,
             .max_episode_steps = 50},
    .state_bytes = sizeof(struct point),
    .reset = point_reset,
    .step = point_step,
    .observe = point_observe,
};

/* ---- policy: tanh of a normal variable ----------------------------------------------------- */

enum { POLICY, CRITIC, TARGET, TEMPERATURE, VECTORS };
enum { MEAN, BIAS, LOG_STD, PARAMS };
enum { FEATURES = 5, BATCH = 32 };
static const char table[] = "transitions";
static const trp_nstep_options nstep = {.n_step = 1, .discount = 0.95};

static float draw(const float *params, float x, float noise)
{
    return tanhf(params[MEAN] * x + params[BIAS] + expf(params[LOG_STD]) * noise);
}

static float log_prob(const float *params, float action, float noise)
{
    return -noise * noise / 2 - params[LOG_STD] - 0.919F - logf(1 - action * action + 1e-3F);
}

struct policy {
    trp_policy base;
    bool greedy;
    float params[PARAMS];
};

static trp_status policy_act(trp_policy *base, const trp_act *act)
{
    const struct policy *policy = (const struct policy *)base;
    for (uint32_t row = 0; row < act->rows; row++) {
        float noise = policy->greedy ? 0 : (float)trp_rng_normal(act->rng);
        float x = ((const float *)act->observations[0])[row];
        ((float *)act->actions)[row] = draw(policy->params, x, noise);
    }
    return TRP_OK;
}

static trp_status policy_load(trp_policy *base, const float *params, size_t count)
{
    if (count != PARAMS)
        return trp_fail(TRP_INVALID_ARGUMENT, "%zu parameters, not %d", count, PARAMS);
    memcpy(((struct policy *)base)->params, params, count * sizeof *params);
    return TRP_OK;
}

static trp_status make_policy(const trp_agent *agent, const trp_env_spec *env,
                              const trp_policy_options *options, trp_policy **out)
{
    static const trp_policy_impl impl = {.act = policy_act, .load = policy_load};
    (void)agent, (void)env;
    struct policy *policy = calloc(1, sizeof *policy);
    policy->base.impl = &impl;
    policy->greedy = options->greedy;
    *out = &policy->base;
    return TRP_OK;
}

/* ---- updater ------------------------------------------------------------------------------ */

static float value(const float *critic, float x, float action)
{
    return critic[0] + critic[1] * x + critic[2] * action + critic[3] * x * x +
           critic[4] * x * action;
}

static trp_status learn_critic(const trp_update *update)
{
    const trp_batch *batch = &update->batches[0]; /* columns as of trp_nstep_columns() */
    const float *xs = batch->columns[0], *actions = batch->columns[1], *rewards = batch->columns[2];
    const float *discounts = batch->columns[3], *nexts = batch->columns[4];
    const float *policy = update->vectors[POLICY];
    float alpha = expf(update->vectors[TEMPERATURE][0]);
    for (uint32_t row = 0; row < batch->rows; row++) {
        float noise = (float)trp_rng_normal(update->rng), next = draw(policy, nexts[row], noise);
        float soft = value(update->vectors[TARGET], nexts[row], next) -
                     alpha * log_prob(policy, next, noise);
        float target = rewards[row] + (float)nstep.discount * discounts[row] * soft;
        float x = xs[row], action = actions[row];
        float error = (value(update->vectors[CRITIC], x, action) - target) / BATCH;
        const float features[FEATURES] = {1, x, action, x * x, x * action};
        for (int i = 0; i < FEATURES; i++)
            update->grads[CRITIC][i] += error * features[i];
    }
    return trp_update_apply(update, CRITIC);
}

/* Descends alpha log pi - Q through the reparametrised action, and the temperature after it. */
static trp_status learn_policy(const trp_update *update)
{
    const trp_batch *batch = &update->batches[0];
    const float *params = update->vectors[POLICY], *critic = update->vectors[CRITIC];
    float alpha = expf(update->vectors[TEMPERATURE][0]), *grads = update->grads[POLICY];
    for (uint32_t row = 0; row < batch->rows; row++) {
        float x = ((const float *)batch->columns[0])[row];
        float noise = (float)trp_rng_normal(update->rng), action = draw(params, x, noise);
        float slope = 1 - action * action;
        float push = (alpha * 2 * action / (slope + 1e-3F) - critic[2] - critic[4] * x) * slope;
        grads[MEAN] += push * x / BATCH;
        grads[BIAS] += push / BATCH;
        grads[LOG_STD] += (push * expf(params[LOG_STD]) * noise - alpha) / BATCH;
        update->grads[TEMPERATURE][0] -= (log_prob(params, action, noise) - 1) / BATCH;
    }
    TRP_TRY(trp_update_apply(update, POLICY));
    return trp_update_apply(update, TEMPERATURE);
}

static trp_status updater_step(trp_updater *updater, const trp_update *update)
{
    (void)updater;
    TRP_TRY(learn_critic(update));
    TRP_TRY(learn_policy(update));
    for (int i = 0; i < FEATURES; i++)
        update->vectors[TARGET][i] +=
            0.01F * (update->vectors[CRITIC][i] - update->vectors[TARGET][i]);
    trp_update_report(update, "temperature", (double)expf(update->vectors[TEMPERATURE][0]));
    return TRP_OK;
}

static trp_status make_updater(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    static const trp_updater_impl impl = {.step = updater_step};
    static const trp_optimizer adam = {.learning_rate = 3e-3, .max_norm = 10};
    (void)agent, (void)options;
    trp_updater *updater = calloc(1, sizeof *updater);
    *updater = (trp_updater){.impl = &impl, .source_count = 1, .vector_count = VECTORS};
    updater->sources[0] = (trp_batch_spec){.table = table, .batch_size = BATCH};
    trp_nstep_columns(env, NULL, &updater->sources[0].columns);
    updater->vectors[POLICY] =
        (trp_vector_spec){.name = "params", .count = PARAMS, .learned = true, .optimizer = adam};
    updater->vectors[CRITIC] =
        (trp_vector_spec){.name = "critic", .count = FEATURES, .learned = true, .optimizer = adam};
    updater->vectors[TARGET] = (trp_vector_spec){.name = "target", .count = FEATURES};
    updater->vectors[TEMPERATURE] =
        (trp_vector_spec){.name = "log_alpha", .count = 1, .learned = true, .optimizer = adam};
    *out = updater;
    return TRP_OK;
}

/* ---- tables, adder, program ---------------------------------------------------------------- */

static trp_status check(const trp_agent *agent, const trp_env_spec *env)
{
    (void)agent;
    if (env->action_kind != TRP_ACTION_BOX || env->action_count != 1)
        return trp_fail(TRP_INVALID_ARGUMENT, "sac: %s has no single continuous action", env->name);
    return TRP_OK;
}

static trp_status make_tables(const trp_agent *agent, const trp_env_spec *env,
                              trp_agent_table_list *list)
{
    (void)agent;
    trp_table_options transitions = {.name = table,
                                     .sampler = {.kind = TRP_UNIFORM},
                                     .max_size = 10000,
                                     .limiter = trp_limiter_min_size(200)};
    trp_columns columns = {0};
    trp_nstep_columns(env, NULL, &columns);
    return trp_agent_table_list_add(list, &transitions, &columns);
}

static trp_status make_adder(const trp_agent *agent, const trp_adder_options *options,
                             trp_adder **out)
{
    (void)agent;
    trp_adder_options own = *options;
    own.table = table;
    return trp_nstep_adder_create(out, &own, &nstep);
}

static const trp_agent_impl sac = {.name = "sac",
                                   .check = check,
                                   .tables = make_tables,
                                   .policy = make_policy,
                                   .adder = make_adder,
                                   .updater = make_updater};

static trp_status build(trp_program *program, int argc, char **argv)
{
    (void)argc, (void)argv;
    trp_agent agent = trp_agent_make(&sac, NULL);
    trp_actor_options acting = {.agent = &agent, .env = "Point", .envs = 4};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner",
        &(trp_learner_options){.agent = &agent, .replay = acting.replay, .max_steps = 100});
    trp_add_actors(program, "actor", 2, &acting);
    return TRP_OK;
}

int main(int argc, char **argv)
{
    if (trp_env_register(&point) != TRP_OK)
        return 1;
    return trp_main(argc, argv, "shapes_sac", build);
}
