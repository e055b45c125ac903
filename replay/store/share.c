/* Problem: a reader on this host may look into data.mdb while we write it, but not into pages that
 * mean something else by now, and we cannot ask a stopped reader to go away.
 * Design: a reader is told pages and has a lease: a word in a file that both map. Before anything
 * that the reader was told of is let go, its word is cleared; the reader looks at it after it has
 * copied. A server that was killed cleared nothing: whoever opens the store next does, before its
 * first write. A nonce in a page of its own (one-page values never move) tells the reader that the
 * file it found is this one.
 * Guarantee: while a word has its value, the pages told under it are not written to. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "replay/wire/limits.h"

enum {
    LEASE_FILE_BYTES = SHARED_LEASES_MAX * sizeof(uint64_t),
    SHARE_PAGES = 64, /* what the nonce's transaction may take, with room to spare */
};

struct store_sharing {
    struct store_share share;
    _Atomic uint64_t *words;
    bool taken[SHARED_LEASES_MAX];
};

/* All words 0, for everybody who has mapped them. Written, not allocated: where no room is left a
 * hole is refused, and what is there is still written. */
static trp_status leases_map(const char *path, bool make, _Atomic uint64_t **words)
{
    static const uint8_t none[LEASE_FILE_BYTES];
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), STORE_FILE_MODE);
    if (fd < 0)
        return store_errno(errno, path, "open");
    ssize_t written = pwrite(fd, none, sizeof none, 0);
    int error = written < 0 ? errno : ENOSPC;
    void *map = MAP_FAILED;
    if (written == sizeof none) {
        map = mmap(NULL, LEASE_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = errno;
    }
    close(fd);
    if (map == MAP_FAILED)
        return store_errno(error, path, "map");
    *words = map;
    return TRP_OK;
}

static void leases_clear(_Atomic uint64_t *words)
{
    for (size_t i = 0; i < SHARED_LEASES_MAX; i++)
        atomic_store_explicit(&words[i], 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

trp_status leases_revoke(const struct store *store)
{
    _Atomic uint64_t *words;
    char *path = xasprintf("%s/LEASES", store->dir.path);
    trp_status status = TRP_OK;
    if (access(path, F_OK) == 0) {
        status = leases_map(path, false, &words);
        if (status == TRP_OK)
            munmap((void *)words, LEASE_FILE_BYTES);
    }
    free(path);
    return status;
}

/* ---- the nonce ------------------------------------------------------------------------------ */

static trp_status nonce_put(struct store *store, void *nonce)
{
    uint8_t page[PIECE_BYTES] = {0};
    memcpy(page, nonce, NONCE_BYTES);
    return lmdb_put(store, TREE_META, META_NONCE_KEY, (trp_bytes){page, sizeof page}, 0);
}

static trp_status nonce_find(struct store *store, uint64_t *at)
{
    uint64_t page;
    struct cursor meta;
    TRP_TRY(cursor_open(store, TREE_META, &meta));
    TRP_TRY(cursor_seek(&meta, MDB_SET_KEY, META_NONCE_KEY));
    if (!meta.there || !page_of_piece(store, meta.value.data, &page))
        return trp_fail(TRP_INTERNAL, "replay store %s: the nonce has no page of its own",
                        store->dir.data_path);
    *at = page * store->page_bytes + PAGE_HEADER_BYTES;
    return TRP_OK;
}

/* ---- sharing -------------------------------------------------------------------------------- */

static trp_status share_fill(struct store *store, struct store_sharing *sharing)
{
    struct store_share *share = &sharing->share;
    struct stat info;
    share->data_path = realpath(store->dir.data_path, NULL);
    if (!share->data_path || stat(share->data_path, &info) != 0)
        return store_errno(errno, store->dir.data_path, "find");
    int dir_bytes = (int)(strrchr(share->data_path, '/') - share->data_path);
    *share =
        (struct store_share){.data_path = share->data_path,
                             .lease_path = xasprintf("%.*s/LEASES", dir_bytes, share->data_path),
                             .page_bytes = store->page_bytes,
                             .map_bytes = store->map_bytes,
                             .piece_offset = PAGE_HEADER_BYTES,
                             .piece_bytes = PIECE_BYTES,
                             .device = info.st_dev,
                             .inode = info.st_ino};
    if (getrandom(share->nonce, NONCE_BYTES, 0) != NONCE_BYTES)
        return store_errno(errno, share->data_path, "get random bytes");
    if (pages_insert(&store->pages) < SHARE_PAGES)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "replay store %s has no room",
                        store->dir.data_path);
    TRP_TRY(lmdb_transact(store, nonce_put, share->nonce));
    TRP_TRY(nonce_find(store, &share->nonce_at));
    return leases_map(share->lease_path, true, &sharing->words);
}

void sharing_destroy(struct store_sharing *sharing)
{
    if (!sharing)
        return;
    if (sharing->words) {
        leases_clear(sharing->words);
        munmap((void *)sharing->words, LEASE_FILE_BYTES);
    }
    free(sharing->share.data_path);
    free(sharing->share.lease_path);
    free(sharing);
}

trp_status store_share(struct store *store)
{
    TRP_TRY(store_commit(store)); /* what was admitted counts on the pages that the nonce takes */
    struct store_sharing *sharing = xcalloc(1, sizeof *sharing);
    trp_status status = share_fill(store, sharing);
    if (status == TRP_OK)
        store->sharing = sharing;
    else
        sharing_destroy(sharing);
    return status;
}

const struct store_share *store_shared(const struct store *store)
{
    return store->sharing ? &store->sharing->share : NULL;
}

trp_status store_lease_begin(struct store *store, uint64_t value, uint32_t *index)
{
    struct store_sharing *sharing = store->sharing;
    for (uint32_t i = 0; i < SHARED_LEASES_MAX; i++) {
        if (sharing->taken[i])
            continue;
        sharing->taken[i] = true;
        atomic_store_explicit(&sharing->words[i], value, memory_order_release);
        *index = i;
        return TRP_OK;
    }
    return trp_fail(TRP_RESOURCE_EXHAUSTED, "%d clients read this store themselves already",
                    SHARED_LEASES_MAX);
}

void store_lease_end(struct store *store, uint32_t index)
{
    atomic_store_explicit(&store->sharing->words[index], 0, memory_order_relaxed);
    /* Everything that is written from now on is written after it. */
    atomic_thread_fence(memory_order_seq_cst);
    store->sharing->taken[index] = false;
}
