/* What may be set on the built-in kinds of nodes. Actors and evaluators are filled from one struct
 * and have a table each: what only the other one has is no option of theirs. */
#include <troupe/program.h>

#include <string.h>

#include "limits.h"

#define ROW(struct_type, member, ...)                                                              \
    {                                                                                              \
        TRP_OPTION(struct_type, member), __VA_ARGS__                                               \
    }

#define DEVICE_HELP(does)                                                                          \
    "where " does                                                                                  \
    ": cpu, cuda:N, auto (a GPU if one can be used, else cpu), or ref, naive loops; "              \
    "none: cpu"
#define GPUS_HELP                                                                                  \
    "of the host, which its nodes have in equal parts and call cuda:0 and so on: 0,2 or 0-3; "     \
    "none: all"

#define GPUS_NEED "device=cuda:*|auto"

static const char *const precisions[] = {"float32", "bf16", NULL};
static const char *const durabilities[] = {"process", "memory", "system", NULL};

static const trp_option replay_rows[] = {
    ROW(trp_replay_options, env, .fixed = true,
        .help = "environment of its items; none: that of the actors that insert here"),
    ROW(trp_replay_options, durability, .choices = durabilities,
        .help = "what an acknowledged item survives: kill -9, the same on tmpfs, power loss"),
    ROW(trp_replay_options, max_bytes, .unit = "bytes", .help = "of the store; 0: no limit"),
    ROW(trp_replay_options, address, .help = "where it listens; none: a unix socket of the run"),
    ROW(trp_replay_options, insecure, .help = "the address may be of any interface, without TLS"),
    ROW(trp_replay_options, dir, .help = "of the store; none: in the run directory"),
    ROW(trp_replay_options, restore,
        .help = "a checkpoint to begin with, where dir has no store yet"),
    ROW(trp_replay_options, checkpoint_dir, .help = "none: checkpoints/ in dir"),
    ROW(trp_replay_options, keep_checkpoints, .fallback = "3", .min = 1, .max = UINT32_MAX,
        .help = "the newest ones; older ones are removed"),
    ROW(trp_replay_options, shrink,
        .help = "a smaller max_size removes items, instead of being refused"),
    ROW(trp_replay_options, verify,
        .help = "check every byte when opening, and drop what is damaged"),
    ROW(trp_replay_options, in_flight_bytes, .unit = "bytes",
        .help = "of messages and waiting items in memory; 0: 1 GiB"),
    ROW(trp_replay_options, lease_ms, .fallback = "5000", .min = 1, .max = 86400000, .unit = "ms",
        .help = "how long a reader on this host may keep what left its table"),
    ROW(trp_replay_options, no_share,
        .help = "clients on this host are served like those elsewhere"),
};

static const char *const server_rules[] = {"sync", "async", "ssp", "softsync", "dynsgd", NULL};
static const char *const server_durabilities[] = {"log", "checkpoints", NULL};

static const trp_option server_rows[] = {
    ROW(trp_parameter_server_options, rule, .choices = server_rules,
        .help = "when a push takes effect, and which learner waits for which"),
    ROW(trp_parameter_server_options, slack, .max = 1000000, .unit = "clocks", .needs = "rule=ssp",
        .help = "that a learner may be ahead of the slowest; 0: in step"),
    ROW(trp_parameter_server_options, softness, .fallback = "1", .min = 1, .max = LEARNERS_MAX,
        .needs = "rule=softsync", .help = "n: a step is of the learners / n gradients"),
    ROW(trp_parameter_server_options, max_staleness, .max = 1000, .unit = "versions",
        .needs = "rule=async|softsync|dynsgd",
        .help = "older gradients are dropped; 0: none is, with dynsgd those beyond 15"),
    ROW(trp_parameter_server_options, push_every, .fallback = "1", .min = 1, .max = 1000000,
        .unit = "learner steps", .needs = "rule=async", .help = "whose gradients are one push"),
    ROW(trp_parameter_server_options, fetch_every, .fallback = "1", .min = 1, .max = 1000000,
        .unit = "learner steps", .needs = "rule=async", .help = "between two pulls"),
    ROW(trp_parameter_server_options, idle_hosts, .max = LEARNERS_MAX, .unit = "hosts",
        .help = "without a learner, which the last servers are on; 0: all have equal parts"),
    ROW(trp_parameter_server_options, durability, .choices = server_durabilities,
        .help = "what answered pushes survive a server's death by: a log, or not at all"),
    ROW(trp_parameter_server_options, restarts, .max = 1000000,
        .help = "of a server that died or hangs; 0: the program fails"),
    ROW(trp_parameter_server_options, threads, .max = 1024,
        .help = "that take and step a long range in parts; 0: as there are cores, at most 4"),
    ROW(trp_parameter_server_options, in_flight_bytes, .unit = "bytes",
        .help = "of gradients that are sent and not all there yet; 0: 1 GiB"),
    ROW(trp_parameter_server_options, no_share,
        .help = "learners on its host push and pull like those elsewhere"),
};

