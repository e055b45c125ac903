/* Problem: tables have to be made, removed and changed without stopping anybody.
 * Design: the options are read and checked before the lock is taken; with it held the engine and
 * the lanes are changed, and the group is committed before the answer. Guarantee: an answer of OK
 * means durable; a refused request changed nothing. */
#include "admin.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/words.h"
#include "replay/model/options.h"
#include "replay/engine/limits.h"
#include "limits.h"

/* Something that changes tables, with the server's lock held. */
struct change_work {
    struct admin *admin;
    trp_table_options *options; /* create */
    const Troupe__ReplayDropTableRequest *drop;
    const Troupe__ReplayAlterTableRequest *alter;
    Troupe__ReplayAlterTableResponse *altered;
    int64_t shrunk; /* by the table before */
    bool more;      /* to shrink */
    unsigned waits; /* steps in a row that found no room to be written */
    trp_status (*change)(struct change_work *work);
    trp_status status;
};

/* Whether something only looks at what would change. */
static bool only_looks(const struct change_work *work)
{
    return work->alter && work->alter->dry_run;
}

static trp_status change_allowed(const struct change_work *work)
{
    const struct admin *admin = work->admin;
    if (!admin->engine)
        return trp_fail(TRP_UNAVAILABLE, "the replay server has stopped");
    if (only_looks(work))
        return TRP_OK;
    if (!admin->service)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s has no server: start one to change its tables",
                        admin->dir);
    if (admin->service->broken != TRP_OK)
        return service_fail(admin->service);
    return TRP_OK;
}

static void change_run(void *arg)
{
    struct change_work *work = arg;
    work->status = change_allowed(work);
    if (work->status == TRP_OK) {
        engine_set_time(work->admin->engine, clock_wall_ns());
        work->status = work->change(work);
    }
    if (work->status == TRP_OK && !only_looks(work) && work->waits == 0)
        work->status = engine_commit(work->admin->engine);
}

/* ---- create, drop ------------------------------------------------------------------------ */

static trp_status table_create_change(struct change_work *work)
{
    struct engine_table *table;
    TRP_TRY(engine_table_create(work->admin->engine, work->options, &table));
    service_table_added(work->admin->service, table);
    return TRP_OK;
}

static void signature_set(trp_table_options *options, ProtobufCBinaryData signature)
{
    free((uint8_t *)options->signature.data);
    options->signature = (trp_bytes){0};
    if (signature.len == 0)
        return;
    uint8_t *copy = xmalloc(signature.len);
    memcpy(copy, signature.data, signature.len);
    options->signature = (trp_bytes){copy, signature.len};
}

static void done_answer(trp_status status, Troupe__ReplayDone_Closure closure, void *data)
{
    static const Troupe__ReplayDone done = TROUPE__REPLAY_DONE__INIT;
    closure(status == TRP_OK ? &done : NULL, data);
}

void admin_create_table(Troupe__Replay_Service *service,
                        const Troupe__ReplayCreateTableRequest *request,
                        Troupe__ReplayDone_Closure closure, void *data)
{
    struct change_work work = {.admin = (struct admin *)service, .change = table_create_change};
    work.status = table_options_parse_remote(request->options, &work.options);
    if (work.status == TRP_OK) {
        if (request->signature.len > 0)
            signature_set(work.options, request->signature);
        admin_enter(work.admin, change_run, &work);
    }
    trp_table_options_destroy(work.options);
    done_answer(work.status, closure, data);
}

static trp_status table_drop_change(struct change_work *work)
{
    struct engine_table *table;
    TRP_TRY(admin_table(work->admin, work->drop->table, &table));
    TRP_TRY(engine_table_droppable(work->admin->engine, table));
    TRP_TRY(engine_index_finish(work->admin->engine));
    int64_t size = engine_table_size(table);
    if (work->drop->only_if_empty && size > 0)
        return trp_fail(TRP_FAILED_PRECONDITION, "table %s is not empty: it has %lld item%s",
                        table->name, (long long)size, plural(size));
    TRP_TRY(engine_table_admit(work->admin->engine, &(trp_table_options){0}, true));
    service_table_drop(work->admin->service, table);
    return TRP_OK;
}

void admin_drop_table(Troupe__Replay_Service *service,
                      const Troupe__ReplayDropTableRequest *request,
                      Troupe__ReplayDone_Closure closure, void *data)
{
    struct change_work work = {
        .admin = (struct admin *)service, .drop = request, .change = table_drop_change};
    work.status = admin_load(work.admin);
    if (work.status == TRP_OK)
        admin_enter(work.admin, change_run, &work);
    done_answer(work.status, closure, data);
}

/* ---- alter ------------------------------------------------------------------------------- */

