/* Problem: one wants to see the items of a replay server and why it stands still, without sampling,
 * without disturbing it, and also after it has stopped.
 * Design: a method collects plain copies with the lock held; they are packed and sent without it.
 * The same code runs over a live server's engine and over an engine opened read-only.
 * Guarantee: Tables, Items and Fetch change nothing; lists are bounded by REPLAY_*_MAX. */
#include "admin.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "replay/model/limiter.h"
#include "replay/model/signature.h"

/* ---- the engine to itself ---------------------------------------------------------------- */

struct visit_engine {
    struct admin *admin;
    trp_status (*work)(void *arg, struct engine *engine);
    void *arg;
    trp_status status;
};

static void visit_engine_run(void *arg)
{
    struct visit_engine *visit = arg;
    struct engine *engine = visit->admin->engine;
    visit->status = engine ? visit->work(visit->arg, engine)
                           : trp_fail(TRP_UNAVAILABLE, "the replay server has stopped");
}

trp_status admin_enter(void *owner, trp_status (*work)(void *arg, struct engine *engine), void *arg)
{
    struct admin *admin = owner;
    struct visit_engine visit = {.admin = admin, .work = work, .arg = arg};
    if (admin->server) {
        trp_server_visit(admin->server, visit_engine_run, &visit);
        return visit.status;
    }
    mutex_lock(&admin->mutex);
    visit_engine_run(&visit);
    mutex_unlock(&admin->mutex);
    return visit.status;
}

trp_status admin_table(struct engine *engine, const char *name, struct engine_table **table)
{
    *table = engine_find(engine, text_bytes(name));
    return *table ? TRP_OK : engine_not_found(text_bytes(name));
}

static bool somebody_waits(void *arg)
{
    (void)arg;
    return !trp_call_cancelled();
}

trp_status admin_load(struct admin *admin)
{
    return engine_load(&admin->checkpointer.options.door, somebody_waits, NULL);
}

/* ---- Tables ------------------------------------------------------------------------------ */

static Troupe__ReplayLimiter *limiter_copy(struct engine_table *table)
{
    const struct limiter *limiter = &table->facts->limiter;
    Troupe__ReplayLimiter *out = message_new(&troupe__replay_limiter__descriptor);
    out->samples_per_insert = limiter->options.samples_per_insert;
    out->min_size = limiter->options.min_size;
    out->min_diff = limiter->options.min_diff;
    out->max_diff = limiter->options.max_diff;
    out->inserts = limiter->inserts;
    out->samples = limiter->samples;
    out->deletes = limiter->deletes;
    out->diff =
        (double)limiter->inserts * limiter->options.samples_per_insert - (double)limiter->samples;
    out->insert_waits = limiter_explain(limiter, false);
    out->sample_waits = limiter_explain(limiter, true);
    out->can_insert = limiter_can_insert(limiter, 1);
    out->can_sample = table->facts->size > 0 && limiter_can_sample(limiter, 1);
    return out;
}

static Troupe__ReplayWaiter *waiter_push(Troupe__ReplayTable *out, const char *peer,
                                         int64_t since_ns)
{
    if (out->n_waiters == REPLAY_WAITERS_MAX)
        return NULL;
    if (!out->waiters)
        out->waiters = xcalloc(REPLAY_WAITERS_MAX, sizeof *out->waiters);
    Troupe__ReplayWaiter *waiter = message_new(&troupe__replay_waiter__descriptor);
    waiter->peer = xstrdup(peer);
    if (since_ns)
        waiter->since_seconds = (double)(clock_now_ns(&clock_monotonic) - since_ns) * 1e-9;
    out->waiters[out->n_waiters++] = waiter;
    return waiter;
}

/* Items of one stream are next to each other more often than not, but need not be; the first is the
 * one that waits longest. */
static void inserters_copy(const struct lane *lane, Troupe__ReplayTable *out)
{
    const struct insert_stream *streams[REPLAY_WAITERS_MAX];
    LIST_EACH (const struct pending_insert, pending, &lane->inserts.list, link) {
        const struct insert_stream *stream = pending->owners ? pending->owners->stream : NULL;
        size_t i = 0;
        while (i < out->n_waiters && streams[i] != stream)
            ++i;
        if (i < out->n_waiters) {
            out->waiters[i]->count++;
            continue;
        }
        Troupe__ReplayWaiter *waiter = waiter_push(
            out, stream ? insert_stream_peer(stream) : "(ended stream)", pending->since_ns);
        if (!waiter)
            return;
        streams[i] = stream;
        waiter->count = 1;
    }
}

