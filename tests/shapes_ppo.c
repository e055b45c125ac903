/* PPO (Schulman et al. 2017), toy sized: what an interface has to carry for it. Sequences with the
 * actor's log-probability and value, a queue, generalised advantages, and epochs of minibatches as
 * phases of one step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

enum { OBSERVED = 4, ACTIONS = 2, HIDDEN = 32 };
enum { ROWS = 17, BATCH = 8, ALL = BATCH * ROWS, EPOCHS = 3, MINIBATCHES = 2 };
static const float discount = 0.99F, lambda = 0.95F, clip = 0.2F, entropy_bonus = 0.01F;
static const char table[] = "rollouts";
static const trp_sequence_options sequence = {.length = ROWS, .period = ROWS - 1};
static trp_tensor_spec extra_specs[] = {{.name = "log_prob", .dtype = TRP_FLOAT32},
                                        {.name = "value", .dtype = TRP_FLOAT32}};
static const trp_columns extras = {extra_specs, 2};

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
    if (act->extras) {
        trp_categorical_log_prob(&says, act->actions, act->extras[0]);
        memcpy(act->extras[1], policy->values, act->rows * sizeof *policy->values);
    }
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

/* Decisions, as the losses want them. */
struct decisions {
    float x[ALL][OBSERVED];
    int32_t actions[ALL];
    float log_probs[ALL], values[ALL], advantages[ALL], returns[ALL];
};

struct updater {
    trp_updater base;
    trp_net *net;
    struct decisions all, part; /* of a step, and of a minibatch */
    uint32_t order[ALL];
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

static void forward(struct updater *updater, const trp_update *update, const float *x, size_t rows)
{
    trp_net_forward(updater->net, update->vectors[0],
                    &(trp_net_rows){.rows = (uint32_t)rows,
                                    .inputs = {x},
                                    .outputs = {updater->logits, updater->values}});
}

/* Generalised advantages (Schulman et al. 2016) of all items. The last row of an item and that of a
 * final observation are no decisions: only the value that the network has of them counts. Returns
 * how many decisions there are, whose rows are in `order`. */
static uint32_t collect(struct updater *updater, const trp_update *update)
{
    struct decisions *all = &updater->all;
    const float *discounts = trp_update_column(update, 0, "discount");
    const bool *valid = trp_update_column(update, 0, "valid");
    float discounted[ALL];
    uint32_t count = 0;
    memcpy(all->x, trp_update_column(update, 0, "observation"), sizeof all->x);
    memcpy(all->actions, trp_update_column(update, 0, "action"), sizeof all->actions);
    memcpy(all->log_probs, trp_update_column(update, 0, "log_prob"), sizeof all->log_probs);
    memcpy(all->values, trp_update_column(update, 0, "value"), sizeof all->values);
    forward(updater, update, all->x[0], ALL);
    for (uint32_t row = 0; row < ALL; row++) {
        discounted[row] = discount * discounts[row];
        if (valid[row] && row % ROWS < ROWS - 1)
            updater->order[count++] = row;
        else
            all->values[row] = updater->values[row];
    }
    trp_gae(&(trp_trajectories){.steps = ROWS,
                                .sequences = BATCH,
                                .by_sequence = true,
                                .rewards = trp_update_column(update, 0, "reward"),
                                .discounts = discounted,
                                .values = all->values,
                                .valid = valid},
            lambda, all->advantages, all->returns);
    return count;
}

static void shuffle(uint32_t *order, uint32_t count, trp_rng *rng)
{
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = (uint32_t)trp_rng_below(rng, i), kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
}

static void gather(struct decisions *part, const struct decisions *all, const uint32_t *order,
                   uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        memcpy(part->x[i], all->x[order[i]], sizeof part->x[i]);
        part->actions[i] = all->actions[order[i]];
        part->log_probs[i] = all->log_probs[order[i]];
        part->values[i] = all->values[order[i]];
        part->advantages[i] = all->advantages[order[i]];
        part->returns[i] = all->returns[order[i]];
    }
    trp_normalize_advantages(count, NULL, part->advantages, part->advantages);
}

