/* Activations, layer norm, embedding and noisy weights. */
#include "layer_case.h"

#include "golden_layers.h"

struct small_shape {
    const char *name;
    uint32_t rows, columns, width, vocabulary;
    enum activation activation;
    bool plain; /* no gain and bias; no noise */
};

static void against_golden(struct layer_case *c)
{
    check_golden(c, golden_layers, sizeof golden_layers / sizeof golden_layers[0]);
}

static void against_the_reference(struct layer_case *c)
{
    check_backends(c, 1e-5);
}

typedef void small_layer(const struct small_shape *s, void (*check)(struct layer_case *));

static void on_each(small_layer *layer, const struct small_shape *shapes, size_t count,
                    void (*check)(struct layer_case *))
{
    for (size_t i = 0; i < count; i++)
        layer(&shapes[i], check);
}

#define EACH(layer, shapes, check) on_each(layer, shapes, sizeof shapes / sizeof shapes[0], check)

/* ---- activations ------------------------------------------------------------------------- */

static void activation_forward(struct layer_case *c, const struct backend *backend)
{
    const struct small_shape *s = c->shape;
    backend->activation->forward(&(struct activation_job){
        .activation = s->activation,
        .in = c->blobs[0].v,
        .out = c->blobs[1].v,
        .in_stride = c->blobs[0].stride,
        .out_stride = c->blobs[1].stride,
        .rows = s->rows,
        .columns = s->columns,
    });
}

static void activation_backward(struct layer_case *c, const struct backend *backend)
{
    const struct small_shape *s = c->shape;
    const struct blob *kept = &c->blobs[activation_keeps_input(s->activation) ? 0 : 1];
    backend->activation->backward(&(struct activation_job){
        .activation = s->activation,
        .in = c->blobs[1].g,
        .kept = kept->v,
        .out = c->blobs[0].g,
        .in_stride = c->blobs[1].stride,
        .kept_stride = kept->stride,
        .out_stride = c->blobs[0].stride,
        .rows = s->rows,
        .columns = s->columns,
        .accumulate = !c->overwrite,
    });
}

/* Up to `width`, both ways. */
static void on_activation(const struct small_shape *s, void (*check)(struct layer_case *))
{
    struct layer_case c = {.name = s->name,
                           .shape = s,
                           .forward = activation_forward,
                           .backward = activation_backward};
    case_add(&c, "x", s->rows, s->columns, false);
    for (size_t i = 0; i < s->rows * s->columns; i++)
        c.blobs[0].value[i] *= s->width;
    case_add(&c, "y", s->rows, s->columns, true);
    check(&c);
    case_cleanup(&c);
}

#define ACTIVATIONS(rows, columns, width)                                                          \
    {"none", rows, columns, width, 0, ACTIVATION_NONE, 0},                                         \
        {"relu", rows, columns, width, 0, ACTIVATION_RELU, 0},                                     \
        {"tanh", rows, columns, width, 0, ACTIVATION_TANH, 0},                                     \
        {"sigmoid", rows, columns, width, 0, ACTIVATION_SIGMOID, 0},                               \
        {"elu", rows, columns, width, 0, ACTIVATION_ELU, 0},                                       \
        {"softplus", rows, columns, width, 0, ACTIVATION_SOFTPLUS, 0},                             \
        {"silu", rows, columns, width, 0, ACTIVATION_SILU, 0},                                     \
        {"gelu", rows, columns, width, 0, ACTIVATION_GELU, 0},                                     \
        {"gelu_tanh", rows, columns, width, 0, ACTIVATION_GELU_TANH, 0},

static const struct small_shape golden_activations[] = {ACTIVATIONS(2, 4, 3)};

static void activations_are_those_of_pytorch(void **state)
{
    (void)state;
    on_each(on_activation, golden_activations + 1, 8, against_golden);
}

static void slopes_of_activations_are_finite_differences(void **state)
{
    (void)state;
    EACH(on_activation, golden_activations, check_finite_differences);
}

static void every_backend_activates_as_the_reference(void **state)
{
    (void)state;
    static const struct small_shape shapes[] = {ACTIVATIONS(3, 67, 1) ACTIVATIONS(1, 500, 12)
                                                    ACTIVATIONS(2, 33, 200) ACTIVATIONS(1, 1, 1)};
    EACH(on_activation, shapes, against_the_reference);
}

