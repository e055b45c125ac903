/* Gaia between sites (gaia_rule.h). Learners of one site step by themselves and go on from their
 * mean after every step, so a site is as one learner with all their batches. The first of each site
 * ends the clock with the others (gaia_sites.h), and the others of its site go on from what it has
 * then. */
#include <inttypes.h>
#include <stdlib.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/hash.h"
#include "gaia_sites.h"
#include "limits.h"
#include "mean.h"
#include "synchronous.h"

struct gaia {
    struct synchronous s; /* first */
    struct circle site;   /* of this site's learners */
    struct gaia_sites sites;
    uint64_t steps;           /* of all, together */
    uint64_t says[GAIA_SAYS]; /* of this round; then of the clock that was decided about */
};

static struct gaia *gaia_of(struct mode *mode)
{
    return (struct gaia *)mode;
}

/* ---- rounds ------------------------------------------------------------------------------------
 */

static trp_status mean_of_site(struct gaia *gaia, uint64_t own, uint64_t batches)
{
    const struct mean mean = {.group = &gaia->s.group,
                              .circle = gaia->site.collective,
                              .weight = own,
                              .weights = batches};
    return mean.circle && batches > 0 ? mean_of_vectors(&mean, gaia->s.base.vectors) : TRP_OK;
}

/* All sites part after this clock, as all of them know. */
static bool is_last_clock(const struct gaia *gaia)
{
    const uint64_t *says = gaia->says;
    uint64_t limit = gaia->s.options.max_steps;
    uint64_t steps = gaia->steps + (says[GAIA_BATCHES] > 0);
    return says[GAIA_GOES_ON] == 0 || says[GAIA_LEAVES] || says[GAIA_STOPS] || says[GAIA_OVER] ||
           (limit > 0 && steps >= limit);
}

static trp_status end_clock(struct gaia *gaia)
{
    if (gaia->site.rank > 0)
        return TRP_OK;
    TRP_TRY(gaia_sites_end_clock(&gaia->sites, gaia->says));
    return is_last_clock(gaia) ? gaia_sites_drain(&gaia->sites) : TRP_OK;
}

/* All of a site go on from what its first one has. */
static trp_status spread_in_site(struct gaia *gaia)
{
    const struct circle *site = &gaia->site;
    const struct vectors *vectors = gaia->s.base.vectors;
    TRP_TRY(circle_wait(site, circle_broadcast(site, gaia->says, GAIA_SAYS, TRP_COLLECTIVE_U64)));
    for (size_t i = 0; i < vectors->count; i++)
        TRP_TRY(
            circle_wait(site, circle_broadcast(site, vectors->each[i].values.here,
                                               vectors->each[i].spec->count, TRP_COLLECTIVE_F32)));
    return TRP_OK;
}

/* A clock that somebody had a batch in is a step of all, also of a site that had none; all leave at
 * the same one. */
static trp_status gaia_round_end(struct mode *mode, struct mode_round *round)
{
    struct gaia *gaia = gaia_of(mode);
    uint64_t *says = gaia->says;
    says[GAIA_STOPS] = round->stops;
    says[GAIA_OVER] = round->over;
    says[GAIA_LEAVES] = learners_is_left(&gaia->s.group);
    says[GAIA_GOES_ON] = !round->ended;
    says[GAIA_BATCHES] = round->has_batch;
    says[GAIA_BARRIERS] = 0;
    TRP_TRY(circle_wait(&gaia->site, circle_sum(&gaia->site, says, GAIA_SAYS)));
    uint64_t batches = says[GAIA_BATCHES];
    TRP_TRY(mean_of_site(gaia, round->has_batch, batches));
    TRP_TRY(end_clock(gaia));
    TRP_TRY(spread_in_site(gaia));
    gaia->steps += says[GAIA_BATCHES] > 0;
    round->whole = batches > 0 || says[GAIA_BATCHES] > 0 || says[GAIA_LEAVES] > 0;
    round->steps = gaia->steps;
    round->stops = says[GAIA_STOPS] > 0;
    round->over = says[GAIA_OVER] > 0;
    round->ended = says[GAIA_GOES_ON] == 0;
    round->leaves = says[GAIA_LEAVES] > 0;
    return TRP_OK;
}

