/* Problem: what lies on a disk is to become a store again, without a server.
 * Design: a checkpoint's data.mdb is copied beside its place, walked, synced, and takes its name in
 * one step; what was there before stays until then. It is a copy byte for byte where the file
 * system could share its blocks, too: a write to a shared one needs a new one, and on a full disk
 * the store, which maps them, would die of it.
 * Guarantee: a restore that fails or is told to end leaves the directory as it was; one that is
 * killed leaves files that whoever opens the directory next removes. */
#include <troupe/replay.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "checkpoint.h"
#include "core/alloc.h"
#include "core/file.h"
#include "replay/disk/disk.h"
#include "replay/store/store.h"

/* The remedy for a checkpoint that is damaged. */
#define TAKE_ANOTHER "take another one that is beside it (ls %s/..)"

static _Thread_local struct {
    bool (*moved)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    uint64_t done, total;
} watch;

void trp_replay_watch(bool (*moved)(void *arg, uint64_t done, uint64_t total), void *arg)
{
    watch.moved = moved;
    watch.arg = arg;
}

static trp_status watch_again(void)
{
    if (!watch.moved || watch.moved(watch.arg, watch.done, watch.total))
        return TRP_OK;
    return trp_fail(TRP_CANCELLED, "interrupted");
}

trp_status watch_tell(uint64_t done, uint64_t total)
{
    watch.done = done;
    watch.total = total > done ? total : done;
    return watch_again();
}

static trp_status file_bytes_copy(int from, int to, const char *to_path, uint64_t bytes)
{
    enum { PART_BYTES = 1 << 20 };
    uint8_t *part = xmalloc(PART_BYTES);
    trp_status status = TRP_OK;
    for (uint64_t done = 0; done < bytes && status == TRP_OK;) {
        uint64_t left = bytes - done;
        ssize_t got = pread(from, part, left < PART_BYTES ? left : PART_BYTES, (off_t)done);
        if (got > 0)
            got = pwrite(to, part, (size_t)got, (off_t)done);
        if (got <= 0)
            status = store_errno(got < 0 ? errno : EIO, to_path, "copy the checkpoint");
        else
            status = watch_tell(done += (uint64_t)got, bytes);
    }
    free(part);
    return status;
}

/* With the room that a stopped store keeps for its next start, too. */
static trp_status data_copy(const char *from_path, const char *to_path, uint64_t bytes)
{
    int from = open(from_path, O_RDONLY | O_CLOEXEC), to = -1;
    if (from < 0)
        return store_errno(errno, from_path, "open");
    to = open(to_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, STORE_FILE_MODE);
    trp_status status = to < 0 ? store_errno(errno, to_path, "make") : TRP_OK;
    if (status == TRP_OK)
        status = file_bytes_copy(from, to, to_path, bytes);
    if (status == TRP_OK) {
        int error = posix_fallocate(to, (off_t)bytes, (off_t)store_tail_bytes(bytes));
        if (error == 0 && fsync(to) != 0)
            error = errno;
        if (error != 0)
            status = store_errno(error, to_path, "copy the checkpoint");
    }
    close(from);
    fd_close(to);
    return status;
}

static trp_status copy_check(const char *path, const char *checkpoint)
{
    trp_status status = store_walk(path, WALK_VALUES, watch_again);
    if (status != TRP_DATA_LOSS)
        return status;
    return trp_fail(TRP_DATA_LOSS, "%s/data.mdb %s; nothing was restored: " TAKE_ANOTHER,
                    checkpoint, trp_last_error(), checkpoint);
}

/* Where there was no store, one is being made until FORMAT says so: who finds the rest without it
 * begins anew. Where there was one, its FORMAT is the new one's, too. A store that comes back from
 * among its own checkpoints is the same store; from elsewhere, the one there may live, too. */
static trp_status data_replace(struct store_dir *dir, const struct checkpoint_info *info)
{
    char *from = xasprintf("%s/data.mdb", info->path);
    dir->another = !checkpoint_is_of(info->path, dir->path);
    trp_status status = dir->fresh ? store_dir_make_begin(dir) : TRP_OK;
    if (status == TRP_OK)
        status = data_copy(from, dir->copy_path, info->bytes);
    if (status == TRP_OK)
        status = copy_check(dir->copy_path, info->path);
    if (status == TRP_OK && rename(dir->copy_path, dir->data_path) != 0)
        status = store_errno(errno, dir->data_path, "replace");
    if (status == TRP_OK)
        status = store_dir_finish(dir->path, dir->another);
    free(from);
    return status;
}

char *trp_replay_newest_checkpoint(const char *root)
{
    return checkpoint_newest(root);
}

trp_status trp_replay_restore(const char *checkpoint, const char *dir, bool force)
{
    struct checkpoint_info info;
    struct store_dir target;
    TRP_TRY(checkpoint_info_read(&info, checkpoint));
    trp_status status = TRP_OK;
    if (info.problem)
        status = trp_fail(TRP_DATA_LOSS,
                          "checkpoint %s is damaged: %s; nothing was restored: " TAKE_ANOTHER,
                          checkpoint, info.problem, checkpoint);
    if (status == TRP_OK)
        status = store_dir_open(&target, dir, TRP_DURABLE_PROCESS, false);
    if (status == TRP_OK) {
        if (!target.fresh && !force)
            status = trp_fail(TRP_FAILED_PRECONDITION,
                              "%s has a replay store already; it is replaced with --force", dir);
        else
            status = data_replace(&target, &info);
        status == TRP_OK ? store_dir_close(&target) : store_dir_abandon(&target);
    }
    checkpoint_info_cleanup(&info);
    return status;
}
