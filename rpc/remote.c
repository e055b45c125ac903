/* A raw call that came over gRPC. At most one send batch and one receive are under way; the close
 * notice is asked for only when nothing else would tell that the peer is gone (no receive under
 * way), or together with the status: a unary call costs three batches, as in the shortest program
 * on gRPC itself.
 *
 * Messages of handlers are released when the group ends. Released messages follow each other
 * without waiting for another group, with a hint that more comes: gRPC then writes many of them to
 * the socket at once.
 *
 * A receive that finds no message makes gRPC write a window update at once. So it starts when the
 * group ends, behind the answers, which take the update along: one write to the socket for a
 * message and its confirmation, not two. While a call's messages come faster than its groups end,
 * receives start as soon as the handler asks, so that a group takes in all that the transport has.
 *
 * The call is over when gRPC owes it no event and either the status went out or the peer is gone;
 * closed() comes then, exactly once. */
#include "server.h"

#include <assert.h>
#include <stdlib.h>

#include <grpc/byte_buffer.h>
#include "core/alloc.h"
#include "caller.h"

struct remote_call {
    trp_server_call base;
    grpc_call *call;
    grpc_slice agent; /* who calls, see caller.h */
    struct rpc_op read_op, send_op, close_op;
    grpc_byte_buffer *incoming;
    int cancelled;
    uint32_t outstanding;   /* events that gRPC owes */
    bool reading, watching; /* a receive; the close notice */
    bool opened;            /* first metadata sent */
    bool ended;             /* the peer is gone, or has the status */
    bool half_closed;
    bool eager;      /* receives start at once */
    bool held_back;  /* the message being sent is done before all of it has left */
    uint32_t taken;  /* messages in this group */
    uint64_t asked;  /* the group that started the receive */
    size_t released; /* of the messages in base.out: may go out */
    bool finish_released;
    grpc_metadata mark; /* of the status */
    grpc_slice details;
};

grpc_metadata rpc_status_mark(void)
{
    grpc_metadata mark = {0};
    mark.key = grpc_slice_from_static_string("troupe-status");
    mark.value = grpc_slice_from_static_string("1");
    return mark;
}

static void remote_check_over(struct remote_call *call)
{
    if (call->ended && call->outstanding == 0)
        rpc_call_event(&call->base, RPC_CALL_CLOSED);
}

static void end_call(struct remote_call *call)
{
    call->ended = true;
    call->base.half_closed_due = false;
    rpc_messages_clear(&call->base.out);
    rpc_unread_count(&call->base);
}

static void remote_watch(struct remote_call *call)
{
    if (call->watching)
        return;
    call->watching = true;
    call->outstanding++;
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                  .data.recv_close_on_server.cancelled = &call->cancelled};
    rpc_batch(call->call, &op, 1, &call->close_op);
}

static void remote_read_done(struct rpc_op *op, bool ok)
{
    struct remote_call *call =
        (struct remote_call *)((char *)op - offsetof(struct remote_call, read_op));
    (void)ok;
    call->outstanding--;
    call->reading = false;
    grpc_byte_buffer *incoming = call->incoming;
    call->incoming = NULL;
    call->taken++;
    call->eager |= call->base.server->group == call->asked + 1; /* it was there when asked for */
    if (incoming && !call->ended) {
        trp_message *message = rpc_message_from_buffer(incoming, call->base.method->raw.in_parts);
        if (message)
            rpc_call_receive(&call->base, message);
        else
            trp_server_call_finish(&call->base, TRP_RESOURCE_EXHAUSTED, "no memory for a message");
    } else if (incoming) {
        grpc_byte_buffer_destroy(incoming);
    } else if (!call->ended && !call->half_closed) {
        /* Also when the peer is gone: then the close notice, asked for now, comes in the same
         * group and takes this back. */
        call->half_closed = true;
        if (!grpc_call_failed_before_recv_message(call->call))
            rpc_call_event(&call->base, RPC_CALL_HALF_CLOSED);
        remote_watch(call);
    }
    if (!call->reading && !call->watching)
        rpc_call_touch(&call->base); /* to ask for the close notice, unless a read comes first */
    remote_check_over(call);
}

static void remote_close_done(struct rpc_op *op, bool ok)
{
    struct remote_call *call =
        (struct remote_call *)((char *)op - offsetof(struct remote_call, close_op));
    (void)ok;
    call->outstanding--;
    if (call->cancelled)
        end_call(call);
    remote_check_over(call);
}

/* The status, and with it the close notice unless that is under way: one or two operations. The
 * texts live as long as the call. */
static size_t add_status(struct remote_call *call, grpc_op *ops)
{
    trp_server_call *base = &call->base;
    bool watched = call->watching;
    base->finish_given = true;
    call->watching = true;
    call->mark = rpc_status_mark();
    call->details = grpc_slice_from_static_string(base->finish_text);
    ops[0] = (grpc_op){
        .op = GRPC_OP_SEND_STATUS_FROM_SERVER,
        .data.send_status_from_server = {.trailing_metadata = &call->mark,
                                         .trailing_metadata_count = base->finish_status != TRP_OK,
                                         .status = (grpc_status_code)base->finish_status,
                                         .status_details = &call->details}};
    ops[1] = (grpc_op){.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                       .data.recv_close_on_server.cancelled = &call->cancelled};
    return watched ? 1 : 2;
}

static void send_due(struct remote_call *call);

