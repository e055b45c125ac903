/* Problem: one wants to see what a replay server holds and why it stands still, without sampling,
 * without disturbing it, and also after it has stopped.
 * Design: handlers collect plain copies with the lock held and answer without it. The same code
 * runs over a live server's engine and over an engine opened read-only.
 * Guarantee: nothing changes; lists are bounded by REPLAY_*_MAX. */
#include "admin.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "limits.h"
#include "replay/model/limiter_explain.h"
#include "replay/model/signature.h"

void admin_enter(struct admin *admin, void (*work)(void *arg), void *arg)
{
    if (admin->server) {
        trp_server_visit(admin->server, work, arg);
        return;
    }
    mutex_lock(&admin->mutex);
    work(arg);
    mutex_unlock(&admin->mutex);
}

trp_status admin_table(struct admin *admin, const char *name, struct engine_table **table)
{
    if (!admin->engine)
        return trp_fail(TRP_UNAVAILABLE, "the replay server has stopped");
    trp_bytes bytes = {(const uint8_t *)name, strlen(name)};
    *table = engine_find(admin->engine, bytes);
    return *table ? TRP_OK : engine_not_found(bytes);
}

trp_status admin_unreadable(struct admin *admin, struct engine_table *table, uint64_t key,
                            uint64_t chunk_seq, trp_status status)
{
    if (admin->service)
        lane_move(admin->service->lanes[table->index]);
    return engine_unreadable(table, key, chunk_seq, status);
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
    const struct limiter *limiter = engine_table_limiter(table);
    Troupe__ReplayLimiter *out = xmalloc(sizeof *out);
    char words[LIMITER_EXPLAIN_BYTES];
    troupe__replay_limiter__init(out);
    out->samples_per_insert = limiter->options.samples_per_insert;
    out->min_size = limiter->options.min_size;
    out->min_diff = limiter->options.min_diff;
    out->max_diff = limiter->options.max_diff;
    out->inserts = limiter->inserts;
    out->samples = limiter->samples;
    out->deletes = limiter->deletes;
    out->diff =
        (double)limiter->inserts * limiter->options.samples_per_insert - (double)limiter->samples;
    limiter_explain(limiter, false, words);
    out->insert_waits = xstrdup(words);
    limiter_explain(limiter, true, words);
    out->sample_waits = xstrdup(words);
    out->can_insert = limiter_can_insert(limiter, 1);
    out->can_sample = engine_table_size(table) > 0 && limiter_can_sample(limiter, 1);
    return out;
}