static const char *const learner_modes[] = {[TRP_LEARNERS_SYNCHRONOUS] = "synchronous",
                                            [TRP_LEARNERS_SHARDED] = "sharded",
                                            [TRP_LEARNERS_HOGWILD] = "hogwild",
                                            [TRP_LEARNERS_LOCAL_SGD] = "local_sgd",
                                            [TRP_LEARNERS_GOSSIP] = "gossip",
                                            [TRP_LEARNERS_SERVER] = "server",
                                            [TRP_LEARNERS_DOGWILD] = "dogwild",
                                            [TRP_LEARNERS_GAIA] = "gaia",
                                            [TRP_LEARNERS_GAIA + 1] = NULL};
static const char *const compressions[] = {
    [TRP_COMPRESSION_NONE] = "none",       [TRP_COMPRESSION_BF16] = "bf16",
    [TRP_COMPRESSION_F16] = "f16",         [TRP_COMPRESSION_TOP_K] = "top-k",
    [TRP_COMPRESSION_ONE_BIT] = "one-bit", [TRP_COMPRESSION_POWERSGD] = "powersgd",
    [TRP_COMPRESSION_QSGD] = "qsgd",       [TRP_COMPRESSION_QSGD + 1] = NULL};
static const char *const failure_policies[] = {"stop", "continue", NULL};

