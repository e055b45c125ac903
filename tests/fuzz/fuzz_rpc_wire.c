/* Any bytes where a request should be: the walk before protobuf-c reads nothing outside them, and
 * what it lets through does not hurt protobuf-c, stays within the memory it was allowed, and clones
 * to a message that packs to the same bytes. libFuzzer's entry point. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "rpc/wire.h"
#include "rpc_test.pb-c.h"

enum { MEMORY_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_clone(const ProtobufCMessage *message)
{
    ProtobufCMessage *clone = rpc_wire_clone(message);
    trp_message *first, *second;
    trp_status status = rpc_wire_pack(message, &first);
    assert(status == TRP_OK);
    status = rpc_wire_pack(clone, &second);
    assert(status == TRP_OK);
    assert(trp_message_size(first) == trp_message_size(second));
    assert(memcmp(trp_message_data(first), trp_message_data(second), trp_message_size(first)) == 0);
    trp_message_destroy(first);
    trp_message_destroy(second);
    protobuf_c_message_free_unpacked(clone, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ProtobufCMessageDescriptor *const descriptors[] = {
        &troupe__test__everything__descriptor, &troupe__test__chain__descriptor,
        &troupe__test__number__descriptor};
    for (size_t i = 0; i < sizeof descriptors / sizeof *descriptors; i++) {
        ProtobufCMessage *message;
        struct rpc_allowance allowance = {.most = MEMORY_MAX};
        if (rpc_wire_unpack(descriptors[i], (trp_bytes){data, size}, &allowance, &message) !=
            TRP_OK)
            continue;
        check_clone(message);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    return 0;
}
