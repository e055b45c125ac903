/* Problem: checkpoints and verification are asked for by an RPC and take longer than a handler may.
 * Design: these methods block, so they run on the pool; the long work alternates with the server,
 * see engine/checkpoint.h. Over the files of a stopped server the same code runs with nobody beside
 * it. Guarantee: a caller that goes away ends the work that it asked for. */
#include "admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"

struct enter {
    struct admin *admin;
    void (*work)(void *arg, struct engine *engine);
    void *arg;
};

static void enter_work(void *arg)
{
    struct enter *enter = arg;
    enter->work(enter->arg, enter->admin->engine);
}

void admin_door_enter(void *owner, void (*work)(void *arg, struct engine *engine), void *arg)
{
    struct enter enter = {owner, work, arg};
    admin_enter(owner, enter_work, &enter);
}

/* ---- checkpoints ---------------------------------------------------------------------------- */

static Troupe__ReplayTable *table_make(const struct checkpoint_table *table)
{
    Troupe__ReplayTable *out = xmalloc(sizeof *out);
    troupe__replay_table__init(out);
    trp_table_options *options;
    out->options = xstrdup(table->options);
    if (trp_table_options_parse(table->options, &options) == TRP_OK) {
        out->name = xstrdup(options->name);
        out->max_size = options->max_size;
        trp_table_options_destroy(options);
    }
    out->size = table->size;
    out->limiter = xmalloc(sizeof *out->limiter);
    troupe__replay_limiter__init(out->limiter);
    out->limiter->inserts = table->inserts;
    out->limiter->samples = table->samples;
    out->limiter->deletes = table->deletes;
    return out;
}

static Troupe__ReplayCheckpoint *checkpoint_reply(const struct checkpoint_info *info)
{
    Troupe__ReplayCheckpoint *out = xmalloc(sizeof *out);
    troupe__replay_checkpoint__init(out);
    out->path = realpath(info->path, NULL);
    out->created_at_ns = info->created_at_ns;
    out->bytes = info->bytes;
    out->tables = xcalloc(info->table_count + 1, sizeof *out->tables);
    for (size_t i = 0; i < info->table_count; i++)
        out->tables[out->n_tables++] = table_make(&info->tables[i]);
    out->damaged = info->damaged;
    out->whole = !info->problem;
    if (info->problem)
        out->problem = xstrdup(info->problem);
    return out;
}

void admin_checkpoint(Troupe__Replay_Service *service,
                      const Troupe__ReplayCheckpointRequest *request,
                      Troupe__ReplayCheckpoint_Closure closure, void *data)
{
    struct admin *admin = (struct admin *)service;
    (void)request;
    char *path;
    Troupe__ReplayCheckpoint *response = NULL;
    struct checkpoint_info info = {0};
    if (checkpointer_run(&admin->checkpointer, trp_call_cancelled, &path) == TRP_OK &&
        checkpoint_info_read(&info, path) == TRP_OK)
        response = checkpoint_reply(&info);
    closure(response, data);
    if (response)
        troupe__replay_checkpoint__free_unpacked(response, NULL);
    checkpoint_info_cleanup(&info);
    free(path);
}

void admin_checkpoints(Troupe__Replay_Service *service,
                       const Troupe__ReplayCheckpointsRequest *request,
                       Troupe__ReplayCheckpointsResponse_Closure closure, void *data)
{
    struct admin *admin = (struct admin *)service;
    (void)request;
    struct checkpoint_list list;
    Troupe__ReplayCheckpointsResponse *response = NULL;
    if (checkpoint_list_read(&list, admin->checkpointer.root) == TRP_OK) {
        response = xmalloc(sizeof *response);
        troupe__replay_checkpoints_response__init(response);
        response->checkpoints = xcalloc(list.count + 1, sizeof *response->checkpoints);
        for (size_t i = 0; i < list.count; i++)
            response->checkpoints[response->n_checkpoints++] = checkpoint_reply(&list.at[i]);
    }
    closure(response, data);
    if (response)
        troupe__replay_checkpoints_response__free_unpacked(response, NULL);
    checkpoint_list_cleanup(&list);
}

static trp_status old_checkpoints_find(const struct admin *admin,
                                       const Troupe__ReplayRemoveCheckpointsRequest *request,
                                       struct checkpoint_removal *removal)
{
    const char *root = admin->checkpointer.root;
    for (size_t i = 0; i < request->n_names; i++)
        TRP_TRY(checkpoint_removal_add(removal, root, request->names[i]));
    if (request->keep == 0)
        return TRP_OK;
    return checkpoint_removal_add_old(removal, root, admin->identity, request->keep);
}

void admin_remove_checkpoints(Troupe__Replay_Service *service,
                              const Troupe__ReplayRemoveCheckpointsRequest *request,
                              Troupe__ReplayRemoveCheckpointsResponse_Closure closure, void *data)
{
    Troupe__ReplayRemoveCheckpointsResponse response =
        TROUPE__REPLAY_REMOVE_CHECKPOINTS_RESPONSE__INIT;
    struct checkpoint_removal removal = {0};
    trp_status status = old_checkpoints_find((struct admin *)service, request, &removal);
    if (status == TRP_OK && !request->dry_run)
        status = checkpoint_removal_run(&removal);
    response.paths = removal.paths;
    response.n_paths = removal.count;
    closure(status == TRP_OK ? &response : NULL, data);
    checkpoint_removal_cleanup(&removal);
}

/* ---- verification --------------------------------------------------------------------------- */

static Troupe__ReplayVerifyResponse *verify_make(const trp_replay_report *report)
{
    Troupe__ReplayVerifyResponse *out = xmalloc(sizeof *out);
    troupe__replay_verify_response__init(out);
    out->items = report->items;
    out->chunks = report->chunks;
    out->bytes = report->bytes;
    out->damaged = report->damaged;
    out->seconds = report->seconds;
    out->damage = xcalloc(report->damage_count + 1, sizeof *out->damage);
    for (size_t i = 0; i < report->damage_count; i++) {
        Troupe__ReplayDamage *damage = xmalloc(sizeof *damage);
        troupe__replay_damage__init(damage);
        damage->table = xstrdup(report->damage[i].table);
        damage->key = report->damage[i].key;
        damage->what = xstrdup(report->damage[i].what);
        out->damage[out->n_damage++] = damage;
    }
    return out;
}

void admin_verify(Troupe__Replay_Service *service, const Troupe__ReplayVerifyRequest *request,
                  Troupe__ReplayVerifyResponse_Closure closure, void *data)
{
    struct admin *admin = (struct admin *)service;
    (void)request;
    trp_replay_report report;
    Troupe__ReplayVerifyResponse *response = NULL;
    if (checkpointer_verify(&admin->checkpointer, trp_call_cancelled, &report) == TRP_OK)
        response = verify_make(&report);
    closure(response, data);
    if (response)
        troupe__replay_verify_response__free_unpacked(response, NULL);
    trp_replay_report_cleanup(&report);
}

/* ---- how far it is -------------------------------------------------------------------------- */

Troupe__ReplayProgress *admin_progress(struct admin *admin)
{
    struct progress progress = checkpointer_progress(&admin->checkpointer);
    if (!progress.what)
        return NULL;
    Troupe__ReplayProgress *out = xmalloc(sizeof *out);
    troupe__replay_progress__init(out);
    out->what = xstrdup(progress.what);
    out->done_bytes = progress.done_bytes;
    out->total_bytes = progress.total_bytes;
    out->seconds = (double)(clock_now_ns(&clock_monotonic) - progress.started_ns) * 1e-9;
    return out;
}
