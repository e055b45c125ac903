/* DQN: its options and its policy. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/dqn.h>
#include <troupe/log.h>
#include "agents/dqn.h"
#include "core/alloc.h"

/* ---- options ------------------------------------------------------------------------------- */

static void agents_of_equal_options_are_equal(void **state)
{
    (void)state;
    trp_agent defaults = trp_dqn(NULL);
    trp_agent zeros = trp_dqn(&(trp_dqn_options){0});
    trp_agent named = trp_dqn(&(trp_dqn_options){.hidden = {64, 64}, .discount = 0.99F});
    trp_agent other = trp_dqn(&(trp_dqn_options){.discount = 0.98F});
    assert_memory_equal(defaults.options.bytes, zeros.options.bytes, sizeof zeros.options.bytes);
    assert_int_equal(trp_agent_hash(&defaults), trp_agent_hash(&zeros));
    assert_int_equal(trp_agent_hash(&defaults), trp_agent_hash(&named));
    assert_int_not_equal(trp_agent_hash(&defaults), trp_agent_hash(&other));
}

static void a_negative_number_means_none(void **state)
{
    (void)state;
    trp_agent agent = trp_dqn(&(trp_dqn_options){.priority_exponent = -1,
                                                 .importance_exponent = -1,
                                                 .max_gradient_norm = -1,
                                                 .epsilon_end = -1,
                                                 .samples_per_insert = -1});
    trp_dqn_options options = dqn_options(&agent);
    assert_float_equal(options.priority_exponent, 0, 0);
    assert_float_equal(options.importance_exponent, 0, 0);
    assert_float_equal(options.max_gradient_norm, 0, 0);
    assert_float_equal(options.epsilon_end, 0, 0);
    assert_float_equal(options.samples_per_insert, 0, 0);
    trp_agent_table_list list;
    assert_int_equal(trp_agent_tables(&agent, "Catch", &list), TRP_OK);
    assert_int_equal(list.tables[0].sampler.kind, TRP_UNIFORM);
    trp_agent_table_list_cleanup(&list);
}

static void the_table_has_acmes_limiter(void **state)
{
    (void)state;
    trp_agent agent = trp_dqn(&(trp_dqn_options){.min_replay_size = 1000,
                                                 .samples_per_insert = 4,
                                                 .insert_tolerance = 0.1F,
                                                 .replay_size = 5000});
    trp_agent_table_list list;
    assert_int_equal(trp_agent_tables(&agent, "CartPole-v1", &list), TRP_OK);
    assert_int_equal(list.count, 1);
    const trp_table_options *table = &list.tables[0];
    assert_int_equal(trp_table_options_check(table), TRP_OK);
    assert_int_equal(table->sampler.kind, TRP_PRIORITIZED);
    assert_float_equal(table->sampler.exponent, 0.6, 0); /* the decimal, not the float's */
    assert_int_equal(table->max_size, 5000);
    assert_int_equal(table->limiter.min_size, 1000);
    assert_float_equal(table->limiter.samples_per_insert, 4, 0);
    assert_float_equal(table->limiter.min_diff, 4 * 1000 - 400, 1e-3);
    assert_float_equal(table->limiter.max_diff, 4 * 1000 + 400, 1e-3);
    assert_true(table->signature.size > 0);
    trp_agent_table_list_cleanup(&list);
}

static void wrong_options_are_refused_by_name(void **state)
{
    (void)state;
    const struct {
        trp_dqn_options options;
        const char *word;
    } rows[] = {
        {{.n_step = 100000}, "n_step"},
        {{.discount = 1.5F}, "discount"},
        {{.discount = NAN}, "discount"},
        {{.learning_rate = -1}, "learning_rate"},
        {{.huber_delta = -1}, "huber_delta"},
        {{.max_gradient_norm = NAN}, "max_gradient_norm"},
        {{.batch_size = 1 << 30}, "batch_size"},
        {{.target_rate = 2}, "target_rate"},
        {{.optimizer = (trp_optimizer_kind)9}, "optimizer"},
        {{.momentum = 0.9F}, "dqn: the optimizer adam has no option momentum"},
        {{.rate_schedule = TRP_RATE_COSINE}, "schedule_steps is 0"},
        {{.weight_decay = -1}, "weight_decay"},
        {{.epsilon_start = 2}, "epsilon_start"},
        {{.epsilon_alpha = -1}, "epsilon_alpha"},
        {{.replay_size = 10, .min_replay_size = 20}, "min_replay_size"},
        {{.replay_size = -1}, "replay_size"},
        {{.insert_tolerance = -1}, "insert_tolerance"},
        {{.priority_epsilon = -1}, "priority_epsilon"},
        {{.importance_exponent = 1.5F}, "importance_exponent"},
        {{.hidden = {1 << 20}}, "65536"},
        {{.precision = (trp_precision)9}, "precision"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_agent agent = trp_dqn(&rows[i].options);
        assert_int_equal(trp_agent_check(&agent, "Catch"), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), rows[i].word));
    }
}

