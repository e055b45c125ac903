/* Problem: an item's columns name chunks by keys that mean nothing outside its stream, and a slice
 * that its chunk cannot give breaks every client that ever draws the item.
 * Design: one pass over the decoded slices resolves keys (most often the same as the last one),
 * numbers the distinct chunks, checks each slice against the headers in the keep set, and writes
 * varints. A writer's items differ in chunk keys only, or in the row that they take of a chunk: the
 * last of these few kinds, which come in turns, are remembered as they came, with the places of
 * their keys. Comparing takes a tenth of decoding.
 * Guarantee: a client can unpack every item that trajectory_build() accepted. */
#include "trajectory_builder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/protobuf.h"

enum {
    VARINT32_BYTES_MAX = 5,
    SLICE_BYTES_MAX = 4 * VARINT32_BYTES_MAX,
};

/* The next chunk of the item being built. */
static void builder_add(struct trajectory_builder *builder, const struct keep_set *set,
                        struct kept *kept)
{
    kept->item_serial = set->item_serial;
    kept->item_index = builder->chunk_count;
    *ARRAY_PUSH(builder->chunks, builder->chunk_count, builder->chunk_capacity) = kept->chunk;
}

static trp_status slice_check(const struct wire_slice *slice, const struct kept *kept,
                              const struct kept_tensor *tensors)
{
    if (slice->index < 0 || (uint32_t)slice->index >= kept->tensor_count)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "Cannot unpack column %d in chunk %" PRIu64 " which has %u columns.",
                        slice->index, kept->key, kept->tensor_count);
    int64_t rows = tensors[slice->index].rows;
    if (slice->offset < 0 || slice->length < 0 || (int64_t)slice->offset + slice->length > rows)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "Cannot slice (%d, %d) out of tensor %d of chunk %" PRIu64
                        ", which has %" PRId64 " rows.",
                        slice->offset, slice->length, slice->index, kept->key, rows < 0 ? 0 : rows);
    return TRP_OK;
}

struct column_state {
    struct kept *kept; /* of the last slice, which most often names the same chunk */
    uint32_t column;
    uint64_t layout;
    int64_t rows;
    bool any;
};

static trp_status slice_build(struct trajectory_builder *builder, const struct wire_slice *slice,
                              struct keep_set *set, struct column_state *state, uint8_t **at)
{
    if (!state->kept || state->kept->key != slice->chunk_key)
        state->kept = keep_set_find(set, slice->chunk_key);
    if (!state->kept)
        return trp_fail(TRP_INTERNAL, "Could not find sequence chunk %" PRIu64 ".",
                        slice->chunk_key);
    if (state->kept->item_serial != set->item_serial)
        builder_add(builder, set, state->kept);
    const struct kept_tensor *tensors = &set->tensors[state->kept->tensor_first];
    TRP_TRY(slice_check(slice, state->kept, tensors));
    uint64_t layout = tensors[slice->index].layout;
    if (state->any && layout != state->layout)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "column %u joins tensors of different types or shapes (chunk %" PRIu64 ")",
                        state->column, state->kept->key);
    state->any = true;
    state->layout = layout;
    state->rows += slice->length;
    *at = varint_write(*at, state->kept->item_index);
    *at = varint_write(*at, (uint32_t)slice->offset);
    *at = varint_write(*at, (uint32_t)slice->length);
    *at = varint_write(*at, (uint32_t)slice->index);
    return TRP_OK;
}

static trp_status column_build(struct trajectory_builder *builder, const struct wire_lists *lists,
                               const struct wire_column *column, struct keep_set *set,
                               struct column_state *state, uint8_t **at)
{
    state->any = false;
    state->rows = 0;
    *at = varint_write(*at, (uint64_t)column->slice_count << 1 | column->squeeze);
    for (uint32_t i = 0; i < column->slice_count; i++)
        TRP_TRY(slice_build(builder, &lists->slices[column->slice_first + i], set, state, at));
    if (column->squeeze && state->rows != 1)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "column %u is squeezed but has %" PRId64 " rows instead of 1",
                        state->column, state->rows);
    return TRP_OK;
}

static trp_status columns_build(struct trajectory_builder *builder, const struct wire_lists *lists,
                                const struct wire_item *item, struct keep_set *set)
{
    const struct wire_column *columns = &lists->columns[item->column_first];
    if (item->column_count == 0 || columns[0].slice_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "Item trajectory must not be empty.");
    size_t slices = 0;
    for (uint32_t i = 0; i < item->column_count; i++)
        slices += columns[i].slice_count;
    struct buffer *bytes = &builder->templates[builder->last].bytes;
    buffer_clear(bytes);
    builder->chunk_count = 0;
    set->item_serial++;
    uint8_t *start =
        buffer_reserve(bytes, item->column_count * VARINT32_BYTES_MAX + slices * SLICE_BYTES_MAX);
    uint8_t *at = start;
    struct column_state state = {0};
    for (state.column = 0; state.column < item->column_count; ++state.column)
        TRP_TRY(column_build(builder, lists, &columns[state.column], set, &state, &at));
    bytes->size = (size_t)(at - start);
    return TRP_OK;
}

