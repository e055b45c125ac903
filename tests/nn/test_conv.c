/* Convolutions and pools. */
#include "layer_case.h"

#include "golden_layers.h"

struct conv_shape {
    const char *name;
    struct window window;
    uint32_t rows;
    enum activation activation, gate;
    bool bytes;
    enum pool_kind pool;
};

#define WINDOW(h, w, c, kh, kw, sh, sw, ph, pw, f)                                                 \
    {                                                                                              \
        .height = h, .width = w, .channels = c, .kernel_height = kh, .kernel_width = kw,           \
        .stride_height = sh, .stride_width = sw, .pad_height = ph, .pad_width = pw, .filters = f   \
    }

static size_t values_in(const struct window *w)
{
    return (size_t)w->height * w->width * w->channels;
}

static size_t values_out(const struct window *w, size_t channels)
{
    return (size_t)window_out_height(w) * window_out_width(w) * channels;
}

/* ---- convolution ------------------------------------------------------------------------- */

enum { CONV_W, CONV_BIAS, CONV_Y, CONV_X };

static void conv_forward(struct layer_case *c, const struct backend *backend)
{
    const struct conv_shape *s = c->shape;
    void *scratch = case_scratch(backend->conv->scratch(&s->window), backend);
    backend->conv->forward(&(struct conv_forward_job){
        .window = s->window,
        .x = s->bytes ? c->codes : c->blobs[CONV_X].v,
        .bytes = s->bytes,
        .w = c->blobs[CONV_W].v,
        .bias = c->blobs[CONV_BIAS].v,
        .y = c->blobs[CONV_Y].v,
        .x_stride = s->bytes ? values_in(&s->window) : c->blobs[CONV_X].stride,
        .y_stride = c->blobs[CONV_Y].stride,
        .rows = s->rows,
        .activation = s->activation,
        .scratch = scratch,
    });
    free(scratch);
}

/* The output's own activation is somebody else's gate: here, that of a job of its own. */
static void conv_backward(struct layer_case *c, const struct backend *backend)
{
    const struct conv_shape *s = c->shape;
    struct blob *y = &c->blobs[CONV_Y];
    void *scratch = case_scratch(backend->conv->scratch(&s->window), backend);
    if (s->activation)
        backend->activation->backward(&(struct activation_job){
            .activation = s->activation,
            .in = y->g,
            .kept = y->v,
            .out = y->g,
            .in_stride = y->stride,
            .kept_stride = y->stride,
            .out_stride = y->stride,
            .rows = (uint32_t)y->rows,
            .columns = (uint32_t)y->columns,
        });
    backend->conv->backward(&(struct conv_backward_job){
        .window = s->window,
        .x = s->bytes ? c->codes : c->blobs[CONV_X].v,
        .bytes = s->bytes,
        .w = c->blobs[CONV_W].v,
        .dy = y->g,
        .dw = c->blobs[CONV_W].g,
        .dbias = c->blobs[CONV_BIAS].g,
        .dx = s->bytes ? NULL : c->blobs[CONV_X].g,
        .x_stride = s->bytes ? values_in(&s->window) : c->blobs[CONV_X].stride,
        .dy_stride = y->stride,
        .dx_stride = s->bytes ? 0 : c->blobs[CONV_X].stride,
        .rows = s->rows,
        .gate = s->gate,
        .overwrite = c->overwrite,
        .accumulate_dx = !c->overwrite,
        .scratch = scratch,
    });
    free(scratch);
}

static struct layer_case conv_case(const struct conv_shape *s)
{
    struct layer_case c = {
        .name = s->name, .shape = s, .forward = conv_forward, .backward = conv_backward};
    case_add(&c, "w", 1, window_patch(&s->window) * s->window.filters, false);
    case_add(&c, "bias", 1, s->window.filters, false);
    case_add(&c, "y", s->rows, values_out(&s->window, s->window.filters), true);
    if (!s->bytes)
        case_add(&c, "x", s->rows, values_in(&s->window), false);
    return c;
}

static uint8_t *pixels(const struct conv_shape *s)
{
    size_t count = s->rows * values_in(&s->window);
    uint8_t *codes = xmalloc(count);
    for (size_t i = 0; i < count; i++)
        codes[i] = (uint8_t)(128 * (1 + case_number(9, (uint32_t)i)));
    return codes;
}

