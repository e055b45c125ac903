/* Problem: a learner on the server's host samples gigabytes a second that lie in a file which it
 * can read itself; sending them costs three copies.
 * Design: messages name pages of data.mdb (wire/shared_wire.h). A chunk whose pages were named
 * stays referenced, and so is not recycled, until the client releases the message; the pages that a
 * client has not released are its window. Releases come at any time, so requests are read all the
 * time and add up. A limiter's timeout does not end the stream, because that would end its lease:
 * it is a message, and begins a round. A chunk of an earlier life that nobody has compared with its
 * sum is named all the same: to look at it costs the server as much as a copy, and its client, who
 * copies it, next to nothing. Each client compares for itself; what one reports is looked at here.
 * Guarantee: before a reference is dropped that the client did not give back, its lease is revoked;
 * a client keeps its window at most, and chunks that nobody else keeps not longer than lease_ms. */
#include "sample_stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/boot.h"
#include "core/alloc.h"
#include "limits.h"
#include "replay/wire/limits.h"

/* A message that keeps chunks, or items in the delivery, until the client has released it. The
 * others need none. */
struct unreleased {
    struct list_link link;
    uint64_t number; /* of the message in the stream, from 1 */
    uint64_t bytes;  /* of the window: its pages; of a message without any, this struct */
    uint64_t handed; /* items of the delivery up to here were in it or before */
    uint32_t chunk_count;
    struct chunk *chunks[]; /* a reference each */
};

struct shared_stream {
    struct sample_stream base;
    struct list_link link; /* in the service's list, while it has a lease */
    bool leased;
    struct shared_layout layout; /* as its client knows it */
    struct lane *lane;           /* NULL: no hello has come */
    uint64_t window_used;        /* of layout.window */
    uint64_t round;
    uint64_t sent, released;  /* messages */
    struct list unreleased;   /* oldest first */
    struct deadline probe_at; /* when to ask whether the oldest message is kept too long */
};
_Static_assert(offsetof(struct shared_stream, base) == 0, "both are the state of their call");

static struct shared_stream *shared_of(const struct sample_stream *stream)
{
    return (struct shared_stream *)(const void *)stream;
}

/* ---- messages that were not released ------------------------------------------------------ */

static struct unreleased *unreleased_first(const struct shared_stream *stream)
{
    return LIST_FIRST(&stream->unreleased, struct unreleased, link);
}

static struct deadline lease_deadline(const struct shared_stream *stream)
{
    return deadline_in_ms(&clock_monotonic, stream->base.service->lease_ms);
}

/* Takes it; most need less than there was room for. */
static void unreleased_push(struct shared_stream *stream, struct unreleased *message)
{
    if (message->chunk_count == 0 && message->handed == stream->base.delivery.acked) {
        free(message);
        return;
    }
    message = xrealloc(message, sizeof *message + message->chunk_count * sizeof(struct chunk *));
    if (message->bytes == 0)
        message->bytes = sizeof *message;
    if (!unreleased_first(stream))
        stream->probe_at = lease_deadline(stream);
    list_push(&stream->unreleased, &message->link);
    stream->window_used += message->bytes;
}

/* The oldest is done with. */
static void unreleased_pop(struct shared_stream *stream)
{
    struct engine *engine = stream->base.service->engine;
    struct unreleased *message = unreleased_first(stream);
    list_remove(&stream->unreleased, &message->link);
    stream->window_used -= message->bytes;
    for (uint32_t i = 0; i < message->chunk_count; i++)
        engine_chunk_unref(engine, message->chunks[i]);
    engine_ack(engine, &stream->base.delivery, message->handed);
    free(message);
    stream->probe_at = lease_deadline(stream);
}

static void lease_revoke(struct shared_stream *stream)
{
    if (!stream->leased)
        return;
    stream->leased = false;
    engine_lease_end(stream->base.service->engine, (uint32_t)stream->layout.lease_index);
    while (unreleased_first(stream))
        unreleased_pop(stream);
    list_remove(&stream->base.service->shared, &stream->link);
}

/* True when it keeps a chunk that nobody else keeps. */
static bool keeps_alone(const struct shared_stream *stream)
{
    LIST_EACH (const struct unreleased, each, &stream->unreleased, link)
        for (uint32_t i = 0; i < each->chunk_count; i++)
            if (each->chunks[i]->refs == 1)
                return true;
    return false;
}

