/* IMPALA (Espeholt et al. 2018), toy sized: sequences of 20 steps with the actor's logits, which go
 * on across episodes, a queue, and V-trace. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

enum { OBSERVED = 4, ACTIONS = 2, HIDDEN = 32 };
enum { STEPS = 20, ROWS = STEPS + 1, BATCH = 8, ALL = BATCH * ROWS };
static const float discount = 0.99F, entropy_bonus = 0.01F;
static const char table[] = "sequences";
static const trp_sequence_options sequence = {
    .length = ROWS, .period = STEPS, .end = TRP_END_CONTINUE};
static trp_tensor_spec extra_specs[] = {
    {.name = "logits", .dtype = TRP_FLOAT32, .rank = 1, .shape = {ACTIONS}}};
static const trp_columns extras = {extra_specs, 1};

/* A body and two heads: output 0 are logits, output 1 is the value. */
static trp_net_spec network(void)
{
    trp_net_spec spec = {0};
    uint32_t x = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {OBSERVED}});
    uint32_t body = trp_net_add(&spec, (trp_layer){.kind = TRP_LINEAR,
                                                   .name = "body",
                                                   .from = {x},
                                                   .size = HIDDEN,
                                                   .activation = TRP_TANH});
    trp_net_output(&spec, trp_net_add(&spec, (trp_layer){.kind = TRP_LINEAR,
                                                         .name = "policy",
                                                         .from = {body},
                                                         .size = ACTIONS,
                                                         .init = TRP_INIT_ORTHOGONAL,
                                                         .gain = 0.01F}));
    trp_net_output(
        &spec,
        trp_net_add(&spec,
                    (trp_layer){.kind = TRP_LINEAR, .name = "value", .from = {body}, .size = 1}));
    return spec;
}

/* ---- policy ------------------------------------------------------------------------------- */

struct policy {
    trp_policy base;
    trp_net *net;
    uint32_t rows; /* most of one act */
    bool greedy;
    size_t count; /* of the parameters */
    float *params, *logits, *values;
};

static trp_status policy_act(trp_policy *base, const trp_act *act)
{
    struct policy *policy = (struct policy *)base;
    if (act->rows > policy->rows)
        return trp_fail(TRP_INVALID_ARGUMENT, "%u rows, made for %u", act->rows, policy->rows);
    trp_net_forward(policy->net, policy->params,
                    &(trp_net_rows){.rows = act->rows,
                                    .inputs = {act->observations[0]},
                                    .outputs = {policy->logits, policy->values}});
    trp_categorical says = {
        .rows = act->rows, .choices = ACTIONS, .logits = policy->logits, .mask = act->mask};
    if (policy->greedy)
        trp_categorical_mode(&says, act->actions);
    else
        trp_categorical_sample(&says, act->rng, act->actions);
    if (act->extras)
        memcpy(act->extras[0], policy->logits, act->rows * ACTIONS * sizeof *policy->logits);
    return TRP_OK;
}

static trp_status policy_load(trp_policy *base, const float *params, size_t count)
{
    struct policy *policy = (struct policy *)base;
    if (count != policy->count)
        return trp_fail(TRP_INVALID_ARGUMENT, "%zu parameters, not %zu", count, policy->count);
    memcpy(policy->params, params, count * sizeof *params);
    return TRP_OK;
}

static void policy_destroy(trp_policy *base)
{
    struct policy *policy = (struct policy *)base;
    trp_net_destroy(policy->net);
    trp_floats_destroy(policy->params);
    trp_floats_destroy(policy->logits);
    trp_floats_destroy(policy->values);
    free(policy);
}

static trp_status make_policy(const trp_agent *agent, const trp_env_spec *env,
                              const trp_policy_options *options, trp_policy **out)
{
    static const trp_policy_impl impl = {
        .act = policy_act, .load = policy_load, .destroy = policy_destroy};
    (void)agent, (void)env;
    trp_net_spec spec = network();
    struct policy *policy = calloc(1, sizeof *policy);
    policy->base.impl = &impl;
    policy->rows = options->rows > 0 ? options->rows : 1;
    policy->greedy = options->greedy;
    policy->count = trp_net_param_count(&spec);
    policy->params = trp_floats_create(policy->count);
    policy->logits = trp_floats_create((size_t)policy->rows * ACTIONS);
    policy->values = trp_floats_create(policy->rows);
    trp_columns_add_all(&policy->base.extras, &extras);
    trp_net_options plan = {.spec = &spec, .batch = policy->rows, .forward_only = true};
    trp_status status = trp_net_create(&policy->net, &plan);
    if (status == TRP_OK)
        *out = &policy->base;
    else
        trp_policy_destroy(&policy->base);
    return status;
}

/* ---- updater ------------------------------------------------------------------------------ */

struct updater {
    trp_updater base;
    trp_net *net;
    float logits[ALL * ACTIONS], values[ALL]; /* what the network says; then their gradients */
};

/* Actions come from a peer: they are checked before they are indices. */
static trp_status check_actions(const int32_t *actions, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (actions[i] < 0 || actions[i] >= ACTIONS)
            return trp_fail(TRP_DATA_LOSS, "row %zu: there is no action %d", i, actions[i]);
    return TRP_OK;
}

/* V-trace's targets and advantages, of the probabilities that this network and the actor's gave to
 * what was done. A row that is no step (the final observation of an episode inside the item, or the
 * last) has no weight. */
