/* Problem: a message names pages of a file that its owner recycles once our lease is over, perhaps
 * while we read them.
 * Design: the message has trajectories without keys ("shapes"), and entries that name one and the
 * pages of its chunks. An entry that a decode template matches is compared and copied piece by
 * piece, straight from the mapping into its row: whatever the pages say meanwhile, bytes are copied
 * from and to places that were fixed before, and nothing else happens. Any other sample is gathered
 * first and decoded from our own memory, never from the mapping. Pages that the server had to fetch
 * from the disk are read instead: in a table larger than memory the kernel would have to take them
 * out of the mapping again soon. Guarantee: the lease is looked at after the copies, so the rows
 * that shared_reader_fill() leaves in a batch have the bytes that the server named. */
#include "unpack_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/limits.h"
#include "replay/model/chunk_sum.h"
#include "replay/wire/limits.h"

static trp_status shared_malformed(const char *what)
{
    return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: %s outside of its message", what);
}

static trp_status lease_revoked(void)
{
    return trp_fail(TRP_ABORTED, "the lease on the server's pages was revoked");
}

/* ---- shapes ------------------------------------------------------------------------------ */

static trp_status shape_make(struct shared_reader *shared, struct sample_shape *shape,
                             trp_bytes canonical, uint32_t chunk_count)
{
    if (chunk_count > MESSAGE_ITEMS_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "a sample of %u chunks", chunk_count);
    if (!trajectory_valid(canonical, chunk_count))
        return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: a trajectory is malformed");
    shape->number = ++shared->last_shape;
    shape->trajectory = xrealloc(shape->trajectory, sizeof *shape->trajectory + canonical.size);
    *shape->trajectory =
        (struct trajectory){.size = (uint32_t)canonical.size, .chunk_count = chunk_count};
    memcpy(shape->trajectory->bytes, canonical.data, canonical.size);
    return TRP_OK;
}

static bool shape_is(const struct sample_shape *shape, trp_bytes canonical, uint32_t chunk_count)
{
    return shape->trajectory && shape->trajectory->chunk_count == chunk_count &&
           shape->trajectory->size == canonical.size &&
           memcmp(shape->trajectory->bytes, canonical.data, canonical.size) == 0;
}

/* The message's trajectories up to `index`. Most messages have those of the one before. */
static trp_status shapes_reach(struct shared_reader *shared, uint32_t index)
{
    for (; shared->shape_count <= index; shared->shape_count++) {
        trp_bytes canonical;
        uint32_t chunk_count, known = shared->shape_capacity;
        if (shared->shape_count == shared->samples.header.counts[SHARED_TRAJECTORIES] ||
            shared->shape_count == MESSAGE_ITEMS_MAX ||
            !shared_samples_trajectory(&shared->samples, shared->shape_count, &canonical,
                                       &chunk_count))
            return shared_malformed("a trajectory");
        if (shared->shape_count == known) {
            shared->shapes =
                array_grow(shared->shapes, &shared->shape_capacity, sizeof *shared->shapes);
            memset(shared->shapes + known, 0,
                   (shared->shape_capacity - known) * sizeof *shared->shapes);
        }
        struct sample_shape *shape = &shared->shapes[shared->shape_count];
        if (!shape_is(shape, canonical, chunk_count))
            TRP_TRY(shape_make(shared, shape, canonical, chunk_count));
    }
    return TRP_OK;
}

/* Its columns, as those of an item whose chunks have the keys 1, 2, ... */
static void shape_columns(const struct sample_shape *shape, struct wire_lists *lists)
{
    struct trajectory_reader reader;
    struct trajectory_slice slice;
    uint32_t slices;
    bool squeeze;
    wire_lists_clear(lists);
    wire_push_item(lists);
    trajectory_open(&reader, shape->trajectory);
    while (trajectory_next_column(&reader, &slices, &squeeze)) {
        wire_push_column(lists)->squeeze = squeeze;
        while (trajectory_next_slice(&reader, &slice)) {
            struct wire_slice *to = wire_push_slice(lists);
            to->chunk_key = slice.chunk + 1;
            to->offset = (int32_t)slice.offset;
            to->length = (int32_t)slice.length;
            to->index = (int32_t)slice.index;
        }
    }
}

/* ---- one sample -------------------------------------------------------------------------- */

static trp_status pages_read(struct shared_reader *shared, const struct shared_chunk_view *chunk,
                             const uint8_t **out)
{
    size_t page_bytes = shared_view_layout(shared->view)->page_bytes;
    uint8_t *at = shared->pages.data + shared->pages.size;
    TRP_TRY(shared_view_read(shared->view, chunk->pages, chunk->page_count, at));
    shared->pages.size += chunk->page_count * page_bytes;
    for (uint32_t i = 0; i < chunk->page_count; i++)
        out[i] = at + i * page_bytes + shared_view_layout(shared->view)->piece_offset;
    return TRP_OK;
}

