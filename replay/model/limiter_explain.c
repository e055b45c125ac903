/* A caller that timed out wants to know who has to do what: the rule is known, so the limiter's
 * numbers say it. */
#include "limiter_explain.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/alloc.h"
#include "core/words.h"

static void explain_insert(const trp_table_info *info, char *text, size_t size)
{
    double after = ((double)info->inserts + 1) * info->samples_per_insert - (double)info->samples;
    if (info->size + 1 <= info->min_size || after <= info->max_diff)
        return;
    double more = ceil(after - info->max_diff);
    snprintf(text, size,
             "the limiter lets the next item in after %.0f more sample%s (%" PRId64
             " inserts x %g - %" PRId64 " samples may be %g at most after it)",
             more, plural((int64_t)more), info->inserts, info->samples_per_insert, info->samples,
             info->max_diff);
}

static void explain_sample(const trp_table_info *info, char *text, size_t size)
{
    double after = (double)info->inserts * info->samples_per_insert - (double)info->samples - 1;
    double more = ceil((info->min_diff - after) / info->samples_per_insert);
    if (info->size < info->min_size)
        snprintf(text, size,
                 "the table has %" PRId64 " of the %" PRId64
                 " items that its limiter wants before the first sample",
                 info->size, info->min_size);
    else if (after < info->min_diff)
        snprintf(text, size,
                 "the limiter allows the next sample after %.0f more insert%s (%" PRId64
                 " inserts x %g - %" PRId64 " samples may be %g at least after it)",
                 more, plural((int64_t)more), info->inserts, info->samples_per_insert,
                 info->samples, info->min_diff);
}

void limiter_explain_info(const trp_table_info *info, bool sampling,
                          char text[LIMITER_EXPLAIN_BYTES])
{
    text[0] = '\0';
    if (sampling)
        explain_sample(info, text, LIMITER_EXPLAIN_BYTES);
    else
        explain_insert(info, text, LIMITER_EXPLAIN_BYTES);
}

void limiter_explain(const struct limiter *limiter, bool sampling, char text[LIMITER_EXPLAIN_BYTES])
{
    trp_table_info info = {
        .size = limiter->inserts - limiter->deletes,
        .inserts = limiter->inserts,
        .samples = limiter->samples,
        .min_size = limiter->options.min_size,
        .samples_per_insert = limiter->options.samples_per_insert,
        .min_diff = limiter->options.min_diff,
        .max_diff = limiter->options.max_diff,
    };
    limiter_explain_info(&info, sampling, text);
}

/* ---- what can never go on ------------------------------------------------------------------ */

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
