#include "gaia_sites.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/thread.h"

/* ---- life ------------------------------------------------------------------------------------ */

static bool has_rule(const struct gaia_sites *sites, size_t index)
{
    return sites->vectors->each[index].spec->learned;
}

void gaia_sites_create(struct gaia_sites *sites, const struct vectors *vectors, double significance,
                       uint32_t slack, const struct compress_options *compress)
{
    sites->vectors = vectors;
    sites->slack = slack;
    sites->sayings = xcalloc(slack + 1, sizeof *sites->sayings);
    sites->block_count = slack - slack / 2 + 1; /* sent after the first half, heard after both */
    sites->blocks = xcalloc(sites->block_count, sizeof *sites->blocks);
    for (size_t i = 0; i < vectors->count; i++) {
        if (!has_rule(sites, i))
            continue;
        gaia_create(&sites->rules[i], vectors->each[i].spec->count, significance, slack);
        gaia_compress(&sites->rules[i], compress);
    }
}

void gaia_sites_cleanup(struct gaia_sites *sites)
{
    circle_cleanup(&sites->circle); /* before the memory of what is on its way */
    for (uint32_t i = 0; sites->sayings && i <= sites->slack; i++)
        free(sites->sayings[i].words);
    for (uint32_t i = 0; i < sites->block_count; i++)
        for (size_t k = 0; k < TRP_UPDATER_VECTORS_MAX; k++)
            free(sites->blocks[i].words[k]);
    for (size_t k = 0; k < TRP_UPDATER_VECTORS_MAX; k++)
        gaia_destroy(&sites->rules[k]);
    free(sites->sayings);
    free(sites->blocks);
}

static size_t saying_words(const struct gaia_sites *sites)
{
    return GAIA_SAYS + (size_t)sites->count * sites->vectors->count;
}

/* By vector. */
static uint64_t *said_of(const struct gaia_sites *sites, const struct gaia_saying *saying,
                         uint32_t site)
{
    return saying->words + GAIA_SAYS + (size_t)site * sites->vectors->count;
}

/* Each site's block is its range. */
static size_t block_words(const struct gaia_sites *sites, size_t index, size_t count)
{
    enum { RANGE = TRP_COLLECTIVE_RANGE_VALUES };
    return (gaia_words(&sites->rules[index], count) + RANGE - 1) / RANGE * RANGE;
}

/* Room for all that may be said: pages take memory once they are written. */
static void make_sites_room(struct gaia_sites *sites)
{
    for (uint32_t i = 0; i <= sites->slack; i++) {
        free(sites->sayings[i].words);
        sites->sayings[i].words = xcalloc(saying_words(sites), sizeof(uint64_t));
    }
    for (uint32_t i = 0; i < sites->block_count; i++)
        for (size_t k = 0; k < sites->vectors->count; k++) {
            free(sites->blocks[i].words[k]);
            size_t words = has_rule(sites, k) ? block_words(sites, k, sites->rules[k].count) : 0;
            sites->blocks[i].words[k] = xcalloc(sites->count * words + 1, sizeof(uint32_t));
        }
}

void gaia_sites_begin(struct gaia_sites *sites, uint32_t site, uint32_t count, uint64_t steps)
{
    bool others = count != sites->count;
    sites->site = site;
    sites->count = count;
    sites->number = 0;
    if (others)
        make_sites_room(sites);
    for (size_t i = 0; i < sites->vectors->count; i++)
        if (has_rule(sites, i))
            gaia_begin(&sites->rules[i], site, count, steps, sites->vectors->each[i].values.here);
}

/* ---- a clock --------------------------------------------------------------------------------- */

static struct gaia_saying *saying_at(const struct gaia_sites *sites, uint64_t number)
{
    return &sites->sayings[number % (sites->slack + 1)];
}

static struct gaia_blocks *blocks_at(const struct gaia_sites *sites, uint64_t number)
{
    return &sites->blocks[number % sites->block_count];
}

/* The clock that is decided about at the end of clock `number`. */
static uint64_t decided_at(const struct gaia_sites *sites, uint64_t number)
{
    return number - sites->slack / 2;
}

/* What was said half the slack ago, and what went before it, is not with all others yet. In turns
 * it is not the clock that decides. */
static bool is_late(const struct gaia_sites *sites)
{
    if (sites->slack / 2 == 0 || sites->number < sites->slack / 2 || turns_active())
        return false;
    const struct gaia_saying *saying = saying_at(sites, decided_at(sites, sites->number));
    return !circle_is_done(&sites->circle, saying->ticket);
}

