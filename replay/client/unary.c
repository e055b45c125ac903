/* ServerInfo, Reset, MutatePriorities: one request, one answer, a status. A raw stream carries
 * them, because a request of 256 priorities is worth its own codec; the rest hardly matters. */
#include "unary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/buffer.h"
#include "limits.h"
#include "replay/model/signature.h"
#include "replay/wire/parts.h"
#include "replay/wire/wire.h"

trp_status unary_start(trp_stream **out, trp_channel *channel, const char *name,
                       trp_message *request, int64_t timeout_ms)
{
    char path[128];
    snprintf(path, sizeof path, "/deepmind.reverb.ReverbService/%s", name);
    trp_call_options options = {.timeout_ms = timeout_ms ? timeout_ms : UNARY_TIMEOUT_MS};
    trp_status status = trp_stream_open(out, channel, path, &options);
    if (status != TRP_OK) {
        trp_message_destroy(request);
        *out = NULL;
        return status;
    }
    status = trp_stream_send(*out, request, -1);
    if (status == TRP_OK)
        status = trp_stream_half_close(*out);
    if (status != TRP_OK) {
        trp_stream_destroy(*out);
        *out = NULL;
    }
    return status;
}

trp_status unary_finish(trp_stream *stream, int64_t wait_ms, bool *done, trp_message **reply)
{
    trp_message *message = NULL, *more = NULL;
    *done = true;
    if (reply)
        *reply = NULL;
    trp_status status = trp_stream_receive(stream, &message, wait_ms);
    if (status == TRP_DEADLINE_EXCEEDED && wait_ms >= 0) {
        *done = false;
        return TRP_OK;
    }
    if (status == TRP_OUT_OF_RANGE)
        return trp_fail(TRP_INTERNAL, "the server ended a call without an answer");
    TRP_TRY(status);
    status = trp_stream_receive(stream, &more, -1); /* the status follows the answer */
    if (status == TRP_OUT_OF_RANGE) {
        if (reply)
            *reply = message;
        else
            trp_message_destroy(message);
        return TRP_OK;
    }
    trp_message_destroy(message);
    trp_message_destroy(more);
    return status == TRP_OK ? trp_fail(TRP_INTERNAL, "the server answered one call twice") : status;
}

trp_status unary_call(trp_channel *channel, const char *name, trp_message *request,
                      int64_t timeout_ms, trp_message **reply)
{
    trp_stream *stream;
    bool done;
    TRP_TRY(unary_start(&stream, channel, name, request, timeout_ms));
    trp_status status = unary_finish(stream, -1, &done, reply);
    trp_stream_destroy(stream);
    return status;
}

/* ---- ServerInfo ------------------------------------------------------------------------------ */

/* RateLimiterCallStats: 2 completed. */
static int64_t completed_calls(trp_bytes bytes)
{
    uint64_t stats[2] = {0};
    (void)read_varints(bytes, stats, 2);
    return (int64_t)stats[1];
}

static bool decode_limiter(trp_bytes bytes, trp_table_info *info)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field))
        if (field.tag == TAG(1, FIXED64))
            info->samples_per_insert = bits_double(field.value);
        else if (field.tag == TAG(2, FIXED64))
            info->min_diff = bits_double(field.value);
        else if (field.tag == TAG(3, FIXED64))
            info->max_diff = bits_double(field.value);
        else if (field.tag == TAG(4, VARINT))
            info->min_size = (int64_t)field.value;
        else if (field.tag == TAG(5, LEN))
            info->inserts = completed_calls(field.bytes);
        else if (field.tag == TAG(6, LEN))
            info->samples = completed_calls(field.bytes);
    return !reader.malformed;
}

