/* Between protobuf-c messages and bytes. */
#ifndef TRP_RPC_WIRE_H
#define TRP_RPC_WIRE_H

#include <protobuf-c/protobuf-c.h>
#include <troupe/rpc.h>

struct rpc_budget;

/* The memory that a message may take decoded. */
struct rpc_allowance {
    uint64_t most;             /* of the message alone */
    struct rpc_budget *budget; /* of it and others; NULL: none */
    uint64_t taken;            /* at least what it takes, also of the budget: the caller gives that
                                  back when the message is freed, or was not unpacked */
};

/* Takes `memory` for `bytes` of a message. RESOURCE_EXHAUSTED: more than it may ever have.
 * UNAVAILABLE: more than others leave of the budget. */
TRP_MUST_USE trp_status rpc_wire_take(const ProtobufCMessageDescriptor *descriptor, size_t bytes,
                                      uint64_t memory, struct rpc_allowance *allowance);

/* Walks bytes from outside before protobuf-c's recursive unpack may see them, and unpacks them when
 * there is the memory. INVALID_ARGUMENT: broken, or nested deeper than MESSAGE_DEPTH_MAX. The walk
 * takes time proportional to the bytes, no memory, no recursion. The caller frees with
 * protobuf_c_message_free_unpacked(). */
TRP_MUST_USE trp_status rpc_wire_unpack(const ProtobufCMessageDescriptor *descriptor,
                                        trp_bytes bytes, struct rpc_allowance *allowance,
                                        ProtobufCMessage **out);

/* The same of a message in one part or several, whose long bytes are copied once: to `room`, which
 * may be NULL, where they are its field's and fit. `message` stays the caller's. */
TRP_MUST_USE trp_status rpc_wire_unpack_message(const ProtobufCMessageDescriptor *descriptor,
                                                trp_message *message,
                                                struct rpc_allowance *allowance,
                                                trp_reply_room *room, ProtobufCMessage **out);

/* The message's bytes, exactly sized. RESOURCE_EXHAUSTED: no memory for them. */
TRP_MUST_USE trp_status rpc_wire_pack(const ProtobufCMessage *message, trp_message **out);

/* Bytes that stay as they are until done(arg). */
struct rpc_lent {
    trp_bytes bytes;
    void (*done)(void *arg); /* NULL: nothing is lent */
    void *arg;
};

/* rpc_wire_pack(), but that long bytes from within what is lent are not copied: the message refers
 * to them, if there are some, and has taken over `lent`, whose `done` is NULL then. */
TRP_MUST_USE trp_status rpc_wire_pack_lent(const ProtobufCMessage *message, struct rpc_lent *lent,
                                           trp_message **out);

/* A deep copy that protobuf_c_message_free_unpacked(copy, NULL) frees. Never NULL: like all small
 * allocations it aborts without memory. */
ProtobufCMessage *rpc_wire_clone(const ProtobufCMessage *message);

#endif
