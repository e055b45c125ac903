#include "wrapper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "limits.h"

enum { STATE_ALIGNMENT = 16 };

static const trp_env_impl *wrappers[ENV_WRAPPERS_MAX] = {
    &action_repeat_impl,    &clip_reward_impl, &frame_skip_impl,
    &frame_stack_impl,      &grayscale_impl,   &normalize_observation_impl,
    &normalize_return_impl, &one_hot_impl,     &resize_impl,
    &time_limit_impl,
};

static size_t wrapper_count(void)
{
    size_t count = 0;
    while (count < ENV_WRAPPERS_MAX && wrappers[count])
        count++;
    return count;
}

const char *wrapper_key_at(size_t index)
{
    return index < wrapper_count() ? wrappers[index]->options->options[0].name : NULL;
}

const trp_env_impl *wrapper_find(const char *key)
{
    const char *known;
    for (size_t i = 0; (known = wrapper_key_at(i)); i++)
        if (strcmp(known, key) == 0)
            return wrappers[i];
    return NULL;
}

bool wrapper_add(const trp_env_impl *wrapper)
{
    size_t count = wrapper_count();
    if (count < ENV_WRAPPERS_MAX)
        wrappers[count] = wrapper;
    return count < ENV_WRAPPERS_MAX;
}

static size_t aligned(size_t bytes)
{
    return (bytes + STATE_ALIGNMENT - 1) / STATE_ALIGNMENT * STATE_ALIGNMENT;
}

void trp_wrapping_keep_frames(trp_wrapping *wrapping, size_t count)
{
    for (size_t i = 0; i < wrapping->tensors; i++) {
        wrapping->frame_offset[i] = aligned(wrapping->own_bytes);
        wrapping->own_bytes = wrapping->frame_offset[i] + count * wrapping->frame_bytes[i];
    }
}

void wrapping_keep_mask(trp_wrapping *wrapping, const trp_env_spec *spec)
{
    if (!spec->masked)
        return;
    wrapping->mask_bytes = (size_t)spec->action_count * sizeof(bool);
    wrapping->mask_offset = aligned(wrapping->own_bytes);
    wrapping->own_bytes = wrapping->mask_offset + wrapping->mask_bytes;
}

static void *inner_state(const void *state)
{
    return (uint8_t *)state + ((const trp_wrapped *)state)->wrapping->own_bytes;
}

static const struct env_class *inner_class(const void *state)
{
    return ((const trp_wrapped *)state)->wrapping->inner;
}

static const trp_env_impl *inner_impl(const void *state)
{
    return &inner_class(state)->impl;
}

void wrapper_bind(const struct env_class *class, void *state, struct statistics *statistics)
{
    for (; class->inner; class = class->inner) {
        ((trp_wrapped *)state)->statistics = statistics;
        state = inner_state(state);
    }
}

struct statistics *wrapped_statistics(const void *state)
{
    return ((const trp_wrapped *)state)->statistics;
}

size_t wrapped_statistic(const void *state)
{
    return inner_class(state)->statistics;
}

double statistic_scale(double value, const trp_moments *used)
{
    static const double epsilon = 1e-8; /* as in Gymnasium and Stable-Baselines3 */
    return used->count < 2 ? value : value / sqrt(trp_moments_variance(used) + epsilon);
}

static trp_status wrapped_create(void *state, const void *arguments, void *user)
{
    const trp_wrapping *wrapping = arguments;
    (void)user;
    ((trp_wrapped *)state)->wrapping = wrapping;
    const struct env_class *inner = wrapping->inner;
    const trp_env_impl *impl = &inner->impl;
    return impl->create ? impl->create(inner_state(state), inner->arguments, impl->user) : TRP_OK;
}

static void wrapped_destroy(void *state)
{
    if (inner_impl(state)->destroy)
        inner_impl(state)->destroy(inner_state(state));
}

trp_status trp_wrapped_reset(void *state, trp_rng *rng)
{
    return inner_impl(state)->reset(inner_state(state), rng);
}

trp_status trp_wrapped_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    const trp_env_impl *impl = inner_impl(state);
    if (impl->step)
        return impl->step(inner_state(state), rng, action, outcome);
    return impl->step_all(&(trp_env_steps){.count = 1,
                                           .states = inner_state(state),
                                           .stride = impl->state_bytes,
                                           .rngs = rng,
                                           .actions = action,
                                           .outcomes = outcome});
}

void trp_wrapped_observe(const void *state, void *const *observations)
{
    inner_impl(state)->observe(inner_state(state), observations);
}

static void wrapped_mask(const void *state, bool *allowed)
{
    inner_impl(state)->mask(inner_state(state), allowed);
}

uint8_t *trp_wrapped_frame(const void *state, size_t tensor, size_t index)
{
    const trp_wrapping *wrapping = ((const trp_wrapped *)state)->wrapping;
    return (uint8_t *)state + wrapping->frame_offset[tensor] +
           index * wrapping->frame_bytes[tensor];
}

