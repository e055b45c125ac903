/* Commands about the store as a whole: verify, checkpoint, checkpoints, restore. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/printable.h"
#include "core/store_dir.h"
#include "core/words.h"
#include "interrupt.h"
#include "json.h"
#include "output.h"
#include "replay_alter.h"

static bool watched(void *arg, uint64_t done, uint64_t total)
{
    struct progress_line *progress = arg;
    progress->total = total;
    progress_show(progress, done);
    return interrupt_check() == TRP_OK;
}

/* Work on files in this process shows how far it is, too; progress_end() and watching NULL end it.
 */
static void watch_begin(struct progress_line *progress, const struct replay_args *args,
                        const char *what)
{
    if (args->progress)
        progress_ask();
    progress_begin(progress, what, NULL, 0);
    trp_replay_watch(watched, progress);
}

static void watch_end(struct progress_line *progress)
{
    trp_replay_watch(NULL, NULL);
    progress_end(progress);
}

/* ---- verify ------------------------------------------------------------------------------ */

static void verify_text(const Troupe__ReplayVerifyResponse *reply)
{
    char bytes[TEXT_SIZE], took[TEXT_SIZE];
    for (size_t i = 0; i < reply->n_damage; i++) {
        const Troupe__ReplayDamage *damage = reply->damage[i];
        if (*damage->table)
            print_text(stdout, "table %s, key", damage->table);
        else
            print_text(stdout, "item");
        print_text(stdout, " %" PRIu64 ": %s\n", damage->key, damage->what);
    }
    if (reply->damaged > reply->n_damage)
        print_text(stdout, "... and %" PRIu64 " more\n", reply->damaged - reply->n_damage);
    print_text(stdout, "%" PRIu64 " item%s, %" PRIu64 " chunk%s, %s read in %s: ", reply->items,
               plural((int64_t)reply->items), reply->chunks, plural((int64_t)reply->chunks),
               size_text(reply->bytes, bytes), duration_text(reply->seconds, took));
    if (reply->damaged)
        print_text(stdout, "%" PRIu64 " DAMAGED (`troupe replay serve --verify` drops them)\n",
                   reply->damaged);
    else
        print_text(stdout, "all whole\n");
}

static void verify_print(struct work *work, const Troupe__ReplayVerifyResponse *reply)
{
    if (work->args->json)
        json_print(json_message(&reply->base));
    else
        verify_text(reply);
    if (reply->damaged)
        work->exit_status = EXIT_DAMAGED;
}

static trp_status verify_work(struct work *work)
{
    Troupe__ReplayVerifyRequest request = TROUPE__REPLAY_VERIFY_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    TRP_TRY(target_call_long(&work->target, "Verify", &request.base, &reply));
    verify_print(work, (const Troupe__ReplayVerifyResponse *)reply);
    protobuf_c_message_free_unpacked(reply, NULL);
    return TRP_OK;
}

/* What was found in a directory, as a server would say it. */
static void report_print(struct work *work, const trp_replay_report *report)
{
    Troupe__ReplayVerifyResponse reply = TROUPE__REPLAY_VERIFY_RESPONSE__INIT;
    Troupe__ReplayDamage *all = xcalloc(report->damage_count + 1, sizeof *all);
    reply.damage = xcalloc(report->damage_count + 1, sizeof *reply.damage);
    for (size_t i = 0; i < report->damage_count; i++) {
        troupe__replay_damage__init(&all[i]);
        all[i].table = report->damage[i].table;
        all[i].key = report->damage[i].key;
        all[i].what = report->damage[i].what;
        reply.damage[i] = &all[i];
    }
    reply.n_damage = report->damage_count;
    reply.items = report->items;
    reply.chunks = report->chunks;
    reply.bytes = report->bytes;
    reply.damaged = report->damaged;
    reply.seconds = report->seconds;
    verify_print(work, &reply);
    free(reply.damage);
    free(all);
}

