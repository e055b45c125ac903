/* Local SGD (Stich 2019, "Local SGD Converges Fast and Communicates Little", algorithm 1): each
 * learner steps by itself, and after so many steps all go on from the mean of their vectors, one
 * with more batches counting more. With an outer momentum b the mean is a step of its own (Wang et
 * al. 2020, "SlowMo", equations 2 and 3 with a slow learning rate of 1, the fast one taken into u):
 *     u = b u + (x of the last mean - mean),  x = x of the last mean - u
 * The optimizers' states stay each learner's own.
 *
 * Compressed (Basu et al. 2019, "Qsparse-local-SGD") what is summed is how far each has come, x of
 * the last mean - x times its batches, in the place of the gradient; what the code has not got goes
 * to the next mean.
 *
 * A learner that is to stop, or has no batch, comes to the mean at once and waits there: the steps
 * between two means have to take less than an operation may. What ends a generation costs the steps
 * since the last mean. */
#include <string.h>

#include "kernels.h"
#include "synchronous.h"

enum local_flag { LOCAL_STOPS = 1, LOCAL_OVER = 2, LOCAL_ENDED = 4, LOCAL_LEAVES = 8 };

static struct synchronous *local_of(struct mode *mode)
{
    return (struct synchronous *)mode;
}

/* ---- the mean ------------------------------------------------------------------------------ */

static trp_status sum_values(struct synchronous *s, size_t index)
{
    trp_queue *queue = s->base.vectors->queue;
    const struct vector *vector = &s->base.vectors->each[index];
    weigh_on(queue, vector->values.there, vector->spec->count, (float)s->local_batches, NULL);
    return learners_wait(&s->group,
                         trp_collective_allreduce(s->group.collective, queue, vector->values.there,
                                                  vector->spec->count, TRP_COLLECTIVE_F32,
                                                  TRP_COLLECTIVE_SUM));
}

/* Where the gradient is, which is 0 between two steps. */
static trp_status sum_ways(struct synchronous *s, size_t index)
{
    trp_queue *queue = s->base.vectors->queue;
    const struct vector *vector = &s->base.vectors->each[index];
    size_t count = vector->spec->count;
    float batches = (float)s->local_batches;
    keep_on(queue, vector->grads, s->local[index].last, count, 1);
    keep_on(queue, vector->grads, vector->values.there, count, -1);
    weigh_on(queue, vector->grads, count, batches, NULL);
    head_on(queue, head_of(vector->grads), batches, NULL, NULL);
    return compressed_reduce(s, index, false);
}

/* Vectors that follow others, as target networks, have a mean but no momentum. */
static trp_status average_vector(struct synchronous *s, size_t index, uint64_t batches)
{
    const struct vectors *vectors = s->base.vectors;
    const struct vector *vector = &vectors->each[index];
    const struct local_vector *local = &s->local[index];
    size_t count = vector->spec->count;
    bool compresses = s->each[index].compressor != NULL;
    if (compresses)
        TRP_TRY(sum_ways(s, index));
    else
        TRP_TRY(sum_values(s, index));
    outer_on(vectors->queue,
             &(struct mode_outer_arguments){.values = vector->values.there,
                                            .way = compresses ? vector->grads : NULL,
                                            .last = local->last,
                                            .average = local->average,
                                            .count = count,
                                            .batches = (float)batches,
                                            .momentum = s->options.outer_momentum});
    if (compresses)
        trp_queue_zero(vectors->queue, vector->grads, count * sizeof(float));
    return TRP_OK;
}

/* ---- rounds -------------------------------------------------------------------------------- */

/* The steps to the next mean. */
static void begin_period(struct synchronous *s)
{
    s->local_flags = 0;
    s->local_rounds = 0;
    s->local_batches = 0;
}

static trp_status local_begin(struct mode *mode, const struct mode_round *round)
{
    struct synchronous *s = local_of(mode);
    if (s->local_rounds == 0)
        backup_take(&s->backup);
    s->local_flags |= round->stops ? LOCAL_STOPS : 0;
    s->local_flags |= round->over ? LOCAL_OVER : 0;
    s->local_flags |= round->ended ? LOCAL_ENDED : 0;
    s->local_flags |= learners_is_left(&s->group) ? LOCAL_LEAVES : 0;
    return TRP_OK;
}