int64_t shared_streams_expire(struct service *service)
{
    int64_t next_at = INT64_MAX;
    LIST_EACH (struct shared_stream, stream, &service->shared, link) {
        if (!unreleased_first(stream))
            continue;
        if (deadline_passed(stream->probe_at, &clock_monotonic)) {
            if (keeps_alone(stream)) {
                trp_log(TRP_WARN, "lease revoked, unused for %" PRId64 " ms peer=%s bytes=%" PRIu64,
                        service->lease_ms, trp_server_call_peer(stream->base.request.call),
                        stream->window_used);
                lease_revoke(stream);
                sample_stream_finish(&stream->base, TRP_ABORTED, "the lease was revoked");
                continue;
            }
            stream->probe_at = lease_deadline(stream);
        }
        next_at = stream->probe_at.at_ns < next_at ? stream->probe_at.at_ns : next_at;
    }
    return next_at;
}

/* ---- sending ----------------------------------------------------------------------------- */

static void shared_put_trajectory(const struct item *item, struct buffer *out)
{
    buffer_append(out, (trp_bytes){item->trajectory->bytes, item->trajectory->size});
}

/* Bytes of pages that the chunk has at most. */
static uint64_t chunk_page_bytes(const struct shared_stream *stream, const struct chunk *chunk)
{
    return (chunk->size + stream->layout.piece_bytes - 1) / stream->layout.piece_bytes *
           stream->layout.page_bytes;
}

/* The same for an item of the first draws. */
static uint64_t drawn_page_bytes(const struct shared_stream *stream, const struct drawn *drawn)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < drawn->chunk_count; i++)
        bytes += chunk_page_bytes(stream, stream->base.first->chunks[drawn->chunk_first + i]);
    return bytes;
}

/* An item beyond the window waits until it is empty; then chunks that do not fit are sent. */
static bool window_fits(const struct shared_stream *stream, uint64_t used, uint64_t bytes)
{
    return used == 0 || used + bytes <= stream->layout.window;
}

static bool shared_full(const struct sample_stream *base)
{
    const struct shared_stream *stream = shared_of(base);
    const struct draws *draws = base->first;
    if (sample_stream_full(base))
        return true;
    return draws && draws->drawn_next < draws->drawn_count &&
           !window_fits(stream, stream->window_used,
                        drawn_page_bytes(stream, &draws->drawn[draws->drawn_next]));
}

/* The chunk's page numbers, and bytes that are sent of it; with pages the message keeps it. */
static trp_status shared_put_chunk(struct shared_stream *stream, struct chunk *chunk,
                                   struct unreleased *message)
{
    struct service *service = stream->base.service;
    struct shared_builder *builder = &service->builder;
    struct buffer *pages = &builder->arrays[SHARED_PAGES];
    struct buffer *bytes = &builder->arrays[SHARED_BYTES];
    struct shared_chunk at = {.size = chunk->size,
                              .page_first = (uint32_t)(pages->size / sizeof(uint64_t)),
                              .bytes_at = (uint32_t)bytes->size};
    if (bytes->size > UINT32_MAX - chunk->size)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "samples beyond 4 GiB in one message");
    if (stream->window_used + message->bytes + chunk_page_bytes(stream, chunk) >
        stream->layout.window) {
        TRP_TRY(engine_chunk_read(service->engine, chunk, buffer_reserve(bytes, chunk->size)));
        bytes->size += chunk->size;
    } else {
        TRP_TRY(engine_chunk_locate(service->engine, chunk, pages, bytes));
    }
    at.pages = ((uint32_t)(pages->size / sizeof(uint64_t)) - at.page_first) & INT32_MAX;
    at.unchecked = chunk->unchecked;
    buffer_append(&builder->arrays[SHARED_CHUNKS], span_of(&at, sizeof at));
    if (at.pages == 0)
        return TRP_OK;
    chunk_ref(chunk);
    message->chunks[message->chunk_count++] = chunk;
    message->bytes += at.pages * stream->layout.page_bytes;
    return TRP_OK;
}

