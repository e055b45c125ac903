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
#include <troupe/options.h>
#include <troupe/parameter_server.h>
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

/* Zero means default. Each struct has an option table for each kind of node: `PROGRAM --options`
 * and `troupe options` print defaults, ranges and units. What `build` gives may be overridden
 * when the program is started: --set GROUP.OPTION=VALUE, --set agent.OPTION=VALUE for the options
 * of the program's agents (GROUP.agent.OPTION: of one group's), and --config FILE. */
typedef struct {
    const trp_agent *agent;          /* copied; decides the tables, unless `tables` is given */
    const char *env;                 /* NULL: that of the actors that insert here */
    const trp_table_options *tables; /* copied */
    size_t table_count;
    uint32_t shards; /* nodes in the group, servers with the same tables; 0: 1. Member i of a group
                        of actors writes to shard i modulo their number, learners sample from all
                        (see source.h). A directory below is that of shard i with ".i" behind it */
    trp_durability durability;
    uint64_t max_bytes;
    const char *address;        /* NULL: a unix socket of the run */
    bool insecure;              /* `address` may be of any interface, without TLS */
    const char *dir;            /* of the store; NULL: in the run directory. One that is there
                                   already goes on with its items */
    const char *restore;        /* a checkpoint to begin with, where `dir` has no store yet */
    const char *checkpoint_dir; /* NULL: checkpoints/ in `dir` */
    uint32_t keep_checkpoints;  /* the newest ones */
    bool shrink, verify;        /* as in trp_replay_server_options, and so are these: */
    uint64_t in_flight_bytes;
    int64_t lease_ms;
    bool no_share;
} trp_replay_options;

/* How learners of a group combine what they compute; docs/learners.md says which when. */
typedef enum {
    TRP_LEARNERS_SYNCHRONOUS, /* each step is one of all, with the mean of their gradients */
    TRP_LEARNERS_SHARDED,     /* the same steps, and each has a part of the optimizer's state */
    TRP_LEARNERS_HOGWILD,     /* each steps what all have when it likes, on one host */
    TRP_LEARNERS_LOCAL_SGD,   /* each steps by itself, and all go on from the mean now and then */
    TRP_LEARNERS_GOSSIP,      /* the same, and each swaps with two others after every step */
    TRP_LEARNERS_SERVER,      /* parameter servers step; their rule says when */
    TRP_LEARNERS_DOGWILD, /* hogwild in each process, whose vectors are kept alike by datagrams */
    TRP_LEARNERS_GAIA,    /* sites tell each other what matters of their steps */
} trp_learner_mode;

/* How gradients of learners are compressed on their way; docs/learners.md says when that
 * pays. */
typedef enum {
    TRP_COMPRESSION_NONE,
    TRP_COMPRESSION_BF16,
    TRP_COMPRESSION_F16,
    TRP_COMPRESSION_TOP_K,    /* the largest numbers (deep gradient compression) */
    TRP_COMPRESSION_ONE_BIT,  /* signs, and two means of each column */
    TRP_COMPRESSION_POWERSGD, /* two thin matrices for each one */
    TRP_COMPRESSION_QSGD,     /* a few levels, rounded at random */
} trp_learner_compression;

/* What the end of one learner, other than at a stop, means for the others of its group. */
typedef enum {
    TRP_ON_FAILURE_STOP,     /* the program fails, as with any other node */
    TRP_ON_FAILURE_CONTINUE, /* they go on without it, and with it again once it is back */
} trp_on_failure;