static void change_push(Troupe__ReplayAlterTableResponse *out, char *text)
{
    out->changes = xrealloc(out->changes, (out->n_changes + 1) * sizeof(char *));
    out->changes[out->n_changes++] = text;
}

static void difference_push(void *out, const char *key, const char *before, const char *after)
{
    change_push(out, xasprintf("%s: %s -> %s", key, *before ? before : "(none)",
                               *after ? after : "(none)"));
}

static void changes_list(const trp_table_options *before, const trp_table_options *after,
                         Troupe__ReplayAlterTableResponse *out)
{
    char *old = trp_table_options_format(before), *new = trp_table_options_format(after);
    table_options_compare(old, new, difference_push, out);
    if (!bytes_equal(before->signature, after->signature))
        change_push(out, xasprintf("signature: %zu bytes -> %zu bytes", before->signature.size,
                                   after->signature.size));
    free(new);
    free(old);
}

/* What the table is to become goes into `work->options`; nothing is changed. */
static trp_status alter_prepare(struct change_work *work, struct engine_table **table)
{
    struct engine *engine = work->admin->engine;
    trp_table_options *options;
    TRP_TRY(admin_table(work->admin, work->options->name, table));
    TRP_TRY(
        table_options_change(engine_table_options(*table), work->alter->options, true, &options));
    if (work->alter->has_signature)
        signature_set(options, work->alter->signature);
    trp_table_options_destroy(work->options);
    work->options = options;
    TRP_TRY(trp_table_options_check(options));
    TRP_TRY(engine_feed_check(engine, options));
    TRP_TRY(engine_index_finish(engine));
    return engine_table_alterable(*table, options, work->alter->shrink, &work->altered->removed);
}

static trp_status alter_change(struct change_work *work)
{
    struct engine_table *table;
    struct service *service = work->admin->service;
    TRP_TRY(alter_prepare(work, &table));
    changes_list(engine_table_options(table), work->options, work->altered);
    if (only_looks(work))
        return TRP_OK;
    TRP_TRY(engine_signature_admit(work->admin->engine, work->options));
    TRP_TRY(engine_table_admit(work->admin->engine, work->options, true));
    bool other_signature =
        !bytes_equal(engine_table_options(table)->signature, work->options->signature);
    work->shrunk = table->shrunk;
    work->altered->removed = engine_table_alter(work->admin->engine, table, work->options);
    if (other_signature)
        service_state_change(service);
    lane_move(service->lanes[table->index]);
    return TRP_OK;
}

static trp_status shrink_step(struct change_work *work)
{
    struct engine_table *table;
    work->more = false;
    if (admin_table(work->admin, work->options->name, &table) != TRP_OK)
        return TRP_OK; /* it was dropped meanwhile */
    work->more = engine_shrink_step(work->admin->engine, table, CLEAR_STEP_ITEMS);
    trp_status status = engine_commit(work->admin->engine);
    work->waits = status == TRP_RESOURCE_EXHAUSTED ? work->waits + 1 : 0;
    work->more |= work->waits > 0;
    if (status != TRP_RESOURCE_EXHAUSTED || work->waits > SHRINK_WAITS_MAX)
        TRP_TRY(status);
    work->altered->removed += table->shrunk - work->shrunk;
    work->shrunk = table->shrunk;
    lane_move(work->admin->service->lanes[table->index]);
    return TRP_OK;
}

/* The answer comes when the limits hold; who does not wait for that leaves the rest to idle time.
 */
static void alter_run(struct change_work *work)
{
    work->change = alter_change;
    admin_enter(work->admin, change_run, work);
    work->change = shrink_step;
    work->more = !only_looks(work);
    while (work->status == TRP_OK && work->more) {
        if (trp_call_cancelled())
            work->status = trp_fail(TRP_CANCELLED, "nobody waits for the alteration any more");
        else
            admin_enter(work->admin, change_run, work);
    }
}

void admin_alter_table(Troupe__Replay_Service *service,
                       const Troupe__ReplayAlterTableRequest *request,
                       Troupe__ReplayAlterTableResponse_Closure closure, void *data)
{
    Troupe__ReplayAlterTableResponse *response = xmalloc(sizeof *response);
    troupe__replay_alter_table_response__init(response);
    struct change_work work = {
        .admin = (struct admin *)service, .alter = request, .altered = response};
    /* Read once for the name; again over the table's own options. */
    work.status = table_options_parse_remote(request->options, &work.options);
    if (work.status == TRP_OK)
        work.status = admin_load(work.admin);
    if (work.status == TRP_OK)
        alter_run(&work);
    closure(work.status == TRP_OK ? response : NULL, data);
    troupe__replay_alter_table_response__free_unpacked(response, NULL);
    trp_table_options_destroy(work.options);
}
