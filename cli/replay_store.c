/* Commands about the store as a whole: verify, checkpoint, checkpoints, restore. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "json.h"
#include "output.h"
#include "replay_target.h"

/* ---- verify ------------------------------------------------------------------------------ */

static void verify_text(const Troupe__ReplayVerifyResponse *reply)
{
    char bytes[TEXT_SIZE], took[TEXT_SIZE];
    for (size_t i = 0; i < reply->n_damage; ++i) {
        const Troupe__ReplayDamage *damage = reply->damage[i];
        printf("table %s, key %" PRIu64 ": %s\n", damage->table, damage->key, damage->what);
    }
    if (reply->damaged > reply->n_damage)
        printf("... and %" PRIu64 " more\n", reply->damaged - reply->n_damage);
    printf("%" PRIu64 " items, %" PRIu64 " chunks, %s read in %s: ", reply->items, reply->chunks,
           bytes_text(reply->bytes, bytes), duration_text(reply->seconds, took));
    if (reply->damaged)
        printf("%" PRIu64 " DAMAGED\n", reply->damaged);
    else
        printf("all whole\n");
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
    for (size_t i = 0; i < report->damage_count; ++i) {
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
    char *dir = target_store_dir(call->words[0]);
    trp_status status = trp_replay_verify(dir, &report);
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

static trp_status checkpoint_work(struct work *work)
{
    Troupe__ReplayCheckpointRequest request = TROUPE__REPLAY_CHECKPOINT_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    TRP_TRY(target_call_long(&work->target, "Checkpoint", &request.base, &reply));
    const Troupe__ReplayCheckpoint *checkpoint = (const Troupe__ReplayCheckpoint *)reply;
    if (work->args->json)
        json_print(json_message(reply));
    else
        printf("%s\n", checkpoint->path);
    if (checkpoint->damaged > 0)
        fprintf(stderr, "%" PRIu64 " items are damaged and not in it: see troupe replay verify\n",
                checkpoint->damaged);
    protobuf_c_message_free_unpacked(reply, NULL);
    return TRP_OK;
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
    for (size_t i = 0; i < reply->n_checkpoints; ++i) {
        const Troupe__ReplayCheckpoint *each = reply->checkpoints[i];
        int64_t items = 0;
        for (size_t j = 0; j < each->n_tables; ++j)
            items += each->tables[j]->size;
        grid_add(&grid, "%s", time_text(each->created_at_ns, text));
        grid_add(&grid, "%s", bytes_text(each->bytes, text));
        grid_add(&grid, "%" PRId64, items - (int64_t)each->damaged);
        grid_add(&grid, "%zu", each->n_tables);
        grid_add(&grid, "%s", each->whole ? "whole" : each->problem);
        grid_add(&grid, "%s", each->path);
    }
    grid_print(&grid);
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
        json_print(json_message(reply));
    else if (answer->n_checkpoints)
        checkpoints_text(answer);
    if (answer->n_checkpoints == 0)
        work->exit_status = EXIT_NOTHING;
    protobuf_c_message_free_unpacked(reply, NULL);
    return TRP_OK;
}

int replay_checkpoints(const struct cli_call *call)
{
    return target_run(call, TARGET_READ, checkpoints_work);
}

/* ---- restore ----------------------------------------------------------------------------- */

static trp_status alter_each(struct target *target, const struct cli_list *lines)
{
    for (size_t i = 0; i < lines->count; ++i) {
        Troupe__ReplayAlterTableRequest request = TROUPE__REPLAY_ALTER_TABLE_REQUEST__INIT;
        ProtobufCMessage *reply = NULL;
        request.options = (char *)(uintptr_t)lines->words[i];
        request.shrink = true;
        TRP_TRY(target_call(target, "AlterTable", &request.base, &reply));
        const Troupe__ReplayAlterTableResponse *answer =
            (const Troupe__ReplayAlterTableResponse *)reply;
        for (size_t j = 0; j < answer->n_changes; ++j)
            printf("%s\n", answer->changes[j]);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return TRP_OK;
}

static trp_status restored_alter(const char *dir, const struct cli_list *lines)
{
    struct target target;
    if (lines->count == 0)
        return TRP_OK;
    trp_status status = target_open(&target, dir, TARGET_WRITE);
    if (status == TRP_OK)
        status = alter_each(&target, lines);
    target_close(&target);
    return status;
}

int replay_restore(const struct cli_call *call)
{
    const struct replay_args *args = call->args;
    const char *dir = call->words[1];
    trp_log_set_level(TRP_WARN);
    trp_status status = trp_replay_restore(call->words[0], dir, args->force);
    if (status == TRP_OK)
        status = restored_alter(dir, &args->tables);
    if (status != TRP_OK)
        return cli_failed(call->name, status);
    if (args->json) {
        cJSON *out = cJSON_CreateObject();
        cJSON_AddStringToObject(out, "checkpoint", call->words[0]);
        cJSON_AddStringToObject(out, "dir", dir);
        json_print(out);
        return EXIT_DONE;
    }
    printf("%s is what %s was\n", dir, call->words[0]);
    return EXIT_DONE;
}
