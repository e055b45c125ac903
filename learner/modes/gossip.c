/* GossipGraD (gossip_rule.h), of parameters: each learner steps by itself, and after every step it
 * swaps its vectors with two others and goes on from the mean of its own and the one that came; or,
 * compressed (gossip_known.h), nearer to it.
 * Nobody waits for all. The optimizers' states stay each learner's own.
 *
 * What is decided together (a stop, the end, a checkpoint, who is new) is decided when all have
 * heard of it, some rounds later, after the same round. All learners go on from the mean of all
 * before a checkpoint, at the end, and before others join: so what is saved is everybody's. A
 * generation that breaks costs the step that was going on; then all have the vectors of the one
 * that has done most steps. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "gossip_known.h"
#include "gossip_rule.h"
#include "mean.h"
#include "synchronous.h"

enum { HEAD_FLOATS = sizeof(struct gossip_head) / sizeof(float) };

struct gossip_mode {
    struct synchronous s; /* first */
    struct gossip rule;
    struct gossip_known known[TRP_UPDATER_VECTORS_MAX]; /* compressed; else zeroed */
    float *messages[TRP_UPDATER_VECTORS_MAX]; /* the host's: what is sent, and what comes */
    uint64_t steps;                           /* of all, together */
};

static struct gossip_mode *gossip_of(struct mode *mode)
{
    return (struct gossip_mode *)mode;
}

/* ---- messages, on the host ----------------------------------------------------------------- */

static size_t count_of(const struct gossip_mode *gossip, size_t index)
{
    return gossip->s.base.vectors->each[index].spec->count;
}

static bool compresses(const struct gossip_mode *gossip)
{
    return gossip->s.options.compress.kind != COMPRESS_NONE;
}

/* Floats, or as many words of a code, with the head. */
static size_t message_numbers(const struct gossip_mode *gossip, size_t index)
{
    return HEAD_FLOATS + (compresses(gossip)
                              ? gossip_known_words(&gossip->known[index], gossip->steps)
                              : count_of(gossip, index));
}

static float *message_in(const struct gossip_mode *gossip, size_t index)
{
    return gossip->messages[index] + message_numbers(gossip, index);
}

static trp_status say_numbers(struct gossip_mode *gossip, size_t index, uint32_t distance)
{
    const struct vector *vector = &gossip->s.base.vectors->each[index];
    float *numbers = gossip->messages[index] + HEAD_FLOATS;
    uint64_t key = gossip->rule.head.round * gossip->rule.size + gossip->rule.rank;
    if (!compresses(gossip)) {
        memcpy(numbers, vector->values.here, vector->values.bytes);
        return TRP_OK;
    }
    trp_status status = gossip_known_say(&gossip->known[index], distance, gossip->steps, key,
                                         vector->values.here, (uint32_t *)(void *)numbers);
    return status == TRP_OK ? TRP_OK
                            : trp_fail(status, "learner: '%s' cannot go compressed: %s",
                                       vector->spec->name, trp_last_error());
}

static trp_status hear_numbers(struct gossip_mode *gossip, size_t index, uint32_t distance)
{
    const struct vector *vector = &gossip->s.base.vectors->each[index];
    const float *numbers = message_in(gossip, index) + HEAD_FLOATS;
    if (!compresses(gossip)) {
        gossip_average(vector->values.here, numbers, count_of(gossip, index));
        return TRP_OK;
    }
    trp_status status =
        gossip_known_hear(&gossip->known[index], distance, gossip->steps,
                          (const uint32_t *)(const void *)numbers, vector->values.here);
    return status == TRP_OK ? TRP_OK
                            : trp_fail(TRP_DATA_LOSS, "learner: what came of '%s': %s",
                                       vector->spec->name, trp_last_error());
}

