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

/* The service object. Methods run on any thread and take the server's lock for as long as they
 * look at tables: microseconds, a few milliseconds for thousands of items. */
struct admin {
    ProtobufCService base; /* first: callers hand it to admin_invoke() */
    trp_server *server;    /* NULL: over the files of a stopped server, guarded by `mutex` */
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
    /* Of the chunk whose parts went last: `part_of` an item, the chunk's index there. Whoever is in
     * the engine has it. */
    trp_message *part;
    uint64_t part_of;
    uint32_t part_chunk;
};

/* `checkpoint_dir`: NULL for the default; `keep`: see engine/checkpoint.h. */
void admin_init(struct admin *admin, const char *dir, const char *checkpoint_dir, uint32_t keep);
void admin_cleanup(struct admin *admin);

/* One call. Its method fills the reply, or fails, and then that is the answer. */
struct admin_call {
    struct admin *admin;
    const void *request;   /* the method's input */
    void *reply;           /* its output, freed after the answer */
    trp_message *borrowed; /* destroyed then, too: the `samples` of a Fetch lie in it */
};

trp_status admin_items(struct admin_call *call); /* admin_items.c */
trp_status admin_fetch(struct admin_call *call);
trp_status admin_create_table(struct admin_call *call); /* admin_tables.c */
trp_status admin_drop_table(struct admin_call *call);
trp_status admin_alter_table(struct admin_call *call);
trp_status admin_checkpoint(struct admin_call *call); /* admin_store.c */
trp_status admin_checkpoints(struct admin_call *call);
trp_status admin_remove_checkpoints(struct admin_call *call);
trp_status admin_verify(struct admin_call *call);

/* The door of a struct admin's engine: `enter` of struct engine_door. */
trp_status admin_enter(void *owner, trp_status (*work)(void *arg, struct engine *engine),
                       void *arg);

/* NOT_FOUND. */
trp_status admin_table(struct engine *engine, const char *name, struct engine_table **table);

/* Before work that needs all items or the index of keys: waits until they are in memory, with
 * others served meanwhile. CANCELLED: nobody waits any more, or for too long. Whoever enters
 * afterwards asks engine_index_finish() whether they are there, as the store may have failed. */
trp_status admin_load(struct admin *admin);

/* NULL: no long work is going on. */
Troupe__ReplayProgress *admin_progress(struct admin *admin);

void admin_plans_destroy(struct admin *admin);

#endif
