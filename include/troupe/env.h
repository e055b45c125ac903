/* Environments: many independent copies of one task, stepped together into the caller's buffers.
 *
 *     static trp_status play(const int32_t *actions, const trp_env_buffers *buffers, int steps)
 *     {
 *         trp_env *env;
 *         TRP_TRY(trp_env_create(&env, "CartPole-v1", &(trp_env_options){.count = 8, .seed = 1}));
 *         trp_status status = trp_env_reset(env, buffers->observations);
 *         for (int i = 0; i < steps && status == TRP_OK; i++)
 *             status = trp_env_step(env, actions, buffers); // one action per copy
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
 * An environment is named "NAME" or "NAME?KEY=VALUE&KEY=VALUE" wherever a name is taken. A key is
 * an argument of the environment, or a wrapper around it and all that stands to the left:
 *
 *   "CartPole-v1?time_limit=200&action_repeat=2&frame_stack=4"
 *
 *   time_limit=N      truncates after N steps, whatever the limit was before
 *   action_repeat=N   each is done N times, rewards are added up; a limit before it counts all N
 *   frame_skip=N      the same, and observations are the larger of the last two frames
 *   frame_stack=N     the last N observations; a first axis of N is added, the oldest first
 *   clip_reward=B     rewards are held to [-B, B]
 *   normalize_observation=B  (float32 - mean) / sqrt(variance + 1e-8), held to [-B, B]
 *   normalize_return=G       rewards / sqrt(variance of returns + 1e-8), held to [-10, 10]
 *   grayscale=1       uint8 [h, w, 3] becomes [h, w]: 0.299 R + 0.587 G + 0.114 B
 *   one_hot=N         int32, int64 become float32 [..., N]: 1 where the integer is, in [0, N)
 *   resize=H,W        uint8 [h, w] or [h, w, c] becomes H x W: the mean of the area under a pixel
 *
 * The two that repeat an action stop where the episode ends, or where the mask of the environment
 * behind them does not allow the action again.
 *
 * Returns are sums of an episode's rewards so far, each step discounted by G. The two that
 * normalise use what all copies have seen, until trp_env_use_statistics(): an actor reports what
 * its environment saw, the learner merges that of all actors and publishes it with the parameters,
 * and each normalises with what came with those that it acts on. Until two numbers were seen they
 * are only held to the bounds.
 *
 * Wrappers of one's own have keys of their own: wrapper.h.
 *
 * A trp_env belongs to one thread at a time. Two of them share nothing. */
#ifndef TRP_ENV_H
#define TRP_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/moments.h>
#include <troupe/options.h>
#include <troupe/rng.h>
#include <troupe/status.h>
#include <troupe/tensor.h>

TRP_BEGIN_DECLS

typedef enum {
    TRP_ACTION_DISCRETE,       /* an int32_t in [0, action_count) */
    TRP_ACTION_BOX,            /* action_count floats, each meant to lie in [low, high] */
    TRP_ACTION_MULTI_DISCRETE, /* action_count int32_t, number i in [0, action_choices[i]) */
    TRP_ACTION_MULTI_BINARY,   /* action_count bytes, each 0 or 1 */
} trp_action_kind;

enum { TRP_OBSERVATIONS_MAX = 8, TRP_INFOS_MAX = 8 };

/* What is reported of a number that an environment says beside the reward. */
typedef enum {
    TRP_INFO_LAST, /* of an episode: lives left, distance to the goal */
    TRP_INFO_MEAN, /* over the steps of an episode that said it: speed, error */
} trp_info_kind;

typedef struct {
    const char *name; /* of the metric */
    trp_info_kind kind;
} trp_env_info;

/* What a task looks like; constant for its life. An observation is one tensor or several, named
 * where there are several; the lists end at the first without a dtype and without a name. */
typedef struct {
    const char *name;
    trp_tensor_spec
        observations[TRP_OBSERVATIONS_MAX]; /* of one copy: TRP_FLOAT32, TRP_UINT8, or
                                               TRP_INT32 and TRP_INT64: tokens, counts */
    trp_action_kind action_kind;
    int32_t action_count;                  /* of choices, or of dimensions */
    const float *action_low, *action_high; /* TRP_ACTION_BOX: action_count each; else NULL */
    const int32_t *action_choices;         /* TRP_ACTION_MULTI_DISCRETE: action_count; else NULL */
    int64_t max_episode_steps;             /* time limit: truncates; 0: none */
    trp_env_info infos[TRP_INFOS_MAX];
    bool masked; /* some choices are not always allowed: set where there is trp_env_impl.mask, which
                    configure may do without by clearing it */
} trp_env_spec;

