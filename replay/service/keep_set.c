/* Problem: every message brings chunks, refers to some and says which to keep; most sets have one
 * to a few hundred, and most messages replace all of them.
 * Design: a dense array in order of arrival with a map over it. Release marks the chunks that stay
 * and moves them down: proportional to their number, like the list of keys itself. A chunk is
 * checked once, when it comes: headers, and that each tensor's content is what its header says,
 * without decompressing it. Guarantee: a chunk in the set has one reference from it, and its
 * tensors can be unpacked by any client. */
#include "keep_set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/hash.h"
#include "limits.h"
#include "replay/model/signature.h"
#include "replay/wire/tensor.h"

void keep_set_cleanup(struct keep_set *set, struct engine *engine)
{
    for (uint32_t i = 0; i < set->count; i++)
        engine_chunk_unref(engine, set->kept[i].chunk);
    free(set->kept);
    free(set->tensors);
    map_cleanup(&set->index);
    free(set->memos);
    free(set->spans);
    *set = (struct keep_set){0};
}

uint64_t keep_set_memory(const struct keep_set *set)
{
    return set->capacity * sizeof *set->kept + set->tensor_capacity * sizeof *set->tensors +
           set->index.capacity * sizeof *set->index.entries +
           set->span_capacity * sizeof *set->spans +
           (set->memos ? TENSOR_MEMOS_MAX * sizeof *set->memos : 0);
}

struct kept *keep_set_find(const struct keep_set *set, uint64_t key)
{
    uint64_t number = map_get(&set->index, key);
    return number ? &set->kept[number - 1] : NULL;
}

static uint64_t tensor_layout(const struct wire_tensor *tensor)
{
    uint64_t hash = (uint64_t)tensor->dtype << 32 | tensor->rank;
    uint32_t known = tensor->rank < TRP_RANK_MAX ? tensor->rank : TRP_RANK_MAX;
    for (uint32_t i = 1; i < known; i++)
        hash = hash_u64(hash ^ (uint64_t)tensor->dims[i]);
    return hash ^ tensor->hidden;
}

static trp_status tensor_check(const struct wire_tensor *tensor)
{
    enum {
        DTYPE_STRING = 7,
        RANK_MAX = 254, /* TensorFlow's; its clients abort at more */
    };
    size_t element = tensor_element_bytes(tensor->dtype);
    trp_bytes literal = {0};
    uint64_t bytes;
    if (tensor->elements == UINT64_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "its shape is no tensor's");
    if (tensor->rank > RANK_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "its %u dimensions are more than %d", tensor->rank,
                        (int)RANK_MAX);
    /* NumPy multiplies the other dimensions of an empty shape, too. */
    if (tensor->elements == 0 && tensor->extent > UINT32_MAX / (element ? element : 1))
        return trp_fail(TRP_INVALID_ARGUMENT, "its shape is beyond 4 GiB");
    if (tensor->dtype == DTYPE_STRING)
        return strings_check(tensor->content, tensor->elements);
    if (element == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "its dtype %d is none that a chunk can have",
                        tensor->dtype);
    if (__builtin_mul_overflow(tensor->elements, element, &bytes) || bytes > UINT32_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "its shape is beyond 4 GiB");
    if (tensor->beyond == 0)
        return block_check(tensor->content, bytes);
    if (block_literal(tensor->content, tensor->beyond, &literal) &&
        literal.size + tensor->beyond == bytes)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "its content decompresses to %" PRIu64 " bytes, its shape says %" PRIu64,
                    literal.size + tensor->beyond, bytes);
}

/* Names the chunk and the tensor in front of trp_last_error(). */
static trp_status tensor_refuse(uint64_t key, uint32_t number, const struct wire_tensor *tensor)
{
    char text[TRP_RANK_MAX * 21 + 32];
    tensor_describe(text, sizeof text, tensor->dtype, tensor->rank, tensor->dims);
    return trp_fail(TRP_INVALID_ARGUMENT, "chunk %" PRIu64 ", tensor %u (%s): %s", key, number,
                    text, trp_last_error());
}

/* Rows of one chunk's tensors are those of the same steps. */
static trp_status rows_check(const struct keep_set *set, const struct wire_chunk *chunk,
                             uint32_t first)
{
    const struct kept_tensor *tensors = &set->tensors[first];
    uint32_t last = set->tensor_count - first - 1;
    if (last == 0 || tensors[0].rows == tensors[last].rows)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "chunk %" PRIu64 ": tensor %u has %" PRId64 " rows, tensor 0 has %" PRId64,
                    chunk->key, last, tensors[last].rows, tensors[0].rows);
}

static trp_status range_check(const struct wire_tensor_reader *reader,
                              const struct wire_chunk *chunk)
{
    const struct wire_range *range = &reader->range;
    if (range->tensor_total != 0 && (uint32_t)range->tensor_total != reader->count)
        return trp_fail(TRP_INVALID_ARGUMENT, "chunk %" PRIu64 " says %d tensors and has %u",
                        chunk->key, range->tensor_total, reader->count);
    if (range->start > range->end)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "chunk %" PRIu64 ": its sequence_range is from step %d to step %d",
                        chunk->key, range->start, range->end);
    return TRP_OK;
}

/* A hash of the layouts of the tensors from `first` on, which clients choose. */
static uint64_t tensors_shape(const struct keep_set *set, uint32_t first)
{
    uint64_t shape = hash_seeds[0];
    for (uint32_t i = first; i < set->tensor_count; i++)
        shape = hash_fold(shape, hash_seeds[1] ^ set->tensors[i].layout);
    return shape;
}

