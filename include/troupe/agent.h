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

TRP_API void trp_agent_table_list_cleanup(trp_agent_table_list *list);

typedef struct {
    uint32_t rows;  /* most rows of one act(); 0: 1 */
    uint32_t index; /* of the actor in its group */
    uint32_t count; /* actors in the group; 0: 1 */
    bool greedy;    /* never explores: for evaluation */
} trp_policy_options;

typedef struct {
    trp_channel *replay; /* borrowed */
    uint32_t copies;     /* of the environment; 0: 1 */
    uint64_t seed;
} trp_adder_options;

typedef struct {
    uint32_t batch_size; /* 0: the agent's */
    uint64_t seed;       /* of the initial parameters */
} trp_updater_options;

/* An algorithm. Every function gets the agent whose options it reads. */
typedef struct {
    const char *name;
    /* INVALID_ARGUMENT names the option, or what of the environment does not fit. */
    trp_status (*check)(const trp_agent *agent, const trp_env_spec *env);
    trp_status (*tables)(const trp_agent *agent, const trp_env_spec *env,
                         trp_agent_table_list *list);
    trp_status (*policy)(const trp_agent *agent, const trp_env_spec *env,
                         const trp_policy_options *options, trp_policy **out);
    trp_status (*adder)(const trp_agent *agent, const trp_env_spec *env,
                        const trp_adder_options *options, trp_adder **out);
    trp_status (*updater)(const trp_agent *agent, const trp_env_spec *env,
                          const trp_updater_options *options, trp_updater **out);
} trp_agent_impl;

/* Plain data without pointers besides `impl`: returned by value, copied, kept by everybody. */
struct trp_agent {
    const trp_agent_impl *impl;
    union {
        long double align;
        unsigned char bytes[TRP_AGENT_OPTION_BYTES]; /* the algorithm's options, defaults filled in;
                                                        bytes that mean nothing are 0 */
    } options;
};

/* The same in every process for an agent built from the same options: for graph hashes. */
TRP_API uint64_t trp_agent_hash(const trp_agent *agent);

/* Whether this agent can learn this environment: trp_agent_impl.check. `env` is a registered
 * name. NOT_FOUND lists the names there are. */
TRP_API TRP_MUST_USE trp_status trp_agent_check(const trp_agent *agent, const char *env);

/* The tables of the replay server, signatures included; trp_agent_table_list_cleanup() frees. */
TRP_API TRP_MUST_USE trp_status trp_agent_tables(const trp_agent *agent, const char *env,
                                                 trp_agent_table_list *list);

/* ---- nodes ------------------------------------------------------------------------------- */

typedef struct {
    const char *name;         /* "actor/2": no two actors of a run may have the same name and index,
                                 as their random numbers and item keys follow from them */
    const char *env;          /* registered name */
    uint32_t copies;          /* of the environment; 0: 1 */
    uint32_t index, count;    /* of this actor in its group; count 0: 1 */
    trp_channel *replay;      /* borrowed */
    ProtobufCService *params; /* troupe.Params; borrowed */
    trp_stop *stop;           /* borrowed */
    uint64_t seed;            /* of the run: environment and exploration get streams of their own */
    uint64_t max_steps;       /* of all actors together; 0: no limit */
} trp_agent_actor_options;

TRP_API TRP_MUST_USE trp_status trp_agent_actor_create(trp_actor **out, const trp_agent *agent,
                                                       const trp_agent_actor_options *options);

typedef struct {
    const char *env;
    uint32_t batch_size;           /* 0: the agent's */
    uint64_t seed;                 /* of the run */
    trp_learner_loop_options loop; /* `updater` is set by trp_agent_learner_create() */
} trp_agent_learner_options;

TRP_API TRP_MUST_USE trp_status trp_agent_learner_create(trp_learner **out, const trp_agent *agent,
                                                         const trp_agent_learner_options *options);

/* A greedy policy for trp_evaluate() with up to `rows` rows. */
TRP_API TRP_MUST_USE trp_status trp_agent_policy_create(trp_policy **out, const trp_agent *agent,
                                                        const char *env, uint32_t rows);

TRP_END_DECLS
#endif
