/* Environments: many independent copies of one task, stepped together into the caller's buffers.
 *
 *     static trp_status play(const int32_t *actions, const trp_env_buffers *buffers, int steps)
 *     {
 *         trp_env *env;
 *         TRP_TRY(trp_env_create(&env, "CartPole-v1", &(trp_env_options){.count = 8, .seed = 1}));
 *         trp_status status = trp_env_reset(env, buffers->observations);
 *         for (int i = 0; i < steps && status == TRP_OK; i++)
 *             status = trp_env_step(env, actions, buffers); // one action per row of observations
 *         trp_env_destroy(env);
 *         return status;
 *     }
 *
 * Semantics are Gymnasium's in the same-step automatic reset mode: when a copy's episode ends, the
 * step that ended it already returns the first observation of the next episode, and the last one
 * of the old episode goes to `final_observations`. `terminated` (the task ended: bootstrap with 0)
 * and `truncated` (cut short, e.g. by the time limit: bootstrap with the value of the final
 * observation) are kept apart; both can be set at once, and terminated wins.
 *
 * A trp_env belongs to one thread at a time. Two of them share nothing. */
#ifndef TRP_ENV_H
#define TRP_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/rng.h>
#include <troupe/status.h>
#include <troupe/tensor.h>

TRP_BEGIN_DECLS

typedef enum {
    TRP_ACTION_DISCRETE, /* an int32_t in [0, action_count) */
    TRP_ACTION_BOX,      /* action_count floats, each meant to lie in [low, high] */
} trp_action_kind;

/* What a task looks like; constant for its life. */
typedef struct {
    const char *name;
    trp_tensor_spec observation; /* of one copy: TRP_FLOAT32 or TRP_UINT8 */
    trp_action_kind action_kind;
    int32_t action_count;                  /* of choices, or of dimensions */
    const float *action_low, *action_high; /* TRP_ACTION_BOX: action_count each; else NULL */
    int64_t max_episode_steps;             /* time limit: truncates; 0: none */
    float reward_min, reward_max; /* of one step, and held to it; both 0: any finite number */
} trp_env_spec;

/* ---- using one --------------------------------------------------------------------------- */

typedef struct trp_env trp_env;

typedef struct {
    uint32_t count;            /* copies; 0: 1 */
    uint64_t seed;             /* copy i draws from stream i of this seed */
    int64_t max_episode_steps; /* 0: the spec's; negative: no limit */
} trp_env_options;

/* One row per copy, rows back to back. All are the caller's and are only written to. */
typedef struct {
    void *observations;       /* what to act on next */
    void *final_observations; /* rows of copies whose episode just ended, others are untouched;
                                 NULL: not wanted */
    float *rewards;
    bool *terminated;
    bool *truncated;
} trp_env_buffers;

/* Makes `options->count` copies; NULL options: one copy, seed 0. NOT_FOUND lists the names there
 * are; INVALID_ARGUMENT for more than 2^20 copies; else the environment's own status. */
TRP_API TRP_MUST_USE trp_status trp_env_create(trp_env **out, const char *name,
                                               const trp_env_options *options);
TRP_API void trp_env_destroy(trp_env *env); /* NULL is fine */

TRP_API const trp_env_spec *trp_env_get_spec(const trp_env *env);
TRP_API uint32_t trp_env_count(const trp_env *env);
TRP_API size_t trp_env_observation_bytes(const trp_env *env); /* of one row */
TRP_API size_t trp_env_action_bytes(const trp_env *env);      /* of one row */

/* Starts a new episode in every copy. Fails as the environment itself does, or OUT_OF_RANGE as
 * trp_env_step(). */
TRP_API TRP_MUST_USE trp_status trp_env_reset(trp_env *env, void *observations);

/* Steps every copy: `actions` has one row per copy, int32_t or action_count floats.
 * INVALID_ARGUMENT for a choice that does not exist or a number that is NaN (copy and value are
 * named; no copy has moved then); FAILED_PRECONDITION before the first reset; OUT_OF_RANGE for a
 * reward that is not finite or outside of the spec's range, and for an observation that is not
 * finite (copy, step and value are named); else the environment's own status. After these two only
 * trp_env_reset() and destroy are allowed, and what is in the buffers means nothing. Allocates
 * nothing. */
