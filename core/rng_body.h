/* xoshiro256++: 256 bits of state, 0.3 ns a number, passes BigCrush. splitmix64 spreads a small
 * seed over the state, as the authors recommend. In the part of C that is C++, too: a GPU draws the
 * same numbers. */
#ifndef TRP_CORE_RNG_BODY_H
#define TRP_CORE_RNG_BODY_H

#include <math.h>
#include <stdint.h>

#include <troupe/rng.h>

#ifdef __CUDACC__
#define RNG_BODY static inline __host__ __device__
#else
#define RNG_BODY static inline
#endif

RNG_BODY uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

RNG_BODY void rng_begin(trp_rng *rng, uint64_t seed, uint64_t stream)
{
    uint64_t mix = seed;
    uint64_t origin = splitmix64(&mix) ^ (stream * 0xd1342543de82ef95u);
    for (int i = 0; i < 4; i++)
        rng->state[i] = splitmix64(&origin);
}

RNG_BODY uint64_t rng_rotated(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

RNG_BODY uint64_t rng_next(trp_rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rng_rotated(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rng_rotated(s[3], 45);
    return result;
}

RNG_BODY double rng_unit(trp_rng *rng)
{
    return (double)(rng_next(rng) >> 11) * (1.0 / 9007199254740992.0); /* 2^-53 */
}

RNG_BODY double rng_normal(trp_rng *rng)
{
    for (;;) {
        double u = 2 * rng_unit(rng) - 1;
        double v = 2 * rng_unit(rng) - 1;
        double s = u * u + v * v;
        if (s > 0 && s < 1)
            return u * sqrt(-2 * log(s) / s);
    }
}

#endif
