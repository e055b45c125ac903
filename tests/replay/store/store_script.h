/* Groups of operations on a store that follow from a round and a number, so that whoever knows both
 * can do the same to a plain list, and compare. */
#ifndef TRP_TESTS_STORE_SCRIPT_H
#define TRP_TESTS_STORE_SCRIPT_H

#include "tests/replay/store_fixture.h"

enum { SCRIPT_ITEMS_MAX = 4000, SCRIPT_OPERATIONS_MAX = 40 };

struct entry {
    uint64_t key;
    double priority;
    int32_t times;
    size_t size;
    struct item *item; /* while the store is open */
};

struct state {
    struct entry items[SCRIPT_ITEMS_MAX];
    size_t count;
    uint64_t next_key;
    struct store_table table;
    size_t items_max, size_max;
};

struct draws {
    uint64_t state;
};

static inline uint64_t draw(struct draws *draws, uint64_t below)
{
    draws->state += UINT64_C(0x9E3779B97F4A7C15);
    return fixture_hash(draws->state) % below;
}

/* What a group does: to the list, and to the store if there is one. */
static inline void insert(struct state *state, struct draws *draws, struct store *store)
{
    size_t size = draw(draws, 4) ? draw(draws, 300) : draw(draws, state->size_max);
    struct entry *entry = &state->items[state->count++];
    *entry = (struct entry){.key = state->next_key++, .size = size};
    entry->priority = (double)entry->key / 2;
    state->table.inserts++;
    if (!store)
        return;
    entry->item = fixture_item(store, entry->key, size);
    trp_status status = store_admit(store, entry->item);
    for (unsigned again = 0; status == TRP_ABORTED && again < 1000; again++)
        status = store_admit(store, entry->item); /* the helper has yet to begin */
    if (status != TRP_OK)
        abort();
    store_item_insert(store, state->table.id, entry->item);
}

static inline void erase(struct state *state, size_t index, struct store *store)
{
    struct entry *entry = &state->items[index];
    state->table.deletes++;
    if (store) {
        store_item_delete(store, entry->item);
        store_item_destroy(store, entry->item);
    }
    memmove(entry, entry + 1, (--state->count - index) * sizeof *entry);
}

static inline void operate(struct state *state, struct draws *draws, struct store *store)
{
    uint64_t kind = draw(draws, 100);
    if (state->count < state->items_max && (kind < 45 || state->count == 0)) {
        insert(state, draws, store);
        return;
    }
    size_t index = draw(draws, state->count);
    struct entry *entry = &state->items[index];
    if (kind < 70) {
        entry->priority = (double)draw(draws, 1000000);
        if (store) {
            entry->item->priority = entry->priority;
            store_item_priority(store, entry->item);
        }
    } else if (kind < 80) {
        entry->times++;
        state->table.samples++;
        if (store) {
            entry->item->times_sampled = entry->times;
            store_item_sampled(store, entry->item);
        }
    } else {
        erase(state, kind < 90 ? index : 0, store);
    }
}

static inline void do_group(struct state *state, uint64_t round, uint64_t group,
                            struct store *store)
{
    struct draws draws = {round * 1000003 + group};
    for (uint64_t left = 1 + draw(&draws, SCRIPT_OPERATIONS_MAX); left > 0; left--)
        operate(state, &draws, store);
    if (store)
        store_table_counters(store, &state->table);
}

static inline bool state_matches(struct store *store, const struct loaded *loaded,
                                 const struct state *state)
{
    size_t tables;
    const struct store_table *table = store_tables(store, &tables);
    if (loaded->count != state->count || tables != 1 || table->inserts != state->table.inserts ||
        table->deletes != state->table.deletes || table->samples != state->table.samples)
        return false;
    for (size_t index = 0; index < state->count; index++) {
        const struct entry *entry = &state->items[index];
        const struct item *item = loaded->items[index];
        if (item->key != entry->key || item->priority != entry->priority ||
            item->times_sampled != entry->times)
            return false;
        fixture_check_chunk(store, item->chunks[0], entry->key, entry->size);
    }
    return true;
}

#endif
