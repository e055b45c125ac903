/* Problem: a table that is reset, dropped or given a smaller limit may lose tens of millions of
 * items; to let them go takes minutes, and nobody shall wait for that. Design: one queue of what is
 * to go. A smaller limit queues the table: its remover's choices go, while it is used. A reset or a
 * drop queues the table's inside; the store notes that its number is gone, which makes it empty for
 * every life to come with the next commit, and an empty one takes its place. The queue's work is
 * done some hundred items at a time, between groups, one entry after the other; records and chunks
 * are deleted like any others, so that a chunk that another table's items have stays. Guarantee:
 * the work is done once there is time, or else by the next life; a server that is never idle does
 * some of it with every group, and the more the more comes, so that however often a table is filled
 * and emptied, memory is that of a few. */
#include "internal.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "limits.h"

struct clearing {
    struct engine_table *shrinking; /* NULL: nobody uses `table` any more */
    struct table *table;
    struct list_link link;
};

static struct clearing *clearing_first(const struct engine *engine)
{
    return LIST_FIRST(&engine->clearings, struct clearing, link);
}

static void clearing_end(struct engine *engine, struct clearing *clearing)
{
    if (clearing->shrinking)
        clearing->shrinking->clearing = NULL;
    list_remove(&engine->clearings, &clearing->link);
    free(clearing);
}

static struct clearing *clearing_push(struct engine *engine, struct table *table)
{
    struct clearing *clearing = xcalloc(1, sizeof *clearing);
    clearing->table = table;
    list_push(&engine->clearings, &clearing->link);
    return clearing;
}

void engine_shrink(struct engine *engine, struct engine_table *table)
{
    if (table->clearing)
        return;
    table->clearing = clearing_push(engine, table->table);
    table->clearing->shrinking = table;
}

void engine_truncate(struct engine *engine, struct engine_table *table)
{
    LIST_EACH (struct delivery, delivery, &engine->deliveries, link)
        if (delivery->table == table)
            engine_ack(engine, delivery, delivery_end(delivery));
    if (table->clearing)
        clearing_end(engine, table->clearing);
    clearing_push(engine, table->table);
    engine->debt += CLEAR_PER_INSERT * CLEAR_TABLE_ITEMS;
}

void engine_reset(struct engine *engine, struct engine_table *table)
{
    assert(engine->ready);
    uint32_t id = store_table_renew(engine->store, table->facts->id);
    engine_truncate(engine, table);
    table->table = table_successor(table->table, id);
    table->facts = table_facts(table->table);
    table_set_lazy_load(table->table, engine_bring, table);
    engine_table_mark_dirty(engine, table);
}

static void weight_take(uint64_t *weight, uint64_t cost)
{
    *weight -= cost < *weight ? cost : *weight;
}

/* False: the limits hold. */
static bool shrink_step(struct engine *engine, struct engine_table *table, uint64_t *weight)
{
    struct item *item = NULL;
    while (*weight > 0 && (item = table_evict(table->table))) {
        weight_take(weight, table_weight(item));
        engine_item_removed(engine, table, item);
        engine_table_mark_dirty(engine, table);
        table->shrunk++;
    }
    return item;
}

/* False: there is nothing left of it. */
static bool teardown_step(struct engine *engine, struct table *table, uint64_t *weight)
{
    uint32_t id = table_facts(table)->id;
    if (table_destroy_step(table, weight, engine_item_drop, engine))
        return true;
    store_table_end(engine->store, id);
    engine->important = true;
    weight_take(weight, CLEAR_TABLE_ITEMS);
    return false;
}

bool engine_clear_waits(const struct engine *engine)
{
    return engine->ready && engine->clearings.first;
}

bool engine_clear_step(struct engine *engine, uint32_t items)
{
    uint64_t paid = engine->debt < CLEAR_DEBT_ITEMS ? engine->debt : CLEAR_DEBT_ITEMS;
    uint64_t weight = items + paid;
    struct clearing *clearing;
    if (!engine_clear_waits(engine))
        return false;
    if (engine->full)
        return true;
    engine->debt -= paid;
    while (weight > 0 && (clearing = clearing_first(engine))) {
        bool more = clearing->shrinking ? shrink_step(engine, clearing->shrinking, &weight)
                                        : teardown_step(engine, clearing->table, &weight);
        if (!more) {
            clearing_end(engine, clearing);
        } else { /* the others have their turns, too */
            list_remove(&engine->clearings, &clearing->link);
            list_push(&engine->clearings, &clearing->link);
        }
    }
    if (!engine->clearings.first)
        engine->debt = 0;
    return true;
}

/* A group that finds no room itself is not made larger. */
bool clear_commit(struct engine *engine, struct deadline *until)
{
    if (until->at_ns == 0)
        *until = deadline_in_ms(&clock_monotonic, CLEAR_ROOM_MS);
    return !deadline_passed(*until, &clock_monotonic) && engine_flush(engine) == TRP_OK &&
           engine_clear_step(engine, CLEAR_STEP_ITEMS) && engine_flush(engine) == TRP_OK;
}

void clearings_destroy(struct engine *engine, table_release *release)
{
    for (struct clearing *clearing; (clearing = clearing_first(engine));) {
        if (!clearing->shrinking)
            table_destroy(clearing->table, release, engine);
        clearing_end(engine, clearing);
    }
}
