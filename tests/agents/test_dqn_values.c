/* On a chain whose best values are known, DQN's network says them: with double Q-learning and
 * without, through ends that terminate and ends that cut. */
#include "learning.h"

#include <math.h>

#include "tests/envs/chain.h"

enum { HIDDEN = 32 };

/* In place of a policy: keeps the parameters it is given. */
struct keeper {
    trp_policy base;
    float *params;
};

static trp_status keeper_load(trp_policy *policy, const float *params, size_t count)
{
    memcpy(((struct keeper *)policy)->params, params, count * sizeof *params);
    return TRP_OK;
}

/* The parameters that the learner of `run_dir` wrote last; freed by the caller. */
static float *read_params(const trp_agent *agent, const char *run_dir)
{
    static const trp_policy_impl impl = {.load = keeper_load};
    char dir[128], *path;
    trp_policy *policy;
    snprintf(dir, sizeof dir, "%s/learner", run_dir);
    assert_int_equal(trp_learner_checkpoint_find(dir, &path), TRP_OK);
    assert_int_equal(
        trp_agent_policy_create(&policy, agent, "Chain", &(trp_policy_options){.greedy = true}),
        TRP_OK);
    struct keeper keeper = {.base = {.impl = &impl,
                                     .tensors = policy->tensors,
                                     .tensor_count = policy->tensor_count,
                                     .param_count = policy->param_count},
                            .params = malloc(policy->param_count * sizeof(float))};
    assert_non_null(keeper.params);
    if (trp_params_load(path, &keeper.base, NULL) != TRP_OK)
        fail_msg("%s", trp_last_error());
    trp_policy_destroy(policy);
    free(path);
    return keeper.params;
}

static void assert_values(const float *params, double gamma)
{
    trp_net_spec spec =
        trp_mlp(&(trp_mlp_options){.inputs = CHAIN_LENGTH, .outputs = 2, .hidden = {HIDDEN}});
    trp_net *net;
    float rows[CHAIN_LENGTH - 1][CHAIN_LENGTH], values[CHAIN_LENGTH - 1][2];
    assert_int_equal(
        trp_net_create(&net, &(trp_net_options){.spec = &spec, .batch = CHAIN_LENGTH - 1}), TRP_OK);
    for (int32_t place = 0; place < CHAIN_LENGTH - 1; place++)
        chain_row(place, rows[place]);
    trp_net_forward(
        net, params,
        &(trp_net_rows){.rows = CHAIN_LENGTH - 1, .inputs = {rows}, .outputs = {&values[0][0]}});
    for (int32_t place = 0; place < CHAIN_LENGTH - 1; place++) {
        for (int32_t action = 0; action < 2; action++) {
            double known = chain_action_value(place, action, gamma);
            if (!(fabs((double)values[place][action] - known) <= 0.02))
                fail_msg("place %d, action %d: %g, known is %g", place, action,
                         (double)values[place][action], known);
        }
    }
    trp_net_destroy(net);
}

static void assert_learns_values(const char *env, trp_dqn_options options)
{
    char dir[] = "/tmp/test_values.XXXXXX", run[64], command[64];
    const float discount = 0.9F;
    options.discount = discount;
    options.hidden[0] = HIDDEN;
    options.batch_size = 32;
    options.priority_exponent = -1;
    options.replay_size = 2000;
    options.min_replay_size = 500;
    options.samples_per_insert = 32;
    options.target_period = 50;
    options.epsilon_start = options.epsilon_end = 1; /* every action of every place is seen */
    options.rate_schedule = TRP_RATE_LINEAR;
    options.learning_rate = 5e-3F;
    options.schedule_steps = 4000;
    struct learning learning = {.agent = trp_dqn(&options), .env = env, .steps = 4000};
    assert_non_null(mkdtemp(dir));
    snprintf(run, sizeof run, "%s/run", dir);
    learning_run(&learning, run);
    float *params = read_params(&learning.agent, run);
    assert_values(params, (double)discount);
    free(params);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static void values_are_the_best_actions(void **state)
{
    (void)state;
    assert_learns_values("Chain", (trp_dqn_options){.n_step = 1});
}

static void without_double_q_learning_too(void **state)
{
    (void)state;
    assert_learns_values("Chain", (trp_dqn_options){.n_step = 1, .no_double = true});
}

/* Every episode is cut after two steps: no value may end there. */
static void an_episode_that_is_cut_short_changes_no_value(void **state)
{
    (void)state;
    assert_learns_values("Chain?time_limit=2", (trp_dqn_options){.n_step = 1});
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    if (chain_register() != TRP_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_the_best_actions),
        cmocka_unit_test(without_double_q_learning_too),
        cmocka_unit_test(an_episode_that_is_cut_short_changes_no_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
