/* Parameter servers: the parameters of learners lie on servers, a range of them on each. Learners
 * push gradients and pull what became of them; the optimizer runs where the range is. In a running
 * program a server is a node (trp_add_parameter_server()). */
#ifndef TRP_PARAMETER_SERVER_H
#define TRP_PARAMETER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include <troupe/optimizer.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

/* When a push takes effect, and who waits for whom. N learners; a clock is a count of pushes of
 * one; a version one of the steps of the optimizer; g a gradient. */
typedef enum {
    TRP_SERVER_SYNC,     /* a step with the mean of all N gradients of a clock, in step */
    TRP_SERVER_ASYNC,    /* a step with each g at once; nobody waits (Downpour SGD, Dean et al.
                            2012) */
    TRP_SERVER_SSP,      /* a step with each g / N at once; who is more than `slack` clocks ahead of
                            the slowest waits (stale synchronous parallel, Ho et al. 2013) */
    TRP_SERVER_SOFTSYNC, /* a step with the mean of c = floor(N / softness) gradients, each
                            divided by its staleness: the versions since the one that it was
                            computed on (n-softsync, Zhang et al. 2016) */
    TRP_SERVER_DYNSGD,   /* of the gradients that were computed on one version the mean counts: the
                            d-th to come weighs 1 / d and takes as much from those before (dynamic
                            learning rates, Jiang et al. 2017). Only for plain SGD */
} trp_server_rule;

/* What a push that was answered survives. */
typedef enum {
    TRP_SERVER_KEEPS_LOG,         /* the death of the server: it is appended to a log first, and a
                                     server that is started again has the bits that it had */
    TRP_SERVER_KEEPS_CHECKPOINTS, /* nothing: a server that is started again has the last of its
                                     checkpoints, which it writes every 1000 pushes, and goes on
                                     with versions that were never used */
} trp_server_durability;

/* Zero means default. */
typedef struct {
    uint32_t rule;          /* a trp_server_rule */
    uint32_t slack;         /* SSP: clocks; 0 is in step */
    uint32_t softness;      /* SOFTSYNC: n, at most the number of learners; 0: 1 */
    uint32_t max_staleness; /* ASYNC, SOFTSYNC, DYNSGD: gradients of older versions are dropped and
                               counted; 0: any count, with DYNSGD those of the last 16 */
    uint32_t push_every;    /* ASYNC: steps of a learner, whose gradients are added up; between them
                               it steps its own copy, and a push tells how many they are; 0: 1
                               (Downpour's n_push, and n_fetch:) */
    uint32_t fetch_every;   /* steps between two pulls; 0: 1 */
    uint32_t idle_hosts;    /* 0: all servers have equal parts. Else the servers are one on each
                               learner's host, in order, and one on each of so many hosts without
                               one, and parts keep all links busy for equally long (BytePS, Jiang et
                               al. 2020) */
    uint32_t durability;    /* a trp_server_durability */
    uint32_t restarts;      /* of a server that died or hangs, within the run; after a pause as
                               learners (program.h) */
    uint32_t threads;       /* that take and step a long range (from a megabyte on) in parts, which
                               changes no bit; 0: as there are cores, at most 4 */
    uint64_t in_flight_bytes; /* of gradients that are sent, each from its first part on until all
                                 are there: beyond it learners try again; 0: 1 GiB. No less than
                                 a gradient has of a server's range */
    bool no_share; /* learners on its host send gradients and are sent values, like those elsewhere
                    */
} trp_parameter_server_options;

/* Whether so many servers and learners, and the optimizer (NULL: any), can be as the options say.
 * INVALID_ARGUMENT: which of them not, and why. */
TRP_API TRP_MUST_USE trp_status
trp_parameter_server_check(const trp_parameter_server_options *options, size_t servers,
                           uint32_t learners, const trp_optimizer *optimizer);

/* ---- a server, for nodes of one's own ---------------------------------------------------- */

typedef struct trp_parameter_server trp_parameter_server;

/* `name` is for messages; `dir`, which is made where it is missing, has what it keeps: one that is
 * there already goes on. NULL: nothing is kept. Copied. UNAVAILABLE: the directory. */
TRP_API TRP_MUST_USE trp_status
trp_parameter_server_create(trp_parameter_server **out, const char *name,
                            const trp_parameter_server_options *options, const char *dir);

TRP_API const ProtobufCServiceDescriptor *trp_parameter_server_descriptor(void);

/* A troupe.ParameterServer: thread-safe; its method "Pull" blocks. Owned by the server. */
TRP_API ProtobufCService *trp_parameter_server_service(trp_parameter_server *server);

typedef struct {
    uint64_t pushes, versions; /* of all vectors and lives */
    uint64_t dropped;          /* pushes that were too old */
    uint64_t most_behind;      /* clocks that the slowest learner was behind one that read, of this
                                  life: at most `slack`, with SSP */
    uint64_t push_bytes;       /* of gradients that were sent to it, and not only mapped, in this
                                  life: also of pushes that came again */
    uint64_t pull_bytes; /* of values, and of the optimizer's state, that it sent, in this life:
                            also when a learner joins, and before a checkpoint */
} trp_parameter_server_counters;

TRP_API trp_parameter_server_counters trp_parameter_server_read(trp_parameter_server *server);

/* Writes a checkpoint of everything. Fails as the disk does. */
TRP_API TRP_MUST_USE trp_status trp_parameter_server_save(trp_parameter_server *server);

/* Nobody may be inside the service any more. NULL is fine. */
TRP_API void trp_parameter_server_destroy(trp_parameter_server *server);

/* ---- a learner's end --------------------------------------------------------------------- */

/* Who knows more of servers than their calls tell. Called by learners' threads. */
typedef struct {
    /* Whether a server has ended and will not be started again, and how it ended (cut to `size`):
     * no call to it is tried once more. NULL: all are. */
    bool (*is_gone)(void *watcher, size_t server, char *how, size_t size);
    /* A server has not answered for the group's timeout: a call waits for as long again, once, for
     * it to be started again. NULL: nobody would. */
    void (*miss)(void *watcher, size_t server, const char *why);
    void *watcher;
} trp_server_watch;

/* The servers of a learner (trp_learner_group_options); all is borrowed. */
typedef struct {
    const char *name;                  /* of the servers, in messages: "server" */
    ProtobufCService *const *services; /* troupe.ParameterServer */
    size_t count;
    trp_parameter_server_options options;
    uint32_t worker, workers; /* this learner is number `worker` of so many */
    bool goes_on; /* where one does not push for the group's timeout, others go on without it */
    trp_server_watch watch; /* zeroed: calls are tried until the timeout */
} trp_learner_servers;

TRP_END_DECLS
#endif
