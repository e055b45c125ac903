/* troupe.Replay: looking at the tables of a server, running or stopped, and changing them. */
#ifndef TRP_REPLAY_SERVER_ADMIN_H
#define TRP_REPLAY_SERVER_ADMIN_H

#include <protobuf-c/protobuf-c.h>

#include <troupe/rpc.h>
#include "replay/engine/checkpoint.h"
#include "limits.h"
#include "core/thread.h"
#include "replay/engine/engine.h"
#include "replay.pb-c.h"
#include "replay/service/service.h"

/* The service object. Handlers run on any thread and take the server's lock for as long as they
 * look at tables: microseconds, a few milliseconds for thousands of items. */
struct admin {
    Troupe__Replay_Service base; /* first: protobuf-c hands it to handlers */
    trp_server *server;          /* NULL: over the files of a stopped server, guarded by `mutex` */
    struct mutex mutex;
    struct service *service;              /* NULL: over files */
    struct engine *engine;                /* NULL: the server has stopped */
    char identity[ENGINE_IDENTITY_BYTES]; /* of the store, as its checkpoints have it */
    char *dir;
    const char *durability; /* "" over files */
    int64_t started_ns;     /* CLOCK_MONOTONIC; 0 over files */
    struct checkpointer checkpointer;
    struct fetch_plan *plans[REPLAY_FETCH_PLANS]; /* guarded by `mutex` */
    uint32_t plan_next;                           /* the one left longest ago, if all are taken */
};

/* `checkpoint_dir`: NULL for the default; `keep`: see engine/checkpoint.h. */
void admin_init(struct admin *admin, const char *dir, const char *checkpoint_dir, uint32_t keep);
void admin_cleanup(struct admin *admin);

/* Runs `work(arg)` with the engine to itself. */
void admin_enter(struct admin *admin, void (*work)(void *arg), void *arg);

/* NOT_FOUND, or UNAVAILABLE when the server has stopped. */
trp_status admin_table(struct admin *admin, const char *name, struct engine_table **table);

/* engine_unreadable(), after which others may go on; `admin` is entered. */
trp_status admin_unreadable(struct admin *admin, struct engine_table *table, uint64_t key,
                            uint64_t chunk_seq, trp_status status);

/* Before what needs all items or the index of keys: waits until they are in memory, with others
 * served meanwhile. CANCELLED: nobody waits any more, or for too long. Whoever enters afterwards
 * asks engine_index_finish() whether they are there, as the store may have failed. */
trp_status admin_load(struct admin *admin);

/* Allocates and fills; `admin` is entered. */
Troupe__ReplayItem *admin_item(const struct item *item);

/* ---- admin_items.c ---- */

void admin_items(Troupe__Replay_Service *service, const Troupe__ReplayItemsRequest *request,
                 Troupe__ReplayItemsResponse_Closure closure, void *data);
void admin_plans_destroy(struct admin *admin);
void admin_fetch(Troupe__Replay_Service *service, const Troupe__ReplayFetchRequest *request,
                 Troupe__ReplayFetchResponse_Closure closure, void *data);

/* ---- admin_tables.c ---- */

void admin_create_table(Troupe__Replay_Service *service,
                        const Troupe__ReplayCreateTableRequest *request,
                        Troupe__ReplayDone_Closure closure, void *data);
void admin_drop_table(Troupe__Replay_Service *service,
                      const Troupe__ReplayDropTableRequest *request,
                      Troupe__ReplayDone_Closure closure, void *data);
void admin_alter_table(Troupe__Replay_Service *service,
                       const Troupe__ReplayAlterTableRequest *request,
                       Troupe__ReplayAlterTableResponse_Closure closure, void *data);

/* ---- admin_store.c ---- */

/* The `enter` of a struct engine_door; `owner` is the admin. */
void admin_door_enter(void *owner, void (*work)(void *arg, struct engine *engine), void *arg);

/* NULL: no long work is going on. */
Troupe__ReplayProgress *admin_progress(struct admin *admin);
void admin_checkpoint(Troupe__Replay_Service *service,
                      const Troupe__ReplayCheckpointRequest *request,
                      Troupe__ReplayCheckpoint_Closure closure, void *data);
void admin_remove_checkpoints(Troupe__Replay_Service *service,
                              const Troupe__ReplayRemoveCheckpointsRequest *request,
                              Troupe__ReplayRemoveCheckpointsResponse_Closure closure, void *data);
void admin_checkpoints(Troupe__Replay_Service *service,
                       const Troupe__ReplayCheckpointsRequest *request,
                       Troupe__ReplayCheckpointsResponse_Closure closure, void *data);
void admin_verify(Troupe__Replay_Service *service, const Troupe__ReplayVerifyRequest *request,
                  Troupe__ReplayVerifyResponse_Closure closure, void *data);

#endif
