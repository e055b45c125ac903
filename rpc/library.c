/* gRPC is a library with global state (reference count, log, one epoll set). Here is all that the
 * folder does with it as such, so that no other file has to know about it.
 *
 * Under TSan, gRPC is not instrumented: a completion queue looks as if it did not synchronise. Each
 * hand-over of a tag is therefore announced. */
#include "library.h"

#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <grpc/support/log.h>
#include <troupe/log.h>
#include "core/thread.h"
#include "limits.h"

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

#ifdef UNDER_TSAN
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#endif

void rpc_tag_release(void *tag)
{
#ifdef UNDER_TSAN
    __tsan_release(tag);
#else
    (void)tag;
#endif
}

void rpc_tag_acquire(void *tag)
{
#ifdef UNDER_TSAN
    __tsan_acquire(tag);
#else
    (void)tag;
#endif
}

/* One line a second: a peer can have as many written as it likes. */
static void log_line(gpr_log_func_args *args)
{
    static _Atomic int64_t next_ns;
    if (strstr(args->message, "Failed accept")) { /* and gRPC 1.51 never listens again */
        trp_log(TRP_ERROR, "no new connection is taken until this process is started again: %s",
                args->message);
        return;
    }
    int64_t now = clock_now_ns(&clock_monotonic), due = atomic_load(&next_ns);
    if (args->severity == GPR_LOG_SEVERITY_ERROR && now >= due &&
        atomic_compare_exchange_strong(&next_ns, &due, now + 1000000000))
        trp_log(TRP_WARN, "grpc %s", args->message);
}

static void raise_open_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        trp_log(TRP_WARN, "the limit on open files stays as it is");
}

/* Debian builds gRPC and its Abseil with assertions: whenever a mutex is locked, the others that
 * the thread holds go into a graph in which cycles are looked for, under a lock of the whole
 * process. That is an eighth of the instructions that a message of one item takes. */
static void stop_deadlock_search(void)
{
    enum { IGNORE }; /* absl::OnDeadlockCycle::kIgnore */
    void (*set_mode)(int mode);
    *(void **)&set_mode = dlsym(RTLD_DEFAULT, "_ZN4absl7debian3"
                                              "29SetMutexDeadlockDetectionMode"
                                              "ENS0_15OnDeadlockCycleE");
    if (set_mode)
        set_mode(IGNORE);
}

/* A long message comes in thousands of buffers, which are freed at once when it has been read. What
 * malloc gives back then it has to get, and the kernel to clear, for the next one: most of the time
 * that such a message takes. So the buffers of all messages lie in malloc's own memory, of which
 * much stays. */
static void keep_memory(void)
{
    enum { HEAP_BYTES_MAX = 32 << 20 }; /* the most that mallopt() takes */
    mallopt(M_MMAP_THRESHOLD, HEAP_BYTES_MAX);
    mallopt(M_TRIM_THRESHOLD, RPC_KEPT_BYTES);
}

/* Each thread gets a heap of its own from malloc, of 64 MiB of addresses, while there are fewer
 * than 8 for each core; where addresses are few, the threads that come later have none. */
static void share_heaps(long cores)
{
    enum { HEAP_BYTES = 64 << 20, HEAPS_PER_CORE = 8 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0)
        return;
    uint64_t heaps = limit.rlim_cur / RPC_HEAPS_SHARE / HEAP_BYTES;
    if (heaps < (uint64_t)cores * HEAPS_PER_CORE)
        mallopt(M_ARENA_MAX, heaps > 0 ? (int)heaps : 1);
}

/* gRPC waits for each of its threads when it ends, also for one that could not start. */
static trp_status addresses_check(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    TRP_TRY(threads_fit(RPC_THREADS + (cores < 2 ? 2 : cores > 32 ? 32 : (uint32_t)cores)));
    share_heaps(cores);
    return TRP_OK;
}

trp_status rpc_library_acquire(void)
{
    if (!grpc_is_initialized()) {
        TRP_TRY(addresses_check());
        keep_memory();
        raise_open_files();
        stop_deadlock_search();
        gpr_set_log_function(log_line);
        gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
    }
    grpc_init();
    return TRP_OK;
}

void rpc_library_release(void)
{
    grpc_shutdown();
}

gpr_timespec rpc_timespec(struct deadline deadline)
{
    if (deadline.at_ns == INT64_MAX)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return (gpr_timespec){.tv_sec = deadline.at_ns / 1000000000,
                          .tv_nsec = (int32_t)(deadline.at_ns % 1000000000),
                          .clock_type = GPR_CLOCK_MONOTONIC};
}

grpc_event rpc_next(grpc_completion_queue *queue, struct deadline deadline)
{
    grpc_event event = grpc_completion_queue_next(queue, rpc_timespec(deadline), NULL);
    if (event.type == GRPC_OP_COMPLETE)
        rpc_tag_acquire(event.tag);
    return event;
}

grpc_event rpc_poll(grpc_completion_queue *queue)
{
    grpc_event event = grpc_completion_queue_next(queue, gpr_inf_past(GPR_CLOCK_MONOTONIC), NULL);
    if (event.type == GRPC_OP_COMPLETE)
        rpc_tag_acquire(event.tag);
    return event;
}

void rpc_batch(grpc_call *call, const grpc_op *ops, size_t count, struct rpc_op *op)
{
    rpc_tag_release(op);
    grpc_call_error error = grpc_call_start_batch(call, ops, count, op, NULL);
    if (error != GRPC_CALL_OK)
        trp_log(TRP_ERROR, "grpc refused a batch: %s", grpc_call_error_to_string(error));
    assert(error == GRPC_CALL_OK);
}

void rpc_queue_destroy(grpc_completion_queue *queue)
{
    if (!queue)
        return;
    grpc_completion_queue_shutdown(queue);
    grpc_event event = rpc_next(queue, DEADLINE_NEVER);
    assert(event.type == GRPC_QUEUE_SHUTDOWN);
    grpc_completion_queue_destroy(queue);
}

void rpc_args_add(struct rpc_args *args, const char *key, int value)
{
    assert(args->count < RPC_ARGS_MAX);
    args->items[args->count++] =
        (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

/* gRPC inflates a message whole before any limit, its own included, sees the size. */
void rpc_args_refuse_compression(struct rpc_args *args)
{
    rpc_args_add(args, GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
    rpc_args_add(args, GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    rpc_args_add(args, GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
}

int rpc_limit_arg(uint64_t bytes)
{
    return bytes > INT_MAX ? -1 : (int)bytes;
}
