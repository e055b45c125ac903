/* Optimizer state that is shared out (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward
 * Training Trillion Parameter Models", stage 1): a rank has the state of its range of every bucket,
 * steps the parameters there, and gets the others' from them. The whole state is in memory only
 * where it was just read or is about to be saved. */
#include "synchronous.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

void sharded_prepare(struct vectors *vectors)
{
    vectors_make_whole(vectors);
    for (size_t i = 0; i < vectors->count; i++)
        for (size_t k = 0; k < TRP_OPTIMIZER_STATES_MAX; k++)
            twin_destroy(&vectors->each[i].state[k]);
}

/* ---- the state ------------------------------------------------------------------------------- */

/* Where this rank's ranges of the buckets lie, one behind the other; returns how many numbers. */
static size_t lay_out(struct synchronous *s, size_t index)
{
    struct combined *combined = &s->each[index];
    const struct buckets *buckets = &combined->buckets;
    size_t at = 0;
    free(combined->shards);
    combined->shards = xcalloc(buckets->count, sizeof *combined->shards);
    for (uint32_t i = 0; i < buckets->count; i++) {
        struct range range = bucket_share(s, buckets, i, s->group.rank);
        combined->shards[i] = at;
        at += range.hi - range.lo;
    }
    return at;
}

static float *shard_of(const struct synchronous *s, size_t index, size_t state, uint32_t bucket)
{
    return (float *)s->base.vectors->each[index].state[state].here + s->each[index].shards[bucket];
}

/* The root's state, bucket by bucket: nobody else needs room for more. */
static trp_status spread_state(struct synchronous *s, size_t index, size_t state, uint32_t root)
{
    const struct vector *vector = &s->base.vectors->each[index];
    const struct buckets *buckets = &s->each[index].buckets;
    float *room = xcalloc(buckets->each, sizeof *room);
    trp_status status = TRP_OK;
    for (uint32_t i = 0; i < buckets->count && status == TRP_OK; i++) {
        struct range range = buckets_at(buckets, i);
        struct range own = bucket_share(s, buckets, i, s->group.rank);
        size_t bytes = (range.hi - range.lo) * sizeof *room;
        if (s->group.rank == root)
            memcpy(room, vector->whole[state] + range.lo, bytes);
        status = learners_spread(&s->group, room, bytes, root);
        memcpy(shard_of(s, index, state, i), room + (own.lo - range.lo),
               (own.hi - own.lo) * sizeof *room);
    }
    if (status != TRP_OK) /* the memory may still be used */
        learners_leave(&s->group);
    free(room);
    return status;
}

trp_status sharded_spread(struct synchronous *s, uint32_t root)
{
    struct vectors *vectors = s->base.vectors;
    for (size_t i = 0; i < vectors->count; i++) {
        struct vector *vector = &vectors->each[i];
        size_t numbers = vector->spec->learned ? lay_out(s, i) : 0;
        for (size_t k = 0; k < vector_states(vector); k++) {
            twin_destroy(&vector->state[k]);
            TRP_TRY(twin_create(&vector->state[k], vectors->device, numbers * sizeof(float)));
            TRP_TRY(spread_state(s, i, k, root));
        }
    }
    vectors_drop_whole(vectors);
    return TRP_OK;
}

static trp_status gather_state(struct synchronous *s, size_t index, size_t state)
{
    struct vector *vector = &s->base.vectors->each[index];
    const struct buckets *buckets = &s->each[index].buckets;
    trp_collective *collective = s->group.collective;
    float *room = xcalloc(HEAD_NUMBERS + buckets->each, sizeof *room), *at = room + HEAD_NUMBERS;
    trp_status status = TRP_OK;
    for (uint32_t i = 0; i < buckets->count && status == TRP_OK; i++) {
        struct range range = buckets_at(buckets, i);
        struct range own = bucket_share(s, buckets, i, s->group.rank);
        size_t head = i + 1 < buckets->count ? 0 : HEAD_NUMBERS; /* as of the values */
        memcpy(at + (own.lo - range.lo), shard_of(s, index, state, i),
               (own.hi - own.lo) * sizeof *room);
        status = learners_wait(&s->group, trp_collective_all_gather(collective, NULL, at - head,
                                                                    head + range.hi - range.lo,
                                                                    TRP_COLLECTIVE_F32));
        if (s->base.leads)
            memcpy(vector->whole[state] + range.lo, at, (range.hi - range.lo) * sizeof *room);
    }
    if (status != TRP_OK) /* the memory may still be used */
        learners_leave(&s->group);
    free(room);
    return status;
}

bool sharded_is_whole(const struct synchronous *s)
{
    return !s->shared_out && vectors_are_whole(s->base.vectors);
}

trp_status sharded_gather(struct synchronous *s)
{
    struct vectors *vectors = s->base.vectors;
    if (!s->group.collective) /* it never met the others, or they are gone with their parts */
        return sharded_is_whole(s)
                   ? TRP_OK
                   : trp_fail(TRP_UNAVAILABLE, "the others are gone with their parts of the "
                                               "optimizer's state");
    TRP_TRY(vectors_fetch(vectors));
    if (s->base.leads)
        vectors_make_whole(vectors);
    for (size_t i = 0; i < vectors->count; i++)
        for (size_t k = 0; k < vector_states(&vectors->each[i]); k++)
            TRP_TRY(gather_state(s, i, k));
    return TRP_OK;
}

void sharded_release(struct synchronous *s)
{
    vectors_drop_whole(s->base.vectors);
}

/* ---- a step ---------------------------------------------------------------------------------- */

trp_status sharded_gather_ranges(struct synchronous *s, const struct buckets *buckets,
                                 float *vector)
{
    uint64_t ticket = 0;
    for (uint32_t i = 0; i < buckets->count; i++) {
        struct bucket_memory memory = bucket_memory(buckets, i, vector);
        ticket = trp_collective_all_gather(s->group.collective, s->base.vectors->queue, memory.at,
                                           memory.count, TRP_COLLECTIVE_F32);
    }
    return phase_settle(s, ticket);
}

trp_status sharded_step(struct synchronous *s, size_t index)
{
    const struct vectors *vectors = s->base.vectors;
    const struct vector *vector = &vectors->each[index];
    const struct combined *combined = &s->each[index];
    float *values = vector->values.there, *state[TRP_OPTIMIZER_STATES_MAX] = {NULL};
    for (uint32_t i = 0; i < combined->buckets.count; i++) {
        struct range own = bucket_share(s, &combined->buckets, i, s->group.rank);
        for (size_t k = 0; k < vector_states(vector); k++)
            state[k] = (float *)vector->state[k].there + combined->shards[i];
        if (own.lo < own.hi)
            trp_phase_step(vectors->queue, &vector->spec->optimizer, values + own.lo,
                           vector->grads + own.lo, state, 0, own.hi - own.lo, vector->phases.there);
    }
    return sharded_gather_ranges(s, &combined->buckets, values);
}
