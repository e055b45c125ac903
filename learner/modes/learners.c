/* Words are told by adding up vectors in which every rank has a place of its own and zeros in those
 * of others. */
#include "learners.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/status.h"
#include "core/thread.h"
#include "learner/collective/sites.h"
#include "limits.h"

trp_status learners_create(struct learners *group, const struct learners_options *options)
{
    *group = (struct learners){.options = *options};
    TRP_TRY(trp_collective_listener_create(&group->listener, options->listen, options->insecure));
    return options->rendezvous->impl->announce(options->rendezvous,
                                               trp_collective_listener_address(group->listener));
}

void learners_leave(struct learners *group)
{
    if (group->collective) {
        trp_collective_counters counters = trp_collective_read(group->collective);
        trp_log(TRP_INFO,
                "learner leaves group=%s generation=%" PRIu64 " sent_bytes=%" PRIu64
                " to_other_sites=%" PRIu64,
                group->options.name, group->generation, counters.bytes_sent,
                counters.bytes_sent_away);
    }
    trp_collective_destroy(group->collective);
    group->collective = NULL;
    free(group->words);
    free(group->firsts);
    group->words = NULL;
    group->firsts = NULL;
}

void learners_destroy(struct learners *group)
{
    learners_leave(group);
    trp_collective_listener_destroy(group->listener);
}

/* Waits for the next one to be known. */
static trp_status next_generation(struct learners *group, trp_generation *generation)
{
    trp_rendezvous *rendezvous = group->options.rendezvous;
    trp_status status;
    do {
        if (trp_stop_requested(group->options.stop))
            return trp_fail(TRP_CANCELLED, "learner: stopped while it waited for its group");
        status =
            rendezvous->impl->next(rendezvous, group->generation, LEARNERS_LOOK_MS, generation);
        turns_pass();
    } while (status == TRP_DEADLINE_EXCEEDED);
    return status;
}

static bool generation_is_over(void *group)
{
    return learners_is_left(group);
}

/* The site of member `index`; *bytes of it. NULL: there are fewer. */
static const char *site_of_member(const char *names, uint32_t index, size_t *bytes)
{
    for (; index > 0 && names; index--) {
        names = strchr(names, ',');
        names = names ? names + 1 : NULL;
    }
    *bytes = names ? strcspn(names, ",") : 0;
    return names;
}

/* By rank. */
static trp_status read_sites(const struct learners *group, const trp_generation *generation,
                             char **sites)
{
    for (uint32_t rank = 0; rank < generation->size; rank++) {
        size_t bytes;
        const char *name = site_of_member(group->options.sites, generation->members[rank], &bytes);
        sites[rank] = name ? xasprintf("%.*s", (int)bytes, name) : NULL;
        if (bytes == 0)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "learner: sites are '%s', which has none for %s/%u",
                            group->options.sites, group->options.name, generation->members[rank]);
    }
    return TRP_OK;
}

trp_status learners_connect(struct learners *group, trp_collective_listener *listener,
                            const trp_collective_options *ranks, trp_collective **out)
{
    trp_collective_options options = *ranks;
    options.generation = group->generation;
    options.timeout_ms = group->options.timeout_ms;
    options.deterministic = turns_active();
    options.no_share = group->options.no_share;
    options.device = group->options.device;
    options.is_over = generation_is_over;
    options.context = group;
    options.stop = group->options.stop;
    return trp_collective_connect(out, listener, &options);
}

static trp_status join(struct learners *group, const trp_generation *generation,
                       uint64_t fingerprint)
{
    group->generation = generation->number;
    group->rank = generation->rank;
    group->size = generation->size;
    group->member = generation->members[generation->rank];
    group->nonce = generation->nonce;
    group->founder = generation->founder;
    group->broken = false;
    group->words = xcalloc(generation->size, LEARNERS_WORDS * sizeof *group->words);
    char **sites = group->options.sites ? xcalloc(generation->size, sizeof *sites) : NULL;
    trp_status status = sites ? read_sites(group, generation, sites) : TRP_OK;
    const trp_collective_options ranks = {.group = group->options.name,
                                          .nonce = generation->nonce,
                                          .rank = generation->rank,
                                          .size = generation->size,
                                          .addresses = generation->addresses,
                                          .sites = (const char *const *)sites,
                                          .fingerprint = fingerprint};
    if (status == TRP_OK) {
        group->firsts = sites_of(&ranks);
        status = learners_connect(group, group->listener, &ranks, &group->collective);
    }
    if (status == TRP_OK)
        trp_log(TRP_INFO, "learner is in group=%s generation=%" PRIu64 " rank=%u of=%u",
                group->options.name, group->generation, group->rank, group->size);
    for (uint32_t rank = 0; sites && rank < generation->size; rank++)
        free(sites[rank]);
    free(sites);
    return status;
}