/* All say how many batches they made and what they want, and go on from the mean. */
static trp_status meet_in_the_mean(struct synchronous *s, struct mode_round *round)
{
    const uint64_t words[LEARNERS_WORDS] = {s->local_flags, s->local_batches};
    uint64_t any = 0, all = UINT64_MAX, batches = 0;
    TRP_TRY(learners_wait(&s->group, learners_tell(&s->group, words)));
    for (uint32_t rank = 0; rank < s->group.size; rank++) {
        any |= learners_told(&s->group, rank)[0];
        all &= learners_told(&s->group, rank)[0];
        batches += learners_told(&s->group, rank)[1];
    }
    for (size_t i = 0; i < s->base.vectors->count && batches > 0; i++)
        TRP_TRY(average_vector(s, i, batches));
    if (batches > 0)
        s->local_steps += s->options.local_steps;
    round->whole = batches > 0;
    round->stops = any & LOCAL_STOPS;
    round->over = any & LOCAL_OVER;
    round->ended = all & LOCAL_ENDED;
    round->leaves = any & LOCAL_LEAVES;
    begin_period(s);
    return TRP_OK;
}

static trp_status local_end(struct mode *mode, struct mode_round *round)
{
    struct synchronous *s = local_of(mode);
    s->local_rounds++;
    s->local_batches += round->has_batch;
    round->whole = round->has_batch;
    round->stops = round->over = round->ended = round->leaves = false;
    trp_status status = TRP_OK;
    if (s->local_rounds >= s->options.local_steps || s->local_flags || !round->has_batch)
        status = meet_in_the_mean(s, round);
    round->steps = s->local_steps;
    return status;
}

/* ---- life ---------------------------------------------------------------------------------- */

static void copy_on(trp_queue *queue, float *to, const float *from, size_t count)
{
    trp_queue_copy(queue, to, from, count * sizeof *to);
}

/* The momentum begins anew with the group. */
static void begin_averages(struct synchronous *s)
{
    const struct vectors *vectors = s->base.vectors;
    for (size_t i = 0; i < vectors->count; i++) {
        size_t count = vectors->each[i].spec->count;
        if (!s->local[i].last)
            continue;
        copy_on(vectors->queue, s->local[i].last, vectors->each[i].values.there, count);
        if (s->local[i].average)
            trp_queue_zero(vectors->queue, s->local[i].average, count * sizeof(float));
    }
}

static trp_status local_meet(struct mode *mode, struct mode_meeting *meeting)
{
    struct synchronous *s = local_of(mode);
    begin_period(s);
    TRP_TRY(synchronous_meet(mode, meeting));
    s->local_steps = meeting->steps;
    mode->idle = mode->partial = false;
    begin_averages(s);
    return TRP_OK;
}

static const struct mode_impl local_impl = {
    .meet = local_meet,
    .begin = local_begin,
    .end = local_end,
    .apply = alone_apply,
    .destroy = synchronous_destroy,
};

static trp_status take_last(struct synchronous *s)
{
    const struct vectors *vectors = s->base.vectors;
    for (size_t i = 0; i < vectors->count; i++) {
        size_t bytes = vectors->each[i].spec->count * sizeof(float);
        if (!vectors->each[i].spec->learned)
            continue;
        TRP_TRY(trp_device_alloc(vectors->device, bytes, (void **)&s->local[i].last));
        if (s->options.outer_momentum > 0)
            TRP_TRY(trp_device_alloc(vectors->device, bytes, (void **)&s->local[i].average));
    }
    return TRP_OK;
}

trp_status local_sgd_create(struct mode **out, struct vectors *vectors,
                            const struct mode_options *options)
{
    struct mode_options local = *options;
    if (local.local_steps == 0)
        local.local_steps = LOCAL_STEPS;
    TRP_TRY(synchronous_create(out, vectors, &local, false));
    struct synchronous *s = local_of(*out);
    s->base.impl = &local_impl;
    bool has_last = options->outer_momentum > 0 || options->compress.kind != COMPRESS_NONE;
    return has_last ? take_last(s) : TRP_OK;
}
