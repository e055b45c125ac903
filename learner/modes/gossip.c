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
#include <string.h>

#include "synchronous.h"

#include "core/alloc.h"

enum { HEAD_FLOATS = sizeof(struct gossip_head) / sizeof(float) };

static struct synchronous *gossip_of(struct mode *mode)
{
    return (struct synchronous *)mode;
}

/* ---- vectors, on the host ------------------------------------------------------------------ */

static size_t count_of(const struct synchronous *s, size_t index)
{
    return s->base.vectors->each[index].spec->count;
}

/* What is sent, and behind it what comes. */
static float *message_out(const struct synchronous *s, size_t index)
{
    return s->messages[index];
}

static float *message_in(const struct synchronous *s, size_t index)
{
    return s->messages[index] + HEAD_FLOATS + count_of(s, index);
}

/* The vectors come to the messages. */
static trp_status fill_messages(struct synchronous *s)
{
    const struct vectors *vectors = s->base.vectors;
    for (size_t i = 0; i < vectors->count; i++)
        twin_fetch(&vectors->each[i].values, vectors->queue, 0, vectors->each[i].values.bytes);
    TRP_TRY(trp_queue_sync(vectors->queue, trp_queue_mark(vectors->queue)));
    for (size_t i = 0; i < vectors->count; i++) {
        memcpy(message_out(s, i), &s->gossip.head, sizeof s->gossip.head);
        memcpy(message_out(s, i) + HEAD_FLOATS, vectors->each[i].values.here,
               vectors->each[i].values.bytes);
    }
    return TRP_OK;
}

static void give_back(struct synchronous *s, size_t index)
{
    twin_store(&s->base.vectors->each[index].values, s->base.vectors->queue);
}

static trp_status hear_message(struct synchronous *s, size_t index)
{
    struct gossip_head head;
    memcpy(&head, message_in(s, index), sizeof head);
    if (gossip_hear(&s->gossip, &head) != GOSSIP_TAKEN) /* the same in that of each vector */
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "learners differ: rank %" PRIu32 " is in round %" PRIu64
                        ", one that it hears of in %" PRIu64,
                        s->group.rank, s->gossip.head.round, head.round);
    gossip_average(s->base.vectors->each[index].values.here, message_in(s, index) + HEAD_FLOATS,
                   count_of(s, index));
    give_back(s, index);
    return TRP_OK;
}

static trp_status swap_with_partners(struct synchronous *s)
{
    size_t count = s->base.vectors->count;
    uint64_t tickets[TRP_UPDATER_VECTORS_MAX];
    uint32_t distance = gossip_distance(&s->gossip);
    if (distance == 0)
        return TRP_OK;
    TRP_TRY(fill_messages(s));
    for (size_t i = 0; i < count; i++)
        tickets[i] =
            trp_collective_shift(s->group.collective, message_out(s, i),
                                 HEAD_FLOATS + count_of(s, i), TRP_COLLECTIVE_F32, distance);
    for (size_t i = 0; i < count; i++) {
        TRP_TRY(learners_wait(&s->group, tickets[i]));
        TRP_TRY(hear_message(s, i));
    }
    return TRP_OK;
}

static trp_status go_on_from_the_mean(struct synchronous *s)
{
    TRP_TRY(fill_messages(s));
    for (size_t i = 0; i < s->base.vectors->count; i++) {
        float *sum = message_out(s, i) + HEAD_FLOATS,
              *values = s->base.vectors->each[i].values.here;
        TRP_TRY(learners_wait(
            &s->group, trp_collective_allreduce(s->group.collective, NULL, sum, count_of(s, i),
                                                TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM)));
        for (size_t k = 0; k < count_of(s, i); k++)
            values[k] = sum[k] / (float)s->group.size;
        give_back(s, i);
    }
    return TRP_OK;
}

/* ---- rounds -------------------------------------------------------------------------------- */

static trp_status gossip_begin(struct mode *mode, const struct mode_round *round)
{
    struct synchronous *s = gossip_of(mode);
    const bool said[GOSSIP_FLAGS] = {
        [GOSSIP_HAS_BATCH] = round->has_batch,
        [GOSSIP_STOPS] = round->stops,
        [GOSSIP_OVER] = round->over,
        [GOSSIP_GOES_ON] = !round->ended,
        [GOSSIP_SAVES] = round->saves && !gossip_is_said(&s->gossip, GOSSIP_SAVES),
        [GOSSIP_LEAVES] = learners_is_left(&s->group),
    };
    for (uint32_t flag = 0; flag < GOSSIP_FLAGS; flag++)
        if (said[flag])
            gossip_say(&s->gossip, (enum gossip_flag)flag);
    backup_take(&s->backup);
    return TRP_OK;
}

static trp_status gossip_round_end(struct mode *mode, struct mode_round *round)
{
    struct synchronous *s = gossip_of(mode);
    uint32_t flags;
    TRP_TRY(swap_with_partners(s));
    bool known = gossip_end(&s->gossip, &flags);
    bool anybody = flags >> GOSSIP_HAS_BATCH & 1;
    s->local_steps += anybody;
    round->stops = flags >> GOSSIP_STOPS & 1;
    round->over = flags >> GOSSIP_OVER & 1;
    round->ended = known && !(flags >> GOSSIP_GOES_ON & 1);
    round->saves = flags >> GOSSIP_SAVES & 1;
    round->leaves = flags >> GOSSIP_LEAVES & 1;
    round->whole = round->has_batch || anybody || round->saves || round->leaves;
    round->steps = s->local_steps;
    return round->leaves ? go_on_from_the_mean(s) : TRP_OK;
}

/* One that fails meanwhile has its own vectors. */
static trp_status gossip_gather(struct mode *mode)
{
    struct synchronous *s = gossip_of(mode);
    if (!s->group.collective || s->group.broken)
        return TRP_OK;
    trp_status status = go_on_from_the_mean(s);
    return s->group.broken ? TRP_OK : status;
}

/* ---- life ---------------------------------------------------------------------------------- */

static trp_status gossip_meet(struct mode *mode, struct mode_meeting *meeting)
{
    struct synchronous *s = gossip_of(mode);
    uint64_t uncounted = s->gossip.head.said[GOSSIP_HAS_BATCH] & ~UINT64_C(1); /* but this round */
    meeting->steps += (uint64_t)__builtin_popcountll(uncounted);
    TRP_TRY(synchronous_meet(mode, meeting));
    s->local_steps = meeting->steps;
    mode->idle = mode->partial = false;
    gossip_init(&s->gossip, s->group.rank, s->group.size);
    return TRP_OK;
}

static const struct mode_impl gossip_impl = {
    .meet = gossip_meet,
    .begin = gossip_begin,
    .end = gossip_round_end,
    .apply = alone_apply,
    .gather = gossip_gather,
    .destroy = synchronous_destroy,
};

trp_status gossip_create(struct mode **out, struct vectors *vectors,
                         const struct mode_options *options)
{
    TRP_TRY(synchronous_create(out, vectors, options, false));
    struct synchronous *s = gossip_of(*out);
    s->base.impl = &gossip_impl;
    for (size_t i = 0; i < vectors->count; i++)
        s->messages[i] = xcalloc(2 * (HEAD_FLOATS + count_of(s, i)), sizeof(float));
    return TRP_OK;
}
