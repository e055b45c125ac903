/* Products of factors that are rounded to bfloat16: the rounding by hand, the reference against
 * PyTorch, every instruction set against the reference, and plans. */
#include "layer_case.h"

#include "golden_layers.h"
#include "core/bfloat16.h"

#define ABOVE(x) (1 + (x)*0x1p-8F) /* x halves of a step above 1 */

/* ---- the rounding ------------------------------------------------------------------------- */

static const struct {
    float value, near;
} roundings[] = {
    {1, 1},
    {ABOVE(1), 1},                  /* half way: to the even one */
    {ABOVE(3), ABOVE(4)},           /* half way, up */
    {-ABOVE(3), -ABOVE(4)},         /* whatever the sign */
    {0x1.010002p0F, ABOVE(2)},      /* just above */
    {0x1.02fffep0F, ABOVE(2)},      /* just below */
    {0x1.fffffep3F, 16},            /* carries into the exponent */
    {0x1.fefffep127F, 0x1.fep127F}, /* the last one that stays finite */
    {0x1.ffp127F, INFINITY},        /* half way past it */
    {-3.4028235e38F, -INFINITY},    /* -FLT_MAX */
    {INFINITY, INFINITY},
    {0x1p-126F, 0x1p-126F}, /* the least normal one */
    {0x1.fffffcp-127F, 0},  /* the largest subnormal one */
    {-0x1p-149F, 0},
    {0, 0},
};
enum { ROUNDINGS = sizeof roundings / sizeof *roundings };

static void assert_same(float got, float want, const char *who, size_t i)
{
    if (got != want)
        fail_msg("%s: rounding %zu gives %a, should be %a", who, i, (double)got, (double)want);
}

static void *linear_scratch(const struct backend *backend, uint32_t inputs, uint32_t outputs)
{
    return case_scratch(backend->linear_bf16->scratch(inputs, outputs), backend);
}

/* One factor is rounded, the other one is 1: of x, w and dy, in every product. */
static void factors_are_rounded_to_the_nearest_or_the_even_one(void **state)
{
    (void)state;
    for (const struct backend *const *b = every_backend(); *b; b++) {
        const struct linear_kernels *kernels = (*b)->linear_bf16;
        void *scratch = linear_scratch(*b, 1, 1);
        for (size_t i = 0; i < ROUNDINGS; i++) {
            float value = roundings[i].value, one = 1, bias = 0, y, dw[2], dbias, dx;
            struct forward_job forward = {.x = &value,
                                          .w = &one,
                                          .bias = &bias,
                                          .y = &y,
                                          .x_stride = 1,
                                          .y_stride = 1,
                                          .rows = 1,
                                          .inputs = 1,
                                          .outputs = 1,
                                          .scratch = scratch};
            kernels->forward(&forward);
            assert_same(y, roundings[i].near, (*b)->name, i);
            forward.x = &one;
            forward.w = &value;
            kernels->forward(&forward);
            assert_same(y, roundings[i].near, (*b)->name, i);
            struct backward_job backward = {.x = &one,
                                            .w = &one,
                                            .dy = &value,
                                            .dw = &dw[0],
                                            .dbias = &dbias,
                                            .dx = &dx,
                                            .x_stride = 1,
                                            .dy_stride = 1,
                                            .dx_stride = 1,
                                            .rows = 1,
                                            .inputs = 1,
                                            .outputs = 1,
                                            .overwrite = true,
                                            .scratch = scratch};
            kernels->backward(&backward);
            assert_same(dw[0], roundings[i].near, (*b)->name, i);
            assert_same(dx, roundings[i].near, (*b)->name, i);
            assert_same(dbias, value, (*b)->name, i); /* a sum, no product */
            backward.x = &value;
            backward.w = &value;
            backward.dy = &one;
            backward.dw = &dw[1];
            kernels->backward(&backward);
            assert_same(dw[1], roundings[i].near, (*b)->name, i);
            assert_same(dx, roundings[i].near, (*b)->name, i);
            assert_same(bf16_rounded(value), roundings[i].near, "bf16_rounded", i);
        }
        free(scratch);
    }
}

