/* Bodies of kernels, by their twins, beside float64: norms of differences within 1e-5, products of
 * bfloat16 within 1.6e-2. Sizes are odd, rows lie apart and begin anywhere, and nothing is written
 * between them or behind what the kernel says it reaches. */
#include <math.h>

#include "nn/cuda/bodies/gemm.h"
#include "nn/cuda/bodies/images.h"
#include "nn/cuda/bodies/small.h"
#include "twin_kernel.h"

#define REAL       double
#define NAME(name) name##_wide
#define MATH(name) name
#include "nn/activation_scalar.h"
#undef REAL
#undef NAME
#undef MATH

static const uint32_t sizes[] = {1, 31, 33, 257};
enum { SIZES = 4, APART = 3 }; /* columns between rows */

static trp_rng rng;

/* ---- matrices: the numbers that a kernel gets, and doubles of them ----------------------------
 */

struct matrix {
    float *memory, *at; /* begins at no multiple of 16 bytes */
    double *wide;
    uint32_t rows, columns;
    size_t stride, count; /* of floats from `at` on, as far as a kernel may get */
};

static struct matrix matrix_make(uint32_t rows, uint32_t columns)
{
    struct matrix m = {.rows = rows, .columns = columns, .stride = columns + APART};
    m.count = rows_reach(rows, columns, m.stride, 1);
    m.memory = random_floats(&rng, m.count + 1, 1);
    m.at = m.memory + 1;
    m.wide = xcalloc(m.count, sizeof *m.wide);
    for (size_t i = 0; i < m.count; i++)
        m.wide[i] = (double)m.at[i];
    return m;
}

/* Without room between rows. */
static struct matrix vector_make(uint32_t count)
{
    return matrix_make(1, count);
}

static double *wide_at(const struct matrix *m, size_t row, size_t column)
{
    return &m->wide[row * m->stride + column];
}

static void matrix_free(struct matrix *m)
{
    free(m->memory);
    free(m->wide);
}

/* What the kernel made is what was worked out beside it, and the rest is as it was. */
static void assert_made(const struct matrix *m, double bound)
{
    double apart = 0, all = 0;
    for (size_t i = 0; i < m->count; i++) {
        if (i % m->stride >= m->columns) {
            assert_true((double)m->at[i] == m->wide[i]);
            continue;
        }
        apart += pow((double)m->at[i] - m->wide[i], 2);
        all += pow(m->wide[i], 2);
    }
    if (!(sqrt(apart) <= bound * sqrt(all)))
        fail_msg("%u x %u are %g off, of %g", m->rows, m->columns, sqrt(apart), sqrt(all));
}

static void run(const struct cuda_kernel *kernel, const void *arguments)
{
    twin_kernel(&rng, kernel, arguments);
}

/* ---- products ----------------------------------------------------------------------------------
 */

enum { A_TURNED = 1, B_TURNED = 2, ADDS = 4, BIASED = 8, HALVES = 16, HOWS = 32 };

static void product_wide(const struct gemm_job *job, const struct matrix *a, const struct matrix *b,
                         const struct matrix *bias, const struct matrix *c)
{
    for (uint32_t i = 0; i < job->m; i++)
        for (uint32_t j = 0; j < job->n; j++) {
            double sum = job->bias ? bias->wide[j] : 0;
            for (uint32_t k = 0; k < job->k; k++)
                sum += *(job->a_turned ? wide_at(a, k, i) : wide_at(a, i, k)) *
                       *(job->b_turned ? wide_at(b, j, k) : wide_at(b, k, j));
            double *to = wide_at(c, i, j);
            *to = activated_wide(job->activation, job->accumulate ? *to + sum : sum);
        }
}

