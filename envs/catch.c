/* Catch (after Mnih et al. 2014): a ball falls one row a step through a board of 10 rows and 5
 * columns; the paddle in the bottom row moves left, stays or moves right. Caught is +1, missed -1,
 * on the ninth step, which ends the episode; every other reward is 0. Ported from bsuite's
 * environments/catch.py (Apache-2.0; see THIRD_PARTY_NOTICES). bsuite/catch, bsuite/catch_noise
 * and bsuite/catch_scale are the same game as experiments. */
#include "builtin.h"

#include <string.h>

#include "bsuite.h"

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
    .finite = true,
    .saved_bytes = sizeof(struct catch),
    .save = catch_save,
    .load = catch_load,
};

/* ---- as experiments -------------------------------------------------------------------------- */

struct catch_arguments {
    struct bsuite_arguments base;
};

BSUITE_OPTIONS(catch, struct catch_arguments, 19);
BSUITE_OPTIONS(catch_noise, struct catch_arguments, 19);
BSUITE_OPTIONS(catch_scale, struct catch_arguments, 19);

struct scored_catch {
    struct bsuite_copy copy;
    struct catch game;
};

enum { SAVED_BYTES = sizeof(struct scored_catch) - BSUITE_SAVED_AT };

static trp_status scored_catch_reset(void *state, trp_rng *rng)
{
    return catch_reset(&((struct scored_catch *)state)->game, rng);
}

static trp_status scored_catch_step(void *state, trp_rng *rng, const void *action,
                                    trp_env_outcome *outcome)
{
    struct scored_catch *s = state;
    TRP_TRY(catch_step(&s->game, rng, action, outcome));
    double reward = (double)outcome->reward;
    outcome->reward = bsuite_reward(&s->copy, rng, reward);
    if (!outcome->terminated)
        return TRP_OK;
    bsuite_add(&s->copy, 1 - reward);
    bsuite_end(&s->copy, outcome);
    return TRP_OK;
}

static void scored_catch_observe(const void *state, void *const *observations)
{
    catch_observe(&((const struct scored_catch *)state)->game, observations);
}

static void scored_catch_save(const void *state, void *saved)
{
    memcpy(saved, (const uint8_t *)state + BSUITE_SAVED_AT, SAVED_BYTES);
}

static trp_status scored_catch_load(void *state, const void *saved)
{
    struct scored_catch *s = state, loaded = *s;
    memcpy((uint8_t *)&loaded + BSUITE_SAVED_AT, saved, SAVED_BYTES);
    TRP_TRY(bsuite_check_count(&loaded.copy));
    TRP_TRY(catch_load(&s->game, &loaded.game));
    *s = loaded;
    return TRP_OK;
}

#define SCORED_CATCH(word)                                                                         \
    {                                                                                              \
        .spec = {.name = "bsuite/" #word,                                                          \
                 .observations = {{.name = "observation",                                          \
                                   .dtype = TRP_FLOAT32,                                           \
                                   .rank = 2,                                                      \
                                   .shape = {ROWS, COLUMNS}}},                                     \
                 .action_kind = TRP_ACTION_DISCRETE,                                               \
                 .action_count = 3},                                                               \
        .state_bytes = sizeof(struct scored_catch), .options = &word##_table,                      \
        .configure = bsuite_configure, .create = bsuite_create, .reset = scored_catch_reset,       \
        .step = scored_catch_step, .observe = scored_catch_observe, .finite = true,                \
        .saved_bytes = SAVED_BYTES, .save = scored_catch_save, .load = scored_catch_load,          \
    }

const trp_env_impl bsuite_catch_impl = SCORED_CATCH(catch);
const trp_env_impl bsuite_catch_noise_impl = SCORED_CATCH(catch_noise);
const trp_env_impl bsuite_catch_scale_impl = SCORED_CATCH(catch_scale);
