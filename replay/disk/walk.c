/* Problem: a bit that flips in a page of LMDB's trees makes LMDB read or write anywhere. Design: a
 * reader of our own for the format of LMDB 0.9 that copies one page at a time (a file that is cut
 * short or unreadable is an errno, not a signal) and believes nothing: every page number, offset,
 * length, key and count is compared with what it can be, and no page is used twice.
 * Guarantee: in a file that passes, LMDB meets nothing that it does not expect. The meaning of
 * values is for others to check. */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <troupe/bytes.h>
#include "core/alloc.h"
#include "replay/wire/limits.h"
#include "page.h"

enum {
    VERSION = 1,
    TREE_INTEGER_KEYS = 0x08,
    ENV_NO_SUBDIR = 0x4000,
    NODE_BYTES_MAX = 2022, /* a larger value has pages of its own */
    AHEAD_PAGES = 64,      /* asked for at once */
    ASK_PAGES = 16, /* of a tree, with their values, between two questions whether to go on */
};

/* As it lies in the file. */
struct meta {
    uint32_t magic, version;
    uint64_t address, map_bytes;
    struct tree_record free_tree, main_tree;
    uint64_t last_page, txn;
};
_Static_assert(sizeof(struct meta) == 136, "LMDB's MDB_meta");

enum kind { KIND_MAIN, KIND_FREE, KIND_STORE };

struct walk {
    const char *path;
    int fd;
    enum walk_depth depth;
    uint64_t page_bytes, pages; /* in use: last_page + 1 */
    struct meta meta;
    uint8_t *used;    /* a bit a page */
    uint16_t *places; /* in a page: which node begins there, if it says so, too */
    trp_status (*goes_on)(void);
    unsigned asked; /* pages since it was */
};

/* One tree on its way; keys are compared as numbers where they are numbers. */
struct tree {
    struct walk *walk;
    enum kind kind;
    struct tree_record record;
    uint64_t branches, leaves, overflows, entries;
    uint8_t key[512]; /* the last one */
    size_t key_bytes; /* 0: none yet */
    bool at_branch;   /* it is a branch's */
    uint8_t *pages;   /* one a level */
};

struct node {
    trp_bytes key;
    uint16_t flags;
    uint64_t value_bytes;
    uint64_t child; /* of a branch */
    const uint8_t *value;
};

static trp_status damaged(uint64_t page, const char *what)
{
    return trp_fail(TRP_DATA_LOSS, "is damaged: page %" PRIu64 ": %s", page, what);
}

/* ---- pages ---------------------------------------------------------------------------------- */

static trp_status read_at(const struct walk *walk, uint64_t offset, void *out, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(walk->fd, (uint8_t *)out + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return store_errno(errno, walk->path, "read");
        if (got == 0)
            return trp_fail(TRP_DATA_LOSS, "is cut short at %" PRIu64 " bytes", offset + done);
        done += (size_t)got;
    }
    return TRP_OK;
}

/* Marks pages as used; they were not before. */
static trp_status pages_use(struct walk *walk, uint64_t first, uint64_t count, uint64_t from)
{
    if (first < 2 || first >= walk->pages || count == 0 || count > walk->pages - first)
        return damaged(from, "it names a page that is not there");
    for (uint64_t page = first; page < first + count; page++) {
        uint8_t bit = (uint8_t)(1 << (page & 7));
        if (walk->used[page >> 3] & bit)
            return damaged(page, "it is in two places");
        walk->used[page >> 3] |= bit;
    }
    return TRP_OK;
}

static trp_status page_read(struct walk *walk, uint64_t number, uint8_t *out)
{
    TRP_TRY(read_at(walk, number * walk->page_bytes, out, walk->page_bytes));
    struct page_header header = page_header(out);
    if (header.number != number)
        return damaged(number, "another page lies there");
    if (header.flags != PAGE_BRANCH && header.flags != PAGE_LEAF)
        return damaged(number, "it is neither branch nor leaf");
    if (header.lower < sizeof header || header.lower % 2 != 0 || header.upper < header.lower ||
        header.upper > walk->page_bytes)
        return damaged(number, "its bounds are wrong");
    return TRP_OK;
}

static size_t node_offset(const uint8_t *page, size_t index)
{
    uint16_t offset;
    memcpy(&offset, page + sizeof(struct page_header) + 2 * index, sizeof offset);
    return offset;
}

