/* Reverb's arithmetic in double, with its comparison operators: a client that knows which calls
 * Reverb would block must find the same here. */
#include "limiter.h"

bool limiter_can_sample(const struct limiter *limiter, int64_t count)
{
    const trp_rate_limiter *o = &limiter->options;
    if (limiter->inserts - limiter->deletes < o->min_size)
        return false;
    double difference =
        (double)limiter->inserts * o->samples_per_insert - (double)limiter->samples - (double)count;
    return difference >= o->min_diff;
}

bool limiter_can_insert(const struct limiter *limiter, int64_t count)
{
    const trp_rate_limiter *o = &limiter->options;
    if (limiter->inserts + count - limiter->deletes <= o->min_size)
        return true;
    double difference =
        (double)(limiter->inserts + count) * o->samples_per_insert - (double)limiter->samples;
    return difference <= o->max_diff;
}
