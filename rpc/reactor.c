/* One thread polls one completion queue. It takes all that the queue holds (polling without
 * waiting until nothing comes, within limits), with handlers running as events come; then it
 * settles, which calls group_end once, and sleeps until gRPC has something, group_end wants to be
 * called, or somebody kicks.
 *
 * New calls are asked for per method, so that gRPC does the look-up; a protobuf-c call comes with
 * its request in the same event. Paths that no method has come through a request of their own and
 * are refused. One request a method is enough: it is made again before the next event is taken, and
 * gRPC keeps the events that come meanwhile. More would cost every event: Debian's gRPC has
 * assertions, and with them it looks for each event's tag among all that are outstanding. */
#include "server.h"

#include <assert.h>
#include <stdlib.h>

#include <grpc/byte_buffer.h>
#include <troupe/log.h>
#include "core/alloc.h"
#include "limits.h"
#include "core/status.h"
#include "pool_call.h"

enum { VISIT_MS = 1000 }; /* a reactor that stops may miss the kick */

struct rpc_slot {
    struct rpc_op op;
    trp_server *server;
    const struct rpc_method *method; /* NULL: any other path */
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    gpr_timespec deadline;
    grpc_byte_buffer *payload;
};

static void slot_post(struct rpc_slot *slot)
{
    trp_server *server = slot->server;
    rpc_tag_release(&slot->op);
    grpc_call_error error;
    if (slot->method)
        error = grpc_server_request_registered_call(
            server->grpc, slot->method->registered, &slot->call, &slot->deadline, &slot->metadata,
            slot->method->service ? &slot->payload : NULL, server->queue, server->queue, &slot->op);
    else
        error = grpc_server_request_call(server->grpc, &slot->call, &slot->details, &slot->metadata,
                                         server->queue, server->queue, &slot->op);
    assert(error == GRPC_CALL_OK);
}

static void refuse_unknown(struct rpc_slot *slot)
{
    char *path = grpc_slice_to_c_string(slot->details.method);
    char *text = xasprintf("no method %s at %s", path, slot->server->address);
    rpc_remote_refuse(slot->call, TRP_UNIMPLEMENTED, text);
    free(text);
    gpr_free(path);
}

static void refuse_late(struct rpc_slot *slot)
{
    rpc_remote_refuse(slot->call, TRP_UNAVAILABLE, "the server stops");
    if (slot->payload)
        grpc_byte_buffer_destroy(slot->payload);
}

static void slot_clear(struct rpc_slot *slot)
{
    grpc_metadata_array_destroy(&slot->metadata);
    grpc_metadata_array_init(&slot->metadata);
    if (!slot->method) {
        grpc_call_details_destroy(&slot->details);
        grpc_call_details_init(&slot->details);
    }
    slot->call = NULL;
    slot->payload = NULL;
}

static void slot_done(struct rpc_op *op, bool ok)
{
    struct rpc_slot *slot = (struct rpc_slot *)op;
    if (!ok) /* the server shuts down */
        return;
    if (slot->server->phase != RPC_SERVER_RUNNING)
        refuse_late(slot);
    else if (!slot->method)
        refuse_unknown(slot);
    else if (slot->method->service)
        rpc_pool_call_open(slot->server, slot->method, slot->call, slot->deadline, slot->payload);
    else
        rpc_remote_open(slot->server, slot->method, slot->call, &slot->metadata);
    slot_clear(slot);
    if (slot->server->phase == RPC_SERVER_RUNNING)
        slot_post(slot);
}

static void slot_init(struct rpc_slot *slot, trp_server *server, const struct rpc_method *method)
{
    slot->op.done = slot_done;
    slot->server = server;
    slot->method = method;
    grpc_call_details_init(&slot->details);
    grpc_metadata_array_init(&slot->metadata);
    slot_post(slot);
}

