/* Products of bfloat16: a lane holds a pair of factors that follow each other in the depth of a
 * product, so the product of simd_gemm.h is one of pairs: its depth counts them, a lies in the
 * scratch in pairs, and b is rounded and paired when it is packed. Depths are whole numbers of
 * DEPTH_STEP pairs, filled up with zeros on both sides. Everything else is the work of
 * backend_avx512.
 *
 * Who includes this says in DEPTH_STEP how many pairs its tiles take at once, has fma_vec() for
 * pairs, and gemm_rows(), which may read a in whole blocks of LANES rows. */

enum {
    ROWS_GROUP = 256,         /* of a linear layer, whose factors are rounded together */
    INPUTS_GROUP = 4 * LANES, /* of which x is turned together for the gradient of the weights */
    PATCH_FLOATS = 64 * 1024, /* of a block of patches */
    PATCHES_MIN = 2 * LANES,  /* however large they are: several tiles */
    PATCHES_MAX = 256,
    IMAGES_MAX = 8,    /* of which patches are taken together */
    SLACK = 2 * LANES, /* values that strips are read and written past their ends */
};

/* ---- rounding ---------------------------------------------------------------------------- */

static INLINE __m512i rounded(vec low, vec high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* Lane i: first[i] and second[i]. */
static INLINE vec paired(vec first, vec second)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, rounded(first, second)));
}

/* `count` values side by side, and a zero where they are odd. */
static void round_row(uint16_t *to, const float *from, size_t count)
{
    size_t i = 0;
    for (; i + 32 <= count; i += 32)
        _mm512_storeu_si512(to + i, rounded(load_vec(from + i), load_vec(from + i + LANES)));
    if (i == count)
        return;
    unsigned left = (unsigned)(count - i), low = left < LANES ? left : LANES;
    vec high = load_part(from + i + low, part_of(left - low));
    _mm512_mask_storeu_ps(to + i, part_of((left + 1) / 2),
                          _mm512_castsi512_ps(rounded(load_part(from + i, part_of(low)), high)));
}

static void round_bytes(uint16_t *to, const uint8_t *from, size_t count)
{
    for (size_t i = 0; i < count; i += LANES) {
        unsigned left = count - i < LANES ? (unsigned)(count - i) : LANES;
        __m512i codes = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(part_of(left), from + i));
        vec values = _mm512_cvtepi32_ps(codes) * splat(1.f / 255);
        _mm256_mask_storeu_epi32(to + i, (__mmask8)part_of((left + 1) / 2),
                                 (__m256i)_mm512_cvtneps_pbh(values));
    }
}

/* From one row of pairs to the next: a line more than they are, so that rows do not fall on each
 * other in the cache. */
static size_t pairs_stride(size_t pairs)
{
    return (pairs + LANES - 1) / LANES * LANES + LANES;
}

/* The depth of a product of so many pairs of factors. */
static size_t whole_steps(size_t pairs)
{
    return (pairs + DEPTH_STEP - 1) / DEPTH_STEP * DEPTH_STEP;
}

/* Zeros behind `pairs` in a row, up to whole steps. */
static INLINE void fill_steps(float *row, size_t pairs)
{
    for (size_t i = pairs; i < whole_steps(pairs); i++)
        row[i] = 0;
}

/* 16 columns of two rows of floats in pairs; the second may be NULL: zeros. */
static INLINE vec pair_of_rows(const float *first, const float *second, part lanes)
{
    return paired(load_part(first, lanes), second ? load_part(second, lanes) : splat(0));
}

/* Pairs of up to 32 rows of up to 16 columns, a row for each column. */
static INLINE void turn_pairs_of(float *to, size_t to_stride, const float *from, size_t from_stride,
                                 size_t rows, part lanes)
{
    float pairs[LANES * LANES] __attribute__((aligned(64)));
    for (size_t i = 0; i < LANES; i++, from += 2 * from_stride)
        store(pairs + i * LANES,
              2 * i < rows ? pair_of_rows(from, 2 * i + 1 < rows ? from + from_stride : NULL, lanes)
                           : splat(0));
    for (size_t m = 0; m < LANES; m += 4)
        transpose_4(pairs + m, LANES, to + m * to_stride, to_stride);
}

