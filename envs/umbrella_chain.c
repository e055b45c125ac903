/* bsuite/umbrella_length and bsuite/umbrella_distract: the first action decides whether an umbrella
 * is there at the end of a chain, when it is needed or not; rewards on the way, and all but three
 * numbers of an observation, are noise. Ported from bsuite's environments/umbrella_chain.py
 * (Apache-2.0; see THIRD_PARTY_NOTICES). */
#include "builtin.h"

#include <string.h>

#include "bsuite.h"

enum { DISTRACTORS_MAX = 100, LENGTH_DISTRACTORS = 20, DISTRACT_LENGTH = 20 };

struct umbrella_arguments {
    struct bsuite_arguments base;
    int32_t length, distractors;
};

struct umbrella {
    struct bsuite_copy copy;
    int32_t time, needed, has;
    uint8_t noise[DISTRACTORS_MAX]; /* of the observation */
};

enum { SAVED_BYTES = sizeof(struct umbrella) - BSUITE_SAVED_AT };

BSUITE_OPTIONS(umbrella_length, struct umbrella_arguments, 22);
BSUITE_OPTIONS(umbrella_distract, struct umbrella_arguments, 22);

static const struct umbrella_arguments *chain_of(const struct umbrella *umbrella)
{
    return (const void *)umbrella->copy.arguments;
}

static trp_status umbrella_length_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct umbrella_arguments *chain = arguments;
    TRP_TRY(bsuite_configure(arguments, user, spec));
    chain->length = bsuite_log_spaced(chain->base.setting);
    chain->distractors = LENGTH_DISTRACTORS;
    spec->observations[0].shape[1] = 3 + chain->distractors;
    return TRP_OK;
}

static trp_status umbrella_distract_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct umbrella_arguments *chain = arguments;
    TRP_TRY(bsuite_configure(arguments, user, spec));
    chain->length = DISTRACT_LENGTH;
    chain->distractors = bsuite_log_spaced(chain->base.setting);
    spec->observations[0].shape[1] = 3 + chain->distractors;
    return TRP_OK;
}

/* A generator's number is enough for 64 of them. */
static void draw_noise(struct umbrella *s, trp_rng *rng)
{
    uint64_t bits = 0;
    for (int32_t i = 0; i < chain_of(s)->distractors; i++) {
        if (i % 64 == 0)
            bits = trp_rng_u64(rng);
        s->noise[i] = bits >> (i % 64) & 1;
    }
}

static trp_status umbrella_reset(void *state, trp_rng *rng)
{
    struct umbrella *s = state;
    s->time = 0;
    s->needed = (int32_t)trp_rng_below(rng, 2);
    s->has = (int32_t)trp_rng_below(rng, 2);
    draw_noise(s, rng);
    return TRP_OK;
}

static trp_status umbrella_step(void *state, trp_rng *rng, const void *action,
                                trp_env_outcome *outcome)
{
    struct umbrella *s = state;
    if (s->time++ == 0)
        s->has = *(const int32_t *)action;
    draw_noise(s, rng);
    if (s->time < chain_of(s)->length) {
        outcome->reward = trp_rng_below(rng, 2) ? 1 : -1;
        return TRP_OK;
    }
    bool right = s->has == s->needed;
    outcome->reward = right ? 1 : -1;
    bsuite_add(&s->copy, right ? 0 : 2);
    bsuite_end(&s->copy, outcome);
    return TRP_OK;
}

static void umbrella_observe(const void *state, void *const *observations)
{
    const struct umbrella *s = state;
    const struct umbrella_arguments *chain = chain_of(s);
    float *row = observations[0];
    row[0] = (float)s->needed;
    row[1] = (float)s->has;
    row[2] = (float)(1 - (double)s->time / chain->length);
    for (int32_t i = 0; i < chain->distractors; i++)
        row[3 + i] = s->noise[i];
}

static void umbrella_save(const void *state, void *saved)
{
    memcpy(saved, (const uint8_t *)state + BSUITE_SAVED_AT, SAVED_BYTES);
}

static trp_status umbrella_load(void *state, const void *saved)
{
    struct umbrella *s = state, loaded = *s;
    const struct umbrella_arguments *chain = chain_of(s);
    memcpy((uint8_t *)&loaded + BSUITE_SAVED_AT, saved, SAVED_BYTES);
    TRP_TRY(bsuite_check_count(&loaded.copy));
    bool inside = loaded.time >= 0 && loaded.time < chain->length && (loaded.needed & ~1) == 0 &&
                  (loaded.has & ~1) == 0;
    for (int32_t i = 0; i < chain->distractors; i++)
        inside = inside && loaded.noise[i] <= 1;
    if (!inside)
        return trp_fail(TRP_INVALID_ARGUMENT, "bsuite's umbrella chain: time %d, needed %d, has %d",
                        loaded.time, loaded.needed, loaded.has);
    *s = loaded;
    return TRP_OK;
}

#define UMBRELLA(word)                                                                             \
    {                                                                                              \
        .spec = {.name = "bsuite/" #word,                                                          \
                 .observations =                                                                   \
                     {{.name = "observation", .dtype = TRP_FLOAT32, .rank = 2, .shape = {1, 0}}},  \
                 .action_kind = TRP_ACTION_DISCRETE,                                               \
                 .action_count = 2},                                                               \
        .state_bytes = sizeof(struct umbrella), .options = &word##_table,                          \
        .configure = word##_configure, .create = bsuite_create, .reset = umbrella_reset,           \
        .step = umbrella_step, .observe = umbrella_observe, .finite = true,                        \
        .saved_bytes = SAVED_BYTES, .save = umbrella_save, .load = umbrella_load,                  \
    }

const trp_env_impl bsuite_umbrella_length_impl = UMBRELLA(umbrella_length);
const trp_env_impl bsuite_umbrella_distract_impl = UMBRELLA(umbrella_distract);
