/* Chunks in memory. Until its group is committed a chunk has its bytes, be they those of the
 * message that it came in; afterwards only small ones keep them, in a list of bounded size, least
 * recently used last: for them the walk down the tree costs more than the copy.
 *
 * Where the pieces of a large one are is asked once: a page stays where it is while its chunk
 * lives.
 *
 * A read is one seek and then nexts, and none at all when the cursor stands before the chunk
 * already, as it does between the chunks of one item.
 *
 * A chunk that an earlier life wrote is compared with its sum before it is handed out for the first
 * time; after that only a bit says so. Only pages that are named to who copies them are not looked
 * at: the sum is told with them. */
#include "internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/copy.h"
#include "replay/wire/limits.h"

enum { CACHE_OVERHEAD_BYTES = sizeof(struct stored_chunk) + SLAB_STEP / 2 };

/* ---- buffers -------------------------------------------------------------------------------- */

/* The bytes of large chunks live for a group only; to have them anew would be a quarter of what a
 * chunk costs. */
static uint8_t *bytes_take(struct chunk_memory *memory, size_t size)
{
    return size <= STORE_CACHED_CHUNK_BYTES_MAX ? slab_take(&memory->slabs, size ? size : 1)
                                                : spares_take(&memory->spares, size);
}

static void bytes_give(struct chunk_memory *memory, uint8_t *bytes, size_t size)
{
    if (size <= STORE_CACHED_CHUNK_BYTES_MAX)
        slab_give(&memory->slabs, bytes, size ? size : 1);
    else
        spares_give(&memory->spares, bytes, size, STORE_SPARE_BYTES_MAX);
}

/* ---- bytes that are not ours ----------------------------------------------------------------- */

struct span_reader {
    const trp_bytes *next;
    trp_bytes left; /* of the span before */
};

static struct span_reader chunk_spans(const struct stored_chunk *chunk)
{
    if (chunk->borrowed)
        return (struct span_reader){.next = chunk->borrowed->spans};
    return (struct span_reader){.left = {chunk->bytes, chunk->chunk.size}};
}

/* The next `size` bytes, which are there. */
static void span_reader_copy(struct span_reader *from, uint8_t *out, size_t size)
{
    while (size > 0) {
        while (from->left.size == 0)
            from->left = *from->next++;
        size_t part = from->left.size < size ? from->left.size : size;
        memcpy(out, from->left.data, part);
        from->left = (trp_bytes){from->left.data + part, from->left.size - part};
        out += part;
        size -= part;
    }
}

static size_t borrowed_size(uint32_t count)
{
    return sizeof(struct borrowed) + count * sizeof(trp_bytes);
}

static void borrowed_begin(struct chunk_memory *memory, struct stored_chunk *chunk,
                           const trp_bytes *spans, uint32_t count)
{
    chunk->borrowed = slab_take(&memory->slabs, borrowed_size(count));
    *chunk->borrowed = (struct borrowed){.at = memory->borrowed_count, .count = count};
    memcpy(chunk->borrowed->spans, spans, count * sizeof *spans);
    *ARRAY_PUSH(memory->borrowed, memory->borrowed_count, memory->borrowed_capacity) = chunk;
}

static void borrowed_return(struct chunk_memory *memory, struct stored_chunk *chunk)
{
    struct borrowed *borrowed = chunk->borrowed;
    if (!borrowed)
        return;
    struct stored_chunk *last = memory->borrowed[--memory->borrowed_count];
    memory->borrowed[borrowed->at] = last;
    last->borrowed->at = borrowed->at;
    chunk->borrowed = NULL;
    slab_give(&memory->slabs, borrowed, borrowed_size(borrowed->count));
}

bool store_has_borrowed(const struct store *store)
{
    return store->chunks.borrowed_count > 0;
}

void store_borrowed_end(struct store *store)
{
    while (store->chunks.borrowed_count > 0) {
        struct stored_chunk *chunk = store->chunks.borrowed[store->chunks.borrowed_count - 1];
        struct span_reader from = chunk_spans(chunk);
        chunk->bytes = bytes_take(&store->chunks, chunk->chunk.size);
        span_reader_copy(&from, chunk->bytes, chunk->chunk.size);
        borrowed_return(&store->chunks, chunk);
    }
}

