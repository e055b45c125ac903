/* PowerSGD (Vogels et al. 2019, algorithms 1 and 2): a matrix M is sent as P Q^T, one step of the
 * power method from the Q of the sum before. All ranks begin with the same Q. Factors lie in memory
 * as [rank][numbers]; all that is no matrix, or smaller than its factors, is summed as it is. */
#include "compressor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/optimizer.h>
#include <troupe/rng.h>
#include "core/alloc.h"

enum { LANES = 8 };

/* Of all that is no matrix the pieces, one by one: the one before matrix `index`. */
static size_t dense_before(const struct compressor *c, size_t index, size_t *at)
{
    size_t begin = 0, end = index < c->matrix_count ? c->matrices[index].offset : c->count;
    if (index > 0) {
        const struct thin_matrix *before = &c->matrices[index - 1];
        begin = before->offset + before->rows * before->columns;
    }
    *at = begin;
    return end - begin;
}

/* The right factors of the first sum, and those that nothing is left of. */
static void draw_right(float *right, size_t count, uint64_t stream)
{
    trp_rng rng;
    trp_rng_init(&rng, 1, stream);
    for (size_t i = 0; i < count; i++)
        right[i] = (float)trp_rng_normal(&rng);
}

static void low_rank_create(struct compressor *c, const trp_net_tensor *tensors,
                            size_t tensor_count)
{
    size_t rank = c->options.rank, of_matrices = 0;
    c->matrices = xcalloc(tensor_count + 1, sizeof *c->matrices);
    for (size_t i = 0; i < tensor_count; i++) {
        size_t columns = tensor_columns(&tensors[i]);
        size_t rows = columns > 0 ? tensors[i].count / columns : 0;
        if (rank * (rows + columns) >= rows * columns)
            continue;
        c->matrices[c->matrix_count++] =
            (struct thin_matrix){tensors[i].offset, rows, columns, c->left_count, c->shared_count};
        c->left_count += rank * rows;
        c->shared_count += rank * columns;
        of_matrices += rows * columns;
    }
    c->dense_count = c->count - of_matrices;
    c->shared = xcalloc(c->shared_count + 1, sizeof *c->shared);
    draw_right(c->shared, c->shared_count, 0);
    c->scratch = xcalloc(c->left_count + c->dense_count + 1, sizeof *c->scratch);
}

static void low_rank_join(struct compressor *c)
{
    (void)c;
}

/* ---- products -------------------------------------------------------------------------------- */

