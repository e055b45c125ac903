/* The service of a parameter server. A table is the range of one vector that this server has; it is
 * made by the first worker that joins, or is the one that an earlier life kept. Everything is under
 * one lock, which handlers hold while they step; who has to wait for others does so on a thread of
 * the server's pool.
 *
 * On one host a table's values lie in memory that workers map, and their gradients in memory that
 * the server maps: a push is then one copy and a step, and a pull one copy. The values are between
 * two counts of writes, which are the same and even for who read them whole. To workers elsewhere
 * values are sent from where they lie (values.h). */
#include <troupe/parameter_server.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <troupe/log.h>
#include <troupe/updater.h>
#include "core/alloc.h"
#include "core/boot.h"
#include "core/clock.h"
#include "core/thread.h"
#include "gradients.h"
#include "keep.h"
#include "keys.h"
#include "limits.h"
#include "optimizer_message.h"
#include "parameter_server.pb-c.h"
#include "rpc/shared_params.h"
#include "table.h"

struct trp_parameter_server {
    Troupe__ParameterServer_Service service; /* first: a handler gets only its address */
    trp_parameter_server_options options;
    char *name, *dir; /* dir NULL: nothing is kept */
    char host[BOOT_ID_BYTES];
    struct mutex mutex; /* all that follows */
    struct passes passes;
    struct parts_room parts_room;
    struct cond changed;
    struct server_table *tables[TRP_UPDATER_VECTORS_MAX];
    size_t table_count;
};

static struct server_table *find_server_table(const trp_parameter_server *server,
                                              const char *vector)
{
    for (size_t i = 0; i < server->table_count; i++)
        if (strcmp(server->tables[i]->vector, vector) == 0)
            return server->tables[i];
    return NULL;
}

/* NULL: the worker has to join in this life of the server. */
static struct server_table *joined_table(const trp_parameter_server *server, const char *vector,
                                         uint32_t worker)
{
    struct server_table *table = find_server_table(server, vector);
    return table && worker < table->shard.options.workers && table->workers[worker].name ? table
                                                                                         : NULL;
}

static uint64_t steps_of_learners(const trp_parameter_server *server)
{
    uint64_t steps = 0;
    for (size_t i = 0; i < server->table_count; i++)
        steps += server->tables[i]->steps;
    return steps;
}

/* ---- joining ------------------------------------------------------------------------------- */

static struct shard_options options_of(trp_parameter_server *server,
                                       const Troupe__ServerJoinRequest *request)
{
    return (struct shard_options){.optimizer = optimizer_of(request->optimizer),
                                  .rule = (trp_server_rule)server->options.rule,
                                  .workers = request->workers,
                                  .slack = server->options.slack,
                                  .softness = server->options.softness,
                                  .max_staleness = server->options.max_staleness,
                                  .passes = &server->passes};
}

static trp_status check_join(const Troupe__ServerJoinRequest *request)
{
    if (!request->optimizer || request->worker >= request->workers || request->name[0] == '\0')
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "a worker joins without a name, an optimizer, or as %" PRIu32
                        " of %" PRIu32,
                        request->worker, request->workers);
    if (!server_table_name_is_one(request->vector))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s joins with a vector whose name is none",
                        request->name);
    if (request->count > request->values.len / sizeof(float) ||
        request->values.len != request->count * sizeof(float))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s joins '%s' with %zu bytes for %" PRIu64 " numbers", request->name,
                        request->vector, request->values.len, request->count);
    return TRP_OK;
}

static trp_status add_table(trp_parameter_server *server, const Troupe__ServerJoinRequest *request,
                            struct server_table **table)
{
    struct shard_options options = options_of(server, request);
    if (server->table_count == TRP_UPDATER_VECTORS_MAX)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s has %zu vectors already", server->name,
                        server->table_count);
    TRP_TRY(server_table_create(table, &options, &server->parts_room, request));
    keep_init(&(*table)->keep, server->dir, request->vector,
              server->options.durability == TRP_SERVER_KEEPS_LOG);
    trp_status status = server_table_load(*table, request);
    if (status != TRP_OK) {
        server_table_destroy(*table);
        return status;
    }
    server->tables[server->table_count++] = *table;
    trp_log(TRP_INFO,
            "parameter server has vector=%s first=%" PRIu64 " numbers=%" PRIu64 " version=%" PRIu64,
            request->vector, request->first, request->count, (*table)->shard.version);
    return TRP_OK;
}

