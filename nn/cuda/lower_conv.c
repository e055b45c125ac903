/* Convolutions, where no library makes them (lower_dnn.c), as products: the patches under the
 * windows of some images are the rows of a matrix, which the weights follow. As many images at a
 * time as there is scratch for; where the result of an image does not end where that of the next
 * one begins, one. */
#include "nn/cuda/bodies/images.h"
#include "kernels.h"
#include "plan.h"

/* A convolution and some of its images. */
struct conv_run {
    const struct lowering *run;
    struct window window;
    struct place_on x, y; /* y or its gradient */
    bool bytes;
    uint32_t pixels, patch; /* of one image's result; of one window */
    uint32_t first, images;
};

static struct conv_run conv_begin(const struct lowering *run, struct span y)
{
    const struct program *program = &run->net->base.program;
    struct conv_run conv = {
        .run = run,
        .window = graph_window(run->op->layer, &program->graph.values[run->op->layer->from[0]]),
        .x = span_on(run, run->op->a),
        .y = span_on(run, y),
        .bytes = program->buffers[run->op->a.buffer].element_bytes == 1};
    conv.pixels = window_out_height(&conv.window) * window_out_width(&conv.window);
    conv.patch = (uint32_t)window_patch(&conv.window);
    size_t most = run->net->scratch.patch_images;
    if (conv.y.stride != (size_t)conv.pixels * conv.window.filters)
        most = 1;
    conv.images = most < run->rows ? (uint32_t)most : run->rows;
    return conv;
}

/* The next images; false: there are none. */
static bool conv_next(struct conv_run *conv)
{
    conv->first += conv->images;
    if (conv->first >= conv->run->rows)
        return false;
    uint32_t left = conv->run->rows - conv->first;
    conv->images = conv->images < left ? conv->images : left;
    return true;
}

static float *image_on(struct place_on place, uint32_t image)
{
    return place.at + image * place.stride;
}

static void make_patches(const struct conv_run *conv)
{
    const uint8_t *bytes = (const uint8_t *)conv->x.at;
    work_kernel(conv->run->list, &kernel_patches,
                &(struct patches_arguments){
                    .window = conv->window,
                    .x = conv->bytes ? NULL : image_on(conv->x, conv->first),
                    .bytes = conv->bytes ? bytes + conv->first * conv->x.stride : NULL,
                    .patches = conv->run->net->scratch.patches,
                    .x_stride = conv->x.stride,
                    .images = conv->images});
}

static struct gemm_job conv_product(const struct conv_run *conv)
{
    return (struct gemm_job){.m = conv->images * conv->pixels,
                             .n = conv->window.filters,
                             .k = conv->patch,
                             .a_stride = conv->patch,
                             .b_stride = conv->window.filters,
                             .c_stride = conv->window.filters,
                             .precision = conv->run->net->precision};
}

void lower_conv(const struct lowering *run)
{
    if (dnn_forward(run))
        return;
    struct conv_run conv = conv_begin(run, run->op->to);
    do {
        make_patches(&conv);
        struct gemm_job job = conv_product(&conv);
        job.a = run->net->scratch.patches;
        job.b = param_on(run, 0);
        job.bias = param_on(run, 1);
        job.c = image_on(conv.y, conv.first);
        job.activation = run->op->activation;
        work_gemm(run->list, &job);
    } while (conv_next(&conv));
}

/* dw += patches' dy. */
static void add_weights(const struct conv_run *conv)
{
    const struct lowering *run = conv->run;
    struct gemm_job job = conv_product(conv);
    make_patches(conv);
    job.k = job.m;
    job.m = conv->patch;
    job.a = run->net->scratch.patches;
    job.a_turned = true;
    job.b = image_on(conv->y, conv->first);
    job.c = param_grad_on(run, 0);
    job.accumulate = true;
    work_gemm(run->list, &job);
}

/* The gradients of patches, dy w', and then of what they are made of. */
static void make_data(const struct conv_run *conv, struct place_on dx)
{
    const struct lowering *run = conv->run;
    struct gemm_job job = conv_product(conv);
    job.n = conv->patch;
    job.k = conv->window.filters;
    job.a = image_on(conv->y, conv->first);
    job.a_stride = conv->window.filters;
    job.b = param_on(run, 0);
    job.b_turned = true;
    job.c = run->net->scratch.patches;
    job.c_stride = conv->patch;
    work_gemm(run->list, &job);
    work_kernel(run->list, &kernel_unpatch,
                &(struct unpatch_arguments){.window = conv->window,
                                            .patches = job.c,
                                            .x = image_on(conv->x, conv->first),
                                            .dx = image_on(dx, conv->first),
                                            .x_stride = conv->x.stride,
                                            .dx_stride = dx.stride,
                                            .images = conv->images,
                                            .gate = run->op->gate,
                                            .accumulate = run->op->accumulate});
}

/* Gradients of weights and data. */
static void products_back(const struct conv_run *given)
{
    struct conv_run conv = *given;
    struct place_on dx = span_on(conv.run, conv.run->op->to);
    dx.at = dx_on(conv.run);
    do {
        if (param_grad_on(conv.run, 0))
            add_weights(&conv);
        if (dx.at)
            make_data(&conv, dx);
    } while (conv_next(&conv));
}

void lower_conv_back(const struct lowering *run)
{
    struct conv_run conv = conv_begin(run, run->op->b);
    if (!dnn_backward(run))
        products_back(&conv);
    if (param_grad_on(run, 1))
        lower_sum(run, conv.y.at, conv.y.stride, run->rows * conv.pixels, conv.pixels,
                  conv.window.filters, param_grad_on(run, 1));
}