void chunk_memory_cleanup(struct chunk_memory *memory)
{
    spares_cleanup(&memory->spares);
    free(memory->borrowed);
    slabs_cleanup(&memory->slabs);
}

/* ---- cache ---------------------------------------------------------------------------------- */

static void cache_link(struct chunk_memory *memory, struct stored_chunk *chunk)
{
    struct stored_chunk *ring = &memory->cache;
    chunk->cache_prev = ring;
    chunk->cache_next = ring->cache_next;
    chunk->cache_next->cache_prev = chunk;
    ring->cache_next = chunk;
}

static void cache_unlink(struct stored_chunk *chunk)
{
    chunk->cache_prev->cache_next = chunk->cache_next;
    chunk->cache_next->cache_prev = chunk->cache_prev;
    chunk->cache_next = chunk->cache_prev = NULL;
}

static void cache_remove(struct chunk_memory *memory, struct stored_chunk *chunk)
{
    cache_unlink(chunk);
    memory->cache_used -= chunk->chunk.size + CACHE_OVERHEAD_BYTES;
}

static void cache_add(struct chunk_memory *memory, struct stored_chunk *chunk)
{
    cache_link(memory, chunk);
    memory->cache_used += chunk->chunk.size + CACHE_OVERHEAD_BYTES;
    while (memory->cache_used > memory->cache_limit) {
        struct stored_chunk *last = memory->cache.cache_prev;
        cache_remove(memory, last);
        bytes_give(memory, last->bytes, last->chunk.size);
        last->bytes = NULL;
    }
}

void chunk_settle(struct store *store, struct chunk *chunk)
{
    if (chunk->size <= STORE_CACHED_CHUNK_BYTES_MAX) {
        cache_add(&store->chunks, stored(chunk));
        return;
    }
    borrowed_return(&store->chunks, stored(chunk));
    bytes_give(&store->chunks, stored(chunk)->bytes, chunk->size);
    stored(chunk)->bytes = NULL;
}

/* ---- life ----------------------------------------------------------------------------------- */

struct chunk *store_chunk_create(struct store *store, const trp_bytes *spans, uint32_t count)
{
    size_t size = 0;
    for (uint32_t i = 0; i < count; i++)
        size += spans[i].size;
    assert(size <= INT32_MAX);
    struct stored_chunk *chunk = slab_take(&store->chunks.slabs, sizeof *chunk);
    *chunk = (struct stored_chunk){.chunk = {.refs = 1, .size = (uint32_t)size}};
    store->chunks.held_bytes += chunk_memory(&chunk->chunk);
    if (size > STORE_CACHED_CHUNK_BYTES_MAX) {
        borrowed_begin(&store->chunks, chunk, spans, count);
        return &chunk->chunk;
    }
    struct span_reader from = {.next = spans};
    chunk->bytes = bytes_take(&store->chunks, size);
    span_reader_copy(&from, chunk->bytes, size);
    return &chunk->chunk;
}

uint64_t store_held_bytes(const struct store *store)
{
    return store->chunks.held_bytes;
}

void store_chunk_shared(struct chunk *chunk)
{
    if (stored(chunk)->borrowed)
        stored(chunk)->borrowed->shared = true;
}

struct chunk *chunk_create_stored(struct store *store, uint64_t seq, uint32_t size)
{
    struct stored_chunk *chunk = slab_take(&store->chunks.slabs, sizeof *chunk);
    *chunk = (struct stored_chunk){.chunk = {.seq = seq, .size = size}};
    return &chunk->chunk;
}

static size_t pages_size(const struct chunk *chunk)
{
    return chunk_paged(chunk) * sizeof(uint64_t);
}

