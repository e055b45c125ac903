/* The server's inside: what its files share.
 *
 *   server.c   options, methods, the lock, settling, start and stop
 *   reactor.c  the thread that polls the completion queue; posted work; new calls
 *   remote.c   raw calls that came over gRPC          local.c  raw calls of this process
 *   pool.c     protobuf-c methods, on threads         health.c grpc.health.v1, itself raw methods
 *   unread.c   messages of raw calls that nobody took
 *
 * All fields belong to whoever holds the lock unless they say otherwise. */
#ifndef TRP_RPC_SERVER_H
#define TRP_RPC_SERVER_H

#include <stdatomic.h>

#include <troupe/rpc.h>
#include "core/thread.h"
#include "library.h"
#include "message.h"
#include "core/list.h"
#include "unread.h"

struct rpc_pool;
struct rpc_pool_call;
struct rpc_health;
struct rpc_service;

/* One path. Raw when service is NULL, else method `index` of a protobuf-c service. */
struct rpc_method {
    struct rpc_method *next;
    char *path;
    trp_raw_method raw;
    void *raw_service;
    ProtobufCService *service;
    unsigned index;
    _Atomic uint32_t average_ns; /* of the protobuf-c handler's runs, of late; 0: none yet */
    void *registered;            /* gRPC's handle while the server runs */
};

/* How a raw call reaches its peer. */
struct rpc_transport {
    /* The group has ended: the call's fields say which batches may go out. */
    void (*flush)(trp_server_call *call);
    void (*read)(trp_server_call *call);  /* read_wanted was set */
    char *(*peer)(trp_server_call *call); /* the caller frees */
    /* Ends it, its queue goes nowhere: closed() follows. */
    void (*abort)(trp_server_call *call, trp_status status, const char *text);
    /* A reference to the connection, which tells clients apart; NULL: all are one client. */
    grpc_auth_context *(*connection)(trp_server_call *call);
    void (*destroy)(trp_server_call *call);
};

struct trp_server_call {
    const struct rpc_transport *transport;
    trp_server *server;
    const struct rpc_method *method;
    void *state;
    char *peer;                       /* made at the first question */
    trp_server_call *next, *previous; /* among the server's open calls */
    struct rpc_messages out;
    bool read_wanted;
    bool finish_wanted, finish_given; /* asked for; handed to the transport */
    trp_status finish_status;
    char *finish_text;
    bool sending; /* the transport has a message that it has not taken yet */
    bool half_closed_given;
    bool dirty; /* in the server's list of calls to flush */
    /* In the list of events. */
    bool drained_due, room_due, half_closed_due, closed_due, has_event;
    trp_server_call *next_dirty, *next_event;

    size_t sending_bytes;      /* the transport's; it tells when they change */
    uint64_t unread_bytes;     /* unread.c's from here on */
    struct rpc_client *client; /* NULL: it never asked for room */
    bool took;                 /* in this round: some of its bytes, or it had none */
    bool ended;                /* it stood still; its close is on the way */
    bool in_line;              /* of the client */
    trp_server_call *next_in, *previous_in;
};

struct rpc_call_list {
    trp_server_call *first, *last;
};

/* Work for the next holder of the lock; embedded in the struct that it is about. */
struct rpc_post {
    struct rpc_post *next;
    void (*work)(void *arg);
    void *arg;
};

struct rpc_local_stream;

enum rpc_server_phase {
    RPC_SERVER_NEW,
    RPC_SERVER_RUNNING,
    RPC_SERVER_STOPPING,
    RPC_SERVER_STOPPED
};

struct trp_server {
    trp_server_options options; /* address is ours */
    struct rpc_budget budget;   /* atomic */
    struct rpc_budget replies;  /* atomic; of protobuf-c methods, until gRPC has sent them */
    struct rpc_unread unread;   /* messages of raw calls */
    struct rpc_method *methods; /* these fixed from the start on */
    struct rpc_service *services;
    void *group_service;
    trp_group_end group_end;
    struct rpc_health *health;
    struct rpc_pool *pool; /* has locks of its own */
    char *address;

    /* Two locks so that the reactor cannot take `lock` again and again past a waiting caller: who
     * wants the lock queues at the gate, and the holder leaves the gate open. */
    struct mutex gate, lock;
    _Atomic(const void *) owner; /* the thread that holds lock */
    struct cond changed;         /* phase or calls changed: for stop */

