/* ReverbService over one engine: what its files share.
 *
 *   service.c        lanes, groups, the table of methods
 *   insert_stream.c  InsertStream            sample_stream.c  SampleStream
 *   sample_draws.c   what streams draw       sample_shared.c  troupe.Replay/SampleShared
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
#include <stddef.h>
#include <stdint.h>

#include <troupe/rpc.h>
#include "replay/engine/engine.h"
#include "pending.h"
#include "replay/wire/shared_wire.h"
#include "trajectory_builder.h"
#include "replay/wire/wire.h"

struct inbox;
struct insert_stream;
struct sample_stream;

/* What a table does with its time, as Reverb tells it. */
enum lane_state {
    LANE_SLEEPING,
    LANE_SAMPLING,
    LANE_INSERTING,
    LANE_WAITING_FOR_SAMPLING, /* inserts are held back */
    LANE_WAITING_FOR_INSERTS,
    LANE_STATES
};

struct lane {
    struct service *service;
    struct engine_table *table;
    struct pending_queue inserts;
    uint32_t orphans_refused; /* of late, until a line says so, and why the first was */
    char *orphans_reason;
    struct list samplers;               /* streams that wait for samples */
    uint32_t sample_count, timed_count; /* timed: with a deadline */
    bool moving;                        /* in service.moving */
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
    enum lane_state inserted_from; /* what it did before */
    struct list inserting;         /* insert streams, all that are open, */
    struct list touched;           /* and those with something to send when the group ends */
    struct list unaries;           /* calls, in order of arrival */
    /* Begins a checkpoint elsewhere, which ends with service_checkpoint_done(). NULL: there are
     * none. */
    void (*checkpoint)(void *owner);
    void *checkpoint_owner;
    bool checkpointing;
    uint64_t state_id[2];
    uint64_t group; /* number of the current one */
    bool worked;    /* a handler ran in this group */
    bool full;      /* the last commit found no room; it is tried again */
    bool full_told;
    int64_t full_ns;    /* since when (CLOCK_MONOTONIC) */
    char *refused_text; /* it lasts: what waits for the commit is refused with this; or NULL */
    trp_status broken;  /* the store's failure, which is final */
    char *broken_text;
    uint64_t held_bytes;     /* of what insert streams brought, without its chunks' */
    uint64_t held_bytes_max; /* with them */
    int64_t held_told_ns;    /* when there was last a line about it */
    struct list shared;      /* shared streams that have a lease */
    int64_t lease_ms;
    bool no_share;
    struct fetcher *fetcher; /* the owner's; what it has done goes to service_fetched(). May be
                                NULL: then nothing is fetched ahead */

    /* Messages that chunks of this group lie in. */
    trp_message **pinned;
    uint32_t pinned_count, pinned_capacity;
    struct inbox *left;   /* inboxes of streams that ended in this group */
    uint32_t inbox_count; /* that there are */

    /* Reused from message to message. */
    struct wire_insert_request insert;
    struct wire_mutate_request mutate;
    struct wire_keys confirmed;
    struct wire_entry_parts *parts;
    struct wire_slot *slots;
    uint32_t part_capacity, slot_capacity;
    struct shared_builder builder;
};

/* `held_bytes_max`: the memory of what insert streams brought that is in no table yet. */
void service_init(struct service *service, struct engine *engine, uint64_t held_bytes_max);
void service_cleanup(struct service *service); /* after every call was closed */

/* Its methods, for trp_server_add_raw(). */
extern const trp_raw_method service_methods[];
extern const size_t service_method_count;

/* A handler has work to do: the state of its call. */
static inline void *service_work(struct service *service, trp_server_call *call)
{
    service->worked = true;
    return trp_server_call_state(call);
}

/* The trp_group_end; `arg` is the service. */
int64_t service_group_end(void *arg);

/* Has the lane looked at when the group ends. */
void lane_move(struct lane *lane);

/* A table that the engine has got behind the others; one that it is about to drop: whoever waits in
 * its lane is told that it was not found. */
void service_table_added(struct service *service, struct engine_table *table);
void service_table_drop(struct service *service, struct engine_table *table);

/* Clients read signatures again. */
void service_state_change(struct service *service);

