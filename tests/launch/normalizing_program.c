/* A program for tests of normalising wrappers: actors of one copy each on a task that writes all it
 * shows to the file "seen.NODE". "differ" (the argument after "--") gives two groups of actors
 * different wrappers, "rollout" lets the learner step the task itself, with "cached" all but the
 * learner have a cache of its parameters, and with "easy" the first version that is played reaches
 * the target. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>
#include "core/log.h"

static const char *own_node; /* of a process; NULL: nodes are threads */

struct drift {
    float numbers[2];
};

/* The two numbers, and the reward; NaN: an episode begins. */
static void drift_note(const struct drift *drift, float reward)
{
    char name[128];
    int size = snprintf(name, sizeof name, "seen.%s", own_node ? own_node : log_origin_get().node);
    for (int i = 0; i < size; i++)
        if (name[i] == '/')
            name[i] = '-';
    const float row[3] = {drift->numbers[0], drift->numbers[1], reward};
    FILE *file = fopen(name, "ae");
    if (!file || fwrite(row, sizeof row, 1, file) != 1 || fclose(file) != 0)
        abort();
}

static void drift_draw(struct drift *drift, trp_rng *rng)
{
    drift->numbers[0] = 10000 + (float)trp_rng_normal(rng);
    drift->numbers[1] = (float)trp_rng_normal(rng) / 100;
}

static trp_status drift_reset(void *state, trp_rng *rng)
{
    drift_draw(state, rng);
    drift_note(state, NAN);
    return TRP_OK;
}

static trp_status drift_step(void *state, trp_rng *rng, const void *action,
                             trp_env_outcome *outcome)
{
    outcome->reward = 2 * (float)trp_rng_normal(rng) + (float)*(const int32_t *)action;
    outcome->terminated = trp_rng_below(rng, 5) == 0;
    drift_draw(state, rng);
    drift_note(state, outcome->reward);
    return TRP_OK;
}

static void drift_observe(const void *state, void *const *observations)
{
    memcpy(observations[0], ((const struct drift *)state)->numbers, 2 * sizeof(float));
}

static const trp_env_impl drift_impl = {
    .spec = {.name = "Drift",
             .observations = {{.name = "numbers", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}}},
             .action_kind = TRP_ACTION_DISCRETE,
             .action_count = 2},
    .state_bytes = sizeof(struct drift),
    .reset = drift_reset,
    .step = drift_step,
    .observe = drift_observe,
};

static trp_status build(trp_program *program, int argc, char **argv)
{
    bool differ = argc > 1 && strcmp(argv[1], "differ") == 0;
    bool rollout = argc > 1 && strcmp(argv[1], "rollout") == 0;
    trp_agent agent = trp_dqn(&(trp_dqn_options){.n_step = 1,
                                                 .hidden = {8},
                                                 .batch_size = 16,
                                                 .epsilon_steps = 200,
                                                 .samples_per_insert = 4,
                                                 .min_replay_size = 64});
    trp_actor_options acting = {.agent = &agent,
                                .env = "Drift?normalize_observation=10&normalize_return=0.9",
                                .envs = 1,
                                .sync_every_items = 50, /* each reports after so many */
                                .episodes = 20};
    if (rollout) {
        trp_add_learner(program, "learner",
                        &(trp_learner_options){.agent = &agent, .env = acting.env, .envs = 1});
        return TRP_OK;
    }
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner", &(trp_learner_options){.agent = &agent, .replay = acting.replay});
    if (argc > 1 && strcmp(argv[1], "cached") == 0)
        acting.params = trp_add_params_cache(program, "cache",
                                             &(trp_params_cache_options){.params = acting.params});
    trp_add_actors(program, "actor", 4, &acting);
    acting.target_return = argc > 1 && strcmp(argv[1], "easy") == 0 ? -1e9 : 0;
    trp_add_evaluator(program, "evaluator", &acting);
    acting.target_return = 0;
    if (differ) {
        acting.env = "Drift?normalize_observation=10";
        trp_add_actors(program, "collector", 1, &acting);
    }
    return TRP_OK;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--node=", 7) == 0)
            own_node = argv[i] + 7;
    if (trp_env_register(&drift_impl) != TRP_OK)
        return 1;
    return trp_main(argc, argv, "drift", build);
}
