/* GossipGraD (gossip_rule.h), of parameters: each learner steps by itself, and after every step it
 * swaps its vectors with two others and goes on from the mean of its own and the one that came.
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
#include "gossip_rule.h"
#include "mean.h"
#include "synchronous.h"

enum { HEAD_FLOATS = sizeof(struct gossip_head) / sizeof(float) };

struct gossip_mode {
    struct synchronous s; /* first */
    struct gossip rule;
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

static float *message_in(const struct gossip_mode *gossip, size_t index)
{
    return gossip->messages[index] + HEAD_FLOATS + count_of(gossip, index);
}

/* The vectors come to the messages. */
static trp_status fill_messages(struct gossip_mode *gossip)
{
    const struct vectors *vectors = gossip->s.base.vectors;
    for (size_t i = 0; i < vectors->count; i++)
        twin_fetch(&vectors->each[i].values, vectors->queue, 0, vectors->each[i].values.bytes);
    TRP_TRY(trp_queue_sync(vectors->queue, trp_queue_mark(vectors->queue)));
    for (size_t i = 0; i < vectors->count; i++) {
        memcpy(gossip->messages[i], &gossip->rule.head, sizeof gossip->rule.head);
        memcpy(gossip->messages[i] + HEAD_FLOATS, vectors->each[i].values.here,
               vectors->each[i].values.bytes);
    }
    return TRP_OK;
}

static trp_status hear_message(struct gossip_mode *gossip, size_t index)
{
    const struct vectors *vectors = gossip->s.base.vectors;
    struct gossip_head head;
    memcpy(&head, message_in(gossip, index), sizeof head);
    if (gossip_hear(&gossip->rule, &head) != GOSSIP_TAKEN) /* the same in that of each vector */
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "learners differ: rank %" PRIu32 " is in round %" PRIu64
                        ", one that it hears of in %" PRIu64,
                        gossip->s.group.rank, gossip->rule.head.round, head.round);
    gossip_average(vectors->each[index].values.here, message_in(gossip, index) + HEAD_FLOATS,
                   count_of(gossip, index));
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
    TRP_TRY(fill_messages(gossip));
    for (size_t i = 0; i < count; i++)
        tickets[i] =
            trp_collective_shift(group->collective, gossip->messages[i],
                                 HEAD_FLOATS + count_of(gossip, i), TRP_COLLECTIVE_F32, distance);
    for (size_t i = 0; i < count; i++) {
        TRP_TRY(learners_wait(group, tickets[i]));
        TRP_TRY(hear_message(gossip, i));
    }
    return TRP_OK;
}

static trp_status go_on_from_the_mean(struct gossip_mode *gossip)
{
    struct learners *group = &gossip->s.group;
    const struct mean mean = {
        .group = group, .circle = group->collective, .weight = 1, .weights = group->size};
    return mean_of_vectors(&mean, gossip->s.base.vectors);
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
    return TRP_OK;
}

static void gossip_destroy(struct mode *mode)
{
    struct gossip_mode *gossip = gossip_of(mode);
    synchronous_cleanup(&gossip->s); /* before its messages, which may be on their way */
    for (size_t i = 0; i < TRP_UPDATER_VECTORS_MAX; i++)
        free(gossip->messages[i]);
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
    TRP_TRY(synchronous_init(&gossip->s, &gossip_impl, vectors, options, false));
    for (size_t i = 0; i < vectors->count; i++)
        gossip->messages[i] = xcalloc(2 * (HEAD_FLOATS + count_of(gossip, i)), sizeof(float));
    return TRP_OK;
}
