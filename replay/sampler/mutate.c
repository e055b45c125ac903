/* New priorities go out without waiting for the answer to the ones before: a learner writes them
 * back once a batch, and a round trip would be a tenth of its step. A window bounds what is
 * unanswered; answers are looked at when the next request is made. */
#include "sampler.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/status.h"
#include "replay/client/limits.h"
#include "limits.h"
#include "replay/client/unary.h"
#include "replay/wire/wire.h"

static const char mutate[] = "MutatePriorities";

struct call {
    trp_stream *stream;
    trp_channel *channel;
    struct deadline deadline; /* the stream's own */
};

struct trp_priority_writer {
    trp_channel *channel; /* the only one */
    trp_channel *const *channels;
    size_t servers;
    char *table;
    struct call *calls; /* a ring of unanswered ones */
    uint32_t window, first, count;
    struct wire_mutate_request request; /* scratch */
    trp_status failure;                 /* the first since it was reported last */
    char *failure_text;
};

trp_status priority_writer_create(trp_priority_writer **out, trp_channel *const *channels,
                                  size_t servers, const char *table, uint32_t window)
{
    *out = NULL;
    if (!table || !*table || window > PRIORITY_WINDOW_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "priority writer: table '%s', window %u (at most %d)",
                        table ? table : "", window, PRIORITY_WINDOW_MAX);
    trp_priority_writer *writer = xcalloc(1, sizeof *writer);
    writer->channels = channels;
    writer->servers = servers;
    writer->table = xstrdup(table);
    writer->window = window ? window : 1;
    writer->calls = xcalloc(writer->window, sizeof(writer->calls[0]));
    *out = writer;
    return TRP_OK;
}

trp_status trp_priority_writer_create(trp_priority_writer **out, trp_channel *channel,
                                      const char *table, uint32_t window)
{
    TRP_TRY(priority_writer_create(out, NULL, 1, table, window));
    (*out)->channel = channel;
    (*out)->channels = &(*out)->channel;
    return TRP_OK;
}

static void note_failure(trp_priority_writer *writer, const trp_channel *channel, trp_status status)
{
    if (writer->failure != TRP_OK)
        return;
    writer->failure = status;
    writer->failure_text = xasprintf("priorities of '%s' at %s: %s", writer->table,
                                     trp_channel_address(channel), trp_last_error());
}

/* Reports the first failure once. */
static trp_status take_failure(trp_priority_writer *writer)
{
    trp_status status = writer->failure;
    char *text = writer->failure_text;
    writer->failure = TRP_OK;
    writer->failure_text = NULL;
    return status == TRP_OK ? TRP_OK : error_back(status, text);
}

/* Waits up to `wait_ms` for the oldest answer; false: it did not come. */
static bool settle_oldest(trp_priority_writer *writer, int64_t wait_ms)
{
    bool done;
    struct call *call = &writer->calls[writer->first];
    trp_status status = unary_finish(call->stream, wait_ms, &done, NULL);
    if (!done && !deadline_passed(call->deadline, &clock_monotonic))
        return false;
    if (!done)
        status = trp_fail(TRP_DEADLINE_EXCEEDED, "no answer in %d ms", UNARY_TIMEOUT_MS);
    if (status != TRP_OK)
        note_failure(writer, call->channel, status);
    trp_stream_destroy(call->stream);
    writer->first = (writer->first + 1) % writer->window;
    writer->count--;
    return true;
}

/* Until at most `unanswered` calls are. */
static trp_status settle_calls(trp_priority_writer *writer, uint32_t unanswered, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    while (writer->count > 0 && settle_oldest(writer, 0)) {
    }
    while (writer->count > unanswered)
        if (!settle_oldest(writer, deadline_left_ms(deadline, &clock_monotonic)) &&
            deadline_passed(deadline, &clock_monotonic))
            return trp_fail(TRP_DEADLINE_EXCEEDED,
                            "priorities of '%s' at %s: %u requests are unanswered", writer->table,
                            trp_channel_address(writer->calls[writer->first].channel),
                            writer->count);
    return TRP_OK;
}

static trp_status update(trp_priority_writer *writer, trp_channel *channel, const uint64_t *keys,
                         const double *priorities, size_t count, int64_t timeout_ms)
{
    if (count == 0)
        return TRP_OK;
    TRP_TRY(settle_calls(writer, writer->window - 1, timeout_ms));
    TRP_TRY(take_failure(writer));
    trp_message *message;
    writer->request.update_count = 0;
    writer->request.table = text_bytes(writer->table);
    for (size_t i = 0; i < count; i++)
        *wire_push_update(&writer->request) = (struct wire_update){keys[i], priorities[i]};
    TRP_TRY(wire_mutate_request_encode(&writer->request, &message));
    struct call *call = &writer->calls[(writer->first + writer->count) % writer->window];
    call->deadline = deadline_in_ms(&clock_monotonic, UNARY_TIMEOUT_MS);
    call->channel = channel;
    TRP_TRY(unary_start(&call->stream, channel, mutate, message, UNARY_TIMEOUT_MS));
    writer->count++;
    return TRP_OK;
}

trp_status trp_priority_writer_update(trp_priority_writer *writer, const uint64_t *keys,
                                      const double *priorities, size_t count, int64_t timeout_ms)
{
    return update(writer, writer->channels[0], keys, priorities, count, timeout_ms);
}

trp_status trp_priority_writer_update_batch(trp_priority_writer *writer, const trp_batch *batch,
                                            const double *priorities, int64_t timeout_ms)
{
    if (batch->server >= writer->servers)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "priorities of '%s': a batch of server %u, there are %zu", writer->table,
                        batch->server, writer->servers);
    return update(writer, writer->channels[batch->server], batch->keys, priorities, batch->rows,
                  timeout_ms);
}

trp_status trp_priority_writer_flush(trp_priority_writer *writer, int64_t timeout_ms)
{
    TRP_TRY(settle_calls(writer, 0, timeout_ms));
    return take_failure(writer);
}

void trp_priority_writer_destroy(trp_priority_writer *writer)
{
    if (!writer)
        return;
    for (uint32_t i = 0; i < writer->count; i++)
        trp_stream_destroy(writer->calls[(writer->first + i) % writer->window].stream);
    free(writer->calls);
    free(writer->table);
    free(writer->failure_text);
    wire_mutate_request_cleanup(&writer->request);
    free(writer);
}

/* ---- tables ---------------------------------------------------------------------------------- */

trp_status trp_replay_delete(trp_channel *channel, const char *table, const uint64_t *keys,
                             size_t count, int64_t timeout_ms)
{
    struct wire_mutate_request request = {.table = text_bytes(table)};
    trp_message *message;
    for (size_t i = 0; i < count; i++)
        wire_push_key(&request.deletes, keys[i]);
    trp_status status = wire_mutate_request_encode(&request, &message);
    wire_mutate_request_cleanup(&request);
    TRP_TRY(status);
    return unary_call(channel, mutate, message, timeout_ms, NULL);
}

trp_status trp_replay_reset(trp_channel *channel, const char *table, int64_t timeout_ms)
{
    /* ResetRequest and a MutatePrioritiesRequest without anything but its table are the same. */
    struct wire_mutate_request request = {.table = text_bytes(table)};
    trp_message *message;
    TRP_TRY(wire_mutate_request_encode(&request, &message));
    return unary_call(channel, "Reset", message, timeout_ms, NULL);
}