/* Values and slopes stay numbers at the ends of floats, and a NaN stays one. */
static void activations_have_ends(void **state)
{
    (void)state;
    const float x[6] = {-INFINITY, -1e30f, -100, 100, 1e30f, NAN};
    for (const struct backend *const *b = every_backend(); *b; b++)
        for (int a = ACTIVATION_RELU; (*b)->activation && a <= ACTIVATION_GELU_TANH; a++) {
            float y[6], dx[6], ones[6] = {1, 1, 1, 1, 1, 1};
            (*b)->activation->forward(&(struct activation_job){
                .activation = (enum activation)a, .in = x, .out = y, .rows = 1, .columns = 6});
            (*b)->activation->backward(&(struct activation_job){
                .activation = (enum activation)a,
                .in = ones,
                .kept = activation_keeps_input((enum activation)a) ? x : y,
                .out = dx,
                .rows = 1,
                .columns = 6,
            });
            for (int i = 1; i < 5; i++)
                if (!isfinite(y[i]) || !isfinite(dx[i]) || fabsf(dx[i]) > 1.001f)
                    fail_msg("%s: activation %d of %g is %g, its slope %g", (*b)->name, a,
                             (double)x[i], (double)y[i], (double)dx[i]);
            assert_true(isnan(y[5]));
        }
}

static void sums_and_copies_keep_to_their_columns(void **state)
{
    (void)state;
    for (const struct backend *const *b = every_backend(); *b; b++) {
        if (!(*b)->activation)
            continue;
        float left[3][40], right[3][50], sum[3][45];
        for (size_t row = 0; row < 3; row++) {
            for (size_t i = 0; i < 40; i++)
                left[row][i] = (float)(40 * row + i);
            for (size_t i = 0; i < 50; i++)
                right[row][i] = (float)(1000 * i - row);
        }
        memset(sum, 0xff, sizeof sum);
        struct add_job job = {left, right, sum[0] + 1, 40, 50, 45, 3, 37};
        (*b)->activation->add(&job);
        for (size_t row = 0; row < 3; row++)
            for (size_t i = 0; i < 45; i++)
                assert_true(i == 0 || i > 37 ? isnan(sum[row][i])
                                             : sum[row][i] == left[row][i - 1] + right[row][i - 1]);
        job.b = NULL;
        (*b)->activation->add(&job);
        for (size_t row = 0; row < 3; row++)
            assert_memory_equal(&sum[row][1], left[row], 37 * sizeof(float));
    }
}

/* ---- layer norm -------------------------------------------------------------------------- */

enum { NORM_GAIN, NORM_BIAS, NORM_X, NORM_Y };

static void norm_forward(struct layer_case *c, const struct backend *backend)
{
    const struct small_shape *s = c->shape;
    c->kept = case_scratch(2 * (size_t)s->rows, backend);
    backend->layer->norm_forward(&(struct norm_forward_job){
        .x = c->blobs[NORM_X].v,
        .gain = s->plain ? NULL : c->blobs[NORM_GAIN].v,
        .bias = s->plain ? NULL : c->blobs[NORM_BIAS].v,
        .y = c->blobs[NORM_Y].v,
        .kept = c->kept,
        .x_stride = c->blobs[NORM_X].stride,
        .y_stride = c->blobs[NORM_Y].stride,
        .rows = s->rows,
        .columns = s->columns,
        .epsilon = 1e-5,
    });
}

static void norm_backward(struct layer_case *c, const struct backend *backend)
{
    const struct small_shape *s = c->shape;
    if (s->plain) {
        blob_zero(&c->blobs[NORM_GAIN], backend->element_bytes);
        blob_zero(&c->blobs[NORM_BIAS], backend->element_bytes);
    }
    backend->layer->norm_backward(&(struct norm_backward_job){
        .x = c->blobs[NORM_X].v,
        .gain = s->plain ? NULL : c->blobs[NORM_GAIN].v,
        .kept = c->kept,
        .dy = c->blobs[NORM_Y].g,
        .dgain = s->plain ? NULL : c->blobs[NORM_GAIN].g,
        .dbias = s->plain ? NULL : c->blobs[NORM_BIAS].g,
        .dx = c->blobs[NORM_X].g,
        .x_stride = c->blobs[NORM_X].stride,
        .dy_stride = c->blobs[NORM_Y].stride,
        .dx_stride = c->blobs[NORM_X].stride,
        .rows = s->rows,
        .columns = s->columns,
        .overwrite = c->overwrite,
        .accumulate_dx = !c->overwrite,
    });
}

