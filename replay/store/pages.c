/* All page arithmetic. Pages are counted after every commit from the statistics of the trees: what
 * they do not use is free, and of that, what the last transaction freed may only be taken by the
 * one after the next (LMDB keeps the last snapshot whole). */
#include "internal.h"

enum {
    FREE_TREE = 0, /* LMDB's own list of free pages */
    /* Pages: compacting's 48, a part of 24, about 85 that any group may cost, and some to spare. */
    RESERVE_MIN = 192,
    RESERVE_MAX = 1024,
    RESERVE_SHARE = 32, /* of the file: deletes copy tree pages before they free any */
    TAIL_KEPT = 64,     /* pages that inserts leave alone: 10 MiB can be freed at once */
};

/* ---- the reserve ---------------------------------------------------------------------------- */

static uint64_t reserve_of(uint64_t pages)
{
    uint64_t share = pages / RESERVE_SHARE;
    return share < RESERVE_MIN ? RESERVE_MIN : share > RESERVE_MAX ? RESERVE_MAX : share;
}

uint64_t pages_reserve(const struct pages *pages, uint64_t more)
{
    uint64_t all = space_watermark(pages->space) + more;
    return reserve_of(all < pages->limit ? all : pages->limit);
}

uint64_t pages_spare(const struct pages *pages)
{
    uint64_t reserve = pages_reserve(pages, 0);
    uint64_t all = pages_free(pages) + pages->account.recent + pages->account.log;
    return all >= reserve ? reserve : all < RESERVE_MIN ? RESERVE_MIN : all;
}

uint64_t pages_tail_kept(uint64_t next)
{
    return reserve_of(next + RESERVE_MAX + TAIL_KEPT) + TAIL_KEPT;
}

uint64_t pages_needed(const struct account *account)
{
    uint64_t wanted = pages_tail_kept(account->next), most = wanted - TAIL_KEPT;
    return account->next + wanted - (account->reusable < most ? account->reusable : most);
}

uint64_t pages_kept(const struct pages *pages)
{
    uint64_t all = pages->account.next + pages_tail(pages), needed = pages_needed(&pages->account);
    return all < needed ? all : needed;
}

/* ---- accounting ----------------------------------------------------------------------------- */

static uint64_t tree_pages(const MDB_stat *stat)
{
    return stat->ms_branch_pages + stat->ms_leaf_pages + stat->ms_overflow_pages;
}

