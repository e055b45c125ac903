/* The inside of an engine, shared by engine*.c only. */
#ifndef TRP_REPLAY_ENGINE_INTERNAL_H
#define TRP_REPLAY_ENGINE_INTERNAL_H

#include "core/buffer.h"
#include "core/clock.h"
#include "engine.h"
#include "removed.h"
#include "replay/store/store.h"
#include "replay/table/table.h"

struct engine {
    struct store *store;
    struct engine_table **tables;
    size_t table_count;
    uint64_t seed;
    struct dedup_window removed;
    struct list deliveries; /* those with items */
    struct list clearings;  /* see clear.c; the next one first */
    uint64_t debt;          /* weight that is to go for what came meanwhile */
    int64_t wall_ns;
    bool read_only, without_items;
    bool synced;      /* a commit costs a write to the disk */
    bool opened;      /* the tables say what the store says */
    bool ready;       /* see engine_ready() */
    bool lost;        /* an item could not be brought: it never will be */
    uint64_t damaged; /* items that were dropped */

    bool refusing;      /* inserts, for want of room */
    int64_t refused_ns; /* when the last one was */
    bool full;          /* the last commit found no room for all of its group yet */

    bool important; /* noted since the last commit: something that a client waits for; */
    bool sampled;   /* counts only */
    uint32_t sample_groups;
    struct engine_table *seen; /* while loading: the table of the last item */
};

/* Appends a table. */
struct engine_table *engine_table_add(struct engine *engine, const trp_table_options *options,
                                      uint32_t id);

static inline bool times_lower(int32_t before, int32_t after)
{
    return after > 0 && (before <= 0 || after < before);
}

/* Notes them for the table of this name, which there is afterwards; its id. */
uint32_t engine_options_put(struct engine *engine, const trp_table_options *options);

/* Items that go when max_times_sampled changes like this: 0 unless it is lower than before. */
int64_t engine_used_up(const struct table *table, int32_t before, int32_t after);

/* Takes out the items that go now that it was `before`; how many. */
int64_t engine_use_up(struct engine *engine, struct engine_table *table, int32_t before);

/* FAILED_PRECONDITION: for these options items would go: beyond their limits, or used up. */
trp_status engine_loss_check(const struct engine_table *table, const trp_table_options *options,
                             int64_t over, int64_t used);

/* The store's store_options.damage. */
void engine_item_damaged(void *engine, uint32_t table_id, uint64_t key, const char *what);

/* The engine has become ready: what was found damaged before goes. */
void engine_give_up_damaged(struct engine *engine);

/* A mistake in an item of the store that no sum shows; NULL: nothing is wrong. `options`: its
 * table's, NULL: there is none. `priority`: of a record of format 2, without a sum of it; or
 * NULL. */
const char *stored_item_wrong(const trp_table_options *options, trp_bytes trajectory,
                              uint32_t chunk_count, const double *priority);

/* Its tables' table_lazy_load; `arg` is the engine_table. */
struct item *engine_bring(void *arg, uint64_t seq, bool in_turn, bool *damaged);

/* The item is out of its table: its record goes too. */
void engine_item_drop(void *engine, struct item *item);

/* The same, and it is remembered, should its writer send it again. */
void engine_item_removed(struct engine *engine, struct engine_table *table, struct item *item);

/* ---- clear.c ---- */

/* Queues what is beyond the table's limits. */
void engine_shrink(struct engine *engine, struct engine_table *table);

/* Its deliveries are acked; table->table goes, with all items, and is the queue's from then on. */
void engine_truncate(struct engine *engine, struct engine_table *table);

/* A step, committed, for room that was refused. False: there is none to be had like this, or no
 * time for it. `until` is zeroed before the first. */
bool clear_commit(struct engine *engine, struct deadline *until);

/* Steps that are not done at the end of a life are left to the next one. */
void clearings_destroy(struct engine *engine, table_release *release);

/* Finds every table's insert_on_sample anew. */
void engine_feeds_find(struct engine *engine);

/* Its counters are written with the next commit, which there will be. */
void engine_table_mark_dirty(struct engine *engine, struct engine_table *table);

#endif
