/* A stream over gRPC has a completion queue of its own, polled by the thread that uses the stream:
 * an event never crosses threads. One receive is always under way once the caller has asked for a
 * message, so the next one is fetched while this one is worked on; one send is under way at most,
 * and the next waits for it. */
#include "stream.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <grpc/byte_buffer.h>
#include "core/alloc.h"
#include "channel.h"
#include "library.h"
#include "limits.h"
#include "message.h"

struct remote_stream {
    trp_stream base;
    grpc_call *call;
    grpc_completion_queue *queue;
    struct rpc_op open_op, read_op, send_op, half_close_op, status_op;
    uint32_t outstanding;       /* events that gRPC owes */
    struct deadline deadline;   /* of the whole stream; never: none, or passed */
    struct deadline connect_by; /* never: connected, or given up */
    grpc_metadata_array initial, trailing;
    grpc_byte_buffer *incoming;
    struct rpc_messages ready; /* received, not asked for yet */
    grpc_status_code code;
    grpc_slice details;
    bool reading, read_over; /* read_over: no message will come */
    bool sending, send_failed, half_closed;
    bool over; /* the status is here */
    bool no_memory;
    _Atomic bool cancelled;
};

static struct remote_stream *op_stream(struct rpc_op *op, size_t offset)
{
    return (struct remote_stream *)((char *)op - offset);
}

static void open_done(struct rpc_op *op, bool ok)
{
    struct remote_stream *stream = op_stream(op, offsetof(struct remote_stream, open_op));
    (void)ok;
    stream->connect_by = DEADLINE_NEVER;
}

static void stream_read_done(struct rpc_op *op, bool ok)
{
    struct remote_stream *stream = op_stream(op, offsetof(struct remote_stream, read_op));
    (void)ok;
    stream->reading = false;
    trp_message *message = NULL;
    if (stream->incoming) {
        message = rpc_message_from_buffer(stream->incoming, stream->base.in_parts);
        stream->no_memory = message == NULL;
    }
    stream->incoming = NULL;
    if (message)
        rpc_messages_push(&stream->ready, message);
    else
        stream->read_over = true;
    if (stream->no_memory)
        grpc_call_cancel(stream->call, NULL);
}

static void stream_send_done(struct rpc_op *op, bool ok)
{
    struct remote_stream *stream = op_stream(op, offsetof(struct remote_stream, send_op));
    stream->sending = false;
    stream->send_failed |= !ok;
}

static void half_close_done(struct rpc_op *op, bool ok)
{
    (void)op;
    (void)ok; /* a peer that is gone tells by its status */
}

static void status_done(struct rpc_op *op, bool ok)
{
    (void)ok;
    op_stream(op, offsetof(struct remote_stream, status_op))->over = true;
}

/* Ends the stream when one of its own deadlines has passed. False: none has. */
static bool stream_check_deadlines(struct remote_stream *stream)
{
    if (deadline_passed(stream->deadline, &clock_monotonic)) {
        stream->deadline = stream->connect_by = DEADLINE_NEVER;
        rpc_channel_end_late(stream->base.channel, stream->call);
        return true;
    }
    if (deadline_passed(stream->connect_by, &clock_monotonic)) {
        stream->connect_by = DEADLINE_NEVER;
        rpc_channel_give_up(stream->base.channel, stream->call);
        return true;
    }
    return false;
}

/* Handles one event. False: `deadline` passed without one. */
static bool stream_pump(struct remote_stream *stream, struct deadline deadline)
{
    struct deadline own = deadline_earlier(stream->deadline, stream->connect_by);
    grpc_event event = rpc_next(stream->queue, deadline_earlier(own, deadline));
    if (event.type == GRPC_OP_COMPLETE) {
        struct rpc_op *op = event.tag;
        stream->outstanding--;
        op->done(op, event.success);
        return true;
    }
    return stream_check_deadlines(stream) || !deadline_passed(deadline, &clock_monotonic);
}

static void start(struct remote_stream *stream, const grpc_op *ops, size_t count, struct rpc_op *op)
{
    stream->outstanding++;
    rpc_batch(stream->call, ops, count, op);
}

static void stream_start_read(struct remote_stream *stream)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &stream->incoming};
    stream->reading = true;
    start(stream, &op, 1, &stream->read_op);
}

/* How the stream ended. */
static trp_status stream_end_status(struct remote_stream *stream)
{
    trp_stream *base = &stream->base;
    base->ended = true;
    if (stream->no_memory)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: no memory for a message", base->path);
    if (atomic_load(&stream->cancelled))
        return trp_fail(TRP_CANCELLED, "%s at %s was cancelled", base->path,
                        base->channel->address);
    if (stream->code == GRPC_STATUS_OK)
        return trp_fail(TRP_OUT_OF_RANGE, "%s at %s: end of the stream", base->path,
                        base->channel->address);
    return rpc_channel_failure(base->channel, base->path, stream->code, stream->details,
                               &stream->trailing, false);
}

static trp_status stream_timed_out(const struct remote_stream *stream, const char *what)
{
    return trp_fail(TRP_DEADLINE_EXCEEDED, "%s at %s: %s in time", stream->base.path,
                    stream->base.channel->address, what);
}

static trp_status remote_receive(trp_stream *base, trp_message **message, struct deadline deadline)
{
    struct remote_stream *stream = (struct remote_stream *)base;
    for (;;) {
        if (!stream->reading && !stream->read_over && stream->ready.count < 2)
            stream_start_read(stream);
        if (atomic_load_explicit(&stream->cancelled, memory_order_relaxed))
            return stream_end_status(stream);
        *message = rpc_messages_pop(&stream->ready);
        if (*message)
            return TRP_OK;
        if (stream->read_over && stream->over)
            return stream_end_status(stream);
        if (!stream_pump(stream, deadline))
            return stream_timed_out(stream, "no message came");
    }
}