/* Pairs of rows, side by side for each column; returns the stride. Columns are filled up to 16. */
static size_t turn_pairs(float *to, const float *from, size_t from_stride, size_t rows,
                         size_t columns)
{
    size_t stride = pairs_stride((rows + 1) / 2);
    for (size_t n = 0; n < columns; n += LANES) {
        part lanes = part_of(columns - n < LANES ? (unsigned)(columns - n) : LANES);
        for (size_t row = 0; row < rows; row += 2 * LANES)
            turn_pairs_of(to + n * stride + row / 2, stride, from + row * from_stride + n,
                          from_stride, rows - row, lanes);
    }
    return stride;
}

/* A depth of so many values, and what it is short of. */
static void gemm_depth(struct gemm *g, size_t values)
{
    g->depth = whole_steps((values + 1) / 2);
    g->lacks = 2 * g->depth - values;
}

/* ---- b ----------------------------------------------------------------------------------- */

static bool b_in_place(const struct gemm *g, size_t columns)
{
    (void)g, (void)columns;
    return false;
}

/* b[n][k]: the pairs of 16 rows, turned. `depth` counts values. */
static void pack_turned(const float *b, size_t b_n, size_t depth, size_t columns, float *to)
{
    float pairs[LANES * LANES] __attribute__((aligned(64)));
    for (size_t n = 0; n < columns; n += LANES) {
        size_t rows = columns - n < LANES ? columns - n : LANES;
        memset(pairs, 0, sizeof pairs);
        for (size_t k = 0; k < depth; k += 2 * LANES) {
            size_t count = depth - k < 2 * LANES ? depth - k : 2 * LANES;
            size_t steps = whole_steps((count + 1) / 2);
            if (count < 2 * LANES)
                memset(pairs, 0, sizeof pairs);
            for (size_t row = 0; row < rows; row++)
                round_row((uint16_t *)(pairs + row * LANES), b + (n + row) * b_n + k, count);
            float turned[4 * LANES];
            for (size_t step = 0; step < steps; step += 4) {
                transpose_4(pairs + step, LANES, turned, LANES);
                for (size_t i = 0; i < 4 && step + i < steps; i++)
                    store(to + (k / 2 + step + i) * PANEL + n, load_vec(turned + i * LANES));
            }
        }
    }
}

static INLINE void pair_rows(float *to, const float *first, const float *second, size_t columns)
{
    for (size_t n = 0; n < columns; n += LANES) {
        part lanes = part_of(columns - n < LANES ? (unsigned)(columns - n) : LANES);
        store_part(to + n, pair_of_rows(first + n, second ? second + n : NULL, lanes), lanes);
    }
}

static void b_pack(const struct gemm *g, size_t k, size_t depth, size_t column, size_t columns,
                   float *to)
{
    size_t values = 2 * depth - (k + depth == g->depth ? g->lacks : 0);
    const float *b = g->b + 2 * k * g->b_k + column * g->b_n;
    if (g->b_n != 1) {
        pack_turned(b, g->b_n, values, columns, to);
        return;
    }
    for (size_t i = 0; i < values; i += 2, b += 2 * g->b_k, to += PANEL)
        pair_rows(to, b, i + 1 < values ? b + g->b_k : NULL, columns);
    memset(to, 0, (depth - (values + 1) / 2) * PANEL * sizeof *to);
}

/* ---- linear layers ----------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t at_most(size_t count, size_t most)
{
    return count < most ? count : most;
}

/* Panels of b, one or, of the rows of a group, all; and a: a group's rows, or inputs turned. */
static size_t panels_floats(uint32_t outputs)
{
    return larger(PANEL * DEPTH_BLOCK, packed_size(outputs, ROWS_GROUP / 2));
}

static size_t bf16_scratch(uint32_t inputs, uint32_t outputs)
{
    size_t pairs = pairs_stride((larger(inputs, outputs) + 1) / 2);
    return panels_floats(outputs) +
           larger(ROWS_GROUP * pairs, INPUTS_GROUP * pairs_stride(ROWS_GROUP / 2));
}

static uint32_t group_rows(uint32_t rows, uint32_t first)
{
    return rows - first < ROWS_GROUP ? rows - first : ROWS_GROUP;
}

/* Pairs of columns of a group; returns their stride. */
static size_t round_group(float *to, const float *from, size_t from_stride, uint32_t rows,
                          size_t columns)
{
    size_t stride = pairs_stride((columns + 1) / 2);
    for (size_t row = 0; row < rows; row++) {
        round_row((uint16_t *)(to + row * stride), from + row * from_stride, columns);
        fill_steps(to + row * stride, (columns + 1) / 2);
    }
    return stride;
}