static void options_choose_the_optimizer(void **state)
{
    (void)state;
    trp_agent agent = trp_dqn(NULL);
    trp_dqn_options options = dqn_options(&agent);
    trp_optimizer adam = dqn_optimizer(&options);
    assert_int_equal(adam.kind, TRP_ADAM);
    assert_true(adam.beta1 == 0.9 && adam.beta2 == 0.999); /* as typed, not the nearest floats */
    assert_float_equal(adam.learning_rate, 1e-3, 1e-9);
    assert_true(adam.epsilon == 0 && adam.max_norm == 10);
    static const struct {
        const char *name, *value;
    } given[] = {{"optimizer", "rmsprop"},     {"learning_rate", "0"},
                 {"rate_schedule", "linear"},  {"final_learning_rate", "0.5"},
                 {"schedule_steps", "70"},     {"warmup_steps", "7"},
                 {"weight_decay", "0.01"},     {"adam_beta1", "0"},
                 {"adam_beta2", "0.5"},        {"optimizer_epsilon", "1e-5"},
                 {"momentum", "0.9"},          {"rmsprop_alpha", "0.95"},
                 {"rmsprop_centered", "true"}, {"rmsprop_epsilon_inside", "true"},
                 {"max_gradient_norm", "0"}};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        assert_int_equal(
            trp_options_set(&dqn_option_table, agent.options.bytes, given[i].name, given[i].value),
            TRP_OK);
    options = dqn_options(&agent);
    trp_optimizer rmsprop = dqn_optimizer(&options);
    assert_int_equal(trp_optimizer_check(&rmsprop, "dqn"), TRP_OK);
    assert_int_equal(rmsprop.kind, TRP_RMSPROP);
    assert_true(trp_optimizer_rate(&rmsprop, 1) == 0); /* what is typed means itself */
    assert_int_equal(rmsprop.schedule, TRP_RATE_LINEAR);
    assert_true(rmsprop.final_rate == 0.5 && rmsprop.schedule_steps == 70);
    assert_true(rmsprop.warmup_steps == 7 && rmsprop.weight_decay == 0.01);
    assert_true(rmsprop.beta1 < 0 && rmsprop.beta2 == 0.5 && rmsprop.epsilon == 1e-5);
    assert_true(rmsprop.momentum == 0.9 && rmsprop.alpha == 0.95 && rmsprop.max_norm == 0);
    assert_true(rmsprop.centered && rmsprop.epsilon_inside);
    options.nesterov = true;
    assert_true(dqn_optimizer(&options).nesterov);
}

static trp_status never_reset(void *copy, trp_rng *rng)
{
    (void)copy;
    (void)rng;
    return TRP_OK;
}

static trp_status never_step(void *copy, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    (void)copy;
    (void)rng;
    (void)action;
    (void)outcome;
    return TRP_OK;
}

static void never_observe(const void *copy, void *const *observations)
{
    (void)copy;
    (void)observations;
}