bool rpc_posts_run(trp_server *server)
{
    mutex_lock(&server->post_lock);
    struct rpc_post *post = server->first_post;
    server->first_post = server->last_post = NULL;
    mutex_unlock(&server->post_lock);
    server->posted = false;
    if (!post)
        return false;
    while (post) {
        struct rpc_post *next = post->next;
        post->work(post->arg); /* may free the post */
        post = next;
    }
    return true;
}

bool rpc_posts_waiting(trp_server *server)
{
    mutex_lock(&server->post_lock);
    bool waiting = server->first_post != NULL;
    mutex_unlock(&server->post_lock);
    return waiting;
}

static void kick_done(struct rpc_op *op, bool ok)
{
    (void)op;
    (void)ok; /* having woken up is all */
}

bool rpc_server_kick(trp_server *server)
{
    if (atomic_exchange(&server->kicked, true))
        return true;
    mutex_lock(&server->post_lock); /* against the stop, which frees the call */
    bool runs = server->kick_call != NULL;
    if (runs)
        rpc_batch(server->kick_call, NULL, 0, &server->kick_op);
    else
        atomic_store(&server->kicked, false);
    mutex_unlock(&server->post_lock);
    return runs;
}

void rpc_server_post(trp_server *server, struct rpc_post *first, struct rpc_post *last)
{
    last->next = NULL;
    mutex_lock(&server->post_lock);
    if (server->last_post)
        server->last_post->next = first;
    else
        server->first_post = first;
    server->last_post = last;
    mutex_unlock(&server->post_lock);
    if (rpc_server_held(server)) { /* the settling to come runs it, or wakes the reactor for it */
        server->posted = true;
        return;
    }
    if (rpc_server_kick(server))
        return;
    mutex_lock(&server->lock);
    rpc_local_wake(server);
    mutex_unlock(&server->lock);
}

struct allocated_post {
    struct rpc_post post;
    void (*work)(void *arg);
    void *arg;
};

static void run_allocated(void *arg)
{
    struct allocated_post *post = arg;
    post->work(post->arg);
    free(post);
}

void trp_server_post(trp_server *server, void (*work)(void *arg), void *arg)
{
    struct allocated_post *post = xcalloc(1, sizeof *post);
    post->post = (struct rpc_post){.work = run_allocated, .arg = post};
    post->work = work;
    post->arg = arg;
    rpc_server_post(server, &post->post, &post->post);
}

struct visit {
    struct rpc_post post;
    void (*work)(void *arg);
    void *arg;
    struct mutex mutex;
    struct cond changed;
    bool done;
    trp_status code; /* of its failure */
    char *failure;
};

static void visit_run(void *arg)
{
    struct visit *visit = arg;
    status_clear_code();
    visit->work(visit->arg);
    mutex_lock(&visit->mutex);
    visit->code = status_last_code();
    if (visit->code != TRP_OK)
        visit->failure = xstrdup(trp_last_error());
    visit->done = true;
    cond_signal(&visit->changed);
    mutex_unlock(&visit->mutex);
}

static bool visit_wait(struct visit *visit)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, VISIT_MS);
    mutex_lock(&visit->mutex);
    while (!visit->done && cond_wait(&visit->changed, &visit->mutex, deadline))
        ;
    bool done = visit->done;
    mutex_unlock(&visit->mutex);
    return done;
}

static void nothing(void *arg)
{
    (void)arg;
}

void trp_server_visit(trp_server *server, void (*work)(void *arg), void *arg)
{
    struct visit visit = {.work = work, .arg = arg};
    visit.post = (struct rpc_post){.work = visit_run, .arg = &visit};
    mutex_init(&visit.mutex);
    cond_init(&visit.changed);
    rpc_server_post(server, &visit.post, &visit.post);
    assert(!rpc_server_held(server));
    if (!rpc_server_kick(server) || !visit_wait(&visit))
        trp_server_run(server, nothing, NULL); /* which runs posted work, unless it was run */
    if (visit.failure)
        trp_fail(visit.code, "%s", visit.failure);
    free(visit.failure);
    cond_cleanup(&visit.changed);
    mutex_cleanup(&visit.mutex);
}