static trp_status shared_put_entry(struct shared_stream *stream, const struct drawn *drawn,
                                   struct unreleased *message)
{
    const struct draws *draws = stream->base.first;
    struct shared_builder *builder = &stream->base.service->builder;
    struct shared_entry entry = {
        .key = drawn->info.key,
        .priority = drawn->info.priority,
        .probability = drawn->draw.probability,
        .table_size = drawn->draw.table_size,
        .policy_version = drawn->info.policy_version,
        .times_sampled = drawn->info.times_sampled,
        .rate_limited = drawn->draw.rate_limited,
        .trajectory =
            shared_builder_trajectory(builder, drawn->info.trajectory, drawn->chunk_count),
        .chunk_first =
            (uint32_t)(builder->arrays[SHARED_CHUNKS].size / sizeof(struct shared_chunk)),
    };
    buffer_append(&builder->arrays[SHARED_ENTRIES], span_of(&entry, sizeof entry));
    for (uint32_t i = 0; i < drawn->chunk_count; i++) {
        struct chunk *chunk = draws->chunks[drawn->chunk_first + i];
        trp_status status = shared_put_chunk(stream, chunk, message);
        if (status != TRP_OK)
            return engine_unreadable(stream->base.lane->table, drawn->info.key, chunk->seq, status);
    }
    message->handed = drawn->handed;
    return TRP_OK;
}

/* Entries of one message into the builder. */
static trp_status shared_put_entries(struct shared_stream *stream, struct unreleased *message)
{
    struct draws *draws = stream->base.first;
    uint64_t bytes = 0;
    shared_builder_clear(&stream->base.service->builder);
    while (draws->drawn_next < draws->drawn_count && bytes <= SAMPLE_RESPONSE_BYTES_MAX) {
        const struct drawn *drawn = &draws->drawn[draws->drawn_next];
        uint64_t more = drawn_page_bytes(stream, drawn);
        if (bytes > 0 && !window_fits(stream, stream->window_used + message->bytes, more))
            break;
        TRP_TRY(shared_put_entry(stream, drawn, message));
        draws->drawn_next++;
        bytes += more;
    }
    return TRP_OK;
}

static trp_status shared_send(struct sample_stream *base)
{
    struct shared_stream *stream = shared_of(base);
    struct draws *draws = base->first;
    uint32_t chunks_max = draws->chunk_count - draws->chunk_next;
    struct unreleased *kept = xmalloc(sizeof *kept + chunks_max * sizeof(struct chunk *));
    *kept = (struct unreleased){.number = ++stream->sent, .handed = base->delivery.acked};
    trp_message *message = NULL;
    trp_status status = shared_put_entries(stream, kept);
    uint32_t flags = draws->cold ? SHARED_COLD : 0;
    if (kept->chunk_count > 0 || kept->handed > base->delivery.acked)
        flags |= SHARED_RELEASE;
    if (status == TRP_OK)
        status = shared_samples_encode(&base->service->builder, flags, stream->round, &message);
    base->left = kept->handed;
    unreleased_push(stream, kept); /* also a message that is not sent has references */
    TRP_TRY(status);
    uint32_t end = draws->drawn_next < draws->drawn_count
                       ? draws->drawn[draws->drawn_next].chunk_first
                       : draws->chunk_count;
    while (draws->chunk_next < end)
        engine_chunk_unref(base->service->engine, draws->chunks[draws->chunk_next++]);
    trp_server_call_send(base->request.call, message);
    return TRP_OK;
}

static void shared_expired(struct sample_stream *base)
{
    struct shared_stream *stream = shared_of(base);
    trp_message *message;
    stream->round++;
    stream->sent++;
    shared_builder_clear(&base->service->builder);
    trp_status status =
        shared_samples_encode(&base->service->builder, SHARED_EXPIRED, stream->round, &message);
    if (status == TRP_OK)
        trp_server_call_send(base->request.call, message);
    else
        sample_stream_finish(base, status, trp_last_error());
}

static const struct sample_transport shared_transport = {.put_trajectory = shared_put_trajectory,
                                                         .full = shared_full,
                                                         .send = shared_send,
                                                         .expired = shared_expired};

/* ---- the call ---------------------------------------------------------------------------- */

