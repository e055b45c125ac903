/* Environments by name. The built-in ones are constants; users add theirs before any thread looks,
 * so reading takes no lock. */
#include <troupe/env.h>

#include <math.h>
#include <string.h>

#include "builtin.h"
#include "core/buffer.h"
#include "limits.h"

static const trp_env_impl *const builtins[] = {&cartpole_impl, &catch_impl};

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
    const trp_env_spec *spec;
    for (size_t i = 0; (spec = trp_env_at(i)); i++) {
        buffer_append(&names, (trp_bytes){(const uint8_t *)" ", 1});
        buffer_append(&names, (trp_bytes){(const uint8_t *)spec->name, strlen(spec->name)});
    }
    trp_status status = trp_fail(TRP_NOT_FOUND, "no environment '%.100s'; there are:%.*s", name,
                                 (int)names.size, (const char *)names.data);
    buffer_cleanup(&names);
    return status;
}

trp_status trp_env_find(const char *name, const trp_env_spec **spec)
{
    const trp_env_impl *impl;
    TRP_TRY(env_impl_find(name, &impl));
    *spec = &impl->spec;
    return TRP_OK;
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

/* What is wrong; NULL: nothing. */
static const char *impl_fault(const trp_env_impl *impl)
{
    const trp_env_spec *spec = &impl->spec;
    trp_dtype dtype = spec->observation.dtype;
    if (dtype != TRP_FLOAT32 && dtype != TRP_UINT8)
        return "observations must be TRP_FLOAT32 or TRP_UINT8";
    if (spec->observation.rank > TRP_RANK_MAX || trp_tensor_bytes(&spec->observation) == 0)
        return "the shape of its observations has no elements or too many";
    if (spec->action_kind != TRP_ACTION_DISCRETE && spec->action_kind != TRP_ACTION_BOX)
        return "action_kind is no trp_action_kind";
    if (spec->action_count < 1)
        return "action_count must be at least 1";
    if (spec->action_kind == TRP_ACTION_BOX && !box_is_fine(spec))
        return "action_low and action_high need action_count numbers each, low <= high";
    if (spec->max_episode_steps < 0)
        return "max_episode_steps must not be negative";
    if (!(spec->reward_min <= spec->reward_max))
        return "reward_min must not be above reward_max";
    if (!impl->reset || !impl->step || !impl->observe)
        return "reset, step and observe must not be NULL";
    if (!impl->save != !impl->load || !impl->save != !impl->saved_bytes)
        return "save, load and saved_bytes belong together";
    return NULL;
}

trp_status trp_env_register(const trp_env_impl *impl)
{
    const char *name = impl->spec.name;
    if (!name || !*name)
        return trp_fail(TRP_INVALID_ARGUMENT, "an environment needs a name");
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
