/* DQN with noisy networks: an actor errs because of its noise, an evaluator does not, an update has
 * noise from the stream that is in the checkpoint and learns how much of it there is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/dqn.h>
#include "agents/dqn.h"
#include "core/alloc.h"
#include "learner/update.h"

static const trp_dqn_options noisy = {.noisy = true, .hidden = {16}, .priority_exponent = -1};

static const trp_env_spec *cartpole(void)
{
    const trp_env_spec *env;
    assert_int_equal(trp_env_find("CartPole-v1", &env), TRP_OK);
    return env;
}

/* ---- the policy ------------------------------------------------------------------------------ */

static trp_policy *policy_create(bool greedy)
{
    trp_agent agent = trp_dqn(&noisy);
    trp_policy *policy;
    assert_int_equal(agent.impl->policy(&agent, cartpole(),
                                        &(trp_policy_options){.rows = 1, .greedy = greedy},
                                        &policy),
                     TRP_OK);
    struct q_net q = dqn_net(&noisy);
    trp_net_spec spec = q_net_spec(&q, cartpole());
    float *params = trp_floats_create(trp_net_param_count(&spec));
    trp_rng rng;
    trp_rng_init(&rng, 3, 0);
    trp_net_init(&spec, &rng, params);
    assert_int_equal(policy->impl->load(policy, params, trp_net_param_count(&spec)), TRP_OK);
    trp_floats_destroy(params);
    return policy;
}

/* How often it goes right, of 200 times in one place. */
static int rights(trp_policy *policy, uint64_t seed)
{
    static const float observation[4] = {0.1F, -0.2F, 0.05F, 0.3F};
    const void *observations[] = {observation};
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    int count = 0;
    for (int i = 0; i < 200; i++) {
        int32_t action = -1;
        trp_act act = {.rows = 1, .observations = observations, .rng = &rng, .actions = &action};
        assert_int_equal(policy->impl->act(policy, &act), TRP_OK);
        assert_in_range(action, 0, 1);
        count += action;
    }
    return count;
}

static void an_actor_errs_because_of_its_noise_and_an_evaluator_does_not(void **state)
{
    (void)state;
    trp_policy *actor = policy_create(false), *evaluator = policy_create(true);
    int count = rights(actor, 1);
    assert_in_range(count, 20, 180);
    assert_int_equal(rights(actor, 1), count); /* of the stream alone */
    assert_int_equal(rights(evaluator, 1) % 200, 0);
    trp_metric metric;
    assert_int_equal(actor->impl->metrics(actor, 0, &metric), 1);
    assert_true(metric.value == 0); /* epsilon */
    trp_policy_destroy(actor);
    trp_policy_destroy(evaluator);
}

/* ---- the update ------------------------------------------------------------------------------ */

enum { ROWS = 8 };

struct study {
    trp_updater *updater;
    struct trp_update_run run;
};

static void study_init(struct study *study, uint64_t seed)
{
    trp_agent agent = trp_dqn(&noisy);
    assert_int_equal(agent.impl->updater(&agent, cartpole(),
                                         &(trp_updater_options){.batch_size = ROWS},
                                         &study->updater),
                     TRP_OK);
    assert_int_equal(update_prepare(&study->run, study->updater, seed), TRP_OK);
}

static void study_cleanup(struct study *study)
{
    update_cleanup(&study->run);
    trp_updater_destroy(study->updater);
}

static void study_step(struct study *study, uint64_t step)
{
    static float observations[2][ROWS * 4], rewards[ROWS], discounts[ROWS];
    static int32_t actions[ROWS];
    trp_rng rng;
    trp_rng_init(&rng, step, 7);
    for (int i = 0; i < ROWS * 4; i++)
        for (int k = 0; k < 2; k++)
            observations[k][i] = (float)trp_rng_normal(&rng);
    for (int i = 0; i < ROWS; i++) {
        rewards[i] = (float)trp_rng_normal(&rng);
        discounts[i] = 1;
        actions[i] = (int32_t)trp_rng_below(&rng, 2);
    }
    const struct {
        const char *name;
        void *values;
    } columns[] = {{"observation", observations[0]},
                   {"next_observation", observations[1]},
                   {"reward", rewards},
                   {"discount", discounts},
                   {"action", actions}};
    void *places[16] = {NULL};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        places[trp_columns_find(&study->updater->sources[0].columns, columns[i].name)] =
            columns[i].values;
    const trp_batch batch = {.rows = ROWS, .columns = places};
    assert_int_equal(update_step(&study->run, step, &batch), TRP_OK);
}

static const trp_net_tensor *sigma_of(const struct study *study)
{
    const trp_vector_spec *spec = &study->updater->vectors[0];
    for (size_t i = 0; i < spec->tensor_count; i++)
        if (strcmp(spec->tensors[i].name, "body.0.weight_sigma") == 0)
            return &spec->tensors[i];
    fail_msg("there is no noise");
    return NULL;
}

static void an_update_learns_the_noise_and_goes_on_with_the_same(void **state)
{
    (void)state;
    struct study whole, resumed;
    study_init(&whole, 1);
    study_init(&resumed, 99);
    const trp_net_tensor *sigma = sigma_of(&whole);
    float first = whole.run.values[0][sigma->offset];
    assert_float_equal(first, 0.25, 1e-7); /* 0.5 / sqrt(4) */
    for (uint64_t step = 1; step <= 12; step++) {
        study_step(&whole, step);
        if (step != 5)
            continue;
        trp_checkpoint_tensor from[UPDATE_TENSORS_MAX], to[UPDATE_TENSORS_MAX];
        size_t count = update_state(&whole.run, from);
        assert_int_equal(update_state(&resumed.run, to), count);
        for (size_t i = 0; i < count; i++) {
            size_t element = from[i].type == TRP_CHECKPOINT_F32 ? sizeof(float) : sizeof(uint64_t);
            memcpy((void *)(uintptr_t)to[i].data, from[i].data, from[i].shape[0] * element);
        }
    }
    for (uint64_t step = 6; step <= 12; step++)
        study_step(&resumed, step);
    size_t count = whole.updater->vectors[0].count;
    assert_memory_equal(whole.run.values[0], resumed.run.values[0], count * sizeof(float));
    int moved = 0;
    for (size_t i = 0; i < sigma->count; i++)
        moved += whole.run.values[0][sigma->offset + i] != first;
    assert_true(moved > (int)sigma->count / 2);
    study_cleanup(&whole);
    study_cleanup(&resumed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_actor_errs_because_of_its_noise_and_an_evaluator_does_not),
        cmocka_unit_test(an_update_learns_the_noise_and_goes_on_with_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
