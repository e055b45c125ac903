#include "streams.h"

#include <inttypes.h>
#include <stdlib.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"

static void take_messages(struct streams *streams)
{
    for (uint32_t i = 0; i < DOGWILD_BURST; i++) {
        struct stream_message message, answer;
        struct datagram_peer from;
        ssize_t bytes = datagrams_take(&streams->socket, &message, sizeof message, &from);
        if (bytes < 0)
            return;
        mutex_lock(&streams->mutex);
        size_t answer_bytes = stream_take(&streams->stream, &message, (size_t)bytes, &answer);
        cond_broadcast(&streams->heard);
        mutex_unlock(&streams->mutex);
        if (answer_bytes > 0)
            datagrams_send(&streams->socket, &answer, answer_bytes, &from);
    }
}

static void send_deltas(struct streams *streams, bool begins_pass)
{
    struct stream *stream = &streams->stream;
    struct stream_message message;
    size_t bytes;
    mutex_lock(&streams->mutex);
    if (begins_pass)
        stream_begin_pass(stream);
    while ((bytes = stream_ask(stream, &message)) > 0)
        datagrams_send(&streams->socket, &message, bytes, &streams->peers[stream->followed]);
    mutex_unlock(&streams->mutex);
}

static void run_streams(void *arg)
{
    struct streams *streams = arg;
    struct deadline pass = deadline_in_ms(&clock_monotonic, 0);
    while (!atomic_load(&streams->ends)) {
        if (datagrams_await(&streams->socket, DOGWILD_PASS_MS))
            take_messages(streams);
        bool begins = deadline_passed(pass, &clock_monotonic);
        send_deltas(streams, begins);
        if (begins)
            pass = deadline_in_ms(&clock_monotonic, DOGWILD_PASS_MS);
    }
}

trp_status streams_open(struct streams *streams, const char *listen, bool insecure)
{
    mutex_init(&streams->mutex);
    cond_init(&streams->heard);
    return datagrams_open(&streams->socket, listen, insecure);
}

trp_status streams_start(struct streams *streams)
{
    return thread_start(&streams->thread, "dogwild", run_streams, streams);
}

static void print_streams(const struct stream_counters *counters)
{
    if (counters->sent + counters->taken > 0)
        trp_log(TRP_INFO,
                "streams ended deltas=%" PRIu64 " answered=%" PRIu64 " given_up=%" PRIu64
                " refused=%" PRIu64 " taken=%" PRIu64 " old=%" PRIu64 " strange=%" PRIu64
                " bytes=%" PRIu64,
                counters->sent, counters->answers, counters->unanswered, counters->refused,
                counters->taken, counters->old, counters->strange, counters->bytes);
}

void streams_close(struct streams *streams)
{
    atomic_store(&streams->ends, true);
    thread_stop(&streams->thread);
    print_streams(&streams->stream.counters);
    datagrams_close(&streams->socket);
    stream_destroy(&streams->stream);
    cond_cleanup(&streams->heard);
    mutex_cleanup(&streams->mutex);
    free(streams->peers);
}

trp_status streams_enter_locked(struct streams *streams, const struct stream_place *place,
                                const char *const *addresses)
{
    free(streams->peers);
    streams->peers = xcalloc(place->size, sizeof *streams->peers);
    stream_begin(&streams->stream, place);
    for (uint32_t rank = 0; rank < place->size; rank++)
        TRP_TRY(datagrams_find(&streams->peers[rank], addresses[rank]));
    return TRP_OK;
}

uint32_t streams_followed(struct streams *streams)
{
    mutex_lock(&streams->mutex);
    uint32_t followed = streams->stream.followed;
    mutex_unlock(&streams->mutex);
    return followed;
}
