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

static const float low = -0.5F, high = 1.5F; /* the policy's numbers lie between them */
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
enum { HIDDEN = 32, BATCH = 32 };
static const char table[] = "transitions";
static const trp_nstep_options nstep = {.n_step = 1, .discount = 0.95};

static trp_layer body(uint32_t from)
{
    return (trp_layer){
        .kind = TRP_LINEAR, .name = "body", .from = {from}, .size = HIDDEN, .activation = TRP_TANH};
}

/* Output 0 is the mean, output 1 the logarithm of the deviation. */
static trp_net_spec policy_network(void)
{
    trp_net_spec spec = {0};
    uint32_t x = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {1}});
    trp_net_add_gaussian(&spec, trp_net_add(&spec, body(x)), 1, false);
    return spec;
}

static trp_gaussian policy_of(uint32_t rows, const float *mean, const float *log_std)
{
    return (trp_gaussian){.rows = rows,
                          .size = 1,
                          .mean = mean,
                          .log_std = log_std,
                          .squashed = true,
                          .low = &low,
                          .high = &high,
                          .least_log_std = -5,
                          .most_log_std = 2};
}

struct policy {
    trp_policy base;
    trp_policy_options options;
    trp_net *net;
    float *params, *mean, *log_std;
};

static trp_status policy_act(trp_policy *base, const trp_act *act)
{
    struct policy *policy = (struct policy *)base;
    trp_net_forward(policy->net, policy->params,
                    &(trp_net_rows){.rows = act->rows,
                                    .inputs = {act->observations[0]},
                                    .outputs = {policy->mean, policy->log_std}});
    trp_gaussian says = policy_of(act->rows, policy->mean, policy->log_std);
    if (policy->options.greedy)
        trp_gaussian_mode(&says, act->actions);
    else
        trp_gaussian_sample(&says, act->rng, act->actions, act->actions, NULL);
    return TRP_OK;
}

static trp_status policy_load(trp_policy *base, const float *params, size_t count)
{
    if (count != base->param_count)
        return trp_fail(TRP_INVALID_ARGUMENT, "%zu parameters, not %zu", count, base->param_count);
    memcpy(((struct policy *)base)->params, params, count * sizeof *params);
    return TRP_OK;
}

static void policy_destroy(trp_policy *base)
{
    struct policy *policy = (struct policy *)base;
    trp_net_destroy(policy->net);
    trp_floats_destroy(policy->params);
    trp_floats_destroy(policy->mean);
    trp_floats_destroy(policy->log_std);
    free(policy);
}

static trp_status make_policy(const trp_agent *agent, const trp_env_spec *env,
                              const trp_policy_options *options, trp_policy **out)
{
    static const trp_policy_impl impl = {
        .act = policy_act, .load = policy_load, .destroy = policy_destroy};
    (void)agent, (void)env;
    trp_net_spec spec = policy_network();
    uint32_t rows = options->rows > 0 ? options->rows : 1;
    struct policy *policy = calloc(1, sizeof *policy);
    policy->base.impl = &impl;
    policy->base.param_count = trp_net_param_count(&spec);
    policy->options = *options;
    policy->params = trp_floats_create(policy->base.param_count);
    policy->mean = trp_floats_create(rows);
    policy->log_std = trp_floats_create(rows);
    trp_net_options plan = {.spec = &spec, .batch = rows, .forward_only = true};
    trp_status status = trp_net_create(&policy->net, &plan);
    if (status == TRP_OK)
        *out = &policy->base;
    else
        trp_policy_destroy(&policy->base);
    return status;
}

/* ---- updater ------------------------------------------------------------------------------ */

/* The value of a state and an action. A vector has two of them, one behind the other. */
static trp_net_spec critic_network(void)
{
    trp_net_spec spec = {0};
    uint32_t x = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {1}});
    uint32_t action = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {1}});
    uint32_t both =
        trp_net_add(&spec, (trp_layer){.kind = TRP_CONCAT, .from = {x, action}, .from_count = 2});
    uint32_t seen = trp_net_add(&spec, body(both));
    trp_net_output(
        &spec,
        trp_net_add(&spec,
                    (trp_layer){.kind = TRP_LINEAR, .name = "value", .from = {seen}, .size = 1}));
    return spec;
}

