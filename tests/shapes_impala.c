/* IMPALA (Espeholt et al. 2018), toy sized: sequences of 20 steps with the actor's logits, which go
 * on across episodes, a queue, and V-trace. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

enum { OBSERVED = 4, WEIGHTS = OBSERVED + 1, ACTIONS = 2 };
enum {
    VALUE = ACTIONS * WEIGHTS,
    PARAMS = VALUE + WEIGHTS,
    STEPS = 20,
    ROWS = STEPS + 1,
    BATCH = 8
};
static const float discount = 0.99F;
static const char table[] = "sequences";
static const trp_sequence_options sequence = {
    .length = ROWS, .period = STEPS, .end = TRP_END_CONTINUE};
static trp_tensor_spec extra_specs[] = {
    {.name = "logits", .dtype = TRP_FLOAT32, .rank = 1, .shape = {ACTIONS}}};
static const trp_columns extras = {extra_specs, 1};

static float linear(const float *weights, const float *x)
{
    float sum = weights[OBSERVED];
    for (int i = 0; i < OBSERVED; i++)
        sum += weights[i] * x[i];
    return sum;
}

static float log_prob(const float *logits, int32_t action)
{
    return -log1pf(expf(logits[1 - action] - logits[action]));
}

/* ---- policy ------------------------------------------------------------------------------- */

struct policy {
    trp_policy base;
    float params[PARAMS];
};

static trp_status policy_act(trp_policy *base, const trp_act *act)
{
    const float *params = ((struct policy *)base)->params, *x = act->observations[0];
    for (uint32_t row = 0; row < act->rows; row++, x += OBSERVED) {
        float logits[ACTIONS] = {linear(params, x), linear(params + WEIGHTS, x)};
        ((int32_t *)act->actions)[row] =
            trp_rng_double(act->rng) < (double)expf(log_prob(logits, 1));
        if (act->extras)
            memcpy((float *)act->extras[0] + row * ACTIONS, logits, sizeof logits);
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
    (void)agent, (void)env, (void)options;
    struct policy *policy = calloc(1, sizeof *policy);
    policy->base.impl = &impl;
    trp_columns_add_all(&policy->base.extras, &extras);
    *out = &policy->base;
    return TRP_OK;
}

/* ---- updater ------------------------------------------------------------------------------ */

/* The parts of one item. */
struct item {
    const float *observations, *rewards, *discounts, *logits;
    const int32_t *actions;
    const bool *valid;
};

static void add_scaled(float *grads, const float *x, float scale)
{
    for (int i = 0; i < WEIGHTS; i++)
        grads[i] += scale * (i < OBSERVED ? x[i] : 1);
}

static void add_step(const struct item *item, size_t at, const float *params, float *grads,
                     float advantage, float error)
{
    const float *x = item->observations + at * OBSERVED;
    const float logits[ACTIONS] = {linear(params, x), linear(params + WEIGHTS, x)};
    for (int32_t action = 0; action < ACTIONS; action++) {
        float chosen = item->actions[at] == action;
        add_scaled(grads + action * WEIGHTS, x,
                   advantage * (expf(log_prob(logits, action)) - chosen) / (BATCH * STEPS));
    }
    add_scaled(grads + VALUE, x, error / (BATCH * STEPS));
}

/* Backwards through the item: v_t = V_t + rho (r_t + gamma v_{t+1} - V_t), both cut at 1. A row
 * that is no step (the final observation of an episode inside the item, or the last) begins anew
 * with its value. */
static void add_item(const struct item *item, const float *params, float *grads)
{
    float next_v = 0, next_value = 0;
    for (size_t at = ROWS; at-- > 0;) {
        const float *x = item->observations + at * OBSERVED;
        float value = linear(params + VALUE, x);
        if (!item->valid[at] || at == ROWS - 1) {
            next_v = next_value = value;
            continue;
        }
        const float logits[ACTIONS] = {linear(params, x), linear(params + WEIGHTS, x)};
        int32_t action = item->actions[at] != 0;
        float rho = fminf(
            1, expf(log_prob(logits, action) - log_prob(item->logits + at * ACTIONS, action)));
        float factor = discount * item->discounts[at];
        float delta = rho * (item->rewards[at] + factor * next_value - value);
        float v = value + delta + factor * rho * (next_v - next_value);
        float advantage = rho * (item->rewards[at] + factor * next_v - value);
        add_step(item, at, params, grads, advantage, value - v);
        next_v = v;
        next_value = value;
    }
}

static trp_status updater_step(trp_updater *updater, const trp_update *update)
{
    (void)updater;
    for (size_t i = 0; i < update->batches[0].rows; i++) {
        size_t row = i * ROWS;
        struct item item = {
            .observations =
                (const float *)trp_update_column(update, 0, "observation") + row * OBSERVED,
            .actions = (const int32_t *)trp_update_column(update, 0, "action") + row,
            .rewards = (const float *)trp_update_column(update, 0, "reward") + row,
            .discounts = (const float *)trp_update_column(update, 0, "discount") + row,
            .valid = (const bool *)trp_update_column(update, 0, "valid") + row,
            .logits = (const float *)trp_update_column(update, 0, "logits") + row * ACTIONS,
        };
        add_item(&item, update->vectors[0], update->grads[0]);
    }
    return trp_update_apply(update, 0);
}

static trp_status make_updater(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    static const trp_updater_impl impl = {.step = updater_step};
    (void)agent, (void)options;
    trp_updater *updater = calloc(1, sizeof *updater);
    *updater = (trp_updater){.impl = &impl, .source_count = 1, .vector_count = 1};
    updater->sources[0] = (trp_batch_spec){.table = table, .batch_size = BATCH};
    trp_sequence_columns(env, &extras, &sequence, &updater->sources[0].columns);
    updater->vectors[0] = (trp_vector_spec){
        .name = "params",
        .count = PARAMS,
        .learned = true,
        .optimizer = {.learning_rate = 5e-3, .schedule = TRP_RATE_LINEAR, .schedule_steps = 1000}};
    *out = updater;
    return TRP_OK;
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
