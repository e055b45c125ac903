/* Learning: the loop batches -> update -> priorities -> publish -> checkpoint around an algorithm's
 * updater (updater.h) and its batch sources (source.h), and the troupe.Params service that hands
 * out what it publishes.
 *
 * Most users make a learner with trp_agent_learner_create() (agent.h); this header is for
 * algorithms and nodes of one's own. */
#ifndef TRP_LEARNER_H
#define TRP_LEARNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/metric.h>
#include <troupe/parameter_server.h>
#include <troupe/rendezvous.h>
#include <troupe/rpc.h>
#include <troupe/source.h>
#include <troupe/status.h>
#include <troupe/stop.h>
#include <troupe/updater.h>

TRP_BEGIN_DECLS

typedef struct trp_learner trp_learner;

/* How gradients are compressed on their way, or what else learners send of what they learn; what a
 * code has not got goes later. Of a learner that is new, or goes on from a checkpoint, nothing is
 * unsent; what a lost one had not sent is lost. */
typedef struct {
    const char *kind;      /* NULL: "none"; "bf16", "f16", "top-k", "one-bit", "powersgd", "qsgd" */
    double ratio;          /* top-k: of the numbers, sent; 0: 0.001 */
    uint64_t warmup_steps; /* top-k: in which 1/4, 1/16, 1/64, 1/256 of them are sent first */
    double momentum;       /* top-k: of the gradient, before it is chosen from: instead of SGD's */
    bool keep_momentum;    /* top-k: also where a number was sent */
    uint32_t rank;         /* powersgd: of a matrix; 0: 2 */
    uint32_t bits;         /* qsgd: of a number, 2 to 8; 0: 8 */
} trp_compression_options;

/* Of `listen` in trp_learner_group_options. */
enum { TRP_LEARNER_PATH_MORE = 8 };

/* Of a learner that learns together with others, each with batches of its own. After every step
 * all have the same vectors: gradients are the mean over the rows of all, what is refused or left
 * out is so for all, all stop after the same step. Whoever has no batch within a second takes part
 * without one, and who steps environments itself within half of `timeout_ms`. Ranks are the
 * rendezvous's; rank 0 saves, and any of them may be asked for parameters. A new member gets the
 * state of the others. Where one is lost, the step that it was lost in is as if it had not begun,
 * and the others make batches in its place: a step is of as many as before, but for updaters whose
 * phases vary.
 *
 * In the mode "hogwild" nobody waits for anybody (Niu et al. 2011): the learners of one host have
 * one vector and one state of its optimizer, RMSProp's, Adam's or none of SGD's, in memory that
 * they share. Each computes on a copy and steps what all have with a gradient of its own, number by
 * number. Steps and versions are counted together, those that updaters see are their learner's.
 * Where one is lost the others go on. Of what follows it reads rendezvous and name. In the mode
 * "dogwild" each has a vector and a state of its own, and datagrams, which may be lost, keep the
 * vectors alike (Noel and Osindero 2014); it reads listen, insecure and timeout_ms besides.
 *
 * In the mode "server" the parameters are parameter servers' (parameter_server.h): each learner
 * pushes its gradients to them and pulls what became of them. Steps are those of all together. */
typedef struct {
    trp_rendezvous *rendezvous; /* where the members meet; borrowed; NULL: this one is alone */
    const char *name;           /* of the group, in messages; copied; NULL: "learner" */
    const char *mode;           /* "synchronous" (NULL): all have the optimizer's state; "sharded":
                                   each has a part of it and steps a part of the vectors
                                   (ZeRO-1): to the bit the same steps with less memory. After a
                                   loss all go back to the newest checkpoint; "hogwild",
                                   "dogwild", "server": above; "gaia": each
                                   step is of a site's learners, and sites tell each other
                                   what matters of it (Hsieh et al. 2017);
                                   "local_sgd": each steps by itself, and after local_steps all
                                   go on from the mean of their vectors (Stich 2019), with
                                   outer_momentum SlowMo's (Wang et al. 2020);
                                   "gossip": each steps by itself and goes on from the mean of its
                                   vectors and another's, in each step another one's (GossipGraD,
                                   Daily et al. 2018), and all from the mean of all at the end
                                   and before a checkpoint */
    const char *listen;         /* where others reach this member, as
                                   trp_collective_listener_create() says; copied. "gaia" listens
                                   beside it, too: of a unix socket at paths that are by
                                   TRP_LEARNER_PATH_MORE bytes longer at most */
    bool insecure;              /* it may be neither loopback nor a unix socket */
    const char *sites;    /* where each member is, in turn: "east,east,west"; members of one site
                             add up first what goes to the others, as trp_collective_options
                             says; copied; NULL: hosts are sites */
    uint32_t count;       /* batches of a step; 0: one of each member */
    uint32_t local_steps; /* "local_sgd": between two means; 0: 16 */
    float outer_momentum; /* "local_sgd": of the means; 0: none */
    double significance;  /* "gaia": v0: what moved a number by more than v0 / sqrt(steps) of
                             it goes to the other sites; 0: all of it */
    uint32_t site_slack;  /* "gaia": a step of other sites is there so many steps later */
    size_t bucket_bytes;  /* gradients are combined in pieces of so many; 0: 1 MiB */
    uint32_t timeout_ms;  /* of one operation of the group; 0: 30 s */
    trp_compression_options compression; /* refused in modes that have none */
    const trp_learner_servers
        *servers; /* of the mode "server"; copied; its services are borrowed */
} trp_learner_group_options;