static trp_status greet(struct shared_stream *stream, trp_bytes bytes)
{
    struct service *service = stream->base.service;
    struct shared_hello hello;
    struct shared_welcome welcome;
    char boot_id[BOOT_ID_BYTES];
    TRP_TRY(shared_hello_decode(bytes, &hello));
    boot_id_read(boot_id);
    if (memcmp(boot_id, hello.boot_id, sizeof boot_id) != 0)
        return trp_fail(TRP_FAILED_PRECONDITION, "the client is on another host");
    if (service->no_share)
        return trp_fail(TRP_FAILED_PRECONDITION, "this server shares its files with nobody");
    struct lane *lane = service_lane(service, hello.table);
    if (!lane)
        return TRP_NOT_FOUND;
    TRP_TRY(engine_lease_begin(service->engine, &welcome));
    welcome.layout.window =
        hello.window < SHARED_WINDOW_BYTES_MAX ? hello.window : SHARED_WINDOW_BYTES_MAX;
    stream->layout = welcome.layout;
    stream->leased = true;
    stream->lane = lane;
    lane->users++;
    list_push(&service->shared, &stream->link);
    trp_message *message;
    TRP_TRY(shared_welcome_encode(&welcome, &message));
    trp_server_call_send(stream->base.request.call, message);
    return TRP_OK;
}

/* A client says so of item `key`, in the first message that it did not release: is it? */
static trp_status damage_reported(const struct shared_stream *stream, uint64_t key)
{
    struct service *service = stream->base.service;
    const struct unreleased *message = unreleased_first(stream);
    for (uint32_t i = 0; message && i < message->chunk_count; i++) {
        struct chunk *chunk = message->chunks[i];
        struct buffer *bytes = &service->builder.arrays[SHARED_BYTES];
        if (!chunk->unchecked)
            continue;
        shared_builder_clear(&service->builder);
        trp_status status =
            engine_chunk_read(service->engine, chunk, buffer_reserve(bytes, chunk->size));
        if (status != TRP_OK)
            return engine_unreadable(stream->lane->table, key, chunk->seq, status);
    }
    return trp_fail(TRP_ABORTED, "no chunk of the first message that is kept is damaged");
}

static trp_status ask(struct shared_stream *stream, trp_bytes bytes)
{
    struct sample_stream *base = &stream->base;
    struct shared_ask ask;
    TRP_TRY(shared_ask_decode(bytes, &ask));
    if (ask.released < stream->released || ask.released > stream->sent)
        return trp_fail(TRP_INVALID_ARGUMENT, "the client releases what it was not given");
    stream->released = ask.released;
    for (struct unreleased *first;
         (first = unreleased_first(stream)) && first->number <= stream->released;)
        unreleased_pop(stream);
    if (ask.damaged)
        return damage_reported(stream, ask.key);
    if (ask.samples > 0 && ask.round == stream->round) {
        if (ask.samples > INT64_MAX - base->request.remaining)
            return trp_fail(TRP_INVALID_ARGUMENT, "the client asks for too many samples");
        if (base->lane)
            base->request.remaining += ask.samples;
        else
            sample_stream_ask(base, stream->lane, ask.samples,
                              ask.timeout_ms < 0 ? -1 : ask.timeout_ms);
    }
    sample_stream_continue(base);
    return TRP_OK;
}

static void shared_opened(void *service, trp_server_call *call)
{
    struct shared_stream *stream = xcalloc(1, sizeof *stream);
    sample_stream_init(&stream->base, &shared_transport, service, call);
}

/* Whoever asks and does not take the answers is not heard until it does: each is kept for it. */
static void read_on(const struct shared_stream *stream)
{
    if (!stream->base.finished &&
        trp_server_call_queued(stream->base.request.call) < SAMPLE_RESPONSES_MAX)
        trp_server_call_read(stream->base.request.call);
}

static void shared_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct shared_stream *stream = service_work(arg, call);
    trp_bytes bytes = message_bytes(message);
    trp_status status = TRP_OK;
    if (!stream->base.finished)
        status = stream->lane ? ask(stream, bytes) : greet(stream, bytes);
    trp_message_destroy(message);
    if (status != TRP_OK)
        sample_stream_finish(&stream->base, status, trp_last_error());
    else
        read_on(stream);
}

static void shared_drained(void *arg, trp_server_call *call)
{
    struct shared_stream *stream = service_work(arg, call);
    read_on(stream);
    sample_stream_drained(&stream->base);
}

static void shared_closed(void *arg, trp_server_call *call)
{
    struct shared_stream *stream = service_work(arg, call);
    struct lane *lane = stream->lane;
    lease_revoke(stream);
    sample_closed(arg, call);
    if (lane)
        lane_leave(lane);
}

const trp_raw_method shared_method = {.path = "/troupe.Replay/SampleShared",
                                      .any_size = true,
                                      .opened = shared_opened,
                                      .received = shared_received,
                                      .half_closed = sample_half_closed,
                                      .drained = shared_drained,
                                      .closed = shared_closed};
