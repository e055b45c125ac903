/* Products whose factors are rounded to bfloat16, on any processor: rounded copies in the scratch,
 * and the kernels for floats. Rows are taken in groups, images one by one. */

enum { ROUNDED_ROWS = 64 };

static void round_floats(float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = bf16_rounded(from[i]);
}

/* A group's rows, side by side. */
static void round_rows(float *to, const float *from, size_t stride, size_t rows, size_t columns)
{
    for (size_t row = 0; row < rows; row++)
        round_floats(to + row * columns, from + row * stride, columns);
}

/* Behind the scratch of the kernels: w, and a group's x and dy. */
static size_t rounded_scratch(uint32_t inputs, uint32_t outputs)
{
    return simd_scratch(inputs, outputs) + (size_t)inputs * outputs +
           ROUNDED_ROWS * ((size_t)inputs + outputs);
}

static uint32_t rounded_group(uint32_t rows, uint32_t first)
{
    return rows - first < ROUNDED_ROWS ? rows - first : ROUNDED_ROWS;
}

static void rounded_forward(const struct forward_job *job)
{
    struct forward_job group = *job;
    size_t weights = (size_t)job->inputs * job->outputs;
    float *w = (float *)job->scratch + simd_scratch(job->inputs, job->outputs), *x = w + weights;
    round_floats(w, job->w, weights);
    group.w = w;
    group.x = x;
    group.x_stride = job->inputs;
    for (uint32_t row = 0; row < job->rows; row += group.rows) {
        group.rows = rounded_group(job->rows, row);
        group.y = (float *)job->y + row * job->y_stride;
        round_rows(x, (const float *)job->x + row * job->x_stride, job->x_stride, group.rows,
                   job->inputs);
        forward_rows(&group);
    }
    if (job->activation > ACTIVATION_RELU)
        simd_activate(job->activation, job->y, job->y_stride, job->rows, job->outputs);
}

/* The gradient of a group of rows: the bias's is a sum, and a gate sees what x was. */
static void rounded_backward_group(struct backward_job *group, float *w, float *x, float *dy)
{
    struct backward_job product = *group;
    product.w = w;
    product.dy = dy;
    product.dy_stride = group->outputs;
    round_rows(dy, group->dy, group->dy_stride, group->rows, group->outputs);
    if (group->dx)
        backward_input(&product);
    if (!group->dw)
        return;
    backward_bias(group);
    round_rows(x, group->x, group->x_stride, group->rows, group->inputs);
    product.x = x;
    product.x_stride = group->inputs;
    backward_weights(&product);
}

static void rounded_backward(const struct backward_job *job)
{
    struct backward_job group = *job;
    size_t weights = (size_t)job->inputs * job->outputs;
    float *w = (float *)job->scratch + simd_scratch(job->inputs, job->outputs), *x = w + weights;
    if (job->dx)
        round_floats(w, job->w, weights);
    for (uint32_t row = 0; row < job->rows; row += group.rows) {
        group.rows = rounded_group(job->rows, row);
        group.x = (const float *)job->x + row * job->x_stride;
        group.dy = (const float *)job->dy + row * job->dy_stride;
        group.dx = job->dx ? (float *)job->dx + row * job->dx_stride : NULL;
        rounded_backward_group(&group, w, x, x + (size_t)ROUNDED_ROWS * job->inputs);
        group.overwrite = false;
    }
}

/* ---- convolutions ------------------------------------------------------------------------ */

/* One image's x and dy, the weights, and room for a bias that nobody wants. */
struct rounded_image {
    size_t pixels; /* of a result */
    float *w, *x, *dy, *dbias;
};

static size_t rounded_conv_scratch(const struct window *window)
{
    size_t pixels = (size_t)window_out_height(window) * window_out_width(window);
    return simd_conv_scratch(window) + window_patch(window) * window->filters + image_size(window) +
           (pixels + 1) * window->filters;
}

static struct rounded_image rounded_image(const struct window *window, const float *weights,
                                          float *scratch)
{
    struct rounded_image r = {.pixels =
                                  (size_t)window_out_height(window) * window_out_width(window),
                              .w = scratch + simd_conv_scratch(window)};
    size_t count = window_patch(window) * window->filters;
    round_floats(r.w, weights, count);
    r.x = r.w + count;
    r.dy = r.x + image_size(window);
    r.dbias = r.dy + r.pixels * window->filters;
    return r;
}

static void round_image(float *to, const void *from, bool bytes, size_t count)
{
    if (bytes)
        floats_of_bytes(to, from, count);
    round_floats(to, bytes ? to : from, count);
}

static void rounded_conv_forward(const struct conv_forward_job *job)
{
    struct rounded_image r = rounded_image(&job->window, job->w, job->scratch);
    struct conv_forward_job one = *job;
    one.rows = 1;
    one.bytes = false;
    one.w = r.w;
    one.x = r.x;
    for (size_t row = 0; row < job->rows; row++) {
        one.y = (float *)job->y + row * job->y_stride;
        round_image(r.x, image_at(job->x, job->bytes, row * job->x_stride), job->bytes,
                    image_size(&job->window));
        simd_conv_forward(&one);
    }
}

static void rounded_conv_weights(const struct rounded_image *r, const struct conv_backward_job *job,
                                 const struct conv_backward_job *one)
{
    struct conv_backward_job weights = *one;
    backward_bias(&(struct backward_job){.dy = job->dy,
                                         .dy_stride = job->window.filters,
                                         .dbias = job->dbias,
                                         .rows = (uint32_t)r->pixels,
                                         .outputs = job->window.filters,
                                         .overwrite = job->overwrite});
    round_image(r->x, job->x, job->bytes, image_size(&job->window));
    weights.x = r->x;
    weights.bytes = false;
    weights.dbias = r->dbias;
    weights.dx = NULL;
    memset(r->dbias, 0, job->window.filters * sizeof *r->dbias);
    simd_conv_backward(&weights);
}

static void rounded_conv_backward(const struct conv_backward_job *job)
{
    struct rounded_image r = rounded_image(&job->window, job->w, job->scratch);
    struct conv_backward_job image = *job;
    image.rows = 1;
    for (size_t row = 0; row < job->rows; row++) {
        image.x = image_at(job->x, job->bytes, row * job->x_stride);
        image.dy = (const float *)job->dy + row * job->dy_stride;
        image.dx = job->dx ? (float *)job->dx + row * job->dx_stride : NULL;
        struct conv_backward_job product = image;
        product.w = r.w;
        product.dy = r.dy;
        round_floats(r.dy, image.dy, r.pixels * job->window.filters);
        if (job->dw)
            rounded_conv_weights(&r, &image, &product);
        product.dw = product.dbias = NULL;
        if (job->dx)
            simd_conv_backward(&product);
        image.overwrite = false;
    }
}

static const struct linear_kernels rounded_linear = {
    .name = BACKEND_NAME " bf16",
    .scratch = rounded_scratch,
    .forward = rounded_forward,
    .backward = rounded_backward,
};

static const struct conv_kernels rounded_conv = {
    .scratch = rounded_conv_scratch,
    .forward = rounded_conv_forward,
    .backward = rounded_conv_backward,
};
