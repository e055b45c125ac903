/* The generator of rng_body.h, as a function for everybody. */
#include <sys/random.h>
#include <time.h>

#include "rng_body.h"

void trp_rng_init(trp_rng *rng, uint64_t seed, uint64_t stream)
{
    rng_begin(rng, seed, stream);
}

uint64_t trp_rng_u64(trp_rng *rng)
{
    return rng_next(rng);
}

uint64_t trp_rng_below(trp_rng *rng, uint64_t bound)
{
    unsigned __int128 product = (unsigned __int128)trp_rng_u64(rng) * bound;
    if ((uint64_t)product < bound) {
        uint64_t threshold = -bound % bound;
        while ((uint64_t)product < threshold)
            product = (unsigned __int128)trp_rng_u64(rng) * bound;
    }
    return (uint64_t)(product >> 64);
}

double trp_rng_double(trp_rng *rng)
{
    return rng_unit(rng);
}

double trp_rng_normal(trp_rng *rng)
{
    return rng_normal(rng);
}

uint64_t trp_rng_entropy(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) == sizeof seed)
        return seed;
    struct timespec now; /* a kernel without getrandom: still different from run to run */
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
