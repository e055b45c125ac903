/* Work between groups, in small transactions of its own: chunks without references, keys that are
 * too old, items of tables that are gone, the change log. */
#include "internal.h"

#include "core/array.h"

enum {
    IDLE_CHANGES_MIN = 1024,
    SWEEP_MIN = 16,
    SWEEP_MAX = 256, /* pages copied in one step, about 0.3 ms */
};

static int pending_remove(struct store *store, MDB_txn *txn, void *budget)
{
    return pieces_remove(store, txn, &store->dead.pending, budget);
}

trp_status store_sweep(struct store *store, bool *more)
{
    *more = false;
    struct budget budget = pages_budget(&store->pages, store->pages.account.fixed + MARGIN_PAGES);
    if (store->dead.pending.count == 0 || budget.pages < SWEEP_MIN || budget.frees < SWEEP_MIN)
        return TRP_OK;
    if (budget.pages > SWEEP_MAX)
        budget.pages = SWEEP_MAX;
    trp_status status = store_transact(store, "remove chunks", pending_remove, &budget);
    *more = store->dead.pending.count > 0;
    return status;
}

bool store_work(struct store *store, bool all)
{
    if (store->failed != TRP_OK || !store->loaded)
        return false;
    size_t before = store->dead.pending.count;
    bool more;
    if (store_sweep(store, &more) != TRP_OK)
        return false;
    if (store->dead.pending.count < before)
        return true;
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
    return !store->options.read_only && (store_work(store, false));
}
