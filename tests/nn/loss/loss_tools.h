/* For the tests of losses: their bodies in double, and finite differences of those. */
#ifndef TRP_TESTS_LOSS_TOOLS_H
#define TRP_TESTS_LOSS_TOOLS_H

#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <troupe/losses.h>
#include <troupe/rng.h>
#include "nn/loss/rows.h"

#define REAL       double
#define NAME(name) name##_f64
#define MATH(name) name
#include "nn/loss/rows_q.h"
#include "nn/loss/rows_atoms.h"
#include "nn/loss/rows_value.h"
#include "nn/loss/rows_categorical.h"
#include "nn/loss/rows_gaussian.h"
#include "nn/loss/rows_policy.h"
#include "nn/loss/rows_actor_critic.h"
#include "nn/loss/rows_mpo.h"
#undef REAL
#undef NAME
#undef MATH

static inline void fill(trp_rng *rng, double *values, size_t count, double scale)
{
    for (size_t i = 0; i < count; i++)
        values[i] = scale * trp_rng_normal(rng);
}

static inline void fill_floats(trp_rng *rng, float *values, size_t count, double scale)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(scale * trp_rng_normal(rng));
}

/* Numbers in [-1, 1) that tests/golden/make_losses.py makes, too. */
static inline float golden_number(uint32_t seed, uint32_t index)
{
    uint32_t h = index * 2654435761u + seed * 2246822519u + 374761393u;
    h = (h ^ (h >> 15)) * 2246822519u;
    h = (h ^ (h >> 13)) * 3266489917u;
    h ^= h >> 16;
    return (float)(h >> 8) / (1 << 23) - 1;
}

/* The same numbers in double. */
static inline void widen(const float *from, double *to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = (double)from[i];
}

static inline void assert_near(double got, double want, double tolerance, const char *what,
                               size_t index)
{
    double error = got > want ? got - want : want - got;
    double size = want > 0 ? want : -want;
    if (!(error <= tolerance + tolerance * size))
        fail_msg("%s[%zu] is %.12g, should be %.12g", what, index, got, want);
}

static inline void assert_floats(const float *got, const float *want, size_t count,
                                 double tolerance, const char *what)
{
    for (size_t i = 0; i < count; i++)
        assert_near((double)got[i], (double)want[i], tolerance, what, i);
}

/* `grads` are the derivatives of loss(context) with respect to what lies in `values`. */
static inline void assert_gradient(double (*loss)(void *context), void *context, double *values,
                                   const double *grads, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        double value = values[i], step = 1e-5;
        values[i] = value + step;
        double above = loss(context);
        values[i] = value - step;
        double below = loss(context);
        values[i] = value;
        assert_near(grads[i], (above - below) / (2 * step), 1e-8, what, i);
    }
}

#endif
