/* One number op another, of each type, for the host and for a GPU: who compiles them for one
 * defines SCALAR. */
#ifndef TRP_LEARNER_REDUCE_SCALAR_H
#define TRP_LEARNER_REDUCE_SCALAR_H

#include <stdint.h>
#include <string.h>

#ifndef SCALAR
#define SCALAR static inline
#endif

enum { QUIET_NAN = 0x7fc00000, MAGNITUDE = 0x7fffffff, INFINITE = 0x7f800000 };

SCALAR float f32_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

SCALAR uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

SCALAR float f32_sum(float a, float b)
{
    return a + b;
}

/* Of two zeros the positive one. Compared as integers: floats' order is that of their bits, those
 * of negative ones turned over. */
SCALAR float f32_max(float a, float b)
{
    uint32_t x = bits_of(a), y = bits_of(b);
    int32_t x_order = (int32_t)(x ^ ((uint32_t)((int32_t)x >> 31) & MAGNITUDE));
    int32_t y_order = (int32_t)(y ^ ((uint32_t)((int32_t)y >> 31) & MAGNITUDE));
    uint32_t larger = x_order > y_order ? x : y;
    uint32_t nan = (x & MAGNITUDE) > INFINITE || (y & MAGNITUDE) > INFINITE;
    return f32_of(nan ? QUIET_NAN : larger);
}

/* The nearest, of two the even one; a NaN stays one. */
SCALAR uint16_t bf16_of(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t near = bits + 0x7fff + (bits >> 16 & 1);
    near = (bits & MAGNITUDE) > INFINITE ? bits | 0x00400000 : near;
    return (uint16_t)(near >> 16);
}

SCALAR uint16_t bf16_sum(uint16_t a, uint16_t b)
{
    return bf16_of(f32_of((uint32_t)a << 16) + f32_of((uint32_t)b << 16));
}

SCALAR uint16_t bf16_max(uint16_t a, uint16_t b)
{
    return (uint16_t)(bits_of(f32_max(f32_of((uint32_t)a << 16), f32_of((uint32_t)b << 16))) >> 16);
}

SCALAR uint32_t i32_sum(uint32_t a, uint32_t b)
{
    return a + b;
}

SCALAR uint32_t i32_max(uint32_t a, uint32_t b)
{
    return (int32_t)a > (int32_t)b ? a : b;
}

SCALAR uint64_t u64_sum(uint64_t a, uint64_t b)
{
    return a + b;
}

SCALAR uint64_t u64_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#undef SCALAR

#endif
