/* Problem: a checkpoint is as long as the disk is slow, and the server serves meanwhile.
 * Design: store/copy.h reads the store in slices; here they are asked for one by one, with the
 * server in between, and go into a new directory with a name that does not count. When all of it is
 * synced the directory gets its name, and old ones go. Verification is the same reading without
 * writing.
 * Guarantee: a checkpoint that has its name is whole; one that fails, or a crash on the way, leaves
 * nothing that counts, and what is left of it goes at the next one. */
#include "checkpoint.h"
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/background.h"
#include "core/clock.h"
#include "core/status.h"
#include "limits.h"
#include "replay/store/copy.h"
#include "replay/disk/dir.h"
#include "replay/store/checkpoint_writer.h"

enum { WAIT_MS = 50, NAMES_TRIED = 1000 };

struct run_table {
    uint32_t id;
    char *name;
};

struct copy_run {
    struct checkpointer *checkpointer;
    bool (*cancelled)(void);
    struct copy_sink sink;
    struct store_copy *copy;
    struct background background; /* does what needs no engine */
    char *making;                 /* the directory, at first without a name that counts */
    struct checkpoint_writer *target;
    uint64_t file_bytes; /* of the store, at the cut */
    trp_status status;
    struct checkpoint_info info; /* of the cut */
    struct run_table *tables;    /* the same ones */
    trp_replay_report *report;   /* of a verification */
};

/* ---- turns ---------------------------------------------------------------------------------- */

void checkpointer_init(struct checkpointer *checkpointer,
                       const struct checkpointer_options *options)
{
    *checkpointer = (struct checkpointer){.options = *options};
    checkpointer->root = checkpoint_root(options->store_dir, options->dir);
    mutex_init(&checkpointer->mutex);
    cond_init(&checkpointer->changed);
}

void checkpointer_stop(struct checkpointer *checkpointer)
{
    mutex_lock(&checkpointer->mutex);
    checkpointer->stopping = true;
    cond_broadcast(&checkpointer->changed);
    mutex_unlock(&checkpointer->mutex);
}

void checkpointer_cleanup(struct checkpointer *checkpointer)
{
    mutex_cleanup(&checkpointer->mutex);
    cond_cleanup(&checkpointer->changed);
    free(checkpointer->root);
}

struct progress checkpointer_progress(struct checkpointer *checkpointer)
{
    mutex_lock(&checkpointer->mutex);
    struct progress progress = checkpointer->progress;
    mutex_unlock(&checkpointer->mutex);
    return progress;
}

static trp_status cancelled(const char *what)
{
    return trp_fail(TRP_CANCELLED, "%s: cancelled", what);
}

/* Whoever waits on a thread of the pool keeps it from others' calls. */
static trp_status wait_allowed(const struct copy_run *run, const char *what)
{
    const struct checkpointer *checkpointer = run->checkpointer;
    if (!run->cancelled || !checkpointer->busy || checkpointer->stopping ||
        checkpointer->waiting < CHECKPOINT_WAITERS_MAX)
        return TRP_OK;
    return trp_fail(TRP_UNAVAILABLE,
                    "%s: a %s is going on and another call waits for its end; ask again then", what,
                    checkpointer->progress.what);
}

static trp_status turn_take(struct copy_run *run, const char *what)
{
    struct checkpointer *checkpointer = run->checkpointer;
    mutex_lock(&checkpointer->mutex);
    trp_status status = wait_allowed(run, what);
    if (status != TRP_OK) {
        mutex_unlock(&checkpointer->mutex);
        return status;
    }
    checkpointer->waiting += run->cancelled != NULL;
    while (checkpointer->busy && !checkpointer->stopping && !(run->cancelled && run->cancelled()))
        cond_wait(&checkpointer->changed, &checkpointer->mutex,
                  deadline_in_ms(&clock_monotonic, WAIT_MS));
    checkpointer->waiting -= run->cancelled != NULL;
    if (checkpointer->busy || checkpointer->stopping) {
        status = cancelled(what);
    } else {
        checkpointer->busy = true;
        checkpointer->progress =
            (struct progress){.what = what, .started_ns = clock_now_ns(&clock_monotonic)};
    }
    mutex_unlock(&checkpointer->mutex);
    return status;
}

static void turn_give(struct checkpointer *checkpointer)
{
    mutex_lock(&checkpointer->mutex);
    checkpointer->busy = false;
    checkpointer->progress = (struct progress){0};
    cond_broadcast(&checkpointer->changed);
    mutex_unlock(&checkpointer->mutex);
}

