/* Problem: items of any columns, with keys of their own, have to get into a table.
 * Design: each column becomes a chunk of its own, so that columns of any lengths go the same way;
 * items share messages, and at most so many of them are unconfirmed.
 * Guarantee: an item counts as confirmed only when the server said so. Memory is bounded by
 * ITEM_WRITER_BYTES_MAX and one item. */
#include <troupe/item.h>
#include <troupe/rng.h>

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "limits.h"
#include "replay/wire/tensor.h"
#include "replay/wire/wire.h"
#include "core/protobuf.h"

/* Memory that the message being built points to; freed when it was sent. */
struct block {
    struct block *next;
    struct wire_steps steps;
    struct wire_tensor tensor;
    uint8_t bytes[];
};

struct trp_item_writer {
    trp_channel *channel;
    trp_stream *stream;
    struct wire_insert_request request;
    struct block *blocks;
    size_t block_bytes;
    uint64_t unconfirmed, confirmed; /* sent items */
    struct wire_keys keys;           /* scratch */
    trp_rng rng;
    char *table; /* of the last item, for messages */
};

trp_status trp_item_writer_create(trp_item_writer **out, trp_channel *channel)
{
    trp_item_writer *writer = xcalloc(1, sizeof *writer);
    *out = NULL;
    writer->channel = channel;
    trp_rng_init(&writer->rng, trp_rng_entropy(), 0);
    trp_status status = trp_stream_open(&writer->stream, channel,
                                        "/deepmind.reverb.ReverbService/InsertStream", NULL);
    if (status == TRP_OK)
        *out = writer;
    else
        trp_item_writer_destroy(writer);
    return status;
}

static void request_clear(trp_item_writer *writer)
{
    while (writer->blocks) {
        struct block *next = writer->blocks->next;
        free(writer->blocks);
        writer->blocks = next;
    }
    writer->block_bytes = 0;
    wire_insert_request_clear(&writer->request);
}

void trp_item_writer_destroy(trp_item_writer *writer)
{
    if (!writer)
        return;
    request_clear(writer);
    trp_stream_destroy(writer->stream);
    wire_insert_request_cleanup(&writer->request);
    wire_keys_cleanup(&writer->keys);
    free(writer->table);
    free(writer);
}

uint64_t trp_item_writer_confirmed(const trp_item_writer *writer)
{
    return writer->confirmed;
}

/* ---- confirmations ----------------------------------------------------------------------- */

static trp_status item_writer_receive(trp_item_writer *writer, struct deadline deadline)
{
    trp_message *message = NULL;
    trp_status status =
        trp_stream_receive(writer->stream, &message, deadline_left_ms(deadline, &clock_monotonic));
    if (status == TRP_DEADLINE_EXCEEDED && !trp_stream_ended(writer->stream))
        return trp_fail(status, "table %s confirms nothing: its limiter holds inserts back",
                        writer->table);
    if (status == TRP_OUT_OF_RANGE)
        return trp_fail(TRP_UNAVAILABLE, "%s ended the stream",
                        trp_channel_address(writer->channel));
    TRP_TRY(status);
    writer->keys.count = 0;
    status = wire_insert_response_decode(message_bytes(message), &writer->keys);
    trp_message_destroy(message);
    TRP_TRY(status);
    uint64_t count = writer->keys.count;
    if (count > writer->unconfirmed)
        return trp_fail(TRP_INTERNAL, "%s confirmed more items than were sent",
                        trp_channel_address(writer->channel));
    writer->unconfirmed -= count;
    writer->confirmed += count;
    return TRP_OK;
}

static trp_status item_writer_send(trp_item_writer *writer, struct deadline deadline)
{
    uint32_t count = writer->request.lists.item_count;
    trp_message *message;
    if (count == 0)
        return TRP_OK;
    trp_status status = wire_insert_request_encode(&writer->request, &message);
    request_clear(writer);
    TRP_TRY(status);
    status = trp_stream_send(writer->stream, message, deadline_left_ms(deadline, &clock_monotonic));
    if (status == TRP_DEADLINE_EXCEEDED && !trp_stream_ended(writer->stream))
        return trp_fail(status, "table %s takes nothing: its limiter holds inserts back",
                        writer->table);
    writer->unconfirmed += count;
    if (status != TRP_OK && trp_stream_ended(writer->stream)) /* what it has confirmed counts */
        while ((status = item_writer_receive(writer, deadline)) == TRP_OK)
            continue;
    return status;
}

trp_status trp_item_writer_flush(trp_item_writer *writer, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    TRP_TRY(item_writer_send(writer, deadline));
    while (writer->unconfirmed > 0)
        TRP_TRY(item_writer_receive(writer, deadline));
    return TRP_OK;
}

/* ---- items ------------------------------------------------------------------------------- */

