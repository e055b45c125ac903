/* Agents: what an algorithm is to the rest of the program. Tables for the replay server, an adder
 * and a policy for actors, an updater for the learner; built from one plain struct of options.
 *
 *     trp_agent agent = trp_dqn(&(trp_dqn_options){.n_step = 3}); // <troupe/dqn.h>
 *
 * Nodes are made with trp_agent_tables(), trp_agent_actor_create() and trp_agent_learner_create();
 * they know nothing of the program graph and are as usable without one. */
#ifndef TRP_AGENT_H
#define TRP_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/actor.h>
#include <troupe/env.h>
#include <troupe/learner.h>
#include <troupe/options.h>
#include <troupe/replay.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef struct trp_agent trp_agent;

enum { TRP_AGENT_TABLES_MAX = 4, TRP_AGENT_OPTION_BYTES = 512 };

/* The tables of one replay server; signatures are owned. A zeroed struct is empty. */
typedef struct {
    trp_table_options tables[TRP_AGENT_TABLES_MAX];
    size_t count;
} trp_agent_table_list;

/* Appends `table`, whose strings are only borrowed, with a signature that says `columns`; the list
 * of columns is freed. Fails as trp_signature_encode(); more than TRP_AGENT_TABLES_MAX are a bug
 * (asserted). */
TRP_API TRP_MUST_USE trp_status trp_agent_table_list_add(trp_agent_table_list *list,
                                                         const trp_table_options *table,
                                                         trp_columns *columns);

TRP_API void trp_agent_table_list_cleanup(trp_agent_table_list *list);

typedef struct {
    uint32_t rows;      /* most rows of one act(); 0: 1 */
    uint32_t slots;     /* whose recurrent state, or last frames, it keeps; 0: as many as rows */
    uint32_t index;     /* of the actor in its group */
    uint32_t count;     /* actors in the group; 0: 1 */
    bool greedy;        /* never explores: for evaluation */
    trp_device *device; /* where it is to compute (device.h); NULL: "cpu" */
} trp_policy_options;

typedef struct {
    uint32_t batch_size; /* 0: the agent's */
    trp_device *device;  /* where it is to learn (device.h); NULL: "cpu" */
    uint32_t threads;    /* of each network's passes (nn.h); 0: 1 */
    const char *dataset; /* the store that it learns from (source.h), read by agents that want to
                            know all of it at once; NULL: it learns from what comes */
} trp_updater_options;

/* An algorithm. Every function gets the agent whose options it reads. */
typedef struct {
    const char *name;
    /* Of its options; without texts. NULL: it has none, or keeps bytes of its own. */
    const trp_option_table *options;
    /* INVALID_ARGUMENT: what of the environment does not fit. Every option is in its range. NULL:
     * all fit. */
    trp_status (*check)(const trp_agent *agent, const trp_env_spec *env);
    trp_status (*tables)(const trp_agent *agent, const trp_env_spec *env,
                         trp_agent_table_list *list);
    trp_status (*policy)(const trp_agent *agent, const trp_env_spec *env,
                         const trp_policy_options *options, trp_policy **out);
    /* `options` has everything but table and priority, which are the agent's to set; extras are
     * those of its policy. */
    trp_status (*adder)(const trp_agent *agent, const trp_adder_options *options, trp_adder **out);
    trp_status (*updater)(const trp_agent *agent, const trp_env_spec *env,
                          const trp_updater_options *options, trp_updater **out);
} trp_agent_impl;

/* Plain data without pointers besides `impl`: returned by value, copied, kept by everybody. Made by
 * trp_agent_make(). */
struct trp_agent {
    const trp_agent_impl *impl;
    union {
        long double align;
        unsigned char bytes[TRP_AGENT_OPTION_BYTES]; /* the algorithm's options, defaults filled in;
                                                        bytes that mean nothing are 0 */
    } options;
};

/* The agent of an algorithm with these options, a struct that impl->options describes, defaults in
 * place of zeros; NULL: defaults. Never fails: values are checked by trp_agent_check() and when a
 * node is made. A constructor of one's own is this and nothing else:
 *
 *     trp_agent my_agent(const my_options *options) { return trp_agent_make(&my_impl, options); }
 */
TRP_API trp_agent trp_agent_make(const trp_agent_impl *impl, const void *options);

/* The same in every process for an agent built from the same options: for graph hashes. */
TRP_API uint64_t trp_agent_hash(const trp_agent *agent);

