/* The files of a store: the directory and its crash states, checkpoints, and data.mdb as a file
 * whose pages are checked, allocated ahead and fetched. Its contents: record.h, page.h. */
#ifndef TRP_REPLAY_DISK_DISK_H
#define TRP_REPLAY_DISK_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <troupe/replay.h>
#include <troupe/status.h>
#include "core/clock.h"
#include "core/list.h"
#include "record.h"

/* ---- the directory: dir.c -------------------------------------------------------------------- */

/* The directory of a store: who has it, whose it is, and whether it went down with its host.
 *
 *   LOCK      flock'ed while open; the owner's pid
 *   FORMAT    "troupe replay store\nformat N\n"
 *   STATE     "open|clean process|memory|system BOOT_ID\n"; "make [another]\n" while being made;
 *             "clean copy|another\n" in a checkpoint and what was restored from one
 *   LEASES    words of readers on this host, see store/share.c
 *   data.mdb  LMDB's
 *   data.mdb.restore   what a restore makes of it; of one that was killed, until the next opening
 *   CHECKPOINT, checkpoints/   see below */
struct store_dir {
    char *path;
    char *data_path, *copy_path;
    int lock_fd; /* -1: not held */
    bool made;   /* so was the directory itself */
    bool fresh;  /* there was no FORMAT: this store is being made */
    bool before; /* FORMAT says the format before ours, which can be read */
    bool read_only;
    bool suspect; /* its host went down while it was open, and nobody synced it */
    bool another; /* it still has the nonce of the store that it was copied from */
    bool killed;  /* only its server died: data.mdb is, page for page, what that one had open */
};

/* Of all that is made: whoever else has a right to it is told by the one who gives it. */
enum { STORE_DIR_MODE = 0700, STORE_FILE_MODE = 0600 };

/* Takes the directory, made when missing; then it is ours and has our format, and what a killed
 * restore left in it is gone. FAILED_PRECONDITION: foreign, another format, in use (by whom), a
 * checkpoint (unless it is only looked at); else the errno, with the path. On failure nothing is
 * held. */
trp_status store_dir_open(struct store_dir *dir, const char *path, trp_durability durability,
                          bool read_only);

/* Around the making of data.mdb in a fresh directory. The first removes what an interrupted
 * creation left, and says so if it is to be `another`; the second is called when data.mdb is whole
 * and synced: from then on it must be there. */
trp_status store_dir_make_begin(struct store_dir *dir);
trp_status store_dir_make_end(struct store_dir *dir);

/* Before anything is written to data.mdb in our format: FORMAT says so, if it did not. */
trp_status store_dir_upgrade(struct store_dir *dir);

/* Writes STATE: from now on a crash of the host matters, or no longer. Synced. */
trp_status store_dir_mark(struct store_dir *dir, trp_durability durability, bool clean);

/* Adds which file it is, now that its structure is known to be whole: should the server be killed,
 * the next one knows it, too. Not synced: a crash of the host is another matter. */
trp_status store_dir_known(struct store_dir *dir, trp_durability durability);

/* Lets go. A zeroed struct with lock_fd -1 is fine. */
void store_dir_close(struct store_dir *dir);

/* The same when nothing came of a restore: what it made of a fresh directory goes. */
void store_dir_abandon(struct store_dir *dir);

/* FAILED_PRECONDITION: `path` has no FORMAT, or not ours. */
trp_status store_format_check(const char *path);

/* Writes the small files of a store whose data.mdb is whole and synced, and syncs the directory.
 * `another`: it is a copy that goes its own way, so whoever opens it to write names it anew. */
trp_status store_dir_finish(const char *path, bool another);

/* Makes a directory, and its name durable: 0 or an errno. */
int store_path_make(const char *path);

/* A file to be written from its beginning; NULL with errno. */
FILE *store_path_write(const char *path);

/* A status for an errno of the file system. */
trp_status store_errno(int error, const char *path, const char *what);

/* Bytes that a file in the directory may have now, and for how many to reserve addresses, because
 * file systems grow. */
trp_status store_dir_capacity(const struct store_dir *dir, uint64_t *bytes, uint64_t *map_bytes);

/* ---- checkpoints: checkpoint_dir.c ----------------------------------------------------------- */

/* Directories of checkpoints: which there are, what is in them, which may go. A checkpoint is a
 * store directory with one more file:
 *
 *   CHECKPOINT  "troupe replay checkpoint\n", then a line each: created NS, store NONCE, bytes N
 *               (of data.mdb), items N, chunks N, damaged N
 *               (items that were left out), and for each table: table SIZE INSERTS SAMPLES
 *               DELETES OPTIONS
 *
 * It is written last, and the directory gets its name after it: what has a name is whole. */
struct checkpoint_table {
    char *options;
    int64_t size, inserts, samples, deletes;
};

struct checkpoint_info {
    char *path;
    int64_t created_at_ns;
    char store[2 * NONCE_BYTES + 1]; /* whose it is, in hex */
    uint64_t bytes, items, chunks;
    uint64_t damaged; /* items that were left out */
    struct checkpoint_table *tables;
    uint32_t table_count, table_capacity;
    char *problem; /* NULL: whole, as far as its files' names and sizes tell */
};

struct checkpoint_list {
    struct checkpoint_info *at; /* newest first */
    uint32_t count, capacity;
};

/* Where a store's checkpoints are: `option`, or checkpoints/ in the store; caller frees. */
char *checkpoint_root(const char *store_dir, const char *option);

