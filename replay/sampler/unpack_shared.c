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
#include "replay/wire/limits.h"
#include "replay/model/trajectory.h"

static trp_status shared_malformed(const char *what)
{
    return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: %s outside of its message", what);
}

static trp_status lease_revoked(void)
{
    return trp_fail(TRP_ABORTED, "the lease on the server's pages was revoked");
}

/* ---- shapes ------------------------------------------------------------------------------ */

static void stand_ins_reserve(struct shared_reader *shared, uint32_t count)
{
    if (count <= shared->chunk_capacity)
        return;
    shared->chunks = xrealloc(shared->chunks, count * sizeof *shared->chunks);
    shared->chunk_at = xrealloc(shared->chunk_at, count * sizeof *shared->chunk_at);
    for (uint32_t i = 0; i < count; i++) {
        shared->chunks[i] = (struct chunk){.seq = i + 1};
        shared->chunk_at[i] = &shared->chunks[i];
    }
    shared->chunk_capacity = count;
}

static trp_status shape_make(struct shared_reader *shared, struct sample_shape *shape,
                             trp_bytes canonical, uint32_t chunk_count)
{
    if (chunk_count > MESSAGE_ITEMS_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "a sample of %u chunks", chunk_count);
    stand_ins_reserve(shared, chunk_count);
    buffer_clear(&shape->canonical);
    buffer_append(&shape->canonical, canonical);
    buffer_clear(&shape->flat);
    shape->chunk_count = chunk_count;
    shape->number = ++shared->last_shape;
    struct trajectory *trajectory = xmalloc(sizeof *trajectory + canonical.size);
    *trajectory = (struct trajectory){.size = (uint32_t)canonical.size, .chunk_count = chunk_count};
    memcpy(trajectory->bytes, canonical.data, canonical.size);
    bool valid = trajectory_valid(trajectory);
    if (valid)
        trajectory_encode(trajectory, shared->chunk_at, &shape->flat);
    free(trajectory);
    return valid ? TRP_OK
                 : trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: a trajectory is malformed");
}

static bool shape_is(const struct sample_shape *shape, trp_bytes canonical, uint32_t chunk_count)
{
    return shape->canonical.size == canonical.size && shape->chunk_count == chunk_count &&
           memcmp(shape->canonical.data, canonical.data, canonical.size) == 0;
}

/* The message's trajectories up to `index`. Most messages have those of the one before. */
static trp_status shapes_reach(struct shared_reader *shared, uint32_t index)
{
    while (shared->shape_count <= index) {
        trp_bytes canonical;
        uint32_t chunk_count;
        if (shared->shape_count == shared->samples.header.trajectories ||
            shared->shape_count == MESSAGE_ITEMS_MAX)
            return shared_malformed("a trajectory");
        if (!shared_samples_trajectory(&shared->samples, shared->shape_count, &canonical,
                                       &chunk_count))
            return shared_malformed("a trajectory");
        uint32_t known = shared->shape_capacity;
        if (shared->shape_count == known) {
            shared->shapes =
                array_grow(shared->shapes, &shared->shape_capacity, sizeof *shared->shapes);
            memset(shared->shapes + known, 0,
                   (shared->shape_capacity - known) * sizeof *shared->shapes);
        }
        struct sample_shape *shape = &shared->shapes[shared->shape_count];
        if (!shape_is(shape, canonical, chunk_count))
            TRP_TRY(shape_make(shared, shape, canonical, chunk_count));
        shared->shape_count++;
    }
    return TRP_OK;
}

/* ---- one sample -------------------------------------------------------------------------- */

/* Room for the pages of the entry's chunks. Pages that came from the disk are read; views are of
 * mapped ones. */