/* A stopped store, or a checkpoint, is read without opening it: it may be too damaged for that. */
int replay_verify(const struct cli_call *call)
{
    struct work work = {.call = call, .args = call->args};
    struct stat info;
    trp_replay_report report = {0};
    if (stat(call->words[0], &info) != 0 || !S_ISDIR(info.st_mode))
        return target_run(call, TARGET_READ, verify_work);
    char *dir = store_dir_of(call->words[0]);
    struct progress_line progress;
    watch_begin(&progress, work.args, "verify");
    trp_status status = trp_replay_verify(dir, &report);
    watch_end(&progress);
    if (status == TRP_OK)
        report_print(&work, &report);
    else if (status == TRP_FAILED_PRECONDITION)
        work.exit_status = target_run(call, TARGET_READ, verify_work); /* a live server has it */
    else
        work.exit_status = cli_failed(call->name, status);
    trp_replay_report_cleanup(&report);
    free(dir);
    return work.exit_status;
}

/* ---- checkpoints ------------------------------------------------------------------------- */

/* Only what a checkpoint says of its tables: the message of a live table has more. */
static cJSON *table_json(const Troupe__ReplayTable *table)
{
    cJSON *out = cJSON_CreateObject();
    cJSON_AddStringToObject(out, "name", table->name);
    cJSON_AddStringToObject(out, "options", table->options);
    json_add_i64(out, "size", table->size);
    json_add_i64(out, "max_size", table->max_size);
    cJSON *limiter = cJSON_AddObjectToObject(out, "limiter");
    json_add_i64(limiter, "inserts", table->limiter->inserts);
    json_add_i64(limiter, "samples", table->limiter->samples);
    json_add_i64(limiter, "deletes", table->limiter->deletes);
    return out;
}

static cJSON *checkpoint_json(const Troupe__ReplayCheckpoint *checkpoint)
{
    cJSON *out = json_message(&checkpoint->base), *tables = cJSON_CreateArray();
    for (size_t i = 0; i < checkpoint->n_tables; i++)
        cJSON_AddItemToArray(tables, table_json(checkpoint->tables[i]));
    cJSON_ReplaceItemInObject(out, "tables", tables);
    return out;
}

static cJSON *checkpoints_json(const Troupe__ReplayCheckpointsResponse *reply)
{
    cJSON *out = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(out, "checkpoints");
    for (size_t i = 0; i < reply->n_checkpoints; i++)
        cJSON_AddItemToArray(list, checkpoint_json(reply->checkpoints[i]));
    return out;
}

/* Those that the options say, or (dry) which they are. The caller frees the answer. */
static trp_status checkpoints_remove(struct work *work, bool dry,
                                     Troupe__ReplayRemoveCheckpointsResponse **gone)
{
    Troupe__ReplayRemoveCheckpointsRequest request =
        TROUPE__REPLAY_REMOVE_CHECKPOINTS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.names = (char **)(uintptr_t)work->args->names_given.words;
    request.n_names = work->args->names_given.count;
    request.keep = work->args->counted ? (uint32_t)work->args->count : 0;
    request.dry_run = dry;
    trp_status status = target_call(&work->target, "RemoveCheckpoints", &request.base, &reply);
    *gone = (Troupe__ReplayRemoveCheckpointsResponse *)reply;
    return status;
}

static trp_status keep_some(struct work *work)
{
    Troupe__ReplayRemoveCheckpointsResponse *gone;
    if (!work->args->counted)
        return TRP_OK;
    TRP_TRY(checkpoints_remove(work, false, &gone));
    troupe__replay_remove_checkpoints_response__free_unpacked(gone, NULL);
    return TRP_OK;
}

static void damage_hint(const struct work *work, uint64_t items)
{
    char *target = shell_word(work->target.text);
    print_text(stderr, "%" PRIu64 " damaged item%s not in it: see troupe replay verify %s\n", items,
               items == 1 ? " is" : "s are", target);
    free(target);
}

