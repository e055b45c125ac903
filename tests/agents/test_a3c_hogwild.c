/* A3C as its paper has it, several learners on one vector: on a chain whose optimum is known, they
 * find the best policy. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/troupe.h>
#include "core/thread.h"

enum { PLACES = 6, LEARNERS = 3, STEPS = 6000 };

/* ---- a chain --------------------------------------------------------------------------------- */

/* Every step on is one nearer to a reward of 1, with which the episode ends. Who stops has 0.1 at
 * once, and that is all. */
struct chain {
    int32_t place;
};

static trp_status chain_reset(void *state, trp_rng *rng)
{
    (void)rng;
    ((struct chain *)state)->place = 0;
    return TRP_OK;
}

static trp_status chain_step(void *state, trp_rng *rng, const void *action,
                             trp_env_outcome *outcome)
{
    struct chain *chain = state;
    bool stops = *(const int32_t *)action == 0;
    (void)rng;
    chain->place += !stops;
    outcome->terminated = stops || chain->place == PLACES - 1;
    outcome->reward = stops ? 0.1 : outcome->terminated ? 1 : 0;
    return TRP_OK;
}

static void chain_observe(const void *state, void *const *observations)
{
    float *places = observations[0];
    memset(places, 0, PLACES * sizeof *places);
    places[((const struct chain *)state)->place] = 1;
}

static const trp_env_impl chain_impl = {
    .spec = {.name = "Chain",
             .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {PLACES}}},
             .action_count = 2},
    .state_bytes = sizeof(struct chain),
    .reset = chain_reset,
    .step = chain_step,
    .observe = chain_observe,
};

/* ---- learners -------------------------------------------------------------------------------- */

struct member {
    trp_learner *learner;
    struct thread thread;
    trp_status status;
};

static void member_run(void *arg)
{
    struct member *member = arg;
    member->status = trp_learner_run(member->learner);
}

static void learn(const trp_agent *agent, const char *dir)
{
    struct member members[LEARNERS];
    trp_gang *gang = trp_gang_create(&(trp_gang_options){.name = "learner", .count = LEARNERS});
    for (uint32_t i = 0; i < LEARNERS; i++)
        if (trp_agent_learner_create(&members[i].learner, agent,
                                     &(trp_agent_learner_options){
                                         .env = "Chain",
                                         .rollout = {.name = "learner", .copies = 1, .index = i},
                                         .seed = 3,
                                         .loop = {.max_steps = STEPS,
                                                  .checkpoint_dir = dir,
                                                  .checkpoint_every_s = 3600,
                                                  .group = {.rendezvous = trp_gang_member(gang, i),
                                                            .mode = "hogwild"}}}))
            fail_msg("%s", trp_last_error());
    for (uint32_t i = 0; i < LEARNERS; i++)
        assert_int_equal(thread_start(&members[i].thread, "learner", member_run, &members[i]),
                         TRP_OK);
    for (uint32_t i = 0; i < LEARNERS; i++) {
        thread_stop(&members[i].thread);
        assert_int_equal(members[i].status, TRP_OK);
        trp_learner_destroy(members[i].learner);
    }
    trp_gang_destroy(gang);
}

static double greedy_return(const trp_agent *agent, const char *dir)
{
    char *path;
    trp_policy *policy;
    trp_evaluation evaluation;
    assert_int_equal(trp_learner_checkpoint_find(dir, &path), TRP_OK);
    assert_int_equal(trp_agent_policy_create(&policy, agent, "Chain",
                                             &(trp_policy_options){.rows = 4, .greedy = true}),
                     TRP_OK);
    assert_int_equal(trp_params_load(path, policy, NULL), TRP_OK);
    assert_int_equal(
        trp_evaluate(policy,
                     &(trp_evaluate_options){.env = "Chain", .episodes = 4, .copies = 4, .seed = 9},
                     &evaluation),
        TRP_OK);
    trp_policy_destroy(policy);
    free(path);
    return evaluation.mean;
}

static void learners_on_one_vector_find_the_optimum_of_a_chain(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_a3c.XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    trp_agent agent =
        trp_a3c(&(trp_a3c_options){.hidden = {16}, .discount = 0.9F, .learning_rate = 3e-3F});
    learn(&agent, dir);
    assert_float_equal(greedy_return(&agent, dir), 1, 0);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learners_on_one_vector_find_the_optimum_of_a_chain),
    };
    if (trp_env_register(&chain_impl) != TRP_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
