/* The text of the codes of runs, which is compiled once for each instruction set: loops that the
 * compiler turns into vectors. Each makes the same bits. The file that includes it defines
 * CODE_TABLE, the table's name. */
#include "codes.h"

#include <math.h>
#include <string.h>

#include "limits.h"

static inline uint32_t word_of(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

static inline float float_of(uint32_t word)
{
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* ---- rounded numbers, two in a word --------------------------------------------------------- */

enum { MAGNITUDE_BITS = 0x7fffffff };

static size_t half_words(size_t count, uint32_t bits)
{
    (void)bits;
    return (count + 1) / 2;
}

/* The nearest, of two the even one; never infinite. */
static inline uint16_t bf16_near(float value)
{
    uint32_t word = word_of(value), near = (word + 0x7fff + (word >> 16 & 1)) >> 16;
    return (uint16_t)((near & 0x7fff) < 0x7f80 ? near : near - 1);
}

static void bf16_encode(const float *values, size_t count, uint32_t bits, uint64_t key,
                        uint32_t *words)
{
    (void)bits;
    (void)key;
    uint16_t *halves = (uint16_t *)words;
    for (size_t i = 0; i < count; i++)
        halves[i] = bf16_near(values[i]);
}

static void bf16_decode(const uint32_t *words, size_t count, uint32_t bits, float *values)
{
    (void)bits;
    const uint16_t *halves = (const uint16_t *)words;
    for (size_t i = 0; i < count; i++)
        values[i] = float_of((uint32_t)halves[i] << 16);
}

/* The nearest, of two the even one. Below 2^-14 an addition rounds to multiples of 2^-24. */
static inline uint16_t f16_near(float value)
{
    uint32_t word = word_of(value), sign = word >> 16 & 0x8000;
    float size = fabsf(value);
    size = size < 65504.0F ? size : 65504.0F;
    uint32_t of_size = word_of(size);
    uint32_t normal = (of_size - (112U << 23) + 0xfff + (of_size >> 13 & 1)) >> 13;
    uint32_t small = word_of(size + 0.5F) - word_of(0.5F);
    return (uint16_t)(sign | (size < 0x1p-14F ? small : normal));
}

static void f16_encode(const float *values, size_t count, uint32_t bits, uint64_t key,
                       uint32_t *words)
{
    (void)bits;
    (void)key;
    uint16_t *halves = (uint16_t *)words;
    for (size_t i = 0; i < count; i++)
        halves[i] = f16_near(values[i]);
}

static void f16_decode(const uint32_t *words, size_t count, uint32_t bits, float *values)
{
    (void)bits;
    const uint16_t *halves = (const uint16_t *)words;
    for (size_t i = 0; i < count; i++) {
        uint32_t half = halves[i];
        float size = float_of((half & 0x7fff) << 13) * 0x1p112F;
        values[i] = float_of(word_of(size) | (half & 0x8000) << 16);
    }
}

/* ---- one bit: two means, then the signs ----------------------------------------------------- */

enum { WORD_BITS = 32, MEANS = 2 };

static size_t one_bit_words(size_t count, uint32_t bits)
{
    (void)bits;
    return MEANS + (count + WORD_BITS - 1) / WORD_BITS;
}

/* 1: it is not negative; nothing branches, as signs are as good as random. */
static inline uint32_t sign_bit(float value)
{
    return ~word_of(value) >> 31;
}

static inline float if_positive(float value)
{
    return float_of(word_of(value) & -sign_bit(value));
}

/* In double the sum of equal numbers is exact, and so is their mean. */
static void find_means(const float *values, size_t count, float means[MEANS])
{
    enum { LANES = 16 };
    double sums[LANES] = {0}, all[LANES] = {0}, positive = 0, both = 0;
    uint32_t counts[LANES] = {0}, positives = 0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            sums[k] += (double)if_positive(values[i + k]);
            all[k] += (double)values[i + k];
            counts[k] += sign_bit(values[i + k]);
        }
    for (; i < count; i++) {
        sums[0] += (double)if_positive(values[i]);
        all[0] += (double)values[i];
        counts[0] += sign_bit(values[i]);
    }
    for (size_t k = 0; k < LANES; k++) {
        positive += sums[k];
        both += all[k];
        positives += counts[k];
    }
    size_t negatives = count - positives;
    means[0] = positives > 0 ? (float)(positive / (double)positives) : 0;
    means[1] = negatives > 0 ? (float)((both - positive) / (double)negatives) : 0;
}

static void one_bit_encode(const float *values, size_t count, uint32_t bits, uint64_t key,
                           uint32_t *words)
{
    (void)bits;
    (void)key;
    float means[MEANS];
    find_means(values, count, means);
    memcpy(words, means, sizeof means);
    words += MEANS;
    size_t i = 0;
    for (; i + WORD_BITS <= count; i += WORD_BITS) {
        uint32_t word = 0;
        for (uint32_t k = 0; k < WORD_BITS; k++)
            word |= sign_bit(values[i + k]) << k;
        words[i / WORD_BITS] = word;
    }
    if (i < count)
        words[i / WORD_BITS] = 0;
    for (; i < count; i++)
        words[i / WORD_BITS] |= sign_bit(values[i]) << i % WORD_BITS;
}

static void one_bit_decode(const uint32_t *words, size_t count, uint32_t bits, float *values)
{
    (void)bits;
    uint32_t means[MEANS];
    memcpy(means, words, sizeof means);
    words += MEANS;
    uint32_t differ = means[0] ^ means[1];
    size_t i = 0;
    for (; i + WORD_BITS <= count; i += WORD_BITS)
        for (uint32_t k = 0, word = words[i / WORD_BITS]; k < WORD_BITS; k++)
            values[i + k] = float_of(means[1] ^ (differ & -(word >> k & 1)));
    for (; i < count; i++)
        values[i] = float_of(means[1] ^ (differ & -(words[i / WORD_BITS] >> i % WORD_BITS & 1)));
}

/* ---- levels, rounded at random: the norm, then a number of `bits` for each ------------------- */

/* So many in each direction: 0 is one of them. */
static inline uint32_t levels_of(uint32_t bits)
{
    return (1U << (bits - 1)) - 1;
}

static size_t qsgd_words(size_t count, uint32_t bits)
{
    size_t each = WORD_BITS / bits; /* in a word */
    return 1 + (count + each - 1) / each;
}

/* Counted, not drawn one after another: any order makes the same (two rounds of a 32-bit mix). */
static inline uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352dU;
    x = (x ^ x >> 15) * 0x846ca68bU;
    return x ^ x >> 16;
}