static trp_status checkpoint_work(struct work *work)
{
    Troupe__ReplayCheckpointRequest request = TROUPE__REPLAY_CHECKPOINT_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    TRP_TRY(target_call_long(&work->target, "Checkpoint", &request.base, &reply));
    const Troupe__ReplayCheckpoint *checkpoint = (const Troupe__ReplayCheckpoint *)reply;
    if (work->args->json)
        json_print(checkpoint_json(checkpoint));
    else
        print_text(stdout, "%s\n", checkpoint->path);
    if (checkpoint->damaged > 0)
        damage_hint(work, checkpoint->damaged);
    protobuf_c_message_free_unpacked(reply, NULL);
    return keep_some(work);
}

int replay_checkpoint(const struct cli_call *call)
{
    return target_run(call, TARGET_WRITE, checkpoint_work);
}

static void checkpoints_text(const Troupe__ReplayCheckpointsResponse *reply)
{
    static const char *const heads[] = {"CREATED", "BYTES", "ITEMS", "TABLES", "STATE", "PATH"};
    static const bool right[] = {false, true, true, true, false, false};
    struct grid grid = {.columns = 6, .right = right};
    char text[TEXT_SIZE];
    grid_heads(&grid, heads);
    for (size_t i = 0; i < reply->n_checkpoints; i++) {
        const Troupe__ReplayCheckpoint *each = reply->checkpoints[i];
        int64_t items = 0;
        for (size_t j = 0; j < each->n_tables; j++)
            items += each->tables[j]->size;
        grid_add(&grid, "%s", time_text(each->created_at_ns, text));
        grid_add(&grid, "%s", size_text(each->bytes, text));
        grid_add(&grid, "%" PRId64, items - (int64_t)each->damaged);
        grid_add(&grid, "%zu", each->n_tables);
        grid_add(&grid, "%s", each->whole ? "whole" : each->problem);
        grid_add(&grid, "%s", each->path);
    }
    grid_print(&grid, stdout);
    grid_cleanup(&grid);
}

static trp_status checkpoints_work(struct work *work)
{
    Troupe__ReplayCheckpointsRequest request = TROUPE__REPLAY_CHECKPOINTS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    TRP_TRY(target_call(&work->target, "Checkpoints", &request.base, &reply));
    const Troupe__ReplayCheckpointsResponse *answer =
        (const Troupe__ReplayCheckpointsResponse *)reply;
    if (work->args->json)
        json_print(checkpoints_json(answer));
    else if (answer->n_checkpoints)
        checkpoints_text(answer);
    else
        print_text(stderr, "%s: %s has no checkpoints\n", work->call->name, work->target.text);
    if (answer->n_checkpoints == 0)
        work->exit_status = EXIT_NOTHING;
    protobuf_c_message_free_unpacked(reply, NULL);
    return TRP_OK;
}

static trp_status removal_confirm(struct work *work)
{
    Troupe__ReplayRemoveCheckpointsResponse *doomed;
    TRP_TRY(checkpoints_remove(work, true, &doomed));
    size_t count = doomed->n_paths;
    troupe__replay_remove_checkpoints_response__free_unpacked(doomed, NULL);
    if (count == 0)
        return TRP_OK;
    return confirm(work->args->yes, "Remove %zu checkpoint%s of %s?", count, plural((int64_t)count),
                   work->target.text);
}

static trp_status removal_work(struct work *work)
{
    Troupe__ReplayRemoveCheckpointsResponse *gone;
    TRP_TRY(removal_confirm(work));
    TRP_TRY(checkpoints_remove(work, false, &gone));
    if (work->args->json)
        json_print(json_message(&gone->base));
    else
        for (size_t i = 0; i < gone->n_paths; i++)
            print_text(stdout, "removed %s\n", gone->paths[i]);
    troupe__replay_remove_checkpoints_response__free_unpacked(gone, NULL);
    return TRP_OK;
}

