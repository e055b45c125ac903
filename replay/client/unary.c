/* ServerInfo, Reset, MutatePriorities: one request, one answer, a status. A raw stream carries
 * them, because a request of 256 priorities is worth its own codec and the rest is too small to
 * matter. */
#include "unary.h"

#include <stdio.h>
#include <string.h>

#include <troupe/sampler.h>

#include "limits.h"
#include "replay/model/signature.h"
#include "replay/wire/bytes.h"
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
    if (status == TRP_DEADLINE_EXCEEDED)
        return trp_fail(status, "%s at %s was not answered in time", name,
                        trp_channel_address(channel));
    return status;
}

/* ---- ServerInfo ------------------------------------------------------------------------------ */

/* One TableInfo; spans into the message. */
struct info_table {
    trp_bytes name, signature;
    trp_table_info info;
};

static trp_status info_malformed(void)
{
    return trp_fail(TRP_INVALID_ARGUMENT, "ServerInfoResponse: malformed");
}

/* RateLimiterCallStats: 2 completed. */
static int64_t completed_calls(trp_bytes bytes)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    int64_t completed = 0;
    while (read_field(&reader, &field))
        if (field.tag == TAG(2, VARINT))
            completed = (int64_t)field.value;
    return completed;
}

static bool decode_limiter(trp_bytes bytes, trp_table_info *info)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field)) {
        switch (field.tag) {
        case TAG(1, FIXED64):
            info->samples_per_insert = bits_double(field.value);
            break;
        case TAG(2, FIXED64):
            info->min_diff = bits_double(field.value);
            break;
        case TAG(3, FIXED64):
            info->max_diff = bits_double(field.value);
            break;
        case TAG(4, VARINT):
            info->min_size = (int64_t)field.value;
            break;
        case TAG(5, LEN):
            info->inserts = completed_calls(field.bytes);
            break;
        case TAG(6, LEN):
            info->samples = completed_calls(field.bytes);
            break;
        default:
            break;
        }
    }
    return !reader.malformed;
}

static bool decode_table(trp_bytes bytes, struct info_table *view)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    *view = (struct info_table){0};
    while (read_field(&reader, &field)) {
        switch (field.tag) {
        case TAG(3, VARINT):
            view->info.max_size = (int64_t)field.value;
            break;
        case TAG(4, VARINT):
            view->info.max_times_sampled = (int32_t)field.value;
            break;
        case TAG(5, LEN):
            if (!decode_limiter(field.bytes, &view->info))
                return false;
            break;
        case TAG(6, LEN):
            view->signature = field.bytes;
            break;
        case TAG(7, VARINT):
            view->info.size = (int64_t)field.value;
            break;
        case TAG(8, LEN):
            view->name = field.bytes;
            break;
        case TAG(9, VARINT):
            view->info.episodes = (int64_t)field.value;
            break;
        case TAG(10, VARINT):
            view->info.episodes_deleted = (int64_t)field.value;
            break;
        case TAG(11, VARINT):
            view->info.unique_samples = (int64_t)field.value;
            break;
        default:
            break;
        }
    }
    size_t size =
        view->name.size < sizeof view->info.name ? view->name.size : sizeof view->info.name - 1;
    if (size)
        memcpy(view->info.name, view->name.data, size);
    return !reader.malformed;
}

/* The next table of the response; false at the end or when malformed. */
static bool next_table(struct reader *reader, struct info_table *view)
{
    struct field field;
    while (read_field(reader, &field)) {
        if (field.tag != TAG(2, LEN))
            continue;
        reader->malformed = !decode_table(field.bytes, view);
        return !reader->malformed;
    }
    return false;
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

trp_status trp_replay_info(trp_channel *channel, trp_table_info *tables, size_t capacity,
                           size_t *count, int64_t timeout_ms)
{
    trp_message *reply;
    struct reader reader;
    struct info_table view;
    *count = 0;
    TRP_TRY(fetch_server_info(channel, timeout_ms, &reply, &reader));
    for (; next_table(&reader, &view); ++*count)
        if (*count < capacity)
            tables[*count] = view.info;
    trp_message_destroy(reply);
    return reader.malformed ? info_malformed() : TRP_OK;
}

trp_status info_each_table(trp_message *reply,
                           trp_status (*take)(void *arg, trp_bytes name, trp_bytes signature),
                           void *arg)
{
    struct reader reader = reader_of(message_bytes(reply));
    struct info_table view;
    while (next_table(&reader, &view))
        TRP_TRY(take(arg, view.name, view.signature));
    return reader.malformed ? info_malformed() : TRP_OK;
}

static trp_status check_view(const struct info_table *view, const char *table,
                             const trp_tensor_spec *columns, size_t count)
{
    struct signature signature = {0};
    if (view->signature.size == 0)
        return TRP_OK;
    trp_status status = signature_decode(view->signature, &signature);
    if (status == TRP_OK)
        status = signature_check(&signature, columns, count, table);
    signature_cleanup(&signature);
    return status;
}

trp_status info_check_columns(trp_channel *channel, const char *table,
                              const trp_tensor_spec *columns, size_t count)
{
    trp_message *reply;
    struct reader reader;
    struct info_table view;
    size_t length = strlen(table);
    TRP_TRY(fetch_server_info(channel, 0, &reply, &reader));
    trp_status status = TRP_NOT_FOUND;
    while (status == TRP_NOT_FOUND && next_table(&reader, &view))
        if (view.name.size == length && memcmp(view.name.data, table, length) == 0)
            status = check_view(&view, table, columns, count);
    trp_message_destroy(reply);
    if (reader.malformed)
        return info_malformed();
    if (status == TRP_NOT_FOUND)
        return trp_fail(status, "table '%s' was not found at %s", table,
                        trp_channel_address(channel));
    return status;
}
