/* Problem: a writer sends chunks, items that refer to them, and which chunks to keep; each item is
 * to be confirmed once it is safe, in order, while its table's limiter may hold it back for hours.
 * Design: an item goes straight into its table when nothing is queued there before it and the
 * limiter allows; otherwise into the table's lane, and once that lane is as long as Reverb lets it
 * be, the stream is not read until one of its items went in: flow control holds the writer back.
 * An item that the table has, or had of late, or that is in the lane, is not queued again: a writer
 * that lost its connection sends it a second time, perhaps long before this server knows.
 * Items and chunks that no table has, and confirmations behind an item that waits, lie in memory,
 * up to a bound over all streams. From half of it on a stream is not read while any of its items
 * waits; beyond it orphans are dropped first, then a stream with items that wait is ended so that
 * it comes again (UNAVAILABLE), and one that only keeps chunks is refused (RESOURCE_EXHAUSTED).
 * Confirmations are a ring in the order of the items; those that are done at its front are sent at
 * the end of the group, in one message. Queued items of a stream that ended are inserted all the
 * same, up to INSERT_ORPHANS_MAX a table. Guarantee: exactly one confirmation per item, after it is
 * durable. An error ends its stream only, and the items inserted before it are confirmed first. */
#include "service.h"

#include <inttypes.h>
#include <stdlib.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "replay/engine/limits.h"
#include "limits.h"
#include "keep_set.h"
#include "shm_segment.h"

struct confirm {
    uint64_t key;
    bool done;
};

struct insert_stream {
    struct service *service;
    trp_server_call *call;
    struct keep_set keep;
    struct trajectory_builder builder;
    struct shm_segment *segment; /* NULL: its writer has none */
    uint32_t table_index;        /* of its last item */
    uint64_t kept_counted;       /* see kept_count() */

    struct confirm *ring; /* capacity is a power of two */
    uint32_t ring_capacity;
    uint64_t first, end; /* numbers of the oldest confirmation and behind the newest */

    uint32_t pending;
    uint64_t pending_bytes;
    bool over;   /* a lane was full: do not read */
    bool unread; /* confirmations of it: neither */
    bool half_closed;
    bool failed, finished;
    trp_status status; /* when failed */
    char *text;

    bool dirty;
    struct list_link dirty_link, link; /* in the service's lists */
};

static void stream_mark_dirty(struct insert_stream *stream)
{
    if (stream->dirty)
        return;
    stream->dirty = true;
    list_push(&stream->service->dirty, &stream->dirty_link);
}

/* The status is sent at the end of the group, behind the confirmations. */
static void stream_fail(struct insert_stream *stream, trp_status status)
{
    stream_mark_dirty(stream);
    if (stream->failed)
        return;
    stream->failed = true;
    stream->status = status;
    stream->text = xstrdup(trp_last_error());
}

/* Of the stream service->held_bytes has, besides items that wait, keep, builder, and the ring,
 * which is gone at the end of the group if it does not wait for one of those. */
static void kept_count(struct insert_stream *stream)
{
    uint64_t memory = keep_set_memory(&stream->keep) + trajectory_builder_memory(&stream->builder);
    if (stream->pending > 0)
        memory += stream->ring_capacity * sizeof *stream->ring;
    stream->service->held_bytes += memory - stream->kept_counted;
    stream->kept_counted = memory;
}

static uint64_t service_held(const struct service *service)
{
    return service->held_bytes + engine_held_bytes(service->engine);
}

/* ---- confirmations ----------------------------------------------------------------------- */

static struct confirm *ring_at(struct insert_stream *stream, uint64_t number)
{
    return &stream->ring[number & (stream->ring_capacity - 1)];
}

static void ring_free(struct insert_stream *stream)
{
    stream->service->ring_bytes -= stream->ring_capacity * sizeof *stream->ring;
    free(stream->ring);
    stream->ring = NULL;
    stream->ring_capacity = 0;
    stream->first = stream->end;
}

static uint64_t ring_push(struct insert_stream *stream, uint64_t key, bool done)
{
    if (stream->end - stream->first == stream->ring_capacity) {
        uint32_t capacity = stream->ring_capacity ? 2 * stream->ring_capacity : 64;
        struct confirm *ring = xmalloc(capacity * sizeof *ring);
        for (uint64_t i = stream->first; i < stream->end; i++)
            ring[i & (capacity - 1)] = *ring_at(stream, i);
        stream->service->ring_bytes += (capacity - stream->ring_capacity) * sizeof *ring;
        free(stream->ring);
        stream->ring = ring;
        stream->ring_capacity = capacity;
    }
    *ring_at(stream, stream->end) = (struct confirm){key, done};
    return stream->end++;
}

