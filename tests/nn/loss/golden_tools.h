/* For the tests with PyTorch's numbers: those that tests/golden/make_*.py makes inputs of, and what
 * came out. */
#ifndef TRP_TESTS_GOLDEN_TOOLS_H
#define TRP_TESTS_GOLDEN_TOOLS_H

#include "loss_tools.h"

struct golden {
    const char *name;
    size_t count;
    const double *values;
};

static inline void numbers(uint32_t seed, float *values, size_t count, float scale)
{
    for (size_t i = 0; i < count; i++)
        values[i] = scale * golden_number(seed, (uint32_t)i);
}

static inline void shares(uint32_t seed, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (golden_number(seed, (uint32_t)i) + 1) / 2;
}

static inline void assert_golden_in(const struct golden *rows, size_t row_count, const char *name,
                                    const float *got, size_t count)
{
    for (size_t i = 0; i < row_count; i++) {
        if (strcmp(rows[i].name, name) != 0)
            continue;
        assert_int_equal(rows[i].count, count);
        for (size_t j = 0; j < count; j++)
            assert_near((double)got[j], rows[i].values[j], 2e-6, name, j);
        return;
    }
    fail_msg("there is no golden %s", name);
}

#endif
