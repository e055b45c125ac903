/* protobuf-c's closure carries a message and nothing else, so everything else about a call (status,
 * deadline, cancellation) is in an invocation that travels as closure data and that the handler's
 * thread keeps at hand. Whoever calls a handler, for a local caller or for a peer, does it here, so
 * that both see the same rules: one answer, NULL means `see the status`. */
#include "call.h"
#include "adapter.h"
#include "relay.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/status.h"
#include "core/stop.h"
#include "core/thread.h"
#include "future.h"
#include "registry.h"
#include "wire.h"

enum { CALL_TIMEOUT_MS = 30000 };

static _Thread_local struct rpc_invocation *current;

int64_t trp_call_time_left_ns(void)
{
    return current ? deadline_left_ns(current->deadline, &clock_monotonic) : INT64_MAX;
}

bool trp_call_cancelled(void)
{
    if (!current)
        return false;
    return (current->gone && atomic_load(current->gone)) || trp_stop_requested(current->cancel) ||
           deadline_passed(current->deadline, &clock_monotonic);
}

bool trp_call_lend(trp_bytes bytes, void (*done)(void *arg), void *arg)
{
    if (!current || current->lent.done)
        return false;
    current->lent = (struct rpc_lent){bytes, done, arg};
    return true;
}

struct deadline rpc_call_deadline(int64_t timeout_ms)
{
    return deadline_in_ms(&clock_monotonic, timeout_ms == 0 ? CALL_TIMEOUT_MS : timeout_ms);
}

static const char *service_name(const ProtobufCService *service)
{
    return service->descriptor->name ? service->descriptor->name : "(unnamed service)";
}

/* Threads call few methods, again and again: one comparison instead of a search by name. */
struct found_method {
    const ProtobufCServiceDescriptor *descriptor;
    const char *method; /* the caller's pointer; its text may have changed */
    unsigned index;
};

enum { FOUND_METHODS = 16 };
static _Thread_local struct found_method found_methods[FOUND_METHODS];

static struct found_method *found_slot(const ProtobufCServiceDescriptor *descriptor,
                                       const char *method)
{
    uintptr_t key = (uintptr_t)descriptor ^ (uintptr_t)method;
    return &found_methods[(key ^ key >> 4 ^ key >> 8) % FOUND_METHODS];
}

trp_status rpc_method_index(const ProtobufCService *service, const char *method, unsigned *index)
{
    struct found_method *slot = found_slot(service->descriptor, method);
    if (slot->method == method && slot->descriptor == service->descriptor &&
        strcmp(slot->descriptor->methods[slot->index].name, method) == 0) {
        *index = slot->index;
        return TRP_OK;
    }
    const ProtobufCMethodDescriptor *found =
        protobuf_c_service_descriptor_get_method_by_name(service->descriptor, method);
    if (!found)
        return trp_fail(TRP_UNIMPLEMENTED, "/%s/%s: no such method", service_name(service), method);
    *index = (unsigned)(found - service->descriptor->methods);
    *slot = (struct found_method){service->descriptor, method, *index};
    return TRP_OK;
}

static void note_answer(const ProtobufCMessage *reply, void *data)
{
    struct rpc_invocation *invocation = data;
    const ProtobufCServiceDescriptor *descriptor = invocation->service->descriptor;
    const ProtobufCMethodDescriptor *method = &descriptor->methods[invocation->index];
    if (invocation->answered) {
        trp_log(TRP_ERROR, "second answer ignored method=/%s/%s", descriptor->name, method->name);
        return;
    }
    invocation->answered = true;
    if (reply && reply->descriptor == method->output)
        invocation->status = invocation->take(invocation, reply);
    else if (reply)
        invocation->status = trp_fail(TRP_INTERNAL, "/%s/%s: the handler answered with a %s",
                                      descriptor->name, method->name, reply->descriptor->name);
    else if (status_last_code() != TRP_OK)
        invocation->status = status_last_code();
    else
        invocation->status = trp_fail(TRP_INTERNAL, "/%s/%s: the handler failed without a status",
                                      descriptor->name, method->name);
}

