/* A call of a protobuf-c method that came over gRPC, with its request. The handler runs on the
 * pool.
 *
 * Only the reactor talks to gRPC about a call: a batch started elsewhere would wake it for every
 * event. Workers post their answers to it. The close notice, which tells a handler that its caller
 * is gone, costs an event of its own, so it is asked for when a call has run for some time; for the
 * others it comes with the answer. */
#include "pool_call.h"

#include <assert.h>
#include <stdlib.h>

#include <grpc/byte_buffer.h>
#include <troupe/log.h>
#include "core/alloc.h"
#include "limits.h"
#include "call.h"
#include "pool.h"
#include "server.h"
#include "wire.h"

struct rpc_pool_call {
    struct rpc_job job;
    trp_server *server;
    const struct rpc_method *method;
    grpc_call *call;
    struct deadline deadline;
    trp_message *request;
    trp_message *reply;
    size_t charged; /* of the server's replies */
    trp_status status;
    char *text; /* NULL: none */
    struct rpc_post answer_post;
    _Atomic bool gone;

    /* The server's lock guards the rest. */
    struct rpc_op close_op, answer_op;
    int cancelled;
    int64_t opened_ns, replied_ns;
    struct list_link link;          /* in one of the server's lists, oldest first */
    bool watched, answered, unread; /* unread: in the list of unread replies */
    uint32_t outstanding;
};

/* A handler that runs longer learns when its caller goes. */
enum { WATCH_AFTER_NS = 5000000 };

static void pool_check_over(struct rpc_pool_call *call)
{
    if (!call->answered || call->outstanding > 0)
        return;
    trp_server *server = call->server;
    server->pool_calls--;
    cond_broadcast(&server->changed);
    grpc_call_unref(call->call);
    free(call->text);
    free(call);
}

static void pool_close_done(struct rpc_op *op, bool ok)
{
    struct rpc_pool_call *call =
        (struct rpc_pool_call *)((char *)op - offsetof(struct rpc_pool_call, close_op));
    (void)ok;
    call->outstanding--;
    if (call->cancelled)
        atomic_store(&call->gone, true);
    pool_check_over(call);
}

static void uncharge_reply(struct rpc_pool_call *call)
{
    rpc_budget_give(&call->server->replies, call->charged);
    call->charged = 0;
}

/* Flow control has let all of it go, or the caller is gone. */
static void answer_done(struct rpc_op *op, bool ok)
{
    struct rpc_pool_call *call =
        (struct rpc_pool_call *)((char *)op - offsetof(struct rpc_pool_call, answer_op));
    (void)ok;
    uncharge_reply(call);
    if (call->unread)
        list_remove(&call->server->unread_replies, &call->link);
    call->outstanding--;
    pool_check_over(call);
}

static grpc_op close_operation(struct rpc_pool_call *call)
{
    return (grpc_op){.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                     .data.recv_close_on_server.cancelled = &call->cancelled};
}

static void pool_watch(struct rpc_pool_call *call)
{
    grpc_op op = close_operation(call);
    list_remove(&call->server->unwatched, &call->link);
    call->watched = true;
    call->outstanding++;
    rpc_batch(call->call, &op, 1, &call->close_op);
}

int64_t rpc_pool_calls_watch(trp_server *server, bool all)
{
    if (!server->unwatched.first)
        return INT64_MAX;
    rpc_pool_wake(server->pool, false);
    int64_t now = clock_now_ns(&clock_monotonic);
    bool late = false;
    struct rpc_pool_call *call;
    while ((call = LIST_FIRST(&server->unwatched, struct rpc_pool_call, link)) &&
           (all || call->opened_ns + WATCH_AFTER_NS <= now)) {
        pool_watch(call);
        late = true;
    }
    if (late)
        rpc_pool_wake(server->pool, true);
    return call ? call->opened_ns + WATCH_AFTER_NS : INT64_MAX;
}