void chunk_free(struct store *store, struct chunk *chunk)
{
    struct stored_chunk *ours = stored(chunk);
    if (ours->cache_next)
        cache_remove(&store->chunks, ours);
    borrowed_return(&store->chunks, ours);
    bytes_give(&store->chunks, ours->bytes, chunk->size);
    if (chunk->seq == 0)
        store->chunks.held_bytes -= chunk_memory(chunk);
    slab_give(&store->chunks.slabs, ours->pages, pages_size(chunk));
    slab_give(&store->chunks.slabs, ours, sizeof *ours);
}

void store_chunk_unref(struct store *store, struct chunk *chunk)
{
    assert(chunk->refs > 0);
    if (--chunk->refs > 0)
        return;
    if (chunk->seq != 0) {
        dead_push(&store->dead, (struct dead){chunk->seq, chunk_pieces(chunk->size)});
        store->counts.chunks--;
        store->counts.live_bytes -= chunk->size;
    }
    chunk_free(store, chunk);
}

void chunks_unref(struct store *store, struct buffer *all)
{
    struct chunk **chunks = (struct chunk **)(void *)all->data;
    for (size_t i = 0; i < all->size / sizeof *chunks; i++)
        store_chunk_unref(store, chunks[i]);
    buffer_clear(all);
}

/* ---- reading -------------------------------------------------------------------------------- */

trp_status chunk_seek(struct store *store, const struct chunk *chunk, uint32_t piece)
{
    struct cursor *reader = &store->reader;
    uint64_t wanted = piece_key(chunk->seq, piece);
    bool before =
        piece > 0 ? reader->key + 1 == wanted : piece_key_seq(reader->key) + 1 == chunk->seq;
    if (reader->there && before) {
        TRP_TRY(cursor_move(reader, MDB_NEXT));
        if (reader->there && reader->key == wanted)
            return TRP_OK;
    }
    return cursor_seek(reader, MDB_SET_KEY, wanted);
}

/* `status`, or else `what`: what LMDB says has the words already. */
static trp_status chunk_lost(const struct store *store, const struct chunk *chunk,
                             trp_status status, const char *what)
{
    if (status != TRP_OK)
        return TRP_INTERNAL;
    return trp_fail(TRP_DATA_LOSS, "replay store %s: chunk %llu of %u bytes: %s",
                    store->dir.data_path, (unsigned long long)chunk->seq, (unsigned)chunk->size,
                    what);
}

/* The chunk's own bytes in its next piece, 0 being the first: all but the sum behind the last. The
 * bytes count when pieces_end() says so, after all of them; `check` is zeroed before, or NULL.
 * DATA_LOSS: it is not what was written; INTERNAL: it cannot be read. */
static trp_status piece_read(struct store *store, const struct chunk *chunk, uint32_t piece,
                             trp_bytes *bytes, struct chunk_check *check)
{
    const struct cursor *reader = &store->reader;
    size_t left = chunk->size - (size_t)piece * PIECE_BYTES;
    size_t size = left + SUM_BYTES < PIECE_BYTES ? left + SUM_BYTES : PIECE_BYTES;
    trp_status status = chunk_seek(store, chunk, piece);
    if (status != TRP_OK || !reader->there || reader->value.size != size)
        return chunk_lost(store, chunk, status,
                          reader->there ? "a piece has another size" : "a piece is missing");
    if (chunk->unchecked && check)
        chunk_check_piece(check, reader->value);
    *bytes = (trp_bytes){reader->value.data, left < size ? left : size};
    return TRP_OK;
}

static trp_status pieces_end(struct store *store, const struct chunk *chunk,
                             struct chunk_check *check)
{
    trp_status status = TRP_OK;
    if (!chunk->unchecked)
        return TRP_OK;
    if (check->bytes < chunk->size + (uint64_t)SUM_BYTES) { /* the last piece, or the sum's own */
        status = chunk_seek(store, chunk, chunk_pieces(chunk->size) - 1);
        if (status == TRP_OK && store->reader.there)
            chunk_check_piece(check, store->reader.value);
    }
    if (status != TRP_OK || !chunk_check_end(check))
        return chunk_lost(store, chunk, status, "its bytes are not those that were written");
    stored(chunk)->chunk.unchecked = false;
    return TRP_OK;
}

