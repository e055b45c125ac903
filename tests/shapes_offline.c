/* Offline RL, toy sized: an updater that learns values of what a store holds, from a directory, and
 * nothing else: no policy, no adder, no tables. */
#include <stdlib.h>

#include <troupe/troupe.h>

enum { OBSERVED = 4, WEIGHTS = OBSERVED + 1, BATCH = 32 };

struct updater {
    trp_updater base;
    size_t observation, reward, discount, next_observation; /* columns */
};

static float linear(const float *weights, const float *x)
{
    float sum = weights[OBSERVED];
    for (int i = 0; i < OBSERVED; i++)
        sum += weights[i] * x[i];
    return sum;
}

static trp_status updater_step(trp_updater *base, const trp_update *update)
{
    const struct updater *updater = (const struct updater *)base;
    const trp_batch *batch = &update->batches[0];
    const float *params = update->vectors[0];
    double errors = 0;
    for (uint32_t row = 0; row < batch->rows; row++) {
        const float *x = (const float *)batch->columns[updater->observation] + row * OBSERVED;
        const float *next =
            (const float *)batch->columns[updater->next_observation] + row * OBSERVED;
        float target =
            ((const float *)batch->columns[updater->reward])[row] +
            0.9F * ((const float *)batch->columns[updater->discount])[row] * linear(params, next);
        float error = linear(params, x) - target;
        errors += (double)(error * error);
        for (int i = 0; i < WEIGHTS; i++)
            update->grads[0][i] += error * (i < OBSERVED ? x[i] : 1) / BATCH;
    }
    trp_update_report(update, "loss", errors / batch->rows);
    return trp_update_apply(update, 0);
}

static trp_status make_updater(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    static const trp_updater_impl impl = {.step = updater_step};
    (void)agent, (void)options;
    struct updater *updater = calloc(1, sizeof *updater);
    updater->base = (trp_updater){.impl = &impl, .source_count = 1, .vector_count = 1};
    updater->base.sources[0] = (trp_batch_spec){.table = "transitions", .batch_size = BATCH};
    trp_columns *columns = &updater->base.sources[0].columns;
    trp_nstep_columns(env, NULL, columns);
    updater->observation = trp_columns_find(columns, "observation");
    updater->reward = trp_columns_find(columns, "reward");
    updater->discount = trp_columns_find(columns, "discount");
    updater->next_observation = trp_columns_find(columns, "next_observation");
    updater->base.vectors[0] = (trp_vector_spec){
        .name = "params",
        .count = WEIGHTS,
        .learned = true,
        .optimizer = {.kind = TRP_SGD, .learning_rate = 0.05, .momentum = 0.9, .max_norm = 1}};
    *out = &updater->base;
    return TRP_OK;
}

static const trp_agent_impl offline = {.name = "offline", .updater = make_updater};

static trp_status build(trp_program *program, int argc, char **argv)
{
    if (argc != 2)
        return trp_fail(TRP_INVALID_ARGUMENT, "which store?");
    trp_agent agent = trp_agent_make(&offline, NULL);
    trp_add_learner(program, "learner",
                    &(trp_learner_options){.agent = &agent,
                                           .env = "CartPole-v1",
                                           .dataset = argv[1],
                                           .dataset_shuffle = 1000,
                                           .max_steps = 100});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "shapes_offline", build);
}