/* Between slices: says how far it is; false: it is to end. */
static bool turn_goes_on(void *arg)
{
    struct copy_run *run = arg;
    struct checkpointer *checkpointer = run->checkpointer;
    struct copy_stats stats = {0};
    if (run->copy)
        stats = store_copy_stats(run->copy);
    mutex_lock(&checkpointer->mutex);
    checkpointer->progress.done_bytes = stats.bytes;
    checkpointer->progress.total_bytes =
        stats.total_bytes > stats.bytes ? stats.total_bytes : stats.bytes;
    bool stopping = checkpointer->stopping;
    mutex_unlock(&checkpointer->mutex);
    return !stopping && !(run->cancelled && run->cancelled());
}

/* ---- slices --------------------------------------------------------------------------------- */

static void enter(struct copy_run *run, void (*work)(void *arg, struct engine *engine))
{
    const struct engine_door *door = &run->checkpointer->options.door;
    door->enter(door->owner, work, run);
}

static trp_status stopped(void)
{
    return trp_fail(TRP_UNAVAILABLE, "the replay server has stopped");
}

static void info_fill(struct copy_run *run, struct engine *engine)
{
    struct checkpoint_info *info = &run->info;
    struct store_stats stats;
    store_stats(engine->store, &stats);
    run->file_bytes = stats.file_bytes;
    size_t count = engine_table_count(engine);
    info->created_at_ns = clock_wall_ns();
    engine_identity(engine, info->store);
    info->tables = xcalloc(count + 1, sizeof *info->tables);
    info->table_count = count;
    run->tables = xcalloc(count + 1, sizeof *run->tables);
    for (size_t i = 0; i < count; i++) {
        struct table *table = engine->tables[i]->table;
        run->tables[i] = (struct run_table){table_id(table), xstrdup(engine->tables[i]->name)};
        const struct limiter *limiter = table_limiter(table);
        info->tables[i] = (struct checkpoint_table){
            .options = trp_table_options_format(table_options(table)),
            .size = table_size(table),
            .inserts = limiter->inserts,
            .samples = limiter->samples,
            .deletes = limiter->deletes,
        };
    }
}

static void run_begin(void *arg, struct engine *engine)
{
    struct copy_run *run = arg;
    run->status = engine ? engine_index_finish(engine) : stopped();
    if (run->status == TRP_OK)
        run->status = engine_flush(engine);
    if (run->status == TRP_OK)
        run->status = store_copy_begin(engine->store, &run->copy, &run->sink);
    if (run->status == TRP_OK)
        info_fill(run, engine);
}

static void run_find(void *arg, struct engine *engine)
{
    struct copy_run *run = arg;
    run->status = engine ? store_copy_find(engine->store, run->copy) : stopped();
}

static void run_check(void *arg, struct engine *engine)
{
    struct copy_run *run = arg;
    run->status = engine ? store_copy_check(engine->store, run->copy) : stopped();
}

static void run_end(void *arg, struct engine *engine)
{
    struct copy_run *run = arg;
    if (engine)
        store_copy_end(engine->store, run->copy);
    run->copy = NULL;
}

static void old_remove(const struct checkpointer *checkpointer, const char *store)
{
    struct checkpoint_removal removal = {0};
    uint32_t keep = checkpointer->options.keep;
    if (keep == 0)
        return;
    trp_status status = checkpoint_removal_add_old(&removal, checkpointer->root, store, keep);
    if (status == TRP_OK)
        status = checkpoint_removal_run(&removal);
    for (size_t i = 0; status == TRP_OK && i < removal.count; i++)
        trp_log(TRP_INFO, "removed an old checkpoint path=%s keep=%u", removal.paths[i], keep);
    if (status != TRP_OK)
        trp_log(TRP_WARN, "old checkpoints stay reason=%s", trp_last_error());
    checkpoint_removal_cleanup(&removal);
}

/* Its turn comes, and the thread for it. */
static trp_status run_open(struct copy_run *run, const char *what)
{
    TRP_TRY(turn_take(run, what));
    trp_status status = background_start(&run->background, what);
    if (status != TRP_OK)
        turn_give(run->checkpointer);
    return status;
}

/* Returns `status` with its words. */
static trp_status run_close(struct copy_run *run, trp_status status)
{
    char *kept = error_keep();
    enter(run, run_end);
    if (status == TRP_OK && run->making)
        old_remove(run->checkpointer, run->info.store);
    background_stop(&run->background);
    free(run->making);
    for (size_t i = 0; i < run->info.table_count; i++)
        free(run->tables[i].name);
    free(run->tables);
    checkpoint_info_cleanup(&run->info);
    turn_give(run->checkpointer);
    if (status != TRP_OK)
        return error_back(status, kept);
    free(kept);
    return TRP_OK;
}

