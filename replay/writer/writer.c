/* Steps become chunks (history.c), items and messages (outbox.c); this file moves messages out and
 * confirmations in.
 *
 * A writer has no thread. Creating an item only queues it; when enough are ready and the stream has
 * room, a message goes out and whatever was confirmed meanwhile is read. It waits only when its
 * bound on unconfirmed items is reached, and in flush. That bound follows the server: what it
 * confirms in a moment may be on its way. An item is forgotten when it is confirmed; everything
 * before that is sent again, under the same keys, on the next stream when the server went away, so
 * an acknowledged item is never lost and an unacknowledged one is inserted at least once (the
 * server takes a known key as an update). Any other end of the stream is final, and every later
 * call reports it.
 *
 * A writer of large steps asks for an arena in its first message on a stream. A server on this host
 * answers with one, and chunks are made there from then on; other servers are sent the chunks. */
#include <troupe/writer.h>

#include <inttypes.h>
#include <stdlib.h>

#include <troupe/log.h>
#include "core/boot.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "limits.h"
#include "history.h"
#include "item_check.h"
#include "replay/client/unary.h"
#include "replay/client/link.h"
#include "outbox.h"
#include "shm_arena.h"

struct trp_writer {
    struct link link;
    struct history *history;
    struct outbox *outbox;
    struct item_check *check; /* NULL: none is wanted */
    uint32_t batch_items_max; /* as it was asked for, or our choice */
    uint32_t batch_items;     /* ready items that make a message worth while, */
    bool batch_grows;         /* unless the last one just went */
    int64_t sent_ns;          /* when it did */
    uint32_t timed_at;        /* how many were ready when the clock was read since */
    uint32_t window_min;      /* of outbox->window */
    int64_t paced_ns;         /* when that was set, */
    uint64_t paced_confirmed; /* and what was confirmed by then */
    bool asked;               /* for an arena, on this stream */
    trp_status failure;       /* the end of the stream that is final */
    char *failure_text;
};

/* ---- moving messages ------------------------------------------------------------------------- */

/* Where chunks are made from now on; it decides how many make a message. */
static void set_arena(trp_writer *writer, struct shm_arena *arena)
{
    size_t bytes = arena ? WRITER_ARENA_BYTES : WRITER_MESSAGE_BYTES;
    size_t fitting = bytes / writer->history->step_bytes + 1;
    history_set_arena(writer->history, arena);
    writer->batch_items =
        fitting < writer->batch_items_max ? (uint32_t)fitting : writer->batch_items_max;
}

/* The final status of the server, if there is one. */
static trp_status writer_failure(const trp_writer *writer)
{
    return writer->failure == TRP_OK ? TRP_OK
                                     : trp_fail(writer->failure, "%s", writer->failure_text);
}

/* Judges the end of a stream: TRP_OK when it may be reopened. */
static trp_status writer_stream_ended(trp_writer *writer, trp_status status)
{
    outbox_rewind(writer->outbox);
    set_arena(writer, NULL);
    writer->asked = false;
    if (link_is_transient(status)) {
        link_lose(&writer->link);
        return TRP_OK;
    }
    writer->failure = status;
    writer->failure_text = xasprintf("inserting at %s: %s",
                                     trp_channel_address(writer->link.channel), trp_last_error());
    link_close(&writer->link);
    return writer_failure(writer);
}

static trp_status make_message(trp_writer *writer, bool asks, trp_message **message)
{
    struct shared_hello hello = {.window = 0};
    trp_message *encoded;
    if (!asks)
        return outbox_message(writer->outbox, (trp_bytes){0}, message);
    boot_id_read(hello.boot_id);
    TRP_TRY(shared_hello_encode(&hello, &encoded));
    trp_status status = outbox_message(writer->outbox, message_bytes(encoded), message);
    trp_message_destroy(encoded);
    return status;
}

/* One message of ready items; DEADLINE_EXCEEDED: the peer takes none, the items are still here. */
static trp_status writer_send(trp_writer *writer, struct deadline deadline)
{
    trp_message *message;
    bool ended, asks = !writer->asked && writer->history->large;
    TRP_TRY(make_message(writer, asks, &message));
    trp_status status = link_send(&writer->link, message, deadline, &ended);
    if (status == TRP_OK) {
        outbox_sent(writer->outbox);
        writer->asked |= asks;
    }
    return ended ? writer_stream_ended(writer, status) : status;
}

/* The server may have an arena for us; it may be of no use here. */
static void take_arena(trp_writer *writer, trp_bytes response)
{
    trp_bytes described = wire_insert_segment_decode(response);
    struct shared_segment segment;
    struct shm_arena *arena;
    if (described.size == 0)
        return;
    trp_status status = shared_segment_decode(described, &segment);
    if (status == TRP_OK)
        status = shm_arena_open(&arena, &segment);
    if (status != TRP_OK) {
        trp_log(TRP_DEBUG, "chunks go over the network server=%s reason=%s",
                trp_channel_address(writer->link.channel), trp_last_error());
        return;
    }
    set_arena(writer, arena);
    shm_arena_unref(arena); /* the groups have it */
}

