/* A run of an agent inside a test, repeatable to the bit, and what its parameters are worth after
 * it. */
#ifndef TESTS_AGENTS_LEARNING_H
#define TESTS_AGENTS_LEARNING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/troupe.h>

struct learning {
    trp_agent agent;
    const char *env;
    uint32_t copies;   /* of the environment, of one actor; 0: 4 */
    bool fused;        /* the learner steps them itself: no replay, no actor */
    uint64_t steps;    /* of the learner */
    uint32_t episodes; /* evaluated; 0: 50 */
};

/* Runs it to its end in `run_dir`. */
static inline void learning_run(const struct learning *learning, const char *run_dir)
{
    const trp_agent *agent = &learning->agent;
    uint32_t copies = learning->copies ? learning->copies : 4;
    trp_program *program = trp_program_create("learning");
    trp_learner_options learner = {.agent = agent, .max_steps = learning->steps};
    if (learning->fused) {
        learner.envs = copies;
        learner.env = learning->env;
        trp_add_learner(program, "learner", &learner);
    } else {
        trp_actor_options acting = {.agent = agent, .env = learning->env, .envs = copies};
        acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = agent});
        learner.replay = acting.replay;
        acting.params = trp_add_learner(program, "learner", &learner);
        trp_add_actors(program, "actor", 1, &acting);
    }
    trp_run_result result;
    trp_run_options how = {.run_dir = run_dir, .seed = 1, .deterministic = true};
    if (trp_run(program, &how, &result) != TRP_OK)
        fail_msg("%s", trp_last_error());
    trp_program_destroy(program);
}

/* The mean return of what the learner of `run_dir` wrote last, played without exploring. */
static inline double learning_evaluate(const struct learning *learning, const char *run_dir)
{
    uint32_t episodes = learning->episodes ? learning->episodes : 50;
    char dir[128], *path;
    snprintf(dir, sizeof dir, "%s/learner", run_dir);
    assert_int_equal(trp_learner_checkpoint_find(dir, &path), TRP_OK);
    trp_policy *policy;
    trp_evaluation evaluation;
    assert_int_equal(
        trp_agent_policy_create(&policy, &learning->agent, learning->env,
                                &(trp_policy_options){.rows = episodes, .greedy = true}),
        TRP_OK);
    if (trp_params_load(path, policy, NULL) != TRP_OK)
        fail_msg("%s", trp_last_error());
    trp_evaluate_options evaluate = {
        .env = learning->env, .episodes = episodes, .copies = episodes, .seed = 9};
    assert_int_equal(trp_evaluate(policy, &evaluate, &evaluation), TRP_OK);
    trp_policy_destroy(policy);
    free(path);
    return evaluation.mean;
}

/* Both, in a directory that is gone after it. */
static inline double learning_return(const struct learning *learning)
{
    char dir[] = "/tmp/test_learning.XXXXXX", run[64], command[64];
    assert_non_null(mkdtemp(dir));
    snprintf(run, sizeof run, "%s/run", dir);
    learning_run(learning, run);
    double mean = learning_evaluate(learning, run);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    return mean;
}

#endif
