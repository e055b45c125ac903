/* How a group fails: with the same words on all ranks that live. The first rank that knows says it
 * to all on their lines, and whoever is told first says nothing else. Ranks that give up another
 * one may do so at one moment, each in words of its own: the lowest of them says it to all.
 *
 * A process that ends closes its lines, so every rank learns by itself who is gone. A rank that is
 * stopped, or does something else, closes nothing: whoever waits for long tells all others in
 * which call, and each answers whom it waits for itself, by its helper when it does something else.
 * At its deadline a rank asks once more, from rank to rank along the answers: what it was told
 * before may be over. Who answers that it has not begun yet, or nothing, is who all wait for. Where
 * all answer that they wait, what one sent another is lost on its way, and rank 0 says so.
 *
 * Two ranks that find that they called different things cannot know what others find: rank 0 is
 * told, and decides. A pattern of messages may let nobody find it: then ranks wait, and what they
 * tell has their calls in it. */
#include "collective.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/status.h"
#include "event.h"
#include "native.h"

static const int64_t silence_ns = COLLECTIVE_SILENCE_MS * INT64_C(1000000);

static void tell_all(struct trp_collective *c, const struct notice *notice, const char *text)
{
    for (uint32_t peer = 0; peer < c->size; peer++)
        if (peer != c->rank)
            notice_send(&c->peers[peer].line, notice, text);
}

/* Others are told `told`; `words` are taken. */
static void fail_with(struct trp_collective *c, trp_status status, trp_status told, char *words)
{
    if (c->status != TRP_OK) {
        free(words);
        return;
    }
    c->status = status;
    c->words = words;
    struct notice notice = {.kind = NOTICE_FAILED, .status = told, .rank = c->rank};
    tell_all(c, &notice, words);
    for (uint32_t peer = 0; peer < c->size; peer++)
        if (peer != c->rank && c->lanes[peer] && c->lanes[peer]->impl->withdraw)
            c->lanes[peer]->impl->withdraw(c->lanes[peer]);
    if (c->carrier)
        c->carrier->impl->abort(c->carrier);
    event_set(c->caller_wake);
    event_set(c->helper_wake);
}

void collective_fail(struct trp_collective *c, trp_status status, const char *format, ...)
{
    char text[NOTICE_TEXT_BYTES_MAX + 1];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fail_with(c, status, status, xstrdup(text));
}

void collective_fail_alone(struct trp_collective *c, trp_status status)
{
    char text[NOTICE_TEXT_BYTES_MAX + 1];
    snprintf(text, sizeof text, "rank %" PRIu32 ": %s", c->rank, trp_last_error());
    fail_with(c, status_is_transient(status) ? TRP_INTERNAL : status, TRP_UNAVAILABLE,
              xstrdup(text));
}

/* ---- calls that differ --------------------------------------------------------------------- */

static void fail_differing(struct trp_collective *c, uint32_t a, const struct group_call *called_a,
                           uint32_t b, const struct group_call *called_b)
{
    char words_a[CALL_WORDS_BYTES], words_b[CALL_WORDS_BYTES];
    call_words(called_a, words_a);
    call_words(called_b, words_b);
    bool swap = a > b;
    collective_fail(c, TRP_FAILED_PRECONDITION,
                    "ranks started different operations: rank %" PRIu32 " %s (its %" PRIu64
                    "), rank %" PRIu32 " %s (its %" PRIu64 ")",
                    swap ? b : a, swap ? words_b : words_a,
                    swap ? called_b->sequence : called_a->sequence, swap ? a : b,
                    swap ? words_a : words_b, swap ? called_a->sequence : called_b->sequence);
}

static void decide_dispute(struct trp_collective *c, uint32_t from, const struct notice *notice)
{
    fail_differing(c, from, &notice->call, notice->rank, &notice->other);
}

/* This rank's call of that number, if it is known; NULL: it is not. */
static const struct group_call *call_of(const struct trp_collective *c, uint64_t sequence)
{
    bool known =
        sequence > 0 && sequence <= c->started && sequence + COLLECTIVE_CALLS_KEPT > c->started;
    return known ? &c->calls[sequence % COLLECTIVE_CALLS_KEPT] : NULL;
}

