/* Random numbers: one seeded generator per owner, never a global one.
 *
 * xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021),
 * seeded through splitmix64. The state is plain data, so a checkpoint copies it. A generator
 * belongs to one thread. */
#ifndef TRP_RNG_H
#define TRP_RNG_H

#include <stdint.h>

#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef struct {
    uint64_t state[4];
} trp_rng;

/* Different (seed, stream) pairs give independent sequences; stream numbers the owner. */
TRP_API void trp_rng_init(trp_rng *rng, uint64_t seed, uint64_t stream);

/* 64 uniform bits. */
TRP_API uint64_t trp_rng_u64(trp_rng *rng);

/* Uniform in [0, bound), without modulo bias (Lemire 2019). `bound` > 0. */
TRP_API uint64_t trp_rng_below(trp_rng *rng, uint64_t bound);

/* Uniform in [0, 1) with 53 random bits. */
TRP_API double trp_rng_double(trp_rng *rng);

/* Standard normal (Marsaglia's polar method). */
TRP_API double trp_rng_normal(trp_rng *rng);

/* A seed of 64 bits from the operating system, for users who gave none. */
TRP_API uint64_t trp_rng_entropy(void);

TRP_END_DECLS
#endif