/* Columns [column, column + columns) of a single row, whose weights are not worth packing. The sums
 * are those of gemm_run(), in its order. */
static void row_panel(const struct forward_job *job, const float *pairs, size_t column,
                      size_t columns)
{
    const float *w = (const float *)job->w + column, *bias = job->bias;
    float *y = (float *)job->y + column;
    part lanes[PANEL_VECS];
    vec sum[PANEL_VECS];
    UNROLL for (unsigned v = 0; v < PANEL_VECS; v++)
    {
        size_t left = columns > v * LANES ? columns - v * LANES : 0;
        lanes[v] = part_of(left < LANES ? (unsigned)left : LANES);
        sum[v] = load_part(bias + column + v * LANES, lanes[v]);
    }
    for (size_t i = 0; i < job->inputs; i += 2, w += 2 * (size_t)job->outputs) {
        vec as = splat(pairs[i / 2]);
        bool two = i + 1 < job->inputs;
        UNROLL for (unsigned v = 0; v < PANEL_VECS; v++)
        {
            const float *first = w + v * LANES;
            vec second = two ? load_part(first + job->outputs, lanes[v]) : splat(0);
            sum[v] = fma_vec(as, paired(load_part(first, lanes[v]), second), sum[v]);
        }
    }
    UNROLL for (unsigned v = 0; v < PANEL_VECS; v++)
    {
        if (job->activation == ACTIVATION_RELU)
            sum[v] = max_vec(splat(0), sum[v]);
        store_part(y + v * LANES, sum[v], lanes[v]);
    }
}

static void forward_row(const struct forward_job *job)
{
    float *pairs = job->scratch;
    round_row((uint16_t *)pairs, job->x, job->inputs);
    for (size_t column = 0; column < job->outputs; column += PANEL)
        row_panel(job, pairs, column, at_most(job->outputs - column, PANEL));
}

static void forward_rows(const struct forward_job *job)
{
    float *pairs = (float *)job->scratch + panels_floats(job->outputs);
    struct gemm g = {
        .a = pairs,
        .a_k = 1,
        .b = job->w,
        .b_k = job->outputs,
        .b_n = 1,
        .pack = job->scratch,
        .c_row = job->y_stride,
        .columns = job->outputs,
        .start = START_BIAS,
        .end = gemm_end_of(job->activation),
        .bias = job->bias,
    };
    gemm_depth(&g, job->inputs);
    for (uint32_t row = 0; row < job->rows; row += (uint32_t)g.rows) {
        g.rows = group_rows(job->rows, row);
        g.c = (float *)job->y + row * job->y_stride;
        g.a_row = round_group(pairs, (const float *)job->x + row * job->x_stride, job->x_stride,
                              (uint32_t)g.rows, job->inputs);
        gemm_run(&g);
    }
}

static void bf16_forward(const struct forward_job *job)
{
    if (job->rows == 1)
        forward_row(job);
    else
        forward_rows(job);
    if (job->activation > ACTIVATION_RELU)
        backend_avx512.activate(job->activation, job->y, job->y_stride, job->rows, job->outputs);
}

/* dw (+)= x' dy of a group, of which dw is written once from end to end. */
static void group_weights(const struct backward_job *job)
{
    float *pairs = (float *)job->scratch + panels_floats(job->outputs);
    struct gemm g = {
        .a = pairs,
        .a_k = 1,
        .b = job->dy,
        .b_k = job->dy_stride,
        .b_n = 1,
        .c_row = job->outputs,
        .columns = job->outputs,
        .start = job->overwrite ? START_ZERO : START_ADD,
    };
    gemm_depth(&g, job->rows);
    gemm_pack(&g, job->scratch);
    for (size_t input = 0; input < job->inputs; input += g.rows) {
        g.rows = at_most(job->inputs - input, INPUTS_GROUP);
        g.a_row =
            turn_pairs(pairs, (const float *)job->x + input, job->x_stride, job->rows, g.rows);
        g.c = (float *)job->dw + input * job->outputs;
        gemm_run(&g);
    }
}

/* dx (+)= dy w' of a group. */
static void group_input(const struct backward_job *job)
{
    float *pairs = (float *)job->scratch + panels_floats(job->outputs);
    struct gemm g = gemm_of_input(job);
    g.a = pairs;
    g.a_row = round_group(pairs, job->dy, job->dy_stride, job->rows, job->outputs);
    gemm_depth(&g, job->outputs);
    gemm_run(&g);
}

