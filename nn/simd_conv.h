/* Convolutions as matrix products with the weights, which lie as a matrix [patch][filters] already.
 *
 * Directly: a window's row is a strip of an image whose padding is written out, and a result's row
 * is a product whose depth comes in such strips; the gradient of the weights has the results' rows
 * as strips. With stride 1, and results about as large as the image, the gradient of the input is a
 * convolution of dy.
 *
 * Else by patches: a block of them is laid out in rows that stay in the second cache. The gradient
 * of the input is dy times the weights transposed, added up where the patches came from. */

#include "turned.h"

enum {
    PATCH_FLOATS = 32 * 1024, /* of a block: 128 KB */
    PATCHES_MIN = 24,         /* however large they are: several tiles */
    DIRECT_WIDTH_MIN = 4,     /* of a result, whose rows are the products' */
};

/* Blocks of patches of all images, which are numbered through. */
struct patches {
    const struct window *window;
    size_t height, width, patch; /* of the result; values of a patch */
    size_t total, block;
    float *pack, *rows, *weights, *image, *padded, *turned; /* scratch */
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

static bool conv_is_direct(const struct window *w)
{
    return window_out_width(w) >= DIRECT_WIDTH_MIN;
}

static bool conv_turns(const struct window *w)
{
    return window_turns(w) && w->width >= DIRECT_WIDTH_MIN;
}

static size_t padded_size(const struct window *w)
{
    return (size_t)(w->height + 2 * w->pad_height) * (w->width + 2 * w->pad_width) * w->channels;
}

/* The weights as panels, either way round or turned, or dy of one image. */
static size_t conv_packed_size(const struct window *w)
{
    size_t patch = window_patch(w);
    size_t results = (size_t)window_out_height(w) * window_out_width(w);
    size_t turned = (size_t)w->kernel_height * w->kernel_width * w->filters;
    size_t forward = larger(packed_size(w->filters, patch), packed_size(w->channels, turned));
    return larger(larger(forward, packed_size(patch, w->filters)),
                  packed_size(w->filters, results));
}

static size_t conv_padded_size(const struct window *w)
{
    struct window turned = turned_window(w);
    return larger(padded_size(w), conv_turns(w) ? padded_size(&turned) : 0);
}

static size_t simd_conv_scratch(const struct window *window)
{
    size_t patch = window_patch(window);
    return PANEL * DEPTH_BLOCK + patch_block(window) * patch + conv_packed_size(window) +
           image_size(window) + conv_padded_size(window) + patch * window->filters;
}

/* Whether tiles can have b where it is: whole vectors, its rows close together. */
static bool gemm_takes_b(const struct gemm *g)
{
    return g->b_n == 1 && g->columns % LANES == 0 && g->b_k <= PANEL;
}

/* c (+)= a b where a's depth comes in strips; b is packed, or gemm_takes_b(). */
static void gemm_strips(const struct gemm *g)
{
    for (size_t column = 0; column < g->columns; column += PANEL) {
        struct gemm_tile t = {
            .b = g->packed ? g->packed + column * g->depth : g->b + column,
            .b_k = g->packed ? PANEL : g->b_k,
            .depth = g->strip,
            .strips = g->depth / g->strip,
            .bias = g->bias ? g->bias + column : NULL,
            .start = g->start,
            .end = g->end,
        };
        size_t vecs = panel_vecs(g->columns - column, &t.last);
        gemm_rows(g, &t, column, 0, vecs);
    }
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
    p.padded = p.image + image_size(window);
    p.turned = p.padded + conv_padded_size(window);
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
        store(to + i, load_vec(from + i));
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

/* Element `at` of x, whichever its type. */
static const void *image_at(const void *x, bool bytes, size_t at)
{
    return bytes ? (const void *)((const uint8_t *)x + at) : (const void *)((const float *)x + at);
}

/* Lays out patches [first, first + count). */
static void patches_from(const struct patches *p, const void *x, size_t stride, bool bytes,
                         size_t first, size_t count)
{
    size_t pixels = p->height * p->width;
    float *to = p->rows;
    for (size_t i = first; i < first + count; i++, to += p->patch) {
        size_t at = i / pixels * stride;
        patch_from(p, image_at(x, bytes, at), bytes, i % pixels, to);
    }
}

/* An image as floats with its padding around it: itself where it is that already. */
static const float *padded_image(const struct window *w, const void *image, bool bytes, float *to)
{
    size_t side = (size_t)w->pad_width * w->channels, columns = (size_t)w->width * w->channels;
    size_t row = columns + 2 * side;
    if (!bytes && w->pad_height == 0 && side == 0)
        return image;
    memset(to, 0, w->pad_height * row * sizeof *to);
    float *at = to + w->pad_height * row;
    for (size_t y = 0; y < w->height; y++, at += row) {
        memset(at, 0, side * sizeof *at);
        if (bytes)
            floats_of_bytes(at + side, (const uint8_t *)image + y * columns, columns);
        else
            copy_strip(at + side, (const float *)image + y * columns, columns);
        memset(at + side + columns, 0, side * sizeof *at);
    }
    memset(at, 0, w->pad_height * row * sizeof *to);
    return to;
}

/* What all results of one convolution have in common; what it starts from is the caller's. */
static struct gemm direct_gemm(const struct window *w, const float *weights, float *packed)
{
    struct gemm g = {
        .a_row = (size_t)w->stride_width * w->channels,
        .a_k = 1,
        .b = weights,
        .b_k = w->filters,
        .b_n = 1,
        .c_row = w->filters,
        .rows = window_out_width(w),
        .columns = w->filters,
        .depth = window_patch(w),
        .strip = (size_t)w->kernel_width * w->channels,
        .a_strip = (size_t)(w->width + 2 * w->pad_width) * w->channels,
    };
    if (!gemm_takes_b(&g))
        gemm_pack(&g, packed);
    return g;
}

/* One image, padded. */
static void direct_rows(const struct window *w, struct gemm *g, const float *image, float *y)
{
    size_t height = window_out_height(w);
    g->a = image;
    g->c = y;
    for (size_t row = 0; row < height; row++) {
        gemm_strips(g);
        g->a += w->stride_height * g->a_strip;
        g->c += g->rows * g->c_row;
    }
}

static void conv_forward_direct(const struct patches *p, const struct conv_forward_job *job)
{
    const struct window *w = p->window;
    struct gemm g = direct_gemm(w, job->w, p->weights);
    g.start = START_BIAS;
    g.bias = job->bias;
    g.end = gemm_end_of(job->activation);
    for (size_t row = 0; row < job->rows; row++) {
        const void *image = image_at(job->x, job->bytes, row * job->x_stride);
        float *y = (float *)job->y + row * job->y_stride;
        direct_rows(w, &g, padded_image(w, image, job->bytes, p->padded), y);
        if (job->activation > ACTIVATION_RELU)
            activate_row_by(job->activation, y, y, p->height * p->width * w->filters);
    }
}

static void conv_forward_patches(const struct patches *p, const struct conv_forward_job *job)
{
    size_t filters = job->window.filters;
    size_t pixels = p->height * p->width;
    struct gemm g = {
        .a = p->rows,
        .a_row = p->patch,
        .a_k = 1,
        .b = job->w,
        .b_k = filters,
        .b_n = 1,
        .c_row = filters,
        .columns = filters,
        .depth = p->patch,
        .start = START_BIAS,
        .end = gemm_end_of(job->activation),
        .bias = job->bias,
        .pack = p->pack,
    };
    gemm_pack(&g, p->weights);
    for (size_t first = 0; first < p->total; first += g.rows) {
        g.rows = patches_in_block(p, first, job->y_stride);
        g.c = (float *)job->y + first / pixels * job->y_stride + first % pixels * filters;
        patches_from(p, job->x, job->x_stride, job->bytes, first, g.rows);
        gemm_run(&g);
        if (job->activation > ACTIVATION_RELU)
            activate_row_by(job->activation, g.c, g.c, g.rows * filters);
    }
}

static void simd_conv_forward(const struct conv_forward_job *job)
{
    struct patches p = patches_of(&job->window, job->rows, job->scratch);
    if (conv_is_direct(&job->window))
        conv_forward_direct(&p, job);
    else
        conv_forward_patches(&p, job);
}

static const float *conv_dy(const struct patches *p, const struct conv_backward_job *job,
                            size_t first)
{
    size_t pixels = p->height * p->width;
    return (const float *)job->dy + first / pixels * job->dy_stride +
           first % pixels * p->window->filters;
}

static void conv_weights_patches(const struct patches *p, const struct conv_backward_job *job)
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

/* One image's share, window row by window row. */
static void direct_weights(const struct patches *p, struct gemm *g, const float *image, float *dw)
{
    const struct window *w = p->window;
    g->a = image;
    g->c = dw;
    for (size_t ky = 0; ky < w->kernel_height; ky++) {
        gemm_strips(g);
        g->a += (size_t)(w->width + 2 * w->pad_width) * w->channels;
        g->c += g->rows * w->filters;
    }
}

static void conv_weights_direct(const struct patches *p, const struct conv_backward_job *job)
{
    const struct window *w = p->window;
    size_t pixels = p->height * p->width;
    struct gemm g = {
        .a_row = 1,
        .a_k = (size_t)w->stride_width * w->channels,
        .b_k = w->filters,
        .b_n = 1,
        .c_row = w->filters,
        .rows = (size_t)w->kernel_width * w->channels,
        .columns = w->filters,
        .depth = pixels,
        .strip = p->width,
        .a_strip = (size_t)w->stride_height * (w->width + 2 * w->pad_width) * w->channels,
        .start = job->overwrite ? START_ZERO : START_ADD,
    };
    struct backward_job bias = {.dy_stride = w->filters,
                                .dbias = job->dbias,
                                .rows = (uint32_t)pixels,
                                .outputs = w->filters,
                                .overwrite = job->overwrite};
    for (size_t row = 0; row < job->rows; row++) {
        const void *image = image_at(job->x, job->bytes, row * job->x_stride);
        bias.dy = g.b = (const float *)job->dy + row * job->dy_stride;
        g.packed = NULL;
        if (!gemm_takes_b(&g))
            gemm_pack(&g, p->weights);
        direct_weights(p, &g, padded_image(w, image, job->bytes, p->padded), job->dw);
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
        add_row_vec(image + s.at, from + s.before, image + s.at, s.inside);
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

static void conv_input_patches(const struct patches *p, const struct conv_backward_job *job)
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

static void conv_input_turned(const struct patches *p, const struct conv_backward_job *job)
{
    struct window w = turned_window(p->window);
    turn_weights(p->window, job->w, p->turned);
    struct gemm g = direct_gemm(&w, p->turned, p->weights);
    bool keeps = job->accumulate_dx && job->gate == ACTIVATION_NONE;
    g.start = keeps ? START_ADD : START_ZERO;
    for (size_t row = 0; row < job->rows; row++) {
        const float *dy = (const float *)job->dy + row * job->dy_stride;
        direct_rows(&w, &g, padded_image(&w, dy, false, p->padded), conv_dx_image(p, job, row));
        conv_finish_dx(p, job, row);
    }
}

static void simd_conv_backward(const struct conv_backward_job *job)
{
    struct patches p = patches_of(&job->window, job->rows, job->scratch);
    if (job->dw && conv_is_direct(&job->window))
        conv_weights_direct(&p, job);
    else if (job->dw)
        conv_weights_patches(&p, job);
    if (job->dx && conv_turns(&job->window))
        conv_input_turned(&p, job);
    else if (job->dx)
        conv_input_patches(&p, job);
}

/* ---- pools ------------------------------------------------------------------------------- */

/* The positions of a window over (oy, ox) that lie inside of the image. */
struct conv_seen {
    size_t y_from, y_to, x_from, x_to; /* of the window */
    const struct window *window;
    size_t top, left; /* of the window in the padded image */
};

static struct conv_seen seen_from(const struct window *w, size_t oy, size_t ox)
{
    size_t top = oy * w->stride_height, left = ox * w->stride_width;
    size_t y_end = w->height + w->pad_height, x_end = w->width + w->pad_width;
    return (struct conv_seen){
        .y_from = top < w->pad_height ? w->pad_height - top : 0,
        .y_to = top + w->kernel_height < y_end ? w->kernel_height : y_end - top,
        .x_from = left < w->pad_width ? w->pad_width - left : 0,
        .x_to = left + w->kernel_width < x_end ? w->kernel_width : x_end - left,
        .window = w,
        .top = top,
        .left = left,
    };
}

static size_t seen_at(const struct conv_seen *s, size_t ky, size_t kx)
{
    const struct window *w = s->window;
    return ((s->top + ky - w->pad_height) * w->width + s->left + kx - w->pad_width) * w->channels;
}

/* LANES channels of one place; `index` gets their winners. */
static INLINE vec pool_max(const struct conv_seen *s, const float *x, bool last, part lanes,
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

static INLINE vec pool_mean(const struct conv_seen *s, const float *x, bool last, part lanes)
{
    vec sum = splat(0);
    for (size_t ky = s->y_from; ky < s->y_to; ky++)
        for (size_t kx = s->x_from; kx < s->x_to; kx++)
            sum = sum + load_at(x + seen_at(s, ky, kx), last, lanes);
    return sum / splat((float)(s->window->kernel_height * s->window->kernel_width));
}

static void pool_forward_place(const struct pool_job *job, const struct conv_seen *s,
                               const float *x, float *y, uint8_t *index)
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
        struct conv_seen s = seen_from(w, pixel / width, pixel % width);
        pool_forward_place(job, &s, (const float *)job->in + row * job->in_stride,
                           (float *)job->out + row * job->out_stride + pixel * channels,
                           job->index ? job->index + i * channels : NULL);
    }
}

static void pool_max_backward(const struct conv_seen *s, const float *dy, const uint8_t *index,
                              float *dx)
{
    size_t width = s->window->kernel_width;
    for (size_t c = 0; c < s->window->channels; c++)
        dx[seen_at(s, index[c] / width, index[c] % width) + c] += dy[c];
}

static void pool_mean_backward(const struct conv_seen *s, const float *dy, float *dx)
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
        struct conv_seen s = seen_from(w, pixel / width, pixel % width);
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
