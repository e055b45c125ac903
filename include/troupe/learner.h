/* Learning: the loop sample -> update -> priorities -> publish -> checkpoint around an algorithm's
 * updater, and the troupe.Params service that hands out what it publishes.
 *
 * Most users make a learner with trp_agent_learner_create() (agent.h); this header is for
 * algorithms and nodes of one's own. */
#ifndef TRP_LEARNER_H
#define TRP_LEARNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/checkpoint.h>
#include <troupe/rpc.h>
#include <troupe/sampler.h>
#include <troupe/status.h>
#include <troupe/stop.h>
#include <troupe/tensor.h>

TRP_BEGIN_DECLS

/* ---- updaters ---------------------------------------------------------------------------- */

typedef struct trp_updater trp_updater;

enum { TRP_UPDATER_TENSORS_MAX = 16 };

/* What one step tells about itself, for reports. */
typedef struct {
    double loss, mean_q, grad_norm;
} trp_update;

typedef struct {
    /* One update from `batch` (options.batch_size rows of the updater's columns). Writes a new
     * priority per row when writes_priorities. */
    trp_status (*step)(trp_updater *updater, const trp_batch *batch, double *priorities,
                       trp_update *update);
    /* Its whole state as tensors over its own memory, at most TRP_UPDATER_TENSORS_MAX: a checkpoint
     * is written from them and read back into them. One is "params", the published vector. Returns
     * how many. */
    size_t (*state)(trp_updater *updater, trp_checkpoint_tensor *tensors);
    void (*destroy)(trp_updater *updater);
} trp_updater_impl;

/* The first member of every updater: what the loop needs to know. An updater belongs to one
 * thread. */
struct trp_updater {
    const trp_updater_impl *impl;
    const char *table;              /* to sample from */
    const trp_tensor_spec *columns; /* of an item */
    size_t column_count;
    uint32_t batch_size;
    bool writes_priorities;
    const float *params; /* what actors need; changes in step */
    size_t param_count;
};

TRP_API void trp_updater_destroy(trp_updater *updater); /* NULL is fine */

/* ---- the loop ---------------------------------------------------------------------------- */

typedef struct trp_learner trp_learner;

typedef struct {
    trp_updater *updater;            /* taken, also on failure */
    trp_channel *replay;             /* to the one server of the table; borrowed */
    trp_stop *stop;                  /* borrowed; NULL: none */
    uint32_t prefetch;               /* batches; 0: 2. In deterministic runs none */
    uint32_t publish_every;          /* steps; 0: 10 */
    const char *checkpoint_dir;      /* copied, made when missing; NULL: no checkpoints */
    uint32_t checkpoint_every_s;     /* 0: 60 */
    uint64_t checkpoint_every_steps; /* 0: by time alone */
    bool resume;          /* from the newest readable checkpoint in checkpoint_dir, if any */
    uint64_t max_steps;   /* all lives together; 0: no limit */
    uint64_t max_seconds; /* of this life; 0: no limit */
} trp_learner_loop_options;

/* Readable while it runs. */
typedef struct {
    uint64_t steps;                       /* all lives together */
    uint64_t resumed_from;                /* steps of the checkpoint this life began with */
    uint64_t version;                     /* published */
    uint64_t actor_steps, actor_episodes; /* of all clients, all lives */
    uint64_t checkpoints;                 /* written in this life */
    uint64_t skipped_priorities;          /* updates the server never confirmed */
    uint64_t blocked_ns;                  /* waiting for batches */
    trp_update last;
    bool finished; /* max_steps or max_seconds was reached */
} trp_learner_counters;

/* Publishes the updater's parameters as they are (those of the checkpoint when it resumed), so the
 * service answers from here on. A checkpoint that cannot be read is skipped with a warning for the
 * one before it; FAILED_PRECONDITION: it fits another network; failures of the directory name it.
 * Does not use the replay channel yet. */
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
