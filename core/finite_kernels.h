/* The text of the kernels, which is compiled once for each instruction set. The file that includes
 * it defines FINITE_KERNELS, their name, and FINITE_BYTES, of a vector. */
#include "finite.h"

#include <stdint.h>
#include <string.h>

typedef float floats_vector __attribute__((vector_size(FINITE_BYTES)));
typedef uint32_t words_vector __attribute__((vector_size(FINITE_BYTES)));

enum { LANES = FINITE_BYTES / sizeof(float) };

/* A number that is in a register is not read again. */
#ifdef __x86_64__
#define KEEP(number) __asm__("" : "+x"(number))
#else
#define KEEP(number) __asm__("" : "+w"(number))
#endif

/* A number less itself is 0, all of whose bits are 0, or NaN: a loop without branches. `to` NULL:
 * nothing is copied. */
static inline __attribute__((always_inline)) bool finite_pass(float *to, const float *from,
                                                              size_t count, float scale)
{
    words_vector bits = {0};
    uint32_t all = 0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        floats_vector numbers;
        memcpy(&numbers, from + i, sizeof numbers);
        KEEP(numbers);
        if (to)
            memcpy(to + i, &numbers, sizeof numbers);
        bits |= (words_vector)(numbers * scale - numbers * scale);
    }
    for (; i < count; i++) {
        float number = from[i];
        KEEP(number);
        if (to)
            to[i] = number;
        float difference = number * scale - number * scale;
        uint32_t word;
        memcpy(&word, &difference, sizeof word);
        all |= word;
    }
    for (size_t lane = 0; lane < LANES; lane++)
        all |= bits[lane];
    return all == 0;
}

static bool finite_look(const float *numbers, size_t count, float scale)
{
    return finite_pass(NULL, numbers, count, scale);
}

static bool finite_copy(float *to, const float *from, size_t count, float scale)
{
    return finite_pass(to, from, count, scale);
}

const struct finite_kernels FINITE_KERNELS = {finite_look, finite_copy};
