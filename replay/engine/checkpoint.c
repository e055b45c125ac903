/* Problem: a checkpoint is as long as the disk is slow, and the server serves meanwhile.
 * Design: store/copy.h reads the store in slices; here they are asked for one by one, with the
 * server in between, and go into a new directory with a name that does not count. When all of it is
 * synced the directory gets its name, and old ones go. Verification is the same reading without
 * writing; of a stopped store, over an engine that nobody else has and that holds no items.
 * Guarantee: a checkpoint that has its name is whole; one that fails, or a crash on the way, leaves
 * nothing that counts, and what is left of it goes at the next one. */
#include "checkpoint.h"
#include "internal.h"

#include <dirent.h>
#include <errno.h>
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
#include "core/file.h"
#include "core/status.h"
#include "limits.h"
#include "replay/store/copy.h"
#include "replay/store/checkpoint_writer.h"

enum { WAIT_MS = 50, NAMES_TRIED = 1000 };

struct run_table {
    uint32_t id;
    trp_table_options *options;
};

struct copy_run {
    struct checkpointer *checkpointer;
    const char *what;
    bool (*cancelled)(void);
    struct copy_sink sink;
    struct store_copy *copy;
    struct background background; /* does what needs no engine */
    char *making;                 /* the directory, at first without a name that counts */
    struct checkpoint_writer *target;
    uint64_t file_bytes;         /* of the store, at the cut */
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

static trp_status cancelled(const struct copy_run *run)
{
    return trp_fail(TRP_CANCELLED, "%s: cancelled", run->what);
}

static bool run_is_cancelled(const struct copy_run *run)
{
    return run->checkpointer->stopping || (run->cancelled && run->cancelled());
}

/* Whoever waits on a thread of the pool keeps it from others' calls. */
static trp_status turn_take(struct copy_run *run)
{
    struct checkpointer *checkpointer = run->checkpointer;
    bool pooled = run->cancelled != NULL;
    trp_status status = TRP_OK;
    mutex_lock(&checkpointer->mutex);
    if (pooled && checkpointer->busy && !checkpointer->stopping &&
        checkpointer->waiting >= CHECKPOINT_WAITERS_MAX) {
        status = trp_fail(TRP_UNAVAILABLE,
                          "%s: a %s is going on and another call waits for its end; ask again then",
                          run->what, checkpointer->progress.what);
        goto out;
    }
    checkpointer->waiting += pooled;
    while (checkpointer->busy && !run_is_cancelled(run))
        cond_wait(&checkpointer->changed, &checkpointer->mutex,
                  deadline_in_ms(&clock_monotonic, WAIT_MS));
    checkpointer->waiting -= pooled;
    if (checkpointer->busy || checkpointer->stopping) {
        status = cancelled(run);
        goto out;
    }
    checkpointer->busy = true;
    checkpointer->progress =
        (struct progress){.what = run->what, .started_ns = clock_now_ns(&clock_monotonic)};
out:
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
    uint64_t total = stats.total_bytes > stats.bytes ? stats.total_bytes : stats.bytes;
    mutex_lock(&checkpointer->mutex);
    checkpointer->progress.done_bytes = stats.bytes;
    checkpointer->progress.total_bytes = total;
    bool ends = run_is_cancelled(run);
    mutex_unlock(&checkpointer->mutex);
    return !ends && watch_tell(stats.bytes, total) == TRP_OK;
}

/* ---- slices --------------------------------------------------------------------------------- */

/* With the engine to itself. */
static trp_status enter(struct copy_run *run, trp_status (*slice)(void *run, struct engine *engine))
{
    const struct engine_door *door = &run->checkpointer->options.door;
    return door->enter(door->owner, slice, run);
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
        const struct table_facts *facts = engine->tables[i]->facts;
        run->tables[i] = (struct run_table){facts->id, trp_table_options_copy(facts->options)};
        info->tables[i] = (struct checkpoint_table){
            .options = trp_table_options_format(facts->options),
            .size = facts->size,
            .inserts = facts->limiter.inserts,
            .samples = facts->limiter.samples,
            .deletes = facts->limiter.deletes,
        };
    }
}

static trp_status run_begin(void *arg, struct engine *engine)
{
    struct copy_run *run = arg;
    TRP_TRY(engine_index_finish(engine));
    TRP_TRY(engine_flush(engine));
    TRP_TRY(store_copy_begin(engine->store, &run->copy, &run->sink));
    info_fill(run, engine);
    return TRP_OK;
}

