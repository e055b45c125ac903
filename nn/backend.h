/* What a backend computes: linear layers here, the other layers in the headers below. All functions
 * are pure: they keep nothing between calls, so one backend serves any number of threads. Elements
 * are `element_bytes` wide (float, or double in ref_f64), strides count elements. */
#ifndef TRP_NN_BACKEND_H
#define TRP_NN_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "activation.h"
#include "cell.h"
#include "conv.h"
#include "layers.h"
#include "steps.h"

/* y = activation(x * w + bias), w[inputs][outputs]; no activation that keeps its input. */
struct forward_job {
    const void *x, *w, *bias;
    void *y;
    size_t x_stride, y_stride;
    uint32_t rows, inputs, outputs;
    enum activation activation;
    void *scratch;
};

/* dw (+)= x' dy, dbias (+)= sum dy, dx = (dy w') * gate'(x); dx may be NULL, and so may dw with
 * dbias. */
struct backward_job {
    const void *x, *w, *dy;
    void *dw, *dbias, *dx;
    size_t x_stride, dy_stride, dx_stride;
    uint32_t rows, inputs, outputs;
    enum activation gate; /* the activation that made x */
    bool overwrite;       /* = instead of += */
    bool accumulate_dx;   /* dx: += instead of =; without a gate */
    void *scratch;
};

/* Streams to values: a row of V and then the A, each of `atoms` numbers, becomes V + A - mean A,
 * atom by atom. Backward: the gradient of values becomes that of streams, or is added to it with
 * `accumulate`. */
struct dueling_job {
    const void *in;
    void *out;
    size_t in_stride, out_stride;
    uint32_t rows, outputs, atoms; /* outputs is a multiple of atoms */
    bool backward, accumulate;
};

/* Who multiplies for a linear layer. */
struct linear_kernels {
    const char *name;
    /* Elements of scratch that a layer of these sizes needs, either way. */
    size_t (*scratch)(uint32_t inputs, uint32_t outputs);
    void (*forward)(const struct forward_job *job);
    void (*backward)(const struct backward_job *job);
};

struct backend {
    const char *name;
    size_t element_bytes;
    const struct linear_kernels *linear;
    const struct linear_kernels *linear_bf16; /* the factors of products rounded to bfloat16 */
    void (*dueling)(const struct dueling_job *job);
    const struct activation_kernels *activation;
    const struct cell_kernels *cell;
    const struct conv_kernels *conv;
    const struct conv_kernels *conv_bf16; /* the same; without pools */
    const struct layer_kernels *layer;
    const struct step_kernels *step;
    /* The rest is for floats only: NULL in ref_f64. */
    void (*activate)(enum activation activation, float *y, size_t stride, size_t rows,
                     size_t columns);
    double (*norm2)(const float *values, size_t count); /* summed in double */
};

/* dx *= the slope of the activation that made x, after a product without gate. */
static inline void gate_dx(const struct backend *backend, const struct backward_job *job)
{
    if (job->gate == ACTIVATION_NONE)
        return;
    backend->activation->backward(&(struct activation_job){
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

extern const struct backend backend_ref_f32, backend_ref_f64;
extern const struct backend backend_generic, backend_avx2, backend_avx512;

/* The fastest of our own kernels that this processor runs. */
const struct backend *backend_simd(void);

/* oneDNN's, which is loaded by the first call, from any thread; NULL: this machine has none. */
const struct linear_kernels *linear_onednn(void);

/* What the tables say for a backend's instructions: whether oneDNN is to multiply. */
bool linear_is_onednns(const struct backend *backend, bool back, size_t weights, uint32_t rows);

/* The faster ones on this processor, of its own kernels and oneDNN's, for a layer of so many
 * weights and calls of about `rows` rows. */
const struct linear_kernels *linear_forward_fastest(size_t weights, uint32_t rows);
const struct linear_kernels *linear_backward_fastest(size_t weights, uint32_t rows);

/* Whether the processor has AMX for bfloat16 and the kernel lets this process have it, for which
 * the first call asks, from any thread; its children have it, too. */
bool cpu_has_amx(void);

/* The fastest of our own that round factors to bfloat16. Where those for AMX are not to be had,
 * they are those for AVX512_BF16, and else those of backend_simd(). */
extern const struct linear_kernels linear_avx512_bf16, linear_amx_bf16;
extern const struct conv_kernels conv_avx512_bf16, conv_amx_bf16;
const struct linear_kernels *linear_bf16_fastest(void);
const struct conv_kernels *conv_bf16_fastest(void);

#endif
