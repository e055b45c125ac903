/* What all environments have in common, so that one of them is only its rules: copies side by side
 * in one block of memory, a generator and a step count for each, checks of actions, the time
 * limit, and the automatic reset that keeps the last observation of an episode apart from the
 * first of the next one. A step of all copies is one pass, allocates nothing, and costs two
 * indirect calls a copy.
 *
 * What an environment says is checked here, where it can still be named: a reward that is no number
 * would otherwise show up as a loss, a return or a stored item that nobody can explain. */
#include <troupe/env.h>

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "class.h"
#include "core/alloc.h"
#include "limits.h"
#include "wrapper.h"

enum { STATE_ALIGNMENT = 16 };

struct trp_env {
    const struct env_class *class;
    const trp_env_impl *impl; /* the class's */
    uint32_t count;
    uint32_t created;  /* copies whose create() was called */
    uint32_t unset;    /* copies that are in no episode yet */
    bool failed;       /* only a reset helps */
    int64_t max_steps; /* INT64_MAX: no limit */
    size_t state_stride, action_bytes;
    size_t observation_count, observation_bytes[TRP_OBSERVATIONS_MAX];
    size_t info_count;
    uint8_t *states;
    trp_rng *rngs;
    int64_t *steps; /* of the running episodes */
    bool *set;
    double *infos;             /* info_count a copy; NULL: there are none */
    trp_env_outcome *outcomes; /* of step_all; NULL: copies are stepped one by one */
    bool *allowed;             /* of one copy; NULL: everything always is */
    struct statistics statistics;
};

static void *env_state(const trp_env *env, uint32_t index)
{
    return env->states + index * env->state_stride;
}

size_t trp_env_observation_count(const trp_env_spec *spec)
{
    size_t count = 0;
    while (count < TRP_OBSERVATIONS_MAX && spec->observations[count].dtype)
        count++;
    return count;
}

size_t trp_env_info_count(const trp_env_spec *spec)
{
    size_t count = 0;
    while (count < TRP_INFOS_MAX && spec->infos[count].name)
        count++;
    return count;
}

trp_tensor_spec trp_env_action_spec(const trp_env_spec *spec)
{
    static const trp_dtype dtypes[] = {[TRP_ACTION_DISCRETE] = TRP_INT32,
                                       [TRP_ACTION_BOX] = TRP_FLOAT32,
                                       [TRP_ACTION_MULTI_DISCRETE] = TRP_INT32,
                                       [TRP_ACTION_MULTI_BINARY] = TRP_UINT8};
    trp_tensor_spec action = {.name = "action", .dtype = dtypes[spec->action_kind]};
    if (spec->action_kind == TRP_ACTION_DISCRETE)
        return action;
    action.rank = 1;
    action.shape[0] = spec->action_count;
    return action;
}

static int64_t step_limit(const trp_env_spec *spec, int64_t option)
{
    int64_t limit = option ? option : spec->max_episode_steps;
    return limit > 0 ? limit : INT64_MAX;
}

static trp_status env_create_states(trp_env *env, uint64_t seed)
{
    const trp_env_impl *impl = env->impl;
    size_t stride = (impl->state_bytes + STATE_ALIGNMENT - 1) / STATE_ALIGNMENT * STATE_ALIGNMENT;
    size_t bytes;
    if (!size_mul(stride, env->count, &bytes))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %u copies overflow", impl->spec.name,
                        env->count);
    env->state_stride = stride;
    env->states = aligned_alloc(STATE_ALIGNMENT, bytes ? bytes : STATE_ALIGNMENT);
    if (!env->states)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: no memory for %u copies of %zu bytes",
                        impl->spec.name, env->count, stride);
    memset(env->states, 0, bytes);
    for (uint32_t i = 0; i < env->count; i++)
        trp_rng_init(&env->rngs[i], seed, i);
    for (uint32_t i = 0; impl->create && i < env->count; i++) {
        env->created++;
        TRP_TRY(impl->create(env_state(env, i), env->class->arguments, impl->user));
        wrapper_bind(env->class, env_state(env, i), &env->statistics);
    }
    return TRP_OK;
}