/* Of which learners of a mode could be made: not all modes have all. */
typedef struct {
    const char *mode;                    /* as above */
    bool alone;                          /* there are no others, and most modes do nothing */
    const char *device;                  /* that is no host, as "cuda:0"; NULL: it is one */
    const trp_optimizer *optimizer;      /* NULL: any */
    trp_compression_options compression; /* its kind and its momentum are looked at */
} trp_learner_mode_use;

/* INVALID_ARGUMENT names the mode and what it has not, and why. trp_learner_create() fails alike.
 */
TRP_API TRP_MUST_USE trp_status trp_learner_mode_check(const trp_learner_mode_use *use);

typedef struct {
    trp_updater *updater;       /* taken, also on failure */
    trp_source *const *sources; /* one per source of the updater; taken, also on failure */
    size_t source_count;
    uint64_t seed;                   /* of the initial parameters and of what the updater draws */
    trp_stop *stop;                  /* borrowed; NULL: none */
    uint32_t publish_every;          /* steps; 0: 10; 1 where a source acts */
    const char *checkpoint_dir;      /* copied, made when missing; NULL: no checkpoints */
    uint32_t checkpoint_every_s;     /* 0: after 1, 2, 4 ... seconds, then every 60; of a
                                        resumed run every 60 */
    uint64_t checkpoint_every_steps; /* 0: by time alone */
    bool resume;          /* from the newest readable checkpoint in checkpoint_dir, if any */
    uint64_t max_steps;   /* all lives together; 0: no limit */
    uint64_t max_seconds; /* of this life; 0: no limit */
    bool no_share;        /* trp_publisher_keep_private(), trp_collective_options.no_share */
    const size_t *statistic_count; /* trp_publisher_expect_statistics(); NULL: it is not called */
    trp_learner_group_options group;
} trp_learner_loop_options;

enum { TRP_LEARNER_METRICS_MAX = TRP_METRICS_MAX + TRP_SOURCE_METRICS_MAX };

/* Readable while it runs. */
typedef struct {
    uint64_t steps;                       /* all lives together */
    uint64_t resumed_from;                /* steps of the checkpoint this life began with */
    uint64_t version;                     /* published */
    uint64_t actor_steps, actor_episodes; /* of all clients, all lives */
    uint64_t checkpoints;                 /* written in this life */
    uint64_t skipped_priorities;          /* updates the server never confirmed */
    uint64_t left_out; /* phases whose gradient was not finite (trp_optimizer.skip_not_finite) */
    uint64_t wait_ns, update_ns, publish_ns; /* where the time of this life went: waiting for
                                                batches, in the updater, copying parameters out */
    uint64_t uploaded_bytes; /* of batches, to a device that is no host, in this life */
    size_t metric_count;
    /* What the updater and the sources last reported; names live as long as the learner. */
    trp_metric metrics[TRP_LEARNER_METRICS_MAX];
    uint32_t rank, size; /* in its group; alone: 0 and 1 */
    bool finished;       /* max_steps or max_seconds was reached, or the batches ended */
} trp_learner_counters;

/* Publishes the updater's parameters as they are (those of the checkpoint when it resumed), so the
 * service answers from here on. A checkpoint that cannot be read is skipped with a warning for the
 * one before it; FAILED_PRECONDITION: it fits another network or optimizer; failures of the
 * directory name it. INVALID_ARGUMENT: what the updater declares, or another number of sources.
 * RESOURCE_EXHAUSTED: its batch_size makes batches that are larger than the machine's memory. Does
 * not use the sources yet. */
TRP_API TRP_MUST_USE trp_status trp_learner_create(trp_learner **out,
                                                   const trp_learner_loop_options *options);

/* A troupe.Params: thread-safe, never blocks. Owned by the learner. */
TRP_API ProtobufCService *trp_learner_service(trp_learner *learner);

/* Learns until stop, max_steps or max_seconds (TRP_OK), or until something fails: the replay
 * server beyond 60 s, the disk. Writes a checkpoint before it returns OK. In a deterministic run it
 * hands its turn on after every step and starts no thread. Once. */
TRP_API TRP_MUST_USE trp_status trp_learner_run(trp_learner *learner);

/* Safe from any thread while the learner exists. */
TRP_API trp_learner_counters trp_learner_read(const trp_learner *learner);

/* Nobody may be inside the service any more. NULL is fine. */
TRP_API void trp_learner_destroy(trp_learner *learner);

/* The path of the newest checkpoint in `dir`; caller frees. NOT_FOUND: there is none. */
TRP_API TRP_MUST_USE trp_status trp_learner_checkpoint_find(const char *dir, char **path);

TRP_END_DECLS
#endif
