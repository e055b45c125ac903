/* The options of a table: limiters as numbers, defaults, validity and copies. */
#include <troupe/replay.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/limits.h"
#include "core/printable.h"
#include "limits.h"
#include "core/utf8.h"
#include "signature.h"

enum { MAX_SIZE_DEFAULT = 1000 * 1000, SHOWN_BYTES = 33 };

/* Reverb raises a ValueError here; trp_table_options_check() refuses NaN. */
static trp_rate_limiter limiter_refused(void)
{
    return (trp_rate_limiter){.min_diff = NAN, .max_diff = NAN};
}

trp_rate_limiter trp_limiter_min_size(int64_t min_size)
{
    if (min_size < 1)
        return limiter_refused();
    return (trp_rate_limiter){
        .samples_per_insert = 1, .min_size = min_size, .min_diff = -DBL_MAX, .max_diff = DBL_MAX};
}

trp_rate_limiter trp_limiter_samples_per_insert(double samples_per_insert, int64_t min_size,
                                                double error_buffer)
{
    double offset = samples_per_insert * (double)min_size;
    double min_diff = offset - error_buffer;
    double max_diff = offset + error_buffer;
    bool fits = samples_per_insert > 0 && isfinite(samples_per_insert) && min_size >= 1 &&
                max_diff - min_diff >= 2 * fmax(1, samples_per_insert) && min_diff <= offset;
    if (!fits)
        return limiter_refused();
    return (trp_rate_limiter){.samples_per_insert = samples_per_insert,
                              .min_size = min_size,
                              .min_diff = min_diff,
                              .max_diff = max_diff};
}

trp_rate_limiter trp_limiter_queue(int64_t size)
{
    if (size < 1)
        return limiter_refused();
    return (trp_rate_limiter){
        .samples_per_insert = 1, .min_size = 1, .min_diff = 0, .max_diff = (double)size};
}

static bool limiter_is_zero(const trp_rate_limiter *limiter)
{
    return limiter->samples_per_insert == 0 && limiter->min_size == 0 && limiter->min_diff == 0 &&
           limiter->max_diff == 0;
}

/* ---- check ------------------------------------------------------------------------------- */

/* C0, DEL or C1, of UTF-8: no name has any, since it would act on the terminals that show it. */
static bool is_control(const uint8_t *at)
{
    return at[0] < ' ' || at[0] == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0);
}

/* The name travels in protobuf strings and stands in a line of words. */
static trp_status name_check(const char *name)
{
    if (!name || !*name)
        return trp_fail(TRP_INVALID_ARGUMENT, "a table needs a name");
    size_t size = strlen(name);
    char shown[SHOWN_BYTES];
    printable_copy(shown, sizeof shown, text_bytes(name));
    if (size > TABLE_NAME_BYTES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "table '%s...': the name has %zu bytes, at most %d",
                        shown, size, TABLE_NAME_BYTES_MAX);
    const uint8_t *bytes = (const uint8_t *)name;
    for (size_t i = 0; i < size;) {
        size_t step = utf8_size(bytes + i, bytes + size);
        if (step == 0)
            return trp_fail(TRP_INVALID_ARGUMENT, "a table's name is not UTF-8 at byte %zu", i);
        if (is_control(bytes + i))
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "table '%s': byte %zu of the name is a control character", name, i);
        i += step;
    }
    return TRP_OK;
}

static trp_status selector_kind_check(const char *table, const char *role, trp_selector selector)
{
    if (selector.kind < TRP_UNIFORM || selector.kind > TRP_MIN_HEAP)
        return trp_fail(TRP_INVALID_ARGUMENT, "table '%s': %s %d is no trp_selector_kind", table,
                        role, (int)selector.kind);
    bool fits = isfinite(selector.exponent) && selector.exponent >= 0;
    if (selector.kind == TRP_PRIORITIZED && !fits)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "table '%s': the exponent of its %s is %g, but must be finite and not "
                        "negative",
                        table, role, selector.exponent);
    return TRP_OK;
}

