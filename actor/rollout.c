/* Rows wait in a ring, a buffer each column; an item copies those that it names into the next row
 * of the batch. */
#include <troupe/rollout.h>

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/batch.h"

struct trp_rollout {
    trp_columns columns;
    size_t *bytes; /* of each in an item */
    uint32_t batch_size;
    struct batch *batches;
    uint32_t held, current; /* of batches */
    uint64_t items;
    /* The adder's rows. */
    size_t row_columns, *row_bytes;
    uint32_t ring;
    uint64_t appended;
    uint8_t **history; /* ring rows a column */
};

/* ---- life ------------------------------------------------------------------------------------ */

static trp_status check_rollout(const trp_rollout_options *options)
{
    if (options->batch_size == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "rollout: a batch of no items");
    for (size_t c = 0; c < options->columns->count; c++) {
        const trp_tensor_spec *spec = &options->columns->specs[c];
        for (uint32_t axis = 0; axis < spec->rank; axis++)
            if (spec->shape[axis] < 0)
                return trp_fail(TRP_INVALID_ARGUMENT,
                                "rollout: column '%s' is of any length: batches need items of one "
                                "size",
                                spec->name);
    }
    return TRP_OK;
}

/* Every item once: the batch is the table. */
static void prepare_facts(struct batch *batch)
{
    for (uint32_t row = 0; row < batch->capacity; row++) {
        batch->probabilities[row] = 1 / (double)batch->capacity;
        batch->table_sizes[row] = batch->capacity;
        batch->times_sampled[row] = 1;
    }
}

trp_status trp_rollout_create(trp_rollout **out, const trp_rollout_options *options)
{
    *out = NULL;
    TRP_TRY(check_rollout(options));
    trp_rollout *rollout = xcalloc(1, sizeof *rollout);
    trp_columns_add_all(&rollout->columns, options->columns);
    rollout->bytes = xcalloc(rollout->columns.count + 1, sizeof *rollout->bytes);
    for (size_t c = 0; c < rollout->columns.count; c++)
        rollout->bytes[c] = trp_tensor_bytes(&rollout->columns.specs[c]);
    rollout->batch_size = options->batch_size;
    rollout->held = options->held ? options->held : 1;
    rollout->batches = xcalloc(rollout->held, sizeof *rollout->batches);
    trp_status status = TRP_OK;
    for (uint32_t i = 0; i < rollout->held && status == TRP_OK; i++) {
        status = batch_init(&rollout->batches[i], rollout->columns.specs, rollout->columns.count,
                            options->batch_size, options->allocator, "rollout");
        if (status == TRP_OK)
            prepare_facts(&rollout->batches[i]);
    }
    if (status == TRP_OK)
        *out = rollout;
    else
        trp_rollout_destroy(rollout);
    return status;
}

void trp_rollout_destroy(trp_rollout *rollout)
{
    if (!rollout)
        return;
    for (uint32_t i = 0; i < rollout->held; i++)
        batch_cleanup(&rollout->batches[i], rollout->columns.count);
    for (size_t c = 0; c < rollout->row_columns; c++)
        free(rollout->history[c]);
    free(rollout->history);
    free(rollout->row_bytes);
    free(rollout->batches);
    free(rollout->bytes);
    trp_columns_cleanup(&rollout->columns);
    free(rollout);
}

const trp_columns *trp_rollout_columns(const trp_rollout *rollout)
{
    return &rollout->columns;
}

/* ---- batches --------------------------------------------------------------------------------- */

void trp_rollout_begin(trp_rollout *rollout)
{
    rollout->current = (rollout->current + 1) % rollout->held;
    rollout->batches[rollout->current].rows = 0;
}

bool trp_rollout_is_full(const trp_rollout *rollout)
{
    return rollout->batches[rollout->current].rows == rollout->batch_size;
}

trp_batch trp_rollout_batch(const trp_rollout *rollout)
{
    const struct batch *batch = &rollout->batches[rollout->current];
    return (trp_batch){.rows = batch->rows,
                       .columns = batch->columns,
                       .keys = batch->keys,
                       .priorities = batch->priorities,
                       .probabilities = batch->probabilities,
                       .table_sizes = batch->table_sizes,
                       .times_sampled = batch->times_sampled,
                       .policy_versions = batch->policy_versions,
                       .rate_limited = batch->rate_limited};
}

/* ---- rows and items -------------------------------------------------------------------------- */

void trp_rollout_open(trp_rollout *rollout, const trp_tensor_spec *columns, size_t column_count,
                      uint32_t history)
{
    assert(!rollout->history && history > 0);
    rollout->ring = history;
    rollout->row_columns = column_count;
    rollout->row_bytes = xcalloc(column_count + 1, sizeof *rollout->row_bytes);
    rollout->history = xcalloc(column_count + 1, sizeof *rollout->history);
    for (size_t c = 0; c < column_count; c++) {
        rollout->row_bytes[c] = trp_tensor_bytes(&columns[c]);
        rollout->history[c] = xcalloc(history, rollout->row_bytes[c]);
    }
}

void trp_rollout_append(trp_rollout *rollout, const void *const *columns, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, rollout->appended++)
        for (size_t c = 0; c < rollout->row_columns; c++) {
            size_t bytes = rollout->row_bytes[c];
            memcpy(rollout->history[c] + rollout->appended % rollout->ring * bytes,
                   (const uint8_t *)columns[c] + i * bytes, bytes);
        }
}

static trp_status check_item(const trp_rollout *rollout, const trp_item_column *columns,
                             size_t column_count)
{
    if (column_count != rollout->columns.count)
        return trp_fail(TRP_INVALID_ARGUMENT, "rollout: an item of %zu columns, expected %zu",
                        column_count, rollout->columns.count);
    for (size_t c = 0; c < column_count; c++) {
        assert(columns[c].column < rollout->row_columns);
        size_t bytes = columns[c].length * rollout->row_bytes[columns[c].column];
        if (bytes != rollout->bytes[c])
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "rollout: column '%s' of an item has %zu bytes, expected %zu",
                            rollout->columns.specs[c].name, bytes, rollout->bytes[c]);
    }
    return TRP_OK;
}

static void copy_column(const trp_rollout *rollout, const trp_item_column *column, uint8_t *to)
{
    size_t bytes = rollout->row_bytes[column->column];
    const uint8_t *from = rollout->history[column->column];
    for (uint32_t i = 0; i < column->length; i++) {
        uint64_t age = column->ages ? column->ages[i] : column->age - i;
        assert(age < rollout->ring && age < rollout->appended);
        memcpy(to + i * bytes, from + (rollout->appended - 1 - age) % rollout->ring * bytes, bytes);
    }
}

trp_status trp_rollout_create_item(trp_rollout *rollout, double priority, uint64_t version,
                                   const trp_item_column *columns, size_t column_count)
{
    if (trp_rollout_is_full(rollout))
        return trp_fail(TRP_DEADLINE_EXCEEDED, "rollout: the batch is full");
    TRP_TRY(check_item(rollout, columns, column_count));
    struct batch *batch = &rollout->batches[rollout->current];
    uint32_t row = batch->rows++;
    for (size_t c = 0; c < column_count; c++)
        copy_column(rollout, &columns[c], (uint8_t *)batch->columns[c] + row * rollout->bytes[c]);
    batch->keys[row] = ++rollout->items;
    batch->policy_versions[row] = version;
    batch->priorities[row] = priority;
    return TRP_OK;
}