static bool node_read(const struct walk *walk, const uint8_t *page, size_t index, bool branch,
                      struct node *out)
{
    struct node_header node;
    size_t offset = node_offset(page, index);
    const uint8_t *at = page_node(page, walk->page_bytes, index, &node);
    *out = (struct node){0};
    if (!at || offset < page_header(page).upper || offset % 2 != 0)
        return false;
    size_t room = walk->page_bytes - offset - sizeof node;
    *out = (struct node){.key = {at, node.key_bytes}, .flags = node.flags};
    if (branch) {
        out->child = node_child(node);
        return true;
    }
    uint64_t bytes = node_value_bytes(node);
    out->value = at + node.key_bytes;
    out->value_bytes = bytes;
    return (node.flags & NODE_BIG ? sizeof(uint64_t) : bytes) <= room - node.key_bytes;
}

/* LMDB keeps a page's nodes side by side, up to its end, and moves them with that in mind. */
static trp_status nodes_check(const struct walk *walk, uint64_t number, const uint8_t *page,
                              bool branch)
{
    struct node node;
    size_t count = page_nodes(page), begun = 0;
    for (size_t index = 0; index < count; index++) {
        if (!node_read(walk, page, index, branch, &node))
            return damaged(number, "an entry is out of place");
        walk->places[node_offset(page, index) / 2] = (uint16_t)index;
    }
    size_t at = page_header(page).upper;
    for (; at < walk->page_bytes; begun++) {
        size_t index = walk->places[at / 2], value = 0;
        if (index >= count || node_offset(page, index) != at)
            break;
        node_read(walk, page, index, branch, &node);
        if (!branch)
            value = node.flags & NODE_BIG ? sizeof(uint64_t) : node.value_bytes;
        at += (sizeof(struct node_header) + node.key.size + value + 1) & ~(size_t)1;
    }
    return begun == count && at == walk->page_bytes ? TRP_OK : damaged(number, "entries overlap");
}

/* ---- keys ----------------------------------------------------------------------------------- */

static int keys_compare(const struct tree *tree, trp_bytes a, trp_bytes b)
{
    if (tree->kind == KIND_MAIN) {
        int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
        return order ? order : (a.size > b.size) - (a.size < b.size);
    }
    uint64_t left, right;
    memcpy(&left, a.data, sizeof left);
    memcpy(&right, b.data, sizeof right);
    return (left > right) - (left < right);
}

static bool key_fits(const struct tree *tree, trp_bytes key)
{
    return tree->kind == KIND_MAIN ? key.size > 0 && key.size < sizeof tree->key
                                   : key.size == sizeof(uint64_t);
}

/* Keys of leaves ascend through the whole tree; that of a branch is above every key before it, and
 * not above any behind it. */
static bool key_accept(struct tree *tree, trp_bytes key, bool leaf)
{
    if (!key_fits(tree, key))
        return false;
    trp_bytes before = {tree->key, tree->key_bytes};
    int order = tree->key_bytes ? keys_compare(tree, key, before) : 1;
    if (order < 0 || (order == 0 && !(leaf && tree->at_branch)))
        return false;
    memcpy(tree->key, key.data, key.size);
    tree->key_bytes = key.size;
    tree->at_branch = !leaf;
    return true;
}

/* ---- values --------------------------------------------------------------------------------- */

static trp_status tree_walk(struct walk *walk, enum kind kind, const struct tree_record *record,
                            uint64_t from);

/* A value in pages of its own. */
static trp_status big_check(struct tree *tree, uint64_t page, const struct node *node,
                            uint64_t *first)
{
    struct walk *walk = tree->walk;
    struct page_header header;
    uint64_t count = (sizeof header + node->value_bytes + walk->page_bytes - 1) / walk->page_bytes;
    memcpy(first, node->value, sizeof *first);
    TRP_TRY(pages_use(walk, *first, count, page));
    tree->overflows += count;
    if (walk->depth < WALK_VALUES && tree->kind != KIND_FREE)
        return TRP_OK;
    TRP_TRY(read_at(walk, *first * walk->page_bytes, &header, sizeof header));
    uint32_t pages = header.lower | (uint32_t)header.upper << 16;
    if (header.number != *first || header.flags != PAGE_OVERFLOW || pages != count)
        return damaged(*first, "it is not the value that it should be");
    return TRP_OK;
}

/* A record of the free list: how many, then page numbers, descending. */
static trp_status free_check(struct walk *walk, uint64_t page, const uint64_t *list, size_t bytes)
{
    uint64_t count = bytes >= sizeof *list ? list[0] : UINT64_MAX;
    if (count > bytes / sizeof *list - 1)
        return damaged(page, "a list of free pages is cut short");
    for (uint64_t index = 1; index <= count; index++) {
        if (index > 1 && list[index] >= list[index - 1])
            return damaged(page, "a list of free pages is out of order");
        TRP_TRY(pages_use(walk, list[index], 1, page));
    }
    return TRP_OK;
}

