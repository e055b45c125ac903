/* Reward 1 in every step, for ever, is worth 1 / (1 - 0.9) = 10. Episodes that are cut after 10
 * steps are worth the same; those that end there are not. An agent of one number learns it from
 * what adders make of an environment's episodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <troupe/agent.h>
#include "core/alloc.h"

enum { LENGTH = 4, BATCH = 30, EPISODE = 10, LEARNER_STEPS = 1000 };

static const float gamma_ = 0.9F;

/* What an item is: a transition of n steps, or with n = 0 a sequence with such an end. */
static uint32_t n_step;
static trp_sequence_options sequence;
static float learned;

/* ---- two tasks ------------------------------------------------------------------------------- */

struct task {
    int64_t steps;
};

static trp_status task_reset(void *state, trp_rng *rng)
{
    (void)rng;
    ((struct task *)state)->steps = 0;
    return TRP_OK;
}

static trp_status task_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    (void)rng, (void)action;
    ((struct task *)state)->steps++;
    outcome->reward = 1;
    return TRP_OK;
}

static trp_status ending_step(void *state, trp_rng *rng, const void *action,
                              trp_env_outcome *outcome)
{
    TRP_TRY(task_step(state, rng, action, outcome));
    outcome->terminated = ((const struct task *)state)->steps == EPISODE;
    return TRP_OK;
}

static void task_observe(const void *state, void *const *observations)
{
    (void)state;
    *(float *)observations[0] = 1;
}

#define TASK(called, limit, how)                                                                   \
    {                                                                                              \
        .spec = {.name = called,                                                                   \
                 .observations = {{.name = "one", .dtype = TRP_FLOAT32}},                          \
                 .action_kind = TRP_ACTION_DISCRETE,                                               \
                 .action_count = 2,                                                                \
                 .max_episode_steps = limit},                                                      \
        .state_bytes = sizeof(struct task), .reset = task_reset, .step = how,                      \
        .observe = task_observe                                                                    \
    }

static const trp_env_impl cut_impl = TASK("Cut", EPISODE, task_step);
static const trp_env_impl ending_impl = TASK("Ending", 0, ending_step);

/* ---- an agent of one number ------------------------------------------------------------------ */

static trp_status idle_act(trp_policy *policy, const trp_act *act)
{
    (void)policy;
    for (uint32_t row = 0; row < act->rows; row++)
        ((int32_t *)act->actions)[row] = 0;
    return TRP_OK;
}

static trp_status idle_load(trp_policy *policy, const float *params, size_t count)
{
    (void)policy, (void)params, (void)count;
    return TRP_OK;
}

static trp_status make_policy(const trp_agent *agent, const trp_env_spec *env,
                              const trp_policy_options *options, trp_policy **out)
{
    static const trp_policy_impl impl = {.act = idle_act, .load = idle_load};
    (void)agent, (void)env, (void)options;
    *out = xcalloc(1, sizeof **out);
    (*out)->impl = &impl;
    return TRP_OK;
}

static trp_status make_adder(const trp_agent *agent, const trp_adder_options *options,
                             trp_adder **out)
{
    trp_adder_options own = *options;
    (void)agent;
    own.table = "items";
    if (n_step > 0)
        return trp_nstep_adder_create(
            out, &own, &(trp_nstep_options){.n_step = n_step, .discount = (double)gamma_});
    return trp_sequence_adder_create(out, &own, &sequence);
}

/* The mean over all steps of value(o) - (r + gamma d value(o')), where value(o) is params[0] o. */
static trp_status value_step(trp_updater *updater, const trp_update *update)
{
    bool items = n_step > 0;
    const float *now = trp_update_column(update, 0, "observation");
    const float *next = items ? trp_update_column(update, 0, "next_observation") : now + 1;
    const float *rewards = trp_update_column(update, 0, "reward");
    const float *discounts = trp_update_column(update, 0, "discount");
    const bool *valid = trp_update_column(update, 0, "valid");
    uint32_t length = items ? 1 : LENGTH, count = 0;
    float sum = 0, value = update->vectors[0][0];
    (void)updater;
    for (uint32_t at = 0; at < update->batches[0].rows * length; at++) {
        if (!items && (!valid[at] || at % length == length - 1))
            continue;
        sum += value * now[at] - rewards[at] - gamma_ * discounts[at] * value * next[at];
        count++;
    }
    update->grads[0][0] = sum / (float)count;
    TRP_TRY(trp_update_apply(update, 0));
    learned = update->vectors[0][0];
    return TRP_OK;
}

static trp_status make_updater(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    static const trp_updater_impl impl = {.step = value_step};
    (void)agent, (void)options;
    trp_updater *updater = xcalloc(1, sizeof *updater);
    *updater = (trp_updater){.impl = &impl, .source_count = 1, .vector_count = 1};
    updater->sources[0] = (trp_batch_spec){.table = "items", .batch_size = BATCH};
    if (n_step > 0)
        trp_nstep_columns(env, NULL, &updater->sources[0].columns);
    else
        trp_sequence_columns(env, NULL, &sequence, &updater->sources[0].columns);
    updater->vectors[0] = (trp_vector_spec){.name = "params",
                                            .count = 1,
                                            .learned = true,
                                            .optimizer = {.kind = TRP_SGD, .learning_rate = 0.3}};
    *out = updater;
    return TRP_OK;
}

static const trp_agent_impl value_impl = {
    .name = "value", .policy = make_policy, .adder = make_adder, .updater = make_updater};

static float learn(const char *env)
{
    trp_agent agent = trp_agent_make(&value_impl, NULL);
    trp_learner *learner;
    assert_int_equal(trp_agent_learner_create(
                         &learner, &agent,
                         &(trp_agent_learner_options){.env = env,
                                                      .rollout = {.name = "learner", .copies = 3},
                                                      .loop = {.max_steps = LEARNER_STEPS}}),
                     TRP_OK);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    trp_learner_destroy(learner);
    return learned;
}

static void episodes_that_are_cut_are_worth_what_they_would_go_on_to_be(void **state)
{
    (void)state;
    for (n_step = 1; n_step <= 5; n_step += 2)
        assert_float_equal(learn("Cut"), 10, 1e-3);
    n_step = 0;
    for (trp_sequence_end end = TRP_END_PAD; end <= TRP_END_CONTINUE; end++) {
        if (end == TRP_END_TRUNCATE)
            continue; /* such items have no size that a batch could have */
        sequence = (trp_sequence_options){.length = LENGTH, .period = LENGTH - 1, .end = end};
        assert_float_equal(learn("Cut"), 10, 1e-3);
    }
}

/* One of 10 steps is the last, so that v = 1 + 0.9 * 0.9 v on average. */
static void episodes_that_end_are_worth_less(void **state)
{
    (void)state;
    n_step = 1;
    assert_float_equal(learn("Ending"), 1 / (1 - 0.81), 0.2);
    n_step = 0;
    sequence = (trp_sequence_options){.length = LENGTH, .period = LENGTH - 1};
    assert_float_equal(learn("Ending"), 1 / (1 - 0.81), 0.2);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(episodes_that_are_cut_are_worth_what_they_would_go_on_to_be),
        cmocka_unit_test(episodes_that_end_are_worth_less),
    };
    if (trp_env_register(&cut_impl) != TRP_OK || trp_env_register(&ending_impl) != TRP_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
