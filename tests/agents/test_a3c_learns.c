/* One learner of A3C, which is A2C, learns Catch and CartPole in its own environments. */
#include "learning.h"

static void learn(const char *env, const trp_a3c_options *options, uint64_t steps, double wanted)
{
    double mean = learning_return(&(struct learning){.agent = trp_a3c(options),
                                                     .env = env,
                                                     .copies = options->batch_size,
                                                     .fused = true,
                                                     .steps = steps});
    print_message("%s: mean return %.2f\n", env, mean);
    assert_true(mean >= wanted);
}

static void catch_is_learned(void **state)
{
    (void)state;
    learn("Catch", &(trp_a3c_options){.batch_size = 16, .unroll = 8, .learning_rate = 2e-3F}, 1000,
          0.9);
}

static void cartpole_is_learned(void **state)
{
    (void)state;
    learn(
        "CartPole-v1",
        &(trp_a3c_options){.batch_size = 8, .unroll = 8, .discount = 0.98F, .learning_rate = 2e-3F},
        4000, 300); /* of 500; random play has 22 */
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catch_is_learned),
        cmocka_unit_test(cartpole_is_learned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