void trp_wrapped_look(void *state, size_t index)
{
    void *rows[TRP_OBSERVATIONS_MAX];
    for (size_t i = 0; i < ((trp_wrapped *)state)->wrapping->tensors; i++)
        rows[i] = trp_wrapped_frame(state, i, index);
    trp_wrapped_observe(state, rows);
}

trp_status wrapped_reset_and_look(void *state, trp_rng *rng)
{
    TRP_TRY(trp_wrapped_reset(state, rng));
    trp_wrapped_look(state, 0);
    return TRP_OK;
}

trp_status wrapped_step_and_look(void *state, trp_rng *rng, const void *action,
                                 trp_env_outcome *outcome)
{
    TRP_TRY(trp_wrapped_step(state, rng, action, outcome));
    trp_wrapped_look(state, 0);
    return TRP_OK;
}

static bool is_allowed_again(void *state, const void *action)
{
    const trp_wrapping *wrapping = ((const trp_wrapped *)state)->wrapping;
    if (wrapping->mask_bytes == 0)
        return true;
    bool *allowed = (bool *)((uint8_t *)state + wrapping->mask_offset);
    memset(allowed, false, wrapping->mask_bytes);
    wrapped_mask(state, allowed);
    return allowed[*(const int32_t *)action];
}

trp_status wrapped_repeat(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome,
                          uint32_t count, int64_t limit, int64_t *steps,
                          void (*look)(void *state, uint32_t left))
{
    for (uint32_t left = count; left > 0;) {
        trp_env_outcome one = {.discount = 1, .infos = outcome->infos};
        TRP_TRY(trp_wrapped_step(state, rng, action, &one));
        ++*steps;
        outcome->reward += one.reward;
        outcome->discount *= one.discount;
        outcome->terminated = one.terminated;
        outcome->truncated = one.truncated || (limit > 0 && *steps >= limit);
        bool over = outcome->terminated || outcome->truncated;
        left = over || !is_allowed_again(state, action) ? 0 : left - 1;
        if (look)
            look(state, left);
    }
    return TRP_OK;
}

/* ---- states: what is the wrapper's own, then the inner one's -------------------------------- */

static size_t own_saved(const trp_wrapping *wrapping)
{
    return wrapping->own_bytes - sizeof(trp_wrapped);
}

static void wrapped_save(const void *state, void *saved)
{
    size_t own = own_saved(((const trp_wrapped *)state)->wrapping);
    memcpy(saved, (const trp_wrapped *)state + 1, own);
    env_class_save(inner_class(state), inner_state(state), (uint8_t *)saved + own);
}

static trp_status wrapped_load(void *state, const void *saved)
{
    size_t own = own_saved(((trp_wrapped *)state)->wrapping);
    TRP_TRY(env_class_load(inner_class(state), inner_state(state), (const uint8_t *)saved + own));
    memcpy((trp_wrapped *)state + 1, saved, own);
    return TRP_OK;
}

/* ---- making one ----------------------------------------------------------------------------- */

static void wrap(struct env_class *class, trp_wrapping *wrapping)
{
    const struct env_class *inner = wrapping->inner;
    trp_env_impl *impl = &class->impl;
    wrapping->own_bytes = aligned(wrapping->own_bytes);
    impl->state_bytes = wrapping->own_bytes + inner->impl.state_bytes;
    impl->create = wrapped_create;
    impl->destroy = wrapped_destroy;
    impl->mask = inner->impl.mask ? wrapped_mask : NULL;
    if (env_class_saved_bytes(inner) == 0)
        return;
    impl->saved_bytes = own_saved(wrapping) + env_class_saved_bytes(inner);
    impl->save = wrapped_save;
    impl->load = wrapped_load;
}

trp_status wrapper_create(const trp_env_impl *wrapper, const char *value, struct env_class *inner,
                          struct env_class **out)
{
    const trp_option_table *table = wrapper->options;
    struct env_class *class = xcalloc(1, sizeof *class);
    *out = class;
    class->inner = inner;
    class->name = xstrdup(inner->name);
    class->impl = *wrapper;
    class->impl.spec = inner->impl.spec;
    class->arguments = xcalloc(1, table->bytes);
    trp_wrapping *wrapping = class->arguments;
    wrapping->inner = inner;
    wrapping->own_bytes = wrapper->state_bytes;
    wrapping->tensors = trp_env_observation_count(&inner->impl.spec);
    for (size_t i = 0; i < wrapping->tensors; i++)
        wrapping->frame_bytes[i] = trp_tensor_bytes(&inner->impl.spec.observations[i]);
    TRP_TRY(trp_options_set(table, class->arguments, table->options[0].name, value));
    if (wrapper->configure)
        TRP_TRY(wrapper->configure(class->arguments, wrapper->user, &class->impl.spec));
    class->statistics = inner->statistics + wrapping->statistics;
    if (class->statistics > TRP_STATISTICS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: statistics of %zu numbers, at most %d",
                        table->options[0].name, class->statistics, TRP_STATISTICS_MAX);
    wrap(class, wrapping);
    return TRP_OK;
}
