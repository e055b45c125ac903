/* Sums through owners: a rank codes its gradient for the owner of each range, the owner adds up the
 * codes of all ranks and hands the sum on as a code again. Both keep what their code has not got
 * (Seide et al. 2014, 1-bit stochastic gradient descent, section 3.2). */
#include "compressor.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "limits.h"

/* ---- ranges ---------------------------------------------------------------------------------- */

/* Runs from *at of the vector on, of which those of this range count. */
static void cut_into(struct compressor *c, size_t *at, size_t end, size_t each)
{
    while (*at < end && *at < c->first + c->count) {
        *at = end - *at < each ? end : *at + each;
        size_t cut = *at > c->first ? *at - c->first : 0;
        cut = cut < c->count ? cut : c->count;
        if (cut > c->cuts[c->runs])
            c->cuts[++c->runs] = cut;
    }
}

/* The same as pairs, for who has no tensors. */
static void note_lengths(struct compressor *c)
{
    c->lengths = xcalloc(2 * c->runs, sizeof *c->lengths);
    for (size_t run = 0; run < c->runs; run++) {
        uint32_t length = (uint32_t)(c->cuts[run + 1] - c->cuts[run]);
        if (c->length_words == 0 || c->lengths[c->length_words - 2] != length) {
            c->lengths[c->length_words] = length;
            c->length_words += 2;
        }
        c->lengths[c->length_words - 1]++;
    }
}

/* Signs have the means of their columns, which follow from tensors; all else is cut alike. */
static void owners_create(struct compressor *c, const trp_net_tensor *tensors, size_t tensor_count)
{
    size_t most = c->count / COMPRESS_RUN_LEAST + 2 * tensor_count + 2, at = 0;
    c->cuts = xcalloc(most, sizeof *c->cuts);
    for (size_t i = 0; c->options.kind == COMPRESS_ONE_BIT && i < tensor_count; i++) {
        size_t columns = tensor_columns(&tensors[i]);
        if (columns < COMPRESS_RUN_LEAST || columns > COMPRESS_BLOCK)
            continue;
        cut_into(c, &at, tensors[i].offset, COMPRESS_RUN);
        cut_into(c, &at, tensors[i].offset + tensors[i].count, columns);
    }
    cut_into(c, &at, c->first + c->count, COMPRESS_RUN);
    if (c->one_way)
        note_lengths(c);
    if (c->ranges) {
        c->columns = c->cuts;
        c->column_runs = c->runs;
        c->cuts = NULL;
    }
    c->scratch = xcalloc(COMPRESS_BLOCK, sizeof *c->scratch);
}

static size_t run_words(const struct compressor *c, size_t run)
{
    return c->code->words(c->cuts[run + 1] - c->cuts[run], c->options.bits);
}

/* No run is of two ranks' ranges. */
static void cut_at_ends(struct compressor *c)
{
    size_t at = 0;
    uint32_t rank = 0;
    const size_t *column = c->columns;
    free(c->cuts);
    c->cuts = xcalloc(c->column_runs + c->size + 1, sizeof *c->cuts);
    for (c->runs = 0; at < c->count; c->cuts[++c->runs] = at) {
        while (*column <= at)
            column++;
        while (c->ends[rank] <= at)
            rank++;
        at = *column < c->ends[rank] ? *column : c->ends[rank];
    }
}

static size_t end_of_rank(const struct compressor *c, uint32_t rank)
{
    return c->ends ? c->ends[rank] : (size_t)((double)c->count * (rank + 1) / c->size);
}

static void owners_join(struct compressor *c)
{
    if (c->ends)
        cut_at_ends(c);
    free(c->firsts);
    free(c->words);
    c->firsts = xcalloc(c->size + 1, sizeof *c->firsts);
    c->block = 0;
    size_t run = 0;
    for (uint32_t rank = 0; rank < c->size; rank++) {
        size_t end = end_of_rank(c, rank), words = 0;
        for (; run < c->runs && (c->cuts[run] < end || rank + 1 == c->size); run++)
            words += run_words(c, run);
        c->firsts[rank + 1] = run;
        c->block = words > c->block ? words : c->block;
    }
    c->block = whole_blocks(c->block, COMPRESS_WORDS);
    c->words = xcalloc(3 * (size_t)c->size * c->block, sizeof *c->words);
}

/* Blocks: those that go out, those that come in, and those of the sum. */
static uint32_t *owners_block(const struct compressor *c, uint32_t part, uint32_t rank)
{
    return c->words + ((size_t)part * c->size + rank) * c->block;
}

enum { GOES_OUT, COMES_IN, OF_THE_SUM };

/* ---- a sum ----------------------------------------------------------------------------------- */

