/* xoshiro256++: 256 bits of state, 0.3 ns a number, passes BigCrush. splitmix64 spreads a small
 * seed over the state, as the authors recommend. */
#include <troupe/rng.h>

#include <math.h>
#include <sys/random.h>
#include <time.h>

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void trp_rng_init(trp_rng *rng, uint64_t seed, uint64_t stream)
{
    uint64_t mix = seed;
    uint64_t origin = splitmix64(&mix) ^ (stream * 0xd1342543de82ef95u);
    for (int i = 0; i < 4; i++)
        rng->state[i] = splitmix64(&origin);
}

static uint64_t rotate_left(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

uint64_t trp_rng_u64(trp_rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotate_left(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
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
    return (double)(trp_rng_u64(rng) >> 11) * 0x1.0p-53;
}

double trp_rng_normal(trp_rng *rng)
{
    for (;;) {
        double u = 2 * trp_rng_double(rng) - 1;
        double v = 2 * trp_rng_double(rng) - 1;
        double s = u * u + v * v;
        if (s > 0 && s < 1)
            return u * sqrt(-2 * log(s) / s);
    }
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