static void samplers_copy(const struct lane *lane, Troupe__ReplayTable *out)
{
    LIST_EACH (const struct waiting_sampler, each, &lane->samplers, link) {
        Troupe__ReplayWaiter *waiter =
            waiter_push(out, trp_server_call_peer(each->call), each->since_ns);
        out->samples_waiting++;
        if (!waiter)
            continue;
        waiter->sampling = true;
        waiter->count = each->remaining;
    }
}

/* Why the limiter holds back who waits, to be freed; for the lanes of a running server. */
static char *blocked_words(const Troupe__ReplayTable *table)
{
    if (table->indexing && table->inserts_waiting)
        return xstrdup("inserts wait for the index of keys, which is being built");
    if (table->inserts_waiting && *table->limiter->insert_waits)
        return xasprintf("inserts wait: %s", table->limiter->insert_waits);
    if (table->samples_waiting && *table->limiter->sample_waits)
        return xasprintf("samples wait: %s", table->limiter->sample_waits);
    return xstrdup("");
}

static Troupe__ReplayStaleness *staleness_copy(struct engine_table *table)
{
    const struct item *oldest = engine_oldest_item(table);
    if (!oldest)
        return NULL;
    const struct engine_staleness *mean = &table->staleness;
    Troupe__ReplayStaleness *out = message_new(&troupe__replay_staleness__descriptor);
    int64_t now = clock_wall_ns();
    out->oldest_seconds = (double)(now - oldest->inserted_at_ns) * 1e-9;
    out->newest_seconds = (double)(now - table->inserted_at_ns) * 1e-9;
    out->sampled_age_seconds = mean->age_seconds;
    out->newest_version = mean->newest_version;
    out->sampled_versions_behind = mean->versions_behind;
    out->removed_times_sampled = mean->times_sampled;
    return out;
}

/* A tensor that stands alone has no name. */
static void columns_copy(trp_bytes bytes, Troupe__ReplayTable *out)
{
    struct signature signature = {0};
    bool named = signature_decode(bytes, &signature) == TRP_OK;
    if (named)
        out->column_types = xcalloc(signature.count + 1, sizeof *out->column_types);
    for (size_t i = 0; named && i < signature.count; i++)
        out->column_types[out->n_column_types++] = signature.leaves[i].dtype;
    for (size_t i = 0; i < signature.count; i++)
        named = named && *signature.leaves[i].path != '\0';
    if (named) {
        out->columns = xcalloc(signature.count + 1, sizeof(char *));
        for (size_t i = 0; i < signature.count; i++)
            out->columns[out->n_columns++] = xstrdup(signature.leaves[i].path);
    }
    signature_cleanup(&signature);
}

static Troupe__ReplayTable *table_copy(const struct admin *admin, struct engine_table *table)
{
    const trp_table_options *options = table->facts->options;
    const struct table_facts *facts = table->facts;
    Troupe__ReplayTable *out = message_new(&troupe__replay_table__descriptor);
    out->name = xstrdup(table->name);
    out->options = trp_table_options_format(options);
    out->size = table->facts->size;
    out->max_size = options->max_size;
    out->max_bytes = options->max_bytes;
    out->known_inserts = table->known_inserts;
    out->insert_on_sample_dropped = table->feed_dropped;
    out->unique_samples = facts->unique_samples;
    out->limiter = limiter_copy(table);
    out->episodes = facts->episodes;
    out->episodes_deleted = facts->episodes_deleted;
    out->staleness = staleness_copy(table);
    char *warning = limiter_warning(&table->facts->limiter, options->max_size);
    if (warning)
        out->warning = warning;
    out->bytes = facts->bytes;
    if (options->signature.size) {
        out->signature.data = xmemdup(options->signature.data, options->signature.size);
        out->signature.len = options->signature.size;
        columns_copy(options->signature, out);
    }
    if (!admin->service)
        return out;
    const struct lane *lane = admin->service->lanes[table->index];
    out->indexing = !engine_ready(admin->engine);
    out->inserts_waiting = lane->inserts.count;
    inserters_copy(lane, out);
    samplers_copy(lane, out);
    out->blocked = blocked_words(out);
    return out;
}

