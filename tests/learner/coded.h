/* What codes of loose numbers have got, by their rules and in double: of those that round, and of
 * top-k. */
#ifndef TRP_TESTS_LEARNER_CODED_H
#define TRP_TESTS_LEARNER_CODED_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "learner/compress/compress.h"

/* To the nearest of so many bits, of two the even one. */
static inline double coded_rounded(double value, int bits)
{
    int exponent;
    double fraction = frexp(value, &exponent);
    return ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
}

/* Of equal ones the last. */
static inline void coded_drop_least(double *values, size_t count)
{
    size_t least = count;
    for (size_t i = count; i-- > 0;)
        if (values[i] != 0 && (least == count || fabs(values[i]) < fabs(values[least])))
            least = i;
    if (least < count)
        values[least] = 0;
}

/* Of [count] numbers those that are there; NULL: all. */
static inline void coded_numbers(const struct compress_options *options, const double *values,
                                 const bool *there, size_t count, double *sent)
{
    size_t all = 0, zeros = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_there = !there || there[i];
        all += is_there;
        zeros += is_there && values[i] == 0;
        sent[i] = is_there ? values[i] : 0;
        if (options->kind == COMPRESS_BF16)
            sent[i] = coded_rounded(sent[i], 8);
        if (options->kind == COMPRESS_F16)
            sent[i] = coded_rounded(sent[i], 11);
    }
    size_t chosen = (size_t)ceil(options->ratio * (double)all);
    for (size_t left = all - zeros; options->kind == COMPRESS_TOP_K && left > chosen; left--)
        coded_drop_least(sent, count);
}

#endif
