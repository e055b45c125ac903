/* Problem: every stored byte is summed once on its way in, so the sum has to cost less than the
 * copy. Design: the processor's instruction takes 8 bytes in a cycle but answers after three; three
 * independent sums keep it busy, and where one sum is wanted, those of a block's thirds are joined
 * by a carry-less multiplication. Without it, a table of 16 entries does: slow and never wrong.
 * Guarantee: the same numbers on every machine. */
#include "core/crc32c.h"

#include <stdbool.h>
#include <string.h>
#ifdef __x86_64__
#include <wmmintrin.h>
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

/* `lane` is a multiple of 8. */
__attribute__((target("sse4.2"))) static void sum_lanes_fast(uint32_t sums[LANES],
                                                             const uint8_t *bytes, size_t lane)
{
    uint64_t a = sums[0], b = sums[1], c = sums[2];
    for (size_t at = 0; at < lane; at += 8) {
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
    sum_lanes_fast(sums, bytes, BLOCK_LANE);
    return sum_shift(sums[0], 0xCEC3662E) ^ sum_shift(sums[1], 0xA60CE07B) ^ sums[2];
}

static bool has_blocks(void)
{
    return is_fast() && __builtin_cpu_supports("pclmul");
}
#else
#define sum_bytes_fast        sum_bytes
#define sum_lanes_fast        sum_lanes
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
    if (is_fast())
        sum_lanes_fast(sums, from, lane);
    else
        sum_lanes(sums, from, lane);
    sums[LANES] = crc32c((uint32_t)size, from + LANES * lane, size - LANES * lane);
    return crc32c(0, sums, sizeof sums);
}