static void check_product(const uint32_t size[3], unsigned how)
{
    bool a_turned = how & A_TURNED, b_turned = how & B_TURNED;
    struct matrix a = matrix_make(size[a_turned ? 2 : 0], size[a_turned ? 0 : 2]);
    struct matrix b = matrix_make(size[b_turned ? 1 : 2], size[b_turned ? 2 : 1]);
    struct matrix c = matrix_make(size[0], size[1]), bias = vector_make(size[1]);
    struct gemm_job job = {.a = a.at,
                           .b = b.at,
                           .bias = how & BIASED ? bias.at : NULL,
                           .c = c.at,
                           .a_stride = a.stride,
                           .b_stride = b.stride,
                           .c_stride = c.stride,
                           .m = size[0],
                           .n = size[1],
                           .k = size[2],
                           .a_turned = a_turned,
                           .b_turned = b_turned,
                           .accumulate = (how & ADDS) && !(how & BIASED),
                           .activation = how & BIASED ? ACTIVATION_ELU : ACTIVATION_NONE,
                           .precision = how & HALVES ? TRP_BF16 : TRP_F32};
    product_wide(&job, &a, &b, &bias, &c);
    run(&kernel_tiled_gemm, &job);
    assert_made(&c, how & HALVES ? 1.6e-2 : 1e-5);
    matrix_free(&a);
    matrix_free(&b);
    matrix_free(&c);
    matrix_free(&bias);
}

static void products(void **state)
{
    (void)state;
    for (unsigned how = 0; how < HOWS; how++)
        for (size_t i = 0; i < SIZES; i++) {
            const uint32_t size[] = {sizes[i], sizes[(i + 1) % SIZES],
                                     sizes[(i + 2 + how % 2) % SIZES]};
            check_product(size, how);
        }
}

/* ---- sums of columns ----------------------------------------------------------------------------
 */

/* Pixels of images lie together, images apart. */
static void check_sums(uint32_t images, uint32_t inner, uint32_t columns, uint32_t parts)
{
    struct matrix dy = matrix_make(images, inner * columns), sum = vector_make(columns);
    struct matrix partial = vector_make(parts * columns);
    for (uint32_t image = 0; image < images; image++)
        for (uint32_t i = 0; i < inner * columns; i++)
            sum.wide[i % columns] += *wide_at(&dy, image, i);
    run(&kernel_sum_columns, &(struct sum_columns_arguments){.dy = dy.at,
                                                             .partial = partial.at,
                                                             .dy_stride = dy.stride,
                                                             .rows = images * inner,
                                                             .inner = inner,
                                                             .columns = columns,
                                                             .parts = parts});
    run(&kernel_sum_parts, &(struct sum_parts_arguments){partial.at, sum.at, columns, parts});
    assert_made(&sum, 1e-5);
    matrix_free(&dy);
    matrix_free(&sum);
    matrix_free(&partial);
}

static void sums_of_columns(void **state)
{
    static const uint32_t parts[] = {1, 2, 7, SUM_PARTS_MAX}; /* more than rows, too */
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        for (size_t j = 0; j < SIZES; j++) {
            check_sums(sizes[i], 1, sizes[j], parts[(i + j) % 4]);
            check_sums(5, sizes[i], sizes[j], parts[(i + j) % 4]);
        }
}

/* ---- norms --------------------------------------------------------------------------------------
 */

/* A layer norm's row: mean, 1 / deviation. */
static void norm_wide(const struct matrix *x, uint32_t row, double *mean, double *scale)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < x->columns; i++)
        sum += *wide_at(x, row, i) / x->columns;
    for (uint32_t i = 0; i < x->columns; i++)
        squares += pow(*wide_at(x, row, i) - sum, 2) / x->columns;
    *mean = sum;
    *scale = 1 / sqrt(squares + (double)1e-5F);
}

struct norm_case {
    struct matrix x, y, gain, bias, kept, dy, dx, dgain;
};

/* All that is wanted of it. */
static void norm_case_wide(const struct norm_case *c, bool adds)
{
    uint32_t columns = c->x.columns;
    for (uint32_t row = 0; row < c->x.rows; row++) {
        double mean, scale, sum = 0, product = 0;
        norm_wide(&c->x, row, &mean, &scale);
        for (uint32_t i = 0; i < columns; i++) {
            double n = (*wide_at(&c->x, row, i) - mean) * scale, dy = *wide_at(&c->dy, row, i);
            *wide_at(&c->y, row, i) = n * c->gain.wide[i] + c->bias.wide[i];
            c->dgain.wide[i] += dy * n;
            sum += dy * c->gain.wide[i] / columns;
            product += dy * c->gain.wide[i] * n / columns;
        }
        for (uint32_t i = 0; i < columns; i++) {
            double n = (*wide_at(&c->x, row, i) - mean) * scale;
            double g = *wide_at(&c->dy, row, i) * c->gain.wide[i], *dx = wide_at(&c->dx, row, i);
            *dx = (adds ? *dx : 0) + scale * (g - sum - n * product);
        }
    }
}