static void remote_send_done(struct rpc_op *op, bool ok)
{
    struct remote_call *call =
        (struct remote_call *)((char *)op - offsetof(struct remote_call, send_op));
    call->outstanding--;
    call->base.sending = false;
    if (!call->held_back)
        call->base.sending_bytes = 0;
    if (!ok) { /* the peer is gone; the close notice follows */
        rpc_messages_clear(&call->base.out);
        call->released = 0;
    }
    if (call->base.finish_given)
        end_call(call);
    else if (ok)
        send_due(call);
    rpc_unread_count(&call->base);
    if (call->base.out.count == 0 && !call->base.sending && ok)
        rpc_call_event(&call->base, RPC_CALL_DRAINED);
    if (!call->reading && !call->watching)
        rpc_call_touch(&call->base);
    remote_check_over(call);
}

/* First metadata, one message and the status, whatever of them is due, in one batch. */
static void send_due(struct remote_call *call)
{
    trp_server_call *base = &call->base;
    if (base->sending || base->finish_given || call->ended)
        return;
    trp_message *message = call->released ? rpc_messages_pop(&base->out) : NULL;
    call->released -= message != NULL;
    bool last = call->finish_released && call->released == 0;
    if (!message && !last)
        return;
    grpc_op ops[4] = {0};
    size_t count = 0;
    grpc_byte_buffer *outgoing = NULL;
    /* A hint that more follows holds the write back. First metadata is done only when written,
     * though, so a batch that carries it must not be held back. */
    uint32_t flags = call->released && call->opened ? GRPC_WRITE_BUFFER_HINT : 0;
    if (!call->opened)
        ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    call->opened = true;
    if (message) {
        base->sending_bytes += message->size + sizeof *message;
        outgoing = rpc_message_to_buffer(message);
        ops[count++] = (grpc_op){
            .op = GRPC_OP_SEND_MESSAGE, .flags = flags, .data.send_message.send_message = outgoing};
        base->sending = true;
    }
    call->held_back = flags != 0;
    if (last)
        count += add_status(call, ops + count);
    call->outstanding++;
    rpc_batch(call->call, ops, count, &call->send_op);
    if (outgoing)
        grpc_byte_buffer_destroy(outgoing); /* the batch took its contents */
}

static void remote_start_read(struct remote_call *call)
{
    trp_server_call *base = &call->base;
    base->read_wanted = false;
    if (call->reading || call->half_closed || base->finish_given || call->ended)
        return;
    call->reading = true;
    call->asked = base->server->group;
    call->outstanding++;
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->incoming};
    rpc_batch(call->call, &op, 1, &call->read_op);
}

static void remote_read(trp_server_call *base)
{
    struct remote_call *call = (struct remote_call *)base;
    if (call->eager)
        remote_start_read(call);
    else
        rpc_call_touch(base);
}

static void remote_flush(trp_server_call *base)
{
    struct remote_call *call = (struct remote_call *)base;
    if (call->ended)
        return;
    call->released = base->out.count;
    call->finish_released = base->finish_wanted;
    send_due(call);
    if (call->taken == 1 && call->reading)
        call->eager = false;
    call->taken = 0;
    if (base->read_wanted)
        remote_start_read(call);
    if (!call->reading)
        remote_watch(call);
}

static char *remote_peer(trp_server_call *base)
{
    struct remote_call *call = (struct remote_call *)base;
    char *text = grpc_call_get_peer(call->call);
    char *peer = rpc_caller_peer(call->agent, text);
    gpr_free(text);
    return peer;
}

static void remote_abort(trp_server_call *base, trp_status status, const char *text)
{
    struct remote_call *call = (struct remote_call *)base;
    grpc_call_cancel_with_status(call->call, (grpc_status_code)status, text, NULL);
}

/* Each connection has one of its own, also without credentials. */
static grpc_auth_context *remote_connection(trp_server_call *base)
{
    return grpc_call_auth_context(((struct remote_call *)base)->call);
}

static void remote_call_destroy(trp_server_call *base)
{
    struct remote_call *call = (struct remote_call *)base;
    grpc_slice_unref(call->agent);
    grpc_call_unref(call->call);
    free(call);
}

static const struct rpc_transport remote_transport = {.flush = remote_flush,
                                                      .read = remote_read,
                                                      .peer = remote_peer,
                                                      .abort = remote_abort,
                                                      .connection = remote_connection,
                                                      .destroy = remote_call_destroy};

void rpc_remote_open(trp_server *server, const struct rpc_method *method, grpc_call *grpc,
                     const grpc_metadata_array *metadata)
{
    struct remote_call *call = xcalloc(1, sizeof *call);
    call->call = grpc;
    call->agent = rpc_caller_slice(metadata);
    call->read_op.done = remote_read_done;
    call->send_op.done = remote_send_done;
    call->close_op.done = remote_close_done;
    call->eager = true; /* the first message mostly comes with the call */
    rpc_call_open(&call->base, server, method, &remote_transport);
}

struct refusal {
    struct rpc_op op;
    grpc_call *call;
    int cancelled;
};

static void refusal_done(struct rpc_op *op, bool ok)
{
    struct refusal *refusal = (struct refusal *)op;
    (void)ok;
    grpc_call_unref(refusal->call);
    free(refusal);
}

void rpc_remote_refuse(grpc_call *call, trp_status status, const char *text)
{
    struct refusal *refusal = xcalloc(1, sizeof *refusal);
    refusal->op.done = refusal_done;
    refusal->call = call;
    grpc_metadata mark = rpc_status_mark();
    grpc_slice details = grpc_slice_from_copied_string(text);
    grpc_op ops[3] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
                       .data.send_status_from_server = {.trailing_metadata = &mark,
                                                        .trailing_metadata_count = 1,
                                                        .status = (grpc_status_code)status,
                                                        .status_details = &details}},
                      {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                       .data.recv_close_on_server.cancelled = &refusal->cancelled}};
    rpc_batch(call, ops, 3, &refusal->op);
    grpc_slice_unref(details);
}
