/* Problem: a tool wants items whole, whatever their columns are; chunks hold them compressed, cut,
 * as deltas, and spread over messages.
 * Design: a message is decoded into an item, its slices and its chunks, which are kept until the
 * item's last chunk came; then its columns are put together in one buffer.
 * Guarantee: everything comes from a peer, so every size is compared with another that must agree
 * before memory is touched; broken bytes are a status. */
#include <troupe/item.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/buffer.h"
#include "core/limits.h"
#include "replay/client/unary.h"
#include "replay/wire/cut.h"
#include "replay/wire/tensor.h"
#include "replay/wire/wire.h"
#include "core/protobuf.h"

struct trp_item_reader {
    struct buffer *messages; /* the last is being read; chunks of the open item lie in any */
    uint32_t message_count, message_capacity;
    size_t bytes; /* of messages */
    struct wire_sample_response response;
    uint32_t entry; /* the next one of the response */
    bool open;      /* an item began */
    struct wire_lists lists;
    struct wire_draw draw;

    /* The item given last. */
    char *table;
    trp_item_array *columns;
    uint32_t column_capacity;
    struct buffer data;
    struct cutter cutter;
};

trp_item_reader *trp_item_reader_create(void)
{
    return xcalloc(1, sizeof(trp_item_reader));
}

static void drop_messages(trp_item_reader *reader)
{
    for (uint32_t i = 0; i < reader->message_count; i++)
        buffer_cleanup(&reader->messages[i]);
    reader->message_count = 0;
    reader->bytes = 0;
}

void trp_item_reader_destroy(trp_item_reader *reader)
{
    if (!reader)
        return;
    drop_messages(reader);
    free(reader->messages);
    wire_sample_response_cleanup(&reader->response);
    wire_lists_cleanup(&reader->lists);
    free(reader->table);
    free(reader->columns);
    buffer_cleanup(&reader->data);
    cutter_cleanup(&reader->cutter);
    free(reader);
}

trp_status trp_item_reader_feed(trp_item_reader *reader, trp_bytes response)
{
    if (!reader->open)
        drop_messages(reader);
    if (!size_add(reader->bytes, response.size, &reader->bytes) || reader->bytes > SAMPLE_BYTES_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "an item of more than %zu bytes",
                        (size_t)SAMPLE_BYTES_MAX);
    struct buffer *message =
        ARRAY_PUSH(reader->messages, reader->message_count, reader->message_capacity);
    *message = (struct buffer){0};
    buffer_append(message, response);
    reader->entry = 0;
    return wire_sample_response_decode(buffer_bytes(message), &reader->response);
}

/* ---- one slice --------------------------------------------------------------------------- */

/* Describes a column that no array can hold, as far as it can. */
static trp_status too_deep(const struct wire_tensor *tensor, trp_item_array *column)
{
    column->dtype = tensor->dtype;
    column->rank = tensor->rank;
    for (uint32_t i = 1; i < TRP_RANK_MAX; i++)
        column->shape[i] = tensor->dims[i];
    return trp_fail(TRP_UNIMPLEMENTED, "a column has tensors of %u dimensions, more than %d",
                    tensor->rank, (int)TRP_RANK_MAX);
}

/* A row's part of all that a tensor has. */
static size_t row_share(const struct wire_tensor *tensor, size_t all)
{
    return tensor->dims[0] > 0 ? all / (size_t)tensor->dims[0] : 0;
}

static trp_status append_numbers(trp_item_reader *reader, const struct wire_tensor *tensor,
                                 bool delta, const struct wire_slice *slice)
{
    size_t all, element = trp_dtype_size((trp_dtype)tensor->dtype);
    trp_bytes rows;
    if (element == 0)
        return trp_fail(TRP_UNIMPLEMENTED, "a column has elements of tensorflow.DataType %d",
                        tensor->dtype);
    if (!size_mul((size_t)tensor->elements, element, &all) ||
        !block_size_plausible(tensor->content, all))
        return trp_fail(TRP_DATA_LOSS, "a tensor's shape does not go with its %zu bytes",
                        tensor->content.size);
    size_t row = row_share(tensor, all), size = row * (size_t)slice->length;
    if (size + reader->data.size > SAMPLE_BYTES_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "an item of more than %zu bytes",
                        (size_t)SAMPLE_BYTES_MAX);
    uint8_t *out = buffer_reserve(&reader->data, size + 1);
    TRP_TRY(cutter_cut(&reader->cutter, slice, tensor, delta, row, out, &rows));
    if (rows.data != out)
        memcpy(out, rows.data, rows.size);
    reader->data.size += rows.size;
    return TRP_OK;
}