static Troupe__ReplayStore *store_copy(const struct admin *admin)
{
    struct store_stats usage = engine_usage(admin->engine);
    Troupe__ReplayStore *out = message_new(&troupe__replay_store__descriptor);
    out->dir = xstrdup(admin->dir);
    out->durability = xstrdup(admin->durability);
    out->file_bytes = usage.file_bytes;
    out->live_bytes = usage.live_bytes;
    out->map_bytes = usage.limit_bytes;
    out->allocated_bytes = usage.allocated_bytes;
    out->items = usage.items;
    out->chunks = usage.chunks;
    out->groups = usage.groups;
    out->cache_bytes = usage.cache_bytes;
    out->damaged_items = usage.damaged;
    return out;
}

static trp_status tables_collect(void *arg, struct engine *engine)
{
    struct admin_call *call = arg;
    struct admin *admin = call->admin;
    Troupe__ReplayTablesResponse *out = call->reply;
    out->n_tables = engine_table_count(engine);
    out->tables = xcalloc(out->n_tables + 1, sizeof *out->tables);
    for (size_t i = 0; i < out->n_tables; i++)
        out->tables[i] = table_copy(admin, engine_table(engine, i));
    out->store = store_copy(admin);
    out->work = admin_progress(admin);
    if (admin->server) {
        out->pid = getpid();
        out->streams = (int64_t)trp_server_open_calls(admin->server);
        out->version = xstrdup(trp_version());
        out->uptime_seconds = (double)(clock_now_ns(&clock_monotonic) - admin->started_ns) * 1e-9;
    }
    return TRP_OK;
}

static trp_status admin_tables(struct admin_call *call)
{
    return admin_enter(call->admin, tables_collect, call);
}

/* ---- the service ------------------------------------------------------------------------- */

static const struct {
    const char *name;
    trp_status (*answer)(struct admin_call *call);
} methods[] = {/* as replay.proto has them */
               {"Tables", admin_tables},
               {"Items", admin_items},
               {"Fetch", admin_fetch},
               {"CreateTable", admin_create_table},
               {"DropTable", admin_drop_table},
               {"AlterTable", admin_alter_table},
               {"Checkpoint", admin_checkpoint},
               {"Checkpoints", admin_checkpoints},
               {"RemoveCheckpoints", admin_remove_checkpoints},
               {"Verify", admin_verify}};

static void admin_invoke(ProtobufCService *service, unsigned index, const ProtobufCMessage *request,
                         ProtobufCClosure closure, void *data)
{
    const ProtobufCMethodDescriptor *method = &service->descriptor->methods[index];
    assert(strcmp(method->name, methods[index].name) == 0);
    struct admin_call call = {
        .admin = (struct admin *)service, .request = request, .reply = message_new(method->output)};
    bool ok = methods[index].answer(&call) == TRP_OK;
    closure(ok ? call.reply : NULL, data);
    if (call.borrowed)
        ((Troupe__ReplayFetchResponse *)call.reply)->samples = (ProtobufCBinaryData){0};
    trp_message_destroy(call.borrowed);
    protobuf_c_message_free_unpacked(call.reply, NULL);
}

void admin_init(struct admin *admin, const char *dir, const char *checkpoint_dir, uint32_t keep)
{
    *admin =
        (struct admin){.base = {.descriptor = &troupe__replay__descriptor, .invoke = admin_invoke},
                       .dir = xstrdup(dir),
                       .durability = ""};
    mutex_init(&admin->mutex);
    struct checkpointer_options options = {
        .store_dir = admin->dir,
        .dir = checkpoint_dir,
        .keep = keep,
        .door = {admin_enter, admin},
    };
    checkpointer_init(&admin->checkpointer, &options);
}

void admin_cleanup(struct admin *admin)
{
    checkpointer_cleanup(&admin->checkpointer);
    admin_plans_destroy(admin);
    mutex_cleanup(&admin->mutex);
    free(admin->dir);
}
