/* ReverbService over one engine: the parts that its files share.
 *
 *   service.c        lanes, groups
 *   insert_stream.c  InsertStream            sample_stream.c  SampleStream
 *   sample_draws.c   batches of samples       sample_shared.c  troupe.Replay/SampleShared
 *   service_unary.c  MutatePriorities, Reset, ServerInfo, Checkpoint, InitializeConnection
 *   admin*.c         troupe.Replay           server/server.c         trp_replay_server_*
 *
 * Each table has a lane: inserts that its limiter holds back, and streams that wait for samples,
 * both first come, first served. A group of calls is applied as it comes in; at its end the lanes
 * move as far as limiters allow, the engine commits, and only then are inserts confirmed. All of it
 * belongs to whoever holds the server's lock. */
#ifndef TRP_REPLAY_SERVICE_SERVICE_H
#define TRP_REPLAY_SERVICE_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/rpc.h>
#include "replay/engine/engine.h"
#include "pending.h"
#include "replay/wire/shared_wire.h"
#include "trajectory_builder.h"
#include "replay/wire/wire.h"

struct insert_stream;
struct sample_stream;

/* How a table spends its time, as Reverb reports it. */
enum lane_state {
    LANE_SLEEPING,
    LANE_SAMPLING,
    LANE_INSERTING,
    LANE_WAITING_FOR_SAMPLING, /* inserts are held back */
    LANE_WAITING_FOR_INSERTS,
    LANE_STATES
};

/* A request that waits for samples. */
struct waiting_sampler {
    struct list_link link; /* in its lane */
    trp_server_call *call;
    int64_t since_ns;  /* CLOCK_MONOTONIC */
    int64_t remaining; /* samples to draw */
};

struct lane {
    struct service *service;
    struct engine_table *table;
    struct pending_queue inserts;
    uint32_t orphans_refused; /* of late, until a line says so, and why the first was */
    char *orphans_reason;
    struct list samplers; /* waiting_sampler, in order of arrival */
    uint32_t timed_count; /* of them, with a deadline */
    bool moving;          /* in service.moving */
    struct list_link moving_link;
    enum lane_state state; /* since: */
    int64_t state_ns;      /* CLOCK_MONOTONIC */
    int64_t time_ns[LANE_STATES];
    uint32_t users; /* sample streams whose request is for it */
    bool dropped;   /* its table is gone; the last user frees it */
};

struct service {
    struct engine *engine;
    struct lane **lanes;           /* one a table, in the engine's order */
    struct list moving;            /* lanes that something happened to */
    struct lane *inserted;         /* of the last item of this message; NULL: none yet */
    enum lane_state inserted_from; /* its state before */
    struct list inserting;         /* insert streams, all that are open, */
    struct list dirty;             /* and those with something to send when the group ends */
    struct list unaries;           /* calls, in order of arrival */
    /* Begins a checkpoint elsewhere, which ends with service_checkpoint_done() if it began. */
    trp_status (*checkpoint)(void *owner);
    void *checkpoint_owner;
    bool checkpointing;
    uint64_t state_id[2];
    uint64_t group; /* number of the current one */
    bool worked;    /* a handler ran in this group */
    int64_t
        full_ns; /* since when commits find no room (CLOCK_MONOTONIC), and are tried again; or 0 */
    bool full_logged;
    char
        *refused_text; /* it lasts: calls that wait for the commit are refused with this; or NULL */
    trp_status broken; /* the store's failure, which is final */
    char *broken_text;
    uint64_t held_bytes;     /* memory of insert streams, without their chunks */
    uint64_t held_bytes_max; /* with them */
    uint64_t ring_bytes;     /* of insert streams, whether they count above or not */
    int64_t held_logged_ns;  /* when there was last a line about it */
    struct list shared;      /* shared streams that have a lease */
    int64_t lease_ms;
    bool no_share;
    struct fetcher *fetcher; /* the owner's; it tells service_fetched(). May be
                                NULL: then nothing is fetched ahead */

    /* Messages that chunks of this group lie in. */
    trp_message **pinned;
    uint32_t pinned_count, pinned_capacity;
    uint32_t segment_count; /* shared with writers */