static void env_prepare(trp_env *env)
{
    const trp_env_spec *spec = &env->impl->spec;
    env->observation_count = trp_env_observation_count(spec);
    for (size_t i = 0; i < env->observation_count; i++)
        env->observation_bytes[i] = trp_tensor_bytes(&spec->observations[i]);
    trp_tensor_spec action = trp_env_action_spec(spec);
    env->action_bytes = trp_tensor_bytes(&action);
    env->rngs = xcalloc(env->count, sizeof *env->rngs);
    env->steps = xcalloc(env->count, sizeof *env->steps);
    env->set = xcalloc(env->count, sizeof *env->set);
    env->info_count = trp_env_info_count(spec);
    if (env->info_count > 0)
        env->infos = xcalloc(env->count, env->info_count * sizeof *env->infos);
    if (env->impl->step_all)
        env->outcomes = xcalloc(env->count, sizeof *env->outcomes);
    if (env->impl->mask)
        env->allowed = xcalloc((size_t)spec->action_count, sizeof *env->allowed);
    env->statistics.seen = xcalloc(env->class->statistics + 1, sizeof(trp_moments));
    env->statistics.used = env->statistics.seen;
}

trp_status trp_env_create(trp_env **out, const char *name, const trp_env_options *options)
{
    const struct env_class *class;
    *out = NULL;
    TRP_TRY(env_class_find(name, &class));
    trp_env_options chosen = options ? *options : (trp_env_options){0};
    if (chosen.count > ENV_COPIES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %u copies, at most %d", name, chosen.count,
                        ENV_COPIES_MAX);
    trp_env *env = xcalloc(1, sizeof *env);
    env->class = class;
    env->impl = &class->impl;
    env->count = chosen.count ? chosen.count : 1;
    env->unset = env->count;
    env->max_steps = step_limit(&class->impl.spec, chosen.max_episode_steps);
    env_prepare(env);
    env->statistics.read_only = chosen.read_only;
    trp_status status = env_create_states(env, chosen.seed);
    if (status == TRP_OK)
        *out = env;
    else
        trp_env_destroy(env);
    return status;
}

void trp_env_destroy(trp_env *env)
{
    if (!env)
        return;
    for (uint32_t i = 0; env->impl->destroy && i < env->created; i++)
        env->impl->destroy(env_state(env, i));
    free(env->states);
    free(env->rngs);
    free(env->steps);
    free(env->set);
    free(env->infos);
    free(env->outcomes);
    free(env->allowed);
    free(env->statistics.seen);
    free(env->statistics.published);
    free(env);
}

const trp_env_spec *trp_env_get_spec(const trp_env *env)
{
    return &env->impl->spec;
}

uint32_t trp_env_count(const trp_env *env)
{
    return env->count;
}

size_t trp_env_action_bytes(const trp_env *env)
{
    return env->action_bytes;
}

void trp_env_seed(trp_env *env, uint32_t index, uint64_t seed)
{
    assert(index < env->count);
    trp_rng_init(&env->rngs[index], seed, 0);
}

/* ---- statistics -------------------------------------------------------------------------- */

size_t trp_env_statistics_count(const trp_env *env)
{
    return env->class->statistics;
}

const trp_moments *trp_env_statistics(const trp_env *env)
{
    return env->statistics.seen;
}

trp_status trp_env_use_statistics(trp_env *env, const trp_moments *moments, size_t count)
{
    struct statistics *statistics = &env->statistics;
    if (count != env->class->statistics)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "%s: its wrappers normalise %zu numbers, but statistics of %zu came: "
                        "whoever acts on the same parameters needs the same normalising wrappers",
                        env->impl->spec.name, env->class->statistics, count);
    TRP_TRY(trp_moments_check(moments, count));
    if (!statistics->published)
        statistics->published = xcalloc(count + 1, sizeof *moments);
    if (count > 0)
        memcpy(statistics->published, moments, count * sizeof *moments);
    statistics->used = statistics->published;
    return TRP_OK;
}