static void on_norm(const struct small_shape *s, void (*check)(struct layer_case *))
{
    struct layer_case c = {
        .name = s->name, .shape = s, .forward = norm_forward, .backward = norm_backward};
    case_add(&c, "gain", 1, s->columns, false);
    case_add(&c, "bias", 1, s->columns, false);
    case_add(&c, "x", s->rows, s->columns, false);
    case_add(&c, "y", s->rows, s->columns, true);
    check(&c);
    case_cleanup(&c);
}

static const struct small_shape golden_norms[] = {
    {.name = "norm", .rows = 3, .columns = 5},
};

static void layer_norm_is_that_of_pytorch(void **state)
{
    (void)state;
    EACH(on_norm, golden_norms, against_golden);
}

static void gradients_of_layer_norm_are_finite_differences(void **state)
{
    (void)state;
    static const struct small_shape plain[] = {
        {.name = "plain norm", .rows = 2, .columns = 4, .plain = true}};
    EACH(on_norm, golden_norms, check_finite_differences);
    EACH(on_norm, plain, check_finite_differences);
}

static void every_backend_normalises_as_the_reference(void **state)
{
    (void)state;
    static const struct small_shape shapes[] = {
        {.name = "norm", .rows = 5, .columns = 64},
        {.name = "odd norm", .rows = 7, .columns = 37},
        {.name = "plain norm", .rows = 3, .columns = 50, .plain = true},
        {.name = "narrow norm", .rows = 4, .columns = 3},
        {.name = "one row", .rows = 1, .columns = 300},
    };
    EACH(on_norm, shapes, against_the_reference);
}

/* ---- embedding --------------------------------------------------------------------------- */

static void embedding_forward(struct layer_case *c, const struct backend *backend)
{
    const struct small_shape *s = c->shape;
    backend->layer->embedding_forward(&(struct embedding_job){
        .tokens = c->codes,
        .token_stride = s->columns,
        .rows = s->rows,
        .columns = s->columns,
        .vocabulary = s->vocabulary,
        .width = s->width,
        .table = c->blobs[0].v,
        .y = c->blobs[1].v,
        .y_stride = c->blobs[1].stride,
    });
}

static void embedding_backward(struct layer_case *c, const struct backend *backend)
{
    const struct small_shape *s = c->shape;
    backend->layer->embedding_backward(&(struct embedding_job){
        .tokens = c->codes,
        .token_stride = s->columns,
        .rows = s->rows,
        .columns = s->columns,
        .vocabulary = s->vocabulary,
        .width = s->width,
        .dy = c->blobs[1].g,
        .dtable = c->blobs[0].g,
        .y_stride = c->blobs[1].stride,
        .overwrite = c->overwrite,
    });
}

static void on_embedding(const struct small_shape *s, void (*check)(struct layer_case *))
{
    int32_t *tokens = xmalloc(s->rows * s->columns * sizeof *tokens);
    for (uint32_t i = 0; i < s->rows * s->columns; i++)
        tokens[i] = (int32_t)(s->vocabulary * (1 + case_number(7, i)) / 2);
    if (s->plain) { /* wrong ones among them */
        tokens[0] = -1;
        tokens[1] = (int32_t)s->vocabulary;
        tokens[2] = INT32_MIN;
    }
    struct layer_case c = {.name = s->name,
                           .shape = s,
                           .forward = embedding_forward,
                           .backward = embedding_backward,
                           .codes = tokens};
    case_add(&c, "table", 1, s->vocabulary * s->width, false);
    case_add(&c, "y", s->rows, s->columns * s->width, true);
    check(&c);
    case_cleanup(&c);
    free(tokens);
}

static const struct small_shape golden_embeddings[] = {
    {.name = "embedding", .rows = 3, .columns = 2, .width = 3, .vocabulary = 4},
};

static void embedding_is_that_of_pytorch(void **state)
{
    (void)state;
    EACH(on_embedding, golden_embeddings, against_golden);
}

static void a_token_outside_of_the_table_is_zeros_and_learns_nothing(void **state)
{
    (void)state;
    static const struct small_shape shapes[] = {
        {.name = "wrong", .rows = 3, .columns = 2, .width = 3, .vocabulary = 4, .plain = true},
        {.name = "wide", .rows = 9, .columns = 3, .width = 37, .vocabulary = 11, .plain = true},
    };
    EACH(on_embedding, golden_embeddings, check_finite_differences);
    EACH(on_embedding, shapes, check_finite_differences);
    EACH(on_embedding, shapes, against_the_reference);
}

