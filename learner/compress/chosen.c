/* Deep gradient compression (Lin et al. 2018): u = m u + g and v = v + u; of v the largest numbers
 * are sent with their places, and u and v are 0 there. The threshold is that of the k-th largest
 * number, found exactly; of equal numbers those in front are sent, so that it is k numbers always.
 */
#include "compressor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "limits.h"

/* ---- how many -------------------------------------------------------------------------------- */

size_t count_to_choose(const struct compress_options *options, uint64_t step, size_t count)
{
    enum { STAGES = 4 }; /* 1/4, 1/16, 1/64, 1/256 */
    double share = options->ratio > 0 ? options->ratio : COMPRESS_RATIO;
    if (step < options->warmup_steps) {
        uint64_t stage = step * STAGES / options->warmup_steps;
        double of_stage = ldexp(1, -2 * ((int)stage + 1));
        share = of_stage > share ? of_stage : share;
    }
    size_t chosen = (size_t)ceil(share * (double)count);
    return chosen < count ? chosen : count;
}

static size_t chosen_count(const struct compressor *c)
{
    return count_to_choose(&c->options, c->step, c->count);
}

static size_t chosen_block(const struct compressor *c)
{
    return whole_blocks(2 * chosen_count(c), COMPRESS_WORDS);
}

static void chosen_create(struct compressor *c, const trp_net_tensor *tensors, size_t tensor_count)
{
    (void)tensors;
    (void)tensor_count;
    c->scratch = xcalloc(c->count, sizeof *c->scratch); /* candidates' magnitudes */
}

/* Room for the most that is sent from here on: it only becomes less. */
static void chosen_join(struct compressor *c)
{
    free(c->words);
    c->block = chosen_block(c);
    c->words = xcalloc((size_t)c->size * c->block, sizeof *c->words);
}

/* ---- which ----------------------------------------------------------------------------------- */

static inline uint32_t magnitude_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x7fffffff;
}

enum { RADIX_FIRST_SHIFT = 20, RADIX_BINS = 1 << 11, RADIX_SECOND_SHIFT = 10 };

/* From the top: the bin in which the k-th largest number is; *k becomes its place there. */
static uint32_t find_bin(const uint32_t bins[RADIX_BINS], size_t *k)
{
    uint32_t bin = RADIX_BINS - 1;
    for (; bin > 0 && bins[bin] < *k; bin--)
        *k -= bins[bin];
    return bin;
}

/* Those of `from` whose bits above `shift` are `prefix`, to `to`. */
static size_t keep_with(const uint32_t *from, size_t count, uint32_t shift, uint32_t prefix,
                        uint32_t *to)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        to[kept] = from[i];
        kept += from[i] >> shift == prefix;
    }
    return kept;
}

/* The magnitude of the k-th largest of [count] magnitudes, which are lost, and how many that are as
 * large are among the first k: a radix sort that follows one bin. */
static uint32_t select_largest(uint32_t *values, size_t count, size_t k, size_t *equal)
{
    static const uint32_t shifts[] = {RADIX_FIRST_SHIFT, RADIX_SECOND_SHIFT, 0};
    uint32_t prefix = 0, width = 31;
    for (size_t pass = 0; pass < sizeof shifts / sizeof *shifts; pass++) {
        uint32_t bins[RADIX_BINS] = {0}, shift = shifts[pass], mask = (1U << (width - shift)) - 1;
        for (size_t i = 0; i < count; i++)
            bins[values[i] >> shift & mask]++;
        prefix = prefix << (width - shift) | find_bin(bins, &k);
        width = shift;
        count = keep_with(values, count, shift, prefix, values);
    }
    *equal = k;
    return prefix;
}

static void compensate(struct compressor *c, const float *restrict grads)
{
    float *restrict rest = c->rest, *restrict momentum = c->momentum;
    float kept = (float)c->options.momentum;
    for (size_t i = 0; momentum && i < c->count; i++) {
        momentum[i] = kept * momentum[i] + grads[i];
        rest[i] += momentum[i];
    }
    for (size_t i = 0; !momentum && i < c->count; i++)
        rest[i] += grads[i];
}

void choose_largest(const float *values, size_t count, size_t k, uint32_t *room, uint32_t *words)
{
    size_t equal, chosen = 0;
    for (size_t i = 0; i < count; i++)
        room[i] = magnitude_of(values[i]);
    uint32_t least = select_largest(room, count, k, &equal);
    for (size_t i = 0; chosen < k && i < count; i++) {
        uint32_t magnitude = magnitude_of(values[i]);
        if (magnitude < least || (magnitude == least && equal == 0))
            continue;
        equal -= magnitude == least;
        words[chosen] = (uint32_t)i;
        memcpy(&words[k + chosen], &values[i], sizeof *words);
        chosen++;
    }
}

/* Of what was not sent before, too. */
static void choose_own(struct compressor *c, uint32_t *words, size_t k)
{
    choose_largest(c->rest, c->count, k, (uint32_t *)(void *)c->scratch, words);
    for (size_t i = 0; i < k; i++) {
        c->rest[words[i]] = 0;
        if (c->momentum && !c->options.keep_momentum)
            c->momentum[words[i]] = 0;
    }
}

static trp_status add_chosen(const struct compressor *c, const uint32_t *words, size_t k,
                             float *grads)
{
    for (size_t i = 0; i < k; i++) {
        float value;
        memcpy(&value, &words[k + i], sizeof value);
        if (words[i] >= c->count)
            return trp_fail(TRP_DATA_LOSS,
                            "learner: a rank sent number %u of a gradient of %zu numbers", words[i],
                            c->count);
        grads[words[i]] += value;
    }
    return TRP_OK;
}

static trp_status chosen_sum(struct compressor *c, const struct compress_wire *wire, float *grads)
{
    size_t k = chosen_count(c), block = chosen_block(c);
    compensate(c, grads);
    choose_own(c, c->words + c->rank * block, k);
    TRP_TRY(
        wire->wait(wire->context, trp_collective_all_gather(wire->collective, NULL, c->words,
                                                            c->size * block, TRP_COLLECTIVE_I32)));
    memset(grads, 0, c->count * sizeof *grads);
    for (uint32_t rank = 0; rank < c->size; rank++)
        TRP_TRY(add_chosen(c, c->words + rank * block, k, grads));
    return TRP_OK;
}

static size_t chosen_encode(struct compressor *c, const float *grads)
{
    size_t k = chosen_count(c);
    compensate(c, grads);
    choose_own(c, c->words, k);
    return 2 * k;
}

static uint64_t chosen_bytes(const struct compressor *c)
{
    return (uint64_t)c->size * (c->size - 1) * chosen_block(c) * sizeof *c->words;
}

const struct exchange_impl chosen_impl = {chosen_create, chosen_join, chosen_sum, chosen_bytes,
                                          chosen_encode};
