/* Inner to compress/: runs of numbers as codes, which are whole 32-bit words. */
#ifndef TRP_LEARNER_COMPRESS_CODES_H
#define TRP_LEARNER_COMPRESS_CODES_H

#include <stddef.h>
#include <stdint.h>

#include "compress.h"

/* One way to code a run of at most COMPRESS_BLOCK numbers. */
struct code {
    uint32_t scales; /* so many words in front of it are floats that others are multiples of */
    size_t (*words)(size_t count, uint32_t bits);
    /* `key` makes random numbers, another for each run and sum. */
    void (*encode)(const float *values, size_t count, uint32_t bits, uint64_t key, uint32_t *words);
    void (*decode)(const uint32_t *words, size_t count, uint32_t bits, float *values);
};

extern const struct code codes_generic[COMPRESSIONS], codes_avx2[COMPRESSIONS];

/* NULL: that kind is no code of runs. */
const struct code *code_find(enum compression kind);

#endif
