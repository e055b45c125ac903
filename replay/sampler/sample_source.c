/* Problem: a server may be on this host or not, new or old, ours or Reverb's, and the sampler does
 * not know before it has asked.
 * Design: the first stream asked for is SampleShared; a server that has no such method, cannot see
 * us or whose files we cannot read makes it an ordinary stream, until the server goes away. Both
 * kinds differ in how a request is written and a message is read. Requests go ahead: the server
 * reads one when the one before is satisfied (of SampleShared, at once), so that it is busy while
 * ours are unpacked. A message of SampleShared is released together with the next request, or
 * before we wait; when its lease was revoked, because nothing was released for long, the stream is
 * opened again and nobody is told.
 * Guarantee: rows that are in a batch stay valid, however the stream ends; never more samples come
 * than were asked for. */
#include "sample_source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/boot.h"
#include "core/alloc.h"
#include "limits.h"
#include "replay/wire/wire.h"

static const char ordinary_path[] = "/deepmind.reverb.ReverbService/SampleStream";
static const char shared_path[] = "/troupe.Replay/SampleShared";

/* Reverb's words, which tell a limiter's timeout from any other deadline. */
static const char limiter_timeout_text[] =
    "Timeout exceeded before the right to insert was acquired";

/* ---- opening ----------------------------------------------------------------------------- */

/* Samples that were asked for and will not come may be asked for again. */
static void forget_requests(struct sample_source *source)
{
    atomic_fetch_add(&source->sampling->budget, source->requested);
    source->requested = 0;
}

/* Forgets the state of a stream that is over. */
static void forget_stream(struct sample_source *source)
{
    unpacker_reset(source->unpacker);
    shared_view_close(source->view);
    source->view = NULL;
    forget_requests(source);
    source->on_stream = 0;
    source->refused = source->greeting = source->release_soon = source->damaged = false;
    source->round = source->released = source->reported = 0;
}

static trp_status send_hello(struct sample_source *source, struct deadline deadline, bool *ended)
{
    struct shared_hello hello = {
        .window = SHARED_WINDOW_BYTES,
        .table = text_bytes(source->table),
    };
    trp_message *message;
    boot_id_read(hello.boot_id);
    TRP_TRY(shared_hello_encode(&hello, &message));
    TRP_TRY(link_send(&source->link, message, deadline, ended));
    source->greeting = true;
    return TRP_OK;
}

static trp_status receive_welcome(struct sample_source *source, struct deadline deadline,
                                  bool *ended)
{
    struct shared_welcome welcome;
    trp_message *message;
    TRP_TRY(link_receive(&source->link, &message, deadline, ended));
    trp_status status = shared_welcome_decode(message_bytes(message), &welcome);
    if (status == TRP_OK)
        status = shared_view_open(&source->view, &welcome);
    trp_message_destroy(message);
    *ended = status != TRP_OK;
    source->greeting = false;
    return status;
}

/* A SampleShared stream; with `ordinary` set, there cannot be one. */
static trp_status open_shared(struct sample_source *source, struct deadline deadline)
{
    bool ended = false;
    source->link.path = shared_path;
    source->link.in_parts = false;
    TRP_TRY(link_open(&source->link, deadline));
    trp_status status = source->greeting ? TRP_OK : send_hello(source, deadline, &ended);
    if (status == TRP_OK)
        status = receive_welcome(source, deadline, &ended);
    if (!ended)
        return status;
    forget_stream(source);
    if (link_is_transient(status)) {
        link_lose(&source->link);
        source->unreachable = true;
        return trp_fail(TRP_UNAVAILABLE, "%s went away: %s",
                        trp_channel_address(source->link.channel), source->link.lost);
    }
    trp_log(TRP_DEBUG, "samples come over the network server=%s reason=%s",
            trp_channel_address(source->link.channel), trp_last_error());
    link_close(&source->link);
    source->ordinary = true;
    return TRP_OK;
}

static trp_status open_stream(struct sample_source *source, struct deadline deadline)
{
    if (source->link.stream && !source->greeting)
        return TRP_OK;
    if (!source->ordinary)
        TRP_TRY(open_shared(source, deadline));
    if (!source->ordinary)
        return TRP_OK;
    source->link.path = ordinary_path;
    source->link.in_parts = true;
    return link_open(&source->link, deadline);
}

/* ---- asking ------------------------------------------------------------------------------ */

