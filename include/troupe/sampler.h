/* Sampler: batches out of a replay table, over Reverb's SampleStream, and the unary calls that go
 * with it. */
#ifndef TRP_SAMPLER_H
#define TRP_SAMPLER_H

#include <troupe/bytes.h>
#include <troupe/rpc.h>
#include <troupe/stop.h>
#include <troupe/tensor.h>

TRP_BEGIN_DECLS

/* `rows` items, column by column. Borrowed from the sampler until its next trp_sampler_next(), or
 * for longer, see trp_sampler_options.held. */
typedef struct {
    uint32_t rows;        /* batch_size of them, or fewer when the sequence ends with this batch */
    uint32_t server;      /* the shard it came from (shards.h); 0 otherwise */
    void *const *columns; /* columns[c]: rows x trp_tensor_bytes(&spec[c]), contiguous */
    const uint64_t *keys;
    const double *priorities;
    const double *probabilities;
    const int64_t *table_sizes;
    const int32_t *times_sampled;
    const uint64_t *policy_versions; /* see trp_writer_set_policy_version(); 0: not said */
    const bool *rate_limited;        /* the limiter made this sample wait */
} trp_batch;

/* With `prefetch` batches ahead, a thread of the sampler keeps that many ready and two more
 * requested from the server, so that neither side waits for the other. A caller that is back for
 * the next batch within 20 us, again and again, fills it itself: the thread is for one that has
 * something to do meanwhile. What is ready or requested when the sampler stops is lost: at most
 * prefetch + 3 batches, and 3 more for each further worker (a queue's items are gone then). With
 * prefetch 0 nothing is asked for before it is wanted and no thread is made: for queues, for fresh
 * priorities, and for runs in turns. One thread calls trp_sampler_next(). */
typedef struct trp_sampler trp_sampler;

typedef struct {
    const char *table;
    const trp_tensor_spec *columns; /* copied; what one ITEM's columns are, time axis included */
    size_t column_count;
    uint32_t batch_size;
    uint32_t prefetch; /* batches made ahead on a thread; 0: none, on the caller's thread */
    int64_t limiter_timeout_ms; /* sent to the server; 0: at once, negative: wait for ever */
    bool end_on_timeout;    /* the limiter's timeout ends the sequence, as in Reverb's datasets */
    uint64_t max_samples;   /* then the sequence ends; 0: it never does */
    uint32_t workers;       /* streams to each server, each with a thread; 0: 1 */
    uint32_t max_in_flight; /* samples that a worker may have asked for; 0: three batches */
    uint64_t max_samples_per_stream; /* then a worker opens another one; 0: never */
    uint32_t held; /* so many batches are lent at once: one stays valid until the held-th
                      trp_sampler_next() after it; 0: 1, at most 64 */
    const trp_allocator *allocator; /* copied; NULL: the C library's */
    bool unchecked; /* make it without asking the server, which may be away: samples are checked
                       when they come */
} trp_sampler_options;

/* Checks the columns against the table's signature when it has one (INVALID_ARGUMENT names the
 * first that differs; NOT_FOUND: no such table; waits up to 30 s for the answer), then starts to
 * prefetch. A signature's tensors are compared in order: sorted keys of a dict, fields of a named
 * tuple. `channel` outlives the sampler. Of an unchecked one only the options can be wrong.
 * INVALID_ARGUMENT: an option, which is named; RESOURCE_EXHAUSTED: batch_size makes batches that
 * there is no memory for, with their bytes. */
TRP_API TRP_MUST_USE trp_status trp_sampler_create(trp_sampler **out, trp_channel *channel,
                                                   const trp_sampler_options *options);