/* Strings are all lengths, then all bytes; the slice's own are cut out of both. Lengths of the
 * slices before stand in front, so the bytes go to `plain` first. */
static trp_status append_strings(trp_item_reader *reader, const struct wire_tensor *tensor,
                                 const struct wire_slice *slice, struct buffer *texts)
{
    size_t skipped = 0, taken = 0, all = (size_t)tensor->elements, step = row_share(tensor, all);
    struct reader lengths = reader_of(tensor->content);
    trp_status broken = TRP_DATA_LOSS;
    if (all > tensor->content.size)
        return trp_fail(broken, "a tensor of strings is shorter than its shape says");
    size_t first = step * (size_t)slice->offset, last = first + step * (size_t)slice->length;
    for (size_t i = 0; i < all; i++) {
        const uint8_t *before = lengths.at;
        uint64_t length;
        if (!read_varint(&lengths, &length) || length > tensor->content.size)
            return trp_fail(broken, "a tensor of strings is malformed");
        if (i < first)
            skipped += (size_t)length;
        else if (i < last)
            taken += (size_t)length;
        if (i >= first && i < last)
            buffer_append(&reader->data, (trp_bytes){before, (size_t)(lengths.at - before)});
        if (skipped + taken > tensor->content.size)
            return trp_fail(broken, "a tensor of strings is malformed");
    }
    if (skipped + taken > (size_t)(lengths.end - lengths.at))
        return trp_fail(broken, "a tensor of strings is cut off");
    buffer_append(texts, (trp_bytes){lengths.at + skipped, taken});
    return TRP_OK;
}

/* ---- one column -------------------------------------------------------------------------- */

static trp_status shape_join(trp_item_array *column, const struct wire_tensor *tensor, bool first)
{
    uint32_t skip = column->squeezed ? 0 : 1;
    if (first) {
        column->dtype = tensor->dtype;
        column->rank = tensor->rank - 1 + skip;
        for (uint32_t i = 1; i < tensor->rank; i++)
            column->shape[i - 1 + skip] = tensor->dims[i];
        return TRP_OK;
    }
    bool same = column->dtype == tensor->dtype && column->rank == tensor->rank - 1 + skip;
    for (uint32_t i = 1; same && i < tensor->rank; i++)
        same = column->shape[i - 1 + skip] == tensor->dims[i];
    return same ? TRP_OK
                : trp_fail(TRP_INVALID_ARGUMENT, "a column is cut from tensors of several shapes");
}

static trp_status append_slice(trp_item_reader *reader, const struct wire_slice *slice, bool first,
                               trp_item_array *column, struct buffer *texts)
{
    const struct wire_tensor *tensor;
    bool delta;
    TRP_TRY(cutter_find(&reader->cutter, slice, &tensor, &delta));
    if (tensor->rank > TRP_RANK_MAX)
        return too_deep(tensor, column);
    if (tensor->rank < 1 || tensor->elements == UINT64_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "a chunk has a tensor of unknown shape");
    TRP_TRY(slice_in_tensor(slice, tensor));
    TRP_TRY(shape_join(column, tensor, first));
    return tensor->dtype == TRP_STRING ? append_strings(reader, tensor, slice, texts)
                                       : append_numbers(reader, tensor, delta, slice);
}

