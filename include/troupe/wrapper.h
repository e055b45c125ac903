/* Wrappers of one's own: an environment around an environment, by a key in its name. Registered in
 * the launch file, before trp_main(), "MyEnv?my_key=3&frame_stack=4" composes them with those that
 * env.h lists, from left to right; these are made with this header, too.
 *
 * A wrapper is a trp_env_impl of which
 *   - `options` has one row, the key and its value. The arguments begin with a trp_wrapping.
 *   - `spec` is not read: it is that of the inner environment, which configure may change.
 *   - the state begins with a trp_wrapped; that of the inner environment lies behind it.
 *   - create, destroy, mask, save, load and step_all are NULL: the library has them. States can be
 *     exchanged where the inner environment's can.
 *
 *     typedef struct {
 *         trp_wrapping wrapping;
 *         float scale_reward;
 *     } scaling;
 *     static const trp_option scaling_rows[] = {
 *         {TRP_OPTION(scaling, scale_reward), .min = -1e6, .max = 1e6, .help = "of a reward"},
 *     };
 *     static const trp_option_table scaling_table =
 *         TRP_OPTION_TABLE("scale_reward", scaling_rows, scaling);
 *     static trp_status scaling_step(void *state, trp_rng *rng, const void *action,
 *                                    trp_env_outcome *outcome)
 *     {
 *         const scaling *arguments = (const void *)((trp_wrapped *)state)->wrapping;
 *         TRP_TRY(trp_wrapped_step(state, rng, action, outcome));
 *         outcome->reward *= arguments->scale_reward;
 *         return TRP_OK;
 *     }
 *     static const trp_env_impl scaling_impl = {.state_bytes = sizeof(trp_wrapped),
 *                                               .options = &scaling_table,
 *                                               .reset = trp_wrapped_reset,
 *                                               .step = scaling_step,
 *                                               .observe = trp_wrapped_observe};
 */
#ifndef TRP_WRAPPER_H
#define TRP_WRAPPER_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/env.h>
#include <troupe/rng.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

/* What a wrapper's arguments begin with; set before configure. */
typedef struct {
    const void *inner; /* the library's */
    size_t own_bytes;  /* of a state, before the inner one's: the library's */
    size_t tensors;    /* of an inner observation */
    size_t frame_bytes[TRP_OBSERVATIONS_MAX];  /* of each: one row */
    size_t frame_offset[TRP_OBSERVATIONS_MAX]; /* of kept frames: the library's */
    size_t statistics;                         /* of normalising wrappers: the library's */
    size_t mask_offset, mask_bytes;            /* of repeating wrappers: the library's */
} trp_wrapping;

/* What its state begins with. Both are there as long as the environment is. */
typedef struct {
    const trp_wrapping *wrapping;
    void *statistics; /* the library's */
} trp_wrapped;

/* The inner environment's functions; as they are, in a wrapper that only hands on. */
TRP_API trp_status trp_wrapped_reset(void *state, trp_rng *rng);
TRP_API trp_status trp_wrapped_step(void *state, trp_rng *rng, const void *action,
                                    trp_env_outcome *outcome);
TRP_API void trp_wrapped_observe(const void *state, void *const *observations);

/* In configure: a state keeps `count` inner observations. */
TRP_API void trp_wrapping_keep_frames(trp_wrapping *wrapping, size_t count);

/* Writes the inner observation to kept frame `index`, and where one tensor of it is. A tensor's
 * frames lie back to back. */
TRP_API void trp_wrapped_look(void *state, size_t index);
TRP_API uint8_t *trp_wrapped_frame(const void *state, size_t tensor, size_t index);

/* Makes the key known. Borrows `impl` for good. As trp_env_register(), before any thread uses
 * env.h: ALREADY_EXISTS for a key that a wrapper, or an argument of a registered environment, has;
 * INVALID_ARGUMENT names what is wrong with it; RESOURCE_EXHAUSTED when there are 64. */
TRP_API TRP_MUST_USE trp_status trp_env_wrapper_register(const trp_env_impl *impl);

TRP_END_DECLS
#endif
