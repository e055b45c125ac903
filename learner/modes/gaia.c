/* Gaia between sites (gaia_rule.h). Learners of one site step by themselves and go on from their
 * mean after every step (local_sgd.c), so a site is as one learner with all their batches. The
 * first of each site ends the clock with the others: it says how many numbers matter, and then
 * which. With slack it waits for neither at once: for what was said half the slack ago, and for
 * numbers of the other half before that. What is decided together (a stop, the end) travels with
 * what is said, so all do it at one clock.
 *
 * Two circles of the generation's members do that: one of each site, and one of the first of each.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/address.h"
#include "core/alloc.h"
#include "core/hash.h"
#include "core/status.h"
#include "gaia_rule.h"
#include "limits.h"
#include "synchronous.h"

enum { CIRCLE_OF_SITE, CIRCLE_OF_FIRSTS, CIRCLES };
enum { CIRCLE_ADDRESS_BYTES = 256 };

/* What is decided together: numbers of learners, but for batches. */
enum { SAYS_STOPS, SAYS_OVER, SAYS_LEAVES, SAYS_GOES_ON, SAYS_BATCHES, SAYS };

struct circle {
    trp_collective_listener *listener;
    char address[CIRCLE_ADDRESS_BYTES];
    trp_collective *collective; /* NULL: this one is not in it, or alone */
    uint32_t rank, size;
};

/* A clock between sites. */
struct gaia_clock {
    uint64_t ticket, *words; /* SAYS, then of each site and vector how much matters */
    uint64_t tickets[TRP_UPDATER_VECTORS_MAX];
    uint32_t *blocks[TRP_UPDATER_VECTORS_MAX]; /* of each site: how many, places, moves */
    size_t block_words[TRP_UPDATER_VECTORS_MAX];
};

struct gaia {
    struct synchronous *s;
    struct circle circles[CIRCLES];
    uint32_t site, sites;
    struct gaia_rule rules[TRP_UPDATER_VECTORS_MAX]; /* of what is learned; of firsts alone */
    struct gaia_clock *clocks;                       /* slack + 1, by clock modulo their number */
    uint32_t slack;
    uint64_t bytes, dense_bytes; /* that this one sent to other sites; that whole vectors are */
};

static struct gaia *gaia_of(const struct synchronous *s)
{
    return s->gaia;
}

static bool is_first_of_site(const struct gaia *gaia)
{
    return gaia->circles[CIRCLE_OF_SITE].rank == 0;
}

/* The end of a circle is that of the generation. */
static trp_status circle_wait(struct gaia *gaia, const struct circle *circle, uint64_t ticket)
{
    struct learners *group = &gaia->s->group;
    trp_status status = trp_collective_wait(circle->collective, ticket);
    if (!status_is_transient(status))
        return status;
    learners_abort(group, trp_last_error());
    return learners_wait(group, trp_collective_barrier(group->collective));
}

/* ---- between sites -----------------------------------------------------------------------------
 */

static size_t saying_count(const struct gaia *gaia)
{
    return SAYS + (size_t)gaia->sites * TRP_UPDATER_VECTORS_MAX;
}

static uint64_t *said_of(const struct gaia_clock *clock, uint32_t site)
{
    return clock->words + SAYS + (size_t)site * TRP_UPDATER_VECTORS_MAX;
}

static struct gaia_clock *clock_at(const struct gaia *gaia, uint64_t number)
{
    return &gaia->clocks[number % (gaia->slack + 1)];
}

static void say_clock(struct gaia *gaia, uint64_t number, const uint64_t says[SAYS])
{
    const struct vectors *vectors = gaia->s->base.vectors;
    struct gaia_clock *clock = clock_at(gaia, number);
    memset(clock->words, 0, saying_count(gaia) * sizeof *clock->words);
    memcpy(clock->words, says, SAYS * sizeof *says);
    for (size_t i = 0; i < vectors->count; i++) {
        if (!vectors->each[i].spec->learned)
            continue;
        said_of(clock, gaia->site)[i] =
            gaia_end_clock(&gaia->rules[i], vectors->each[i].values.here)->count;
        gaia->dense_bytes += (gaia->sites - 1) * vectors->each[i].values.bytes;
    }
    clock->ticket =
        trp_collective_allreduce(gaia->circles[CIRCLE_OF_FIRSTS].collective, NULL, clock->words,
                                 saying_count(gaia), TRP_COLLECTIVE_U64, TRP_COLLECTIVE_SUM);
}