static void norm_case_run(struct norm_case *c, bool adds)
{
    uint32_t rows = c->x.rows, columns = c->x.columns;
    struct matrix partial = vector_make(columns);
    run(&kernel_norm_rows,
        &(struct norm_rows_arguments){c->x.at, c->gain.at, c->bias.at, c->y.at, c->kept.at,
                                      c->x.stride, c->y.stride, rows, columns, 1e-5F});
    run(&kernel_norm_back, &(struct norm_back_arguments){c->x.at, c->gain.at, c->kept.at, c->dy.at,
                                                         c->dx.at, c->x.stride, c->dy.stride,
                                                         c->dx.stride, rows, columns, adds});
    run(&kernel_sum_columns,
        &(struct sum_columns_arguments){c->dy.at, c->x.at, c->kept.at, partial.at, c->dy.stride,
                                        c->x.stride, rows, 1, columns, 1});
    run(&kernel_sum_parts, &(struct sum_parts_arguments){partial.at, c->dgain.at, columns, 1});
    matrix_free(&partial);
}

static void check_norm(uint32_t rows, uint32_t columns, bool adds)
{
    struct norm_case c = {matrix_make(rows, columns), matrix_make(rows, columns),
                          vector_make(columns),       vector_make(columns),
                          vector_make(2 * rows),      matrix_make(rows, columns),
                          matrix_make(rows, columns), vector_make(columns)};
    norm_case_wide(&c, adds);
    norm_case_run(&c, adds);
    assert_made(&c.y, 1e-5);
    assert_made(&c.dx, 1e-5);
    assert_made(&c.dgain, 1e-5);
    struct matrix *all[] = {&c.x, &c.y, &c.gain, &c.bias, &c.kept, &c.dy, &c.dx, &c.dgain};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        matrix_free(all[i]);
}

static void layer_norms(void **state)
{
    static const uint32_t columns[] = {3, 31, 129, 257}; /* of two, a gradient is nearly 0 */
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        for (size_t j = 0; j < SIZES; j++)
            check_norm(sizes[i], columns[j], (i + j) % 2);
}

/* ---- embeddings ---------------------------------------------------------------------------------
 */

enum { VOCABULARY = 6 };

static void check_embedding(uint32_t rows, uint32_t columns, uint32_t width)
{
    struct matrix table = vector_make(VOCABULARY * width), dtable = vector_make(VOCABULARY * width);
    struct matrix y = matrix_make(rows, columns * width), dy = matrix_make(rows, columns * width);
    int32_t *tokens = xcalloc((size_t)rows * columns, sizeof *tokens);
    for (size_t i = 0; i < (size_t)rows * columns; i++)
        tokens[i] = (int32_t)trp_rng_below(&rng, VOCABULARY + 2) - 1; /* two are in no table */
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t i = 0; i < columns * width; i++) {
            int32_t token = tokens[row * columns + i / width];
            bool inside = token >= 0 && token < VOCABULARY;
            size_t place = inside ? (size_t)token * width + i % width : 0;
            *wide_at(&y, row, i) = inside ? table.wide[place] : 0;
            dtable.wide[place] += inside ? *wide_at(&dy, row, i) : 0;
        }
    run(&kernel_embed_rows,
        &(struct embed_rows_arguments){tokens, table.at, y.at, columns, y.stride, rows, columns,
                                       VOCABULARY, width});
    run(&kernel_embed_back,
        &(struct embed_back_arguments){tokens, dy.at, dtable.at, columns, dy.stride, rows, columns,
                                       VOCABULARY, width});
    assert_made(&y, 1e-5);
    assert_made(&dtable, 1e-5);
    matrix_free(&table);
    matrix_free(&dtable);
    matrix_free(&y);
    matrix_free(&dy);
    free(tokens);
}

static void embeddings(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        check_embedding(sizes[i], 1 + (uint32_t)i, sizes[SIZES - 1 - i]);
}

/* ---- windows over images ------------------------------------------------------------------------
 */