static void on_conv(const struct conv_shape *s, void (*check)(struct layer_case *))
{
    uint8_t *codes = s->bytes ? pixels(s) : NULL;
    struct layer_case c = conv_case(s);
    c.codes = codes;
    check(&c);
    case_cleanup(&c);
    free(codes);
}

static void against_golden(struct layer_case *c)
{
    check_golden(c, golden_layers, sizeof golden_layers / sizeof golden_layers[0]);
}

static void against_the_reference(struct layer_case *c)
{
    check_backends(c, 3e-5);
}

static const struct conv_shape golden_convs[] = {
    {"conv", WINDOW(5, 6, 3, 3, 2, 2, 1, 1, 1, 4), .rows = 2},
    {"conv_tanh", WINDOW(4, 4, 2, 2, 2, 2, 2, 0, 0, 3), .rows = 2, .activation = ACTIVATION_TANH},
    {"conv_bytes", WINDOW(6, 5, 2, 4, 3, 2, 2, 0, 0, 3), .rows = 2, .bytes = true},
};

static void convolutions_are_those_of_pytorch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_convs / sizeof golden_convs[0]; i++)
        on_conv(&golden_convs[i], against_golden);
}

static void gradients_of_convolutions_are_finite_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_convs / sizeof golden_convs[0]; i++)
        on_conv(&golden_convs[i], check_finite_differences);
}

static void every_backend_convolves_as_the_reference(void **state)
{
    (void)state;
    static const struct conv_shape shapes[] = {
        {"like conv1", WINDOW(20, 20, 4, 8, 8, 4, 4, 0, 0, 32), .rows = 3, .bytes = true},
        {"like conv1 of floats", WINDOW(20, 24, 4, 8, 8, 4, 4, 0, 0, 32), .rows = 2,
         .activation = ACTIVATION_RELU},
        {"like conv2", WINDOW(12, 12, 32, 4, 4, 2, 2, 0, 0, 64), .rows = 2,
         .activation = ACTIVATION_RELU, .gate = ACTIVATION_RELU},
        {"like conv3", WINDOW(9, 9, 64, 3, 3, 1, 1, 0, 0, 64), .rows = 1,
         .activation = ACTIVATION_RELU, .gate = ACTIVATION_RELU},
        {"residual", WINDOW(11, 11, 16, 3, 3, 1, 1, 1, 1, 16), .rows = 3, .gate = ACTIVATION_TANH},
        {"one of everything", WINDOW(1, 1, 1, 1, 1, 1, 1, 0, 0, 1), .rows = 1},
        {"one by one", WINDOW(7, 5, 19, 1, 1, 1, 1, 0, 0, 33), .rows = 2},
        {"odd", WINDOW(9, 7, 5, 3, 2, 2, 3, 2, 1, 17), .rows = 3, .activation = ACTIVATION_ELU,
         .gate = ACTIVATION_SIGMOID},
        {"odd bytes", WINDOW(9, 13, 3, 5, 4, 3, 2, 1, 2, 7), .rows = 5, .bytes = true,
         .activation = ACTIVATION_SOFTPLUS},
        {"a wide image", WINDOW(1, 150, 2, 1, 9, 1, 1, 0, 4, 70), .rows = 2},
        {"a stride past the window", WINDOW(9, 9, 3, 2, 2, 3, 3, 0, 0, 5), .rows = 2},
        {"a window as large as the image", WINDOW(6, 6, 8, 6, 6, 1, 1, 0, 0, 24), .rows = 4},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        on_conv(&shapes[i], against_the_reference);
}

/* ---- pools ------------------------------------------------------------------------------- */

enum { POOL_X, POOL_Y };

static struct pool_job pool_job_of(struct layer_case *c, bool backward)
{
    const struct conv_shape *s = c->shape;
    const struct blob *x = &c->blobs[POOL_X], *y = &c->blobs[POOL_Y];
    return (struct pool_job){
        .window = s->window,
        .kind = s->pool,
        .in = backward ? y->g : x->v,
        .out = backward ? x->g : y->v,
        .in_stride = backward ? y->stride : x->stride,
        .out_stride = backward ? x->stride : y->stride,
        .rows = s->rows,
        .index = c->kept,
        .accumulate = !c->overwrite,
    };
}

static void pool_forward(struct layer_case *c, const struct backend *backend)
{
    const struct conv_shape *s = c->shape;
    c->kept = s->pool == POOL_MAX ? case_memory(c->blobs[POOL_Y].columns * s->rows, 1) : NULL;
    struct pool_job job = pool_job_of(c, false);
    backend->conv->pool_forward(&job);
}

static void pool_backward(struct layer_case *c, const struct backend *backend)
{
    struct pool_job job = pool_job_of(c, true);
    backend->conv->pool_backward(&job);
}

static void on_pool(const struct conv_shape *s, void (*check)(struct layer_case *))
{
    struct layer_case c = {
        .name = s->name, .shape = s, .forward = pool_forward, .backward = pool_backward};
    case_add(&c, "x", s->rows, values_in(&s->window), false);
    case_add(&c, "y", s->rows, values_out(&s->window, s->window.channels), true);
    check(&c);
    case_cleanup(&c);
}

static const struct conv_shape golden_pools[] = {
    {"max_pool", WINDOW(5, 6, 2, 3, 3, 2, 2, 1, 1, 0), .rows = 2},
    {"max_pool_flat", WINDOW(4, 5, 3, 2, 3, 2, 1, 0, 0, 0), .rows = 1},
    {"mean_pool", WINDOW(5, 6, 2, 3, 3, 2, 2, 1, 1, 0), .rows = 2, .pool = POOL_MEAN},
};

static void pools_are_those_of_pytorch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_pools / sizeof golden_pools[0]; i++)
        on_pool(&golden_pools[i], against_golden);
}