static float norm_of(const float *values, size_t count)
{
    enum { LANES = 8 };
    double sums[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            sums[k] += (double)values[i + k] * values[i + k];
    for (; i < count; i++)
        sums[0] += (double)values[i] * values[i];
    return (float)sqrt(sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] +
                       sums[7]);
}

/* Inlined with `bits` known: then it is a vector's work. */
static inline void pack_levels(const int32_t *levels, size_t count, uint32_t bits, uint32_t *words)
{
    size_t each = WORD_BITS / bits, i = 0;
    for (; i + each <= count; i += each) {
        uint32_t word = 0;
        for (size_t k = 0; k < each; k++)
            word |= (uint32_t)levels[i + k] << k * bits;
        *words++ = word;
    }
    uint32_t word = 0;
    for (size_t k = 0; i + k < count; k++)
        word |= (uint32_t)levels[i + k] << k * bits;
    if (i < count)
        *words = word;
}

static inline void unpack_levels(const uint32_t *words, size_t count, uint32_t bits, float unit,
                                 float *values)
{
    uint32_t mask = (1U << bits) - 1;
    int32_t levels = (int32_t)levels_of(bits);
    size_t each = WORD_BITS / bits, i = 0;
    for (; i + each <= count; i += each, words++)
        for (size_t k = 0; k < each; k++)
            values[i + k] = (float)((int32_t)(*words >> k * bits & mask) - levels) * unit;
    for (size_t k = 0; i + k < count; k++)
        values[i + k] = (float)((int32_t)(*words >> k * bits & mask) - levels) * unit;
}

static void qsgd_encode(const float *values, size_t count, uint32_t bits, uint64_t key,
                        uint32_t *words)
{
    int32_t levels = (int32_t)levels_of(bits), chosen[COMPRESS_BLOCK];
    float norm = norm_of(values, count), scale = norm > 0 ? (float)levels / norm : 0;
    uint32_t low = mix((uint32_t)key), high = mix((uint32_t)(key >> 32) ^ low);
    memcpy(words++, &norm, sizeof norm);
    for (size_t i = 0; i < count; i++) {
        uint32_t random = mix(mix((uint32_t)i ^ low) + high) >> 8;
        float level = fabsf(values[i]) * scale + (float)(int32_t)random * 0x1p-24F;
        int32_t whole = (int32_t)level;
        whole = whole < levels ? whole : levels;
        chosen[i] = levels + (values[i] < 0 ? -whole : whole);
    }
    if (bits == 8)
        pack_levels(chosen, count, 8, words);
    else if (bits == 4)
        pack_levels(chosen, count, 4, words);
    else
        pack_levels(chosen, count, bits, words);
}

static void qsgd_decode(const uint32_t *words, size_t count, uint32_t bits, float *values)
{
    float norm = float_of(*words++), unit = norm / (float)(int32_t)levels_of(bits);
    if (bits == 8)
        unpack_levels(words, count, 8, unit, values);
    else if (bits == 4)
        unpack_levels(words, count, 4, unit, values);
    else
        unpack_levels(words, count, bits, unit, values);
}

const struct code CODE_TABLE[COMPRESSIONS] = {
    [COMPRESS_BF16] = {0, half_words, bf16_encode, bf16_decode},
    [COMPRESS_F16] = {0, half_words, f16_encode, f16_decode},
    [COMPRESS_ONE_BIT] = {MEANS, one_bit_words, one_bit_encode, one_bit_decode},
    [COMPRESS_QSGD] = {1, qsgd_words, qsgd_encode, qsgd_decode},
};