/* All have said how much matters: blocks are as long as the longest. */
static trp_status send_news(struct gaia *gaia, uint64_t number, size_t index)
{
    struct gaia_clock *clock = clock_at(gaia, number);
    const struct gaia_news *news = gaia_kept(&gaia->rules[index], number);
    enum { RANGE = TRP_COLLECTIVE_RANGE_VALUES }; /* each site's block is its range */
    size_t most;
    TRP_TRY(
        gaia_most(&gaia->rules[index], said_of(clock, 0) + index, TRP_UPDATER_VECTORS_MAX, &most));
    size_t words = (gaia_words(&gaia->rules[index], most) + RANGE - 1) / RANGE * RANGE;
    free(clock->blocks[index]);
    clock->blocks[index] = xcalloc(gaia->sites * words + 1, sizeof(uint32_t));
    clock->block_words[index] = words;
    if (words == 0)
        return TRP_OK;
    uint32_t *own = clock->blocks[index] + gaia->site * words;
    gaia_pack(&gaia->rules[index], news, own);
    gaia->bytes += (gaia->sites - 1) * words * sizeof *own;
    clock->tickets[index] =
        trp_collective_all_gather(gaia->circles[CIRCLE_OF_FIRSTS].collective, NULL,
                                  clock->blocks[index], gaia->sites * words, TRP_COLLECTIVE_I32);
    return TRP_OK;
}

static trp_status hear_news(struct gaia *gaia, uint64_t number, size_t index)
{
    struct gaia_clock *clock = clock_at(gaia, number);
    struct gaia_rule *rule = &gaia->rules[index];
    size_t words = clock->block_words[index];
    if (words > 0)
        TRP_TRY(circle_wait(gaia, &gaia->circles[CIRCLE_OF_FIRSTS], clock->tickets[index]));
    for (uint32_t site = 0; site < gaia->sites; site++) {
        const struct gaia_news *news;
        if (site == gaia->site)
            continue;
        TRP_TRY(gaia_unpack(rule, clock->blocks[index] + site * words,
                            (size_t)said_of(clock, site)[index], &news));
        TRP_TRY(
            gaia_hear(rule, site, number, news, gaia->s->base.vectors->each[index].values.here));
    }
    return TRP_OK;
}

/* This may be the last clock of the circle: who leaves it has done all that it started, or the
 * others fail. Operations are in order, so what is on its way is done before this. */
static trp_status drain_sites(struct gaia *gaia, const uint64_t says[SAYS])
{
    const struct circle *firsts = &gaia->circles[CIRCLE_OF_FIRSTS];
    uint64_t limit = gaia->s->options.max_steps;
    uint64_t steps = gaia->s->local_steps + (says[SAYS_BATCHES] > 0);
    bool ends = says[SAYS_GOES_ON] == 0 || (limit > 0 && steps >= limit);
    if (!ends && !says[SAYS_LEAVES] && !says[SAYS_STOPS] && !says[SAYS_OVER])
        return TRP_OK;
    return circle_wait(gaia, firsts, trp_collective_barrier(firsts->collective));
}

/* *says: what was said of the clock that is decided about now. */
static trp_status end_clock_of_sites(struct gaia *gaia, uint64_t says[SAYS])
{
    const struct vectors *vectors = gaia->s->base.vectors;
    uint64_t number = 0;
    for (size_t i = 0; i < vectors->count; i++)
        if (vectors->each[i].spec->learned)
            number = gaia->rules[i].clock;
    say_clock(gaia, number, says);
    memset(says, 0, SAYS * sizeof *says);
    says[SAYS_GOES_ON] = 1;
    if (number >= gaia->slack / 2) {
        struct gaia_clock *clock = clock_at(gaia, number - gaia->slack / 2);
        TRP_TRY(circle_wait(gaia, &gaia->circles[CIRCLE_OF_FIRSTS], clock->ticket));
        memcpy(says, clock->words, SAYS * sizeof *says);
        for (size_t i = 0; i < vectors->count; i++)
            if (vectors->each[i].spec->learned)
                TRP_TRY(send_news(gaia, number - gaia->slack / 2, i));
    }
    for (size_t i = 0; i < vectors->count; i++)
        while (vectors->each[i].spec->learned && !gaia_may_go_on(&gaia->rules[i]))
            TRP_TRY(hear_news(gaia, gaia_awaited_clock(&gaia->rules[i]), i));
    return drain_sites(gaia, says);
}

