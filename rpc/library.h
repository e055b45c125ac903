/* gRPC as the folder uses it: reference, clock, completion queues, batches. */
#ifndef TRP_RPC_LIBRARY_H
#define TRP_RPC_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>

#include <troupe/status.h>
#include "core/clock.h"

/* Every object that owns something of gRPC's holds one reference. The first one also raises the
 * limit on open files to its hard value and sends gRPC's log to ours. RESOURCE_EXHAUSTED: the
 * address space has no room for its threads and ours; then there is no reference. */
TRP_MUST_USE trp_status rpc_library_acquire(void);
void rpc_library_release(void);

/* A completion queue's tag: embedded in whatever waits for the operation. */
struct rpc_op {
    void (*done)(struct rpc_op *op, bool ok);
};

gpr_timespec rpc_timespec(struct deadline deadline);

/* grpc_completion_queue_next() with a monotonic deadline, telling TSan about the hand-over. */
grpc_event rpc_next(grpc_completion_queue *queue, struct deadline deadline);

/* Like rpc_next() for events that are there already: never waits. */
grpc_event rpc_poll(grpc_completion_queue *queue);

/* Starts a batch that completes as `op`. Asserts: a refused batch is our own misuse. */
void rpc_batch(grpc_call *call, const grpc_op *ops, size_t count, struct rpc_op *op);

/* Tell TSan of a tag: before `tag` is given to gRPC by other calls than rpc_batch(), and after it
 * came back by other calls than rpc_next(). */
void rpc_tag_release(void *tag);
void rpc_tag_acquire(void *tag);

/* Shuts an idle queue down and frees it. */
void rpc_queue_destroy(grpc_completion_queue *queue);

/* Channel arguments, at most RPC_ARGS_MAX. */
enum { RPC_ARGS_MAX = 24 };
struct rpc_args {
    grpc_arg items[RPC_ARGS_MAX];
    size_t count;
};
void rpc_args_add(struct rpc_args *args, const char *key, int value);

/* For servers and channels: nothing is compressed, and a call of a peer that compresses ends with
 * UNIMPLEMENTED before anything is inflated. */
void rpc_args_refuse_compression(struct rpc_args *args);

/* A byte limit as a channel argument: beyond INT_MAX is -1, no limit. */
int rpc_limit_arg(uint64_t bytes);

#endif
