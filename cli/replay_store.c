/* Commands about the store as a whole: verify, checkpoint, checkpoints, restore. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

static trp_status verify_work(struct work *work)
{
    Troupe__ReplayVerifyRequest request = TROUPE__REPLAY_VERIFY_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    TRP_TRY(target_call_long(&work->target, "Verify", &request.base, &reply));
    const Troupe__ReplayVerifyResponse *answer = (const Troupe__ReplayVerifyResponse *)reply;
    if (work->args->json)
        json_print(json_message(reply));
    else
        verify_text(answer);
    if (answer->damaged)
        work->exit_status = EXIT_DAMAGED;
    protobuf_c_message_free_unpacked(reply, NULL);
    return TRP_OK;
}

int replay_verify(const struct cli_call *call)
{
    return target_run(call, TARGET_READ, verify_work);
}

/* ---- checkpoints ------------------------------------------------------------------------- */

static trp_status checkpoint_work(struct work *work)
{
    Troupe__ReplayCheckpointRequest request = TROUPE__REPLAY_CHECKPOINT_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    TRP_TRY(target_call_long(&work->target, "Checkpoint", &request.base, &reply));
    if (work->args->json)
        json_print(json_message(reply));
    else
        printf("%s\n", ((const Troupe__ReplayCheckpoint *)reply)->path);
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
        grid_add(&grid, "%" PRId64, items);
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