/* One message of confirmations; DEADLINE_EXCEEDED: none came. */
static trp_status writer_receive(trp_writer *writer, struct deadline deadline)
{
    trp_message *message;
    bool ended;
    trp_status status = link_receive(&writer->link, &message, deadline, &ended);
    if (ended)
        return writer_stream_ended(writer, status);
    TRP_TRY(status);
    link_works(&writer->link);
    if (writer->asked && !writer->history->arena)
        take_arena(writer, message_bytes(message));
    status = outbox_confirm(writer->outbox, message_bytes(message));
    trp_message_destroy(message);
    return status == TRP_OK ? TRP_OK : writer_stream_ended(writer, status);
}

/* As many items may be on their way as the last moment confirmed. */
static void set_window(trp_writer *writer)
{
    struct outbox *outbox = writer->outbox;
    if (outbox->capacity == writer->window_min)
        return;
    const int64_t moment_ns = WRITER_PACE_MS * INT64_C(1000000);
    int64_t now = clock_now_ns(&clock_monotonic), ns = now - writer->paced_ns;
    if (ns < moment_ns)
        return;
    uint64_t count = outbox->confirmed - writer->paced_confirmed;
    double window = (double)count * (double)moment_ns / (double)ns;
    window = window < writer->window_min ? writer->window_min : window;
    outbox->window = window < outbox->capacity ? (uint32_t)window : outbox->capacity;
    writer->paced_ns = now;
    writer->paced_confirmed = outbox->confirmed;
}

/* Everything that can be done without waiting. */
static trp_status writer_pump(trp_writer *writer)
{
    static const struct deadline now = {0};
    if (!link_is_due(&writer->link))
        return TRP_OK;
    trp_status status = link_open(&writer->link, now);
    while (status == TRP_OK && writer->link.stream && writer->outbox->unconfirmed > 0 &&
           outbox_unsent(writer->outbox) < writer->outbox->unconfirmed)
        status = writer_receive(writer, now);
    if (status == TRP_UNAVAILABLE)
        return TRP_OK; /* the next call tries again */
    if (status != TRP_OK && status != TRP_DEADLINE_EXCEEDED)
        return status;
    set_window(writer);
    if (writer->link.stream && trp_stream_writable(writer->link.stream))
        status = writer_send(writer, now);
    return status == TRP_DEADLINE_EXCEEDED ? TRP_OK : status;
}

/* Names the one that is waited for: DEADLINE_EXCEEDED for a table, UNAVAILABLE for a server that
 * went away and has not answered since, or was never there. */
static trp_status held_back(const trp_writer *writer, int64_t timeout_ms)
{
    const struct link *link = &writer->link;
    const char *table = outbox_table(writer->outbox);
    const char *address = trp_channel_address(link->channel);
    uint32_t count = writer->outbox->unconfirmed;
    if (!link->answered && link->lost)
        return trp_fail(TRP_UNAVAILABLE,
                        "table '%s' at %s: %u item%s unconfirmed after %" PRId64
                        " ms; the stream was lost: %s",
                        table ? table : "", address, count, count == 1 ? " is" : "s are",
                        timeout_ms, link->lost);
    char words[LIMITER_EXPLAIN_BYTES] = "";
    bool asks = table && link->stream && timeout_ms != 0;
    bool there = !asks || limiter_ask(link->channel, table, false, words) || link->answered;
    return trp_fail(there ? TRP_DEADLINE_EXCEEDED : TRP_UNAVAILABLE,
                    "table '%s' at %s holds back inserts%s: %u item%s unconfirmed after %" PRId64
                    " ms%s",
                    table ? table : "", address, link->answered ? "" : " or cannot be reached",
                    count, count == 1 ? " is" : "s are", timeout_ms, words);
}

/* One step towards fewer unconfirmed items: sends what is ready, or else waits for a confirmation,
 * until `deadline`, which is `timeout_ms` after the wait began. */
static trp_status writer_progress(trp_writer *writer, struct deadline deadline, int64_t timeout_ms)
{
    trp_status status = link_open(&writer->link, deadline);
    if (status == TRP_OK)
        status = outbox_ready(writer->outbox) > 0 ? writer_send(writer, deadline)
                                                  : writer_receive(writer, deadline);
    else if (status == TRP_UNAVAILABLE)
        return TRP_OK;
    return status == TRP_DEADLINE_EXCEEDED ? held_back(writer, timeout_ms) : status;
}

static trp_status wait_for_room(trp_writer *writer, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    while (outbox_full(writer->outbox)) {
        if (outbox_ready(writer->outbox) == 0 &&
            outbox_unsent(writer->outbox) == writer->outbox->unconfirmed)
            history_close(writer->history); /* all of them wait for one chunk */
        TRP_TRY(writer_progress(writer, deadline, timeout_ms));
        set_window(writer);
    }
    return TRP_OK;
}

