/* Problem: to show one item's columns one has to cut them from chunks as a client does, but chunks
 * may be large and the lock must not be held while they are decompressed.
 * Design: with the lock held the item and its chunks' bytes are copied (up to PEEK_TENSOR_BYTES_MAX
 * in all); the rest reads the copies. Shapes come from tensor headers; values are cut out only for
 * columns of at most PEEK_VALUE_BYTES_MAX.
 * Guarantee: what cannot be shown (too large, strings, bytes that no client could unpack) is left
 * out, never guessed. */
#include "admin.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/limits.h"
#include "tensor.h"
#include "trajectory.h"

struct peek_work {
    struct admin *admin;
    const Troupe__ReplayPeekRequest *request;
    trp_status status;
    bool far; /* what the sampler would take first is not known at once: see admin_first() */
    uint32_t slot;
    uint64_t seq; /* 0: not looked for yet */
    Troupe__ReplayItem *item;
    struct trajectory *trajectory; /* a copy */
    trp_bytes *chunks;             /* copies; data NULL: too large */
    uint32_t chunk_count;
};

/* Weights are in no order: the largest of many is looked for in slices. */
static trp_status first_find(struct peek_work *work, const struct table *table, struct item **item)
{
    work->far = table_options(table)->sampler.kind == TRP_PRIORITIZED &&
                table_slots(table) > REPLAY_SLICE_SLOTS;
    if (!work->far) {
        if (table_top(table, 1, item) == 1)
            return TRP_OK;
        return trp_fail(TRP_NOT_FOUND, "table %s is empty", work->request->table);
    }
    *item = work->seq ? table_slot(table, work->slot) : NULL;
    if (*item && (*item)->seq == work->seq)
        return TRP_OK;
    return trp_fail(TRP_UNAVAILABLE, "table %s: items come and go too fast, name one by its key",
                    work->request->table);
}

static trp_status item_find(struct peek_work *work, struct engine_table **table, struct item **item)
{
    const Troupe__ReplayPeekRequest *request = work->request;
    TRP_TRY(admin_table(work->admin, request->table, table));
    if (!request->has_key)
        return first_find(work, (*table)->table, item);
    TRP_TRY(engine_index_finish(work->admin->engine));
    *item = table_find((*table)->table, request->key);
    if (*item)
        return TRP_OK;
    return trp_fail(TRP_NOT_FOUND, "table %s has no item with key %llu", request->table,
                    (unsigned long long)request->key);
}

static trp_status chunks_copy(struct peek_work *work, struct engine_table *table,
                              const struct item *item)
{
    struct store *store = engine_store(work->admin->engine);
    size_t left = PEEK_TENSOR_BYTES_MAX;
    work->chunk_count = item->trajectory->chunk_count;
    work->chunks = xcalloc(work->chunk_count, sizeof *work->chunks);
    for (uint32_t i = 0; i < work->chunk_count; ++i) {
        const struct chunk *chunk = item->chunks[i];
        if (chunk->size > left)
            continue;
        uint8_t *bytes = xmalloc(chunk->size + 1);
        work->chunks[i] = (trp_bytes){bytes, chunk->size};
        left -= chunk->size;
        trp_status status = store_chunk_read(store, chunk, bytes);
        if (status != TRP_OK)
            return admin_unreadable(work->admin, table, item->key, chunk->seq, status);
    }
    return TRP_OK;
}

static void peek_collect(void *arg)
{
    struct peek_work *work = arg;
    struct engine_table *table;
    struct item *item;
    work->status = item_find(work, &table, &item);
    if (work->status != TRP_OK)
        return;
    size_t size = sizeof *item->trajectory + item->trajectory->size;
    work->trajectory = xmalloc(size);
    memcpy(work->trajectory, item->trajectory, size);
    work->item = admin_item(item);
    work->status = chunks_copy(work, table, item);
}

/* ---- columns ----------------------------------------------------------------------------- */

static bool tensor_find(trp_bytes chunk, uint32_t index, struct wire_tensor *tensor, bool *delta)
{
    struct wire_tensor_reader reader;
    struct wire_tensor each;
    struct wire_chunk whole = {.head = chunk};
    bool more = true, found = false;
    wire_tensors_open(&reader, &whole);
    for (;;) {
        uint32_t number = reader.count;
        if (wire_tensor_next(&reader, &each, &more) != TRP_OK || !more)
            break;
        if (number == index) {
            *tensor = each;
            found = true;
        }
    }
    *delta = reader.delta_encoded;
    return found;
}

/* Bytes of one row; 0: unknown or beyond memory. */
static size_t row_bytes(const struct wire_tensor *tensor)
{
    size_t bytes = trp_dtype_size((trp_dtype)tensor->dtype);
    if (tensor->rank == 0 || tensor->rank > TRP_RANK_MAX)
        return 0;
    for (uint32_t i = 1; i < tensor->rank; ++i)
        if (tensor->dims[i] < 0 || !size_mul(bytes, (size_t)tensor->dims[i], &bytes))
            return 0;
    return bytes;
}

