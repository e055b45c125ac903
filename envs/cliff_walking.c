/* CliffWalking-v1 and CliffWalkingSlippery-v1 (Sutton and Barto, example 6.6): along a cliff to the
 * goal, each step -1; who falls down pays 100 and is at the start again. Ported from Gymnasium's
 * toy_text/cliffwalking.py (MIT; see THIRD_PARTY_NOTICES). An observation is the number of the
 * cell, 12 to a row; actions are up, right, down, left. There is no time limit. */
#include "builtin.h"

#include <string.h>

#include "tabular.h"

enum { UP, RIGHT, DOWN, LEFT };
enum { ROWS = 4, COLUMNS = 12, START = (ROWS - 1) * COLUMNS, GOAL = ROWS * COLUMNS - 1 };

static trp_status cliff_reset(void *state, trp_rng *rng)
{
    (void)rng;
    *(int32_t *)state = START;
    return TRP_OK;
}

static void cliff_move(int32_t *cell, int32_t direction, trp_env_outcome *outcome)
{
    int32_t row = *cell / COLUMNS + (direction == DOWN) - (direction == UP);
    int32_t column = *cell % COLUMNS + (direction == RIGHT) - (direction == LEFT);
    int32_t to = tabular_clamp(row, ROWS) * COLUMNS + tabular_clamp(column, COLUMNS);
    bool fallen = to > START && to < GOAL;
    *cell = fallen ? START : to;
    outcome->reward = fallen ? -100 : -1;
    outcome->terminated = to == GOAL;
}

static trp_status cliff_step(void *state, trp_rng *rng, const void *action,
                             trp_env_outcome *outcome)
{
    (void)rng;
    cliff_move(state, *(const int32_t *)action, outcome);
    return TRP_OK;
}

/* A third each: where it should, and to either side. */
static trp_status slippery_step(void *state, trp_rng *rng, const void *action,
                                trp_env_outcome *outcome)
{
    static const double thirds[3] = {1.0 / 3, 1.0 / 3, 1.0 / 3};
    cliff_move(state, (*(const int32_t *)action + 3 + tabular_draw(rng, thirds)) % 4, outcome);
    return TRP_OK;
}

static void cliff_observe(const void *state, void *const *observations)
{
    memcpy(observations[0], state, sizeof(int32_t));
}

static void cliff_save(const void *state, void *saved)
{
    memcpy(saved, state, sizeof(int32_t));
}

static trp_status cliff_load(void *state, const void *saved)
{
    int32_t cell;
    memcpy(&cell, saved, sizeof cell);
    if (cell < 0 || cell > START)
        return trp_fail(TRP_INVALID_ARGUMENT, "CliffWalking: no episode goes on in cell %d", cell);
    *(int32_t *)state = cell;
    return TRP_OK;
}

const trp_env_impl cliff_walking_impl = {
    .spec =
        {
            .name = "CliffWalking-v1",
            .observations = {{.name = "observation", .dtype = TRP_INT32}},
            .action_kind = TRP_ACTION_DISCRETE,
            .action_count = 4,
        },
    .state_bytes = sizeof(int32_t),
    .reset = cliff_reset,
    .step = cliff_step,
    .observe = cliff_observe,
    .saved_bytes = sizeof(int32_t),
    .save = cliff_save,
    .load = cliff_load,
};

const trp_env_impl cliff_walking_slippery_impl = {
    .spec =
        {
            .name = "CliffWalkingSlippery-v1",
            .observations = {{.name = "observation", .dtype = TRP_INT32}},
            .action_kind = TRP_ACTION_DISCRETE,
            .action_count = 4,
        },
    .state_bytes = sizeof(int32_t),
    .reset = cliff_reset,
    .step = slippery_step,
    .observe = cliff_observe,
    .saved_bytes = sizeof(int32_t),
    .save = cliff_save,
    .load = cliff_load,
};