static void sum_bias(const void *dy, size_t stride, size_t rows, uint32_t columns, void *dbias,
                     bool overwrite)
{
    backend_avx512.layer->sum_rows(&(struct sum_job){.dy = dy,
                                                     .sum = dbias,
                                                     .dy_stride = stride,
                                                     .rows = (uint32_t)rows,
                                                     .columns = columns,
                                                     .overwrite = overwrite});
}

static void bf16_backward(const struct backward_job *job)
{
    struct backward_job group = *job;
    if (job->dw)
        sum_bias(job->dy, job->dy_stride, job->rows, job->outputs, job->dbias, job->overwrite);
    for (uint32_t row = 0; row < job->rows; row += group.rows) {
        group.rows = group_rows(job->rows, row);
        group.x = (const float *)job->x + row * job->x_stride;
        group.dy = (const float *)job->dy + row * job->dy_stride;
        group.dx = job->dx ? (float *)job->dx + row * job->dx_stride : NULL;
        if (job->dw)
            group_weights(&group);
        if (job->dx)
            group_input(&group);
        group.overwrite = false;
    }
    if (job->dx && job->gate > ACTIVATION_TANH)
        gate_dx(&backend_avx512, job);
}

/* ---- patches ----------------------------------------------------------------------------- */

/* Images are rounded once, with their padding around them; patches are strips of these. */
struct patches {
    const struct window *window;
    size_t width, pixels, patch; /* of the result; values of a patch */
    size_t row, image;           /* values of a padded row and image */
    size_t block, group; /* patches of a product (of two, paired); images rounded together */
    float *pack, *packed;
    uint16_t *images;
    float *a, *c; /* a product's; c: gradients of patches */
    float *sums;  /* gradients of a padded image */
};

static size_t window_block(const struct window *w)
{
    size_t fit = PATCH_FLOATS / window_patch(w) / LANES * LANES;
    return fit < PATCHES_MIN ? PATCHES_MIN : fit < PATCHES_MAX ? fit : PATCHES_MAX;
}

static size_t padded_image_size(const struct window *w)
{
    return (size_t)(w->height + 2 * w->pad_height) * (w->width + 2 * w->pad_width) * w->channels;
}

static size_t window_group(const struct window *w)
{
    size_t pixels = (size_t)window_out_height(w) * window_out_width(w);
    size_t fit = 2 * window_block(w) / pixels;
    return fit < 1 ? 1 : fit < IMAGES_MAX ? fit : IMAGES_MAX;
}

static size_t conv_packed(const struct window *w)
{
    size_t patch = window_patch(w);
    return larger(packed_size(w->filters, whole_steps((patch + 1) / 2)),
                  packed_size(patch, whole_steps((w->filters + (size_t)1) / 2)));
}

static size_t images_floats(const struct window *w)
{
    return (window_group(w) * padded_image_size(w) + SLACK + 2) / 2;
}

/* Patches in rows of pairs, pairs of patches, or rows of pairs of dy. */
static size_t a_floats(const struct window *w)
{
    size_t patch = window_patch(w);
    return window_block(w) * larger(larger(2 * pairs_stride((patch + 1) / 2), pairs_stride(patch)),
                                    pairs_stride((w->filters + (size_t)1) / 2));
}

static size_t patches_scratch(const struct window *w)
{
    return PANEL * DEPTH_BLOCK + conv_packed(w) + images_floats(w) + a_floats(w) +
           window_block(w) * window_patch(w) + padded_image_size(w) + LANES;
}

/* Turned weights lie in front of the scratch of what they are for. */
static size_t bf16_conv_scratch(const struct window *w)
{
    struct window turned = turned_window(w);
    size_t weights = window_patch(w) * w->filters;
    return larger(patches_scratch(w), window_turns(w) ? weights + patches_scratch(&turned) : 0);
}

static struct patches patches_of(const struct window *w, float *scratch)
{
    struct patches p = {
        .window = w,
        .width = window_out_width(w),
        .pixels = (size_t)window_out_height(w) * window_out_width(w),
        .patch = window_patch(w),
        .row = (size_t)(w->width + 2 * w->pad_width) * w->channels,
        .image = padded_image_size(w),
        .block = window_block(w),
        .group = window_group(w),
        .pack = scratch,
        .packed = scratch + PANEL * DEPTH_BLOCK,
    };
    float *images = p.packed + conv_packed(w);
    p.images = (uint16_t *)images;
    p.a = images + images_floats(w);
    p.c = p.a + a_floats(w);
    p.sums = p.c + p.block * p.patch;
    return p;
}

