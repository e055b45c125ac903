/* Wrappers: an environment around an environment, by a key in its name. What one is, and what it
 * may use, is in include/troupe/wrapper.h; here is how they are found, and what built-in ones
 * share. */
#ifndef TRP_ENVS_WRAPPER_H
#define TRP_ENVS_WRAPPER_H

#include <troupe/moments.h>
#include <troupe/wrapper.h>

#include "class.h"

/* What the normalising wrappers of a trp_env know: all its copies together, the innermost wrapper's
 * first. */
struct statistics {
    trp_moments *seen;       /* by this object */
    trp_moments *published;  /* what trp_env_use_statistics() brought */
    const trp_moments *used; /* one of these */
    bool read_only;          /* nothing is added to them, and rewards stay as they are */
};

extern const trp_env_impl action_repeat_impl, clip_reward_impl, frame_skip_impl, frame_stack_impl,
    grayscale_impl, normalize_observation_impl, normalize_return_impl, one_hot_impl, resize_impl,
    time_limit_impl;

/* NULL: no wrapper has this key. */
const trp_env_impl *wrapper_find(const char *key);

/* The key of a wrapper, in the order of registration, built-in ones first; NULL behind the last. */
const char *wrapper_key_at(size_t index);

/* False: there are too many. */
bool wrapper_add(const trp_env_impl *wrapper);

/* Takes `inner`, also on failure. INVALID_ARGUMENT names key, value and range, or what of the inner
 * environment does not fit. */
TRP_MUST_USE trp_status wrapper_create(const trp_env_impl *wrapper, const char *value,
                                       struct env_class *inner, struct env_class **out);

/* Gives the wrappers in a state that create() made what they know. */
void wrapper_bind(const struct env_class *class, void *state, struct statistics *statistics);

/* ---- for built-in wrappers ------------------------------------------------------------------- */

/* What all normalising wrappers know, and where a wrapper's own begin in it. */
size_t wrapped_statistic(const void *state);
struct statistics *wrapped_statistics(const void *state);

/* value / sqrt(variance + 1e-8); of fewer than two numbers: the value. */
double statistic_scale(double value, const trp_moments *used);

/* Of a wrapper that keeps one frame: the inner function, then a look. */
trp_status wrapped_reset_and_look(void *state, trp_rng *rng);
trp_status wrapped_step_and_look(void *state, trp_rng *rng, const void *action,
                                 trp_env_outcome *outcome);

/* In configure, of a wrapper that repeats: a state has room for what may be done next. */
void wrapping_keep_mask(trp_wrapping *wrapping, const trp_env_spec *spec);

/* Steps up to `count` times, until the episode ends or is `limit` steps long (0: no limit), or the
 * inner environment's mask does not allow the action again. `look` (may be NULL) follows each step,
 * `left` are the ones to come. */
trp_status wrapped_repeat(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome,
                          uint32_t count, int64_t limit, int64_t *steps,
                          void (*look)(void *state, uint32_t left));

#endif
