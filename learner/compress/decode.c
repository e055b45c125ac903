/* Codes from somebody else, of which nothing is believed: all that is read was counted before, and
 * what comes of it is finite. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "codes.h"
#include "compress.h"
#include "limits.h"

static trp_status is_no_code(const struct compress_code *code, size_t count)
{
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "%zu words and %zu of runs are no code %s of %zu numbers, in %" PRIu32 " bits",
                    code->word_count, code->run_words, compress_name(code->kind), count,
                    code->bits);
}

static trp_status is_not_finite(const struct compress_code *code, const char *what, size_t at)
{
    return trp_fail(TRP_INVALID_ARGUMENT, "a code %s has a %s at %zu that is not finite",
                    compress_name(code->kind), what, at);
}

/* ---- places and numbers ---------------------------------------------------------------------- */

static trp_status decode_chosen(const struct compress_code *code, float *values, size_t count)
{
    size_t k = code->word_count / 2;
    uint64_t next = 0; /* that a place may be */
    if (code->word_count % 2 != 0 || k > count || code->run_words > 0)
        return is_no_code(code, count);
    memset(values, 0, count * sizeof *values);
    for (size_t i = 0; i < k; i++) {
        uint32_t place = code->words[i];
        float value;
        memcpy(&value, &code->words[k + i], sizeof value);
        if (place < next || place >= count)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "a code top-k has number %" PRIu32 " of %zu, behind number %" PRIu64,
                            place, count, next);
        if (!isfinite(value))
            return is_not_finite(code, "number", place);
        values[place] = value;
        next = (uint64_t)place + 1;
    }
    return TRP_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Whether runs and words are of so many numbers: no number of them is larger. */
static bool run_counts_fit(const struct compress_code *code, const struct code *runs, size_t count)
{
    size_t numbers = 0, words = 0;
    for (size_t i = 0; i < code->run_words; i += 2) {
        uint32_t length = code->runs[i], times = code->runs[i + 1];
        if (length == 0 || length > COMPRESS_BLOCK || times == 0 ||
            times > (count - numbers) / length)
            return false;
        numbers += (size_t)length * times;
        words += runs->words(length, code->bits) * times;
    }
    return numbers == count && words == code->word_count;
}

static trp_status decode_run(const struct compress_code *code, const struct code *runs,
                             const uint32_t *words, float *values, size_t count)
{
    size_t at = (size_t)(words - code->words);
    for (uint32_t i = 0; i < runs->scales; i++) {
        float scale;
        memcpy(&scale, &words[i], sizeof scale);
        if (!isfinite(scale))
            return is_not_finite(code, "scale", at + i);
    }
    runs->decode(words, count, code->bits, values);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return is_not_finite(code, "number", at);
    return TRP_OK;
}

static trp_status decode_runs(const struct compress_code *code, float *values, size_t count)
{
    const struct code *runs = code_find(code->kind);
    const uint32_t *words = code->words;
    bool has_bits = code->kind != COMPRESS_QSGD ||
                    (code->bits >= COMPRESS_BITS_LEAST && code->bits <= COMPRESS_BITS_MAX);
    if (!runs || !has_bits || code->run_words % 2 != 0 || !run_counts_fit(code, runs, count))
        return is_no_code(code, count);
    for (size_t i = 0; i < code->run_words; i += 2)
        for (uint32_t n = 0; n < code->runs[i + 1]; n++) {
            TRP_TRY(decode_run(code, runs, words, values, code->runs[i]));
            words += runs->words(code->runs[i], code->bits);
            values += code->runs[i];
        }
    return TRP_OK;
}

trp_status compress_decode(const struct compress_code *code, float *values, size_t count)
{
    return code->kind == COMPRESS_TOP_K ? decode_chosen(code, values, count)
                                        : decode_runs(code, values, count);
}
