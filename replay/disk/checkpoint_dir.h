/* Directories of checkpoints: which there are, what is in them, which may go. A checkpoint is a
 * store directory with one more file:
 *
 *   CHECKPOINT  "troupe replay checkpoint\n", then a line each: created NS, store NONCE, bytes N
 *               (of data.mdb), items N, chunks N, damaged N
 *               (items that were left out), and for each table: table SIZE INSERTS SAMPLES
 *               DELETES OPTIONS
 *
 * It is written last, and the directory gets its name after it: what has a name is whole. */
#ifndef TRP_REPLAY_DISK_CHECKPOINT_DIR_H
#define TRP_REPLAY_DISK_CHECKPOINT_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>
#include "record.h"

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
    size_t table_count;
    char *problem; /* NULL: whole, as far as its files' names and sizes tell */
};

struct checkpoint_list {
    struct checkpoint_info *at; /* newest first */
    size_t count;
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
    size_t count;
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

#endif
