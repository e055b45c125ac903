/* Gaia's rule (Hsieh et al. 2017, "Gaia: Geo-Distributed Machine Learning Approaching LAN Speeds",
 * section 4) for one vector of one site, of several on slow links. What a site's steps make of a
 * number is added up, d, and goes to the other sites when it matters: when |d| > v |w|, with
 * v = v0 / sqrt(t) at clock t, so that less goes unsaid the nearer the end is. A number that is 0
 * has all of it sent. What goes is not rounded, or what a code has not got of it (gaia_compress())
 * stays in d: what all sites sent and what they have not sent yet are all steps.
 *
 * The mirror clock: a site that is at clock c goes on only when it has what each other one sent at
 * clock c - `slack` and before.
 *
 * The selective barrier: a site that makes more news than its links bear says so ahead of them. Who
 * hears of it goes on only when they are there. In Gaia a barrier names numbers, and who reads
 * others is not held up; here a step reads all of them. Messages in, messages out: no sockets and
 * no time. */
#ifndef TRP_LEARNER_MODES_GAIA_RULE_H
#define TRP_LEARNER_MODES_GAIA_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>
#include "learner/compress/compress.h"

/* What matters of a clock: places, that grow, and what is added there. */
struct gaia_news {
    uint32_t *places;
    float *moves;
    size_t count;
    uint32_t *codes; /* of moves, as they travel; or NULL */
};

struct gaia_counters {
    uint64_t moved,
        sent; /* numbers that differed from what others know, at a clock; of them sent */
};

struct gaia_rule {
    size_t count;
    uint32_t site, sites, slack;
    double significance;              /* v0 */
    struct compress_options compress; /* of moves */
    double share;                     /* of its steps: 1 / sites, as all sites' are added up */
    uint64_t steps;                   /* t when the clocks began */
    uint64_t clock;                   /* that have ended */
    uint64_t *heard;                  /* by site: clocks that came */
    uint64_t *barred;                 /* by site: clocks that have to have come, by its barriers */
    float *before;                    /* the vector as the clock began */
    float *unsent;                    /* d */
    struct gaia_news *kept; /* of the last slack + 1 clocks, by clock modulo their number */
    struct gaia_news unpacked;
    struct gaia_counters counters;
};

/* Borrows nothing. */
void gaia_create(struct gaia_rule *rule, size_t count, double significance, uint32_t slack);
/* Moves travel in such a code; of top-k those go that are the largest of what matters. */
void gaia_compress(struct gaia_rule *rule, const struct compress_options *compress);
void gaia_destroy(struct gaia_rule *rule); /* zeroed is fine */

/* All sites have these values, and nothing is unsent. */
void gaia_begin(struct gaia_rule *rule, uint32_t site, uint32_t sites, uint64_t steps,
                const float *values);

/* The site's learners have moved their values: a clock ends. They become what the site goes on
 * with. The news go to all other sites, and stay until slack + 1 more clocks have ended. INTERNAL:
 * a number moved to none, which the words name with the step, or by more than a code has; then the
 * rule is of no use any more. */
TRP_MUST_USE trp_status gaia_end_clock(struct gaia_rule *rule, float *values,
                                       const struct gaia_news **news);

/* News of clock `clock`, which of each site come in turn: the values move. DATA_LOSS: they are none
 * of this vector, or of another clock; some of them may have been taken then. */
TRP_MUST_USE trp_status gaia_hear(struct gaia_rule *rule, uint32_t site, uint64_t clock,
                                  const struct gaia_news *news, float *values);

/* A barrier of a site: its news of this clock, and of those before, are on their way. One of the
 * site itself, or older than what came, is nothing. */
void gaia_raise_barrier(struct gaia_rule *rule, uint32_t site, uint64_t clock);

/* Whether it may go on from here: it has heard enough of all others. */
bool gaia_may_go_on(const struct gaia_rule *rule);

/* The oldest clock that some site has not been heard of. */
uint64_t gaia_awaited_clock(const struct gaia_rule *rule);

/* The news of one of the last slack + 1 clocks. */
const struct gaia_news *gaia_kept(const struct gaia_rule *rule, uint64_t clock);

/* News as words: their places or, where they are many, a bit for each number of the vector; then
 * the moves, or their codes. So it is never more than the whole vector and a 32nd of it. */
size_t gaia_words(const struct gaia_rule *rule, size_t count);
void gaia_pack(const struct gaia_rule *rule, const struct gaia_news *news, uint32_t *words);

/* The most news of a site; said[site * stride] is how many it said that it has. DATA_LOSS: one said
 * more than there are numbers. */
TRP_MUST_USE trp_status gaia_most(const struct gaia_rule *rule, const uint64_t *said, size_t stride,
                                  size_t *most);

/* *news are the rule's until the next ones. DATA_LOSS: words are not of so many news. */
TRP_MUST_USE trp_status gaia_unpack(struct gaia_rule *rule, const uint32_t *words, size_t count,
                                    const struct gaia_news **news);

#endif