/* The next full batch, waiting up to `timeout_ms` (negative: no bound). DEADLINE_EXCEEDED: the
 * limiter held it back (and what it waits for), call again; CANCELLED: after trp_sampler_stop();
 * UNAVAILABLE: the server is gone or not there yet (the sampler reconnects: call again). Rows that
 * came before such a failure begin the next batch. OUT_OF_RANGE: the sequence has ended, by
 * max_samples or because the limiter's timeout ended it for every worker; the rows that came before
 * were a last, shorter batch of each worker. Final: INVALID_ARGUMENT for samples that are not what
 * `columns` say, naming the column; DATA_LOSS for broken ones; any other status of the server, in
 * its words. */
TRP_API TRP_MUST_USE trp_status trp_sampler_next(trp_sampler *sampler, trp_batch *batch,
                                                 int64_t timeout_ms);

/* Ends waits with CANCELLED; safe from any thread. */
TRP_API void trp_sampler_stop(trp_sampler *sampler);

/* Stops and frees; NULL is fine. */
TRP_API void trp_sampler_destroy(trp_sampler *sampler);

/* ---- priorities and tables --------------------------------------------------------------- */

/* Sends new priorities without waiting: at most `window` (0: 1) requests are unanswered, then the
 * oldest is waited for. A failed request is reported once, by the next call that gets to it; its
 * priorities are not sent again. Unanswered for 30 s is a failure. One thread at a time. */
typedef struct trp_priority_writer trp_priority_writer;

TRP_API TRP_MUST_USE trp_status trp_priority_writer_create(trp_priority_writer **out,
                                                           trp_channel *channel, const char *table,
                                                           uint32_t window);

/* Waits up to `timeout_ms` (0: not at all; negative: no bound) for room. On any failure, an earlier
 * request's included, these priorities were not sent. */
TRP_API TRP_MUST_USE trp_status trp_priority_writer_update(trp_priority_writer *writer,
                                                           const uint64_t *keys,
                                                           const double *priorities, size_t count,
                                                           int64_t timeout_ms);

/* The same for the rows of a batch, at the server it came from. */
TRP_API TRP_MUST_USE trp_status trp_priority_writer_update_batch(trp_priority_writer *writer,
                                                                 const trp_batch *batch,
                                                                 const double *priorities,
                                                                 int64_t timeout_ms);

/* Waits for every answer; the first failure since the last one reported. */
TRP_API TRP_MUST_USE trp_status trp_priority_writer_flush(trp_priority_writer *writer,
                                                          int64_t timeout_ms);
TRP_API void trp_priority_writer_destroy(trp_priority_writer *writer);

/* Here and below `timeout_ms` is 30 000 when 0, and negative for no bound; safe from any thread. */

/* MutatePriorities with deletes: blocks until done. Unknown keys are ignored. */
TRP_API TRP_MUST_USE trp_status trp_replay_delete(trp_channel *channel, const char *table,
                                                  const uint64_t *keys, size_t count,
                                                  int64_t timeout_ms);

/* Empties a table. */
TRP_API TRP_MUST_USE trp_status trp_replay_reset(trp_channel *channel, const char *table,
                                                 int64_t timeout_ms);

/* What ServerInfo says of a table. */
typedef struct {
    char name[256]; /* cut if longer, which no table of a Troupe server is */
    int64_t size, max_size, inserts, samples;
    int64_t min_size;
    int32_t max_times_sampled; /* below 1: no limit */
    int64_t unique_samples;    /* items that were sampled at least once */
    int64_t episodes;          /* that the table's items are of */
    int64_t episodes_deleted;  /* whose last item went */
    double samples_per_insert, min_diff, max_diff;
} trp_table_info;

/* Up to `capacity` tables; `*count` is how many there are. */
TRP_API TRP_MUST_USE trp_status trp_replay_info(trp_channel *channel, trp_table_info *tables,
                                                size_t capacity, size_t *count, int64_t timeout_ms);

/* All of them, on the heap: the caller frees *tables, also after a failure. */
TRP_API TRP_MUST_USE trp_status trp_replay_tables(trp_channel *channel, trp_table_info **tables,
                                                  size_t *count, int64_t timeout_ms);

TRP_END_DECLS
#endif
