/* An algorithm of one's own: an actor-critic learns CartPole. The policy writes log-probabilities
 * beside its actions; items are sequences of 21 rows that share one; a queue gives each once to the
 * updater, which weighs by the newest policy (V-trace). The network, what it says of actions, and
 * what it learns from are the library's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

enum { OBSERVED = 4, ACTIONS = 2, ROWS = 21, BATCH = 16, ALL = BATCH * ROWS };
static const char table[] = "sequences";
static const trp_sequence_options sequence = {.length = ROWS, .period = ROWS - 1};
static trp_tensor_spec extra_specs[] = {{.name = "log_prob", .dtype = TRP_FLOAT32}};
static const trp_columns extras = {extra_specs, 1};

/* Output 0 are the actions' logits, output 1 is the state's value. */
static trp_net_spec network(void)
{
    trp_net_spec spec = trp_mlp(&(trp_mlp_options){
        .inputs = OBSERVED, .hidden = {32}, .activation = TRP_TANH, .outputs = ACTIONS + 1});
    trp_layer logits = {.kind = TRP_SLICE, .from = {spec.outputs[0]}, .size = ACTIONS};
    trp_layer value = {.kind = TRP_SLICE, .from = {spec.outputs[0]}, .first = ACTIONS, .size = 1};
    spec.output_count = 0;
    trp_net_output(&spec, trp_net_add(&spec, logits));
    trp_net_output(&spec, trp_net_add(&spec, value));
    return spec;
}

struct policy {
    trp_policy base;
    trp_policy_options options;
    trp_net *net;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX]; /* names in files of parameters */
    float *params, *logits, *values;
};

static trp_status policy_act(trp_policy *base, const trp_act *act)
{
    struct policy *policy = (struct policy *)base;
    trp_net_forward(policy->net, policy->params,
                    &(trp_net_rows){.rows = act->rows,
                                    .inputs = {act->observations[0]},
                                    .outputs = {policy->logits, policy->values}});
    trp_categorical says = {.rows = act->rows, .choices = ACTIONS, .logits = policy->logits};
    if (policy->options.greedy)
        trp_categorical_mode(&says, act->actions);
    else
        trp_categorical_sample(&says, act->rng, act->actions);
    if (act->extras)
        trp_categorical_log_prob(&says, act->actions, act->extras[0]);
    return TRP_OK;
}

static trp_status policy_load(trp_policy *base, const float *params, size_t count)
{
    struct policy *policy = (struct policy *)base;
    if (count != base->param_count)
        return trp_fail(TRP_INVALID_ARGUMENT, "own_agent: %zu parameters, not %zu", count,
                        base->param_count);
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
    uint32_t rows = options->rows ? options->rows : 1;
    struct policy *policy = calloc(1, sizeof *policy);
    policy->base.impl = &impl;
    policy->options = *options;
    policy->base.tensors = policy->tensors;
    policy->base.tensor_count = trp_net_tensors(&spec, policy->tensors);
    policy->base.param_count = trp_net_param_count(&spec);
    policy->params = trp_floats_create(policy->base.param_count);
    policy->logits = trp_floats_create((size_t)rows * ACTIONS);
    policy->values = trp_floats_create(rows);
    trp_columns_add_all(&policy->base.extras, &extras);
    trp_net_options plan = {.spec = &spec, .batch = rows, .forward_only = true};
    trp_status status = trp_net_create(&policy->net, &plan);
    if (status == TRP_OK)
        *out = &policy->base;
    else
        trp_policy_destroy(&policy->base);
    return status;
}

struct updater {
    trp_updater base;
    trp_net *net;
    float logits[ALL * ACTIONS], values[ALL]; /* what the network says, and then its gradient */
    float returns[ALL], advantages[ALL], weights[ALL];
};

static void updater_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    (void)base;
    trp_net_spec spec = network();
    trp_net_init(&spec, rng, vectors[0]);
}

