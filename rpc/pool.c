/* Handlers of protobuf-c services may take long or block, so those of remote callers, and blocking
 * ones of local callers, run on a few threads behind one bounded queue. The threads start with the
 * first job, or with the server.
 *
 * A remote call is under two events of gRPC: the close notice, which tells the handler that its
 * caller is gone, and the answer. When both came, it is freed. */
#include "pool.h"

#include <assert.h>
#include <stdlib.h>

#include <grpc/byte_buffer.h>
#include <troupe/log.h>
#include "core/alloc.h"
#include "core/queue.h"
#include "core/thread.h"
#include "call.h"
#include "server.h"
#include "wire.h"

struct rpc_pool {
    trp_server *server;
    struct queue *jobs;
    struct mutex mutex; /* guards the three below */
    struct thread *threads;
    uint32_t running;
    bool stopped;
};

struct rpc_pool *rpc_pool_create(trp_server *server)
{
    struct rpc_pool *pool = xcalloc(1, sizeof *pool);
    pool->server = server;
    pool->jobs = queue_create(server->options.max_pending);
    pool->threads = xcalloc(server->options.threads, sizeof *pool->threads);
    mutex_init(&pool->mutex);
    return pool;
}

void rpc_pool_destroy(struct rpc_pool *pool)
{
    if (!pool)
        return;
    rpc_pool_stop(pool);
    queue_destroy(pool->jobs);
    mutex_cleanup(&pool->mutex);
    free(pool->threads);
    free(pool);
}

static void pool_run(void *arg)
{
    struct rpc_pool *pool = arg;
    void *item;
    while (queue_pop(pool->jobs, &item, DEADLINE_NEVER) == TRP_OK) {
        struct rpc_job *job = item;
        job->run(job);
    }
}

trp_status rpc_pool_start(struct rpc_pool *pool)
{
    trp_status status = TRP_OK;
    mutex_lock(&pool->mutex);
    if (pool->stopped)
        status = trp_fail(TRP_UNAVAILABLE, "the server %s has stopped",
                          trp_server_address(pool->server));
    while (status == TRP_OK && pool->running < pool->server->options.threads) {
        status = thread_start(&pool->threads[pool->running], "trp-handler", pool_run, pool);
        if (status == TRP_OK)
            pool->running++;
    }
    mutex_unlock(&pool->mutex);
    return status;
}

void rpc_pool_stop(struct rpc_pool *pool)
{
    mutex_lock(&pool->mutex);
    pool->stopped = true;
    mutex_unlock(&pool->mutex);
    queue_close(pool->jobs);
    for (uint32_t i = 0; i < pool->running; i++)
        thread_stop(&pool->threads[i]);
    pool->running = 0;
}

trp_status rpc_pool_submit(struct rpc_pool *pool, struct rpc_job *job)
{
    trp_status status = rpc_pool_start(pool);
    if (status == TRP_OK)
        status = queue_try_push(pool->jobs, job);
    if (status == TRP_RESOURCE_EXHAUSTED)
        return trp_fail(status, "%u calls wait for the handlers of %s already",
                        pool->server->options.max_pending, trp_server_address(pool->server));
    if (status == TRP_CANCELLED)
        return trp_fail(TRP_UNAVAILABLE, "the server %s has stopped",
                        trp_server_address(pool->server));
    return status;
}

struct pool_call {
    struct rpc_job job;
    trp_server *server;
    const struct rpc_method *method;
    grpc_call *call;
    struct deadline deadline;
    trp_message *request;
    trp_message *reply;
    struct rpc_op close_op, answer_op;
    int cancelled;
    _Atomic bool gone;
    uint32_t outstanding; /* the reactor's */
};

static void check_over(struct pool_call *call)
{
    if (call->outstanding > 0)
        return;
    trp_server *server = call->server;
    server->pool_calls--;
    cond_broadcast(&server->changed);
    grpc_call_unref(call->call);
    free(call);
}

static void close_done(struct rpc_op *op, bool ok)
{
    struct pool_call *call =
        (struct pool_call *)((char *)op - offsetof(struct pool_call, close_op));
    (void)ok;
    call->outstanding--;
    if (call->cancelled)
        atomic_store(&call->gone, true);
    check_over(call);
}

static void answer_done(struct rpc_op *op, bool ok)
{
    struct pool_call *call =
        (struct pool_call *)((char *)op - offsetof(struct pool_call, answer_op));
    (void)ok;
    call->outstanding--;
    check_over(call);
}