/* ---- stepping ---------------------------------------------------------------------------- */

/* An exponent of all ones is an infinity or NaN: one more overflows into the sign's bit. */
static bool all_finite(const float *numbers, size_t count)
{
    typedef uint32_t lanes __attribute__((vector_size(16)));
    enum { LANES = sizeof(lanes) / sizeof(float) };
    lanes bad = {0}, bad2 = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        lanes bits, bits2;
        memcpy(&bits, numbers + i, sizeof bits);
        memcpy(&bits2, numbers + i + LANES, sizeof bits2);
        bad |= (bits & 0x7f800000) + 0x00800000;
        bad2 |= (bits2 & 0x7f800000) + 0x00800000;
    }
    for (; i < count; i++)
        bad[0] |= isfinite(numbers[i]) ? 0 : UINT32_C(1) << 31;
    bad |= bad2;
    return ((bad[0] | bad[1] | bad[2] | bad[3]) >> 31) == 0;
}

/* `rows` of tensor `tensor`, the first of them that of copy `index`. */
static trp_status check_tensor(const trp_env *env, size_t tensor, uint32_t index, uint32_t count,
                               const void *rows)
{
    const trp_tensor_spec *spec = &env->impl->spec.observations[tensor];
    const float *numbers = rows;
    size_t width = env->observation_bytes[tensor] / sizeof(float), bad = 0;
    if (spec->dtype != TRP_FLOAT32 || all_finite(numbers, count * width))
        return TRP_OK;
    while (isfinite(numbers[bad]))
        bad++;
    index += (uint32_t)(bad / width);
    bool named = env->observation_count > 1;
    return trp_fail(TRP_OUT_OF_RANGE,
                    "%s: number %zu of the observation%s%s of copy %u is %g, at step %" PRId64
                    " of its episode",
                    env->impl->spec.name, bad % width, named ? " " : "", named ? spec->name : "",
                    index, (double)numbers[bad], env->steps[index]);
}

/* Refuses observations with numbers that are none; the first row is that of copy `index`. */
static trp_status env_check_rows(const trp_env *env, uint32_t index, uint32_t count,
                                 void *const *rows)
{
    for (size_t i = 0; !env->impl->finite && i < env->observation_count; i++)
        TRP_TRY(check_tensor(env, i, index, count, rows[i]));
    return TRP_OK;
}

/* The row of one copy in each of `buffers`. */
static void env_rows(const trp_env *env, uint32_t index, void *const *buffers,
                     void *rows[TRP_OBSERVATIONS_MAX])
{
    for (size_t i = 0; i < env->observation_count; i++)
        rows[i] = (uint8_t *)buffers[i] + index * env->observation_bytes[i];
}

static trp_status env_refuse_outcome(const trp_env *env, uint32_t index,
                                     const trp_env_outcome *outcome)
{
    bool reward = !isfinite(outcome->reward);
    return trp_fail(TRP_OUT_OF_RANGE,
                    "%s: the %s of copy %u is %g at step %" PRId64 " of its episode: %s",
                    env->impl->spec.name, reward ? "reward" : "discount", index,
                    (double)(reward ? outcome->reward : outcome->discount), env->steps[index],
                    reward ? "not a finite number" : "outside of its range [0, 1]");
}

static void env_mark_set(trp_env *env, uint32_t index)
{
    env->unset -= !env->set[index];
    env->set[index] = true;
}

static trp_status env_reset_copy(trp_env *env, uint32_t index, void *const *observations)
{
    void *rows[TRP_OBSERVATIONS_MAX];
    env->steps[index] = 0;
    TRP_TRY(env->impl->reset(env_state(env, index), &env->rngs[index]));
    env_rows(env, index, observations, rows);
    env->impl->observe(env_state(env, index), rows);
    return TRP_OK;
}