/* A NaN with its payload in the last bits only, and one that carries all over. */
static void a_nan_stays_one(void **state)
{
    (void)state;
    static const uint32_t nans[] = {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu,
                                    0x7fc00000u};
    for (const struct backend *const *b = every_backend(); *b; b++) {
        void *scratch = linear_scratch(*b, 3, 20);
        for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
            float x[6] = {1, 2, 3, 4, 5, 6}, w[60], bias[20] = {0}, y[40];
            for (size_t k = 0; k < 60; k++)
                w[k] = 1;
            memcpy(&x[5], &nans[i], sizeof x[5]);
            (*b)->linear_bf16->forward(&(struct forward_job){.x = x,
                                                             .w = w,
                                                             .bias = bias,
                                                             .y = y,
                                                             .x_stride = 3,
                                                             .y_stride = 20,
                                                             .rows = 2,
                                                             .inputs = 3,
                                                             .outputs = 20,
                                                             .scratch = scratch});
            for (size_t k = 0; k < 40; k++)
                if (isnan(y[k]) != (k >= 20))
                    fail_msg("%s: y[%zu] is %g", (*b)->name, k, (double)y[k]);
        }
        free(scratch);
    }
}

/* 4096 ones: a sum in bfloat16 stops at 256. What a gradient held keeps its bits. */
static void sums_are_of_floats(void **state)
{
    (void)state;
    enum { MANY = 4096 };
    float *ones = xmalloc(MANY * sizeof *ones);
    for (size_t i = 0; i < MANY; i++)
        ones[i] = 1;
    for (const struct backend *const *b = every_backend(); *b; b++) {
        void *scratch = linear_scratch(*b, MANY, 1);
        float y, bias = 0x1.000002p0F, w = 1, dw = 0x1.000002p0F, dbias = 0x1.000002p0F;
        (*b)->linear_bf16->forward(&(struct forward_job){.x = ones,
                                                         .w = ones,
                                                         .bias = &bias,
                                                         .y = &y,
                                                         .x_stride = MANY,
                                                         .y_stride = 1,
                                                         .rows = 1,
                                                         .inputs = MANY,
                                                         .outputs = 1,
                                                         .scratch = scratch});
        assert_true(y == MANY + 1);
        struct backward_job job = {.x = ones,
                                   .w = &w,
                                   .dy = ones,
                                   .dw = &dw,
                                   .dbias = &dbias,
                                   .x_stride = 1,
                                   .dy_stride = 1,
                                   .rows = MANY,
                                   .inputs = 1,
                                   .outputs = 1,
                                   .scratch = scratch};
        (*b)->linear_bf16->backward(&job);
        assert_true(dw == MANY + 1 && dbias == MANY + 1);
        float zero = 0;
        job.rows = 1;
        job.dy = &zero;
        dw = dbias = 0x1.000002p0F;
        (*b)->linear_bf16->backward(&job);
        assert_true(dw == 0x1.000002p0F && dbias == 0x1.000002p0F);
        free(scratch);
    }
    free(ones);
}

/* ---- linear layers ------------------------------------------------------------------------ */

struct linear_shape {
    const char *name;
    uint32_t rows, inputs, outputs;
    enum activation activation, gate;
};

enum { W, BIAS, Y, X };

static void linear_forward(struct layer_case *c, const struct backend *backend)
{
    const struct linear_shape *s = c->shape;
    void *scratch = linear_scratch(backend, s->inputs, s->outputs);
    backend->linear_bf16->forward(&(struct forward_job){
        .x = c->blobs[X].v,
        .w = c->blobs[W].v,
        .bias = c->blobs[BIAS].v,
        .y = c->blobs[Y].v,
        .x_stride = c->blobs[X].stride,
        .y_stride = c->blobs[Y].stride,
        .rows = s->rows,
        .inputs = s->inputs,
        .outputs = s->outputs,
        .activation = s->activation,
        .scratch = scratch,
    });
    free(scratch);
}

