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

#include "builtin.h"
#include "core/alloc.h"
#include "limits.h"

enum { STATE_ALIGNMENT = 16 };

struct trp_env {
    const trp_env_impl *impl;
    uint32_t count;
    uint32_t created;  /* copies whose create() was called */
    uint32_t unset;    /* copies that are in no episode yet */
    bool failed;       /* only a reset helps */
    int64_t max_steps; /* INT64_MAX: no limit */
    float reward_low, reward_high;
    size_t state_stride, observation_bytes, action_bytes;
    uint8_t *states;
    trp_env_progress *progress;
    bool *set;
};

static void *env_state(const trp_env *env, uint32_t index)
{
    return env->states + index * env->state_stride;
}

static size_t action_row_bytes(const trp_env_spec *spec)
{
    return spec->action_kind == TRP_ACTION_DISCRETE ? sizeof(int32_t)
                                                    : (size_t)spec->action_count * sizeof(float);
}

static int64_t step_limit(const trp_env_spec *spec, int64_t option)
{
    int64_t limit = option ? option : spec->max_episode_steps;
    return limit > 0 ? limit : INT64_MAX;
}

/* Of one step; without one in the spec all that are finite. */
static void set_reward_range(trp_env *env)
{
    const trp_env_spec *spec = &env->impl->spec;
    bool known = spec->reward_min != 0 || spec->reward_max != 0;
    env->reward_low = known ? fmaxf(spec->reward_min, -FLT_MAX) : -FLT_MAX;
    env->reward_high = known ? fminf(spec->reward_max, FLT_MAX) : FLT_MAX;
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
    env->states = xaligned(STATE_ALIGNMENT, bytes);
    memset(env->states, 0, bytes);
    for (uint32_t i = 0; i < env->count; i++)
        trp_rng_init(&env->progress[i].rng, seed, i);
    for (uint32_t i = 0; impl->create && i < env->count; i++) {
        env->created++;
        TRP_TRY(impl->create(env_state(env, i)));
    }
    return TRP_OK;
}