static const trp_option learner_rows[] = {
    ROW(trp_learner_options, env, .fixed = true,
        .help = "environment to learn; none: that of the actors that pull from it"),
    ROW(trp_learner_options, dataset,
        .help = "a stopped replay's store to learn from; none: from a replay node"),
    ROW(trp_learner_options, envs, .max = 65536, .unit = "copies",
        .help = "of the environment that the learner steps itself, in place of replay; 0: none"),
    ROW(trp_learner_options, dataset_shuffle, .fallback = "10000", .min = 1, .max = UINT32_MAX,
        .unit = "items", .help = "that rows of the dataset are drawn from; 1: in its order"),
    ROW(trp_learner_options, dataset_epochs, .max = UINT32_MAX, .unit = "passes",
        .help = "over the dataset, then the program stops; 0: no limit"),
    ROW(trp_learner_options, batch_size, .max = 1 << 20, .unit = "items",
        .help = "of an update; 0: the agent's"),
    ROW(trp_learner_options, device, .help = DEVICE_HELP("it learns")),
    ROW(trp_learner_options, gpus, .needs = GPUS_NEED, .help = GPUS_HELP),
    ROW(trp_learner_options, threads, .fallback = "1", .min = 1, .max = 256, .unit = "threads",
        .help = "of each network's passes on the CPU"),
    ROW(trp_learner_options, prefetch, .fallback = "2", .min = 1, .max = 64, .unit = "batches",
        .help = "fetched ahead"),
    ROW(trp_learner_options, publish_every, .fallback = "10", .min = 1, .max = UINT32_MAX,
        .unit = "learner steps", .help = "between two versions of the parameters"),
    ROW(trp_learner_options, checkpoint_every_s, .max = UINT32_MAX, .unit = "seconds",
        .help = "between two checkpoints; 0: after 1, 2, 4 ... of a run, then every 60"),
    ROW(trp_learner_options, max_steps, .unit = "learner steps",
        .help = "then the program stops; 0: no limit"),
    ROW(trp_learner_options, count, .fallback = "1", .min = 1, .max = LEARNERS_MAX,
        .unit = "learners", .help = "that learn one set of parameters together"),
    ROW(trp_learner_options, mode, .choices = learner_modes,
        .help = "how several learners combine what they compute"),
    ROW(trp_learner_options, sites, .needs = "mode=synchronous|sharded|local_sgd|gossip|gaia",
        .help = "of the learners in turn, as east,east,west: sums go between sites once; "
                "none: hosts"),
    ROW(trp_learner_options, significance, .fallback = "0.01", .max = 1e9, .needs = "mode=gaia",
        .help = "v0: moves of more than v0 / sqrt(steps) of a number go to other sites"),
    ROW(trp_learner_options, site_slack, .max = 64, .unit = "learner steps", .needs = "mode=gaia",
        .help = "after which what other sites sent is there"),
    ROW(trp_learner_options, local_steps, .fallback = "16", .min = 1, .max = 1000000,
        .unit = "learner steps", .needs = "mode=local_sgd",
        .help = "of each learner between two means of all"),
    ROW(trp_learner_options, outer_momentum, .max = 0.9999, .needs = "mode=local_sgd",
        .help = "of the means, as SlowMo's; 0: none"),
    ROW(trp_learner_options, bucket_bytes, .fallback = "1048576", .min = 64, .max = 1 << 30,
        .unit = "bytes", .needs = "mode=synchronous|sharded",
        .help = "of gradient that several learners combine at a time"),
    ROW(trp_learner_options, compression, .choices = compressions,
        .needs = "mode=synchronous|sharded|local_sgd|gossip|server|dogwild|gaia",
        .help = "of what learners send each other or servers; pays on slow networks"),
    ROW(trp_learner_options, compression_ratio, .fallback = "0.001", .min = 1e-6, .max = 1,
        .needs = "compression=top-k", .help = "of the numbers, which are sent"),
    ROW(trp_learner_options, compression_warmup_steps, .unit = "learner steps",
        .needs = "compression=top-k", .help = "in which more of the numbers are sent"),
    ROW(trp_learner_options, compression_momentum, .max = 0.9999, .needs = "compression=top-k",
        .help = "of gradients, in place of the optimizer's"),
    ROW(trp_learner_options, compression_keep_momentum, .needs = "compression=top-k",
        .help = "momentum goes on where a number was sent"),
    ROW(trp_learner_options, compression_rank, .fallback = "2", .min = 1, .max = 32,
        .needs = "compression=powersgd", .help = "of the matrices that are sent for one"),
    ROW(trp_learner_options, compression_bits, .fallback = "8", .min = 2, .max = 8, .unit = "bits",
        .needs = "compression=qsgd", .help = "that a number is sent in"),
    ROW(trp_learner_options, on_failure, .choices = failure_policies,
        .help = "whether the others stop or continue when a learner fails"),
    ROW(trp_learner_options, min_learners, .fallback = "1", .min = 1, .max = LEARNERS_MAX,
        .unit = "learners", .needs = "on_failure=continue", .help = "with fewer the program fails"),
    ROW(trp_learner_options, restarts, .max = 1000000, .needs = "on_failure=continue",
        .help = "of a learner that failed, while the others go on; 0: it stays away"),
    ROW(trp_learner_options, collective_timeout_ms, .fallback = "10000", .min = 10, .max = 86400000,
        .unit = "ms", .help = "that a learner waits for the others, or a server"),
    ROW(trp_learner_options, no_share,
        .help = "actors and learners on its host are reached like those elsewhere"),
};