/* Every directory in `root` that says it is a checkpoint; what a link leads to is none. No such
 * `root`: none. */
trp_status checkpoint_list_read(struct checkpoint_list *list, const char *root);
void checkpoint_list_cleanup(struct checkpoint_list *list);

/* Whether it is one of those that a store keeps in its own directory. */
bool checkpoint_is_of(const char *checkpoint, const char *store_dir);

/* The newest whole one, absolute where possible; NULL: none. Caller frees. */
char *checkpoint_newest(const char *root);

/* NOT_FOUND: `dir` is no checkpoint. The rest as in info->problem. */
trp_status checkpoint_info_read(struct checkpoint_info *info, const char *dir);
trp_status checkpoint_info_write(const struct checkpoint_info *info, const char *dir);
void checkpoint_info_cleanup(struct checkpoint_info *info);

/* Checkpoints that are to go. A zeroed struct is empty. */
struct checkpoint_removal {
    char **paths;
    uint32_t count, capacity;
};

/* Adds those of `store` that are older than its `keep` newest whole ones, oldest first. */
trp_status checkpoint_removal_add_old(struct checkpoint_removal *removal, const char *root,
                                      const char *store, uint32_t keep);

/* Adds the one in `root` of this name or path. NOT_FOUND: there is none. */
trp_status checkpoint_removal_add(struct checkpoint_removal *removal, const char *root,
                                  const char *name);

trp_status checkpoint_removal_run(const struct checkpoint_removal *removal);
void checkpoint_removal_cleanup(struct checkpoint_removal *removal);

/* Removes what an interrupted checkpoint of `store` left in `root`. */
void checkpoint_sweep(const char *root, const char *store);

/* Removes the files of a checkpoint and, if nothing else is in it, the directory. */
void checkpoint_remove(const char *dir);

/* The start of a name that does not count yet; caller frees. */
char *checkpoint_temporary(const char *store);

/* ---- data.mdb: is its structure whole? walk.c ------------------------------------------------ */

/* LMDB believes what it reads, and one wrong number in a page is a crash: so a file is walked
 * before LMDB opens it. */
enum walk_depth {
    WALK_METAS,  /* how the file begins, and its length */
    WALK_TREES,  /* and every page of every tree */
    WALK_VALUES, /* and the headers of pages that hold values */
};

/* Reads so much of the stopped file. `goes_on` is asked now and then: what is no TRP_OK ends it;
 * NULL: nobody is. DATA_LOSS: the first thing that is wrong, in words that go on behind the file's
 * name; otherwise as the errno of the file system. */
trp_status store_walk(const char *path, enum walk_depth depth, trp_status (*goes_on)(void));

/* ---- pages that exist: space.c --------------------------------------------------------------- */

/* A helper thread allocates and populates pages ahead of the writer, whose thread owns this;
 * the watermark is what the two share. */
struct space;

struct space_options {
    int fd;       /* of data.mdb; stays the caller's, outlives the space */
    uint8_t *map; /* where page 0 is mapped writable; NULL: allocate only */
    size_t page_bytes;
    uint64_t first; /* pages below this exist already */
    uint64_t limit; /* pages at or beyond this never will */
};

/* Starts the helper. Allocates nothing yet. */
trp_status space_create(struct space **out, const struct space_options *options);

/* Stops the helper. NULL is fine. */
void space_destroy(struct space *space);

/* Every page below this one is allocated and stays so. Any thread. */
uint64_t space_watermark(const struct space *space);

/* The helper aims at `page`; never waits. A higher aim stands. */
void space_want(struct space *space, uint64_t page);

/* Sees to it, or waits, that the watermark reaches `page`. False: the deadline passed, or the file
 * system (or the limit) refuses, now: when it refused a moment ago it is not asked again. */
bool space_wait(struct space *space, uint64_t page, struct deadline deadline);

/* The errno of the last refusal; 0: none since the watermark last rose. */
int space_error(struct space *space);

/* ---- pages on their way from the disk: fetcher.c --------------------------------------------- */

/* Many at a time: who owns the tables hands over where they are and goes on. Threads of its own
 * read; whoever calls does not wait. */
struct fetcher;

/* Where a run of pages is in the file, none of which is in memory. */
struct fetch_run {
    uint64_t at, bytes;
};

/* Pages that are wanted together. A zeroed struct is none. */
struct fetch {
    struct list_link link; /* the fetcher's */
    struct fetch_run *runs;
    uint32_t count, capacity;
    uint64_t bytes; /* of all runs */
};

void fetch_add(struct fetch *fetch, struct fetch_run run);
void fetch_clear(struct fetch *fetch); /* keeps the capacity */
void fetch_cleanup(struct fetch *fetch);

/* `path` is the file. `done(arg)` is called from any of the fetcher's threads when there is
 * something to take. */
trp_status fetcher_create(struct fetcher **out, const char *path, void (*done)(void *arg),
                          void *arg);

/* Joins the threads; what is not done yet counts as done. After it nothing is started or told. */
void fetcher_stop(struct fetcher *fetcher);
void fetcher_destroy(struct fetcher *fetcher); /* NULL is fine; everything was taken */

/* Gives it to the fetcher, until it is taken. Any thread, as the next. */
void fetcher_start(struct fetcher *fetcher, struct fetch *fetch);

/* One whose pages came, or cannot come; NULL: none now. */
struct fetch *fetcher_take(struct fetcher *fetcher);

#endif
