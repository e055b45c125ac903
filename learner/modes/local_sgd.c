/* Local SGD (Stich 2019, "Local SGD Converges Fast and Communicates Little", algorithm 1): each
 * learner steps by itself, and after so many steps all go on from the mean of their vectors. With
 * an outer momentum b the mean is a step of its own (Wang et al. 2020, "SlowMo", equations 2 and 3
 * with a slow learning rate of 1, the fast one taken into u):
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
#include <stdlib.h>

#include "core/alloc.h"
#include "kernels.h"
#include "mean.h"
#include "synchronous.h"

enum local_flag { LOCAL_STOPS = 1, LOCAL_OVER = 2, LOCAL_ENDED = 4, LOCAL_LEAVES = 8 };

/* Of a learned vector, on the device: `last` with a momentum or compressed, `average` with a
 * momentum; else NULL. */
struct local_vector {
    float *last, *average;
};

struct local_sgd {
    struct synchronous s; /* first */
    struct local_vector each[TRP_UPDATER_VECTORS_MAX];
    uint64_t steps; /* of all, together */
    /* Since the last mean: */
    uint64_t batches, flags; /* of this learner */
    uint32_t rounds;
};

static struct local_sgd *local_of(struct mode *mode)
{
    return (struct local_sgd *)mode;
}

/* ---- the mean ------------------------------------------------------------------------------ */

/* Where the gradient is, which is 0 between two steps. */
static trp_status sum_ways(struct local_sgd *local, size_t index)
{
    trp_queue *queue = local->s.base.vectors->queue;
    const struct vector *vector = &local->s.base.vectors->each[index];
    size_t count = vector->spec->count;
    float batches = (float)local->batches;
    keep_on(queue, vector->grads, local->each[index].last, count, 1);
    keep_on(queue, vector->grads, vector->values.there, count, -1);
    weigh_on(queue, vector->grads, count, batches, NULL);
    head_on(queue, head_of(vector->grads), batches, NULL, NULL);
    return compressed_reduce(&local->s, index, false);
}

/* Vectors that follow others, as target networks, have a mean but no momentum. */
static trp_status average_vector(struct local_sgd *local, size_t index, const struct mean *mean)
{
    const struct vectors *vectors = local->s.base.vectors;
    const struct vector *vector = &vectors->each[index];
    size_t count = vector->spec->count;
    bool compresses = local->s.each[index].compressor != NULL;
    if (compresses)
        TRP_TRY(sum_ways(local, index));
    else
        TRP_TRY(mean_sum(mean, vectors, index));
    outer_on(vectors->queue,
             &(struct mode_outer_arguments){.values = vector->values.there,
                                            .way = compresses ? vector->grads : NULL,
                                            .last = local->each[index].last,
                                            .average = local->each[index].average,
                                            .count = count,
                                            .batches = (float)mean->weights,
                                            .momentum = local->s.options.outer_momentum});
    if (compresses)
        trp_queue_zero(vectors->queue, vector->grads, count * sizeof(float));
    return TRP_OK;
}

/* ---- rounds -------------------------------------------------------------------------------- */

/* The steps to the next mean. */
static void begin_period(struct local_sgd *local)
{
    local->flags = 0;
    local->rounds = 0;
    local->batches = 0;
}

static trp_status local_begin(struct mode *mode, const struct mode_round *round)
{
    struct local_sgd *local = local_of(mode);
    if (local->rounds == 0)
        backup_take(&local->s.backup);
    local->flags |= round->stops ? LOCAL_STOPS : 0;
    local->flags |= round->over ? LOCAL_OVER : 0;
    local->flags |= round->ended ? LOCAL_ENDED : 0;
    local->flags |= learners_is_left(&local->s.group) ? LOCAL_LEAVES : 0;
    return TRP_OK;
}

