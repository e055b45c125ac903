/* From a set of methods to a listening server and back. Stopping is in this order: no new calls;
 * running ones may finish until the grace ends; the rest is cancelled; gRPC reports that nothing is
 * left; the pool and the reactor are joined; work posted too late runs here. */
#include "server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <grpc/grpc_security.h>
#include <troupe/log.h>
#include "core/alloc.h"
#include "limits.h"
#include "core/address.h"
#include "health.h"
#include "pool.h"

static uint64_t largest_message(const trp_server *server)
{
    uint64_t most = server->options.max_message_bytes;
    for (const struct rpc_method *method = server->methods; method; method = method->next)
        if (method->raw.any_size && server->options.in_flight_bytes > most)
            most = server->options.in_flight_bytes;
    return most;
}

/* Our budget counts whole messages; what has come of the others is gRPC's to count: near its quota
 * it closes flow-control windows, beyond it resets streams (RESOURCE_EXHAUSTED). */
static grpc_resource_quota *quota_create(const trp_server *server)
{
    grpc_resource_quota *quota = grpc_resource_quota_create("troupe");
    uint64_t bytes = server->options.in_flight_bytes;
    grpc_resource_quota_resize(quota, (bytes < SIZE_MAX / 4 ? (size_t)bytes : SIZE_MAX / 4) +
                                          RPC_CONNECTIONS_BYTES);
    return quota;
}

