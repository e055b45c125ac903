/* A phase of learners that step alike. The gradient of each is a sum over its rows; the sum over
 * all ranks is divided by all rows, which come along in the head, on the device: nobody has to know
 * them. The norm is the sum of those of the ranks' ranges in their order, whoever measures them: so
 * a vector whose steps are shared out is stepped to the bit as one that every rank steps. */
#include "synchronous.h"

#include "core/alloc.h"

static struct combined *combined_of(struct synchronous *s, size_t index)
{
    return &s->each[index];
}

struct bucket_memory bucket_memory(const struct buckets *buckets, uint32_t index, float *vector)
{
    struct range range = buckets_at(buckets, index);
    size_t count = range.hi - range.lo;
    if (index + 1 < buckets->count)
        return (struct bucket_memory){vector + range.lo, count};
    return (struct bucket_memory){head_of(vector), HEAD_NUMBERS + count};
}

struct range bucket_share(const struct synchronous *s, const struct buckets *buckets,
                          uint32_t index, uint32_t rank)
{
    struct range range = buckets_at(buckets, index), share;
    size_t head = index + 1 < buckets->count ? 0 : HEAD_NUMBERS;
    trp_collective_range(s->group.collective, head + range.hi - range.lo, rank, &share.lo,
                         &share.hi);
    size_t lo = share.lo > head ? share.lo - head : 0, hi = share.hi > head ? share.hi - head : 0;
    return (struct range){range.lo + lo, range.lo + hi};
}

/* ---- to the group -------------------------------------------------------------------------- */

/* Whose head is not all of it in this rank's range of the sum: it goes by itself. What goes
 * compressed has it ahead (compressed.c). */
static bool has_own_head(const struct synchronous *s, size_t index)
{
    return s->sharded && !s->each[index].compressor;
}

/* The rows of this learner and what is watched go with the vector's front. */
static void send_head(struct synchronous *s, size_t index)
{
    const struct vectors *vectors = s->base.vectors;
    const struct vector *vector = &vectors->each[index];
    const struct combined *combined = combined_of(s, index);
    head_on(vectors->queue, head_of(vector->grads), s->base.rows,
            s->base.rows > 0 ? vector->watched : NULL,
            combined->has_kept ? head_of(combined->kept) : NULL);
    if (!has_own_head(s, index))
        return;
    size_t count = HEAD_WATCHED + 1;
    trp_queue_copy(vectors->queue, s->numbers, head_of(vector->grads), count * sizeof(float));
    trp_collective_allreduce(s->group.collective, vectors->queue, s->numbers, count,
                             TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM); /* before the bucket is */
}

static void weigh_range(struct synchronous *s, size_t index, struct range range)
{
    const struct vectors *vectors = s->base.vectors;
    const struct combined *combined = combined_of(s, index);
    float factor = s->base.rows / s->base.batch_size;
    if (factor != 1 || combined->has_kept)
        weigh_on(vectors->queue, vectors->each[index].grads + range.lo, range.hi - range.lo, factor,
                 combined->has_kept ? combined->kept + range.lo : NULL);
}

static void start_bucket(struct synchronous *s, size_t index)
{
    const struct vectors *vectors = s->base.vectors;
    float *grads = vectors->each[index].grads;
    struct buckets *buckets = &combined_of(s, index)->buckets;
    uint32_t bucket = buckets->started++;
    weigh_range(s, index, buckets_at(buckets, bucket));
    if (bucket + 1 == buckets->count)
        send_head(s, index);
    struct bucket_memory memory = bucket_memory(buckets, bucket, grads);
    trp_collective *collective = s->group.collective;
    buckets->tickets[bucket] =
        s->sharded
            ? trp_collective_reduce_scatter(collective, vectors->queue, memory.at, memory.count,
                                            TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM)
            : trp_collective_allreduce(collective, vectors->queue, memory.at, memory.count,
                                       TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM);
}

void phase_ready(struct synchronous *s, size_t index, size_t lo, size_t hi)
{
    struct combined *combined = combined_of(s, index);
    struct buckets *buckets = &combined->buckets;
    buckets_ready(buckets, (struct range){lo, hi});
    while (!combined->compressor && buckets_may_start(buckets))
        start_bucket(s, index);
}

