/* Convolutions as matrix products over patches: a block of patches is laid out in rows that stay in
 * the second cache, times the weights, which lie as a matrix [patch][filters] already. The gradient
 * of the weights is the same block transposed, times dy; that of the input is dy times the weights
 * transposed, added up where the patches came from. */

enum {
    PATCH_FLOATS = 32 * 1024, /* of a block: 128 KB */
    PATCHES_MIN = 24,         /* however large they are: several tiles */
};

/* Blocks of patches of all images, which are numbered through. */
struct patches {
    const struct window *window;
    size_t height, width, patch; /* of the result; values of a patch */
    size_t total, block;
    float *pack, *rows, *weights, *image; /* scratch */
};

static size_t patch_block(const struct window *window)
{
    size_t fit = PATCH_FLOATS / window_patch(window);
    return fit > PATCHES_MIN ? fit : PATCHES_MIN;
}

static size_t image_size(const struct window *w)
{
    return (size_t)w->height * w->width * w->channels;
}

/* The weights as panels, either way round. */
static size_t conv_packed_size(const struct window *window)
{
    size_t patch = window_patch(window);
    return larger(packed_size(patch, window->filters), packed_size(window->filters, patch));
}

static size_t simd_conv_scratch(const struct window *window)
{
    size_t patch = window_patch(window);
    return PANEL * DEPTH_BLOCK + patch_block(window) * patch + conv_packed_size(window) +
           image_size(window);
}

static struct patches patches_of(const struct window *window, uint32_t rows, float *scratch)
{
    size_t height = window_out_height(window), width = window_out_width(window);
    struct patches p = {
        .window = window,
        .height = height,
        .width = width,
        .patch = window_patch(window),
        .total = rows * height * width,
        .block = patch_block(window),
        .pack = scratch,
        .rows = scratch + PANEL * DEPTH_BLOCK,
    };
    p.weights = p.rows + p.block * p.patch;
    p.image = p.weights + conv_packed_size(window);
    return p;
}

/* How many patches from `first` on make a block: results of several images only where they follow
 * each other in memory. */
static size_t patches_in_block(const struct patches *p, size_t first, size_t stride)
{
    size_t pixels = p->height * p->width;
    size_t left = p->total - first;
    if (stride != pixels * p->window->filters)
        left = pixels - first % pixels;
    return left < p->block ? left : p->block;
}

/* One row of a window: where it lies in an image, and how much of it is padding. Counts are of
 * values. */
struct strip {
    size_t at, before, inside, after;
};

static struct strip strip_of(const struct window *w, size_t oy, size_t ox, size_t ky)
{
    size_t y = oy * w->stride_height + ky, x = ox * w->stride_width, channels = w->channels;
    size_t from = x < w->pad_width ? w->pad_width - x : 0; /* columns of the window outside */
    size_t end = w->width + w->pad_width - x;              /* a window is never all outside */
    if (end > w->kernel_width)
        end = w->kernel_width;
    if (y < w->pad_height || y - w->pad_height >= w->height)
        return (struct strip){.before = w->kernel_width * channels};
    return (struct strip){
        .at = ((y - w->pad_height) * w->width + x + from - w->pad_width) * channels,
        .before = from * channels,
        .inside = (end - from) * channels,
        .after = (w->kernel_width - end) * channels,
    };
}

static INLINE void floats_of_bytes(float *to, const uint8_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = (float)from[i] * (1.f / 255);
}

/* Strips are short: a vector at a time is faster than memcpy(). */
static INLINE void copy_strip(float *to, const float *from, size_t count)
{
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        store(to + i, load(from + i));
    if (i < count) {
        part lanes = part_of((unsigned)(count - i));
        store_part(to + i, load_part(from + i, lanes), lanes);
    }
}

