/* Pages of data.mdb: how many there are, who may take them, and what things cost in them. */
#ifndef TRP_REPLAY_STORE_PAGES_H
#define TRP_REPLAY_STORE_PAGES_H

#include <lmdb.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/clock.h"
#include "replay/disk/disk.h"

/* The cost of values that are put, at most. */
struct cost {
    uint64_t pages;      /* overflow pages */
    uint64_t leaf_bytes; /* in leaves */
};

/* Pages that deletes and compaction may use up in one transaction. */
struct budget {
    uint64_t pages; /* copied or new */
    uint64_t frees; /* given back: LMDB writes their list in one piece, see pages_budget() */
};

/* Pages that are copied are pages given back. */
static inline bool budget_take(struct budget *budget, uint64_t pages)
{
    if (budget->pages < pages || budget->frees < pages)
        return false;
    budget->pages -= pages;
    budget->frees -= pages;
    return true;
}

/* Pages after the last commit. */
struct account {
    uint64_t next;       /* the first page that was never used */
    uint64_t reusable;   /* free ones that the next transaction may take */
    uint64_t recent;     /* free ones that only the one after it may take */
    uint64_t log;        /* the change log's, which compacting gives back */
    uint64_t fixed;      /* what any transaction may cost: the paths of all trees */
    uint64_t least;      /* what one costs that only writes the meta record */
    uint64_t compaction; /* what a step of compacting costs beside the leaves it changes */
    unsigned pieces_depth, items_depth;
    uint64_t items_per_leaf;
};

struct pages {
    struct space *space;
    uint64_t limit; /* the file never has more */
    uint64_t share; /* a sixteenth of what it may have */
    struct account account;
};

/* Inserts leave a reserve alone, a share of the file with `more` pages than it has. A share of its
 * pages and not of those that may come: so a tail that suffices when the store is stopped does when
 * it is started, whatever became of its disk meanwhile. */
uint64_t pages_reserve(const struct pages *pages, uint64_t more);

/* As much of it as there is: an older version may have left less. */
uint64_t pages_spare(const struct pages *pages);

/* Of it, a part of a group. */
static inline uint64_t pages_part(const struct pages *pages)
{
    return pages_spare(pages) / 8;
}

/* Behind the last of `next` pages, all that inserts leave alone. */
uint64_t pages_tail_kept(uint64_t next);

/* So long is a file whose changes find room, whatever becomes of its disk. */
uint64_t pages_needed(const struct account *account);

/* So long is the file when the store is stopped: inserts leave as much alone then as before. */
uint64_t pages_kept(const struct pages *pages);

/* Counts anew, as `txn` sees the file: LMDB's code. `trees`: by enum store_tree. */
int pages_count(struct pages *pages, MDB_env *env, MDB_txn *txn, const MDB_dbi *trees);

/* Pages that a transaction may use now; of them, inserts. */
uint64_t pages_free(const struct pages *pages);
uint64_t pages_insert(const struct pages *pages);

/* Allocated pages behind the last one that LMDB used. */
uint64_t pages_tail(const struct pages *pages);

/* The rest of them for a transaction that is sure to need `need`. */
struct budget pages_budget(const struct pages *pages, uint64_t need);

/* Tells the helper how far it is to be ahead. */
void pages_want(const struct pages *pages);

enum {
    LEAF_VALUE_MAX = 2000, /* larger values have a page of their own; LMDB's bound is 2022 */
    LEAF_ENTRY_BYTES = 28, /* node header, key, page number, pointer */
};

static inline void cost_add(struct cost *cost, uint64_t bytes)
{
    uint64_t whole = bytes / PIECE_BYTES, rest = bytes % PIECE_BYTES;
    cost->pages += whole;
    cost->leaf_bytes += whole * LEAF_ENTRY_BYTES;
    if (rest > LEAF_VALUE_MAX)
        cost->pages++;
    cost->leaf_bytes += LEAF_ENTRY_BYTES + (rest > LEAF_VALUE_MAX ? 0 : rest);
}

static inline struct cost cost_sum(struct cost a, struct cost b)
{
    return (struct cost){a.pages + b.pages, a.leaf_bytes + b.leaf_bytes};
}

uint64_t cost_pages(struct cost cost);

/* The room that somebody asks for. */
struct want {
    uint64_t need; /* pages */
    bool notes;    /* it may take what inserts leave */
    const char *what;
    uint64_t bytes;
};

uint64_t room_available(const struct pages *pages, const struct want *want);

/* Waits for the helper to make the pages free. */
bool room_allocate(const struct pages *pages, const struct want *want, struct deadline deadline);

/* Are there no such pages to be had, and not only none yet? */
bool room_is_out(const struct pages *pages, const struct want *want);

#endif
