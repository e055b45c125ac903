/* Hashes. Keys come from clients, who may choose them: hash_u64() is seeded anew in each process,
 * so that nobody can choose keys which all fall in one place, and its values mean nothing outside
 * the process. hash_bytes() is the same everywhere and for ever. */
#ifndef TRP_CORE_HASH_H
#define TRP_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { HASH_SEEDS = 2 };
extern uint64_t hash_seeds[HASH_SEEDS]; /* set before main() */

/* Both halves of the 128-bit product, folded (the mixing step of wyhash, Wang Yi). */
static inline uint64_t hash_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

/* Two steps: after one, counters and keys that differ in their upper bits alone still bunch under
 * one seed in ten. */
static inline uint64_t hash_u64(uint64_t key)
{
    uint64_t once = hash_fold(key ^ hash_seeds[0], UINT64_C(0x9e3779b97f4a7c15));
    return hash_fold(once ^ hash_seeds[1], UINT64_C(0xd1342543de82ef95));
}

/* The same of bytes. */
uint32_t hash_seeded(const void *bytes, size_t size);

/* A place in a table whose capacity is a power of two, up to 2^32. */
static inline uint32_t hash_place(uint64_t key, uint32_t capacity)
{
    return (uint32_t)(hash_u64(key) >> 32) & (capacity - 1);
}

/* FNV-1a, 64 bits (Fowler, Noll, Vo): begin with HASH_BYTES_EMPTY, go on with the result. */
#define HASH_BYTES_EMPTY UINT64_C(0xcbf29ce484222325)
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size);

#endif
