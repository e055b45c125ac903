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
#include "core/hash.h"

enum flag {
    HAS_BATCH = 1,
    STOPS = 2,
    OVER = 4,
    ENDED = 8,
    SAVES = 16,
    LEAVES = 32,
};

/* What a rank is about to do in a guided round; phases with the vector's index. */
enum deed { DONE, LARGEST, REDUCE, APPLY };

static struct synchronous *synchronous_of(struct mode *mode)
{
    return (struct synchronous *)mode;
}

/* ---- guided rounds ----------------------------------------------------------------------------
 */

static uint64_t deed_of(enum deed deed, size_t index)
{
    return (uint64_t)deed | (uint64_t)index << 8;
}

static const char *deed_name(uint64_t deed)
{
    static const char *const names[] = {"is done with the step", "asks for the largest number",
                                        "reduces", "applies"};
    return names[deed & 3];
}

/* What those do who are not done; DONE: all are. */
static trp_status common_deed(const struct synchronous *s, uint64_t *deed)
{
    uint32_t first = 0;
    *deed = DONE;
    for (uint32_t rank = 0; rank < s->group.size; rank++) {
        uint64_t other = learners_told(&s->group, rank)[0];
        if (other == DONE)
            continue;
        if (*deed != DONE && other != *deed)
            return trp_fail(TRP_FAILED_PRECONDITION,
                            "learners differ in step %" PRIu64 ": rank %u %s vector %" PRIu64
                            ", rank %u %s vector %" PRIu64,
                            s->number, first, deed_name(*deed), *deed >> 8, rank, deed_name(other),
                            other >> 8);
        if (*deed == DONE)
            first = rank;
        *deed = other;
    }
    return TRP_OK;
}

static trp_status tell_deed(struct synchronous *s, uint64_t own, uint64_t bits, uint64_t *common)
{
    const uint64_t words[LEARNERS_WORDS] = {own, bits};
    TRP_TRY(learners_wait(&s->group, learners_tell(&s->group, words)));
    return common_deed(s, common);
}

/* Takes part in what the others do until all are done. */
static trp_status follow(struct synchronous *s)
{
    uint64_t deed;
    s->base.rows = 0;
    do {
        TRP_TRY(tell_deed(s, DONE, 0, &deed));
        if (deed >> 8 >= s->base.vectors->count)
            return trp_fail(TRP_DATA_LOSS, "a learner %s vector %" PRIu64 ", which is none",
                            deed_name(deed), deed >> 8);
        if ((deed & 3) == REDUCE)
            TRP_TRY(phase_reduce(s, (size_t)(deed >> 8)));
        if ((deed & 3) == APPLY)
            TRP_TRY(phase_finish(s, (size_t)(deed >> 8)));
    } while (deed != DONE);
    return TRP_OK;
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
static void next_round(struct synchronous *s)
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
        TRP_TRY(follow(s));
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
    next_round(s);
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
    uint64_t common;
    TRP_TRY(know(s));
    return s->guided ? tell_deed(s, deed_of(deed, index), 0, &common) : TRP_OK;
}

static trp_status synchronous_reduce(struct mode *mode, size_t index)
{
    struct synchronous *s = synchronous_of(mode);
    if (mode->partial)
        return trp_fail(TRP_UNIMPLEMENTED,
                        "learner: an updater that looks at mean gradients cannot make a step of "
                        "several batches");
    TRP_TRY(arrive(s, REDUCE, index));
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
    TRP_TRY(arrive(s, APPLY, index));
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
    uint64_t bits, common;
    memcpy(&bits, value, sizeof bits);
    TRP_TRY(know(s));
    TRP_TRY(tell_deed(s, deed_of(LARGEST, 0), bits, &common));
    for (uint32_t rank = 0; rank < s->group.size; rank++) {
        const uint64_t *words = learners_told(&s->group, rank);
        double other;
        memcpy(&other, &words[1], sizeof other);
        if (words[0] == common && other > *value)
            *value = other;
    }
    return TRP_OK;
}

/* ---- meeting ------------------------------------------------------------------------------------
 */

enum { TOLD_STEPS, TOLD_VERSION, TOLD_STATE, TOLD_RNG };
enum { IS_WHOLE = 1, WAS_IN_GROUP = 2, FOUNDED = 4 }; /* of the state */

/* The rank with most steps, the first of them, whose state is whole; of a group that has learned
 * something no new member, whoever else is gone. Or size: there is none. */
static uint32_t find_root(const struct synchronous *s)
{
    uint64_t all = 0;
    uint32_t root = s->group.size;
    for (uint32_t rank = 0; rank < s->group.size; rank++)
        all |= learners_told(&s->group, rank)[TOLD_STATE];
    uint64_t wanted = IS_WHOLE | (all & WAS_IN_GROUP ? WAS_IN_GROUP : FOUNDED);
    for (uint32_t rank = 0; rank < s->group.size; rank++) {
        const uint64_t *words = learners_told(&s->group, rank);
        bool may = (words[TOLD_STATE] & wanted) == wanted;
        if (may && (root == s->group.size ||
                    words[TOLD_STEPS] > learners_told(&s->group, root)[TOLD_STEPS]))
            root = rank;
    }
    return root;
}

