/* The small layers of nn/layers.h: layer norm, embedding, noisy weights. */
#ifndef TRP_NN_CUDA_BODIES_SMALL_H
#define TRP_NN_CUDA_BODIES_SMALL_H

#include "rows.h"

/* ---- layer norm: a block a row ------------------------------------------------------------------
 */

enum { NORM_THREADS = 128 };

KERNEL_BODY float norm_total(const float *sums, uint32_t threads)
{
    float total = 0;
    for (uint32_t i = 0; i < threads; i++)
        total += sums[i];
    return total;
}

struct norm_rows_arguments {
    const float *x, *gain, *bias;
    float *y, *kept; /* kept[rows][2]: mean and 1 / deviation */
    size_t x_stride, y_stride;
    uint32_t rows, columns;
    float epsilon;
};

static inline struct kernel_shape norm_rows_shape(const struct norm_rows_arguments *a)
{
    struct kernel_shape shape = {a->rows, NORM_THREADS, 3, 2 * NORM_THREADS * sizeof(float)};
    return shape;
}

static inline size_t norm_rows_reaches(const struct norm_rows_arguments *a, struct kernel_reach *r)
{
    r[0] = (struct kernel_reach){a->x, rows_reach(a->rows, a->columns, a->x_stride, 4), TRP_READ};
    r[1] = (struct kernel_reach){a->gain, a->columns * sizeof(float), TRP_READ};
    r[2] = (struct kernel_reach){a->bias, a->columns * sizeof(float), TRP_READ};
    r[3] = (struct kernel_reach){a->y, rows_reach(a->rows, a->columns, a->y_stride, 4), TRP_WRITE};
    r[4] = (struct kernel_reach){a->kept, (size_t)a->rows * 2 * sizeof(float), TRP_WRITE};
    return 5;
}

KERNEL_BODY void norm_rows_body(const struct norm_rows_arguments *a, const struct kernel_at *at,
                                void *shared)
{
    float *sums = (float *)shared, *squares = sums + at->threads;
    const float *x = a->x + at->block * a->x_stride;
    float *y = a->y + at->block * a->y_stride, sum = 0;
    if (at->phase == 0) {
        for (uint32_t i = at->thread; i < a->columns; i += at->threads)
            sum += x[i];
        sums[at->thread] = sum;
        return;
    }
    float mean = norm_total(sums, at->threads) / (float)a->columns;
    if (at->phase == 1) {
        for (uint32_t i = at->thread; i < a->columns; i += at->threads)
            sum += (x[i] - mean) * (x[i] - mean);
        squares[at->thread] = sum;
        return;
    }
    float variance = norm_total(squares, at->threads) / (float)a->columns;
    float scale = 1 / sqrtf(variance + a->epsilon);
    for (uint32_t i = at->thread; i < a->columns; i += at->threads)
        y[i] = (x[i] - mean) * scale * a->gain[i] + a->bias[i];
    if (at->thread == 0) {
        a->kept[2 * (size_t)at->block] = mean;
        a->kept[2 * (size_t)at->block + 1] = scale;
    }
}

/* With g = dy gain and n = the normalised x: dx (+)= scale (g - mean g - n mean(g n)). */
struct norm_back_arguments {
    const float *x, *gain, *kept, *dy;
    float *dx;
    size_t x_stride, dy_stride, dx_stride;
    uint32_t rows, columns;
    bool accumulate;
};

static inline struct kernel_shape norm_back_shape(const struct norm_back_arguments *a)
{
    struct kernel_shape shape = {a->rows, NORM_THREADS, 2, 2 * NORM_THREADS * sizeof(float)};
    return shape;
}

static inline size_t norm_back_reaches(const struct norm_back_arguments *a, struct kernel_reach *r)
{
    r[0] = (struct kernel_reach){a->x, rows_reach(a->rows, a->columns, a->x_stride, 4), TRP_READ};
    r[1] = (struct kernel_reach){a->gain, a->columns * sizeof(float), TRP_READ};
    r[2] = (struct kernel_reach){a->kept, (size_t)a->rows * 2 * sizeof(float), TRP_READ};
    r[3] = (struct kernel_reach){a->dy, rows_reach(a->rows, a->columns, a->dy_stride, 4), TRP_READ};
    r[4] = (struct kernel_reach){a->dx, rows_reach(a->rows, a->columns, a->dx_stride, 4),
                                 a->accumulate ? TRP_READ | TRP_WRITE : TRP_WRITE};
    return 5;
}

KERNEL_BODY void norm_back_body(const struct norm_back_arguments *a, const struct kernel_at *at,
                                void *shared)
{
    float *sums = (float *)shared, *products = sums + at->threads;
    const float *x = a->x + at->block * a->x_stride, *dy = a->dy + at->block * a->dy_stride;
    float *dx = a->dx + at->block * a->dx_stride;
    float mean = a->kept[2 * (size_t)at->block], scale = a->kept[2 * (size_t)at->block + 1];
    if (at->phase == 0) {
        float sum = 0, product = 0;
        for (uint32_t i = at->thread; i < a->columns; i += at->threads) {
            float g = dy[i] * a->gain[i];
            sum += g;
            product += g * (x[i] - mean) * scale;
        }
        sums[at->thread] = sum;
        products[at->thread] = product;
        return;
    }
    float sum = norm_total(sums, at->threads), product = norm_total(products, at->threads);
    for (uint32_t i = at->thread; i < a->columns; i += at->threads) {
        float g = dy[i] * a->gain[i], n = (x[i] - mean) * scale;
        float d = scale * (g - (sum + n * product) / (float)a->columns);
        dx[i] = a->accumulate ? dx[i] + d : d;
    }
}

