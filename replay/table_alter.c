/* A table goes on with other options. */
#include "table_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"

/* Where an item is and when it came; sorting pointers would miss the cache at each comparison. */
struct arrival {
    uint64_t seq;
    uint32_t slot;
};

static int arrival_compare(const void *left, const void *right)
{
    uint64_t a = ((const struct arrival *)left)->seq, b = ((const struct arrival *)right)->seq;
    return a < b ? -1 : a > b;
}

/* The items, in the order of insertion where `kind` remembers it; the caller frees. */
static struct arrival *table_arrivals(const struct table *table, trp_selector_kind kind)
{
    struct arrival *arrivals = xmalloc((table->slot_count + 1) * sizeof *arrivals);
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < table->slot_count; slot++)
        if (table->items[slot])
            arrivals[count++] = (struct arrival){table->items[slot]->seq, slot};
    if (kind != TRP_UNIFORM && kind != TRP_PRIORITIZED)
        qsort(arrivals, count, sizeof *arrivals, arrival_compare);
    return arrivals;
}

static bool selector_same(trp_selector a, trp_selector b)
{
    return a.kind == b.kind && a.exponent == b.exponent;
}

static void selector_replace(const struct table *table, struct selector **selector,
                             trp_selector kind)
{
    struct arrival *arrivals = table_arrivals(table, kind.kind);
    selector_destroy(*selector);
    *selector = selector_create(kind);
    for (int64_t i = 0; i < table_size(table); i++)
        selector_insert(*selector, arrivals[i].slot,
                        priority_for(*selector, table->items[arrivals[i].slot]->priority));
    free(arrivals);
}

void table_alter(struct table *table, const trp_table_options *options)
{
    trp_table_options *old = table->options;
    table->options = trp_table_options_copy(options);
    table->limiter.options = table->options->limiter;
    if (table->options->seed && table->options->seed != old->seed)
        trp_rng_init(&table->rng, table->options->seed, table->id);
    if (!selector_same(old->sampler, table->options->sampler))
        selector_replace(table, &table->sampler, table->options->sampler);
    if (!selector_same(old->remover, table->options->remover))
        selector_replace(table, &table->remover, table->options->remover);
    trp_table_options_destroy(old);
}

int64_t table_over(const struct table *table, const trp_table_options *options)
{
    int64_t size = table_size(table), over = size - options->max_size, over_bytes = 0;
    if (options->max_bytes && table->bytes > options->max_bytes) /* then there are items */
        over_bytes = (int64_t)((double)(table->bytes - options->max_bytes) /
                               ((double)table->bytes / (double)size)) +
                     1;
    over = over > over_bytes ? over : over_bytes;
    return over > 0 ? over : 0;
}

/* Items lie anywhere in memory. */
static bool slot_sampled(const struct table *table, uint32_t slot, int32_t times)
{
    enum { AHEAD = 16 };
    if (slot + AHEAD < table->slot_count && table->items[slot + AHEAD])
        __builtin_prefetch(&table->items[slot + AHEAD]->times_sampled);
    return table->items[slot] && table->items[slot]->times_sampled >= times;
}

int64_t table_count_sampled(const struct table *table, int32_t times)
{
    int64_t count = 0;
    assert(table_index_ready(table));
    for (uint32_t slot = 0; slot < table->slot_count; slot++)
        count += slot_sampled(table, slot, times);
    return count;
}

struct item *table_take_sampled(struct table *table, int32_t times, uint32_t *slot)
{
    assert(table_index_ready(table));
    while (*slot < table->slot_count && !slot_sampled(table, *slot, times))
        ++*slot;
    if (*slot >= table->slot_count)
        return NULL;
    struct item *item = table->items[*slot];
    table_remove(table, item);
    return item;
}
