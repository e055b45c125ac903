/* Whole runs of PPO: with one actor and two, and fused; what a policy says of its actions; what it
 * cannot learn. */
#include <math.h>
#include <unistd.h>

#include "core/alloc.h"
#include "learning.h"

/* ---- environments ---------------------------------------------------------------------------- */

/* The number seen is to be given back, within [-1, 1]; an episode is cut after four. With `masked`
 * choices: the last one may never be taken. */
struct mirror {
    float seen;
};

static void mirror_show(struct mirror *mirror, trp_rng *rng)
{
    mirror->seen = (float)(trp_rng_double(rng) - 0.5);
}

static trp_status mirror_reset(void *state, trp_rng *rng)
{
    mirror_show(state, rng);
    return TRP_OK;
}

static trp_status mirror_step(void *state, trp_rng *rng, const void *action,
                              trp_env_outcome *outcome)
{
    struct mirror *mirror = state;
    float given = *(const float *)action;
    if (!(given >= -1 && given <= 1))
        return trp_fail(TRP_INVALID_ARGUMENT, "%g is out of bounds", (double)given);
    outcome->reward = 1 - fabsf(mirror->seen - given);
    mirror_show(mirror, rng);
    return TRP_OK;
}

static trp_status side_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    struct mirror *mirror = state;
    outcome->reward = *(const int32_t *)action == (mirror->seen > 0);
    mirror_show(mirror, rng);
    return TRP_OK;
}

static void mirror_observe(const void *state, void *const *observations)
{
    *(float *)observations[0] = ((const struct mirror *)state)->seen;
}

static void side_mask(const void *state, bool *allowed)
{
    (void)state;
    allowed[0] = allowed[1] = true;
}

static const float low = -1, high = 1;

static const trp_env_impl mirror_impl = {
    .spec = {.name = "Mirror",
             .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
             .action_kind = TRP_ACTION_BOX,
             .action_count = 1,
             .action_low = &low,
             .action_high = &high,
             .max_episode_steps = 4},
    .state_bytes = sizeof(struct mirror),
    .reset = mirror_reset,
    .step = mirror_step,
    .observe = mirror_observe,
};

static const trp_env_impl side_impl = {
    .spec = {.name = "Side",
             .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
             .action_count = 3,
             .max_episode_steps = 4},
    .state_bytes = sizeof(struct mirror),
    .reset = mirror_reset,
    .step = side_step,
    .observe = mirror_observe,
    .mask = side_mask,
};