static trp_status limiter_check(const char *table, const trp_rate_limiter *limiter)
{
    if (limiter_is_zero(limiter))
        return TRP_OK;
    if (isnan(limiter->min_diff) || isnan(limiter->max_diff))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "table '%s': limiter: sizes must be at least 1, samples_per_insert above "
                        "0 and error_buffer at least max(1, samples_per_insert)",
                        table);
    if (!(limiter->samples_per_insert > 0) || isinf(limiter->samples_per_insert))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "table '%s': limiter: samples_per_insert is %g, but must be above 0 and "
                        "finite",
                        table, limiter->samples_per_insert);
    if (limiter->min_size < 1)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "table '%s': limiter: min_size is %" PRId64 ", but must be at least 1",
                        table, limiter->min_size);
    if (limiter->min_diff > limiter->max_diff)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "table '%s': limiter: min_diff %g is above max_diff %g", table,
                        limiter->min_diff, limiter->max_diff);
    return TRP_OK;
}

/* One that clients cannot read would keep them from reading ServerInfo, so from every table. */
static trp_status signature_is_readable(const trp_table_options *options)
{
    struct signature signature = {0};
    if (options->signature.size == 0)
        return TRP_OK;
    if (options->signature.size > TABLE_SIGNATURE_BYTES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "table '%s': the signature has %zu bytes, at most %d",
                        options->name, options->signature.size, TABLE_SIGNATURE_BYTES_MAX);
    trp_status status = signature_decode(options->signature, &signature);
    for (size_t i = 0; status == TRP_OK && i < signature.count; i++)
        for (const char *at = signature.leaves[i].path; status == TRP_OK && *at; at++)
            if (is_control((const uint8_t *)at))
                status = trp_fail(TRP_INVALID_ARGUMENT,
                                  "signature: the name '%s' has a control character",
                                  signature.leaves[i].path);
    if (status != TRP_OK)
        trp_fail(status, "table '%s': %s", options->name, trp_last_error());
    signature_cleanup(&signature);
    return status;
}

trp_status trp_table_options_check(const trp_table_options *options)
{
    TRP_TRY(name_check(options->name));
    TRP_TRY(selector_kind_check(options->name, "sampler", options->sampler));
    if (options->remover_set)
        TRP_TRY(selector_kind_check(options->name, "remover", options->remover));
    if (options->max_size < 0 || options->max_size > TABLE_ITEMS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "table '%s': max_size is %" PRId64 ", but must be from 1 to %" PRId64,
                        options->name, options->max_size, (int64_t)TABLE_ITEMS_MAX);
    if (options->max_times_sampled < 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "table '%s': max_times_sampled is %" PRId32 ", but must not be negative",
                        options->name, options->max_times_sampled);
    if (options->max_bytes > INT64_MAX || options->seed > INT64_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "table '%s': %s must be below 2^63", options->name,
                        options->seed > INT64_MAX ? "seed" : "max_bytes");
    if (options->insert_on_sample && (name_check(options->insert_on_sample) != TRP_OK ||
                                      strcmp(options->insert_on_sample, options->name) == 0))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "table '%s': insert_on_sample names another table of the server",
                        options->name);
    if (options->no_replacement && options->sampler.kind != TRP_UNIFORM &&
        options->sampler.kind != TRP_PRIORITIZED)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "table '%s': replacement=no needs a sampler that draws, uniform or "
                        "prioritized: others take what is next",
                        options->name);
    TRP_TRY(signature_is_readable(options));
    return limiter_check(options->name, &options->limiter);
}

/* ---- copy -------------------------------------------------------------------------------- */

static char *text_copy(const char *text)
{
    return text ? xstrdup(text) : NULL;
}

trp_table_options *trp_table_options_copy(const trp_table_options *options)
{
    trp_table_options *copy = xmalloc(sizeof *copy);
    *copy = *options;
    copy->name = text_copy(options->name);
    copy->insert_on_sample = text_copy(options->insert_on_sample);
    copy->line = text_copy(options->line);
    if (!copy->remover_set)
        copy->remover = (trp_selector){.kind = TRP_FIFO};
    copy->remover_set = true;
    if (copy->max_size == 0)
        copy->max_size = MAX_SIZE_DEFAULT;
    if (limiter_is_zero(&copy->limiter))
        copy->limiter = trp_limiter_min_size(1);
    copy->signature.data = xmemdup(options->signature.data, options->signature.size);
    return copy;
}

void trp_table_options_destroy(trp_table_options *options)
{
    if (!options)
        return;
    free((char *)options->name); /* a copy's name and signature are its own */
    free((char *)options->insert_on_sample);
    free((char *)options->line);
    free((uint8_t *)options->signature.data);
    free(options);
}
