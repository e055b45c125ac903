/* A program whose learner has critic and actor in one vector, with one optimizer, and publishes the
 * actor alone. After "--": "wider" or "renamed", what the actors' policy has instead. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

/* ---- an environment: the best action is the number that is shown ----------------------------- */

enum { STEPS = 20, BATCH = 32 };

static trp_status echo_reset(void *state, trp_rng *rng)
{
    *(float *)state = (float)(2 * trp_rng_double(rng) - 1);
    return TRP_OK;
}

static trp_status echo_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    float apart = *(const float *)action - *(const float *)state;
    outcome->reward = -apart * apart;
    return echo_reset(state, rng);
}

static void echo_observe(const void *state, void *const *observations)
{
    *(float *)observations[0] = *(const float *)state;
}

static const float low = -1, high = 1;
static const trp_env_impl echo = {
    .spec = {.name = "Echo",
             .observations = {{.name = "number", .dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
             .action_kind = TRP_ACTION_BOX,
             .action_count = 1,
             .action_low = &low,
             .action_high = &high,
             .max_episode_steps = STEPS},
    .state_bytes = sizeof(float),
    .reset = echo_reset,
    .step = echo_step,
    .observe = echo_observe,
};

/* ---- networks: a critic of number and action, and behind it an actor ---------------------------
 */

static trp_net_spec critic_spec(void)
{
    return trp_mlp(
        &(trp_mlp_options){.inputs = 2, .hidden = {16, 16}, .outputs = 1, .activation = TRP_TANH});
}

static trp_net_spec actor_spec(uint32_t width)
{
    return trp_mlp(&(trp_mlp_options){
        .inputs = 1, .hidden = {width, 16}, .outputs = 1, .activation = TRP_TANH});
}

static const char *mode = "";

struct policy {
    trp_policy base;
    bool greedy;
    trp_net *net;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    float *params;
};

static trp_status policy_act(trp_policy *base, const trp_act *act)
{
    struct policy *policy = (struct policy *)base;
    float *actions = act->actions;
    trp_net_forward(
        policy->net, policy->params,
        &(trp_net_rows){.rows = act->rows, .inputs = {act->observations[0]}, .outputs = {actions}});
    for (uint32_t row = 0; row < act->rows; row++) {
        float noise = policy->greedy ? 0 : 0.3F * (float)trp_rng_normal(act->rng);
        actions[row] = fminf(fmaxf(tanhf(actions[row]) + noise, -1), 1);
    }
    return TRP_OK;
}

static trp_status policy_load(trp_policy *base, const float *params, size_t count)
{
    memcpy(((struct policy *)base)->params, params, count * sizeof *params);
    return TRP_OK; /* of as many as param_count: who names tensors need not look */
}

static void policy_destroy(trp_policy *base)
{
    struct policy *policy = (struct policy *)base;
    trp_net_destroy(policy->net);
    trp_floats_destroy(policy->params);
    free(policy);
}

static trp_status make_policy(const trp_agent *agent, const trp_env_spec *env,
                              const trp_policy_options *options, trp_policy **out)
{
    static const trp_policy_impl impl = {
        .act = policy_act, .load = policy_load, .destroy = policy_destroy};
    (void)agent, (void)env;
    trp_net_spec spec = actor_spec(strcmp(mode, "wider") == 0 ? 17 : 16);
    if (strcmp(mode, "renamed") == 0)
        snprintf(spec.layers[1].name, sizeof spec.layers[1].name, "trunk");
    struct policy *policy = calloc(1, sizeof *policy);
    policy->base.impl = &impl;
    policy->base.tensors = policy->tensors;
    policy->base.tensor_count = trp_net_tensors(&spec, policy->tensors);
    policy->base.param_count = trp_net_param_count(&spec);
    policy->greedy = options->greedy;
    policy->params = trp_floats_create(policy->base.param_count);
    *out = &policy->base;
    return trp_net_create(&policy->net, &(trp_net_options){.spec = &spec, .batch = options->rows});
}

/* ---- updater: the critic learns what an action brings, the actor climbs it ---------------------
 */

struct updater {
    trp_updater base;
    trp_net_spec critic_spec, actor_spec;
    size_t actor; /* where its parameters begin */
    trp_net *critic_net, *actor_net;
    trp_net_tensor tensors[2 * TRP_NET_TENSORS_MAX];
};

static void join(const float *numbers, const float *actions, float pairs[BATCH][2])
{
    for (int row = 0; row < BATCH; row++) {
        pairs[row][0] = numbers[row];
        pairs[row][1] = actions[row];
    }
}

static float learn_critic(const struct updater *updater, const trp_update *update)
{
    const float *rewards = trp_update_column(update, 0, "reward");
    float pairs[BATCH][2], errors[BATCH], loss = 0;
    join(trp_update_column(update, 0, "observation"), trp_update_column(update, 0, "action"),
         pairs);
    trp_net_rows rows = {.rows = BATCH, .inputs = {pairs}, .outputs = {errors}};
    trp_net_forward(updater->critic_net, update->vectors[0], &rows);
    for (int row = 0; row < BATCH; row++) {
        float error = errors[row] - rewards[row];
        loss += error * error / BATCH;
        errors[row] = error / BATCH;
    }
    trp_net_backward(updater->critic_net, update->vectors[0], &rows,
                     &(trp_net_grads){.outputs = {errors}, .params = update->grads[0]});
    return loss;
}

static void learn_actor(const struct updater *updater, const trp_update *update)
{
    const float *numbers = trp_update_column(update, 0, "observation");
    const float *params = update->vectors[0] + updater->actor;
    float pairs[BATCH][2], slopes[BATCH][2], actions[BATCH], values[BATCH], ones[BATCH];
    trp_net_rows rows = {.rows = BATCH, .inputs = {numbers}, .outputs = {actions}};
    trp_net_forward(updater->actor_net, params, &rows);
    for (int row = 0; row < BATCH; row++) {
        actions[row] = tanhf(actions[row]);
        ones[row] = 1;
    }
    join(numbers, actions, pairs);
    trp_net_rows judged = {.rows = BATCH, .inputs = {pairs}, .outputs = {values}};
    trp_net_forward(updater->critic_net, update->vectors[0], &judged);
    trp_net_backward(updater->critic_net, update->vectors[0], &judged,
                     &(trp_net_grads){.outputs = {ones}, .inputs = {slopes[0]}});
    for (int row = 0; row < BATCH; row++)
        values[row] = -slopes[row][1] * (1 - actions[row] * actions[row]) / BATCH;
    trp_net_backward(
        updater->actor_net, params, &rows,
        &(trp_net_grads){.outputs = {values}, .params = update->grads[0] + updater->actor});
}

static trp_status updater_step(trp_updater *base, const trp_update *update)
{
    const struct updater *updater = (const struct updater *)base;
    trp_update_report(update, "loss", (double)learn_critic(updater, update));
    learn_actor(updater, update);
    return trp_update_apply(update, 0);
}

static void updater_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    const struct updater *updater = (const struct updater *)base;
    trp_net_init(&updater->critic_spec, rng, vectors[0]);
    trp_net_init(&updater->actor_spec, rng, vectors[0] + updater->actor);
}

static void updater_destroy(trp_updater *base)
{
    struct updater *updater = (struct updater *)base;
    trp_net_destroy(updater->critic_net);
    trp_net_destroy(updater->actor_net);
    free(updater);
}

static trp_status make_updater(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    static const trp_updater_impl impl = {
        .init = updater_init, .step = updater_step, .destroy = updater_destroy};
    (void)agent, (void)options;
    struct updater *updater = calloc(1, sizeof *updater);
    *out = &updater->base;
    updater->base = (trp_updater){.impl = &impl, .source_count = 1, .vector_count = 1};
    updater->base.sources[0] = (trp_batch_spec){.table = "table", .batch_size = BATCH};
    trp_nstep_columns(env, NULL, &updater->base.sources[0].columns);
    updater->critic_spec = critic_spec();
    updater->actor_spec = actor_spec(16);
    updater->actor = trp_net_param_count(&updater->critic_spec);
    size_t tensors = trp_net_tensors(&updater->critic_spec, updater->tensors);
    tensors += trp_net_tensors_at(&updater->actor_spec, updater->actor, updater->tensors + tensors);
    updater->base.vectors[0] =
        (trp_vector_spec){.name = "params",
                          .count = updater->actor + trp_net_param_count(&updater->actor_spec),
                          .learned = true,
                          .optimizer = {.learning_rate = 3e-3},
                          .tensors = updater->tensors,
                          .tensor_count = tensors,
                          .published_first = updater->actor};
    TRP_TRY(trp_net_create(&updater->critic_net,
                           &(trp_net_options){.spec = &updater->critic_spec, .batch = BATCH}));
    return trp_net_create(&updater->actor_net,
                          &(trp_net_options){.spec = &updater->actor_spec, .batch = BATCH});
}

/* ---- table, adder, program ------------------------------------------------------------------- */

/* At most two updates for an item, so that an actor has reported its statistics long before a
 * version is any good. */
static trp_status make_tables(const trp_agent *agent, const trp_env_spec *env,
                              trp_agent_table_list *list)
{
    (void)agent;
    trp_columns columns = {0};
    trp_nstep_columns(env, NULL, &columns);
    trp_table_options table = {.name = "table",
                               .sampler = {.kind = TRP_UNIFORM},
                               .max_size = 10000,
                               .limiter = {.samples_per_insert = 2 * BATCH,
                                           .min_size = 60,
                                           .min_diff = 30 * 2 * BATCH,
                                           .max_diff = INFINITY}};
    return trp_agent_table_list_add(list, &table, &columns);
}

static trp_status make_adder(const trp_agent *agent, const trp_adder_options *options,
                             trp_adder **out)
{
    (void)agent;
    trp_adder_options own = *options;
    own.table = "table";
    return trp_nstep_adder_create(out, &own, &(trp_nstep_options){.n_step = 1, .discount = 1});
}

static trp_status build(trp_program *program, int argc, char **argv)
{
    static const trp_agent_impl impl = {.name = "critic",
                                        .tables = make_tables,
                                        .policy = make_policy,
                                        .adder = make_adder,
                                        .updater = make_updater};
    mode = argc > 1 ? argv[1] : "";
    trp_agent agent = trp_agent_make(&impl, NULL);
    trp_actor_options acting = {.agent = &agent,
                                .env = "Echo?normalize_observation=10",
                                .envs = 2,
                                .sync_every_items = 50,
                                .episodes = 10,
                                .target_return = -0.5};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner", &(trp_learner_options){.agent = &agent, .replay = acting.replay});
    trp_add_actors(program, "actor", 2, &acting);
    trp_add_evaluator(program, "evaluator", &acting);
    return TRP_OK;
}

int main(int argc, char **argv)
{
    if (trp_env_register(&echo) != TRP_OK)
        return 1;
    return trp_main(argc, argv, "critic", build);
}
