/* Acting: a policy, an adder that turns steps into replay items, the environment loop that joins
 * them, the client that pulls parameters, and evaluation.
 *
 * One step goes: policy acts on the rows of all copies -> trp_env_step() -> the adder makes items
 * of what happened -> the replay server. Every `pull_every_ms` newer parameters are pulled and the
 * counts are reported to the learner.
 *
 * Most users make an actor with trp_agent_actor_create() (agent.h); this header is for algorithms
 * and nodes of one's own. */
#ifndef TRP_ACTOR_H
#define TRP_ACTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/env.h>
#include <troupe/rng.h>
#include <troupe/rpc.h>
#include <troupe/status.h>
#include <troupe/stop.h>

TRP_BEGIN_DECLS

/* ---- policies ---------------------------------------------------------------------------- */

typedef struct trp_policy trp_policy;

/* One decision for `rows` copies, row by row. */
typedef struct {
    const void *observations; /* of the environment's spec */
    uint32_t rows;            /* at most what the policy was made for */
    uint64_t steps;           /* of all actors together so far: for exploration schedules */
    trp_rng *rng;
    void *actions; /* written: int32_t, or action_count floats, per row */
} trp_act;

typedef struct {
    trp_status (*act)(trp_policy *policy, const trp_act *act);
    /* Copies the flat parameter vector. INVALID_ARGUMENT: another count than this network has. */
    trp_status (*load)(trp_policy *policy, const float *params, size_t count);
    /* How often it explores after `steps`, for reports; optional. */
    double (*epsilon)(const trp_policy *policy, uint64_t steps);
    void (*destroy)(trp_policy *policy);
} trp_policy_impl;

/* The first member of every policy. A policy belongs to one thread at a time. */
struct trp_policy {
    const trp_policy_impl *impl;
};

TRP_API void trp_policy_destroy(trp_policy *policy); /* NULL is fine */

/* ---- adders ------------------------------------------------------------------------------ */

typedef struct trp_adder trp_adder;

/* What followed from one observation of one copy. */
typedef struct {
    const void *action;
    float reward;
    float discount;               /* the environment's: 0 where it terminated, else 1 */
    const void *next_observation; /* the final one when the episode ended */
    bool last;                    /* the episode ended here (terminated or truncated) */
    uint64_t version;             /* of the parameters that chose the action */
} trp_transition;

typedef struct {
    /* Starts an episode of copy `copy`; an unfinished one is dropped. Never blocks. */
    void (*first)(trp_adder *adder, uint32_t copy, const void *observation);
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
     * the same seed does not overwrite what the first one inserted. */
    void (*reseed)(trp_adder *adder, uint64_t seed);
    void (*destroy)(trp_adder *adder);
} trp_adder_impl;

/* The first member of every adder. An adder belongs to one thread at a time. */
struct trp_adder {
    const trp_adder_impl *impl;
};

TRP_API void trp_adder_destroy(trp_adder *adder); /* NULL is fine */

/* The n-step transition adder (Acme's NStepTransitionAdder): an item is (o_t, a_t, R, D, o_{t+m})
 * with R = sum_{k<m} discount^k (prod_{j<k} d_j) r_{t+k} and D = discount^{m-1} prod_{k<m} d_k,
 * where m is n_step, less at both ends of an episode: the first observation gets windows 1, 2, ...
 * n, the end windows n-1 ... 1. The learner multiplies D by discount once more. An episode of
 * T >= n steps gives T + n - 1 items, a shorter one 2T - 1. A truncated episode keeps D > 0 and
 * bootstraps from its final observation; a terminated one has D = 0. */
typedef struct {
    trp_channel *replay; /* borrowed; outlives the adder */
    const char *table;   /* copied */
    const trp_env_spec *env;
    uint32_t copies;        /* of the environment; 0: 1 */
    uint32_t n_step;        /* 0: 1 */
    double discount;        /* gamma */
    double priority;        /* of new items; 0: 1 */
    uint32_t max_in_flight; /* unconfirmed items; 0: 64 per copy, at least 256 */
    uint32_t batch_items;   /* items that share a message; 0: the writer's default */
    uint64_t seed;          /* of keys; 0: from the operating system */
} trp_nstep_options;

/* The columns of its items, in this order. */
enum {
    TRP_NSTEP_OBSERVATION,
    TRP_NSTEP_ACTION,   /* int32, or float32[action_count] */
    TRP_NSTEP_REWARD,   /* float32: R */
    TRP_NSTEP_DISCOUNT, /* float32: D */
    TRP_NSTEP_NEXT_OBSERVATION,
    TRP_NSTEP_VERSION, /* int64: of the parameters that chose the item's action */
    TRP_NSTEP_COLUMNS,
};

/* Opens nothing: the first push does. INVALID_ARGUMENT names the option that is wrong. */
TRP_API TRP_MUST_USE trp_status trp_nstep_adder_create(trp_adder **out,
                                                       const trp_nstep_options *options);

/* The columns for an environment; shapes are the environment's, names are static. */
TRP_API void trp_nstep_columns(const trp_env_spec *env, trp_tensor_spec columns[TRP_NSTEP_COLUMNS]);

/* ---- parameters -------------------------------------------------------------------------- */

/* Pulls parameters from a troupe.Params service when there are newer ones and reports counts.
 * Belongs to one thread. An older version never replaces a newer one. */
typedef struct trp_params_client trp_params_client;

typedef struct {
    ProtobufCService *service; /* troupe.Params: the object itself or a proxy; borrowed */
    const char *name;          /* whose counts these are ("actor/2"), copied; NULL: nobody's */
    trp_stop *stop;            /* ends waits with CANCELLED; NULL: none */
    int64_t timeout_ms;        /* of one attempt; 0: 2 000 */
    int64_t give_up_ms;        /* failing for so long surfaces the failure; 0: 60 000 */
} trp_params_client_options;

