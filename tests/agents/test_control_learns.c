/* The pendulum is held up by D4PG, MPO, SAC and TD3, with an actor and a replay table. */
#include "learning.h"

static double learn(trp_agent agent, uint64_t steps)
{
    return learning_return(&(struct learning){
        .agent = agent, .env = "Pendulum-v1", .copies = 1, .steps = steps, .episodes = 100});
}

static void d4pg_holds_the_pendulum_up(void **state)
{
    (void)state;
    trp_agent agent = trp_d4pg(&(trp_d4pg_options){.hidden = {64, 64},
                                                   .critic_hidden = {64, 64},
                                                   .discount = 0.95F,
                                                   .value_least = -330,
                                                   .value_most = 0,
                                                   .learning_rate = 2e-3F,
                                                   .critic_learning_rate = 3e-3F,
                                                   .batch_size = 64,
                                                   .samples_per_insert = 64});
    double mean = learn(agent, 8000); /* 9 000 steps of the actor */
    print_message("d4pg: mean return %.1f\n", mean);
    assert_true(mean > -200); /* at random: -1 200; the best there is: -140 */
}

static void mpo_holds_the_pendulum_up(void **state)
{
    (void)state;
    trp_agent agent = trp_mpo(&(trp_mpo_options){.hidden = {64, 64},
                                                 .critic_hidden = {64, 64},
                                                 .discount = 0.95F,
                                                 .learning_rate = 2e-3F,
                                                 .critic_learning_rate = 3e-3F,
                                                 .initial_temperature = 1,
                                                 .initial_alpha_mean = 1,
                                                 .initial_alpha_deviation = 10,
                                                 .epsilon_mean = 0.01F,
                                                 .epsilon_deviation = 1e-4F,
                                                 .batch_size = 64,
                                                 .samples_per_insert = 64});
    double mean = learn(agent, 6000); /* 7 000 steps of the actor */
    print_message("mpo: mean return %.1f\n", mean);
    assert_true(mean > -200);
}

static void sac_holds_the_pendulum_up(void **state)
{
    (void)state;
    trp_agent agent = trp_sac(&(trp_sac_options){.hidden = {64, 64},
                                                 .batch_size = 64,
                                                 .learning_rate = 1e-3F,
                                                 .critic_learning_rate = 1e-3F,
                                                 .target_rate = 0.01F,
                                                 .random_steps = 1000,
                                                 .min_replay_size = 1000,
                                                 .samples_per_insert = 128});
    double mean = learn(agent, 10000); /* 6 000 steps of the actor */
    print_message("sac: mean return %.1f\n", mean);
    assert_true(mean > -200);
}

static void td3_holds_the_pendulum_up(void **state)
{
    (void)state;
    trp_agent agent = trp_td3(&(trp_td3_options){.hidden = {64, 64},
                                                 .batch_size = 64,
                                                 .learning_rate = 1e-3F,
                                                 .critic_learning_rate = 1e-3F,
                                                 .target_rate = 0.02F,
                                                 .samples_per_insert = 64});
    double mean = learn(agent, 10000); /* 11 000 steps of the actor */
    print_message("td3: mean return %.1f\n", mean);
    assert_true(mean > -200);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d4pg_holds_the_pendulum_up),
        cmocka_unit_test(mpo_holds_the_pendulum_up),
        cmocka_unit_test(sac_holds_the_pendulum_up),
        cmocka_unit_test(td3_holds_the_pendulum_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