static void patch_from(const struct patches *p, const void *image, bool bytes, size_t pixel,
                       float *to)
{
    const struct window *w = p->window;
    for (size_t ky = 0; ky < w->kernel_height; ky++) {
        struct strip s = strip_of(w, pixel / p->width, pixel % p->width, ky);
        for (size_t i = 0; i < s.before; i++)
            to[i] = 0;
        to += s.before;
        if (bytes)
            floats_of_bytes(to, (const uint8_t *)image + s.at, s.inside);
        else
            copy_strip(to, (const float *)image + s.at, s.inside);
        to += s.inside;
        for (size_t i = 0; i < s.after; i++)
            to[i] = 0;
        to += s.after;
    }
}

/* Lays out patches [first, first + count). */
static void patches_from(const struct patches *p, const void *x, size_t stride, bool bytes,
                         size_t first, size_t count)
{
    size_t pixels = p->height * p->width;
    float *to = p->rows;
    for (size_t i = first; i < first + count; i++, to += p->patch) {
        size_t at = i / pixels * stride;
        const void *image =
            bytes ? (const void *)((const uint8_t *)x + at) : (const void *)((const float *)x + at);
        patch_from(p, image, bytes, i % pixels, to);
    }
}

static void simd_conv_forward(const struct conv_forward_job *job)
{
    size_t filters = job->window.filters;
    struct patches p = patches_of(&job->window, job->rows, job->scratch);
    size_t pixels = p.height * p.width;
    struct gemm g = {
        .a = p.rows,
        .a_row = p.patch,
        .a_k = 1,
        .b = job->w,
        .b_k = filters,
        .b_n = 1,
        .c_row = filters,
        .columns = filters,
        .depth = p.patch,
        .start = START_BIAS,
        .end = job->activation == ACTIVATION_RELU ? END_RELU : END_STORE,
        .bias = job->bias,
        .pack = p.pack,
    };
    gemm_pack(&g, p.weights);
    for (size_t first = 0; first < p.total; first += g.rows) {
        g.rows = patches_in_block(&p, first, job->y_stride);
        g.c = (float *)job->y + first / pixels * job->y_stride + first % pixels * filters;
        patches_from(&p, job->x, job->x_stride, job->bytes, first, g.rows);
        gemm_run(&g);
        if (job->activation > ACTIVATION_RELU)
            activate_row_by(job->activation, g.c, g.c, g.rows * filters);
    }
}

static const float *conv_dy(const struct patches *p, const struct conv_backward_job *job,
                            size_t first)
{
    size_t pixels = p->height * p->width;
    return (const float *)job->dy + first / pixels * job->dy_stride +
           first % pixels * p->window->filters;
}

static void conv_backward_weights(struct patches *p, const struct conv_backward_job *job)
{
    size_t filters = p->window->filters;
    struct gemm g = {
        .a = p->rows,
        .a_row = 1,
        .a_k = p->patch,
        .b_k = filters,
        .b_n = 1,
        .c = job->dw,
        .c_row = filters,
        .rows = p->patch,
        .columns = filters,
        .start = job->overwrite ? START_ZERO : START_ADD,
        .pack = p->pack,
    };
    struct backward_job bias = {
        .dy_stride = filters,
        .dbias = job->dbias,
        .outputs = p->window->filters,
        .overwrite = job->overwrite,
    };
    for (size_t first = 0; first < p->total; first += g.depth) {
        g.depth = patches_in_block(p, first, job->dy_stride);
        g.b = conv_dy(p, job, first);
        patches_from(p, job->x, job->x_stride, job->bytes, first, g.depth);
        gemm_run(&g);
        bias.dy = g.b;
        bias.rows = (uint32_t)g.depth;
        backward_bias(&bias);
        g.start = START_ADD;
        bias.overwrite = false;
    }
}

/* Adds a patch to where it came from. */
static void patch_to(const struct patches *p, const float *from, size_t pixel, float *image)
{
    const struct window *w = p->window;
    for (size_t ky = 0; ky < w->kernel_height; ky++) {
        struct strip s = strip_of(w, pixel / p->width, pixel % p->width, ky);
        add_row(image + s.at, from + s.before, image + s.at, s.inside);
        from += s.before + s.inside + s.after;
    }
}

