/* Freed pages go back to the file system, although LMDB alone decides which free page it takes
 * next: the pages are taken from LMDB first. A parked run is a value of PARK_PAGES pages that
 * nobody reads, whose first page (LMDB's header) stays and whose others are punched out of the
 * file. When room gets short, the pages are allocated again, and then the value is deleted.
 *
 * A run is parked only when the beginning of the free list, which is where LMDB looks first, has
 * one; otherwise LMDB would search all of it and then make the file grow. To look for one costs
 * milliseconds, and a store that is used wants its pages back: so parking begins only when a lot is
 * free, and not soon after pages were returned. */
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/alloc.h"

enum {
    FREE_TREE = 0,                 /* LMDB's list of free pages */
    PARK_PAGES = 64,               /* 256 KiB, of which 252 go back */
    PARK_RUNS = SPACE_PUNCHES_MAX, /* a step, about 0.5 ms */
    SCAN_PAGES = 32768,  /* of the free list are looked at; LMDB searches as many in 1 ms */
    FREE_MIN = 4096,     /* 16 MiB may always lie idle */
    BEGIN_PAGES = 2048,  /* beyond those: 8 MiB */
    RETRY_MS = 5000,     /* after a look that found no runs */
    RETURNED_MS = 10000, /* after pages were wanted back */
    PUNCH_LOOK_US = 200, /* that the server's thread gives the helper at a time */
    PUNCH_WAIT_US = 10000000,
};