/* A row's zero past an odd count is overwritten by what comes next. */
static void round_image(const struct patches *p, const void *image, bool bytes, uint16_t *to)
{
    const struct window *w = p->window;
    size_t side = (size_t)w->pad_width * w->channels, columns = (size_t)w->width * w->channels;
    memset(to, 0, w->pad_height * p->row * sizeof *to);
    to += w->pad_height * p->row;
    for (size_t y = 0; y < w->height; y++, to += p->row) {
        memset(to, 0, side * sizeof *to);
        if (bytes)
            round_bytes(to + side, (const uint8_t *)image + y * columns, columns);
        else
            round_row(to + side, (const float *)image + y * columns, columns);
        memset(to + side + columns, 0, side * sizeof *to);
    }
    memset(to, 0, w->pad_height * p->row * sizeof *to);
}

/* Rounds images [first, first + count) of x. */
static void round_images(const struct patches *p, const void *x, size_t stride, bool bytes,
                         size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = (first + i) * stride;
        const void *image =
            bytes ? (const void *)((const uint8_t *)x + at) : (const void *)((const float *)x + at);
        round_image(p, image, bytes, p->images + i * p->image);
    }
}

/* Goes from the patch of one pixel of the group to that of the next. */
struct pairs_walk {
    const struct patches *patches;
    const uint16_t *image, *row; /* of the patch */
    size_t x, y;                 /* of the pixel */
};

static struct pairs_walk walk_from(const struct patches *p, size_t pixel)
{
    struct pairs_walk walk = {.patches = p,
                              .image = p->images + pixel / p->pixels * p->image,
                              .x = pixel % p->pixels % p->width,
                              .y = pixel % p->pixels / p->width};
    walk.row = walk.image + walk.y * p->window->stride_height * p->row;
    return walk;
}

/* Where the patch begins. */
static const uint16_t *walk_on(struct pairs_walk *walk)
{
    const struct patches *p = walk->patches;
    const struct window *w = p->window;
    const uint16_t *at = walk->row + walk->x * w->stride_width * w->channels;
    if (++walk->x < p->width)
        return at;
    walk->x = 0;
    walk->row += w->stride_height * p->row;
    if (++walk->y * p->width < p->pixels)
        return at;
    walk->y = 0;
    walk->row = walk->image += p->image;
    return at;
}

/* Patches [first, first + count) of the group, in rows of pairs. */
static size_t patches_in_rows(const struct patches *p, size_t first, size_t count)
{
    size_t stride = pairs_stride((p->patch + 1) / 2);
    size_t strip = (size_t)p->window->kernel_width * p->window->channels;
    struct pairs_walk walk = walk_from(p, first);
    for (size_t i = 0; i < count; i++) {
        const uint16_t *from = walk_on(&walk);
        uint16_t *to = (uint16_t *)(p->a + i * stride);
        for (size_t y = 0; y < p->window->kernel_height; y++, from += p->row, to += strip)
            for (size_t k = 0; k < strip; k += 2 * LANES)
                _mm512_storeu_si512(to + k, _mm512_loadu_si512(from + k));
        if (p->patch % 2 > 0)
            *to = 0;
        fill_steps(p->a + i * stride, (p->patch + 1) / 2);
    }
    return stride;
}

/* A patch and the next one, or zeros, value by value. */
static void pair_patches(const struct patches *p, const uint16_t *first, const uint16_t *second,
                         float *to)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(LANES));
    size_t strip = (size_t)p->window->kernel_width * p->window->channels;
    for (size_t y = 0; y < p->window->kernel_height; y++, to += strip) {
        size_t at = y * p->row;
        for (size_t k = 0; k < strip; k += 2 * LANES) {
            unsigned left = strip - k < 2 * LANES ? (unsigned)(strip - k) : 2 * LANES;
            unsigned lanes = left < LANES ? left : LANES;
            __m512i a = _mm512_loadu_si512(first + at + k);
            __m512i b = second ? _mm512_loadu_si512(second + at + k) : _mm512_setzero_si512();
            store_part(to + k, _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, low, b)),
                       part_of(lanes));
            store_part(to + k + lanes, _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, high, b)),
                       part_of(left - lanes));
        }
    }
}