typedef struct {
    const trp_agent *agent; /* copied */
    const char *env;        /* NULL: that of the actors that pull from it */
    const char *device;     /* where it learns, as trp_device_find() names it; NULL: "cpu" */
    const char *gpus;       /* of the host, such as "0,2" or "0-3", in equal parts for the learners
                               of the group, at least one each; a learner's first one is its cuda:0,
                               and its process sees no others. NULL: all that there are */
    trp_node replay;        /* or, offline: */
    const char *dataset;    /* the directory of a stopped replay node's store, which is only read */
    uint32_t envs; /* or: copies of `env` that the learner steps itself, with the parameters
                      of its last step (A3C, fused PPO). It publishes every step then */
    uint32_t dataset_shuffle; /* as in trp_dataset_source_options, and so is this: */
    uint32_t dataset_epochs;  /* then the program stops */
    uint32_t batch_size;      /* 0: the agent's */
    uint32_t threads;       /* of each network's passes on the CPU; 0: 1. More pay for networks and
                               batches as nn.h says, where cores are left; parameters differ in
                               the last bits with their number */
    uint32_t prefetch;      /* batches */
    uint32_t publish_every; /* steps */
    uint32_t checkpoint_every_s; /* 0: after 1, 2, 4 ... seconds of a run, then every 60 */
    uint64_t max_steps;          /* then the program stops; 0: no limit */
    /* Learners that learn one set of parameters together; 0: 1. One of them publishes and saves;
     * who pulls from the group follows whichever that is. */
    uint32_t count;
    uint32_t mode;         /* a trp_learner_mode */
    const char *sites;     /* where each learner is, in turn: "east,east,west"; sums over all go
                              between sites once. NULL: hosts are sites */
    double significance;   /* Gaia: v0; a number's moves go to other sites when they are more than
                              v0 / sqrt(steps) of it; 0: 0.01 */
    uint32_t site_slack;   /* Gaia: clocks after which other sites' steps must be there */
    uint32_t local_steps;  /* local SGD: between two means */
    float outer_momentum;  /* local SGD: of the means; 0: none */
    trp_node server;       /* the parameter servers, of TRP_LEARNERS_SERVER */
    uint64_t bucket_bytes; /* gradients are combined in pieces of so many */
    uint32_t compression;  /* a trp_learner_compression; as in trp_compression_options: */
    double compression_ratio;
    uint64_t compression_warmup_steps;
    double compression_momentum;
    bool compression_keep_momentum;
    uint32_t compression_rank;
    uint32_t compression_bits;
    uint32_t on_failure;           /* a trp_on_failure */
    uint32_t min_learners;         /* with fewer the program fails */
    uint32_t restarts;             /* of a learner that failed, within the run. Any node that fails
                                      again within 10 s of its start begins again after a pause: 0.1
                                      s at first, twice as long each time, 5 s at most */
    int64_t collective_timeout_ms; /* what a learner waits for the others, and for a server */
    bool no_share; /* clients and learners on its host are reached like those elsewhere */
} trp_learner_options;

/* A cache of parameters for the actors of a host: it pulls each version once, and hands it out as a
 * learner does, to actors and evaluators that name it as their .params. What they did it passes on
 * to the learner; how stale their parameters are is counted from the learner. It goes on with what
 * it has while the learner is away. */
typedef struct {
    trp_node params;                /* the learner to pull from, or another cache */
    int64_t poll_ms;                /* between two questions whether there are newer ones; 0: 10 */
    trp_params_precision precision; /* of parameters that are sent to it: from another host */
    bool no_share; /* clients on its host are sent parameters like those elsewhere */
} trp_params_cache_options;

typedef struct {
    const trp_agent *agent; /* copied */
    const char *env;        /* registered name, e.g. "CartPole-v1" */
    trp_node replay;        /* actors only */
    trp_node params;        /* the learner to pull from */
    uint32_t envs; /* copies stepped together; evaluator: not more than its episodes, which are at
                      once on its device; 0: its episodes, at most 100 */
    uint64_t max_steps;        /* actors: of all together, then the program stops; 0: no limit */
    uint64_t max_episodes;     /* actors: of one, then the program stops; 0: no limit */
    uint64_t pull_every_steps; /* actors: steps of one between two pulls of parameters; 0: as often
                                  as the agent wants, else by time (actor.h) */
    /* Actors: after so many items one waits for the version that is made of them; 0: it never
     * waits. It may be max_lag versions ahead before it does; without sync_every_items that is how
     * many versions its parameters may be behind the newest one. */
    uint64_t sync_every_items;
    uint32_t max_lag;
    const char *device, *gpus; /* where the policy computes, as those of a learner */
    double max_age_s; /* actors: seconds for which one may not have known whether there are newer
                         parameters, before it waits; 0: no bound (actor.h) */
    trp_params_precision params_precision; /* of parameters that are sent: to other hosts */
    uint32_t restarts; /* actors: of one that failed, while the others go on, after a pause as
                          learners; it counts on where its last report was. 0: the program fails */
    uint32_t episodes; /* evaluator: per evaluation */
    uint32_t best;     /* evaluator: the parameters of so many best evaluations are kept, as files
                          return_RETURN_version_VERSION.safetensors in a directory of its name */
    bool stochastic;   /* evaluator: its policy draws its actions as an actor's does, at the end
                          of its schedules; else it takes the best ones */
    double target_return; /* evaluator: the program stops, successful, when one version of the
                             parameters reaches it; 0: no target. That is: its mean return minus
                             two standard errors does, and over twice as many fresh episodes its
                             mean minus three standard errors of one evaluation does again. It
                             is saved as params.safetensors in the run directory */
} trp_actor_options;

