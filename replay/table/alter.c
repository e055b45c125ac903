/* A table goes on with other options: limiter, sizes, times sampled. Its selectors stay. */
#include "table_impl.h"

#include <assert.h>

/* Items lie anywhere in memory: fetches one of those to come. */
static void items_prefetch(const struct table *table, uint32_t slot)
{
    enum { AHEAD = 16 };
    if (slot + AHEAD < table->slot_count && table->items[slot + AHEAD])
        __builtin_prefetch(&table->items[slot + AHEAD]->times_sampled);
}

static bool selector_same(trp_selector a, trp_selector b)
{
    return a.kind == b.kind && a.exponent == b.exponent;
}

bool table_selectors_differ(const struct table *table, const trp_table_options *options)
{
    return !selector_same(table->options->sampler, options->sampler) ||
           !selector_same(table->options->remover, options->remover);
}

void table_alter(struct table *table, const trp_table_options *options)
{
    trp_table_options *old = table->options;
    assert(!table_selectors_differ(table, options));
    table->options = trp_table_options_copy(options);
    table->limiter.options = table->options->limiter;
    if (table->options->seed && table->options->seed != old->seed)
        trp_rng_init(&table->rng, table->options->seed, table->id);
    trp_table_options_destroy(old);
}

/* ---- smaller limits ------------------------------------------------------------------------- */

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

static bool slot_sampled(const struct table *table, uint32_t slot, int32_t times)
{
    items_prefetch(table, slot);
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