int replay_checkpoints(const struct cli_call *call)
{
    const struct replay_args *args = call->args;
    bool removal = args->counted || args->names_given.count > 0;
    return target_run(call, TARGET_READ, removal ? removal_work : checkpoints_work);
}

/* ---- restore ----------------------------------------------------------------------------- */

/* Alters each table that a line names, or (dry) says whether that can be done. */
static trp_status alter_each(const struct target *target, const struct replay_args *args, bool dry,
                             cJSON *changes)
{
    for (size_t i = 0; i < args->tables.count; i++) {
        struct alteration alteration;
        TRP_TRY(alteration_run(target, args->tables.words[i], args->shrink, dry, &alteration));
        if (!dry && changes)
            cJSON_AddItemToArray(changes, alteration_json(&alteration));
        else if (!dry)
            alteration_text(&alteration);
        alteration_cleanup(&alteration);
    }
    return TRP_OK;
}

/* On the checkpoint itself before anything is replaced (dry), then on what became of it. */
static trp_status restored_alter(const char *dir, const struct replay_args *args, bool dry,
                                 cJSON *changes)
{
    struct target target;
    if (args->tables.count == 0)
        return TRP_OK;
    trp_status status = target_open(&target, dir, dry ? TARGET_READ : TARGET_WRITE, 0);
    if (status == TRP_OK)
        status = alter_each(&target, args, dry, changes);
    target_close(&target);
    return status;
}

static int restore_print(const struct cli_call *call, const char *checkpoint, cJSON *changes)
{
    const struct replay_args *args = call->args;
    if (args->json) {
        cJSON *out = cJSON_CreateObject();
        cJSON_AddStringToObject(out, "checkpoint", checkpoint);
        cJSON_AddStringToObject(out, "dir", call->words[1]);
        cJSON_AddItemToObject(out, "tables", changes);
        json_print(out);
        return EXIT_DONE;
    }
    cJSON_Delete(changes);
    print_text(stdout, "%s is what %s was%s\n", call->words[1], checkpoint,
               args->tables.count > 0 ? ", altered as said above" : "");
    return EXIT_DONE;
}

int replay_restore(const struct cli_call *call)
{
    const struct replay_args *args = call->args;
    const char *dir = call->words[1];
    struct progress_line progress;
    trp_log_set_level(TRP_WARN);
    for (size_t i = 0; i < args->tables.count; i++)
        if (!table_line_check(call->name, args->tables.words[i]))
            return EXIT_USAGE;
    char *root = args->file ? xstrdup(args->file) : xasprintf("%s/checkpoints", dir);
    char *checkpoint = xstrdup(call->words[0]);
    trp_status status = TRP_OK;
    if (strcmp(checkpoint, "latest") == 0) {
        free(checkpoint);
        checkpoint = trp_replay_newest_checkpoint(root);
        if (!checkpoint)
            status = trp_fail(TRP_NOT_FOUND,
                              "there is no whole checkpoint in %s; --checkpoint-dir says where "
                              "else they are",
                              root);
    }
    cJSON *changes = args->json ? cJSON_CreateArray() : NULL;
    if (status == TRP_OK)
        status = restored_alter(checkpoint, args, true, NULL);
    watch_begin(&progress, args, "restore");
    interrupt_watch(); /* for a copy that is not whole */
    if (status == TRP_OK)
        status = trp_replay_restore(checkpoint, dir, args->force);
    watch_end(&progress);
    if (status == TRP_OK)
        status = restored_alter(dir, args, false, changes);
    int exit_status = status == TRP_OK ? restore_print(call, checkpoint, changes)
                                       : cli_failed(call->name, status);
    if (status != TRP_OK)
        cJSON_Delete(changes);
    free(checkpoint);
    free(root);
    interrupt_end();
    return exit_status;
}