static trp_status pages_begin(struct shared_reader *shared, const struct shared_entry *entry,
                              uint32_t count, const struct batch *batch)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct shared_chunk_view chunk;
        if (!shared_samples_chunk(&shared->samples, (uint64_t)entry->chunk_first + i,
                                  shared_view_piece_bytes(shared->view), &chunk))
            return shared_malformed("a chunk");
        pages += chunk.page_count;
    }
    size_t page_bytes = shared_view_page_bytes(shared->view);
    buffer_clear(&shared->pages);
    shared->reads = shared->samples.header.flags & SHARED_COLD && !batch->views && pages > 0 &&
                    pages <= SHARED_WINDOW_BYTES_MAX / page_bytes;
    if (shared->reads)
        buffer_reserve(&shared->pages, pages * page_bytes);
    return TRP_OK;
}

static trp_status pages_read(struct shared_reader *shared, const struct shared_chunk_view *chunk,
                             const uint8_t **out)
{
    size_t page_bytes = shared_view_page_bytes(shared->view);
    uint8_t *at = shared->pages.data + shared->pages.size;
    TRP_TRY(shared_view_read(shared->view, chunk->pages, chunk->page_count, at));
    shared->pages.size += chunk->page_count * page_bytes;
    for (uint32_t i = 0; i < chunk->page_count; i++)
        out[i] = at + i * page_bytes + shared_view_piece_offset(shared->view);
    return TRP_OK;
}

static trp_status pages_point(struct shared_reader *shared, const struct shared_chunk_view *chunk,
                              const uint8_t **out)
{
    for (uint32_t i = 0; i < chunk->page_count; i++) {
        uint64_t page;
        memcpy(&page, chunk->pages + i * sizeof page, sizeof page);
        out[i] = shared_view_piece(shared->view, page);
        if (!out[i])
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "SampleShared: page %" PRIu64 " is outside of the server's file", page);
    }
    return TRP_OK;
}

