/* Adders: steps in, replay items out. An adder decides which steps make an item; its columns say
 * what an item has, by name. Tables, adders and updaters are made from the same list, and nobody
 * else knows where in it a column is.
 *
 * Names: "observation", "action", "reward", "discount", "next_observation", "version", then the
 * policy's extras under their own. Of an environment that masks choices the n-step adder has
 * "next_mask", too. An observation of several tensors has a column for each:
 * "observation/NAME", "next_observation/NAME". */
#ifndef TRP_ADDER_H
#define TRP_ADDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/columns.h>
#include <troupe/env.h>
#include <troupe/rollout.h>
#include <troupe/rpc.h>
#include <troupe/status.h>
#include <troupe/structured_writer.h>

TRP_BEGIN_DECLS

typedef struct trp_adder trp_adder;

/* What followed from one observation of one copy. Rows are of one copy, one pointer per tensor. */
typedef struct {
    const void *action;
    float reward;
    float discount;                       /* the environment's, as trp_env_buffers.discounts */
    const void *const *next_observations; /* the final ones when the episode ended */
    const bool *next_mask;     /* what may be done at next_observations; where the spec is masked */
    const void *const *extras; /* of the decision that `action` is; NULL: none */
    bool last;                 /* the episode ended here (terminated or truncated) */
    uint64_t version;          /* of the parameters that chose the action */
} trp_transition;

typedef struct {
    /* Starts an episode of copy `copy`; an unfinished one is dropped. Never blocks. */
    void (*first)(trp_adder *adder, uint32_t copy, const void *const *observations);
    /* Adds one step and keeps the items that it completes until push. Never blocks. At most one
     * step per copy between pushes that returned OK. */
    void (*add)(trp_adder *adder, uint32_t copy, const trp_transition *transition);
    /* Hands kept items to the writer, waiting up to `timeout_ms` for the table. DEADLINE_EXCEEDED:
     * some are still kept, call again. */
    trp_status (*push)(trp_adder *adder, int64_t timeout_ms);
    /* push, then waits until every item is confirmed. */
    trp_status (*flush)(trp_adder *adder, int64_t timeout_ms);
    /* Items handed to the writer so far. */
    uint64_t (*items)(const trp_adder *adder);
    /* Other item keys from now on; before the first push. So that a later life of an actor with
     * the same seed does not overwrite what the first one inserted. Optional. */
    void (*reseed)(trp_adder *adder, uint64_t seed);
    void (*destroy)(trp_adder *adder);
} trp_adder_impl;

/* The first member of every adder. An adder belongs to one thread at a time. */
struct trp_adder {
    const trp_adder_impl *impl;
    trp_columns columns;       /* of an item; trp_adder_destroy() frees it */
    trp_columns extras;        /* what it wants of each step; freed too */
    uint64_t pull_every_steps; /* of all copies: an actor that never waits for a version asks for
                                  newer parameters so often, unless it is told otherwise; 0: the
                                  actor decides */
};

TRP_API void trp_adder_destroy(trp_adder *adder); /* NULL is fine */

/* What every adder here has to be told. */
typedef struct {
    trp_channel *replay; /* borrowed; outlives the adder */
    const char *table;   /* copied */
    /* Items go into its batches instead of to the table; borrowed, outlives the adder; NULL: none.
     * An adder of one's own uses it in place of its writer (rollout.h), or refuses it. */
    trp_rollout *rollout;
    const trp_env_spec *env;
    const trp_columns *extras; /* of the policy, copied; NULL: none */
    uint32_t copies;           /* of the environment; 0: 1 */
    double priority;           /* of new items; 0: 1 */
    uint32_t max_in_flight; /* unconfirmed items; 0: of the n-step adder 64 per copy, at least 256,
                               of others the writer's number; all up to 2048 while the table
                               confirms as many within 5 ms */
    uint32_t batch_items;   /* items that share a message; 0: the writer's default */
    uint64_t seed;          /* of keys; 0: from the operating system */
} trp_adder_options;

/* ---- n-step transitions ------------------------------------------------------------------ */

/* The n-step transition adder (Acme's NStepTransitionAdder): an item is (o_t, a_t, R, D, o_{t+m})
 * with R = sum_{k<m} discount^k (prod_{j<k} d_j) r_{t+k} and D = discount^{m-1} prod_{k<m} d_k,
 * where m is n_step, less at both ends of an episode: the first observation gets windows 1, 2, ...
 * n, the end windows n-1 ... 1. The learner multiplies D by discount once more. An episode of
 * T >= n steps gives T + n - 1 items, a shorter one 2T - 1. A truncated episode keeps D > 0 and
 * bootstraps from its final observation; a terminated one has D = 0. Extras and the version are
 * those of o_t. The writer sends them in messages of many; a push sends what has waited for half a
 * second, but where threads take turns. */
typedef struct {
    uint32_t n_step; /* 0: 1 */
    double discount; /* gamma */
} trp_nstep_options;

/* Appends the columns of its items: observation, action (int32 or float32[action_count]), reward
 * (float32, R), discount (float32, D), next_observation, next_mask (bool[action_count]: what may be
 * done there; only where the environment's spec is masked), version (int64), extras. */