static const struct window windows[] = {{7, 5, 3, 3, 2, 2, 1, 1, 1, 4},
                                        {9, 11, 2, 3, 3, 1, 1, 1, 1, 3},
                                        {8, 8, 1, 4, 4, 4, 4, 0, 0, 2},
                                        {5, 6, 33, 1, 1, 1, 1, 0, 0, 1},
                                        {11, 9, 3, 2, 3, 3, 2, 1, 2, 5}};
enum { WINDOWS = sizeof windows / sizeof *windows };

/* For element k of the window over output `out`: where it is in an image; -1: in the padding. */
static long value_under(const struct window *w, uint32_t out, uint32_t k)
{
    uint32_t wide = window_out_width(w), channel = k % w->channels, position = k / w->channels;
    long y = (long)(out / wide * w->stride_height + position / w->kernel_width) - w->pad_height;
    long x = (long)(out % wide * w->stride_width + position % w->kernel_width) - w->pad_width;
    bool inside = y >= 0 && x >= 0 && y < (long)w->height && x < (long)w->width;
    return inside ? (y * w->width + x) * w->channels + channel : -1;
}

static void check_patches(const struct window *w, uint32_t images, enum activation gate, bool adds)
{
    uint32_t values = w->height * w->width * w->channels, patch = (uint32_t)window_patch(w);
    uint32_t outs = window_out_height(w) * window_out_width(w);
    struct matrix x = matrix_make(images, values), dx = matrix_make(images, values);
    struct matrix made = vector_make(images * outs * patch),
                  from = vector_make(images * outs * patch);
    double *sums = xcalloc((size_t)images * values, sizeof *sums);
    for (uint32_t i = 0; i < images * outs * patch; i++) {
        uint32_t image = i / patch / outs;
        long value = value_under(w, i / patch % outs, i % patch);
        made.wide[i] = value < 0 ? 0 : *wide_at(&x, image, (size_t)value);
        if (value >= 0)
            sums[image * values + (size_t)value] += from.wide[i];
    }
    for (uint32_t i = 0; i < images * values; i++) {
        double *to = wide_at(&dx, i / values, i % values);
        double slope = slope_wide(gate, *wide_at(&x, i / values, i % values));
        *to = (adds ? *to : 0) + sums[i] * slope;
    }
    run(&kernel_patches, &(struct patches_arguments){*w, x.at, NULL, made.at, x.stride, images});
    run(&kernel_unpatch, &(struct unpatch_arguments){*w, from.at, x.at, dx.at, x.stride, dx.stride,
                                                     images, gate, adds});
    assert_made(&made, 0);
    assert_made(&dx, 1e-5);
    matrix_free(&x);
    matrix_free(&dx);
    matrix_free(&made);
    matrix_free(&from);
    free(sums);
}

static void patches_of_images(void **state)
{
    (void)state;
    for (size_t i = 0; i < WINDOWS; i++) {
        check_patches(&windows[i], 1, ACTIVATION_NONE, false);
        check_patches(&windows[i], 3, ACTIVATION_RELU, true);
    }
}

static void patches_of_bytes(void **state)
{
    const struct window *w = &windows[0];
    uint32_t values = w->height * w->width * w->channels, patch = (uint32_t)window_patch(w);
    uint32_t outs = window_out_height(w) * window_out_width(w);
    uint8_t *bytes = xcalloc(values, 1);
    struct matrix made = vector_make(outs * patch);
    (void)state;
    for (uint32_t i = 0; i < values; i++)
        bytes[i] = (uint8_t)trp_rng_below(&rng, 256);
    for (uint32_t i = 0; i < outs * patch; i++) {
        long value = value_under(w, i / patch, i % patch);
        made.wide[i] = value < 0 ? 0 : bytes[value] / 255.0;
    }
    run(&kernel_patches, &(struct patches_arguments){*w, NULL, bytes, made.at, values, 1});
    assert_made(&made, 1e-6);
    matrix_free(&made);
    free(bytes);
}

/* Of one window: its channel's largest and where it is, or their sum. */
static double pool_wide(const struct window *w, const struct matrix *in, uint32_t image,
                        uint32_t out, bool max, long *best)
{
    uint32_t positions = w->kernel_height * w->kernel_width, channel = out % w->channels;
    double result = max ? -INFINITY : 0;
    for (uint32_t p = 0; p < positions; p++) {
        long value = value_under(w, out / w->channels, p * w->channels + channel);
        if (value < 0)
            continue;
        double x = *wide_at(in, image, (size_t)value);
        if (!max)
            result += x / positions;
        else if (x > result)
            result = x, *best = value;
    }
    return result;
}

