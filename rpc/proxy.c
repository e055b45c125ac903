/* A proxy is a ProtobufCService whose methods are at a peer. A call is one batch of all six
 * operations on a completion queue that only this call uses, polled by the thread that waits: no
 * hop to another thread. */
#include "channel.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <grpc/byte_buffer.h>
#include "core/alloc.h"
#include "call.h"
#include "future.h"
#include "library.h"
#include "limits.h"
#include "message.h"
#include "wire.h"

static void proxy_invoke(ProtobufCService *service, unsigned index, const ProtobufCMessage *input,
                         ProtobufCClosure closure, void *data)
{
    rpc_call_from_stub(service, index, input, closure, data);
}

bool rpc_is_proxy(const ProtobufCService *service)
{
    return service->invoke == proxy_invoke;
}

struct rpc_proxy *rpc_proxy_create(trp_channel *channel,
                                   const ProtobufCServiceDescriptor *descriptor)
{
    struct rpc_proxy *proxy = xcalloc(1, sizeof *proxy);
    proxy->base = (ProtobufCService){.descriptor = descriptor, .invoke = proxy_invoke};
    proxy->channel = channel;
    proxy->handles = xcalloc(descriptor->n_methods + 1, sizeof *proxy->handles);
    proxy->paths = xcalloc(descriptor->n_methods + 1, sizeof *proxy->paths);
    for (unsigned i = 0; i < descriptor->n_methods; i++) {
        proxy->paths[i] = xasprintf("/%s/%s", descriptor->name, descriptor->methods[i].name);
        proxy->handles[i] = grpc_channel_register_call(channel->grpc, proxy->paths[i], NULL, NULL);
    }
    return proxy;
}

void rpc_proxy_destroy(struct rpc_proxy *proxy)
{
    for (unsigned i = 0; i < proxy->base.descriptor->n_methods; i++)
        free(proxy->paths[i]);
    free(proxy->paths);
    free(proxy->handles);
    free(proxy);
}

struct proxy_call {
    trp_future base;
    struct rpc_proxy *proxy;
    unsigned index;
    grpc_call *call;
    grpc_completion_queue *queue;
    struct rpc_op op;
    struct deadline deadline;   /* watched here: gRPC would set a timer. Never: passed */
    struct deadline connect_by; /* never: connected, or given up */
    grpc_metadata_array initial, trailing;
    grpc_byte_buffer *reply;
    trp_reply_room *room; /* the caller's; NULL: none */
    grpc_status_code code;
    grpc_slice details;
    _Atomic bool cancelled;
    bool over;
};

static trp_status unpack_reply(struct proxy_call *call, ProtobufCMessage **reply)
{
    const ProtobufCMethodDescriptor *method = &call->proxy->base.descriptor->methods[call->index];
    if (!call->reply)
        return trp_fail(TRP_INTERNAL, "%s at %s: a reply without a message",
                        call->proxy->paths[call->index], call->proxy->channel->address);
    trp_message *bytes = rpc_message_from_buffer(call->reply, true);
    call->reply = NULL;
    if (!bytes)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: no memory for the reply",
                        call->proxy->paths[call->index]);
    struct rpc_allowance allowance = {
        .most =
            (uint64_t)RPC_REPLY_DECODED_TIMES * trp_message_size(bytes) + RPC_REPLY_DECODED_BYTES};
    trp_status status =
        rpc_wire_unpack_message(method->output, bytes, &allowance, call->room, reply);
    trp_message_destroy(bytes);
    if (status == TRP_OK)
        return TRP_OK;
    return trp_fail(status, "%s at %s: %s", call->proxy->paths[call->index],
                    call->proxy->channel->address, trp_last_error());
}

static trp_status give_result(struct proxy_call *call, ProtobufCMessage **reply)
{
    ProtobufCMessage *message = NULL;
    trp_status status;
    if (call->code == GRPC_STATUS_OK)
        status = unpack_reply(call, &message);
    else
        status =
            rpc_channel_failure(call->proxy->channel, call->proxy->paths[call->index], call->code,
                                call->details, &call->trailing, atomic_load(&call->cancelled));
    call->base.given = true;
    call->base.status = status;
    call->base.text = xstrdup(status == TRP_OK ? "" : trp_last_error());
    if (reply)
        *reply = message;
    else if (message)
        protobuf_c_message_free_unpacked(message, NULL);
    return status;
}