static trp_status item_column_build(trp_item_reader *reader, const struct wire_column *wire,
                                    trp_item_array *column)
{
    struct buffer texts = {0};
    trp_status status = TRP_OK;
    int64_t rows = 0;
    *column = (trp_item_array){.squeezed = wire->squeeze};
    for (uint32_t i = 0; status == TRP_OK && i < wire->slice_count; i++) {
        const struct wire_slice *slice = &reader->lists.slices[wire->slice_first + i];
        status = append_slice(reader, slice, i == 0, column, &texts);
        rows += slice->length;
    }
    if (status == TRP_OK && column->squeezed && rows != 1)
        status = trp_fail(TRP_INVALID_ARGUMENT,
                          "a column without a time axis has %" PRId64 " steps", rows);
    if (!column->squeezed && wire->slice_count > 0)
        column->shape[0] = rows;
    buffer_append(&reader->data, buffer_bytes(&texts));
    buffer_cleanup(&texts);
    return status;
}

/* ---- one item ---------------------------------------------------------------------------- */

static void item_begin(trp_item_reader *reader, const struct wire_entry *entry)
{
    const struct wire_item *item = &reader->response.lists.items[entry->item];
    free(reader->table);
    reader->table = xmemdup(item->table.data, item->table.size);
    reader->draw = entry->draw;
    reader->open = true;
}

static trp_status item_build(trp_item_reader *reader, trp_item_data *out)
{
    struct wire_item *item = &reader->lists.items[0];
    TRP_TRY(wire_item_columns(&reader->lists, item));
    if (item->column_count > reader->column_capacity) {
        reader->column_capacity = item->column_count;
        reader->columns = xrealloc(reader->columns, item->column_count * sizeof *reader->columns);
    }
    buffer_clear(&reader->data);
    cutter_begin(&reader->cutter, reader->lists.chunks, reader->lists.chunk_count);
    trp_status status = TRP_OK;
    for (uint32_t i = 0; i < item->column_count; i++) {
        size_t start = reader->data.size;
        trp_status built =
            item_column_build(reader, &reader->lists.columns[i], &reader->columns[i]);
        if (built == TRP_UNIMPLEMENTED) {
            reader->data.size = start;
            status = built;
        } else if (built != TRP_OK) {
            return built;
        }
        reader->columns[i].data.size = reader->data.size - start;
    }
    const uint8_t *at = reader->data.data;
    for (uint32_t i = 0; i < item->column_count; i++) {
        reader->columns[i].data.data = at;
        at += reader->columns[i].data.size;
    }
    *out = (trp_item_data){.table = reader->table,
                           .key = item->key,
                           .priority = item->priority,
                           .times_sampled = item->times_sampled,
                           .inserted_at_ns = item->inserted_at_ns,
                           .policy_version = item->policy_version,
                           .probability = reader->draw.probability,
                           .table_size = reader->draw.table_size,
                           .columns = reader->columns,
                           .column_count = item->column_count};
    return status;
}

trp_status trp_item_reader_next(trp_item_reader *reader, trp_item_data *item, bool *more)
{
    *more = false;
    while (reader->entry < reader->response.entry_count) {
        const struct wire_entry *entry = &reader->response.entries[reader->entry++];
        if (entry->has_info == reader->open)
            return trp_fail(TRP_INVALID_ARGUMENT, "an item %s",
                            reader->open ? "begins before the last one ended" : "has no info");
        if (entry->has_info)
            item_begin(reader, entry);
        TRP_TRY(sample_add(&reader->lists, &reader->response, entry));
        if (!entry->end_of_sequence)
            continue;
        reader->open = false;
        *more = true;
        return item_build(reader, item);
    }
    return TRP_OK;
}

trp_status trp_item_sample(trp_stream **out, trp_channel *channel, const char *table, int64_t count,
                           int64_t limiter_timeout_ms)
{
    struct wire_sample_request request = {.table = text_bytes(table),
                                          .num_samples = count,
                                          .has_timeout = limiter_timeout_ms >= 0,
                                          .timeout_ms = limiter_timeout_ms};
    trp_message *message;
    *out = NULL;
    TRP_TRY(wire_sample_request_encode(&request, &message));
    return unary_start(out, channel, "SampleStream", message, -1);
}