static trp_status elect(struct synchronous *s, const struct mode_meeting *meeting, uint32_t *root)
{
    uint64_t words[LEARNERS_WORDS] = {
        [TOLD_STEPS] = meeting->steps,
        [TOLD_VERSION] = meeting_version(meeting, s->group.generation),
        [TOLD_STATE] = (!s->sharded || vectors_are_whole(s->base.vectors) ? IS_WHOLE : 0) |
                       (s->was_in_group ? WAS_IN_GROUP : 0) | (s->group.founder ? FOUNDED : 0),
        [TOLD_RNG] = meeting->rng->state[0]};
    TRP_TRY(learners_wait(&s->group, learners_tell(&s->group, words)));
    *root = find_root(s);
    return TRP_OK;
}

static trp_status spread_vector(struct synchronous *s, struct vector *vector, uint32_t root)
{
    TRP_TRY(learners_spread(&s->group, vector->values.here, vector->values.bytes, root));
    if (!vector->spec->learned)
        return TRP_OK;
    for (size_t k = 0; k < vector_states(vector) && !s->sharded; k++)
        TRP_TRY(learners_spread(&s->group, vector->state[k].here, vector->state[k].bytes, root));
    TRP_TRY(learners_spread(&s->group, vector->phases.here, vector->phases.bytes, root));
    size_t index = (size_t)(vector - s->base.vectors->each);
    return s->each[index].compressor ? compressed_meet(s, index, root) : TRP_OK;
}

/* The root's state becomes everybody's. */
static trp_status spread(struct synchronous *s, uint32_t root)
{
    struct vectors *vectors = s->base.vectors;
    trp_updater *updater = s->options.updater;
    trp_checkpoint_tensor tensors[TRP_UPDATER_TENSORS_MAX];
    size_t count = updater->impl->state ? updater->impl->state(updater, tensors) : 0;
    for (size_t i = 0; i < vectors->count; i++)
        TRP_TRY(spread_vector(s, &vectors->each[i], root));
    for (size_t i = 0; i < count; i++)
        TRP_TRY(learners_spread(&s->group, (void *)(uintptr_t)tensors[i].data,
                                tensor_bytes(&tensors[i]), root));
    if (s->sharded)
        TRP_TRY(sharded_spread(s, root));
    return vectors_store(vectors);
}

/* Device memory whose size follows from that of the group. */
static trp_status make_phase_parts(struct synchronous *s)
{
    trp_device *device = s->base.vectors->device;
    trp_device_free(device, s->parts);
    s->parts = NULL;
    return trp_device_alloc(device, s->group.size * sizeof *s->parts, (void **)&s->parts);
}

static trp_status agree_on_state(struct synchronous *s, struct mode_meeting *meeting)
{
    uint32_t root;
    TRP_TRY(vectors_fetch(s->base.vectors)); /* and nothing uses the parts any more */
    TRP_TRY(make_phase_parts(s));
    TRP_TRY(elect(s, meeting, &root));
    if (root == s->group.size) {
        if (s->base.leads)
            TRP_TRY(meeting->reload(meeting->context, meeting));
        if (s->base.leads && !s->sharded)
            backup_take(&s->backup);
        s->was_in_group = s->was_in_group || s->base.leads; /* what it read is the group's */
        TRP_TRY(elect(s, meeting, &root));
        if (root == s->group.size)
            return trp_fail(TRP_DATA_LOSS,
                            "learner: no learner of generation %" PRIu64 " has the whole state",
                            s->group.generation);
    }
    uint64_t words[LEARNERS_WORDS];
    memcpy(words, learners_told(&s->group, root), sizeof words);
    s->receiving = s->group.rank != root;
    s->behind = words[TOLD_STEPS] > meeting->steps;
    TRP_TRY(spread(s, root));
    s->receiving = false;
    meeting->steps = words[TOLD_STEPS];
    meeting->version = words[TOLD_VERSION];
    if (!s->was_in_group && s->group.rank != root)
        trp_rng_init(meeting->rng, words[TOLD_RNG], s->group.generation << 16 | s->group.rank);
    return TRP_OK;
}

/* What was begun of a step, or received of another learner's state, is undone. */
static void undo(struct synchronous *s)
{
    learners_leave(&s->group);
    phases_forget(s);
    compressed_keep_after(s);
    if (!s->sharded)
        backup_restore(&s->backup);
    else if (s->receiving)
        vectors_drop_whole(s->base.vectors);
    s->receiving = false;
}