static trp_status free_record(struct tree *tree, uint64_t page, const struct node *node,
                              uint64_t first)
{
    struct walk *walk = tree->walk;
    uint64_t txn;
    memcpy(&txn, node->key.data, sizeof txn);
    if (txn == 0 || txn > walk->meta.txn)
        return damaged(page, "it has free pages of a transaction that never was");
    uint64_t *list = xmalloc(node->value_bytes + sizeof *list);
    trp_status status = TRP_OK;
    if (node->flags & NODE_BIG)
        status = read_at(walk, first * walk->page_bytes + sizeof(struct page_header), list,
                         node->value_bytes);
    else
        memcpy(list, node->value, node->value_bytes);
    if (status == TRP_OK)
        status = free_check(walk, page, list, node->value_bytes);
    free(list);
    return status;
}

static trp_status value_check(struct tree *tree, uint64_t page, const struct node *node)
{
    struct walk *walk = tree->walk;
    uint64_t first = 0;
    if (node->flags != (tree->kind == KIND_MAIN ? NODE_TREE : node->flags & NODE_BIG))
        return damaged(page, "a value is of a kind that no store has");
    if (node->flags & NODE_BIG)
        TRP_TRY(big_check(tree, page, node, &first));
    else if (node->value_bytes > NODE_BYTES_MAX)
        return damaged(page, "a value is too long");
    if (tree->kind == KIND_FREE)
        return free_record(tree, page, node, first);
    if (tree->kind != KIND_MAIN)
        return TRP_OK;
    struct tree_record record;
    if (node->value_bytes != sizeof record)
        return damaged(page, "the root of a tree has another size");
    memcpy(&record, node->value, sizeof record);
    return tree_walk(walk, KIND_STORE, &record, page);
}

/* ---- trees ---------------------------------------------------------------------------------- */

static trp_status leaf_walk(struct tree *tree, uint64_t number, const uint8_t *page)
{
    struct walk *walk = tree->walk;
    size_t count = page_nodes(page);
    TRP_TRY(nodes_check(walk, number, page, false));
    for (size_t index = 0; index < count; index++) {
        struct node node;
        node_read(walk, page, index, false, &node);
        if (!key_accept(tree, node.key, true))
            return damaged(number, "an entry is out of place");
        TRP_TRY(value_check(tree, number, &node));
    }
    tree->entries += count;
    tree->leaves++;
    return count > 0 ? TRP_OK : damaged(number, "an empty leaf");
}

/* Reading one page at a time waits for the disk each time. */
static void children_prefetch(const struct walk *walk, const uint8_t *page, size_t from)
{
    size_t count = page_nodes(page);
    for (size_t index = from; index < count && index < from + AHEAD_PAGES; index++) {
        struct node node;
        if (node_read(walk, page, index, true, &node) && node.child < walk->pages)
            posix_fadvise(walk->fd, (off_t)(node.child * walk->page_bytes), (off_t)walk->page_bytes,
                          POSIX_FADV_WILLNEED);
    }
}

static trp_status page_walk(struct tree *tree, uint64_t number, uint64_t from, unsigned level);

static trp_status branch_walk(struct tree *tree, uint64_t number, const uint8_t *page,
                              unsigned level)
{
    struct walk *walk = tree->walk;
    size_t count = page_nodes(page);
    TRP_TRY(nodes_check(walk, number, page, true));
    for (size_t index = 0; index < count; index++) {
        struct node node;
        node_read(walk, page, index, true, &node);
        if (index > 0 && !key_accept(tree, node.key, false))
            return damaged(number, "an entry is out of place");
        if (index % AHEAD_PAGES == 0)
            children_prefetch(walk, page, index);
        TRP_TRY(page_walk(tree, node.child, number, level + 1));
    }
    tree->branches++;
    return count > 0 ? TRP_OK : damaged(number, "an empty branch");
}

static trp_status page_walk(struct tree *tree, uint64_t number, uint64_t from, unsigned level)
{
    struct walk *walk = tree->walk;
    uint8_t *page = tree->pages + level * walk->page_bytes;
    if (walk->goes_on && walk->asked++ % ASK_PAGES == 0)
        TRP_TRY(walk->goes_on());
    TRP_TRY(pages_use(walk, number, 1, from));
    TRP_TRY(page_read(walk, number, page));
    bool leaf = page_header(page).flags == PAGE_LEAF;
    if (leaf != (level + 1 == tree->record.depth))
        return damaged(number, "it is at the wrong depth");
    return leaf ? leaf_walk(tree, number, page) : branch_walk(tree, number, page, level);
}