static trp_status run_find(void *arg, struct engine *engine)
{
    return store_copy_find(engine->store, ((struct copy_run *)arg)->copy);
}

static trp_status run_end(void *arg, struct engine *engine)
{
    store_copy_end(engine->store, ((struct copy_run *)arg)->copy);
    return TRP_OK;
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

/* Returns `status` with its words. */
static trp_status run_close(struct copy_run *run, trp_status status)
{
    char *kept = error_keep();
    if (run->copy)
        (void)enter(run, run_end); /* without an engine there is no copy to end */
    if (status == TRP_OK && run->making)
        old_remove(run->checkpointer, run->info.store);
    background_stop(&run->background);
    free(run->making);
    for (size_t i = 0; i < run->info.table_count; i++)
        trp_table_options_destroy(run->tables[i].options);
    free(run->tables);
    checkpoint_info_cleanup(&run->info);
    turn_give(run->checkpointer);
    if (status != TRP_OK)
        return error_back(status, kept);
    free(kept);
    return TRP_OK;
}

/* Its turn comes, and the thread for it. Then items are waited for that a server which has just
 * started does not have in memory yet, but nobody waits for all of them at once. */
static trp_status run_open(struct copy_run *run)
{
    TRP_TRY(turn_take(run));
    trp_status status = background_start(&run->background, run->what);
    if (status != TRP_OK) {
        turn_give(run->checkpointer);
        return status;
    }
    status = engine_load(&run->checkpointer->options.door, turn_goes_on, run);
    if (status == TRP_OK)
        status = enter(run, run_begin);
    else if (status == TRP_CANCELLED)
        status = cancelled(run);
    return status == TRP_OK ? TRP_OK : run_close(run, status);
}

static trp_status copy_give(void *arg)
{
    return store_copy_give(arg);
}

static trp_status run_copy(struct copy_run *run)
{
    while (!store_copy_done(run->copy)) {
        if (!turn_goes_on(run))
            return cancelled(run);
        TRP_TRY(enter(run, run_find));
        TRP_TRY(background_run(&run->background, copy_give, run->copy));
    }
    return enter(run, run_find); /* did the last pages stay while they were read? */
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

/* The highest n of the checkpoints that are called <name>-<n>; 0: there is none. Who keeps the
 * newest one alone must not see a later one take the place of one that went. */
static unsigned name_last(const char *root, const char *name)
{
    DIR *entries = opendir(root);
    unsigned last = 0, n;
    size_t size = strlen(name);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (strncmp(entry->d_name, name, size) == 0 &&
            sscanf(entry->d_name + size, "-%u", &n) == 1 && n > last)
            last = n;
    if (entries)
        closedir(entries);
    return last;
}

/* The directory gets the next name that is free: <root>/<UTC time>-<n>. */
static trp_status name_take(struct copy_run *run)
{
    const char *root = run->checkpointer->root;
    time_t second = (time_t)(run->info.created_at_ns / 1000000000);
    struct tm utc;
    char name[32];
    gmtime_r(&second, &utc);
    strftime(name, sizeof name, "%Y-%m-%dT%H-%M-%SZ", &utc);
    unsigned last = name_last(root, name);
    for (unsigned tries = 1; tries <= NAMES_TRIED; tries++) {
        char *wanted = xasprintf("%s/%s-%u", root, name, last + tries);
        int error = rename(run->making, wanted) == 0 ? 0 : errno;
        free(error == 0 ? run->making : wanted);
        if (error == 0)
            run->making = wanted;
        if (error != EEXIST && error != ENOTEMPTY)
            return error == 0 ? TRP_OK : store_errno(error, run->making, "name the checkpoint");
    }
    return trp_fail(TRP_ALREADY_EXISTS, "%s has %d checkpoints of one second", root, NAMES_TRIED);
}

static trp_status name_give(struct copy_run *run, char **path)
{
    TRP_TRY(name_take(run));
    char *named = realpath(run->making, NULL);
    int error = named ? dir_sync(run->checkpointer->root) : errno;
    if (error == 0) {
        *path = named;
        return TRP_OK;
    }
    free(named);
    return store_errno(error, run->making, "name the checkpoint");
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
        status = run_copy(run);
    if (status == TRP_OK)
        status = background_run(&run->background, files_finish, run);
    background_run(&run->background, files_close, run);
    return status;
}

static trp_status checkpoint_make(struct copy_run *run, char **path)
{
    const char *root = run->checkpointer->root;
    int error = store_path_make(root);
    if (error != 0 && error != EEXIST)
        return store_errno(error, root, "make");
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
        .what = "checkpoint",
        .cancelled = is_cancelled,
        .sink = {.item = checkpoint_writer_item,
                 .piece = checkpoint_writer_piece,
                 .damage = checkpoint_writer_damage,
                 .removed = checkpoint_writer_removed},
    };
    *path = NULL;
    TRP_TRY(run_open(&run));
    return run_close(&run, checkpoint_make(&run, path));
}

/* ---- verification --------------------------------------------------------------------------- */

static const trp_table_options *run_table_options(const struct copy_run *run, uint32_t id)
{
    for (size_t i = 0; i < run->info.table_count; i++)
        if (run->tables[i].id == id)
            return run->tables[i].options;
    return NULL;
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

/* The first VERIFY_DAMAGE_MAX are named. */
static trp_status verify_damage(void *arg, uint32_t table_id, uint64_t key, const char *what)
{
    const struct copy_run *run = arg;
    const trp_table_options *options = run_table_options(run, table_id);
    trp_replay_report *report = run->report;
    if (report->damaged++ >= VERIFY_DAMAGE_MAX)
        return TRP_OK;
    if (!report->damage)
        report->damage = xcalloc(VERIFY_DAMAGE_MAX, sizeof *report->damage);
    report->damage[report->damage_count++] = (trp_replay_damage){
        .table = xstrdup(options ? options->name : ""), .key = key, .what = xstrdup(what)};
    return TRP_OK;
}

static trp_status verify_item(void *arg, uint64_t seq, trp_bytes record, bool doubtful)
{
    const struct copy_run *run = arg;
    struct item_view view;
    if (!item_record_decode(record, seq, &view))
        return verify_damage(arg, 0, seq, "its record is damaged");
    const struct item_record *header = &view.header;
    const char *wrong = stored_item_wrong(run_table_options(run, header->table_id), view.trajectory,
                                          header->chunk_count, doubtful ? &header->priority : NULL);
    return wrong ? verify_damage(arg, header->table_id, header->key, wrong) : TRP_OK;
}

trp_status checkpointer_verify(struct checkpointer *checkpointer, bool (*is_cancelled)(void),
                               trp_replay_report *report)
{
    struct copy_run run = {
        .checkpointer = checkpointer,
        .what = "verify",
        .cancelled = is_cancelled,
        .sink = {.item = verify_item, .damage = verify_damage, .arg = &run},
        .report = report,
    };
    int64_t started_ns = clock_now_ns(&clock_monotonic);
    *report = (trp_replay_report){0};
    TRP_TRY(run_open(&run));
    trp_status status = run_copy(&run);
    struct copy_stats stats = store_copy_stats(run.copy);
    report->items = stats.items;
    report->chunks = stats.chunks;
    report->bytes = stats.bytes;
    report->seconds = (double)(clock_now_ns(&clock_monotonic) - started_ns) * 1e-9;
    return run_close(&run, status);
}

static trp_status stopped_enter(void *owner, trp_status (*work)(void *arg, struct engine *engine),
                                void *arg)
{
    return work(arg, owner);
}

trp_status trp_replay_verify(const char *dir, trp_replay_report *report)
{
    struct engine_options options = {
        .dir = dir, .read_only = true, .check = true, .without_items = true};
    struct engine *engine;
    struct checkpointer checkpointer;
    int64_t started_ns = clock_now_ns(&clock_monotonic);
    *report = (trp_replay_report){0};
    TRP_TRY(engine_create(&engine, &options));
    checkpointer_init(&checkpointer, &(struct checkpointer_options){
                                         .store_dir = dir, .door = {stopped_enter, engine}});
    trp_status status = checkpointer_verify(&checkpointer, NULL, report);
    report->seconds = (double)(clock_now_ns(&clock_monotonic) - started_ns) * 1e-9;
    if (status != TRP_OK)
        trp_replay_report_cleanup(report);
    checkpointer_cleanup(&checkpointer);
    engine_destroy(engine);
    return status;
}