static trp_status say_clock(struct gaia_sites *sites, const uint64_t says[GAIA_SAYS])
{
    struct gaia_saying *saying = saying_at(sites, sites->number);
    memset(saying->words, 0, saying_words(sites) * sizeof *saying->words);
    memcpy(saying->words, says, GAIA_SAYS * sizeof *says);
    saying->words[GAIA_BARRIERS] = is_late(sites);
    for (size_t i = 0; i < sites->vectors->count; i++) {
        const struct vector *vector = &sites->vectors->each[i];
        if (!has_rule(sites, i))
            continue;
        const struct gaia_news *news;
        trp_status status = gaia_end_clock(&sites->rules[i], vector->values.here, &news);
        if (status != TRP_OK)
            return trp_fail(status, "gaia: '%s': %s", vector->spec->name, trp_last_error());
        said_of(sites, saying, sites->site)[i] = news->count;
        sites->dense_bytes += (sites->count - 1) * vector->values.bytes;
    }
    saying->ticket = circle_sum(&sites->circle, saying->words, saying_words(sites));
    return TRP_OK;
}

/* All have said how much matters: blocks are as long as the longest. */
static trp_status send_news(struct gaia_sites *sites, uint64_t number, size_t index)
{
    struct gaia_blocks *blocks = blocks_at(sites, number);
    const struct gaia_rule *rule = &sites->rules[index];
    size_t most;
    TRP_TRY(gaia_most(rule, said_of(sites, saying_at(sites, number), 0) + index,
                      sites->vectors->count, &most));
    size_t words = blocks->each[index] = block_words(sites, index, most);
    if (words == 0)
        return TRP_OK;
    gaia_pack(rule, gaia_kept(rule, number), blocks->words[index] + sites->site * words);
    blocks->tickets[index] = circle_gather(&sites->circle, blocks->words[index], words);
    return TRP_OK;
}

static trp_status hear_news(struct gaia_sites *sites, uint64_t number, size_t index)
{
    const struct gaia_blocks *blocks = blocks_at(sites, number);
    const struct gaia_saying *saying = saying_at(sites, number);
    struct gaia_rule *rule = &sites->rules[index];
    size_t words = blocks->each[index];
    if (words > 0)
        TRP_TRY(circle_wait(&sites->circle, blocks->tickets[index]));
    for (uint32_t site = 0; site < sites->count; site++) {
        const struct gaia_news *news;
        if (site == sites->site)
            continue;
        TRP_TRY(gaia_unpack(rule, blocks->words[index] + site * words,
                            (size_t)said_of(sites, saying, site)[index], &news));
        TRP_TRY(gaia_hear(rule, site, number, news, sites->vectors->each[index].values.here));
    }
    return TRP_OK;
}

/* What was said of clock `number` is there: its news go, and a barrier is heeded. */
static trp_status decide_clock(struct gaia_sites *sites, uint64_t number, uint64_t says[GAIA_SAYS])
{
    const struct gaia_saying *saying = saying_at(sites, number);
    TRP_TRY(circle_wait(&sites->circle, saying->ticket));
    memcpy(says, saying->words, GAIA_SAYS * sizeof *says);
    sites->barriers += says[GAIA_BARRIERS] > 0;
    for (size_t i = 0; i < sites->vectors->count; i++) {
        if (!has_rule(sites, i))
            continue;
        TRP_TRY(send_news(sites, number, i));
        for (uint32_t site = 0; site < sites->count && says[GAIA_BARRIERS] > 0; site++)
            gaia_raise_barrier(&sites->rules[i], site, number);
    }
    return TRP_OK;
}

trp_status gaia_sites_end_clock(struct gaia_sites *sites, uint64_t says[GAIA_SAYS])
{
    uint64_t number = sites->number;
    TRP_TRY(say_clock(sites, says));
    sites->number++;
    memset(says, 0, GAIA_SAYS * sizeof *says);
    says[GAIA_GOES_ON] = 1;
    if (number >= sites->slack / 2)
        TRP_TRY(decide_clock(sites, decided_at(sites, number), says));
    for (size_t i = 0; i < sites->vectors->count; i++)
        while (has_rule(sites, i) && !gaia_may_go_on(&sites->rules[i]))
            TRP_TRY(hear_news(sites, gaia_awaited_clock(&sites->rules[i]), i));
    return TRP_OK;
}

/* Operations are in order, so what is on its way is done before this. */
trp_status gaia_sites_drain(struct gaia_sites *sites)
{
    return circle_wait(&sites->circle, circle_barrier(&sites->circle));
}

void gaia_sites_print(const struct gaia_sites *sites)
{
    uint64_t moved = 0, sent = 0;
    for (size_t i = 0; i < TRP_UPDATER_VECTORS_MAX; i++) {
        moved += sites->rules[i].counters.moved;
        sent += sites->rules[i].counters.sent;
    }
    if (sites->dense_bytes > 0)
        trp_log(TRP_INFO,
                "gaia sent numbers=%" PRIu64 " of=%" PRIu64 " bytes=%" PRIu64
                " whole_vectors_are=%" PRIu64 " barriers=%" PRIu64,
                sent, moved, sites->circle.sent_bytes, sites->dense_bytes, sites->barriers);
}