void collective_differs(struct trp_collective *c, const struct group_call *mine, uint32_t peer,
                        const struct group_call *other)
{
    /* Who was done with it, and waits in a later one, knows what it was. */
    const struct group_call *then = call_of(c, other->sequence);
    mine = then && !call_equal(then, other) ? then : mine;
    c->disputed = true;
    c->dispute =
        (struct notice){.kind = NOTICE_DIFFERS, .rank = peer, .call = *mine, .other = *other};
    if (c->rank == 0)
        decide_dispute(c, 0, &c->dispute);
    else
        notice_send(&c->peers[0].line, &c->dispute, "");
}

/* Compares what a rank waits in with what all others are known to have called. */
static void judge(struct trp_collective *c, uint32_t rank)
{
    const struct group_call *call = &c->peers[rank].waits.call;
    const struct group_call *mine = call_of(c, call->sequence);
    if (mine && !call_equal(mine, call))
        fail_differing(c, c->rank, mine, rank, call);
    for (uint32_t peer = 0; peer < c->size; peer++) {
        const struct notice *other = &c->peers[peer].waits;
        if (other->kind != 0 && other->call.sequence == call->sequence &&
            !call_equal(&other->call, call))
            fail_differing(c, peer, &other->call, rank, call);
    }
}

static void judge_all(struct trp_collective *c)
{
    for (uint32_t peer = 0; peer < c->size && c->rank == 0; peer++)
        if (c->peers[peer].waits.kind != 0)
            judge(c, peer);
}

/* ---- hearing ------------------------------------------------------------------------------- */

/* Who waits for nobody names itself, and has only a number: that of the first operation in which
 * others may wait for it. */
static struct notice answer_of(const struct trp_collective *c)
{
    const struct operation *first = c->first;
    bool is_past = first && transfer_is_done(&first->transfer);
    bool is_at_device = first && first->staging && !first->staged;
    if (!first || is_past || is_at_device)
        return (struct notice){
            .kind = NOTICE_ANSWERS, .rank = c->rank, .call.sequence = c->done + 1 + is_past};
    return (struct notice){.kind = NOTICE_ANSWERS,
                           .rank = transfer_waits_for(&first->transfer),
                           .call = first->transfer.schedule.call};
}

static void hear_waits(struct trp_collective *c, uint32_t peer, const struct notice *notice)
{
    struct notice answer = answer_of(c);
    c->peers[peer].waits = *notice;
    notice_send(&c->peers[peer].line, &answer, "");
}

static void hear_answer(struct trp_collective *c, uint32_t peer, const struct notice *notice)
{
    const struct group_call *mine = call_of(c, notice->call.sequence);
    c->peers[peer].answer = *notice;
    if (notice->rank == peer)
        return;
    c->peers[peer].waits = *notice; /* rank 0 judges it */
    if (c->rank != 0 && mine && !call_equal(mine, &notice->call))
        collective_differs(c, mine, peer, &notice->call);
}

static void hear_notice(struct trp_collective *c, uint32_t peer, const struct notice *notice,
                        const char *text)
{
    trp_status status;
    switch (notice->kind) {
    case NOTICE_WAITS:
        if (notice->rank < c->size && c->status == TRP_OK)
            hear_waits(c, peer, notice);
        break;
    case NOTICE_ANSWERS:
        if (notice->rank < c->size && c->status == TRP_OK)
            hear_answer(c, peer, notice);
        break;
    case NOTICE_DIFFERS:
        if (notice->rank < c->size && c->rank == 0)
            decide_dispute(c, peer, notice);
        break;
    case NOTICE_FAILED:
        status = notice->status == TRP_OK ? TRP_UNKNOWN : (trp_status)notice->status;
        fail_with(c, status, status, xstrdup(text));
        break;
    case NOTICE_LEAVES:
        c->peers[peer].line.left = true;
        break;
    }
}

static void hear_line(struct trp_collective *c, uint32_t peer)
{
    struct notice_line *line = &c->peers[peer].line;
    struct notice notice;
    char text[NOTICE_TEXT_BYTES_MAX + 1];
    bool was_closed = line->closed;
    while (notice_receive(line, &notice, text))
        hear_notice(c, peer, &notice, text);
    if (line->closed && !was_closed && !line->left)
        collective_fail(c, TRP_UNAVAILABLE, "rank %" PRIu32 " of %" PRIu32 " is gone", peer,
                        c->size);
}

static void hear_abort(struct trp_collective *c)
{
    if (!atomic_load_explicit(&c->is_aborted, memory_order_acquire) || c->status != TRP_OK)
        return;
    mutex_lock(&c->abort_mutex);
    char *words = xstrdup(c->abort_words);
    mutex_unlock(&c->abort_mutex);
    fail_with(c, TRP_UNAVAILABLE, TRP_UNAVAILABLE, words);
}