static trp_status chunk_copy(struct store *store, const struct chunk *chunk, uint8_t *out)
{
    TRP_TRY(lmdb_read_begin(store));
    struct chunk_check check = {0};
    uint32_t count = piece_count(chunk->size);
    for (uint32_t piece = 0; piece < count; piece++) {
        trp_bytes bytes = {0};
        TRP_TRY(piece_read(store, chunk, piece, &bytes, &check));
        memcpy(out, bytes.data, bytes.size);
        out += bytes.size;
    }
    return pieces_end(store, chunk, &check);
}

trp_status store_chunk_read(struct store *store, const struct chunk *chunk, uint8_t *out)
{
    struct stored_chunk *cached = stored(chunk);
    if (cached->borrowed) {
        struct span_reader from = chunk_spans(cached);
        span_reader_copy(&from, out, chunk->size);
        return TRP_OK;
    }
    if (cached->bytes) {
        memcpy(out, cached->bytes, chunk->size);
        /* Its neighbours are anywhere in memory: their order has to be worth two cache misses. */
        bool order_matters = store->chunks.cache_used > store->chunks.cache_limit / 2;
        if (order_matters && cached->cache_next && store->chunks.cache.cache_next != cached) {
            cache_unlink(cached);
            cache_link(&store->chunks, cached);
        }
        return TRP_OK;
    }
    TRP_TRY(chunk_copy(store, chunk, out));
    if (chunk->size <= STORE_CACHED_CHUNK_BYTES_MAX) {
        cached->bytes = bytes_take(&store->chunks, chunk->size);
        memcpy(cached->bytes, out, chunk->size);
        cache_add(&store->chunks, cached);
    }
    return TRP_OK;
}

static trp_status pages_find(struct store *store, const struct chunk *chunk, uint64_t *pages)
{
    uint32_t paged = chunk_paged(chunk);
    for (uint32_t piece = 0; piece < paged; piece++) {
        trp_bytes bytes = {0};
        TRP_TRY(piece_read(store, chunk, piece, &bytes, NULL));
        if (!page_of_piece(store, bytes.data, &pages[piece]))
            return trp_fail(TRP_INTERNAL, "replay store %s: a piece of chunk %llu moves",
                            store->dir.data_path, (unsigned long long)chunk->seq);
    }
    return TRP_OK;
}

/* Kept for the next time: the walk over the tree is a quarter of what a sample of a large chunk
 * costs that is not copied. */
trp_status chunk_pages(struct store *store, const struct chunk *chunk, const uint64_t **pages)
{
    if (!stored(chunk)->pages) {
        TRP_TRY(lmdb_read_begin(store));
        uint64_t *found = slab_take(&store->chunks.slabs, pages_size(chunk));
        trp_status status = pages_find(store, chunk, found);
        if (status != TRP_OK) {
            slab_give(&store->chunks.slabs, found, pages_size(chunk));
            return status;
        }
        stored(chunk)->pages = found;
    }
    *pages = stored(chunk)->pages;
    return TRP_OK;
}

trp_status chunk_compare(struct store *store, const struct chunk *chunk, const uint8_t *map)
{
    struct chunk_check check = {0};
    const uint64_t *pages = stored(chunk)->pages;
    size_t left = chunk->size + SUM_BYTES, size;
    for (uint32_t paged = chunk_paged(chunk); chunk->unchecked && paged > 0;
         paged--, left -= size) {
        size = left < PIECE_BYTES ? left : PIECE_BYTES;
        const uint8_t *page = map + *pages++ * store->page_bytes;
        chunk_check_piece(&check, (trp_bytes){page + PAGE_HEADER_BYTES, size});
    }
    return pieces_end(store, chunk, &check);
}

size_t chunk_tail_bytes(const struct chunk *chunk)
{
    size_t paged = (size_t)chunk_paged(chunk) * PIECE_BYTES;
    size_t size = chunk->size + (chunk->unchecked ? SUM_BYTES : 0);
    return paged < size ? size - paged : 0;
}

