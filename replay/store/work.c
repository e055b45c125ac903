/* Work between groups, in small transactions of its own: chunks without references, keys that are
 * too old, items of tables that are gone, the change log. */
#include "internal.h"

enum {
    IDLE_CHANGES_MIN = 1024,
    SWEEP_MIN = 16,
    SWEEP_MAX = 256, /* pages copied in one step, about 0.3 ms */
};

static trp_status pending_remove(struct store *store, void *budget)
{
    return pieces_remove(store, budget);
}

static bool sweep_work(struct store *store)
{
    struct budget budget = pages_budget(&store->pages, store->pages.account.fixed + MARGIN_PAGES);
    uint32_t before = store->dead.count;
    if (store->dead.ready == store->dead.held || budget.pages < SWEEP_MIN ||
        budget.frees < SWEEP_MIN)
        return false;
    if (budget.pages > SWEEP_MAX)
        budget.pages = SWEEP_MAX;
    return store_transact(store, pending_remove, &budget) == TRP_OK && store->dead.count < before;
}

bool store_work(struct store *store, bool all)
{
    if (store->failed != TRP_OK || !store->loaded)
        return false;
    if (sweep_work(store))
        return true;
    if (store->failed != TRP_OK)
        return false;
    if (removed_work(store, false))
        return true;
    if (copy_holds_records(store))
        return false;
    if (tombstones_work(store))
        return true;
    if (store->log.compaction.active || store->log.changes >= (all ? 1 : IDLE_CHANGES_MIN))
        return compaction_work(store);
    return false;
}

bool store_idle(struct store *store)
{
    return !store->options.read_only && store_work(store, false);
}
