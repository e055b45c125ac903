/* Whole items of any columns: for tools that do not know what is in a table (dump, load, show).
 * Training reads with sampler.h and writes with writer.h, which are many times faster. */
#ifndef TRP_ITEM_H
#define TRP_ITEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include <troupe/rpc.h>
#include <troupe/status.h>
#include <troupe/tensor.h>

TRP_BEGIN_DECLS

/* One column of one item, as a client gets it. */
typedef struct {
    int32_t dtype; /* a trp_dtype's number; 0: a column without steps */
    uint32_t rank;
    int64_t shape[TRP_RANK_MAX];
    bool squeezed;  /* it has no time axis; otherwise shape[0] is its steps */
    trp_bytes data; /* row-major, little endian; strings as in a TensorProto's tensor_content: the
                     * length of each as a varint, then all of them one after the other */
} trp_item_array;

typedef struct {
    const char *table;
    uint64_t key;
    double priority;
    int32_t times_sampled;
    int64_t inserted_at_ns;  /* since 1970 */
    uint64_t policy_version; /* of the policy that produced it; 0: not said */
    double probability;      /* of the draw, where it was sampled */
    int64_t table_size;
    const trp_item_array *columns;
    size_t column_count;
} trp_item_data;

/* ---- reading ----------------------------------------------------------------------------- */

/* Decodes SampleStreamResponses: of SampleStream, or out of troupe.Replay's Fetch. One thread. */
typedef struct trp_item_reader trp_item_reader;

TRP_API trp_item_reader *trp_item_reader_create(void);

/* Takes the next message (copied), when every item of the one before was given.
 * INVALID_ARGUMENT: malformed; RESOURCE_EXHAUSTED: an item beyond 2 GiB. */
TRP_API TRP_MUST_USE trp_status trp_item_reader_feed(trp_item_reader *reader, trp_bytes response);

/* The next whole item; `*more` false: another message is needed. What `item` points to is valid
 * until the next call. INVALID_ARGUMENT: parts that do not fit together; DATA_LOSS: broken bytes;
 * UNIMPLEMENTED: an item that an array cannot hold (more than TRP_RANK_MAX dimensions, a type that
 * is no trp_dtype): `item` has no data of such columns, and with more dimensions their tensors'
 * rank and, behind shape[0], first lengths. The next call gives the next one. */
TRP_API TRP_MUST_USE trp_status trp_item_reader_next(trp_item_reader *reader, trp_item_data *item,
                                                     bool *more);
TRP_API void trp_item_reader_destroy(trp_item_reader *reader); /* NULL is fine */

/* Opens a SampleStream that draws `count` items, whose messages (trp_stream_receive()) are for a
 * reader. Sampling counts: the limiter and times_sampled move. The stream ends with
 * DEADLINE_EXCEEDED when the limiter allows no more for `limiter_timeout_ms` (negative: never). */
TRP_API TRP_MUST_USE trp_status trp_item_sample(trp_stream **out, trp_channel *channel,
                                                const char *table, int64_t count,
                                                int64_t limiter_timeout_ms);

/* ---- writing ----------------------------------------------------------------------------- */

/* Inserts items under the keys they have: one that is in the table already is an update of its
 * priority, so that work that was interrupted can be done again. One thread. */
typedef struct trp_item_writer trp_item_writer;

/* `channel` outlives the writer. */
TRP_API TRP_MUST_USE trp_status trp_item_writer_create(trp_item_writer **out, trp_channel *channel);

/* Queues one item (copied), and waits up to `timeout_ms` (negative: no bound) when too many are
 * unconfirmed. times_sampled and the time of insertion are the server's. INVALID_ARGUMENT: arrays
 * that are no columns; DEADLINE_EXCEEDED: the table's limiter holds inserts back; else the
 * server's. After a failure the writer can only be destroyed. */
TRP_API TRP_MUST_USE trp_status trp_item_writer_put(trp_item_writer *writer,
                                                    const trp_item_data *item, int64_t timeout_ms);

/* Waits until everything is confirmed. */
TRP_API TRP_MUST_USE trp_status trp_item_writer_flush(trp_item_writer *writer, int64_t timeout_ms);
TRP_API uint64_t trp_item_writer_confirmed(const trp_item_writer *writer);
TRP_API void trp_item_writer_destroy(trp_item_writer *writer); /* NULL is fine */

TRP_END_DECLS
#endif
