/* An algorithm of one's own: an actor-critic with linear functions learns CartPole. The policy
 * writes log-probability and value beside actions; items are sequences of 21 rows that share one; a
 * queue gives each once to the updater, which weighs by the newest policy (cut at 1). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

enum { OBSERVED = 4, WEIGHTS = OBSERVED + 1, PARAMS = 2 * WEIGHTS, ROWS = 21, BATCH = 16 };
static const char table[] = "sequences";
static const trp_sequence_options sequence = {.length = ROWS, .period = ROWS - 1};
static trp_tensor_spec extra_specs[] = {{.name = "log_prob", .dtype = TRP_FLOAT32},
                                        {.name = "value", .dtype = TRP_FLOAT32}};
static const trp_columns extras = {extra_specs, 2};

static float linear(const float *weights, const float *observation)
{
    float sum = weights[OBSERVED];
    for (int i = 0; i < OBSERVED; i++)
        sum += weights[i] * observation[i];
    return sum;
}

struct policy {
    trp_policy base;
    float params[PARAMS]; /* of the policy, then of the value */
};

static trp_status policy_act(trp_policy *base, const trp_act *act)
{
    const float *params = ((struct policy *)base)->params, *observation = act->observations[0];
    for (uint32_t row = 0; row < act->rows; row++, observation += OBSERVED) {
        float p = 1 / (1 + expf(-linear(params, observation))); /* of pushing to the right */
        bool chosen = trp_rng_double(act->rng) < (double)p;
        ((int32_t *)act->actions)[row] = chosen;
        if (act->extras) {
            ((float *)act->extras[0])[row] = logf(chosen ? p : 1 - p);
            ((float *)act->extras[1])[row] = linear(params + WEIGHTS, observation);
        }
    }
    return TRP_OK;
}

static trp_status policy_load(trp_policy *base, const float *params, size_t count)
{
    if (count != PARAMS)
        return trp_fail(TRP_INVALID_ARGUMENT, "own_agent: %zu parameters, not %d", count, PARAMS);
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

static trp_status updater_step(trp_updater *updater, const trp_update *update)
{
    const float *observations = trp_update_column(update, 0, "observation");
    const float *rewards = trp_update_column(update, 0, "reward");
    const float *discounts = trp_update_column(update, 0, "discount");
    const float *log_probs = trp_update_column(update, 0, "log_prob");
    const float *values = trp_update_column(update, 0, "value");
    const int32_t *actions = trp_update_column(update, 0, "action");
    const bool *valid = trp_update_column(update, 0, "valid");
    float *params = update->vectors[0], *grads = update->grads[0], target = 0;
    (void)updater;
    for (size_t at = (size_t)update->batches[0].rows * ROWS; at-- > 0;) {
        const float *observation = observations + at * OBSERVED;
        float p = 1 / (1 + expf(-linear(params, observation)));
        float value = linear(params + WEIGHTS, observation);
        bool step = valid[at] && at % ROWS < ROWS - 1; /* or the row behind an item's last one */
        target = step ? rewards[at] + 0.99F * discounts[at] * target : value;
        float rho = fminf(1, expf(logf(actions[at] ? p : 1 - p) - log_probs[at])) / (BATCH * ROWS);
        float push = step ? rho * (p - (float)actions[at]) * (target - values[at]) : 0;
        for (int i = 0; i < WEIGHTS; i++) {
            float x = i < OBSERVED ? observation[i] : 1;
            grads[i] += push * x;
            grads[WEIGHTS + i] += rho * (value - target) * x;
        }
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
        .name = "params", .count = PARAMS, .learned = true, .optimizer = {.learning_rate = 0.02}};
    *out = updater;
    return TRP_OK;
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
    TRP_TRY(trp_arguments_check(argc, argv, 0));
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