/* Pages that the last transaction freed: the last record of the free list, if it is its own. */
static int recent_pages(MDB_txn *txn, uint64_t last_txn, uint64_t *pages)
{
    MDB_cursor *cursor;
    MDB_val key, data;
    *pages = 0;
    int rc = mdb_cursor_open(txn, FREE_TREE, &cursor);
    if (rc != 0)
        return rc;
    rc = mdb_cursor_get(cursor, &key, &data, MDB_LAST);
    if (rc == 0 && lmdb_key_read(key) >= last_txn)
        *pages = free_record_pages(data.mv_data, data.mv_size);
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

int pages_count(struct pages *pages, MDB_env *env, MDB_txn *txn, const MDB_dbi *trees)
{
    MDB_envinfo info;
    MDB_stat stat;
    struct account account = {.fixed = 16, .compaction = 8, .items_per_leaf = 1};
    mdb_env_info(env, &info);
    account.next = info.me_last_pgno + 1;
    int rc = mdb_env_stat(env, &stat); /* of the main tree */
    uint64_t used = 2 + tree_pages(&stat);
    account.fixed += stat.ms_depth + 2;
    account.least = 4 + 2 * stat.ms_depth;
    if (rc == 0)
        rc = mdb_stat(txn, FREE_TREE, &stat);
    used += tree_pages(&stat);
    account.fixed += stat.ms_depth + 2;
    account.least += 2 * stat.ms_depth;
    for (unsigned tree = 0; rc == 0 && tree < TREE_COUNT; tree++) {
        rc = mdb_stat(txn, trees[tree], &stat);
        used += tree_pages(&stat);
        account.fixed += stat.ms_depth + 2;
        if (tree == TREE_CHANGES)
            account.log = tree_pages(&stat);
        if (tree == TREE_PIECES)
            account.pieces_depth = stat.ms_depth;
        if (tree == TREE_CHANGES || tree == TREE_META)
            account.compaction += stat.ms_depth + 2;
        if (tree == TREE_ITEMS) {
            account.items_depth = stat.ms_depth;
            account.items_per_leaf =
                1 + (stat.ms_leaf_pages ? stat.ms_entries / stat.ms_leaf_pages : 0);
        }
    }
    account.compaction += account.least;
    uint64_t recent = 0;
    if (rc == 0)
        rc = recent_pages(txn, info.me_last_txnid, &recent);
    if (rc != 0)
        return rc;
    uint64_t unused = account.next > used ? account.next - used : 0;
    account.recent = recent < unused ? recent : unused;
    account.reusable = unused - account.recent;
    pages->account = account;
    return 0;
}

uint64_t pages_tail(const struct pages *pages)
{
    uint64_t watermark = space_watermark(pages->space);
    return watermark > pages->account.next ? watermark - pages->account.next : 0;
}

uint64_t pages_free(const struct pages *pages)
{
    /* A part of the free list that was read is written back, 509 page numbers to a page. */
    uint64_t reusable = pages->account.reusable;
    return reusable - reusable / 256 + pages_tail(pages);
}

uint64_t pages_insert(const struct pages *pages)
{
    uint64_t tail = pages_tail(pages), all = pages_free(pages);
    uint64_t kept = tail < TAIL_KEPT ? tail : TAIL_KEPT;
    return all - kept;
}

/* A transaction's list of freed pages is one value: longer than a page, it takes a run of pages,
 * which a fragmented free list may not have; then it comes from the tail, more than once when the
 * list grows while it is saved. */
enum { RUN_FREES = 480, FREES_PER_PAGE = 509, RUN_TRIES = 3, FREES_MAX = 32768 };

struct budget pages_budget(const struct pages *pages, uint64_t need)
{
    uint64_t count = pages_free(pages), runs = pages_tail(pages) / 4;
    struct budget budget = {.frees = RUN_FREES};
    if (runs > FREES_MAX / FREES_PER_PAGE * RUN_TRIES)
        runs = FREES_MAX / FREES_PER_PAGE * RUN_TRIES;
    if (runs / RUN_TRIES * FREES_PER_PAGE > RUN_FREES)
        budget.frees = runs / RUN_TRIES * FREES_PER_PAGE;
    /* The paths that are copied anyway give pages back, too. */
    budget.frees -= pages->account.fixed < budget.frees ? pages->account.fixed : budget.frees;
    budget.pages = count > need + runs ? count - need - runs : 0;
    return budget;
}

/* So many pages are kept ready beyond the reserve: a sixteenth of the file, so that a growing store
 * is not slowed and a small one stays small. They are asked for in steps: groups of one item would
 * wake the helper, and it the kernel twice, for a page each. */
void pages_want(const struct pages *pages)
{
    enum { STEP = 256 };
    uint64_t ahead = pages->account.next / 16;
    if (ahead < 1024)
        ahead = 1024; /* 4 MiB */
    if (ahead > 32768)
        ahead = 32768; /* 128 MiB: 50 ms at the rate of a growing store */
    ahead += pages_reserve(pages, 0);
    if (pages->account.reusable >= ahead)
        return;
    uint64_t page = pages->account.next + ahead - pages->account.reusable;
    space_want(pages->space, (page + STEP - 1) / STEP * STEP);
}

/* ---- cost ----------------------------------------------------------------------------------- */

uint64_t cost_pages(struct cost cost)
{
    /* Appending leaves at worst half of a leaf empty; branches are a hundredth of the leaves. */
    uint64_t leaves = cost.leaf_bytes / (PIECE_BYTES / 2) + 2;
    return cost.pages + leaves + leaves / 64;
}

/* ---- room ----------------------------------------------------------------------------------- */

uint64_t room_available(const struct pages *pages, const struct want *want)
{
    return want->notes ? pages_free(pages) : pages_insert(pages);
}

bool room_allocate(const struct pages *pages, const struct want *want, struct deadline deadline)
{
    uint64_t watermark = space_watermark(pages->space), available = room_available(pages, want);
    return available >= want->need ||
           space_wait(pages->space, watermark + (want->need - available), deadline);
}

bool room_is_out(const struct pages *pages, const struct want *want)
{
    uint64_t available = room_available(pages, want);
    uint64_t more = want->need > available ? want->need - available : 0;
    return space_error(pages->space) != 0 || space_watermark(pages->space) + more > pages->limit;
}
