/* A plan on a GPU, from inside. */
#ifndef TRP_NN_CUDA_PLAN_H
#define TRP_NN_CUDA_PLAN_H

#include "device.h"
#include "work.h"

/* Memory that operations use one after the other. */
struct plan_scratch {
    float *patches; /* of as many images as fit into PLAN_PATCHES_BYTES, one at least; or images for
                       a library */
    float *partial; /* sums of columns, [SUM_PARTS_MAX][the widest layer] */
    float *from_h;  /* of a cell's step, [sequences][gates * hidden] */
    float *carry;   /* of a cell's backward, [2][sequences][hidden] */
    float *noisy;   /* weights with noise on them, which a layer's forward leaves to its backward */
    float *noisy_grads;
    size_t patch_images; /* that fit */
    /* Of convolutions by a library; NULL: it makes none. */
    float *turned, *turned_grads; /* weights in its order, and what is to be added to gradients */
    float *workspace;
    size_t workspace_bytes, images_floats; /* images: of `patches` */
};

struct cuda_net {
    trp_net base;
    trp_device *device;
    trp_precision precision;
    float *arena, *zeros; /* zeros: gradients of outputs that a caller does not give */
    float *noise, *host_noise;
    bool has_noise, forward_only;
    struct plan_scratch scratch;
};

/* One operation of a pass. */
struct lowering {
    struct cuda_net *net;
    struct cuda_list *list;
    const struct pass *pass;
    const struct op *op;
    uint32_t rows;
};

/* Puts the works of the operation on the list. */
void lower_op(const struct lowering *run);

/* ---- lower_cell.c, lower_conv.c: those of several works ---------------------------------- */

void lower_cell(const struct lowering *run);
void lower_cell_back(const struct lowering *run);
void lower_conv(const struct lowering *run);
void lower_conv_back(const struct lowering *run);

/* ---- lower_dnn.c ------------------------------------------------------------------------------
 */

/* The most of what convolutions by a library need: floats, floats, bytes. */
struct dnn_room {
    size_t weights, images, workspace;
};

void dnn_needs(const struct cuda_net *net, const struct op *op, struct dnn_room *room);

/* Of a convolution; false: the library does not make it, and nothing was put. */
bool dnn_forward(const struct lowering *run);
bool dnn_backward(const struct lowering *run); /* but the gradient of the bias */

/* ---- for all of them ----------------------------------------------------------------------- */

/* Columns of a buffer; `at` NULL: there are none, or the caller has not given them. */
struct place_on {
    float *at;
    size_t stride;
};

struct place_on span_on(const struct lowering *run, struct span span);

const float *param_on(const struct lowering *run, uint32_t index);
float *param_grad_on(const struct lowering *run, uint32_t index); /* NULL: not wanted */

/* Where dx goes; NULL: nobody wants it. */
float *dx_on(const struct lowering *run);

/* sum[columns] += the rows of dy; row r is at (r / inner) * stride + (r % inner) * columns. */
void lower_sum(const struct lowering *run, const float *dy, size_t stride, uint32_t rows,
               uint32_t inner, uint32_t columns, float *sum);

/* An elementwise activation of `kept` on dx, in its place. */
void lower_gate(const struct lowering *run, enum activation gate, float *dx, size_t dx_stride,
                struct place_on kept, uint32_t rows, uint32_t columns);

#endif
