/* Max and min heap: a 4-ary heap of (key, stamp, slot). The stamp counts inserts and updates, so
 * among equal priorities the one that was touched least recently comes first; the order is total,
 * and a pick does not depend on the history of the array. Insert, update and remove are
 * O(log n), a pick is O(1). */
#include "selector_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "replay/model/item.h"

enum { ARITY = 4 };

struct heap_entry {
    double key; /* smaller is better: the negated priority for max_heap */
    uint64_t stamp;
    uint32_t slot;
};

struct heap {
    struct selector base;
    struct heap_entry *nodes;
    uint32_t *places; /* by slot: index into nodes */
    uint32_t count, capacity;
    uint64_t stamps;
};

static bool node_before(const struct heap_entry *a, const struct heap_entry *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    return a->stamp < b->stamp;
}

static void heap_put(struct heap *heap, uint32_t at, struct heap_entry node)
{
    heap->nodes[at] = node;
    heap->places[node.slot] = at;
}

static void heap_sift(struct heap *heap, uint32_t at, struct heap_entry node)
{
    while (at > 0 && node_before(&node, &heap->nodes[(at - 1) / ARITY])) {
        heap_put(heap, at, heap->nodes[(at - 1) / ARITY]);
        at = (at - 1) / ARITY;
    }
    for (;;) {
        uint64_t first = (uint64_t)at * ARITY + 1;
        uint64_t end = first + ARITY < heap->count ? first + ARITY : heap->count;
        uint64_t best = first;
        for (uint64_t child = first + 1; child < end; child++) {
            if (node_before(&heap->nodes[child], &heap->nodes[best]))
                best = child;
        }
        if (first >= end || !node_before(&heap->nodes[best], &node))
            break;
        heap_put(heap, at, heap->nodes[best]);
        at = (uint32_t)best;
    }
    heap_put(heap, at, node);
}

static struct heap_entry heap_node(struct heap *heap, uint32_t slot, double priority)
{
    bool max = heap->base.kind.kind == TRP_MAX_HEAP;
    return (struct heap_entry){
        .key = max ? -priority : priority, .stamp = heap->stamps++, .slot = slot};
}

static void heap_cleanup(struct selector *selector)
{
    struct heap *heap = (struct heap *)selector;
    free(heap->nodes);
    free(heap->places);
}

static void heap_insert(struct selector *selector, uint32_t slot, double priority)
{
    struct heap *heap = (struct heap *)selector;
    if (slot >= heap->capacity) {
        heap->capacity = slots_capacity(slot);
        heap->nodes = xrealloc(heap->nodes, heap->capacity * sizeof *heap->nodes);
        heap->places = xrealloc(heap->places, heap->capacity * sizeof *heap->places);
    }
    assert(heap->count < heap->capacity);
    heap->count++;
    heap_sift(heap, heap->count - 1, heap_node(heap, slot, priority));
}

static void heap_update(struct selector *selector, uint32_t slot, double priority)
{
    struct heap *heap = (struct heap *)selector;
    heap_sift(heap, heap->places[slot], heap_node(heap, slot, priority));
}

static void heap_remove(struct selector *selector, uint32_t slot)
{
    struct heap *heap = (struct heap *)selector;
    uint32_t at = heap->places[slot];
    assert(at < heap->count);
    assert(heap->nodes[at].slot == slot);
    heap->count--;
    if (at < heap->count)
        heap_sift(heap, at, heap->nodes[heap->count]);
}

static uint32_t heap_pick(struct selector *selector, trp_rng *rng, double *probability)
{
    (void)rng;
    const struct heap *heap = (const struct heap *)selector;
    assert(heap->count > 0);
    *probability = 1;
    return heap->nodes[0].slot;
}

const struct selector_impl selector_heap = {
    .bytes = sizeof(struct heap),
    .cleanup = heap_cleanup,
    .insert = heap_insert,
    .update = heap_update,
    .remove = heap_remove,
    .pick = heap_pick,
};