/* Its caller has taken none of the reply, or too slowly. */
static void end_unread(struct rpc_pool_call *call)
{
    list_remove(&call->server->unread_replies, &call->link);
    call->unread = false;
    grpc_call_cancel_with_status(call->call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                 "the reply was not read, others need the room", NULL);
}

void rpc_pool_calls_end_unread(trp_server *server)
{
    if (!atomic_load(&server->reply_refused))
        return;
    atomic_store(&server->reply_refused, false);
    int64_t timeout_ms = server->options.unread_timeout_ms;
    int64_t since_ns = clock_now_ns(&clock_coarse) - timeout_ms * 1000000;
    uint32_t count = 0;
    LIST_EACH (struct rpc_pool_call, call, &server->unread_replies, link) {
        if (call->replied_ns > since_ns)
            break;
        end_unread(call);
        count++;
    }
    if (count > 0)
        trp_log(TRP_WARN,
                "calls ended count=%u reason=replies have been left unread for %lld ms, others "
                "need the room",
                count, (long long)timeout_ms);
}

/* With the server's lock, once per call. */
static void answer(void *arg)
{
    struct rpc_pool_call *call = arg;
    grpc_byte_buffer *buffer = NULL;
    grpc_metadata mark = rpc_status_mark();
    grpc_slice details = grpc_slice_from_static_string(call->text ? call->text : "");
    grpc_op ops[4] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
         .data.send_status_from_server = {.trailing_metadata = &mark,
                                          .trailing_metadata_count = call->status != TRP_OK,
                                          .status = (grpc_status_code)call->status,
                                          .status_details = &details}}};
    size_t count = 2;
    if (call->reply) {
        buffer = rpc_message_to_buffer(call->reply);
        ops[count++] =
            (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = buffer};
    }
    if (!call->watched) {
        list_remove(&call->server->unwatched, &call->link);
        ops[count++] = close_operation(call);
    }
    call->answered = true;
    call->outstanding++;
    if (call->reply) {
        call->unread = true;
        call->replied_ns = clock_now_ns(&clock_coarse);
        list_push(&call->server->unread_replies, &call->link);
    }
    rpc_batch(call->call, ops, count, &call->answer_op);
    if (buffer)
        grpc_byte_buffer_destroy(buffer);
}

/* The answer to the call. */
static void set_answer(struct rpc_pool_call *call, trp_status status, const char *text)
{
    trp_message_destroy(call->request);
    call->request = NULL;
    call->status = status;
    if (status == TRP_OK)
        return;
    call->text = xstrdup(text);
    uncharge_reply(call);
    trp_message_destroy(call->reply);
    call->reply = NULL;
}

struct pool_run_state {
    struct rpc_invocation invocation;
    struct rpc_pool_call *call;
};

/* Callers that do not read hold no more than this together, and large replies leave room for
 * others' small ones. */
static trp_status charge_reply(struct rpc_pool_call *call)
{
    struct rpc_budget *replies = &call->server->replies;
    size_t size = trp_message_size(call->reply);
    uint64_t limit = size > RPC_SMALL_REPLY_BYTES ? replies->limit / 2 : replies->limit;
    if (!rpc_budget_take(replies, size, limit)) {
        atomic_store(&call->server->reply_refused, true);
        return trp_fail(TRP_UNAVAILABLE,
                        "%s: a reply of %zu bytes is beyond the %llu that callers may leave unread",
                        call->method->path, size, (unsigned long long)limit);
    }
    call->charged = size;
    return TRP_OK;
}

static trp_status take_packed(struct rpc_invocation *invocation, const ProtobufCMessage *reply)
{
    struct rpc_pool_call *call = ((struct pool_run_state *)invocation)->call;
    uint64_t most = call->server->options.max_message_bytes;
    TRP_TRY(rpc_wire_pack_lent(reply, &invocation->lent, &call->reply));
    if (trp_message_size(call->reply) > most)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: a reply of %zu bytes, the server sends %llu",
                        call->method->path, trp_message_size(call->reply),
                        (unsigned long long)most);
    return charge_reply(call);
}

