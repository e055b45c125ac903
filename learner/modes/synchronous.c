/* Learners that step alike: after each step all have the same vectors, to the bit.
 *
 * A round begins with an exchange of flags: who has a batch, who wants to stop, whether a
 * checkpoint is due. Nobody waits for it before the first gradient is final. Where all have a
 * batch and the updater's phases do not follow from it, the operations of all ranks are the same
 * without a word. Otherwise the round is guided: whoever comes to a phase tells the others, and
 * those who have no batch, or are done with theirs, take part with a weight of 0. What the updater
 * changed besides, as target networks, they get at the end.
 *
 * What fails ends the generation. Vectors are copied before each step; so a step that not all
 * finished leaves no trace, and where some finished it the others get what it came to. */
#include "synchronous.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

enum flag {
    HAS_BATCH = 1,
    STOPS = 2,
    OVER = 4,
    ENDED = 8,
    SAVES = 16,
    LEAVES = 32,
};

static struct synchronous *synchronous_of(struct mode *mode)
{
    return (struct synchronous *)mode;
}

/* ---- rounds ------------------------------------------------------------------------------------
 */

/* What everybody said at the beginning. */
static trp_status know(struct synchronous *s)
{
    if (s->known)
        return TRP_OK;
    TRP_TRY(learners_wait(&s->group, s->ticket));
    s->any = 0;
    s->all = UINT64_MAX;
    s->first = s->group.size;
    for (uint32_t rank = s->group.size; rank-- > 0;) {
        const uint64_t *words = learners_told(&s->group, rank);
        s->any |= words[0];
        s->all &= words[0];
        if (words[0] & HAS_BATCH)
            s->first = rank;
        if (words[1] != s->number)
            return trp_fail(TRP_FAILED_PRECONDITION,
                            "learners differ: rank %u is at step %" PRIu64 ", rank %u at %" PRIu64,
                            s->group.rank, s->number, rank, words[1]);
    }
    s->leader = learners_told(&s->group, 0)[0];
    s->guided = s->options.updater->phases_vary || !(s->all & HAS_BATCH);
    s->known = true;
    return TRP_OK;
}

/* Of `count` batches some make up a first round, if there are fewer learners; of the rounds after
 * it every learner has one. */
void synchronous_next_round(struct synchronous *s)
{
    uint32_t size = s->group.size, count = s->options.count;
    bool one = s->options.updater->phases_vary || count <= size;
    s->rounds = one ? 1 : (count + size - 1) / size;
    s->base.idle = !one && s->round == 0 && s->group.rank >= count - size * (s->rounds - 1);
    s->base.partial = s->round + 1 < s->rounds;
}

static trp_status synchronous_begin(struct mode *mode, const struct mode_round *round)
{
    struct synchronous *s = synchronous_of(mode);
    uint64_t flags = 0;
    flags |= round->has_batch ? HAS_BATCH : 0;
    flags |= round->stops ? STOPS : 0;
    flags |= round->over ? OVER : 0;
    flags |= round->ended ? ENDED : 0;
    flags |= round->saves ? SAVES : 0;
    flags |= learners_is_left(&s->group) ? LEAVES : 0;
    if (s->round == 0 && !s->sharded)
        backup_take(&s->backup);
    s->number = round->number;
    s->unsettled = 0;
    s->known = false;
    mode->rows = 0;
    const uint64_t words[LEARNERS_WORDS] = {flags, round->number};
    s->ticket = learners_tell(&s->group, words);
    return TRP_OK;
}

/* What an updater changes besides ending phases comes from a rank whose updater ran. */
static trp_status equalise(struct synchronous *s)
{
    const struct vectors *vectors = s->base.vectors;
    trp_updater *updater = s->options.updater;
    for (size_t i = 0; i < vectors->count; i++)
        TRP_TRY(learners_wait(
            &s->group, trp_collective_broadcast(
                           s->group.collective, vectors->queue, vectors->each[i].values.there,
                           vectors->each[i].spec->count, TRP_COLLECTIVE_F32, s->first)));
    trp_checkpoint_tensor tensors[TRP_UPDATER_TENSORS_MAX];
    size_t count = updater->impl->state ? updater->impl->state(updater, tensors) : 0;
    for (size_t i = 0; i < count; i++)
        TRP_TRY(learners_spread(&s->group, (void *)(uintptr_t)tensors[i].data,
                                tensor_bytes(&tensors[i]), s->first));
    return TRP_OK;
}

static trp_status synchronous_end(struct mode *mode, struct mode_round *round)
{
    struct synchronous *s = synchronous_of(mode);
    TRP_TRY(know(s));
    TRP_TRY(learners_wait(&s->group, s->unsettled)); /* a step that failed did not happen */
    bool anybody = s->any & HAS_BATCH;
    if (anybody && s->guided)
        TRP_TRY(guided_follow(s));
    round->whole = anybody && !mode->partial;
    if (round->whole && !(s->all & HAS_BATCH))
        TRP_TRY(equalise(s));
    round->stops = s->any & STOPS;
    round->over = s->any & OVER;
    round->ended = s->all & ENDED;
    round->saves = s->leader & SAVES;
    round->leaves = s->any & LEAVES;
    if (anybody)
        s->round = round->whole ? 0 : s->round + 1;
    synchronous_next_round(s);
    return TRP_OK;
}

/* ---- what an updater calls ----------------------------------------------------------------------
 */

/* A failure comes out where it can be told. */
static void synchronous_ready(struct mode *mode, size_t index, size_t lo, size_t hi)
{
    struct synchronous *s = synchronous_of(mode);
    if (!mode->partial && know(s) == TRP_OK && !s->guided)
        phase_ready(s, index, lo, hi);
}

