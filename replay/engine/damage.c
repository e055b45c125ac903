/* Problem: a disk loses bits of a store that nobody looked at for long; who finds out is a reader
 * in the middle of others' work. Design: the reader is told which item it is, and the item leaves
 * its table, as if a client had deleted it: at once, or, of a store whose items are still coming
 * into memory, when they all are. Items that share the chunk go when they are read. It does not
 * count as a key that was removed: a writer may send the item again. An item whose record is
 * damaged never gets into its table, and whoever asks for its key is told so. Guarantee: what is
 * damaged is handed to nobody, and each item has its line in the log once. Nothing goes from a
 * file that is only looked at: whoever does goes on as if it had. */
#include <stdlib.h>

#include <troupe/log.h>
#include "core/status.h"
#include "limits.h"
#include "internal.h"

/* Stands for the chunk of an item that is to go, if it is still there with the chunk. */
static const uint64_t TAKEN_OUT = UINT64_MAX;

static void damage_log(struct engine *engine, const struct engine_table *table, uint64_t key,
                       const char *what)
{
    if (engine->damaged++ < ENGINE_DAMAGE_LINES_MAX)
        trp_log(TRP_WARN, "took out a damaged item table=%s %s=%llu reason=%s",
                table ? table->name : "?", table ? "key" : "number", (unsigned long long)key, what);
}

static void damaged_remember(struct engine_table *table, uint64_t key, uint64_t chunk_seq)
{
    if (table->damaged.count < ENGINE_DAMAGED_MAX)
        *map_at(&table->damaged, key) = chunk_seq;
}

void engine_item_damaged(void *arg, uint32_t id, uint64_t key, const char *what)
{
    struct engine_table *table = engine_table_with_id(arg, id);
    damage_log(arg, table, key, what);
    if (table)
        damaged_remember(table, key, TAKEN_OUT);
}

bool engine_key_damaged(const struct engine_table *table, uint64_t key)
{
    return map_get(&table->damaged, key) == TAKEN_OUT;
}

static bool item_has(const struct item *item, uint64_t chunk_seq)
{
    for (uint32_t i = 0; i < item->trajectory->chunk_count; i++)
        if (item->chunks[i]->seq == chunk_seq)
            return true;
    return false;
}

/* True: it went, and is in the file still. */
static bool item_give_up(struct engine_table *table, uint64_t key, uint64_t chunk_seq)
{
    struct engine *engine = table->engine;
    struct item *item = table_find(table->table, key);
    bool there = item && item_has(item, chunk_seq);
    /* An item's last sample takes it out when that is acked; else another reader was first. */
    if (there || table->facts->options->max_times_sampled > 0)
        damage_log(engine, table, key, "a chunk is damaged");
    if (!there)
        return false;
    table_remove(table->table, item);
    engine_item_drop(engine, item);
    engine_table_mark_dirty(engine, table);
    return engine->read_only;
}

trp_status engine_unreadable(struct engine_table *table, uint64_t key, uint64_t chunk_seq,
                             trp_status status)
{
    struct engine *engine = table->engine;
    if (status != TRP_DATA_LOSS || !table->table)
        return status;
    char *why = error_keep();
    if (!engine->ready)
        damaged_remember(table, key, chunk_seq);
    else if (item_give_up(table, key, chunk_seq))
        damaged_remember(table, key, TAKEN_OUT);
    trp_fail(status, "table %s, key %llu: %s%s", table->name, (unsigned long long)key, why,
             engine->read_only ? "" : "; the item is removed");
    free(why);
    return status;
}

static void table_give_up_damaged(struct engine_table *table)
{
    for (uint32_t i = 0; i < table->damaged.capacity; i++) {
        struct map_entry *entry = &table->damaged.entries[i];
        if (entry->value != 0 && entry->value != TAKEN_OUT &&
            item_give_up(table, entry->key, entry->value))
            entry->value = TAKEN_OUT;
    }
}

void engine_give_up_damaged(struct engine *engine)
{
    for (size_t i = 0; i < engine->table_count; i++)
        table_give_up_damaged(engine->tables[i]);
}
