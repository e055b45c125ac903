/* A table: items, a sampler, a remover and a limiter, in memory only. It owns its items; what
 * leaves it is handed to the caller, who settles it with the store. No locks, no clock, no I/O. */
#ifndef TRP_REPLAY_TABLE_TABLE_H
#define TRP_REPLAY_TABLE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/replay.h>
#include "core/map.h"
#include "replay/model/item.h"
#include "replay/model/table_facts.h"

struct table;

/* `seed` counts unless the options have one. */
struct table *table_create(const trp_table_options *options, uint32_t id, uint64_t seed);

/* Frees the table and calls `release` for every item. NULL is fine. */
typedef void table_release(void *arg, struct item *item);
void table_destroy(struct table *table, table_release *release, void *arg);

/* How much work it is to let the item go: 1, or more if it is large. */
uint64_t table_weight(const struct item *item);

/* The same in pieces: items of up to `*weight` in all, which is less afterwards by theirs. False:
 * all is done. After the first, nothing else is asked of the table. */
bool table_destroy_step(struct table *table, uint64_t *weight, table_release *release, void *arg);

/* An empty one of the same options, whose counters begin anew, and whose draws go on as this one's
 * would: what a table is after Reverb's Reset. */
struct table *table_successor(const struct table *table, uint32_t id);

/* A restored table gets its counters in it; otherwise they are only looked at. */
struct table_facts *table_facts(struct table *table);

/* Puts back an item that stays in the store until it is wanted: no eviction, no counting, not yet
 * found by key. A priority that a selector refuses (the table had others before) counts as 0 for
 * it. `lazy_load` gives the item then, or NULL when it cannot be had; if it is *damaged, the table
 * has it no longer, and counts a delete. Until the index is ready such a table is only drawn from
 * and looked at (sample_many, slot, oldest); its bytes and episodes are of the items it has. */
typedef struct item *table_lazy_load(void *arg, uint64_t seq, bool in_turn, bool *damaged);
void table_set_lazy_load(struct table *table, table_lazy_load *lazy_load, void *arg);
void table_restore(struct table *table, uint64_t seq, double priority);

/* Brings up to `count` restored items and indexes them by key; true while some are missing. Until
 * it says false, table_find() must not be called. */
bool table_index_step(struct table *table, uint32_t count);
bool table_index_ready(const struct table *table);

struct item *table_find(const struct table *table, uint64_t key); /* NULL: unknown */

/* Fetches the memory that a look-up of `key` needs, ahead of it. */
void table_prefetch(const struct table *table, uint64_t key);

/* The same for many keys at once, which is faster: a table is larger than any cache. */
void table_find_many(const struct table *table, const uint64_t *keys, uint32_t count,
                     struct item **items);

/* INVALID_ARGUMENT (Reverb's words) when a selector of such a table refuses the priority. */
trp_status table_check_priority(const trp_table_options *options, double priority);

/* A new key: adds to both selectors, then evicts with the remover while over max_size, then counts
 * the insert (that order is Reverb's; the new item may be its own victim). `*evicted` is the
 * victim, now the caller's, or NULL. */
void table_insert(struct table *table, struct item *item, struct item **evicted);

/* When over max_size or max_bytes: takes the remover's choice out and counts the delete; it is the
 * caller's. NULL otherwise. For restored tables whose max_size shrank: call until NULL. */
struct item *table_evict(struct table *table);

/* Fetches the memory that evictions will look at. The item that goes next, or NULL: not known. */
const struct item *table_prefetch_victim(const struct table *table);

/* A known item gets another priority. */
void table_update(struct table *table, struct item *item, double priority);

/* Takes a known item out and counts the delete; it is the caller's. */
void table_remove(struct table *table, struct item *item);

/* Draws one, counts it, removes it when its times are used up. The limiter allowed it. */
void table_sample(struct table *table, struct table_sample *sample);

/* `count` of them, all of which the limiter allows, from a table whose items are not removed by
 * sampling (max_times_sampled 0): faster than one by one, and the same. Fewer: one is lost. */
uint32_t table_sample_many(struct table *table, uint32_t count, struct table_sample *samples);

/* The same, of those whose seqs are not in `drawn` (slots + 1 by seq), which gets it; when all are,
 * or DISTINCT_ITEMS_MAX, `drawn` is emptied before. For samplers that draw. */
void table_sample_distinct(struct table *table, struct map *drawn, struct table_sample *sample);

/* Do these options have another sampler or remover than the table? */
bool table_selectors_differ(const struct table *table, const trp_table_options *options);

/* The table goes on with `options`, whose name, sampler and remover are its own. Call table_evict()
 * until NULL afterwards. */
void table_alter(struct table *table, const trp_table_options *options);

/* Items that the remover would take, more or less, if these were its options. */
int64_t table_over(const struct table *table, const trp_table_options *options);

/* Items that were sampled `times` times or more, and the next of them from `*slot` on, which is
 * taken out, counted as a delete, and the caller's; NULL: no more. The index is ready. */
int64_t table_count_sampled(const struct table *table, int32_t times);
struct item *table_take_sampled(struct table *table, int32_t times, uint32_t *slot);

/* For walks in slices: the item in a slot, or NULL; slots are below table_slots(). An item keeps
 * its slot; a slot that becomes free may get another item. */
struct item *table_slot(const struct table *table, uint32_t slot);
uint32_t table_slots(const struct table *table);

/* The item inserted first of those that are there, as far as a look at some thousand slots tells:
 * exact where a selector is fifo, and after a few calls otherwise. NULL: empty. */
const struct item *table_oldest(struct table *table);

#endif
