/* All that a request was decoded to, as bytes: the same for one message however it is cut. */
#ifndef TRP_TESTS_WIRE_DUMP_H
#define TRP_TESTS_WIRE_DUMP_H

#include <stdlib.h>
#include <string.h>

#include "core/buffer.h"
#include "replay/wire/wire.h"

static inline void dump_bytes(struct buffer *out, const void *bytes, size_t size)
{
    if (size)
        buffer_append(out, (trp_bytes){bytes, size});
}

static inline void dump_number(struct buffer *out, uint64_t number)
{
    dump_bytes(out, &number, sizeof number);
}

static inline void dump_chunk(struct buffer *out, const struct wire_chunk *chunk)
{
    struct wire_tensor_reader reader;
    struct wire_tensor tensor;
    bool more = true;
    dump_number(out, chunk->key);
    dump_bytes(out, chunk->head.data, chunk->head.size);
    dump_bytes(out, chunk->tail.data, chunk->tail.size);
    for (uint32_t i = 0; i < chunk->more.count; i++)
        dump_bytes(out, chunk->more.parts[i].data,
                   i + 1 == chunk->more.count ? chunk->more.last : chunk->more.parts[i].size);
    wire_tensors_open(&reader, chunk);
    while (wire_tensor_next(&reader, &tensor, &more) == TRP_OK && more) {
        dump_number(out, (uint64_t)tensor.dtype);
        dump_number(out, tensor.rank);
        dump_bytes(out, tensor.dims, sizeof tensor.dims);
        dump_number(out, tensor.elements);
        dump_number(out, tensor.content.size + tensor.beyond);
    }
    dump_number(out, more); /* malformed */
    dump_number(out, reader.count);
    dump_number(out, reader.delta_encoded);
    dump_bytes(out, &reader.range.start, sizeof reader.range.start);
    dump_bytes(out, &reader.range.end, sizeof reader.range.end);
}

static inline void dump_request(struct buffer *out, const struct wire_insert_request *request)
{
    const struct wire_lists *lists = &request->lists;
    buffer_clear(out);
    for (uint32_t i = 0; i < lists->chunk_count; i++)
        dump_chunk(out, &lists->chunks[i]);
    for (uint32_t i = 0; i < lists->item_count; i++) {
        dump_number(out, lists->items[i].key);
        dump_bytes(out, lists->items[i].table.data, lists->items[i].table.size);
        dump_bytes(out, lists->items[i].trajectory.data, lists->items[i].trajectory.size);
    }
    for (uint32_t i = 0; i < request->keep.count; i++)
        dump_number(out, request->keep.keys[i]);
}

#endif
