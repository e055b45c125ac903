/* Whole runs of A3C with one learner, which is A2C: what it cannot learn, masks, numbers, turns. */
#include "actor_critics.h"

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        trp_a3c_options options;
        const char *words;
    } rows[] = {
        {"Bits", {0}, "a3c: Bits has bits for actions"},
        {"Tokens", {0}, "a3c: Tokens observes integers"},
        {"Two", {0}, "a3c: Two observes 2 tensors, needs one"},
        {"CartPole-v1", {.network = TRP_TORSO_NATURE}, "the network nature reads images"},
        {"CartPole-v1", {.unroll = 65534, .batch_size = 4096}, "more steps than"},
        {"CartPole-v1", {.separate = true, .core = TRP_CORE_GRU}, "separate layers need a core"},
        {"CartPole-v1", {.rate_schedule = TRP_RATE_COSINE}, "a3c: rate_schedule is cosine, needs"},
        {"CartPole-v1", {.final_learning_rate = 1}, "a3c: final_learning_rate is 1, needs"},
        {"CartPole-v1", {.discount = 2}, "discount"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_agent agent = trp_a3c(&rows[i].options);
        assert_refused(&agent, rows[i].env, rows[i].words);
    }
}

static void a_table_is_a_queue_of_one_batch(void **state)
{
    (void)state;
    trp_agent agent = trp_a3c(&(trp_a3c_options){.batch_size = 3});
    assert_has_queue(&agent, 3);
}

static const trp_a3c_options small = {.hidden = {16},
                                      .unroll = 8,
                                      .batch_size = 4,
                                      .discount = 0.5F,
                                      .learning_rate = 0.01F,
                                      .entropy_weight = -1};

static void choices_that_are_masked_are_never_made(void **state)
{
    (void)state; /* the environment refuses them */
    double mean = learning_return(
        &(struct learning){.agent = trp_a3c(&small), .env = "Side", .fused = true, .steps = 200});
    print_message("Side: mean return %.2f\n", mean);
    assert_true(mean > 3.7); /* of 4; chance has 2 */
}

static void continuous_actions_are_learned(void **state)
{
    (void)state;
    trp_a3c_options careful = small; /* an update is one step, on few numbers */
    careful.learning_rate = 3e-3F;
    careful.batch_size = 16;
    double mean = learning_return(&(struct learning){
        .agent = trp_a3c(&careful), .env = "Mirror", .copies = 16, .fused = true, .steps = 1000});
    print_message("Mirror: mean return %.2f\n", mean);
    assert_true(mean > 3.5); /* of 4; always 0 has 3, chance less */
}

static void a_run_in_turns_repeats_bit_for_bit(void **state)
{
    (void)state;
    for (uint32_t actors = 1; actors <= 2; actors++)
        assert_run_repeats((struct actors_run){.agent = trp_a3c(&small),
                                               .actors = actors,
                                               .copies = 4,
                                               .sync_every_items = 4 / actors,
                                               .seed = 3});
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(a_table_is_a_queue_of_one_batch),
        cmocka_unit_test(choices_that_are_masked_are_never_made),
        cmocka_unit_test(continuous_actions_are_learned),
        cmocka_unit_test(a_run_in_turns_repeats_bit_for_bit),
    };
    if (!register_environments())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