/* Each returns the node (for actors: the group). Options are copied. Names are lower-case letters,
 * digits, - and _, start with a letter, and are not "agent". A wrong call (no name, a name used
 * twice, a node that is no replay where one is needed) is remembered, returns no node, and is
 * reported by trp_main() with the node's name. */
TRP_API trp_node trp_add_replay(trp_program *program, const char *name,
                                const trp_replay_options *options);
TRP_API trp_node trp_add_parameter_server(trp_program *program, const char *name, uint32_t count,
                                          const trp_parameter_server_options *options);
TRP_API trp_node trp_add_learner(trp_program *program, const char *name,
                                 const trp_learner_options *options);
TRP_API trp_node trp_add_params_cache(trp_program *program, const char *name,
                                      const trp_params_cache_options *options);
TRP_API trp_node trp_add_actors(trp_program *program, const char *name, uint32_t count,
                                const trp_actor_options *options);
TRP_API trp_node trp_add_evaluator(trp_program *program, const char *name,
                                   const trp_actor_options *options);

/* What may be set on the built-in kinds of nodes: "replay", "server", "learner", "cache",
 * "actor", "evaluator". NULL: there is no such kind. */
TRP_API const trp_option_table *trp_node_option_table(const char *kind);

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
    const trp_option_table *options; /* of the struct that `arg` points to: the body gets it with
                                        defaults in place of zeros and with what --set changed;
                                        members without a row are copied, not hashed. NULL: bytes.
                                        A text `device` is set by --device, too, and a text `gpus`
                                        is as in trp_learner_options, for bodies whose device may be
                                        a GPU: trp_context_device() */
    const trp_node *uses;            /* edges: the nodes it may dial */
    size_t use_count;
    /* What it serves, so that it may stand where that is needed: a node with
     * trp_params_descriptor() in .params of actors, one that serves deepmind.reverb.ReverbService
     * in their .replay. */
    const ProtobufCServiceDescriptor *const *serves;
    size_t serve_count;
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
/* The node had a life before: the run was resumed, or the node was started again. */
TRP_API bool trp_context_resume(const trp_context *context);
TRP_API trp_stop *trp_context_stop(trp_context *context); /* requested when the node must end */

/* Where a server of this node should listen: a unix socket that is the node's own. Valid while the
 * context is. */
TRP_API const char *trp_context_address(const trp_context *context);

typedef struct {
    const char *const *blocking; /* as for trp_server_add(); NULL: no method blocks */
    uint32_t threads;            /* so many handlers run at once; 0: 4 */
} trp_serve_options;

/* Serves `service` at the node's address and publishes it; peers that dial wait for it. `options`
 * may be NULL. When every node runs in this process there is no socket:
 * callers reach the object directly. Once per body, and an object for each member of a group, as
 * several may be in one process. It ends when the body has returned, and then
 * service->destroy is called if there is one; an object that ends with the body needs
 * trp_context_withdraw() before. Fails as trp_server_start(). */
TRP_API TRP_MUST_USE trp_status trp_context_serve(trp_context *context, ProtobufCService *service,
                                                  const trp_serve_options *options);

/* Ends what trp_context_serve() began, without service->destroy. `status` is how the body ends:
 * when it has failed, the launcher is told at once why (the last error), as callers that find
 * nobody here fail of it, and may end before this node has. Peers in this process are stopped and
 * waited for first, for the grace period (--grace). False, and logged: some did not stop; they may
 * call at any moment, so the object must be left as it is. Nothing to do: returns true at once. */
TRP_API TRP_MUST_USE bool trp_context_withdraw(trp_context *context, trp_status status);

/* A channel to member `index` of the group `node`, an edge declared in `uses`: in-process when it
 * runs in this process. Waits up to 60 s for it to serve. UNAVAILABLE names the node and its state;
 * CANCELLED: stop; INVALID_ARGUMENT: no such edge. Owned by the context, closed when the body
 * returned; the same one at every call. */
TRP_API TRP_MUST_USE trp_status trp_context_channel(trp_context *context, trp_node node,
                                                    uint32_t index, trp_channel **channel);

/* The service that member `index` of `node` serves: its own object when it runs in this process, a
 * proxy otherwise. Of a group of several learners it is that of the one that publishes, whatever
 * the index: calls go to another one when that changes, and are UNAVAILABLE in between. As
 * trp_context_channel(). */
TRP_API TRP_MUST_USE trp_status trp_dial(trp_context *context, trp_node node, uint32_t index,
                                         const ProtobufCServiceDescriptor *descriptor,
                                         ProtobufCService **service);

/* A client of the parameters that member `index` of `node` publishes, under this node's name, ended
 * by its stop. Owned by the context: it goes when the body has returned. As trp_dial(). */