/* A client that does not read its confirmations is not read either, until they are gone; nor is one
 * of which too many wait behind that of an item that waits. */
static void stream_read(struct insert_stream *stream)
{
    stream->unread = stream->end - stream->first >= INSERT_CONFIRMS_MAX ||
                     trp_server_call_queued(stream->call) >= INSERT_RESPONSES_MAX ||
                     trp_server_call_queued_bytes(stream->call) >= INSERT_RESPONSES_BYTES_MAX;
    if (!stream->unread && !stream->over && !stream->failed && !stream->half_closed)
        trp_server_call_read(stream->call);
}

static void stream_confirm(struct insert_stream *stream)
{
    struct wire_keys *keys = &stream->service->confirmed;
    trp_message *message;
    keys->count = 0;
    for (; stream->first < stream->end && ring_at(stream, stream->first)->done; ++stream->first)
        wire_push_key(keys, ring_at(stream, stream->first)->key);
    if (stream->first == stream->end && stream->service->ring_bytes > INSERT_RINGS_KEPT_BYTES)
        ring_free(stream);
    if (keys->count == 0)
        return;
    if (wire_insert_response_encode(keys, &message) == TRP_OK)
        trp_server_call_send(stream->call, message);
    else
        stream_fail(stream, TRP_RESOURCE_EXHAUSTED);
    if (stream->unread)
        stream_read(stream);
}

/* Nothing is confirmed any more, whatever becomes of the items that wait. */
static void stream_finish(struct insert_stream *stream, trp_status status, const char *text)
{
    stream->finished = true;
    trp_server_call_finish(stream->call, status, text);
    ring_free(stream);
}

static void stream_answer(struct insert_stream *stream)
{
    const char *text;
    trp_status lost = service_lost(stream->service, &text);
    if (stream->finished)
        return;
    if (lost != TRP_OK && stream->end > stream->first) {
        stream_finish(stream, lost, text);
    } else {
        stream_confirm(stream);
        if (stream->failed || (stream->half_closed && stream->first == stream->end))
            stream_finish(stream, stream->status, stream->text);
    }
    kept_count(stream);
}

void insert_streams_answer(struct service *service)
{
    for (struct insert_stream *stream;
         (stream = LIST_FIRST(&service->dirty, struct insert_stream, dirty_link));) {
        list_remove(&service->dirty, &stream->dirty_link);
        stream->dirty = false;
        stream_answer(stream);
    }
}

/* ---- lanes ------------------------------------------------------------------------------- */

/* Reverb's bound on queued inserts. */
static uint32_t lane_bound(const struct lane *lane)
{
    int64_t tenth = lane->table->facts->options->max_size / 10;
    return tenth < 1 ? 1 : tenth > LANE_INSERTS_MAX ? LANE_INSERTS_MAX : (uint32_t)tenth;
}

/* Of an item that waits already the newer copy stays: it shares its chunks with the items that the
 * writer sends next. */
static void lane_push(struct lane *lane, struct insert_stream *stream, struct item *item)
{
    struct pending_queue *queue = &lane->inserts;
    struct pending_insert *pending = pending_find(queue, item);
    if (pending) {
        engine_item_destroy(lane->service->engine, pending->item);
        pending->item = item;
    } else {
        pending = pending_push(queue, item, lane->state_ns);
        lane->service->held_bytes += pending->memory;
    }
    pending_join(queue, pending, stream, ring_push(stream, item->key, false));
    lane->service->held_bytes += sizeof *pending->owners;
    stream->pending++;
    stream->pending_bytes += pending->bytes;
    stream->over |= queue->count >= lane_bound(lane) ||
                    stream->pending_bytes >= PENDING_BYTES_MAX ||
                    service_held(lane->service) >= lane->service->held_bytes_max / 2;
    lane_move(lane);
}

static void stream_waits_less(struct insert_stream *stream, const struct pending_insert *pending)
{
    stream->pending--;
    stream->pending_bytes -= pending->bytes;
    stream->service->held_bytes -= sizeof *pending->owners;
}

static void stream_resume(struct insert_stream *stream, const struct pending_insert *pending)
{
    stream_waits_less(stream, pending);
    stream_mark_dirty(stream);
    if (!stream->over || stream->pending_bytes >= PENDING_BYTES_MAX)
        return;
    stream->over = false;
    stream_read(stream);
}

