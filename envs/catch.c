/* Catch (after Mnih et al. 2014): a ball falls one row a step through a board of 10 rows and 5
 * columns; the paddle in the bottom row moves left, stays or moves right. Caught is +1, missed -1,
 * on the ninth step, which ends the episode; every other reward is 0. Ported from bsuite's
 * environments/catch.py (Apache-2.0; see THIRD_PARTY_NOTICES). */
#include "builtin.h"

#include <string.h>

enum { ROWS = 10, COLUMNS = 5 };

struct catch
{
    int32_t ball_x, ball_y, paddle_x;
};

static trp_status catch_reset(void *state, trp_rng *rng)
{
    struct catch *s = state;
    s->ball_x = (int32_t)trp_rng_below(rng, COLUMNS);
    s->ball_y = 0;
    s->paddle_x = COLUMNS / 2;
    return TRP_OK;
}

static trp_status catch_step(void *state, trp_rng *rng, const void *action,
                             trp_env_outcome *outcome)
{
    (void)rng;
    struct catch *s = state;
    int32_t x = s->paddle_x + *(const int32_t *)action - 1;
    s->paddle_x = x < 0 ? 0 : x >= COLUMNS ? COLUMNS - 1 : x;
    s->ball_y++;
    outcome->terminated = s->ball_y == ROWS - 1;
    if (outcome->terminated)
        outcome->reward = s->paddle_x == s->ball_x ? 1 : -1;
    return TRP_OK;
}

static void catch_observe(const void *state, void *const *observations)
{
    const struct catch *s = state;
    float *board = observations[0];
    memset(board, 0, ROWS * COLUMNS * sizeof *board);
    board[s->ball_y * COLUMNS + s->ball_x] = 1;
    board[(ROWS - 1) * COLUMNS + s->paddle_x] = 1;
}

static void catch_save(const void *state, void *saved)
{
    memcpy(saved, state, sizeof(struct catch));
}

static trp_status catch_load(void *state, const void *saved)
{
    struct catch s;
    memcpy(&s, saved, sizeof s);
    bool inside = s.ball_x >= 0 && s.ball_x < COLUMNS && s.ball_y >= 0 && s.ball_y < ROWS - 1 &&
                  s.paddle_x >= 0 && s.paddle_x < COLUMNS;
    if (!inside)
        return trp_fail(TRP_INVALID_ARGUMENT, "Catch: ball at column %d, row %d, paddle at %d",
                        s.ball_x, s.ball_y, s.paddle_x);
    memcpy(state, &s, sizeof s);
    return TRP_OK;
}

const trp_env_impl catch_impl = {
    .spec =
        {
            .name = "Catch",
            .observations = {{.name = "observation",
                              .dtype = TRP_FLOAT32,
                              .rank = 2,
                              .shape = {ROWS, COLUMNS}}},
            .action_kind = TRP_ACTION_DISCRETE,
            .action_count = 3,
        },
    .state_bytes = sizeof(struct catch),
    .reset = catch_reset,
    .step = catch_step,
    .observe = catch_observe,
    .saved_bytes = sizeof(struct catch),
    .save = catch_save,
    .load = catch_load,
};
