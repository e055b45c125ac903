/* Who multiplies faster for linear layers, our kernels or oneDNN: from this come the tables in
 * nn/cpu.c. One thread, processor time, the least of a few turns, by turns.
 *
 *   bench_linear [generic|avx2|avx512]     the instructions; oneDNN is kept to the same ones.
 *                                          None: the most that this processor has. Those that it
 *                                          has not are passed over
 *
 * Prints a row for each size (case, ours, unit, oneDNN's, whose), and then, where errors go, the
 * tables: a string for each count of rows, a character for each count of weights; 'o': oneDNN takes
 * a tenth less. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "nn/backend.h"

enum {
    ROWS_CLASSES = 6,
    WEIGHTS_CLASSES = 9,
    SIDE_MIN = 16,
    TURNS = 5,
    ROWS_MAX = 1024,
    SIDE_MAX = 4096,
};

static float *x, *y, *w, *scratch;

static double own_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static float *some_floats(size_t count)
{
    float *floats = xmalloc(count * sizeof *floats);
    for (size_t i = 0; i < count; i++)
        floats[i] = (float)(i * 2654435761u % 1000) / 5000 - 0.1f;
    return floats;
}

static void multiply(const struct linear_kernels *kernels, uint32_t rows, uint32_t side, bool back)
{
    if (!back) {
        kernels->forward(&(struct forward_job){.x = x,
                                               .w = w,
                                               .bias = w,
                                               .y = y,
                                               .x_stride = side,
                                               .y_stride = side,
                                               .rows = rows,
                                               .inputs = side,
                                               .outputs = side,
                                               .activation = ACTIVATION_RELU,
                                               .scratch = scratch});
        return;
    }
    float *gradients = w + (size_t)SIDE_MAX * SIDE_MAX;
    kernels->backward(&(struct backward_job){.x = x,
                                             .w = w,
                                             .dy = y,
                                             .dw = gradients,
                                             .dbias = scratch,
                                             .dx = y + (size_t)ROWS_MAX * SIDE_MAX,
                                             .x_stride = side,
                                             .dy_stride = side,
                                             .dx_stride = side,
                                             .rows = rows,
                                             .inputs = side,
                                             .outputs = side,
                                             .gate = ACTIVATION_RELU,
                                             .overwrite = true,
                                             .scratch = scratch + SIDE_MAX});
}

/* Microseconds a call, of so many that the clock does not matter. */
static double timed(const struct linear_kernels *kernels, uint32_t rows, uint32_t side, bool back)
{
    enum { PRODUCTS = 1 << 24 };
    uint64_t each = (uint64_t)rows * side * side;
    unsigned times = each < PRODUCTS ? (unsigned)(PRODUCTS / each) : 1;
    double start = own_us();
    for (unsigned i = 0; i < times; i++)
        multiply(kernels, rows, side, back);
    return (own_us() - start) / times;
}

static bool onednn_wins(const struct linear_kernels *ours, const struct linear_kernels *theirs,
                        uint32_t rows, uint32_t side, bool back)
{
    double our_us = 1e30, their_us = 1e30;
    for (int turn = 0; turn < TURNS; turn++) {
        double us = timed(ours, rows, side, back);
        our_us = us < our_us ? us : our_us;
        us = timed(theirs, rows, side, back);
        their_us = us < their_us ? us : their_us;
    }
    printf("%s, %u rows, %u to %u, %s\t%.2f\tus\t%.2f\toneDNN's product\n",
           back ? "backward" : "forward", rows, side, side, ours->name, our_us, their_us);
    fflush(stdout);
    return their_us < 0.9 * our_us;
}

static void table(const struct linear_kernels *ours, const struct linear_kernels *theirs, bool back,
                  char won[ROWS_CLASSES][WEIGHTS_CLASSES + 1])
{
    for (unsigned r = 0; r < ROWS_CLASSES; r++) {
        for (unsigned c = 0; c < WEIGHTS_CLASSES; c++)
            won[r][c] = onednn_wins(ours, theirs, 1u << 2 * r, SIDE_MIN << c, back) ? 'o' : '.';
        won[r][WEIGHTS_CLASSES] = '\0';
    }
}

static const struct backend *backend_named(const char *name)
{
    if (strcmp(name, "generic") == 0)
        return &backend_generic;
#ifdef __x86_64__
    if (strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2"))
        return &backend_avx2;
    if (strcmp(name, "avx512") == 0 && __builtin_cpu_supports("avx512f"))
        return &backend_avx512;
#endif
    return NULL;
}

int main(int argc, char **argv)
{
    static const char *const isa[][2] = {
        {"generic", "SSE41"}, {"avx2", "AVX2"}, {"avx512", "AVX512_CORE_AMX"}};
    const char *name = argc > 1 ? argv[1] : backend_simd()->name;
    size_t known = 0;
    while (known < sizeof isa / sizeof *isa && strcmp(name, isa[known][0]) != 0)
        known++;
    if (argc > 2 || known == sizeof isa / sizeof *isa) {
        fprintf(stderr, "usage: bench_linear [generic|avx2|avx512]\n");
        return 2;
    }
    const struct backend *backend = backend_named(name);
    if (!backend) {
        fprintf(stderr, "bench_linear: this processor has no %s\n", name);
        return 0;
    }
    setenv("ONEDNN_MAX_CPU_ISA", isa[known][1], 1); /* before it is loaded */
    const struct linear_kernels *theirs = linear_onednn();
    if (!theirs) {
        fprintf(stderr, "bench_linear: this machine has no oneDNN\n");
        return 1;
    }
    x = some_floats((size_t)ROWS_MAX * SIDE_MAX);
    y = some_floats((size_t)ROWS_MAX * SIDE_MAX * 2);
    w = some_floats((size_t)SIDE_MAX * SIDE_MAX * 2);
    scratch = some_floats(backend->linear->scratch(SIDE_MAX, SIDE_MAX) + SIDE_MAX);
    char won[2][ROWS_CLASSES][WEIGHTS_CLASSES + 1];
    for (int back = 0; back < 2; back++)
        table(backend->linear, theirs, back, won[back]);
    for (int back = 0; back < 2; back++) {
        fprintf(stderr, "%s .%s = {", name, back ? "backward" : "forward");
        for (unsigned r = 0; r < ROWS_CLASSES; r++)
            fprintf(stderr, "%s\"%s\"", r ? ", " : "", won[back][r]);
        fprintf(stderr, "},\n");
    }
    return 0;
}
