/* The text of the kernel, which is compiled once for each instruction set. The file that includes
 * it defines FINITE_KERNEL, the kernel's name. */
#include "finite.h"

#include <stdint.h>
#include <string.h>

/* A number less itself is 0, all of whose bits are 0, or NaN: a loop without branches. */
bool FINITE_KERNEL(const float *numbers, size_t count, float scale)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < count; i++) {
        float difference = scale * numbers[i] - scale * numbers[i];
        uint32_t word;
        memcpy(&word, &difference, sizeof word);
        bits |= word;
    }
    return bits == 0;
}
