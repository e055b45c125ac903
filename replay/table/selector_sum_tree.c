/* Prioritized: P(i) = p_i^exponent / sum, by a tree in which every node is the sum of 16 children.
 *
 * A node's children are 128 contiguous bytes, so a draw at a million items touches five nodes and
 * mostly misses the cache once. An update writes the weight and notes the node above it; the sums
 * of noted nodes are made before the next draw, level by level, each node once, however many of
 * its children changed. (Summing at once would also read a vector right behind the store of one of
 * its lanes, which stalls: 170 ns instead of 30.) A sum is always added up anew from its 16
 * children in one fixed order: it depends on the weights alone, not on how they came about, so it
 * never drifts and never needs a rebuild. Weights are capped so that no sum can overflow. While all
 * weights are zero every item is drawn alike, as Reverb does: an item of weight zero has -0.0, a
 * slot without one 0.0, so the weights are also the set of members. Memory of slots that were never
 * used is never touched: 8.6 bytes an item. */
#include "selector_impl.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

enum {
    FAN_OUT = 16,
    LEVELS_MAX = 8, /* 16^8 = 2^32 slots */
    PICK_BLOCK = 32,
    GUESSES_MAX = 64,  /* at members among slots; used slots are given out again first */
    PENDING_MAX = 256, /* 32 KB of children: they stay in the first cache until they are read */
};

/* 2^31 weights of 2^992 make 2^1023, which is finite. */
#define WEIGHT_MAX 0x1p992

struct sum_tree {
    struct selector base;
    double *levels[LEVELS_MAX]; /* [0]: weights by slot; the last one has one node's children */
    void *memory[LEVELS_MAX];   /* of the levels, which are aligned in it */
    uint32_t level_count, capacity;
    uint32_t count, end; /* items; behind the highest slot that was ever used */
    double total;        /* right while nothing is pending */
    uint64_t *noted;     /* bits by node above the weights */
    uint32_t pending[PENDING_MAX], pending_count;
};

typedef double lanes __attribute__((vector_size(32), may_alias));

