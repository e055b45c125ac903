/* Problem: engine, service and rpc server have to come up and go down in the right order, and a
 * stopped store has to be open to the same questions as a live server.
 * Design: the engine first (nothing is served before the store is known to be whole), the rpc
 * server around it; on the way down the rpc server first, so that no handler runs when the engine
 * commits for the last time. */
#include <troupe/replay.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/log.h>
#include "admin.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/status.h"
#include "limits.h"
#include "replay/engine/engine.h"
#include "replay/disk/disk.h"
#include "replay/model/limiter.h"
#include "replay/service/service.h"

enum { HELD_BYTES_DEFAULT = 1 << 30 };

/* Takes the checkpoints that Reverb's clients ask for, one after the other: a thread each. */
struct checkpoint_worker {
    struct thread thread;
    trp_status status; /* of the last one, */
    char *text;        /* and its path, or its failure; until the answer */
};

struct trp_replay_server {
    trp_server *rpc;
    struct engine *engine;
    struct service service;
    struct admin admin;
    struct checkpoint_worker worker;
};

/* DIR/ADDRESS says where a live server is to whoever only knows its directory. Whoever opens the
 * store next removes the file of a killed server. */
static void address_remove(const trp_replay_server *server)
{
    char *path = xasprintf("%s/ADDRESS", server->admin.dir);
    unlink(path);
    free(path);
}

/* ---- checkpoints ------------------------------------------------------------------------- */

static void worker_answer(void *arg)
{
    trp_replay_server *server = arg;
    service_checkpoint_done(&server->service, server->worker.status, server->worker.text);
    free(server->worker.text);
    server->worker.text = NULL;
}

static void worker_run(void *arg)
{
    trp_replay_server *server = arg;
    struct checkpoint_worker *worker = &server->worker;
    worker->status = checkpointer_run(&server->admin.checkpointer, NULL, &worker->text);
    if (worker->status != TRP_OK)
        worker->text = error_keep();
    trp_server_post(server->rpc, worker_answer, server); /* not here: the next one is begun then */
}

/* With the server's lock held; whoever took the last one has nothing left to do. */
static trp_status worker_start(void *owner)
{
    trp_replay_server *server = owner;
    thread_stop(&server->worker.thread);
    return thread_start(&server->worker.thread, "checkpoint", worker_run, server);
}

/* ---- life -------------------------------------------------------------------------------- */

static void pages_fetched(void *arg)
{
    trp_replay_server *server = arg;
    trp_server_post(server->rpc, service_fetched, &server->service);
}

static trp_status server_open(trp_replay_server *server, const trp_replay_server_options *options)
{
    struct engine_options engine = {
        .dir = options->dir,
        .durability = options->durability,
        .max_bytes = options->max_bytes,
        .check = options->verify,
        .checkpoint_dir = options->checkpoint_dir,
        .tables = options->tables,
        .table_count = options->table_count,
        .shrink = options->shrink,
        .seed = options->seed ? options->seed : trp_rng_entropy(),
    };
    uint64_t in_flight = options->server.in_flight_bytes;
    TRP_TRY(engine_create(&server->engine, &engine));
    address_remove(server);
    if (engine_share(server->engine) != TRP_OK)
        trp_log(TRP_WARN, "samplers on this host get copies over the network reason=%s",
                trp_last_error());
    service_init(&server->service, server->engine, in_flight ? in_flight : HELD_BYTES_DEFAULT);
    server->service.no_share = options->no_share;
    server->service.lease_ms = options->lease_ms ? options->lease_ms : SHARED_LEASE_MS;
    TRP_TRY(trp_server_create(&server->rpc, &options->server));
    server->admin.engine = server->engine;
    engine_identity(server->engine, server->admin.identity);
    server->admin.server = server->rpc;
    server->admin.service = &server->service;
    static const char *const durabilities[] = {"process", "memory", "system"};
    server->admin.durability = durabilities[options->durability];
    server->admin.started_ns = clock_now_ns(&clock_monotonic);
    TRP_TRY(service_serve(&server->service, server->rpc));
    static const char *const blocking[] = {"Checkpoint", "Verify", NULL};
    TRP_TRY(trp_server_add(server->rpc, &server->admin.base, blocking));
    server->service.checkpoint = worker_start;
    server->service.checkpoint_owner = server;
    return engine_fetcher(server->engine, pages_fetched, server, &server->service.fetcher);
}

