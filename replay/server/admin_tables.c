/* Problem: tables have to be made, removed and changed without stopping anybody.
 * Design: the options are read and checked before the lock is taken; with it held the engine and
 * the lanes are changed, and the group is committed before the answer. Guarantee: an answer of OK
 * means durable; a refused request changed nothing. */
#include "admin.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/words.h"
#include "replay/model/options.h"
#include "replay/engine/limits.h"
#include "limits.h"

/* A change of tables, and the state of a shrinking one from step to step. */
struct table_change {
    struct admin *admin;
    const void *request;
    Troupe__ReplayAlterTableResponse *altered; /* alter */
    trp_table_options *options;                /* create, alter */
    bool dry_run;                              /* says what would change, changes nothing */
    int64_t shrunk;                            /* by the table before */
    bool more;                                 /* to shrink */
    unsigned waits;                            /* steps in a row that found no room to be written */
    trp_status (*apply)(struct table_change *change);
};

static trp_status change_allowed(const struct table_change *change)
{
    const struct admin *admin = change->admin;
    if (change->dry_run)
        return TRP_OK;
    if (!admin->service)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s has no server: start one to change its tables",
                        admin->dir);
    return admin->service->broken == TRP_OK ? TRP_OK : service_fail(admin->service);
}

static trp_status change_entered(void *arg, struct engine *engine)
{
    struct table_change *change = arg;
    TRP_TRY(change_allowed(change));
    engine_set_time(engine, clock_wall_ns());
    TRP_TRY(change->apply(change));
    return change->dry_run || change->waits > 0 ? TRP_OK : engine_commit(engine);
}

static trp_status change_run(struct table_change *change,
                             trp_status (*apply)(struct table_change *change))
{
    change->apply = apply;
    return admin_enter(change->admin, change_entered, change);
}

/* ---- create, drop ------------------------------------------------------------------------ */

static trp_status create_apply(struct table_change *change)
{
    struct engine_table *table;
    TRP_TRY(engine_table_create(change->admin->engine, change->options, &table));
    service_table_added(change->admin->service, table);
    return TRP_OK;
}

static void signature_set(trp_table_options *options, ProtobufCBinaryData signature)
{
    free((uint8_t *)options->signature.data);
    options->signature = (trp_bytes){xmemdup(signature.data, signature.len), signature.len};
}

trp_status admin_create_table(struct admin_call *call)
{
    const Troupe__ReplayCreateTableRequest *request = call->request;
    struct table_change change = {.admin = call->admin};
    TRP_TRY(table_options_change(NULL, request->options, true, &change.options));
    if (request->signature.len > 0)
        signature_set(change.options, request->signature);
    trp_status status = change_run(&change, create_apply);
    trp_table_options_destroy(change.options);
    return status;
}

static trp_status drop_apply(struct table_change *change)
{
    const Troupe__ReplayDropTableRequest *request = change->request;
    struct engine *engine = change->admin->engine;
    struct engine_table *table;
    TRP_TRY(admin_table(engine, request->table, &table));
    TRP_TRY(engine_table_droppable(engine, table));
    TRP_TRY(engine_index_finish(engine));
    int64_t size = table->facts->size;
    if (request->only_if_empty && size > 0)
        return trp_fail(TRP_FAILED_PRECONDITION, "table %s is not empty: it has %lld item%s",
                        table->name, (long long)size, plural(size));
    TRP_TRY(engine_table_admit(engine, &(trp_table_options){0}, true));
    service_table_drop(change->admin->service, table);
    return TRP_OK;
}

trp_status admin_drop_table(struct admin_call *call)
{
    struct table_change change = {.admin = call->admin, .request = call->request};
    TRP_TRY(admin_load(call->admin));
    return change_run(&change, drop_apply);
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

/* `change->options` become those of the altered table; nothing is changed. */
static trp_status alter_prepare(struct table_change *change, struct engine_table **table)
{
    const Troupe__ReplayAlterTableRequest *request = change->request;
    struct engine *engine = change->admin->engine;
    trp_table_options *options;
    TRP_TRY(admin_table(engine, change->options->name, table));
    TRP_TRY(table_options_change((*table)->facts->options, request->options, true, &options));
    if (request->has_signature)
        signature_set(options, request->signature);
    trp_table_options_destroy(change->options);
    change->options = options;
    TRP_TRY(trp_table_options_check(options));
    TRP_TRY(engine_feed_check(engine, options));
    TRP_TRY(engine_index_finish(engine));
    return engine_table_alterable(*table, options, request->shrink, &change->altered->removed);
}

static trp_status alter_apply(struct table_change *change)
{
    struct engine *engine = change->admin->engine;
    struct service *service = change->admin->service;
    struct engine_table *table;
    TRP_TRY(alter_prepare(change, &table));
    changes_list(table->facts->options, change->options, change->altered);
    if (change->dry_run)
        return TRP_OK;
    TRP_TRY(engine_table_admit(engine, change->options, true));
    bool other_signature =
        !bytes_equal(table->facts->options->signature, change->options->signature);
    change->shrunk = table->shrunk;
    change->altered->removed = engine_table_alter(engine, table, change->options);
    if (other_signature)
        service_state_change(service);
    lane_move(service->lanes[table->index]);
    return TRP_OK;
}

static trp_status shrink_apply(struct table_change *change)
{
    struct engine *engine = change->admin->engine;
    struct engine_table *table;
    change->more = false;
    if (admin_table(engine, change->options->name, &table) != TRP_OK)
        return TRP_OK; /* it was dropped meanwhile */
    engine_clear_step(engine, CLEAR_STEP_ITEMS);
    change->more = table->clearing;
    trp_status status = engine_commit(engine);
    change->waits = status == TRP_RESOURCE_EXHAUSTED ? change->waits + 1 : 0;
    change->more |= change->waits > 0;
    if (status != TRP_RESOURCE_EXHAUSTED || change->waits > SHRINK_WAITS_MAX)
        TRP_TRY(status);
    change->altered->removed += table->shrunk - change->shrunk;
    change->shrunk = table->shrunk;
    lane_move(change->admin->service->lanes[table->index]);
    return TRP_OK;
}

/* The answer comes when the limits hold; who does not wait leaves the rest to idle time. */
static trp_status alter_run(struct table_change *change)
{
    TRP_TRY(admin_load(change->admin));
    TRP_TRY(change_run(change, alter_apply));
    for (change->more = !change->dry_run; change->more;) {
        if (trp_call_cancelled())
            return trp_fail(TRP_CANCELLED, "nobody waits for the alteration any more");
        TRP_TRY(change_run(change, shrink_apply));
    }
    return TRP_OK;
}

trp_status admin_alter_table(struct admin_call *call)
{
    const Troupe__ReplayAlterTableRequest *request = call->request;
    struct table_change change = {.admin = call->admin,
                                  .request = request,
                                  .altered = call->reply,
                                  .dry_run = request->dry_run};
    /* Read once for the name; again over the table's own options. */
    TRP_TRY(table_options_change(NULL, request->options, true, &change.options));
    trp_status status = alter_run(&change);
    trp_table_options_destroy(change.options);
    return status;
}