static trp_status gaia_round_begin(struct mode *mode, const struct mode_round *round)
{
    (void)round;
    backup_take(&gaia_of(mode)->s.backup);
    return TRP_OK;
}

/* ---- generations -------------------------------------------------------------------------------
 */

static void leave_circles(struct gaia *gaia)
{
    circle_leave(&gaia->site);
    circle_leave(&gaia->sites.circle);
}

/* One circle of each site's learners, and one of the first of each. */
static trp_status join_circles(struct gaia *gaia)
{
    const struct learners *group = &gaia->s.group;
    const uint32_t *firsts = group->firsts;
    bool *near = xcalloc(group->size, sizeof *near), *leads = xcalloc(group->size, sizeof *leads);
    uint32_t own = 0, count = 0;
    for (uint32_t rank = 0; rank < group->size; rank++) {
        near[rank] = firsts[rank] == firsts[group->rank];
        leads[rank] = firsts[rank] == rank;
        own = rank == firsts[group->rank] ? count : own;
        count += leads[rank];
    }
    trp_status status = circle_join(&gaia->site, near);
    if (status == TRP_OK)
        status = circle_join(&gaia->sites.circle, leads);
    if (status == TRP_OK)
        gaia_sites_begin(&gaia->sites, own, count, gaia->steps);
    free(near);
    free(leads);
    return status;
}

static trp_status gaia_meet(struct mode *mode, struct mode_meeting *meeting)
{
    struct gaia *gaia = gaia_of(mode);
    trp_status status;
    leave_circles(gaia);
    do {
        TRP_TRY(synchronous_meet(mode, meeting));
        gaia->steps = meeting->steps;
        status = join_circles(gaia);
        if (status != TRP_OK)
            leave_circles(gaia);
    } while (gaia->s.group.broken);
    TRP_TRY(status);
    mode->idle = mode->partial = false;
    trp_log(TRP_INFO, "learner is in site=%" PRIu32 " of=%" PRIu32 " rank=%" PRIu32 " of=%" PRIu32,
            gaia->sites.site, gaia->sites.count, gaia->site.rank, gaia->site.size);
    return TRP_OK;
}

/* ---- life --------------------------------------------------------------------------------------
 */

static void gaia_mode_destroy(struct mode *mode)
{
    struct gaia *gaia = gaia_of(mode);
    leave_circles(gaia);
    gaia_sites_print(&gaia->sites);
    circle_cleanup(&gaia->site);
    gaia_sites_cleanup(&gaia->sites);
    synchronous_cleanup(&gaia->s);
    free(gaia);
}

static const struct mode_impl gaia_impl = {
    .meet = gaia_meet,
    .begin = gaia_round_begin,
    .end = gaia_round_end,
    .apply = alone_apply,
    .destroy = gaia_mode_destroy,
};

static trp_status check_gaia(const struct mode_options *options)
{
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
    TRP_TRY(check_gaia(options));
    struct gaia *gaia = xcalloc(1, sizeof *gaia);
    struct synchronous *s = &gaia->s;
    *out = &s->base;
    TRP_TRY(synchronous_init_plain(s, &gaia_impl, vectors, options));
    s->fingerprint = hash_bytes(s->fingerprint, &options->max_steps, sizeof options->max_steps);
    gaia_sites_create(&gaia->sites, vectors, options->significance, options->site_slack,
                      &options->compress);
    TRP_TRY(circle_listen(&gaia->site, &s->group, "site", &options->group));
    return circle_listen(&gaia->sites.circle, &s->group, "sites", &options->group);
}