static trp_status run_handler(struct rpc_pool_call *call)
{
    const struct rpc_method *method = call->method;
    struct rpc_budget *budget = &call->server->budget;
    struct rpc_allowance allowance = {.most = budget->limit - trp_message_size(call->request),
                                      .budget = budget};
    ProtobufCMessage *request;
    trp_status status =
        rpc_wire_unpack_message(method->service->descriptor->methods[method->index].input,
                                call->request, &allowance, NULL, &request);
    trp_message_destroy(call->request); /* while the handler runs, its request is there once */
    call->request = NULL;
    if (status != TRP_OK) {
        rpc_budget_give(budget, allowance.taken);
        return status;
    }
    struct pool_run_state state = {.invocation = {.service = method->service,
                                                  .index = method->index,
                                                  .deadline = call->deadline,
                                                  .gone = &call->gone,
                                                  .take = take_packed},
                                   .call = call};
    status = rpc_invoke(&state.invocation, request);
    protobuf_c_message_free_unpacked(request, NULL);
    rpc_budget_give(budget, allowance.taken);
    /* The caller's clock may be behind: a handler that gives up has no answer. */
    if (deadline_passed(call->deadline, &clock_monotonic))
        return trp_fail(TRP_DEADLINE_EXCEEDED, "%s took longer than its deadline", method->path);
    return status;
}

static void run_call(struct rpc_job *job, struct rpc_worker *worker)
{
    struct rpc_pool_call *call = (struct rpc_pool_call *)job;
    trp_status status = atomic_load(&call->gone) ? trp_fail(TRP_CANCELLED, "the caller is gone")
                                                 : run_handler(call);
    set_answer(call, status, status == TRP_OK ? NULL : trp_last_error());
    rpc_worker_post(worker, &call->answer_post);
}

static struct deadline deadline_of(gpr_timespec at)
{
    gpr_timespec monotonic = gpr_convert_clock_type(at, GPR_CLOCK_MONOTONIC);
    if (monotonic.tv_sec > INT64_MAX / 1000000000 - 1)
        return DEADLINE_NEVER;
    return (struct deadline){monotonic.tv_sec * 1000000000 + monotonic.tv_nsec};
}

/* Takes the request out of gRPC's buffer. */
static trp_status accept_request(struct rpc_pool_call *call, grpc_byte_buffer *payload)
{
    const char *path = call->method->path;
    uint64_t most = call->server->options.max_message_bytes;
    if (!payload)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: no request", path);
    call->request = rpc_message_from_buffer(payload, true);
    if (!call->request)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: no memory for the request", path);
    size_t size = trp_message_size(call->request);
    if (size > most)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: message of %zu bytes, the server takes %llu",
                        path, size, (unsigned long long)most);
    if (!rpc_message_charge(call->request, &call->server->budget))
        return trp_fail(TRP_UNAVAILABLE,
                        "%s: message of %zu bytes is beyond the %llu that the server holds at once",
                        path, size, (unsigned long long)call->server->budget.limit);
    return TRP_OK;
}

void rpc_pool_call_open(trp_server *server, const struct rpc_method *method, grpc_call *grpc,
                        gpr_timespec deadline, grpc_byte_buffer *payload)
{
    struct rpc_pool_call *call = xcalloc(1, sizeof *call);
    *call = (struct rpc_pool_call){
        .job = {.run = run_call, .average_ns = (_Atomic uint32_t *)&method->average_ns},
        .server = server,
        .method = method,
        .call = grpc,
        .deadline = deadline_of(deadline),
        .answer_post = {.work = answer, .arg = call},
        .opened_ns = clock_now_ns(&clock_monotonic),
        .close_op.done = pool_close_done,
        .answer_op.done = answer_done};
    server->pool_calls++;
    list_push(&server->unwatched, &call->link);
    trp_status status = accept_request(call, payload);
    if (status == TRP_OK)
        status = rpc_pool_submit(server->pool, &call->job);
    if (status == TRP_OK)
        return;
    set_answer(call, status, trp_last_error());
    answer(call);
}