TRP_API void trp_nstep_columns(const trp_env_spec *env, const trp_columns *extras,
                               trp_columns *columns);

/* Opens nothing: the first push does. INVALID_ARGUMENT names the option that is wrong. */
TRP_API TRP_MUST_USE trp_status trp_nstep_adder_create(trp_adder **out,
                                                       const trp_adder_options *options,
                                                       const trp_nstep_options *nstep);

/* ---- sequences --------------------------------------------------------------------------- */

/* What becomes of the steps that an episode's end leaves over: they are fewer than make an item. */
typedef enum {
    TRP_END_PAD,      /* zeros until the item is whole; `valid` is false there */
    TRP_END_WRITE,    /* an item of the last `length` rows; a shorter episode gives none */
    TRP_END_TRUNCATE, /* a shorter item: for readers that take items of any length */
    TRP_END_CONTINUE, /* the item goes on with the next episode */
} trp_sequence_end;

/* The sequence adder (Acme's SequenceAdder): an item is `length` consecutive rows of one copy, and
 * one begins every `period` rows. An episode of T steps has T + 1 rows: the last has the final
 * observation, and zeros as action, reward, discount and extras, so that a truncated episode is
 * bootstrapped from it (the discount of the row before is 1 then, and 0 where it terminated).
 * Shared rows of overlapping items are sent once.
 *
 * With length 3 and period 2 an episode of 6 rows gives 1-2-3, 3-4-5 and then: PAD 5-6-0,
 * WRITE 4-5-6, TRUNCATE 5-6, CONTINUE 5-6 and the first row of the next episode. */
typedef struct {
    uint32_t length;
    uint32_t period; /* 0: length */
    trp_sequence_end end;
    /* Extras that an item carries of its first row alone, without a time axis: a recurrent
     * network's core state (Kapturowski et al. 2019). Names, NULL behind the last; NULL: none. */
    const char *const *first_extras;
} trp_sequence_options;

/* Appends the columns of its items, with a time axis each (-1 with TRP_END_TRUNCATE): observation,
 * action, reward, discount, first (bool: an episode begins), valid (bool: a step was taken; false
 * in the row of the final observation and in padding), version (int64), extras. */
TRP_API void trp_sequence_columns(const trp_env_spec *env, const trp_columns *extras,
                                  const trp_sequence_options *sequence, trp_columns *columns);

/* Opens nothing: the first push does. An item's policy version is that of its first row.
 * INVALID_ARGUMENT names the option that is wrong. */
TRP_API TRP_MUST_USE trp_status trp_sequence_adder_create(trp_adder **out,
                                                          const trp_adder_options *options,
                                                          const trp_sequence_options *sequence);

/* ---- episodes ---------------------------------------------------------------------------- */

/* The episode adder (Acme's EpisodeAdder): an item is a whole episode, T + 1 rows for T steps, as
 * the sequence adder makes them. An episode of more than `longest` steps makes push fail with
 * OUT_OF_RANGE, naming the copy: what is in no item cannot be learnt. */
typedef struct {
    uint32_t longest; /* steps, in [1, 65 535] */
    bool pad; /* zeros behind the last row until there are longest + 1; `valid` is false there */
} trp_episode_options;

/* Appends the columns of its items, those of sequences of longest + 1 rows, or of -1 without pad.
 */
TRP_API void trp_episode_columns(const trp_env_spec *env, const trp_columns *extras,
                                 const trp_episode_options *episode, trp_columns *columns);

/* Opens nothing: the first push does. INVALID_ARGUMENT names the option that is wrong. */
TRP_API TRP_MUST_USE trp_status trp_episode_adder_create(trp_adder **out,
                                                         const trp_adder_options *options,
                                                         const trp_episode_options *episode);

/* ---- patterns ---------------------------------------------------------------------------- */

/* The pattern adder (Acme's StructuredAdder): the rows that the sequence adder makes of a copy's
 * episode go to a structured writer of its own, and patterns say which of them make items of which
 * tables. Conditions on TRP_END_EPISODE hold after the row of the final observation; the table and
 * the priority are the pattern's. An item's policy version is that of the newest step. A dropped
 * episode leaves the items that the patterns made of it before. Items wait for others of their
 * message as those of the n-step adder do; an episode's end sends them, too. */

/* Appends the columns of a row, whose places in the list are the patterns' `column`: observation,
 * action, reward, discount, first, valid, version, extras. */
TRP_API void trp_row_columns(const trp_env_spec *env, const trp_columns *extras,
                             trp_columns *columns);

/* Appends the columns of a pattern's items: for its table's signature. */
TRP_API void trp_pattern_columns(const trp_env_spec *env, const trp_columns *extras,
                                 const trp_pattern *pattern, trp_columns *columns);

/* `patterns` are borrowed, with all that they refer to: they outlive the adder, whose own columns
 * are those of the first. Each copy may have max_in_flight items unconfirmed. Opens nothing: the
 * first push does. INVALID_ARGUMENT names the pattern or the option that is wrong. */
TRP_API TRP_MUST_USE trp_status trp_pattern_adder_create(trp_adder **out,
                                                         const trp_adder_options *options,
                                                         const trp_pattern *patterns,
                                                         size_t pattern_count);

TRP_END_DECLS
#endif