/* Enough are ready, and the last message is a while ago or they are many. */
static bool is_message_due(trp_writer *writer)
{
    uint32_t ready = outbox_ready(writer->outbox);
    if (ready < writer->batch_items)
        return false;
    if (!writer->batch_grows)
        return true;
    if (ready < WRITER_BATCH_ITEMS_MAX && ready - writer->timed_at < WRITER_BATCH_ASK_ITEMS)
        return false;
    int64_t now = clock_now_ns(&clock_monotonic);
    bool due = ready >= WRITER_BATCH_ITEMS_MAX ||
               now - writer->sent_ns >= WRITER_BATCH_MS * INT64_C(1000000);
    writer->timed_at = due ? 0 : ready;
    writer->sent_ns = due ? now : writer->sent_ns;
    return due;
}

/* Items in flight when the caller does not say: by number, fewer when steps are large. */
static uint32_t default_in_flight(size_t step_bytes)
{
    size_t fitting = WRITER_IN_FLIGHT_BYTES / step_bytes;
    if (fitting > WRITER_IN_FLIGHT)
        return WRITER_IN_FLIGHT;
    return fitting < WRITER_IN_FLIGHT_MIN ? WRITER_IN_FLIGHT_MIN : (uint32_t)fitting;
}

/* ---- public ---------------------------------------------------------------------------------- */

trp_status trp_writer_create(trp_writer **out, trp_channel *channel,
                             const trp_writer_options *options)
{
    *out = NULL;
    uint32_t batch = options->batch_items ? options->batch_items : WRITER_BATCH_ITEMS;
    struct history *history;
    TRP_TRY(history_create(&history, options));
    trp_writer *writer = xcalloc(1, sizeof *writer);
    writer->history = history;
    uint32_t window =
        options->max_in_flight ? options->max_in_flight : default_in_flight(history->step_bytes);
    bool timed = !turns_active(), is_faster = timed && options->fast_in_flight > window;
    writer->outbox = outbox_create(history, is_faster ? options->fast_in_flight : window);
    writer->outbox->window = writer->window_min = window;
    writer->batch_grows = timed && options->batch_items == 0;
    if (!options->unchecked)
        writer->check = item_check_create(channel, history->specs);
    writer->batch_items_max = batch < window ? batch : window;
    set_arena(writer, NULL);
    link_init(&writer->link, channel, "/deepmind.reverb.ReverbService/InsertStream");
    *out = writer;
    return TRP_OK;
}

trp_status trp_writer_append(trp_writer *writer, const void *const *columns)
{
    return trp_writer_append_steps(writer, columns, 1);
}

trp_status trp_writer_append_steps(trp_writer *writer, const void *const *columns, uint32_t count)
{
    TRP_TRY(writer_failure(writer));
    return history_append(writer->history, columns, count);
}

trp_status trp_writer_append_part(trp_writer *writer, const void *const *columns, bool partial)
{
    TRP_TRY(writer_failure(writer));
    return history_append_part(writer->history, columns, partial);
}

trp_status trp_writer_create_item(trp_writer *writer, const char *table, double priority,
                                  const trp_item_column *columns, size_t column_count,
                                  int64_t timeout_ms, uint64_t *key)
{
    TRP_TRY(writer_failure(writer));
    TRP_TRY(outbox_check(writer->outbox, priority, columns, column_count));
    if (writer->check)
        TRP_TRY(item_check(writer->check, table, columns, column_count, timeout_ms));
    if (outbox_full(writer->outbox))
        TRP_TRY(wait_for_room(writer, timeout_ms));
    outbox_add(writer->outbox, table, priority, columns, column_count, key);
    if (is_message_due(writer))
        return writer_pump(writer);
    return TRP_OK;
}

trp_status trp_writer_flush(trp_writer *writer, uint32_t unconfirmed, int64_t timeout_ms)
{
    TRP_TRY(writer_failure(writer));
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    if (outbox_ready(writer->outbox) < outbox_unsent(writer->outbox))
        history_close(writer->history);
    while (outbox_ready(writer->outbox) > 0 || writer->outbox->unconfirmed > unconfirmed)
        TRP_TRY(writer_progress(writer, deadline, timeout_ms));
    return TRP_OK;
}

trp_status trp_writer_end_episode(trp_writer *writer, bool keep_steps, int64_t timeout_ms)
{
    TRP_TRY(trp_writer_flush(writer, 0, timeout_ms));
    history_end_episode(writer->history, keep_steps);
    return TRP_OK;
}

void trp_writer_set_episode(trp_writer *writer, uint64_t number)
{
    history_set_episode(writer->history, number);
}

uint32_t trp_writer_episode_steps(const trp_writer *writer)
{
    return (uint32_t)writer->history->next.step;
}

void trp_writer_set_policy_version(trp_writer *writer, uint64_t version)
{
    writer->outbox->policy_version = version;
}

uint64_t trp_writer_confirmed(const trp_writer *writer)
{
    return writer->outbox->confirmed;
}

void trp_writer_destroy(trp_writer *writer)
{
    if (!writer)
        return;
    link_cleanup(&writer->link);
    outbox_destroy(writer->outbox);
    item_check_destroy(writer->check);
    history_destroy(writer->history);
    free(writer->failure_text);
    free(writer);
}