/* ---- using one --------------------------------------------------------------------------- */

typedef struct trp_env trp_env;

typedef struct {
    uint32_t count;            /* copies; 0: 1 */
    uint64_t seed;             /* copy i draws from stream i of this seed */
    int64_t max_episode_steps; /* 0: the spec's; negative: no limit */
    bool read_only;            /* for evaluation: statistics are used, never added to, and
                                  normalize_return leaves rewards as they are */
} trp_env_options;

/* One row per copy, rows back to back; observations have a buffer per tensor. All are the caller's
 * and are only written to. */
typedef struct {
    void *const *observations;       /* what to act on next */
    void *const *final_observations; /* rows of copies whose episode just ended, others are
                                        untouched; NULL: not wanted */
    float *rewards;
    bool *terminated;
    bool *truncated;
    float *discounts; /* what the value of the next observation counts, 0 where it terminated; NULL:
                         not wanted */
    bool *final_masks; /* what could be done at final_observations, in the same rows; all of it
                          where the episode terminated: nothing can follow. NULL: not wanted, or
                          nothing is masked */
} trp_env_buffers;

/* Makes `options->count` copies; NULL options: one copy, seed 0. NOT_FOUND lists the names there
 * are; INVALID_ARGUMENT for an argument (its name, value and range, or the nearest name), and for
 * more than 2^20 copies; RESOURCE_EXHAUSTED for more than 4096 different names in one process;
 * else the environment's own status. */
TRP_API TRP_MUST_USE trp_status trp_env_create(trp_env **out, const char *name,
                                               const trp_env_options *options);
TRP_API void trp_env_destroy(trp_env *env); /* NULL is fine */

TRP_API const trp_env_spec *trp_env_get_spec(const trp_env *env);
TRP_API uint32_t trp_env_count(const trp_env *env);
TRP_API size_t trp_env_action_bytes(const trp_env *env); /* of one row */

/* How many tensors an observation is, and how many infos there are. */
TRP_API size_t trp_env_observation_count(const trp_env_spec *spec);
TRP_API size_t trp_env_info_count(const trp_env_spec *spec);

/* What one action is, as a column named "action": int32, or action_count of float32, int32 or
 * uint8. */
TRP_API trp_tensor_spec trp_env_action_spec(const trp_env_spec *spec);

/* Starts a new episode in every copy. Fails as the environment itself does, or OUT_OF_RANGE as
 * trp_env_step(). */
TRP_API TRP_MUST_USE trp_status trp_env_reset(trp_env *env, void *const *observations);

/* Steps every copy: `actions` has one row per copy, as trp_env_action_spec() says.
 * INVALID_ARGUMENT for a choice that does not exist or is masked, and a number that is NaN (copy,
 * dimension and value are named; no copy has moved then); FAILED_PRECONDITION before the first
 * reset; OUT_OF_RANGE for a reward or an observation that is not finite and for a discount outside
 * of [0, 1] (copy, step and value are named); else the environment's own status. After these two
 * only trp_env_reset() and destroy are allowed, and what is in the buffers means nothing.
 * Allocates nothing. */
TRP_API TRP_MUST_USE trp_status trp_env_step(trp_env *env, const void *actions,
                                             const trp_env_buffers *buffers);

/* What each copy may do next: action_count flags a row. Only where the spec is `masked`.
 * FAILED_PRECONDITION for a copy that may do nothing at all. */
TRP_API TRP_MUST_USE trp_status trp_env_masks(const trp_env *env, bool *masks);

/* The infos of the last step, a row per copy; NaN: it said nothing. NULL: the spec has none. */
TRP_API const double *trp_env_infos(const trp_env *env);

/* Gives one copy the generator of the only copy of an object made with `seed`; its next episode is
 * the first that shows it. */
TRP_API void trp_env_seed(trp_env *env, uint32_t index, uint64_t seed);

/* ---- what normalising wrappers know ------------------------------------------------------ */

/* How many numbers they normalise, at most TRP_STATISTICS_MAX; 0: there are no such wrappers. The
 * innermost wrapper's come first, in the order of the observation. */
TRP_API size_t trp_env_statistics_count(const trp_env *env);

/* What the copies of this object have seen, all together; valid while the object is. */
TRP_API const trp_moments *trp_env_statistics(const trp_env *env);

/* Normalises with these from now on; copied. FAILED_PRECONDITION: another count than
 * trp_env_statistics_count(); INVALID_ARGUMENT as trp_moments_check(). */