    /* Reused from message to message. */
    struct wire_insert_request insert;
    struct wire_mutate_request mutate;
    struct wire_keys confirmed;
    struct wire_entry_parts *parts;
    struct wire_slot *slots;
    uint32_t part_capacity, slot_capacity;
    struct shared_builder builder;
};

/* `held_bytes_max`: memory of items and chunks that are in no table yet. */
void service_init(struct service *service, struct engine *engine, uint64_t held_bytes_max);
void service_cleanup(struct service *service); /* after every call was closed */

/* Adds its methods to a server that was not started. */
trp_status service_serve(struct service *service, trp_server *server);

/* A handler has work to do: the state of its call. */
static inline void *service_work(struct service *service, trp_server_call *call)
{
    service->worked = true;
    return trp_server_call_state(call);
}

/* The lane moves when the group ends. */
void lane_move(struct lane *lane);

/* A table that the engine has got behind the others; one that it is about to drop: whoever waits in
 * its lane is refused with NOT_FOUND. */
void service_table_added(struct service *service, struct engine_table *table);
void service_table_drop(struct service *service, struct engine_table *table);

/* Clients read signatures again. */
void service_state_change(struct service *service);

/* Counts the time up to now for the state it was in. */
void lane_enter(struct lane *lane, enum lane_state state);

/* One of lane.users ends. */
void lane_leave(struct lane *lane);

/* Takes a message that chunks were made of; if need be it stays until the group ends. */
void service_keep(struct service *service, trp_message *message);

/* The store failed before all items were there: no table will ever move again. */
bool service_is_lost(const struct service *service);

/* service->broken, with its words. */
trp_status service_fail(const struct service *service);

/* TRP_OK, or the status and words for changes that should have been durable by now. */
trp_status service_lost(const struct service *service, const char **text);

/* NULL with NOT_FOUND in trp_last_error(). */
struct lane *service_lane(struct service *service, trp_bytes table);

/* ---- insert_stream.c --------------------------------------------------------------------- */

extern const trp_raw_method insert_method;

/* Inserts the lane's oldest pending item if it may go. False: none, or held back. */
bool lane_insert_one(struct lane *lane);

/* The lane's pending items are refused with trp_last_error(). */
void lane_refuse_inserts(struct lane *lane, trp_status status);

/* Sends the confirmations and ends of all dirty streams; the group is durable, or lost. */
void insert_streams_answer(struct service *service);

/* For the CLI. */
const char *insert_stream_peer(const struct insert_stream *stream);

/* ---- sample_stream.c --------------------------------------------------------------------- */

extern const trp_raw_method sample_method;

/* A batch for the first stream that waits. False: none waits, or it is held back. */
bool lane_sample_batch(struct lane *lane);

/* Ends the lane's streams whose time is over; when the next one's is (INT64_MAX: never). */
int64_t lane_expire(struct lane *lane, int64_t now_ns);

/* Ends the lane's waiting streams with trp_last_error(). */
void lane_refuse_samples(struct lane *lane, trp_status status);

/* The fetcher has something to take; with the lock held. `service`: it. */
void service_fetched(void *service);

/* ---- sample_shared.c --------------------------------------------------------------------- */

extern const trp_raw_method shared_method;

/* Revokes leases of clients that keep chunks alone; when to probe again (INT64_MAX: never). */
int64_t shared_streams_expire(struct service *service);

/* ---- service_unary.c --------------------------------------------------------------------- */

enum { UNARY_METHODS = 5 };
extern const trp_raw_method unary_methods[UNARY_METHODS];

/* A zeroed message, initialized: its owner frees it as one that was unpacked. */
void *message_new(const ProtobufCMessageDescriptor *descriptor);

/* Runs the calls that came in, except for key operations while an index is being built. */
void unaries_apply(struct service *service);

/* The checkpoint that was begun is at its end: its path, or the message of a failure. The calls
 * that it was for are answered at the end of the group. */
void service_checkpoint_done(struct service *service, trp_status status, const char *text);

/* Answers the calls that ran; changes only if the group is durable, or lost. */
void unaries_answer(struct service *service, bool durable);

#endif