/* Returns, advantages, and which rows are steps; `log_probs` are the newest policy's. */
static void look_back(struct updater *updater, const trp_update *update, const float *log_probs)
{
    const float *discounts = trp_update_column(update, 0, "discount");
    const float *acted = trp_update_column(update, 0, "log_prob");
    const bool *valid = trp_update_column(update, 0, "valid");
    float discounted[ALL], log_ratios[ALL];
    for (int row = 0; row < ALL; row++) {
        discounted[row] = 0.99F * discounts[row];
        log_ratios[row] = log_probs[row] - acted[row];
        updater->weights[row] = valid[row] && row % ROWS < ROWS - 1; /* or bootstrapped from */
    }
    trp_trajectories items = {.steps = ROWS,
                              .sequences = BATCH,
                              .by_sequence = true,
                              .rewards = trp_update_column(update, 0, "reward"),
                              .discounts = discounted,
                              .values = updater->values,
                              .valid = valid};
    trp_vtrace(&items, NULL, log_ratios, updater->returns, updater->advantages);
}

static trp_status updater_step(trp_updater *base, const trp_update *update)
{
    struct updater *updater = (struct updater *)base;
    const int32_t *actions = trp_update_column(update, 0, "action");
    float log_probs[ALL], entropies[ALL];
    for (int row = 0; row < ALL; row++) /* they come from a peer */
        if (actions[row] < 0 || actions[row] >= ACTIONS)
            return trp_fail(TRP_DATA_LOSS, "own_agent: there is no action %d", actions[row]);
    trp_net_rows rows = {.rows = ALL,
                         .inputs = {trp_update_column(update, 0, "observation")},
                         .outputs = {updater->logits, updater->values}};
    trp_net_forward(updater->net, update->vectors[0], &rows);
    trp_categorical says = {.rows = ALL, .choices = ACTIONS, .logits = updater->logits};
    trp_categorical_log_prob(&says, actions, log_probs);
    trp_categorical_entropy(&says, entropies);
    look_back(updater, update, log_probs);
    trp_policy_batch taken = {.rows = ALL,
                              .advantages = updater->advantages,
                              .weights = updater->weights,
                              .entropy = 0.01F};
    trp_value_batch targets = {
        .rows = ALL, .targets = updater->returns, .weights = updater->weights};
    trp_policy_gradient_loss(&taken, log_probs, entropies, log_probs, entropies);
    trp_value_loss(&targets, updater->values, NULL, updater->values);
    trp_categorical_backward(&says, &(trp_categorical_grads){.actions = actions,
                                                             .log_probs = log_probs,
                                                             .entropies = entropies,
                                                             .logits = updater->logits});
    trp_net_backward(updater->net, update->vectors[0], &rows,
                     &(trp_net_grads){.outputs = {updater->logits, updater->values},
                                      .params = update->grads[0]});
    return trp_update_apply(update, 0);
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
    updater->base.vectors[0] = (trp_vector_spec){.name = "params",
                                                 .count = trp_net_param_count(&spec),
                                                 .learned = true,
                                                 .optimizer = {.learning_rate = 5e-3}};
    trp_net_options plan = {.spec = &spec, .batch = ALL};
    trp_status status = trp_net_create(&updater->net, &plan);
    if (status == TRP_OK)
        *out = &updater->base;
    else
        trp_updater_destroy(&updater->base);
    return status;
}

static trp_status make_tables(const trp_agent *agent, const trp_env_spec *env,
                              trp_agent_table_list *list)
{
    (void)agent, (void)env;
    list->tables[list->count++] = (trp_table_options){.name = table,
                                                      .sampler = {.kind = TRP_FIFO},
                                                      .max_times_sampled = 1,
                                                      .limiter = trp_limiter_queue(2 * BATCH)};
    return TRP_OK;
}

static trp_status make_adder(const trp_agent *agent, const trp_adder_options *options,
                             trp_adder **out)
{
    (void)agent;
    trp_adder_options own = *options;
    own.table = table;
    return trp_sequence_adder_create(out, &own, &sequence);
}

static const trp_agent_impl impl = {"own_agent", NULL,       NULL,        make_tables,
                                    make_policy, make_adder, make_updater};

static trp_status build(trp_program *program, int argc, char **argv)
{
    (void)argc, (void)argv;
    trp_agent agent = trp_agent_make(&impl, NULL);
    trp_actor_options acting = {.agent = &agent, .env = "CartPole-v1", .envs = 8, .episodes = 50};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner", &(trp_learner_options){.agent = &agent, .replay = acting.replay});
    trp_add_actors(program, "actor", 2, &acting);
    acting.target_return = 195; /* who pushes at random comes to 22 */
    trp_add_evaluator(program, "evaluator", &acting);
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "own_agent", build);
}
