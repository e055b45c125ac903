/* bsuite/memory_len and bsuite/memory_size: bits are seen at the first step, and at the end which
 * of them is asked for; the last action must repeat it. Ported from bsuite's
 * environments/memory_chain.py (Apache-2.0; see THIRD_PARTY_NOTICES). As there, the observation
 * behind a step is made before the clock moves, so that the first one is seen twice and the
 * question one step before the answer. */
#include "builtin.h"

#include <string.h>

#include "bsuite.h"

enum { BITS_MAX = 40, SIZE_LENGTH = 2 };

struct memory_arguments {
    struct bsuite_arguments base;
    int32_t length, bits;
};

struct memory {
    struct bsuite_copy copy;
    int32_t time, seen; /* the clock, and what it said when the observation was made */
    int32_t query;
    uint8_t context[BITS_MAX];
};

enum { SAVED_BYTES = sizeof(struct memory) - BSUITE_SAVED_AT };

BSUITE_OPTIONS(memory_len, struct memory_arguments, 22);
BSUITE_OPTIONS(memory_size, struct memory_arguments, 16);

static const struct memory_arguments *task_of(const struct memory *memory)
{
    return (const void *)memory->copy.arguments;
}

static trp_status memory_len_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct memory_arguments *task = arguments;
    TRP_TRY(bsuite_configure(arguments, user, spec));
    task->length = bsuite_log_spaced(task->base.setting);
    task->bits = 1;
    spec->observations[0].shape[1] = task->bits + 2;
    return TRP_OK;
}

static trp_status memory_size_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct memory_arguments *task = arguments;
    TRP_TRY(bsuite_configure(arguments, user, spec));
    task->length = SIZE_LENGTH;
    task->bits = bsuite_log_spaced(task->base.setting);
    spec->observations[0].shape[1] = task->bits + 2;
    return TRP_OK;
}

static trp_status memory_reset(void *state, trp_rng *rng)
{
    struct memory *s = state;
    const struct memory_arguments *task = task_of(s);
    s->time = s->seen = 0;
    for (int32_t i = 0; i < task->bits; i++)
        s->context[i] = (uint8_t)trp_rng_below(rng, 2);
    s->query = (int32_t)trp_rng_below(rng, (uint64_t)task->bits);
    return TRP_OK;
}

static trp_status memory_step(void *state, trp_rng *rng, const void *action,
                              trp_env_outcome *outcome)
{
    (void)rng;
    struct memory *s = state;
    s->seen = s->time++;
    if (s->seen < task_of(s)->length)
        return TRP_OK;
    bool perfect = *(const int32_t *)action == s->context[s->query];
    outcome->reward = perfect ? 1 : -1;
    bsuite_add(&s->copy, perfect);
    bsuite_end(&s->copy, outcome);
    return TRP_OK;
}

static void memory_observe(const void *state, void *const *observations)
{
    const struct memory *s = state;
    const struct memory_arguments *task = task_of(s);
    float *row = observations[0];
    row[0] = (float)(1 - (double)s->seen / task->length);
    row[1] = s->seen == task->length - 1 ? (float)s->query : 0;
    for (int32_t i = 0; i < task->bits; i++)
        row[2 + i] = s->seen == 0 ? (float)(2 * s->context[i] - 1) : 0;
}

static void memory_save(const void *state, void *saved)
{
    memcpy(saved, (const uint8_t *)state + BSUITE_SAVED_AT, SAVED_BYTES);
}

static trp_status memory_load(void *state, const void *saved)
{
    struct memory *s = state, loaded = *s;
    const struct memory_arguments *task = task_of(s);
    memcpy((uint8_t *)&loaded + BSUITE_SAVED_AT, saved, SAVED_BYTES);
    TRP_TRY(bsuite_check_count(&loaded.copy));
    bool inside = loaded.time >= 0 && loaded.time <= task->length && loaded.query >= 0 &&
                  loaded.query < task->bits &&
                  loaded.seen == (loaded.time > 0 ? loaded.time - 1 : 0);
    for (int32_t i = 0; i < task->bits; i++)
        inside = inside && loaded.context[i] <= 1;
    if (!inside)
        return trp_fail(TRP_INVALID_ARGUMENT, "bsuite's memory chain: time %d, seen %d, query %d",
                        loaded.time, loaded.seen, loaded.query);
    *s = loaded;
    return TRP_OK;
}

#define MEMORY(word)                                                                               \
    {                                                                                              \
        .spec = {.name = "bsuite/" #word,                                                          \
                 .observations =                                                                   \
                     {{.name = "observation", .dtype = TRP_FLOAT32, .rank = 2, .shape = {1, 0}}},  \
                 .action_kind = TRP_ACTION_DISCRETE,                                               \
                 .action_count = 2},                                                               \
        .state_bytes = sizeof(struct memory), .options = &word##_table,                            \
        .configure = word##_configure, .create = bsuite_create, .reset = memory_reset,             \
        .step = memory_step, .observe = memory_observe, .finite = true,                            \
        .saved_bytes = SAVED_BYTES, .save = memory_save, .load = memory_load,                      \
    }

const trp_env_impl bsuite_memory_len_impl = MEMORY(memory_len);
const trp_env_impl bsuite_memory_size_impl = MEMORY(memory_size);