static trp_status pages_point(struct shared_reader *shared, const struct shared_chunk_view *chunk,
                              const uint8_t **out)
{
    for (uint32_t i = 0; i < chunk->page_count; i++) {
        uint64_t page = shared_page(chunk->pages, i);
        out[i] = shared_view_piece(shared->view, page);
        if (!out[i])
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "SampleShared: page %" PRIu64 " is outside of the server's file", page);
    }
    return TRP_OK;
}

/* The field with the range of steps, which differs from chunk to chunk, comes first. */
static size_t range_bytes(const uint8_t *start, size_t size)
{
    if (size < 2 || start[0] != TAG(2, LEN))
        return 0;
    size_t length = start[1];
    return length < 0x80 && 2 + length <= size ? 2 + length : 0;
}

/* Its sum is behind it and was not looked at. */
static bool chunk_is_new(const struct shared_reader *shared, const struct shared_chunk_view *chunk)
{
    return chunk->sum_bytes > 0 && chunk->page_count > 0 &&
           !shared_view_compared(shared->view, shared_page(chunk->pages, 0));
}

/* Compares the chunk with its sum the first time. `cached`: its pages were copied just now. */
static trp_status chunk_trust(struct shared_reader *shared, const struct shared_chunk_view *chunk,
                              const uint8_t *const *pieces, bool cached)
{
    struct chunk_check check = {.cached = cached};
    size_t piece_bytes = shared_view_layout(shared->view)->piece_bytes;
    if (!chunk_is_new(shared, chunk))
        return TRP_OK;
    for (size_t left = (size_t)chunk->size + chunk->sum_bytes, size; left > 0; left -= size) {
        size = left < piece_bytes ? left : piece_bytes;
        chunk_check_piece(&check, (trp_bytes){*pieces++, size});
    }
    if (chunk_check_end(&check)) {
        shared_view_set_compared(shared->view, shared_page(chunk->pages, 0));
        return TRP_OK;
    }
    if (!shared_view_valid(shared->view))
        return lease_revoked();
    shared->damaged = true;
    return trp_fail(TRP_DATA_LOSS, "a chunk's bytes are not those that were written");
}

/* The body of a chunk, in the message or in pieces. */
static trp_status body_find(struct shared_reader *shared, const struct shared_chunk_view *chunk,
                            bool reads, struct body *body)
{
    if (chunk->page_count == 0) {
        size_t skip = range_bytes(chunk->rest.data, chunk->size);
        *body = (struct body){.data = chunk->rest.data + skip, .size = chunk->size - skip};
        return TRP_OK;
    }
    size_t piece_bytes = shared_view_layout(shared->view)->piece_bytes, count = chunk->page_count;
    const uint8_t **pieces = (const uint8_t **)(void *)(shared->pieces.data + shared->pieces.size);
    TRP_TRY(reads ? pages_read(shared, chunk, pieces) : pages_point(shared, chunk, pieces));
    for (size_t at = 0; at < chunk->rest.size; at += piece_bytes)
        pieces[count++] = chunk->rest.data + at;
    shared->pieces.size += count * sizeof *pieces;
    TRP_TRY(chunk_trust(shared, chunk, pieces, reads));
    size_t skip = range_bytes(pieces[0], chunk->size < piece_bytes ? chunk->size : piece_bytes);
    *body = (struct body){
        .pieces = pieces, .piece_bytes = piece_bytes, .skip = skip, .size = chunk->size - skip};
    return TRP_OK;
}

/* The bodies in pieces, copied to one place, because the mapping may change; all of them as the
 * chunks of `lists`. */
static trp_status bodies_gather(struct shared_reader *shared, uint32_t count)
{
    size_t total = 0;
    for (uint32_t i = 0; i < count; i++)
        total += shared->chunks[i].body.size;
    buffer_clear(&shared->bytes);
    uint8_t *out = buffer_reserve(&shared->bytes, total + 1);
    for (uint32_t i = 0; i < count; i++) {
        struct body *body = &shared->chunks[i].body;
        if (!body->data) {
            pieces_copy(out, body, 0, body->size);
            *body = (struct body){.data = out, .size = body->size};
            out += body->size;
        }
        struct wire_chunk *wire = wire_push_chunk(&shared->lists);
        wire->key = i + 1;
        wire->head = (trp_bytes){body->data, body->size};
    }
    return shared_view_valid(shared->view) ? TRP_OK : lease_revoked();
}

/* The pages of the entry behind this one, which looks like it, lie anywhere in memory: their first
 * lines are under way while this one is copied, and the processor sees where more is going. */
static void next_fetch(const struct shared_reader *shared, uint32_t index, uint32_t chunk_count)
{
    enum { LINE_BYTES = 64, LINES = 2 };
    struct shared_entry entry;
    struct shared_chunk_view chunk;
    size_t piece_bytes = shared_view_layout(shared->view)->piece_bytes;
    if (index + 1 >= shared->samples.header.counts[SHARED_ENTRIES])
        return;
    shared_samples_entry(&shared->samples, index + 1, &entry);
    for (uint32_t i = 0; i < chunk_count; i++) {
        if (!shared_samples_chunk(&shared->samples, (uint64_t)entry.chunk_first + i, piece_bytes,
                                  &chunk))
            return;
        for (uint32_t j = 0; j < chunk.page_count; j++) {
            const uint8_t *piece = shared_view_piece(shared->view, shared_page(chunk.pages, j));
            for (size_t line = 0; piece && line < LINES; line++)
                __builtin_prefetch(piece + line * LINE_BYTES);
        }
    }
}

