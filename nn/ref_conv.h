/* Convolutions and pools, for REAL and NAME(). */

static size_t NAME(conv_scratch)(const struct window *window)
{
    (void)window;
    return 0;
}

/* Where position (ky, kx) of the window over (oy, ox) lies in an image; false: in the padding. */
static bool NAME(window_at)(const struct window *w, size_t oy, size_t ox, size_t ky, size_t kx,
                            size_t *pixel)
{
    size_t y = oy * w->stride_height + ky, x = ox * w->stride_width + kx;
    if (y < w->pad_height || x < w->pad_width)
        return false;
    y -= w->pad_height;
    x -= w->pad_width;
    *pixel = y * w->width + x;
    return y < w->height && x < w->width;
}

/* The value of x under element k of the patch over (oy, ox) of image `row`. */
static REAL NAME(patch_value)(const struct window *w, const void *x, bool bytes, size_t row,
                              size_t oy, size_t ox, size_t k)
{
    size_t channel = k % w->channels, position = k / w->channels, pixel;
    if (!NAME(window_at)(w, oy, ox, position / w->kernel_width, position % w->kernel_width, &pixel))
        return 0;
    size_t at = row + pixel * w->channels + channel;
    return bytes ? (REAL)((const uint8_t *)x)[at] / 255 : ((const REAL *)x)[at];
}

static void NAME(conv_forward_by)(const struct conv_forward_job *job, bool bf16)
{
    const struct window *window = &job->window;
    const REAL *w = job->w, *bias = job->bias;
    size_t width = window_out_width(window), patch = window_patch(window);
    size_t pixels = window_out_height(window) * width, filters = window->filters;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t pixel = 0; pixel < pixels; pixel++) {
            REAL *y = (REAL *)job->y + row * job->y_stride + pixel * filters;
            for (size_t f = 0; f < filters; f++) {
                REAL sum = bias[f];
                for (size_t k = 0; k < patch; k++)
                    sum += NAME(factor)(w[k * filters + f], bf16) *
                           NAME(factor)(NAME(patch_value)(window, job->x, job->bytes,
                                                          row * job->x_stride, pixel / width,
                                                          pixel % width, k),
                                        bf16);
                y[f] = NAME(activated)(job->activation, sum);
            }
        }
}

static void NAME(conv_backward_weights)(const struct conv_backward_job *job, bool bf16)
{
    const struct window *window = &job->window;
    REAL *dw = job->dw, *dbias = job->dbias;
    size_t width = window_out_width(window), patch = window_patch(window);
    size_t pixels = window_out_height(window) * width, filters = window->filters;
    if (job->overwrite) {
        memset(dw, 0, patch * filters * sizeof *dw);
        memset(dbias, 0, filters * sizeof *dbias);
    }
    for (size_t row = 0; row < job->rows; row++)
        for (size_t pixel = 0; pixel < pixels; pixel++) {
            const REAL *dy = (const REAL *)job->dy + row * job->dy_stride + pixel * filters;
            for (size_t f = 0; f < filters; f++)
                dbias[f] += dy[f];
            for (size_t k = 0; k < patch; k++) {
                REAL x = NAME(patch_value)(window, job->x, job->bytes, row * job->x_stride,
                                           pixel / width, pixel % width, k);
                for (size_t f = 0; f < filters; f++)
                    dw[k * filters + f] += NAME(factor)(x, bf16) * NAME(factor)(dy[f], bf16);
            }
        }
}

/* The sum over all windows that see channel `channel` of a pixel. */
static REAL NAME(conv_dx)(const struct conv_backward_job *job, bool bf16, const REAL *dy,
                          size_t pixel, size_t channel)
{
    const struct window *window = &job->window;
    const REAL *w = job->w;
    size_t width = window_out_width(window), filters = window->filters;
    size_t pixels = window_out_height(window) * width;
    size_t positions = (size_t)window->kernel_height * window->kernel_width;
    REAL sum = 0;
    for (size_t out = 0; out < pixels; out++)
        for (size_t p = 0; p < positions; p++) {
            size_t seen;
            if (!NAME(window_at)(window, out / width, out % width, p / window->kernel_width,
                                 p % window->kernel_width, &seen) ||
                seen != pixel)
                continue;
            for (size_t f = 0; f < filters; f++)
                sum += NAME(factor)(dy[out * filters + f], bf16) *
                       NAME(factor)(w[(p * window->channels + channel) * filters + f], bf16);
        }
    return sum;
}

static void NAME(conv_backward_by)(const struct conv_backward_job *job, bool bf16)
{
    const struct window *window = &job->window;
    if (job->dw)
        NAME(conv_backward_weights)(job, bf16);
    if (!job->dx)
        return;
    size_t values = (size_t)window->height * window->width * window->channels;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t i = 0; i < values; i++) {
            const REAL *x = (const REAL *)job->x + row * job->x_stride;
            const REAL *dy = (const REAL *)job->dy + row * job->dy_stride;
            REAL *dx = (REAL *)job->dx + row * job->dx_stride;
            REAL sum = NAME(conv_dx)(job, bf16, dy, i / window->channels, i % window->channels) *
                       NAME(slope)(job->gate, x[i]);
            dx[i] = job->accumulate_dx ? dx[i] + sum : sum;
        }
}