void collective_hear(struct trp_collective *c)
{
    hear_abort(c);
    /* Who failed closes its line soon after it said why, maybe to another rank first. */
    for (uint32_t peer = 0; peer < c->size; peer++)
        if (peer != c->rank && !c->peers[peer].line.closed)
            hear_line(c, peer);
    if (c->status == TRP_OK)
        judge_all(c);
}

/* ---- worrying ------------------------------------------------------------------------------ */

void collective_lane_failed(struct trp_collective *c, uint32_t peer)
{
    c->broken = true;
    if (c->peers[peer].broken_ns == 0)
        c->peers[peer].broken_ns = clock_now_ns(&clock_monotonic);
}

static void tell_waits(struct trp_collective *c, const struct transfer *transfer)
{
    struct notice notice = {.kind = NOTICE_WAITS,
                            .rank = transfer_waits_for(transfer),
                            .call = transfer->schedule.call};
    if (c->told == notice.call.sequence)
        return;
    c->told = notice.call.sequence;
    tell_all(c, &notice, "");
}

static void ask_again(struct trp_collective *c, uint32_t peer, int64_t now)
{
    const struct transfer *transfer = &c->first->transfer;
    struct group_peer *it = &c->peers[peer];
    struct notice notice = {.kind = NOTICE_WAITS,
                            .rank = transfer_waits_for(transfer),
                            .call = transfer->schedule.call};
    it->asked = notice.call.sequence;
    it->asked_ns = now;
    it->answer = (struct notice){0};
    notice_send(&it->line, &notice, "");
}

enum found { NOT_YET, FOUND_LOST, FOUND_NOBODY };

/* Some rank goes on: what was answered is over. Or all that were asked live, for long enough. */
static enum found ask_anew(struct trp_collective *c, int64_t now)
{
    for (uint32_t peer = 0; peer < c->size; peer++)
        c->peers[peer].asked = 0;
    return now > c->first->began_ns + c->timeout_ns + 2 * silence_ns ? FOUND_NOBODY : NOT_YET;
}

/* Whom all wait for, after the deadline. Ranks may be an operation behind, so each is asked for in
 * the one in which the rank before waits for it. */
static enum found find_lost(struct trp_collective *c, int64_t now, uint32_t *lost)
{
    const struct transfer *transfer = &c->first->transfer;
    uint64_t mine = transfer->schedule.call.sequence, at = mine;
    uint32_t rank = *lost = transfer_waits_for(transfer);
    for (uint32_t steps = 0; steps < c->size && rank != c->rank; steps++) {
        const struct group_peer *peer = &c->peers[rank];
        if (peer->asked != mine)
            ask_again(c, rank, now);
        bool is_silent = peer->answer.kind == 0;
        bool is_past = peer->answer.call.sequence > at;
        if (!is_silent && is_past)
            return ask_anew(c, now);
        if (is_silent || peer->answer.rank == rank)
            *lost = rank;
        if (is_silent)
            return now > peer->asked_ns + silence_ns ? FOUND_LOST : NOT_YET;
        if (peer->answer.rank == rank)
            return FOUND_LOST;
        at = peer->answer.call.sequence;
        rank = peer->answer.rank;
    }
    return ask_anew(c, now); /* they wait for each other, which one that begins now may say, too */
}

void collective_give_up(struct trp_collective *c, uint32_t judge, trp_status status,
                        const char *format, ...)
{
    char text[NOTICE_TEXT_BYTES_MAX + 1];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    uint64_t sequence = c->first->transfer.schedule.call.sequence;
    int64_t now = clock_now_ns(&clock_monotonic);
    if (c->rank != judge && c->gave_up != sequence) {
        struct notice notice = {.kind = NOTICE_FAILED, .status = status, .rank = c->rank};
        c->gave_up = sequence;
        c->gave_up_ns = now;
        notice_send(&c->peers[judge].line, &notice, text);
    } else if (c->rank == judge || now > c->gave_up_ns + silence_ns) {
        fail_with(c, status, status, xstrdup(text));
    }
}

