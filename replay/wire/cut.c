/* Problem: readers of samples need rows, but chunks hold tensors that are compressed,
 * differences between rows, or neither; and slices come in any order, many of one tensor. Design: a
 * chunk is walked once an item, and a tensor that has to be decompressed as a whole stays until
 * another one is. A literal is not copied here at all: its rows are where they came. Guarantee:
 * sizes are compared before memory is touched, so broken bytes are a status. */
#include "cut.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "tensor.h"

void cutter_begin(struct cutter *cutter, const struct wire_chunk *chunks, uint32_t count)
{
    cutter->chunks = chunks;
    cutter->chunk_count = count;
    if (count > cutter->walk_capacity) {
        cutter->walks = xrealloc(cutter->walks, count * sizeof *cutter->walks);
        cutter->walk_capacity = count;
    }
    for (uint32_t i = 0; i < count; i++)
        cutter->walks[i].walked = false;
    cutter->tensor_count = 0;
    cutter->found = 0;
    cutter->plain_of = NULL;
}

void cutter_cleanup(struct cutter *cutter)
{
    free(cutter->walks);
    free(cutter->tensors);
    free(cutter->plain);
    *cutter = (struct cutter){0};
}

/* ---- finding ------------------------------------------------------------------------------- */

static trp_status cutter_walk(struct cutter *cutter, const struct wire_chunk *chunk,
                              struct cut_chunk *walk)
{
    struct wire_tensor_reader reader;
    bool more = true;
    walk->first = cutter->tensor_count;
    wire_tensors_open(&reader, chunk);
    while (more) {
        struct wire_tensor *tensor =
            ARRAY_PUSH(cutter->tensors, cutter->tensor_count, cutter->tensor_capacity);
        TRP_TRY(wire_tensor_next(&reader, tensor, &more));
        cutter->tensor_count -= !more;
    }
    walk->count = cutter->tensor_count - walk->first;
    walk->delta_encoded = reader.delta_encoded;
    walk->walked = true;
    return TRP_OK;
}

static trp_status chunk_with_key(struct cutter *cutter, uint64_t key)
{
    for (uint32_t i = 0, at = cutter->found; i < cutter->chunk_count; i++, at++) {
        if (at >= cutter->chunk_count)
            at = 0;
        if (cutter->chunks[at].key == key) {
            cutter->found = at;
            return TRP_OK;
        }
    }
    return trp_fail(TRP_INVALID_ARGUMENT, "an item refers to chunk %" PRIu64 ", which did not come",
                    key);
}

trp_status cutter_find(struct cutter *cutter, const struct wire_slice *slice,
                       const struct wire_tensor **tensor, bool *delta)
{
    TRP_TRY(chunk_with_key(cutter, slice->chunk_key));
    struct cut_chunk *walk = &cutter->walks[cutter->found];
    if (!walk->walked)
        TRP_TRY(cutter_walk(cutter, &cutter->chunks[cutter->found], walk));
    if (slice->index < 0 || (uint32_t)slice->index >= walk->count)
        return trp_fail(TRP_INVALID_ARGUMENT, "an item cuts tensor %d from a chunk that has %u",
                        slice->index, walk->count);
    *tensor = &cutter->tensors[walk->first + (uint32_t)slice->index];
    *delta = walk->delta_encoded && delta_applies((*tensor)->dtype, (*tensor)->rank);
    return TRP_OK;
}

/* ---- cutting ------------------------------------------------------------------------------- */

trp_status slice_in_tensor(const struct wire_slice *slice, const struct wire_tensor *tensor)
{
    if (slice->offset < 0 || slice->length < 0 || slice->offset > tensor->dims[0] ||
        slice->length > tensor->dims[0] - slice->offset)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "an item cuts %d steps from %d on out of a chunk of %" PRId64,
                        slice->length, slice->offset, tensor->dims[0]);
    return TRP_OK;
}

/* The whole tensor, decompressed and added up, in cutter->plain. */
static trp_status make_plain(struct cutter *cutter, const struct wire_tensor *tensor, bool delta,
                             size_t row_bytes)
{
    size_t size;
    if (cutter->plain_of == tensor->content.data && tensor->content.data)
        return TRP_OK;
    cutter->plain_of = NULL;
    if (!size_mul((size_t)tensor->dims[0], row_bytes, &size) ||
        !block_size_plausible(tensor->content, size))
        return trp_fail(TRP_DATA_LOSS,
                        "a tensor of %" PRId64 " rows of %zu bytes in a block of %zu",
                        tensor->dims[0], row_bytes, tensor->content.size);
    if (size > cutter->plain_capacity) {
        cutter->plain = xrealloc(cutter->plain, size);
        cutter->plain_capacity = size;
    }
    TRP_TRY(block_decompress(tensor->content, cutter->plain, size));
    if (delta)
        delta_decode(tensor->dtype, (size_t)tensor->dims[0],
                     row_bytes / trp_dtype_size((trp_dtype)tensor->dtype), cutter->plain);
    cutter->plain_of = tensor->content.data;
    return TRP_OK;
}

trp_status cutter_cut(struct cutter *cutter, const struct wire_slice *slice,
                      const struct wire_tensor *tensor, bool delta, size_t row_bytes, uint8_t *out,
                      trp_bytes *rows)
{
    TRP_TRY(slice_in_tensor(slice, tensor));
    size_t size = (size_t)slice->length * row_bytes, start = (size_t)slice->offset * row_bytes, all;
    trp_bytes raw;
    *rows = (trp_bytes){out, size};
    if (size == 0)
        return TRP_OK;
    if (!delta && block_literal(tensor->content, 0, &raw) &&
        size_mul((size_t)tensor->dims[0], row_bytes, &all) && all == raw.size) {
        rows->data = raw.data + start;
        return TRP_OK;
    }
    if (!delta && slice->length == tensor->dims[0])
        return block_decompress(tensor->content, out, size);
    TRP_TRY(make_plain(cutter, tensor, delta, row_bytes));
    memcpy(out, cutter->plain + start, size);
    return TRP_OK;
}

/* ---- samples in several entries ------------------------------------------------------------ */

trp_status sample_add(struct wire_lists *to, const struct wire_sample_response *from,
                      const struct wire_entry *entry)
{
    if (entry->has_info) {
        wire_lists_clear(to);
        *wire_push_item(to) = from->lists.items[entry->item];
    }
    if (to->chunk_count + (uint64_t)entry->chunk_count > MESSAGE_ITEMS_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "a sample of more than %d chunks",
                        MESSAGE_ITEMS_MAX);
    for (uint32_t i = 0; i < entry->chunk_count; i++)
        *wire_push_chunk(to) = from->lists.chunks[entry->chunk_first + i];
    return TRP_OK;
}
