/* The one hash of 64-bit keys, which may be random, consecutive, or anything: multiplicative
 * (Fibonacci) hashing, upper half folded in first. Its upper bits are the good ones. */
#ifndef TRP_CORE_HASH_H
#define TRP_CORE_HASH_H

#include <stdint.h>

static inline uint64_t hash_u64(uint64_t key)
{
    return (key ^ key >> 32) * UINT64_C(0x9e3779b97f4a7c15);
}

/* A place in a table whose capacity is a power of two, up to 2^32. */
static inline uint32_t hash_place(uint64_t key, uint32_t capacity)
{
    return (uint32_t)(hash_u64(key) >> 32) & (capacity - 1);
}

#endif