/* Whether its options are in range and this agent can learn this environment: trp_agent_impl.check.
 * `env` is a name as env.h says. Fails as trp_env_find(). */
TRP_API TRP_MUST_USE trp_status trp_agent_check(const trp_agent *agent, const char *env);

/* The tables of the replay server, signatures included; trp_agent_table_list_cleanup() frees. */
TRP_API TRP_MUST_USE trp_status trp_agent_tables(const trp_agent *agent, const char *env,
                                                 trp_agent_table_list *list);

/* ---- nodes ------------------------------------------------------------------------------- */

typedef struct {
    const char *name;      /* "actor/2": no two actors of a run may have the same name and index,
                              as their random numbers and item keys follow from them */
    const char *env;       /* its name, as env.h says */
    uint32_t copies;       /* of the environment; 0: 1 */
    uint32_t index, count; /* of this actor in its group; count 0: 1 */
    trp_device *device;    /* where its policy computes; NULL: "cpu". INVALID_ARGUMENT: the agent's
                              policy knows only that */
    trp_channel *replay;   /* borrowed */
    trp_rollout *rollout;  /* instead of it (rollout.h): the actor is stepped; borrowed */
    ProtobufCService *params; /* troupe.Params; borrowed */
    trp_stop *stop;           /* borrowed */
    uint64_t seed;            /* of the run: environment and exploration get streams of their own */
    uint64_t max_steps;       /* of all actors together; 0: no limit */
    uint64_t max_episodes;    /* of this one; 0: no limit */
    /* As in trp_actor_loop_options; pull_every_steps 0: the adder's, where an actor never waits. */
    uint64_t pull_every_steps;
    uint64_t sync_every_items;
    uint32_t max_lag;
    double max_age_s;
    trp_params_precision params_precision;
} trp_agent_actor_options;

TRP_API TRP_MUST_USE trp_status trp_agent_actor_create(trp_actor **out, const trp_agent *agent,
                                                       const trp_agent_actor_options *options);

typedef struct {
    const char *name; /* copied; of the learner: as that of an actor */
    uint32_t copies;  /* of the environment */
    uint32_t index;   /* of the learner among those of its group */
} trp_agent_rollout_options;

/* Batches that the agent's policy and adder make of `env`, stepped when the learner wants a batch,
 * on its thread, with the parameters of its last step: A3C, fused PPO. Steps and episodes count as
 * an actor's do. A life of the learner that resumes begins with new episodes. In batches of
 * sequences the order is that in which the adder made them. Opens nothing yet; the learner's first
 * batch finds out what trp_agent_actor_create() can fail with, and INVALID_ARGUMENT: the updater
 * wants other columns than the adder has. INVALID_ARGUMENT here: the agent cannot learn `env`. */
TRP_API TRP_MUST_USE trp_status
trp_agent_rollout_source_create(trp_source **out, const trp_agent *agent, const char *env,
                                uint64_t seed, const trp_agent_rollout_options *options);

typedef struct {
    const char *env;
    uint32_t batch_size;         /* 0: the agent's */
    trp_device *device;          /* NULL: "cpu". INVALID_ARGUMENT: its updater knows only that */
    uint32_t threads;            /* as in trp_updater_options */
    trp_channel *const *replays; /* one to each shard (source.h), with all tables; borrowed */
    size_t replay_count;
    trp_dataset_source_options dataset; /* of all tables, instead, if it has a directory; seed and
                                           prefetch are trp_agent_learner_create()'s */
    trp_agent_rollout_options rollout;  /* instead of both, if it has copies */
    uint32_t prefetch;                  /* batches; 0: 2 */
    uint64_t seed;                      /* of the run: its initial parameters follow from it and */
    uint32_t index;                     /* of this learner, or its group, among those of the run */
    uint32_t member;                    /* of this learner in its group */
    trp_learner_loop_options loop; /* updater, sources, seed and statistic_count (that of env) are
                                      trp_agent_learner_create()'s */
} trp_agent_learner_options;

TRP_API TRP_MUST_USE trp_status trp_agent_learner_create(trp_learner **out, const trp_agent *agent,
                                                         const trp_agent_learner_options *options);

/* A policy without an actor, such as a greedy one for trp_evaluate(). INVALID_ARGUMENT: the agent's
 * policy computes on another device than that which is wanted. */
TRP_API TRP_MUST_USE trp_status trp_agent_policy_create(trp_policy **out, const trp_agent *agent,
                                                        const char *env,
                                                        const trp_policy_options *options);

TRP_END_DECLS
#endif
