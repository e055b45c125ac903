/* bsuite/deep_sea and bsuite/deep_sea_stochastic: a diver sinks one row a step through N rows of N
 * cells and moves left or right; a chest is at the bottom right, and nothing else pays. Ported from
 * bsuite's environments/deep_sea.py (Apache-2.0; see THIRD_PARTY_NOTICES). Which action is right
 * in a cell is drawn there by NumPy's RandomState(42).binomial(1, 0.5, [N, N]): the first N * N
 * bits of the same row of bits for every N, which is here. */
#include "builtin.h"

#include <string.h>

#include "bsuite.h"

enum { SIDE_MAX = 50 };

static const double move_cost = 0.01;

/* Four cells a digit, the first cell in the highest bit. */
static const char mapping[] =
    "71d8485a7215bf025678c39e8590fbc342d8322d746aa379cf993a7c2f92e5c9edf3ff8949a7e870ef10c06797"
    "5b04a7ce5b749e3c51964f34079577dcd0bdbec6b87f8d9fe384b744812800db3093c8079c3601539e8948571d"
    "9d1d435d9f17527c65dfb73788c80b51d42a4c8c4a3a4162a6b19c571f4942b894a74a7f1b6bb514dcbe9e4025"
    "9abc279a74fc229b7ff6973bbb655e8646694a2afce2140b84e40e35f5dc29b7438b59bb2952a8531bc314dd45"
    "abddd5af9ea103983f8d40d85ab7cb2aac72a7310579f352e3f5c18ed5e176d0392c960bd90e0a39421e95f5c8"
    "c63163dbf218debdc6fdf0cb9aa19caabf43c0fb2c153426b8250a5e3560ed8736437319b5edb465ee8f5e44c1"
    "d6a570fdc68d76ac12f8bd9f8ef47e02240e9360ee8c08ebea097a5e5c230ca30257a2f01a4f85f5658ae";

_Static_assert(sizeof mapping - 1 == SIDE_MAX * SIDE_MAX / 4, "a bit a cell");

struct sea_arguments {
    struct bsuite_arguments base;
    int32_t size;
    bool stochastic;
    uint8_t right[SIDE_MAX * SIDE_MAX]; /* the action that it is, of each cell */
};

struct diver {
    struct bsuite_copy copy;
    int32_t row, column, bad; /* bad: it has left the way to the chest */
};

enum { SAVED_BYTES = sizeof(struct diver) - BSUITE_SAVED_AT };

BSUITE_OPTIONS(deep_sea, struct sea_arguments, 20);
BSUITE_OPTIONS(deep_sea_stochastic, struct sea_arguments, 20);

static const struct sea_arguments *sea_of(const struct diver *diver)
{
    return (const void *)diver->copy.arguments;
}

static trp_status sea_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct sea_arguments *sea = arguments;
    TRP_TRY(bsuite_configure(arguments, user, spec));
    sea->size = bsuite_deep_sea_size(sea->base.setting);
    for (int32_t i = 0; i < sea->size * sea->size; i++) {
        int digit = mapping[i / 4] <= '9' ? mapping[i / 4] - '0' : mapping[i / 4] - 'a' + 10;
        sea->right[i] = digit >> (3 - i % 4) & 1;
    }
    spec->observations[0].shape[0] = spec->observations[0].shape[1] = sea->size;
    return TRP_OK;
}

static trp_status stochastic_configure(void *arguments, void *user, trp_env_spec *spec)
{
    ((struct sea_arguments *)arguments)->stochastic = true;
    return sea_configure(arguments, user, spec);
}

static trp_status sea_reset(void *state, trp_rng *rng)
{
    struct diver *s = state;
    (void)rng;
    s->row = s->column = s->bad = 0;
    return TRP_OK;
}

static trp_status sea_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    struct diver *s = state;
    const struct sea_arguments *sea = sea_of(s);
    bool right = *(const int32_t *)action == sea->right[s->row * sea->size + s->column];
    double reward = s->column == sea->size - 1 && right ? 1 : 0;
    bool bottom = s->row == sea->size - 1;
    if (sea->stochastic && bottom && (s->column == 0 || s->column == sea->size - 1))
        reward += trp_rng_normal(rng);
    if (right) {
        reward -= move_cost / sea->size;
        bool moves = !sea->stochastic || trp_rng_double(rng) > 1.0 / sea->size;
        s->column += moves && s->column < sea->size - 1;
    } else {
        s->bad |= s->row == s->column;
        s->column -= s->column > 0;
    }
    s->row++;
    outcome->reward = (float)reward;
    if (!bottom)
        return TRP_OK;
    bsuite_add(&s->copy, s->bad);
    bsuite_end(&s->copy, outcome);
    return TRP_OK;
}

static void sea_observe(const void *state, void *const *observations)
{
    const struct diver *s = state;
    int32_t size = sea_of(s)->size;
    float *cells = observations[0];
    memset(cells, 0, (size_t)(size * size) * sizeof *cells);
    if (s->row < size)
        cells[s->row * size + s->column] = 1;
}

static void sea_save(const void *state, void *saved)
{
    memcpy(saved, (const uint8_t *)state + BSUITE_SAVED_AT, SAVED_BYTES);
}

static trp_status sea_load(void *state, const void *saved)
{
    struct diver *s = state, loaded = *s;
    memcpy((uint8_t *)&loaded + BSUITE_SAVED_AT, saved, SAVED_BYTES);
    TRP_TRY(bsuite_check_count(&loaded.copy));
    bool inside = loaded.row >= 0 && loaded.row < sea_of(s)->size && loaded.column >= 0 &&
                  loaded.column <= loaded.row && (loaded.bad & ~1) == 0;
    if (!inside)
        return trp_fail(TRP_INVALID_ARGUMENT, "bsuite's deep sea: row %d, column %d, bad %d",
                        loaded.row, loaded.column, loaded.bad);
    *s = loaded;
    return TRP_OK;
}

#define DEEP_SEA(word, its_configure)                                                              \
    {                                                                                              \
        .spec = {.name = "bsuite/" #word,                                                          \
                 .observations =                                                                   \
                     {{.name = "observation", .dtype = TRP_FLOAT32, .rank = 2, .shape = {0, 0}}},  \
                 .action_kind = TRP_ACTION_DISCRETE,                                               \
                 .action_count = 2},                                                               \
        .state_bytes = sizeof(struct diver), .options = &word##_table, .configure = its_configure, \
        .create = bsuite_create, .reset = sea_reset, .step = sea_step, .observe = sea_observe,     \
        .finite = true, .saved_bytes = SAVED_BYTES, .save = sea_save, .load = sea_load,            \
    }

const trp_env_impl bsuite_deep_sea_impl = DEEP_SEA(deep_sea, sea_configure);
const trp_env_impl bsuite_deep_sea_stochastic_impl =
    DEEP_SEA(deep_sea_stochastic, stochastic_configure);