/* The gradient of PPO's loss of `part`: of what the network says, and then of its parameters. */
static trp_status learn(struct updater *updater, const trp_update *update, uint32_t rows)
{
    const struct decisions *part = &updater->part;
    float log_probs[ALL], entropies[ALL];
    forward(updater, update, part->x[0], rows);
    trp_categorical says = {.rows = rows, .choices = ACTIONS, .logits = updater->logits};
    trp_categorical_log_prob(&says, part->actions, log_probs);
    trp_categorical_entropy(&says, entropies);
    trp_policy_loss policy = trp_ppo_loss(&(trp_policy_batch){.rows = rows,
                                                              .advantages = part->advantages,
                                                              .entropy = entropy_bonus,
                                                              .old_log_probs = part->log_probs,
                                                              .clip = clip},
                                          log_probs, entropies, log_probs, entropies);
    trp_loss value = trp_value_loss(
        &(trp_value_batch){
            .rows = rows, .targets = part->returns, .clip = clip, .old_values = part->values},
        updater->values, NULL, updater->values);
    if (!isfinite(policy.loss + value.loss))
        return trp_fail(TRP_DATA_LOSS, "the losses are %g and %g", (double)policy.loss,
                        (double)value.loss);
    trp_categorical_backward(&says, &(trp_categorical_grads){.actions = part->actions,
                                                             .log_probs = log_probs,
                                                             .entropies = entropies,
                                                             .logits = updater->logits});
    trp_net_backward(updater->net, update->vectors[0],
                     &(trp_net_rows){.rows = rows, .inputs = {part->x}},
                     &(trp_net_grads){.outputs = {updater->logits, updater->values},
                                      .params = update->grads[0]});
    trp_update_report(update, "divergence", (double)policy.divergence);
    trp_update_report(update, "clipped", (double)policy.clipped);
    return trp_update_apply(update, 0);
}

static trp_status updater_step(trp_updater *base, const trp_update *update)
{
    struct updater *updater = (struct updater *)base;
    TRP_TRY(check_actions(trp_update_column(update, 0, "action"), ALL));
    uint32_t count = collect(updater, update);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        shuffle(updater->order, count, update->rng);
        for (uint32_t part = 0; part < MINIBATCHES; part++) {
            uint32_t lo = count * part / MINIBATCHES, hi = count * (part + 1) / MINIBATCHES;
            gather(&updater->part, &updater->all, updater->order + lo, hi - lo);
            if (hi > lo)
                TRP_TRY(learn(updater, update, hi - lo));
        }
    }
    trp_update_report(update, "decisions", (double)count);
    return TRP_OK;
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
    updater->base.vectors[0] =
        (trp_vector_spec){.name = "params",
                          .count = trp_net_param_count(&spec),
                          .learned = true,
                          .optimizer = {.learning_rate = 3e-3, .max_norm = 0.5}};
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

static const trp_agent_impl ppo = {.name = "ppo",
                                   .tables = make_tables,
                                   .policy = make_policy,
                                   .adder = make_adder,
                                   .updater = make_updater};

/* With "fused" as argument the learner steps environments itself: no replay, no actors. */
static trp_status build(trp_program *program, int argc, char **argv)
{
    trp_agent agent = trp_agent_make(&ppo, NULL);
    trp_learner_options learning = {.agent = &agent, .publish_every = 1, .max_steps = 100};
    trp_actor_options acting = {.agent = &agent, .env = "CartPole-v1", .envs = 4};
    if (argc > 1 && strcmp(argv[1], "fused") == 0) {
        learning.env = acting.env;
        learning.envs = 2 * acting.envs;
        trp_add_learner(program, "learner", &learning);
        return TRP_OK;
    }
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    learning.replay = acting.replay;
    acting.params = trp_add_learner(program, "learner", &learning);
    trp_add_actors(program, "actor", 2, &acting);
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "shapes_ppo", build);
}