/* Out of the queue: the item was inserted, or else it goes; whoever waits for it is told. */
static void lane_finish(struct lane *lane, struct pending_insert *pending, trp_status status)
{
    lane->service->held_bytes -= pending->memory;
    if (status != TRP_OK)
        engine_item_destroy(lane->service->engine, pending->item);
    for (const struct pending_owner *owner = pending->owners; owner; owner = owner->next) {
        if (status != TRP_OK)
            stream_fail(owner->stream, status);
        else if (!owner->stream->finished)
            ring_at(owner->stream, owner->number)->done = true;
        stream_resume(owner->stream, pending);
    }
    pending_end(&lane->inserts, pending);
}

static void orphans_tell(const struct lane *lane, trp_log_level level, uint32_t count,
                         const char *reason)
{
    trp_log(level, "inserts of ended streams dropped table=%s count=%u reason=%s",
            lane->table->name, count, reason);
}

/* While there are more than `keep` and streams hold more than `held_max`, the oldest goes behind
 * those. `reason`: for the log, or NULL. */
static void orphans_drop(struct lane *lane, uint32_t keep, uint64_t held_max, const char *reason)
{
    uint32_t kept = 0, dropped = 0;
    LIST_EACH (struct pending_insert, pending, &lane->inserts.list, link) {
        if (lane->inserts.orphan_count <= keep || service_held(lane->service) <= held_max)
            break;
        if (pending->owners || kept++ < keep)
            continue;
        lane_finish(lane, pending, TRP_RESOURCE_EXHAUSTED);
        dropped++;
    }
    if (dropped > 0 && reason) /* as at the end of any run whose actors a limiter holds back */
        orphans_tell(lane, TRP_INFO, dropped, reason);
}

bool lane_insert_one(struct lane *lane)
{
    struct pending_insert *pending = pending_first(&lane->inserts);
    if (!pending || !engine_can_insert(lane->table))
        return false;
    bool orphan = !pending->owners;
    pending->item->unconfirmed = orphan;
    trp_status status = engine_insert(lane->service->engine, lane->table, pending->item);
    if (status != TRP_OK && orphan && lane->orphans_refused++ == 0)
        lane->orphans_reason = xstrdup(trp_last_error());
    lane_finish(lane, pending, status);
    if (lane->inserts.orphan_count == 0 && lane->orphans_refused > 0) {
        orphans_tell(lane, TRP_WARN, lane->orphans_refused,
                     lane->orphans_reason); /* one line for all */
        lane->orphans_refused = 0;
        free(lane->orphans_reason);
        lane->orphans_reason = NULL;
    }
    return true;
}

void lane_refuse_inserts(struct lane *lane, trp_status status)
{
    for (struct pending_insert *pending; (pending = pending_first(&lane->inserts));)
        lane_finish(lane, pending, status);
}

/* ---- messages ---------------------------------------------------------------------------- */

enum { INSERT_AHEAD = 8 };

static struct item *stream_make_item(const struct insert_stream *stream,
                                     const struct wire_item *wire)
{
    const struct trajectory_builder *builder = &stream->builder;
    struct item *item = engine_item_create(stream->service->engine, trajectory_built(builder),
                                           builder->chunks, builder->chunk_count);
    item->key = wire->key;
    item->priority = wire->priority;
    item->times_sampled = wire->times_sampled;
    item->policy_version = wire->policy_version;
    item->fingerprint = crc32c(0, wire->trajectory.data, wire->trajectory.size);
    item->fingerprint = crc32c(item->fingerprint, &item->priority, sizeof item->priority);
    return item;
}

/* The lane of the stream's next item, which mostly goes where the last one went. Its time is
 * counted as inserting from here to the message's end. NULL: NOT_FOUND. */
static struct lane *stream_lane(struct insert_stream *stream, trp_bytes table)
{
    struct service *service = stream->service;
    struct lane *lane = NULL;
    if (stream->table_index < engine_table_count(service->engine))
        lane = service->lanes[stream->table_index];
    if (!lane || !engine_table_is(lane->table, table))
        lane = service_lane(service, table);
    if (!lane || lane == service->inserted)
        return lane;
    stream->table_index = lane->table->index;
    if (service->inserted)
        lane_enter(service->inserted, service->inserted_from);
    service->inserted_from = lane->state;
    lane_enter(lane, LANE_INSERTING);
    service->inserted = lane;
    return lane;
}