trp_status synchronous_meet(struct mode *mode, struct mode_meeting *meeting)
{
    struct synchronous *s = synchronous_of(mode);
    trp_status status = TRP_OK;
    if (!s->sharded && !s->backup.vectors) {
        TRP_TRY(backup_create(&s->backup, mode->vectors, s->options.updater, meeting->rng));
        compressed_back_up(s);
    }
    if (s->was_in_group && s->sharded && !s->group.broken)
        status = sharded_gather(s); /* all leave well */
    do {
        if (s->group.broken)
            undo(s);
        if (!s->sharded)
            backup_take(&s->backup);
        TRP_TRY(learners_meet(&s->group, s->fingerprint));
        mode->leads = s->group.rank == 0;
        status = agree_on_state(s, meeting);
    } while (s->group.broken);
    TRP_TRY(status);
    meeting->generation = s->group.generation;
    compressed_drop_after(s);
    s->was_in_group = true;
    s->round = 0;
    next_round(s);
    return TRP_OK;
}

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

/* ---- life ---------------------------------------------------------------------------------------
 */

void synchronous_destroy(struct mode *mode)
{
    struct synchronous *s = synchronous_of(mode);
    trp_device *device = mode->vectors->device;
    learners_destroy(&s->group);
    for (size_t i = 0; i < TRP_UPDATER_VECTORS_MAX; i++) {
        buckets_destroy(&s->each[i].buckets);
        if (s->each[i].kept)
            trp_device_free(device, head_of(s->each[i].kept));
        free(s->each[i].shards);
        trp_device_free(device, s->local[i].last);
        trp_device_free(device, s->local[i].average);
        free(s->messages[i]);
        compressed_destroy(&s->each[i]);
    }
    backup_cleanup(&s->backup);
    trp_device_free(device, s->parts);
    trp_device_free(device, s->numbers);
    free(s);
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

static uint64_t hash_number(uint64_t hash, double number)
{
    return hash_bytes(hash, &number, sizeof number);
}

/* Of what has to be the same on all ranks. */
static uint64_t fingerprint_of(const struct synchronous *s)
{
    const char *name = s->options.name ? s->options.name : "synchronous";
    uint64_t hash = hash_number(HASH_BYTES_EMPTY, s->sharded);
    hash = hash_number(hash, (double)s->options.bucket_bytes);
    hash = hash_number(hash, s->options.count);
    hash = hash_number(hash, s->options.local_steps);
    hash = hash_number(hash, (double)s->options.outer_momentum);
    hash = hash_number(hash, s->options.significance);
    hash = hash_number(hash, s->options.site_slack);
    hash = hash_bytes(hash, name, strlen(name));
    const struct compress_options *compress = &s->options.compress;
    const double parts[] = {
        compress->kind,     compress->ratio,         (double)compress->warmup_steps,
        compress->momentum, compress->keep_momentum, compress->rank,
        compress->bits};
    hash = hash_bytes(hash, parts, sizeof parts);
    for (size_t i = 0; i < s->base.vectors->count; i++) {
        const trp_vector_spec *spec = s->base.vectors->each[i].spec;
        const trp_optimizer *rule = &spec->optimizer;
        const double numbers[] = {(double)spec->count,
                                  spec->learned,
                                  rule->kind,
                                  rule->schedule,
                                  rule->learning_rate,
                                  rule->final_rate,
                                  (double)rule->schedule_steps,
                                  (double)rule->warmup_steps,
                                  rule->weight_decay,
                                  rule->beta1,
                                  rule->beta2,
                                  rule->alpha,
                                  rule->epsilon,
                                  rule->momentum,
                                  rule->nesterov,
                                  rule->centered,
                                  rule->epsilon_inside,
                                  rule->max_norm,
                                  rule->skip_not_finite};
        char *layout = trp_net_layout(spec->tensors, spec->tensor_count, 0);
        hash = hash_bytes(hash, spec->name, strlen(spec->name));
        hash = hash_bytes(hash, numbers, sizeof numbers);
        hash = hash_bytes(hash, layout, strlen(layout));
        free(layout);
    }
    return hash;
}

trp_status synchronous_create(struct mode **out, struct vectors *vectors,
                              const struct mode_options *options, bool sharded)
{
    const trp_updater *updater = options->updater;
    if (sharded)
        TRP_TRY(sharded_prepare(vectors));
    struct synchronous *s = xcalloc(1, sizeof *s);
    *out = &s->base;
    s->base = (struct mode){
        .impl = &synchronous_impl,
        .vectors = vectors,
        .group = &s->group,
        .batch_size = updater->source_count > 0 ? (float)updater->sources[0].batch_size : 1};
    s->options = *options;
    s->sharded = sharded;
    for (size_t i = 0; i < vectors->count; i++) {
        if (!vectors->each[i].spec->learned)
            continue;
        buckets_create(&s->each[i].buckets, vectors->each[i].spec->count, options->bucket_bytes);
        if (options->compress.kind != COMPRESS_NONE)
            compressed_create(s, i);
    }
    s->fingerprint = fingerprint_of(s);
    TRP_TRY(trp_device_alloc(vectors->device, HEAD_NUMBERS * sizeof(float), (void **)&s->numbers));
    struct learners_options group = options->group;
    group.device = vectors->device;
    return learners_create(&s->group, &group);
}