static grpc_server *make_grpc_server(const trp_server *server)
{
    struct rpc_args args = {.count = 0};
    rpc_args_add(&args, GRPC_ARG_ALLOW_REUSEPORT, 0);
    rpc_args_add(&args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                 rpc_limit_arg(largest_message(server)));
    rpc_args_add(&args, GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
    rpc_args_add(&args, GRPC_ARG_ENABLE_CHANNELZ, 0);
    rpc_args_refuse_compression(&args);
    /* A timer per call; whoever sets a deadline cancels the call himself, or is gone. */
    rpc_args_add(&args, GRPC_ARG_ENABLE_DEADLINE_CHECKS, 0);
    rpc_args_add(&args, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
    rpc_args_add(&args, GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    rpc_args_add(&args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    rpc_args_add(&args, GRPC_ARG_MAX_CONCURRENT_STREAMS, RPC_STREAMS_MAX);
    grpc_resource_quota *quota = quota_create(server);
    args.items[args.count++] =
        (grpc_arg){.type = GRPC_ARG_POINTER,
                   .key = GRPC_ARG_RESOURCE_QUOTA,
                   .value.pointer = {quota, grpc_resource_quota_arg_vtable()}};
    grpc_channel_args list = {.num_args = args.count, .args = args.items};
    grpc_server *grpc = grpc_server_create(&list, NULL);
    grpc_resource_quota_unref(quota);
    return grpc;
}

static void register_methods(trp_server *server)
{
    for (struct rpc_method *method = server->methods; method; method = method->next)
        method->registered = grpc_server_register_method(
            server->grpc, method->path, NULL,
            method->service ? GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER : GRPC_SRM_PAYLOAD_NONE, 0);
}

static trp_status bind_address(trp_server *server)
{
    struct address address;
    trp_status status = address_init(&address, server->options.address, server->options.insecure);
    if (status == TRP_OK)
        status = address_claim(&address);
    if (status == TRP_OK) {
        grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
        int port = grpc_server_add_http2_port(server->grpc, address.target, credentials);
        grpc_server_credentials_release(credentials);
        if (port == 0)
            status = trp_fail(TRP_UNAVAILABLE, "address %s cannot be bound", address.target);
        else if (address.path && chmod(address.path, 0600) != 0) /* gRPC leaves it to the umask */
            status = trp_fail(TRP_UNAVAILABLE, "address %s: %s", address.target, strerror(errno));
        else
            server->address = address_text(&address, port);
    }
    address_cleanup(&address);
    return status;
}

static void shutdown_done(struct rpc_op *op, bool ok)
{
    trp_server *server = (trp_server *)((char *)op - offsetof(struct trp_server, shutdown_op));
    (void)ok;
    server->shutdown_done = true;
    cond_broadcast(&server->changed);
}

static void stop_listening(trp_server *server)
{
    rpc_tag_release(&server->shutdown_op);
    grpc_server_shutdown_and_notify(server->grpc, server->queue, &server->shutdown_op);
}

/* Undoes a start that failed half way: nothing runs yet, but gRPC may listen already, and then it
 * aborts in grpc_server_destroy() unless it was shut down. */
static void abandon_start(trp_server *server)
{
    stop_listening(server);
    grpc_event event = rpc_next(server->queue, DEADLINE_NEVER);
    assert(event.type == GRPC_OP_COMPLETE);
    grpc_server_destroy(server->grpc);
    rpc_queue_destroy(server->queue);
    server->grpc = NULL;
    server->queue = NULL;
}

trp_status trp_server_start(trp_server *server)
{
    if (server->phase != RPC_SERVER_NEW)
        return trp_fail(TRP_FAILED_PRECONDITION, "the server was started before");
    server->queue = grpc_completion_queue_create_for_next(NULL);
    server->grpc = make_grpc_server(server);
    grpc_server_register_completion_queue(server->grpc, server->queue, NULL);
    server->shutdown_op.done = shutdown_done;
    register_methods(server);
    trp_status status = bind_address(server);
    if (status == TRP_OK)
        status = rpc_pool_start(server->pool);
    rpc_server_enter(server); /* the reactor waits for it */
    if (status == TRP_OK)
        status = rpc_reactor_start(server);
    if (status == TRP_OK) {
        grpc_server_start(server->grpc);
        server->phase = RPC_SERVER_RUNNING;
        rpc_reactor_ask(server);
    }
    rpc_server_release(server);
    if (status != TRP_OK)
        abandon_start(server);
    return status;
}

static bool idle(const trp_server *server)
{
    return server->call_count == 0 && server->pool_calls == 0;
}

static void wait_idle(trp_server *server, struct deadline deadline)
{
    while (!idle(server) && rpc_server_wait(server, &server->changed, deadline))
        continue;
}

/* Cancels every raw call; the events that follow close them. Lock held. */
static void abort_calls(trp_server *server)
{
    for (trp_server_call *call = server->calls, *next; call; call = next) {
        next = call->next;
        call->transport->abort(call, TRP_UNAVAILABLE, "the server stops");
    }
}

static void wait_shutdown(trp_server *server)
{
    rpc_server_enter(server);
    while (!server->shutdown_done || !idle(server)) /* cancelled calls come at once */
        rpc_server_wait(server, &server->changed, DEADLINE_NEVER);
    rpc_server_release(server);
}

static void stop_transport(trp_server *server)
{
    grpc_server_cancel_all_calls(server->grpc);
    rpc_pool_stop(server->pool); /* its handlers see the cancellation */
    wait_shutdown(server);
    rpc_reactor_stop(server);
    grpc_server_destroy(server->grpc);
    grpc_completion_queue_destroy(server->queue);
    server->grpc = NULL;
    server->queue = NULL;
}

void trp_server_stop(trp_server *server, int64_t grace_ms)
{
    struct deadline grace = deadline_in_ms(&clock_monotonic, grace_ms < 0 ? 0 : grace_ms);
    mutex_lock(&server->stop_lock);
    rpc_server_enter(server);
    bool first = server->phase != RPC_SERVER_STOPPED;
    server->phase = RPC_SERVER_STOPPING;
    rpc_health_stop(server->health);
    rpc_server_settle(server);
    rpc_server_release(server);
    if (first && server->grpc)
        stop_listening(server);
    rpc_server_enter(server);
    wait_idle(server, grace);
    abort_calls(server);
    rpc_server_settle(server);
    rpc_server_release(server);
    if (first && server->grpc)
        stop_transport(server);
    else
        rpc_pool_stop(server->pool);
    rpc_server_enter(server);
    rpc_server_settle(server);
    server->phase = RPC_SERVER_STOPPED;
    rpc_server_release(server);
    mutex_unlock(&server->stop_lock);
}
