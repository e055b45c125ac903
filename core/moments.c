#include <troupe/moments.h>

#include <math.h>
#include <stdbool.h>

/* 2^53. Means of that many of the largest floats, and their squares; so nothing overflows here. */
static const double count_max = 9007199254740992.0, mean_max = 1e60, squares_max = 1e140;

void trp_moments_add(trp_moments *moments, double number)
{
    double from_old = number - moments->mean;
    moments->count++;
    moments->mean += from_old / moments->count;
    moments->squares += from_old * (number - moments->mean);
}

void trp_moments_merge(trp_moments *into, const trp_moments *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        trp_moments *a = &into[i];
        const trp_moments *b = &from[i];
        double sum = a->count + b->count, apart = b->mean - a->mean;
        if (b->count <= 0)
            continue;
        a->squares += b->squares + apart * apart * a->count * (b->count / sum);
        a->squares = fmin(a->squares, squares_max);
        a->mean += apart * (b->count / sum);
        a->count = fmin(sum, count_max);
    }
}

double trp_moments_variance(const trp_moments *moments)
{
    return moments->count < 2 ? 0 : moments->squares / moments->count;
}

trp_status trp_moments_check(const trp_moments *moments, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const trp_moments *one = &moments[i];
        bool counts = one->count >= 0 && one->count <= count_max;
        bool spreads = one->squares >= 0 && one->squares <= squares_max;
        if (!counts || !(fabs(one->mean) <= mean_max) || !spreads)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "statistic %zu has count %g, mean %g and squares %g: no numbers have "
                            "these",
                            i, one->count, one->mean, one->squares);
    }
    return TRP_OK;
}