static trp_status arrive(struct synchronous *s, enum deed deed, size_t index)
{
    TRP_TRY(know(s));
    return s->guided ? guided_tell(s, deed, index, 0) : TRP_OK;
}

static trp_status synchronous_reduce(struct mode *mode, size_t index)
{
    struct synchronous *s = synchronous_of(mode);
    if (mode->partial)
        return trp_fail(TRP_UNIMPLEMENTED,
                        "learner: an updater that looks at mean gradients cannot make a step of "
                        "several batches");
    TRP_TRY(arrive(s, DEED_REDUCE, index));
    TRP_TRY(phase_reduce(s, index));
    if (s->sharded)
        TRP_TRY(
            sharded_gather_ranges(s, &s->each[index].buckets, mode->vectors->each[index].grads));
    return learners_wait(&s->group, s->unsettled);
}

static trp_status synchronous_apply(struct mode *mode, size_t index)
{
    struct synchronous *s = synchronous_of(mode);
    if (mode->partial)
        return phase_keep(s, index);
    TRP_TRY(arrive(s, DEED_APPLY, index));
    return phase_finish(s, index);
}

/* Who left at once would take with it parts of sums that others still wait for: they would take it
 * for lost, and go on without. In a guided round others are elsewhere. */
static void synchronous_refuse(struct mode *mode)
{
    struct synchronous *s = synchronous_of(mode);
    if (!s->guided)
        learners_part(&s->group);
}

static trp_status synchronous_max(struct mode *mode, double *value)
{
    struct synchronous *s = synchronous_of(mode);
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    TRP_TRY(know(s));
    TRP_TRY(guided_tell(s, DEED_LARGEST, 0, bits));
    for (uint32_t rank = 0; rank < s->group.size; rank++) {
        const uint64_t *words = learners_told(&s->group, rank);
        double other;
        memcpy(&other, &words[1], sizeof other);
        if (words[0] == DEED_LARGEST && other > *value)
            *value = other;
    }
    return TRP_OK;
}

/* ---- life ---------------------------------------------------------------------------------------
 */

static trp_status synchronous_gather(struct mode *mode)
{
    struct synchronous *s = synchronous_of(mode);
    return s->sharded ? sharded_gather(s) : TRP_OK;
}

static void synchronous_release(struct mode *mode)
{
    if (synchronous_of(mode)->sharded)
        sharded_release(synchronous_of(mode));
}

void synchronous_cleanup(struct synchronous *s)
{
    trp_device *device = s->base.vectors->device;
    learners_destroy(&s->group);
    for (size_t i = 0; i < TRP_UPDATER_VECTORS_MAX; i++) {
        buckets_destroy(&s->each[i].buckets);
        if (s->each[i].kept)
            trp_device_free(device, head_of(s->each[i].kept));
        free(s->each[i].shards);
        compressed_destroy(&s->each[i]);
    }
    backup_cleanup(&s->backup);
    trp_device_free(device, s->parts);
    trp_device_free(device, s->numbers);
}

static void synchronous_destroy(struct mode *mode)
{
    synchronous_cleanup(synchronous_of(mode));
    free(mode);
}

static const struct mode_impl synchronous_impl = {
    .meet = synchronous_meet,
    .begin = synchronous_begin,
    .end = synchronous_end,
    .ready = synchronous_ready,
    .reduce = synchronous_reduce,
    .max = synchronous_max,
    .apply = synchronous_apply,
    .refuse = synchronous_refuse,
    .gather = synchronous_gather,
    .release = synchronous_release,
    .destroy = synchronous_destroy,
};

trp_status synchronous_init(struct synchronous *s, const struct mode_impl *impl,
                            struct vectors *vectors, const struct mode_options *options,
                            bool sharded)
{
    const trp_updater *updater = options->updater;
    s->base = (struct mode){
        .impl = impl,
        .vectors = vectors,
        .group = &s->group,
        .batch_size = updater->source_count > 0 ? (float)updater->sources[0].batch_size : 1};
    s->options = *options;
    s->sharded = sharded;
    for (size_t i = 0; i < vectors->count; i++) {
        if (!vectors->each[i].spec->learned)
            continue;
        bool whole = options->compress.kind != COMPRESS_NONE; /* then it is one bucket */
        size_t count = vectors->each[i].spec->count, bytes = (HEAD_NUMBERS + count) * sizeof(float);
        buckets_create(&s->each[i].buckets, count, whole ? bytes : options->bucket_bytes);
        if (whole)
            compressed_create(s, i);
    }
    s->fingerprint = synchronous_fingerprint(s);
    TRP_TRY(trp_device_alloc(vectors->device, HEAD_NUMBERS * sizeof(float), (void **)&s->numbers));
    struct learners_options group = options->group;
    group.device = vectors->device;
    return learners_create(&s->group, &group);
}

trp_status synchronous_init_plain(struct synchronous *s, const struct mode_impl *impl,
                                  struct vectors *vectors, const struct mode_options *options)
{
    struct mode_options plain = *options;
    plain.compress.kind = COMPRESS_NONE;
    TRP_TRY(synchronous_init(s, impl, vectors, &plain, false));
    s->options = *options;
    s->fingerprint = synchronous_fingerprint(s);
    return TRP_OK;
}

trp_status synchronous_create(struct mode **out, struct vectors *vectors,
                              const struct mode_options *options, bool sharded)
{
    *out = NULL;
    if (sharded)
        sharded_prepare(vectors);
    struct synchronous *s = xcalloc(1, sizeof *s);
    *out = &s->base;
    return synchronous_init(s, &synchronous_impl, vectors, options, sharded);
}