static trp_status wire_item_insert(struct insert_stream *stream, struct wire_item *wire)
{
    struct service *service = stream->service;
    trp_status status =
        trajectory_build(&stream->builder, &service->insert.lists, wire, &stream->keep);
    if (status == TRP_INTERNAL)
        return status;
    struct lane *lane = stream_lane(stream, wire->table);
    if (!lane)
        return TRP_NOT_FOUND;
    TRP_TRY(status);
    if (wire->times_sampled < 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "times_sampled must not be negative (got %d).",
                        wire->times_sampled);
    TRP_TRY(engine_check_priority(lane->table, wire->priority));
    bool waits = pending_first(&lane->inserts) || !engine_can_insert(lane->table);
    struct item *item = stream_make_item(stream, wire);
    if (waits) {
        if (engine_ready(service->engine) && engine_take_known(service->engine, lane->table, item))
            ring_push(stream, wire->key, true);
        else
            lane_push(lane, stream, item);
        return TRP_OK;
    }
    status = engine_insert(service->engine, lane->table, item);
    if (status != TRP_OK) {
        engine_item_destroy(service->engine, item);
        return status;
    }
    ring_push(stream, wire->key, true);
    if (lane->samplers.first)
        lane_move(lane);
    return TRP_OK;
}

/* About the memory that the stream takes: items that wait may share chunks. */
static uint64_t stream_holds(const struct insert_stream *stream)
{
    return stream->keep.bytes + stream->kept_counted + stream->pending_bytes;
}

/* NULL: no stream holds anything. */
static struct insert_stream *holds_most(const struct service *service)
{
    struct insert_stream *most = LIST_FIRST(&service->inserting, struct insert_stream, link);
    LIST_EACH (struct insert_stream, each, &service->inserting, link)
        if (stream_holds(each) > stream_holds(most))
            most = each;
    return most && stream_holds(most) > 0 ? most : NULL;
}

/* Its items become orphans, of which each lane keeps so many. */
static void stream_leave_lanes(struct insert_stream *stream, uint32_t keep, const char *reason)
{
    struct service *service = stream->service;
    for (size_t i = 0; stream->pending && i < engine_table_count(service->engine); i++) {
        struct lane *lane = service->lanes[i];
        LIST_EACH (struct pending_insert, pending, &lane->inserts.list, link) {
            if (stream->pending == 0)
                break;
            for (uint32_t n = pending_leave(&lane->inserts, pending, stream); n > 0; n--)
                stream_waits_less(stream, pending);
        }
        orphans_drop(lane, keep, 0, reason);
    }
}

/* The chunks that it keeps for items to come go. */
static void stream_drop_kept(struct insert_stream *stream)
{
    keep_set_cleanup(&stream->keep, stream->service->engine);
    trajectory_builder_cleanup(&stream->builder);
    kept_count(stream);
}

/* All that it holds goes. */
static void stream_give_up(struct insert_stream *stream)
{
    struct service *service = stream->service;
    uint64_t held = service_held(service), most = service->held_bytes_max;
    if (stream->pending > 0) {
        stream_fail(stream, trp_fail(TRP_UNAVAILABLE,
                                     "items that wait for limiters take %" PRIu64
                                     " bytes of memory, more than the %" PRIu64
                                     " that the server holds: come again",
                                     held, most));
        int64_t now = clock_now_ns(&clock_monotonic);
        if (service->held_logged_ns == 0 ||
            now > service->held_logged_ns + ROOM_LINE_MS * INT64_C(1000000)) {
            service->held_logged_ns = now;
            trp_log(TRP_WARN, "writers are told to come again reason=%s", stream->text);
        }
    } else {
        stream_fail(stream,
                    trp_fail(TRP_RESOURCE_EXHAUSTED,
                             "insert streams keep %" PRIu64 " bytes of chunks that no item refers "
                             "to, more than the %" PRIu64 " that the server holds, and this one "
                             "has most: %" PRIu64,
                             held, most, stream_holds(stream)));
    }
    stream_leave_lanes(stream, 0, NULL);
    stream_drop_kept(stream);
}

static void held_bound(struct service *service, struct insert_stream *sender)
{
    if (service_held(service) <= service->held_bytes_max)
        return;
    /* Nobody waits for orphans; whoever sent them sends them again if it comes back. */
    for (size_t i = 0; i < engine_table_count(service->engine); i++)
        orphans_drop(service->lanes[i], 0, service->held_bytes_max - service->held_bytes_max / 8,
                     "items that wait for limiters take more memory than the server holds");
    while (service_held(service) > service->held_bytes_max) {
        struct insert_stream *stream = sender->pending ? sender : holds_most(service);
        if (!stream)
            return;
        stream_give_up(stream);
    }
}