static trp_status join_locked(trp_parameter_server *server,
                              const Troupe__ServerJoinRequest *request,
                              Troupe__ServerJoinReply *reply, struct server_table **table)
{
    TRP_TRY(check_join(request));
    *table = find_server_table(server, request->vector);
    if (*table)
        TRP_TRY(server_table_fits(*table, request));
    else
        TRP_TRY(add_table(server, request, table));
    bool at_home = request->host[0] != '\0' && strcmp(request->host, server->host) == 0 &&
                   request->pid != (uint32_t)getpid() && !server->options.no_share;
    TRP_TRY(server_table_join(*table, request, at_home ? request->gradients : NULL));
    reply->clock = (*table)->shard.workers[request->worker].clock;
    reply->steps = steps_of_learners(server);
    reply->maps = (*table)->workers[request->worker].gradients != NULL;
    return TRP_OK;
}

static void serve_join(Troupe__ParameterServer_Service *service,
                       const Troupe__ServerJoinRequest *request,
                       Troupe__ServerJoinReply_Closure closure, void *closure_data)
{
    trp_parameter_server *server = (trp_parameter_server *)service;
    Troupe__ServerJoinReply reply = TROUPE__SERVER_JOIN_REPLY__INIT;
    Troupe__SharedParams shared = TROUPE__SHARED_PARAMS__INIT;
    struct server_table *table = NULL;
    mutex_lock(&server->mutex);
    trp_status status = join_locked(server, request, &reply, &table);
    cond_broadcast(&server->changed);
    mutex_unlock(&server->mutex);
    if (status == TRP_OK && table->values.shared.memory && reply.maps) {
        shared_params_put(&shared, &table->values.shared.place);
        reply.values = &shared;
    }
    closure(status == TRP_OK ? &reply : NULL, closure_data);
}

/* ---- pushes -------------------------------------------------------------------------------- */

static trp_status key_list_of(struct server_table *table, uint64_t hash, const uint64_t *bounds,
                              size_t count, const struct key_list **list)
{
    *list = keys_find(&table->keys, hash);
    return *list || (count == 0 && hash != keys_hash(bounds, 0))
               ? TRP_OK
               : keys_add(&table->keys, &table->shard, hash, bounds, count, list);
}

static void say_how_it_is(const trp_parameter_server *server, struct server_table *table,
                          const Troupe__ServerPushRequest *request, Troupe__ServerPushReply *reply)
{
    server_table_hear(table); /* a checkpoint may have been written since */
    reply->clock = table->shard.workers[request->worker].clock;
    reply->steps = steps_of_learners(server);
    reply->may_read = shard_may_read(&table->shard, request->worker);
    reply->silent = xcalloc(table->shard.options.workers, sizeof *reply->silent);
    reply->n_silent = server_table_silent(table, request->patience_ms, reply->silent);
}

static trp_status take_locked(trp_parameter_server *server,
                              const Troupe__ServerPushRequest *request,
                              Troupe__ServerPushReply *reply)
{
    const struct key_list *list;
    struct server_table *table = joined_table(server, request->vector, request->worker);
    reply->unknown_worker = !table;
    if (!table)
        return TRP_OK;
    server_table_hear(table);
    if (request->idle) {
        table->workers[request->worker].heard_ns = clock_now_ns(&clock_monotonic);
        say_how_it_is(server, table, request, reply);
        return TRP_OK;
    }
    TRP_TRY(key_list_of(table, request->keys, request->ranges, request->n_ranges, &list));
    reply->unknown_keys = !list;
    if (!list)
        return TRP_OK;
    struct shard_push push = {.worker = request->worker,
                              .sequence = request->sequence,
                              .version = request->version,
                              .scale = request->scale,
                              .ranges = list->ranges,
                              .range_count = list->count};
    TRP_TRY(gradients_take(table, request, list->numbers, &push));
    table->push_bytes += request->gradients.len + request->n_runs * sizeof *request->runs;
    reply->part = !push.grads;
    if (reply->part)
        return TRP_OK;
    enum shard_answer answer;
    TRP_TRY(server_table_push(table, &push, request->new_steps, &answer));
    reply->answer = answer;
    server_table_note_read(table, request->behind);
    say_how_it_is(server, table, request, reply);
    return TRP_OK;
}