static trp_status tensors_read(struct keep_set *set, const struct wire_chunk *chunk,
                               uint64_t *episode)
{
    uint32_t first = set->tensor_count;
    struct wire_tensor_reader reader;
    struct wire_tensor tensor;
    bool more = true;
    wire_tensors_open(&reader, chunk);
    if (!set->memos)
        set->memos = xcalloc(TENSOR_MEMOS_MAX, sizeof *set->memos);
    reader.memos = set->memos;
    reader.memo_count = TENSOR_MEMOS_MAX;
    for (;;) {
        TRP_TRY(wire_tensor_next(&reader, &tensor, &more));
        if (!more) {
            *episode = reader.range.episode_id;
            return range_check(&reader, chunk);
        }
        if (tensor_check(&tensor) != TRP_OK)
            return tensor_refuse(chunk->key, reader.count - 1, &tensor);
        if (set->tensor_count == KEPT_TENSORS_MAX)
            return trp_fail(TRP_RESOURCE_EXHAUSTED, "a stream keeps more than %d tensors",
                            (int)KEPT_TENSORS_MAX);
        *ARRAY_PUSH(set->tensors, set->tensor_count, set->tensor_capacity) = (struct kept_tensor){
            .rows = tensor.rank > 0 ? tensor.dims[0] : -1, .layout = tensor_layout(&tensor)};
        TRP_TRY(rows_check(set, chunk, first));
    }
}

static struct chunk *make_chunk(struct keep_set *set, struct engine *engine,
                                const struct wire_chunk *chunk)
{
    const struct wire_more *more = &chunk->more;
    if (more->count == 0)
        return engine_chunk_create(engine, (trp_bytes[]){chunk->head, chunk->tail}, 2, false);
    if (set->span_capacity < more->count + 2) {
        set->span_capacity = more->count + 2;
        set->spans = xrealloc(set->spans, set->span_capacity * sizeof *set->spans);
    }
    set->spans[0] = chunk->head;
    set->spans[1] = chunk->tail;
    memcpy(set->spans + 2, chunk->resolved ? chunk->resolved : more->parts,
           more->count * sizeof *set->spans);
    set->spans[more->count + 1].size = more->last;
    return engine_chunk_create(engine, set->spans, more->count + 2, chunk->resolved != NULL);
}

trp_status keep_set_add(struct keep_set *set, struct engine *engine, const struct wire_chunk *chunk)
{
    if (keep_set_find(set, chunk->key))
        return TRP_OK; /* the first wins, as in Reverb */
    if (set->count == KEPT_CHUNKS_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "a stream keeps more than %d chunks",
                        (int)KEPT_CHUNKS_MAX);
    uint32_t first = set->tensor_count;
    uint64_t episode = 0;
    trp_status status = tensors_read(set, chunk, &episode);
    if (status != TRP_OK) {
        set->tensor_count = first;
        return status;
    }
    struct kept *kept = ARRAY_PUSH(set->kept, set->count, set->capacity);
    *kept = (struct kept){.key = chunk->key,
                          .chunk = make_chunk(set, engine, chunk),
                          .tensor_first = first,
                          .tensor_count = set->tensor_count - first,
                          .shape = tensors_shape(set, first)};
    kept->chunk->episode = episode;
    set->bytes += kept->chunk->size;
    *map_at(&set->index, chunk->key) = set->count;
    return TRP_OK;
}

/* Moves the marked chunks, so many, to the front, drops the others. */
static void keep_marked(struct keep_set *set, struct engine *engine, uint32_t marked)
{
    uint32_t count = 0, tensor_count = 0;
    bool most_go = marked < set->count / 2;
    if (most_go)
        map_clear(&set->index);
    for (uint32_t i = 0; i < set->count; i++) {
        struct kept kept = set->kept[i];
        if (kept.mark != set->mark) {
            engine_chunk_unref(engine, kept.chunk);
            if (!most_go)
                map_remove(&set->index, kept.key);
            continue;
        }
        memmove(&set->tensors[tensor_count], &set->tensors[kept.tensor_first],
                kept.tensor_count * sizeof *set->tensors);
        kept.tensor_first = tensor_count;
        tensor_count += kept.tensor_count;
        set->kept[count++] = kept;
        *map_at(&set->index, kept.key) = count;
    }
    set->count = count;
    set->tensor_count = tensor_count;
}

trp_status keep_set_release(struct keep_set *set, struct engine *engine,
                            const struct wire_keys *keys)
{
    uint32_t found = 0;
    if (++set->mark == 0)
        set->mark = 1;
    for (uint32_t i = 0; i < keys->count; i++) {
        struct kept *kept = keep_set_find(set, keys->keys[i]);
        if (!kept || kept->mark == set->mark)
            continue;
        kept->mark = set->mark;
        found++;
    }
    if (found < set->count)
        keep_marked(set, engine, found);
    set->bytes = 0;
    for (uint32_t i = 0; i < set->count; i++)
        if (set->kept[i].chunk->seq == 0)
            set->bytes += set->kept[i].chunk->size;
    if (found != keys->count)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "ReleaseOutOfRangeChunks: Kept less chunks than expected.  "
                        "chunks_.size() == %u != keep_keys.size() == %u",
                        found, keys->count);
    return TRP_OK;
}
