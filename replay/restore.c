/* Problem: what lies on a disk is to become a store again, or to be trusted, without a server.
 * Design: a checkpoint's data.mdb is copied beside its place (shared with the original where the
 * file system can), walked, synced, and takes its name in one step; what was there before stays
 * until then. Verification opens the store to look at it, checking everything.
 * Guarantee: a restore that fails or is killed leaves the directory as it was, but for one file
 * that the next restore removes. */
#include <troupe/replay.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "store_dir.h"
#include "store_record.h"
#include "store_walk.h"
#include "trajectory.h"

/* What to do about a checkpoint that is damaged. */
#define TAKE_ANOTHER "take another one that is beside it (ls %s/..)"

/* ---- restore -------------------------------------------------------------------------------- */

static _Thread_local struct {
    void (*moved)(void *arg, uint64_t done, uint64_t total);
    void *arg;
} watch;

void trp_replay_watch(void (*moved)(void *arg, uint64_t done, uint64_t total), void *arg)
{
    watch.moved = moved;
    watch.arg = arg;
}

static void watch_tell(uint64_t done, uint64_t total)
{
    if (watch.moved)
        watch.moved(watch.arg, done, total > done ? total : done);
}

/* 0 or an errno. */
static int bytes_copy(int from, int to, uint64_t bytes)
{
    enum { PART_BYTES = 1 << 20, RANGE_BYTES = 1 << 26 };
    if (ioctl(to, FICLONE, from) == 0)
        return 0;
    uint8_t *part = NULL;
    int error = 0;
    for (uint64_t done = 0; done < bytes && error == 0;) {
        uint64_t left = bytes - done;
        ssize_t got = part ? -1
                           : copy_file_range(from, NULL, to, NULL,
                                             left < RANGE_BYTES ? left : RANGE_BYTES, 0);
        if (got < 0) { /* a file system that cannot, or two of them */
            part = part ? part : xmalloc(PART_BYTES);
            got = pread(from, part, left < PART_BYTES ? left : PART_BYTES, (off_t)done);
            if (got > 0)
                got = pwrite(to, part, (size_t)got, (off_t)done);
        }
        if (got <= 0)
            error = got < 0 ? errno : EIO;
        else
            done += (uint64_t)got;
        watch_tell(done, bytes);
    }
    free(part);
    return error;
}

