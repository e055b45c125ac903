/* Environments by name. The built-in ones are constants; users add theirs before any thread looks,
 * so reading takes no lock. */
#include <troupe/env.h>

#include <math.h>
#include <string.h>

#include "builtin.h"
#include "core/buffer.h"
#include "core/words.h"
#include "limits.h"
#include "wrapper.h"

static const trp_env_impl *const builtins[] = {
    &cartpole_impl,
    &catch_impl,
    &acrobot_impl,
    &mountain_car_impl,
    &mountain_car_continuous_impl,
    &pendulum_impl,
    &frozen_lake_impl,
    &frozen_lake_8x8_impl,
    &cliff_walking_impl,
    &cliff_walking_slippery_impl,
    &taxi_impl,
    &bsuite_bandit_impl,
    &bsuite_bandit_noise_impl,
    &bsuite_bandit_scale_impl,
    &bsuite_cartpole_impl,
    &bsuite_cartpole_noise_impl,
    &bsuite_cartpole_scale_impl,
    &bsuite_cartpole_swingup_impl,
    &bsuite_catch_impl,
    &bsuite_catch_noise_impl,
    &bsuite_catch_scale_impl,
    &bsuite_deep_sea_impl,
    &bsuite_deep_sea_stochastic_impl,
    &bsuite_discounting_chain_impl,
    &bsuite_memory_len_impl,
    &bsuite_memory_size_impl,
    &bsuite_mountain_car_impl,
    &bsuite_mountain_car_noise_impl,
    &bsuite_mountain_car_scale_impl,
    &bsuite_umbrella_distract_impl,
    &bsuite_umbrella_length_impl,
};

enum { BUILTIN_COUNT = sizeof builtins / sizeof builtins[0] };

static const trp_env_impl *added[ENVS_MAX - BUILTIN_COUNT];
static size_t added_count;

static const trp_env_impl *impl_at(size_t index)
{
    if (index < BUILTIN_COUNT)
        return builtins[index];
    return index - BUILTIN_COUNT < added_count ? added[index - BUILTIN_COUNT] : NULL;
}

const trp_env_spec *trp_env_at(size_t index)
{
    const trp_env_impl *impl = impl_at(index);
    return impl ? &impl->spec : NULL;
}

static const trp_env_impl *impl_find(const char *name)
{
    const trp_env_impl *impl;
    for (size_t i = 0; (impl = impl_at(i)); i++) {
        if (strcmp(impl->spec.name, name) == 0)
            break;
    }
    return impl;
}

trp_status env_impl_find(const char *name, const trp_env_impl **impl)
{
    *impl = impl_find(name);
    if (*impl)
        return TRP_OK;
    struct buffer names = {0};
    const char *known[ENVS_MAX + 1] = {0};
    char guess[GUESS_BYTES];
    const trp_env_spec *spec;
    for (size_t i = 0; (spec = trp_env_at(i)); i++) {
        known[i] = spec->name;
        buffer_append(&names, text_bytes(" "));
        buffer_append(&names, text_bytes(spec->name));
    }
    word_guess(name, known, guess);
    trp_status status =
        trp_fail(TRP_NOT_FOUND, "no environment '%.100s'%s%s there are:%.*s", name, guess,
                 *guess ? "" : ";", (int)names.size, (const char *)names.data);
    buffer_cleanup(&names);
    return status;
}

/* ---- adding ------------------------------------------------------------------------------ */

static bool box_is_fine(const trp_env_spec *spec)
{
    if (!spec->action_low || !spec->action_high)
        return false;
    for (int32_t i = 0; i < spec->action_count; i++) {
        if (!(spec->action_low[i] <= spec->action_high[i]))
            return false;
    }
    return true;
}

static bool choices_are_fine(const trp_env_spec *spec)
{
    for (int32_t i = 0; spec->action_choices && i < spec->action_count; i++)
        if (spec->action_choices[i] < 1)
            return false;
    return spec->action_choices != NULL;
}

static bool can_be_observed(trp_dtype dtype)
{
    return dtype == TRP_FLOAT32 || dtype == TRP_UINT8 || dtype == TRP_INT32 || dtype == TRP_INT64;
}

static const char *observations_fault(const trp_env_spec *spec)
{
    static const char dtypes[] =
        "observations must be TRP_FLOAT32, TRP_UINT8, TRP_INT32 or TRP_INT64";
    size_t count = trp_env_observation_count(spec);
    for (size_t i = 0; i < count; i++) {
        const trp_tensor_spec *tensor = &spec->observations[i];
        if (!can_be_observed(tensor->dtype))
            return dtypes;
        if (tensor->rank > TRP_RANK_MAX || trp_tensor_bytes(tensor) == 0)
            return "the shape of its observations has no elements or too many";
        if (count > 1 && !tensor->name)
            return "an observation of several tensors needs a name for each";
        for (size_t k = 0; k < i; k++)
            if (strcmp(spec->observations[k].name, tensor->name) == 0)
                return "two tensors of its observation have the same name";
    }
    return count > 0 ? NULL : dtypes;
}

