/* An environment of one's own, learned by DQN.
 *
 * Windy Catch: a ball falls down a board of 10 rows and 5 columns and, in the upper half, is blown
 * one column to the left or right at some steps; a paddle in the last row moves by one. Catching is
 * worth 1, missing -1.
 *
 * An environment is a struct of one copy's state, a few functions on it and a spec; register it
 * before trp_main() and use its name like any other. */
#include <stdlib.h>

#include <troupe/troupe.h>

enum { ROWS = 10, COLUMNS = 5, LEFT = 0, STAY = 1, RIGHT = 2, ACTIONS = 3 };

struct windy_catch {
    int32_t ball_row, ball_column, paddle;
};

static int32_t clamp_column(int32_t column)
{
    if (column < 0)
        return 0;
    return column < COLUMNS ? column : COLUMNS - 1;
}

static trp_status windy_catch_reset(void *state, trp_rng *rng)
{
    struct windy_catch *game = state;
    game->ball_row = 0;
    game->ball_column = (int32_t)trp_rng_below(rng, COLUMNS);
    game->paddle = COLUMNS / 2;
    return TRP_OK;
}

static trp_status windy_catch_step(void *state, trp_rng *rng, const void *action,
                                   trp_env_outcome *outcome)
{
    struct windy_catch *game = state;
    game->paddle = clamp_column(game->paddle + *(const int32_t *)action - STAY);
    game->ball_row++;
    if (game->ball_row < ROWS / 2 && trp_rng_below(rng, 4) == 0)
        game->ball_column = clamp_column(game->ball_column + (trp_rng_below(rng, 2) ? 1 : -1));
    if (game->ball_row == ROWS - 1) {
        outcome->terminated = true;
        outcome->reward = game->ball_column == game->paddle ? 1 : -1;
    }
    return TRP_OK;
}

/* The board: 1 where the ball is and where the paddle is. */
static void windy_catch_observe(const void *state, void *const *observations)
{
    const struct windy_catch *game = state;
    float *board = observations[0];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        board[i] = 0;
    board[game->ball_row * COLUMNS + game->ball_column] = 1;
    board[(ROWS - 1) * COLUMNS + game->paddle] = 1;
}

static const trp_env_impl windy_catch = {
    .spec = {.name = "WindyCatch",
             .observations =
                 {{.name = "board", .dtype = TRP_FLOAT32, .rank = 1, .shape = {ROWS * COLUMNS}}},
             .action_kind = TRP_ACTION_DISCRETE,
             .action_count = ACTIONS},
    .state_bytes = sizeof(struct windy_catch),
    .reset = windy_catch_reset,
    .step = windy_catch_step,
    .observe = windy_catch_observe,
};

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 1));
    uint32_t actors = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2; /* catch -- 8 */
    trp_agent agent = trp_dqn(&(trp_dqn_options){
        .hidden = {64}, .replay_size = 20000, .epsilon_steps = 5000, .min_replay_size = 500});
    trp_node replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    trp_node learner = trp_add_learner(program, "learner",
                                       &(trp_learner_options){.agent = &agent, .replay = replay});
    trp_add_actors(program, "actor", actors,
                   &(trp_actor_options){
                       .agent = &agent, .env = "WindyCatch", .replay = replay, .params = learner});
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){.agent = &agent,
                                           .env = "WindyCatch",
                                           .params = learner,
                                           .episodes = 1000,
                                           .target_return = 0.8});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    if (trp_env_register(&windy_catch) != TRP_OK)
        return 1;
    return trp_main(argc, argv, "catch", build);
}