static trp_status data_copy(const char *from_path, const char *to_path, uint64_t bytes)
{
    int from = open(from_path, O_RDONLY | O_CLOEXEC), to = -1;
    trp_status status = from >= 0 ? TRP_OK : store_errno(errno, from_path, "open");
    if (status == TRP_OK) {
        to = open(to_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        int error = to < 0 ? errno : bytes_copy(from, to, bytes);
        if (error == 0 && fsync(to) != 0)
            error = errno;
        status = error == 0 ? TRP_OK : store_errno(error, to_path, "copy the checkpoint");
    }
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    return status;
}

static trp_status copy_check(const char *path, const char *checkpoint)
{
    trp_status status = store_walk(path, WALK_VALUES);
    if (status != TRP_DATA_LOSS)
        return status;
    char *what = xstrdup(trp_last_error());
    trp_fail(TRP_DATA_LOSS, "%s/data.mdb %s; nothing was restored: " TAKE_ANOTHER, checkpoint, what,
             checkpoint);
    free(what);
    return status;
}

static trp_status data_replace(const struct store_dir *dir, const struct checkpoint_info *info,
                               const char *copy)
{
    char *from = xasprintf("%s/data.mdb", info->path);
    trp_status status = data_copy(from, copy, info->bytes);
    if (status == TRP_OK)
        status = copy_check(copy, info->path);
    if (status == TRP_OK && rename(copy, dir->data_path) != 0)
        status = store_errno(errno, dir->data_path, "replace");
    if (status == TRP_OK)
        status = store_dir_finish(dir->path, TRP_DURABLE_PROCESS);
    else
        unlink(copy);
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
    char *copy = xasprintf("%s/data.mdb.restore", dir);
    trp_status status = TRP_OK;
    if (info.problem)
        status = trp_fail(TRP_DATA_LOSS,
                          "checkpoint %s is damaged: %s; nothing was restored: " TAKE_ANOTHER,
                          checkpoint, info.problem, checkpoint);
    if (status == TRP_OK) {
        unlink(copy); /* of a restore that was killed */
        status = store_dir_open(&target, dir, TRP_DURABLE_PROCESS, false);
    }
    if (status == TRP_OK) {
        if (!target.fresh && !force)
            status = trp_fail(TRP_FAILED_PRECONDITION,
                              "%s has a replay store already; it is replaced with --force", dir);
        else
            status = data_replace(&target, &info, copy);
        store_dir_close(&target);
    }
    free(copy);
    checkpoint_info_cleanup(&info);
    return status;
}

/* ---- verify --------------------------------------------------------------------------------- */

struct verifying {
    struct store *store;
    struct verify_report report;
    uint64_t record_bytes; /* of items; the store counts those of chunks */
    uint64_t looks;
};

static void damage_add(void *arg, uint32_t table_id, uint64_t key, const char *what)
{
    struct verifying *verifying = arg;
    verify_report_add(&verifying->report, table_id, key, what);
}

static void verify_tell(struct verifying *verifying)
{
    enum { TELL_EVERY = 256 };
    struct store_stats stats;
    if (verifying->looks++ % TELL_EVERY != 0 || !watch.moved)
        return;
    store_stats(verifying->store, &stats);
    watch_tell(verifying->record_bytes + stats.checked_bytes, stats.live_bytes);
}

static trp_status item_look(void *arg, uint32_t table_id, struct item *item)
{
    struct verifying *verifying = arg;
    (void)table_id;
    bool valid = trajectory_valid(item->trajectory);
    verify_tell(verifying);
    verifying->record_bytes += item_record_size(item);
    store_item_destroy(verifying->store, item);
    return valid ? TRP_OK : trp_fail(TRP_DATA_LOSS, "a trajectory that no server wrote");
}

static char *table_name(const struct store *store, uint32_t id)
{
    size_t count;
    const struct store_table *tables = store_tables(store, &count);
    for (size_t i = 0; i < count; ++i) {
        trp_table_options *options;
        if (tables[i].id != id || trp_table_options_parse(tables[i].options, &options) != TRP_OK)
            continue;
        char *name = xstrdup(options->name);
        trp_table_options_destroy(options);
        return name;
    }
    return xstrdup("");
}

static void report_fill(const struct verifying *verifying, trp_replay_report *out)
{
    const struct verify_report *report = &verifying->report;
    struct store_stats stats;
    store_stats(verifying->store, &stats);
    out->items = stats.items + stats.dropped;
    out->chunks = stats.checked_chunks;
    out->bytes = verifying->record_bytes + stats.checked_bytes;
    out->damaged = report->damaged;
    out->damage = xcalloc(report->damage_count + 1, sizeof *out->damage);
    out->damage_count = report->damage_count;
    for (size_t i = 0; i < report->damage_count; ++i)
        out->damage[i] = (trp_replay_damage){
            .table = table_name(verifying->store, report->damage[i].table_id),
            .key = report->damage[i].key,
            .what = xstrdup(report->damage[i].what),
        };
}

trp_status trp_replay_verify(const char *dir, trp_replay_report *report)
{
    struct verifying verifying = {0};
    int64_t started_ns = clock_now_ns(&clock_monotonic);
    *report = (trp_replay_report){0};
    struct store_options options = {.dir = dir,
                                    .read_only = true,
                                    .check = true,
                                    .damage = damage_add,
                                    .damage_arg = &verifying};
    TRP_TRY(store_create(&verifying.store, &options));
    trp_status status = store_load(verifying.store, item_look, &verifying);
    if (status == TRP_OK)
        report_fill(&verifying, report);
    report->seconds = (double)(clock_now_ns(&clock_monotonic) - started_ns) * 1e-9;
    verify_report_cleanup(&verifying.report);
    store_destroy(verifying.store);
    return status;
}

void trp_replay_report_cleanup(trp_replay_report *report)
{
    for (size_t i = 0; i < report->damage_count; ++i) {
        free(report->damage[i].table);
        free(report->damage[i].what);
    }
    free(report->damage);
    *report = (trp_replay_report){0};
}