static size_t patches_in_pairs(const struct patches *p, size_t first, size_t count)
{
    size_t stride = pairs_stride(p->patch);
    struct pairs_walk walk = walk_from(p, first);
    for (size_t i = 0; i < count; i += 2) {
        const uint16_t *patch = walk_on(&walk), *next = i + 1 < count ? walk_on(&walk) : NULL;
        pair_patches(p, patch, next, p->a + i / 2 * stride);
    }
    size_t pairs = (count + 1) / 2;
    memset(p->a + pairs * stride, 0, (whole_steps(pairs) - pairs) * stride * sizeof *p->a);
    return stride;
}

/* ---- convolutions ------------------------------------------------------------------------ */

/* How many images from `row` on go together: those whose results follow each other in memory. */
static size_t images_together(const struct patches *p, size_t rows, size_t row, size_t stride)
{
    size_t left = rows - row, together = stride == p->pixels * p->window->filters ? p->group : 1;
    return left < together ? left : together;
}

/* A convolution's share of a product; what it starts from is the caller's. */
static struct gemm conv_gemm(const struct patches *p, const float *weights)
{
    struct gemm g = {
        .a = p->a,
        .a_k = 1,
        .b = weights,
        .b_k = p->window->filters,
        .b_n = 1,
        .c_row = p->window->filters,
        .columns = p->window->filters,
    };
    gemm_depth(&g, p->patch);
    gemm_pack(&g, p->packed);
    return g;
}

/* Images that were rounded together; y has their results. */
static void convolve_images(const struct patches *p, struct gemm *g, size_t images, float *y)
{
    for (size_t pixel = 0; pixel < images * p->pixels; pixel += g->rows) {
        g->rows = at_most(images * p->pixels - pixel, 2 * p->block);
        g->a_row = patches_in_rows(p, pixel, g->rows);
        g->c = y + pixel * g->c_row;
        gemm_run(g);
    }
}

static void bf16_conv_forward(const struct conv_forward_job *job)
{
    struct patches p = patches_of(&job->window, job->scratch);
    struct gemm g = conv_gemm(&p, job->w);
    size_t filters = job->window.filters;
    g.start = START_BIAS;
    g.bias = job->bias;
    g.end = gemm_end_of(job->activation);
    for (size_t row = 0, images; row < job->rows; row += images) {
        images = images_together(&p, job->rows, row, job->y_stride);
        float *y = (float *)job->y + row * job->y_stride;
        round_images(&p, job->x, job->x_stride, job->bytes, row, images);
        convolve_images(&p, &g, images, y);
        if (job->activation > ACTIVATION_RELU)
            backend_avx512.activate(job->activation, y, filters, images * p.pixels, filters);
    }
}

static void conv_weights(const struct patches *p, const struct conv_backward_job *job)
{
    size_t filters = job->window.filters;
    bool overwrite = job->overwrite;
    struct gemm g = {
        .a = p->a,
        .a_row = 1,
        .b_k = filters,
        .b_n = 1,
        .pack = p->pack,
        .c = job->dw,
        .c_row = filters,
        .rows = p->patch,
        .columns = filters,
        .start = job->overwrite ? START_ZERO : START_ADD,
    };
    for (size_t row = 0, images; row < job->rows; row += images) {
        images = images_together(p, job->rows, row, job->dy_stride);
        const float *dy = (const float *)job->dy + row * job->dy_stride;
        round_images(p, job->x, job->x_stride, job->bytes, row, images);
        sum_bias(dy, filters, images * p->pixels, (uint32_t)filters, job->dbias, overwrite);
        overwrite = false;
        for (size_t pixel = 0, count; pixel < images * p->pixels; pixel += count) {
            count = at_most(images * p->pixels - pixel, 2 * p->block);
            g.a_k = patches_in_pairs(p, pixel, count);
            gemm_depth(&g, count);
            g.b = dy + pixel * filters;
            gemm_run(&g);
            g.start = START_ADD;
        }
    }
}