/* The vectors come to the messages. */
static trp_status fill_messages(struct gossip_mode *gossip, uint32_t distance)
{
    const struct vectors *vectors = gossip->s.base.vectors;
    for (size_t i = 0; i < vectors->count; i++)
        twin_fetch(&vectors->each[i].values, vectors->queue, 0, vectors->each[i].values.bytes);
    TRP_TRY(trp_queue_sync(vectors->queue, trp_queue_mark(vectors->queue)));
    for (size_t i = 0; i < vectors->count; i++) {
        memcpy(gossip->messages[i], &gossip->rule.head, sizeof gossip->rule.head);
        TRP_TRY(say_numbers(gossip, i, distance));
    }
    return TRP_OK;
}

static trp_status hear_message(struct gossip_mode *gossip, size_t index, uint32_t distance)
{
    const struct vectors *vectors = gossip->s.base.vectors;
    struct gossip_head head;
    memcpy(&head, message_in(gossip, index), sizeof head);
    if (gossip_hear(&gossip->rule, &head) != GOSSIP_TAKEN) /* the same in that of each vector */
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "learners differ: rank %" PRIu32 " is in round %" PRIu64
                        ", one that it hears of in %" PRIu64,
                        gossip->s.group.rank, gossip->rule.head.round, head.round);
    TRP_TRY(hear_numbers(gossip, index, distance));
    twin_store(&vectors->each[index].values, vectors->queue);
    return TRP_OK;
}

static trp_status swap_with_partners(struct gossip_mode *gossip)
{
    size_t count = gossip->s.base.vectors->count;
    struct learners *group = &gossip->s.group;
    uint64_t tickets[TRP_UPDATER_VECTORS_MAX];
    uint32_t distance = gossip_distance(&gossip->rule);
    if (distance == 0)
        return TRP_OK;
    TRP_TRY(fill_messages(gossip, distance));
    for (size_t i = 0; i < count; i++)
        tickets[i] = trp_collective_shift(group->collective, gossip->messages[i],
                                          message_numbers(gossip, i), TRP_COLLECTIVE_F32, distance);
    for (size_t i = 0; i < count; i++) {
        TRP_TRY(learners_wait(group, tickets[i]));
        TRP_TRY(hear_message(gossip, i, distance));
    }
    return TRP_OK;
}

/* All have the same vectors. */
static trp_status begin_alike(struct gossip_mode *gossip)
{
    const struct vectors *vectors = gossip->s.base.vectors;
    if (!compresses(gossip))
        return TRP_OK;
    for (size_t i = 0; i < vectors->count; i++)
        twin_fetch(&vectors->each[i].values, vectors->queue, 0, vectors->each[i].values.bytes);
    TRP_TRY(trp_queue_sync(vectors->queue, trp_queue_mark(vectors->queue)));
    for (size_t i = 0; i < vectors->count; i++)
        gossip_known_begin(&gossip->known[i], gossip->s.group.size, vectors->each[i].values.here);
    return TRP_OK;
}

static trp_status go_on_from_the_mean(struct gossip_mode *gossip)
{
    struct learners *group = &gossip->s.group;
    const struct mean mean = {
        .group = group, .circle = group->collective, .weight = 1, .weights = group->size};
    TRP_TRY(mean_of_vectors(&mean, gossip->s.base.vectors));
    return begin_alike(gossip);
}

/* ---- rounds -------------------------------------------------------------------------------- */

static trp_status gossip_begin(struct mode *mode, const struct mode_round *round)
{
    struct gossip_mode *gossip = gossip_of(mode);
    const bool said[GOSSIP_FLAGS] = {
        [GOSSIP_HAS_BATCH] = round->has_batch,
        [GOSSIP_STOPS] = round->stops,
        [GOSSIP_OVER] = round->over,
        [GOSSIP_GOES_ON] = !round->ended,
        [GOSSIP_SAVES] = round->saves && !gossip_is_said(&gossip->rule, GOSSIP_SAVES),
        [GOSSIP_LEAVES] = learners_is_left(&gossip->s.group),
    };
    for (uint32_t flag = 0; flag < GOSSIP_FLAGS; flag++)
        if (said[flag])
            gossip_say(&gossip->rule, (enum gossip_flag)flag);
    backup_take(&gossip->s.backup);
    return TRP_OK;
}