/* Asks for so many samples more, and tells the server which messages are released. */
static trp_status source_request(struct sample_source *source, int64_t samples,
                                 struct deadline deadline, bool *ended)
{
    struct shared_ask ask = {.released = source->released,
                             .samples = samples,
                             .timeout_ms = source->limiter_timeout_ms,
                             .round = source->round,
                             .key = source->damaged_key,
                             .damaged = source->damaged};
    struct wire_sample_request request = {
        .table = text_bytes(source->table),
        .num_samples = samples,
        .has_timeout = true,
        .timeout_ms = source->limiter_timeout_ms < 0 ? -1 : source->limiter_timeout_ms,
    };
    trp_message *message;
    TRP_TRY(source->view ? shared_ask_encode(&ask, &message)
                         : wire_sample_request_encode(&request, &message));
    TRP_TRY(link_send(&source->link, message, deadline, ended));
    source->reported = source->released;
    source->release_soon = false;
    source->requested += samples;
    source->on_stream += samples;
    return TRP_OK;
}

/* Takes up to `samples` out of the budget. */
static int64_t sampling_take(struct sampling *sampling, int64_t samples)
{
    int64_t left = atomic_load(&sampling->budget), taken;
    do
        taken = left < samples ? left : samples;
    while (!atomic_compare_exchange_weak(&sampling->budget, &left, left - taken));
    return taken;
}

/* How many samples the next request is for; 0: none now. */
static int64_t next_request(const struct sample_source *source, const struct batch *batch)
{
    const struct sampling *sampling = source->sampling;
    int64_t missing = (int64_t)batch->capacity - batch->rows, wanted = missing + sampling->ahead;
    if (wanted > sampling->in_flight_max)
        wanted = sampling->in_flight_max;
    int64_t most = wanted - source->requested;
    if (source->requested < missing && most > missing - source->requested)
        most = missing - source->requested; /* so that requests end with batches */
    else if (most > sampling->step)
        most = sampling->step;
    if (most > sampling->on_stream_max - source->on_stream)
        most = sampling->on_stream_max - source->on_stream;
    return most > 0 ? most : 0;
}

/* Asks for what `batch` lacks and for those ahead, as far as that is not on its way. Waits for room
 * only while nothing else is: the server may not take a request before the last is satisfied. */
static trp_status request_more(struct sample_source *source, const struct batch *batch,
                               struct deadline deadline)
{
    while (!source->refused &&
           (source->requested == 0 || trp_stream_writable(source->link.stream))) {
        int64_t samples = sampling_take(source->sampling, next_request(source, batch));
        if (samples == 0)
            return TRP_OK;
        trp_status status = source_request(source, samples, deadline, &source->refused);
        if (status == TRP_OK)
            continue;
        atomic_fetch_add(&source->sampling->budget, samples);
        if (!source->refused)
            return status;
    }
    return TRP_OK;
}

/* ---- receiving --------------------------------------------------------------------------- */

static trp_status limiter_held_back(struct sample_source *source)
{
    source->exhausted = source->sampling->end_on_timeout;
    return trp_fail(TRP_DEADLINE_EXCEEDED,
                    "table '%s' at %s gave no sample for %" PRId64 " ms: its limiter holds back",
                    source->table, trp_channel_address(source->link.channel),
                    source->limiter_timeout_ms);
}

static trp_status feed_shared(struct sample_source *source, trp_message *message)
{
    struct shared_header header;
    TRP_TRY(unpacker_feed_shared(source->unpacker, message, source->view, &header));
    source->round = header.round;
    source->release_soon |= header.flags & SHARED_RELEASE;
    if (!(header.flags & SHARED_EXPIRED))
        return TRP_OK;
    forget_requests(source);
    return limiter_held_back(source);
}

/* Without a wait, or `until` is when to try again: a server does not hear who takes no answers. */
static trp_status tell_released(struct sample_source *source, struct deadline *until)
{
    bool ended = false;
    bool more = source->damaged || source->released != source->reported;
    if (!source->release_soon || !more || source->refused)
        return TRP_OK;
    if (!trp_stream_writable(source->link.stream)) {
        *until = deadline_earlier(*until, deadline_in_ms(&clock_monotonic, SAMPLER_RELEASE_MS));
        return TRP_OK;
    }
    trp_status status = source_request(source, 0, *until, &ended);
    source->refused |= ended; /* what is received next says why */
    return ended ? TRP_OK : status;
}

