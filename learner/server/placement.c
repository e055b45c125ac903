#include "placement.h"

#include "limits.h"

double placement_part(const struct placement *placement, uint32_t index)
{
    double n = placement->learners, k = placement->idle;
    if (placement->idle == 0 || placement->learners < 2)
        return 1 / (double)placement->servers;
    double all = n * n + k * n - 2 * k;
    return index < placement->learners ? (n - k) / all : 2 * (n - 1) / all;
}

size_t placement_begin(const struct placement *placement, size_t count, uint32_t index)
{
    double sum = 0;
    if (index >= placement->servers)
        return count;
    for (uint32_t i = 0; i < index; i++)
        sum += placement_part(placement, i);
    size_t at = (size_t)(sum * (double)count + 0.5);
    at = (at + PLACEMENT_NUMBERS / 2) / PLACEMENT_NUMBERS * PLACEMENT_NUMBERS;
    return at < count ? at : count;
}
