/* Problem: a table that is reset or dropped may have tens of millions of items; to let them go
 * takes minutes, and nobody shall wait for that. Design: the store notes that the table's number is
 * gone, which makes it empty for every life to come with the next commit; the table itself is put
 * aside, and an empty one takes its place. What was put aside is taken apart some hundred items at
 * a time, between groups; their records and chunks are deleted like any others, so that a chunk
 * that another table's items have stays. Guarantee: the work is done once there is time, or else by
 * the next life; a server that is never idle does some of it with every group, and the more the
 * more comes, so that however often a table is filled and emptied, memory is that of a few. */
#include "internal.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "limits.h"

struct cleared {
    struct table *table;
    uint32_t id;
    struct list_link link;
};

void engine_truncate(struct engine *engine, struct engine_table *table, uint32_t id)
{
    for (struct delivery *next, *delivery = LIST_FIRST(&engine->deliveries, struct delivery, link);
         delivery; delivery = next) {
        next = LIST_NEXT(delivery, struct delivery, link);
        if (delivery->table == table)
            engine_ack(engine, delivery);
    }
    struct cleared *cleared = xmalloc(sizeof *cleared);
    *cleared = (struct cleared){.table = table->table, .id = id};
    list_push(&engine->cleared, &cleared->link);
    clear_add_debt(engine, CLEAR_TABLE_ITEMS);
}

void clear_add_debt(struct engine *engine, uint64_t weight)
{
    engine->debt += CLEAR_PER_INSERT * weight;
}

void engine_reset(struct engine *engine, struct engine_table *table)
{
    uint32_t id = table_id(table->table);
    assert(engine->ready);
    struct table *next = table_successor(table->table, store_table_renew(engine->store, id));
    engine_truncate(engine, table, id);
    table->table = next;
    table_set_lazy_load(next, engine_bring, table);
    engine_table_touch(engine, table);
}

struct release {
    struct engine *engine;
    uint32_t id;
};

static void item_delete(void *arg, struct item *item)
{
    const struct release *release = arg;
    store_item_delete(release->engine->store, release->id, item);
    store_item_destroy(release->engine->store, item);
    release->engine->important = true;
}

bool engine_shrink_step(struct engine *engine, struct engine_table *table, uint32_t items)
{
    uint64_t weight = engine->full ? 0 : items;
    while (table->shrinking && weight > 0) {
        struct item *item = table_evict(table->table);
        table->shrinking = item != NULL;
        if (!item)
            break;
        uint64_t cost = table_weight(item);
        weight -= cost < weight ? cost : weight;
        engine_item_removed(engine, table, item);
        engine_table_touch(engine, table);
        table->shrunk++;
    }
    return table->shrinking;
}

static struct engine_table *shrinking_find(const struct engine *engine)
{
    for (size_t i = 0; i < engine->table_count && engine->ready; i++)
        if (engine->tables[i]->shrinking)
            return engine->tables[i];
    return NULL;
}

bool engine_clear_waits(const struct engine *engine)
{
    return engine->cleared.first || shrinking_find(engine);
}

/* Takes what it was worth off `weight`. */
static void cleared_step(struct engine *engine, uint64_t *weight)
{
    struct cleared *cleared = LIST_FIRST(&engine->cleared, struct cleared, link);
    struct release release = {engine, cleared->id};
    if (table_destroy_step(cleared->table, weight, item_delete, &release))
        return;
    store_table_end(engine->store, cleared->id);
    engine->important = true;
    list_remove(&engine->cleared, &cleared->link);
    free(cleared);
    *weight -= *weight < CLEAR_TABLE_ITEMS ? *weight : CLEAR_TABLE_ITEMS;
}

bool engine_clear_step(struct engine *engine, uint32_t items)
{
    struct engine_table *shrinking = shrinking_find(engine);
    bool waited = shrinking || engine->cleared.first;
    uint64_t paid = engine->debt < CLEAR_DEBT_ITEMS ? engine->debt : CLEAR_DEBT_ITEMS;
    uint64_t weight = paid + (shrinking ? 0 : items);
    engine->debt -= paid;
    if (shrinking)
        engine_shrink_step(engine, shrinking, items);
    while (weight > 0 && engine->cleared.first)
        cleared_step(engine, &weight);
    if (!engine->cleared.first)
        engine->debt = 0;
    return waited;
}

/* A group that finds no room itself is not made larger. */
bool clear_commit(struct engine *engine, struct clear_tries *tries)
{
    if (tries->steps++ == 0)
        tries->until = deadline_in_ms(&clock_monotonic, CLEAR_ROOM_MS);
    return tries->steps <= CLEAR_ROOM_STEPS && !deadline_passed(tries->until, &clock_monotonic) &&
           engine_commit_now(engine) == TRP_OK && engine_clear_step(engine, CLEAR_STEP_ITEMS) &&
           engine_commit_now(engine) == TRP_OK;
}

void cleared_destroy(struct engine *engine, table_release *release)
{
    for (struct cleared *cleared; (cleared = LIST_FIRST(&engine->cleared, struct cleared, link));) {
        list_remove(&engine->cleared, &cleared->link);
        table_destroy(cleared->table, release, engine);
        free(cleared);
    }
}
