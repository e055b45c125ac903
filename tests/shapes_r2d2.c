/* R2D2 (Kapturowski et al. 2019), toy sized: a policy that remembers, its core state of an item's
 * first row, burn-in, a target network, and prioritized replay of overlapping sequences. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

/* The core is a leaky sum of each observation, which needs no weights: h' = (h + x) / 2. */
enum { OBSERVED = 4, CORE = 4, INPUTS = OBSERVED + CORE, WEIGHTS = INPUTS + 1, ACTIONS = 2 };
enum { PARAMS = ACTIONS * WEIGHTS, ROWS = 12, PERIOD = 6, BURN_IN = 4, BATCH = 8 };
static const float discount = 0.99F, eta = 0.9F;
static const char table[] = "sequences";
static const char *const first_extras[] = {"core", NULL};
static const trp_sequence_options sequence = {
    .length = ROWS, .period = PERIOD, .first_extras = first_extras};
static trp_tensor_spec extra_specs[] = {
    {.name = "core", .dtype = TRP_FLOAT32, .rank = 1, .shape = {CORE}}};
static const trp_columns extras = {extra_specs, 1};

static void remember(float *core, const float *x)
{
    for (int i = 0; i < CORE; i++)
        core[i] = (core[i] + x[i]) / 2;
}

static float value(const float *params, const float *x, const float *core, int32_t action)
{
    const float *weights = params + action * WEIGHTS;
    float sum = weights[INPUTS];
    for (int i = 0; i < OBSERVED; i++)
        sum += weights[i] * x[i] + weights[OBSERVED + i] * core[i];
    return sum;
}

static int32_t best(const float *params, const float *x, const float *core)
{
    return value(params, x, core, 1) > value(params, x, core, 0);
}

/* ---- policy ------------------------------------------------------------------------------- */

struct policy {
    trp_policy base;
    bool greedy;
    float params[PARAMS];
    float (*cores)[CORE]; /* one a slot */
};