/* ---- embedding (struct embedding_job)
 * ------------------------------------------------------------ */

struct embed_rows_arguments {
    const int32_t *tokens;
    const float *table;
    float *y;
    size_t token_stride, y_stride;
    uint32_t rows, columns, vocabulary, width;
};

static inline struct kernel_shape embed_rows_shape(const struct embed_rows_arguments *a)
{
    return kernel_of((size_t)a->rows * a->columns * a->width);
}

static inline size_t embed_rows_reaches(const struct embed_rows_arguments *a,
                                        struct kernel_reach *r)
{
    r[0] = (struct kernel_reach){a->tokens, rows_reach(a->rows, a->columns, a->token_stride, 4),
                                 TRP_READ};
    r[1] =
        (struct kernel_reach){a->table, (size_t)a->vocabulary * a->width * sizeof(float), TRP_READ};
    r[2] = (struct kernel_reach){a->y, rows_reach(a->rows, a->columns * a->width, a->y_stride, 4),
                                 TRP_WRITE};
    return 3;
}

KERNEL_BODY void embed_rows_body(const struct embed_rows_arguments *a, const struct kernel_at *at,
                                 void *shared)
{
    size_t i = thread_index(at), wide = (size_t)a->columns * a->width, row = i / wide;
    size_t column = i % wide;
    (void)shared;
    if (row >= a->rows)
        return;
    int32_t token = a->tokens[row * a->token_stride + column / a->width];
    bool inside = token >= 0 && (uint32_t)token < a->vocabulary;
    a->y[row * a->y_stride + column] =
        inside ? a->table[(size_t)token * a->width + column % a->width] : 0;
}

/* Each number of the table looks for its token, so that nobody else adds to it: the order of the
 * sum is that of the rows. */
struct embed_back_arguments {
    const int32_t *tokens;
    const float *dy;
    float *dtable;
    size_t token_stride, y_stride;
    uint32_t rows, columns, vocabulary, width;
};

static inline struct kernel_shape embed_back_shape(const struct embed_back_arguments *a)
{
    return kernel_of((size_t)a->vocabulary * a->width);
}

static inline size_t embed_back_reaches(const struct embed_back_arguments *a,
                                        struct kernel_reach *r)
{
    r[0] = (struct kernel_reach){a->tokens, rows_reach(a->rows, a->columns, a->token_stride, 4),
                                 TRP_READ};
    r[1] = (struct kernel_reach){a->dy, rows_reach(a->rows, a->columns * a->width, a->y_stride, 4),
                                 TRP_READ};
    r[2] = (struct kernel_reach){a->dtable, (size_t)a->vocabulary * a->width * sizeof(float),
                                 TRP_READ | TRP_WRITE};
    return 3;
}

KERNEL_BODY void embed_back_body(const struct embed_back_arguments *a, const struct kernel_at *at,
                                 void *shared)
{
    size_t i = thread_index(at), token = i / a->width, k = i % a->width;
    float sum = 0;
    (void)shared;
    if (token >= a->vocabulary)
        return;
    for (size_t row = 0; row < a->rows; row++)
        for (uint32_t column = 0; column < a->columns; column++)
            if (a->tokens[row * a->token_stride + column] == (int32_t)token)
                sum += a->dy[row * a->y_stride + (size_t)column * a->width + k];
    a->dtable[i] += sum;
}

/* ---- noisy weights (struct noisy_job)
 * -------------------------------------------------------------- */

/* Forward: to = mean + sigma noise. Backward: dmean += from, dsigma += from noise. The noise of
 * weight (i, o) is in[i] out[o], of a bias out[o]: `in` is NULL there. */
struct noisy_rows_arguments {
    const float *mean, *sigma, *in, *out;
    float *to;
    const float *from;
    float *dmean, *dsigma;
    uint32_t inputs, outputs;
    bool backward;
};

static inline struct kernel_shape noisy_rows_shape(const struct noisy_rows_arguments *a)
{
    return kernel_of((size_t)a->inputs * a->outputs);
}

static inline size_t noisy_rows_reaches(const struct noisy_rows_arguments *a,
                                        struct kernel_reach *r)
{
    size_t bytes = (size_t)a->inputs * a->outputs * sizeof(float);
    r[0] = (struct kernel_reach){a->mean, bytes, TRP_READ};
    r[1] = (struct kernel_reach){a->sigma, bytes, TRP_READ};
    r[2] = (struct kernel_reach){a->in, a->inputs * sizeof(float), TRP_READ};
    r[3] = (struct kernel_reach){a->out, a->outputs * sizeof(float), TRP_READ};
    r[4] = (struct kernel_reach){a->to, bytes, TRP_WRITE};
    r[5] = (struct kernel_reach){a->from, bytes, TRP_READ};
    r[6] = (struct kernel_reach){a->dmean, bytes, TRP_READ | TRP_WRITE};
    r[7] = (struct kernel_reach){a->dsigma, bytes, TRP_READ | TRP_WRITE};
    return 8;
}

KERNEL_BODY void noisy_rows_body(const struct noisy_rows_arguments *a, const struct kernel_at *at,
                                 void *shared)
{
    size_t i = thread_index(at);
    (void)shared;
    if (i >= (size_t)a->inputs * a->outputs)
        return;
    float noise = a->out ? a->out[i % a->outputs] : 0;
    if (a->in)
        noise *= a->in[i / a->outputs];
    if (!a->backward) {
        a->to[i] = a->mean[i] + a->sigma[i] * noise;
        return;
    }
    a->dmean[i] += a->from[i];
    a->dsigma[i] += a->from[i] * noise;
}

#endif
