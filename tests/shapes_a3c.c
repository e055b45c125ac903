/* A3C (Mnih et al. 2016), toy sized: two learners, each of which plays its own environments. A
 * batch source of one's own acts with the newest parameters, which it pulls from its learner in the
 * same process; there is no replay, no table and no adder. */
#include <math.h>
#include <stdlib.h>

#include <troupe/troupe.h>

enum { OBSERVED = 4, WEIGHTS = OBSERVED + 1, PARAMS = 2 * WEIGHTS, STEPS = 20, COPIES = 4 };
enum { OBSERVATION, ACTION, REWARD, DISCOUNT, FINAL, COLUMNS };

static float linear(const float *weights, const float *x)
{
    float sum = weights[OBSERVED];
    for (int i = 0; i < OBSERVED; i++)
        sum += weights[i] * x[i];
    return sum;
}

static float right(const float *params, const float *x)
{
    return 1 / (1 + expf(-linear(params, x)));
}

/* ---- the source: STEPS steps of COPIES copies ---------------------------------------------- */

struct rollout {
    trp_source base;
    trp_env *env;
    trp_params_client *params; /* set when the learner is there */
    trp_rng rng;
    float now[COPIES * OBSERVED];
    /* A batch: the steps of a copy one after the other, and the observation behind them. */
    float observations[COPIES][STEPS][OBSERVED], rewards[COPIES][STEPS], discounts[COPIES][STEPS];
    float finals[COPIES][OBSERVED];
    int32_t actions[COPIES][STEPS];
    void *columns[COLUMNS];
};

static trp_status rollout_open(trp_source *base, const trp_batch_spec *spec, uint32_t held)
{
    struct rollout *rollout = (struct rollout *)base;
    (void)spec, (void)held; /* one: the updater collects nothing later */
    void *columns[COLUMNS] = {rollout->observations, rollout->actions, rollout->rewards,
                              rollout->discounts, rollout->finals};
    for (int i = 0; i < COLUMNS; i++)
        rollout->columns[i] = columns[i];
    return trp_env_reset(rollout->env, (void *[]){rollout->now});
}

static trp_status rollout_step(struct rollout *rollout, const float *params, int step)
{
    float rewards[COPIES];
    bool terminated[COPIES], truncated[COPIES];
    int32_t actions[COPIES];
    for (int copy = 0; copy < COPIES; copy++) {
        const float *x = rollout->now + copy * OBSERVED;
        for (int i = 0; i < OBSERVED; i++)
            rollout->observations[copy][step][i] = x[i];
        actions[copy] = trp_rng_double(&rollout->rng) < (double)right(params, x);
        rollout->actions[copy][step] = actions[copy];
    }
    TRP_TRY(trp_env_step(rollout->env, actions,
                         &(trp_env_buffers){.observations = (void *[]){rollout->now},
                                            .rewards = rewards,
                                            .terminated = terminated,
                                            .truncated = truncated}));
    for (int copy = 0; copy < COPIES; copy++) {
        rollout->rewards[copy][step] = rewards[copy];
        rollout->discounts[copy][step] = terminated[copy] || truncated[copy] ? 0 : 1;
    }
    return TRP_OK;
}

static trp_status rollout_next(trp_source *base, trp_batch *batch, int64_t timeout_ms)
{
    struct rollout *rollout = (struct rollout *)base;
    (void)timeout_ms;
    TRP_TRY(trp_params_client_pull(rollout->params, 0, 0, NULL));
    trp_params_state state = trp_params_client_state(rollout->params);
    for (int step = 0; step < STEPS; step++)
        TRP_TRY(rollout_step(rollout, state.params, step));
    for (int i = 0; i < COPIES * OBSERVED; i++)
        rollout->finals[i / OBSERVED][i % OBSERVED] = rollout->now[i];
    *batch = (trp_batch){.rows = COPIES, .columns = rollout->columns};
    return TRP_OK;
}

static void rollout_destroy(trp_source *base)
{
    struct rollout *rollout = (struct rollout *)base;
    trp_params_client_destroy(rollout->params);
    trp_env_destroy(rollout->env);
    free(rollout);
}

