/* Whole runs of IMPALA: with one actor and two, and fused; what a policy says of its actions and
 * remembers; what it cannot learn. */
#include "actor_critics.h"

/* ---- pairings -------------------------------------------------------------------------------- */

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        trp_impala_options options;
        const char *words;
    } rows[] = {
        {"Bits", {0}, "impala: Bits has bits for actions"},
        {"Tokens", {0}, "impala: Tokens observes integers"},
        {"Two", {0}, "impala: Two observes 2 tensors, needs one"},
        {"CartPole-v1", {.network = TRP_TORSO_NATURE}, "the network nature reads images"},
        {"CartPole-v1", {.unroll = 65534, .batch_size = 4096}, "more steps than"},
        {"CartPole-v1", {.separate = true, .core = TRP_CORE_GRU}, "separate layers need a core"},
        {"CartPole-v1", {.c_bar = 2}, "c_bar is 2, must be in (0, 1], which is rho_bar"},
        {"CartPole-v1", {.momentum = 0.5F}, "impala: the optimizer adam has no option momentum"},
        {"CartPole-v1",
         {.rate_schedule = TRP_RATE_COSINE},
         "impala: rate_schedule is cosine, needs"},
        {"CartPole-v1", {.final_learning_rate = 1}, "impala: final_learning_rate is 1, needs"},
        {"CartPole-v1", {.lambda = 2}, "lambda"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_agent agent = trp_impala(&rows[i].options);
        assert_refused(&agent, rows[i].env, rows[i].words);
    }
}

static void a_table_is_a_queue_of_so_many_batches(void **state)
{
    (void)state;
    trp_agent agent = trp_impala(&(trp_impala_options){.batch_size = 3, .queue_batches = 5});
    assert_has_queue(&agent, 15);
}

/* ---- what a policy says ---------------------------------------------------------------------- */

enum { CORE = 3 };

/* The state that goes with a step is the one before it; what is drawn has the probability that is
 * said. */
static void a_step_goes_with_the_state_before_it(void **state)
{
    (void)state;
    trp_agent agent =
        trp_impala(&(trp_impala_options){.hidden = {4}, .core = TRP_CORE_GRU, .core_size = CORE});
    trp_policy *policy;
    trp_policy_options place = {.rows = 1};
    assert_int_equal(trp_agent_policy_create(&policy, &agent, "CartPole-v1", &place), TRP_OK);
    assert_int_equal(policy->extras.count, 2);
    assert_string_equal(policy->extras.specs[1].name, "core");
    float *params = trp_floats_create(policy->param_count), kept[CORE], last[CORE] = {0};
    trp_rng rng;
    trp_rng_init(&rng, 5, 0);
    for (size_t i = 0; i < policy->param_count; i++)
        params[i] = (float)trp_rng_normal(&rng);
    assert_int_equal(policy->impl->load(policy, params, policy->param_count), TRP_OK);
    for (int step = 0; step < 5; step++) {
        float x[] = {1, 2, 3, 4}, log_prob;
        int32_t action;
        assert_int_equal(
            policy->impl->act(policy, &(trp_act){.rows = 1,
                                                 .slots = (uint32_t[]){0},
                                                 .observations = (const void *const[]){x},
                                                 .first = (bool[]){step == 0 || step == 3},
                                                 .rng = &rng,
                                                 .actions = &action,
                                                 .extras = (void *const[]){&log_prob, kept}}),
            TRP_OK);
        assert_true(log_prob < 0);
        for (int i = 0; i < CORE; i++) {
            assert_int_equal(kept[i] == 0, step == 0 || step == 3);
            assert_true(kept[i] == 0 || kept[i] != last[i]);
        }
        memcpy(last, kept, sizeof last);
    }
    trp_floats_destroy(params);
    trp_policy_destroy(policy);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const trp_impala_options small = {.hidden = {16},
                                         .unroll = 8,
                                         .batch_size = 4,
                                         .queue_batches = 1,
                                         .discount = 0.5F,
                                         .learning_rate = 0.01F,
                                         .entropy_weight = -1};

static void choices_that_are_masked_are_never_made(void **state)
{
    (void)state; /* the environment refuses them */
    double mean = learning_return(&(struct learning){
        .agent = trp_impala(&small), .env = "Side", .fused = true, .steps = 200});
    print_message("Side: mean return %.2f\n", mean);
    assert_true(mean > 3.7); /* of 4; chance has 2 */
}

static void continuous_actions_are_learned(void **state)
{
    (void)state;
    trp_impala_options careful = small; /* an update is one step, on few numbers */
    careful.learning_rate = 3e-3F;
    careful.batch_size = 16;
    double mean = learning_return(&(struct learning){.agent = trp_impala(&careful),
                                                     .env = "Mirror",
                                                     .copies = 16,
                                                     .fused = true,
                                                     .steps = 1000});
    print_message("Mirror: mean return %.2f\n", mean);
    assert_true(mean > 3.5); /* of 4; always 0 has 3, chance less */
}

static void a_run_in_turns_repeats_bit_for_bit(void **state)
{
    (void)state;
    trp_impala_options remembers = small;
    remembers.core = TRP_CORE_LSTM;
    remembers.core_size = 8;
    for (uint32_t actors = 1; actors <= 2; actors++) {
        struct actors_run run = {
            .agent = trp_impala(&small), .actors = actors, .copies = 4, .seed = 3};
        assert_run_repeats(run);
        run.agent = trp_impala(&remembers);
        assert_run_repeats(run);
    }
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(a_table_is_a_queue_of_so_many_batches),
        cmocka_unit_test(a_step_goes_with_the_state_before_it),
        cmocka_unit_test(choices_that_are_masked_are_never_made),
        cmocka_unit_test(continuous_actions_are_learned),
        cmocka_unit_test(a_run_in_turns_repeats_bit_for_bit),
    };
    if (!register_environments())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