static trp_status policy_act(trp_policy *base, const trp_act *act)
{
    struct policy *policy = (struct policy *)base;
    const float *x = act->observations[0];
    for (uint32_t row = 0; row < act->rows; row++, x += OBSERVED) {
        float *core = policy->cores[act->slots[row]];
        if (act->first[row])
            memset(core, 0, CORE * sizeof *core);
        if (act->extras) /* as it is before the step */
            memcpy((float *)act->extras[0] + row * CORE, core, CORE * sizeof *core);
        remember(core, x);
        bool explores = !policy->greedy && trp_rng_double(act->rng) < 0.2;
        ((int32_t *)act->actions)[row] =
            explores ? (int32_t)trp_rng_below(act->rng, ACTIONS) : best(policy->params, x, core);
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

static void policy_destroy(trp_policy *base)
{
    free(((struct policy *)base)->cores);
    free(base);
}

static trp_status make_policy(const trp_agent *agent, const trp_env_spec *env,
                              const trp_policy_options *options, trp_policy **out)
{
    static const trp_policy_impl impl = {
        .act = policy_act, .load = policy_load, .destroy = policy_destroy};
    (void)agent, (void)env;
    uint32_t slots = options->slots ? options->slots : options->rows ? options->rows : 1;
    struct policy *policy = calloc(1, sizeof *policy);
    policy->base.impl = &impl;
    policy->greedy = options->greedy;
    policy->cores = calloc(slots, sizeof *policy->cores);
    trp_columns_add_all(&policy->base.extras, &extras);
    *out = &policy->base;
    return TRP_OK;
}

/* ---- updater ------------------------------------------------------------------------------ */

enum { ONLINE, TARGET };

/* Adds the gradient of one step whose core is `core`, and returns its error. */
static float add_step(const trp_update *update, const float *x, const float *core, int32_t action,
                      float reward, float factor)
{
    const float *params = update->vectors[ONLINE], *next = x + OBSERVED;
    float next_core[CORE];
    memcpy(next_core, core, sizeof next_core);
    remember(next_core, next);
    float target = reward + factor * value(update->vectors[TARGET], next, next_core,
                                           best(params, next, next_core));
    float error = target - value(params, x, core, action);
    float *grads = update->grads[ONLINE] + action * WEIGHTS;
    for (int i = 0; i < OBSERVED; i++) {
        grads[i] -= error * x[i] / (BATCH * ROWS);
        grads[OBSERVED + i] -= error * core[i] / (BATCH * ROWS);
    }
    grads[INPUTS] -= error / (BATCH * ROWS);
    return fabsf(error);
}

/* The priority of an item: eta of the largest error, the rest of the mean. */
static double learn_item(const trp_update *update, size_t item)
{
    const float *x =
        (const float *)trp_update_column(update, 0, "observation") + item * ROWS * OBSERVED;
    const int32_t *actions = (const int32_t *)trp_update_column(update, 0, "action") + item * ROWS;
    const float *rewards = (const float *)trp_update_column(update, 0, "reward") + item * ROWS;
    const float *discounts = (const float *)trp_update_column(update, 0, "discount") + item * ROWS;
    const bool *valid = (const bool *)trp_update_column(update, 0, "valid") + item * ROWS;
    float core[CORE], largest = 0, sum = 0, count = 0;
    memcpy(core, (const float *)trp_update_column(update, 0, "core") + item * CORE, sizeof core);
    for (size_t at = 0; at < ROWS - 1 && valid[at]; at++) {
        remember(core, x + at * OBSERVED);
        if (at < BURN_IN)
            continue;
        float error = add_step(update, x + at * OBSERVED, core, actions[at] != 0, rewards[at],
                               discount * discounts[at]);
        largest = fmaxf(largest, error);
        sum += error;
        count++;
    }
    return (double)(eta * largest + (1 - eta) * sum / fmaxf(count, 1)) + 1e-3;
}

static trp_status updater_step(trp_updater *base, const trp_update *update)
{
    (void)base;
    for (size_t item = 0; item < update->batches[0].rows; item++)
        update->priorities[0][item] = learn_item(update, item);
    TRP_TRY(trp_update_apply(update, ONLINE));
    if (update->step % 20 == 0)
        memcpy(update->vectors[TARGET], update->vectors[ONLINE], PARAMS * sizeof(float));
    return TRP_OK;
}

static trp_status make_updater(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    static const trp_updater_impl impl = {.step = updater_step};
    (void)agent, (void)options;
    trp_updater *updater = calloc(1, sizeof *updater);
    *updater = (trp_updater){.impl = &impl, .source_count = 1, .vector_count = 2};
    updater->sources[0] =
        (trp_batch_spec){.table = table, .batch_size = BATCH, .writes_priorities = true};
    trp_sequence_columns(env, &extras, &sequence, &updater->sources[0].columns);
    updater->vectors[ONLINE] = (trp_vector_spec){
        .name = "params", .count = PARAMS, .learned = true, .optimizer = {.learning_rate = 1e-3}};
    updater->vectors[TARGET] = (trp_vector_spec){.name = "target", .count = PARAMS};
    *out = updater;
    return TRP_OK;
}

/* ---- tables, adder, program ---------------------------------------------------------------- */

static trp_status make_tables(const trp_agent *agent, const trp_env_spec *env,
                              trp_agent_table_list *list)
{
    (void)agent;
    trp_table_options rollouts = {.name = table,
                                  .sampler = {.kind = TRP_PRIORITIZED, .exponent = 0.9},
                                  .max_size = 1000,
                                  .limiter = trp_limiter_min_size(2 * BATCH)};
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

static const trp_agent_impl r2d2 = {.name = "r2d2",
                                    .tables = make_tables,
                                    .policy = make_policy,
                                    .adder = make_adder,
                                    .updater = make_updater};

static trp_status build(trp_program *program, int argc, char **argv)
{
    (void)argc, (void)argv;
    trp_agent agent = trp_agent_make(&r2d2, NULL);
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
    return trp_main(argc, argv, "shapes_r2d2", build);
}
