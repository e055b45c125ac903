/* Problem: a sampler asks for n samples and wants them in few large messages, now if the limiter
 * allows it; samples that it does not take must not pile up here, and items that it was given
 * for the last time must not be forgotten before it has them.
 * Design: a stream waits in its table's lane. Its turn is a batch: draws until the limiter stops
 * it, 1 MiB of chunks or SAMPLE_BATCH_ITEMS_MAX (sample_draws.c). The batch leaves in messages of
 * about 2 MiB as the transport takes them, at most three queued; then the stream queues behind the
 * others for its next batch. It does so before, too, while it waits for the disk. A message
 * is sized first and the store copies small chunks straight into it; large ones it pins, so that
 * the transport sends them from where they lie (engine_message_fill()). Items out of their table
 * stay in the delivery until the stream asks for more or ends. Guarantee: never more samples than
 * asked for; nothing is drawn for a stream that has ended or does not take its messages; a timeout
 * ends a stream only when all that was drawn for it has left, and nothing since. */
#include "sample_stream.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/array.h"
#include "replay/engine/limits.h"
#include "limits.h"

/* ---- lanes ------------------------------------------------------------------------------- */

static struct sample_stream *lane_first(const struct lane *lane)
{
    return LIST_FIRST(&lane->samplers, struct sample_stream, request.link);
}

static void request_end(struct sample_stream *stream)
{
    if (stream->lane)
        lane_leave(stream->lane);
    stream->lane = NULL;
}

/* With trp_last_error(). */
static void request_refuse(struct sample_stream *stream, trp_status status)
{
    request_end(stream);
    sample_stream_finish(stream, status, trp_last_error());
}

/* Nothing will come any more: a stream is refused when the samples that it has have left. */
static bool lane_is_over(const struct lane *lane)
{
    return lane->dropped || service_is_lost(lane->service);
}

static void lane_append(struct sample_stream *stream, int64_t timeout_ms)
{
    struct lane *lane = stream->lane;
    if (lane_is_over(lane)) {
        trp_bytes name = {(const uint8_t *)lane->table->name, lane->table->name_size};
        request_refuse(stream,
                       lane->dropped ? engine_not_found(name) : service_fail(lane->service));
        return;
    }
    stream->deadline = deadline_in_ms(&clock_monotonic, stream->first ? -1 : timeout_ms);
    stream->queued_in = stream->service->group;
    stream->waiting = true;
    list_push(&lane->samplers, &stream->request.link);
    lane->timed_count += stream->timeout_ms >= 0;
    lane_move(lane);
}

static void lane_remove(struct sample_stream *stream)
{
    struct lane *lane = stream->lane;
    list_remove(&lane->samplers, &stream->request.link);
    stream->waiting = false;
    lane->timed_count -= stream->timeout_ms >= 0;
}

void sample_stream_finish(struct sample_stream *stream, trp_status status, const char *text)
{
    if (stream->waiting)
        lane_remove(stream);
    stream->finished = true;
    trp_server_call_finish(stream->request.call, status, text);
}

void lane_refuse_samples(struct lane *lane, trp_status status)
{
    for (struct sample_stream *stream; (stream = lane_first(lane));) {
        lane_remove(stream);
        if (!stream->first) /* else when its samples have left */
            request_refuse(stream, status);
    }
}

int64_t lane_expire(struct lane *lane, int64_t now_ns)
{
    int64_t first = INT64_MAX;
    LIST_EACH (struct sample_stream, stream, &lane->samplers, request.link) {
        if (stream->deadline.at_ns > now_ns) {
            first = stream->deadline.at_ns < first ? stream->deadline.at_ns : first;
            continue;
        }
        lane_remove(stream);
        request_end(stream);
        stream->request.remaining = 0;
        stream->transport->expired(stream);
    }
    return first;
}

/* ---- one batch after the other ----------------------------------------------------------- */

static int64_t timeout_after_batch(const struct sample_stream *stream)
{
    int64_t grace_ms = stream->transport->grace_ms;
    return stream->timeout_ms >= 0 && stream->timeout_ms < grace_ms ? grace_ms : stream->timeout_ms;
}

bool sample_stream_full(const struct sample_stream *stream)
{
    return trp_server_call_queued(stream->request.call) >= SAMPLE_RESPONSES_MAX ||
           !trp_server_call_room(stream->request.call);
}

/* Messages of samples in memory, as far as the transport takes them. False: the stream ended. */
static bool send_ready(struct sample_stream *stream)
{
    while (stream->first && !stream->first->fetching && !stream->transport->full(stream)) {
        /* Of items that cannot be had a batch may be empty. */
        trp_status status =
            stream->first->drawn_count > 0 ? stream->transport->send(stream) : TRP_OK;
        if (status != TRP_OK) {
            lane_move(stream->lane); /* an item that cannot be read has left the table */
            sample_stream_finish(stream, status, trp_last_error());
            return false;
        }
        if (stream->first->drawn_next == stream->first->drawn_count)
            sample_stream_drop_first(stream);
    }
    return true;
}