    enum rpc_server_phase phase;
    trp_server_call *calls;
    size_t call_count;          /* raw calls in the list */
    size_t pool_calls;          /* remote protobuf-c calls on their way */
    struct list unwatched;      /* of them, those without close notice */
    struct list unread_replies; /* those whose reply gRPC has not sent yet */
    _Atomic bool reply_refused; /* for want of room, since somebody looked */
    trp_server_call *dirty;
    trp_server_call *first_event, *last_event;
    uint64_t group;                   /* its number */
    size_t group_bytes;               /* received since the last group end */
    int64_t wake_ns;                  /* when group_end wants to be called again */
    int64_t reactor_wait_ns;          /* until when the reactor sleeps; INT64_MIN: it does not */
    bool local_groups;                /* some ended since the reactor's last */
    struct rpc_local_stream *waiting; /* local receivers and senders that wait */

    struct mutex post_lock; /* guards the two below */
    struct rpc_post *first_post, *last_post;
    bool posted; /* since the last rpc_posts_run(), by who holds the lock */

    _Atomic bool kicked; /* an event that wakes the reactor is on its way */
    grpc_completion_queue *queue;
    grpc_server *grpc;
    grpc_channel *kick_channel; /* an empty batch of a call that goes nowhere wakes the reactor */
    grpc_call *kick_call;
    struct rpc_op kick_op, shutdown_op;
    bool shutdown_done;
    struct thread reactor;
    struct rpc_slot *slots;
    size_t slot_count;
    struct mutex stop_lock; /* one stop at a time */
};

/* ---- server.c ---- */

/* Takes the lock; waits behind those who came first. Asserts that this thread does not hold it. */
void rpc_server_enter(trp_server *server);

/* Gives the handlers' work to the transports and calls group_end until nothing is left, after the
 * posted work; lock held. Work posted meanwhile waits for the next turn while there is a
 * reactor: posts that bring on more must not keep others waiting. */
void rpc_server_settle(trp_server *server);

/* The time at which group_end wants to be called again has come. */
bool rpc_server_wake_due(const trp_server *server);

/* rpc_server_settle() and unlock; wakes whoever has to run posts or call group_end next, unless
 * that is due at once and the reactor awake within RPC_LOCAL_PAUSE_MS: then a local caller comes
 * first. */
void rpc_server_leave(trp_server *server);

/* Unlocks and nothing else. */
void rpc_server_release(trp_server *server);

/* cond_wait() on the server's lock. */
bool rpc_server_wait(trp_server *server, struct cond *cond, struct deadline deadline);

/* True when the calling thread holds the lock. */
bool rpc_server_held(trp_server *server);

const struct rpc_method *rpc_server_find(trp_server *server, const char *path);

/* Links the call and tells the handler. */
void rpc_call_open(trp_server_call *call, trp_server *server, const struct rpc_method *method,
                   const struct rpc_transport *transport);

/* Gives the message to the handler, unless the call is over or the message too large. */
void rpc_call_receive(trp_server_call *call, trp_message *message);

/* Has the call flushed when the group ends. */
void rpc_call_touch(trp_server_call *call);

enum rpc_call_event { RPC_CALL_DRAINED, RPC_CALL_ROOM, RPC_CALL_HALF_CLOSED, RPC_CALL_CLOSED };

/* Has the handler told before the group ends. CLOSED: then the call is freed. */
void rpc_call_event(trp_server_call *call, enum rpc_call_event event);

/* Wakes the reactor; any thread. False: it does not run. */
bool rpc_server_kick(trp_server *server);

/* ---- reactor.c ---- */

/* Starts the thread, before gRPC's server: without it nobody would take what that one brings, its
 * end neither. It waits for the lock, which the caller has. RESOURCE_EXHAUSTED: no more threads. */
TRP_MUST_USE trp_status rpc_reactor_start(trp_server *server);

/* Once gRPC's server runs: asks for new calls, once per method. With the lock. */
void rpc_reactor_ask(trp_server *server);

/* After gRPC's shutdown: joins the thread and undoes both. */
void rpc_reactor_stop(trp_server *server);

/* trp_server_post() of work that needs no memory, a list of it: a post is free again when it runs.
 */
void rpc_server_post(trp_server *server, struct rpc_post *first, struct rpc_post *last);

/* Runs posted work; lock held. True: there was some. */
bool rpc_posts_run(trp_server *server);

/* True when some wait. */
bool rpc_posts_waiting(trp_server *server);

/* ---- remote.c ---- */

/* A new raw call from gRPC; takes `call`. */
void rpc_remote_open(trp_server *server, const struct rpc_method *method, grpc_call *call,
                     const grpc_metadata_array *metadata);

/* Answers a call with a status and nothing else; takes `call`. Any thread. */
void rpc_remote_refuse(grpc_call *call, trp_status status, const char *text);

/* The trailing metadata of a failed call that says: this status is the handler's own. */
grpc_metadata rpc_status_mark(void);

/* ---- local.c ---- */

/* Wakes local callers that wait, so that they look at wake_ns and posted work. */
void rpc_local_wake(trp_server *server);

#endif
