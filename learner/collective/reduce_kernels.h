/* The text of the kernels, which is compiled once for each instruction set: loops that the compiler
 * turns into vectors. Values are read by memcpy(), for bytes that came lie anywhere. The file that
 * includes it defines REDUCE_TABLE, the table's name. */
#include "reduce.h"

#include <stdint.h>
#include <string.h>

#include "reduce_scalar.h"

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