static void dispatch(trp_server *server, grpc_event event)
{
    struct rpc_op *op = event.tag;
    if (op == &server->kick_op)
        atomic_store(&server->kicked, false);
    op->done(op, event.success);
}

static bool collect(trp_server *server, grpc_event event)
{
    for (uint32_t taken = 0; event.type == GRPC_OP_COMPLETE; taken++) {
        dispatch(server, event);
        if (taken == RPC_GROUP_EVENTS_MAX || server->group_bytes >= RPC_GROUP_BYTES_MAX)
            return true;
        event = rpc_poll(server->queue);
    }
    return event.type != GRPC_QUEUE_SHUTDOWN;
}

static void reactor_run(void *arg)
{
    trp_server *server = arg;
    struct deadline until = {clock_now_ns(&clock_monotonic)};
    for (bool alive = true; alive;) {
        grpc_event event = rpc_next(server->queue, until);
        rpc_server_enter(server);
        server->reactor_wait_ns = INT64_MIN;
        alive = collect(server, event);
        rpc_server_settle(server);
        rpc_pool_calls_end_unread(server);
        int64_t watch_ns = rpc_pool_calls_watch(server, server->phase != RPC_SERVER_RUNNING);
        until.at_ns = watch_ns < server->wake_ns ? watch_ns : server->wake_ns;
        until = deadline_earlier(until, server->unread.round);
        if (server->local_groups) /* theirs to come need not wake it */
            until = deadline_earlier(until, deadline_in_ms(&clock_monotonic, RPC_LOCAL_PAUSE_MS));
        server->local_groups = false;
        if (rpc_posts_waiting(server))
            until.at_ns = 0;
        server->reactor_wait_ns = until.at_ns;
        rpc_server_release(server);
    }
}

static void make_kick(trp_server *server)
{
    server->kick_op.done = kick_done;
    server->kick_channel =
        grpc_lame_client_channel_create("kick", GRPC_STATUS_UNAVAILABLE, "never used");
    server->kick_call = grpc_channel_create_call(
        server->kick_channel, NULL, GRPC_PROPAGATE_DEFAULTS, server->queue,
        grpc_slice_from_static_string("/kick"), NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
}

trp_status rpc_reactor_start(trp_server *server)
{
    return thread_start(&server->reactor, "trp-reactor", reactor_run, server);
}

void rpc_reactor_ask(trp_server *server)
{
    make_kick(server);
    size_t methods = 0;
    for (const struct rpc_method *method = server->methods; method; method = method->next)
        methods++;
    server->slot_count = methods + 1;
    server->slots = xcalloc(server->slot_count, sizeof *server->slots);
    size_t index = 0;
    for (const struct rpc_method *method = server->methods; method; method = method->next)
        slot_init(&server->slots[index++], server, method);
    slot_init(&server->slots[index], server, NULL);
}

void rpc_reactor_stop(trp_server *server)
{
    mutex_lock(&server->post_lock);
    grpc_call_unref(server->kick_call);
    server->kick_call = NULL;
    mutex_unlock(&server->post_lock);
    grpc_channel_destroy(server->kick_channel);
    server->kick_channel = NULL;
    grpc_completion_queue_shutdown(server->queue);
    thread_stop(&server->reactor);
    for (size_t i = 0; i < server->slot_count; i++) {
        grpc_metadata_array_destroy(&server->slots[i].metadata);
        grpc_call_details_destroy(&server->slots[i].details);
    }
    rpc_server_enter(server);
    server->reactor_wait_ns = INT64_MIN;
    rpc_server_release(server);
    free(server->slots);
    server->slots = NULL;
    server->slot_count = 0;
}
