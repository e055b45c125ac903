/* Problem: a learner on the server's host samples gigabytes a second that lie in a file which it
 * can read itself; sending them costs three copies.
 * Design: messages name pages of data.mdb (wire/shared_wire.h). What was told stays referenced, and
 * so is not recycled, until the client says that it is done with the message; the references that a
 * client has are its window. Releases come at any time, so requests are read all the time and add
 * up. A limiter's timeout does not end the stream, because that would end its lease: it is a
 * message, and begins a round.
 * Guarantee: before a reference is dropped that the client did not give back, its lease is revoked;
 * a client keeps its window at most, and not longer than lease_ms what nobody else keeps. */
#include "sample_stream.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/boot.h"
#include "core/alloc.h"
#include "limits.h"
#include "replay/wire/limits.h"

/* A message that the client has not released. */
struct unreleased {
    uint32_t chunks; /* of shared_stream.chunks, in order */
    uint64_t bytes;  /* of pages */
    uint64_t handed; /* items of the delivery up to here were in it or before */
};

struct shared_stream {
    struct sample_stream base;
    struct list_link link; /* in the service's list, while it has a lease */
    bool greeted, leased, paused;
    uint64_t page_bytes, piece_bytes;
    struct lane *lane;
    uint32_t lease_index;
    uint64_t window, window_used;
    uint64_t round, released;
    struct unreleased
        *unreleased; /* rings: [first, first + count) modulo capacity, a power of two */
    uint32_t unreleased_first, unreleased_count, unreleased_capacity;
    struct chunk **chunks; /* a reference each */
    uint32_t chunk_first, chunk_count, chunk_capacity;
    struct deadline probe_at; /* when to ask whether the oldest message is kept too long */
};

static struct shared_stream *shared_of(const struct sample_stream *stream)
{
    return (struct shared_stream *)((const char *)stream - offsetof(struct shared_stream, base));
}

/* ---- what the client was told ------------------------------------------------------------- */

/* Doubles a full ring. */
static void *ring_grow(void *ring, uint32_t *capacity, uint32_t *first, size_t size)
{
    uint32_t old = *capacity;
    *capacity = old ? 2 * old : 16;
    char *grown = xrealloc(ring, *capacity * size);
    /* [0, first) follows the end of what there was. */
    memcpy(grown + old * size, grown, *first * size);
    return grown;
}

static struct deadline lease_deadline(const struct shared_stream *stream)
{
    return deadline_in_ms(&clock_monotonic, stream->base.service->lease_ms);
}

static void unreleased_push(struct shared_stream *stream, struct unreleased told)
{
    if (stream->unreleased_count == stream->unreleased_capacity)
        stream->unreleased = ring_grow(stream->unreleased, &stream->unreleased_capacity,
                                       &stream->unreleased_first, sizeof *stream->unreleased);
    if (stream->unreleased_count == 0)
        stream->probe_at = lease_deadline(stream);
    uint32_t at =
        (stream->unreleased_first + stream->unreleased_count++) & (stream->unreleased_capacity - 1);
    stream->unreleased[at] = told;
    stream->window_used += told.bytes;
}

static void unreleased_push_chunk(struct shared_stream *stream, struct chunk *chunk)
{
    if (stream->chunk_count == stream->chunk_capacity)
        stream->chunks = ring_grow(stream->chunks, &stream->chunk_capacity, &stream->chunk_first,
                                   sizeof(struct chunk *));
    uint32_t at = (stream->chunk_first + stream->chunk_count++) & (stream->chunk_capacity - 1);
    stream->chunks[at] = chunk;
}

/* The oldest message is done with. */
static void unreleased_pop(struct shared_stream *stream)
{
    struct engine *engine = stream->base.service->engine;
    struct unreleased told = stream->unreleased[stream->unreleased_first];
    stream->unreleased_first = (stream->unreleased_first + 1) & (stream->unreleased_capacity - 1);
    stream->unreleased_count--;
    stream->window_used -= told.bytes;
    for (uint32_t i = 0; i < told.chunks; i++) {
        engine_chunk_unref(engine, stream->chunks[stream->chunk_first]);
        stream->chunk_first = (stream->chunk_first + 1) & (stream->chunk_capacity - 1);
        stream->chunk_count--;
    }
    engine_ack_until(engine, &stream->base.delivery, told.handed);
    stream->probe_at = lease_deadline(stream);
}

