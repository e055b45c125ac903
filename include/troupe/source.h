/* Batch sources: where a learner's batches come from. What an updater wants of one is in its
 * trp_batch_spec; a learner asks its sources in the same order. */
#ifndef TRP_SOURCE_H
#define TRP_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/metric.h>
#include <troupe/rpc.h>
#include <troupe/sampler.h>
#include <troupe/status.h>
#include <troupe/stop.h>
#include <troupe/updater.h>

TRP_BEGIN_DECLS

typedef struct trp_source trp_source;

enum { TRP_SOURCE_METRICS_MAX = 64 };

/* What batches are for. */
typedef struct {
    const trp_batch_spec *spec; /* what they have to be; outlives the source */
    uint32_t held; /* the last so many are in use at once: 2 where the updater collects later */
    const trp_allocator *memory; /* where columns had best lie (trp_device_host_memory()); NULL: the
                                    C library's */
    ProtobufCService *params; /* the learner's troupe.Params, for sources that act; outlives it */
    trp_stop *stop;           /* the learner's; may be NULL */
} trp_source_use;

/* Everything is called on the learner's thread. */
typedef struct {
    /* Before the first batch. INVALID_ARGUMENT names the column that is not there or of another
     * shape. Whatever it fails with ends the run: what may come later is waited for in next(). */
    trp_status (*open)(trp_source *source, const trp_source_use *use);
    /* The next batch, borrowed until the call for the held-th one after it, waiting up to
     * `timeout_ms`. DEADLINE_EXCEEDED: there is none yet; UNAVAILABLE: who makes them is away; both
     * with the reason: call again, which a learner does, of UNAVAILABLE for a minute. OUT_OF_RANGE:
     * there are no more, which ends the run well. Anything else ends it. */
    trp_status (*next)(trp_source *source, trp_batch *batch, int64_t timeout_ms);
    /* New priorities for the rows of a batch that is still borrowed. DEADLINE_EXCEEDED,
     * UNAVAILABLE: they are lost, which is no failure. Optional. */
    trp_status (*update_priorities)(trp_source *source, const trp_batch *batch,
                                    const double *priorities, int64_t timeout_ms);
    /* Waits until priorities are confirmed. Optional. */
    trp_status (*flush)(trp_source *source, int64_t timeout_ms);
    /* Up to TRP_SOURCE_METRICS_MAX numbers for reports, after each batch; returns how many. Of
     * several sources each one's names get its index in front: "1.return". Optional. */
    size_t (*metrics)(const trp_source *source, trp_metric *metrics);
    bool acts; /* batches come of the newest parameters: each step's are published */
    /* Also of a source that was never opened, or whose open() failed; the functions between are
     * only called after an open() that returned OK. */
    void (*destroy)(trp_source *source);
} trp_source_impl;

/* The first member of every source. */
struct trp_source {
    const trp_source_impl *impl;
};

TRP_API void trp_source_destroy(trp_source *source); /* NULL is fine */

/* ---- replay servers ---------------------------------------------------------------------- */

typedef struct {
    trp_channel *const *shards; /* one to each server, borrowed; the array is copied */
    size_t shard_count;         /* at most 256 */
    uint32_t
        prefetch; /* batches made ahead at each; 0: 2, at most 64. In deterministic runs none */
} trp_sampler_source_options;

/* Samples from the table of the updater's spec, and sends new priorities back without waiting for
 * the answer, each to the server that its row came from.
 *
 * Several servers are one table: a batch comes from one of them (trp_batch.server), in turn;
 * probabilities are those of a row in its server times the server's share of the batches, and table
 * sizes are the sums. So where every server has as many items and samples uniformly, a row is told
 * what one server with all items would say. A server that has nothing for now or is away is passed
 * over, and counts neither in shares nor in sizes, until it is back or, where it was away at the
 * start, has come. While all of them are away batches are UNAVAILABLE, for which a learner waits a
 * minute. A server that answers within a second of open() is asked there whether its table has
 * these columns; of others it is the first batch that is INVALID_ARGUMENT or NOT_FOUND. Of a group
 * of learners, member r may have all of them, or one: .shards = channels + r % count, .shard_count
 * = 1.
 *
 * Opens nothing yet. INVALID_ARGUMENT: prefetch, shard_count. */
TRP_API TRP_MUST_USE trp_status
trp_sampler_source_create(trp_source **out, const trp_sampler_source_options *options);

/* ---- a dataset on disk ------------------------------------------------------------------- */

/* For learning offline, without actors and without a server:
 *
 *     static trp_status offline(trp_source **out)
 *     {
 *         return trp_dataset_source_create(out, &(trp_dataset_source_options){
 *             .dir = "runs/latest/replay", .shuffle = 10000, .seed = 1, .epochs = 3});
 *     }
 */
typedef struct {
    const char *dir;   /* of the store of a stopped replay server; copied */
    uint32_t shuffle;  /* rows are drawn from a window of so many items, filled in the order they
                          were inserted: as many as the table has are a whole shuffle. 0, 1: in that
                          order. The window is memory for so many items */
    uint64_t seed;     /* of the draws */
    uint32_t epochs;   /* passes over the table, each with every item once; 0: for ever. The last
                          batch has the rows that are left */
    uint32_t prefetch; /* batches made ahead; 0: 2, at most 64. In deterministic runs none */
} trp_dataset_source_options;

/* Reads the items of the table of the updater's spec; nothing in the directory changes, and nothing
 * counts as sampled: many may read one store at a time. A row's probability is 1 / items of the
 * table; new priorities go nowhere. An item may have 2 GiB (RESOURCE_EXHAUSTED beyond): besides the
 * window one is in memory at a time, as it is stored and decoded. Opens nothing yet: the first
 * batch finds out NOT_FOUND (which tables there are), FAILED_PRECONDITION (no store, a live server
 * has it open, an empty table) and INVALID_ARGUMENT (the column that differs, with both shapes).
 * RESOURCE_EXHAUSTED there, too: no memory for the window or for batches, with the option and the
 * bytes. INVALID_ARGUMENT here: no directory, prefetch. */
TRP_API TRP_MUST_USE trp_status
trp_dataset_source_create(trp_source **out, const trp_dataset_source_options *options);

TRP_END_DECLS
#endif