trp_status trp_env_reset(trp_env *env, void *const *observations)
{
    env->failed = true;
    for (uint32_t i = 0; i < env->count; i++) {
        TRP_TRY(env_reset_copy(env, i, observations));
        env_mark_set(env, i);
    }
    TRP_TRY(env_check_rows(env, 0, env->count, observations));
    env->failed = false;
    return TRP_OK;
}

static void read_mask(const trp_env *env, uint32_t index, bool *allowed)
{
    memset(allowed, false, (size_t)env->impl->spec.action_count * sizeof *allowed);
    env->impl->mask(env_state(env, index), allowed);
}

/* What a copy may do next, which must be something. */
static trp_status next_mask(const trp_env *env, uint32_t index, bool *allowed)
{
    read_mask(env, index, allowed);
    if (memchr(allowed, true, (size_t)env->impl->spec.action_count * sizeof *allowed))
        return TRP_OK;
    return trp_fail(TRP_FAILED_PRECONDITION,
                    "%s: copy %u may do nothing at step %" PRId64 " of its episode",
                    env->impl->spec.name, index, env->steps[index]);
}

/* Unsigned, so that what is less than 0 is far above. */
static bool all_below(const int32_t *numbers, size_t count, uint32_t limit)
{
    typedef uint32_t lanes __attribute__((vector_size(16)));
    enum { LANES = sizeof(lanes) / sizeof(uint32_t) };
    lanes bad = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        lanes four;
        memcpy(&four, numbers + i, sizeof four);
        bad |= (lanes)(four >= limit);
    }
    for (; i < count; i++)
        bad[0] |= (uint32_t)numbers[i] >= limit;
    return (bad[0] | bad[1] | bad[2] | bad[3]) == 0;
}

static trp_status check_choices(const trp_env *env, const int32_t *actions)
{
    uint32_t choices = (uint32_t)env->impl->spec.action_count, i = 0;
    if (!all_below(actions, env->count, choices)) {
        while ((uint32_t)actions[i] < choices)
            i++;
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: action %d of copy %u; there are 0 to %u",
                        env->impl->spec.name, actions[i], i, choices - 1);
    }
    for (i = 0; env->allowed && i < env->count; i++) {
        read_mask(env, i, env->allowed);
        if (!env->allowed[actions[i]])
            return trp_fail(TRP_INVALID_ARGUMENT, "%s: action %d of copy %u is not allowed now",
                            env->impl->spec.name, actions[i], i);
    }
    return TRP_OK;
}

static trp_status check_numbers(const trp_env *env, const float *actions)
{
    uint32_t dimensions = (uint32_t)env->impl->spec.action_count;
    for (uint32_t i = 0; i < env->count; i++) {
        for (uint32_t j = 0; j < dimensions; j++) {
            if (isnan(actions[(size_t)i * dimensions + j]))
                return trp_fail(TRP_INVALID_ARGUMENT, "%s: number %u of copy %u's action is NaN",
                                env->impl->spec.name, j, i);
        }
    }
    return TRP_OK;
}

static trp_status refuse_dimension(const trp_env *env, size_t at, int32_t value, int32_t largest)
{
    size_t dimensions = (size_t)env->impl->spec.action_count;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "%s: number %zu of copy %zu's action is %d, must be 0 to %d",
                    env->impl->spec.name, at % dimensions, at / dimensions, value, largest);
}

static trp_status check_choice_rows(const trp_env *env, const int32_t *actions)
{
    const trp_env_spec *spec = &env->impl->spec;
    size_t dimensions = (size_t)spec->action_count;
    for (size_t i = 0; i < env->count * dimensions; i++) {
        int32_t choices = spec->action_choices[i % dimensions];
        if (actions[i] < 0 || actions[i] >= choices)
            return refuse_dimension(env, i, actions[i], choices - 1);
    }
    return TRP_OK;
}

static trp_status check_bits(const trp_env *env, const uint8_t *actions)
{
    for (size_t i = 0; i < env->count * env->action_bytes; i++)
        if (actions[i] > 1)
            return refuse_dimension(env, i, actions[i], 1);
    return TRP_OK;
}