void learners_break(trp_rendezvous *rendezvous, uint64_t number, const char *how, const char *why)
{
    trp_log(TRP_WARN, "generation %" PRIu64 " %s reason=%s", number, how, why);
    rendezvous->impl->broken(rendezvous, number, why);
}

trp_status learners_meet(struct learners *group, uint64_t fingerprint)
{
    for (;;) {
        trp_generation generation;
        learners_leave(group);
        TRP_TRY(next_generation(group, &generation));
        trp_status status = join(group, &generation, fingerprint);
        if (status == TRP_OK || (!status_is_transient(status) && !learners_is_left(group)))
            return status;
        learners_break(group->options.rendezvous, generation.number, "did not come together",
                       trp_last_error());
    }
}

bool learners_is_left(const struct learners *group)
{
    const trp_rendezvous *rendezvous = group->options.rendezvous;
    return rendezvous->impl->newest(rendezvous) > group->generation;
}

void learners_abort(struct learners *group, const char *why)
{
    if (group->collective)
        trp_collective_abort(group->collective, why);
}

static trp_status wait_in_turn(trp_collective *collective, uint64_t ticket)
{
    while (turns_active() && !trp_collective_done(collective, ticket))
        turns_pass();
    return trp_collective_wait(collective, ticket);
}

trp_status learners_wait(struct learners *group, uint64_t ticket)
{
    trp_status status = wait_in_turn(group->collective, ticket);
    if (status_is_transient(status) && !group->broken) {
        group->broken = true;
        learners_break(group->options.rendezvous, group->generation, "is broken", trp_last_error());
    }
    return status;
}

trp_status learners_settle(struct learners *group, uint64_t ticket)
{
    return trp_collective_queued(group->collective, ticket) ? TRP_OK : learners_wait(group, ticket);
}

trp_status learners_wait_in(struct learners *group, trp_collective *circle, uint64_t ticket)
{
    if (circle == group->collective)
        return learners_wait(group, ticket);
    trp_status status = wait_in_turn(circle, ticket);
    if (!status_is_transient(status))
        return status;
    learners_abort(group, trp_last_error());
    return learners_wait(group, trp_collective_barrier(group->collective));
}

void learners_part(struct learners *group)
{
    if (wait_in_turn(group->collective, trp_collective_barrier(group->collective)) != TRP_OK)
        trp_log(TRP_DEBUG, "learners do not part together reason=%s", trp_last_error());
}

uint64_t learners_tell(struct learners *group, const uint64_t own[LEARNERS_WORDS])
{
    size_t count = (size_t)group->size * LEARNERS_WORDS;
    memset(group->words, 0, count * sizeof *group->words);
    memcpy(group->words + (size_t)group->rank * LEARNERS_WORDS, own,
           LEARNERS_WORDS * sizeof *group->words);
    return trp_collective_allreduce(group->collective, NULL, group->words, count,
                                    TRP_COLLECTIVE_U64, TRP_COLLECTIVE_SUM);
}

static trp_status spread_words(struct learners *group, void *words, size_t count, uint32_t root)
{
    return learners_wait(group, trp_collective_broadcast(group->collective, NULL, words, count,
                                                         TRP_COLLECTIVE_I32, root));
}

trp_status learners_spread(struct learners *group, void *bytes, size_t size, uint32_t root)
{
    size_t whole = size / sizeof group->rest, rest = size % sizeof group->rest;
    char *end = (char *)bytes + whole * sizeof group->rest;
    if (whole > 0)
        TRP_TRY(spread_words(group, bytes, whole, root));
    if (rest == 0)
        return TRP_OK;
    memcpy(&group->rest, end, rest);
    TRP_TRY(spread_words(group, &group->rest, 1, root));
    memcpy(end, &group->rest, rest);
    return TRP_OK;
}