static void gradients_of_pools_are_finite_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_pools / sizeof golden_pools[0]; i++)
        on_pool(&golden_pools[i], check_finite_differences);
}

static void every_backend_pools_as_the_reference(void **state)
{
    (void)state;
    static const struct conv_shape shapes[] = {
        {"impala", WINDOW(21, 21, 16, 3, 3, 2, 2, 1, 1, 0), .rows = 2},
        {"odd", WINDOW(7, 9, 19, 2, 3, 1, 2, 1, 2, 0), .rows = 3},
        {"all", WINDOW(6, 5, 3, 6, 5, 1, 1, 0, 0, 0), .rows = 2},
        {"mean", WINDOW(8, 8, 33, 2, 2, 2, 2, 0, 0, 0), .rows = 2, .pool = POOL_MEAN},
        {"mean odd", WINDOW(7, 9, 5, 4, 3, 3, 2, 2, 1, 0), .rows = 1, .pool = POOL_MEAN},
        {"large windows", WINDOW(15, 17, 2, 15, 17, 1, 1, 0, 0, 0), .rows = 1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        on_pool(&shapes[i], against_the_reference);
}

/* A NaN wins wherever it is, and the first of equals. */
static void the_first_of_equals_and_a_nan_win_a_pool(void **state)
{
    (void)state;
    for (const struct backend *const *b = every_backend(); *b; b++) {
        if (!(*b)->conv)
            continue;
        float x[8] = {1, 2, 2, -INFINITY, 0, NAN, 3, -INFINITY}, y[4], dx[8];
        const float dy[4] = {1, 10, 100, 1000};
        uint8_t index[4];
        struct pool_job job = {
            .window = WINDOW(1, 4, 2, 1, 2, 1, 2, 0, 0, 0),
            .in = x,
            .out = y,
            .index = index,
            .rows = 1,
        };
        x[3] = 2; /* pixels (1 2) (2 2) | (0 NaN) (3 -inf) */
        (*b)->conv->pool_forward(&job);
        assert_true(y[0] == 2 && y[1] == 2 && y[2] == 3 && isnan(y[3]));
        job.in = dy;
        job.out = dx;
        (*b)->conv->pool_backward(&job);
        const float want[8] = {0, 10, 1, 0, 0, 1000, 100, 0};
        assert_memory_equal(dx, want, sizeof want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_are_those_of_pytorch),
        cmocka_unit_test(gradients_of_convolutions_are_finite_differences),
        cmocka_unit_test(every_backend_convolves_as_the_reference),
        cmocka_unit_test(pools_are_those_of_pytorch),
        cmocka_unit_test(gradients_of_pools_are_finite_differences),
        cmocka_unit_test(every_backend_pools_as_the_reference),
        cmocka_unit_test(the_first_of_equals_and_a_nan_win_a_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