/* Behind the items that a server which has just started does not have in memory yet: nobody waits
 * for all of them at once. */
static trp_status run_start(struct copy_run *run, const char *what)
{
    if (engine_load(&run->checkpointer->options.door, turn_goes_on, run) != TRP_OK)
        return cancelled(what);
    enter(run, run_begin);
    return run->status;
}

static trp_status copy_give(void *arg)
{
    return store_copy_give(arg);
}

/* The whole copy, from run_begin() on. */
static trp_status run_copy(struct copy_run *run, const char *what)
{
    while (!store_copy_done(run->copy)) {
        if (!turn_goes_on(run))
            return cancelled(what);
        enter(run, run_find);
        TRP_TRY(run->status);
        TRP_TRY(background_run(&run->background, copy_give, run->copy));
    }
    enter(run, run_check); /* the last pages may have been recycled while they were read */
    return run->status;
}

/* ---- a checkpoint --------------------------------------------------------------------------- */

/* A file system without room is not filled up first: the store may be on it, too. */
static trp_status room_check(const char *root, uint64_t bytes)
{
    struct statvfs fs;
    if (statvfs(root, &fs) != 0)
        return store_errno(errno, root, "statvfs");
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (fs.f_blocks == 0 || free_bytes > bytes + bytes / 16)
        return TRP_OK;
    return trp_fail(TRP_RESOURCE_EXHAUSTED,
                    "no room for a checkpoint: %s has %" PRIu64 " bytes free, the store %" PRIu64,
                    root, free_bytes, bytes);
}

static trp_status root_make(const char *root)
{
    int error = store_path_make(root);
    return error == 0 || error == EEXIST ? TRP_OK : store_errno(error, root, "make");
}

