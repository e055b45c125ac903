/* Layers by themselves: our kernels next to oneDNN's primitives in the layouts that oneDNN picks,
 * and whole networks of them, with --peer DIR next to eager PyTorch.
 *
 * Everything runs on one thread and is measured in that thread's own time, in turns, because the
 * machine may be shared; the median counts. The primitives pay for no reorder and for no ReLU's
 * gradient; ours do the one and need not the other. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <troupe/optimizer.h>
#include "core/alloc.h"
#include "median.h"
#include "nn/backend.h"
#include "primitives.h"
#include "torch_peer.h"

void omp_set_num_threads(int count);

enum { TURNS = 7, WORK_MAX = 64 };

/* ---- work, ours and theirs --------------------------------------------------------------- */

/* One layer's share of a step in one direction. */
struct work {
    const char *what;
    bool convolves; /* else it is a linear layer */
    struct window window;
    uint32_t rows, inputs, outputs;
    bool bytes;
    enum direction direction;
    struct primitive theirs;
    double our_us[TURNS], their_us[TURNS];
};

/* What all work shares: floats enough for the largest tensor. */
static float *x_floats, *y_floats, *w_floats, *scratch_floats;

static float *some_floats(size_t count)
{
    float *floats = aligned_alloc(64, (count * sizeof *floats + 63) / 64 * 64);
    for (size_t i = 0; floats && i < count; i++)
        floats[i] = (float)(i * 2654435761u % 1000) / 5000 - 0.1f;
    return floats;
}

static size_t image_values(const struct window *w)
{
    return (size_t)w->height * w->width * w->channels;
}

static size_t result_values(const struct window *w)
{
    return (size_t)window_out_height(w) * window_out_width(w) * w->filters;
}

static void ours_convolves(const struct work *work)
{
    const struct backend *backend = backend_simd();
    const struct window *w = &work->window;
    if (work->direction == FORWARD) {
        backend->conv->forward(&(struct conv_forward_job){.window = *w,
                                                          .x = x_floats,
                                                          .bytes = work->bytes,
                                                          .w = w_floats,
                                                          .bias = w_floats,
                                                          .y = y_floats,
                                                          .x_stride = image_values(w),
                                                          .y_stride = result_values(w),
                                                          .rows = work->rows,
                                                          .activation = ACTIVATION_RELU,
                                                          .scratch = scratch_floats});
        return;
    }
    backend->conv->backward(
        &(struct conv_backward_job){.window = *w,
                                    .x = x_floats,
                                    .bytes = work->bytes,
                                    .w = w_floats,
                                    .dy = y_floats,
                                    .dw = work->direction == WEIGHTS ? w_floats : NULL,
                                    .dbias = work->direction == WEIGHTS ? w_floats : NULL,
                                    .dx = work->direction == WEIGHTS ? NULL : x_floats,
                                    .x_stride = image_values(w),
                                    .dy_stride = result_values(w),
                                    .dx_stride = image_values(w),
                                    .rows = work->rows,
                                    .gate = ACTIVATION_RELU,
                                    .overwrite = true,
                                    .scratch = scratch_floats});
}

/* A linear layer's backward is one job: it counts as the gradient of the weights. */
static void ours_runs(const struct work *work)
{
    size_t weights = (size_t)work->inputs * work->outputs;
    if (work->convolves)
        ours_convolves(work);
    else if (work->direction == FORWARD)
        linear_forward_fastest(weights, work->rows)
            ->forward(&(struct forward_job){.x = x_floats,
                                            .w = w_floats,
                                            .bias = w_floats,
                                            .y = y_floats,
                                            .x_stride = work->inputs,
                                            .y_stride = work->outputs,
                                            .rows = work->rows,
                                            .inputs = work->inputs,
                                            .outputs = work->outputs,
                                            .activation = ACTIVATION_RELU,
                                            .scratch = scratch_floats});
    else if (work->direction == WEIGHTS)
        linear_backward_fastest(weights, work->rows)
            ->backward(&(struct backward_job){.x = x_floats,
                                              .w = w_floats,
                                              .dy = y_floats,
                                              .dw = w_floats,
                                              .dbias = w_floats,
                                              .dx = x_floats,
                                              .x_stride = work->inputs,
                                              .dy_stride = work->outputs,
                                              .dx_stride = work->inputs,
                                              .rows = work->rows,
                                              .inputs = work->inputs,
                                              .outputs = work->outputs,
                                              .gate = ACTIVATION_RELU,
                                              .overwrite = true,
                                              .scratch = scratch_floats});
}