/* Never stepped. */
static trp_env_impl refused_impls[] = {
    {.spec = {.name = "Bits",
              .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
              .action_kind = TRP_ACTION_MULTI_BINARY,
              .action_count = 2}},
    {.spec = {.name = "Tokens",
              .observations = {{.dtype = TRP_INT32, .rank = 1, .shape = {1}}},
              .action_count = 2}},
    {.spec = {.name = "Two",
              .observations = {{.name = "a", .dtype = TRP_FLOAT32, .rank = 1, .shape = {1}},
                               {.name = "b", .dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
              .action_count = 2}},
};

/* ---- pairings -------------------------------------------------------------------------------- */

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        trp_ppo_options options;
        const char *words;
    } rows[] = {
        {"Bits", {0}, "ppo: Bits has bits for actions"},
        {"Tokens", {0}, "ppo: Tokens observes integers"},
        {"Two", {0}, "ppo: Two observes 2 tensors, needs one"},
        {"CartPole-v1", {.network = TRP_TORSO_NATURE}, "the network nature reads images"},
        {"CartPole-v1", {.unroll = 2, .batch_size = 3, .minibatches = 7}, "minibatches is 7"},
        {"CartPole-v1", {.unroll = 65534, .batch_size = 65536}, "more steps than"},
        {"CartPole-v1", {.anneal_clip = true}, "anneal_clip needs schedule_steps"},
        {"CartPole-v1", {.gae_lambda = 2}, "gae_lambda"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_agent agent = trp_ppo(&rows[i].options);
        assert_int_equal(trp_agent_check(&agent, rows[i].env), TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("'%s' does not say '%s'", trp_last_error(), rows[i].words);
    }
}

/* ---- what a policy says ---------------------------------------------------------------------- */

enum { ACTING = 64 };

/* Deviations of e, so that half of the samples are out of bounds. */
static trp_policy *wide_policy(bool greedy)
{
    trp_agent agent = trp_ppo(&(trp_ppo_options){.hidden = {4}});
    trp_policy *policy;
    assert_int_equal(
        trp_agent_policy_create(&policy, &agent, "Mirror",
                                &(trp_policy_options){.rows = ACTING, .greedy = greedy}),
        TRP_OK);
    float *params = trp_floats_create(policy->param_count);
    for (size_t i = 0; i < policy->tensor_count; i++)
        if (strcmp(policy->tensors[i].name, "log_std") == 0)
            params[policy->tensors[i].offset] = 1;
        else if (strcmp(policy->tensors[i].name, "mean.bias") == 0)
            params[policy->tensors[i].offset] = 0.25F;
    assert_int_equal(policy->impl->load(policy, params, policy->param_count), TRP_OK);
    trp_floats_destroy(params);
    return policy;
}

static void actions_are_cut_to_their_bounds_and_samples_are_not(void **state)
{
    (void)state;
    float observations[ACTING] = {0}, actions[ACTING], log_probs[ACTING], samples[ACTING];
    uint32_t slots[ACTING];
    bool first[ACTING] = {false};
    trp_rng rng;
    trp_rng_init(&rng, 5, 0);
    for (uint32_t i = 0; i < ACTING; i++)
        slots[i] = i;
    trp_act act = {.rows = ACTING,
                   .slots = slots,
                   .observations = (const void *const[]){observations},
                   .first = first,
                   .rng = &rng,
                   .actions = actions,
                   .extras = (void *const[]){log_probs, samples}};
    trp_policy *policy = wide_policy(false);
    assert_string_equal(policy->extras.specs[0].name, "log_prob");
    assert_string_equal(policy->extras.specs[1].name, "sample");
    assert_int_equal(policy->impl->act(policy, &act), TRP_OK);
    trp_policy_destroy(policy);
    uint32_t beyond = 0;
    for (uint32_t i = 0; i < ACTING; i++) {
        double z = ((double)samples[i] - 0.25) / exp(1);
        assert_float_equal(log_probs[i], -z * z / 2 - 1 - log(2 * acos(-1)) / 2, 1e-5);
        assert_float_equal(actions[i], fmin(fmax((double)samples[i], -1), 1), 0);
        beyond += fabsf(samples[i]) > 1;
    }
    assert_in_range(beyond, ACTING / 2, ACTING - 5);
    policy = wide_policy(true);
    act.extras = NULL;
    assert_int_equal(policy->impl->act(policy, &act), TRP_OK);
    for (uint32_t i = 0; i < ACTING; i++)
        assert_float_equal(actions[i], 0.25F, 0);
    trp_policy_destroy(policy);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const trp_ppo_options small = {.hidden = {16},
                                      .unroll = 8,
                                      .batch_size = 4,
                                      .minibatches = 2,
                                      .learning_rate = 0.01F,
                                      .entropy_weight = -1,
                                      .gae_lambda = -1};

static void choices_that_are_masked_are_never_made(void **state)
{
    (void)state; /* the environment refuses them */
    double mean = learning_return(
        &(struct learning){.agent = trp_ppo(&small), .env = "Side", .fused = true, .steps = 60});
    print_message("Side: mean return %.2f\n", mean);
    assert_true(mean > 3.8); /* of 4; chance has 2 */
}

static void continuous_actions_are_learned(void **state)
{
    (void)state;
    double mean = learning_return(
        &(struct learning){.agent = trp_ppo(&small), .env = "Mirror", .fused = true, .steps = 150});
    print_message("Mirror: mean return %.2f\n", mean);
    assert_true(mean > 3.7); /* of 4; always 0 has 3, chance less */
}

struct ended {
    float *params;
    size_t count;
};

/* Actors wait for the version that is made of what they did. */
static void run_actors(uint32_t actors, uint64_t seed, const char *dir, uint64_t steps)
{
    trp_agent agent = trp_ppo(&small);
    trp_program *program = trp_program_create("ppo");
    trp_actor_options acting = {.agent = &agent,
                                .env = "CartPole-v1",
                                .envs = small.batch_size / actors,
                                .sync_every_items = small.batch_size / actors};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner",
        &(trp_learner_options){
            .agent = &agent, .replay = acting.replay, .publish_every = 1, .max_steps = steps});
    trp_add_actors(program, "actor", actors, &acting);
    trp_run_result result;
    trp_run_options how = {.run_dir = dir, .seed = seed, .deterministic = true};
    if (trp_run(program, &how, &result) != TRP_OK)
        fail_msg("%s", trp_last_error());
    trp_program_destroy(program);
}

static struct ended run_ended(uint32_t actors, uint64_t seed)
{
    char dir[] = "/tmp/test_ppo.XXXXXX", *path;
    assert_non_null(mkdtemp(dir));
    char *run = xasprintf("%s/run", dir), *learner = xasprintf("%s/run/learner", dir);
    run_actors(actors, seed, run, 20);
    assert_int_equal(trp_learner_checkpoint_find(learner, &path), TRP_OK);
    trp_checkpoint *checkpoint;
    assert_int_equal(trp_checkpoint_read(&checkpoint, path), TRP_OK);
    const trp_checkpoint_tensor *params = NULL;
    for (size_t i = 0; i < trp_checkpoint_tensor_count(checkpoint); i++)
        if (strcmp(trp_checkpoint_tensor_at(checkpoint, i)->name, "params") == 0)
            params = trp_checkpoint_tensor_at(checkpoint, i);
    assert_non_null(params);
    struct ended ended = {.count = params->shape[0]};
    ended.params = trp_floats_create(ended.count);
    memcpy(ended.params, params->data, ended.count * sizeof *ended.params);
    trp_checkpoint_destroy(checkpoint);
    char *command = xasprintf("rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    free(command);
    free(path);
    free(run);
    free(learner);
    return ended;
}

static void a_run_in_turns_repeats_bit_for_bit(void **state)
{
    (void)state;
    for (uint32_t actors = 1; actors <= 2; actors++) {
        struct ended first = run_ended(actors, 3), second = run_ended(actors, 3);
        struct ended other = run_ended(actors, 4);
        assert_int_equal(first.count, second.count);
        assert_memory_equal(first.params, second.params, first.count * sizeof *first.params);
        assert_memory_not_equal(first.params, other.params, first.count * sizeof *first.params);
        trp_floats_destroy(first.params);
        trp_floats_destroy(second.params);
        trp_floats_destroy(other.params);
    }
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(actions_are_cut_to_their_bounds_and_samples_are_not),
        cmocka_unit_test(choices_that_are_masked_are_never_made),
        cmocka_unit_test(continuous_actions_are_learned),
        cmocka_unit_test(a_run_in_turns_repeats_bit_for_bit),
    };
    for (size_t i = 0; i < sizeof refused_impls / sizeof *refused_impls; i++) {
        refused_impls[i].state_bytes = sizeof(struct mirror);
        refused_impls[i].reset = mirror_reset;
        refused_impls[i].step = side_step;
        refused_impls[i].observe = mirror_observe;
        if (trp_env_register(&refused_impls[i]) != TRP_OK)
            return 1;
    }
    if (trp_env_register(&mirror_impl) != TRP_OK || trp_env_register(&side_impl) != TRP_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
