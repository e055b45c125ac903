/* A3C (Mnih et al. 2016), toy sized: two learners, each of which plays its own environments with
 * the parameters of its last step, on its own thread. A node of one's own makes its learner from an
 * agent's parts; there is no replay and no table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

enum { OBSERVED = 4, WEIGHTS = OBSERVED + 1, PARAMS = 2 * WEIGHTS, STEPS = 20, COPIES = 4 };
static const float discount = 0.99F;
/* Rows of the next episode follow those of the last; the row of a final observation is not valid.
 */
static const trp_sequence_options sequence = {
    .length = STEPS + 1, .period = STEPS, .end = TRP_END_CONTINUE};

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

/* ---- policy ------------------------------------------------------------------------------- */

struct policy {
    trp_policy base;
    float params[PARAMS];
};

static trp_status policy_act(trp_policy *base, const trp_act *act)
{
    const float *params = ((struct policy *)base)->params, *x = act->observations[0];
    for (uint32_t row = 0; row < act->rows; row++, x += OBSERVED)
        ((int32_t *)act->actions)[row] = trp_rng_double(act->rng) < (double)right(params, x);
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
    *out = &policy->base;
    return TRP_OK;
}

static trp_status make_adder(const trp_agent *agent, const trp_adder_options *options,
                             trp_adder **out)
{
    trp_adder_options own = *options;
    (void)agent;
    own.table = "rollout";
    return trp_sequence_adder_create(out, &own, &sequence);
}

/* ---- updater ------------------------------------------------------------------------------ */

/* From the last row back: R = r + gamma d R', which the value of the last row begins. */
static void add_gradient(const trp_update *update, size_t item)
{
    const int32_t *actions = trp_update_column(update, 0, "action");
    const float *rewards = trp_update_column(update, 0, "reward");
    const float *discounts = trp_update_column(update, 0, "discount");
    const bool *valid = trp_update_column(update, 0, "valid");
    const float *x = trp_update_column(update, 0, "observation"), *params = update->vectors[0];
    x += (item + 1) * (STEPS + 1) * OBSERVED;
    size_t at = (item + 1) * (STEPS + 1) - 1;
    x -= OBSERVED;
    float target = linear(params + WEIGHTS, x);
    for (int step = 0; step < STEPS; step++) {
        x -= OBSERVED, at--;
        float value = linear(params + WEIGHTS, x);
        if (!valid[at]) {
            target = value;
            continue;
        }
        target = rewards[at] + discount * discounts[at] * target;
        float scale = 1.0F / (float)(update->batches[0].rows * STEPS);
        float push = right(params, x) - (float)actions[at];
        for (int i = 0; i < WEIGHTS; i++) {
            float input = scale * (i < OBSERVED ? x[i] : 1);
            update->grads[0][i] += push * (target - value) * input;
            update->grads[0][WEIGHTS + i] += (value - target) * input;
        }
    }
}

static trp_status updater_step(trp_updater *base, const trp_update *update)
{
    (void)base;
    for (size_t item = 0; item < update->batches[0].rows; item++)
        add_gradient(update, item);
    return trp_update_apply(update, 0);
}

static trp_status make_updater(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    static const trp_updater_impl impl = {.step = updater_step};
    (void)agent, (void)options;
    trp_updater *updater = calloc(1, sizeof *updater);
    *updater = (trp_updater){.impl = &impl, .source_count = 1, .vector_count = 1};
    updater->sources[0] = (trp_batch_spec){.table = "rollout", .batch_size = COPIES};
    trp_sequence_columns(env, NULL, &sequence, &updater->sources[0].columns);
    updater->vectors[0] = (trp_vector_spec){
        .name = "params", .count = PARAMS, .learned = true, .optimizer = {.learning_rate = 0.02}};
    *out = updater;
    return TRP_OK;
}

/* ---- the node ------------------------------------------------------------------------------ */

static const trp_agent_impl a3c = {
    .name = "a3c", .policy = make_policy, .adder = make_adder, .updater = make_updater};

static trp_status learner_run(trp_context *context, const void *arg)
{
    trp_agent agent = trp_agent_make(&a3c, NULL);
    trp_learner *learner;
    (void)arg;
    TRP_TRY(trp_agent_learner_create(
        &learner, &agent,
        &(trp_agent_learner_options){
            .env = "CartPole-v1",
            .seed = trp_context_seed(context),
            .index = trp_context_index(context),
            .rollout = {.name = trp_context_name(context),
                        .copies = COPIES,
                        .index = trp_context_index(context)},
            .loop = {.stop = trp_context_stop(context), .max_steps = 100}}));
    trp_status status = trp_learner_run(learner);
    trp_learner_counters counters = trp_learner_read(learner);
    trp_context_report(context, "learner_steps", (double)counters.steps);
    trp_context_report(context, "actor_steps", (double)counters.actor_steps);
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