/* ---- the primitives ---------------------------------------------------------------------- */

static dnnl_memory_desc_t any(int count, const int64_t *dims)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t d = {0};
    memcpy(d, dims, (size_t)count * sizeof *dims);
    DNNL(dnnl_memory_desc_init_by_tag(&md, count, d, dnnl_f32, dnnl_format_tag_any));
    return md;
}

static dnnl_primitive_desc_t convolution(const struct work *work)
{
    return convolution_desc(&work->window, work->rows, work->direction,
                            &(struct conv_way){dnnl_format_tag_any, dnnl_convolution_auto, false});
}

static dnnl_primitive_desc_t inner_product(const struct work *work)
{
    dnnl_memory_desc_t x = any(2, (int64_t[]){work->rows, work->inputs});
    dnnl_memory_desc_t k = any(2, (int64_t[]){work->outputs, work->inputs});
    dnnl_memory_desc_t b = any(1, (int64_t[]){work->outputs});
    dnnl_memory_desc_t y = any(2, (int64_t[]){work->rows, work->outputs});
    dnnl_inner_product_desc_t desc;
    dnnl_primitive_desc_t forward, pd;
    DNNL(dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, &x, &k, &b, &y));
    DNNL(dnnl_primitive_desc_create(&forward, &desc, NULL, dnnl_on_cpu, NULL));
    if (work->direction == FORWARD)
        return forward;
    if (work->direction == WEIGHTS)
        DNNL(dnnl_inner_product_backward_weights_desc_init(&desc, &x, &k, &b, &y));
    else
        DNNL(dnnl_inner_product_backward_data_desc_init(&desc, &x, &k, &y));
    DNNL(dnnl_primitive_desc_create(&pd, &desc, NULL, dnnl_on_cpu, forward));
    return pd;
}

static void theirs_runs(const struct work *work)
{
    primitive_run(&work->theirs);
}

/* ---- turns ------------------------------------------------------------------------------- */

static double own_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double timed(void (*run)(const struct work *), const struct work *work)
{
    double start = own_us();
    run(work);
    return own_us() - start;
}

/* A network is timed layer after layer, as a step goes through it. */
static void work_run(struct work *work, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        dnnl_primitive_desc_t pd =
            work[i].convolves ? convolution(&work[i]) : inner_product(&work[i]);
        primitive_init(&work[i].theirs, pd, work[i].direction);
    }
    for (int turn = -1; turn < TURNS; turn++) { /* the first one warms up */
        int at = turn < 0 ? 0 : turn;
        for (size_t i = 0; i < count; i++)
            work[i].our_us[at] = timed(ours_runs, &work[i]);
        for (size_t i = 0; i < count; i++)
            work[i].their_us[at] = timed(theirs_runs, &work[i]);
    }
}

static void row(const char *name, double ours, double theirs, double peer)
{
    printf("%s\t%.1f\tus\t%.1f\toneDNN's primitives\t%.1f\tPyTorch, eager\n", name, ours, theirs,
           peer);
    fflush(stdout);
}

/* ---- networks ---------------------------------------------------------------------------- */

static void add_layer(struct work *work, size_t *count, struct work layer, bool first)
{
    static const char *const names[] = {"forward", "weights", "input"};
    for (enum direction d = FORWARD; d <= (first ? WEIGHTS : INPUT); d++) {
        layer.what = names[d];
        layer.direction = d;
        work[(*count)++] = layer;
    }
}

static struct work conv_layer(uint32_t rows, uint32_t side, uint32_t channels, uint32_t kernel,
                              uint32_t stride, uint32_t pad, uint32_t filters)
{
    return (struct work){
        .convolves = true,
        .rows = rows,
        .window = {side, side, channels, kernel, kernel, stride, stride, pad, pad, filters}};
}

