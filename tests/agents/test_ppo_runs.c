/* Whole runs of PPO: with one actor and two, and fused; what a policy says of its actions; what it
 * cannot learn. */
#include "actor_critics.h"

/* ---- pairings -------------------------------------------------------------------------------- */

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        trp_ppo_options options;
        const char *words;
    } rows[] = {
        {"Bits", {0}, "ppo: Bits has bits for actions"},
        {"Tokens", {0}, "ppo: Tokens observes integers"},
        {"Two", {0}, "ppo: Two observes 2 tensors, needs one"},
        {"CartPole-v1", {.network = TRP_TORSO_NATURE}, "the network nature reads images"},
        {"CartPole-v1", {.unroll = 2, .batch_size = 3, .minibatches = 7}, "minibatches is 7"},
        {"CartPole-v1", {.unroll = 65534, .batch_size = 65536}, "more steps than"},
        {"CartPole-v1", {.anneal_clip = true}, "anneal_clip needs schedule_steps"},
        {"CartPole-v1", {.rate_schedule = TRP_RATE_COSINE}, "ppo: rate_schedule is cosine, needs"},
        {"CartPole-v1", {.final_learning_rate = 1}, "ppo: final_learning_rate is 1, needs"},
        {"CartPole-v1", {.gae_lambda = 2}, "gae_lambda"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_agent agent = trp_ppo(&rows[i].options);
        assert_refused(&agent, rows[i].env, rows[i].words);
    }
}

static void a_table_is_a_queue_of_one_batch(void **state)
{
    (void)state;
    trp_agent agent = trp_ppo(&(trp_ppo_options){.batch_size = 3});
    assert_has_queue(&agent, 3);
}

/* ---- what a policy says ---------------------------------------------------------------------- */

enum { ACTING = 64 };

/* Deviations of e, so that half of the samples are out of bounds. */
static trp_policy *wide_policy(bool greedy)
{
    trp_agent agent = trp_ppo(&(trp_ppo_options){.hidden = {4}});
    trp_policy *policy;
    assert_int_equal(
        trp_agent_policy_create(&policy, &agent, "Mirror",
                                &(trp_policy_options){.rows = ACTING, .greedy = greedy}),
        TRP_OK);
    float *params = trp_floats_create(policy->param_count);
    for (size_t i = 0; i < policy->tensor_count; i++)
        if (strcmp(policy->tensors[i].name, "log_std") == 0)
            params[policy->tensors[i].offset] = 1;
        else if (strcmp(policy->tensors[i].name, "mean.bias") == 0)
            params[policy->tensors[i].offset] = 0.25F;
    assert_int_equal(policy->impl->load(policy, params, policy->param_count), TRP_OK);
    trp_floats_destroy(params);
    return policy;
}

static void actions_are_cut_to_their_bounds_and_samples_are_not(void **state)
{
    (void)state;
    float observations[ACTING] = {0}, actions[ACTING], log_probs[ACTING], samples[ACTING];
    uint32_t slots[ACTING];
    bool first[ACTING] = {false};
    trp_rng rng;
    trp_rng_init(&rng, 5, 0);
    for (uint32_t i = 0; i < ACTING; i++)
        slots[i] = i;
    trp_act act = {.rows = ACTING,
                   .slots = slots,
                   .observations = (const void *const[]){observations},
                   .first = first,
                   .rng = &rng,
                   .actions = actions,
                   .extras = (void *const[]){log_probs, samples}};
    trp_policy *policy = wide_policy(false);
    assert_string_equal(policy->extras.specs[0].name, "log_prob");
    assert_string_equal(policy->extras.specs[1].name, "sample");
    assert_int_equal(policy->impl->act(policy, &act), TRP_OK);
    trp_policy_destroy(policy);
    uint32_t beyond = 0;
    for (uint32_t i = 0; i < ACTING; i++) {
        double z = ((double)samples[i] - 0.25) / exp(1);
        assert_float_equal(log_probs[i], -z * z / 2 - 1 - log(2 * acos(-1)) / 2, 1e-5);
        assert_float_equal(actions[i], fmin(fmax((double)samples[i], -1), 1), 0);
        beyond += fabsf(samples[i]) > 1;
    }
    assert_in_range(beyond, ACTING / 2, ACTING - 5);
    policy = wide_policy(true);
    act.extras = NULL;
    assert_int_equal(policy->impl->act(policy, &act), TRP_OK);
    for (uint32_t i = 0; i < ACTING; i++)
        assert_float_equal(actions[i], 0.25F, 0);
    trp_policy_destroy(policy);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const trp_ppo_options small = {.hidden = {16},
                                      .unroll = 8,
                                      .batch_size = 4,
                                      .minibatches = 2,
                                      .learning_rate = 0.01F,
                                      .entropy_weight = -1,
                                      .gae_lambda = -1};

static void choices_that_are_masked_are_never_made(void **state)
{
    (void)state; /* the environment refuses them */
    double mean = learning_return(
        &(struct learning){.agent = trp_ppo(&small), .env = "Side", .fused = true, .steps = 60});
    print_message("Side: mean return %.2f\n", mean);
    assert_true(mean > 3.8); /* of 4; chance has 2 */
}

static void continuous_actions_are_learned(void **state)
{
    (void)state;
    double mean = learning_return(
        &(struct learning){.agent = trp_ppo(&small), .env = "Mirror", .fused = true, .steps = 150});
    print_message("Mirror: mean return %.2f\n", mean);
    assert_true(mean > 3.7); /* of 4; always 0 has 3, chance less */
}

/* Actors wait for the version that is made of what they did. */
static void a_run_in_turns_repeats_bit_for_bit(void **state)
{
    (void)state;
    for (uint32_t actors = 1; actors <= 2; actors++)
        assert_run_repeats((struct actors_run){.agent = trp_ppo(&small),
                                               .actors = actors,
                                               .copies = small.batch_size / actors,
                                               .sync_every_items = small.batch_size / actors,
                                               .seed = 3});
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(a_table_is_a_queue_of_one_batch),
        cmocka_unit_test(actions_are_cut_to_their_bounds_and_samples_are_not),
        cmocka_unit_test(choices_that_are_masked_are_never_made),
        cmocka_unit_test(continuous_actions_are_learned),
        cmocka_unit_test(a_run_in_turns_repeats_bit_for_bit),
    };
    if (!register_environments())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
