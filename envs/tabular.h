/* What environments with a finite number of states share. */
#ifndef TRP_ENVS_TABULAR_H
#define TRP_ENVS_TABULAR_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/rng.h>

/* Of three outcomes, draws one with these probabilities: the first whose sum of probabilities is
 * above one number in [0, 1), as Gymnasium's categorical_sample(). */
static inline int32_t tabular_draw(trp_rng *rng, const double probabilities[3])
{
    double drawn = trp_rng_double(rng), sum = probabilities[0];
    if (sum > drawn)
        return 0;
    sum += probabilities[1];
    if (sum > drawn)
        return 1;
    return sum + probabilities[2] > drawn ? 2 : 0;
}

static inline int32_t tabular_clamp(int32_t at, int32_t count)
{
    return at < 0 ? 0 : at >= count ? count - 1 : at;
}

#endif