static const trp_option cache_rows[] = {
    ROW(trp_params_cache_options, poll_ms, .fallback = "10", .min = 1, .max = 60000, .unit = "ms",
        .help = "between two questions whether there are newer parameters"),
    ROW(trp_params_cache_options, precision, .choices = precisions,
        .help = "of parameters that are sent to the cache"),
    ROW(trp_params_cache_options, no_share,
        .help = "actors on its host are sent parameters like those elsewhere"),
};

static const trp_option actor_rows[] = {
    ROW(trp_actor_options, env, .fixed = true,
        .help = "the environment: NAME or NAME?KEY=VALUE&KEY=VALUE"),
    ROW(trp_actor_options, envs, .fallback = "1", .min = 1, .max = 65536, .unit = "copies",
        .help = "of the environment, stepped together"),
    ROW(trp_actor_options, max_steps, .unit = "actor steps",
        .help = "of all actors together, then the program stops; 0: no limit"),
    ROW(trp_actor_options, max_episodes, .unit = "episodes",
        .help = "of one actor, then the program stops; 0: no limit"),
    ROW(trp_actor_options, pull_every_steps, .unit = "steps",
        .help = "of one actor between two pulls of parameters; 0: as the agent wants, or by time"),
    ROW(trp_actor_options, sync_every_items, .unit = "items",
        .help = "of one actor, then it waits for the version made of them; 0: never"),
    ROW(trp_actor_options, max_lag, .max = 1000, .unit = "versions",
        .help = "ahead with sync_every_items, else behind the newest; then it waits; 0: no bound"),
    ROW(trp_actor_options, max_age_s, .max = 86400, .unit = "seconds",
        .help = "without news of the parameters, then an actor waits; 0: no bound"),
    ROW(trp_actor_options, device, .help = DEVICE_HELP("its policy computes")),
    ROW(trp_actor_options, gpus, .needs = GPUS_NEED, .help = GPUS_HELP),
    ROW(trp_actor_options, params_precision, .choices = precisions,
        .help = "of parameters that are sent, to other hosts"),
    ROW(trp_actor_options, restarts, .max = 1000000,
        .help = "of an actor that failed, while the others go on; 0: the program fails"),
};

static const trp_option evaluator_rows[] = {
    ROW(trp_actor_options, env, .fixed = true,
        .help = "the environment: NAME or NAME?KEY=VALUE&KEY=VALUE"),
    ROW(trp_actor_options, envs, .max = 65536, .unit = "copies",
        .help = "of the environment, stepped together; 0: one an episode, at most 100"),
    ROW(trp_actor_options, episodes, .fallback = "100", .min = 1, .max = 1000000,
        .unit = "episodes", .help = "of an evaluation"),
    ROW(trp_actor_options, device, .help = DEVICE_HELP("its policy computes")),
    ROW(trp_actor_options, gpus, .needs = GPUS_NEED, .help = GPUS_HELP),
    ROW(trp_actor_options, best, .fallback = "1", .max = 10000, .unit = "files",
        .help = "of the parameters of the best evaluations; 0: none is kept"),
    ROW(trp_actor_options, params_precision, .choices = precisions,
        .help = "of parameters that are sent, to other hosts"),
    ROW(trp_actor_options, stochastic,
        .help = "the policy draws its actions, as an actor's; else it takes the best ones"),
    ROW(trp_actor_options, target_return,
        .help = "the program stops when a version surely reaches it; 0: no target"),
};

static const trp_option_table tables[] = {
    TRP_OPTION_TABLE("replay", replay_rows, trp_replay_options),
    TRP_OPTION_TABLE("server", server_rows, trp_parameter_server_options),
    TRP_OPTION_TABLE("learner", learner_rows, trp_learner_options),
    TRP_OPTION_TABLE("cache", cache_rows, trp_params_cache_options),
    TRP_OPTION_TABLE("actor", actor_rows, trp_actor_options),
    TRP_OPTION_TABLE("evaluator", evaluator_rows, trp_actor_options),
};

const trp_option_table *trp_node_option_table(const char *kind)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (strcmp(tables[i].name, kind) == 0)
            return &tables[i];
    return NULL;
}
