/* Problem: every stored byte is summed once on its way in, so the sum has to cost less than the
 * copy. Design: the processor's instruction takes 8 bytes in a cycle but answers after three; three
 * independent sums keep it busy, and where one sum is wanted, those of a block's thirds are joined
 * by a carry-less multiplication. Where such multiplications come four at a time, 64 bytes of each
 * third are folded into the 64 behind them, three times as fast again. Without any of it, a table
 * of 16 entries does: slow and never wrong. Guarantee: the same numbers on every machine. */
#include "core/crc32c.h"

#include <stdbool.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { LANES = 3, BLOCK_LANE = 336 /* bytes: a page's value has four blocks */ };

/* One entry a nibble, of the reflected polynomial 0x82F63B78. */
static const uint32_t nibbles[16] = {
    0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1, 0x417B1DBC, 0x5125DAD3, 0x61C69362, 0x7198540D,
    0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9, 0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75,
};

static uint32_t sum_bytes(uint32_t sum, const uint8_t *bytes, size_t size)
{
    for (size_t at = 0; at < size; at++) {
        sum ^= bytes[at];
        sum = sum >> 4 ^ nibbles[sum & 15];
        sum = sum >> 4 ^ nibbles[sum & 15];
    }
    return sum;
}

static void sum_lanes(uint32_t sums[LANES], const uint8_t *bytes, size_t lane)
{
    for (size_t index = 0; index < LANES; index++)
        sums[index] = sum_bytes(sums[index], bytes + index * lane, lane);
}

#ifdef __x86_64__
static inline uint64_t word_at(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

__attribute__((target("sse4.2"))) static uint32_t sum_bytes_fast(uint32_t sum, const uint8_t *bytes,
                                                                 size_t size)
{
    uint64_t wide = sum;
    for (; size >= 8; size -= 8, bytes += 8)
        wide = __builtin_ia32_crc32di(wide, word_at(bytes));
    sum = (uint32_t)wide;
    for (; size > 0; size--, bytes++)
        sum = __builtin_ia32_crc32qi(sum, *bytes);
    return sum;
}

/* `size` bytes of each lane, a multiple of 8; `lane` is from one to the next. */
__attribute__((target("sse4.2"))) static void
sum_lanes_fast(uint32_t sums[LANES], const uint8_t *bytes, size_t lane, size_t size)
{
    uint64_t a = sums[0], b = sums[1], c = sums[2];
    for (size_t at = 0; at < size; at += 8) {
        a = __builtin_ia32_crc32di(a, word_at(bytes + at));
        b = __builtin_ia32_crc32di(b, word_at(bytes + lane + at));
        c = __builtin_ia32_crc32di(c, word_at(bytes + 2 * lane + at));
    }
    sums[0] = (uint32_t)a;
    sums[1] = (uint32_t)b;
    sums[2] = (uint32_t)c;
}

static bool is_fast(void)
{
    return __builtin_cpu_supports("sse4.2");
}

/* "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Gopal et al., Intel
 * 2009), section 3: each 8 of 64 bytes are multiplied by x to the power of how far they move, mod
 * the polynomial, and added to the next 64. */
enum { FOLD = 64, XOR_OF_THREE = 0x96 };

#define FOLDS __attribute__((target("avx512f,vpclmulqdq")))

FOLDS static inline __m512i fold(__m512i left, const uint8_t *next)
{
    const __m512i by = _mm512_set4_epi64(0x9E4ADDF8, 0x740EEF02, 0x9E4ADDF8, 0x740EEF02);
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(left, by, 0x00),
                                     _mm512_clmulepi64_epi128(left, by, 0x11),
                                     _mm512_loadu_si512(next), XOR_OF_THREE);
}

FOLDS static inline __m512i fold_begin(uint32_t sum, const uint8_t *bytes)
{
    return _mm512_xor_si512(_mm512_loadu_si512(bytes),
                            _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)sum)));
}

/* `size` bytes of each lane, a multiple of FOLD: what is left of each sums up to the same. */
FOLDS static void lanes_fold(const uint32_t sums[LANES], const uint8_t *bytes, size_t lane,
                             size_t size, uint8_t left[LANES * FOLD])
{
    __m512i a = fold_begin(sums[0], bytes), b = fold_begin(sums[1], bytes + lane),
            c = fold_begin(sums[2], bytes + 2 * lane);
    for (size_t at = FOLD; at < size; at += FOLD) {
        a = fold(a, bytes + at);
        b = fold(b, bytes + lane + at);
        c = fold(c, bytes + 2 * lane + at);
    }
    _mm512_storeu_si512(left, a);
    _mm512_storeu_si512(left + FOLD, b);
    _mm512_storeu_si512(left + 2 * FOLD, c);
}

static void sum_thirds(uint32_t sums[LANES], const uint8_t *bytes, size_t lane)
{
    size_t folded = lane - lane % FOLD;
    uint8_t left[LANES * FOLD];
    if (folded > FOLD && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("vpclmulqdq")) {
        lanes_fold(sums, bytes, lane, folded, left);
        memset(sums, 0, LANES * sizeof *sums);
        sum_lanes_fast(sums, left, FOLD, FOLD);
        sum_lanes_fast(sums, bytes + folded, lane, lane - folded);
    } else if (is_fast()) {
        sum_lanes_fast(sums, bytes, lane, lane);
    } else {
        sum_lanes(sums, bytes, lane);
    }
}

/* The sum as if so many bytes of zero came behind: `power` is x^(8 * bytes - 33) mod the
 * polynomial. */
__attribute__((target("sse4.2,pclmul"))) static uint32_t sum_shift(uint32_t sum, uint64_t power)
{
    __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)sum), _mm_cvtsi64_si128((long long)power), 0);
    return (uint32_t)__builtin_ia32_crc32di(0, (uint64_t)_mm_cvtsi128_si64(product));
}

static uint32_t sum_block(uint32_t sum, const uint8_t *bytes)
{
    uint32_t sums[LANES] = {sum, 0, 0};
    sum_lanes_fast(sums, bytes, BLOCK_LANE, BLOCK_LANE);
    return sum_shift(sums[0], 0xCEC3662E) ^ sum_shift(sums[1], 0xA60CE07B) ^ sums[2];
}

static bool has_blocks(void)
{
    return is_fast() && __builtin_cpu_supports("pclmul");
}
#else
#define sum_bytes_fast        sum_bytes
#define sum_thirds            sum_lanes
#define sum_block(sum, bytes) sum_bytes(sum, bytes, LANES *BLOCK_LANE)

static bool is_fast(void)
{
    return false;
}

static bool has_blocks(void)
{
    return false;
}
#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;
    uint32_t sum = ~crc;
    bool blocks = size >= LANES * BLOCK_LANE && has_blocks();
    for (; blocks && size >= LANES * BLOCK_LANE; size -= LANES * BLOCK_LANE) {
        sum = sum_block(sum, from);
        from += LANES * BLOCK_LANE;
    }
    return ~(is_fast() ? sum_bytes_fast(sum, from, size) : sum_bytes(sum, from, size));
}

uint32_t crc32c_thirds(const void *bytes, size_t size)
{
    const uint8_t *from = bytes;
    uint32_t sums[LANES + 1] = {~0u, ~0u, ~0u, 0};
    size_t lane = size / LANES & ~(size_t)7;
    sum_thirds(sums, from, lane);
    sums[LANES] = crc32c((uint32_t)size, from + LANES * lane, size - LANES * lane);
    return crc32c(0, sums, sizeof sums);
}