static trp_status env_check_step(const trp_env *env, const void *actions)
{
    if (env->failed || env->unset > 0)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s: a reset must come before a step%s",
                        env->impl->spec.name, env->failed ? " after a failure" : "");
    switch (env->impl->spec.action_kind) {
    case TRP_ACTION_DISCRETE:
        return check_choices(env, actions);
    case TRP_ACTION_BOX:
        return check_numbers(env, actions);
    case TRP_ACTION_MULTI_DISCRETE:
        return check_choice_rows(env, actions);
    case TRP_ACTION_MULTI_BINARY:
        break;
    }
    return check_bits(env, actions);
}

trp_status trp_env_masks(const trp_env *env, bool *masks)
{
    size_t choices = (size_t)env->impl->spec.action_count;
    for (uint32_t i = 0; i < env->count; i++)
        TRP_TRY(next_mask(env, i, masks + i * choices));
    return TRP_OK;
}

const double *trp_env_infos(const trp_env *env)
{
    return env->infos;
}

/* Whoever bootstraps from a final observation asks what could be done there. */
static trp_status final_mask(const trp_env *env, uint32_t index, bool terminated, bool *masks)
{
    size_t choices = (size_t)env->impl->spec.action_count;
    bool *allowed = masks + index * choices;
    if (!terminated)
        return next_mask(env, index, allowed);
    memset(allowed, true, choices * sizeof *allowed);
    return TRP_OK;
}

/* The copy's episode is over: its last observation, then the first of the next one. */
static trp_status env_turn_over(trp_env *env, uint32_t index, const trp_env_buffers *buffers)
{
    if (buffers->final_masks && env->impl->mask)
        TRP_TRY(final_mask(env, index, buffers->terminated[index], buffers->final_masks));
    if (buffers->final_observations) {
        void *rows[TRP_OBSERVATIONS_MAX];
        env_rows(env, index, buffers->final_observations, rows);
        env->impl->observe(env_state(env, index), rows);
        TRP_TRY(env_check_rows(env, index, 1, rows));
    }
    return env_reset_copy(env, index, buffers->observations);
}

static trp_env_outcome outcome_before(const trp_env *env, uint32_t index)
{
    return (trp_env_outcome){.discount = 1,
                             .infos = env->infos ? env->infos + index * env->info_count : NULL};
}

/* What a step brought to one copy; its observations go to `rows`. What is rare, an end or a
 * discount, costs the others nothing: `discounts` are all 1 before. */
static inline trp_status take_outcome(trp_env *env, uint32_t index, const trp_env_outcome *outcome,
                                      const trp_env_buffers *to, void *state, void *const *rows)
{
    bool terminated = outcome->terminated;
    bool truncated = ++env->steps[index] >= env->max_steps || outcome->truncated;
    if (!(fabsf(outcome->reward) <= FLT_MAX))
        return env_refuse_outcome(env, index, outcome);
    to->rewards[index] = outcome->reward;
    to->terminated[index] = terminated;
    to->truncated[index] = truncated;
    if (outcome->discount != 1) {
        if (!(outcome->discount >= 0 && outcome->discount <= 1))
            return env_refuse_outcome(env, index, outcome);
        if (to->discounts)
            to->discounts[index] = outcome->discount;
    }
    if (terminated || truncated) {
        if (terminated && to->discounts)
            to->discounts[index] = 0;
        return env_turn_over(env, index, to);
    }
    env->impl->observe(state, rows);
    return TRP_OK;
}

static inline void next_rows(const trp_env *env, void **rows)
{
    rows[0] = (uint8_t *)rows[0] + env->observation_bytes[0];
    for (size_t i = 1; i < env->observation_count; i++)
        rows[i] = (uint8_t *)rows[i] + env->observation_bytes[i];
}