static void linear_backward(struct layer_case *c, const struct backend *backend)
{
    const struct linear_shape *s = c->shape;
    void *scratch = linear_scratch(backend, s->inputs, s->outputs);
    backend->linear_bf16->backward(&(struct backward_job){
        .x = c->blobs[X].v,
        .w = c->blobs[W].v,
        .dy = c->blobs[Y].g,
        .dw = c->blobs[W].g,
        .dbias = c->blobs[BIAS].g,
        .dx = c->blobs[X].g,
        .x_stride = c->blobs[X].stride,
        .dy_stride = c->blobs[Y].stride,
        .dx_stride = c->blobs[X].stride,
        .rows = s->rows,
        .inputs = s->inputs,
        .outputs = s->outputs,
        .gate = s->gate,
        .overwrite = c->overwrite,
        .accumulate_dx = !c->overwrite && s->gate == ACTIVATION_NONE,
        .scratch = scratch,
    });
    free(scratch);
}

static void on_linear(const struct linear_shape *s, void (*check)(struct layer_case *))
{
    struct layer_case c = {
        .name = s->name, .shape = s, .forward = linear_forward, .backward = linear_backward};
    case_add(&c, "w", 1, (size_t)s->inputs * s->outputs, false);
    case_add(&c, "bias", 1, s->outputs, false);
    case_add(&c, "y", s->rows, s->outputs, true);
    case_add(&c, "x", s->rows, s->inputs, false);
    check(&c);
    case_cleanup(&c);
}

/* ---- convolutions ------------------------------------------------------------------------- */

struct conv_shape {
    const char *name;
    struct window window;
    uint32_t rows;
    enum activation activation, gate;
    bool bytes;
};

#define WINDOW(h, w, c, kh, kw, sh, sw, ph, pw, f)                                                 \
    {                                                                                              \
        .height = h, .width = w, .channels = c, .kernel_height = kh, .kernel_width = kw,           \
        .stride_height = sh, .stride_width = sw, .pad_height = ph, .pad_width = pw, .filters = f   \
    }

static void conv_forward(struct layer_case *c, const struct backend *backend)
{
    const struct conv_shape *s = c->shape;
    const struct window *w = &s->window;
    void *scratch = case_scratch(backend->conv_bf16->scratch(w), backend);
    backend->conv_bf16->forward(&(struct conv_forward_job){
        .window = *w,
        .x = s->bytes ? c->codes : c->blobs[X].v,
        .bytes = s->bytes,
        .w = c->blobs[W].v,
        .bias = c->blobs[BIAS].v,
        .y = c->blobs[Y].v,
        .x_stride = s->bytes ? (size_t)w->height * w->width * w->channels : c->blobs[X].stride,
        .y_stride = c->blobs[Y].stride,
        .rows = s->rows,
        .activation = s->activation,
        .scratch = scratch,
    });
    free(scratch);
}

static void conv_backward(struct layer_case *c, const struct backend *backend)
{
    const struct conv_shape *s = c->shape;
    const struct window *w = &s->window;
    void *scratch = case_scratch(backend->conv_bf16->scratch(w), backend);
    backend->conv_bf16->backward(&(struct conv_backward_job){
        .window = *w,
        .x = s->bytes ? c->codes : c->blobs[X].v,
        .bytes = s->bytes,
        .w = c->blobs[W].v,
        .dy = c->blobs[Y].g,
        .dw = c->blobs[W].g,
        .dbias = c->blobs[BIAS].g,
        .dx = s->bytes ? NULL : c->blobs[X].g,
        .x_stride = s->bytes ? (size_t)w->height * w->width * w->channels : c->blobs[X].stride,
        .dy_stride = c->blobs[Y].stride,
        .dx_stride = s->bytes ? 0 : c->blobs[X].stride,
        .rows = s->rows,
        .gate = s->gate,
        .overwrite = c->overwrite,
        .accumulate_dx = !c->overwrite,
        .scratch = scratch,
    });
    free(scratch);
}

