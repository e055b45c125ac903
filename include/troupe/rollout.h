/* Rollouts: items that go straight into batches, on the thread that acts: no table, no server,
 * nothing on disk. For learners that step their own environments (A3C, fused PPO); most users get
 * one by setting `envs` of a learner node, or with trp_agent_rollout_source_create() (agent.h).
 *
 * It stands where a table stands. Adders write into it what they write to a table
 * (trp_adder_options .rollout), so batches have the same columns either way, and a full batch holds
 * the adder back as a full table does. One thread uses a rollout. */
#ifndef TRP_ROLLOUT_H
#define TRP_ROLLOUT_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/columns.h>
#include <troupe/sampler.h>
#include <troupe/status.h>
#include <troupe/writer.h>

TRP_BEGIN_DECLS

typedef struct trp_rollout trp_rollout;

typedef struct {
    const trp_columns *columns;     /* of an item, time axis included; copied */
    uint32_t batch_size;            /* items of a batch; at least 1 */
    uint32_t held;                  /* so many batches are lent at once; 0: 1 */
    const trp_allocator *allocator; /* copied; NULL: the C library's */
} trp_rollout_options;

/* INVALID_ARGUMENT: a column without a fixed size, no rows. RESOURCE_EXHAUSTED: the batches are
 * more than there is memory for, with their bytes. */
TRP_API TRP_MUST_USE trp_status trp_rollout_create(trp_rollout **out,
                                                   const trp_rollout_options *options);
TRP_API void trp_rollout_destroy(trp_rollout *rollout); /* NULL is fine */

/* What an item has. */
TRP_API const trp_columns *trp_rollout_columns(const trp_rollout *rollout);

/* ---- batches ----------------------------------------------------------------------------- */

/* Begins a batch, in the memory of the held-th one before. */
TRP_API void trp_rollout_begin(trp_rollout *rollout);

/* It has batch_size items: none is taken until the next one begins. */
TRP_API bool trp_rollout_is_full(const trp_rollout *rollout);

/* The items of the batch, in the order they were made. Keys count them from 1, each is as probable
 * as any other of its batch, and the batch is the whole table. */
TRP_API trp_batch trp_rollout_batch(const trp_rollout *rollout);

/* ---- for adders, in place of a writer ------------------------------------------------------ */

/* Once, before the first row: what a row has; items may refer to rows that are up to `history` - 1
 * rows back. `columns` are copied. */
TRP_API void trp_rollout_open(trp_rollout *rollout, const trp_tensor_spec *columns,
                              size_t column_count, uint32_t history);

/* `count` rows: `columns[i]` has count times trp_tensor_bytes(&spec[i]) bytes. */
TRP_API void trp_rollout_append(trp_rollout *rollout, const void *const *columns, uint32_t count);

/* An item of rows, as trp_writer_create_item() says, made by `version` of the policy.
 * DEADLINE_EXCEEDED: the batch is full, and the item is not in it: again after trp_rollout_begin().
 * INVALID_ARGUMENT names the column that is not what trp_rollout_options.columns say. */
TRP_API TRP_MUST_USE trp_status trp_rollout_create_item(trp_rollout *rollout, double priority,
                                                        uint64_t version,
                                                        const trp_item_column *columns,
                                                        size_t column_count);

TRP_END_DECLS
#endif