static int compare_pages(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Runs of PARK_PAGES in what the oldest records of the free list hold. */
static unsigned runs_count(uint64_t *pages, size_t count)
{
    unsigned runs = 0;
    size_t length = 1;
    qsort(pages, count, sizeof *pages, compare_pages);
    for (size_t index = 1; index < count; index++) {
        length = pages[index] == pages[index - 1] + 1 ? length + 1 : 1;
        if (length == PARK_PAGES) {
            runs++;
            length = 0;
        }
    }
    return runs;
}

static unsigned runs_find(struct store *store)
{
    MDB_cursor *cursor;
    MDB_val key, data;
    MDB_envinfo info;
    size_t count = 0;
    if (lmdb_read_begin(store) != TRP_OK ||
        mdb_cursor_open(store->read_txn, FREE_TREE, &cursor) != 0)
        return 0;
    mdb_env_info(store->env, &info);
    uint64_t *pages = xmalloc(SCAN_PAGES * sizeof *pages);
    /* What the last transaction freed may not be taken yet. */
    while (mdb_cursor_get(cursor, &key, &data, MDB_NEXT) == 0 &&
           lmdb_key_read(key) < info.me_last_txnid) {
        uint64_t length = 0;
        if (data.mv_size >= sizeof length)
            memcpy(&length, data.mv_data, sizeof length);
        if (length > SCAN_PAGES - count || data.mv_size < (length + 1) * sizeof length)
            break;
        memcpy(pages + count, (const uint8_t *)data.mv_data + sizeof length,
               length * sizeof length);
        count += length;
    }
    mdb_cursor_close(cursor);
    unsigned runs = runs_count(pages, count);
    free(pages);
    return runs;
}

/* ---- parking -------------------------------------------------------------------------------- */

static int runs_put(struct store *store, MDB_txn *txn, unsigned runs)
{
    int rc = 0;
    for (unsigned run = 0; rc == 0 && run < runs; run++) {
        uint64_t number = store->next_parked + run;
        MDB_val key = lmdb_key(&number);
        MDB_val data = {PARK_PAGES * store->page_bytes - 16, NULL}; /* less LMDB's header */
        rc = mdb_put(txn, store->trees[TREE_PARKED], &key, &data, MDB_APPEND | MDB_RESERVE);
    }
    return rc;
}

/* Where the pages of a parked run are, without its first one. */
static bool run_place(struct store *store, uint64_t number, off_t *offset, off_t *bytes)
{
    MDB_val key = lmdb_key(&number), data;
    if (lmdb_read_begin(store) != TRP_OK ||
        mdb_get(store->read_txn, store->trees[TREE_PARKED], &key, &data) != 0 ||
        data.mv_size != PARK_PAGES * store->page_bytes - 16)
        return false;
    *offset = (uint8_t *)data.mv_data - 16 - store->map + (off_t)store->page_bytes;
    *bytes = (off_t)((PARK_PAGES - 1) * store->page_bytes);
    return *offset > 0 && (size_t)*offset % store->page_bytes == 0;
}

static void runs_punch(struct store *store, unsigned runs)
{
    for (unsigned run = 0; run < runs; run++) {
        off_t offset, bytes;
        if (run_place(store, store->next_parked + run, &offset, &bytes))
            space_punch(store->space, (uint64_t)offset, (uint64_t)bytes);
        else
            store->cannot_park = true;
    }
    store->next_parked += runs;
}

/* Free pages beyond those that may always lie idle. */
static uint64_t surplus(const struct store *store)
{
    const struct account *account = &store->account;
    uint64_t live = account->next - account->reusable - account->recent - account->parked;
    uint64_t idle = live / 4 > FREE_MIN ? live / 4 : FREE_MIN;
    return account->reusable > idle ? account->reusable - idle : 0;
}

/* So many runs may be parked now. */
static unsigned runs_wanted(struct store *store)
{
    uint64_t pages = store->cannot_park || !store->map ? 0 : surplus(store);
    store->parking = pages >= (store->parking ? PARK_PAGES : BEGIN_PAGES);
    if (!store->parking || !deadline_passed(store->park_again, &clock_monotonic))
        return 0;
    uint64_t most = pages / PARK_PAGES;
    /* Should LMDB ever take them from the tail, they are there. */
    uint64_t tail = lmdb_pages_tail(store) / PARK_PAGES;
    most = most < tail ? most : tail;
    most = most < PARK_RUNS ? most : PARK_RUNS;
    /* The paths that are copied may break the first runs. */
    unsigned found = most > 0 ? runs_find(store) : 0, broken = 2;
    found = found > broken ? found - broken : 0;
    if (found == 0)
        store->park_again = deadline_in_ms(&clock_monotonic, RETRY_MS);
    return found < most ? found : (unsigned)most;
}

int64_t store_idle_at_ns(const struct store *store)
{
    bool later = store->parking && store->failed == TRP_OK;
    return later ? store->park_again.at_ns : INT64_MAX;
}

/* False: the helper has not given back yet what it was told to. */
static bool runs_punched(struct store *store, int64_t wait_us)
{
    struct deadline deadline = {clock_now_ns(&clock_monotonic) + wait_us * 1000};
    if (!space_punched(store->space, deadline))
        return false;
    if (space_punch_error(store->space) != 0)
        store->cannot_park = true; /* this file system does not do it */
    return true;
}

bool park_work(struct store *store)
{
    if (store->space && !runs_punched(store, PUNCH_LOOK_US))
        return true;
    unsigned runs = store->failed == TRP_OK ? runs_wanted(store) : 0;
    if (runs == 0)
        return false;
    MDB_txn *txn;
    trp_status status = lmdb_begin(store, &txn);
    if (status == TRP_OK) {
        int rc = runs_put(store, txn, runs);
        if (rc == 0) {
            status = lmdb_commit(store, txn);
        } else {
            mdb_txn_abort(txn);
            status = lmdb_fail(store, rc, "park pages");
        }
    }
    if (status != TRP_OK) {
        store_break(store, status);
        return false;
    }
    runs_punch(store, runs);
    return true;
}

/* ---- and back ------------------------------------------------------------------------------- */

/* Allocates the pages of the newest parked runs; how many. */
static unsigned runs_allocate(struct store *store, unsigned runs)
{
    int fd;
    unsigned done = 0;
    mdb_env_get_fd(store->env, &fd);
    for (; done < runs && done < store->next_parked - 1; done++) {
        off_t offset, bytes;
        if (!run_place(store, store->next_parked - 1 - done, &offset, &bytes) ||
            posix_fallocate(fd, offset, bytes) != 0)
            break;
        if (store->options.durability != TRP_DURABLE_SYSTEM)
            madvise(store->map + offset, (size_t)bytes, MADV_POPULATE_WRITE);
    }
    return done;
}

bool park_return(struct store *store)
{
    if (store->account.parked == 0 || store->failed != TRP_OK ||
        lmdb_budget(store, store->account.fixed).pages < 16 || !runs_punched(store, PUNCH_WAIT_US))
        return false;
    unsigned runs = runs_allocate(store, PARK_RUNS);
    if (runs == 0)
        return false;
    MDB_txn *txn;
    trp_status status = lmdb_begin(store, &txn);
    if (status == TRP_OK) {
        int rc = 0;
        for (unsigned run = 0; rc == 0 && run < runs; run++) {
            uint64_t number = store->next_parked - 1 - run;
            MDB_val key = lmdb_key(&number);
            rc = mdb_del(txn, store->trees[TREE_PARKED], &key, NULL);
        }
        if (rc == 0) {
            status = lmdb_commit(store, txn);
        } else {
            mdb_txn_abort(txn);
            status = lmdb_fail(store, rc, "return parked pages");
        }
    }
    if (status != TRP_OK) {
        store_break(store, status);
        return false;
    }
    store->next_parked -= runs;
    store->park_again = deadline_in_ms(&clock_monotonic, RETURNED_MS);
    return true;
}