static void on_conv(const struct conv_shape *s, void (*check)(struct layer_case *))
{
    const struct window *w = &s->window;
    size_t image = (size_t)w->height * w->width * w->channels;
    size_t result = (size_t)window_out_height(w) * window_out_width(w) * w->filters;
    uint8_t *codes = xmalloc(s->rows * image);
    for (size_t i = 0; i < s->rows * image; i++)
        codes[i] = (uint8_t)(128 * (1 + case_number(9, (uint32_t)i)));
    struct layer_case c = {
        .name = s->name, .shape = s, .forward = conv_forward, .backward = conv_backward};
    c.codes = codes;
    case_add(&c, "w", 1, window_patch(w) * w->filters, false);
    case_add(&c, "bias", 1, w->filters, false);
    case_add(&c, "y", s->rows, result, true);
    if (!s->bytes)
        case_add(&c, "x", s->rows, image, false);
    check(&c);
    case_cleanup(&c);
    free(codes);
}

/* Patches of an odd number of values, of which the last ones have no other beside them. */
static void a_nan_is_seen_by_the_windows_over_it_alone(void **state)
{
    (void)state;
    enum { WIDTH = 9, KERNEL = 3, RESULT = WIDTH - KERNEL + 1 };
    struct window window = WINDOW(1, WIDTH, 1, 1, KERNEL, 1, 1, 0, 0, 1);
    for (const struct backend *const *b = every_backend(); *b; b++) {
        void *scratch = case_scratch((*b)->conv_bf16->scratch(&window), *b);
        for (size_t at = 0; at < WIDTH; at++) {
            float x[WIDTH] = {0}, y[RESULT];
            x[at] = NAN;
            (*b)->conv_bf16->forward(&(struct conv_forward_job){.window = window,
                                                                .x = x,
                                                                .w = (float[]){1, 2, 3},
                                                                .bias = (float[]){4},
                                                                .y = y,
                                                                .x_stride = WIDTH,
                                                                .y_stride = RESULT,
                                                                .rows = 1,
                                                                .scratch = scratch});
            for (size_t i = 0; i < RESULT; i++)
                if (isnan(y[i]) != (i <= at && at < i + KERNEL))
                    fail_msg("%s: a NaN at %zu makes y[%zu] %g", (*b)->name, at, i, (double)y[i]);
        }
        free(scratch);
    }
}

/* ---- both --------------------------------------------------------------------------------- */

static void against_golden(struct layer_case *c)
{
    check_golden(c, golden_layers, sizeof golden_layers / sizeof golden_layers[0]);
}

static void against_the_reference(struct layer_case *c)
{
    check_backends(c, 1e-5);
}

static void rounded_products_are_those_of_pytorch(void **state)
{
    (void)state;
    on_linear(&(struct linear_shape){"linear_bf16", 3, 7, 5, 0, 0}, against_golden);
    on_conv(&(struct conv_shape){"conv_bf16", WINDOW(5, 6, 4, 3, 3, 2, 2, 1, 1, 3), .rows = 2},
            against_golden);
}