/* One is lost: the lowest other one says so. */
static void give_up_lost(struct trp_collective *c, uint32_t lost, const char *call)
{
    collective_give_up(c, lost == 0 ? 1 : 0, TRP_DEADLINE_EXCEEDED,
                       "rank %" PRIu32 " of %" PRIu32 " is waited for in operation %" PRIu64
                       ", %s, for %" PRId64 " ms",
                       lost, c->size, c->first->transfer.schedule.call.sequence, call,
                       c->timeout_ns / 1000000);
}

/* All live: something between them is lost, or they wait for each other in a circle. */
static void give_up_circle(struct trp_collective *c, const char *call)
{
    const struct transfer *transfer = &c->first->transfer;
    collective_give_up(c, 0, TRP_DEADLINE_EXCEEDED,
                       "rank %" PRIu32 " of %" PRIu32 " waits for rank %" PRIu32
                       ", which answers, in operation %" PRIu64 ", %s, for %" PRId64
                       " ms: what is sent between ranks does not arrive",
                       c->rank, c->size, transfer_waits_for(transfer),
                       transfer->schedule.call.sequence, call, c->timeout_ns / 1000000);
}

static void fail_late(struct trp_collective *c, int64_t now)
{
    char words[CALL_WORDS_BYTES];
    const struct group_call *call = &c->first->transfer.schedule.call;
    call_words(call, words);
    if (c->disputed)
        decide_dispute(c, c->rank, &c->dispute);
    if (c->status != TRP_OK)
        return;
    if (native_is_last(c)) {
        collective_give_up(c, 0, TRP_DEADLINE_EXCEEDED,
                           "NCCL is not done with operation %" PRIu64
                           ", %s, which all ranks have started, within %" PRId64 " ms",
                           call->sequence, words, c->timeout_ns / 1000000);
        return;
    }
    uint32_t lost;
    enum found found = find_lost(c, now, &lost);
    if (found == FOUND_LOST)
        give_up_lost(c, lost, words);
    else if (found == FOUND_NOBODY)
        give_up_circle(c, words);
}

static int64_t worries_after(const struct trp_collective *c)
{
    int64_t part = c->timeout_ns / COLLECTIVE_WORRY_PART;
    int64_t most = COLLECTIVE_WORRY_MS_MAX * INT64_C(1000000);
    return part < most ? part : most;
}

/* A lane that fails while its line is open, and one whose rank has left before it was done. Both
 * ends of a lane find it broken, and say the same. */
static void give_up_broken(struct trp_collective *c, int64_t now)
{
    for (uint32_t peer = 0; peer < c->size && c->status == TRP_OK; peer++) {
        const struct group_peer *it = &c->peers[peer];
        if (it->broken_ns == 0)
            continue;
        if (it->line.left)
            collective_fail(c, TRP_UNAVAILABLE, "rank %" PRIu32 " of %" PRIu32 " has left", peer,
                            c->size);
        else if (now > it->broken_ns + silence_ns)
            collective_give_up(c, 0, TRP_UNAVAILABLE,
                               "rank %" PRIu32 " of %" PRIu32 " is cut off from rank %" PRIu32,
                               peer < c->rank ? peer : c->rank, c->size,
                               peer < c->rank ? c->rank : peer);
    }
}

void collective_worry(struct trp_collective *c)
{
    if (c->status != TRP_OK || !c->first || c->first->began_ns == 0)
        return;
    int64_t now = clock_now_ns(&clock_monotonic), since = now - c->first->began_ns;
    give_up_broken(c, now);
    if (c->status != TRP_OK || since < worries_after(c))
        return;
    if (native_is_last(c) && !c->waiting)
        return;             /* only who waits looks at the device */
    if (!native_is_last(c)) /* else there is no rank that is waited for */
        tell_waits(c, &c->first->transfer);
    if (since >= c->timeout_ns)
        fail_late(c, now);
}

int64_t collective_worry_ns(const struct trp_collective *c)
{
    if (c->status != TRP_OK || !c->first || c->first->began_ns == 0)
        return INT64_MAX;
    int64_t now = clock_now_ns(&clock_monotonic), began = c->first->began_ns;
    int64_t again = now + COLLECTIVE_WORRY_AGAIN_MS * INT64_C(1000000);
    for (uint32_t peer = 0; peer < c->size; peer++)
        if (c->peers[peer].broken_ns > 0)
            return again;
    if (now < began + worries_after(c))
        return began + worries_after(c);
    if (now >= began + c->timeout_ns)
        return again;
    int64_t look = now + COLLECTIVE_WORRY_MS_MAX * INT64_C(1000000);
    return look < began + c->timeout_ns ? look : began + c->timeout_ns;
}
