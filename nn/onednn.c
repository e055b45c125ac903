/* Big layers through oneDNN's matrix product, on the calling thread: a plan splits rows over its
 * own threads, so OpenMP never starts any (its spinning barriers cost small networks 2 to 30 times
 * on a busy machine). The caller's OpenMP setting is put back after each job.
 *
 * dnnl_sgemm() rather than primitives: it works on the flat vector's own layout, so nothing is
 * reordered when parameters change, which is every step. It fails only when oneDNN cannot get
 * memory for its packing buffers; then our own kernels do the job. */
#include "backend.h"
#include "ref.h"

#include <dnnl.h>
#include <string.h>

/* libgomp's, which oneDNN runs on; clang has no header for it. */
int omp_get_max_threads(void);
void omp_set_num_threads(int count);

static size_t onednn_scratch(uint32_t inputs, uint32_t outputs)
{
    return backend_simd()->scratch(inputs, outputs); /* for the fallback */
}

/* Rows can be many and strides wide, but every product here is below 2^31 (see shape.c). */
static bool product(char a_transposed, char b_transposed, size_t rows, size_t columns, size_t depth,
                    const float *a, size_t a_stride, const float *b, size_t b_stride, float beta,
                    float *c, size_t c_stride)
{
    return dnnl_sgemm(a_transposed, b_transposed, (dnnl_dim_t)rows, (dnnl_dim_t)columns,
                      (dnnl_dim_t)depth, 1, a, (dnnl_dim_t)a_stride, b, (dnnl_dim_t)b_stride, beta,
                      c, (dnnl_dim_t)c_stride) == dnnl_success;
}

static bool forward_on_one_thread(const struct forward_job *job)
{
    float *y = job->y;
    for (size_t row = 0; row < job->rows; row++)
        memcpy(y + row * job->y_stride, job->bias, job->outputs * sizeof *y);
    if (!product('N', 'N', job->rows, job->outputs, job->inputs, job->x, job->x_stride, job->w,
                 job->outputs, 1, y, job->y_stride))
        return false;
    backend_simd()->activate(job->activation, y, job->y_stride, job->rows, job->outputs);
    return true;
}

static void onednn_forward(const struct forward_job *job)
{
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    bool done = forward_on_one_thread(job);
    omp_set_num_threads(threads);
    if (!done)
        backend_simd()->forward(job);
}

static void bias_backward(const struct backward_job *job)
{
    const float *dy = job->dy;
    float *dbias = job->dbias;
    if (job->overwrite)
        memset(dbias, 0, job->outputs * sizeof *dbias);
    for (size_t row = 0; row < job->rows; row++, dy += job->dy_stride)
        for (size_t o = 0; o < job->outputs; o++)
            dbias[o] += dy[o];
}

static void gate_product(const struct backward_job *job)
{
    if (job->gate == ACTIVATION_NONE)
        return;
    backend_simd()->activation->backward(&(struct activation_job){
        .activation = job->gate,
        .in = job->dx,
        .kept = job->x,
        .out = job->dx,
        .in_stride = job->dx_stride,
        .kept_stride = job->x_stride,
        .out_stride = job->dx_stride,
        .rows = job->rows,
        .columns = job->inputs,
    });
}

static bool backward_on_one_thread(const struct backward_job *job)
{
    if (job->dx) {
        if (!product('N', 'T', job->rows, job->inputs, job->outputs, job->dy, job->dy_stride,
                     job->w, job->outputs, job->accumulate_dx ? 1 : 0, job->dx, job->dx_stride))
            return false;
        gate_product(job);
    }
    if (!job->dw)
        return true;
    /* The last thing that can fail: += must not happen twice. */
    if (!product('T', 'N', job->inputs, job->outputs, job->rows, job->x, job->x_stride, job->dy,
                 job->dy_stride, job->overwrite ? 0 : 1, job->dw, job->outputs))
        return false;
    bias_backward(job);
    return true;
}

static void onednn_backward(const struct backward_job *job)
{
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    bool done = backward_on_one_thread(job);
    omp_set_num_threads(threads);
    if (!done)
        backend_simd()->backward(job);
}

static void onednn_activate(enum activation activation, float *y, size_t stride, size_t rows,
                            size_t columns)
{
    backend_simd()->activate(activation, y, stride, rows, columns);
}

static double onednn_norm2(const float *values, size_t count)
{
    return backend_simd()->norm2(values, count);
}

const struct backend backend_onednn = {
    .name = "onednn",
    .element_bytes = sizeof(float),
    .scratch = onednn_scratch,
    .forward = onednn_forward,
    .backward = onednn_backward,
    .dueling = dueling_plain,
    .activate = onednn_activate,
    .norm2 = onednn_norm2,
};