/* Generated services hold one function pointer per method behind their base. */
static bool has_handler(const ProtobufCService *service, unsigned index)
{
    if (service->invoke != protobuf_c_service_invoke_internal)
        return service->invoke != NULL;
    return ((void (*const *)(void))(const void *)(service + 1))[index] != NULL;
}

trp_status rpc_invoke(struct rpc_invocation *invocation, const ProtobufCMessage *request)
{
    ProtobufCService *service = invocation->service;
    const ProtobufCMethodDescriptor *method = &service->descriptor->methods[invocation->index];
    if (!has_handler(service, invocation->index))
        return trp_fail(TRP_UNIMPLEMENTED, "/%s/%s has no handler", service_name(service),
                        method->name);
    invocation->answered = false;
    invocation->status = TRP_OK;
    invocation->outer = current;
    current = invocation;
    status_clear_code();
    service->invoke(service, invocation->index, request, note_answer, invocation);
    current = invocation->outer;
    if (invocation->lent.done) /* nobody has taken it over */
        invocation->lent.done(invocation->lent.arg);
    if (!invocation->answered)
        return trp_fail(TRP_INTERNAL, "/%s/%s returned without calling its closure",
                        service_name(service), method->name);
    return invocation->status;
}

struct local_run {
    struct rpc_invocation invocation;
    ProtobufCMessage *reply;
};

static trp_status call_take(struct rpc_invocation *invocation, const ProtobufCMessage *reply)
{
    ((struct local_run *)invocation)->reply = rpc_wire_clone(reply);
    return TRP_OK;
}

trp_status rpc_check_request(const ProtobufCMethodDescriptor *method,
                             const ProtobufCMessage *request)
{
    if (request->descriptor == method->input)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "%s takes a %s, not a %s", method->name,
                    method->input->name, request->descriptor->name);
}

/* Plain local calls take well under a microsecond; reading the exact clock twice would be most of
 * that. A deadline a second or more away is watched on the coarse clock, which is late by at most
 * 10 ms; the deadline that the handler sees is never too early. */
enum { COARSE_FROM_MS = 1000, COARSE_ERROR_NS = 10000000 };

static struct deadline local_deadline(int64_t timeout_ms)
{
    int64_t ms = timeout_ms == 0 ? CALL_TIMEOUT_MS : timeout_ms;
    if (ms < COARSE_FROM_MS || ms > INT64_MAX / 2000000)
        return deadline_in_ms(&clock_monotonic, ms);
    return (struct deadline){clock_now_ns(&clock_coarse) + COARSE_ERROR_NS + ms * 1000000};
}

static bool local_is_late(struct deadline deadline, int64_t timeout_ms)
{
    int64_t ms = timeout_ms == 0 ? CALL_TIMEOUT_MS : timeout_ms;
    if (ms < COARSE_FROM_MS)
        return deadline_passed(deadline, &clock_monotonic);
    return clock_now_ns(&clock_coarse) >= deadline.at_ns;
}

static trp_status late_error(const ProtobufCService *service, unsigned index, int64_t timeout_ms)
{
    return trp_fail(TRP_DEADLINE_EXCEEDED, "/%s/%s took longer than %lld ms", service_name(service),
                    service->descriptor->methods[index].name,
                    (long long)(timeout_ms == 0 ? CALL_TIMEOUT_MS : timeout_ms));
}

static trp_status cancelled_error(const ProtobufCService *service, unsigned index)
{
    return trp_fail(TRP_CANCELLED, "/%s/%s was cancelled", service_name(service),
                    service->descriptor->methods[index].name);
}

