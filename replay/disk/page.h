/* Pages as LMDB 0.9 lays them out in its file. Nothing here is believed before it was checked. */
#ifndef TRP_REPLAY_DISK_PAGE_H
#define TRP_REPLAY_DISK_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    PAGE_BRANCH = 0x01,
    PAGE_LEAF = 0x02,
    PAGE_OVERFLOW = 0x04,
    PAGE_META = 0x08,
    NODE_BIG = 0x01,     /* the value is in pages of its own */
    NODE_TREE = 0x02,    /* the value is the root of a tree */
    TREE_DEPTH_MAX = 32, /* LMDB's */
    META_MAGIC = 0xBEEFC0DE,
};

struct page_header {
    uint64_t number;
    uint16_t pad, flags;
    uint16_t lower, upper; /* of an overflow page: how many pages, 32 bits */
};
enum { PAGE_HEADER_BYTES = sizeof(struct page_header) };
_Static_assert(PAGE_HEADER_BYTES == 16, "LMDB's PAGEHDRSZ");

struct tree_record {
    uint32_t page_bytes; /* in the first tree only */
    uint16_t flags, depth;
    uint64_t branch_pages, leaf_pages, overflow_pages, entries;
    uint64_t root; /* UINT64_MAX: an empty tree */
};
_Static_assert(sizeof(struct tree_record) == 48, "LMDB's MDB_db");

struct node_header {
    uint16_t low, high, flags, key_bytes;
};
_Static_assert(sizeof(struct node_header) == 8, "LMDB's NODESIZE");

/* A branch's: the page below. */
static inline uint64_t node_child(struct node_header node)
{
    return node.low | (uint64_t)node.high << 16 | (uint64_t)node.flags << 32;
}

/* A leaf's: how long the value is. */
static inline uint64_t node_value_bytes(struct node_header node)
{
    return node.low | (uint64_t)node.high << 16;
}

static inline struct page_header page_header(const uint8_t *page)
{
    struct page_header header;
    memcpy(&header, page, sizeof header);
    return header;
}

static inline size_t page_nodes(const uint8_t *page)
{
    return (page_header(page).lower - sizeof(struct page_header)) / 2;
}

/* A node of a branch or a leaf. NULL: it is not in the page; else its key, the value behind. */
static inline const uint8_t *page_node(const uint8_t *page, size_t page_bytes, size_t index,
                                       struct node_header *node)
{
    uint16_t offset;
    memcpy(&offset, page + sizeof(struct page_header) + index * sizeof offset, sizeof offset);
    size_t end = offset + sizeof *node;
    if (end > page_bytes)
        return NULL;
    memcpy(node, page + offset, sizeof *node);
    return end + node->key_bytes <= page_bytes ? page + end : NULL;
}

/* Whether these are page `number`, of branches or of leaves as `flags` says, and its nodes are
 * where some can be. */
static inline bool page_is(const uint8_t *page, size_t page_bytes, uint64_t number, uint16_t flags)
{
    struct page_header header = page_header(page);
    return header.number == number && header.flags == flags && header.lower >= sizeof header &&
           header.lower <= page_bytes;
}

/* A node's key, of a tree of numbers; 0: it has none, as the first of a branch. */
static inline uint64_t page_key(const uint8_t *page, size_t page_bytes, size_t index)
{
    struct node_header node;
    uint64_t key = 0;
    const uint8_t *at = page_node(page, page_bytes, index, &node);
    if (at && node.key_bytes == sizeof key)
        memcpy(&key, at, sizeof key);
    return key;
}

/* The page below a branch's node; UINT64_MAX: there is no such node. */
static inline uint64_t page_child(const uint8_t *page, size_t page_bytes, size_t index)
{
    struct node_header node;
    bool there = index < page_nodes(page) && page_node(page, page_bytes, index, &node);
    return there ? node_child(node) : UINT64_MAX;
}

/* Is this where a file of LMDB begins? */
static inline int page_is_meta(const uint8_t *page)
{
    uint32_t magic;
    memcpy(&magic, page + sizeof(struct page_header), sizeof magic);
    return magic == META_MAGIC;
}

/* A record of the free list begins with how many pages it has. */
static inline uint64_t free_record_pages(const uint8_t *value, size_t bytes)
{
    uint64_t count = 0;
    if (bytes >= sizeof count)
        memcpy(&count, value, sizeof count);
    return count;
}

#endif
