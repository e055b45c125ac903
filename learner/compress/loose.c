/* Numbers that are of no vector, as those of a datagram or those that matter of a step: the codes
 * of vectors, in runs of the same length. */
#include <math.h>
#include <stdlib.h>

#include "compressor.h"
#include "core/alloc.h"
#include "limits.h"

static uint32_t loose_bits(const struct compress_options *options)
{
    return options->bits > 0 ? options->bits : COMPRESS_BITS_MAX;
}

static size_t run_at(size_t at, size_t count)
{
    return count - at < COMPRESS_RUN ? count - at : COMPRESS_RUN;
}

size_t compress_loose_words(const struct compress_options *options, uint64_t step, size_t count)
{
    const struct code *code = code_find(options->kind);
    size_t whole = count / COMPRESS_RUN, rest = count % COMPRESS_RUN;
    uint32_t bits = loose_bits(options);
    if (options->kind == COMPRESS_NONE)
        return count;
    if (!code)
        return 2 * count_to_choose(options, step, count);
    return whole * code->words(COMPRESS_RUN, bits) + (rest > 0 ? code->words(rest, bits) : 0);
}

static void choose_loose(const struct compress_options *options, uint64_t step, const float *values,
                         size_t count, uint32_t *words)
{
    uint32_t *room = xcalloc(count, sizeof *room);
    choose_largest(values, count, count_to_choose(options, step, count), room, words);
    free(room);
}

void compress_loose(const struct compress_options *options, uint64_t step, uint64_t key,
                    const float *values, size_t count, uint32_t *words)
{
    const struct code *code = code_find(options->kind);
    uint32_t bits = loose_bits(options);
    if (!code && count > 0)
        choose_loose(options, step, values, count, words);
    for (size_t at = 0; code && at < count; at += COMPRESS_RUN) {
        size_t run = run_at(at, count);
        code->encode(values + at, run, bits, key << 32 | (uint32_t)(at / COMPRESS_RUN), words);
        words += code->words(run, bits);
    }
}

trp_status compress_loose_decode(const struct compress_options *options, const uint32_t *words,
                                 size_t word_count, float *values, size_t count)
{
    const uint32_t rest = (uint32_t)(count % COMPRESS_RUN);
    const uint32_t whole = (uint32_t)(count / COMPRESS_RUN);
    const uint32_t runs[] = {COMPRESS_RUN, whole, rest, 1};
    bool has_runs = code_find(options->kind) != NULL;
    struct compress_code code = {.kind = options->kind,
                                 .bits = loose_bits(options),
                                 .runs = whole > 0 ? runs : runs + 2,
                                 .run_words =
                                     has_runs ? 2 * (size_t)(whole > 0) + 2 * (rest > 0) : 0,
                                 .words = words,
                                 .word_count = word_count};
    return compress_decode(&code, values, count);
}

/* ---- differences ----------------------------------------------------------------------------- */

/* 1 / (1 + w), with w the variance of a code beside the square of its norm (Alistarh et al. 2017,
 * lemma 3.1): of n numbers in s levels at most n / s^2, and n^1/2 / s. */
float compress_loose_scale(const struct compress_options *options, size_t count)
{
    if (options->kind != COMPRESS_QSGD)
        return 1;
    double levels = (double)((1 << (loose_bits(options) - 1)) - 1);
    double run = count < COMPRESS_RUN ? (double)count : COMPRESS_RUN;
    return (float)(1 / (1 + fmin(run / (levels * levels), sqrt(run) / levels)));
}

double compress_loose_share(const struct compress_options *options, uint64_t step, size_t count)
{
    if (options->kind == COMPRESS_TOP_K)
        return sqrt((double)count_to_choose(options, step, count) / (double)count);
    return compress_loose_scale(options, count);
}
