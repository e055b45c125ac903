/* A table goes on with other options. Other selectors are made beforehand, from the items in the
 * order of their seqs, in pieces, while the ones that the table has serve: what is inserted
 * meanwhile comes behind all others, and what changes or goes does so in both, if it is in the new
 * ones already, which its seq tells. */
#include "table_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"

/* Items lie anywhere in memory: fetches one of those to come. */
static void items_prefetch(const struct table *table, uint32_t slot)
{
    enum { AHEAD = 16 };
    if (slot + AHEAD < table->slot_count && table->items[slot + AHEAD])
        __builtin_prefetch(&table->items[slot + AHEAD]->times_sampled);
}

/* ---- other selectors ------------------------------------------------------------------------ */

struct arrival {
    uint64_t seq;
    uint32_t slot;
};

/* Selectors that are made while the ones before them serve. */
struct rebuild {
    struct selector *sampler, *remover; /* NULL: stays as it is */
    uint64_t fed;                       /* items with seqs up to this are in them */
    struct arrivals late;               /* items that came since the beginning */
};

/* For so many; only the pages that are used will be there. */
static void arrivals_reserve(struct arrivals *arrivals, uint32_t count)
{
    if (count <= arrivals->capacity)
        return;
    arrivals->capacity = count;
    arrivals->at = xrealloc(arrivals->at, count * sizeof *arrivals->at);
}

static void arrivals_push(struct arrivals *arrivals, uint64_t seq, uint32_t slot)
{
    if (arrivals->count == arrivals->capacity)
        arrivals_reserve(arrivals, arrivals->capacity ? 2 * arrivals->capacity : 1024);
    arrivals->at[arrivals->count++] = (struct arrival){seq, slot};
}

static int arrival_compare(const void *left, const void *right)
{
    uint64_t a = ((const struct arrival *)left)->seq, b = ((const struct arrival *)right)->seq;
    return a < b ? -1 : a > b;
}

void arrivals_sort(struct arrivals *arrivals)
{
    if (arrivals->count > 0)
        qsort(arrivals->at, arrivals->count, sizeof *arrivals->at, arrival_compare);
}

void arrivals_cleanup(struct arrivals *arrivals)
{
    free(arrivals->at);
    *arrivals = (struct arrivals){0};
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

/* With its memory: to move that as it grows would stop everybody. */
static struct selector *selector_other(trp_selector old, trp_selector new, uint32_t slots)
{
    if (selector_same(old, new))
        return NULL;
    struct selector *selector = selector_create(new);
    selector_reserve(selector, slots);
    return selector;
}

void table_rebuild_begin(struct table *table, const trp_table_options *options)
{
    struct rebuild *rebuild = xcalloc(1, sizeof *rebuild);
    assert(!table->rebuild);
    rebuild->sampler = selector_other(table->options->sampler, options->sampler, table->slot_count);
    rebuild->remover = selector_other(table->options->remover, options->remover, table->slot_count);
    table->rebuild = rebuild;
}

bool table_rebuilds(const struct table *table)
{
    return table->rebuild;
}

void table_rebuild_end(struct table *table)
{
    struct rebuild *rebuild = table->rebuild;
    if (!rebuild)
        return;
    selector_destroy(rebuild->sampler);
    selector_destroy(rebuild->remover);
    arrivals_cleanup(&rebuild->late);
    free(rebuild);
    table->rebuild = NULL;
}

bool table_rebuild_collect(const struct table *table, struct arrivals *arrivals, uint32_t count)
{
    const struct arrivals *late = &table->rebuild->late;
    uint64_t end_seq = late->count ? late->at[0].seq : UINT64_MAX;
    if (arrivals->slot == 0)
        arrivals_reserve(arrivals, table->slot_count);
    for (; arrivals->slot < table->slot_count && count > 0; arrivals->slot++, count--) {
        const struct item *item = table->items[arrivals->slot];
        items_prefetch(table, arrivals->slot);
        if (item && item->seq < end_seq)
            arrivals_push(arrivals, item->seq, arrivals->slot);
    }
    return arrivals->slot < table->slot_count;
}

static void rebuild_feed(struct table *table, struct arrival arrival)
{
    struct rebuild *rebuild = table->rebuild;
    const struct item *item = table->items[arrival.slot];
    rebuild->fed = arrival.seq;
    if (!item || item->seq != arrival.seq)
        return; /* it has gone */
    if (rebuild->sampler)
        selector_insert(rebuild->sampler, item->slot,
                        priority_for(rebuild->sampler, item->priority));
    if (rebuild->remover)
        selector_insert(rebuild->remover, item->slot,
                        priority_for(rebuild->remover, item->priority));
}

bool table_rebuild_feed(struct table *table, struct arrivals *arrivals, uint32_t count)
{
    struct arrivals *late = &table->rebuild->late;
    for (; count > 0 && arrivals->next < arrivals->count; count--)
        rebuild_feed(table, arrivals->at[arrivals->next++]);
    for (; count > 0 && late->next < late->count; count--)
        rebuild_feed(table, late->at[late->next++]);
    return arrivals->next < arrivals->count || late->next < late->count;
}

void rebuild_insert(struct rebuild *rebuild, const struct item *item)
{
    arrivals_push(&rebuild->late, item->seq, item->slot);
}

void rebuild_update(struct rebuild *rebuild, const struct item *item)
{
    if (item->seq > rebuild->fed)
        return;
    if (rebuild->sampler)
        selector_update(rebuild->sampler, item->slot,
                        priority_for(rebuild->sampler, item->priority));
    if (rebuild->remover)
        selector_update(rebuild->remover, item->slot,
                        priority_for(rebuild->remover, item->priority));
}

void rebuild_remove(struct rebuild *rebuild, const struct item *item)
{
    if (item->seq > rebuild->fed)
        return;
    if (rebuild->sampler)
        selector_remove(rebuild->sampler, item->slot);
    if (rebuild->remover)
        selector_remove(rebuild->remover, item->slot);
}

static void selector_take(struct selector **selector, struct selector **next)
{
    if (!*next)
        return;
    selector_destroy(*selector);
    *selector = *next;
    *next = NULL;
}

void table_alter(struct table *table, struct arrivals *arrivals, const trp_table_options *options)
{
    trp_table_options *old = table->options;
    assert(arrivals || !table_selectors_differ(table, options));
    if (arrivals) {
        while (table_rebuild_feed(table, arrivals, UINT32_MAX))
            ;
        selector_take(&table->sampler, &table->rebuild->sampler);
        selector_take(&table->remover, &table->rebuild->remover);
        table_rebuild_end(table);
    }
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
