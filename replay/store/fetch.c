/* Problem: a chunk of a table that is larger than memory is on the disk, and so may be the page of
 * the tree that says where; whoever touches either of them waits.
 * Design: to probe a chunk touches nothing that may not be there. Which leaf of the tree has it is
 * read from the branches, which are one page in a hundred thousand of the file. A leaf that is not
 * in memory is what is to be fetched; then comes a second probe, which finds the chunk's own pages
 * through it. The kernel takes a use of a mapping that is MADV_RANDOM for no reason to keep a page,
 * a read it does: leaves are read a byte of, because hundreds of chunks are found by each, and
 * branches now and then. Where everything is in memory all of this is most of what a sample costs,
 * so then few chunks are looked at. Guarantee: none. Whoever uses a chunk that was missed here
 * reads it from the disk. */
#include "internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { BRANCH_KEEP_EVERY = 32 };

/* ---- the leaf -------------------------------------------------------------------------------- */

static bool root_find(struct store *store)
{
    struct tree_record record;
    uint64_t pages;
    if (store->probes.root)
        return true;
    if (lmdb_tree(store, TREE_PIECES, &record, &pages) != TRP_OK || record.root >= pages)
        return false; /* or it is empty */
    store->probes.root = record.root;
    store->probes.depth = record.depth;
    return true;
}

/* The page, unless it is on the disk only: a read that may not wait. */
static bool page_is_there(const struct store *store, uint64_t page)
{
    mdb_filehandle_t file;
    char byte;
    struct iovec part = {&byte, 1};
    if (mdb_env_get_fd(store->env, &file) != 0)
        return true;
    off_t at = (off_t)(page * store->page_bytes);
    return preadv2(file, &part, 1, at, RWF_NOWAIT) >= 0 || errno != EAGAIN;
}

/* The child of a branch that has `key`. 0: it is none. */
static uint64_t branch_child(const struct store *store, uint64_t page, uint64_t key)
{
    const uint8_t *bytes = store->map + page * store->page_bytes;
    if (!page_is(bytes, store->page_bytes, page, PAGE_BRANCH))
        return 0;
    /* The first key counts as the least there is. */
    uint32_t low = 0, high = (uint32_t)page_nodes(bytes);
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (page_key(bytes, store->page_bytes, middle) <= key)
            low = middle;
        else
            high = middle;
    }
    uint64_t child = page_child(bytes, store->page_bytes, low);
    return child < store->pages.account.next ? child : 0;
}

/* False: the leaf with the chunk's first piece is on the disk only, where `*page` says. */
static bool leaf_is_there(struct store *store, const struct chunk *chunk, uint64_t *page)
{
    if (!root_find(store))
        return true;
    bool keep = store->probes.kept++ % BRANCH_KEEP_EVERY == 0;
    *page = store->probes.root;
    for (uint32_t depth = 1; depth < store->probes.depth; depth++) {
        if (keep)
            page_is_there(store, *page);
        *page = branch_child(store, *page, piece_key(chunk->seq, 0));
        if (*page == 0)
            return true; /* the read will say so */
    }
    return page_is_there(store, *page);
}

/* ---- the chunk ------------------------------------------------------------------------------- */

/* A probe is most of what a sample in memory costs. After many in a row that were, few are probed;
 * one in a thousand on the disk has all probed again. */
static bool worth_a_probe(struct store *store)
{
    if (store->probes.resident < STORE_RESIDENT_PROBES)
        return true;
    store->probes.resident = STORE_RESIDENT_PROBES;
    store->probes.skipped = (store->probes.skipped + 1) % STORE_PROBE_EVERY;
    return store->probes.skipped == 0;
}

/* Adds the pages of the run that are not in memory. */
static void run_probe(const struct store *store, struct fetch_run run, struct fetch *fetch)
{
    enum { PAGES = 256 };
    unsigned char there[PAGES] = {0};
    for (uint64_t at = run.at, left = run.bytes / store->page_bytes, count; left > 0;
         left -= count) {
        count = left < PAGES ? left : PAGES;
        if (mincore(store->map + at, (size_t)(count * store->page_bytes), there) != 0)
            return;
        for (uint64_t page = 0; page < count; page++, at += store->page_bytes)
            if (!(there[page] & 1))
                fetch_add(fetch, (struct fetch_run){at, store->page_bytes});
    }
}

/* Adds what the disk has of the chunk. */
static void pages_probe(struct store *store, const struct chunk *chunk, struct fetch *fetch)
{
    struct fetch_run run = {0};
    uint32_t count = piece_count(chunk->size);
    for (uint32_t piece = 0; piece < count; piece++) {
        if (chunk_seek(store, chunk, piece) != TRP_OK || !store->reader.there)
            return; /* the read will say so */
        uint64_t at = (uint64_t)((uintptr_t)store->reader.value.data - (uintptr_t)store->map);
        at -= at % store->page_bytes;
        if (run.bytes > 0 && at != run.at + run.bytes) {
            run_probe(store, run, fetch);
            run.bytes = 0;
        }
        if (run.bytes == 0)
            run.at = at;
        run.bytes += store->page_bytes;
    }
    run_probe(store, run, fetch);
}

bool store_chunk_prefetch(struct store *store, const struct chunk *chunk, struct fetch *fetch)
{
    enum { LINE_BYTES = 64, LINES_BYTES = 512 }; /* the processor sees where more is going */
    uint64_t leaf, before = fetch->bytes;
    const uint8_t *bytes = stored(chunk)->bytes;
    if (stored(chunk)->borrowed)
        return true;
    if (bytes) {
        for (size_t at = 0; at < chunk->size && at < LINES_BYTES; at += LINE_BYTES)
            __builtin_prefetch(bytes + at);
        return true;
    }
    if (!store->map || !worth_a_probe(store) || lmdb_read_begin(store) != TRP_OK)
        return true;
    bool there = leaf_is_there(store, chunk, &leaf);
    if (there)
        pages_probe(store, chunk, fetch);
    else
        fetch_add(fetch, (struct fetch_run){leaf * store->page_bytes, store->page_bytes});
    store->probes.resident = fetch->bytes == before ? store->probes.resident + 1 : 0;
    return there;
}

trp_status store_fetcher(struct store *store, void (*done)(void *arg), void *arg,
                         struct fetcher **out)
{
    *out = NULL;
    return store->map ? fetcher_create(out, store->dir.data_path, done, arg) : TRP_OK;
}
