/* What runs of actor-critics are tested with: environments that they learn within seconds, some
 * that they cannot, and runs of actors in turns, which end with the same bits. */
#ifndef TESTS_AGENTS_ACTOR_CRITICS_H
#define TESTS_AGENTS_ACTOR_CRITICS_H

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

static inline void mirror_show(struct mirror *mirror, trp_rng *rng)
{
    mirror->seen = (float)(trp_rng_double(rng) - 0.5);
}

static inline trp_status mirror_reset(void *state, trp_rng *rng)
{
    mirror_show(state, rng);
    return TRP_OK;
}

static inline trp_status mirror_step(void *state, trp_rng *rng, const void *action,
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

static inline trp_status side_step(void *state, trp_rng *rng, const void *action,
                                   trp_env_outcome *outcome)
{
    struct mirror *mirror = state;
    outcome->reward = *(const int32_t *)action == (mirror->seen > 0);
    mirror_show(mirror, rng);
    return TRP_OK;
}

static inline void mirror_observe(const void *state, void *const *observations)
{
    *(float *)observations[0] = ((const struct mirror *)state)->seen;
}

static inline void side_mask(const void *state, bool *allowed)
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

/* Never stepped by an agent. */
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

/* All of them; false: one could not be. */
static inline bool register_environments(void)
{
    bool good = trp_env_register(&mirror_impl) == TRP_OK && trp_env_register(&side_impl) == TRP_OK;
    for (size_t i = 0; i < sizeof refused_impls / sizeof *refused_impls; i++) {
        refused_impls[i].state_bytes = sizeof(struct mirror);
        refused_impls[i].reset = mirror_reset;
        refused_impls[i].step = side_step;
        refused_impls[i].observe = mirror_observe;
        good = good && trp_env_register(&refused_impls[i]) == TRP_OK;
    }
    return good;
}

static inline void assert_refused(const trp_agent *agent, const char *env, const char *words)
{
    assert_int_equal(trp_agent_check(agent, env), TRP_INVALID_ARGUMENT);
    if (!strstr(trp_last_error(), words))
        fail_msg("'%s' does not say '%s'", trp_last_error(), words);
}

/* One table, of which each item goes once, in order, and of which so many wait. */
static inline void assert_has_queue(const trp_agent *agent, int64_t items)
{
    trp_agent_table_list list;
    trp_rate_limiter queue = trp_limiter_queue(items);
    assert_int_equal(trp_agent_tables(agent, "CartPole-v1", &list), TRP_OK);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.tables[0].sampler.kind, TRP_FIFO);
    assert_int_equal(list.tables[0].max_times_sampled, 1);
    assert_memory_equal(&list.tables[0].limiter, &queue, sizeof queue);
    trp_agent_table_list_cleanup(&list);
}

/* ---- runs in turns --------------------------------------------------------------------------- */

/* Actors of an agent on CartPole-v1, and a learner of 20 steps. */
struct actors_run {
    trp_agent agent;
    uint32_t actors, copies; /* copies: of each */
    uint64_t sync_every_items;
    uint64_t seed;
};

struct ended {
    float *params;
    size_t count;
};

static inline void run_actors(const struct actors_run *run, const char *dir)
{
    const trp_agent *agent = &run->agent;
    trp_program *program = trp_program_create("actors");
    trp_actor_options acting = {.agent = agent,
                                .env = "CartPole-v1",
                                .envs = run->copies,
                                .sync_every_items = run->sync_every_items};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = agent});
    acting.params = trp_add_learner(
        program, "learner",
        &(trp_learner_options){
            .agent = agent, .replay = acting.replay, .publish_every = 1, .max_steps = 20});
    trp_add_actors(program, "actor", run->actors, &acting);
    trp_run_result result;
    trp_run_options how = {.run_dir = dir, .seed = run->seed, .deterministic = true};
    if (trp_run(program, &how, &result) != TRP_OK)
        fail_msg("%s", trp_last_error());
    trp_program_destroy(program);
}

/* Runs it, and reads the parameters that it ended with. */
static inline struct ended run_ended(const struct actors_run *actors_run)
{
    char dir[] = "/tmp/test_actors.XXXXXX", *path;
    assert_non_null(mkdtemp(dir));
    char *run = xasprintf("%s/run", dir), *learner = xasprintf("%s/run/learner", dir);
    run_actors(actors_run, run);
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

/* Twice with one seed, and once with another. */
static inline void assert_run_repeats(struct actors_run run)
{
    struct ended first = run_ended(&run), second = run_ended(&run);
    run.seed++;
    struct ended other = run_ended(&run);
    assert_int_equal(first.count, second.count);
    assert_memory_equal(first.params, second.params, first.count * sizeof *first.params);
    assert_memory_not_equal(first.params, other.params, first.count * sizeof *first.params);
    trp_floats_destroy(first.params);
    trp_floats_destroy(second.params);
    trp_floats_destroy(other.params);
}

#endif