trp_status trp_replay_server_create(trp_replay_server **out,
                                    const trp_replay_server_options *options)
{
    *out = NULL;
    if (!options->dir || !*options->dir)
        return trp_fail(TRP_INVALID_ARGUMENT, "a replay server needs a directory");
    trp_replay_server *server = xcalloc(1, sizeof *server);
    uint32_t keep = options->keep_checkpoints ? options->keep_checkpoints : REPLAY_CHECKPOINTS_KEPT;
    admin_init(&server->admin, options->dir, options->checkpoint_dir,
               keep == UINT32_MAX ? 0 : keep);
    trp_status status = server_open(server, options);
    if (status != TRP_OK) {
        trp_replay_server_destroy(server);
        return status;
    }
    *out = server;
    return TRP_OK;
}

static void address_write(const trp_replay_server *server)
{
    char *path = xasprintf("%s/ADDRESS", server->admin.dir);
    char *part = xasprintf("%s/ADDRESS.part", server->admin.dir);
    FILE *file = store_path_write(part);
    bool ok = file && fprintf(file, "%s\n", trp_server_address(server->rpc)) > 0;
    if (file)
        ok = fclose(file) == 0 && ok;
    if (!ok || rename(part, path) != 0) {
        trp_log(TRP_WARN,
                "replay cannot leave its address in its directory, by which nobody will find it: "
                "use the address itself address=%s path=%s reason=%s",
                trp_server_address(server->rpc), path, strerror(errno));
        unlink(part);
    }
    free(part);
    free(path);
}

/* Only of a server that others come to: who opens a store to change it is about to mend that. */
static void limiters_warn(void *arg)
{
    struct engine *engine = ((trp_replay_server *)arg)->engine;
    for (size_t i = 0; i < engine_table_count(engine); i++) {
        const struct engine_table *table = engine_table(engine, i);
        char *warning = limiter_warning(&table->facts->limiter, table->facts->options->max_size);
        if (warning)
            trp_log(TRP_WARN, "table %s: %s", table->name, warning);
        free(warning);
    }
}

trp_status trp_replay_server_start(trp_replay_server *server)
{
    trp_server_visit(server->rpc, limiters_warn, server);
    TRP_TRY(trp_server_start(server->rpc));
    address_write(server);
    return TRP_OK;
}

trp_server *trp_replay_server_rpc(trp_replay_server *server)
{
    return server->rpc;
}

static void engine_close(void *arg)
{
    trp_replay_server *server = arg;
    if (server->engine)
        address_remove(server);
    server->admin.engine = NULL;
    if (server->engine &&
        !engine_wait_unpinned(server->engine,
                              deadline_in_ms(&clock_monotonic, SERVER_UNPIN_WAIT_MS)))
        trp_log(TRP_WARN, "the transport keeps samples that it was to drop");
    service_fetched(&server->service);
    fetcher_destroy(server->service.fetcher);
    service_cleanup(&server->service);
    engine_destroy(server->engine);
    server->engine = NULL;
}

void trp_replay_server_stop(trp_replay_server *server, int64_t grace_ms)
{
    if (!server->rpc) {
        engine_close(server);
        return;
    }
    trp_server_stop(server->rpc, grace_ms);
    checkpointer_stop(&server->admin.checkpointer);
    thread_stop(&server->worker.thread);
    if (server->service.fetcher)
        fetcher_stop(server->service.fetcher);
    trp_server_run(server->rpc, engine_close, server);
}

void trp_replay_server_destroy(trp_replay_server *server)
{
    if (!server)
        return;
    trp_replay_server_stop(server, 0);
    trp_server_destroy(server->rpc);
    free(server->worker.text);
    admin_cleanup(&server->admin);
    free(server);
}

/* ---- files of a stopped server ----------------------------------------------------------- */

struct trp_replay_files {
    struct admin admin;
};

trp_status trp_replay_files_open(trp_replay_files **out, const char *dir)
{
    struct engine_options options = {.dir = dir, .read_only = true};
    struct engine *engine;
    *out = NULL;
    TRP_TRY(engine_create(&engine, &options));
    trp_replay_files *files = xcalloc(1, sizeof *files);
    admin_init(&files->admin, dir, NULL, 0);
    files->admin.engine = engine;
    engine_identity(engine, files->admin.identity);
    *out = files;
    return TRP_OK;
}

ProtobufCService *trp_replay_files_service(trp_replay_files *files)
{
    return &files->admin.base;
}

void trp_replay_files_close(trp_replay_files *files)
{
    if (!files)
        return;
    engine_destroy(files->admin.engine);
    admin_cleanup(&files->admin);
    free(files);
}
