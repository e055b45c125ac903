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

/* An item that is to go, if it is still there with the chunk; or that was taken out. */
struct damaged {
    uint32_t table_id;
    uint64_t key, chunk_seq; /* 0: taken out */
};

static void damage_log(struct engine *engine, const struct engine_table *table, uint64_t key,
                       const char *what)
{
    if (engine->damaged++ < ENGINE_DAMAGE_LINES_MAX)
        trp_log(TRP_WARN, "took out a damaged item table=%s %s=%llu reason=%s",
                table ? table->name : "?", table ? "key" : "number", (unsigned long long)key, what);
}

static void damaged_remember(struct engine *engine, struct damaged damaged)
{
    struct buffer *all = &engine->damaged_items;
    if (all->size < ENGINE_DAMAGED_MAX * sizeof damaged)
        buffer_append(all, span_of(&damaged, sizeof damaged));
}

void engine_item_damaged(void *arg, uint32_t id, uint64_t key, const char *what)
{
    struct engine *engine = arg;
    damage_log(engine, engine_table_with_id(engine, id), key, what);
    if (id != 0)
        damaged_remember(engine, (struct damaged){id, key, 0});
}

trp_status engine_item_missing(const struct engine_table *table, uint64_t key)
{
    const struct buffer *all = &table->engine->damaged_items;
    const struct damaged *damaged = (const struct damaged *)(const void *)all->data;
    for (size_t i = 0; i < all->size / sizeof *damaged; i++)
        if (damaged[i].table_id == table->facts->id && damaged[i].key == key)
            return trp_fail(TRP_DATA_LOSS,
                            "table %s, key %llu: its item is damaged, and was taken out",
                            table->name, (unsigned long long)key);
    return TRP_OK;
}

static bool item_has(const struct item *item, uint64_t chunk_seq)
{
    for (uint32_t i = 0; i < item->trajectory->chunk_count; i++)
        if (item->chunks[i]->seq == chunk_seq)
            return true;
    return false;
}

static void item_give_up(struct engine *engine, struct engine_table *table, struct damaged *damaged)
{
    struct item *item = table_find(table->table, damaged->key);
    bool there = item && item_has(item, damaged->chunk_seq);
    /* An item's last sample takes it out when that is acked; else another reader was first. */
    if (there || table->facts->options->max_times_sampled > 0)
        damage_log(engine, table, damaged->key, "a chunk is damaged");
    if (!there)
        return;
    if (engine->read_only) /* it is in the file still */
        damaged->chunk_seq = 0;
    table_remove(table->table, item);
    engine_item_drop(engine, item);
    engine_table_mark_dirty(engine, table);
}

trp_status engine_unreadable(struct engine_table *table, uint64_t key, uint64_t chunk_seq,
                             trp_status status)
{
    struct engine *engine = table->engine;
    if (status != TRP_DATA_LOSS || !table->table)
        return status;
    struct damaged damaged = {table->facts->id, key, chunk_seq};
    char *why = error_keep();
    if (engine->ready)
        item_give_up(engine, table, &damaged);
    if (!engine->ready || damaged.chunk_seq == 0)
        damaged_remember(engine, damaged);
    trp_fail(status, "table %s, key %llu: %s%s", table->name, (unsigned long long)key, why,
             engine->read_only ? "" : "; the item is removed");
    free(why);
    return status;
}

void engine_give_up_damaged(struct engine *engine)
{
    struct damaged *damaged = (struct damaged *)(void *)engine->damaged_items.data;
    size_t count = engine->damaged_items.size / sizeof *damaged, kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct engine_table *table = engine_table_with_id(engine, damaged[i].table_id);
        if (damaged[i].chunk_seq != 0 && table)
            item_give_up(engine, table, &damaged[i]);
        if (damaged[i].chunk_seq == 0)
            damaged[kept++] = damaged[i];
    }
    engine->damaged_items.size = kept * sizeof *damaged;
}
