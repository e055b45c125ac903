/* CartPole is learned by PPO, fused and with an actor and a queue. */
#include "learning.h"

static double learn(bool fused)
{
    trp_agent agent = trp_ppo(&(trp_ppo_options){.unroll = 32,
                                                 .batch_size = 8,
                                                 .epochs = 10,
                                                 .minibatches = 2,
                                                 .discount = 0.98F,
                                                 .gae_lambda = 0.8F,
                                                 .learning_rate = 2e-3F,
                                                 .entropy_weight = -1});
    return learning_return(&(struct learning){
        .agent = agent, .env = "CartPole-v1", .copies = 8, .fused = fused, .steps = 200});
}

static void cartpole_is_learned(void **state)
{
    (void)state;
    for (int fused = 0; fused < 2; fused++) {
        double mean = learn(fused);
        print_message("%s: mean return %.1f\n", fused ? "fused" : "distributed", mean);
        assert_true(mean > 400); /* of 500; random play has 22 */
    }
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(cartpole_is_learned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
