/* Whole runs of R2D2, with one actor and two, in turns. */
#include "actor_critics.h"

static void a_run_in_turns_repeats_bit_for_bit(void **state)
{
    (void)state;
    const trp_r2d2_options options = {.hidden = {8},
                                      .core_size = 8,
                                      .burn_in = 2,
                                      .trace = 6,
                                      .period = 3,
                                      .n_step = 2,
                                      .batch_size = 4,
                                      .target_period = 5,
                                      .epsilon_steps = 50,
                                      .replay_size = 60,
                                      .min_replay_size = 8,
                                      .samples_per_insert = 4,
                                      .learning_rate = 0.01F};
    for (uint32_t actors = 1; actors <= 2; actors++)
        assert_run_repeats((struct actors_run){
            .agent = trp_r2d2(&options), .actors = actors, .copies = 2, .seed = 3});
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_in_turns_repeats_bit_for_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
