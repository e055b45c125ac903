/* Raw calls without a socket: the caller's thread takes the server's lock and runs the handlers
 * itself, then the group ends as it would on the reactor. A send is taken when the server has asked
 * for a message, never before: that is the backpressure. Messages of the server wait in a bounded
 * inbox; beyond it, messages stay in the server's queue, as they would behind a full socket.
 *
 * A server that was not started has no reactor. Then whoever waits here calls group_end when it
 * asked to be called, and runs what was posted.
 *
 * One struct holds both ends: the stream goes with its client, the call with closed(). */
#include "server.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "limits.h"
#include "channel.h"
#include "stream.h"

struct rpc_local_stream {
    trp_stream base;
    trp_server_call call; /* the server's end; the lock guards all from here on */
    trp_server *server;
    struct cond changed;
    struct deadline deadline;
    struct rpc_messages inbox;
    struct rpc_local_stream *next_waiting, *previous_waiting;
    bool call_open, client_gone;
    bool half_closed;
    bool sent_late; /* behind the server's finish: nothing holds messages before it back */
    bool over;      /* `status` and `text` are how it ended */
    trp_status status;
    char *text;
};

static struct rpc_local_stream *local_stream_of(trp_server_call *call)
{
    return (struct rpc_local_stream *)((char *)call - offsetof(struct rpc_local_stream, call));
}

static void end(struct rpc_local_stream *stream, trp_status status, const char *text)
{
    if (stream->over)
        return;
    stream->over = true;
    stream->status = status;
    stream->text = xstrdup(text);
    if (stream->call_open)
        rpc_call_event(&stream->call, RPC_CALL_CLOSED);
    cond_signal(&stream->changed);
}

static bool inbox_has_room(const struct rpc_local_stream *stream)
{
    return stream->sent_late ||
           (stream->inbox.count < RPC_INBOX_MESSAGES && stream->inbox.bytes < RPC_INBOX_BYTES);
}

static void local_flush(trp_server_call *call)
{
    struct rpc_local_stream *stream = local_stream_of(call);
    if (stream->over)
        return;
    bool moved = false;
    while (call->out.count > 0 && inbox_has_room(stream)) {
        trp_message *message = rpc_message_join(rpc_messages_pop(&call->out));
        if (!message) {
            end(stream, TRP_RESOURCE_EXHAUSTED, "no memory for a message");
            return;
        }
        rpc_messages_push(&stream->inbox, message);
        moved = true;
    }
    rpc_unread_count(call);
    if (call->finish_wanted && call->out.count == 0) {
        call->finish_given = true;
        end(stream, call->finish_status, call->finish_text);
        return;
    }
    if (moved && call->out.count == 0)
        rpc_call_event(call, RPC_CALL_DRAINED);
    if (stream->half_closed && call->read_wanted) {
        call->read_wanted = false;
        if (!call->half_closed_given)
            rpc_call_event(call, RPC_CALL_HALF_CLOSED);
        call->half_closed_given = true;
    }
    cond_signal(&stream->changed);
}

static char *local_peer(trp_server_call *call)
{
    (void)call;
    return xstrdup("in-process");
}

static void local_abort(trp_server_call *call, trp_status status, const char *text)
{
    end(local_stream_of(call), status, text);
}

static grpc_auth_context *local_connection(trp_server_call *call)
{
    (void)call;
    return NULL;
}

static void free_stream(struct rpc_local_stream *stream)
{
    rpc_messages_clear(&stream->inbox);
    cond_cleanup(&stream->changed);
    free(stream->text);
    free(stream);
}

static void local_call_destroy(trp_server_call *call)
{
    struct rpc_local_stream *stream = local_stream_of(call);
    stream->call_open = false;
    if (stream->client_gone)
        free_stream(stream);
}

static const struct rpc_transport local_transport = {.flush = local_flush,
                                                     .read = rpc_call_touch,
                                                     .peer = local_peer,
                                                     .abort = local_abort,
                                                     .connection = local_connection,
                                                     .destroy = local_call_destroy};

