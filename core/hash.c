/* Secrets from the kernel's AT_RANDOM (getauxval(3)): 16 random bytes, there before main(). */
#include "hash.h"

#include <string.h>
#include <sys/auxv.h>

uint64_t hash_seeds[HASH_SEEDS];

__attribute__((constructor)) static void hash_seed(void)
{
    const void *random = (const void *)getauxval(AT_RANDOM); // NOLINT(performance-no-int-to-ptr)
    if (random)
        memcpy(hash_seeds, random, sizeof hash_seeds);
}

uint32_t hash_seeded(const void *bytes, size_t size)
{
    uint64_t hash = hash_seeds[0] ^ size, word;
    const unsigned char *at = bytes, *end = at + size;
    for (; (size_t)(end - at) >= sizeof word; at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = hash_fold(hash ^ word, hash_seeds[1] | 1);
    }
    for (; at < end; at++)
        hash = hash_fold(hash ^ *at, UINT64_C(0xd1342543de82ef95));
    return (uint32_t)(hash ^ hash >> 32);
}

uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}
