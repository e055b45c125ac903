/* For tests of agents' kernels beside float64: memory of a check, the kernel of a name over all of
 * its index space, norms of differences. Bodies in double are those of loss_tools.h. */
#ifndef TRP_TESTS_KERNEL_ROWS_H
#define TRP_TESTS_KERNEL_ROWS_H

#include "gpu_kernels.h"
#include "tests/nn/cuda/twin_kernel.h"
#include "tests/nn/loss/loss_tools.h"

#define REAL       double
#define NAME(name) name##_f64
#define MATH(name) name
#include "nn/loss/columns.h"
#undef REAL
#undef NAME
#undef MATH

enum { KERNEL_SIZES = 4, MADE_MAX = 96 };
static const uint32_t kernel_sizes[KERNEL_SIZES] = {1, 31, 33, 257};

static trp_rng kernel_rng;

/* ---- memory, each piece on its own: a sanitizer sees what is behind it -------------------------
 */

static void *made[MADE_MAX];
static size_t made_count;

static inline void *make(size_t bytes)
{
    assert_true(made_count < MADE_MAX);
    return made[made_count++] = xcalloc(1, bytes);
}

static inline void forget_made(void)
{
    while (made_count > 0)
        free(made[--made_count]);
}

static inline float *make_floats(size_t count, double scale)
{
    float *values = make(count * sizeof *values);
    fill_floats(&kernel_rng, values, count, scale);
    return values;
}

static inline float *make_between(size_t count, double least, double most)
{
    float *values = make(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(least + (most - least) * trp_rng_double(&kernel_rng));
    return values;
}

static inline double *make_doubles(size_t count)
{
    return make(count * sizeof(double));
}

static inline double *make_wide(const float *values, size_t count)
{
    double *wide = make_doubles(count);
    widen(values, wide, count);
    return wide;
}

static inline int32_t *make_choices(size_t count, uint32_t below)
{
    int32_t *choices = make(count * sizeof *choices);
    for (size_t i = 0; i < count; i++)
        choices[i] = (int32_t)trp_rng_below(&kernel_rng, below);
    return choices;
}

/* Of rows of `width`, in each of which one column is set at least, `set` if that is given. */
static inline bool *make_mask(size_t rows, uint32_t width, const int32_t *set)
{
    bool *mask = make(rows * width);
    for (size_t i = 0; i < rows * width; i++)
        mask[i] = trp_rng_below(&kernel_rng, 3) > 0;
    for (size_t row = 0; row < rows; row++)
        mask[row * width + (set ? (uint32_t)set[row] : row % width)] = true;
    return mask;
}

/* ---- kernels -----------------------------------------------------------------------------------
 */

static inline void run_kernel(const char *name, const void *arguments)
{
    const struct cuda_kernel *kernel = find_agents_kernel(name);
    if (!kernel)
        fail_msg("there is no kernel %s", name);
    twin_kernel(&kernel_rng, kernel, arguments);
}

static inline void assert_kernel(const float *got, const double *want, size_t count,
                                 const char *what)
{
    double apart = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        apart += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        all += want[i] * want[i];
    }
    if (!(sqrt(apart) <= 1e-5 * sqrt(all) + 1e-9))
        fail_msg("%s of %zu: %g off, of %g", what, count, sqrt(apart), sqrt(all));
}

static inline void assert_number(float got, double want, const char *what)
{
    assert_near((double)got, want, 1e-5, what, 0);
}

#endif
