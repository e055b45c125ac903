/* The middle of what was measured: machines are shared, and some turns meet others' work. */
#ifndef BENCH_MEDIAN_H
#define BENCH_MEDIAN_H

#include <stddef.h>
#include <stdlib.h>

static inline int median_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them; of an even number the mean of the two in the middle. */
static inline double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, median_compare);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

#endif
