/* Any bytes as a request to troupe.Replay, at a server that lives on: it answers each of them, or
 * ends it with a status and a message. The first byte chooses the method; those that
 * write or read a whole store are left out. libFuzzer's entry point. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/item.h>
#include <troupe/log.h>
#include <troupe/replay.h>
#include "core/alloc.h"
#include "replay.pb-c.h"
#include "rpc/wire.h"
#include "tests/replay/store_fixture.h"

enum { ANSWER_MS = 10000, ITEMS = 3, REQUEST_MEMORY_BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *dir;
static trp_replay_server *server;
static trp_channel *channel;

static void stop(void)
{
    trp_channel_destroy(channel);
    trp_replay_server_destroy(server);
    fixture_remove(dir);
}

static void must(trp_status status)
{
    if (status != TRP_OK)
        fprintf(stderr, "%s\n", trp_last_error());
    assert(status == TRP_OK);
}

static void insert(void)
{
    static const int64_t value = 7;
    const trp_item_array column = {
        .dtype = TRP_INT64, .rank = 1, .shape = {1}, .data = {(const uint8_t *)&value, 8}};
    trp_item_writer *writer;
    must(trp_item_writer_create(&writer, channel));
    for (uint64_t key = 1; key <= ITEMS; ++key) {
        const trp_item_data item = {
            .table = "items", .key = key, .priority = 1, .columns = &column, .column_count = 1};
        must(trp_item_writer_put(writer, &item, ANSWER_MS));
    }
    must(trp_item_writer_flush(writer, ANSWER_MS));
    trp_item_writer_destroy(writer);
}

static void start(void)
{
    const trp_table_options tables[] = {{.name = "items", .max_size = 10},
                                        {.name = "spare", .max_size = 10}};
    dir = fixture_dir("/tmp");
    trp_log_set_level(TRP_ERROR);
    must(trp_replay_server_create(
        &server,
        &(trp_replay_server_options){.dir = dir, .tables = tables, .table_count = 2, .seed = 1}));
    channel = trp_channel_create_local(trp_replay_server_rpc(server));
    insert();
    atexit(stop);
}

/* As a server does with what comes through a socket: the method sees no bytes that are no message.
 */
static trp_status ask(const char *name, trp_bytes bytes)
{
    const ProtobufCMethodDescriptor *method =
        protobuf_c_service_descriptor_get_method_by_name(&troupe__replay__descriptor, name);
    ProtobufCService *service;
    ProtobufCMessage *request, *reply = NULL;
    must(trp_channel_service(channel, &troupe__replay__descriptor, &service));
    struct rpc_allowance allowance = {.most = REQUEST_MEMORY_BYTES};
    TRP_TRY(rpc_wire_unpack(method->input, bytes, &allowance, &request));
    trp_status status = trp_call(service, name, request, &reply, NULL);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    protobuf_c_message_free_unpacked(request, NULL);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const methods[] = {"Tables",      "Items",     "Checkpoints", "Fetch",
                                          "CreateTable", "DropTable", "AlterTable"};
    if (!server)
        start();
    if (size == 0)
        return 0;
    trp_status status =
        ask(methods[data[0] % (sizeof methods / sizeof *methods)], (trp_bytes){data + 1, size - 1});
    assert(status == TRP_OK || strlen(trp_last_error()) > 0);
    assert(status != TRP_DEADLINE_EXCEEDED && status != TRP_UNAVAILABLE);
    assert(status != TRP_UNIMPLEMENTED);
    return 0;
}