struct updater {
    trp_updater base;
    trp_net *policy, *critics[2];
    size_t critic_count; /* parameters of one */
    float mean[BATCH], log_std[BATCH], noise[BATCH], actions[BATCH], log_probs[BATCH];
    float q[2][BATCH];
};

/* The columns that trp_nstep_columns() has, by their numbers. */
enum { STATES, ACTIONS, REWARDS, DISCOUNTS, NEXT_STATES };

static float temperature(const trp_update *update)
{
    return expf(update->vectors[TEMPERATURE][0]);
}

static trp_net_rows states_pass(struct updater *updater, const float *states)
{
    return (trp_net_rows){
        .rows = BATCH, .inputs = {states}, .outputs = {updater->mean, updater->log_std}};
}

/* What the policy does at `states`, and its log-probabilities. */
static trp_gaussian draw(struct updater *updater, const trp_update *update, const float *states)
{
    trp_net_rows pass = states_pass(updater, states);
    trp_net_forward(updater->policy, update->vectors[POLICY], &pass);
    trp_gaussian says = policy_of(BATCH, updater->mean, updater->log_std);
    trp_gaussian_sample(&says, update->rng, updater->noise, updater->actions, updater->log_probs);
    return says;
}

/* Both critics of a vector. */
static void judge(struct updater *updater, const float *vector, const float *states,
                  const float *actions)
{
    for (int i = 0; i < 2; i++)
        trp_net_forward(updater->critics[i], vector + i * updater->critic_count,
                        &(trp_net_rows){.rows = BATCH,
                                        .inputs = {states, actions},
                                        .outputs = {updater->q[i]}});
}

/* Of what was judged last; dq is in updater->q. Either gradient may be NULL. */
static void judge_back(struct updater *updater, const float *vector, const float *states,
                       const float *actions, int critic, float *grads, float *dactions)
{
    size_t at = critic * updater->critic_count;
    trp_net_backward(updater->critics[critic], vector + at,
                     &(trp_net_rows){.rows = BATCH, .inputs = {states, actions}},
                     &(trp_net_grads){.outputs = {updater->q[critic]},
                                      .params = grads ? grads + at : NULL,
                                      .inputs = {NULL, dactions}});
}

static trp_status learn_critics(struct updater *updater, const trp_update *update)
{
    void *const *columns = update->batches[0].columns;
    const float *states = columns[STATES], *actions = columns[ACTIONS];
    float discounted[BATCH], targets[BATCH];
    draw(updater, update, columns[NEXT_STATES]);
    judge(updater, update->vectors[TARGET], columns[NEXT_STATES], updater->actions);
    for (int row = 0; row < BATCH; row++)
        discounted[row] = (float)nstep.discount * ((const float *)columns[DISCOUNTS])[row];
    trp_critic_targets(&(trp_critic_batch){.rows = BATCH,
                                           .rewards = columns[REWARDS],
                                           .discounts = discounted,
                                           .next_q = updater->q[0],
                                           .next_q2 = updater->q[1],
                                           .next_log_probs = updater->log_probs,
                                           .temperature = temperature(update)},
                       targets);
    judge(updater, update->vectors[CRITIC], states, actions);
    double loss = 0;
    for (int i = 0; i < 2; i++) {
        loss += (double)trp_value_loss(&(trp_value_batch){.rows = BATCH, .targets = targets},
                                       updater->q[i], NULL, updater->q[i])
                    .loss;
        judge_back(updater, update->vectors[CRITIC], states, actions, i, update->grads[CRITIC],
                   NULL);
    }
    trp_update_report(update, "critic_loss", loss);
    return trp_update_apply(update, CRITIC);
}

/* The policy follows the critics through the noise that its actions were drawn with; then the
 * temperature follows it, to an entropy of -1. */
