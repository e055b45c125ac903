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
    struct list cleared;    /* tables that are taken apart, the next one first */
    uint64_t debt;          /* weight that they are to lose for what came meanwhile */
    int64_t wall_ns;
    bool read_only;
    bool synced;                 /* a commit costs a write to the disk */
    bool opened;                 /* the tables say what the store says */
    bool scanned;                /* the tables bring their items */
    bool ready;                  /* see engine_ready() */
    bool lost;                   /* an item could not be brought: it never will be */
    uint64_t damaged;            /* items that were dropped */
    struct buffer damaged_items; /* to be dropped when the engine is ready; see damage.c */

    bool refusing;      /* inserts, for want of room */
    int64_t refused_ns; /* when the last one was */
    bool full;          /* the last commit found no room for all of its group yet */

    bool important; /* noted since the last commit: something that a client waits for; */
    bool sampled;   /* counts only */
    uint32_t sample_groups;
    const struct trajectory *checked; /* while loading: the last one found valid */
    struct engine_table *seen;        /* and the table of the last item */
};

/* Appends a table. */
struct engine_table *engine_table_add(struct engine *engine, const trp_table_options *options,
                                      uint32_t id);

/* Items that go when max_times_sampled changes like this: 0 unless it is lower than before. */
int64_t engine_used_up(const struct table *table, int32_t before, int32_t after);

/* A line for each, up to a bound; all of them are counted. */
void engine_log_damage(struct engine *engine, const char *table, uint64_t key, const char *what);

/* The engine has become ready: what was found damaged before goes. */
void engine_give_up_damaged(struct engine *engine);

/* Its tables' table_lazy_load; `arg` is the engine_table. */
struct item *engine_bring(void *arg, uint64_t seq, bool in_turn, bool *damaged);

/* The item is out of its table: its record goes too. */
void engine_item_drop(struct engine *engine, struct engine_table *table, struct item *item);

/* The same, and it is remembered, should its writer send it again. */
void engine_item_removed(struct engine *engine, struct engine_table *table, struct item *item);

/* Writes the group, whatever is in it. */
trp_status engine_commit_now(struct engine *engine);

/* ---- clear.c ---- */

/* Its deliveries are acked; its items go step by step, in the name of `id`. The table is the
 * engine's from then on. */
void engine_truncate(struct engine *engine, struct engine_table *table, uint32_t id);

/* What comes while tables are taken apart makes more of them go. */
void clear_add_debt(struct engine *engine, uint64_t weight);

/* A step, committed, for room that was refused. False: there is none to be had like this, or no
 * time for it. `tries` is zeroed before the first. */
struct clear_tries {
    int steps;
    struct deadline until;
};
bool clear_commit(struct engine *engine, struct clear_tries *tries);

/* What is not done at the end of a life is left to the next one. */
void cleared_destroy(struct engine *engine, table_release *release);

/* Finds every table's insert_on_sample anew. */
void engine_feeds_find(struct engine *engine);

/* Its counters are written with the next commit, which there will be. */
void engine_table_touch(struct engine *engine, struct engine_table *table);

/* One line with trp_last_error(), where a failure cannot travel further. */
void engine_log_failure(const char *what);

#endif