/* Finds the bodies of the chunks of entry `index`. Pages that came from the disk are read. */
static trp_status bodies_find(struct shared_reader *shared, uint32_t index, uint64_t first,
                              uint32_t count)
{
    size_t piece_bytes = shared_view_layout(shared->view)->piece_bytes;
    uint64_t pages = 0, bytes = 0;
    bool reads = shared->samples.header.flags & SHARED_COLD;
    struct shared_chunk_view chunk;
    for (uint32_t i = 0; i < count; i++) {
        if (!shared_samples_chunk(&shared->samples, first + i, piece_bytes, &chunk))
            return shared_malformed("a chunk");
        pages += chunk.page_count;
        bytes += (uint64_t)chunk.size + chunk.sum_bytes;
        reads |= chunk_is_new(shared, &chunk);
    }
    if (bytes > SAMPLE_BYTES_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "a sample of more than %zu bytes",
                        (size_t)SAMPLE_BYTES_MAX);
    reads &= pages > 0 &&
             pages <= SHARED_WINDOW_BYTES_MAX / shared_view_layout(shared->view)->page_bytes;
    buffer_clear(&shared->pages);
    buffer_clear(&shared->pieces);
    if (reads)
        buffer_reserve(&shared->pages, pages * shared_view_layout(shared->view)->page_bytes);
    if (pages > 0)
        buffer_reserve(&shared->pieces,
                       (pages + bytes / piece_bytes + count) * sizeof(const uint8_t *));
    if (count > shared->chunk_capacity) {
        shared->chunks = xrealloc(shared->chunks, count * sizeof *shared->chunks);
        for (uint32_t i = shared->chunk_capacity; i < count; i++)
            shared->chunks[i] = (struct raw_chunk){.key = i + 1};
        shared->chunk_capacity = count;
    }
    for (uint32_t i = 0; i < count; i++) {
        shared_samples_chunk(&shared->samples, first + i, piece_bytes, &chunk);
        TRP_TRY(body_find(shared, &chunk, reads, &shared->chunks[i].body));
    }
    if (pages > 0 && !reads)
        next_fetch(shared, index, count);
    return TRP_OK;
}

static trp_status shared_fill_entry(struct unpacker *unpacker, uint32_t index, struct batch *batch)
{
    struct shared_reader *shared = &unpacker->shared;
    struct shared_entry entry;
    shared_samples_entry(&shared->samples, index, &entry);
    TRP_TRY(shapes_reach(shared, entry.trajectory));
    const struct sample_shape *shape = &shared->shapes[entry.trajectory];
    uint32_t count = shape->trajectory->chunk_count;
    TRP_TRY(bodies_find(shared, index, entry.chunk_first, count));
    struct raw_sample raw = {
        .shape = shape->number,
        .item = {.key = entry.key,
                 .priority = entry.priority,
                 .times_sampled = entry.times_sampled,
                 .policy_version = entry.policy_version,
                 .trajectory = {shape->trajectory->bytes, shape->trajectory->size}},
        .draw = {entry.probability, entry.table_size, entry.rate_limited != 0},
        .chunks = shared->chunks,
        .chunk_count = count};
    if (unpacker_copy_sample(unpacker, &raw, batch))
        return TRP_OK;
    shape_columns(shape, &shared->lists);
    TRP_TRY(bodies_gather(shared, count));
    raw.item.column_count = shared->lists.column_count;
    TRP_TRY(unpacker_decode_sample(unpacker, &shared->lists, &raw.item, &raw.draw, batch));
    decode_templates_learn(unpacker->templates, &raw, &shared->lists, &raw.item, unpacker->columns);
    return TRP_OK;
}

trp_status shared_reader_fill(struct unpacker *unpacker, struct batch *batch)
{
    struct shared_reader *shared = &unpacker->shared;
    uint32_t before = batch->rows;
    trp_status status = TRP_OK;
    while (status == TRP_OK && batch->rows < batch->capacity &&
           shared->next < shared->samples.header.counts[SHARED_ENTRIES]) {
        status = shared_fill_entry(unpacker, shared->next, batch);
        shared->next += status == TRP_OK;
    }
    if (shared_view_valid(shared->view))
        return status;
    batch->rows = before;
    return lease_revoked();
}

void shared_reader_cleanup(struct shared_reader *shared)
{
    for (uint32_t i = 0; i < shared->shape_capacity; i++)
        free(shared->shapes[i].trajectory);
    free(shared->shapes);
    free(shared->chunks);
    buffer_cleanup(&shared->pieces);
    buffer_cleanup(&shared->pages);
    buffer_cleanup(&shared->bytes);
    wire_lists_cleanup(&shared->lists);
}