static void NAME(conv_forward)(const struct conv_forward_job *job)
{
    NAME(conv_forward_by)(job, false);
}

static void NAME(conv_backward)(const struct conv_backward_job *job)
{
    NAME(conv_backward_by)(job, false);
}

static void NAME(conv_forward_bf16)(const struct conv_forward_job *job)
{
    NAME(conv_forward_by)(job, true);
}

static void NAME(conv_backward_bf16)(const struct conv_backward_job *job)
{
    NAME(conv_backward_by)(job, true);
}

static REAL NAME(pool_max)(const struct window *window, const REAL *x, size_t oy, size_t ox,
                           size_t channel, uint8_t *index)
{
    REAL best = -INFINITY;
    *index = 0;
    bool any = false;
    for (size_t p = 0; p < (size_t)window->kernel_height * window->kernel_width; p++) {
        size_t pixel;
        if (!NAME(window_at)(window, oy, ox, p / window->kernel_width, p % window->kernel_width,
                             &pixel))
            continue;
        REAL value = x[pixel * window->channels + channel];
        if (!any || value > best || isnan(value)) {
            best = value;
            *index = (uint8_t)p;
        }
        any = true;
    }
    return best;
}

static REAL NAME(pool_mean)(const struct window *window, const REAL *x, size_t oy, size_t ox,
                            size_t channel)
{
    size_t positions = (size_t)window->kernel_height * window->kernel_width;
    REAL sum = 0;
    for (size_t p = 0; p < positions; p++) {
        size_t pixel;
        if (NAME(window_at)(window, oy, ox, p / window->kernel_width, p % window->kernel_width,
                            &pixel))
            sum += x[pixel * window->channels + channel];
    }
    return sum / (REAL)positions;
}

static void NAME(pool_forward)(const struct pool_job *job)
{
    const struct window *window = &job->window;
    size_t channels = window->channels, width = window_out_width(window);
    size_t values = window_out_height(window) * width * channels;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t i = 0; i < values; i++) {
            const REAL *x = (const REAL *)job->in + row * job->in_stride;
            REAL *y = (REAL *)job->out + row * job->out_stride;
            size_t oy = i / channels / width, ox = i / channels % width;
            uint8_t index;
            if (job->kind == POOL_MEAN) {
                y[i] = NAME(pool_mean)(window, x, oy, ox, i % channels);
                continue;
            }
            y[i] = NAME(pool_max)(window, x, oy, ox, i % channels, &index);
            if (job->index)
                job->index[row * values + i] = index;
        }
}

/* Gives the gradient of one value of the result to what it was made of. */
static void NAME(pool_spread)(const struct pool_job *job, REAL *dx, size_t i, size_t index, REAL dy)
{
    const struct window *window = &job->window;
    size_t channels = window->channels, width = window_out_width(window), pixel;
    size_t oy = i / channels / width, ox = i / channels % width;
    size_t positions = (size_t)window->kernel_height * window->kernel_width;
    for (size_t p = 0; p < positions; p++) {
        if (job->kind == POOL_MAX && p != index)
            continue;
        if (NAME(window_at)(window, oy, ox, p / window->kernel_width, p % window->kernel_width,
                            &pixel))
            dx[pixel * channels + i % channels] +=
                job->kind == POOL_MAX ? dy : dy / (REAL)positions;
    }
}

static void NAME(pool_backward)(const struct pool_job *job)
{
    const struct window *window = &job->window;
    size_t values = (size_t)window_out_height(window) * window_out_width(window) * window->channels;
    size_t inputs = (size_t)window->height * window->width * window->channels;
    for (size_t row = 0; row < job->rows; row++) {
        const REAL *dy = (const REAL *)job->in + row * job->in_stride;
        REAL *dx = (REAL *)job->out + row * job->out_stride;
        if (!job->accumulate)
            memset(dx, 0, inputs * sizeof *dx);
        for (size_t i = 0; i < values; i++) {
            size_t index = job->kind == POOL_MAX ? job->index[row * values + i] : 0;
            NAME(pool_spread)(job, dx, i, index, dy[i]);
        }
    }
}

static const struct conv_kernels NAME(conv_kernels) = {
    .scratch = NAME(conv_scratch),
    .forward = NAME(conv_forward),
    .backward = NAME(conv_backward),
    .pool_forward = NAME(pool_forward),
    .pool_backward = NAME(pool_backward),
};

static const struct conv_kernels NAME(conv_bf16_kernels) = {
    .scratch = NAME(conv_scratch),
    .forward = NAME(conv_forward_bf16),
    .backward = NAME(conv_backward_bf16),
};