static void check_pool(const struct window *w, uint32_t images, bool max, bool adds)
{
    uint32_t values = w->height * w->width * w->channels;
    uint32_t pooled = window_out_height(w) * window_out_width(w) * w->channels;
    uint32_t positions = w->kernel_height * w->kernel_width;
    struct matrix in = matrix_make(images, values), dx = matrix_make(images, values);
    struct matrix out = matrix_make(images, pooled), dy = matrix_make(images, pooled);
    uint8_t *index = xcalloc((size_t)images * pooled, 1);
    for (uint32_t i = 0; i < images * values && !adds; i++)
        *wide_at(&dx, i / values, i % values) = 0;
    for (uint32_t i = 0; i < images * pooled; i++) {
        uint32_t image = i / pooled, at = i % pooled;
        long best = -1;
        *wide_at(&out, image, at) = pool_wide(w, &in, image, at, max, &best);
        for (uint32_t p = 0; p < positions; p++) {
            long value = value_under(w, at / w->channels, p * w->channels + at % w->channels);
            if (value >= 0 && (!max || value == best))
                *wide_at(&dx, image, (size_t)value) +=
                    *wide_at(&dy, image, at) / (max ? 1 : positions);
        }
    }
    run(&kernel_pool_images, &(struct pool_images_arguments){*w, in.at, out.at, index, in.stride,
                                                             out.stride, images, max, false});
    run(&kernel_unpool_images, &(struct unpool_images_arguments){*w, dy.at, dx.at, index, dy.stride,
                                                                 dx.stride, images, max, adds});
    assert_made(&out, 1e-5);
    assert_made(&dx, 1e-5);
    matrix_free(&in);
    matrix_free(&dx);
    matrix_free(&out);
    matrix_free(&dy);
    free(index);
}

static void pools(void **state)
{
    (void)state;
    for (size_t i = 0; i < WINDOWS; i++)
        for (int how = 0; how < 4; how++)
            check_pool(&windows[i], 1 + (uint32_t)i, how & 1, how & 2);
}

/* ---- rows ---------------------------------------------------------------------------------------
 */

static void check_activation(uint32_t rows, uint32_t columns, enum activation activation)
{
    struct matrix in = matrix_make(rows, columns), out = matrix_make(rows, columns);
    struct matrix dy = matrix_make(rows, columns), dx = matrix_make(rows, columns);
    bool keeps_input = activation_keeps_input(activation);
    for (uint32_t i = 0; i < rows * columns; i++) {
        size_t row = i / columns, column = i % columns;
        double y = activated_wide(activation, *wide_at(&in, row, column));
        *wide_at(&out, row, column) = y;
        *wide_at(&dx, row, column) +=
            *wide_at(&dy, row, column) *
            slope_wide(activation, keeps_input ? *wide_at(&in, row, column) : y);
    }
    struct activate_rows_arguments a = {.in = in.at,
                                        .out = out.at,
                                        .in_stride = in.stride,
                                        .out_stride = out.stride,
                                        .rows = rows,
                                        .columns = columns,
                                        .activation = activation};
    run(&kernel_activate_rows, &a);
    a.in = dy.at;
    a.kept = keeps_input ? in.at : out.at;
    a.kept_stride = in.stride;
    a.out = dx.at;
    a.backward = a.accumulate = true;
    run(&kernel_activate_rows, &a);
    assert_made(&out, 1e-5);
    assert_made(&dx, 1e-5);
    matrix_free(&in);
    matrix_free(&out);
    matrix_free(&dy);
    matrix_free(&dx);
}

static void activations(void **state)
{
    (void)state;
    for (int activation = ACTIVATION_NONE; activation <= ACTIVATION_GELU_TANH; activation++)
        for (size_t i = 0; i < SIZES; i++)
            check_activation(sizes[i], sizes[SIZES - 1 - i], (enum activation)activation);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(sums_of_columns),
        cmocka_unit_test(layer_norms),
        cmocka_unit_test(embeddings),
        cmocka_unit_test(patches_of_images),
        cmocka_unit_test(patches_of_bytes),
        cmocka_unit_test(pools),
        cmocka_unit_test(activations),
    };
    trp_rng_init(&rng, 11, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
