/* A start reads every record of a store once and little of each: what a cursor does between two of
 * them would be most of it. The structure is one that LMDB may be let at (disk/walk.c); bounds are
 * compared all the same, which costs nothing beside the pages' way from memory. */
#include "loading.h"

#include <sys/mman.h>

#include "replay/disk/page.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older ones refuse it */
#endif

enum { KEY_BYTES = sizeof(uint64_t), AHEAD = 2, LINE_BYTES = 64, SPARSE = 8 };

struct leaf_scan {
    const struct store *store;
    uint64_t pages; /* in use */
    leaf_scan_visit *visit;
    void *arg;
};

static trp_status leaf_scan_damaged(const struct leaf_scan *scan)
{
    return lmdb_fail(scan->store, MDB_CORRUPTED, "read a page");
}

static const uint8_t *page_at(const struct leaf_scan *scan, uint64_t number)
{
    return scan->store->map + number * scan->store->page_bytes;
}

static trp_status leaf_entry(const struct leaf_scan *scan, const uint8_t *page, size_t index)
{
    uint64_t key, first;
    struct node_header node;
    const uint8_t *at = page_node(page, scan->store->page_bytes, index, &node);
    if (!at || node.key_bytes != KEY_BYTES)
        return leaf_scan_damaged(scan);
    memcpy(&key, at, sizeof key);
    trp_bytes value = {at + KEY_BYTES, node_value_bytes(node)};
    size_t room = scan->store->page_bytes - (size_t)(value.data - page);
    if (node.flags & NODE_BIG) {
        if (room < sizeof first)
            return leaf_scan_damaged(scan);
        memcpy(&first, value.data, sizeof first);
        if (first >= scan->pages)
            return leaf_scan_damaged(scan);
        value.data = page_at(scan, first) + PAGE_HEADER_BYTES;
        room = scan->store->page_bytes - PAGE_HEADER_BYTES;
        value.size = value.size < room ? value.size : room;
    }
    return value.size <= room ? scan->visit(scan->arg, key, value) : leaf_scan_damaged(scan);
}

/* Maps the pages below a branch, where they are close to one another, instead of fault by fault. */
static void children_populate(const struct leaf_scan *scan, const uint8_t *branch)
{
    uint64_t first = UINT64_MAX, last = 0, count = page_nodes(branch);
    for (size_t index = 0; index < count; index++) {
        uint64_t child = page_child(branch, scan->store->page_bytes, index);
        if (child >= scan->pages)
            return;
        first = child < first ? child : first;
        last = child > last ? child : last;
    }
    if (count > 0 && last - first < SPARSE * count)
        madvise((void *)page_at(scan, first), (last - first + 1) * scan->store->page_bytes,
                MADV_POPULATE_READ);
}

/* The head of a page says where all else is; the first entries are mostly at its end. */
static void page_prefetch(const struct leaf_scan *scan, const uint8_t *branch, size_t index)
{
    uint64_t child = page_child(branch, scan->store->page_bytes, index);
    if (child >= scan->pages)
        return;
    enum { FIRST_LINES = 2, LAST_LINES = 6 };
    const uint8_t *page = page_at(scan, child), *end = page + scan->store->page_bytes;
    for (size_t line = 0; line < FIRST_LINES; line++)
        __builtin_prefetch(page + line * LINE_BYTES);
    for (size_t line = 1; line <= LAST_LINES; line++)
        __builtin_prefetch(end - line * LINE_BYTES);
}

static trp_status scan_page(const struct leaf_scan *scan, uint64_t number, unsigned depth)
{
    const uint8_t *page = number < scan->pages ? page_at(scan, number) : NULL;
    if (!page || depth == 0 ||
        !page_is(page, scan->store->page_bytes, number, depth == 1 ? PAGE_LEAF : PAGE_BRANCH))
        return leaf_scan_damaged(scan);
    size_t count = page_nodes(page);
    for (size_t index = 0; depth == 1 && index < count; index++)
        TRP_TRY(leaf_entry(scan, page, index));
    if (depth == 2)
        children_populate(scan, page);
    for (size_t index = 0; depth > 1 && index < count; index++) {
        page_prefetch(scan, page, index + AHEAD);
        TRP_TRY(scan_page(scan, page_child(page, scan->store->page_bytes, index), depth - 1));
    }
    return TRP_OK;
}

trp_status leaf_scan_run(struct store *store, enum store_tree tree, leaf_scan_visit *visit,
                         void *arg)
{
    struct leaf_scan scan = {.store = store, .visit = visit, .arg = arg};
    struct tree_record record;
    TRP_TRY(lmdb_read_begin(store));
    TRP_TRY(lmdb_tree(store, tree, &record, &scan.pages));
    if (record.root == UINT64_MAX)
        return TRP_OK;
    if (!store->map || record.depth > TREE_DEPTH_MAX)
        return leaf_scan_damaged(&scan);
    return scan_page(&scan, record.root, record.depth);
}