trp_status chunk_tail(struct store *store, const struct chunk *chunk, uint8_t *out)
{
    size_t size = chunk_tail_bytes(chunk);
    if (size == 0)
        return TRP_OK;
    TRP_TRY(lmdb_read_begin(store));
    trp_status status = chunk_seek(store, chunk, chunk_paged(chunk));
    if (status != TRP_OK || !store->reader.there || store->reader.value.size < size)
        return chunk_lost(store, chunk, status, "its end is missing");
    memcpy(out, store->reader.value.data, size);
    return TRP_OK;
}

trp_status store_chunk_locate(struct store *store, const struct chunk *chunk, struct buffer *pages,
                              struct buffer *rest)
{
    const struct stored_chunk *known = stored(chunk);
    bool in_file = (!known->bytes && !known->borrowed) || known->cache_next;
    if (!in_file || chunk->size < SHARED_INLINE_BYTES) {
        trp_status status =
            store_chunk_read(store, chunk, buffer_reserve(rest, chunk->size ? chunk->size : 1));
        rest->size += status == TRP_OK ? chunk->size : 0;
        return status;
    }
    const uint64_t *at;
    size_t tail = chunk_tail_bytes(chunk);
    TRP_TRY(chunk_pages(store, chunk, &at));
    TRP_TRY(chunk_tail(store, chunk, buffer_reserve(rest, tail)));
    buffer_append(pages, span_of(at, pages_size(chunk)));
    rest->size += tail;
    return TRP_OK;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* The next `size` bytes of the spans into `out`, which is a page that nobody looks at soon if it is
 * `away`; the sum with them. Of what may change meanwhile the sum is that of a copy. */
static uint32_t spans_take(struct span_reader *from, uint8_t *out, size_t size, bool away,
                           bool shared, uint32_t sum)
{
    uint8_t copy[PIECE_BYTES];
    if (size == 0)
        return sum;
    while (from->left.size == 0)
        from->left = *from->next++;
    const uint8_t *in = from->left.data;
    if (shared && away) {
        span_reader_copy(from, copy, size);
        in = copy;
    } else if (!shared && from->left.size >= size) {
        from->left = (trp_bytes){in + size, from->left.size - size};
        copy_ahead(from->left.data, from->left.size < size ? from->left.size : size);
    } else {
        span_reader_copy(from, out, size);
        return chunk_sum_add(sum, out, size);
    }
    sum = chunk_sum_add(sum, in, size); /* that brings it into the cache */
    if (away)
        copy_away(out, in, size);
    else
        copy_some(out, in, size);
    return sum;
}

trp_status chunk_put(struct cursor *pieces, const struct chunk *chunk)
{
    /* A value above this has a page to itself; with `system` it goes at once, from the cache. */
    enum { PAGE_VALUE_MIN = PIECE_BYTES / 2 };
    bool map = pieces->store->options.durability != TRP_DURABLE_SYSTEM;
    const struct borrowed *borrowed = stored(chunk)->borrowed;
    bool shared = borrowed && borrowed->shared;
    struct span_reader from = chunk_spans(stored(chunk));
    uint32_t count = chunk_pieces(chunk->size), sum = 0;
    for (uint32_t piece = 0; piece < count; piece++) {
        size_t offset = (size_t)piece * PIECE_BYTES, left = chunk->size + SUM_BYTES - offset;
        size_t size = left < PIECE_BYTES ? left : PIECE_BYTES;
        size_t whole = offset < chunk->size ? chunk->size - offset : 0;
        size_t bytes = whole < size ? whole : size;
        uint8_t *out;
        TRP_TRY(cursor_put(pieces, piece_key(chunk->seq, piece), size, MDB_APPEND, &out));
        bool away = map && bytes > PAGE_VALUE_MIN;
        if (away) /* LMDB writes the next page's header soon, and would wait for the line */
            __builtin_prefetch(out + PIECE_BYTES, 1);
        sum = spans_take(&from, out, bytes, away, shared, sum);
        for (size_t at = bytes; at < size; at++)
            out[at] = (uint8_t)(sum >> 8 * (offset + at - chunk->size));
    }
    return TRP_OK;
}