static void look_back(const struct updater *updater, const trp_update *update,
                      const float *log_probs, float *advantages, float *returns, float *weights)
{
    const float *discounts = trp_update_column(update, 0, "discount");
    const bool *valid = trp_update_column(update, 0, "valid");
    float discounted[ALL], log_ratios[ALL];
    trp_categorical_log_prob(&(trp_categorical){.rows = ALL,
                                                .choices = ACTIONS,
                                                .logits = trp_update_column(update, 0, "logits")},
                             trp_update_column(update, 0, "action"), log_ratios);
    for (int row = 0; row < ALL; row++) {
        log_ratios[row] = log_probs[row] - log_ratios[row];
        discounted[row] = discount * discounts[row];
        weights[row] = valid[row] && row % ROWS < STEPS;
    }
    trp_vtrace(&(trp_trajectories){.steps = ROWS,
                                   .sequences = BATCH,
                                   .by_sequence = true,
                                   .rewards = trp_update_column(update, 0, "reward"),
                                   .discounts = discounted,
                                   .values = updater->values,
                                   .valid = valid},
               NULL, log_ratios, returns, advantages);
}

static trp_status updater_step(trp_updater *base, const trp_update *update)
{
    struct updater *updater = (struct updater *)base;
    const int32_t *actions = trp_update_column(update, 0, "action");
    float advantages[ALL], returns[ALL], weights[ALL], log_probs[ALL], entropies[ALL];
    TRP_TRY(check_actions(actions, ALL));
    trp_net_rows rows = {.rows = ALL,
                         .inputs = {trp_update_column(update, 0, "observation")},
                         .outputs = {updater->logits, updater->values}};
    trp_net_forward(updater->net, update->vectors[0], &rows);
    trp_categorical says = {.rows = ALL, .choices = ACTIONS, .logits = updater->logits};
    trp_categorical_log_prob(&says, actions, log_probs);
    trp_categorical_entropy(&says, entropies);
    look_back(updater, update, log_probs, advantages, returns, weights);
    trp_policy_loss loss = trp_policy_gradient_loss(
        &(trp_policy_batch){
            .rows = ALL, .advantages = advantages, .weights = weights, .entropy = entropy_bonus},
        log_probs, entropies, log_probs, entropies);
    trp_value_loss(&(trp_value_batch){.rows = ALL, .targets = returns, .weights = weights},
                   updater->values, NULL, updater->values);
    trp_categorical_backward(&says, &(trp_categorical_grads){.actions = actions,
                                                             .log_probs = log_probs,
                                                             .entropies = entropies,
                                                             .logits = updater->logits});
    trp_net_backward(updater->net, update->vectors[0], &rows,
                     &(trp_net_grads){.outputs = {updater->logits, updater->values},
                                      .params = update->grads[0]});
    trp_update_report(update, "entropy", (double)loss.entropy);
    return trp_update_apply(update, 0);
}

static void updater_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    trp_net_spec spec = network();
    (void)base;
    trp_net_init(&spec, rng, vectors[0]);
}

static void updater_destroy(trp_updater *base)
{
    trp_net_destroy(((struct updater *)base)->net);
    free(base);
}

static trp_status make_updater(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    static const trp_updater_impl impl = {
        .init = updater_init, .step = updater_step, .destroy = updater_destroy};
    (void)agent, (void)options;
    trp_net_spec spec = network();
    struct updater *updater = calloc(1, sizeof *updater);
    updater->base = (trp_updater){.impl = &impl, .source_count = 1, .vector_count = 1};
    updater->base.sources[0] = (trp_batch_spec){.table = table, .batch_size = BATCH};
    trp_sequence_columns(env, &extras, &sequence, &updater->base.sources[0].columns);
    updater->base.vectors[0] = (trp_vector_spec){
        .name = "params",
        .count = trp_net_param_count(&spec),
        .learned = true,
        .optimizer = {.learning_rate = 5e-3, .schedule = TRP_RATE_LINEAR, .schedule_steps = 1000}};
    trp_status status =
        trp_net_create(&updater->net, &(trp_net_options){.spec = &spec, .batch = ALL});
    if (status == TRP_OK)
        *out = &updater->base;
    else
        trp_updater_destroy(&updater->base);
    return status;
}

/* ---- tables, adder, program ---------------------------------------------------------------- */

static trp_status make_tables(const trp_agent *agent, const trp_env_spec *env,
                              trp_agent_table_list *list)
{
    (void)agent;
    trp_table_options rollouts = {.name = table,
                                  .sampler = {.kind = TRP_FIFO},
                                  .max_times_sampled = 1,
                                  .limiter = trp_limiter_queue(4 * BATCH)};
    trp_columns columns = {0};
    trp_sequence_columns(env, &extras, &sequence, &columns);
    return trp_agent_table_list_add(list, &rollouts, &columns);
}

static trp_status make_adder(const trp_agent *agent, const trp_adder_options *options,
                             trp_adder **out)
{
    (void)agent;
    trp_adder_options own = *options;
    own.table = table;
    return trp_sequence_adder_create(out, &own, &sequence);
}

static const trp_agent_impl impala = {.name = "impala",
                                      .tables = make_tables,
                                      .policy = make_policy,
                                      .adder = make_adder,
                                      .updater = make_updater};

static trp_status build(trp_program *program, int argc, char **argv)
{
    (void)argc, (void)argv;
    trp_agent agent = trp_agent_make(&impala, NULL);
    trp_actor_options acting = {.agent = &agent, .env = "CartPole-v1", .envs = 4};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner",
        &(trp_learner_options){
            .agent = &agent, .replay = acting.replay, .publish_every = 1, .max_steps = 100});
    trp_add_actors(program, "actor", 2, &acting);
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "shapes_impala", build);
}
