/* A start reads every record of a store once and little of each: what a cursor does between two of
 * them would be most of it. The structure is one that LMDB may be let at (disk/walk.c); bounds are
 * compared all the same, which costs nothing beside the pages' way from memory. */
#include "leaf_scan.h"

#include <sys/mman.h>

#include "replay/disk/page.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older ones refuse it */
#endif

enum { KEY_BYTES = sizeof(uint64_t), AHEAD = 2, LINE_BYTES = 64, SPARSE = 8 };

struct leaves {
    const struct store *store;
    uint64_t pages; /* in use */
    leaf_visit *visit;
    void *arg;
};

static trp_status leaves_damaged(const struct leaves *leaves)
{
    return lmdb_fail(leaves->store, MDB_CORRUPTED, "read a page");
}

static const uint8_t *page_at(const struct leaves *leaves, uint64_t number)
{
    return leaves->store->map + number * leaves->store->page_bytes;
}

static trp_status leaf_entry(const struct leaves *leaves, const uint8_t *page, size_t index)
{
    uint64_t key, first;
    struct node_header node;
    const uint8_t *at = page_node(page, leaves->store->page_bytes, index, &node);
    if (!at || node.key_bytes != KEY_BYTES)
        return leaves_damaged(leaves);
    memcpy(&key, at, sizeof key);
    trp_bytes value = {at + KEY_BYTES, node_value_bytes(node)};
    size_t room = leaves->store->page_bytes - (size_t)(value.data - page);
    if (node.flags & NODE_BIG) {
        if (room < sizeof first)
            return leaves_damaged(leaves);
        memcpy(&first, value.data, sizeof first);
        if (first >= leaves->pages)
            return leaves_damaged(leaves);
        value.data = page_at(leaves, first) + PAGE_HEADER_BYTES;
        room = leaves->store->page_bytes - PAGE_HEADER_BYTES;
        value.size = value.size < room ? value.size : room;
    }
    return value.size <= room ? leaves->visit(leaves->arg, key, value) : leaves_damaged(leaves);
}

/* Maps the pages below a branch, where they are close to one another, instead of a fault every few
 * of them. */
static void children_populate(const struct leaves *leaves, const uint8_t *branch)
{
    uint64_t first = UINT64_MAX, last = 0, count = page_nodes(branch);
    for (size_t index = 0; index < count; index++) {
        struct node_header node;
        uint64_t child = page_node(branch, leaves->store->page_bytes, index, &node)
                             ? node_child(node)
                             : UINT64_MAX;
        if (child >= leaves->pages)
            return;
        first = child < first ? child : first;
        last = child > last ? child : last;
    }
    if (count > 0 && last - first < SPARSE * count)
        madvise((void *)page_at(leaves, first), (last - first + 1) * leaves->store->page_bytes,
                MADV_POPULATE_READ);
}

/* What a page begins with says where all else is; the first entries are mostly at its end. */
static void page_prefetch(const struct leaves *leaves, const uint8_t *branch, size_t index)
{
    struct node_header node;
    if (index >= page_nodes(branch) ||
        !page_node(branch, leaves->store->page_bytes, index, &node) ||
        node_child(node) >= leaves->pages)
        return;
    enum { FIRST_LINES = 2, LAST_LINES = 6 };
    const uint8_t *page = page_at(leaves, node_child(node)),
                  *end = page + leaves->store->page_bytes;
    for (size_t line = 0; line < FIRST_LINES; line++)
        __builtin_prefetch(page + line * LINE_BYTES);
    for (size_t line = 1; line <= LAST_LINES; line++)
        __builtin_prefetch(end - line * LINE_BYTES);
}

static trp_status page_read(const struct leaves *leaves, uint64_t number, unsigned depth)
{
    const uint8_t *page = page_at(leaves, number);
    if (number >= leaves->pages || depth == 0)
        return leaves_damaged(leaves);
    struct page_header header = page_header(page);
    if (header.number != number || header.flags != (depth == 1 ? PAGE_LEAF : PAGE_BRANCH) ||
        header.lower < sizeof header || header.lower > leaves->store->page_bytes)
        return leaves_damaged(leaves);
    size_t count = page_nodes(page);
    for (size_t index = 0; depth == 1 && index < count; index++)
        TRP_TRY(leaf_entry(leaves, page, index));
    if (depth == 2)
        children_populate(leaves, page);
    for (size_t index = 0; depth > 1 && index < count; index++) {
        struct node_header node;
        page_prefetch(leaves, page, index + AHEAD);
        if (!page_node(page, leaves->store->page_bytes, index, &node))
            return leaves_damaged(leaves);
        TRP_TRY(page_read(leaves, node_child(node), depth - 1));
    }
    return TRP_OK;
}

trp_status leaves_read(struct store *store, enum store_tree tree, leaf_visit *visit, void *arg)
{
    struct leaves leaves = {.store = store, .visit = visit, .arg = arg};
    struct tree_record record;
    TRP_TRY(lmdb_read_begin(store));
    TRP_TRY(lmdb_tree(store, tree, &record, &leaves.pages));
    if (record.root == UINT64_MAX)
        return TRP_OK;
    if (!store->map || record.depth > TREE_DEPTH_MAX)
        return leaves_damaged(&leaves);
    return page_read(&leaves, record.root, record.depth);
}
