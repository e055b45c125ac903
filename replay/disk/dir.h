/* The directory of a store: who has it, whose it is, and whether it went down with its host.
 *
 *   LOCK      flock'ed while open; the owner's pid
 *   FORMAT    "troupe replay store\nformat N\n"
 *   STATE     "open|clean process|memory|system BOOT_ID\n"; "make [another]\n" while being made;
 *             "clean copy|another\n" in a checkpoint and what was restored from one
 *   LEASES    words of readers on this host, see store/share.c
 *   data.mdb  LMDB's
 *   data.mdb.restore   what a restore makes of it; of one that was killed, until the next opening
 *   CHECKPOINT, checkpoints/   see checkpoint_dir.h */
#ifndef TRP_REPLAY_DISK_DIR_H
#define TRP_REPLAY_DISK_DIR_H

#include <stdbool.h>
#include <stdio.h>

#include <troupe/replay.h>
#include <troupe/status.h>

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

/* Behind its last page a stopped store keeps what its next start needs if the file system fills up
 * meanwhile. */
enum { STORE_STOPPED_TAIL_BYTES = 768 << 10 };

/* Takes the directory, made when missing; then it is ours and has our format, and what a killed
 * restore left in it is gone. FAILED_PRECONDITION: foreign, another format, in use (by whom), a
 * checkpoint (unless it is only looked at); else the errno, with the path. On failure nothing is
 * held. */
trp_status store_dir_open(struct store_dir *dir, const char *path, trp_durability durability,
                          bool read_only);

/* True when `path` holds a store, whatever its state. */
bool store_dir_exists(const char *path);

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

/* Makes a directory, and its name durable; or makes the names in one durable: 0 or an errno. */
int store_path_make(const char *path);
int store_path_sync(const char *path);

/* A file to be written from its beginning; NULL with errno. */
FILE *store_path_write(const char *path);

/* A status for an errno of the file system. */
trp_status store_errno(int error, const char *path, const char *what);

/* Bytes that a file in the directory may have now, and for how many to reserve addresses, because
 * file systems grow. */
trp_status store_dir_capacity(const struct store_dir *dir, uint64_t *bytes, uint64_t *map_bytes);

#endif