/* Ends the call when one of its own deadlines has passed. False: none has. */
static bool proxy_check_deadlines(struct proxy_call *call)
{
    if (deadline_passed(call->deadline, &clock_monotonic)) {
        call->deadline = call->connect_by = DEADLINE_NEVER;
        rpc_channel_end_late(call->proxy->channel, call->call);
        return true;
    }
    if (deadline_passed(call->connect_by, &clock_monotonic)) {
        call->connect_by = DEADLINE_NEVER;
        rpc_channel_give_up(call->proxy->channel, call->call);
        return true;
    }
    return false;
}

/* True once the call is over. */
static bool await(struct proxy_call *call, struct deadline deadline)
{
    while (!call->over) {
        struct deadline own = deadline_earlier(call->deadline, call->connect_by);
        grpc_event event = rpc_next(call->queue, deadline_earlier(own, deadline));
        if (event.type == GRPC_OP_COMPLETE)
            call->over = true;
        else if (!proxy_check_deadlines(call) && deadline_passed(deadline, &clock_monotonic))
            return false;
    }
    return true;
}

static trp_status proxy_wait(trp_future *future, struct deadline deadline, ProtobufCMessage **reply)
{
    struct proxy_call *call = (struct proxy_call *)future;
    if (!await(call, deadline))
        return trp_fail(TRP_DEADLINE_EXCEEDED, "%s at %s still runs",
                        call->proxy->paths[call->index], call->proxy->channel->address);
    return give_result(call, reply);
}

static void proxy_cancel(trp_future *future)
{
    struct proxy_call *call = (struct proxy_call *)future;
    atomic_store(&call->cancelled, true);
    grpc_call_cancel(call->call, NULL);
}

static void proxy_destroy(trp_future *future)
{
    struct proxy_call *call = (struct proxy_call *)future;
    if (!call->over)
        grpc_call_cancel(call->call, NULL);
    await(call, DEADLINE_NEVER);
    if (call->reply)
        grpc_byte_buffer_destroy(call->reply);
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    grpc_slice_unref(call->details);
    grpc_call_unref(call->call);
    rpc_channel_give_queue(call->proxy->channel, call->queue);
    free(call);
}

static const struct rpc_future_impl proxy_impl = {proxy_wait, proxy_cancel, proxy_destroy};

static void start_batch(struct proxy_call *call, grpc_byte_buffer *request)
{
    grpc_op ops[6] = {{.op = GRPC_OP_SEND_INITIAL_METADATA,
                       .flags = rpc_channel_open_flags(call->proxy->channel)},
                      {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = request},
                      {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
                      {.op = GRPC_OP_RECV_INITIAL_METADATA,
                       .data.recv_initial_metadata.recv_initial_metadata = &call->initial},
                      {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->reply},
                      {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
                       .data.recv_status_on_client = {.trailing_metadata = &call->trailing,
                                                      .status = &call->code,
                                                      .status_details = &call->details}}};
    rpc_batch(call->call, ops, 6, &call->op);
}

trp_future *rpc_proxy_start(ProtobufCService *service, unsigned index,
                            const ProtobufCMessage *request, const trp_call_options *options)
{
    struct rpc_proxy *proxy = (struct rpc_proxy *)service;
    trp_message *bytes;
    trp_status status = trp_stop_requested(options->cancel)
                            ? trp_fail(TRP_CANCELLED, "%s was cancelled", proxy->paths[index])
                            : rpc_wire_pack(request, &bytes);
    if (status != TRP_OK)
        return rpc_future_done(status, NULL);
    struct proxy_call *call = xcalloc(1, sizeof *call);
    call->base.impl = &proxy_impl;
    call->proxy = proxy;
    call->index = index;
    call->room = options->room;
    call->queue = rpc_channel_take_queue(proxy->channel);
    call->deadline = rpc_call_deadline(options->timeout_ms);
    call->connect_by = deadline_in_ms(&clock_monotonic, proxy->channel->connect_timeout_ms);
    call->details = grpc_empty_slice();
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    call->call = grpc_channel_create_registered_call(
        proxy->channel->grpc, NULL, GRPC_PROPAGATE_DEFAULTS, call->queue, proxy->handles[index],
        rpc_timespec(call->deadline), NULL);
    grpc_byte_buffer *buffer = rpc_message_to_buffer(bytes);
    start_batch(call, buffer);
    grpc_byte_buffer_destroy(buffer);
    return &call->base;
}
