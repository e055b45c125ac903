/* Problem: checkpoints and verification are asked for by an RPC and take longer than a handler may.
 * Design: these methods block, so they run on the pool; the long work alternates with the server,
 * see engine/checkpoint.h. Over the files of a stopped server the same code runs with nobody beside
 * it. Guarantee: a caller that goes away ends the work that it asked for. */
#include "admin.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/clock.h"

/* ---- checkpoints ---------------------------------------------------------------------------- */

static Troupe__ReplayTable *table_make(const struct checkpoint_table *table)
{
    Troupe__ReplayTable *out = message_new(&troupe__replay_table__descriptor);
    trp_table_options *options;
    out->options = xstrdup(table->options);
    if (trp_table_options_parse(table->options, &options) == TRP_OK) {
        out->name = xstrdup(options->name);
        out->max_size = options->max_size;
        trp_table_options_destroy(options);
    }
    out->size = table->size;
    out->limiter = message_new(&troupe__replay_limiter__descriptor);
    out->limiter->inserts = table->inserts;
    out->limiter->samples = table->samples;
    out->limiter->deletes = table->deletes;
    return out;
}

static void checkpoint_fill(Troupe__ReplayCheckpoint *out, const struct checkpoint_info *info)
{
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
}

trp_status admin_checkpoint(struct admin_call *call)
{
    char *path;
    struct checkpoint_info info = {0};
    trp_status status = checkpointer_run(&call->admin->checkpointer, trp_call_cancelled, &path);
    if (status == TRP_OK)
        status = checkpoint_info_read(&info, path);
    if (status == TRP_OK)
        checkpoint_fill(call->reply, &info);
    checkpoint_info_cleanup(&info);
    free(path);
    return status;
}

trp_status admin_checkpoints(struct admin_call *call)
{
    Troupe__ReplayCheckpointsResponse *out = call->reply;
    struct checkpoint_list list;
    trp_status status = checkpoint_list_read(&list, call->admin->checkpointer.root);
    if (status == TRP_OK)
        out->checkpoints = xcalloc(list.count + 1, sizeof *out->checkpoints);
    for (size_t i = 0; status == TRP_OK && i < list.count; i++) {
        out->checkpoints[i] = message_new(&troupe__replay_checkpoint__descriptor);
        checkpoint_fill(out->checkpoints[out->n_checkpoints++], &list.at[i]);
    }
    checkpoint_list_cleanup(&list);
    return status;
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

trp_status admin_remove_checkpoints(struct admin_call *call)
{
    const Troupe__ReplayRemoveCheckpointsRequest *request = call->request;
    Troupe__ReplayRemoveCheckpointsResponse *out = call->reply;
    struct checkpoint_removal removal = {0};
    trp_status status = old_checkpoints_find(call->admin, request, &removal);
    if (status == TRP_OK && !request->dry_run)
        status = checkpoint_removal_run(&removal);
    out->paths = removal.paths; /* which are freed with it */
    out->n_paths = removal.count;
    return status;
}

/* ---- verification --------------------------------------------------------------------------- */

trp_status admin_verify(struct admin_call *call)
{
    Troupe__ReplayVerifyResponse *out = call->reply;
    trp_replay_report report;
    trp_status status =
        checkpointer_verify(&call->admin->checkpointer, trp_call_cancelled, &report);
    out->items = report.items;
    out->chunks = report.chunks;
    out->bytes = report.bytes;
    out->damaged = report.damaged;
    out->seconds = report.seconds;
    out->damage = xcalloc(report.damage_count + 1, sizeof *out->damage);
    for (size_t i = 0; i < report.damage_count; i++) {
        Troupe__ReplayDamage *damage = message_new(&troupe__replay_damage__descriptor);
        damage->table = xstrdup(report.damage[i].table);
        damage->key = report.damage[i].key;
        damage->what = xstrdup(report.damage[i].what);
        out->damage[out->n_damage++] = damage;
    }
    trp_replay_report_cleanup(&report);
    return status;
}

/* ---- how far it is -------------------------------------------------------------------------- */

Troupe__ReplayProgress *admin_progress(struct admin *admin)
{
    struct progress progress = checkpointer_progress(&admin->checkpointer);
    if (!progress.what)
        return NULL;
    Troupe__ReplayProgress *out = message_new(&troupe__replay_progress__descriptor);
    out->what = xstrdup(progress.what);
    out->done_bytes = progress.done_bytes;
    out->total_bytes = progress.total_bytes;
    out->seconds = (double)(clock_now_ns(&clock_monotonic) - progress.started_ns) * 1e-9;
    return out;
}
