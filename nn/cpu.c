/* Which code a processor and a plan get. Explicit dispatch instead of ifunc clones: the kernels
 * need fused multiply-adds by name (contraction is off everywhere), sanitizers start before ifuncs
 * can, and clang 14 must build the same thing. */
#include "backend.h"
#include "core/thread.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum {
    CLASS_BITS = 2,      /* a class is four times the one before */
    ROWS_CLASSES = 6,    /* about 1, 4, 16, 64, 256, 1024 rows and more */
    WEIGHTS_FIRST = 8,   /* bits: the first class is of about 256 weights and fewer */
    WEIGHTS_CLASSES = 9, /* the last one of 16 M */
};

/* Who is faster for calls of so many rows (a string each) and layers of so many weights (a
 * character each): '.' our own kernels, 'o' oneDNN, of which a process without such plans is
 * spared. What `bench nn` printed on a Zen 5 and, where there are tiles (AMX), on a Xeon, oneDNN
 * kept to the same instructions, one thread; a tenth faster is not worth loading it. */
struct choice {
    const char *forward[ROWS_CLASSES], *backward[ROWS_CLASSES];
};

static const struct choice choice_generic = {
    .forward = {"...oooooo", ".........", ".........", ".........", "........o", "......ooo"},
    .backward = {"..ooooooo", "...oooooo", ".....oooo", ".....oooo", "...o.oooo", "....ooooo"},
};

#ifdef __x86_64__
static const struct choice choice_avx2 = {
    .forward = {"...oooooo", "...oooo.o", "...oo....", "......ooo", "........o", "......ooo"},
    .backward = {"..oooo.oo", "......ooo", "......ooo", "......ooo", "......ooo", "......ooo"},
};

static const struct choice choice_avx512 = {
    .forward = {"....ooooo", "....ooooo", "....ooooo", ".......oo", "........o", ".......oo"},
    .backward = {"...oooooo", "....oo.oo", "........o", "........o", ".......oo", ".......oo"},
};

static const struct choice choice_avx512_amx = {
    .forward = {"......ooo", "....ooooo", ".....oo..", ".........", "......ooo", "......ooo"},
    .backward = {"...oooooo", "...oooooo", "....ooooo", "......o.o", "......ooo", "....ooooo"},
};

static bool amx_known;

static void amx_look(void)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, NEEDED = AMX_BF16 | AMX_TILE };
    unsigned a, b, c, d;
    amx_known = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & NEEDED) == NEEDED;
}

/* The processor has it; whether a process may use it is another question. */
static bool cpu_knows_amx(void)
{
    static struct once once = ONCE_INIT;
    once_run(&once, amx_look);
    return amx_known;
}
#endif

static const struct choice *choice_for(const struct backend *backend)
{
#ifdef __x86_64__
    if (backend == &backend_avx512)
        return cpu_knows_amx() ? &choice_avx512_amx : &choice_avx512;
    if (backend == &backend_avx2)
        return &choice_avx2;
#endif
    (void)backend;
    return &choice_generic;
}

const struct backend *backend_simd(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return &backend_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &backend_avx2;
#endif
    return &backend_generic;
}

/* The nearest class: a count twice that of a class is nearer to the next one. */
static unsigned class_of(size_t count, unsigned first_bits, unsigned classes)
{
    unsigned bits = 0;
    while (count > 1 && bits < 8 * sizeof count) {
        count >>= 1;
        bits++;
    }
    if (bits <= first_bits)
        return 0;
    unsigned class = (bits - first_bits + 1) / CLASS_BITS;
    return class < classes ? class : classes - 1;
}

bool linear_is_onednns(const struct backend *backend, bool back, size_t weights, uint32_t rows)
{
    const struct choice *choice = choice_for(backend);
    unsigned row = class_of(rows, 0, ROWS_CLASSES);
    unsigned column = class_of(weights, WEIGHTS_FIRST, WEIGHTS_CLASSES);
    return (back ? choice->backward : choice->forward)[row][column] == 'o';
}

static const struct linear_kernels *fastest(bool back, size_t weights, uint32_t rows)
{
    const struct backend *ours = backend_simd();
    bool wanted = linear_is_onednns(ours, back, weights, rows);
    const struct linear_kernels *onednn = wanted ? linear_onednn() : NULL;
    return onednn ? onednn : ours->linear;
}

const struct linear_kernels *linear_forward_fastest(size_t weights, uint32_t rows)
{
    return fastest(false, weights, rows);
}

const struct linear_kernels *linear_backward_fastest(size_t weights, uint32_t rows)
{
    return fastest(true, weights, rows);
}

#ifdef __x86_64__
static bool has_avx512_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

/* A process may not touch tiles before it asked: signals then need 8 KB more of their stacks, and
 * the kernel says no while some thread has an alternate one that is too small. */
static bool may_have_tiles(void)
{
    enum { GET_PERMISSIONS = 0x1022, ASK_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned long have = 0;
    return syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) == 0 &&
           syscall(SYS_arch_prctl, GET_PERMISSIONS, &have) == 0 && (have >> TILE_DATA & 1);
}

static bool amx;

static void amx_ask(void)
{
    amx = has_avx512_bf16() && cpu_knows_amx() && may_have_tiles();
}

bool cpu_has_amx(void)
{
    static struct once once = ONCE_INIT;
    once_run(&once, amx_ask);
    return amx;
}
#else
bool cpu_has_amx(void)
{
    return false;
}
#endif

const struct linear_kernels *linear_bf16_fastest(void)
{
#ifdef __x86_64__
    if (cpu_has_amx())
        return &linear_amx_bf16;
    if (has_avx512_bf16())
        return &linear_avx512_bf16;
#endif
    return backend_simd()->linear_bf16;
}

const struct conv_kernels *conv_bf16_fastest(void)
{
#ifdef __x86_64__
    if (cpu_has_amx())
        return &conv_amx_bf16;
    if (has_avx512_bf16())
        return &conv_avx512_bf16;
#endif
    return backend_simd()->conv_bf16;
}