/* All say how many batches they made and what they want, and go on from the mean. */
static trp_status meet_in_the_mean(struct local_sgd *local, struct mode_round *round)
{
    struct learners *group = &local->s.group;
    const uint64_t words[LEARNERS_WORDS] = {local->flags, local->batches};
    struct mean mean = {.group = group, .circle = group->collective, .weight = local->batches};
    uint64_t any = 0, all = UINT64_MAX;
    TRP_TRY(learners_wait(group, learners_tell(group, words)));
    for (uint32_t rank = 0; rank < group->size; rank++) {
        any |= learners_told(group, rank)[0];
        all &= learners_told(group, rank)[0];
        mean.weights += learners_told(group, rank)[1];
    }
    for (size_t i = 0; i < local->s.base.vectors->count && mean.weights > 0; i++)
        TRP_TRY(average_vector(local, i, &mean));
    if (mean.weights > 0)
        local->steps += local->s.options.local_steps;
    round->whole = mean.weights > 0;
    round->stops = any & LOCAL_STOPS;
    round->over = any & LOCAL_OVER;
    round->ended = all & LOCAL_ENDED;
    round->leaves = any & LOCAL_LEAVES;
    begin_period(local);
    return TRP_OK;
}

static trp_status local_end(struct mode *mode, struct mode_round *round)
{
    struct local_sgd *local = local_of(mode);
    local->rounds++;
    local->batches += round->has_batch;
    round->whole = round->has_batch;
    round->stops = round->over = round->ended = round->leaves = false;
    trp_status status = TRP_OK;
    if (local->rounds >= local->s.options.local_steps || local->flags || !round->has_batch)
        status = meet_in_the_mean(local, round);
    else
        round->saves = false; /* until the vectors are the group's */
    round->steps = local->steps;
    return status;
}

/* ---- life ---------------------------------------------------------------------------------- */

static void copy_on(trp_queue *queue, float *to, const float *from, size_t count)
{
    trp_queue_copy(queue, to, from, count * sizeof *to);
}

/* The momentum begins anew with the group. */
static void begin_averages(struct local_sgd *local)
{
    const struct vectors *vectors = local->s.base.vectors;
    for (size_t i = 0; i < vectors->count; i++) {
        size_t count = vectors->each[i].spec->count;
        if (!local->each[i].last)
            continue;
        copy_on(vectors->queue, local->each[i].last, vectors->each[i].values.there, count);
        if (local->each[i].average)
            trp_queue_zero(vectors->queue, local->each[i].average, count * sizeof(float));
    }
}

static trp_status local_meet(struct mode *mode, struct mode_meeting *meeting)
{
    struct local_sgd *local = local_of(mode);
    begin_period(local);
    TRP_TRY(synchronous_meet(mode, meeting));
    local->steps = meeting->steps;
    mode->idle = mode->partial = false;
    begin_averages(local);
    return TRP_OK;
}

static void local_sgd_destroy(struct mode *mode)
{
    struct local_sgd *local = local_of(mode);
    for (size_t i = 0; i < TRP_UPDATER_VECTORS_MAX; i++) {
        trp_device_free(mode->vectors->device, local->each[i].last);
        trp_device_free(mode->vectors->device, local->each[i].average);
    }
    synchronous_cleanup(&local->s);
    free(local);
}

static const struct mode_impl local_impl = {
    .meet = local_meet,
    .begin = local_begin,
    .end = local_end,
    .apply = alone_apply,
    .destroy = local_sgd_destroy,
};

static trp_status take_last(struct local_sgd *local)
{
    const struct vectors *vectors = local->s.base.vectors;
    for (size_t i = 0; i < vectors->count; i++) {
        size_t bytes = vectors->each[i].spec->count * sizeof(float);
        if (!vectors->each[i].spec->learned)
            continue;
        TRP_TRY(trp_device_alloc(vectors->device, bytes, (void **)&local->each[i].last));
        if (local->s.options.outer_momentum > 0)
            TRP_TRY(trp_device_alloc(vectors->device, bytes, (void **)&local->each[i].average));
    }
    return TRP_OK;
}

trp_status local_sgd_create(struct mode **out, struct vectors *vectors,
                            const struct mode_options *options)
{
    struct mode_options own = *options;
    if (own.local_steps == 0)
        own.local_steps = LOCAL_STEPS;
    struct local_sgd *local = xcalloc(1, sizeof *local);
    *out = &local->s.base;
    TRP_TRY(synchronous_init(&local->s, &local_impl, vectors, &own, false));
    local->s.base.more_steps = own.local_steps - 1;
    bool has_last = options->outer_momentum > 0 || options->compress.kind != COMPRESS_NONE;
    return has_last ? take_last(local) : TRP_OK;
}