trp_status trp_env_create(trp_env **out, const char *name, const trp_env_options *options)
{
    const trp_env_impl *impl;
    *out = NULL;
    TRP_TRY(env_impl_find(name, &impl));
    trp_env_options chosen = options ? *options : (trp_env_options){0};
    if (chosen.count > ENV_COPIES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %u copies, at most %d", name, chosen.count,
                        ENV_COPIES_MAX);
    trp_env *env = xcalloc(1, sizeof *env);
    env->impl = impl;
    env->count = chosen.count ? chosen.count : 1;
    env->unset = env->count;
    env->max_steps = step_limit(&impl->spec, chosen.max_episode_steps);
    env->observation_bytes = trp_tensor_bytes(&impl->spec.observation);
    env->action_bytes = action_row_bytes(&impl->spec);
    set_reward_range(env);
    env->progress = xcalloc(env->count, sizeof *env->progress);
    env->set = xcalloc(env->count, sizeof *env->set);
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
    free(env->progress);
    free(env->set);
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

size_t trp_env_observation_bytes(const trp_env *env)
{
    return env->observation_bytes;
}

size_t trp_env_action_bytes(const trp_env *env)
{
    return env->action_bytes;
}

void trp_env_seed(trp_env *env, uint32_t index, uint64_t seed)
{
    assert(index < env->count);
    trp_rng_init(&env->progress[index].rng, seed, 0);
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

/* Refuses observations with numbers that are none; the first row is that of copy `index`. */
static trp_status env_check_rows(const trp_env *env, uint32_t index, uint32_t count,
                                 const void *rows)
{
    const trp_env_spec *spec = &env->impl->spec;
    const float *numbers = rows;
    size_t width = env->observation_bytes / sizeof(float), bad = 0;
    if (spec->observation.dtype != TRP_FLOAT32 || all_finite(numbers, count * width))
        return TRP_OK;
    while (isfinite(numbers[bad]))
        bad++;
    index += (uint32_t)(bad / width);
    return trp_fail(
        TRP_OUT_OF_RANGE,
        "%s: number %zu of the observation of copy %u is %g, at step %" PRId64 " of its episode",
        spec->name, bad % width, index, (double)numbers[bad], env->progress[index].steps);
}

static trp_status env_refuse_reward(const trp_env *env, uint32_t index, float reward)
{
    char range[64] = "not a finite number";
    if (env->reward_low > -FLT_MAX || env->reward_high < FLT_MAX)
        snprintf(range, sizeof range, "outside of its range [%g, %g]", (double)env->reward_low,
                 (double)env->reward_high);
    return trp_fail(TRP_OUT_OF_RANGE,
                    "%s: the reward of copy %u is %g at step %" PRId64 " of its episode: %s",
                    env->impl->spec.name, index, (double)reward, env->progress[index].steps, range);
}

static void env_mark_set(trp_env *env, uint32_t index)
{
    env->unset -= !env->set[index];
    env->set[index] = true;
}

static trp_status env_reset_copy(trp_env *env, uint32_t index, uint8_t *observation)
{
    trp_env_progress *progress = &env->progress[index];
    progress->steps = 0;
    TRP_TRY(env->impl->reset(env_state(env, index), &progress->rng));
    env->impl->observe(env_state(env, index), observation);
    return TRP_OK;
}

trp_status trp_env_reset(trp_env *env, void *observations)
{
    uint8_t *rows = observations;
    env->failed = true;
    for (uint32_t i = 0; i < env->count; i++) {
        TRP_TRY(env_reset_copy(env, i, rows + i * env->observation_bytes));
        env_mark_set(env, i);
    }
    TRP_TRY(env_check_rows(env, 0, env->count, observations));
    env->failed = false;
    return TRP_OK;
}

static trp_status check_choices(const trp_env *env, const int32_t *actions)
{
    uint32_t choices = (uint32_t)env->impl->spec.action_count;
    for (uint32_t i = 0; i < env->count; i++) {
        if ((uint32_t)actions[i] >= choices)
            return trp_fail(TRP_INVALID_ARGUMENT, "%s: action %d of copy %u; there are 0 to %u",
                            env->impl->spec.name, actions[i], i, choices - 1);
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

static trp_status env_check_step(const trp_env *env, const void *actions)
{
    if (env->failed || env->unset > 0)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s: a reset must come before a step%s",
                        env->impl->spec.name, env->failed ? " after a failure" : "");
    return env->impl->spec.action_kind == TRP_ACTION_DISCRETE ? check_choices(env, actions)
                                                              : check_numbers(env, actions);
}

/* The copy's episode is over: its last observation, then the first of the next one. */
static trp_status env_turn_over(trp_env *env, uint32_t index, const trp_env_buffers *buffers)
{
    size_t offset = index * env->observation_bytes;
    if (buffers->final_observations) {
        void *row = (uint8_t *)buffers->final_observations + offset;
        env->impl->observe(env_state(env, index), row);
        TRP_TRY(env_check_rows(env, index, 1, row));
    }
    return env_reset_copy(env, index, (uint8_t *)buffers->observations + offset);
}

trp_status trp_env_step(trp_env *env, const void *actions, const trp_env_buffers *buffers)
{
    TRP_TRY(env_check_step(env, actions));
    const trp_env_impl *impl = env->impl;
    const uint8_t *action = actions;
    uint8_t *observation = buffers->observations;
    uint8_t *state = env->states;
    env->failed = true; /* until every copy has moved */
    for (uint32_t i = 0; i < env->count; i++) {
        trp_env_progress *progress = &env->progress[i];
        trp_env_outcome outcome = {0};
        TRP_TRY(impl->step(state, &progress->rng, action, &outcome));
        bool truncated = ++progress->steps >= env->max_steps || outcome.truncated;
        if (!(outcome.reward >= env->reward_low && outcome.reward <= env->reward_high))
            return env_refuse_reward(env, i, outcome.reward);
        buffers->rewards[i] = outcome.reward;
        buffers->terminated[i] = outcome.terminated;
        buffers->truncated[i] = truncated;
        if (outcome.terminated || truncated)
            TRP_TRY(env_turn_over(env, i, buffers));
        else
            impl->observe(state, observation);
        action += env->action_bytes;
        observation += env->observation_bytes;
        state += env->state_stride;
    }
    TRP_TRY(env_check_rows(env, 0, env->count, buffers->observations));
    env->failed = false;
    return TRP_OK;
}

/* ---- state ------------------------------------------------------------------------------- */

size_t trp_env_state_bytes(const trp_env *env)
{
    const trp_env_impl *impl = env->impl;
    if (impl->save)
        return impl->saved_bytes;
    return impl->create ? 0 : impl->state_bytes;
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
        *progress = env->progress[index];
    if (env->impl->save)
        env->impl->save(env_state(env, index), state);
    else
        memcpy(state, env_state(env, index), env->impl->state_bytes);
    return TRP_OK;
}

trp_status trp_env_set_state(trp_env *env, uint32_t index, const trp_env_progress *progress,
                             const void *state, void *observation)
{
    assert(index < env->count);
    TRP_TRY(check_state_exchange(env));
    if (progress && (progress->steps < 0 || progress->steps >= env->max_steps))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %lld steps are not inside an episode",
                        env->impl->spec.name, (long long)progress->steps);
    if (env->impl->load)
        TRP_TRY(env->impl->load(env_state(env, index), state));
    else
        memcpy(env_state(env, index), state, env->impl->state_bytes);
    if (progress)
        env->progress[index] = *progress;
    else
        env->progress[index].steps = 0;
    env_mark_set(env, index);
    if (!observation)
        return TRP_OK;
    env->impl->observe(env_state(env, index), observation);
    return env_check_rows(env, index, 1, observation);
}
