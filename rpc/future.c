/* Futures of local handlers: the handler runs on the pool of the service's server, or, for an
 * object that is in no server, on a thread of its own. Request and reply are copied, so that a
 * caller whose deadline passes can leave while the handler still runs; the job is freed by the last
 * of the two. On a thread that has joined turns the handler runs at once, in the caller's turn:
 * other threads would make the run depend on timing. */
#include "future.h"
#include "adapter.h"
#include "relay.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "call.h"
#include "pool.h"
#include "registry.h"
#include "wire.h"

/* ---- the public functions ---- */

trp_status trp_future_wait(trp_future *future, int64_t timeout_ms, ProtobufCMessage **reply)
{
    if (reply)
        *reply = NULL;
    if (future->given)
        return future->status == TRP_OK ? TRP_OK : trp_fail(future->status, "%s", future->text);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    if (!future->output || !reply)
        return future->impl->wait(future, deadline, reply);
    ProtobufCMessage *answer = NULL;
    trp_status status = future->impl->wait(future, deadline, &answer);
    if (answer) {
        status = rpc_adapt(answer, future->output, reply);
        protobuf_c_message_free_unpacked(answer, NULL);
    }
    return status;
}

void trp_future_cancel(trp_future *future)
{
    future->impl->cancel(future);
}

void trp_future_destroy(trp_future *future)
{
    if (!future)
        return;
    free(future->text);
    future->impl->destroy(future);
}

/* ---- a call that is over ---- */

struct done_future {
    trp_future base;
    ProtobufCMessage *reply;
};

static trp_status done_wait(trp_future *future, struct deadline deadline, ProtobufCMessage **reply)
{
    struct done_future *done = (struct done_future *)future;
    (void)deadline;
    future->given = true;
    if (reply) {
        *reply = done->reply;
        done->reply = NULL;
    }
    return future->status == TRP_OK ? TRP_OK : trp_fail(future->status, "%s", future->text);
}

static void done_cancel(trp_future *future)
{
    (void)future; /* too late */
}

static void done_destroy(trp_future *future)
{
    struct done_future *done = (struct done_future *)future;
    if (done->reply)
        protobuf_c_message_free_unpacked(done->reply, NULL);
    free(done);
}

static const struct rpc_future_impl done_impl = {done_wait, done_cancel, done_destroy};

trp_future *rpc_future_done(trp_status status, ProtobufCMessage *reply)
{
    struct done_future *done = xcalloc(1, sizeof *done);
    done->base.impl = &done_impl;
    done->base.status = status;
    done->base.text = xstrdup(status == TRP_OK ? "" : trp_last_error());
    done->reply = reply;
    return &done->base;
}

/* ---- a handler on another thread ---- */

struct local_job {
    trp_future base;
    struct rpc_job job;
    struct rpc_invocation invocation;
    ProtobufCMessage *request, *reply;
    struct thread thread; /* only without a pool */
    _Atomic bool cancelled;
    struct mutex mutex; /* guards the rest */
    struct cond changed;
    uint32_t references;
    bool finished;
    trp_status result;
    char *result_text;
};

static void local_release(struct local_job *job)
{
    mutex_lock(&job->mutex);
    bool last = --job->references == 0;
    mutex_unlock(&job->mutex);
    if (!last)
        return;
    thread_stop(&job->thread);
    if (job->request)
        protobuf_c_message_free_unpacked(job->request, NULL);
    if (job->reply)
        protobuf_c_message_free_unpacked(job->reply, NULL);
    free(job->result_text);
    cond_cleanup(&job->changed);
    mutex_cleanup(&job->mutex);
    free(job);
}

static void local_finish(struct local_job *job, trp_status status)
{
    mutex_lock(&job->mutex);
    job->finished = true;
    job->result = status;
    job->result_text = xstrdup(status == TRP_OK ? "" : trp_last_error());
    cond_broadcast(&job->changed);
    mutex_unlock(&job->mutex);
}

static void local_run(struct local_job *job)
{
    if (atomic_load(&job->cancelled))
        local_finish(job, trp_fail(TRP_CANCELLED, "cancelled before it ran"));
    else
        local_finish(job, rpc_invoke(&job->invocation, job->request));
}

static void run_on_pool(struct rpc_job *base, struct rpc_worker *worker)
{
    (void)worker;
    struct local_job *job = (struct local_job *)((char *)base - offsetof(struct local_job, job));
    local_run(job);
    local_release(job);
}

static void run_on_thread(void *arg)
{
    local_run(arg); /* the future holds the only reference and joins */
}

static trp_status future_take(struct rpc_invocation *invocation, const ProtobufCMessage *reply)
{
    struct local_job *job =
        (struct local_job *)((char *)invocation - offsetof(struct local_job, invocation));
    job->reply = rpc_wire_clone(reply);
    return TRP_OK;
}

static trp_status give(struct local_job *job, trp_status status, const char *text)
{
    job->base.given = true;
    job->base.status = status;
    job->base.text = xstrdup(text);
    return status == TRP_OK ? TRP_OK : trp_fail(status, "%s", text);
}

