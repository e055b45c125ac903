/* FrozenLake-v1 and FrozenLake8x8-v1: over a frozen lake to the goal (1) without falling into a
 * hole (0); where it is slippery, a third of the steps go each where they should, and to either
 * side. Ported from Gymnasium's toy_text/frozen_lake.py (MIT; see THIRD_PARTY_NOTICES), with its
 * arguments map_name, is_slippery and success_rate. An observation is the number of the cell, row
 * by row; actions are left, down, right, up. */
#include "builtin.h"

#include <string.h>

#include "tabular.h"

enum { LEFT, DOWN, RIGHT, UP };

struct lake {
    uint32_t map_name;
    bool is_slippery;
    double success_rate;
    const char *cells; /* set by configure, as what follows */
    int32_t side;
    double probabilities[3]; /* of the action before, the action, the action behind */
};

struct walker {
    const struct lake *lake;
    int32_t cell;
};

static const char *const map_names[] = {"4x4", "8x8", NULL};
static const char *const maps[] = {"SFFF"
                                   "FHFH"
                                   "FFFH"
                                   "HFFG",
                                   "SFFFFFFF"
                                   "FFFFFFFF"
                                   "FFFHFFFF"
                                   "FFFFFHFF"
                                   "FFFHFFFF"
                                   "FHHFFFHF"
                                   "FHFFHFHF"
                                   "FFFHFFFG"};
static const int32_t sides[] = {4, 8};

#define LAKE_ROWS(map)                                                                             \
    {TRP_OPTION(struct lake, map_name), .fallback = map, .choices = map_names,                     \
     .help = "the lake"},                                                                          \
        {TRP_OPTION(struct lake, is_slippery), .fallback = "true", .help = "steps may go aside"},  \
        {TRP_OPTION(struct lake, success_rate), .fallback = "0.3333333333333333", .min = 0,        \
         .max = 1, .help = "of steps on slippery ice"},

static const trp_option small_rows[] = {LAKE_ROWS("4x4")};
static const trp_option large_rows[] = {LAKE_ROWS("8x8")};
static const trp_option_table small_table =
    TRP_OPTION_TABLE("FrozenLake-v1", small_rows, struct lake);
static const trp_option_table large_table =
    TRP_OPTION_TABLE("FrozenLake8x8-v1", large_rows, struct lake);

static trp_status lake_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct lake *lake = arguments;
    (void)user;
    (void)spec;
    lake->cells = maps[lake->map_name];
    lake->side = sides[lake->map_name];
    lake->probabilities[0] = lake->probabilities[2] = (1.0 - lake->success_rate) / 2.0;
    lake->probabilities[1] = lake->success_rate;
    return TRP_OK;
}

static trp_status lake_create(void *state, const void *arguments, void *user)
{
    (void)user;
    ((struct walker *)state)->lake = arguments;
    return TRP_OK;
}

static trp_status lake_reset(void *state, trp_rng *rng)
{
    (void)rng;
    ((struct walker *)state)->cell = 0;
    return TRP_OK;
}

static trp_status lake_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    struct walker *s = state;
    const struct lake *lake = s->lake;
    int32_t direction = *(const int32_t *)action, row = s->cell / lake->side,
            column = s->cell % lake->side;
    if (lake->is_slippery)
        direction = (direction + 3 + tabular_draw(rng, lake->probabilities)) % 4;
    row = tabular_clamp(row + (direction == DOWN) - (direction == UP), lake->side);
    column = tabular_clamp(column + (direction == RIGHT) - (direction == LEFT), lake->side);
    s->cell = row * lake->side + column;
    char letter = lake->cells[s->cell];
    outcome->terminated = letter == 'G' || letter == 'H';
    outcome->reward = letter == 'G' ? 1 : 0;
    return TRP_OK;
}

static void lake_observe(const void *state, void *const *observations)
{
    memcpy(observations[0], &((const struct walker *)state)->cell, sizeof(int32_t));
}

static void lake_save(const void *state, void *saved)
{
    memcpy(saved, &((const struct walker *)state)->cell, sizeof(int32_t));
}

static trp_status lake_load(void *state, const void *saved)
{
    struct walker *s = state;
    int32_t cell, cells = s->lake->side * s->lake->side;
    memcpy(&cell, saved, sizeof cell);
    if (cell < 0 || cell >= cells || strchr("GH", s->lake->cells[cell]))
        return trp_fail(TRP_INVALID_ARGUMENT, "FrozenLake: no episode goes on in cell %d", cell);
    s->cell = cell;
    return TRP_OK;
}

const trp_env_impl frozen_lake_impl = {
    .spec =
        {
            .name = "FrozenLake-v1",
            .observations = {{.name = "observation", .dtype = TRP_INT32}},
            .action_kind = TRP_ACTION_DISCRETE,
            .action_count = 4,
            .max_episode_steps = 100,
        },
    .state_bytes = sizeof(struct walker),
    .options = &small_table,
    .configure = lake_configure,
    .create = lake_create,
    .reset = lake_reset,
    .step = lake_step,
    .observe = lake_observe,
    .saved_bytes = sizeof(int32_t),
    .save = lake_save,
    .load = lake_load,
};

const trp_env_impl frozen_lake_8x8_impl = {
    .spec =
        {
            .name = "FrozenLake8x8-v1",
            .observations = {{.name = "observation", .dtype = TRP_INT32}},
            .action_kind = TRP_ACTION_DISCRETE,
            .action_count = 4,
            .max_episode_steps = 200,
        },
    .state_bytes = sizeof(struct walker),
    .options = &large_table,
    .configure = lake_configure,
    .create = lake_create,
    .reset = lake_reset,
    .step = lake_step,
    .observe = lake_observe,
    .saved_bytes = sizeof(int32_t),
    .save = lake_save,
    .load = lake_load,
};
