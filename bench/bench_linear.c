/* Who multiplies faster for linear layers, our kernels or oneDNN: from this come the tables in
 * nn/cpu.c. One thread, processor time, the least of many turns, in turns. Of each count of weights
 * there are three shapes, a square one and two with a side four times the other; oneDNN has to take
 * a tenth less by their geometric mean, so that neither noise nor one shape decides.
 *
 *   bench_linear [generic|avx2|avx512]     the instructions; oneDNN is kept to the same ones.
 *                                          None: the most that this processor has. Those that it
 *                                          has not are passed over
 *
 * Prints a row for each shape (case, ours, unit, oneDNN's, whose), and then, where errors go, the
 * tables: a string for each count of rows, a character for each count of weights; 'o': oneDNN. And
 * what this tree's tables cost here: time over that of the faster one, the mean and the worst. */
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
    SHAPES = 3,
    TURNS_MIN = 3,
    TURNS_MAX = 15,
    ENOUGH_US = 150 * 1000, /* of one shape, after TURNS_MIN */
    ROWS_MAX = 1024,
    SIDE_MAX = 8192,
    WEIGHTS_MAX = 4096 * 4096,
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

struct shape {
    uint32_t rows, inputs, outputs;
};

static void multiply(const struct linear_kernels *kernels, const struct shape *s, bool back)
{
    if (!back) {
        kernels->forward(&(struct forward_job){.x = x,
                                               .w = w,
                                               .bias = w,
                                               .y = y,
                                               .x_stride = s->inputs,
                                               .y_stride = s->outputs,
                                               .rows = s->rows,
                                               .inputs = s->inputs,
                                               .outputs = s->outputs,
                                               .activation = ACTIVATION_RELU,
                                               .scratch = scratch});
        return;
    }
    kernels->backward(&(struct backward_job){.x = x,
                                             .w = w,
                                             .dy = y,
                                             .dw = w + WEIGHTS_MAX,
                                             .dbias = scratch,
                                             .dx = y + (size_t)ROWS_MAX * SIDE_MAX,
                                             .x_stride = s->inputs,
                                             .dy_stride = s->outputs,
                                             .dx_stride = s->inputs,
                                             .rows = s->rows,
                                             .inputs = s->inputs,
                                             .outputs = s->outputs,
                                             .gate = ACTIVATION_RELU,
                                             .overwrite = true,
                                             .scratch = scratch + SIDE_MAX});
}

/* Microseconds a call, of so many that the clock does not matter. */
static double timed(const struct linear_kernels *kernels, const struct shape *s, bool back)
{
    enum { PRODUCTS = 1 << 22 };
    uint64_t each = (uint64_t)s->rows * s->inputs * s->outputs;
    unsigned times = each < PRODUCTS ? (unsigned)(PRODUCTS / each) : 1;
    double start = own_us();
    for (unsigned i = 0; i < times; i++)
        multiply(kernels, s, back);
    return (own_us() - start) / times;
}

/* oneDNN's time over ours. */
static double contest(const struct linear_kernels *ours, const struct linear_kernels *theirs,
                      const struct shape *s, bool back)
{
    double our_us = 1e30, their_us = 1e30, start = own_us();
    for (int turn = 0; turn < TURNS_MIN || (turn < TURNS_MAX && own_us() - start < ENOUGH_US);
         turn++) {
        double us = timed(ours, s, back);
        our_us = us < our_us ? us : our_us;
        us = timed(theirs, s, back);
        their_us = us < their_us ? us : their_us;
    }
    printf("%s, %u rows, %u to %u, %s\t%.2f\tus\t%.2f\toneDNN's product\n",
           back ? "backward" : "forward", s->rows, s->inputs, s->outputs, ours->name, our_us,
           their_us);
    fflush(stdout);
    return their_us / our_us;
}

/* What the tree's choices cost: time over the best choice's. */
struct cost {
    double sum, worst;
    unsigned count;
    struct shape where;
};

static void cost_add(struct cost *cost, const struct shape *s, double ratio, bool onednn)
{
    double over = onednn ? ratio : 1 / ratio;
    over = over > 1 ? over : 1;
    cost->sum += over;
    cost->count++;
    if (over <= cost->worst)
        return;
    cost->worst = over;
    cost->where = *s;
}

static bool onednn_wins(const struct backend *backend, const struct linear_kernels *theirs,
                        uint32_t rows, uint32_t side, bool back, struct cost *cost)
{
    const struct shape shapes[SHAPES] = {
        {rows, side, side}, {rows, 2 * side, side / 2}, {rows, side / 2, 2 * side}};
    bool chosen = linear_is_onednns(backend, back, (size_t)side * side, rows);
    double product = 1;
    for (int i = 0; i < SHAPES; i++) {
        double ratio = contest(backend->linear, theirs, &shapes[i], back);
        product *= ratio;
        cost_add(cost, &shapes[i], ratio, chosen);
    }
    return product < 0.9 * 0.9 * 0.9; /* of three shapes */
}

static void table(const struct backend *backend, const struct linear_kernels *theirs, bool back,
                  char won[ROWS_CLASSES][WEIGHTS_CLASSES + 1], struct cost *cost)
{
    for (unsigned r = 0; r < ROWS_CLASSES; r++) {
        for (unsigned c = 0; c < WEIGHTS_CLASSES; c++)
            won[r][c] =
                onednn_wins(backend, theirs, 1u << 2 * r, SIDE_MIN << c, back, cost) ? 'o' : '.';
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

static void show(const char *name, bool back, char won[ROWS_CLASSES][WEIGHTS_CLASSES + 1],
                 const struct cost *cost)
{
    const char *way = back ? "backward" : "forward";
    fprintf(stderr, "%s .%s = {", name, way);
    for (unsigned r = 0; r < ROWS_CLASSES; r++)
        fprintf(stderr, "%s\"%s\"", r ? ", " : "", won[r]);
    fprintf(stderr, "},\n%s %s: the tree's table takes %.3f times what the faster one does, ", name,
            way, cost->sum / cost->count);
    fprintf(stderr, "at most %.2f times (%u rows, %u to %u)\n", cost->worst, cost->where.rows,
            cost->where.inputs, cost->where.outputs);
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
    w = some_floats((size_t)WEIGHTS_MAX * 2);
    scratch = some_floats(backend->linear->scratch(SIDE_MAX, SIDE_MAX) +
                          backend->linear->scratch(SIDE_MIN * 2, SIDE_MIN / 2) + SIDE_MAX);
    char won[2][ROWS_CLASSES][WEIGHTS_CLASSES + 1];
    struct cost costs[2] = {{0}};
    for (int back = 0; back < 2; back++)
        table(backend, theirs, back, won[back], &costs[back]);
    for (int back = 0; back < 2; back++)
        show(name, back, won[back], &costs[back]);
    return 0;
}
