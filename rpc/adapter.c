/* A message that goes through an adapter is packed with one descriptor and unpacked with the other,
 * so nothing depends on how two generators lay out their structs. It costs what a message costs,
 * about a microsecond for a small one; whoever wants the direct call uses one descriptor. */
#include "adapter.h"

#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "core/alloc.h"
#include "wire.h"

enum { SHAPE_DEPTH_MAX = 16 };

/* ---- do they mean the same? ------------------------------------------------------------------ */

static trp_status message_differs(const ProtobufCMessageDescriptor *message, const char *field)
{
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "%s: field '%s' is not the same for the caller and the service: their .proto "
                    "files differ",
                    message->name, field);
}

/* Two messages of a name agree when fields of the same number have the same type. Fields that only
 * one of them has are those of a newer version, which is allowed. */
static trp_status check_message(const ProtobufCMessageDescriptor *a,
                                const ProtobufCMessageDescriptor *b, unsigned depth)
{
    if (a == b || depth == SHAPE_DEPTH_MAX)
        return TRP_OK;
    if (strcmp(a->name, b->name) != 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "the caller's message is %s, the service's %s",
                        a->name, b->name);
    for (unsigned i = 0; i < a->n_fields; i++) {
        const ProtobufCFieldDescriptor *left = &a->fields[i];
        const ProtobufCFieldDescriptor *right =
            protobuf_c_message_descriptor_get_field(b, left->id);
        if (!right)
            continue;
        if (left->type != right->type || left->label != right->label)
            return message_differs(a, left->name);
        if (left->type == PROTOBUF_C_TYPE_MESSAGE)
            TRP_TRY(check_message(left->descriptor, right->descriptor, depth + 1));
    }
    return TRP_OK;
}

static const ProtobufCMethodDescriptor *find_method(const ProtobufCServiceDescriptor *service,
                                                    const char *name)
{
    return protobuf_c_service_descriptor_get_method_by_name(service, name);
}

static trp_status check_service(const ProtobufCServiceDescriptor *caller,
                                const ProtobufCServiceDescriptor *target)
{
    for (unsigned i = 0; i < caller->n_methods; i++) {
        const ProtobufCMethodDescriptor *method = &caller->methods[i];
        const ProtobufCMethodDescriptor *other = find_method(target, method->name);
        if (!other)
            return trp_fail(TRP_INVALID_ARGUMENT, "%s: the service has no method '%s'",
                            target->name, method->name);
        TRP_TRY(check_message(method->input, other->input, 0));
        TRP_TRY(check_message(method->output, other->output, 0));
    }
    return TRP_OK;
}

/* ---- adapters -------------------------------------------------------------------------------- */

static void adapter_invoke(ProtobufCService *service, unsigned index, const ProtobufCMessage *input,
                           ProtobufCClosure closure, void *data)
{
    rpc_call_from_stub(service, index, input, closure, data);
}

trp_status rpc_adapter_create(struct rpc_adapter **out, ProtobufCService *target,
                              const ProtobufCServiceDescriptor *descriptor)
{
    *out = NULL;
    TRP_TRY(check_service(descriptor, target->descriptor));
    *out = xcalloc(1, sizeof **out);
    (*out)->base = (ProtobufCService){.descriptor = descriptor, .invoke = adapter_invoke};
    (*out)->target = target;
    return TRP_OK;
}

void rpc_adapter_destroy(struct rpc_adapter *adapter)
{
    free(adapter);
}

struct rpc_adapter *rpc_adapter_of(ProtobufCService *service)
{
    return service->invoke == adapter_invoke ? (struct rpc_adapter *)service : NULL;
}

const ProtobufCMethodDescriptor *rpc_adapter_method(const struct rpc_adapter *adapter,
                                                    unsigned index)
{
    return find_method(adapter->target->descriptor, adapter->base.descriptor->methods[index].name);
}

trp_status rpc_adapt(const ProtobufCMessage *message, const ProtobufCMessageDescriptor *descriptor,
                     ProtobufCMessage **out)
{
    struct rpc_allowance allowance = {.most = UINT64_MAX};
    trp_message *packed;
    *out = NULL;
    TRP_TRY(rpc_wire_pack(message, &packed));
    trp_bytes bytes = {trp_message_data(packed), trp_message_size(packed)};
    trp_status status = rpc_wire_unpack(descriptor, bytes, &allowance, out);
    trp_message_destroy(packed);
    return status;
}