static trp_status receive_samples(struct sample_source *source, struct deadline deadline,
                                  bool *ended)
{
    trp_message *message;
    trp_status status;
    do {
        struct deadline until = deadline;
        TRP_TRY(tell_released(source, &until));
        status = link_receive(&source->link, &message, until, ended);
    } while (status == TRP_DEADLINE_EXCEEDED && !*ended &&
             !deadline_passed(deadline, &clock_monotonic));
    TRP_TRY(status);
    link_works(&source->link);
    source->unreachable = false;
    if (source->damaged) {
        trp_message_destroy(message);
        return TRP_OK;
    }
    return source->view ? feed_shared(source, message) : unpacker_feed(source->unpacker, message);
}

/* Bytes that had come under the lease are lost. */
static void open_again(struct sample_source *source)
{
    forget_stream(source);
    link_close(&source->link);
}

/* Rows of the message that came last into `batch`. */
static trp_status take_rows(struct sample_source *source, struct batch *batch)
{
    uint32_t before = batch->rows;
    trp_status status = unpacker_fill(source->unpacker, batch);
    if (status == TRP_ABORTED) {
        open_again(source);
        return TRP_OK;
    }
    if (unpacker_damaged(source->unpacker, &source->damaged_key)) {
        unpacker_reset(source->unpacker);
        source->damaged = source->release_soon = true;
        status = TRP_OK;
    }
    TRP_TRY(status);
    source->requested -= batch->rows - before;
    if (source->requested < 0)
        return trp_fail(TRP_INTERNAL, "%s sent more samples than were asked for",
                        trp_channel_address(source->link.channel));
    if (unpacker_used_up(source->unpacker)) {
        unpacker_reset(source->unpacker);
        source->released++;
    }
    return TRP_OK;
}

/* The stream is over. A row that had begun to come is forgotten; full rows are in their batch. */
static trp_status source_stream_ended(struct sample_source *source, trp_status status)
{
    const char *address = trp_channel_address(source->link.channel);
    bool shared = source->view != NULL;
    forget_stream(source);
    if (shared && status == TRP_ABORTED) {
        link_close(&source->link);
        return TRP_OK;
    }
    if (status == TRP_DEADLINE_EXCEEDED && strstr(trp_last_error(), limiter_timeout_text)) {
        link_close(&source->link);
        source->unreachable = false;
        return limiter_held_back(source);
    }
    if (!link_is_transient(status))
        return trp_fail(status == TRP_DEADLINE_EXCEEDED ? TRP_UNKNOWN : status,
                        "sampling from '%s' at %s: %s", source->table, address, trp_last_error());
    link_lose(&source->link);
    source->unreachable = true;
    source->ordinary = false; /* whoever comes up there may be another */
    return trp_fail(TRP_UNAVAILABLE, "%s went away: %s", address, source->link.lost);
}

bool source_is_exhausted(const struct sample_source *source)
{
    return source->exhausted ||
           (source->requested == 0 && atomic_load(&source->sampling->budget) == 0);
}

static trp_status fill_some(struct sample_source *source, struct batch *batch,
                            struct deadline deadline)
{
    bool ended = false;
    if (source->requested == 0 && source->on_stream >= source->sampling->on_stream_max)
        open_again(source); /* it gave what it was opened for, and makes way for another */
    TRP_TRY(open_stream(source, deadline));
    trp_status status = request_more(source, batch, deadline);
    if (status == TRP_OK && source->requested == 0 && !source->refused)
        return TRP_OK; /* others took the rest of the budget */
    if (status == TRP_OK)
        status = receive_samples(source, deadline, &ended);
    return ended ? source_stream_ended(source, status) : status;
}

trp_status source_fill(struct sample_source *source, struct batch *batch, struct deadline deadline)
{
    for (;;) {
        TRP_TRY(take_rows(source, batch));
        if (batch->rows == batch->capacity || source_is_exhausted(source))
            return TRP_OK;
        trp_status status = fill_some(source, batch, deadline);
        if (status != TRP_OK && !source->exhausted)
            return status;
    }
}

/* ---- life -------------------------------------------------------------------------------- */

void source_init(struct sample_source *source, trp_channel *channel, struct sampling *sampling,
                 const trp_sampler_options *options)
{
    *source = (struct sample_source){.sampling = sampling,
                                     .limiter_timeout_ms = options->limiter_timeout_ms,
                                     .unreachable = options->unchecked,
                                     .table = xstrdup(options->table),
                                     .unpacker =
                                         unpacker_create(options->columns, options->column_count)};
    link_init(&source->link, channel, ordinary_path);
}

void source_cleanup(struct sample_source *source)
{
    link_cleanup(&source->link);
    unpacker_destroy(source->unpacker);
    shared_view_close(source->view);
    free(source->table);
}