static const char *actions_fault(const trp_env_spec *spec)
{
    if (spec->action_kind < TRP_ACTION_DISCRETE || spec->action_kind > TRP_ACTION_MULTI_BINARY)
        return "action_kind is no trp_action_kind";
    if (spec->action_count < 1)
        return "action_count must be at least 1";
    if (spec->action_kind == TRP_ACTION_BOX && !box_is_fine(spec))
        return "action_low and action_high need action_count numbers each, low <= high";
    if (spec->action_kind == TRP_ACTION_MULTI_DISCRETE && !choices_are_fine(spec))
        return "action_choices needs action_count numbers, each at least 1";
    return NULL;
}

const char *env_spec_fault(const trp_env_spec *spec)
{
    const char *fault = observations_fault(spec);
    if (!fault)
        fault = actions_fault(spec);
    if (!fault && spec->max_episode_steps < 0)
        fault = "max_episode_steps must not be negative";
    return fault;
}

/* What is wrong; NULL: nothing. A spec that follows from arguments is checked with them. */
static const char *impl_fault(const trp_env_impl *impl)
{
    const char *fault = impl->configure ? NULL : env_spec_fault(&impl->spec);
    if (fault)
        return fault;
    if (!impl->reset || !(impl->step || impl->step_all) || !impl->observe)
        return "reset, step or step_all, and observe must not be NULL";
    if (impl->mask && impl->spec.action_kind != TRP_ACTION_DISCRETE)
        return "mask is for TRP_ACTION_DISCRETE";
    for (size_t i = 0; impl->options && i < impl->options->count; i++)
        if (wrapper_find(impl->options->options[i].name))
            return "an option has the name of a wrapper";
    if (!impl->save != !impl->load || !impl->save != !impl->saved_bytes)
        return "save, load and saved_bytes belong together";
    return NULL;
}

trp_status trp_env_register(const trp_env_impl *impl)
{
    const char *name = impl->spec.name;
    if (!name || !*name)
        return trp_fail(TRP_INVALID_ARGUMENT, "an environment needs a name");
    if (strpbrk(name, "?&="))
        return trp_fail(TRP_INVALID_ARGUMENT, "environment '%s': a name has no '?', '&' or '='",
                        name);
    const char *fault = impl_fault(impl);
    if (fault)
        return trp_fail(TRP_INVALID_ARGUMENT, "environment '%s': %s", name, fault);
    if (impl_find(name))
        return trp_fail(TRP_ALREADY_EXISTS, "environment '%s' is registered already", name);
    if (added_count == sizeof added / sizeof added[0])
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "environment '%s': there are %d already", name,
                        ENVS_MAX);
    added[added_count++] = impl;
    return TRP_OK;
}

/* ---- adding a wrapper -------------------------------------------------------------------- */

static const char *wrapper_fault(const trp_env_impl *impl)
{
    if (impl->options->bytes < sizeof(trp_wrapping) || impl->state_bytes < sizeof(trp_wrapped))
        return "its arguments begin with a trp_wrapping, its state with a trp_wrapped";
    if (!impl->reset || !impl->step || !impl->observe)
        return "reset, step and observe must not be NULL";
    if (impl->create || impl->destroy || impl->mask || impl->save || impl->load || impl->step_all)
        return "create, destroy, mask, save, load and step_all must be NULL";
    return NULL;
}

/* The environment that has an argument of this name; NULL: none has. */
static const char *who_has_argument(const char *key)
{
    const trp_env_impl *impl;
    for (size_t i = 0; (impl = impl_at(i)); i++)
        for (size_t k = 0; impl->options && k < impl->options->count; k++)
            if (strcmp(impl->options->options[k].name, key) == 0)
                return impl->spec.name;
    return NULL;
}

trp_status trp_env_wrapper_register(const trp_env_impl *impl)
{
    if (!impl->options || impl->options->count != 1)
        return trp_fail(TRP_INVALID_ARGUMENT, "a wrapper needs a table of one option, its key");
    const char *key = impl->options->options[0].name, *fault = wrapper_fault(impl);
    if (fault)
        return trp_fail(TRP_INVALID_ARGUMENT, "wrapper '%s': %s", key, fault);
    const char *owner = who_has_argument(key);
    if (owner)
        return trp_fail(TRP_ALREADY_EXISTS, "wrapper '%s': environment '%s' has an argument '%s'",
                        key, owner, key);
    if (wrapper_find(key))
        return trp_fail(TRP_ALREADY_EXISTS, "wrapper '%s' is registered already", key);
    if (!wrapper_add(impl))
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "wrapper '%s': there are %d already", key,
                        ENV_WRAPPERS_MAX);
    return TRP_OK;
}