static Troupe__ReplayWaiter *waiter_push(Troupe__ReplayTable *out, const char *peer,
                                         int64_t since_ns)
{
    if (out->n_waiters == REPLAY_WAITERS_MAX)
        return NULL;
    if (!out->waiters)
        out->waiters = xcalloc(REPLAY_WAITERS_MAX, sizeof *out->waiters);
    Troupe__ReplayWaiter *waiter = xmalloc(sizeof *waiter);
    troupe__replay_waiter__init(waiter);
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
    for (const struct pending_insert *pending = pending_first(&lane->inserts); pending;
         pending = pending_next(pending)) {
        const struct insert_stream *stream = pending->owner.stream;
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
    struct waiting_sampler each;
    for (const struct sample_stream *stream = NULL;
         (stream = lane_sampler_after(lane, stream, &each));) {
        Troupe__ReplayWaiter *waiter = waiter_push(out, each.peer, each.since_ns);
        if (!waiter)
            return;
        waiter->sampling = true;
        waiter->count = each.wanted;
    }
}

/* What the limiter keeps those who wait from, to be freed; for the lanes of a running server. */
static char *blocked_words(const Troupe__ReplayTable *table, const Troupe__ReplayLimiter *limiter)
{
    if (table->indexing && table->inserts_waiting)
        return xstrdup("inserts wait for the index of keys, which is being built");
    if (table->inserts_waiting && !limiter->can_insert)
        return xasprintf("inserts wait for samples: inserts * %g - samples is %g and may be %g",
                         limiter->samples_per_insert, limiter->diff, limiter->max_diff);
    if (table->samples_waiting && table->size < limiter->min_size)
        return xasprintf("samples wait for items: there are %" PRId64 " and must be %" PRId64,
                         table->size, limiter->min_size);
    if (table->samples_waiting && !limiter->can_sample)
        return xasprintf("samples wait for inserts: inserts * %g - samples is %g and must be more "
                         "than %g",
                         limiter->samples_per_insert, limiter->diff, limiter->min_diff);
    return xstrdup("");
}

static Troupe__ReplayStaleness *staleness_copy(struct engine_table *table)
{
    const struct item *oldest = engine_oldest_item(table);
    if (!oldest)
        return NULL;
    const struct engine_staleness *mean = &table->staleness;
    Troupe__ReplayStaleness *out = xmalloc(sizeof *out);
    troupe__replay_staleness__init(out);
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
    const trp_table_options *options = engine_table_options(table);
    struct engine_counts counts = engine_table_counts(table);
    Troupe__ReplayTable *out = xmalloc(sizeof *out);
    troupe__replay_table__init(out);
    out->name = xstrdup(table->name);
    out->options = trp_table_options_format(options);
    out->size = engine_table_size(table);
    out->max_size = options->max_size;
    out->max_bytes = options->max_bytes;
    out->known_inserts = table->known_inserts;
    out->insert_on_sample_dropped = table->feed_dropped;
    out->unique_samples = counts.unique_samples;
    out->limiter = limiter_copy(table);
    out->episodes = counts.episodes;
    out->episodes_deleted = counts.episodes_deleted;
    out->staleness = staleness_copy(table);
    char *warning = limiter_warning(engine_table_limiter(table), options->max_size);
    if (warning)
        out->warning = warning;
    out->bytes = counts.bytes;
    if (options->signature.size) {
        out->signature.data = xmalloc(options->signature.size);
        memcpy(out->signature.data, options->signature.data, options->signature.size);
        out->signature.len = options->signature.size;
        columns_copy(options->signature, out);
    }
    if (!admin->service)
        return out;
    const struct lane *lane = admin->service->lanes[table->index];
    out->indexing = !engine_ready(admin->engine);
    out->inserts_waiting = lane->inserts.count;
    out->samples_waiting = lane->sample_count;
    out->blocked = blocked_words(out, out->limiter);
    inserters_copy(lane, out);
    samplers_copy(lane, out);
    return out;
}

static Troupe__ReplayStore *store_copy(const struct admin *admin)
{
    struct engine_usage usage = engine_usage(admin->engine);
    Troupe__ReplayStore *out = xmalloc(sizeof *out);
    troupe__replay_store__init(out);
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
    return out;
}

struct tables_work {
    struct admin *admin;
    Troupe__ReplayTablesResponse *response; /* NULL: stopped */
};

static void tables_collect(void *arg)
{
    struct tables_work *work = arg;
    struct admin *admin = work->admin;
    if (!admin->engine)
        return;
    Troupe__ReplayTablesResponse *out = xmalloc(sizeof *out);
    troupe__replay_tables_response__init(out);
    out->n_tables = engine_table_count(admin->engine);
    out->tables = xcalloc(out->n_tables + 1, sizeof *out->tables);
    for (size_t i = 0; i < out->n_tables; i++)
        out->tables[i] = table_copy(admin, engine_table(admin->engine, i));
    out->store = store_copy(admin);
    out->work = admin_progress(admin);
    if (admin->server) {
        out->pid = getpid();
        out->streams = (int64_t)trp_server_open_calls(admin->server);
        out->version = xstrdup(trp_version());
        out->uptime_seconds = (double)(clock_now_ns(&clock_monotonic) - admin->started_ns) * 1e-9;
    }
    work->response = out;
}

static void admin_tables(Troupe__Replay_Service *service,
                         const Troupe__ReplayTablesRequest *request,
                         Troupe__ReplayTablesResponse_Closure closure, void *data)
{
    struct tables_work work = {.admin = (struct admin *)service};
    (void)request;
    admin_enter(work.admin, tables_collect, &work);
    if (!work.response)
        trp_fail(TRP_UNAVAILABLE, "the replay server has stopped");
    closure(work.response, data);
    if (work.response)
        troupe__replay_tables_response__free_unpacked(work.response, NULL);
}

/* ---- items ------------------------------------------------------------------------------- */

Troupe__ReplayItem *admin_item(const struct item *item)
{
    Troupe__ReplayItem *out = xmalloc(sizeof *out);
    troupe__replay_item__init(out);
    out->key = item->key;
    out->priority = item->priority;
    out->times_sampled = item->times_sampled;
    out->inserted_at_ns = item->inserted_at_ns;
    out->sequence = item->seq;
    out->policy_version = item->policy_version;
    out->chunk_count = item->trajectory->chunk_count;
    out->bytes = item_chunk_bytes(item);
    return out;
}

void admin_init(struct admin *admin, const char *dir, const char *checkpoint_dir, uint32_t keep)
{
    static const Troupe__Replay_Service base = TROUPE__REPLAY__INIT(admin_);
    *admin = (struct admin){.base = base, .dir = xstrdup(dir), .durability = ""};
    mutex_init(&admin->mutex);
    struct checkpointer_options options = {
        .store_dir = admin->dir,
        .dir = checkpoint_dir,
        .keep = keep,
        .door = {admin_door_enter, admin},
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