TRP_API TRP_MUST_USE trp_status trp_params_client_create(trp_params_client **out,
                                                         const trp_params_client_options *options);
TRP_API void trp_params_client_destroy(trp_params_client *client); /* NULL is fine */

/* Reports that this life of the client did `steps` and `episodes` so far and gets newer parameters;
 * `*newer` (may be NULL) says whether there were any. What earlier lives did is added to the
 * report from the learner's first reply on. UNAVAILABLE and DEADLINE_EXCEEDED are tried again,
 * with a warning in the log, for give_up_ms and then returned; other failures at once.
 * CANCELLED: stop. DATA_LOSS: the parameters have another size than before. */
TRP_API TRP_MUST_USE trp_status trp_params_client_pull(trp_params_client *client, uint64_t steps,
                                                       uint64_t episodes, bool *newer);

/* Pulls until there is a first version: waits up to `timeout_ms` (negative: no bound). */
TRP_API TRP_MUST_USE trp_status trp_params_client_wait(trp_params_client *client,
                                                       int64_t timeout_ms);

/* What the last pull left; all zero before the first. `params` is valid until the next pull. */
typedef struct {
    const float *params;
    size_t count;
    uint64_t version;    /* 0: none yet */
    uint64_t base_steps; /* of earlier lives of this client */
    uint64_t base_episodes;
    uint64_t total_steps;   /* of all clients */
    uint64_t learner_steps; /* of the learner at that version's reply */
    uint64_t pulls, fetched;
} trp_params_state;

TRP_API trp_params_state trp_params_client_state(const trp_params_client *client);

/* A file with one version of the parameters (safetensors: "params", notes "version" and
 * "learner_steps"), written as trp_checkpoint_write() does. */
TRP_API TRP_MUST_USE trp_status trp_params_write(const char *path, const trp_params_state *state);

/* Loads such a file, or a learner's checkpoint, into a policy. `version` may be NULL. Failures as
 * trp_checkpoint_read() and the policy's load. */
TRP_API TRP_MUST_USE trp_status trp_params_load(const char *path, trp_policy *policy,
                                                uint64_t *version);

/* ---- the environment loop ---------------------------------------------------------------- */

typedef struct trp_actor trp_actor;

/* Everything that an actor is made of. env, policy and adder are taken, also on failure. */
typedef struct {
    const char *name; /* copied; identifies its counts across restarts */
    trp_env *env;
    trp_policy *policy;
    trp_adder *adder;          /* NULL: what happens is not stored */
    ProtobufCService *params;  /* troupe.Params, borrowed; NULL: the policy stays as it is */
    trp_stop *stop;            /* borrowed; NULL: none */
    uint64_t seed;             /* of exploration */
    int64_t pull_every_ms;     /* 0: 50 */
    uint64_t pull_every_steps; /* 0: by time alone, or every 64 in deterministic runs */
    int64_t replay_give_up_ms; /* a replay server that is away for so long ends run(); 0: 60 000 */
    uint64_t max_steps;        /* run() ends when all actors together did so many; 0: no limit */
} trp_actor_loop_options;

/* Counts of this life of the actor, and what it last saw. */
typedef struct {
    uint64_t steps, episodes, items;          /* steps count every copy */
    uint64_t earlier_steps, earlier_episodes; /* of its earlier lives, as the learner knows them */
    uint64_t version;                         /* of the parameters it acts with */
    uint64_t total_steps; /* of all actors, all lives, as the learner last said */
    double epsilon;
    double last_return;  /* of the last finished episode; NaN before the first */
    double mean_return;  /* of the last up to 100 finished episodes; NaN before the first */
    uint64_t blocked_ns; /* waiting for the replay table */
    bool finished;       /* max_steps was reached */
} trp_actor_counters;

TRP_API TRP_MUST_USE trp_status trp_actor_create(trp_actor **out,
                                                 const trp_actor_loop_options *options);

/* Waits for the first parameters, then steps until stop or max_steps (TRP_OK both), or until
 * something fails: the environment, the parameter client, the replay server. Items
 * made so far are confirmed before it returns OK (bounded: 2 s). In a deterministic run it hands
 * its turn on after every step and starts no thread. Once. */
TRP_API TRP_MUST_USE trp_status trp_actor_run(trp_actor *actor);

/* Safe from any thread while the actor exists. */
TRP_API trp_actor_counters trp_actor_read(const trp_actor *actor);

TRP_API void trp_actor_destroy(trp_actor *actor); /* NULL is fine */

/* ---- evaluation -------------------------------------------------------------------------- */

typedef struct {
    const char *env;
    uint32_t episodes; /* 0: 100 */
    uint32_t copies;   /* stepped together; 0: one per episode, at most 128 */
    uint64_t seed;     /* another seed, other episodes */
    trp_stop *stop;    /* CANCELLED; NULL: none */
} trp_evaluate_options;

typedef struct {
    uint32_t episodes;
    double mean, std, min, max; /* of the returns; std is the sample's (n - 1) */
    double lower;               /* mean - 2 standard errors */
    uint64_t steps;
} trp_evaluation;

/* Runs whole, fresh episodes and nothing else. Every copy has a fixed share of them, so short
 * episodes are not counted more often than long ones. */
TRP_API TRP_MUST_USE trp_status trp_evaluate(trp_policy *policy,
                                             const trp_evaluate_options *options,
                                             trp_evaluation *result);

TRP_END_DECLS
#endif
