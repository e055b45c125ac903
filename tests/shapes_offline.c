/* Offline RL, toy sized: an updater that learns values of what a store holds, from a directory, and
 * nothing else: no policy, no adder, no tables. */
#include <stdlib.h>

#include <troupe/troupe.h>

enum { OBSERVED = 4, WEIGHTS = OBSERVED + 1, BATCH = 32 };

static float linear(const float *weights, const float *x)
{
    float sum = weights[OBSERVED];
    for (int i = 0; i < OBSERVED; i++)
        sum += weights[i] * x[i];
    return sum;
}

static trp_status updater_step(trp_updater *updater, const trp_update *update)
{
    (void)updater;
    uint32_t rows = update->batches[0].rows;
    const float *xs = trp_update_column(update, 0, "observation");
    const float *nexts = trp_update_column(update, 0, "next_observation");
    const float *rewards = trp_update_column(update, 0, "reward");
    const float *discounts = trp_update_column(update, 0, "discount");
    const float *params = update->vectors[0];
    double errors = 0;
    for (uint32_t row = 0; row < rows; row++) {
        const float *x = xs + row * OBSERVED, *next = nexts + row * OBSERVED;
        float target = rewards[row] + 0.9F * discounts[row] * linear(params, next);
        float error = linear(params, x) - target;
        errors += (double)(error * error);
        for (int i = 0; i < WEIGHTS; i++)
            update->grads[0][i] += error * (i < OBSERVED ? x[i] : 1) / BATCH;
    }
    trp_update_report(update, "loss", errors / rows);
    return trp_update_apply(update, 0);
}

static trp_status make_updater(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    static const trp_updater_impl impl = {.step = updater_step};
    (void)agent, (void)options;
    trp_updater *updater = calloc(1, sizeof *updater);
    *updater = (trp_updater){.impl = &impl, .source_count = 1, .vector_count = 1};
    updater->sources[0] = (trp_batch_spec){.table = "transitions", .batch_size = BATCH};
    trp_nstep_columns(env, NULL, &updater->sources[0].columns);
    updater->vectors[0] = (trp_vector_spec){
        .name = "params",
        .count = WEIGHTS,
        .learned = true,
        .optimizer = {.kind = TRP_SGD, .learning_rate = 0.05, .momentum = 0.9, .max_norm = 1}};
    *out = updater;
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