trp_status phase_keep(struct synchronous *s, size_t index)
{
    const struct vectors *vectors = s->base.vectors;
    const struct vector *vector = &vectors->each[index];
    struct combined *combined = combined_of(s, index);
    size_t count = vector->spec->count;
    if (!combined->kept) {
        void *memory;
        TRP_TRY(trp_device_alloc(vectors->device, (HEAD_NUMBERS + count) * sizeof(float), &memory));
        combined->kept = (float *)memory + HEAD_NUMBERS;
    }
    keep_on(vectors->queue, combined->kept, vector->grads, count,
            s->base.rows / s->base.batch_size);
    head_on(vectors->queue, head_of(combined->kept), s->base.rows, vector->watched,
            head_of(combined->kept));
    trp_queue_zero(vectors->queue, vector->grads, count * sizeof(float));
    combined->has_kept = true;
    return TRP_OK;
}

/* ---- from the group ------------------------------------------------------------------------ */

trp_status phase_settle(struct synchronous *s, uint64_t ticket)
{
    if (s->guided)
        return learners_wait(&s->group, ticket);
    s->unsettled = ticket;
    return learners_settle(&s->group, ticket);
}

static trp_status wait_for_buckets(struct synchronous *s, const struct buckets *buckets)
{
    for (uint32_t i = 0; i < buckets->count; i++)
        TRP_TRY(phase_settle(s, buckets->tickets[i]));
    return TRP_OK;
}

static void measure_ranges(struct synchronous *s, size_t index, uint32_t rank, const float *head)
{
    const struct vectors *vectors = s->base.vectors;
    const struct buckets *buckets = &combined_of(s, index)->buckets;
    for (uint32_t i = 0; i < buckets->count; i++) {
        struct range range = bucket_share(s, buckets, i, rank);
        trp_phase_measure_range(vectors->queue, vectors->each[index].grads, range.lo, range.hi,
                                &head[HEAD_ROWS], s->base.batch_size, &s->parts[rank]);
    }
}

static const float *reduced_head(const struct synchronous *s, size_t index)
{
    return has_own_head(s, index) ? s->numbers : head_of(s->base.vectors->each[index].grads);
}

trp_status phase_reduce(struct synchronous *s, size_t index)
{
    struct combined *combined = combined_of(s, index);
    struct learners *group = &s->group;
    trp_queue *queue = s->base.vectors->queue;
    if (combined->compressor) {
        weigh_range(s, index, (struct range){0, combined->buckets.numbers});
        send_head(s, index);
        TRP_TRY(compressed_reduce(s, index, true));
    }
    while (!combined->compressor && combined->buckets.started < combined->buckets.count)
        start_bucket(s, index);
    if (!combined->compressor)
        TRP_TRY(wait_for_buckets(s, &combined->buckets));
    trp_queue_zero(queue, s->parts, group->size * sizeof *s->parts);
    for (uint32_t rank = 0; rank < group->size; rank++)
        if (!s->sharded || rank == group->rank)
            measure_ranges(s, index, rank, reduced_head(s, index));
    combined->reduced = true;
    if (!s->sharded)
        return TRP_OK;
    size_t words = group->size * sizeof *s->parts / sizeof(uint64_t);
    return phase_settle(s, trp_collective_allreduce(group->collective, queue, s->parts, words,
                                                    TRP_COLLECTIVE_U64, TRP_COLLECTIVE_SUM));
}

static void forget(struct synchronous *s, size_t index)
{
    const struct vectors *vectors = s->base.vectors;
    struct combined *combined = combined_of(s, index);
    if (combined->has_kept)
        trp_queue_zero(vectors->queue, head_of(combined->kept),
                       (HEAD_NUMBERS + vectors->each[index].spec->count) * sizeof(float));
    combined->has_kept = combined->reduced = false;
    buckets_reset(&combined->buckets);
}

trp_status phase_finish(struct synchronous *s, size_t index)
{
    const struct vectors *vectors = s->base.vectors;
    struct vector *vector = &s->base.vectors->each[index];
    size_t count = vector->spec->count;
    trp_phases *phases = vector->phases.there;
    struct combined *combined = combined_of(s, index);
    if (!combined->reduced)
        TRP_TRY(phase_reduce(s, index));
    trp_phase_measure_parts(vectors->queue, &vector->spec->optimizer, s->parts, s->group.size,
                            count, &reduced_head(s, index)[HEAD_WATCHED], phases);
    if (s->sharded)
        TRP_TRY(sharded_step(s, index));
    else
        vector_step(vectors, vector);
    trp_phase_end(vectors->queue, vector->grads, count, phases);
    vector->followed = s->base.rows == 0;
    forget(s, index);
    return TRP_OK;
}

void phases_forget(struct synchronous *s)
{
    const struct vectors *vectors = s->base.vectors;
    for (size_t i = 0; i < vectors->count; i++) {
        const struct vector *vector = &vectors->each[i];
        if (!vector->spec->learned)
            continue;
        forget(s, i);
        trp_queue_zero(vectors->queue, vector->grads, vector->spec->count * sizeof(float));
    }
}