TRP_API TRP_MUST_USE trp_status trp_env_step(trp_env *env, const void *actions,
                                             const trp_env_buffers *buffers);

/* Gives one copy the generator of the only copy of an object made with `seed`; its next episode is
 * the first that shows it. */
TRP_API void trp_env_seed(trp_env *env, uint32_t index, uint64_t seed);

/* ---- state of one copy, for resuming and for tests --------------------------------------- */

/* What the interface knows about a copy besides the task's own state. */
typedef struct {
    trp_rng rng;
    int64_t steps; /* of the running episode */
} trp_env_progress;

/* Bytes of one copy's own state, as get and set exchange it. 0: the environment cannot do it. The
 * layout is the environment's: CartPole-v1 has the doubles x, x_dot, theta, theta_dot. */
TRP_API size_t trp_env_state_bytes(const trp_env *env);

/* Copies the state of one copy out. UNIMPLEMENTED when trp_env_state_bytes() is 0;
 * FAILED_PRECONDITION before the first reset. */
TRP_API TRP_MUST_USE trp_status trp_env_get_state(const trp_env *env, uint32_t index,
                                                  trp_env_progress *progress, void *state);

/* Puts a copy into a state inside a running episode and writes its observation (one row; NULL: not
 * wanted). Copies that were never reset count as reset once all of them had a state set. NULL
 * progress: the generator stays and the episode has 0 steps. UNIMPLEMENTED as above;
 * INVALID_ARGUMENT for a state that the environment cannot be in. */
TRP_API TRP_MUST_USE trp_status trp_env_set_state(trp_env *env, uint32_t index,
                                                  const trp_env_progress *progress,
                                                  const void *state, void *observation);

/* ---- which ones there are ---------------------------------------------------------------- */

/* The spec of a known environment, without making one. NOT_FOUND lists the names there are. */
TRP_API TRP_MUST_USE trp_status trp_env_find(const char *name, const trp_env_spec **spec);

/* The specs in the order of registration, built-in ones first; NULL behind the last. */
TRP_API const trp_env_spec *trp_env_at(size_t index);

/* ---- adding one -------------------------------------------------------------------------- */

/* What one step did besides changing the state. Zeroed by the caller. */
typedef struct {
    float reward;
    bool terminated;
    bool truncated; /* for a cut that the environment makes itself; the time limit is not its job */
} trp_env_outcome;

/* An environment: functions on the state of one copy, `state_bytes` zeroed bytes, 16-byte aligned.
 * It draws only from the `rng` it is given. Functions marked optional may be NULL. */
typedef struct {
    trp_env_spec spec;
    size_t state_bytes;

    trp_status (*create)(void *state); /* optional: resources outside the state */
    void (*destroy)(void *state);      /* optional; also after a failed create */

    /* Starts an episode. */
    trp_status (*reset)(void *state, trp_rng *rng);

    /* Applies a valid action (const int32_t * or const float *). Not called again after an outcome
     * with terminated or truncated before the next reset. */
    trp_status (*step)(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome);

    /* Writes the observation of the current state. */
    void (*observe)(const void *state, void *observation);

    /* Optional pair, `saved_bytes` each. With both NULL the state itself is copied when there is
     * no create; with create and without them, states cannot be exchanged. load checks. */
    size_t saved_bytes;
    void (*save)(const void *state, void *saved);
    trp_status (*load)(void *state, const void *saved);
} trp_env_impl;

/* Makes an environment known by its spec's name. Borrows `impl` for good. Call it before
 * trp_main() and before any thread uses this header. ALREADY_EXISTS for a taken name;
 * INVALID_ARGUMENT names what is wrong with the spec; RESOURCE_EXHAUSTED when there are 256. */
TRP_API TRP_MUST_USE trp_status trp_env_register(const trp_env_impl *impl);

TRP_END_DECLS
#endif