/* ---- within a site -----------------------------------------------------------------------------
 */

static trp_status say_in_site(struct gaia *gaia, uint64_t says[SAYS])
{
    const struct circle *circle = &gaia->circles[CIRCLE_OF_SITE];
    if (!circle->collective)
        return TRP_OK;
    return circle_wait(gaia, circle,
                       trp_collective_allreduce(circle->collective, NULL, says, SAYS,
                                                TRP_COLLECTIVE_U64, TRP_COLLECTIVE_SUM));
}

static trp_status mean_of_site(struct gaia *gaia, uint64_t own, uint64_t batches)
{
    const struct circle *circle = &gaia->circles[CIRCLE_OF_SITE];
    const struct vectors *vectors = gaia->s->base.vectors;
    for (size_t i = 0; circle->collective && batches > 0 && i < vectors->count; i++) {
        float *values = vectors->each[i].values.here;
        size_t count = vectors->each[i].spec->count;
        for (size_t k = 0; k < count; k++)
            values[k] *= (float)own;
        TRP_TRY(circle_wait(gaia, circle,
                            trp_collective_allreduce(circle->collective, NULL, values, count,
                                                     TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM)));
        for (size_t k = 0; k < count; k++)
            values[k] /= (float)batches;
    }
    return TRP_OK;
}

/* All of a site go on from what its first one has. */
static trp_status spread_in_site(struct gaia *gaia, uint64_t says[SAYS])
{
    const struct circle *circle = &gaia->circles[CIRCLE_OF_SITE];
    const struct vectors *vectors = gaia->s->base.vectors;
    if (!circle->collective)
        return TRP_OK;
    TRP_TRY(circle_wait(
        gaia, circle,
        trp_collective_broadcast(circle->collective, NULL, says, SAYS, TRP_COLLECTIVE_U64, 0)));
    for (size_t i = 0; i < vectors->count; i++)
        TRP_TRY(circle_wait(
            gaia, circle,
            trp_collective_broadcast(circle->collective, NULL, vectors->each[i].values.here,
                                     vectors->each[i].spec->count, TRP_COLLECTIVE_F32, 0)));
    return TRP_OK;
}

static trp_status gaia_round_end(struct mode *mode, struct mode_round *round)
{
    struct synchronous *s = (struct synchronous *)mode;
    struct gaia *gaia = gaia_of(s);
    uint64_t says[SAYS] = {[SAYS_STOPS] = round->stops,
                           [SAYS_OVER] = round->over,
                           [SAYS_LEAVES] = learners_is_left(&s->group),
                           [SAYS_GOES_ON] = !round->ended,
                           [SAYS_BATCHES] = round->has_batch};
    TRP_TRY(say_in_site(gaia, says));
    uint64_t batches = says[SAYS_BATCHES];
    TRP_TRY(mean_of_site(gaia, round->has_batch, batches));
    if (is_first_of_site(gaia))
        TRP_TRY(end_clock_of_sites(gaia, says));
    TRP_TRY(spread_in_site(gaia, says));
    s->local_steps += says[SAYS_BATCHES] > 0;
    round->whole = batches > 0;
    round->steps = s->local_steps;
    round->stops = says[SAYS_STOPS] > 0;
    round->over = says[SAYS_OVER] > 0;
    round->ended = says[SAYS_GOES_ON] == 0;
    round->leaves = says[SAYS_LEAVES] > 0;
    return TRP_OK;
}

static trp_status gaia_round_begin(struct mode *mode, const struct mode_round *round)
{
    (void)round;
    backup_take(&((struct synchronous *)mode)->backup);
    return TRP_OK;
}

/* ---- generations -------------------------------------------------------------------------------
 */

static void leave_circles(struct gaia *gaia)
{
    for (uint32_t i = 0; i < CIRCLES; i++) {
        trp_collective_destroy(gaia->circles[i].collective);
        gaia->circles[i].collective = NULL;
    }
}

/* Of ranks that are in it, in their order. `own` is where this one is among them. */
static trp_status join_circle(struct gaia *gaia, uint32_t which, const char *const *addresses,
                              uint32_t size, uint32_t own)
{
    struct learners *group = &gaia->s->group;
    struct circle *circle = &gaia->circles[which];
    char *name =
        xasprintf("%s.%s", group->options.name, which == CIRCLE_OF_SITE ? "site" : "sites");
    circle->rank = own;
    circle->size = size;
    trp_status status = TRP_OK;
    if (size > 1 || which == CIRCLE_OF_FIRSTS)
        status = learners_connect(group, circle->listener,
                                  &(trp_collective_options){.group = name,
                                                            .nonce = group->nonce,
                                                            .rank = own,
                                                            .size = size,
                                                            .addresses = addresses,
                                                            .fingerprint = gaia->s->fingerprint},
                                  &circle->collective);
    free(name);
    return status;
}