/* Counts the time up to now for the state it was in. */
void lane_enter(struct lane *lane, enum lane_state state);

/* A sample stream serves a request for the lane's table; and does not any more. */
void lane_use(struct lane *lane);
void lane_leave(struct lane *lane);

/* Takes a message that chunks were made of; if need be it stays until the group ends. */
void service_keep(struct service *service, trp_message *message);

/* The store failed before all items were there: no table will ever move again. */
bool service_is_lost(const struct service *service);

/* service->broken, with its words. */
trp_status service_fail(const struct service *service);

/* The status of what should have been durable by now, with its words, if that is not known. */
trp_status service_lost(const struct service *service, const char **text);

/* NULL with NOT_FOUND in trp_last_error(). */
struct lane *service_lane(struct service *service, trp_bytes table);

/* ---- insert_stream.c --------------------------------------------------------------------- */

void insert_opened(void *service, trp_server_call *call);
void insert_received(void *service, trp_server_call *call, trp_message *message);
void insert_half_closed(void *service, trp_server_call *call);
void insert_drained(void *service, trp_server_call *call);
void insert_closed(void *service, trp_server_call *call);

/* Inserts the lane's oldest pending item if it may go. False: none, or held back. */
bool lane_insert_one(struct lane *lane);

/* The lane's pending items are refused with trp_last_error(). */
void lane_refuse_inserts(struct lane *lane, trp_status status);

/* Sends the confirmations and ends of all touched streams; the group is durable, or lost. */
void insert_streams_answer(struct service *service);

/* For the CLI. */
const char *insert_stream_peer(const struct insert_stream *stream);

/* ---- sample_stream.c --------------------------------------------------------------------- */

void sample_opened(void *service, trp_server_call *call);
void sample_received(void *service, trp_server_call *call, trp_message *message);
void sample_half_closed(void *service, trp_server_call *call);
void sample_drained(void *service, trp_server_call *call);
void sample_closed(void *service, trp_server_call *call);

/* A batch for the first stream that waits. False: none waits, or it is held back. */
bool lane_sample_batch(struct lane *lane);

/* Ends the lane's streams whose time is over; when the next one's is (INT64_MAX: never). */
int64_t lane_expire(struct lane *lane, int64_t now_ns);

/* Ends the lane's waiting streams with trp_last_error(). */
void lane_refuse_samples(struct lane *lane, trp_status status);

/* The fetcher has something to take; with the lock held. `service`: it. */
void service_fetched(void *service);

/* For the CLI: the stream that waits behind this one (NULL: the first), or NULL. */
struct waiting_sampler {
    const char *peer;
    int64_t since_ns, wanted; /* samples */
};
const struct sample_stream *lane_sampler_after(const struct lane *lane,
                                               const struct sample_stream *stream,
                                               struct waiting_sampler *out);

/* ---- sample_shared.c --------------------------------------------------------------------- */

void shared_opened(void *service, trp_server_call *call);
void shared_received(void *service, trp_server_call *call, trp_message *message);
void shared_half_closed(void *service, trp_server_call *call);
void shared_drained(void *service, trp_server_call *call);
void shared_closed(void *service, trp_server_call *call);

/* Revokes leases of clients that keep what nobody else does; when to look again (INT64_MAX: never).
 */
int64_t shared_streams_expire(struct service *service);

/* ---- service_unary.c --------------------------------------------------------------------- */

void mutate_opened(void *service, trp_server_call *call);
void reset_opened(void *service, trp_server_call *call);
void server_info_opened(void *service, trp_server_call *call);
void checkpoint_opened(void *service, trp_server_call *call);
void connection_opened(void *service, trp_server_call *call);
void unary_received(void *service, trp_server_call *call, trp_message *message);
void unary_half_closed(void *service, trp_server_call *call);
void unary_closed(void *service, trp_server_call *call);

/* Does what has come in, except for key operations while an index is being built. */
void unaries_apply(struct service *service);

/* The checkpoint that was begun is at its end: its path, or the message of a failure. The calls
 * that it was for are answered at the end of the group. */
void service_checkpoint_done(struct service *service, trp_status status, const char *text);

/* Answers what was done; changes only if the group is durable, or lost. */
void unaries_answer(struct service *service, bool durable);

#endif