static trp_status rollout_create(struct rollout **out, uint64_t seed)
{
    static const trp_source_impl impl = {
        .open = rollout_open, .next = rollout_next, .destroy = rollout_destroy};
    struct rollout *rollout = calloc(1, sizeof *rollout);
    rollout->base.impl = &impl;
    trp_rng_init(&rollout->rng, seed, 1);
    *out = rollout;
    return trp_env_create(&rollout->env, "CartPole-v1",
                          &(trp_env_options){.count = COPIES, .seed = seed});
}

/* ---- updater ------------------------------------------------------------------------------ */

static trp_status updater_step(trp_updater *updater, const trp_update *update)
{
    void *const *columns = update->batches[0].columns;
    const float *params = update->vectors[0];
    (void)updater;
    for (int copy = 0; copy < COPIES; copy++) {
        float target = linear(params + WEIGHTS, (const float *)columns[FINAL] + copy * OBSERVED);
        for (int at = (copy + 1) * STEPS; at-- > copy * STEPS;) {
            const float *x = (const float *)columns[OBSERVATION] + at * OBSERVED;
            target = ((const float *)columns[REWARD])[at] +
                     0.99F * ((const float *)columns[DISCOUNT])[at] * target;
            float value = linear(params + WEIGHTS, x), scale = 1.0F / (COPIES * STEPS);
            float push = right(params, x) - (float)((const int32_t *)columns[ACTION])[at];
            for (int i = 0; i < WEIGHTS; i++) {
                float input = scale * (i < OBSERVED ? x[i] : 1);
                update->grads[0][i] += push * (target - value) * input;
                update->grads[0][WEIGHTS + i] += (value - target) * input;
            }
        }
    }
    return trp_update_apply(update, 0);
}

static trp_updater *updater_create(void)
{
    static const trp_updater_impl impl = {.step = updater_step};
    trp_tensor_spec number = {.dtype = TRP_FLOAT32}, choice = {.dtype = TRP_INT32};
    trp_tensor_spec observation = {.dtype = TRP_FLOAT32, .rank = 1, .shape = {OBSERVED}};
    trp_updater *updater = calloc(1, sizeof *updater);
    *updater = (trp_updater){.impl = &impl, .source_count = 1, .vector_count = 1};
    updater->sources[0] = (trp_batch_spec){.table = "rollout", .batch_size = COPIES};
    trp_columns *columns = &updater->sources[0].columns;
    trp_columns_add_steps(columns, "observation", &observation, STEPS);
    trp_columns_add_steps(columns, "action", &choice, STEPS);
    trp_columns_add_steps(columns, "reward", &number, STEPS);
    trp_columns_add_steps(columns, "discount", &number, STEPS);
    trp_columns_add(columns, "final_observation", &observation);
    updater->vectors[0] = (trp_vector_spec){
        .name = "params", .count = PARAMS, .learned = true, .optimizer = {.learning_rate = 0.02}};
    return updater;
}

/* ---- the node ------------------------------------------------------------------------------ */

static trp_status learner_run(trp_context *context, const void *arg)
{
    (void)arg;
    uint64_t seed = trp_context_seed(context) + trp_context_index(context);
    struct rollout *rollout;
    trp_learner *learner = NULL;
    trp_status status = rollout_create(&rollout, seed);
    if (status != TRP_OK) {
        trp_source_destroy(&rollout->base);
        return status;
    }
    TRP_TRY(trp_learner_create(
        &learner, &(trp_learner_loop_options){.updater = updater_create(),
                                              .sources = (trp_source *const[]){&rollout->base},
                                              .source_count = 1,
                                              .seed = seed,
                                              .stop = trp_context_stop(context),
                                              .publish_every = 1,
                                              .max_steps = 100}));
    status = trp_params_client_create(
        &rollout->params, &(trp_params_client_options){.service = trp_learner_service(learner),
                                                       .stop = trp_context_stop(context)});
    if (status == TRP_OK)
        status = trp_learner_run(learner);
    trp_context_report(context, "learner_steps", (double)trp_learner_read(learner).steps);
    trp_learner_destroy(learner);
    return status;
}

static trp_status build(trp_program *program, int argc, char **argv)
{
    (void)argc, (void)argv;
    trp_add_node(program, "learner", &(trp_node_options){.run = learner_run, .count = 2});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "shapes_a3c", build);
}