static trp_status learn_policy(struct updater *updater, const trp_update *update)
{
    const float *states = update->batches[0].columns[STATES];
    float dactions[2][BATCH], log_prob = 0;
    trp_gaussian says = draw(updater, update, states);
    for (int row = 0; row < BATCH; row++)
        log_prob += updater->log_probs[row] / BATCH;
    judge(updater, update->vectors[CRITIC], states, updater->actions);
    trp_sac_policy_loss(&(trp_sac_batch){.rows = BATCH,
                                         .q = updater->q[0],
                                         .q2 = updater->q[1],
                                         .log_probs = updater->log_probs,
                                         .temperature = temperature(update)},
                        updater->q[0], updater->q[1], updater->log_probs);
    for (int i = 0; i < 2; i++)
        judge_back(updater, update->vectors[CRITIC], states, updater->actions, i, NULL,
                   dactions[i]);
    for (int row = 0; row < BATCH; row++)
        dactions[0][row] += dactions[1][row];
    trp_gaussian_backward(&says, &(trp_gaussian_grads){.noise = updater->noise,
                                                       .sample_actions = dactions[0],
                                                       .sample_log_probs = updater->log_probs,
                                                       .mean = updater->mean,
                                                       .log_std = updater->log_std});
    trp_net_rows pass = states_pass(updater, states);
    trp_net_backward(updater->policy, update->vectors[POLICY], &pass,
                     &(trp_net_grads){.outputs = {updater->mean, updater->log_std},
                                      .params = update->grads[POLICY]});
    trp_multiplier_loss(update->vectors[TEMPERATURE][0], log_prob, 1, update->grads[TEMPERATURE]);
    TRP_TRY(trp_update_apply(update, POLICY));
    return trp_update_apply(update, TEMPERATURE);
}

static trp_status updater_step(trp_updater *base, const trp_update *update)
{
    struct updater *updater = (struct updater *)base;
    TRP_TRY(learn_critics(updater, update));
    TRP_TRY(learn_policy(updater, update));
    for (size_t i = 0; i < 2 * updater->critic_count; i++)
        update->vectors[TARGET][i] +=
            0.01F * (update->vectors[CRITIC][i] - update->vectors[TARGET][i]);
    trp_update_report(update, "temperature", (double)temperature(update));
    return TRP_OK;
}

static void updater_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    size_t count = ((struct updater *)base)->critic_count;
    trp_net_spec policy = policy_network(), critic = critic_network();
    trp_net_init(&policy, rng, vectors[POLICY]);
    trp_net_init(&critic, rng, vectors[CRITIC]);
    trp_net_init(&critic, rng, vectors[CRITIC] + count);
    memcpy(vectors[TARGET], vectors[CRITIC], 2 * count * sizeof(float));
}

static void updater_destroy(trp_updater *base)
{
    struct updater *updater = (struct updater *)base;
    trp_net_destroy(updater->policy);
    trp_net_destroy(updater->critics[0]);
    trp_net_destroy(updater->critics[1]);
    free(updater);
}

static trp_status make_plans(struct updater *updater)
{
    trp_net_spec policy = policy_network(), critic = critic_network();
    trp_net_options plan = {.spec = &policy, .batch = BATCH};
    TRP_TRY(trp_net_create(&updater->policy, &plan));
    plan.spec = &critic;
    TRP_TRY(trp_net_create(&updater->critics[0], &plan));
    return trp_net_create(&updater->critics[1], &plan);
}

static trp_status make_updater(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    static const trp_updater_impl impl = {
        .init = updater_init, .step = updater_step, .destroy = updater_destroy};
    static const trp_optimizer adam = {.learning_rate = 3e-3, .max_norm = 10};
    (void)agent, (void)options;
    trp_net_spec policy = policy_network(), critic = critic_network();
    struct updater *updater = calloc(1, sizeof *updater);
    trp_vector_spec *vectors = updater->base.vectors;
    updater->base.impl = &impl;
    updater->base.source_count = 1;
    updater->base.vector_count = VECTORS;
    updater->base.sources[0] = (trp_batch_spec){.table = table, .batch_size = BATCH};
    updater->critic_count = trp_net_param_count(&critic);
    size_t count = 2 * updater->critic_count;
    trp_nstep_columns(env, NULL, &updater->base.sources[0].columns);
    vectors[POLICY] = (trp_vector_spec){.name = "params",
                                        .count = trp_net_param_count(&policy),
                                        .learned = true,
                                        .optimizer = adam};
    vectors[CRITIC] =
        (trp_vector_spec){.name = "critic", .count = count, .learned = true, .optimizer = adam};
    vectors[TARGET] = (trp_vector_spec){.name = "target", .count = count};
    vectors[TEMPERATURE] =
        (trp_vector_spec){.name = "log_alpha", .count = 1, .learned = true, .optimizer = adam};
    trp_status status = make_plans(updater);
    if (status == TRP_OK)
        *out = &updater->base;
    else
        trp_updater_destroy(&updater->base);
    return status;
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
