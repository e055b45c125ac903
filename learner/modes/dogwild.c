/* A thread of each learner takes messages from its socket and, but on rank 0, sends what came of
 * the learner's steps; learners steps by Hogwild's rules meanwhile. What is lost on the way is not
 * sent again. Datagrams are not secret: who does not know the generation's nonce is not listened
 * to. */
#include "dogwild.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <troupe/log.h>
#include "core/address.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/thread.h"
#include "dogwild_stream.h"
#include "hogwild.h"

struct dogwild {
    struct hogwild *hogwild;
    int fd;
    char *address; /* others send there */
    struct thread thread;
    _Atomic bool ends;
    struct mutex mutex; /* all that follows */
    struct cond heard;
    struct stream stream;
    struct sockaddr_storage leader; /* rank 0 */
    unsigned leader_bytes;
};

static struct dogwild *dogwild_of(struct mode *mode)
{
    return ((struct hogwild *)mode)->streams;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* A message that the system has no room for is lost, as others are. */
static void send_message(const struct dogwild *dogwild, const struct stream_message *message,
                         size_t bytes, const struct sockaddr_storage *to, unsigned to_bytes)
{
    ssize_t sent = sendto(dogwild->fd, message, bytes, MSG_DONTWAIT | MSG_NOSIGNAL,
                          (const struct sockaddr *)to, to_bytes);
    (void)sent;
}

static void take_messages(struct dogwild *dogwild)
{
    for (uint32_t i = 0; i < DOGWILD_BURST; i++) {
        struct stream_message message, answer;
        struct sockaddr_storage from;
        socklen_t from_bytes = sizeof from;
        ssize_t bytes = recvfrom(dogwild->fd, &message, sizeof message, MSG_DONTWAIT | MSG_TRUNC,
                                 (struct sockaddr *)&from, &from_bytes);
        if (bytes < 0)
            return;
        mutex_lock(&dogwild->mutex);
        size_t answer_bytes = stream_take(&dogwild->stream, &message, (size_t)bytes, &answer);
        cond_broadcast(&dogwild->heard);
        mutex_unlock(&dogwild->mutex);
        if (answer_bytes > 0)
            send_message(dogwild, &answer, answer_bytes, &from, from_bytes);
    }
}

static void send_deltas(struct dogwild *dogwild, bool begins_pass)
{
    struct stream_message message;
    size_t bytes;
    mutex_lock(&dogwild->mutex);
    if (begins_pass)
        stream_begin_pass(&dogwild->stream);
    while ((bytes = stream_ask(&dogwild->stream, &message)) > 0)
        send_message(dogwild, &message, bytes, &dogwild->leader, dogwild->leader_bytes);
    mutex_unlock(&dogwild->mutex);
}

static void run_streams(void *arg)
{
    struct dogwild *dogwild = arg;
    struct deadline pass = deadline_in_ms(&clock_monotonic, 0);
    while (!atomic_load(&dogwild->ends)) {
        struct pollfd ready = {.fd = dogwild->fd, .events = POLLIN};
        if (poll(&ready, 1, DOGWILD_PASS_MS) > 0)
            take_messages(dogwild);
        bool begins = deadline_passed(pass, &clock_monotonic);
        send_deltas(dogwild, begins);
        if (begins)
            pass = deadline_in_ms(&clock_monotonic, DOGWILD_PASS_MS);
    }
}

/* ---- generations ----------------------------------------------------------------------------- */

/* One that joins begins with what rank 0 has. */
static trp_status wait_for_numbers(struct dogwild *dogwild)
{
    struct hogwild *hogwild = dogwild->hogwild;
    const trp_rendezvous *rendezvous = hogwild->group.rendezvous;
    struct deadline until = deadline_in_ms(&clock_monotonic, hogwild->group.timeout_ms);
    bool has_all = false, in_time = true;
    mutex_lock(&dogwild->mutex);
    while (!has_all && in_time && !trp_stop_requested(hogwild->group.stop) &&
           rendezvous->impl->newest(rendezvous) == hogwild->generation) {
        cond_wait(&dogwild->heard, &dogwild->mutex,
                  deadline_earlier(until, deadline_in_ms(&clock_monotonic, HOGWILD_LOOK_MS)));
        has_all = stream_has_all(&dogwild->stream);
        in_time = !deadline_passed(until, &clock_monotonic);
    }
    mutex_unlock(&dogwild->mutex);
    if (!in_time && !has_all)
        hogwild_break(hogwild, "rank 0 did not answer in time");
    if (!has_all)
        return TRP_OK;
    hogwild->shares = true;
    TRP_TRY(hogwild_gather(&hogwild->base));
    hogwild_load_unlearned(hogwild);
    return TRP_OK;
}

/* One that came later, without a checkpoint, knows nothing of what was learned. */
static bool is_ignorant(const struct hogwild *hogwild, const trp_generation *generation)
{
    return !hogwild->shares && !generation->founder &&
           atomic_load(&hogwild->head->known.value) == 0;
}

/* With what it came with, and nothing of the pieces that the last one still sent. */
static void begin_as_it_came(struct hogwild *hogwild)
{
    atomic_store(&hogwild->head->steps.value, atomic_load(&hogwild->head->known.value));
    hogwild_share_vectors(hogwild);
}

static trp_status enter_streams(struct dogwild *dogwild, const trp_generation *generation)
{
    struct hogwild *hogwild = dogwild->hogwild;
    hogwild->generation = generation->number;
    hogwild->base.leads = generation->rank == 0;
    if (generation->rank == 0 && is_ignorant(hogwild, generation)) { /* it answers nobody */
        char *why = xasprintf("who knew what was learned is gone: %s/%" PRIu32 " came later",
                              hogwild->group.name, generation->members[0]);
        hogwild_break(hogwild, why);
        free(why);
        return TRP_OK;
    }
    mutex_lock(&dogwild->mutex);
    trp_status status =
        address_resolve(generation->addresses[0], &dogwild->leader, &dogwild->leader_bytes);
    if (generation->rank == 0 && !hogwild->shares)
        begin_as_it_came(hogwild);
    stream_begin(&dogwild->stream, generation->number, generation->nonce, generation->rank,
                 generation->size);
    mutex_unlock(&dogwild->mutex);
    TRP_TRY(status);
    /* Rank 0 hears of all others, they of it alone. */
    hogwild_note_others(hogwild, generation, generation->rank == 0 ? generation->size : 1);
    trp_log(TRP_INFO,
            "learner streams its numbers group=%s generation=%" PRIu64 " rank=%" PRIu32
            " of=%" PRIu32 " chunks=%zu",
            hogwild->group.name, generation->number, generation->rank, generation->size,
            dogwild->stream.chunk_count);
    if (generation->rank > 0 && !hogwild->shares)
        return wait_for_numbers(dogwild);
    hogwild->shares = true;
    return TRP_OK;
}

static trp_status enter_next_streams(struct dogwild *dogwild, int64_t timeout_ms,
                                     trp_generation *generation)
{
    trp_rendezvous *rendezvous = dogwild->hogwild->group.rendezvous;
    trp_status status =
        rendezvous->impl->next(rendezvous, dogwild->hogwild->generation, timeout_ms, generation);
    if (status == TRP_DEADLINE_EXCEEDED)
        return TRP_OK;
    return status == TRP_OK ? enter_streams(dogwild, generation) : status;
}

static trp_status dogwild_meet(struct mode *mode, struct mode_meeting *meeting)
{
    struct hogwild *hogwild = (struct hogwild *)mode;
    struct dogwild *dogwild = hogwild->streams;
    trp_rendezvous *rendezvous = hogwild->group.rendezvous;
    trp_generation generation = {0};
    atomic_store(&hogwild->head->steps.value, meeting->steps);
    atomic_store(&hogwild->head->known.value, meeting->steps); /* of a checkpoint */
    hogwild_share_vectors(hogwild);
    TRP_TRY(rendezvous->impl->announce(rendezvous, dogwild->address));
    TRP_TRY(thread_start(&dogwild->thread, "dogwild", run_streams, dogwild));
    while (!hogwild->shares) {
        if (trp_stop_requested(hogwild->group.stop))
            return trp_fail(TRP_CANCELLED, "learner: stopped while it waited for its group");
        TRP_TRY(enter_next_streams(dogwild, LEARNERS_LOOK_MS, &generation));
    }
    meeting->steps = atomic_load(&hogwild->head->steps.value);
    meeting->version = meeting_version(meeting, hogwild->generation);
    meeting->generation = hogwild->generation;
    if (generation.rank > 0)
        trp_rng_init(meeting->rng, meeting->rng->state[0],
                     generation.number << 16 | generation.rank);
    return TRP_OK;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static uint64_t streamed_beat(const struct hogwild *hogwild, const struct hogwild_other *other)
{
    struct dogwild *dogwild = hogwild->streams;
    mutex_lock(&dogwild->mutex);
    uint64_t beat = dogwild->stream.peers[other->rank].beat;
    mutex_unlock(&dogwild->mutex);
    return beat;
}

static trp_status dogwild_end(struct mode *mode, struct mode_round *round)
{
    struct hogwild *hogwild = (struct hogwild *)mode;
    struct dogwild *dogwild = hogwild->streams;
    const trp_rendezvous *rendezvous = hogwild->group.rendezvous;
    trp_generation generation;
    round->whole = round->has_batch;
    mutex_lock(&dogwild->mutex);
    stream_note_step(&dogwild->stream, round->has_batch);
    mutex_unlock(&dogwild->mutex);
    if (round->whole)
        round->steps = atomic_load(&hogwild->head->steps.value);
    hogwild_look_at_others(hogwild, streamed_beat, "streamed no step");
    if (rendezvous->impl->newest(rendezvous) <= hogwild->generation)
        return TRP_OK;
    return enter_next_streams(dogwild, 0, &generation);
}

static uint64_t dogwild_next_version(struct mode *mode, uint64_t version)
{
    struct hogwild *hogwild = (struct hogwild *)mode;
    if (mode->leads)
        hogwild_share_unlearned(hogwild);
    return mode_next_version(hogwild->generation, atomic_load(&hogwild->head->steps.value),
                             version);
}

/* ---- its life -------------------------------------------------------------------------------- */

static void dogwild_destroy(struct mode *mode)
{
    struct dogwild *dogwild = dogwild_of(mode);
    const struct stream_counters *counters = &dogwild->stream.counters;
    atomic_store(&dogwild->ends, true);
    thread_stop(&dogwild->thread);
    if (counters->sent + counters->taken > 0)
        trp_log(TRP_INFO,
                "streams ended deltas=%" PRIu64 " answered=%" PRIu64 " given_up=%" PRIu64
                " taken=%" PRIu64 " old=%" PRIu64 " strange=%" PRIu64 " bytes=%" PRIu64,
                counters->sent, counters->answers, counters->unanswered, counters->taken,
                counters->old, counters->strange, counters->bytes);
    if (dogwild->fd >= 0)
        fd_close(dogwild->fd);
    stream_destroy(&dogwild->stream);
    cond_cleanup(&dogwild->heard);
    mutex_cleanup(&dogwild->mutex);
    free(dogwild->address);
    free(dogwild);
    hogwild_destroy(mode);
}

static const struct mode_impl dogwild_impl = {.meet = dogwild_meet,
                                              .end = dogwild_end,
                                              .apply = hogwild_apply,
                                              .next_version = dogwild_next_version,
                                              .gather = hogwild_gather,
                                              .destroy = dogwild_destroy};

static trp_status open_socket(struct dogwild *dogwild, const struct address *address)
{
    struct sockaddr_storage name;
    unsigned bytes;
    TRP_TRY(address_resolve(address->target, &name, &bytes));
    dogwild->fd = socket(name.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof name;
    if (dogwild->fd < 0 || bind(dogwild->fd, (struct sockaddr *)&name, bytes) != 0 ||
        getsockname(dogwild->fd, (struct sockaddr *)&name, &size) != 0)
        return trp_fail(file_errno_status(errno, TRP_UNAVAILABLE), "dogwild: address %s: %s",
                        address->target, strerror(errno));
    uint16_t port = name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                               : ((struct sockaddr_in *)&name)->sin_port;
    dogwild->address = address_text(address, ntohs(port));
    return TRP_OK;
}

/* Where the group listens, on a port of its own; datagrams have no unix sockets. */
static trp_status listen_for_datagrams(struct dogwild *dogwild,
                                       const struct learners_options *group)
{
    struct address address;
    bool is_ip = group->listen && !address_is_unix(group->listen);
    TRP_TRY(address_init(&address, is_ip ? group->listen : "127.0.0.1:0", group->insecure));
    trp_status status = open_socket(dogwild, &address);
    address_cleanup(&address);
    return status;
}

static void make_stream(struct dogwild *dogwild)
{
    struct hogwild *hogwild = dogwild->hogwild;
    struct stream_chunk *chunks = NULL;
    size_t count = 0;
    for (size_t i = 0; i < hogwild->base.vectors->count; i++) {
        const trp_vector_spec *spec = hogwild->base.vectors->each[i].spec;
        const struct hogwild_vector *vector = &hogwild->each[i];
        for (size_t at = 0; at < spec->count; at += DOGWILD_NUMBERS) {
            size_t left = spec->count - at;
            chunks = xrealloc(chunks, (count + 1) * sizeof *chunks);
            chunks[count++] = (struct stream_chunk){
                .values = vector->values + at / 2,
                .count = left < DOGWILD_NUMBERS ? left : DOGWILD_NUMBERS,
                .changes = vector->changes ? &vector->changes[at / HOGWILD_BLOCK] : NULL,
                .once = !spec->learned};
        }
    }
    stream_create(&dogwild->stream, chunks, count, hogwild->head->layout,
                  &hogwild->head->steps.value);
    free(chunks);
}

trp_status dogwild_create(struct mode **out, struct vectors *vectors,
                          const struct learners_options *group)
{
    TRP_TRY(hogwild_create(out, vectors, group));
    struct hogwild *hogwild = (struct hogwild *)*out;
    struct dogwild *dogwild = xcalloc(1, sizeof *dogwild);
    dogwild->hogwild = hogwild;
    dogwild->fd = -1;
    mutex_init(&dogwild->mutex);
    cond_init(&dogwild->heard);
    hogwild->streams = dogwild;
    hogwild->base.impl = &dogwild_impl;
    make_stream(dogwild);
    trp_status status = listen_for_datagrams(dogwild, group);
    if (status == TRP_OK)
        return TRP_OK;
    dogwild_destroy(*out);
    *out = NULL;
    return status;
}