static trp_status column_check(const trp_item_array *column, size_t index)
{
    bool strings = column->dtype == TRP_STRING;
    uint32_t most = column->squeezed ? TRP_RANK_MAX - 1 : TRP_RANK_MAX;
    size_t bytes = strings ? 1 : trp_dtype_size((trp_dtype)column->dtype), rows = 1;
    if (column->rank == 0 && !column->squeezed)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "column %zu: a shape without dimensions is of a squeezed column", index);
    if (column->rank > most)
        return trp_fail(TRP_INVALID_ARGUMENT, "column %zu: %u dimensions, at most %u", index,
                        column->rank, most);
    if (bytes == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "column %zu: tensorflow.DataType %d is not known",
                        index, column->dtype);
    if (!column->squeezed)
        rows = (size_t)column->shape[0];
    for (uint32_t i = 0; i < column->rank; i++)
        if (column->shape[i] < 0 || !size_mul(bytes, (size_t)column->shape[i], &bytes))
            return trp_fail(TRP_INVALID_ARGUMENT, "column %zu: its shape is none", index);
    if (rows > INT32_MAX || column->data.size > UINT32_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "column %zu: %zu steps of %zu bytes in all", index,
                        rows, column->data.size);
    if (strings && strings_check(column->data, bytes) != TRP_OK)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "column %zu: its bytes are not the %zu strings of its shape", index, bytes);
    if (!strings && bytes != column->data.size)
        return trp_fail(TRP_INVALID_ARGUMENT, "column %zu: %zu bytes where its shape says %zu",
                        index, column->data.size, bytes);
    return TRP_OK;
}

/* The tensor's bytes as they lie in a chunk, in `memory`. */
static trp_bytes content_write(const trp_item_array *column, uint8_t *memory)
{
    size_t size = column->data.size;
    bool plain = column->dtype == TRP_STRING || size == 0;
    size_t compressed = plain ? 0 : block_compress(column->data, memory);
    if (compressed)
        return (trp_bytes){memory, compressed};
    uint8_t *rows = memory + BLOCK_HEADER_BYTES_MAX;
    if (size)
        memcpy(rows, column->data.data, size);
    if (column->dtype == TRP_STRING)
        return (trp_bytes){rows, size};
    const uint8_t *start = block_literal_header(rows, (uint32_t)size);
    return (trp_bytes){start, (size_t)(rows - start) + size};
}

static void chunk_push(trp_item_writer *writer, const trp_item_array *column, uint64_t episode)
{
    size_t room = block_compressed_max(column->data.size) + BLOCK_HEADER_BYTES_MAX;
    struct block *block = xmalloc(sizeof *block + room);
    uint32_t shift = column->squeezed ? 1 : 0;
    block->next = writer->blocks;
    writer->blocks = block;
    writer->block_bytes += column->data.size;
    block->tensor = (struct wire_tensor){.dtype = column->dtype, .rank = column->rank + shift};
    block->tensor.dims[0] = 1;
    for (uint32_t i = 0; i < column->rank; i++)
        block->tensor.dims[i + shift] = column->shape[i];
    block->tensor.content = content_write(column, block->bytes);
    int32_t rows = (int32_t)block->tensor.dims[0];
    block->steps = (struct wire_steps){.episode_id = episode,
                                       .end = rows > 0 ? rows - 1 : 0,
                                       .uncompressed_bytes = column->data.size,
                                       .tensors = &block->tensor,
                                       .tensor_count = 1};
    struct wire_lists *lists = &writer->request.lists;
    struct wire_chunk *chunk = wire_push_chunk(lists);
    chunk->key = trp_rng_u64(&writer->rng) >> 1;
    chunk->steps = &block->steps;
    struct wire_slice *slice = wire_push_slice(lists);
    slice->chunk_key = chunk->key;
    slice->length = rows;
}

trp_status trp_item_writer_put(trp_item_writer *writer, const trp_item_data *item,
                               int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    for (size_t i = 0; i < item->column_count; i++)
        if (item->columns[i].dtype != 0)
            TRP_TRY(column_check(&item->columns[i], i));
    if (!writer->table || strcmp(writer->table, item->table) != 0) {
        /* The message that is being built borrows the name. */
        TRP_TRY(item_writer_send(writer, deadline));
        free(writer->table);
        writer->table = xstrdup(item->table);
    }
    uint64_t episode = trp_rng_u64(&writer->rng) >> 1;
    struct wire_lists *lists = &writer->request.lists;
    struct wire_item *wire = wire_push_item(lists);
    wire->key = item->key;
    wire->table = text_bytes(writer->table);
    wire->priority = item->priority;
    wire->policy_version = item->policy_version;
    for (size_t i = 0; i < item->column_count; i++) {
        wire_push_column(lists)->squeeze = item->columns[i].squeezed;
        if (item->columns[i].dtype != 0)
            chunk_push(writer, &item->columns[i], episode);
    }
    if (lists->item_count < ITEM_WRITER_BATCH_MAX && writer->block_bytes < ITEM_WRITER_BYTES_MAX)
        return TRP_OK;
    TRP_TRY(item_writer_send(writer, deadline));
    while (writer->unconfirmed > ITEM_WRITER_UNCONFIRMED_MAX)
        TRP_TRY(item_writer_receive(writer, deadline));
    return TRP_OK;
}