/* What a rank says to the others of its generation. */
struct gaia_card {
    char addresses[CIRCLES][CIRCLE_ADDRESS_BYTES];
};

static trp_status swap_cards(struct gaia *gaia, struct gaia_card *cards)
{
    struct learners *group = &gaia->s->group;
    struct gaia_card *own = &cards[group->rank];
    for (uint32_t i = 0; i < CIRCLES; i++)
        memcpy(own->addresses[i], gaia->circles[i].address, CIRCLE_ADDRESS_BYTES);
    for (uint32_t rank = 0; rank < group->size; rank++)
        TRP_TRY(learners_spread(group, &cards[rank], sizeof *cards, rank));
    return TRP_OK;
}

static trp_status join_circles(struct gaia *gaia, const struct gaia_card *cards)
{
    const struct learners *group = &gaia->s->group;
    const uint32_t *firsts = group->firsts;
    const char **addresses = xcalloc(group->size, sizeof *addresses);
    uint32_t size = 0, own = 0;
    gaia->sites = 0;
    for (uint32_t rank = 0; rank < group->size; rank++)
        if (firsts[rank] == firsts[group->rank]) {
            own = rank == group->rank ? size : own;
            addresses[size++] = cards[rank].addresses[CIRCLE_OF_SITE];
        }
    trp_status status = join_circle(gaia, CIRCLE_OF_SITE, addresses, size, own);
    for (uint32_t rank = 0; rank < group->size; rank++)
        if (firsts[rank] == rank) {
            gaia->site = rank == firsts[group->rank] ? gaia->sites : gaia->site;
            addresses[gaia->sites++] = cards[rank].addresses[CIRCLE_OF_FIRSTS];
        }
    if (status == TRP_OK && is_first_of_site(gaia))
        status = join_circle(gaia, CIRCLE_OF_FIRSTS, addresses, gaia->sites, gaia->site);
    free(addresses);
    return status;
}

static void begin_clocks(struct gaia *gaia, uint64_t steps)
{
    const struct vectors *vectors = gaia->s->base.vectors;
    for (size_t i = 0; i < vectors->count; i++)
        if (vectors->each[i].spec->learned)
            gaia_begin(&gaia->rules[i], gaia->site, gaia->sites, steps,
                       vectors->each[i].values.here);
    for (uint32_t i = 0; i <= gaia->slack; i++)
        gaia->clocks[i].words =
            xrealloc(gaia->clocks[i].words, saying_count(gaia) * sizeof *gaia->clocks[i].words);
}

static trp_status meet_in_circles(struct gaia *gaia)
{
    struct learners *group = &gaia->s->group;
    struct gaia_card *cards = xcalloc(group->size, sizeof *cards);
    trp_status status = swap_cards(gaia, cards);
    if (status == TRP_OK)
        status = join_circles(gaia, cards);
    if (status_is_transient(status) && !group->broken) {
        learners_abort(group, trp_last_error());
        status = learners_wait(group, trp_collective_barrier(group->collective));
    }
    free(cards);
    return status;
}

static trp_status gaia_meet(struct mode *mode, struct mode_meeting *meeting)
{
    struct synchronous *s = (struct synchronous *)mode;
    struct gaia *gaia = gaia_of(s);
    trp_status status;
    leave_circles(gaia);
    do {
        TRP_TRY(synchronous_meet(mode, meeting));
        status = meet_in_circles(gaia);
        if (status != TRP_OK)
            leave_circles(gaia);
    } while (s->group.broken);
    TRP_TRY(status);
    s->local_steps = meeting->steps;
    mode->idle = mode->partial = false;
    begin_clocks(gaia, meeting->steps);
    trp_log(TRP_INFO, "learner is in site=%" PRIu32 " of=%" PRIu32 " rank=%" PRIu32 " of=%" PRIu32,
            gaia->site, gaia->sites, gaia->circles[CIRCLE_OF_SITE].rank,
            gaia->circles[CIRCLE_OF_SITE].size);
    return TRP_OK;
}

/* ---- life --------------------------------------------------------------------------------------
 */