/* Pointers to a chunk's pieces, those in the message included, behind those in shared->pieces. */
static trp_status pieces_find(struct shared_reader *shared, const struct shared_chunk_view *chunk)
{
    size_t piece_bytes = shared_view_piece_bytes(shared->view);
    size_t rest_count = (chunk->rest.size + piece_bytes - 1) / piece_bytes;
    const uint8_t **out = (const uint8_t **)(void *)buffer_reserve(
        &shared->pieces, (chunk->page_count + rest_count) * sizeof *out);
    TRP_TRY(shared->reads ? pages_read(shared, chunk, out) : pages_point(shared, chunk, out));
    for (size_t i = 0; i < rest_count; i++)
        out[chunk->page_count + i] = chunk->rest.data + i * piece_bytes;
    shared->pieces.size += (chunk->page_count + rest_count) * sizeof *out;
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

/* Bodies of the entry's chunks, in the message or in pieces; also where they start. */
static trp_status bodies_find(struct shared_reader *shared, const struct shared_entry *entry,
                              uint32_t count, struct raw_sample *raw)
{
    size_t piece_bytes = shared_view_piece_bytes(shared->view), at[TEMPLATE_CHUNKS_MAX];
    buffer_clear(&shared->pieces);
    for (uint32_t i = 0; i < count; i++) {
        struct shared_chunk_view chunk;
        if (!shared_samples_chunk(&shared->samples, (uint64_t)entry->chunk_first + i, piece_bytes,
                                  &chunk))
            return shared_malformed("a chunk");
        struct body *body = &raw->chunks[i].body;
        *body = (struct body){.data = chunk.rest.data, .size = chunk.size};
        at[i] = shared->pieces.size;
        if (chunk.page_count > 0) {
            TRP_TRY(pieces_find(shared, &chunk));
            body->data = NULL;
            body->piece_bytes = piece_bytes;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        struct body *body = &raw->chunks[i].body;
        if (body->data) {
            size_t skip = range_bytes(body->data, body->size);
            body->data += skip;
            body->size -= skip;
            continue;
        }
        body->pieces = (const uint8_t *const *)(void *)(shared->pieces.data + at[i]);
        size_t first = body->size < piece_bytes ? body->size : piece_bytes;
        body->skip = range_bytes(body->pieces[0], first);
        body->size -= body->skip;
    }
    return TRP_OK;
}

static void raw_describe(const struct shared_entry *entry, const struct sample_shape *shape,
                         struct raw_sample *raw)
{
    static const uint8_t keys[TEMPLATE_CHUNKS_MAX] = {1, 2,  3,  4,  5,  6,  7,  8,
                                                      9, 10, 11, 12, 13, 14, 15, 16};
    raw->shape = shape->number;
    raw->facts = (struct sample_facts){
        .key = entry->key,
        .policy_version = entry->policy_version,
        .priority = entry->priority,
        .times_sampled = entry->times_sampled,
        .draw = {entry->probability, entry->table_size, entry->rate_limited != 0}};
    raw->trajectory = buffer_bytes(&shape->flat);
    raw->chunk_count = shape->chunk_count;
    for (uint32_t i = 0; i < shape->chunk_count; i++) {
        raw->chunks[i].key = i + 1;
        raw->chunks[i].key_bytes = (trp_bytes){&keys[i], 1};
    }
}

/* The entry's chunks, copied to one place, as the lists' chunks. */
static trp_status chunks_gather(struct shared_reader *shared, const struct shared_entry *entry,
                                uint32_t count)
{
    size_t piece_bytes = shared_view_piece_bytes(shared->view), total = 0;
    struct shared_chunk_view chunk;
    for (uint32_t i = 0; i < count; i++) {
        if (!shared_samples_chunk(&shared->samples, (uint64_t)entry->chunk_first + i, piece_bytes,
                                  &chunk))
            return shared_malformed("a chunk");
        if (!size_add(total, chunk.size, &total) || total > SAMPLE_BYTES_MAX)
            return trp_fail(TRP_RESOURCE_EXHAUSTED, "a sample of more than %zu bytes",
                            (size_t)SAMPLE_BYTES_MAX);
    }
    buffer_clear(&shared->bytes);
    buffer_clear(&shared->pages);
    uint8_t *out = buffer_reserve(&shared->bytes, total + 1);
    for (uint32_t i = 0; i < count; i++) {
        struct wire_chunk *wire = wire_push_chunk(&shared->lists);
        shared_samples_chunk(&shared->samples, (uint64_t)entry->chunk_first + i, piece_bytes,
                             &chunk);
        buffer_clear(&shared->pieces);
        TRP_TRY(pieces_find(shared, &chunk));
        const uint8_t *const *pieces = (const uint8_t *const *)(void *)shared->pieces.data;
        wire->key = i + 1;
        wire->head = (trp_bytes){out, chunk.size};
        for (size_t left = chunk.size, size; left > 0; left -= size, out += size) {
            size = left < piece_bytes ? left : piece_bytes;
            memcpy(out, *pieces++, size);
        }
    }
    return shared_view_valid(shared->view) ? TRP_OK : lease_revoked();
}

static trp_status shared_fill_decoded(struct unpacker *unpacker, const struct shared_entry *entry,
                                      const struct sample_shape *shape, struct batch *batch)
{
    struct shared_reader *shared = &unpacker->shared;
    wire_lists_clear(&shared->lists);
    struct wire_item *item = wire_push_item(&shared->lists);
    item->key = entry->key;
    item->priority = entry->priority;
    item->times_sampled = entry->times_sampled;
    item->policy_version = entry->policy_version;
    item->trajectory = buffer_bytes(&shape->flat);
    TRP_TRY(wire_item_columns(&shared->lists, item));
    TRP_TRY(chunks_gather(shared, entry, shape->chunk_count));
    struct sample sample = {
        .lists = &shared->lists,
        .item = item,
        .chunks = shared->lists.chunks,
        .chunk_count = shape->chunk_count,
        .draw = {entry->probability, entry->table_size, entry->rate_limited != 0}};
    unpacker->gathered = true;
    trp_status status = unpacker_sample(unpacker, &sample, batch);
    unpacker->gathered = false;
    return status;
}

/* From the copies that were decoded, because the mapping may change. */
static void learn_decoded(struct unpacker *unpacker, struct raw_sample *raw)
{
    for (uint32_t i = 0; i < raw->chunk_count; i++) {
        trp_bytes bytes = unpacker->shared.lists.chunks[i].head;
        size_t skip = range_bytes(bytes.data, bytes.size);
        raw->chunks[i].body = (struct body){.data = bytes.data + skip, .size = bytes.size - skip};
    }
    unpacker_learn(unpacker, raw);
}

/* The pages of the entry behind this one, which looks like it, lie anywhere in memory: their first
 * lines are under way while this one is copied, and the processor sees where more is going. */
static void next_fetch(const struct shared_reader *shared, uint32_t index, uint32_t chunk_count)
{
    enum { LINE_BYTES = 64, LINES = 2 };
    struct shared_entry entry;
    struct shared_chunk_view chunk;
    size_t piece_bytes = shared_view_piece_bytes(shared->view);
    if (index + 1 >= shared->samples.header.entries)
        return;
    shared_samples_entry(&shared->samples, index + 1, &entry);
    for (uint32_t i = 0; i < chunk_count; i++) {
        if (!shared_samples_chunk(&shared->samples, (uint64_t)entry.chunk_first + i, piece_bytes,
                                  &chunk))
            return;
        for (uint32_t j = 0; j < chunk.page_count; j++) {
            uint64_t page;
            memcpy(&page, chunk.pages + j * sizeof page, sizeof page);
            const uint8_t *piece = shared_view_piece(shared->view, page);
            for (size_t line = 0; piece && line < LINES; line++)
                __builtin_prefetch(piece + line * LINE_BYTES);
        }
    }
}

static trp_status shared_fill_entry(struct unpacker *unpacker, uint32_t index, struct batch *batch)
{
    struct shared_reader *shared = &unpacker->shared;
    struct shared_entry entry;
    struct raw_sample raw;
    shared_samples_entry(&shared->samples, index, &entry);
    TRP_TRY(shapes_reach(shared, entry.trajectory));
    const struct sample_shape *shape = &shared->shapes[entry.trajectory];
    bool small = shape->chunk_count > 0 && shape->chunk_count <= TEMPLATE_CHUNKS_MAX;
    TRP_TRY(pages_begin(shared, &entry, shape->chunk_count, batch));
    if (small) {
        raw_describe(&entry, shape, &raw);
        TRP_TRY(bodies_find(shared, &entry, shape->chunk_count, &raw));
        if (shared->pieces.size > 0 && !shared->reads)
            next_fetch(shared, index, shape->chunk_count);
        if (unpacker_fill_by_template(unpacker, &raw, batch))
            return TRP_OK;
    }
    TRP_TRY(shared_fill_decoded(unpacker, &entry, shape, batch));
    if (small)
        learn_decoded(unpacker, &raw);
    return TRP_OK;
}

trp_status shared_reader_fill(struct unpacker *unpacker, struct batch *batch)
{
    struct shared_reader *shared = &unpacker->shared;
    uint32_t before = batch->rows;
    trp_status status = TRP_OK;
    while (status == TRP_OK && batch->rows < batch->capacity &&
           shared->next < shared->samples.header.entries) {
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
    for (uint32_t i = 0; i < shared->shape_capacity; i++) {
        buffer_cleanup(&shared->shapes[i].canonical);
        buffer_cleanup(&shared->shapes[i].flat);
    }
    free(shared->shapes);
    buffer_cleanup(&shared->pieces);
    buffer_cleanup(&shared->bytes);
    buffer_cleanup(&shared->pages);
    wire_lists_cleanup(&shared->lists);
    free(shared->chunks);
    free(shared->chunk_at);
}
