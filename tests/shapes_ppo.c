/* PPO (Schulman et al. 2017), toy sized: what an interface has to carry for it. Sequences with the
 * actor's log-probability and value, a queue, generalised advantages, and epochs of minibatches as
 * phases of one step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

enum { OBSERVED = 4, WEIGHTS = OBSERVED + 1, PARAMS = 2 * WEIGHTS };
enum { ROWS = 17, BATCH = 8, EPOCHS = 3, MINIBATCHES = 2, DECISIONS = BATCH * (ROWS - 1) };
static const float discount = 0.99F, lambda = 0.95F, clip = 0.2F;
static const char table[] = "rollouts";
static const trp_sequence_options sequence = {.length = ROWS, .period = ROWS - 1};
static trp_tensor_spec extra_specs[] = {{.name = "log_prob", .dtype = TRP_FLOAT32},
                                        {.name = "value", .dtype = TRP_FLOAT32}};
static const trp_columns extras = {extra_specs, 2};

static float linear(const float *weights, const float *x)
{
    float sum = weights[OBSERVED];
    for (int i = 0; i < OBSERVED; i++)
        sum += weights[i] * x[i];
    return sum;
}

static float log_prob(const float *params, const float *x, int32_t action)
{
    float logit = linear(params, x);
    return -log1pf(expf(action ? -logit : logit));
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
        int32_t action = trp_rng_double(act->rng) < (double)expf(log_prob(params, x, 1));
        ((int32_t *)act->actions)[row] = action;
        if (!act->extras)
            continue;
        ((float *)act->extras[0])[row] = log_prob(params, x, action);
        ((float *)act->extras[1])[row] = linear(params + WEIGHTS, x);
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

struct decision {
    const float *x;
    int32_t action;
    float log_prob, advantage, target;
};

struct updater {
    trp_updater base;
    struct decision decisions[DECISIONS];
};

/* Generalised advantages (Schulman et al. 2016) of one item: rows that are no decision are left
 * out.
 */
static size_t collect_item(struct updater *updater, const trp_update *update, size_t item,
                           size_t count)
{
    const size_t first = item * ROWS;
    const float *params = update->vectors[0];
    const float *x = (const float *)trp_update_column(update, 0, "observation") + first * OBSERVED;
    const int32_t *actions = (const int32_t *)trp_update_column(update, 0, "action") + first;
    const float *rewards = (const float *)trp_update_column(update, 0, "reward") + first;
    const float *discounts = (const float *)trp_update_column(update, 0, "discount") + first;
    const bool *valid = (const bool *)trp_update_column(update, 0, "valid") + first;
    const float *log_probs = (const float *)trp_update_column(update, 0, "log_prob") + first;
    const float *values = (const float *)trp_update_column(update, 0, "value") + first;
    float advantage = 0, next = 0;
    for (size_t at = ROWS; at-- > 0;) {
        if (!valid[at] || at == ROWS - 1) { /* the observation behind the last decision */
            next = linear(params + WEIGHTS, x + at * OBSERVED);
            advantage = 0;
            continue;
        }
        float factor = discount * discounts[at];
        advantage = rewards[at] + factor * next - values[at] + factor * lambda * advantage;
        next = values[at];
        updater->decisions[count++] = (struct decision){.x = x + at * OBSERVED,
                                                        .action = actions[at],
                                                        .log_prob = log_probs[at],
                                                        .advantage = advantage,
                                                        .target = advantage + values[at]};
    }
    return count;
}

static void shuffle(struct decision *decisions, size_t count, trp_rng *rng)
{
    for (size_t i = count; i > 1; i--) {
        size_t other = (size_t)trp_rng_below(rng, i);
        struct decision kept = decisions[i - 1];
        decisions[i - 1] = decisions[other];
        decisions[other] = kept;
    }
}

static void add_gradient(const struct decision *d, const float *params, float *grads, float scale)
{
    float now = log_prob(params, d->x, d->action), ratio = expf(now - d->log_prob);
    bool cut = d->advantage > 0 ? ratio > 1 + clip : ratio < 1 - clip;
    float p = expf(log_prob(params, d->x, 1));
    float push = cut ? 0 : scale * ratio * d->advantage * (p - (float)d->action);
    float error = scale * (linear(params + WEIGHTS, d->x) - d->target);
    for (int i = 0; i < WEIGHTS; i++) {
        float x = i < OBSERVED ? d->x[i] : 1;
        grads[i] += push * x;
        grads[WEIGHTS + i] += error * x;
    }
}

static trp_status updater_step(trp_updater *base, const trp_update *update)
{
    struct updater *updater = (struct updater *)base;
    size_t count = 0;
    for (size_t item = 0; item < update->batches[0].rows; item++)
        count = collect_item(updater, update, item, count);
    for (size_t i = 0; i < count; i++)
        if (!(updater->decisions[i].log_prob <= 0))
            return trp_fail(TRP_DATA_LOSS, "a log-probability is %g",
                            (double)updater->decisions[i].log_prob);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        shuffle(updater->decisions, count, update->rng);
        for (size_t part = 0; part < MINIBATCHES; part++) {
            size_t lo = count * part / MINIBATCHES, hi = count * (part + 1) / MINIBATCHES;
            for (size_t i = lo; i < hi; i++)
                add_gradient(&updater->decisions[i], update->vectors[0], update->grads[0],
                             1.0F / (float)(hi - lo));
            TRP_TRY(trp_update_apply(update, 0));
        }
    }
    trp_update_report(update, "decisions", (double)count);
    return TRP_OK;
}

static trp_status make_updater(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    static const trp_updater_impl impl = {.step = updater_step};
    (void)agent, (void)options;
    struct updater *updater = calloc(1, sizeof *updater);
    updater->base = (trp_updater){.impl = &impl, .source_count = 1, .vector_count = 1};
    updater->base.sources[0] = (trp_batch_spec){.table = table, .batch_size = BATCH};
    trp_sequence_columns(env, &extras, &sequence, &updater->base.sources[0].columns);
    updater->base.vectors[0] =
        (trp_vector_spec){.name = "params",
                          .count = PARAMS,
                          .learned = true,
                          .optimizer = {.learning_rate = 3e-3, .max_norm = 0.5}};
    *out = &updater->base;
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
