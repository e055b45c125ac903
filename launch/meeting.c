/* A learner's end of its group: it says to the launcher what happens to it, and is told of
 * generations. A generation comes in several messages, its members first; it counts once all of it
 * is there, so a launcher that has no room in between tells it again from the beginning. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "host.h"

/* One generation as it is told. */
struct told {
    uint64_t number, nonce;
    uint32_t rank, size;
    bool first, founder;
    char *addresses[LEARNERS_MAX];
    uint32_t members[LEARNERS_MAX];
};

struct meeting {
    trp_rendezvous rendezvous; /* first */
    trp_context *context;
    struct told coming, newest, given; /* guarded by host->mutex, but for the last */
    char *dismissed;                   /* why there will be no more; NULL: there may */
};

static struct meeting *meeting_of(const trp_rendezvous *rendezvous)
{
    return (struct meeting *)(uintptr_t)rendezvous;
}

static void told_clear(struct told *told)
{
    for (uint32_t i = 0; i < LEARNERS_MAX; i++)
        free(told->addresses[i]);
    *told = (struct told){0};
}

static void told_copy(struct told *to, const struct told *from)
{
    told_clear(to);
    *to = *from;
    for (uint32_t i = 0; i < from->size; i++)
        to->addresses[i] = xstrdup(from->addresses[i]);
}

/* ---- from the launcher ------------------------------------------------------------------- */

static void read_member(struct meeting *meeting, const char *rest)
{
    struct told *coming = &meeting->coming;
    uint64_t number;
    uint32_t rank, index;
    int at = 0;
    if (sscanf(rest, "%" SCNu64 " %u %u %n", &number, &rank, &index, &at) != 3 || at == 0 ||
        rank >= LEARNERS_MAX)
        return;
    if (rank == 0)
        told_clear(coming);
    coming->number = number;
    free(coming->addresses[rank]);
    coming->addresses[rank] = xstrdup(rest + at);
    coming->members[rank] = index;
}

static void read_generation(struct meeting *meeting, const char *rest)
{
    struct told *coming = &meeting->coming;
    uint64_t number;
    uint32_t first, founder;
    if (sscanf(rest, "%" SCNu64 " %" SCNu64 " %u %u %u %u", &number, &coming->nonce, &coming->rank,
               &coming->size, &first, &founder) != 6 ||
        number != coming->number || coming->size > LEARNERS_MAX || coming->rank >= coming->size)
        return;
    coming->first = first;
    coming->founder = founder;
    for (uint32_t i = 0; i < coming->size; i++)
        if (!coming->addresses[i])
            return;
    told_clear(&meeting->newest);
    meeting->newest = *coming;
    *coming = (struct told){0};
}

void meeting_apply_locked(struct meeting *meeting, const struct control_message *message)
{
    if (message->verb == CONTROL_MEMBER)
        read_member(meeting, message->rest);
    else if (message->verb == CONTROL_GENERATION)
        read_generation(meeting, message->rest);
    else if (message->verb == CONTROL_DISMISSED && !meeting->dismissed)
        meeting->dismissed = xstrdup(message->rest);
}

/* ---- the learner's calls ----------------------------------------------------------------- */

static trp_status meeting_announce(trp_rendezvous *rendezvous, const char *address)
{
    const trp_context *context = meeting_of(rendezvous)->context;
    return control_send(context->host->options.control_fd, CONTROL_SEND_MS, CONTROL_ANNOUNCE,
                        context->number, "%s", address);
}

static trp_status wait_for_newer_locked(const struct meeting *meeting, uint64_t after,
                                        struct deadline deadline)
{
    const trp_context *context = meeting->context;
    struct host *host = context->host;
    bool in_time = true;
    while (meeting->newest.number <= after && !meeting->dismissed &&
           !trp_stop_requested(context->stop) && in_time)
        in_time = cond_wait(&host->changed, &host->mutex, deadline);
    if (trp_stop_requested(context->stop))
        return trp_fail(TRP_CANCELLED, "%s was stopped while it waited for the other learners",
                        context->name);
    if (meeting->dismissed)
        return trp_fail(TRP_UNAVAILABLE, "%s", meeting->dismissed);
    if (meeting->newest.number > after)
        return TRP_OK;
    return trp_fail(TRP_DEADLINE_EXCEEDED, "%s waits for the other learners of %s", context->name,
                    context->group->name);
}

static trp_status meeting_next(trp_rendezvous *rendezvous, uint64_t after, int64_t timeout_ms,
                               trp_generation *generation)
{
    struct meeting *meeting = meeting_of(rendezvous);
    struct host *host = meeting->context->host;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    if (after > 0)
        TRP_TRY(control_send(host->options.control_fd, CONTROL_SEND_MS, CONTROL_OVER,
                             meeting->context->number, "%" PRIu64, after));
    mutex_lock(&host->mutex);
    trp_status status = wait_for_newer_locked(meeting, after, deadline);
    if (status == TRP_OK)
        told_copy(&meeting->given, &meeting->newest);
    mutex_unlock(&host->mutex);
    if (status != TRP_OK)
        return status;
    const struct told *given = &meeting->given;
    *generation = (trp_generation){.number = given->number,
                                   .nonce = given->nonce,
                                   .first = given->first,
                                   .founder = given->founder,
                                   .rank = given->rank,
                                   .size = given->size,
                                   .addresses = (const char *const *)given->addresses,
                                   .members = given->members};
    return TRP_OK;
}

static uint64_t meeting_newest(const trp_rendezvous *rendezvous)
{
    const struct meeting *meeting = meeting_of(rendezvous);
    struct host *host = meeting->context->host;
    mutex_lock(&host->mutex);
    uint64_t number = meeting->newest.number + (meeting->dismissed != NULL);
    mutex_unlock(&host->mutex);
    return number;
}

static void meeting_broken(trp_rendezvous *rendezvous, uint64_t number, const char *why)
{
    const trp_context *context = meeting_of(rendezvous)->context;
    if (control_send(context->host->options.control_fd, CONTROL_SEND_MS, CONTROL_BROKEN,
                     context->number, "%" PRIu64 " %s", number, why) != TRP_OK)
        trp_log(TRP_WARN, "%s: the launcher was not told that generation %" PRIu64 " is broken",
                context->name, number);
}

static const trp_rendezvous_impl meeting_impl = {.announce = meeting_announce,
                                                 .next = meeting_next,
                                                 .newest = meeting_newest,
                                                 .broken = meeting_broken};

trp_rendezvous *context_rendezvous(const trp_context *context)
{
    return context->meeting ? &context->meeting->rendezvous : NULL;
}

struct meeting *meeting_create(trp_context *context)
{
    struct meeting *meeting = xcalloc(1, sizeof *meeting);
    meeting->rendezvous.impl = &meeting_impl;
    meeting->context = context;
    return meeting;
}

void meeting_destroy(struct meeting *meeting)
{
    if (!meeting)
        return;
    told_clear(&meeting->coming);
    told_clear(&meeting->newest);
    told_clear(&meeting->given);
    free(meeting->dismissed);
    free(meeting);
}