static void every_linear_layer_is_that_of_the_reference(void **state)
{
    (void)state;
    static const struct linear_shape shapes[] = {
        {"one", 1, 1, 1, 0, 0},
        {"one row", 1, 37, 70, ACTIVATION_RELU, ACTIVATION_RELU},
        {"one row of pairs", 1, 64, 64, ACTIVATION_TANH, ACTIVATION_TANH},
        {"two rows", 2, 1, 16, 0, ACTIVATION_ELU},
        {"odd", 7, 33, 19, ACTIVATION_SIGMOID, ACTIVATION_TANH},
        {"few outputs", 13, 130, 3, 0, ACTIVATION_RELU},
        {"few inputs", 65, 3, 129, ACTIVATION_RELU, 0},
        {"a panel", 12, 512, 64, ACTIVATION_RELU, ACTIVATION_RELU},
        {"more than a block", 21, 601, 67, ACTIVATION_ELU, ACTIVATION_SIGMOID},
        {"many rows", 331, 17, 31, ACTIVATION_RELU, ACTIVATION_RELU},
        {"deep gradients", 5, 18, 530, ACTIVATION_SOFTPLUS, ACTIVATION_SOFTPLUS},
        {"whole tiles", 32, 64, 96, ACTIVATION_RELU, ACTIVATION_RELU},
        {"a tile and one", 17, 65, 33, ACTIVATION_RELU, ACTIVATION_TANH},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        on_linear(&shapes[i], against_the_reference);
}

static void every_convolution_is_that_of_the_reference(void **state)
{
    (void)state;
    static const struct conv_shape shapes[] = {
        {"like conv1", WINDOW(20, 20, 4, 8, 8, 4, 4, 0, 0, 32), .rows = 3, .bytes = true},
        {"like conv2", WINDOW(12, 12, 32, 4, 4, 2, 2, 0, 0, 64), .rows = 2,
         .activation = ACTIVATION_RELU, .gate = ACTIVATION_RELU},
        {"like conv3", WINDOW(9, 9, 64, 3, 3, 1, 1, 0, 0, 64), .rows = 3,
         .activation = ACTIVATION_RELU, .gate = ACTIVATION_RELU},
        {"residual", WINDOW(11, 11, 16, 3, 3, 1, 1, 1, 1, 16), .rows = 3, .gate = ACTIVATION_TANH},
        {"one of everything", WINDOW(1, 1, 1, 1, 1, 1, 1, 0, 0, 1), .rows = 1},
        {"one by one", WINDOW(7, 5, 19, 1, 1, 1, 1, 0, 0, 33), .rows = 2},
        {"odd", WINDOW(9, 7, 5, 3, 2, 2, 3, 2, 1, 17), .rows = 3, .activation = ACTIVATION_ELU,
         .gate = ACTIVATION_SIGMOID},
        {"odd bytes", WINDOW(9, 13, 3, 5, 4, 3, 2, 1, 2, 7), .rows = 5, .bytes = true,
         .activation = ACTIVATION_SOFTPLUS},
        {"a wide image", WINDOW(1, 150, 2, 1, 9, 1, 1, 0, 4, 70), .rows = 2},
        {"many pixels", WINDOW(23, 25, 2, 2, 2, 1, 1, 0, 0, 6), .rows = 2},
        {"a stride past the window", WINDOW(9, 9, 3, 2, 2, 3, 3, 0, 0, 5), .rows = 2},
        {"a window as large as the image", WINDOW(6, 6, 8, 6, 6, 1, 1, 0, 0, 24), .rows = 4},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        on_conv(&shapes[i], against_the_reference);
}

/* ---- plans -------------------------------------------------------------------------------- */

enum { ROWS = 21, OUTPUTS = 5, PIXELS = 36 * 36 * 2 };

/* What a plan makes of random numbers. */
struct made {
    size_t count;
    float *out, *grads;
};

static struct made make(const trp_net_spec *spec, const char *device_name, trp_precision precision,
                        uint32_t threads)
{
    trp_rng rng;
    trp_device *device;
    trp_net *net;
    trp_rng_init(&rng, 3, 4);
    OR_FAIL(trp_device_find(&device, device_name));
    OR_FAIL(trp_net_create(&net, &(trp_net_options){.spec = spec,
                                                    .batch = ROWS,
                                                    .device = device,
                                                    .threads = threads,
                                                    .precision = precision}));
    struct made made = {.count = trp_net_param_count(spec)};
    float *params = trp_floats_create(made.count);
    made.grads = trp_floats_create(made.count);
    made.out = trp_floats_create(ROWS * OUTPUTS);
    trp_net_init(spec, &rng, params);
    float *dout = random_floats(&rng, ROWS * OUTPUTS, 1.0 / ROWS);
    uint8_t *pixels = xmalloc(ROWS * PIXELS);
    for (size_t i = 0; i < ROWS * PIXELS; i++)
        pixels[i] = (uint8_t)trp_rng_below(&rng, 256);
    trp_net_resample(net, NULL, &rng);
    forward_one(net, params, pixels, ROWS, made.out);
    backward_one(net, params, pixels, dout, made.grads);
    trp_net_destroy(net);
    trp_floats_destroy(params);
    free(dout);
    free(pixels);
    return made;
}

static void made_free(struct made *made)
{
    trp_floats_destroy(made->out);
    trp_floats_destroy(made->grads);
}

static double distance(const float *a, const float *b, size_t count)
{
    double sum = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        sum += pow((double)a[i] - (double)b[i], 2);
        size += pow((double)b[i], 2);
    }
    return sqrt(sum / size);
}

static trp_net_spec nature(bool noisy)
{
    return trp_nature_cnn(&(trp_cnn_options){
        .height = 36, .width = 36, .channels = 2, .outputs = OUTPUTS, .noisy = noisy});
}

/* One layer that reads all pixels. */
static trp_net_spec one_layer(trp_layer_kind kind)
{
    trp_net_spec spec = {0};
    uint32_t x = trp_net_add(
        &spec, (trp_layer){.kind = TRP_INPUT, .dtype = TRP_UINT8, .shape = {36, 36, 2}});
    trp_layer layer = {.kind = kind, .name = "one", .from = {x}, .size = OUTPUTS};
    layer.kernel = kind == TRP_CONV2D ? 36 : 0;
    trp_net_output(&spec, trp_net_add(&spec, layer));
    return spec;
}

/* Between the layers is a rounding that the last bit of a float decides, so a few numbers differ by
 * a step of 2^-8; all of them together hardly do. A plan of floats is further away. */
static void assert_plans_agree(const trp_net_spec *spec)
{
    struct made want = make(spec, "ref", TRP_BF16, 1), got = make(spec, "cpu", TRP_BF16, 1);
    struct made floats = make(spec, "cpu", TRP_F32, 1);
    double out = distance(got.out, want.out, ROWS * OUTPUTS);
    double grads = distance(got.grads, want.grads, want.count);
    if (!(out < 3e-4 && grads < 3e-4))
        fail_msg("outputs differ by %g, gradients by %g", out, grads);
    double off = distance(floats.out, want.out, ROWS * OUTPUTS);
    double grads_off = distance(floats.grads, want.grads, want.count);
    if (!(off > 5 * out && off > 3e-4 && grads_off > 5 * grads && grads_off > 3e-4))
        fail_msg("outputs of floats differ by %g, gradients by %g", off, grads_off);
    assert_true(grads_off < 0.05);
    made_free(&want);
    made_free(&got);
    made_free(&floats);
}

static void a_plan_is_that_of_the_reference(void **state)
{
    (void)state;
    const trp_net_spec specs[] = {nature(false), nature(true), one_layer(TRP_LINEAR),
                                  one_layer(TRP_NOISY_LINEAR), one_layer(TRP_CONV2D)};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        assert_plans_agree(&specs[i]);
}

static void a_plan_repeats_its_bits_and_threads_change_no_output(void **state)
{
    (void)state;
    trp_net_spec spec = nature(false);
    struct made once = make(&spec, "cpu", TRP_BF16, 1), shared = make(&spec, "cpu", TRP_BF16, 2);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        struct made again = make(&spec, "cpu", TRP_BF16, threads);
        const struct made *before = threads == 1 ? &once : &shared;
        assert_memory_equal(again.out, once.out, ROWS * OUTPUTS * sizeof(float));
        assert_memory_equal(again.grads, before->grads, again.count * sizeof(float));
        made_free(&again);
    }
    assert_close(shared.grads, once.grads, once.count, 1e-6, "gradient");
    made_free(&once);
    made_free(&shared);
}

static void a_precision_that_there_is_not_is_refused(void **state)
{
    (void)state;
    trp_net *net = NULL;
    trp_net_spec spec = nature(false);
    trp_net_options options = {.spec = &spec, .precision = (trp_precision)9};
    assert_int_equal(trp_net_create(&net, &options), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "precision 9"));
    assert_null(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_are_rounded_to_the_nearest_or_the_even_one),
        cmocka_unit_test(a_nan_stays_one),
        cmocka_unit_test(sums_are_of_floats),
        cmocka_unit_test(a_nan_is_seen_by_the_windows_over_it_alone),
        cmocka_unit_test(rounded_products_are_those_of_pytorch),
        cmocka_unit_test(every_linear_layer_is_that_of_the_reference),
        cmocka_unit_test(every_convolution_is_that_of_the_reference),
        cmocka_unit_test(a_plan_is_that_of_the_reference),
        cmocka_unit_test(a_plan_repeats_its_bits_and_threads_change_no_output),
        cmocka_unit_test(a_precision_that_there_is_not_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
