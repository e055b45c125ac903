/* Prioritized: P(i) = p_i^exponent / sum, by a tree in which every node is the sum of 16 children.
 *
 * A node's children are 128 contiguous bytes, so a draw or an update at a million items touches
 * five nodes and mostly one cache miss. An update adds the 16 children of each ancestor anew, in a
 * fixed order: sums depend on the weights alone, not on how they came about, so they never drift
 * and never need a rebuild. Weights are capped so that no sum can overflow. While all weights are
 * zero every item is drawn alike, as Reverb does. */
#include "selector_impl.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/limits.h"
#include "item.h"
#include "slot_set.h"

enum {
    FAN_OUT = 16,
    LEVELS_MAX = 8, /* 16^8 = 2^32 slots */
};

/* 2^31 weights of 2^992 make 2^1023, which is finite. */
#define WEIGHT_MAX 0x1p992

struct sum_tree {
    struct selector base;
    struct slot_set set;        /* for draws while all weights are zero */
    double *levels[LEVELS_MAX]; /* [0]: weights by slot; the last one has one node's children */
    uint32_t level_count, capacity;
    double total;
};

typedef double lanes __attribute__((vector_size(32), may_alias));

static double node_sum(const double *children)
{
    const lanes *v = (const lanes *)children;
    lanes sum = (v[0] + v[1]) + (v[2] + v[3]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Entries of a level, whole nodes. */
static uint32_t level_size(uint32_t below)
{
    return (below / FAN_OUT + FAN_OUT - 1) / FAN_OUT * FAN_OUT;
}

/* Sums of all nodes; only after growing. */
static void sum_tree_fill(struct sum_tree *tree, const uint32_t *sizes)
{
    for (uint32_t level = 1; level < tree->level_count; level++) {
        for (uint32_t i = 0; i < sizes[level - 1] / FAN_OUT; i++)
            tree->levels[level][i] = node_sum(tree->levels[level - 1] + (size_t)i * FAN_OUT);
    }
    tree->total = node_sum(tree->levels[tree->level_count - 1]);
}

static void sum_tree_grow(struct sum_tree *tree, uint32_t slot)
{
    uint32_t sizes[LEVELS_MAX] = {slots_capacity(slot)};
    uint32_t level_count = 1;
    while (sizes[level_count - 1] > FAN_OUT) {
        sizes[level_count] = level_size(sizes[level_count - 1]);
        level_count++;
    }
    for (uint32_t level = 0; level < level_count; level++) {
        size_t bytes = sizes[level] * sizeof(double);
        double *grown = xaligned(FAN_OUT * sizeof(double), bytes);
        memset(grown, 0, bytes);
        if (level == 0 && tree->capacity > 0)
            memcpy(grown, tree->levels[0], tree->capacity * sizeof(double));
        free(tree->levels[level]);
        tree->levels[level] = grown;
    }
    tree->level_count = level_count;
    tree->capacity = sizes[0];
    sum_tree_fill(tree, sizes);
}

static double weight_of(const struct sum_tree *tree, double priority)
{
    if (priority == 0)
        return 0;
    double weight = pow(priority, tree->base.kind.exponent);
    return weight < WEIGHT_MAX ? weight : WEIGHT_MAX;
}

static void sum_tree_set(struct sum_tree *tree, uint32_t slot, double weight)
{
    tree->levels[0][slot] = weight;
    size_t node = slot / FAN_OUT;
    for (uint32_t level = 1; level < tree->level_count; level++) {
        tree->levels[level][node] = node_sum(tree->levels[level - 1] + node * FAN_OUT);
        node /= FAN_OUT;
    }
    tree->total = node_sum(tree->levels[tree->level_count - 1]);
}

static void sum_tree_destroy(struct selector *selector)
{
    struct sum_tree *tree = (struct sum_tree *)selector;
    for (uint32_t level = 0; level < LEVELS_MAX; level++)
        free(tree->levels[level]);
    slot_set_cleanup(&tree->set);
    free(tree);
}

static void sum_tree_insert(struct selector *selector, uint32_t slot, double priority)
{
    struct sum_tree *tree = (struct sum_tree *)selector;
    if (slot >= tree->capacity)
        sum_tree_grow(tree, slot);
    slot_set_insert(&tree->set, slot);
    sum_tree_set(tree, slot, weight_of(tree, priority));
}

static void sum_tree_update(struct selector *selector, uint32_t slot, double priority)
{
    struct sum_tree *tree = (struct sum_tree *)selector;
    assert(slot_set_has(&tree->set, slot));
    sum_tree_set(tree, slot, weight_of(tree, priority));
}

static void sum_tree_remove(struct selector *selector, uint32_t slot)
{
    struct sum_tree *tree = (struct sum_tree *)selector;
    slot_set_remove(&tree->set, slot);
    sum_tree_set(tree, slot, 0);
}

/* The child in which `target`, a mass from the node's left edge, falls; `target` becomes the mass
 * from the child's left edge. Rounding can leave it behind the right edge: then it is the last
 * child that has any mass, and stays behind the edge. */
static uint32_t node_find(const double *children, double *target)
{
    double left = *target;
    for (uint32_t i = 0; i < FAN_OUT; i++) {
        if (left < children[i]) {
            *target = left;
            return i;
        }
        left -= children[i];
    }
    uint32_t last = FAN_OUT - 1;
    while (children[last] == 0)
        last--;
    *target = children[last];
    return last;
}

static uint32_t sum_tree_pick(struct selector *selector, trp_rng *rng, double *probability)
{
    const struct sum_tree *tree = (const struct sum_tree *)selector;
    const struct slot_set *set = &tree->set;
    assert(set->count > 0);
    if (tree->total == 0) {
        *probability = 1.0 / set->count;
        return set->members[trp_rng_below(rng, set->count)];
    }
    double target = trp_rng_double(rng) * tree->total;
    size_t node = 0;
    for (uint32_t level = tree->level_count; level-- > 0;)
        node = node * FAN_OUT + node_find(tree->levels[level] + node * FAN_OUT, &target);
    *probability = tree->levels[0][node] / tree->total;
    return (uint32_t)node;
}

static void sum_tree_clear(struct selector *selector)
{
    struct sum_tree *tree = (struct sum_tree *)selector;
    slot_set_clear(&tree->set);
    uint32_t size = tree->capacity;
    for (uint32_t level = 0; level < tree->level_count; level++) {
        memset(tree->levels[level], 0, size * sizeof(double));
        size = level_size(size);
    }
    tree->total = 0;
}

static bool sum_tree_better(const struct selector *selector, uint32_t a, uint32_t b)
{
    const double *weights = ((const struct sum_tree *)selector)->levels[0];
    if (weights[a] != weights[b])
        return weights[a] > weights[b];
    return a < b;
}

static uint32_t sum_tree_top(const struct selector *selector, uint32_t count, uint32_t *slots)
{
    const struct slot_set *set = &((const struct sum_tree *)selector)->set;
    uint32_t *all = xmalloc(set->count * sizeof *all);
    for (uint32_t i = 0; i < set->count; i++)
        all[i] = set->members[i];
    uint32_t written = slots_best(selector, sum_tree_better, all, set->count, count);
    for (uint32_t i = 0; i < written; i++)
        slots[i] = all[i];
    free(all);
    return written;
}

static const struct selector_impl sum_tree_impl = {
    .destroy = sum_tree_destroy,
    .insert = sum_tree_insert,
    .update = sum_tree_update,
    .remove = sum_tree_remove,
    .pick = sum_tree_pick,
    .clear = sum_tree_clear,
    .top = sum_tree_top,
};

struct selector *selector_sum_tree_create(void)
{
    struct sum_tree *tree = xcalloc(1, sizeof *tree);
    tree->base.impl = &sum_tree_impl;
    return &tree->base;
}
