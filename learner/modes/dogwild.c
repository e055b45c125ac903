/* Learners step by Hogwild's rules, and streams.c keeps their numbers alike meanwhile. What is lost
 * on the way is not sent again. Datagrams are not secret: who does not know the generation's nonce
 * is not listened to. */
#include "dogwild.h"

#include <inttypes.h>
#include <stdlib.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "hogwild.h"
#include "streams.h"

struct dogwild {
    struct hogwild hogwild; /* first */
    struct streams streams;
    uint32_t *members;   /* of the generation, by rank */
    uint32_t rank, size; /* of it */
    uint32_t watched;    /* rank that is followed, as others were last noted */
};

static struct dogwild *dogwild_of(struct mode *mode)
{
    return (struct dogwild *)mode;
}

/* ---- generations ----------------------------------------------------------------------------- */

static void break_streams(struct dogwild *dogwild, const char *what, uint32_t rank, const char *how)
{
    char *why = xasprintf("%s %s/%" PRIu32 " %s", what, dogwild->hogwild.group.name,
                          dogwild->members[rank], how);
    hogwild_break(&dogwild->hogwild, why);
    free(why);
}

/* One that joins begins with what others follow; or is followed, with what it came with. */
static trp_status wait_for_numbers(struct dogwild *dogwild)
{
    struct hogwild *hogwild = &dogwild->hogwild;
    struct streams *streams = &dogwild->streams;
    const trp_rendezvous *rendezvous = hogwild->group.rendezvous;
    struct deadline until = deadline_in_ms(&clock_monotonic, hogwild->group.timeout_ms);
    bool has_all = false, is_lost = false, in_time = true;
    mutex_lock(&streams->mutex);
    while (!(has_all = stream_has_all(&streams->stream)) &&
           !(is_lost = stream_is_lost(&streams->stream)) && in_time &&
           !trp_stop_requested(hogwild->group.stop) &&
           rendezvous->impl->newest(rendezvous) == hogwild->generation) {
        cond_wait(&streams->heard, &streams->mutex,
                  deadline_earlier(until, deadline_in_ms(&clock_monotonic, HOGWILD_LOOK_MS)));
        in_time = !deadline_passed(until, &clock_monotonic);
    }
    uint32_t asked = streams->stream.followed;
    mutex_unlock(&streams->mutex);
    hogwild->shares = has_all;
    if (has_all) {
        TRP_TRY(hogwild_gather(&hogwild->base));
        hogwild_load_unlearned(hogwild);
    } else if (is_lost) {
        break_streams(dogwild, "who knew what was learned is gone:", 0, "came later");
    } else if (!in_time) {
        break_streams(dogwild, "the one that is followed,", asked, "did not answer in time");
    }
    return TRP_OK;
}

/* With what it came with, and nothing of the pieces that another one still sent. */
static void begin_as_it_came(struct hogwild *hogwild)
{
    atomic_store(&hogwild->head->steps.value, atomic_load(&hogwild->head->known.value));
    hogwild_share_vectors(hogwild);
}

/* Who is followed hears of all others, they of it alone. */
static void note_others(struct dogwild *dogwild)
{
    uint32_t followed = streams_followed(&dogwild->streams), own = dogwild->rank;
    bool leads = followed == own;
    if (followed == dogwild->watched || followed >= dogwild->size)
        return;
    dogwild->watched = followed;
    others_note(&dogwild->hogwild.others, dogwild->members, own, leads ? 0 : followed,
                leads ? dogwild->size : followed + 1);
}

static trp_status enter_streams(struct dogwild *dogwild, const trp_generation *generation)
{
    struct hogwild *hogwild = &dogwild->hogwild;
    bool shares = hogwild->shares, knew = atomic_load(&hogwild->head->known.value) > 0;
    hogwild->generation = generation->number;
    dogwild->rank = generation->rank;
    dogwild->size = dogwild->watched = generation->size;
    free(dogwild->members);
    dogwild->members = xmemdup(generation->members, generation->size * sizeof *dogwild->members);
    mutex_lock(&dogwild->streams.mutex);
    if (!shares)
        begin_as_it_came(hogwild);
    trp_status status =
        streams_enter_locked(&dogwild->streams,
                             &(struct stream_place){.generation = generation->number,
                                                    .nonce = generation->nonce,
                                                    .rank = generation->rank,
                                                    .size = generation->size,
                                                    .knows = shares || generation->founder || knew,
                                                    .fresh = !shares},
                             generation->addresses);
    mutex_unlock(&dogwild->streams.mutex);
    trp_log(TRP_INFO,
            "learner streams its numbers group=%s generation=%" PRIu64 " rank=%" PRIu32
            " of=%" PRIu32 " chunks=%zu",
            hogwild->group.name, generation->number, generation->rank, generation->size,
            dogwild->streams.stream.chunk_count);
    if (status == TRP_OK && !shares)
        status = wait_for_numbers(dogwild);
    note_others(dogwild);
    hogwild->base.leads = hogwild->shares && generation->rank == 0;
    return status;
}

