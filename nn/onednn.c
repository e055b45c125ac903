/* Linear layers through oneDNN's matrix product, on the calling thread: a plan splits rows over its
 * own threads, so OpenMP never starts any (its spinning barriers cost small networks 2 to 30 times
 * on a busy machine). The caller's OpenMP setting is put back after each job.
 *
 * The library is opened by the first plan that wants it: 40 MB and OpenMP are not for processes
 * that compute nothing. dnnl_sgemm() rather than primitives: it works on the flat vector's own
 * layout, so nothing is reordered when parameters change, which is every step. It fails only when
 * oneDNN cannot get memory for its packing buffers; then our own kernels do the job. */
#include "backend.h"
#include "core/thread.h"
#include "ref.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <string.h>

static __typeof__(dnnl_sgemm) *sgemm;
static int (*omp_threads)(void); /* of the OpenMP that oneDNN runs on */
static void (*omp_set_threads)(int count);

static bool symbols_find(void *library)
{
    sgemm = (__typeof__(sgemm))dlsym(library, "dnnl_sgemm");
    omp_threads = (__typeof__(omp_threads))dlsym(library, "omp_get_max_threads");
    omp_set_threads = (__typeof__(omp_set_threads))dlsym(library, "omp_set_num_threads");
    return sgemm && omp_threads && omp_set_threads;
}

static size_t onednn_scratch(uint32_t inputs, uint32_t outputs)
{
    return backend_simd()->linear->scratch(inputs, outputs); /* for the fallback */
}

/* Rows can be many and strides wide, but every product here is below 2^31 (see shape.c). */
static bool product(char a_transposed, char b_transposed, size_t rows, size_t columns, size_t depth,
                    const float *a, size_t a_stride, const float *b, size_t b_stride, float beta,
                    float *c, size_t c_stride)
{
    return sgemm(a_transposed, b_transposed, (dnnl_dim_t)rows, (dnnl_dim_t)columns,
                 (dnnl_dim_t)depth, 1, a, (dnnl_dim_t)a_stride, b, (dnnl_dim_t)b_stride, beta, c,
                 (dnnl_dim_t)c_stride) == dnnl_success;
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
    int threads = omp_threads();
    omp_set_threads(1);
    bool done = forward_on_one_thread(job);
    omp_set_threads(threads);
    if (!done)
        backend_simd()->linear->forward(job);
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

static bool backward_on_one_thread(const struct backward_job *job)
{
    if (job->dx) {
        if (!product('N', 'T', job->rows, job->inputs, job->outputs, job->dy, job->dy_stride,
                     job->w, job->outputs, job->accumulate_dx ? 1 : 0, job->dx, job->dx_stride))
            return false;
        gate_dx(backend_simd(), job);
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
    int threads = omp_threads();
    omp_set_threads(1);
    bool done = backward_on_one_thread(job);
    omp_set_threads(threads);
    if (!done)
        backend_simd()->linear->backward(job);
}

static const struct linear_kernels onednn = {
    .name = "onednn",
    .scratch = onednn_scratch,
    .forward = onednn_forward,
    .backward = onednn_backward,
};

static const struct linear_kernels *found;

/* dnnl_sgemm() is the same in both. */
static void onednn_find(void)
{
    static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library && symbols_find(library))
            found = &onednn;
    }
}

const struct linear_kernels *linear_onednn(void)
{
    static struct once once = ONCE_INIT;
    once_run(&once, onednn_find);
    return found;
}
