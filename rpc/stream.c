/* The public functions of streams: options, the caller's cancel, and the two kinds behind them. */
#include "stream.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "channel.h"

static void cancel_stream(struct stop_watch *watch)
{
    trp_stream_cancel((trp_stream *)((char *)watch - offsetof(struct trp_stream, watch)));
}

trp_status trp_stream_open(trp_stream **out, trp_channel *channel, const char *path,
                           const trp_call_options *options)
{
    *out = NULL;
    if (path[0] != '/')
        return trp_fail(TRP_INVALID_ARGUMENT, "path %s: write /package.Service/Method", path);
    int64_t timeout_ms = options && options->timeout_ms > 0 ? options->timeout_ms : -1;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    trp_stream *stream = channel->server ? rpc_local_stream_open(channel, path, deadline)
                                         : rpc_remote_stream_open(channel, path, deadline);
    stream->in_parts = options && options->in_parts;
    stop_watch_add(options ? options->cancel : NULL, &stream->watch, cancel_stream);
    *out = stream;
    return TRP_OK;
}

trp_status trp_stream_send(trp_stream *stream, trp_message *message, int64_t timeout_ms)
{
    return stream->impl->send(stream, message, deadline_in_ms(&clock_monotonic, timeout_ms));
}

bool trp_stream_writable(trp_stream *stream)
{
    return stream->impl->writable(stream);
}

trp_status trp_stream_receive(trp_stream *stream, trp_message **message, int64_t timeout_ms)
{
    *message = NULL;
    return stream->impl->receive(stream, message, deadline_in_ms(&clock_monotonic, timeout_ms));
}

bool trp_stream_ended(const trp_stream *stream)
{
    return stream->ended;
}

trp_status trp_stream_half_close(trp_stream *stream)
{
    return stream->impl->half_close(stream);
}

void trp_stream_cancel(trp_stream *stream)
{
    stream->impl->cancel(stream);
}

void trp_stream_destroy(trp_stream *stream)
{
    if (!stream)
        return;
    stop_watch_remove(&stream->watch);
    free(stream->path);
    stream->path = NULL;
    stream->impl->destroy(stream);
}
