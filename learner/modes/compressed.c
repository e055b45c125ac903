/* Gradients that go compressed (learner/compress/). The head goes ahead of them: by it a rank knows
 * how much its part weighs, and all know whether each of them can be compressed. What cannot is
 * summed as it is, so that a number that is not finite ends the phase of all and stays in nobody's
 * rest. A gradient is compressed when it is whole, on the host. */
#include "synchronous.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

void compressed_create(struct synchronous *s, size_t index)
{
    const struct vectors *vectors = s->base.vectors;
    const trp_vector_spec *spec = vectors->each[index].spec;
    struct combined *combined = &s->each[index];
    combined->compressor = (s->sharded ? compressor_create_ranges : compressor_create)(
        &s->options.compress, spec->count, spec->tensors, spec->tensor_count);
    if (!vectors->is_host)
        combined->staged =
            (float *)xcalloc(HEAD_NUMBERS + spec->count, sizeof(float)) + HEAD_NUMBERS;
}

void compressed_destroy(struct combined *combined)
{
    compressor_destroy(combined->compressor);
    free(combined->after);
    if (combined->staged)
        free(head_of(combined->staged));
}

void compressed_back_up(struct synchronous *s)
{
    for (size_t i = 0; i < s->base.vectors->count; i++) {
        if (!s->each[i].compressor)
            continue;
        struct compress_memory own = compressor_own(s->each[i].compressor);
        struct compress_memory shared = compressor_shared(s->each[i].compressor);
        backup_add_memory(&s->backup, own.at, own.bytes);
        backup_add_memory(&s->backup, shared.at, shared.bytes);
    }
}

void compressed_keep_after(struct synchronous *s)
{
    for (size_t i = 0; i < s->base.vectors->count; i++) {
        struct combined *combined = &s->each[i];
        if (!combined->compressor || combined->after)
            continue;
        struct compress_memory own = compressor_own(combined->compressor);
        combined->after = own.bytes > 0 ? xmemdup(own.at, own.bytes) : NULL;
    }
}

void compressed_drop_after(struct synchronous *s)
{
    for (size_t i = 0; i < s->base.vectors->count; i++) {
        free(s->each[i].after);
        s->each[i].after = NULL;
    }
}

/* Who has finished a step has got all codes of this rank: what they hold was sent. */
static void take_after(const struct synchronous *s, size_t index)
{
    const struct combined *combined = &s->each[index];
    struct compress_memory own = compressor_own(combined->compressor);
    if (s->behind && combined->after)
        memcpy(own.at, combined->after, own.bytes);
}

static void join_compressor(const struct synchronous *s, size_t index, uint64_t step)
{
    const struct combined *combined = &s->each[index];
    uint32_t rank = s->group.rank, size = s->group.size;
    if (!s->sharded) {
        compressor_join(combined->compressor, rank, size, step);
        return;
    }
    size_t *ends = xcalloc(size, sizeof *ends);
    for (uint32_t i = 0; i < size; i++)
        ends[i] = bucket_share(s, &combined->buckets, 0, i).hi;
    compressor_join_ranges(combined->compressor, rank, size, step, ends);
    free(ends);
}

void compressed_forget(struct synchronous *s)
{
    for (size_t i = 0; i < s->base.vectors->count; i++)
        if (s->each[i].compressor)
            compressor_forget(s->each[i].compressor);
    compressed_drop_after(s);
}

/* Phases are alike on all ranks, and in a checkpoint: they count the sums. */
trp_status compressed_meet(struct synchronous *s, size_t index, uint32_t root)
{
    struct compressor *compressor = s->each[index].compressor;
    const trp_phases *phases = vector_phases(&s->base.vectors->each[index]);
    take_after(s, index);
    join_compressor(s, index, phases->steps + phases->left_out);
    struct compress_memory shared = compressor_shared(compressor);
    return learners_spread(&s->group, shared.at, shared.bytes, root);
}

static trp_status compressed_wait(void *group, uint64_t ticket)
{
    return learners_wait(group, ticket);
}

/* Scales this rank's part of the mean to the norm that it may have. */
static float clip_of(const struct synchronous *s, size_t index, const float *grads)
{
    const trp_vector_spec *spec = s->base.vectors->each[index].spec;
    double most = compressor_part_norm(s->each[index].compressor, spec->optimizer.max_norm);
    if (most <= 0)
        return 1;
    double share =
        (double)s->base.batch_size / (double)head_of((float *)(uintptr_t)grads)[HEAD_ROWS];
    double norm = sqrt(trp_norm2(grads, 0, spec->count)) * share;
    return norm > most ? (float)(most / norm) : 1;
}

/* `clips`: it is a gradient, and its norm may be bounded. */
static trp_status compressed_sum(struct synchronous *s, size_t index, float *grads, bool clips)
{
    struct learners *group = &s->group;
    size_t count = s->base.vectors->each[index].spec->count;
    float *head = head_of(grads);
    head[HEAD_UNFIT] = compress_fits(grads, count) ? 0 : 1;
    TRP_TRY(
        learners_wait(group, trp_collective_allreduce(group->collective, NULL, head, HEAD_NUMBERS,
                                                      TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM)));
    if (head[HEAD_UNFIT] > 0 || !isfinite(head[HEAD_WATCHED]))
        return learners_wait(group,
                             trp_collective_allreduce(group->collective, NULL, grads, count,
                                                      TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM));
    const struct compress_wire wire = {group->collective, compressed_wait, group};
    return compressor_sum(s->each[index].compressor, &wire, grads,
                          clips ? clip_of(s, index, grads) : 1);
}

trp_status compressed_reduce(struct synchronous *s, size_t index, bool clips)
{
    const struct vectors *vectors = s->base.vectors;
    float *grads = vectors->each[index].grads, *staged = s->each[index].staged;
    size_t bytes = (HEAD_NUMBERS + vectors->each[index].spec->count) * sizeof(float);
    if (!staged)
        return compressed_sum(s, index, grads, clips);
    trp_queue_copy(vectors->queue, head_of(staged), head_of(grads), bytes);
    TRP_TRY(trp_queue_sync(vectors->queue, trp_queue_mark(vectors->queue)));
    TRP_TRY(compressed_sum(s, index, staged, clips));
    trp_queue_copy(vectors->queue, head_of(grads), head_of(staged), bytes);
    return TRP_OK;
}
