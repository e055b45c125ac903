/* Callers keep one service for their whole life, and servers come and go. A relay joins them: a
 * call looks which target there is, and goes there as any other call does, so that nothing is
 * copied and deadlines and statuses are those of the target.
 *
 * An object of this process may not go while it is called, so calls inside it are counted. A proxy
 * fails by itself when its server goes: its calls are not waited for, as that may take as long as
 * their deadlines. */
#include "relay.h"

#include <stdlib.h>

#include "call.h"
#include "core/alloc.h"
#include "core/thread.h"
#include "future.h"

struct trp_relay {
    ProtobufCService base; /* first */
    struct mutex mutex;    /* guards what follows */
    struct cond changed;
    ProtobufCService *target; /* NULL: none */
    bool moving;              /* the one before is being left: nobody enters */
    uint32_t inside;          /* calls in targets that are no proxies */
};

static void relay_invoke(ProtobufCService *service, unsigned index, const ProtobufCMessage *input,
                         ProtobufCClosure closure, void *data)
{
    rpc_call_from_stub(service, index, input, closure, data);
}

trp_relay *rpc_relay_of(ProtobufCService *service)
{
    return service->invoke == relay_invoke ? (trp_relay *)service : NULL;
}

static trp_status relay_enter(trp_relay *relay, ProtobufCService **target)
{
    mutex_lock(&relay->mutex);
    while (relay->moving)
        cond_wait(&relay->changed, &relay->mutex, DEADLINE_NEVER);
    *target = relay->target;
    relay->inside += *target && !rpc_is_proxy(*target);
    mutex_unlock(&relay->mutex);
    if (*target)
        return TRP_OK;
    return trp_fail(TRP_UNAVAILABLE, "nobody serves %s for now", relay->base.descriptor->name);
}

static void relay_leave(trp_relay *relay, const ProtobufCService *target)
{
    if (rpc_is_proxy(target))
        return;
    mutex_lock(&relay->mutex);
    if (--relay->inside == 0)
        cond_broadcast(&relay->changed);
    mutex_unlock(&relay->mutex);
}

trp_status rpc_relay_call(trp_relay *relay, const char *method, const ProtobufCMessage *request,
                          ProtobufCMessage **reply, const trp_call_options *options)
{
    ProtobufCService *target;
    TRP_TRY(relay_enter(relay, &target));
    trp_status status = trp_call(target, method, request, reply, options);
    relay_leave(relay, target);
    return status;
}

trp_future *rpc_relay_start(trp_relay *relay, const char *method, const ProtobufCMessage *request,
                            const trp_call_options *options)
{
    ProtobufCService *target;
    ProtobufCMessage *reply = NULL;
    trp_status status = relay_enter(relay, &target);
    if (status == TRP_OK && rpc_is_proxy(target))
        return trp_call_async(target, method, request, options);
    if (status == TRP_OK) {
        status = trp_call(target, method, request, &reply, options);
        relay_leave(relay, target);
    }
    return rpc_future_done(status, reply);
}

void trp_relay_set(trp_relay *relay, ProtobufCService *target)
{
    mutex_lock(&relay->mutex);
    relay->moving = true;
    while (relay->inside > 0)
        cond_wait(&relay->changed, &relay->mutex, DEADLINE_NEVER);
    relay->moving = false;
    relay->target = target;
    cond_broadcast(&relay->changed);
    mutex_unlock(&relay->mutex);
}

ProtobufCService *trp_relay_service(trp_relay *relay)
{
    return &relay->base;
}

trp_relay *trp_relay_create(const ProtobufCServiceDescriptor *descriptor)
{
    trp_relay *relay = xcalloc(1, sizeof *relay);
    relay->base = (ProtobufCService){.descriptor = descriptor, .invoke = relay_invoke};
    mutex_init(&relay->mutex);
    cond_init(&relay->changed);
    return relay;
}

void trp_relay_destroy(trp_relay *relay)
{
    if (!relay)
        return;
    cond_cleanup(&relay->changed);
    mutex_cleanup(&relay->mutex);
    free(relay);
}
