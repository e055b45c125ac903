/* Wrappers: an environment around an environment, by a key in its name. A wrapper is a trp_env_impl
 * like any other; its table has one row, the key and its value, its arguments begin with a struct
 * wrapping and its state with a struct wrapped. The inner environment's state follows its own. */
#ifndef TRP_ENVS_WRAPPER_H
#define TRP_ENVS_WRAPPER_H

#include <troupe/moments.h>

#include "class.h"

struct wrapping {
    const struct env_class *inner;
    size_t own_bytes; /* of a state, before the inner one's */
    size_t tensors;   /* of an inner observation */
    size_t frame_bytes[TRP_OBSERVATIONS_MAX];
    size_t frame_offset[TRP_OBSERVATIONS_MAX]; /* in a state, where frames are kept */
    size_t statistics;                         /* of its own; set by configure */
};

/* What the normalising wrappers of a trp_env know: all its copies together, the innermost wrapper's
 * first. */
struct statistics {
    trp_moments *seen;       /* by this object */
    trp_moments *published;  /* what trp_env_use_statistics() brought */
    const trp_moments *used; /* one of these */
    bool read_only;          /* nothing is added to them, and rewards stay as they are */
};

/* Of a state that is saved, what follows this struct is. */
struct wrapped {
    const struct wrapping *wrapping;
    struct statistics *statistics;
};

extern const trp_env_impl action_repeat_impl, clip_reward_impl, frame_skip_impl, frame_stack_impl,
    grayscale_impl, normalize_observation_impl, normalize_return_impl, resize_impl, time_limit_impl;

/* NULL: no wrapper has this key. */
const trp_env_impl *wrapper_find(const char *key);

/* Ends with NULL. */
extern const char *const wrapper_keys[];

/* Takes `inner`, also on failure. INVALID_ARGUMENT names key, value and range, or what of the inner
 * environment does not fit. */
TRP_MUST_USE trp_status wrapper_create(const trp_env_impl *wrapper, const char *value,
                                       struct env_class *inner, struct env_class **out);

/* Gives the wrappers in a state that create() made what they know. */
void wrapper_bind(const struct env_class *class, void *state, struct statistics *statistics);

/* ---- for wrappers -------------------------------------------------------------------------- */

/* In configure: a state keeps `count` inner observations, each tensor's back to back. */
void wrapping_keep_frames(struct wrapping *wrapping, size_t count);

/* Functions of a wrapper that only hands on. */
trp_status wrapped_create(void *state, const void *arguments, void *user);
void wrapped_destroy(void *state);
trp_status wrapped_reset(void *state, trp_rng *rng);
trp_status wrapped_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome);
void wrapped_observe(const void *state, void *const *observations);

/* Where a wrapper's own statistics begin. */
size_t wrapped_statistic(const void *state);

/* value / sqrt(variance + 1e-8); of fewer than two numbers: the value. */
double statistic_scale(double value, const trp_moments *used);

/* Writes the inner observation to frame `index`. */
void wrapped_look(void *state, size_t index);
uint8_t *wrapped_frame(const void *state, size_t tensor, size_t index);

/* Of a wrapper that keeps one frame: the inner function, then a look. */
trp_status wrapped_reset_and_look(void *state, trp_rng *rng);
trp_status wrapped_step_and_look(void *state, trp_rng *rng, const void *action,
                                 trp_env_outcome *outcome);

/* Steps up to `count` times, until the episode ends or is `limit` steps long (0: no limit). `look`
 * (may be NULL) follows each step, `left` are the ones to come. */
trp_status wrapped_repeat(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome,
                          uint32_t count, int64_t limit, int64_t *steps,
                          void (*look)(void *state, uint32_t left));

#endif
