/* The program graph: nodes and edges of one distributed program, and how to run it.
 *
 * A launch file is a `build` function that adds nodes and a main() that hands it to trp_main():
 *
 *     static trp_status build(trp_program *program, int argc, char **argv)
 *     {
 *         trp_agent agent = trp_dqn(NULL);
 *         trp_node replay = trp_add_replay(program, "replay",
 *             &(trp_replay_options){.agent = &agent});
 *         trp_node learner = trp_add_learner(program, "learner",
 *             &(trp_learner_options){.agent = &agent, .replay = replay});
 *         trp_add_actors(program, "actor", 4, &(trp_actor_options){.agent = &agent,
 *             .env = "CartPole-v1", .replay = replay, .params = learner});
 *         return TRP_OK;
 *     }
 *     int main(int argc, char **argv) { return trp_main(argc, argv, "cartpole", build); }
 *
 * Every process of the program is the same executable and runs `build` again, so `build` is
 * deterministic: its arguments only; no time, no environment, no threads, no sockets. The launcher
 * compares the hash of the graph that each process built with its own. */
#ifndef TRP_PROGRAM_H
#define TRP_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/actor.h>
#include <troupe/agent.h>
#include <troupe/replay.h>
#include <troupe/rpc.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef struct trp_program trp_program;

/* Names a node, or a group of nodes that share a label. Plain data: may be copied and kept. */
typedef struct {
    uint32_t id; /* 0: no node */
} trp_node;

/* ---- nodes of an agent ------------------------------------------------------------------- */

typedef struct {
    const trp_agent *agent;          /* copied; decides the tables, unless `tables` is given */
    const char *env;                 /* NULL: that of the actors that insert here */
    const trp_table_options *tables; /* copied */
    size_t table_count;
    trp_durability durability;
    uint64_t max_bytes;
    const char *address; /* NULL: a unix socket of the run */
} trp_replay_options;

typedef struct {
    const trp_agent *agent; /* copied */
    const char *env;        /* NULL: that of the actors that pull from it */
    trp_node replay;
    uint32_t batch_size;         /* 0: the agent's */
    uint32_t prefetch;           /* batches; 0: 2 */
    uint32_t publish_every;      /* steps; 0: 10 */
    uint32_t checkpoint_every_s; /* 0: 60 */
    uint64_t max_steps;          /* then the program stops; 0: no limit */
} trp_learner_options;

typedef struct {
    const trp_agent *agent; /* copied */
    const char *env;        /* registered name, e.g. "CartPole-v1" */
    trp_node replay;        /* actors only */
    trp_node params;        /* the learner to pull from */
    uint32_t envs;        /* copies stepped together; 0: 1 (evaluator: its episodes, at most 100) */
    uint64_t max_steps;   /* of all actors together, then the program stops; 0: no limit */
    uint32_t episodes;    /* evaluator: per evaluation; 0: 100 */
    double target_return; /* evaluator: the program stops, successful, when one version of the
                             parameters reaches it; 0: no target. That is: its mean return minus
                             two standard errors does, and over twice as many fresh episodes its
                             mean minus three standard errors of one evaluation does again. It
                             is saved as params.safetensors in the run directory */
} trp_actor_options;

/* Each returns the node (for actors: the group). Options are copied. Names are lower-case letters,
 * digits, - and _, and start with a letter. A wrong call (no name, a name used twice, a node that
 * is no replay where one is needed) is remembered, returns no node, and is reported by trp_main()
 * with the node's name. */
TRP_API trp_node trp_add_replay(trp_program *program, const char *name,
                                const trp_replay_options *options);
TRP_API trp_node trp_add_learner(trp_program *program, const char *name,
                                 const trp_learner_options *options);
TRP_API trp_node trp_add_actors(trp_program *program, const char *name, uint32_t count,
                                const trp_actor_options *options);
TRP_API trp_node trp_add_evaluator(trp_program *program, const char *name,
                                   const trp_actor_options *options);

/* ---- nodes of your own ------------------------------------------------------------------- */

/* What a node's body sees while it runs. */
typedef struct trp_context trp_context;