static trp_status enter_next_streams(struct dogwild *dogwild, int64_t timeout_ms,
                                     trp_generation *generation)
{
    trp_rendezvous *rendezvous = dogwild->hogwild.group.rendezvous;
    trp_status status =
        rendezvous->impl->next(rendezvous, dogwild->hogwild.generation, timeout_ms, generation);
    if (status == TRP_DEADLINE_EXCEEDED)
        return TRP_OK;
    return status == TRP_OK ? enter_streams(dogwild, generation) : status;
}

static trp_status dogwild_meet(struct mode *mode, struct mode_meeting *meeting)
{
    struct dogwild *dogwild = dogwild_of(mode);
    struct hogwild *hogwild = &dogwild->hogwild;
    trp_rendezvous *rendezvous = hogwild->group.rendezvous;
    trp_generation generation = {0};
    atomic_store(&hogwild->head->steps.value, meeting->steps);
    atomic_store(&hogwild->head->known.value, meeting->steps); /* of a checkpoint */
    hogwild_share_vectors(hogwild);
    TRP_TRY(rendezvous->impl->announce(rendezvous, dogwild->streams.socket.address));
    TRP_TRY(streams_start(&dogwild->streams));
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

static uint64_t streamed_beat(const void *context, const struct other *other)
{
    struct streams *streams = (struct streams *)(uintptr_t)context;
    mutex_lock(&streams->mutex);
    uint64_t beat = streams->stream.peers[other->rank].beat;
    mutex_unlock(&streams->mutex);
    return beat;
}

/* All have to say that a generation is over, or they are taken for lost, too. */
static void miss_silent_streams(struct dogwild *dogwild)
{
    struct hogwild *hogwild = &dogwild->hogwild;
    struct streams *streams = &dogwild->streams;
    others_look(&hogwild->others, &hogwild->group, hogwild->generation, streamed_beat, streams,
                "streamed no step");
    mutex_lock(&streams->mutex);
    bool others_miss = streams->stream.misses;
    streams->stream.misses = others_miss || hogwild->others.misses;
    mutex_unlock(&streams->mutex);
    if (others_miss && !hogwild->others.misses)
        hogwild_break(hogwild, "the one that is followed misses another one");
}

static trp_status dogwild_end(struct mode *mode, struct mode_round *round)
{
    struct dogwild *dogwild = dogwild_of(mode);
    struct hogwild *hogwild = &dogwild->hogwild;
    const trp_rendezvous *rendezvous = hogwild->group.rendezvous;
    trp_generation generation;
    round->whole = round->has_batch;
    mutex_lock(&dogwild->streams.mutex);
    stream_note_step(&dogwild->streams.stream, round->has_batch);
    mutex_unlock(&dogwild->streams.mutex);
    if (round->whole)
        round->steps = atomic_load(&hogwild->head->steps.value);
    note_others(dogwild);
    miss_silent_streams(dogwild);
    if (rendezvous->impl->newest(rendezvous) <= hogwild->generation)
        return TRP_OK;
    return enter_next_streams(dogwild, 0, &generation);
}

static uint64_t dogwild_next_version(struct mode *mode, uint64_t version)
{
    struct dogwild *dogwild = dogwild_of(mode);
    struct hogwild *hogwild = &dogwild->hogwild;
    if (streams_followed(&dogwild->streams) == dogwild->rank)
        hogwild_share_unlearned(hogwild);
    return mode_next_version(hogwild->generation, atomic_load(&hogwild->head->steps.value),
                             version);
}

/* ---- its life -------------------------------------------------------------------------------- */

static void dogwild_destroy(struct mode *mode)
{
    struct dogwild *dogwild = dogwild_of(mode);
    streams_close(&dogwild->streams); /* before the memory that they move */
    hogwild_cleanup(&dogwild->hogwild);
    free(dogwild->members);
    free(dogwild);
}

static const struct mode_impl dogwild_impl = {.meet = dogwild_meet,
                                              .end = dogwild_end,
                                              .apply = hogwild_apply,
                                              .next_version = dogwild_next_version,
                                              .gather = hogwild_gather,
                                              .destroy = dogwild_destroy};

static void make_stream(struct dogwild *dogwild)
{
    struct hogwild *hogwild = &dogwild->hogwild;
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
    stream_create(&dogwild->streams.stream, chunks, count, hogwild->head->layout,
                  &hogwild->head->steps.value);
    free(chunks);
}

trp_status dogwild_create(struct mode **out, struct vectors *vectors,
                          const struct learners_options *group,
                          const struct compress_options *compress)
{
    struct dogwild *dogwild = xcalloc(1, sizeof *dogwild);
    *out = &dogwild->hogwild.base;
    trp_status status = streams_open(&dogwild->streams, group->listen, group->insecure);
    trp_status begun = hogwild_init(&dogwild->hogwild, &dogwild_impl, vectors, group);
    if (status == TRP_OK && begun == TRP_OK) {
        make_stream(dogwild);
        stream_compress(&dogwild->streams.stream, compress);
        return TRP_OK;
    }
    dogwild_destroy(*out);
    *out = NULL;
    return begun == TRP_OK ? status : begun;
}
