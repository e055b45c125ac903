/* bfloat16: a float's sign, its exponent and the first 7 bits of its fraction. */
#ifndef TRP_CORE_BFLOAT16_H
#define TRP_CORE_BFLOAT16_H

#include <stdint.h>
#include <string.h>

/* The nearest one, of two the even one, as vcvtneps2bf16 has it: what is below the least normal
 * float becomes a zero of its sign, a NaN a quiet one. */
static inline float bf16_rounded(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t near = bits + 0x7fffu + (bits >> 16 & 1); /* carries up to infinity */
    near = magnitude > 0x7f800000u ? bits | 0x00400000u : near;
    near = magnitude < 0x00800000u ? bits & 0x80000000u : near;
    near &= 0xffff0000u;
    memcpy(&value, &near, sizeof value);
    return value;
}

/* The upper half of that, and the float that has it. */
static inline uint16_t bf16_half(float value)
{
    uint32_t bits;
    value = bf16_rounded(value);
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static inline float bf16_float(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