static void print_gaia(const struct gaia *gaia)
{
    uint64_t moved = 0, sent = 0;
    for (size_t i = 0; i < gaia->s->base.vectors->count; i++) {
        moved += gaia->rules[i].counters.moved;
        sent += gaia->rules[i].counters.sent;
    }
    if (gaia->dense_bytes > 0)
        trp_log(TRP_INFO,
                "gaia sent numbers=%" PRIu64 " of=%" PRIu64 " bytes=%" PRIu64
                " whole_vectors_are=%" PRIu64,
                sent, moved, gaia->bytes, gaia->dense_bytes);
}

static void gaia_mode_destroy(struct mode *mode)
{
    struct gaia *gaia = gaia_of((struct synchronous *)mode);
    leave_circles(gaia);
    print_gaia(gaia);
    for (uint32_t i = 0; i < CIRCLES; i++)
        trp_collective_listener_destroy(gaia->circles[i].listener);
    for (uint32_t i = 0; i <= gaia->slack; i++) {
        free(gaia->clocks[i].words);
        for (size_t k = 0; k < TRP_UPDATER_VECTORS_MAX; k++)
            free(gaia->clocks[i].blocks[k]);
    }
    for (size_t i = 0; i < TRP_UPDATER_VECTORS_MAX; i++)
        gaia_destroy(&gaia->rules[i]);
    free(gaia->clocks);
    free(gaia);
    synchronous_destroy(mode);
}

static const struct mode_impl gaia_impl = {
    .meet = gaia_meet,
    .begin = gaia_round_begin,
    .end = gaia_round_end,
    .apply = alone_apply,
    .destroy = gaia_mode_destroy,
};

/* Beside the group's: of another name, or on another port. */
static trp_status listen_in_circle(struct circle *circle, const struct learners_options *group,
                                   uint32_t which)
{
    bool is_unix = group->listen && address_is_unix(group->listen);
    char *address = is_unix ? xasprintf("%s.%" PRIu32, group->listen, which) : NULL;
    if (group->listen && !is_unix) {
        size_t host = strlen(group->listen) - strlen(strrchr(group->listen, ':'));
        address = xasprintf("%.*s:0", (int)host, group->listen);
    }
    trp_status status = trp_collective_listener_create(&circle->listener, address, group->insecure);
    free(address);
    TRP_TRY(status);
    const char *text = trp_collective_listener_address(circle->listener);
    if (strlen(text) >= CIRCLE_ADDRESS_BYTES)
        return trp_fail(TRP_INVALID_ARGUMENT, "learner: the address %s is too long", text);
    memcpy(circle->address, text, strlen(text) + 1);
    return TRP_OK;
}

static trp_status check_gaia(const struct vectors *vectors, const struct mode_options *options)
{
    if (!vectors->is_host)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "learner: the mode gaia is for hosts, the device %s is none",
                        trp_device_name(vectors->device));
    if (!(options->significance >= 0 && options->significance <= GAIA_SIGNIFICANCE_MAX))
        return trp_fail(TRP_INVALID_ARGUMENT, "learner: significance is %g, must be from 0 to %g",
                        options->significance, (double)GAIA_SIGNIFICANCE_MAX);
    if (options->site_slack > GAIA_SLACK_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "learner: site_slack is %" PRIu32 ", must be at most %d",
                        options->site_slack, GAIA_SLACK_MAX);
    return TRP_OK;
}

trp_status gaia_mode_create(struct mode **out, struct vectors *vectors,
                            const struct mode_options *options)
{
    *out = NULL;
    TRP_TRY(check_gaia(vectors, options));
    TRP_TRY(synchronous_create(out, vectors, options, false));
    struct synchronous *s = (struct synchronous *)*out;
    struct gaia *gaia = s->gaia = xcalloc(1, sizeof *gaia);
    gaia->s = s;
    s->fingerprint = hash_bytes(s->fingerprint, &options->max_steps, sizeof options->max_steps);
    gaia->slack = options->site_slack;
    gaia->clocks = xcalloc(gaia->slack + 1, sizeof *gaia->clocks);
    s->base.impl = &gaia_impl;
    for (size_t i = 0; i < vectors->count; i++)
        if (vectors->each[i].spec->learned)
            gaia_create(&gaia->rules[i], vectors->each[i].spec->count, options->significance,
                        gaia->slack);
    for (uint32_t i = 0; i < CIRCLES; i++)
        TRP_TRY(listen_in_circle(&gaia->circles[i], &options->group, i));
    return TRP_OK;
}