static size_t nature(struct work *work, uint32_t rows)
{
    size_t count = 0;
    struct work first = conv_layer(rows, 84, 4, 8, 4, 0, 32);
    first.bytes = true;
    add_layer(work, &count, first, true);
    add_layer(work, &count, conv_layer(rows, 20, 32, 4, 2, 0, 64), false);
    add_layer(work, &count, conv_layer(rows, 9, 64, 3, 1, 0, 64), false);
    add_layer(work, &count, (struct work){.rows = rows, .inputs = 3136, .outputs = 512}, false);
    add_layer(work, &count, (struct work){.rows = rows, .inputs = 512, .outputs = 18}, false);
    return count;
}

/* Three stages of one convolution and two residual blocks of two each. */
static size_t impala(struct work *work, uint32_t rows)
{
    static const uint32_t filters[] = {16, 32, 32};
    size_t count = 0;
    uint32_t side = 84, channels = 4;
    for (int stage = 0; stage < 3; stage++) {
        struct work first = conv_layer(rows, side, channels, 3, 1, 1, filters[stage]);
        first.bytes = stage == 0;
        add_layer(work, &count, first, stage == 0);
        side = (side + 1) / 2;
        channels = filters[stage];
        for (int block = 0; block < 4; block++)
            add_layer(work, &count, conv_layer(rows, side, channels, 3, 1, 1, channels), false);
    }
    add_layer(work, &count, (struct work){.rows = rows, .inputs = 3872, .outputs = 256}, false);
    return count;
}

static double adam_us(size_t count)
{
    double us[TURNS];
    float *vectors = some_floats(4 * count);
    memset(vectors, 0, 4 * count * sizeof *vectors);
    for (int turn = 0; turn < TURNS; turn++) {
        double start = own_us();
        trp_optimizer_step(&(trp_optimizer){0}, 1, 1, vectors, vectors + 3 * count,
                           (float *[]){vectors + count, vectors + 2 * count}, 0, count);
        us[turn] = own_us() - start;
    }
    free(vectors);
    return median(us, TURNS);
}

static void network_run(const char *name, size_t (*build)(struct work *, uint32_t), uint32_t rows,
                        size_t parameters, bool each, double peer)
{
    struct work *work = xcalloc(WORK_MAX, sizeof *work);
    size_t count = build(work, rows);
    work_run(work, count);
    double adam = parameters ? adam_us(parameters) : 0, ours = adam, theirs = adam;
    for (size_t i = 0; i < count; i++) {
        double our_us = median(work[i].our_us, TURNS), their_us = median(work[i].their_us, TURNS);
        ours += our_us;
        theirs += their_us;
        if (!each || !work[i].convolves)
            continue;
        char *layer = xasprintf("%s: %ux%u, %u to %u channels, %s", name, work[i].window.height,
                                work[i].window.kernel_height, work[i].window.channels,
                                work[i].window.filters, work[i].what);
        row(layer, our_us, their_us, 0);
        free(layer);
    }
    row(name, ours, theirs, peer);
    free(work);
}

/* ---- the peer ---------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    const char *peer = torch_peer_dir(argc, argv);
    omp_set_num_threads(1);
    dnnl_start();
    x_floats = some_floats((size_t)256 * 84 * 84 * 16);
    y_floats = some_floats((size_t)256 * 84 * 84 * 16);
    w_floats = some_floats((size_t)4096 * 512);
    scratch_floats = some_floats((size_t)4 << 20);
    network_run("Nature CNN, batch 32, with Adam", nature, 32, 1693362, true,
                torch_peer_us(peer, "torch_layers.py nature 32"));
    network_run("Nature CNN, batch 256, with Adam", nature, 256, 1693362, false,
                torch_peer_us(peer, "torch_layers.py nature 256"));
    network_run("IMPALA's convolutions and linear layer, 160 images", impala, 160, 0, false,
                torch_peer_us(peer, "torch_layers.py impala 160"));
    return 0;
}