TRP_API TRP_MUST_USE trp_status trp_context_params(trp_context *context, trp_node node,
                                                   uint32_t index, trp_params_client **client);

/* Where this node computes: what its option `device` names, among its `gpus` if it has that; "cpu"
 * without such options. Fails as trp_device_find(). */
TRP_API TRP_MUST_USE trp_status trp_context_device(trp_context *context, trp_device **device);

/* A number for metrics.csv of the run, e.g. "return", and for the progress line: the mean over the
 * members of a group, as far as there is room. Never blocks. Metric
 * names are words of at most 31 characters, and a node has at most 32 of them; others are
 * dropped. */
TRP_API void trp_context_report(trp_context *context, const char *metric, double value);

/* Ends the whole program; `reason` becomes its last line. `success` decides the exit status. The
 * first call counts. */
TRP_API void trp_context_stop_program(trp_context *context, bool success, const char *reason);

/* ---- main -------------------------------------------------------------------------------- */

typedef trp_status (*trp_build)(trp_program *program, int argc, char **argv);

/* For a build that reads at most so many of its arguments: INVALID_ARGUMENT names the first one
 * that is more. Otherwise nobody tells a user that a word did nothing. */
TRP_API TRP_MUST_USE trp_status trp_arguments_check(int argc, char **argv, int most);

/* For a build whose nodes need what may not be there yet, such as data to learn from: trp_main()
 * calls `prepare` before it runs the program, and once all that its user gave is checked (options,
 * devices, the run directory), but for files that nodes read, which it may make; not for graph,
 * eval, --options or a node's process. What it fails of the program is refused for. Signals end it
 * as any process; trp_run() may be called in it, and does not call it. */
TRP_API void trp_program_prepare(trp_program *program, trp_status (*prepare)(void));

/* Runs the program and returns the exit status: 0 done, 1 a node failed (the last line names the
 * first failure), 2 it was refused before anything was started (wrong usage or graph; a run, a GPU
 * or a file that is not there), 128 + signal. `argv` after "--" goes to `build` (argv[0] stays the
 * program). Options and subcommands: see --help (launch modes, run directory, resume,
 * seed, deterministic, graph, eval). Call it once, before any thread is started. */
TRP_API int trp_main(int argc, char **argv, const char *name, trp_build build);

/* ---- a run inside another program, such as a test ---------------------------------------- */

/* A program to add nodes to, for trp_run(); trp_main() makes its own. */
TRP_API trp_program *trp_program_create(const char *name);
TRP_API void trp_program_destroy(trp_program *program); /* NULL is fine */

typedef struct {
    const char *run_dir; /* made when missing; NULL: a new one in $TROUPE_RUNS or ./runs, to which
                            `latest` leads there */
    bool resume;         /* goes on with the run that is in it */
    bool deterministic;
    uint64_t seed;           /* 0: random */
    double max_seconds;      /* then the run ends well; 0: no limit */
    double grace_seconds;    /* that a node has to end when it is to stop; 0: 20 */
    const char *const *sets; /* "actor.envs=8", as --set takes them */
    size_t set_count;
    bool verbose; /* prints what trp_main() prints; otherwise only nodes print, and warn. What else
                     they log is in logs/ of the run directory */
} trp_run_options;

typedef struct {
    char reason[512]; /* why it ended: "learner/0: 100 learner steps done", or the failure's words;
                         cut if longer */
    char
        run_dir[512]; /* where its checkpoints, logs and metrics.csv are, of a run that failed, too;
                         "": it failed before it had one */
} trp_run_result;

/* Runs the program's nodes as threads of this process and returns when all have ended: TRP_OK, or
 * the first failure, whose message begins with the node's name. Signals and their handlers stay as
 * they are. One run at a time; again and again, with another program each time. INVALID_ARGUMENT:
 * the graph, or an option of `sets`.
 *
 * A node that does not end within grace_seconds of its stop is left, as a thread cannot be killed:
 * the others are stopped, and the run fails, with DEADLINE_EXCEEDED if of nothing else, and a
 * message that names every such node. Its thread goes on, and with it what it may use, which is
 * freed when it ends: its context and connections, the program (also after trp_program_destroy()),
 * and the run directory, where no other run can begin until then. What the options of its node
 * point to has to stay, too.
 *
 * exit() meanwhile, of any thread, ends the process at once, with status 1: handlers of atexit()
 * from before are not called. */
TRP_API TRP_MUST_USE trp_status trp_run(trp_program *program, const trp_run_options *options,
                                        trp_run_result *result);

TRP_END_DECLS
#endif
