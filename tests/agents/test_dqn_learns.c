/* CartPole is learned by DQN with every loss, with all parts of Rainbow, and in bfloat16; Acrobot
 * and MountainCar with what their examples have. Some seconds each, so not under sanitizers. */
#include "learning.h"

static double learn_env(const char *env, uint64_t steps, const trp_dqn_options *options)
{
    return learning_return(
        &(struct learning){.agent = trp_dqn(options), .env = env, .steps = steps});
}

static double learn(const trp_dqn_options *options)
{
    return learn_env("CartPole-v1", 5000, options);
}

static void cartpole_is_learned_with_every_loss(void **state)
{
    (void)state;
    static const char *const names[] = {"huber", "munchausen", "c51", "quantile"};
    for (uint32_t loss = TRP_DQN_HUBER; loss <= TRP_DQN_QUANTILE; loss++) {
        double mean = learn(&(trp_dqn_options){.loss = loss,
                                               .n_step = loss == TRP_DQN_MUNCHAUSEN ? 1 : 3,
                                               .value_least = -1,
                                               .value_most = 100,
                                               .quantiles = 21,
                                               .batch_size = 32,
                                               .min_replay_size = 500,
                                               .target_rate = 0.01F,
                                               .epsilon_steps = 3000});
        print_message("%s: mean return %.1f\n", names[loss], mean);
        assert_true(mean > 100); /* random play has 22 */
    }
}

static void cartpole_is_learned_in_bfloat16(void **state)
{
    (void)state;
    double mean = learn(&(trp_dqn_options){.precision = TRP_BF16,
                                           .batch_size = 32,
                                           .min_replay_size = 500,
                                           .target_rate = 0.01F,
                                           .epsilon_steps = 3000});
    print_message("bf16: mean return %.1f\n", mean);
    assert_true(mean > 100);
}

static void cartpole_is_learned_by_rainbow(void **state)
{
    (void)state;
    double mean = learn(&(trp_dqn_options){.loss = TRP_DQN_C51,
                                           .value_least = -1,
                                           .value_most = 100,
                                           .dueling = true,
                                           .noisy = true,
                                           .batch_size = 32,
                                           .min_replay_size = 500,
                                           .target_rate = 0.01F});
    print_message("rainbow: mean return %.1f\n", mean);
    assert_true(mean > 100);
}

static void acrobot_is_learned(void **state)
{
    (void)state;
    double mean = learn_env("Acrobot-v1", 12000,
                            &(trp_dqn_options){.hidden = {128, 128},
                                               .dueling = true,
                                               .batch_size = 64,
                                               .samples_per_insert = 64,
                                               .epsilon_steps = 5000});
    print_message("Acrobot: mean return %.1f\n", mean);
    assert_true(mean > -110); /* random play has -499 */
}

static void mountain_car_is_learned_from_quantiles(void **state)
{
    (void)state;
    double mean = learn_env("MountainCar-v0", 15000,
                            &(trp_dqn_options){.loss = TRP_DQN_QUANTILE,
                                               .quantiles = 25,
                                               .hidden = {128, 128},
                                               .target_period = 200,
                                               .batch_size = 64,
                                               .samples_per_insert = 64,
                                               .epsilon_steps = 5000});
    print_message("MountainCar: mean return %.1f\n", mean);
    assert_true(mean > -150); /* random play has -200 */
}

/* Integers are observed, which a wrapper makes a row of. */
static void frozen_lake_is_learned(void **state)
{
    (void)state;
    double mean = learn_env(
        "FrozenLake-v1?one_hot=16", 8000,
        &(trp_dqn_options){
            .hidden = {64}, .batch_size = 64, .min_replay_size = 500, .epsilon_steps = 5000});
    print_message("FrozenLake: mean return %.2f\n", mean);
    assert_true(mean > 0.4); /* random play has 0.02, the best one 0.74 */
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cartpole_is_learned_with_every_loss),
        cmocka_unit_test(cartpole_is_learned_by_rainbow),
        cmocka_unit_test(cartpole_is_learned_in_bfloat16),
        cmocka_unit_test(acrobot_is_learned),
        cmocka_unit_test(frozen_lake_is_learned),
        cmocka_unit_test(mountain_car_is_learned_from_quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
