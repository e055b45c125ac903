/* Any bytes as a gradient that was pushed compressed: what is taken for a code is of so many finite
 * numbers, and nothing is read or written outside. The first bytes are its kind, its bits, how many
 * numbers there are to be, and how many bytes are of runs. libFuzzer's entry point. */
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/status.h>

#include "core/alloc.h"
#include "learner/compress/compress.h"

enum { HEAD = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exactly this size. */
static uint32_t *words_of(const uint8_t *data, size_t count)
{
    uint32_t *words = xmalloc(count ? count * sizeof *words : 1);
    if (count > 0)
        memcpy(words, data, count * sizeof *words);
    return words;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD)
        return 0;
    size_t count = data[2] | (size_t)data[3] << 8, words = (size - HEAD) / sizeof(uint32_t);
    size_t run_words = data[4] < words ? data[4] : words;
    uint32_t *runs = words_of(data + HEAD, run_words);
    uint32_t *rest = words_of(data + HEAD + run_words * sizeof *runs, words - run_words);
    const struct compress_code code = {.kind = (enum compression)(data[0] % COMPRESSIONS),
                                       .bits = data[1],
                                       .runs = runs,
                                       .run_words = run_words,
                                       .words = rest,
                                       .word_count = words - run_words};
    float *values = xmalloc(count ? count * sizeof *values : 1);
    trp_status status = compress_decode(&code, values, count);
    assert(status == TRP_OK || (status == TRP_INVALID_ARGUMENT && *trp_last_error()));
    for (size_t i = 0; i < count && status == TRP_OK; i++)
        assert(isfinite(values[i]));
    free(values);
    free(rest);
    free(runs);
    return 0;
}
