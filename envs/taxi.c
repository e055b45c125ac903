/* Taxi-v4 (Dietterich 2000): fetch a passenger at one of four places and bring it to another. A
 * step is -1, to set it down at its destination 20 and the end, to take or set it down elsewhere
 * -10. Ported from Gymnasium's toy_text/taxi.py (MIT; see THIRD_PARTY_NOTICES), with its arguments
 * for rain (moves go aside) and fickle passengers (who once change their destination). An
 * observation is ((row * 5 + column) * 5 + passenger) * 4 + destination, where passenger 4 is in
 * the taxi; actions are south, north, east, west, take, set down. With action_mask=true only what
 * changes the state is allowed, which Gymnasium tells in its info. */
#include "builtin.h"

#include <string.h>

#include "tabular.h"

enum { SOUTH, NORTH, EAST, WEST, TAKE, SET_DOWN };
enum { SIDE = 5, PLACES = 4, ABOARD = PLACES, STATES = SIDE * SIDE * (PLACES + 1) * PLACES };

struct taxi_args {
    bool is_rainy, fickle_passenger, action_mask;
    double rainy_probability, fickle_probability;
    double drift[3]; /* set by configure */
};

struct taxi {
    const struct taxi_args *args;
    int32_t row, column, passenger, destination;
    int32_t fickle; /* the passenger has yet to change its mind */
};

struct taxi_saved {
    int32_t observation, fickle;
};

#define ARG(member) TRP_OPTION(struct taxi_args, member)
static const trp_option taxi_rows[] = {
    {ARG(is_rainy), .help = "moves may go aside"},
    {ARG(fickle_passenger), .help = "may change their destination once"},
    {ARG(action_mask), .help = "only what changes the state is allowed"},
    {ARG(rainy_probability), .fallback = "0.8", .min = 0, .max = 1, .help = "of a move ahead"},
    {ARG(fickle_probability), .fallback = "0.3", .min = 0, .max = 1, .help = "of a change"},
};
static const trp_option_table taxi_table = TRP_OPTION_TABLE("Taxi-v4", taxi_rows, struct taxi_args);

static const int32_t places[PLACES][2] = {{0, 0}, {0, 4}, {4, 0}, {4, 3}};
/* Whether there is a way between column c and c + 1 of a row. */
static const bool way[SIDE][SIDE - 1] = {
    {1, 0, 1, 1}, {1, 0, 1, 1}, {1, 1, 1, 1}, {0, 1, 0, 1}, {0, 1, 0, 1},
};

static trp_status taxi_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct taxi_args *args = arguments;
    (void)user;
    args->drift[0] = args->rainy_probability;
    args->drift[1] = args->drift[2] = (1.0 - args->rainy_probability) / 2.0;
    spec->masked = args->action_mask;
    return TRP_OK;
}

static trp_status taxi_create(void *state, const void *arguments, void *user)
{
    (void)user;
    ((struct taxi *)state)->args = arguments;
    return TRP_OK;
}

static trp_status taxi_reset(void *state, trp_rng *rng)
{
    struct taxi *s = state;
    s->row = (int32_t)trp_rng_below(rng, SIDE);
    s->column = (int32_t)trp_rng_below(rng, SIDE);
    s->passenger = (int32_t)trp_rng_below(rng, PLACES);
    s->destination = (s->passenger + 1 + (int32_t)trp_rng_below(rng, PLACES - 1)) % PLACES;
    s->fickle = s->args->fickle_passenger && trp_rng_double(rng) < s->args->fickle_probability;
    return TRP_OK;
}

static bool taxi_can_move(const struct taxi *s, int32_t direction)
{
    switch (direction) {
    case SOUTH:
        return s->row < SIDE - 1;
    case NORTH:
        return s->row > 0;
    case EAST:
        return s->column < SIDE - 1 && way[s->row][s->column];
    default:
        return s->column > 0 && way[s->row][s->column - 1];
    }
}

/* In rain, a move that is possible may go to its left or right instead, or nowhere where that is
 * not. */
static void taxi_move(struct taxi *s, trp_rng *rng, int32_t direction)
{
    static const int32_t left[] = {EAST, WEST, NORTH, SOUTH}, right[] = {WEST, EAST, SOUTH, NORTH};
    if (!taxi_can_move(s, direction))
        return;
    int32_t drawn = s->args->is_rainy ? tabular_draw(rng, s->args->drift) : 0;
    if (drawn > 0) {
        direction = drawn == 1 ? left[direction] : right[direction];
        if (!taxi_can_move(s, direction))
            return;
    }
    s->row = tabular_clamp(s->row + (direction == SOUTH) - (direction == NORTH), SIDE);
    s->column = tabular_clamp(s->column + (direction == EAST) - (direction == WEST), SIDE);
}

