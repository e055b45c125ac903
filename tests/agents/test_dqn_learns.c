/* CartPole is learned by DQN with every loss, and in bfloat16. Some seconds each, so not under
 * sanitizers. */
#include "learning.h"

static double learn(const trp_dqn_options *options)
{
    return learning_return(
        &(struct learning){.agent = trp_dqn(options), .env = "CartPole-v1", .steps = 5000});
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

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cartpole_is_learned_with_every_loss),
        cmocka_unit_test(cartpole_is_learned_in_bfloat16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