static float dot(const float *restrict a, const float *restrict b, size_t count)
{
    float sums[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            sums[k] += a[i + k] * b[i + k];
    for (; i < count; i++)
        sum += a[i] * b[i];
    for (size_t k = 0; k < LANES; k++)
        sum += sums[k];
    return sum;
}

static void add_times(float *restrict to, float factor, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += factor * from[i];
}

static void multiply_left(const struct compressor *c, const struct thin_matrix *m)
{
    const float *right = c->shared + m->right;
    for (size_t row = 0; row < m->rows; row++)
        for (size_t k = 0; k < c->options.rank; k++)
            c->scratch[m->left + k * m->rows + row] =
                dot(c->rest + m->offset + row * m->columns, right + k * m->columns, m->columns);
}

/* Gram and Schmidt, twice, as rounding spoils once. A vector of which nothing is left is 0. */
static void orthogonalise(float *left, size_t rank, size_t rows)
{
    for (size_t k = 0; k < rank; k++) {
        float *vector = left + k * rows;
        double before = trp_norm2(vector, 0, rows);
        for (size_t twice = 0; twice < 2; twice++)
            for (size_t j = 0; j < k; j++)
                add_times(vector, -dot(vector, left + j * rows, rows), left + j * rows, rows);
        double norm2 = trp_norm2(vector, 0, rows);
        float scale = norm2 > 1e-10 * before ? (float)(1 / sqrt(norm2)) : 0;
        for (size_t i = 0; i < rows; i++)
            vector[i] *= scale;
    }
}

/* The right factor of this rank's matrix, which is taken off its rest. */
static void multiply_right(struct compressor *c, const struct thin_matrix *m)
{
    size_t rank = c->options.rank;
    float *right = c->shared + m->right;
    memset(right, 0, rank * m->columns * sizeof *right);
    for (size_t row = 0; row < m->rows; row++)
        for (size_t k = 0; k < rank; k++)
            add_times(right + k * m->columns, c->scratch[m->left + k * m->rows + row],
                      c->rest + m->offset + row * m->columns, m->columns);
    for (size_t row = 0; row < m->rows; row++)
        for (size_t k = 0; k < rank; k++)
            add_times(c->rest + m->offset + row * m->columns,
                      -c->scratch[m->left + k * m->rows + row], right + k * m->columns, m->columns);
}

static void expand(const struct compressor *c, const struct thin_matrix *m, float *grads)
{
    memset(grads + m->offset, 0, m->rows * m->columns * sizeof *grads);
    for (size_t row = 0; row < m->rows; row++)
        for (size_t k = 0; k < c->options.rank; k++)
            add_times(grads + m->offset + row * m->columns, c->scratch[m->left + k * m->rows + row],
                      c->shared + m->right + k * m->columns, m->columns);
}

/* ---- a sum ----------------------------------------------------------------------------------- */

static void pack(struct compressor *c, const float *grads)
{
    float *dense = c->scratch + c->left_count;
    for (size_t i = 0; i <= c->matrix_count; i++) {
        size_t at, count = dense_before(c, i, &at);
        memcpy(dense, grads + at, count * sizeof *dense);
        dense += count;
    }
    for (size_t i = 0; i < c->matrix_count; i++) {
        const struct thin_matrix *m = &c->matrices[i];
        add_times(c->rest + m->offset, 1, grads + m->offset, m->rows * m->columns);
        multiply_left(c, m);
    }
}

static void unpack(struct compressor *c, float *grads)
{
    const float *dense = c->scratch + c->left_count;
    for (size_t i = 0; i <= c->matrix_count; i++) {
        size_t at, count = dense_before(c, i, &at);
        memcpy(grads + at, dense, count * sizeof *dense);
        dense += count;
    }
    for (size_t i = 0; i < c->matrix_count; i++)
        expand(c, &c->matrices[i], grads);
}

/* A factor of 0 would stay 0 for ever. */
static void refresh(struct compressor *c)
{
    for (size_t i = 0; i < c->matrix_count; i++)
        for (size_t k = 0; k < c->options.rank; k++) {
            size_t columns = c->matrices[i].columns;
            float *right = c->shared + c->matrices[i].right + k * columns;
            if (trp_norm2(right, 0, columns) == 0)
                draw_right(right, columns, (c->step + 1) << 32 | (uint64_t)(right - c->shared));
        }
}

static trp_status reduce(const struct compress_wire *wire, float *values, size_t count)
{
    return wire->wait(wire->context,
                      trp_collective_allreduce(wire->collective, NULL, values, count,
                                               TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM));
}

static trp_status low_rank_sum(struct compressor *c, const struct compress_wire *wire, float *grads)
{
    pack(c, grads);
    TRP_TRY(reduce(wire, c->scratch, c->left_count + c->dense_count));
    for (size_t i = 0; i < c->matrix_count; i++) {
        const struct thin_matrix *m = &c->matrices[i];
        orthogonalise(c->scratch + m->left, c->options.rank, m->rows);
        multiply_right(c, m);
    }
    TRP_TRY(reduce(wire, c->shared, c->shared_count));
    unpack(c, grads);
    refresh(c);
    return TRP_OK;
}

/* Two allreduces by rings. */
static uint64_t low_rank_bytes(const struct compressor *c)
{
    uint64_t numbers = c->left_count + c->dense_count + c->shared_count;
    return 2 * (uint64_t)(c->size - 1) * numbers * sizeof *c->shared;
}

const struct exchange_impl low_rank_impl = {low_rank_create, low_rank_join, low_rank_sum,
                                            low_rank_bytes, NULL};