trp_status rpc_call_here(ProtobufCService *service, unsigned index, const ProtobufCMessage *request,
                         ProtobufCMessage **reply, const trp_call_options *options)
{
    struct local_run run = {.invocation = {.service = service,
                                           .index = index,
                                           .deadline = local_deadline(options->timeout_ms),
                                           .cancel = options->cancel,
                                           .take = call_take}};
    if (trp_stop_requested(options->cancel))
        return cancelled_error(service, index);
    trp_status status = rpc_invoke(&run.invocation, request);
    if (local_is_late(run.invocation.deadline, options->timeout_ms))
        status = late_error(service, index, options->timeout_ms);
    else if (trp_stop_requested(options->cancel))
        status = cancelled_error(service, index);
    if (status == TRP_OK && reply)
        *reply = run.reply;
    else if (run.reply)
        protobuf_c_message_free_unpacked(run.reply, NULL);
    return status;
}

struct cancel_watch {
    struct stop_watch watch;
    trp_future *future;
};

static void cancel_call(struct stop_watch *watch)
{
    trp_future_cancel(((struct cancel_watch *)watch)->future);
}

trp_status trp_future_finish(trp_future *future, trp_stop *cancel, ProtobufCMessage **reply)
{
    struct cancel_watch watch = {.future = future};
    stop_watch_add(cancel, &watch.watch, cancel_call);
    trp_status status = trp_future_wait(future, -1, reply);
    stop_watch_remove(&watch.watch);
    trp_future_destroy(future);
    return status;
}

static trp_status call_elsewhere(ProtobufCService *service, unsigned index,
                                 const ProtobufCMessage *request, ProtobufCMessage **reply,
                                 const trp_call_options *options)
{
    return trp_future_finish(rpc_future_start(service, index, request, options), options->cancel,
                             reply);
}

bool trp_service_is_remote(ProtobufCService *service)
{
    return rpc_is_proxy(service) || rpc_relay_of(service);
}

static bool runs_here(const ProtobufCService *service, unsigned index)
{
    if (rpc_is_proxy(service))
        return false;
    const struct rpc_service *served = rpc_registry_find(service);
    return !served || !served->blocking[index] || turns_active();
}

static trp_status call_adapted(struct rpc_adapter *adapter, unsigned index,
                               const ProtobufCMessage *request, ProtobufCMessage **reply,
                               const trp_call_options *options)
{
    const ProtobufCMethodDescriptor *method = rpc_adapter_method(adapter, index);
    ProtobufCMessage *adapted = NULL, *answer = NULL;
    TRP_TRY(rpc_adapt(request, method->input, &adapted));
    trp_status status = trp_call(adapter->target, method->name, adapted, &answer, options);
    protobuf_c_message_free_unpacked(adapted, NULL);
    if (status == TRP_OK && reply)
        status = rpc_adapt(answer, adapter->base.descriptor->methods[index].output, reply);
    if (answer)
        protobuf_c_message_free_unpacked(answer, NULL);
    return status;
}

trp_status trp_call(ProtobufCService *service, const char *method, const ProtobufCMessage *request,
                    ProtobufCMessage **reply, const trp_call_options *options)
{
    static const trp_call_options defaults;
    unsigned index = 0;
    if (reply)
        *reply = NULL;
    if (!options)
        options = &defaults;
    if (options->room)
        options->room->given = 0;
    TRP_TRY(rpc_method_index(service, method, &index));
    TRP_TRY(rpc_check_request(&service->descriptor->methods[index], request));
    struct rpc_adapter *adapter = rpc_adapter_of(service);
    if (adapter)
        return call_adapted(adapter, index, request, reply, options);
    trp_relay *relay = rpc_relay_of(service);
    if (relay)
        return rpc_relay_call(relay, method, request, reply, options);
    if (runs_here(service, index))
        return rpc_call_here(service, index, request, reply, options);
    return call_elsewhere(service, index, request, reply, options);
}

void rpc_call_from_stub(ProtobufCService *service, unsigned index, const ProtobufCMessage *input,
                        ProtobufCClosure closure, void *data)
{
    ProtobufCMessage *reply = NULL;
    trp_status status =
        trp_call(service, service->descriptor->methods[index].name, input, &reply, NULL);
    closure(status == TRP_OK ? reply : NULL, data);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
}
