/* An environment that costs no more than its frames, of which one follows the other without end.
 * Who includes this keeps the frames and says what is seen. */
#ifndef TRP_BENCH_FILM_H
#define TRP_BENCH_FILM_H

#include <troupe/env.h>

enum { FILM_STARTS = 64 };

/* The state is the number of a frame: an episode begins with one of FILM_STARTS. */
static inline trp_status film_reset(void *state, trp_rng *rng)
{
    *(uint32_t *)state = (uint32_t)trp_rng_below(rng, FILM_STARTS);
    return TRP_OK;
}

static inline trp_status film_step(void *state, trp_rng *rng, const void *action,
                                   trp_env_outcome *outcome)
{
    (void)rng, (void)action, (void)outcome;
    ++*(uint32_t *)state;
    return TRP_OK;
}

#endif