static const float box_low[] = {-1}, box_high[] = {1};
static const trp_env_impl box_impl = {
    .spec = {.name = "Box",
             .observations = {{.name = "o", .dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
             .action_kind = TRP_ACTION_BOX,
             .action_count = 1,
             .action_low = box_low,
             .action_high = box_high},
    .state_bytes = 8,
    .reset = never_reset,
    .step = never_step,
    .observe = never_observe,
};
static const trp_env_impl pixels_impl = {
    .spec = {.name = "Pixels",
             .observations = {{.name = "o", .dtype = TRP_UINT8, .rank = 1, .shape = {1}}},
             .action_kind = TRP_ACTION_DISCRETE,
             .action_count = 2},
    .state_bytes = 8,
    .reset = never_reset,
    .step = never_step,
    .observe = never_observe,
};

static void environments_it_cannot_learn_are_refused(void **state)
{
    (void)state;
    trp_agent agent = trp_dqn(NULL);
    assert_int_equal(trp_agent_check(&agent, "CartPole-v1"), TRP_OK);
    assert_int_equal(trp_agent_check(&agent, "NoSuchEnv"), TRP_NOT_FOUND);
    assert_int_equal(trp_agent_check(&agent, "Box"), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "continuous"));
    assert_int_equal(trp_agent_check(&agent, "Pixels"), TRP_OK);
}

/* ---- the policy ---------------------------------------------------------------------------- */

static void epsilon_falls_and_differs_between_actors(void **state)
{
    (void)state;
    const struct {
        float start, end, alpha;
        uint64_t decay;
        uint32_t index, count;
        uint64_t steps;
        double epsilon;
    } rows[] = {
        {1, 0.1F, 0, 100, 0, 1, 0, 1},
        {1, 0.1F, 0, 100, 0, 1, 50, 0.55},
        {1, 0.1F, 0, 100, 0, 1, 100, 0.1},
        {1, 0.1F, 0, 100, 0, 1, UINT64_MAX, 0.1},
        {1, 0.1F, 0, 100, 3, 4, 100, 0.1},          /* no alpha: the same for all */
        {0.4F, 0.4F, 7, 1, 0, 4, 9, 0.4},           /* Ape-X: e^(1 + 7 i / 3) */
        {0.4F, 0.4F, 7, 1, 1, 4, 9, 0.04715560318}, /* 0.4^(10 / 3) */
        {0.4F, 0.4F, 7, 1, 3, 4, 9, 0.00065536},    /* 0.4^8 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_dqn_options options = {.epsilon_start = rows[i].start,
                                   .epsilon_end = rows[i].end,
                                   .epsilon_steps = rows[i].decay,
                                   .epsilon_alpha = rows[i].alpha};
        struct exploration exploration = dqn_exploration(&options);
        assert_float_equal(
            exploration_rate(&exploration,
                             &(trp_policy_options){.index = rows[i].index, .count = rows[i].count},
                             rows[i].steps),
            rows[i].epsilon, 1e-7);
    }
}

static trp_policy *policy_create(const trp_dqn_options *options, bool greedy, uint32_t rows)
{
    trp_agent agent = trp_dqn(options);
    const trp_env_spec *env;
    trp_policy *policy;
    assert_int_equal(trp_env_find("CartPole-v1", &env), TRP_OK);
    assert_int_equal(agent.impl->policy(&agent, env,
                                        &(trp_policy_options){.rows = rows, .greedy = greedy},
                                        &policy),
                     TRP_OK);
    return policy;
}

enum { ROWS = 64 };

/* Parameters of the default network, and the action that it likes best in random states. */
struct judged {
    float *params;
    size_t count;
    float states[ROWS][4];
    int32_t best[ROWS];
};

static void judged_init(struct judged *judged)
{
    trp_net_spec spec = trp_mlp(&(trp_mlp_options){.inputs = 4, .outputs = 2, .hidden = {64, 64}});
    trp_rng rng;
    trp_rng_init(&rng, 5, 0);
    judged->count = trp_net_param_count(&spec);
    judged->params = trp_floats_create(judged->count);
    trp_net_init(&spec, &rng, judged->params);
    trp_net *net;
    assert_int_equal(trp_net_create(&net, &(trp_net_options){.spec = &spec, .batch = ROWS}),
                     TRP_OK);
    float values[ROWS][2];
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < 4; k++)
            judged->states[i][k] = 4 * (float)trp_rng_normal(&rng);
    trp_net_forward(
        net, judged->params,
        &(trp_net_rows){.rows = ROWS, .inputs = {judged->states}, .outputs = {values[0]}});
    for (size_t i = 0; i < ROWS; i++)
        judged->best[i] = values[i][1] > values[i][0];
    trp_net_destroy(net);
}

static void a_greedy_policy_takes_the_best_action(void **state)
{
    (void)state;
    struct judged judged;
    judged_init(&judged);
    trp_policy *policy = policy_create(NULL, true, ROWS);
    assert_int_equal(policy->impl->load(policy, judged.params, judged.count), TRP_OK);
    int32_t actions[ROWS];
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    trp_act act = {.observations = (const void *[]){judged.states},
                   .rows = ROWS,
                   .rng = &rng,
                   .actions = actions};
    assert_int_equal(policy->impl->act(policy, &act), TRP_OK);
    assert_memory_equal(actions, judged.best, sizeof actions);
    trp_policy_destroy(policy);
    trp_floats_destroy(judged.params);
}

/* Two actions whose values bfloat16 cannot tell apart: the first one is taken. */
static void a_policy_has_the_precision_of_its_options(void **state)
{
    (void)state;
    trp_net_spec spec = trp_mlp(&(trp_mlp_options){.inputs = 4, .outputs = 2, .hidden = {1}});
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    assert_int_equal(trp_net_tensors(&spec, tensors), 4);
    size_t count = trp_net_param_count(&spec);
    float *params = trp_floats_create(count), observation[4] = {1};
    params[tensors[0].offset] = 1;
    params[tensors[2].offset] = 1;
    params[tensors[2].offset + 1] = 1.001F;
    for (trp_precision precision = TRP_F32; precision <= TRP_BF16; precision++) {
        trp_policy *policy =
            policy_create(&(trp_dqn_options){.hidden = {1}, .precision = precision}, true, 1);
        int32_t action;
        trp_rng rng;
        trp_rng_init(&rng, 1, 0);
        assert_int_equal(policy->impl->load(policy, params, count), TRP_OK);
        assert_int_equal(
            policy->impl->act(policy, &(trp_act){.observations = (const void *[]){observation},
                                                 .rows = 1,
                                                 .rng = &rng,
                                                 .actions = &action}),
            TRP_OK);
        assert_int_equal(action, precision == TRP_F32);
        trp_policy_destroy(policy);
    }
    trp_floats_destroy(params);
}

static void an_exploring_policy_errs_as_often_as_epsilon_says(void **state)
{
    (void)state;
    struct judged judged;
    judged_init(&judged);
    trp_policy *policy =
        policy_create(&(trp_dqn_options){.epsilon_start = 0.5F, .epsilon_end = 0.5F}, false, ROWS);
    assert_int_equal(policy->impl->load(policy, judged.params, judged.count), TRP_OK);
    int32_t actions[ROWS];
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    trp_act act = {.observations = (const void *[]){judged.states},
                   .rows = ROWS,
                   .rng = &rng,
                   .actions = actions};
    size_t others = 0;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(policy->impl->act(policy, &act), TRP_OK);
        for (size_t row = 0; row < ROWS; row++)
            others += actions[row] != judged.best[row];
    }
    /* Half explore, half of those hit the best: 0.25 of 12 800, standard deviation 49. */
    assert_in_range(others, 3200 - 250, 3200 + 250);
    trp_policy_destroy(policy);
    trp_floats_destroy(judged.params);
}

static void a_policy_does_only_what_is_allowed(void **state)
{
    (void)state;
    struct judged judged;
    judged_init(&judged);
    int32_t actions[ROWS];
    bool mask[ROWS][2];
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    trp_act act = {.observations = (const void *[]){judged.states},
                   .mask = mask[0],
                   .rows = ROWS,
                   .rng = &rng,
                   .actions = actions};
    for (int greedy = 0; greedy < 2; greedy++) {
        trp_policy *policy = policy_create(
            &(trp_dqn_options){.epsilon_start = 0.5F, .epsilon_end = 0.5F}, greedy == 1, ROWS);
        assert_int_equal(policy->impl->load(policy, judged.params, judged.count), TRP_OK);
        size_t others = 0;
        for (uint32_t i = 0; i < 200; i++) {
            for (uint32_t row = 0; row < ROWS; row++) { /* one, the other, both */
                mask[row][0] = (row + i) % 3 != 0;
                mask[row][1] = (row + i) % 3 != 1;
            }
            assert_int_equal(policy->impl->act(policy, &act), TRP_OK);
            for (uint32_t row = 0; row < ROWS; row++) {
                assert_true(mask[row][actions[row]]);
                others += (row + i) % 3 == 2 && actions[row] != judged.best[row];
            }
        }
        if (greedy)
            assert_int_equal(others, 0);
        else /* a quarter of 4 267 */
            assert_in_range(others, 1067 - 200, 1067 + 200);
        trp_policy_destroy(policy);
    }
    trp_floats_destroy(judged.params);
}

static void a_policy_refuses_what_does_not_fit(void **state)
{
    (void)state;
    trp_policy *policy = policy_create(NULL, true, 1);
    float params[3] = {0};
    assert_int_equal(policy->impl->load(policy, params, 3), TRP_INVALID_ARGUMENT);
    assert_int_equal(policy->impl->act(policy, &(trp_act){.rows = 2}), TRP_INVALID_ARGUMENT);
    trp_policy_destroy(policy);
}

int main(void)
{
    trp_log_set_level(TRP_WARN);
    if (trp_env_register(&box_impl) != TRP_OK || trp_env_register(&pixels_impl) != TRP_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agents_of_equal_options_are_equal),
        cmocka_unit_test(a_negative_number_means_none),
        cmocka_unit_test(the_table_has_acmes_limiter),
        cmocka_unit_test(wrong_options_are_refused_by_name),
        cmocka_unit_test(options_choose_the_optimizer),
        cmocka_unit_test(environments_it_cannot_learn_are_refused),
        cmocka_unit_test(epsilon_falls_and_differs_between_actors),
        cmocka_unit_test(a_greedy_policy_takes_the_best_action),
        cmocka_unit_test(a_policy_has_the_precision_of_its_options),
        cmocka_unit_test(an_exploring_policy_errs_as_often_as_epsilon_says),
        cmocka_unit_test(a_policy_does_only_what_is_allowed),
        cmocka_unit_test(a_policy_refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
