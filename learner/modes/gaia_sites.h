/* Gaia's clocks between sites (gaia_rule.h), as the first learner of a site ends them with those of
 * the others: it says how many numbers matter, and then which. With slack it waits for neither at
 * once: for what was said half the slack ago, and for numbers of the other half before that. What
 * is decided together (a stop, the end) travels with what is said, so all do it at one clock.
 *
 * A site for which that half is not there yet makes more news than its links bear: it raises the
 * barrier, and all sites wait for whatever is on its way at the clock at which they hear of it. */
#ifndef TRP_LEARNER_MODES_GAIA_SITES_H
#define TRP_LEARNER_MODES_GAIA_SITES_H

#include "circle.h"
#include "gaia_rule.h"
#include "vectors.h"

/* What is decided together: numbers of learners, but for batches, and of sites. */
enum {
    GAIA_STOPS,
    GAIA_OVER,
    GAIA_LEAVES,
    GAIA_GOES_ON,
    GAIA_BATCHES,
    GAIA_BARRIERS,
    GAIA_SAYS,
};

/* News of a clock on their way. */
struct gaia_blocks {
    uint64_t tickets[TRP_UPDATER_VECTORS_MAX];
    uint32_t *words[TRP_UPDATER_VECTORS_MAX]; /* of each site: places, moves */
    size_t each[TRP_UPDATER_VECTORS_MAX];     /* words of a site */
};

/* What was said of a clock: GAIA_SAYS, then of each site and vector how much matters. */
struct gaia_saying {
    uint64_t ticket, *words;
};

struct gaia_sites {
    struct circle circle;          /* of the first of each site */
    const struct vectors *vectors; /* of which those that are learned have a rule */
    uint32_t site, count, slack;
    struct gaia_rule rules[TRP_UPDATER_VECTORS_MAX];
    uint64_t number;             /* of the clock that ends next */
    struct gaia_saying *sayings; /* by clock modulo slack + 1 */
    struct gaia_blocks *blocks;  /* by clock modulo block_count */
    uint32_t block_count;        /* of clocks that may be on their way at once */
    uint64_t dense_bytes;        /* that whole vectors are */
    uint64_t barriers;           /* at which this site waited */
};

/* Borrows the vectors. Zeroed, but for the circle. */
void gaia_sites_create(struct gaia_sites *sites, const struct vectors *vectors, double significance,
                       uint32_t slack, const struct compress_options *compress);
void gaia_sites_cleanup(struct gaia_sites *sites); /* zeroed is fine */

/* A generation begins: all of `count` sites have the same values, at so many steps. */
void gaia_sites_begin(struct gaia_sites *sites, uint32_t site, uint32_t count, uint64_t steps);

/* says[] becomes what was said of the clock that is decided about now. Fails as circle_wait();
 * DATA_LOSS: what another site says is none; INTERNAL: what this one has is no number. */
TRP_MUST_USE trp_status gaia_sites_end_clock(struct gaia_sites *sites, uint64_t says[GAIA_SAYS]);

/* Until all that is on its way has come: who leaves before takes it with it. */
TRP_MUST_USE trp_status gaia_sites_drain(struct gaia_sites *sites);

/* To the log. */
void gaia_sites_print(const struct gaia_sites *sites);

#endif