static void serve_push(Troupe__ParameterServer_Service *service,
                       const Troupe__ServerPushRequest *request,
                       Troupe__ServerPushReply_Closure closure, void *closure_data)
{
    trp_parameter_server *server = (trp_parameter_server *)service;
    Troupe__ServerPushReply reply = TROUPE__SERVER_PUSH_REPLY__INIT;
    mutex_lock(&server->mutex);
    trp_status status = take_locked(server, request, &reply);
    cond_broadcast(&server->changed);
    mutex_unlock(&server->mutex);
    closure(status == TRP_OK ? &reply : NULL, closure_data);
    free(reply.silent);
}

/* ---- pulls --------------------------------------------------------------------------------- */

/* Until the worker may read, for wait_ms at most, or until it has to ask again. */
static trp_status wait_for_others_locked(trp_parameter_server *server,
                                         const Troupe__ServerPullRequest *request,
                                         struct server_table *table, bool *wait)
{
    struct deadline until = deadline_in_ms(&clock_monotonic, request->wait_ms < SERVER_WAIT_MS_MAX
                                                                 ? (int64_t)request->wait_ms
                                                                 : SERVER_WAIT_MS_MAX);
    bool in_time = true;
    while (in_time && !shard_may_read(&table->shard, request->worker) && !trp_call_cancelled()) {
        struct deadline lost;
        TRP_TRY(server_table_lose_silent(table, request, &lost));
        if (!shard_may_read(&table->shard, request->worker))
            in_time = cond_wait(&server->changed, &server->mutex, deadline_earlier(until, lost)) ||
                      !deadline_passed(until, &clock_monotonic);
    }
    *wait = !shard_may_read(&table->shard, request->worker);
    return TRP_OK;
}

/* Meanwhile it is there. */
static trp_status wait_in_turn_locked(trp_parameter_server *server,
                                      const Troupe__ServerPullRequest *request,
                                      struct server_table *table, bool *wait)
{
    struct server_table_worker *worker = &table->workers[request->worker];
    worker->waits++;
    trp_status status = wait_for_others_locked(server, request, table, wait);
    worker->waits--;
    worker->heard_ns = clock_now_ns(&clock_monotonic);
    return status;
}

static uint64_t bytes_of_reply(const Troupe__ServerPullReply *reply)
{
    uint64_t bytes = reply->values.len;
    for (size_t k = 0; k < reply->n_states; k++)
        bytes += reply->states[k].len;
    return bytes;
}

static trp_status read_locked(trp_parameter_server *server,
                              const Troupe__ServerPullRequest *request,
                              Troupe__ServerPullReply *reply, struct server_table_copy *copy)
{
    const struct key_list *list = NULL;
    bool wait = false;
    struct server_table *table = joined_table(server, request->vector, request->worker);
    reply->unknown_worker = !table;
    if (!table)
        return TRP_OK;
    server_table_hear(table);
    TRP_TRY(key_list_of(table, request->keys, request->ranges, request->n_ranges, &list));
    reply->unknown_keys = !list;
    if (!list)
        return TRP_OK;
    if (!request->states)
        TRP_TRY(wait_in_turn_locked(server, request, table, &wait));
    reply->wait = wait;
    reply->steps = steps_of_learners(server);
    reply->version = table->shard.version;
    reply->optimizer_steps = table->shard.steps;
    reply->behind = server_table_behind(table, request->worker);
    server_table_note_read(table, request->behind);
    if (wait)
        return TRP_OK;
    list = keys_find(&table->keys, request->keys); /* others may have pushed it out meanwhile */
    reply->unknown_keys = !list;
    if (!list)
        return TRP_OK;
    if (!request->states && !request->in_memory) /* which it tells of when it has read */
        server_table_note_read(table, reply->behind);
    if (request->part_bytes == 0 || request->states)
        TRP_TRY(server_table_copy_out(table, list, request, reply, copy));
    else
        server_table_part_out(table, list, request, reply);
    table->pull_bytes += bytes_of_reply(reply);
    return TRP_OK;
}