/* While it waits for the disk, and only then, it may have more on its way. */
static bool may_draw(const struct sample_stream *stream)
{
    if (stream->transport->full(stream))
        return false;
    return !stream->first || (stream->first->fetching && !lane_is_over(stream->lane) &&
                              stream->fetching_bytes < SAMPLE_AHEAD_BYTES_MAX);
}

void sample_stream_continue(struct sample_stream *stream)
{
    if (stream->finished || !stream->lane)
        return;
    bool had_draws = stream->first != NULL;
    if (!send_ready(stream))
        return;
    if (stream->waiting) {
        if (had_draws && !stream->first)
            stream->deadline = deadline_in_ms(&clock_monotonic, timeout_after_batch(stream));
        return;
    }
    if (stream->request.remaining > 0) {
        if (may_draw(stream))
            lane_append(stream, timeout_after_batch(stream));
        return;
    }
    if (stream->first)
        return;
    request_end(stream);
    if (stream->half_closed)
        sample_stream_finish(stream, TRP_OK, NULL);
    else if (stream->transport->satisfied)
        stream->transport->satisfied(stream);
}

void sample_stream_drained(struct sample_stream *stream)
{
    if (stream->delivery.count >= SAMPLE_UNACKED_MAX &&
        trp_server_call_queued(stream->request.call) == 0)
        engine_ack(stream->service->engine, &stream->delivery, stream->left);
    sample_stream_continue(stream);
}

bool lane_sample_batch(struct lane *lane)
{
    struct sample_stream *stream = lane_first(lane);
    if (!stream || !engine_can_sample(lane->table))
        return false;
    lane_remove(stream);
    if (may_draw(stream)) /* as when it came: others may have filled the room since */
        sample_stream_draw(stream);
    sample_stream_continue(stream);
    return true;
}

/* ---- life -------------------------------------------------------------------------------- */

void sample_stream_init(struct sample_stream *stream, const struct sample_transport *transport,
                        struct service *service, trp_server_call *call)
{
    stream->transport = transport;
    stream->service = service;
    stream->request.call = call;
    trp_server_call_set_state(call, stream);
    trp_server_call_read(call);
}

void sample_stream_ask(struct sample_stream *stream, struct lane *lane, int64_t count,
                       int64_t timeout_ms)
{
    assert(!stream->lane);
    stream->lane = lane;
    lane->users++;
    delivery_begin(&stream->delivery);
    stream->request.remaining = count;
    stream->timeout_ms = timeout_ms;
    stream->request.since_ns = clock_now_ns(&clock_monotonic);
    lane_append(stream, timeout_ms);
}

/* ---- Reverb's SampleStream --------------------------------------------------------------- */

static void reverb_put_trajectory(const struct item *item, struct buffer *out)
{
    trajectory_encode(item->trajectory, item->chunks, out);
}

/* A message on its way into service->parts and slots. */
struct cut {
    uint32_t parts, slots;
    size_t bytes;
    uint64_t room; /* for bytes that are pinned */
    bool pins;
};

static struct wire_slot chunk_cut(const struct chunk *chunk, struct cut *cut)
{
    struct wire_slot slot = {.key = chunk->seq, .size = chunk->size};
    size_t pinnable = cut->room > 0 ? engine_chunk_pinnable(chunk) : 0;
    if (pinnable > 0 && pinnable <= cut->room) {
        slot.elsewhere = pinnable;
        cut->room -= pinnable;
        cut->pins = true;
    }
    cut->bytes += chunk->size;
    return slot;
}

/* One SampleEntry of the sample at drawn_next: all of it, or as much as still fits. */
static void entry_cut(struct sample_stream *stream, struct wire_entry_parts *parts, struct cut *cut)
{
    struct service *service = stream->service;
    struct draws *draws = stream->first;
    const struct drawn *drawn = &draws->drawn[draws->drawn_next];
    uint32_t end = drawn->chunk_first + drawn->chunk_count;
    *parts = (struct wire_entry_parts){.draw = drawn->draw};
    if (draws->chunk_next == drawn->chunk_first)
        parts->item = &drawn->info;
    parts->slots = service->slots + cut->slots;
    while (draws->chunk_next < end && cut->bytes <= SAMPLE_RESPONSE_BYTES_MAX) {
        service->slots[cut->slots++] = chunk_cut(draws->chunks[draws->chunk_next++], cut);
        parts->slot_count++;
    }
    parts->end_of_sequence = draws->chunk_next == end;
    draws->drawn_next += parts->end_of_sequence;
    cut->bytes += parts->item ? parts->item->trajectory.size : 0;
}

/* Entries for one message. Chunks that were on the disk may be there only again before they
 * leave: the transport must not wait for them, so they are copied now. */