/* Once per call, on whatever thread. */
static void answer(struct pool_call *call, trp_status status, const char *text)
{
    trp_message_destroy(call->request);
    grpc_byte_buffer *buffer = NULL;
    grpc_metadata mark = rpc_status_mark();
    grpc_slice details = grpc_slice_from_copied_string(text);
    grpc_op ops[3] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
                       .data.send_status_from_server = {.trailing_metadata = &mark,
                                                        .trailing_metadata_count = status != TRP_OK,
                                                        .status = (grpc_status_code)status,
                                                        .status_details = &details}}};
    size_t count = 2;
    if (status == TRP_OK) {
        buffer = rpc_message_to_buffer(call->reply);
        ops[count++] =
            (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = buffer};
    } else {
        trp_message_destroy(call->reply);
    }
    rpc_batch(call->call, ops, count, &call->answer_op); /* the reactor may free the call now */
    if (buffer)
        grpc_byte_buffer_destroy(buffer);
    grpc_slice_unref(details);
}

struct pool_run_state {
    struct rpc_invocation invocation;
    struct pool_call *call;
};

static trp_status take_packed(struct rpc_invocation *invocation, const ProtobufCMessage *reply)
{
    return rpc_wire_pack(reply, &((struct pool_run_state *)invocation)->call->reply);
}

static trp_status run_handler(struct pool_call *call)
{
    const struct rpc_method *method = call->method;
    ProtobufCMessage *request;
    trp_bytes bytes = {trp_message_data(call->request), trp_message_size(call->request)};
    TRP_TRY(rpc_wire_unpack(method->service->descriptor->methods[method->index].input, bytes,
                            call->server->options.in_flight_bytes, &request));
    struct pool_run_state state = {.invocation = {.service = method->service,
                                                  .index = method->index,
                                                  .deadline = call->deadline,
                                                  .gone = &call->gone,
                                                  .take = take_packed},
                                   .call = call};
    trp_status status = rpc_invoke(&state.invocation, request);
    protobuf_c_message_free_unpacked(request, NULL);
    return status;
}

static void run_call(struct rpc_job *job)
{
    struct pool_call *call = (struct pool_call *)job;
    if (atomic_load(&call->gone)) {
        answer(call, TRP_CANCELLED, "the caller is gone");
        return;
    }
    trp_status status = run_handler(call);
    answer(call, status, status == TRP_OK ? "" : trp_last_error());
}

static struct deadline deadline_of(gpr_timespec at)
{
    gpr_timespec monotonic = gpr_convert_clock_type(at, GPR_CLOCK_MONOTONIC);
    if (monotonic.tv_sec > INT64_MAX / 1000000000 - 1)
        return DEADLINE_NEVER;
    return (struct deadline){monotonic.tv_sec * 1000000000 + monotonic.tv_nsec};
}

/* Takes the request out of gRPC's buffer. */
static trp_status accept_request(struct pool_call *call, grpc_byte_buffer *payload)
{
    const char *path = call->method->path;
    uint64_t most = call->server->options.max_message_bytes;
    if (!payload)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: no request", path);
    call->request = rpc_message_from_buffer(payload);
    if (!call->request)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: no memory for the request", path);
    size_t size = trp_message_size(call->request);
    if (size > most)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: message of %zu bytes, the server takes %llu",
                        path, size, (unsigned long long)most);
    if (!rpc_message_charge(call->request, &call->server->budget))
        return trp_fail(TRP_RESOURCE_EXHAUSTED,
                        "%s: message of %zu bytes is beyond the %llu that the server holds at once",
                        path, size, (unsigned long long)call->server->budget.limit);
    return TRP_OK;
}

void rpc_pool_open(trp_server *server, const struct rpc_method *method, grpc_call *grpc,
                   gpr_timespec deadline, grpc_byte_buffer *payload)
{
    struct pool_call *call = xcalloc(1, sizeof *call);
    *call = (struct pool_call){.job.run = run_call,
                               .server = server,
                               .method = method,
                               .call = grpc,
                               .deadline = deadline_of(deadline),
                               .close_op.done = close_done,
                               .answer_op.done = answer_done,
                               .outstanding = 2};
    server->pool_calls++;
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                  .data.recv_close_on_server.cancelled = &call->cancelled};
    rpc_batch(grpc, &op, 1, &call->close_op);
    trp_status status = accept_request(call, payload);
    if (status == TRP_OK)
        status = rpc_pool_submit(server->pool, &call->job);
    if (status != TRP_OK)
        answer(call, status, trp_last_error());
}
