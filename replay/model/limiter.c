/* Reverb's arithmetic in double, with its comparison operators: a client that knows which calls
 * Reverb would block must find the same here. A caller that timed out wants to know who has to do
 * what: the limiter's numbers say it. */
#include "limiter.h"

#include <inttypes.h>
#include <math.h>

#include "core/alloc.h"
#include "core/words.h"

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

/* ---- explaining ---------------------------------------------------------------------------- */

char *limiter_explain(const struct limiter *limiter, bool sampling)
{
    const trp_rate_limiter *o = &limiter->options;
    int64_t size = limiter->inserts - limiter->deletes;
    double after = (double)limiter->inserts * o->samples_per_insert - (double)limiter->samples +
                   (sampling ? -1 : o->samples_per_insert);
    if (sampling ? limiter_can_sample(limiter, 1) : limiter_can_insert(limiter, 1))
        return xstrdup("");
    if (sampling && size < o->min_size)
        return xasprintf("the table has %" PRId64 " of the %" PRId64
                         " items that its limiter wants before the first sample",
                         size, o->min_size);
    double more =
        ceil(sampling ? (o->min_diff - after) / o->samples_per_insert : after - o->max_diff);
    return xasprintf("the limiter %s after %.0f more %s%s (%" PRId64 " inserts x %g - %" PRId64
                     " samples may be %g at %s after it)",
                     sampling ? "allows the next sample" : "lets the next item in", more,
                     sampling ? "insert" : "sample", plural((int64_t)more), limiter->inserts,
                     o->samples_per_insert, limiter->samples, sampling ? o->min_diff : o->max_diff,
                     sampling ? "least" : "most");
}

/* ---- limiters that stop for good ----------------------------------------------------------- */

enum { SPI_DENOMINATOR_MAX = 1000 };

/* inserts * spi - samples is a multiple of 1 / this; 0: of nothing that counts. */
static int spi_denominator(double spi)
{
    for (int q = 1; q <= SPI_DENOMINATOR_MAX; q++)
        if (fabs(spi * q - round(spi * q)) <= 1e-9 * q)
            return q;
    return 0;
}

/* Whether there is a difference at which the next insert is too much and the next sample, too. */
static bool limiter_can_jam(const trp_rate_limiter *options)
{
    double blocks_inserts = options->max_diff - options->samples_per_insert; /* above */
    double blocks_samples = options->min_diff + 1;                           /* below */
    int q = spi_denominator(options->samples_per_insert);
    if (q == 0)
        return blocks_inserts < blocks_samples;
    return (ceil(blocks_samples * q) - 1) / q > blocks_inserts;
}

char *limiter_warning(const struct limiter *limiter, int64_t max_size)
{
    const trp_rate_limiter *options = &limiter->options;
    if (max_size < options->min_size)
        return xasprintf("max_size %" PRId64 " is less than the limiter's min_size %" PRId64
                         ": nothing can ever be sampled",
                         max_size, options->min_size);
    if (!limiter_can_insert(limiter, 1) && !limiter_can_sample(limiter, 1))
        return xasprintf("with %" PRId64 " insert%s and %" PRId64
                         " sample%s so far its limiter allows neither an insert nor a sample, so "
                         "nobody can ever go on; widen its limits (alter) or reset the table",
                         limiter->inserts, plural(limiter->inserts), limiter->samples,
                         plural(limiter->samples));
    if (limiter_can_jam(options))
        return xasprintf("its limiter can come to where it allows neither an insert nor a sample, "
                         "and then nobody can ever go on; from min_diff to max_diff should be "
                         "samples_per_insert + 1 = %g or more, not %g",
                         options->samples_per_insert + 1, options->max_diff - options->min_diff);
    return NULL;
}