static uint64_t key_of(const struct compressor *c, bool as_owner, size_t run)
{
    uint64_t who = hash_fold(c->step + UINT64_C(0x9e3779b97f4a7c15),
                             2 * (uint64_t)c->rank + as_owner + UINT64_C(0xd1342543de82ef95));
    return who << 32 | (uint32_t)run;
}

static void take_off(float *restrict values, const float *restrict sent, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] -= sent[i];
}

static void add_values(float *restrict values, const float *restrict more, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] += more[i];
}

static void encode_own(struct compressor *c, const float *grads)
{
    for (uint32_t rank = 0; rank < c->size; rank++) {
        uint32_t *words = owners_block(c, GOES_OUT, rank);
        for (size_t run = c->firsts[rank]; run < c->firsts[rank + 1]; run++) {
            size_t at = c->cuts[run], count = c->cuts[run + 1] - at;
            const float *values = grads + at;
            if (c->rest) {
                add_values(c->rest + at, grads + at, count);
                values = c->rest + at;
            }
            c->code->encode(values, count, c->options.bits, key_of(c, false, run), words);
            if (c->rest) {
                c->code->decode(words, count, c->options.bits, c->scratch);
                take_off(c->rest + at, c->scratch, count);
            }
            words += run_words(c, run);
        }
    }
}

/* In the order of ranks. The sum is written where the gradient was. */
static void sum_up(struct compressor *c, size_t run, size_t offset, float *sum)
{
    size_t at = c->cuts[run], count = c->cuts[run + 1] - at;
    if (c->handed)
        memcpy(sum, c->handed + at, count * sizeof *sum);
    else
        memset(sum, 0, count * sizeof *sum);
    for (uint32_t rank = 0; rank < c->size; rank++) {
        uint32_t part = rank == c->rank ? GOES_OUT : COMES_IN;
        c->code->decode(owners_block(c, part, rank) + offset, count, c->options.bits, c->scratch);
        add_values(sum, c->scratch, count);
    }
}

/* The sum of a run, which goes to all. */
static void hand_on(struct compressor *c, size_t run, uint32_t *words, const float *sum)
{
    size_t at = c->cuts[run], count = c->cuts[run + 1] - at;
    c->code->encode(sum, count, c->options.bits, key_of(c, true, run), words);
    if (!c->handed)
        return;
    c->code->decode(words, count, c->options.bits, c->scratch);
    memcpy(c->handed + at, sum, count * sizeof *sum);
    take_off(c->handed + at, c->scratch, count);
}

static void sum_own_range(struct compressor *c, float *grads)
{
    uint32_t *words = owners_block(c, OF_THE_SUM, c->rank);
    size_t offset = 0;
    for (size_t run = c->firsts[c->rank]; run < c->firsts[c->rank + 1]; run++) {
        sum_up(c, run, offset, grads + c->cuts[run]);
        if (!c->ends)
            hand_on(c, run, words + offset, grads + c->cuts[run]);
        offset += run_words(c, run);
    }
}

static trp_status owners_sum(struct compressor *c, const struct compress_wire *wire, float *grads)
{
    encode_own(c, grads);
    TRP_TRY(wire->wait(wire->context, trp_collective_all_to_all(wire->collective, c->words,
                                                                c->block, TRP_COLLECTIVE_I32)));
    sum_own_range(c, grads);
    if (c->ends)
        return TRP_OK;
    TRP_TRY(wire->wait(wire->context, trp_collective_all_gather(
                                          wire->collective, NULL, owners_block(c, OF_THE_SUM, 0),
                                          c->size * c->block, TRP_COLLECTIVE_I32)));
    for (uint32_t rank = 0; rank < c->size; rank++) {
        const uint32_t *words = owners_block(c, OF_THE_SUM, rank);
        for (size_t run = c->firsts[rank]; run < c->firsts[rank + 1]; run++) {
            size_t at = c->cuts[run];
            c->code->decode(words, c->cuts[run + 1] - at, c->options.bits, grads + at);
            words += run_words(c, run);
        }
    }
    return TRP_OK;
}

static size_t owners_encode(struct compressor *c, const float *grads)
{
    size_t words = 0;
    encode_own(c, grads);
    for (size_t run = 0; run < c->runs; run++)
        words += run_words(c, run);
    return words;
}

static uint64_t owners_bytes(const struct compressor *c)
{
    uint64_t ways = c->ends ? 1 : 2;
    return ways * c->size * (c->size - 1) * c->block * sizeof *c->words;
}

const struct exchange_impl owners_impl = {owners_create, owners_join, owners_sum, owners_bytes,
                                          owners_encode};