static bool tree_adds_up(const struct tree *tree)
{
    const struct tree_record *record = &tree->record;
    return record->branch_pages == tree->branches && record->leaf_pages == tree->leaves &&
           record->overflow_pages == tree->overflows && record->entries == tree->entries;
}

static trp_status tree_walk(struct walk *walk, enum kind kind, const struct tree_record *record,
                            uint64_t from)
{
    static const uint16_t flags[] = {
        [KIND_MAIN] = 0, [KIND_FREE] = TREE_INTEGER_KEYS, [KIND_STORE] = TREE_INTEGER_KEYS};
    struct tree tree = {.walk = walk, .kind = kind, .record = *record};
    bool empty = record->root == UINT64_MAX;
    if ((record->flags & ~ENV_NO_SUBDIR) != flags[kind] || record->depth > TREE_DEPTH_MAX ||
        (record->depth == 0) != empty)
        return damaged(from, "the root of a tree is wrong");
    trp_status status = TRP_OK;
    if (!empty) {
        tree.pages = xmalloc(record->depth * walk->page_bytes);
        status = page_walk(&tree, record->root, from, 0);
        free(tree.pages);
    }
    if (status == TRP_OK && !tree_adds_up(&tree))
        return damaged(from, "a tree has more or fewer pages or entries than it says");
    return status;
}

/* ---- the file ------------------------------------------------------------------------------- */

static trp_status meta_read(const struct walk *walk, uint64_t number, struct meta *out)
{
    struct page_header header;
    uint64_t offset = number * walk->page_bytes;
    TRP_TRY(read_at(walk, offset, &header, sizeof header));
    TRP_TRY(read_at(walk, offset + sizeof header, out, sizeof *out));
    if (header.number != number || !(header.flags & PAGE_META) || out->magic != META_MAGIC ||
        out->version != VERSION || out->address != 0)
        return damaged(number, "it is not how LMDB's files begin");
    if (out->free_tree.page_bytes != walk->page_bytes || out->map_bytes > 2 * STORE_MAP_BYTES_MAX ||
        out->last_page < 1 || out->last_page >= out->map_bytes / walk->page_bytes)
        return damaged(number, "its sizes are wrong");
    return TRP_OK;
}

/* Both are read: LMDB takes the newer one, and writes the other next. */
static trp_status metas_read(struct walk *walk)
{
    struct meta metas[2];
    TRP_TRY(meta_read(walk, 0, &metas[0]));
    TRP_TRY(meta_read(walk, 1, &metas[1]));
    unsigned newer = metas[0].txn < metas[1].txn;
    walk->meta = metas[newer];
    walk->pages = walk->meta.last_page + 1;
    if (metas[newer].txn == 0 || metas[newer].txn % 2 != newer)
        return damaged(newer, "it has another's number");
    return TRP_OK;
}

static trp_status file_walk(struct walk *walk)
{
    struct stat info;
    if (fstat(walk->fd, &info) != 0)
        return store_errno(errno, walk->path, "open");
    TRP_TRY(metas_read(walk));
    if ((uint64_t)info.st_size / walk->page_bytes < walk->pages)
        return trp_fail(TRP_DATA_LOSS, "is cut short, %" PRIu64 " bytes of %" PRIu64,
                        (uint64_t)info.st_size, walk->pages * walk->page_bytes);
    if (walk->depth == WALK_METAS)
        return TRP_OK;
    walk->used = xcalloc(walk->pages / 8 + 1, 1);
    walk->places = xcalloc(walk->page_bytes / 2, sizeof *walk->places);
    TRP_TRY(tree_walk(walk, KIND_FREE, &walk->meta.free_tree, 0));
    return tree_walk(walk, KIND_MAIN, &walk->meta.main_tree, 0);
}

trp_status store_walk(const char *path, enum walk_depth depth, trp_status (*goes_on)(void))
{
    struct walk walk = {.path = path,
                        .depth = depth,
                        .goes_on = goes_on,
                        .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE)};
    walk.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (walk.fd < 0)
        return store_errno(errno, path, "open");
    trp_status status = file_walk(&walk);
    free(walk.used);
    free(walk.places);
    close(walk.fd);
    return status;
}
