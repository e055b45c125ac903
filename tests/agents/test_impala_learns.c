/* IMPALA learns Catch and CartPole, fused and with an actor and a queue, and with a core what is
 * only known to who remembers. */
#include "learning.h"

/* A sign is seen at the first of some steps; at the last one it is to be given back. */
enum { RECALL_STEPS = 6 };

struct recall {
    int32_t sign, step;
};

static trp_status recall_reset(void *state, trp_rng *rng)
{
    *(struct recall *)state = (struct recall){.sign = (int32_t)trp_rng_below(rng, 2)};
    return TRP_OK;
}

static trp_status recall_step(void *state, trp_rng *rng, const void *action,
                              trp_env_outcome *outcome)
{
    struct recall *recall = state;
    (void)rng;
    outcome->terminated = ++recall->step == RECALL_STEPS;
    if (outcome->terminated)
        outcome->reward = *(const int32_t *)action == recall->sign ? 1 : -1;
    return TRP_OK;
}

static void recall_observe(const void *state, void *const *observations)
{
    const struct recall *recall = state;
    float *seen = observations[0];
    seen[0] = recall->step > 0 ? 0 : recall->sign ? 1 : -1;
    seen[1] = recall->step == RECALL_STEPS - 1;
}

static const trp_env_impl recall_impl = {
    .spec = {.name = "Recall",
             .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {2}}},
             .action_count = 2},
    .state_bytes = sizeof(struct recall),
    .reset = recall_reset,
    .step = recall_step,
    .observe = recall_observe,
};

static const trp_impala_options quick = {.unroll = 8,
                                         .batch_size = 16,
                                         .queue_batches = 1,
                                         .discount = 0.98F,
                                         .lambda = 0.8F,
                                         .entropy_weight = 0.03F,
                                         .learning_rate = 4e-3F,
                                         .adam_beta1 = 0.9F,
                                         .optimizer_epsilon = 1e-3F,
                                         .max_gradient_norm = 0.5F};

static void learn(const char *env, trp_core core, uint64_t steps, double wanted)
{
    trp_impala_options options = quick;
    options.core = core;
    options.core_size = core ? 16 : 0;
    for (int fused = 0; fused < 2; fused++) {
        double mean = learning_return(&(struct learning){.agent = trp_impala(&options),
                                                         .env = env,
                                                         .copies = 16,
                                                         .fused = fused,
                                                         .steps = steps});
        print_message("%s, %s: mean return %.2f\n", env, fused ? "fused" : "distributed", mean);
        assert_true(mean >= wanted);
    }
}

static void catch_is_learned(void **state)
{
    (void)state;
    learn("Catch", TRP_NO_CORE, 700, 0.9);
}

static void cartpole_is_learned(void **state)
{
    (void)state;
    learn("CartPole-v1", TRP_NO_CORE, 2000, 300); /* of 500; random play has 22 */
}

static void a_core_remembers(void **state)
{
    (void)state;
    learn("Recall", TRP_CORE_LSTM, 600, 0.9); /* who does not remember has 0 */
    learn("Recall", TRP_CORE_GRU, 1500, 0.9);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    if (trp_env_register(&recall_impl) != TRP_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catch_is_learned),
        cmocka_unit_test(cartpole_is_learned),
        cmocka_unit_test(a_core_remembers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