/* A send failed: the peer has ended the stream. Its status comes behind the messages that it sent,
 * which wait at this side by now; the caller may still ask for them. */
static trp_status failed_send(struct remote_stream *stream, struct deadline deadline)
{
    while (!stream->over && rpc_messages_memory(&stream->ready) < RPC_ENDED_BYTES_MAX) {
        if (!stream->reading && !stream->read_over)
            stream_start_read(stream);
        if (!stream_pump(stream, deadline))
            return stream_timed_out(stream, "no status came");
    }
    if (stream->over)
        return stream_end_status(stream);
    return trp_fail(TRP_UNAVAILABLE, "%s at %s takes no more messages", stream->base.path,
                    stream->base.channel->address);
}

static trp_status stream_wait_writable(struct remote_stream *stream, struct deadline deadline)
{
    while (stream->sending && !stream->over)
        if (!stream_pump(stream, deadline))
            return stream_timed_out(stream, "no room for a message");
    if (atomic_load(&stream->cancelled) || stream->over)
        return stream_end_status(stream);
    if (stream->send_failed)
        return failed_send(stream, deadline);
    if (stream->half_closed)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s: a send after the half-close",
                        stream->base.path);
    return TRP_OK;
}

static trp_status remote_send(trp_stream *base, trp_message *message, struct deadline deadline)
{
    struct remote_stream *stream = (struct remote_stream *)base;
    trp_status status = stream_wait_writable(stream, deadline);
    if (status != TRP_OK) {
        trp_message_destroy(message);
        return status;
    }
    grpc_byte_buffer *buffer = rpc_message_to_buffer(message);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = buffer};
    stream->sending = true;
    start(stream, &op, 1, &stream->send_op);
    grpc_byte_buffer_destroy(buffer);
    return TRP_OK;
}

static bool remote_writable(trp_stream *base)
{
    struct remote_stream *stream = (struct remote_stream *)base;
    while (stream->sending && stream_pump(stream, (struct deadline){0}))
        continue;
    return !stream->sending;
}

static trp_status remote_half_close(trp_stream *base)
{
    struct remote_stream *stream = (struct remote_stream *)base;
    if (stream->half_closed)
        return TRP_OK;
    stream->half_closed = true;
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    start(stream, &op, 1, &stream->half_close_op);
    return TRP_OK;
}

static void remote_cancel(trp_stream *base)
{
    struct remote_stream *stream = (struct remote_stream *)base;
    atomic_store(&stream->cancelled, true);
    grpc_call_cancel(stream->call, NULL);
}

static void remote_stream_destroy(trp_stream *base)
{
    struct remote_stream *stream = (struct remote_stream *)base;
    if (!stream->over)
        grpc_call_cancel(stream->call, NULL);
    while (stream->outstanding > 0) /* cancelled: all of it comes at once */
        stream_pump(stream, DEADLINE_NEVER);
    rpc_messages_clear(&stream->ready);
    grpc_metadata_array_destroy(&stream->initial);
    grpc_metadata_array_destroy(&stream->trailing);
    grpc_slice_unref(stream->details);
    grpc_call_unref(stream->call);
    rpc_channel_give_queue(stream->base.channel, stream->queue);
    free(stream);
}

static const struct rpc_stream_impl remote_impl = {.send = remote_send,
                                                   .writable = remote_writable,
                                                   .receive = remote_receive,
                                                   .half_close = remote_half_close,
                                                   .cancel = remote_cancel,
                                                   .destroy = remote_stream_destroy};

static void stream_open_call(struct remote_stream *stream)
{
    grpc_op opening = {.op = GRPC_OP_SEND_INITIAL_METADATA,
                       .flags = rpc_channel_open_flags(stream->base.channel)};
    grpc_op ending[2] = {{.op = GRPC_OP_RECV_INITIAL_METADATA,
                          .data.recv_initial_metadata.recv_initial_metadata = &stream->initial},
                         {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
                          .data.recv_status_on_client = {.trailing_metadata = &stream->trailing,
                                                         .status = &stream->code,
                                                         .status_details = &stream->details}}};
    start(stream, &opening, 1, &stream->open_op);
    start(stream, ending, 2, &stream->status_op);
}

trp_stream *rpc_remote_stream_open(trp_channel *channel, const char *path, struct deadline deadline)
{
    struct remote_stream *stream = xcalloc(1, sizeof *stream);
    stream->base = (trp_stream){.impl = &remote_impl, .channel = channel, .path = xstrdup(path)};
    stream->open_op.done = open_done;
    stream->read_op.done = stream_read_done;
    stream->send_op.done = stream_send_done;
    stream->half_close_op.done = half_close_done;
    stream->status_op.done = status_done;
    stream->deadline = deadline;
    stream->connect_by = deadline_in_ms(&clock_monotonic, channel->connect_timeout_ms);
    stream->details = grpc_empty_slice();
    grpc_metadata_array_init(&stream->initial);
    grpc_metadata_array_init(&stream->trailing);
    stream->queue = rpc_channel_take_queue(channel);
    grpc_slice method = grpc_slice_from_copied_string(path);
    stream->call =
        grpc_channel_create_call(channel->grpc, NULL, GRPC_PROPAGATE_DEFAULTS, stream->queue,
                                 method, NULL, rpc_timespec(deadline), NULL);
    grpc_slice_unref(method);
    stream_open_call(stream);
    return &stream->base;
}
