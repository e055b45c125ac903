/* A stream is remote (gRPC) or local (this process). */
#ifndef TRP_RPC_STREAM_H
#define TRP_RPC_STREAM_H

#include <troupe/rpc.h>
#include "core/clock.h"
#include "core/stop.h"

struct rpc_stream_impl {
    trp_status (*send)(trp_stream *stream, trp_message *message, struct deadline deadline);
    bool (*writable)(trp_stream *stream);
    trp_status (*receive)(trp_stream *stream, trp_message **message, struct deadline deadline);
    trp_status (*half_close)(trp_stream *stream);
    void (*cancel)(trp_stream *stream);
    void (*destroy)(trp_stream *stream);
};

/* Each kind's struct starts with this. */
struct trp_stream {
    const struct rpc_stream_impl *impl;
    trp_channel *channel;
    char *path;
    struct stop_watch watch;
    bool in_parts;
    bool ended; /* its end has been told to the caller */
};

/* remote_stream.c and local.c */
trp_stream *rpc_remote_stream_open(trp_channel *channel, const char *path,
                                   struct deadline deadline);
trp_stream *rpc_local_stream_open(trp_channel *channel, const char *path, struct deadline deadline);

#endif