/* Adds the gradients of patches [first, first + count) of an image to it. */
static void patches_to(const struct patches *p, size_t first, size_t count)
{
    const struct window *w = p->window;
    size_t strip = (size_t)w->kernel_width * w->channels;
    const float *from = p->c;
    for (size_t i = first; i < first + count; i++) {
        float *to = p->sums + i / p->width * w->stride_height * p->row +
                    i % p->width * w->stride_width * w->channels;
        for (size_t y = 0; y < w->kernel_height; y++, to += p->row, from += strip)
            for (size_t k = 0; k < strip; k += LANES) {
                part lanes = part_of(strip - k < LANES ? (unsigned)(strip - k) : LANES);
                store_part(to + k, load_part(to + k, lanes) + load_part(from + k, lanes), lanes);
            }
    }
}

/* The image without its padding. */
static void finish_image(const struct patches *p, const struct conv_backward_job *job, size_t row)
{
    const struct window *w = p->window;
    uint32_t columns = w->width * w->channels;
    const float *sums = p->sums + w->pad_height * p->row + (size_t)w->pad_width * w->channels;
    float *dx = (float *)job->dx + row * job->dx_stride;
    if (job->gate == ACTIVATION_NONE) {
        backend_avx512.activation->add(&(struct add_job){.a = sums,
                                                         .b = job->accumulate_dx ? dx : NULL,
                                                         .y = dx,
                                                         .a_stride = p->row,
                                                         .b_stride = columns,
                                                         .y_stride = columns,
                                                         .rows = w->height,
                                                         .columns = columns});
        return;
    }
    backend_avx512.activation->backward(
        &(struct activation_job){.activation = job->gate,
                                 .in = sums,
                                 .kept = (const float *)job->x + row * job->x_stride,
                                 .out = dx,
                                 .in_stride = p->row,
                                 .kept_stride = columns,
                                 .out_stride = columns,
                                 .rows = w->height,
                                 .columns = columns,
                                 .accumulate = job->accumulate_dx});
}

static void conv_input(const struct patches *p, const struct conv_backward_job *job)
{
    size_t filters = job->window.filters;
    struct gemm g = {
        .a = p->a,
        .a_k = 1,
        .b = job->w,
        .b_k = 1,
        .b_n = filters,
        .c = p->c,
        .c_row = p->patch,
        .columns = p->patch,
    };
    gemm_depth(&g, filters);
    gemm_pack(&g, p->packed);
    for (size_t row = 0; row < job->rows; row++) {
        const float *dy = (const float *)job->dy + row * job->dy_stride;
        memset(p->sums, 0, p->image * sizeof *p->sums);
        for (size_t pixel = 0; pixel < p->pixels; pixel += g.rows) {
            g.rows = at_most(p->pixels - pixel, p->block);
            g.a_row = round_group(p->a, dy + pixel * filters, filters, (uint32_t)g.rows, filters);
            gemm_run(&g);
            patches_to(p, pixel, g.rows);
        }
        finish_image(p, job, row);
    }
}

/* The convolution of dy; what is gated and then added goes by patches. */
static bool input_turns(const struct conv_backward_job *job)
{
    return window_turns(&job->window) && !(job->accumulate_dx && job->gate != ACTIVATION_NONE);
}

static void conv_input_turned(const struct conv_backward_job *job)
{
    const struct window *w = &job->window;
    struct window turned = turned_window(w);
    float *weights = job->scratch, *dx = job->dx;
    struct patches p = patches_of(&turned, weights + window_patch(w) * w->filters);
    turn_weights(w, job->w, weights);
    struct gemm g = conv_gemm(&p, weights);
    g.start = job->accumulate_dx ? START_ADD : START_ZERO;
    for (size_t row = 0, images; row < job->rows; row += images) {
        images = images_together(&p, job->rows, row, job->dx_stride);
        round_images(&p, job->dy, job->dy_stride, false, row, images);
        convolve_images(&p, &g, images, dx + row * job->dx_stride);
    }
    gate_dx(&backend_avx512, &(struct backward_job){.gate = job->gate,
                                                    .x = job->x,
                                                    .dx = dx,
                                                    .x_stride = job->x_stride,
                                                    .dx_stride = job->dx_stride,
                                                    .rows = job->rows,
                                                    .inputs = w->height * w->width * w->channels});
}

static void bf16_conv_backward(const struct conv_backward_job *job)
{
    struct patches p = patches_of(&job->window, job->scratch);
    if (job->dw)
        conv_weights(&p, job);
    if (job->dx && input_turns(job))
        conv_input_turned(job);
    else if (job->dx)
        conv_input(&p, job);
}