static void time_name(int64_t wall_ns, char name[32])
{
    time_t seconds = (time_t)(wall_ns / 1000000000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(name, 32, "%Y-%m-%dT%H-%M-%SZ", &utc);
}

/* The highest n of the checkpoints that are called <name>-<n>; 0: there is none. Who keeps the
 * newest one alone must not see a later one take the place of one that went. */
static unsigned name_last(const char *root, const char *name)
{
    DIR *entries = opendir(root);
    unsigned last = 0;
    size_t size = strlen(name);
    for (struct dirent *entry = entries ? readdir(entries) : NULL; entry;
         entry = readdir(entries)) {
        unsigned n;
        if (strncmp(entry->d_name, name, size) == 0 &&
            sscanf(entry->d_name + size, "-%u", &n) == 1 && n > last)
            last = n;
    }
    if (entries)
        closedir(entries);
    return last;
}

/* The directory gets the next name that is free: <root>/<UTC time>-<n>. */
static trp_status name_take(struct copy_run *run)
{
    const char *root = run->checkpointer->root;
    char name[32];
    time_name(run->info.created_at_ns, name);
    unsigned first = name_last(root, name) + 1;
    for (unsigned n = first; n - first < NAMES_TRIED; n++) {
        char *wanted = xasprintf("%s/%s-%u", root, name, n);
        if (rename(run->making, wanted) == 0) {
            free(run->making);
            run->making = wanted;
            return TRP_OK;
        }
        int error = errno;
        free(wanted);
        if (error != EEXIST && error != ENOTEMPTY)
            return store_errno(error, run->making, "name the checkpoint");
    }
    return trp_fail(TRP_ALREADY_EXISTS, "%s has %d checkpoints of one second", root, NAMES_TRIED);
}

static trp_status name_give(struct copy_run *run, char **path)
{
    TRP_TRY(name_take(run));
    *path = realpath(run->making, NULL);
    int error = *path ? store_path_sync(run->checkpointer->root) : errno;
    return error == 0 ? TRP_OK : store_errno(error, run->making, "name the checkpoint");
}

static trp_status files_begin(void *arg)
{
    struct copy_run *run = arg;
    TRP_TRY(checkpoint_writer_create(&run->target, run->making, run->file_bytes));
    store_copy_set_argument(run->copy, run->target);
    return TRP_OK;
}

static trp_status files_finish(void *arg)
{
    struct copy_run *run = arg;
    struct checkpoint_writer_stats stats;
    TRP_TRY(checkpoint_writer_finish(run->target, run->copy, &stats));
    run->info.bytes = stats.bytes;
    run->info.items = stats.items;
    run->info.damaged = stats.damaged;
    run->info.chunks = store_copy_stats(run->copy).chunks;
    TRP_TRY(checkpoint_info_write(&run->info, run->making));
    return store_dir_finish(run->making, false);
}

static trp_status files_close(void *arg)
{
    struct copy_run *run = arg;
    checkpoint_writer_destroy(run->target);
    run->target = NULL;
    return TRP_OK;
}

/* LMDB wants one thread for all of a transaction. */
static trp_status files_write(struct copy_run *run)
{
    trp_status status = background_run(&run->background, files_begin, run);
    if (status == TRP_OK)
        status = run_copy(run, "checkpoint");
    if (status == TRP_OK)
        status = background_run(&run->background, files_finish, run);
    background_run(&run->background, files_close, run);
    return status;
}

static trp_status checkpoint_make(struct copy_run *run, char **path)
{
    const char *root = run->checkpointer->root;
    TRP_TRY(root_make(root));
    checkpoint_sweep(root, run->info.store);
    TRP_TRY(room_check(root, store_copy_stats(run->copy).total_bytes));
    char *mark = checkpoint_temporary(run->info.store);
    run->making = xasprintf("%s/%s%d", root, mark, (int)getpid());
    free(mark);
    trp_status status =
        mkdir(run->making, STORE_DIR_MODE) == 0 ? TRP_OK : store_errno(errno, run->making, "make");
    if (status == TRP_OK)
        status = files_write(run);
    if (status == TRP_OK)
        status = name_give(run, path);
    if (status == TRP_OK)
        return TRP_OK;
    char *kept = error_keep();
    checkpoint_remove(run->making);
    return error_back(status, kept);
}

trp_status checkpointer_run(struct checkpointer *checkpointer, bool (*is_cancelled)(void),
                            char **path)
{
    struct copy_run run = {
        .checkpointer = checkpointer,
        .cancelled = is_cancelled,
        .sink = {.item = checkpoint_writer_item,
                 .piece = checkpoint_writer_piece,
                 .damage = checkpoint_writer_damage,
                 .removed = checkpoint_writer_removed},
    };
    *path = NULL;
    TRP_TRY(run_open(&run, "checkpoint"));
    trp_status status = run_start(&run, "checkpoint");
    if (status == TRP_OK)
        status = checkpoint_make(&run, path);
    return run_close(&run, status);
}

/* ---- verification --------------------------------------------------------------------------- */

void report_damage(trp_replay_report *report, char *table, uint64_t key, const char *what)
{
    report->damaged++;
    if (report->damage_count == VERIFY_DAMAGE_MAX) {
        free(table);
        return;
    }
    if (!report->damage)
        report->damage = xcalloc(VERIFY_DAMAGE_MAX, sizeof *report->damage);
    report->damage[report->damage_count++] =
        (trp_replay_damage){.table = table, .key = key, .what = xstrdup(what)};
}

void trp_replay_report_cleanup(trp_replay_report *report)
{
    for (size_t i = 0; i < report->damage_count; i++) {
        free(report->damage[i].table);
        free(report->damage[i].what);
    }
    free(report->damage);
    *report = (trp_replay_report){0};
}

static trp_status verify_item(void *arg, uint64_t seq, trp_bytes record)
{
    (void)arg;
    (void)seq;
    (void)record;
    return TRP_OK;
}

static trp_status verify_piece(void *arg, uint64_t seq, uint32_t piece, trp_bytes bytes)
{
    (void)arg;
    (void)seq;
    (void)piece;
    (void)bytes;
    return TRP_OK;
}

static trp_status verify_damage(void *arg, uint32_t table_id, uint64_t key, const char *what)
{
    const struct copy_run *run = arg;
    const char *name = "";
    for (size_t i = 0; i < run->info.table_count; i++)
        if (run->tables[i].id == table_id)
            name = run->tables[i].name;
    report_damage(run->report, xstrdup(name), key, what);
    return TRP_OK;
}

trp_status checkpointer_verify(struct checkpointer *checkpointer, bool (*is_cancelled)(void),
                               trp_replay_report *report)
{
    struct copy_run run = {
        .checkpointer = checkpointer,
        .cancelled = is_cancelled,
        .sink = {verify_item, verify_piece, verify_damage, &run, NULL},
        .report = report,
    };
    int64_t started_ns = clock_now_ns(&clock_monotonic);
    *report = (trp_replay_report){0};
    TRP_TRY(run_open(&run, "verify"));
    trp_status status = run_start(&run, "verify");
    if (status == TRP_OK)
        status = run_copy(&run, "verify");
    if (run.copy) {
        struct copy_stats stats = store_copy_stats(run.copy);
        report->items = stats.items;
        report->chunks = stats.chunks;
        report->bytes = stats.bytes;
    }
    report->seconds = (double)(clock_now_ns(&clock_monotonic) - started_ns) * 1e-9;
    return run_close(&run, status);
}