static double node_sum(const double *children)
{
    const lanes *v = (const lanes *)children;
    lanes sum = (v[0] + v[1]) + (v[2] + v[3]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The first whole node in a level's memory. */
static double *level_start(void *memory)
{
    uintptr_t size = FAN_OUT * sizeof(double);
    return (double *)(((uintptr_t)memory + size - 1) / size * size);
}

/* Sums of all nodes that have slots; only after growing. */
static void sum_tree_fill(struct sum_tree *tree)
{
    uint32_t used = tree->end;
    for (uint32_t level = 1; level < tree->level_count; level++) {
        used = (used + FAN_OUT - 1) / FAN_OUT;
        for (uint32_t i = 0; i < used; i++)
            tree->levels[level][i] = node_sum(tree->levels[level - 1] + (size_t)i * FAN_OUT);
    }
    tree->total = node_sum(tree->levels[tree->level_count - 1]);
}

static void sum_tree_grow(struct sum_tree *tree, uint32_t slot)
{
    uint32_t sizes[LEVELS_MAX] = {slots_capacity(slot)};
    uint32_t level_count = 1;
    while (sizes[level_count - 1] > FAN_OUT) {
        uint32_t below = sizes[level_count - 1] / FAN_OUT;
        sizes[level_count++] = (below + FAN_OUT - 1) / FAN_OUT * FAN_OUT; /* whole nodes */
    }
    for (uint32_t level = 0; level < level_count; level++) {
        void *memory = xcalloc(sizes[level] + FAN_OUT, sizeof(double)); /* pages not touched yet */
        double *grown = level_start(memory);
        if (level == 0 && tree->end > 0)
            memcpy(grown, tree->levels[0], tree->end * sizeof(double));
        free(tree->memory[level]);
        tree->memory[level] = memory;
        tree->levels[level] = grown;
    }
    tree->level_count = level_count;
    tree->capacity = sizes[0];
    free(tree->noted);
    tree->noted = xcalloc(tree->capacity / FAN_OUT / 64 + 1, sizeof *tree->noted);
    tree->pending_count = 0;
    sum_tree_fill(tree);
}

/* Notes a node unless it is; whether it was not. */
static bool sum_tree_note(struct sum_tree *tree, uint32_t node)
{
    uint64_t bit = UINT64_C(1) << node % 64;
    bool fresh = !(tree->noted[node / 64] & bit);
    tree->noted[node / 64] |= bit;
    return fresh;
}

/* Makes the sums of the pending nodes and of all above them. */
static void sum_tree_settle(struct sum_tree *tree)
{
    uint32_t *pending = tree->pending;
    uint32_t count = tree->pending_count;
    for (uint32_t level = 1; level < tree->level_count; level++) {
        const double *children = tree->levels[level - 1];
        for (uint32_t i = 0; i < count; i++) {
            tree->noted[pending[i] / 64] = 0; /* its neighbours are pending too, or not noted */
            tree->levels[level][pending[i]] = node_sum(children + (size_t)pending[i] * FAN_OUT);
        }
        uint32_t above = 0;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t node = pending[i] / FAN_OUT;
            if (sum_tree_note(tree, node))
                pending[above++] = node;
        }
        count = above;
    }
    for (uint32_t i = 0; i < count; i++)
        tree->noted[pending[i] / 64] = 0;
    tree->pending_count = 0;
    tree->total = node_sum(tree->levels[tree->level_count - 1]);
}

/* Of an item: its sign bit is set when it is zero. */
static double weight_of(const struct sum_tree *tree, double priority)
{
    if (priority == 0)
        return -0.0;
    double exponent = tree->base.kind.exponent;
    double weight = exponent == 1 ? priority : pow(priority, exponent);
    if (weight == 0)
        return -0.0;
    return weight < WEIGHT_MAX ? weight : WEIGHT_MAX;
}

static bool sum_tree_has(const struct sum_tree *tree, uint32_t slot)
{
    double weight = tree->levels[0][slot];
    return weight > 0 || signbit(weight);
}

static void sum_tree_set(struct sum_tree *tree, uint32_t slot, double weight)
{
    tree->levels[0][slot] = weight;
    if (!sum_tree_note(tree, slot / FAN_OUT))
        return;
    const double *children = tree->levels[0] + slot / FAN_OUT * FAN_OUT;
    __builtin_prefetch(children);
    __builtin_prefetch(children + FAN_OUT / 2);
    tree->pending[tree->pending_count++] = slot / FAN_OUT;
    if (tree->pending_count == PENDING_MAX)
        sum_tree_settle(tree);
}

static void sum_tree_cleanup(struct selector *selector)
{
    struct sum_tree *tree = (struct sum_tree *)selector;
    for (uint32_t level = 0; level < LEVELS_MAX; level++)
        free(tree->memory[level]);
    free(tree->noted);
}

static void sum_tree_insert(struct selector *selector, uint32_t slot, double priority)
{
    struct sum_tree *tree = (struct sum_tree *)selector;
    if (slot >= tree->capacity)
        sum_tree_grow(tree, slot);
    assert(!sum_tree_has(tree, slot));
    tree->count++;
    tree->end = slot < tree->end ? tree->end : slot + 1;
    sum_tree_set(tree, slot, weight_of(tree, priority));
}

static void sum_tree_update(struct selector *selector, uint32_t slot, double priority)
{
    struct sum_tree *tree = (struct sum_tree *)selector;
    sum_tree_set(tree, slot, weight_of(tree, priority));
}

static void sum_tree_remove(struct selector *selector, uint32_t slot)
{
    struct sum_tree *tree = (struct sum_tree *)selector;
    assert(sum_tree_has(tree, slot));
    tree->count--;
    sum_tree_set(tree, slot, 0);
}

/* Which of four masses in a row holds `target`; it becomes the mass from that one's left edge. */
static uint32_t find_in_4(double a, double b, double c, double *target)
{
    double left[4] = {0, a, a + b, a + b + c};
    double t = *target;
    uint32_t at = (uint32_t)(t >= left[1]) + (uint32_t)(t >= left[2]) + (uint32_t)(t >= left[3]);
    *target = t - left[at];
    return at;
}

/* The child that holds `target`, a mass from the node's left edge; it becomes the mass from the
 * child's left edge. Children lie in order of columns (0 4 8 12, 1 5 9 13, ...), which takes two
 * short steps without branches instead of a scan that the processor cannot foresee. Rounding can
 * leave the target behind the right edge: then it is the last child that has any mass, and the
 * target stays behind the edge. */
static uint32_t node_find(const double *children, double *target)
{
    const lanes *v = (const lanes *)children;
    lanes columns = (v[0] + v[1]) + (v[2] + v[3]);
    uint32_t column = find_in_4(columns[0], columns[1], columns[2], target);
    const double *c = children + column;
    uint32_t child = find_in_4(c[0], c[4], c[8], target) * 4 + column;
    if (children[child] > 0)
        return child;
    child = FAN_OUT - 1;
    while (children[child] == 0)
        child--;
    *target = children[child];
    return child;
}

/* Every member alike. Most slots are used, so that guessing finds one soon; where few are left of
 * many, members are counted up to the one that is meant. */
static uint32_t sum_tree_pick_any(const struct sum_tree *tree, trp_rng *rng)
{
    for (int i = 0; i < GUESSES_MAX; i++) {
        uint32_t slot = (uint32_t)trp_rng_below(rng, tree->end);
        if (sum_tree_has(tree, slot))
            return slot;
    }
    uint64_t rest = trp_rng_below(rng, tree->count);
    uint32_t slot = 0;
    while (!sum_tree_has(tree, slot) || rest-- > 0)
        slot++;
    return slot;
}

static uint32_t sum_tree_pick(struct selector *selector, trp_rng *rng, double *probability)
{
    struct sum_tree *tree = (struct sum_tree *)selector;
    assert(tree->count > 0);
    if (tree->pending_count > 0)
        sum_tree_settle(tree);
    if (tree->total == 0) {
        *probability = 1.0 / tree->count;
        return sum_tree_pick_any(tree, rng);
    }
    double target = trp_rng_double(rng) * tree->total;
    size_t node = 0;
    for (uint32_t level = tree->level_count; level-- > 0;)
        node = node * FAN_OUT + node_find(tree->levels[level] + node * FAN_OUT, &target);
    *probability = tree->levels[0][node] / tree->total;
    return (uint32_t)node;
}

/* Down the tree side by side, so that their nodes come from memory at the same time. */
static void sum_tree_pick_block(struct sum_tree *tree, trp_rng *rng, uint32_t count,
                                uint32_t *slots, double *probabilities)
{
    double targets[PICK_BLOCK];
    for (uint32_t i = 0; i < count; i++) {
        targets[i] = trp_rng_double(rng) * tree->total;
        slots[i] = 0;
    }
    for (uint32_t level = tree->level_count; level-- > 0;) {
        const double *nodes = tree->levels[level], *below = level ? tree->levels[level - 1] : nodes;
        for (uint32_t i = 0; i < count; i++) {
            size_t node = (size_t)slots[i] * FAN_OUT;
            slots[i] = (uint32_t)node + node_find(nodes + node, &targets[i]);
            const double *next = below + (level ? (size_t)slots[i] * FAN_OUT : 0);
            __builtin_prefetch(next);
            __builtin_prefetch(next + FAN_OUT / 2);
        }
    }
    for (uint32_t i = 0; i < count; i++)
        probabilities[i] = tree->levels[0][slots[i]] / tree->total;
}

static void sum_tree_pick_many(struct selector *selector, trp_rng *rng, uint32_t count,
                               uint32_t *slots, double *probabilities)
{
    struct sum_tree *tree = (struct sum_tree *)selector;
    if (tree->pending_count > 0)
        sum_tree_settle(tree);
    for (uint32_t at = 0, block; at < count; at += block) {
        block = count - at < PICK_BLOCK ? count - at : PICK_BLOCK;
        if (tree->total > 0) {
            sum_tree_pick_block(tree, rng, block, slots + at, probabilities + at);
            continue;
        }
        for (uint32_t i = at; i < at + block; i++)
            slots[i] = sum_tree_pick(selector, rng, &probabilities[i]);
    }
}

const struct selector_impl selector_sum_tree = {
    .bytes = sizeof(struct sum_tree),
    .cleanup = sum_tree_cleanup,
    .insert = sum_tree_insert,
    .update = sum_tree_update,
    .remove = sum_tree_remove,
    .pick = sum_tree_pick,
    .pick_many = sum_tree_pick_many,
};