static void lease_revoke(struct shared_stream *stream)
{
    if (!stream->leased)
        return;
    stream->leased = false;
    engine_lease_end(stream->base.service->engine, stream->lease_index);
    while (stream->unreleased_count > 0)
        unreleased_pop(stream);
    list_remove(&stream->base.service->shared, &stream->link);
}

/* True when it keeps a chunk that nobody else keeps. */
static bool keeps_alone(const struct shared_stream *stream)
{
    for (uint32_t i = 0; i < stream->chunk_count; i++)
        if (stream->chunks[(stream->chunk_first + i) & (stream->chunk_capacity - 1)]->refs == 1)
            return true;
    return false;
}

int64_t shared_streams_expire(struct service *service)
{
    int64_t next_at = INT64_MAX;
    for (struct shared_stream *next,
         *stream = LIST_FIRST(&service->shared, struct shared_stream, link);
         stream; stream = next) {
        next = LIST_NEXT(stream, struct shared_stream, link);
        if (stream->unreleased_count == 0)
            continue;
        if (deadline_passed(stream->probe_at, &clock_monotonic)) {
            if (keeps_alone(stream)) {
                trp_log(TRP_WARN, "lease revoked, unused for %" PRId64 " ms peer=%s bytes=%" PRIu64,
                        service->lease_ms, trp_server_call_peer(stream->base.call),
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
    return (chunk->size + stream->piece_bytes - 1) / stream->piece_bytes * stream->page_bytes;
}

/* The same for an item of the first draws. */
static uint64_t drawn_page_bytes(const struct shared_stream *stream, const struct drawn *drawn)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < drawn->chunk_count; i++)
        bytes += chunk_page_bytes(stream, stream->base.first->chunks[drawn->chunk_first + i]);
    return bytes;
}

/* An item beyond the window is waited for until the window is empty; then what does not fit is
 * sent. */
static bool window_fits(const struct shared_stream *stream, uint64_t used, uint64_t bytes)
{
    return used == 0 || used + bytes <= stream->window;
}

static bool shared_full(const struct sample_stream *base)
{
    const struct shared_stream *stream = shared_of(base);
    if (sample_stream_full(base))
        return true;
    const struct draws *draws = base->first;
    return draws && draws->drawn_next < draws->drawn_count &&
           !window_fits(stream, stream->window_used,
                        drawn_page_bytes(stream, &draws->drawn[draws->drawn_next]));
}

/* Page numbers of the chunk and what is sent of it; the reference is kept if there are pages. */
static trp_status chunk_tell(struct shared_stream *stream, struct chunk *chunk,
                             struct unreleased *told)
{
    struct service *service = stream->base.service;
    struct shared_builder *builder = &service->builder;
    struct buffer *pages = &builder->pages, *bytes = &builder->bytes;
    struct shared_chunk at = {.size = chunk->size,
                              .page_first = (uint32_t)(pages->size / sizeof(uint64_t)),
                              .bytes_at = (uint32_t)bytes->size};
    if (bytes->size > UINT32_MAX - chunk->size)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "samples beyond 4 GiB in one message");
    if (stream->window_used + told->bytes + chunk_page_bytes(stream, chunk) > stream->window) {
        TRP_TRY(engine_chunk_read(service->engine, chunk, buffer_reserve(bytes, chunk->size)));
        bytes->size += chunk->size;
    } else {
        TRP_TRY(engine_chunk_locate(service->engine, chunk, pages, bytes));
    }
    at.pages = (uint32_t)(pages->size / sizeof(uint64_t)) - at.page_first;
    buffer_append(&builder->chunks, (trp_bytes){(const uint8_t *)&at, sizeof at});
    if (at.pages == 0)
        return TRP_OK;
    chunk_ref(chunk);
    unreleased_push_chunk(stream, chunk);
    told->chunks++;
    told->bytes += at.pages * stream->page_bytes;
    return TRP_OK;
}

static trp_status entry_tell(struct shared_stream *stream, const struct drawn *drawn,
                             struct unreleased *told)
{
    const struct draws *draws = stream->base.first;
    struct shared_builder *builder = &stream->base.service->builder;
    trp_bytes trajectory = {draws->trajectories.data + drawn->trajectory_at,
                            drawn->trajectory_size};
    struct shared_entry entry = {
        .key = drawn->info.key,
        .priority = drawn->info.priority,
        .probability = drawn->draw.probability,
        .table_size = drawn->draw.table_size,
        .policy_version = drawn->info.policy_version,
        .times_sampled = drawn->info.times_sampled,
        .rate_limited = drawn->draw.rate_limited,
        .trajectory = shared_builder_trajectory(builder, trajectory, drawn->chunk_count),
        .chunk_first = (uint32_t)(builder->chunks.size / sizeof(struct shared_chunk)),
    };
    buffer_append(&builder->entries, (trp_bytes){(const uint8_t *)&entry, sizeof entry});
    for (uint32_t i = 0; i < drawn->chunk_count; i++) {
        struct chunk *chunk = draws->chunks[drawn->chunk_first + i];
        trp_status status = chunk_tell(stream, chunk, told);
        if (status != TRP_OK)
            return engine_unreadable(stream->base.lane->table, drawn->info.key, chunk->seq, status);
    }
    told->handed = drawn->handed;
    return TRP_OK;
}

/* Entries of one message into the builder. */
static trp_status message_tell(struct shared_stream *stream, struct unreleased *told)
{
    struct draws *draws = stream->base.first;
    uint64_t bytes = 0;
    shared_builder_clear(&stream->base.service->builder);
    while (draws->drawn_next < draws->drawn_count && bytes <= SAMPLE_RESPONSE_BYTES_MAX) {
        const struct drawn *drawn = &draws->drawn[draws->drawn_next];
        uint64_t more = drawn_page_bytes(stream, drawn);
        if (bytes > 0 && !window_fits(stream, stream->window_used + told->bytes, more))
            break;
        TRP_TRY(entry_tell(stream, drawn, told));
        draws->drawn_next++;
        bytes += more;
    }
    return TRP_OK;
}

static trp_status shared_send(struct sample_stream *base)
{
    struct shared_stream *stream = shared_of(base);
    struct draws *draws = base->first;
    struct unreleased told = {.handed = stream->base.delivery.acked};
    trp_message *message = NULL;
    trp_status status = message_tell(stream, &told);
    uint32_t flags = draws->cold ? SHARED_COLD : 0;
    if (told.chunks > 0 || told.handed > base->delivery.acked)
        flags |= SHARED_RELEASE;
    if (status == TRP_OK)
        status = shared_samples_encode(&base->service->builder, flags, stream->round, &message);
    base->left = told.handed;
    unreleased_push(stream, told); /* also what was not sent has its references there */
    if (status != TRP_OK)
        return status;
    uint32_t end = draws->drawn_next < draws->drawn_count
                       ? draws->drawn[draws->drawn_next].chunk_first
                       : draws->chunk_count;
    while (draws->chunk_next < end)
        engine_chunk_unref(base->service->engine, draws->chunks[draws->chunk_next++]);
    trp_server_call_send(base->call, message);
    return TRP_OK;
}

static void shared_satisfied(struct sample_stream *stream)
{
    (void)stream; /* requests are read all the time */
}

static void shared_expired(struct sample_stream *base)
{
    struct shared_stream *stream = shared_of(base);
    trp_message *message;
    stream->round++;
    shared_builder_clear(&base->service->builder);
    trp_status status =
        shared_samples_encode(&base->service->builder, SHARED_EXPIRED, stream->round, &message);
    if (status != TRP_OK) {
        sample_stream_finish(base, status, trp_last_error());
        return;
    }
    unreleased_push(stream, (struct unreleased){.handed = stream->base.delivery.acked});
    trp_server_call_send(base->call, message);
}

static const struct sample_transport shared_transport = {.put_trajectory = shared_put_trajectory,
                                                         .full = shared_full,
                                                         .send = shared_send,
                                                         .satisfied = shared_satisfied,
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
    stream->lease_index = (uint32_t)welcome.layout.lease_index;
    stream->page_bytes = welcome.layout.page_bytes;
    stream->piece_bytes = welcome.layout.piece_bytes;
    stream->leased = true;
    stream->lane = lane;
    lane_use(lane);
    list_push(&service->shared, &stream->link);
    stream->window =
        hello.window < SHARED_WINDOW_BYTES_MAX ? hello.window : SHARED_WINDOW_BYTES_MAX;
    welcome.layout.window = stream->window;
    trp_message *message;
    TRP_TRY(shared_welcome_encode(&welcome, &message));
    trp_server_call_send(stream->base.call, message);
    stream->greeted = true;
    return TRP_OK;
}

static trp_status ask(struct shared_stream *stream, trp_bytes bytes)
{
    struct sample_stream *base = &stream->base;
    struct shared_ask ask;
    TRP_TRY(shared_ask_decode(bytes, &ask));
    if (ask.released < stream->released ||
        ask.released - stream->released > stream->unreleased_count)
        return trp_fail(TRP_INVALID_ARGUMENT, "the client releases what it was not given");
    for (; stream->released < ask.released; stream->released++)
        unreleased_pop(stream);
    if (ask.samples > 0 && ask.round == stream->round) {
        if (ask.samples > INT64_MAX - base->remaining)
            return trp_fail(TRP_INVALID_ARGUMENT, "the client asks for too many samples");
        if (base->lane)
            base->remaining += ask.samples;
        else
            sample_stream_ask(base, stream->lane, ask.samples,
                              ask.timeout_ms < 0 ? -1 : ask.timeout_ms);
    }
    sample_stream_continue(base);
    return TRP_OK;
}

void shared_opened(void *service, trp_server_call *call)
{
    struct shared_stream *stream = xcalloc(1, sizeof *stream);
    sample_stream_init(&stream->base, &shared_transport, service, call);
    trp_server_call_set_state(call, stream);
}

/* Whoever asks and does not take the answers is not heard until it does: each is kept for it. */
static void read_on(struct shared_stream *stream)
{
    stream->paused = trp_server_call_queued(stream->base.call) >= SAMPLE_RESPONSES_MAX;
    if (!stream->paused && !stream->base.finished)
        trp_server_call_read(stream->base.call);
}

void shared_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct shared_stream *stream = service_work(arg, call);
    trp_status status = TRP_OK;
    if (!stream->base.finished)
        status = stream->greeted ? ask(stream, message_bytes(message))
                                 : greet(stream, message_bytes(message));
    trp_message_destroy(message);
    if (status != TRP_OK)
        sample_stream_finish(&stream->base, status, trp_last_error());
    else
        read_on(stream);
}

void shared_half_closed(void *arg, trp_server_call *call)
{
    struct shared_stream *stream = service_work(arg, call);
    stream->base.half_closed = true;
    if (!stream->base.lane && !stream->base.finished)
        sample_stream_finish(&stream->base, TRP_OK, NULL);
}

void shared_drained(void *arg, trp_server_call *call)
{
    struct shared_stream *stream = service_work(arg, call);
    if (stream->paused)
        read_on(stream);
    sample_stream_drained(&stream->base);
}

void shared_closed(void *arg, trp_server_call *call)
{
    struct shared_stream *stream = service_work(arg, call);
    lease_revoke(stream);
    sample_stream_cleanup(&stream->base);
    if (stream->lane)
        lane_leave(stream->lane);
    free(stream->unreleased);
    free(stream->chunks);
    free(stream);
}