TRP_API TRP_MUST_USE trp_status trp_env_use_statistics(trp_env *env, const trp_moments *moments,
                                                       size_t count);

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

/* Puts a copy into a state inside a running episode and writes its observation (one row of each
 * tensor; NULL: not wanted). Copies that were never reset count as reset once all of them had a
 * state set. NULL progress: the generator stays and the episode has 0 steps. UNIMPLEMENTED as
 * above; INVALID_ARGUMENT for a state that the environment cannot be in. */
TRP_API TRP_MUST_USE trp_status trp_env_set_state(trp_env *env, uint32_t index,
                                                  const trp_env_progress *progress,
                                                  const void *state, void *const *observations);

/* ---- which ones there are ---------------------------------------------------------------- */

/* The spec of a known environment with these arguments, without making one; kept for the life of
 * the process. Safe from any thread. Fails as trp_env_create(). */
TRP_API TRP_MUST_USE trp_status trp_env_find(const char *name, const trp_env_spec **spec);

/* trp_env_statistics_count() of one, without making it; the same. */
TRP_API TRP_MUST_USE trp_status trp_env_find_statistics(const char *name, size_t *count);

/* The specs in the order of registration, built-in ones first, as they were registered; NULL behind
 * the last. */
TRP_API const trp_env_spec *trp_env_at(size_t index);

/* ---- adding one -------------------------------------------------------------------------- */

/* What one step did besides changing the state. */
typedef struct {
    float reward;   /* 0 before the step, and so on: a step sets what is different */
    float discount; /* 1: in [0, 1], what the value of the next observation counts */
    double *infos;  /* NaN: one number per info of the spec; NULL: it has none */
    bool terminated;
    bool truncated; /* for a cut that the environment makes itself; the time limit is not its job */
} trp_env_outcome;

/* A step of many copies, `count` of each: state i is at `states` + i * stride, rows of actions are
 * back to back. */
typedef struct {
    uint32_t count;
    void *states;
    size_t stride;
    trp_rng *rngs;
    const void *actions;
    trp_env_outcome *outcomes;
} trp_env_steps;

/* An environment: functions on the state of one copy, `state_bytes` zeroed bytes, 16-byte aligned.
 * It draws only from the `rng` it is given. Functions marked optional may be NULL.
 *
 * Arguments are a struct that `options` describes (no option has the name of a wrapper):
 *
 *     typedef struct {
 *         uint32_t size;
 *     } maze_args;
 *     static const trp_option maze_rows[] = {
 *         {TRP_OPTION(maze_args, size), .fallback = "8", .min = 2, .max = 64, .help = "of a side"},
 *     };
 *     static const trp_option_table maze_table = TRP_OPTION_TABLE("Maze", maze_rows, maze_args);
 *     static trp_status maze_configure(void *arguments, void *user, trp_env_spec *spec)
 *     {
 *         const maze_args *maze = arguments;
 *         (void)user;
 *         spec->observations[0].shape[0] = spec->observations[0].shape[1] = maze->size;
 *         return TRP_OK;
 *     }
 */
typedef struct {
    trp_env_spec spec;
    size_t state_bytes;

    const trp_option_table *options; /* of the arguments; NULL: it has none */
    void *user;                      /* handed to configure and create; borrowed for good */

    /* Optional: sets what of the spec (a copy of the one above) follows from the arguments, and
     * checks what no range can say. Both are kept for good, and the spec may point into
     * `arguments`, where members without a row are free for that. Called by any thread. */
    trp_status (*configure)(void *arguments, void *user, trp_env_spec *spec);

    /* Optional: resources outside the state. `arguments`: NULL without options. */
    trp_status (*create)(void *state, const void *arguments, void *user);
    void (*destroy)(void *state); /* optional; also after a failed create */

    /* Starts an episode. */
    trp_status (*reset)(void *state, trp_rng *rng);

    /* Applies a valid action, one row. Not called again after an outcome with terminated or
     * truncated before the next reset. May be NULL where there is step_all. */
    trp_status (*step)(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome);

    /* Optional: the same for many copies at once, in place of step. */
    trp_status (*step_all)(const trp_env_steps *steps);

    /* Writes the observation of the current state: one row of each tensor. With `finite` it
     * promises that all numbers are finite, which are looked at otherwise: for boards and
     * counters, whose rules are as quick as that look. */
    void (*observe)(const void *state, void *const *observations);
    bool finite;

    /* Optional, TRP_ACTION_DISCRETE: which of the choices are allowed in the current state. All
     * `allowed` are false before. */
    void (*mask)(const void *state, bool *allowed);

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
