/* Problem: whoever sends a chunk over a socket would copy it first, though it lies in memory
 * already, in pages that do not move while the chunk lives; and a transport lets go of what it
 * sends when and on which thread it likes, maybe after the store was closed.
 * Design: a loan has a reference to each chunk that a message is of. The message is parts that
 * point into a second mapping of data.mdb, which is read-only and outlives the store while anything
 * is out. What is returned waits, with its references, for the thread that has the store. All loans
 * together are bounded, as no page that is out can be recycled; what is beyond is copied.
 * Guarantee: the parts of a loan have the chunks' bytes until it is returned or the store is
 * closed; they can be read until it is returned. */
#include "internal.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "core/alloc.h"
#include "core/list.h"
#include "core/thread.h"

/* What outlives the store. */
struct loans {
    uint8_t *map; /* page 0 */
    uint64_t map_bytes;
    uint64_t bytes;     /* of loans that were not collected; the store's thread's */
    struct mutex mutex; /* guards what follows */
    struct cond changed;
    struct list out, returned; /* of struct loan */
    bool closed;               /* the store is; whoever returns the last loan frees this */
};

struct loan {
    struct loans *loans;
    struct list_link link; /* among those that are out, or were returned */
    struct buffer chunks;  /* of struct chunk *, a reference each; the store's thread's */
    struct buffer parts;   /* of trp_bytes */
    uint64_t bytes;        /* lent */
};

/* ---- life ----------------------------------------------------------------------------------- */

static void loan_drop_chunks(struct store *store, struct loan *loan)
{
    struct chunk **chunks = (struct chunk **)(void *)loan->chunks.data;
    for (size_t i = 0; i < loan->chunks.size / sizeof *chunks; i++)
        store_chunk_unref(store, chunks[i]);
    buffer_clear(&loan->chunks);
}

static void loan_free(struct loan *loan)
{
    buffer_cleanup(&loan->chunks);
    buffer_cleanup(&loan->parts);
    free(loan);
}

/* Those that came back, and what they had. */
static void loans_take_back(struct store *store, struct list returned)
{
    LIST_EACH (struct loan, loan, &returned, link) {
        loan_drop_chunks(store, loan);
        store->loans->bytes -= loan->bytes;
        loan_free(loan);
    }
}

static void loans_free(struct loans *loans)
{
    munmap(loans->map, loans->map_bytes);
    cond_cleanup(&loans->changed);
    mutex_cleanup(&loans->mutex);
    free(loans);
}

void loans_open(struct store *store)
{
    int fd;
    if (!store->map || store->page_bytes != PAGE_HEADER_BYTES + PIECE_BYTES ||
        mdb_env_get_fd(store->env, &fd) != 0)
        return;
    void *map = mmap(NULL, store->map_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (map == MAP_FAILED)
        return;
    madvise(map, store->map_bytes, MADV_RANDOM);
    struct loans *loans = xcalloc(1, sizeof *loans);
    loans->map = map;
    loans->map_bytes = store->map_bytes;
    mutex_init(&loans->mutex);
    cond_init(&loans->changed);
    store->loans = loans;
}

void loans_close(struct store *store)
{
    struct loans *loans = store->loans;
    if (!loans)
        return;
    mutex_lock(&loans->mutex);
    loans->closed = true; /* from here on nothing is returned to us any more */
    struct list returned = loans->returned;
    LIST_EACH (struct loan, loan, &loans->out, link)
        loan_drop_chunks(store, loan);
    loans_take_back(store, returned);
    bool last = !loans->out.first;
    mutex_unlock(&loans->mutex); /* else the last that is out frees them when it is returned */
    if (last)
        loans_free(loans);
    store->loans = NULL;
}

/* ---- lending -------------------------------------------------------------------------------- */

uint64_t store_loan_room(const struct store *store)
{
    if (!store->loans)
        return 0;
    uint64_t most = store->pages.limit * store->page_bytes / STORE_LOAN_SHARE;
    most = most < STORE_LOAN_BYTES_MAX ? most : STORE_LOAN_BYTES_MAX;
    return store->loans->bytes < most ? most - store->loans->bytes : 0;
}

size_t store_chunk_lendable(const struct chunk *chunk)
{
    if (chunk->size < STORE_LOAN_CHUNK_BYTES_MIN || stored(chunk)->bytes || stored(chunk)->lent)
        return 0;
    return chunk_paged_bytes(chunk);
}

struct loan *store_loan_begin(struct store *store)
{
    struct loan *loan = xcalloc(1, sizeof *loan);
    loan->loans = store->loans;
    mutex_lock(&loan->loans->mutex);
    list_push(&loan->loans->out, &loan->link);
    mutex_unlock(&loan->loans->mutex);
    return loan;
}

void loan_add(struct loan *loan, trp_bytes bytes)
{
    if (bytes.size == 0)
        return;
    trp_bytes *part = buffer_push(&loan->parts, sizeof *part);
    *part = bytes;
}

const trp_bytes *loan_parts(const struct loan *loan, size_t *count)
{
    *count = loan->parts.size / sizeof(trp_bytes);
    return (const trp_bytes *)(const void *)loan->parts.data;
}

trp_status store_loan_chunk(struct store *store, struct loan *loan, struct chunk *chunk,
                            uint8_t *rest)
{
    size_t lendable = store_chunk_lendable(chunk);
    struct chunk **kept = buffer_push(&loan->chunks, sizeof(struct chunk *));
    *kept = chunk;
    loan->bytes += lendable;
    store->loans->bytes += lendable;
    const uint64_t *pages;
    TRP_TRY(chunk_pages(store, chunk, &pages));
    TRP_TRY(chunk_compare(store, chunk, loan->loans->map)); /* whose pages are to be read anyway */
    for (size_t at = 0; at < lendable; at += PIECE_BYTES)
        loan_add(loan,
                 (trp_bytes){loan->loans->map + *pages++ * store->page_bytes + PAGE_HEADER_BYTES,
                             lendable - at < PIECE_BYTES ? lendable - at : PIECE_BYTES});
    return chunk_tail(store, chunk, rest);
}

/* ---- and back ------------------------------------------------------------------------------- */

void loan_return(void *arg)
{
    struct loan *loan = arg;
    struct loans *loans = loan->loans;
    mutex_lock(&loans->mutex);
    list_remove(&loans->out, &loan->link);
    bool closed = loans->closed, last = !loans->out.first;
    if (!closed) {
        list_push(&loans->returned, &loan->link);
        cond_signal(&loans->changed);
    }
    mutex_unlock(&loans->mutex);
    if (!closed)
        return;
    loan_free(loan);
    if (last)
        loans_free(loans);
}

bool store_loans_collect(struct store *store)
{
    struct loans *loans = store->loans;
    if (!loans)
        return false;
    mutex_lock(&loans->mutex);
    struct list returned = loans->returned;
    loans->returned = (struct list){0};
    bool more = loans->out.first;
    mutex_unlock(&loans->mutex);
    loans_take_back(store, returned);
    return more;
}

bool store_loans_wait(struct store *store, struct deadline deadline)
{
    struct loans *loans = store->loans;
    if (!loans)
        return true;
    mutex_lock(&loans->mutex);
    while (loans->out.first && cond_wait(&loans->changed, &loans->mutex, deadline))
        continue;
    bool all = !loans->out.first;
    mutex_unlock(&loans->mutex);
    store_loans_collect(store);
    return all;
}
