/* Acting: the environment loop that joins a policy, an adder and the client that pulls parameters;
 * and evaluation.
 *
 * One step goes: policy acts on the rows of all copies -> trp_env_step() -> the adder makes items
 * of what happened -> the replay server. Every `pull_every_ms` newer parameters are pulled and the
 * counts are reported to the learner, on a thread beside: acting goes on with the parameters there
 * are while the learner is slow, or away for up to a minute.
 *
 * Most users make an actor with trp_agent_actor_create() (agent.h); this header is for algorithms
 * and nodes of one's own. */
#ifndef TRP_ACTOR_H
#define TRP_ACTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/adder.h>
#include <troupe/columns.h>
#include <troupe/env.h>
#include <troupe/metric.h>
#include <troupe/params.h>
#include <troupe/policy.h>
#include <troupe/status.h>
#include <troupe/stop.h>

TRP_BEGIN_DECLS

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
    int64_t replay_give_up_ms; /* a replay server that is away for so long, also at the
                                  start, ends run(); 0: 60 000 */
    uint64_t max_steps;        /* run() ends when all actors together did so many; 0: no limit */
    uint64_t max_episodes;     /* or when this one, in all its lives, played so many; 0: no limit */
    /* For learners that make each version of fresh items: one of every `sync_every_items` items of
     * this actor. It waits, up to 10 minutes, for the version that comes of the items so far before
     * it makes further ones; 0: it never waits. With `max_lag` it may be so many versions ahead:
     * items are then made with parameters at most so many versions older than those that they are
     * to improve. Counted in whole vector steps.
     * Without sync_every_items, max_lag bounds how many versions its parameters are behind the
     * newest one, as far as it can know: where the learner's memory is read, it looks before each
     * vector step; else whenever it pulls, and waits for the answer. 0: there is no bound. */
    uint64_t sync_every_items;
    uint32_t max_lag;
    /* How long its parameters may not have been known to be the newest, before it waits for the
     * learner to answer; that fails as trp_params_client_pull(). 0: it does not care. Not in
     * deterministic runs. */
    double max_age_s;
    trp_params_precision params_precision; /* of parameters that are sent */
    bool stepped; /* by trp_actor_step() instead of run(); no thread is started */
} trp_actor_loop_options;

/* Counts of this life of the actor, and what it last saw. */
typedef struct {
    uint64_t steps, episodes, items;          /* steps count every copy */
    uint64_t earlier_steps, earlier_episodes; /* of its earlier lives, as the learner knows them */
    uint64_t version;                         /* of the parameters it acts with */
    uint64_t total_steps; /* of all actors, all lives, as the learner last said */
    double last_return;   /* of the last finished episode; NaN before the first */
    double mean_return;   /* of the last up to 100 finished episodes; NaN before the first */
    uint64_t blocked_ns;  /* waiting for the replay table */
    /* How stale the parameters were that it acted with until it last looked for newer ones:
     * versions published since, and for how long it had not known that there are none. */
    uint64_t params_lag, params_age_ns;
    uint64_t stale_ns; /* waiting because of max_age_s */
    bool finished;     /* max_steps or max_episodes was reached */
    size_t metric_count;
    /* The policy's own, and the environment's infos of the last finished episode that had them. */
    trp_metric metrics[TRP_METRICS_MAX + TRP_INFOS_MAX];
} trp_actor_counters;

TRP_API TRP_MUST_USE trp_status trp_actor_create(trp_actor **out,
                                                 const trp_actor_loop_options *options);

/* Waits for the first parameters, then steps until stop or a limit (TRP_OK both), or until
 * something fails: the environment, the parameter client, the replay server, or the version that
 * sync_every_items waits for, which does not come. Items
 * made so far are confirmed before it returns OK (bounded: 2 s). In a deterministic run it hands
 * its turn on after every step and starts no thread. Once. */
TRP_API TRP_MUST_USE trp_status trp_actor_run(trp_actor *actor);

/* For who acts between other things on one thread (a batch source), with `stepped`: one vector step
 * of every copy with the parameters there are, or, where the adder could not get rid of all that
 * the last one made, only that: DEADLINE_EXCEEDED when it still cannot. The first call waits for
 * the first parameters and starts the episodes. Other failures as run(). */
TRP_API TRP_MUST_USE trp_status trp_actor_step(trp_actor *actor);

/* With `stepped`: takes the newest parameters and reports the counts, now. */
TRP_API TRP_MUST_USE trp_status trp_actor_pull(trp_actor *actor);

/* Safe from any thread while the actor exists. */
TRP_API trp_actor_counters trp_actor_read(const trp_actor *actor);

TRP_API void trp_actor_destroy(trp_actor *actor); /* NULL is fine */

/* ---- evaluation -------------------------------------------------------------------------- */

/* One whole episode as it was played. Columns are observation (of several tensors one for each, see
 * columns of adder.h), action, reward, discount; `data` has a buffer for each, rows back to back.
 * As in items of the sequence adder the last row has the final observation, and zeros besides. A
 * zeroed struct is empty. */
typedef struct {
    trp_columns columns;
    uint64_t rows;
    void **data; /* columns.count */
} trp_episode;

TRP_API void trp_episode_cleanup(trp_episode *episode);

typedef struct {
    const char *env;
    uint32_t episodes; /* 0: 100 */
    uint32_t copies;   /* stepped together; 0: one per episode, at most 128 */
    uint64_t seed;     /* another seed, other episodes */
    trp_stop *stop;    /* CANCELLED; NULL: none */
    double *returns;   /* [episodes]: written, in the order in which they ended; NULL: not wanted */
    /* Written: the first episode of the first copy; empty before, cleaned up by the caller, also on
     * failure. NULL: not wanted. RESOURCE_EXHAUSTED: it is longer than 1 GiB. */
    trp_episode *episode;
    /* What normalising wrappers use: those that came with the parameters; borrowed, 0: none. They
     * are only read, and rewards are not normalised. */
    const trp_moments *statistics;
    size_t statistic_count;
} trp_evaluate_options;

typedef struct {
    uint32_t episodes;
    double mean, std, min, max; /* of the returns; std is the sample's (n - 1) */
    double lower;               /* mean - 2 standard errors */
    /* Percentiles: of n sorted returns the p-th lies at p / 100 * (n - 1), between two of them in
     * proportion (numpy's default). */
    double p5, p25, median, p75, p95;
    uint64_t steps;
} trp_evaluation;

/* Runs whole, fresh episodes and nothing else. A policy that explores does so as at the end of its
 * schedules. Every copy has a fixed share of them, so short
 * episodes are not counted more often than long ones. FAILED_PRECONDITION: the environment's
 * wrappers normalise another count of numbers than there are statistics of, also none. */
TRP_API TRP_MUST_USE trp_status trp_evaluate(trp_policy *policy,
                                             const trp_evaluate_options *options,
                                             trp_evaluation *result);

TRP_END_DECLS
#endif
