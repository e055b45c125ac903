/* R2D2 learns to remember: what stood on a sign at the beginning decides, 20 steps later, which way
 * is right. A network without memory gets 0 on average.
 *
 *     ./r2d2_memory                        a process per node, until it remembers
 *     ./r2d2_memory --launch=threads       everything in this process */
#include <stdlib.h>

#include <troupe/troupe.h>

enum { LENGTH = 20, LEFT = 0, RIGHT = 1, ACTIONS = 2 };

struct corridor {
    int32_t sign, step;
};

static trp_status corridor_reset(void *state, trp_rng *rng)
{
    struct corridor *corridor = state;
    corridor->sign = (int32_t)trp_rng_below(rng, ACTIONS);
    corridor->step = 0;
    return TRP_OK;
}

static trp_status corridor_step(void *state, trp_rng *rng, const void *action,
                                trp_env_outcome *outcome)
{
    struct corridor *corridor = state;
    (void)rng;
    if (corridor->step++ < LENGTH)
        return TRP_OK;
    outcome->terminated = true;
    outcome->reward = *(const int32_t *)action == corridor->sign ? 1 : -1;
    return TRP_OK;
}

/* The sign, which can be read at the first step only, and whether this is the junction. */
static void corridor_observe(const void *state, void *const *observations)
{
    const struct corridor *corridor = state;
    float *seen = observations[0];
    seen[0] = corridor->step > 0 ? 0 : corridor->sign == RIGHT ? 1 : -1;
    seen[1] = corridor->step == LENGTH;
}

static const trp_env_impl corridor = {
    .spec = {.name = "Corridor",
             .observations = {{.name = "seen", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}}},
             .action_kind = TRP_ACTION_DISCRETE,
             .action_count = ACTIONS},
    .state_bytes = sizeof(struct corridor),
    .reset = corridor_reset,
    .step = corridor_step,
    .observe = corridor_observe,
};

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_agent agent = trp_r2d2(&(trp_r2d2_options){
        .hidden = {32},
        .core_size = 32,
        .burn_in = -1, /* an item is a whole episode */
        .trace = LENGTH + 1,
        .period = LENGTH + 1,
        .n_step = 5,
        .target_period = 100,
        .epsilon_steps = 20000,
        .replay_size = 5000,
        .min_replay_size = 200,
    });
    trp_node replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    trp_node learner = trp_add_learner(program, "learner",
                                       &(trp_learner_options){.agent = &agent, .replay = replay});
    trp_actor_options acting = {
        .agent = &agent, .env = "Corridor", .replay = replay, .params = learner, .envs = 4};
    trp_add_actors(program, "actor", 2, &acting);
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){.agent = &agent,
                                           .env = "Corridor",
                                           .params = learner,
                                           .episodes = 200,
                                           .target_return = 0.9});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    if (trp_env_register(&corridor) != TRP_OK)
        return EXIT_FAILURE;
    return trp_main(argc, argv, "r2d2_memory", build);
}