/* ---- noisy weights ----------------------------------------------------------------------- */

enum { NOISY_W_MEAN, NOISY_W_SIGMA, NOISY_BIAS_MEAN, NOISY_BIAS_SIGMA, NOISY_W, NOISY_BIAS };

/* The noises lie behind each other in `kept`. */
static struct noisy_job noisy_job_of(struct layer_case *c, const struct backend *backend)
{
    const struct small_shape *s = c->shape;
    size_t bytes = backend->element_bytes;
    if (!c->kept && !s->plain) {
        c->kept = case_scratch(s->rows + s->columns, backend);
        for (size_t i = 0; i < s->rows + s->columns; i++)
            set_element(c->kept, bytes, i, case_number(8, (uint32_t)i));
    }
    const struct blob *blobs = c->blobs;
    return (struct noisy_job){
        .inputs = s->rows,
        .outputs = s->columns,
        .noise_in = c->kept,
        .noise_out = c->kept ? (char *)c->kept + s->rows * bytes : NULL,
        .w_mean = blobs[NOISY_W_MEAN].v,
        .w_sigma = blobs[NOISY_W_SIGMA].v,
        .bias_mean = blobs[NOISY_BIAS_MEAN].v,
        .bias_sigma = blobs[NOISY_BIAS_SIGMA].v,
        .w = blobs[NOISY_W].v,
        .bias = blobs[NOISY_BIAS].v,
        .dw = blobs[NOISY_W].g,
        .dbias = blobs[NOISY_BIAS].g,
        .dw_mean = blobs[NOISY_W_MEAN].g,
        .dw_sigma = blobs[NOISY_W_SIGMA].g,
        .dbias_mean = blobs[NOISY_BIAS_MEAN].g,
        .dbias_sigma = blobs[NOISY_BIAS_SIGMA].g,
        .overwrite = c->overwrite,
    };
}

static void noisy_forward(struct layer_case *c, const struct backend *backend)
{
    struct noisy_job job = noisy_job_of(c, backend);
    backend->layer->noisy_forward(&job);
}

static void noisy_backward(struct layer_case *c, const struct backend *backend)
{
    struct noisy_job job = noisy_job_of(c, backend);
    backend->layer->noisy_backward(&job);
}

static void on_noisy(const struct small_shape *s, void (*check)(struct layer_case *))
{
    struct layer_case c = {
        .name = s->name, .shape = s, .forward = noisy_forward, .backward = noisy_backward};
    case_add(&c, "w_mean", 1, s->rows * s->columns, false);
    case_add(&c, "w_sigma", 1, s->rows * s->columns, false);
    case_add(&c, "bias_mean", 1, s->columns, false);
    case_add(&c, "bias_sigma", 1, s->columns, false);
    case_add(&c, "w", 1, s->rows * s->columns, true);
    case_add(&c, "bias", 1, s->columns, true);
    check(&c);
    case_cleanup(&c);
}

static const struct small_shape golden_noises[] = {{.name = "noisy", .rows = 3, .columns = 4}};

static void noisy_weights_are_those_that_pytorch_makes(void **state)
{
    (void)state;
    EACH(on_noisy, golden_noises, against_golden);
}

static void every_backend_makes_the_same_noise(void **state)
{
    (void)state;
    static const struct small_shape shapes[] = {
        {.name = "noisy", .rows = 21, .columns = 37},
        {.name = "quiet", .rows = 5, .columns = 18, .plain = true},
        {.name = "one", .rows = 1, .columns = 1},
    };
    EACH(on_noisy, golden_noises, check_finite_differences);
    EACH(on_noisy, shapes, against_the_reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_those_of_pytorch),
        cmocka_unit_test(slopes_of_activations_are_finite_differences),
        cmocka_unit_test(every_backend_activates_as_the_reference),
        cmocka_unit_test(activations_have_ends),
        cmocka_unit_test(sums_and_copies_keep_to_their_columns),
        cmocka_unit_test(layer_norm_is_that_of_pytorch),
        cmocka_unit_test(gradients_of_layer_norm_are_finite_differences),
        cmocka_unit_test(every_backend_normalises_as_the_reference),
        cmocka_unit_test(embedding_is_that_of_pytorch),
        cmocka_unit_test(a_token_outside_of_the_table_is_zeros_and_learns_nothing),
        cmocka_unit_test(noisy_weights_are_those_that_pytorch_makes),
        cmocka_unit_test(every_backend_makes_the_same_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