static trp_status give_error(struct local_job *job, trp_status status, const char *what)
{
    const ProtobufCServiceDescriptor *descriptor = job->invocation.service->descriptor;
    char *text = xasprintf("/%s/%s %s", descriptor->name,
                           descriptor->methods[job->invocation.index].name, what);
    atomic_store(&job->cancelled, true); /* the handler's caller is gone */
    status = give(job, status, text);
    free(text);
    return status;
}

static trp_status local_wait(trp_future *future, struct deadline deadline, ProtobufCMessage **reply)
{
    struct local_job *job = (struct local_job *)future;
    struct deadline own = job->invocation.deadline;
    struct deadline until = deadline.at_ns < own.at_ns ? deadline : own;
    mutex_lock(&job->mutex);
    while (!job->finished && !atomic_load(&job->cancelled))
        if (!cond_wait(&job->changed, &job->mutex, until))
            break;
    bool finished = job->finished;
    mutex_unlock(&job->mutex);
    if (atomic_load(&job->cancelled))
        return give_error(job, TRP_CANCELLED, "was cancelled");
    if (deadline_passed(own, &clock_monotonic))
        return give_error(job, TRP_DEADLINE_EXCEEDED, "took longer than its deadline");
    if (!finished)
        return trp_fail(TRP_DEADLINE_EXCEEDED, "the call still runs");
    if (job->result == TRP_OK && reply) {
        *reply = job->reply;
        job->reply = NULL;
    }
    return give(job, job->result, job->result_text);
}

static void local_future_cancel(trp_future *future)
{
    struct local_job *job = (struct local_job *)future;
    mutex_lock(&job->mutex);
    if (!job->finished)
        atomic_store(&job->cancelled, true);
    cond_broadcast(&job->changed);
    mutex_unlock(&job->mutex);
}

static void local_future_destroy(trp_future *future)
{
    local_future_cancel(future);
    local_release((struct local_job *)future);
}

static const struct rpc_future_impl local_impl = {local_wait, local_future_cancel,
                                                  local_future_destroy};

static struct local_job *local_create(ProtobufCService *service, unsigned index,
                                      const ProtobufCMessage *request, int64_t timeout_ms)
{
    struct local_job *job = xcalloc(1, sizeof *job);
    job->base.impl = &local_impl;
    job->job.run = run_on_pool;
    job->invocation = (struct rpc_invocation){.service = service,
                                              .index = index,
                                              .deadline = rpc_call_deadline(timeout_ms),
                                              .gone = &job->cancelled,
                                              .take = future_take};
    job->request = rpc_wire_clone(request);
    job->references = 1;
    mutex_init(&job->mutex);
    cond_init(&job->changed);
    return job;
}

static trp_future *local_start(ProtobufCService *service, unsigned index,
                               const ProtobufCMessage *request, const trp_call_options *options)
{
    const struct rpc_service *served = rpc_registry_find(service);
    struct local_job *job = local_create(service, index, request, options->timeout_ms);
    trp_status status;
    if (served) {
        job->references = 2;
        status = rpc_pool_submit(served->pool, &job->job);
    } else {
        status = thread_start(&job->thread, "trp-call", run_on_thread, job);
    }
    if (status == TRP_OK)
        return &job->base;
    job->references = 1;
    local_release(job);
    return rpc_future_done(status, NULL);
}

static trp_future *call_now(ProtobufCService *service, unsigned index,
                            const ProtobufCMessage *request, const trp_call_options *options)
{
    ProtobufCMessage *reply = NULL;
    trp_status status = rpc_call_here(service, index, request, &reply, options);
    return rpc_future_done(status, reply);
}

trp_future *rpc_future_start(ProtobufCService *service, unsigned index,
                             const ProtobufCMessage *request, const trp_call_options *options)
{
    if (rpc_is_proxy(service))
        return rpc_proxy_start(service, index, request, options);
    if (turns_active())
        return call_now(service, index, request, options);
    return local_start(service, index, request, options);
}

static trp_future *start_adapted(struct rpc_adapter *adapter, unsigned index,
                                 const ProtobufCMessage *request, const trp_call_options *options)
{
    const ProtobufCMethodDescriptor *method = rpc_adapter_method(adapter, index);
    ProtobufCMessage *adapted;
    trp_status status = rpc_adapt(request, method->input, &adapted);
    if (status != TRP_OK)
        return rpc_future_done(status, NULL);
    trp_future *future = trp_call_async(adapter->target, method->name, adapted, options);
    protobuf_c_message_free_unpacked(adapted, NULL);
    future->output = adapter->base.descriptor->methods[index].output;
    return future;
}

trp_future *trp_call_async(ProtobufCService *service, const char *method,
                           const ProtobufCMessage *request, const trp_call_options *options)
{
    static const trp_call_options defaults;
    unsigned index;
    if (options && options->room)
        options->room->given = 0;
    trp_status status = rpc_method_index(service, method, &index);
    if (status == TRP_OK)
        status = rpc_check_request(&service->descriptor->methods[index], request);
    if (status != TRP_OK)
        return rpc_future_done(status, NULL);
    struct rpc_adapter *adapter = rpc_adapter_of(service);
    if (adapter)
        return start_adapted(adapter, index, request, options);
    trp_relay *relay = rpc_relay_of(service);
    if (relay)
        return rpc_relay_start(relay, method, request, options);
    return rpc_future_start(service, index, request, options ? options : &defaults);
}