static bool taxi_is_at(const struct taxi *s, int32_t place)
{
    return s->row == places[place][0] && s->column == places[place][1];
}

/* The place where it is; PLACES: at none. */
static int32_t taxi_place(const struct taxi *s)
{
    int32_t place = 0;
    while (place < PLACES && !taxi_is_at(s, place))
        place++;
    return place;
}

static void taxi_set_down(struct taxi *s, trp_env_outcome *outcome)
{
    int32_t place = taxi_place(s);
    outcome->reward = -10;
    if (s->passenger != ABOARD || place == PLACES)
        return;
    s->passenger = place;
    outcome->terminated = place == s->destination;
    outcome->reward = outcome->terminated ? 20 : -1;
}

/* The first move with a fickle passenger changes where it wants to go. */
static void taxi_change_mind(struct taxi *s, trp_rng *rng)
{
    s->fickle = false;
    s->destination = (s->destination + 1 + (int32_t)trp_rng_below(rng, PLACES - 1)) % PLACES;
}

static trp_status taxi_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    struct taxi *s = state;
    int32_t choice = *(const int32_t *)action, row = s->row, column = s->column;
    outcome->reward = -1;
    if (choice < TAKE) {
        taxi_move(s, rng, choice);
        if (s->fickle && s->passenger == ABOARD && (s->row != row || s->column != column))
            taxi_change_mind(s, rng);
    } else if (choice == SET_DOWN) {
        taxi_set_down(s, outcome);
    } else if (s->passenger < ABOARD && taxi_is_at(s, s->passenger)) {
        s->passenger = ABOARD;
    } else {
        outcome->reward = -10;
    }
    return TRP_OK;
}

static int32_t taxi_number(const struct taxi *s)
{
    return ((s->row * SIDE + s->column) * (PLACES + 1) + s->passenger) * PLACES + s->destination;
}

static void taxi_observe(const void *state, void *const *observations)
{
    *(int32_t *)observations[0] = taxi_number(state);
}

static void taxi_mask(const void *state, bool *allowed)
{
    const struct taxi *s = state;
    for (int32_t direction = SOUTH; direction <= WEST; direction++)
        allowed[direction] = taxi_can_move(s, direction);
    allowed[TAKE] = s->passenger < ABOARD && taxi_is_at(s, s->passenger);
    allowed[SET_DOWN] = s->passenger == ABOARD && taxi_place(s) < PLACES;
}

static void taxi_save(const void *state, void *saved)
{
    const struct taxi *s = state;
    struct taxi_saved numbers = {taxi_number(s), s->fickle};
    memcpy(saved, &numbers, sizeof numbers);
}

static trp_status taxi_load(void *state, const void *saved)
{
    struct taxi *s = state;
    struct taxi_saved from;
    memcpy(&from, saved, sizeof from);
    if (from.observation < 0 || from.observation >= STATES || (from.fickle & ~1))
        return trp_fail(TRP_INVALID_ARGUMENT, "Taxi-v4: state %d, fickle %d", from.observation,
                        from.fickle);
    s->destination = from.observation % PLACES;
    s->passenger = from.observation / PLACES % (PLACES + 1);
    s->column = from.observation / (PLACES * (PLACES + 1)) % SIDE;
    s->row = from.observation / (PLACES * (PLACES + 1) * SIDE);
    s->fickle = from.fickle;
    return TRP_OK;
}

const trp_env_impl taxi_impl = {
    .spec =
        {
            .name = "Taxi-v4",
            .observations = {{.name = "observation", .dtype = TRP_INT32}},
            .action_kind = TRP_ACTION_DISCRETE,
            .action_count = 6,
            .max_episode_steps = 200,
        },
    .state_bytes = sizeof(struct taxi),
    .options = &taxi_table,
    .configure = taxi_configure,
    .create = taxi_create,
    .reset = taxi_reset,
    .step = taxi_step,
    .observe = taxi_observe,
    .mask = taxi_mask,
    .saved_bytes = sizeof(struct taxi_saved),
    .save = taxi_save,
    .load = taxi_load,
};