/* Where an image's gradient is added up: a place of its own where it is gated and then added. */
static float *conv_dx_image(const struct patches *p, const struct conv_backward_job *job,
                            size_t row)
{
    bool apart = job->accumulate_dx && job->gate != ACTIVATION_NONE;
    return apart ? p->image : (float *)job->dx + row * job->dx_stride;
}

static void conv_finish_dx(const struct patches *p, const struct conv_backward_job *job, size_t row)
{
    if (job->gate == ACTIVATION_NONE)
        return;
    const float *sum = conv_dx_image(p, job, row);
    slope_row_by(job->gate, sum, (const float *)job->x + row * job->x_stride,
                 (float *)job->dx + row * job->dx_stride, image_size(p->window),
                 job->accumulate_dx);
}

/* Gives back patches [first, first + count): images begin and end among them. */
static void patches_to(const struct patches *p, const struct conv_backward_job *job, size_t first,
                       size_t count)
{
    size_t pixels = p->height * p->width;
    const float *from = p->rows;
    bool keeps = job->accumulate_dx && job->gate == ACTIVATION_NONE;
    for (size_t i = first; i < first + count; i++, from += p->patch) {
        size_t row = i / pixels;
        float *image = conv_dx_image(p, job, row);
        if (i % pixels == 0 && !keeps)
            memset(image, 0, image_size(p->window) * sizeof *image);
        patch_to(p, from, i % pixels, image);
        if (i % pixels == pixels - 1)
            conv_finish_dx(p, job, row);
    }
}

static void conv_backward_input(struct patches *p, const struct conv_backward_job *job)
{
    size_t filters = p->window->filters;
    struct gemm g = {
        .a_row = filters,
        .a_k = 1,
        .b = job->w,
        .b_k = 1,
        .b_n = filters,
        .c = p->rows,
        .c_row = p->patch,
        .columns = p->patch,
        .depth = filters,
        .pack = p->pack,
    };
    gemm_pack(&g, p->weights);
    for (size_t first = 0; first < p->total; first += g.rows) {
        g.rows = patches_in_block(p, first, job->dy_stride);
        g.a = conv_dy(p, job, first);
        gemm_run(&g);
        patches_to(p, job, first, g.rows);
    }
}

static void simd_conv_backward(const struct conv_backward_job *job)
{
    struct patches p = patches_of(&job->window, job->rows, job->scratch);
    if (job->dw)
        conv_backward_weights(&p, job);
    if (job->dx)
        conv_backward_input(&p, job);
}

/* ---- pools ------------------------------------------------------------------------------- */

/* The positions of a window over (oy, ox) that lie inside of the image. */
struct seen {
    size_t y_from, y_to, x_from, x_to; /* of the window */
    const struct window *window;
    size_t top, left; /* of the window in the padded image */
};

static struct seen seen_from(const struct window *w, size_t oy, size_t ox)
{
    size_t top = oy * w->stride_height, left = ox * w->stride_width;
    size_t y_end = w->height + w->pad_height, x_end = w->width + w->pad_width;
    return (struct seen){
        .y_from = top < w->pad_height ? w->pad_height - top : 0,
        .y_to = top + w->kernel_height < y_end ? w->kernel_height : y_end - top,
        .x_from = left < w->pad_width ? w->pad_width - left : 0,
        .x_to = left + w->kernel_width < x_end ? w->kernel_width : x_end - left,
        .window = w,
        .top = top,
        .left = left,
    };
}

static size_t seen_at(const struct seen *s, size_t ky, size_t kx)
{
    const struct window *w = s->window;
    return ((s->top + ky - w->pad_height) * w->width + s->left + kx - w->pad_width) * w->channels;
}

