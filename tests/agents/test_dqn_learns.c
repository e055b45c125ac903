/* CartPole is learned by DQN with every loss, and in bfloat16. Some seconds each, so not under
 * sanitizers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/troupe.h>

static double learn(const trp_dqn_options *options)
{
    char dir[] = "/tmp/test_losses.XXXXXX", run[64], command[64];
    assert_non_null(mkdtemp(dir));
    snprintf(run, sizeof run, "%s/run", dir);
    trp_agent agent = trp_dqn(options);
    trp_program *program = trp_program_create("losses");
    trp_actor_options acting = {.agent = &agent, .env = "CartPole-v1", .envs = 4};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner",
        &(trp_learner_options){.agent = &agent, .replay = acting.replay, .max_steps = 5000});
    trp_add_actors(program, "actor", 1, &acting);
    trp_run_result result;
    trp_run_options how = {.run_dir = run, .seed = 1, .deterministic = true};
    if (trp_run(program, &how, &result) != TRP_OK)
        fail_msg("%s", trp_last_error());
    trp_program_destroy(program);

    char *learner = run, *path;
    strcat(learner, "/learner");
    assert_int_equal(trp_learner_checkpoint_find(learner, &path), TRP_OK);
    trp_policy *policy;
    trp_evaluation evaluation;
    assert_int_equal(trp_agent_policy_create(&policy, &agent, "CartPole-v1", 50), TRP_OK);
    if (trp_params_load(path, policy, NULL) != TRP_OK)
        fail_msg("%s", trp_last_error());
    trp_evaluate_options evaluate = {.env = "CartPole-v1", .episodes = 50, .copies = 50, .seed = 9};
    assert_int_equal(trp_evaluate(policy, &evaluate, &evaluation), TRP_OK);
    trp_policy_destroy(policy);
    free(path);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    return evaluation.mean;
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