/* ---- the template ------------------------------------------------------------------------ */

/* Remembers the item just built, unless it is too large for that. */
static void template_set(struct trajectory_builder *builder, const struct wire_lists *lists,
                         const struct wire_item *item, const struct keep_set *set)
{
    struct trajectory_template *last = &builder->templates[builder->last];
    if (item->trajectory.size > TEMPLATE_BYTES_MAX || lists->slice_count > TEMPLATE_SLOTS_MAX)
        return;
    memset(last->rows, 0, sizeof last->rows);
    for (uint32_t i = 0; i < lists->slice_count; i++) {
        const struct wire_slice *slice = &lists->slices[i];
        const struct kept *kept = keep_set_find(set, slice->chunk_key);
        if (!slice->key_varint)
            return;
        int64_t *rows = &last->rows[kept->item_index], end = (int64_t)slice->offset + slice->length;
        *rows = end > *rows ? end : *rows;
        last->shapes[kept->item_index] = kept->shape;
        last->slots[i] =
            (struct trajectory_slot){.at = (uint32_t)(slice->key_varint - item->trajectory.data),
                                     .size = (uint32_t)varint_size(slice->chunk_key),
                                     .chunk = kept->item_index};
    }
    buffer_clear(&last->wire);
    buffer_append(&last->wire, item->trajectory);
    last->slot_count = lists->slice_count;
}

/* A chunk that this item names first: it has to be new to the item, and like the one before. */
static bool chunk_matches(struct trajectory_builder *builder, struct keep_set *set, uint64_t key)
{
    const struct trajectory_template *last = &builder->templates[builder->last];
    struct kept *kept = keep_set_find(set, key);
    if (!kept || kept->item_serial == set->item_serial ||
        kept->shape != last->shapes[builder->chunk_count] ||
        set->tensors[kept->tensor_first].rows < last->rows[builder->chunk_count])
        return false;
    builder_add(builder, set, kept);
    return true;
}

/* True when the item differs from the last one in chunk keys only, and its chunks are there. */
static bool template_matches(struct trajectory_builder *builder, const struct wire_item *item,
                             struct keep_set *set)
{
    const struct trajectory_template *last = &builder->templates[builder->last];
    const uint8_t *bytes = item->trajectory.data;
    uint64_t keys[TEMPLATE_SLOTS_MAX], key;
    uint32_t at = 0;
    if (last->slot_count == 0 || item->trajectory.size != last->wire.size)
        return false;
    builder->chunk_count = 0;
    set->item_serial++;
    for (uint32_t i = 0; i < last->slot_count; i++) {
        const struct trajectory_slot *slot = &last->slots[i];
        struct reader reader = {bytes + slot->at, bytes + slot->at + slot->size, false};
        if (memcmp(bytes + at, last->wire.data + at, slot->at - at) != 0 ||
            !read_varint(&reader, &key) || reader.at != reader.end) /* as many bytes as it took */
            return false;
        at = slot->at + slot->size;
        if (slot->chunk < builder->chunk_count && keys[slot->chunk] != key)
            return false;
        if (slot->chunk == builder->chunk_count) {
            keys[slot->chunk] = key;
            if (!chunk_matches(builder, set, key))
                return false;
        }
    }
    return memcmp(bytes + at, last->wire.data + at, last->wire.size - at) == 0;
}

trp_status trajectory_build(struct trajectory_builder *builder, struct wire_lists *lists,
                            struct wire_item *item, struct keep_set *set)
{
    for (uint32_t i = 0; i < TEMPLATES_MAX; i++) {
        builder->last = (builder->last + 1) % TEMPLATES_MAX;
        if (template_matches(builder, item, set))
            return TRP_OK;
    }
    builder->last = (builder->last + 1) % TEMPLATES_MAX;
    builder->templates[builder->last].slot_count = 0;
    TRP_TRY(wire_item_columns(lists, item));
    TRP_TRY(columns_build(builder, lists, item, set));
    template_set(builder, lists, item, set);
    return TRP_OK;
}

uint64_t trajectory_builder_memory(const struct trajectory_builder *builder)
{
    uint64_t memory = builder->chunk_capacity * sizeof(struct chunk *);
    for (uint32_t i = 0; i < TEMPLATES_MAX; i++)
        memory += builder->templates[i].bytes.capacity + builder->templates[i].wire.capacity;
    return memory;
}

void trajectory_builder_cleanup(struct trajectory_builder *builder)
{
    for (uint32_t i = 0; i < TEMPLATES_MAX; i++) {
        buffer_cleanup(&builder->templates[i].bytes);
        buffer_cleanup(&builder->templates[i].wire);
    }
    free(builder->chunks);
    *builder = (struct trajectory_builder){0};
}
