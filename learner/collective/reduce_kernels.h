/* The text of the kernels, which is compiled once for each instruction set: loops that the compiler
 * turns into vectors. Values are read by memcpy(), for bytes that came lie anywhere. The file that
 * includes it defines REDUCE_TABLE, the table's name. */
#include "reduce.h"

#include <stdint.h>
#include <string.h>

enum { QUIET_NAN = 0x7fc00000, MAGNITUDE = 0x7fffffff, INFINITE = 0x7f800000 };

static inline float f32_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f32_sum(float a, float b)
{
    return a + b;
}

/* Of two zeros the positive one. Compared as integers: floats' order is that of their bits, those
 * of negative ones turned over. */
static inline float f32_max(float a, float b)
{
    uint32_t x = bits_of(a), y = bits_of(b);
    int32_t x_order = (int32_t)(x ^ ((uint32_t)((int32_t)x >> 31) & MAGNITUDE));
    int32_t y_order = (int32_t)(y ^ ((uint32_t)((int32_t)y >> 31) & MAGNITUDE));
    uint32_t larger = x_order > y_order ? x : y;
    uint32_t nan = (x & MAGNITUDE) > INFINITE || (y & MAGNITUDE) > INFINITE;
    return f32_of(nan ? QUIET_NAN : larger);
}

/* The nearest, of two the even one; a NaN stays one. */
static inline uint16_t bf16_of(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t near = bits + 0x7fff + (bits >> 16 & 1);
    near = (bits & MAGNITUDE) > INFINITE ? bits | 0x00400000 : near;
    return (uint16_t)(near >> 16);
}

static inline uint16_t bf16_sum(uint16_t a, uint16_t b)
{
    return bf16_of(f32_of((uint32_t)a << 16) + f32_of((uint32_t)b << 16));
}

static inline uint16_t bf16_max(uint16_t a, uint16_t b)
{
    return (uint16_t)(bits_of(f32_max(f32_of((uint32_t)a << 16), f32_of((uint32_t)b << 16))) >> 16);
}

static inline uint32_t i32_sum(uint32_t a, uint32_t b)
{
    return a + b;
}

static inline uint32_t i32_max(uint32_t a, uint32_t b)
{
    return (int32_t)a > (int32_t)b ? a : b;
}

static inline uint64_t u64_sum(uint64_t a, uint64_t b)
{
    return a + b;
}

static inline uint64_t u64_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#define REDUCE_KERNEL(name, type)                                                                  \
    static void name##_all(void *values, const void *others, size_t count)                         \
    {                                                                                              \
        type *restrict into = values;                                                              \
        const uint8_t *restrict from = others;                                                     \
        for (size_t i = 0; i < count; i++) {                                                       \
            type other;                                                                            \
            memcpy(&other, from + i * sizeof other, sizeof other);                                 \
            into[i] = name(into[i], other);                                                        \
        }                                                                                          \
    }

REDUCE_KERNEL(f32_sum, float)
REDUCE_KERNEL(f32_max, float)
REDUCE_KERNEL(bf16_sum, uint16_t)
REDUCE_KERNEL(bf16_max, uint16_t)
REDUCE_KERNEL(i32_sum, uint32_t)
REDUCE_KERNEL(i32_max, uint32_t)
REDUCE_KERNEL(u64_sum, uint64_t)
REDUCE_KERNEL(u64_max, uint64_t)

const reduce_kernel REDUCE_TABLE[REDUCE_TYPES][REDUCE_OPS] = {
    [TRP_COLLECTIVE_F32] = {f32_sum_all, f32_max_all},
    [TRP_COLLECTIVE_BF16] = {bf16_sum_all, bf16_max_all},
    [TRP_COLLECTIVE_I32] = {i32_sum_all, i32_max_all},
    [TRP_COLLECTIVE_U64] = {u64_sum_all, u64_max_all},
};
