/* The nodes that run in this process, each on a thread of its own: one of them in a child of the
 * launcher, all of them with --launch=threads. */
#ifndef TRP_LAUNCH_HOST_H
#define TRP_LAUNCH_HOST_H

#include <troupe/rendezvous.h>
#include "control.h"
#include "core/thread.h"
#include "graph.h"
#include "loop.h"
#include "metrics.h"
#include "core/limits.h"

struct host;

struct host_options {
    const trp_program *program;
    const char *run_dir, *socket_dir; /* borrowed, like the program */
    uint64_t seed;
    bool resume, deterministic;
    bool keep_logs;        /* nobody else does: what nodes log goes to logs/ of the run */
    uint32_t first, count; /* numbers of the nodes it runs */
    int control_fd;        /* taken: the other end is the launcher's */
    int64_t grace_ms;      /* for callers of a node in this process that withdraws its server */
    int64_t launcher;      /* its process id; 0: it is this process */
};

/* Never blocks. */
TRP_MUST_USE trp_status host_create(struct host **out, const struct host_options *options);

/* Starts the nodes, reports to the launcher and does what it asks, until every node has ended and
 * that was reported. `watch_signals`: TERM, INT and HUP end the nodes, and when the launcher is
 * gone, so is this process after HOST_ORPHAN_MS at most. Returns 0; 128 + the signal when one that
 * neither the launcher nor the kernel sent ended the nodes; or, when a node failed, 1. */
int host_run(struct host *host, bool watch_signals);

void host_destroy(struct host *host); /* NULL is fine */

/* ---- for context.c and nodes.c ----------------------------------------------------------- */

/* One node as its peers in this process see it. */
struct peer {
    char *address;      /* NULL: not known */
    trp_server *server; /* NULL: not in this process, or not serving */
    char *gone;         /* how it ended; NULL: it has not */
    bool begun;         /* it runs */
    uint32_t users;     /* channels to `server` */
};

/* A channel that a context owns. */
struct context_channel {
    struct context_channel *next;
    uint32_t number; /* of the node at the other end */
    bool local;
    trp_channel *channel;
};

/* A parameter client that a context owns. */
struct context_params {
    struct context_params *next;
    trp_params_client *client;
};

/* A service of a group of learners that a context owns: it follows whoever publishes. */
struct context_relay {
    struct context_relay *next;
    const struct node_group *group;
    const ProtobufCServiceDescriptor *descriptor;
    trp_relay *relay;
    trp_server *server;       /* in this process, that it leads to; NULL: none does */
    trp_channel *local;       /* to it */
    struct relay_peer *peers; /* elsewhere, that it leads or led to; the newest first */
};

/* A learner's end of where its group meets (meeting.c). */
struct meeting;

/* Adds what can be read of a running node to its metrics, before they are sent. */
typedef void (*context_poll)(struct metrics *metrics, void *polled);

struct trp_context {
    struct host *host;
    const struct node_group *group;
    uint32_t number, index;
    char name[NODE_NAME_BYTES_MAX];
    char *address; /* where to serve */
    uint64_t seed;
    bool resume; /* it had another life before, in this run or one that this goes on with */
    trp_stop *stop;
    struct context_channel *channels; /* the body's thread */
    struct context_params *params;    /* the same */
    struct context_relay *relays;     /* guarded by host->mutex */
    struct meeting *meeting;          /* the same; NULL: it learns alone */
    bool serving, failed;
    trp_server *server;        /* of trp_context_serve(); NULL: none */
    ProtobufCService *service; /* in it, to be destroyed with it */
    struct mutex mutex;        /* guards what follows */
    struct metrics metrics;
    context_poll poll; /* NULL: none */
    void *polled;
};

struct host {
    struct host_options options;
    struct loop loop;
    struct watch control, wake, signals;
    struct turns *turns; /* NULL: not deterministic */
    struct member *members;
    uint32_t ended; /* members that the launcher knows to have ended */
    bool failed;
    int outside_signal; /* that ended the nodes; 0: none did */
    struct deadline orphaned_until;
    struct mutex mutex; /* guards what follows */
    struct cond changed;
    struct peer *peers;   /* by node number */
    uint32_t *publishers; /* by group: 1 + the number of the node that publishes; 0: none yet */
    bool program_stopped;
};

/* Requests the stop of a member and wakes it from waiting for a peer. `host->mutex` is held. */
void host_stop_member_locked(struct host *host, uint32_t number);

/* The program ends: in a process that runs all nodes, those that nobody uses are stopped at once,
 * on this thread, so that deterministic runs end at the same step every time. */
void host_program_stops(struct host *host);

/* A node of a context of this host that runs here; NULL: it does not. */
trp_context *host_context(struct host *host, uint32_t number);

void context_init(trp_context *context, struct host *host, uint32_t number);

/* The body ended with `status`, and the last error. The launcher is told of a failure, once, before
 * what the node serves is withdrawn: who calls it fails of that, and may end first. */
void context_ended(trp_context *context, trp_status status);

/* Gives up the server and the channels; the body has returned. */
void context_close(trp_context *context);
void context_cleanup(trp_context *context);

/* Publishes `server`, which listens already, under `address`. */
void context_publish(trp_context *context, trp_server *server, const char *address);

/* `poll(metrics, polled)` is called now and then on another thread, until it is set to NULL. */
void context_set_poll(trp_context *context, context_poll poll, void *polled);

/* Where this learner meets the others of its group; NULL: it has none. Lives as the context. */
trp_rendezvous *context_rendezvous(const trp_context *context);

/* Every random choice of a run comes from its seed: a node's own is draw number `draw` from a
 * stream of it that is numbered by the node's name. */
uint64_t node_seed(const trp_context *context, uint64_t draw);

/* Logs how much of its memory a device gave out and has left; nothing of a host. */
void context_log_device(const trp_context *context, trp_device *device);

/* Where the node's group keeps files in the run directory. Caller frees. */
char *node_dir(const trp_context *context);

/* Runs the node's body: the user's or the built-in one of its kind. */
TRP_MUST_USE trp_status node_run(trp_context *context);
TRP_MUST_USE trp_status evaluator_run(trp_context *context);
TRP_MUST_USE trp_status cache_run(trp_context *context);

/* ---- follow.c: services of groups of learners ---------------------------------------------- */

/* The service of whoever publishes for `group`, as trp_dial() gives it. */
TRP_MUST_USE trp_status follow_dial(trp_context *context, const struct node_group *group,
                                    const ProtobufCServiceDescriptor *descriptor,
                                    ProtobufCService **service);

/* Leads the services of all contexts to whoever publishes now, after something has changed; nobody
 * is inside those that are served no more when it returns. `host->mutex` is held. */
void follow_update_locked(struct host *host);

void follow_close(trp_context *context);

/* ---- meeting.c ----------------------------------------------------------------------------- */

struct meeting *meeting_create(trp_context *context);
void meeting_destroy(struct meeting *meeting); /* NULL is fine */

/* A message from the launcher (control.h); `host->mutex` is held. */
void meeting_apply_locked(struct meeting *meeting, const struct control_message *message);

#endif