static bool decode_table(trp_bytes bytes, struct info_table *table)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    trp_table_info *info = &table->info;
    *table = (struct info_table){0};
    while (read_field(&reader, &field))
        if (field.tag == TAG(3, VARINT))
            info->max_size = (int64_t)field.value;
        else if (field.tag == TAG(4, VARINT))
            info->max_times_sampled = (int32_t)field.value;
        else if (field.tag == TAG(5, LEN))
            reader.malformed |= !decode_limiter(field.bytes, info);
        else if (field.tag == TAG(6, LEN))
            table->signature = field.bytes;
        else if (field.tag == TAG(7, VARINT))
            info->size = (int64_t)field.value;
        else if (field.tag == TAG(8, LEN))
            table->name = field.bytes;
        else if (field.tag == TAG(9, VARINT))
            info->episodes = (int64_t)field.value;
        else if (field.tag == TAG(10, VARINT))
            info->episodes_deleted = (int64_t)field.value;
        else if (field.tag == TAG(11, VARINT))
            info->unique_samples = (int64_t)field.value;
    size_t size = table->name.size < sizeof info->name ? table->name.size : sizeof info->name - 1;
    if (size)
        memcpy(info->name, table->name.data, size);
    return !reader.malformed;
}

trp_status info_next(struct reader *reader, struct info_table *table, bool *more)
{
    struct field field;
    *more = false;
    while (!*more && read_field(reader, &field))
        if (field.tag == TAG(2, LEN)) {
            *more = true;
            reader->malformed = !decode_table(field.bytes, table);
        }
    return reader->malformed ? trp_fail(TRP_INVALID_ARGUMENT, "ServerInfoResponse: malformed")
                             : TRP_OK;
}

static trp_status fetch_server_info(trp_channel *channel, int64_t timeout_ms, trp_message **reply,
                                    struct reader *reader)
{
    trp_message *request = trp_message_create(0);
    if (!request)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for a message");
    TRP_TRY(unary_call(channel, "ServerInfo", request, timeout_ms, reply));
    *reader = reader_of(message_bytes(*reply));
    return TRP_OK;
}

trp_status trp_replay_tables(trp_channel *channel, trp_table_info **tables, size_t *count,
                             int64_t timeout_ms)
{
    trp_message *reply;
    struct reader reader;
    struct info_table table;
    bool more = true;
    uint32_t capacity = 0;
    *tables = NULL;
    *count = 0;
    TRP_TRY(fetch_server_info(channel, timeout_ms, &reply, &reader));
    trp_status status;
    while ((status = info_next(&reader, &table, &more)) == TRP_OK && more)
        *ARRAY_PUSH(*tables, *count, capacity) = table.info;
    trp_message_destroy(reply);
    return status;
}

trp_status trp_replay_info(trp_channel *channel, trp_table_info *tables, size_t capacity,
                           size_t *count, int64_t timeout_ms)
{
    trp_table_info *all;
    trp_status status = trp_replay_tables(channel, &all, count, timeout_ms);
    for (size_t i = 0; i < *count && i < capacity; i++)
        tables[i] = all[i];
    free(all);
    return status;
}

trp_status info_find(trp_channel *channel, const char *name, int64_t timeout_ms,
                     struct info_table *table, trp_message **reply)
{
    struct reader reader;
    bool more = true, found = false;
    TRP_TRY(fetch_server_info(channel, timeout_ms, reply, &reader));
    trp_status status = TRP_OK;
    while (status == TRP_OK && more && !found) {
        status = info_next(&reader, table, &more);
        found = status == TRP_OK && more && bytes_equal(table->name, text_bytes(name));
    }
    if (found)
        return TRP_OK;
    trp_message_destroy(*reply);
    *reply = NULL;
    return status != TRP_OK ? status
                            : trp_fail(TRP_NOT_FOUND, "table '%s' was not found at %s", name,
                                       trp_channel_address(channel));
}

trp_status info_check_columns(trp_channel *channel, const char *name,
                              const trp_tensor_spec *columns, size_t count)
{
    trp_message *reply;
    struct info_table table;
    struct signature signature = {0};
    TRP_TRY(info_find(channel, name, 0, &table, &reply));
    trp_status status = TRP_OK;
    if (table.signature.size > 0) {
        status = signature_decode(table.signature, &signature);
        if (status == TRP_OK)
            status = signature_check(&signature, columns, count, name);
    }
    signature_cleanup(&signature);
    trp_message_destroy(reply);
    return status;
}