static trp_status env_step_all(trp_env *env, const void *actions)
{
    for (uint32_t i = 0; i < env->count; i++)
        env->outcomes[i] = outcome_before(env, i);
    return env->impl->step_all(&(trp_env_steps){.count = env->count,
                                                .states = env->states,
                                                .stride = env->state_stride,
                                                .rngs = env->rngs,
                                                .actions = actions,
                                                .outcomes = env->outcomes});
}

/* Copy after copy, unless all moved at once: what one did is still in the cache when it is
 * observed. */
static trp_status env_step_copies(trp_env *env, const uint8_t *action, const trp_env_buffers *to,
                                  void **rows)
{
    uint8_t *state = env->states;
    trp_env_outcome single = {.infos = env->infos}, *outcome = &single;
    for (uint32_t i = 0; i < env->count; i++) {
        if (env->outcomes) {
            outcome = &env->outcomes[i];
        } else {
            single.reward = 0;
            single.discount = 1;
            single.terminated = single.truncated = false;
            if (single.infos)
                single.infos = env->infos + i * env->info_count;
            TRP_TRY(env->impl->step(state, &env->rngs[i], action, &single));
        }
        TRP_TRY(take_outcome(env, i, outcome, to, state, rows));
        next_rows(env, rows);
        action += env->action_bytes;
        state += env->state_stride;
    }
    return TRP_OK;
}

trp_status trp_env_step(trp_env *env, const void *actions, const trp_env_buffers *buffers)
{
    TRP_TRY(env_check_step(env, actions));
    void *rows[TRP_OBSERVATIONS_MAX];
    env_rows(env, 0, buffers->observations, rows);
    env->failed = true; /* until every copy has moved */
    if (env->infos) /* bytes of ones are a NaN, and all of a row's are quicker than one by one */
        memset(env->infos, 0xff, env->count * env->info_count * sizeof *env->infos);
    for (uint32_t i = 0; buffers->discounts && i < env->count; i++)
        buffers->discounts[i] = 1;
    if (env->outcomes)
        TRP_TRY(env_step_all(env, actions));
    TRP_TRY(env_step_copies(env, actions, buffers, rows));
    TRP_TRY(env_check_rows(env, 0, env->count, buffers->observations));
    env->failed = false;
    return TRP_OK;
}

/* ---- state ------------------------------------------------------------------------------- */

size_t trp_env_state_bytes(const trp_env *env)
{
    return env_class_saved_bytes(env->class);
}

static trp_status check_state_exchange(const trp_env *env)
{
    if (trp_env_state_bytes(env) == 0)
        return trp_fail(TRP_UNIMPLEMENTED, "%s: states cannot be saved or loaded",
                        env->impl->spec.name);
    return TRP_OK;
}

trp_status trp_env_get_state(const trp_env *env, uint32_t index, trp_env_progress *progress,
                             void *state)
{
    assert(index < env->count);
    TRP_TRY(check_state_exchange(env));
    if (!env->set[index])
        return trp_fail(TRP_FAILED_PRECONDITION, "%s: copy %u has not been reset yet",
                        env->impl->spec.name, index);
    if (progress)
        *progress = (trp_env_progress){.rng = env->rngs[index], .steps = env->steps[index]};
    env_class_save(env->class, env_state(env, index), state);
    return TRP_OK;
}

trp_status trp_env_set_state(trp_env *env, uint32_t index, const trp_env_progress *progress,
                             const void *state, void *const *observations)
{
    assert(index < env->count);
    TRP_TRY(check_state_exchange(env));
    if (progress && (progress->steps < 0 || progress->steps >= env->max_steps))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %lld steps are not inside an episode",
                        env->impl->spec.name, (long long)progress->steps);
    TRP_TRY(env_class_load(env->class, env_state(env, index), state));
    env->steps[index] = progress ? progress->steps : 0;
    if (progress)
        env->rngs[index] = progress->rng;
    env_mark_set(env, index);
    if (!observations)
        return TRP_OK;
    env->impl->observe(env_state(env, index), observations);
    return env_check_rows(env, index, 1, observations);
}