void rpc_local_wake(trp_server *server)
{
    for (struct rpc_local_stream *stream = server->waiting; stream; stream = stream->next_waiting)
        cond_signal(&stream->changed);
}

static void wait_link(struct rpc_local_stream *stream)
{
    trp_server *server = stream->server;
    stream->previous_waiting = NULL;
    stream->next_waiting = server->waiting;
    if (stream->next_waiting)
        stream->next_waiting->previous_waiting = stream;
    server->waiting = stream;
}

static void wait_unlink(struct rpc_local_stream *stream)
{
    if (stream->previous_waiting)
        stream->previous_waiting->next_waiting = stream->next_waiting;
    else
        stream->server->waiting = stream->next_waiting;
    if (stream->next_waiting)
        stream->next_waiting->previous_waiting = stream->previous_waiting;
}

/* A reactor's work: group_end when it is due, posted work. */
static bool act_as_reactor(trp_server *server)
{
    if (server->phase != RPC_SERVER_NEW)
        return false;
    if (!rpc_server_wake_due(server) && !rpc_posts_waiting(server))
        return false;
    rpc_server_settle(server);
    return true;
}

static void end_late(struct rpc_local_stream *stream)
{
    char *text = xasprintf("%s took longer than its deadline", stream->base.path);
    end(stream, TRP_DEADLINE_EXCEEDED, text);
    free(text);
}

/* Until something may have changed; false once `deadline` has passed. */
static bool wait_change(struct rpc_local_stream *stream, struct deadline deadline)
{
    trp_server *server = stream->server;
    if (deadline_passed(deadline, &clock_monotonic))
        return false;
    if (deadline_passed(stream->deadline, &clock_monotonic)) {
        end_late(stream);
        return true;
    }
    struct deadline until = deadline_earlier(deadline, stream->deadline);
    if (act_as_reactor(server))
        return true;
    if (server->phase == RPC_SERVER_NEW)
        until = deadline_earlier(until, (struct deadline){server->wake_ns});
    else if (server->wake_ns < server->reactor_wait_ns && rpc_server_wake_due(server))
        rpc_server_kick(server); /* who was to come again waits, perhaps for this */
    wait_link(stream);
    rpc_server_wait(server, &stream->changed, until);
    wait_unlink(stream);
    return true;
}

static trp_status local_end_status(struct rpc_local_stream *stream)
{
    stream->base.ended = true;
    if (stream->status == TRP_OK)
        return trp_fail(TRP_OUT_OF_RANGE, "%s in-process: end of the stream", stream->base.path);
    return trp_fail(stream->status, "%s", stream->text);
}

static trp_status local_timed_out(const struct rpc_local_stream *stream, const char *what)
{
    return trp_fail(TRP_DEADLINE_EXCEEDED, "%s in-process: %s in time", stream->base.path, what);
}

/* A flush with nothing that holds messages back ends the stream: with the server's finish, which
 * nothing can come behind, or for want of memory. */
static trp_status sent_behind_finish(struct rpc_local_stream *stream)
{
    stream->sent_late = true;
    local_flush(&stream->call);
    return local_end_status(stream);
}

static trp_status local_wait_writable(struct rpc_local_stream *stream, struct deadline deadline)
{
    while (!stream->over) {
        if (stream->half_closed)
            return trp_fail(TRP_FAILED_PRECONDITION, "%s: a send after the half-close",
                            stream->base.path);
        if (stream->call.finish_wanted)
            return sent_behind_finish(stream);
        if (stream->call.read_wanted)
            return TRP_OK;
        if (!wait_change(stream, deadline))
            return local_timed_out(stream, "no room for a message");
    }
    return local_end_status(stream);
}

static trp_status local_send(trp_stream *base, trp_message *message, struct deadline deadline)
{
    struct rpc_local_stream *stream = (struct rpc_local_stream *)base;
    rpc_server_enter(stream->server);
    act_as_reactor(stream->server); /* also for callers that only poll */
    trp_status status = local_wait_writable(stream, deadline);
    if (status == TRP_OK && !stream->call.method->raw.in_parts) {
        message = rpc_message_join(message);
        if (!message)
            status = trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: no memory for a message", base->path);
    }
    if (status == TRP_OK) {
        stream->call.read_wanted = false;
        rpc_call_receive(&stream->call, message);
    } else {
        trp_message_destroy(message);
    }
    rpc_server_leave(stream->server);
    return status;
}

