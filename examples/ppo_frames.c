/* PPO learns from images that the environment draws: a ball falls, drifting to a side, and a bar at
 * the bottom is to be under it. Which side it drifts to no single frame shows: four of them, 84 x
 * 84 pixels each, are what is observed. Learners, actors and the evaluator may be on a GPU:
 *
 *     ./ppo_frames                            a process per node; a minute or two of two processors
 *     ./ppo_frames --device=auto
 *     ./ppo_frames -- fused                   no replay, no actors: the learner steps environments
 */
#include <string.h>

#include <troupe/troupe.h>

enum {
    SIDE = 84,
    CELL = 12, /* pixels of a step, and of the ball's side */
    CELLS = SIDE / CELL,
    BAR = 2 * CELL, /* pixels that it is wide */
};

/* In cells, rows from the top. The bar's left one is `bar`. */
struct drop {
    int32_t row, column, drift, bar;
};

static trp_status drop_reset(void *state, trp_rng *rng)
{
    struct drop *drop = state;
    *drop = (struct drop){.column = (int32_t)trp_rng_below(rng, CELLS),
                          .drift = trp_rng_below(rng, 2) ? 1 : -1,
                          .bar = (int32_t)trp_rng_below(rng, CELLS - 1)};
    return TRP_OK;
}

/* The ball bounces off both sides. */
static trp_status drop_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    struct drop *drop = state;
    (void)rng;
    int32_t bar = drop->bar + *(const int32_t *)action - 1; /* left, nowhere, right */
    if (bar >= 0 && bar <= CELLS - 2)
        drop->bar = bar;
    if (drop->column + drop->drift < 0 || drop->column + drop->drift >= CELLS)
        drop->drift = -drop->drift;
    drop->column += drop->drift;
    drop->row++;
    outcome->terminated = drop->row == CELLS - 1;
    bool caught = drop->column == drop->bar || drop->column == drop->bar + 1;
    outcome->reward = outcome->terminated ? (caught ? 1 : -1) : 0;
    return TRP_OK;
}

static void paint(uint8_t *frame, int32_t row, int32_t column, size_t height, size_t width)
{
    for (size_t y = 0; y < height; y++)
        memset(frame + ((size_t)row * CELL + y) * SIDE + (size_t)column * CELL, 255, width);
}

static void drop_observe(const void *state, void *const *observations)
{
    const struct drop *drop = state;
    memset(observations[0], 0, SIDE * SIDE);
    paint(observations[0], drop->row, drop->column, CELL, CELL);
    paint(observations[0], CELLS - 1, drop->bar, CELL / 2, BAR);
}

static const trp_env_impl drop_impl = {
    .spec = {.name = "Drop",
             .observations = {{.dtype = TRP_UINT8, .rank = 2, .shape = {SIDE, SIDE}}},
             .action_kind = TRP_ACTION_DISCRETE,
             .action_count = 3},
    .state_bytes = sizeof(struct drop),
    .reset = drop_reset,
    .step = drop_step,
    .observe = drop_observe,
};

static trp_status build(trp_program *program, int argc, char **argv)
{
    bool fused = argc > 1 && strcmp(argv[1], "fused") == 0;
    TRP_TRY(trp_arguments_check(argc, argv, fused));
    trp_agent agent = trp_ppo(&(trp_ppo_options){
        .unroll = 24,
        .batch_size = 16,
        .epochs = 4,
        .minibatches = 4,
        .discount = 0.95F,
        .learning_rate = 5e-4F,
    });
    trp_learner_options learning = {.agent = &agent, .publish_every = 1};
    trp_actor_options acting = {.agent = &agent, .env = "Drop?frame_stack=4", .envs = 8};
    if (fused) {
        learning.env = acting.env;
        learning.envs = 16;
        acting.params = trp_add_learner(program, "learner", &learning);
    } else {
        acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
        learning.replay = acting.replay;
        acting.params = trp_add_learner(program, "learner", &learning);
        acting.sync_every_items = acting.envs;
        trp_add_actors(program, "actor", 2, &acting);
    }
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){
                          .agent = &agent,
                          .env = acting.env,
                          .params = acting.params,
                          .episodes = 128,
                          .envs = 128,
                          .target_return = 0.9,
                      });
    return TRP_OK;
}

int main(int argc, char **argv)
{
    if (trp_env_register(&drop_impl) != TRP_OK)
        return 1;
    return trp_main(argc, argv, "ppo_frames", build);
}