/* Appends the slice's rows to `values`. */
static bool slice_values(const struct wire_tensor *tensor, bool delta,
                         const struct trajectory_slice *slice, struct buffer *values)
{
    size_t row = row_bytes(tensor), size;
    if (row == 0 || tensor->dims[0] < 0 || !size_mul(row, (size_t)tensor->dims[0], &size) ||
        size > PEEK_TENSOR_BYTES_MAX || !block_size_plausible(tensor->content, size) ||
        (int64_t)slice->offset + slice->length > tensor->dims[0])
        return false;
    uint8_t *raw = xmalloc(size + 1);
    bool ok = block_decompress(tensor->content, raw, size) == TRP_OK;
    if (ok && delta && delta_applies(tensor->dtype, tensor->rank))
        delta_decode(tensor->dtype, (size_t)tensor->dims[0],
                     row / trp_dtype_size((trp_dtype)tensor->dtype), raw);
    if (ok)
        buffer_append(values, (trp_bytes){raw + slice->offset * row, slice->length * row});
    free(raw);
    return ok;
}

static void shape_set(Troupe__ReplayColumn *column, const struct wire_tensor *tensor, int64_t rows)
{
    uint32_t rank = tensor->rank <= TRP_RANK_MAX ? tensor->rank : TRP_RANK_MAX;
    column->dtype = tensor->dtype;
    column->rank = tensor->rank > TRP_RANK_MAX ? tensor->rank : 0;
    column->shape = xcalloc(TRP_RANK_MAX, sizeof *column->shape);
    if (!column->squeezed)
        column->shape[column->n_shape++] = rows;
    for (uint32_t i = 1; i < rank; ++i)
        column->shape[column->n_shape++] = tensor->dims[i];
}

static Troupe__ReplayColumn *column_make(const struct peek_work *work,
                                         struct trajectory_reader *reader, uint32_t slices,
                                         bool squeeze)
{
    Troupe__ReplayColumn *column = xmalloc(sizeof *column);
    troupe__replay_column__init(column);
    column->slices = slices;
    column->squeezed = squeeze;
    struct buffer values = {0};
    struct wire_tensor tensor = {0};
    struct trajectory_slice slice;
    int64_t rows = 0;
    bool known = slices > 0, shown = slices > 0, delta;
    while (trajectory_next_slice(reader, &slice)) {
        trp_bytes chunk = work->chunks[slice.chunk];
        rows += slice.length;
        known = known && chunk.data && tensor_find(chunk, slice.index, &tensor, &delta);
        shown = shown && known &&
                values.size + slice.length * row_bytes(&tensor) <= PEEK_VALUE_BYTES_MAX &&
                slice_values(&tensor, delta, &slice, &values);
    }
    if (known)
        shape_set(column, &tensor, rows);
    if (shown) {
        column->has_values = true;
        column->values.len = values.size;
        column->values.data = values.data;
    } else {
        buffer_cleanup(&values);
    }
    return column;
}

static Troupe__ReplayPeekResponse *peek_answer(struct peek_work *work)
{
    Troupe__ReplayPeekResponse *out = xmalloc(sizeof *out);
    struct trajectory_reader reader;
    uint32_t slices;
    bool squeeze;
    troupe__replay_peek_response__init(out);
    out->item = work->item;
    work->item = NULL;
    size_t capacity = 0;
    trajectory_open(&reader, work->trajectory);
    while (trajectory_next_column(&reader, &slices, &squeeze)) {
        if (out->n_columns == capacity) {
            capacity = capacity ? 2 * capacity : 8;
            out->columns = xrealloc(out->columns, capacity * sizeof *out->columns);
        }
        out->columns[out->n_columns++] = column_make(work, &reader, slices, squeeze);
    }
    return out;
}

static void peek_run(struct peek_work *work)
{
    enum { TRIES = 3 }; /* the one that was found may have gone */
    if (work->request->has_key)
        work->status = admin_load(work->admin);
    if (work->status == TRP_OK)
        admin_enter(work->admin, peek_collect, work);
    for (int try = 0; work->status == TRP_UNAVAILABLE && work->far && try < TRIES; ++try) {
        work->status = admin_first(work->admin, work->request->table, &work->slot, &work->seq);
        if (work->status == TRP_OK)
            admin_enter(work->admin, peek_collect, work);
    }
}

void admin_peek(Troupe__Replay_Service *service, const Troupe__ReplayPeekRequest *request,
                Troupe__ReplayPeekResponse_Closure closure, void *data)
{
    struct peek_work work = {.admin = (struct admin *)service, .request = request};
    Troupe__ReplayPeekResponse *response = NULL;
    peek_run(&work);
    if (work.status == TRP_OK)
        response = peek_answer(&work);
    closure(response, data);
    if (response)
        troupe__replay_peek_response__free_unpacked(response, NULL);
    if (work.item)
        troupe__replay_item__free_unpacked(work.item, NULL);
    for (uint32_t i = 0; i < work.chunk_count; ++i)
        free((uint8_t *)work.chunks[i].data);
    free(work.chunks);
    free(work.trajectory);
}