static bool local_writable(trp_stream *base)
{
    struct rpc_local_stream *stream = (struct rpc_local_stream *)base;
    rpc_server_enter(stream->server);
    bool writable = stream->over || stream->call.read_wanted;
    rpc_server_release(stream->server);
    return writable;
}

static trp_status local_receive(trp_stream *base, trp_message **message, struct deadline deadline)
{
    struct rpc_local_stream *stream = (struct rpc_local_stream *)base;
    trp_status status = TRP_OK;
    rpc_server_enter(stream->server);
    act_as_reactor(stream->server);
    for (;;) {
        bool dropped = stream->over && stream->status == TRP_CANCELLED;
        *message = dropped ? NULL : rpc_messages_pop(&stream->inbox);
        if (*message || stream->over)
            break;
        if (!wait_change(stream, deadline)) {
            status = local_timed_out(stream, "no message came");
            break;
        }
    }
    if (!*message && stream->over)
        status = local_end_status(stream);
    if (*message && stream->call_open)
        rpc_call_touch(&stream->call); /* there is room again */
    rpc_server_leave(stream->server);
    return status;
}

static trp_status local_half_close(trp_stream *base)
{
    struct rpc_local_stream *stream = (struct rpc_local_stream *)base;
    rpc_server_enter(stream->server);
    stream->half_closed = true;
    if (stream->call_open)
        rpc_call_touch(&stream->call);
    rpc_server_leave(stream->server);
    return TRP_OK;
}

/* The handler that cancels holds the lock already; the settling to come does the rest. */
static void local_cancel(trp_stream *base)
{
    struct rpc_local_stream *stream = (struct rpc_local_stream *)base;
    bool held = rpc_server_held(stream->server);
    if (!held)
        rpc_server_enter(stream->server);
    end(stream, TRP_CANCELLED, "the stream was cancelled");
    if (!held)
        rpc_server_leave(stream->server);
}

static void local_destroy(trp_stream *base)
{
    struct rpc_local_stream *stream = (struct rpc_local_stream *)base;
    trp_server *server = stream->server;
    bool held = rpc_server_held(server);
    if (!held)
        rpc_server_enter(server);
    end(stream, TRP_CANCELLED, "the stream was cancelled");
    stream->client_gone = true;
    if (!stream->call_open)
        free_stream(stream);
    if (!held)
        rpc_server_leave(server);
}

static const struct rpc_stream_impl local_impl = {.send = local_send,
                                                  .writable = local_writable,
                                                  .receive = local_receive,
                                                  .half_close = local_half_close,
                                                  .cancel = local_cancel,
                                                  .destroy = local_destroy};

static void local_open_call(struct rpc_local_stream *stream)
{
    trp_server *server = stream->server;
    const struct rpc_method *method = rpc_server_find(server, stream->base.path);
    if (server->phase >= RPC_SERVER_STOPPING) {
        end(stream, TRP_UNAVAILABLE, "the server has stopped");
    } else if (!method || method->service) {
        char *text =
            xasprintf("no %smethod %s in-process", method ? "raw " : "", stream->base.path);
        end(stream, TRP_UNIMPLEMENTED, text);
        free(text);
    } else {
        stream->call_open = true;
        rpc_call_open(&stream->call, server, method, &local_transport);
    }
}

trp_stream *rpc_local_stream_open(trp_channel *channel, const char *path, struct deadline deadline)
{
    struct rpc_local_stream *stream = xcalloc(1, sizeof *stream);
    stream->base = (trp_stream){.impl = &local_impl, .channel = channel, .path = xstrdup(path)};
    stream->server = channel->server;
    stream->deadline = deadline;
    cond_init(&stream->changed);
    rpc_server_enter(stream->server);
    local_open_call(stream);
    rpc_server_leave(stream->server);
    return &stream->base;
}