/* LANES channels of one place; `index` gets their winners. */
static INLINE vec pool_max(const struct seen *s, const float *x, bool last, part lanes,
                           uint8_t *index, size_t channels)
{
    vec best = splat(-INFINITY), winner = splat(0);
    bool any = false;
    for (size_t ky = s->y_from; ky < s->y_to; ky++)
        for (size_t kx = s->x_from; kx < s->x_to; kx++) {
            vec value = load_at(x + seen_at(s, ky, kx), last, lanes);
            vec here = splat((float)(ky * s->window->kernel_width + kx));
            winner = any ? choose_above(value, best, here, winner) : here;
            best = any ? choose_above(value, best, value, best) : value;
            any = true;
        }
    float winners[LANES];
    store(winners, winner);
    for (size_t c = 0; index && c < channels; c++)
        index[c] = (uint8_t)winners[c];
    return best;
}

static INLINE vec pool_mean(const struct seen *s, const float *x, bool last, part lanes)
{
    vec sum = splat(0);
    for (size_t ky = s->y_from; ky < s->y_to; ky++)
        for (size_t kx = s->x_from; kx < s->x_to; kx++)
            sum = sum + load_at(x + seen_at(s, ky, kx), last, lanes);
    return sum / splat((float)(s->window->kernel_height * s->window->kernel_width));
}

static void pool_forward_place(const struct pool_job *job, const struct seen *s, const float *x,
                               float *y, uint8_t *index)
{
    size_t channels = s->window->channels;
    for (size_t c = 0; c < channels; c += LANES) {
        bool last = c + LANES > channels;
        part lanes = part_of(last ? (unsigned)(channels - c) : LANES);
        vec v = job->kind == POOL_MEAN ? pool_mean(s, x + c, last, lanes)
                                       : pool_max(s, x + c, last, lanes, index ? index + c : NULL,
                                                  last ? channels - c : LANES);
        store_at(y + c, v, last, lanes);
    }
}

static void simd_pool_forward(const struct pool_job *job)
{
    const struct window *w = &job->window;
    size_t height = window_out_height(w), width = window_out_width(w), channels = w->channels;
    for (size_t i = 0; i < job->rows * height * width; i++) {
        size_t row = i / (height * width), pixel = i % (height * width);
        struct seen s = seen_from(w, pixel / width, pixel % width);
        pool_forward_place(job, &s, (const float *)job->in + row * job->in_stride,
                           (float *)job->out + row * job->out_stride + pixel * channels,
                           job->index ? job->index + i * channels : NULL);
    }
}

static void pool_max_backward(const struct seen *s, const float *dy, const uint8_t *index,
                              float *dx)
{
    size_t width = s->window->kernel_width;
    for (size_t c = 0; c < s->window->channels; c++)
        dx[seen_at(s, index[c] / width, index[c] % width) + c] += dy[c];
}

static void pool_mean_backward(const struct seen *s, const float *dy, float *dx)
{
    size_t channels = s->window->channels;
    float scale = 1 / (float)(s->window->kernel_height * s->window->kernel_width);
    for (size_t ky = s->y_from; ky < s->y_to; ky++)
        for (size_t kx = s->x_from; kx < s->x_to; kx++)
            for (size_t c = 0; c < channels; c++)
                dx[seen_at(s, ky, kx) + c] += scale * dy[c];
}

static void simd_pool_backward(const struct pool_job *job)
{
    const struct window *w = &job->window;
    size_t height = window_out_height(w), width = window_out_width(w), channels = w->channels;
    for (size_t i = 0; i < job->rows * height * width; i++) {
        size_t row = i / (height * width), pixel = i % (height * width);
        const float *dy = (const float *)job->in + row * job->in_stride + pixel * channels;
        float *dx = (float *)job->out + row * job->out_stride;
        struct seen s = seen_from(w, pixel / width, pixel % width);
        if (pixel == 0 && !job->accumulate)
            memset(dx, 0, image_size(w) * sizeof *dx);
        if (job->kind == POOL_MAX)
            pool_max_backward(&s, dy, job->index + i * channels, dx);
        else
            pool_mean_backward(&s, dy, dx);
    }
}

static const struct conv_kernels simd_conv = {
    .scratch = simd_conv_scratch,
    .forward = simd_conv_forward,
    .backward = simd_conv_backward,
    .pool_forward = simd_pool_forward,
    .pool_backward = simd_pool_backward,
};