static trp_status message_apply(struct insert_stream *stream, trp_message *message)
{
    struct service *service = stream->service;
    struct wire_insert_request *request = &service->insert;
    const trp_bytes *parts;
    size_t count = trp_message_parts(message, &parts);
    TRP_TRY(wire_insert_request_decode(parts, count, request));
    struct wire_lists *lists = &request->lists;
    if (lists->chunk_count == 0 && lists->item_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "ProcessIncomingRequest: Request lacks both chunks and item.  Request: ");
    if (request->hello.size > 0 && !stream->segment)
        stream->segment = shm_segment_offer(service, stream->call, request->hello);
    for (uint32_t i = 0; i < lists->chunk_count; i++) {
        struct wire_chunk *chunk = &lists->chunks[i];
        if (chunk->by_reference)
            TRP_TRY(wire_chunk_resolve(request, shm_segment_memory(stream->segment), chunk));
        TRP_TRY(keep_set_add(&stream->keep, service->engine, chunk));
    }
    if (lists->item_count > 0) {
        for (uint32_t i = 0; i < lists->item_count; i++) {
            const struct lane *lane = service->inserted; /* of the item before; of this, mostly */
            if (lane && !lane->dropped && i + INSERT_AHEAD < lists->item_count)
                engine_prefetch(service->engine, lane->table, lists->items[i + INSERT_AHEAD].key);
            TRP_TRY(wire_item_insert(stream, &lists->items[i]));
        }
        TRP_TRY(keep_set_release(&stream->keep, service->engine, &request->keep));
    }
    return TRP_OK;
}

/* ---- the call ---------------------------------------------------------------------------- */

static void insert_opened(void *service, trp_server_call *call)
{
    struct insert_stream *stream = xcalloc(1, sizeof *stream);
    stream->service = service;
    stream->call = call;
    list_push(&stream->service->inserting, &stream->link);
    trp_server_call_set_state(call, stream);
    trp_server_call_read(call);
}

static void insert_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct service *service = arg;
    struct insert_stream *stream = service_work(service, call);
    if (stream->failed) {
        trp_message_destroy(message);
        return;
    }
    trp_status status = service->broken;
    if (status == TRP_OK) {
        engine_set_time(service->engine, clock_wall_ns());
        status = message_apply(stream, message);
        trp_server_call_charge(call, service->insert.referenced_bytes / REFERENCED_BYTES_WEIGHT);
    } else {
        service_fail(service);
    }
    if (service->inserted)
        lane_enter(service->inserted, service->inserted_from);
    service->inserted = NULL;
    service_keep(service, message);
    while (service->insert.joined_count > 0)
        service_keep(service, service->insert.joined[--service->insert.joined_count]);
    stream_mark_dirty(stream);
    if (status != TRP_OK)
        stream_fail(stream, status);
    kept_count(stream);
    held_bound(service, stream);
    stream_read(stream);
}

static void insert_drained(void *service, trp_server_call *call)
{
    struct insert_stream *stream = trp_server_call_state(call);
    if (!stream->unread)
        return;
    ((struct service *)service)->worked = true;
    stream_read(stream);
}

static void insert_half_closed(void *arg, trp_server_call *call)
{
    struct insert_stream *stream = service_work(arg, call);
    stream->half_closed = true;
    stream_mark_dirty(stream);
}

static void insert_closed(void *arg, trp_server_call *call)
{
    struct service *service = arg;
    struct insert_stream *stream = service_work(service, call);
    list_remove(&service->inserting, &stream->link);
    if (stream->dirty)
        list_remove(&service->dirty, &stream->dirty_link);
    stream_leave_lanes(stream, INSERT_ORPHANS_MAX, "more of them wait than a table keeps");
    stream_drop_kept(stream);
    shm_segment_destroy(service, stream->segment);
    ring_free(stream);
    free(stream->text);
    free(stream);
}

const trp_raw_method insert_method = {.path = "/deepmind.reverb.ReverbService/InsertStream",
                                      .any_size = true,
                                      .in_parts = true,
                                      .opened = insert_opened,
                                      .received = insert_received,
                                      .half_closed = insert_half_closed,
                                      .drained = insert_drained,
                                      .closed = insert_closed};

const char *insert_stream_peer(const struct insert_stream *stream)
{
    return trp_server_call_peer(stream->call);
}