static struct cut message_cut(struct sample_stream *stream)
{
    struct service *service = stream->service;
    struct draws *draws = stream->first;
    struct cut cut = {.room = draws->cold ? 0 : engine_pin_room(service->engine)};
    while (service->slot_capacity < draws->chunk_count - draws->chunk_next)
        service->slots =
            array_grow(service->slots, &service->slot_capacity, sizeof *service->slots);
    while (draws->drawn_next < draws->drawn_count && cut.bytes <= SAMPLE_RESPONSE_BYTES_MAX) {
        entry_cut(stream, ARRAY_PUSH(service->parts, cut.parts, service->part_capacity), &cut);
    }
    return cut;
}

/* Everything into the message, whose chunks' references are taken. */
static trp_status message_fill(struct sample_stream *stream, uint32_t first, bool pins,
                               trp_message *message)
{
    struct service *service = stream->service;
    const struct draws *draws = stream->first;
    const struct drawn *drawn = draws->drawn;
    uint32_t damaged;
    trp_status status =
        engine_message_fill(service->engine, message, pins, service->slots, draws->chunks + first,
                            draws->chunk_next - first, &damaged);
    if (status == TRP_OK)
        return TRP_OK;
    while (drawn->chunk_first + drawn->chunk_count <= first + damaged)
        drawn++;
    return engine_unreadable(stream->lane->table, drawn->info.key, service->slots[damaged].key,
                             status);
}

static trp_status reverb_send(struct sample_stream *stream)
{
    struct draws *draws = stream->first;
    uint32_t first = draws->chunk_next;
    trp_message *message = NULL;
    struct cut cut = message_cut(stream);
    trp_status status = wire_sample_response_encode(stream->service->parts, cut.parts, &message);
    if (status == TRP_OK)
        status = message_fill(stream, first, cut.pins, message);
    else
        draws->chunk_next = first; /* their references are still ours */
    if (status != TRP_OK) {
        trp_message_destroy(message);
        return status;
    }
    if (draws->drawn_next > 0)
        stream->left = draws->drawn[draws->drawn_next - 1].handed;
    trp_server_call_send(stream->request.call, message);
    return TRP_OK;
}

static void reverb_satisfied(struct sample_stream *stream)
{
    trp_server_call_read(stream->request.call);
}

/* Reverb's words, "insert" included. */
static void reverb_expired(struct sample_stream *stream)
{
    sample_stream_finish(stream, TRP_DEADLINE_EXCEEDED,
                         "Rate Limiter: Timeout exceeded before the right to insert was acquired.");
}

static const struct sample_transport reverb_transport = {.put_trajectory = reverb_put_trajectory,
                                                         .full = sample_stream_full,
                                                         .send = reverb_send,
                                                         .satisfied = reverb_satisfied,
                                                         .expired = reverb_expired,
                                                         .grace_ms = SAMPLE_GRACE_MS};

static void sample_opened(void *service, trp_server_call *call)
{
    struct sample_stream *stream = xcalloc(1, sizeof *stream);
    sample_stream_init(stream, &reverb_transport, service, call);
}

static trp_status request_begin(struct sample_stream *stream, trp_bytes bytes)
{
    struct wire_sample_request request;
    TRP_TRY(wire_sample_request_decode(bytes, &request));
    if (request.num_samples <= 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "`num_samples` must be > 0 (got%" PRId64 ").",
                        request.num_samples);
    struct lane *lane = service_lane(stream->service, request.table);
    if (!lane)
        return TRP_NOT_FOUND;
    sample_stream_ask(stream, lane, request.num_samples,
                      request.has_timeout && request.timeout_ms >= 0 ? request.timeout_ms : -1);
    return TRP_OK;
}

static void sample_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct service *service = arg;
    struct sample_stream *stream = service_work(service, call);
    assert(!stream->lane); /* it was not read on */
    engine_ack(service->engine, &stream->delivery, delivery_end(&stream->delivery));
    trp_status status = request_begin(stream, message_bytes(message));
    trp_message_destroy(message);
    if (status != TRP_OK)
        sample_stream_finish(stream, status, trp_last_error());
}

void sample_half_closed(void *arg, trp_server_call *call)
{
    struct sample_stream *stream = service_work(arg, call);
    stream->half_closed = true;
    if (!stream->lane && !stream->finished)
        sample_stream_finish(stream, TRP_OK, NULL);
}

static void sample_drained(void *arg, trp_server_call *call)
{
    sample_stream_drained(service_work(arg, call));
}

void sample_closed(void *arg, trp_server_call *call)
{
    struct sample_stream *stream = service_work(arg, call);
    if (stream->waiting)
        lane_remove(stream);
    engine_ack(stream->service->engine, &stream->delivery, delivery_end(&stream->delivery));
    delivery_cleanup(&stream->delivery);
    sample_stream_drop_draws(stream);
    request_end(stream);
    free(stream);
}

const trp_raw_method sample_method = {.path = "/deepmind.reverb.ReverbService/SampleStream",
                                      .any_size = true,
                                      .opened = sample_opened,
                                      .received = sample_received,
                                      .half_closed = sample_half_closed,
                                      .drained = sample_drained,
                                      .closed = sample_closed};