/* The body of a node, in a process or thread of its own. Returns TRP_OK when its work is done; a
 * failure stops the program and is named in its last line. `arg` is the copy given to
 * trp_add_node(). The program ends when every node that no other node uses has ended; then, as at
 * any stop, users are stopped before what they use. A body that does not return within the grace
 * period (--grace) after its stop was requested is killed, which is a failure. */
typedef trp_status (*trp_node_body)(trp_context *context, const void *arg);

typedef struct {
    trp_node_body run;
    const void *arg; /* copied and hashed, arg_size bytes: no pointers inside, no uninitialised
                        padding (they differ from process to process) */
    size_t arg_size;
    const trp_node *uses; /* edges: the nodes it may dial */
    size_t use_count;
    uint32_t count; /* nodes in the group; 0: 1 */
} trp_node_options;

TRP_API trp_node trp_add_node(trp_program *program, const char *name,
                              const trp_node_options *options);

/* ---- inside a body ----------------------------------------------------------------------- */

TRP_API const char *trp_context_name(const trp_context *context); /* "actor/2" */
TRP_API uint32_t trp_context_index(const trp_context *context);
TRP_API uint32_t trp_context_group_size(const trp_context *context);
/* The seed of the run; after a resume another one that follows from it and the number of resumes,
 * so that what is drawn from it is never drawn twice. */
TRP_API uint64_t trp_context_seed(const trp_context *context);
TRP_API const char *trp_context_run_dir(const trp_context *context);
TRP_API bool trp_context_resume(const trp_context *context);
TRP_API trp_stop *trp_context_stop(trp_context *context); /* requested when the node must end */

/* Where a server of this node should listen: a unix socket that is the node's own. Valid while the
 * context is. */
TRP_API const char *trp_context_address(const trp_context *context);

/* Starts `server`, which the body made but did not start, and publishes its address; peers that
 * dial wait for it. When every node runs in this process the server is not started: callers reach
 * it directly. Once per body. Fails as trp_server_start(). */
TRP_API TRP_MUST_USE trp_status trp_context_serve(trp_context *context, trp_server *server);

/* Ends what trp_context_serve() began; a body calls it before it destroys its server. Peers in this
 * process are stopped and waited for first, for the grace period (--grace). False, and logged: some
 * did not stop; they may call at any moment, so the server must be left as it is. Nothing to do:
 * returns true at once. */
TRP_API TRP_MUST_USE bool trp_context_withdraw(trp_context *context);

/* A channel to member `index` of the group `node`, an edge declared in `uses`: in-process when it
 * runs in this process. Waits up to 60 s for it to serve. UNAVAILABLE names the node and its state;
 * CANCELLED: stop; INVALID_ARGUMENT: no such edge. Owned by the context, closed when the body
 * returned; the same one at every call. */
TRP_API TRP_MUST_USE trp_status trp_context_channel(trp_context *context, trp_node node,
                                                    uint32_t index, trp_channel **channel);

/* The service that member 0 of `node` serves: its own object when it runs in this process, a proxy
 * otherwise. As trp_context_channel(). */
TRP_API TRP_MUST_USE trp_status trp_dial(trp_context *context, trp_node node,
                                         const ProtobufCServiceDescriptor *descriptor,
                                         ProtobufCService **service);

/* A number for the progress line and metrics.csv of the run, e.g. "return". Never blocks. Metric
 * names are words of at most 31 characters, and a node has at most 32 of them; others are
 * dropped. */
TRP_API void trp_context_report(trp_context *context, const char *metric, double value);

/* Ends the whole program; `reason` becomes its last line. `success` decides the exit status. The
 * first call counts. */
TRP_API void trp_context_stop_program(trp_context *context, bool success, const char *reason);

/* ---- main -------------------------------------------------------------------------------- */

typedef trp_status (*trp_build)(trp_program *program, int argc, char **argv);

/* Runs the program and returns the exit status: 0 done, 1 a node failed (the last line names the
 * first failure), 2 wrong usage or graph, 128 + signal. `argv` after "--" goes to `build` (argv[0]
 * stays the program). Options and subcommands: see --help (launch modes, run directory, resume,
 * seed, deterministic, graph, eval). Call it once, before any thread is started. */
TRP_API int trp_main(int argc, char **argv, const char *name, trp_build build);

TRP_END_DECLS
#endif