static trp_status gossip_round_end(struct mode *mode, struct mode_round *round)
{
    struct gossip_mode *gossip = gossip_of(mode);
    uint32_t flags;
    TRP_TRY(swap_with_partners(gossip));
    bool known = gossip_end(&gossip->rule, &flags);
    bool anybody = flags >> GOSSIP_HAS_BATCH & 1;
    gossip->steps += anybody;
    round->stops = flags >> GOSSIP_STOPS & 1;
    round->over = flags >> GOSSIP_OVER & 1;
    round->ended = known && !(flags >> GOSSIP_GOES_ON & 1);
    round->saves = flags >> GOSSIP_SAVES & 1;
    round->leaves = flags >> GOSSIP_LEAVES & 1;
    round->whole = round->has_batch || anybody || round->saves || round->leaves;
    round->steps = gossip->steps;
    return round->leaves ? go_on_from_the_mean(gossip) : TRP_OK;
}

/* One that fails meanwhile has its own vectors. */
static trp_status gossip_gather(struct mode *mode)
{
    struct gossip_mode *gossip = gossip_of(mode);
    struct learners *group = &gossip->s.group;
    if (!group->collective || group->broken)
        return TRP_OK;
    backup_take(&gossip->s.backup);
    trp_status status = go_on_from_the_mean(gossip);
    if (!group->broken)
        return status;
    backup_restore(&gossip->s.backup);
    return TRP_OK;
}

/* ---- life ---------------------------------------------------------------------------------- */

static trp_status gossip_meet(struct mode *mode, struct mode_meeting *meeting)
{
    struct gossip_mode *gossip = gossip_of(mode);
    uint64_t uncounted = gossip->rule.head.said[GOSSIP_HAS_BATCH] & ~UINT64_C(1); /* but this */
    meeting->steps += (uint64_t)__builtin_popcountll(uncounted);
    TRP_TRY(synchronous_meet(mode, meeting));
    gossip->steps = meeting->steps;
    mode->idle = mode->partial = false;
    gossip_init(&gossip->rule, gossip->s.group.rank, gossip->s.group.size);
    return begin_alike(gossip);
}

static void gossip_destroy(struct mode *mode)
{
    struct gossip_mode *gossip = gossip_of(mode);
    synchronous_cleanup(&gossip->s); /* before its messages, which may be on their way */
    for (size_t i = 0; i < TRP_UPDATER_VECTORS_MAX; i++) {
        gossip_known_destroy(&gossip->known[i]);
        free(gossip->messages[i]);
    }
    free(gossip);
}

static const struct mode_impl gossip_impl = {
    .meet = gossip_meet,
    .begin = gossip_begin,
    .end = gossip_round_end,
    .apply = alone_apply,
    .gather = gossip_gather,
    .destroy = gossip_destroy,
};

trp_status gossip_create(struct mode **out, struct vectors *vectors,
                         const struct mode_options *options)
{
    struct gossip_mode *gossip = xcalloc(1, sizeof *gossip);
    *out = &gossip->s.base;
    TRP_TRY(synchronous_init_plain(&gossip->s, &gossip_impl, vectors, options));
    for (size_t i = 0; i < vectors->count; i++) {
        size_t most = count_of(gossip, i) * (compresses(gossip) ? 2 : 1); /* top-k: places, too */
        gossip->messages[i] = xcalloc(2 * (HEAD_FLOATS + most + 2), sizeof(float));
        if (compresses(gossip))
            gossip_known_create(&gossip->known[i], count_of(gossip, i), &options->compress);
    }
    return TRP_OK;
}