static void serve_pull(Troupe__ParameterServer_Service *service,
                       const Troupe__ServerPullRequest *request,
                       Troupe__ServerPullReply_Closure closure, void *closure_data)
{
    trp_parameter_server *server = (trp_parameter_server *)service;
    Troupe__ServerPullReply reply = TROUPE__SERVER_PULL_REPLY__INIT;
    struct server_table_copy copy = {0};
    mutex_lock(&server->mutex);
    trp_status status = read_locked(server, request, &reply, &copy);
    closure(status == TRP_OK ? &reply : NULL, closure_data); /* which copies what is not lent */
    mutex_unlock(&server->mutex);
    free(copy.gathered);
}

/* ---- its life ------------------------------------------------------------------------------ */

static const Troupe__ParameterServer_Service service_functions =
    TROUPE__PARAMETER_SERVER__INIT(serve_);

trp_status trp_parameter_server_create(trp_parameter_server **out, const char *name,
                                       const trp_parameter_server_options *options, const char *dir)
{
    *out = NULL;
    if (dir && mkdir(dir, 0700) != 0 && access(dir, W_OK) != 0)
        return trp_fail(TRP_UNAVAILABLE, "%s: %s cannot be made or written to", name, dir);
    trp_parameter_server *server = xcalloc(1, sizeof *server);
    server->service = service_functions;
    server->options = *options;
    server->passes.threads = options->threads;
    server->parts_room = (struct parts_room){
        .clock = &clock_monotonic,
        .limit = options->in_flight_bytes ? options->in_flight_bytes : STAGED_BYTES};
    server->name = xstrdup(name);
    server->dir = dir ? xstrdup(dir) : NULL;
    boot_id_read(server->host);
    mutex_init(&server->mutex);
    cond_init(&server->changed);
    *out = server;
    return TRP_OK;
}

const ProtobufCServiceDescriptor *trp_parameter_server_descriptor(void)
{
    return &troupe__parameter_server__descriptor;
}

ProtobufCService *trp_parameter_server_service(trp_parameter_server *server)
{
    return &server->service.base;
}

trp_parameter_server_counters trp_parameter_server_read(trp_parameter_server *server)
{
    trp_parameter_server_counters counters = {0};
    mutex_lock(&server->mutex);
    for (size_t i = 0; i < server->table_count; i++) {
        const struct server_table *table = server->tables[i];
        counters.pushes += table->shard.pushes;
        counters.versions += table->shard.steps;
        counters.dropped += table->shard.dropped;
        counters.push_bytes += table->push_bytes;
        counters.pull_bytes += table->pull_bytes;
        if (table->most_behind > counters.most_behind)
            counters.most_behind = table->most_behind;
    }
    mutex_unlock(&server->mutex);
    return counters;
}

trp_status trp_parameter_server_save(trp_parameter_server *server)
{
    trp_status status = TRP_OK;
    mutex_lock(&server->mutex);
    for (size_t i = 0; i < server->table_count && status == TRP_OK; i++)
        status = server_table_save(server->tables[i], true);
    mutex_unlock(&server->mutex);
    return status;
}

void trp_parameter_server_destroy(trp_parameter_server *server)
{
    if (!server)
        return;
    for (size_t i = 0; i < server->table_count; i++)
        server_table_destroy(server->tables[i]);
    passes_cleanup(&server->passes);
    cond_cleanup(&server->changed);
    mutex_cleanup(&server->mutex);
    free(server->name);
    free(server->dir);
    free(server);
}
