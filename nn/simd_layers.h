/* Layer norm and noisy weights, a vector at a time; an embedding copies rows, as the reference. */

/* The lanes that `columns` leave for the vector at i, none of which is not there. */
static INLINE part lanes_at(size_t columns, size_t i, bool *last)
{
    *last = i + LANES > columns;
    return part_of(*last ? (unsigned)(columns - i) : LANES);
}

static INLINE float sum_vec(vec v)
{
    float lanes[LANES], sum = 0;
    store(lanes, v);
    for (unsigned i = 0; i < LANES; i++)
        sum += lanes[i];
    return sum;
}

/* Lanes that are not there are 0 in whatever is summed, which `minus` would spoil. */
static INLINE vec load_less(const float *x, float minus, bool last, part lanes)
{
    float spread[LANES];
    vec v = load_at(x, last, lanes) - splat(minus);
    if (!last)
        return v;
    store(spread, splat(0));
    store_part(spread, v, lanes);
    return load_vec(spread);
}

static void norm_statistics(const float *x, size_t columns, double epsilon, float *kept)
{
    vec sum = splat(0), squares = splat(0);
    bool last;
    for (size_t i = 0; i < columns; i += LANES) {
        part lanes = lanes_at(columns, i, &last);
        sum = sum + load_at(x + i, last, lanes);
    }
    kept[0] = sum_vec(sum) / (float)columns;
    for (size_t i = 0; i < columns; i += LANES) {
        part lanes = lanes_at(columns, i, &last);
        vec away = load_less(x + i, kept[0], last, lanes);
        squares = fma_vec(away, away, squares);
    }
    kept[1] = 1 / sqrtf(sum_vec(squares) / (float)columns + (float)epsilon);
}

static void simd_norm_forward(const struct norm_forward_job *job)
{
    const float *gain = job->gain, *bias = job->bias;
    bool last;
    for (size_t row = 0; row < job->rows; row++) {
        const float *x = (const float *)job->x + row * job->x_stride;
        float *y = (float *)job->y + row * job->y_stride, *kept = (float *)job->kept + 2 * row;
        norm_statistics(x, job->columns, job->epsilon, kept);
        for (size_t i = 0; i < job->columns; i += LANES) {
            part lanes = lanes_at(job->columns, i, &last);
            vec v = (load_at(x + i, last, lanes) - splat(kept[0])) * splat(kept[1]);
            if (gain)
                v = fma_vec(v, load_at(gain + i, last, lanes), load_at(bias + i, last, lanes));
            store_at(y + i, v, last, lanes);
        }
    }
}

static void norm_backward_weights(const struct norm_backward_job *job)
{
    float *dgain = job->dgain, *dbias = job->dbias;
    bool last;
    for (size_t i = 0; i < job->columns; i += LANES) {
        part lanes = lanes_at(job->columns, i, &last);
        const float *x = (const float *)job->x + i, *dy = (const float *)job->dy + i;
        const float *kept = job->kept;
        vec gain = splat(0), bias = splat(0);
        for (size_t row = 0; row < job->rows; row++, x += job->x_stride, dy += job->dy_stride) {
            vec d = load_at(dy, last, lanes);
            vec n = (load_at(x, last, lanes) - splat(kept[2 * row])) * splat(kept[2 * row + 1]);
            gain = fma_vec(d, n, gain);
            bias = bias + d;
        }
        if (!job->overwrite) {
            gain = load_at(dgain + i, last, lanes) + gain;
            bias = load_at(dbias + i, last, lanes) + bias;
        }
        store_at(dgain + i, gain, last, lanes);
        store_at(dbias + i, bias, last, lanes);
    }
}

/* g = dy gain. */
static INLINE vec norm_gradient(const float *dy, const float *gain, size_t i, bool last, part lanes)
{
    vec g = load_at(dy + i, last, lanes);
    if (gain)
        g = g * load_at(gain + i, last, lanes);
    return g;
}

static void norm_backward_row(const struct norm_backward_job *job, const float *x, const float *dy,
                              const float *kept, float *dx)
{
    const float *gain = job->gain;
    vec sum = splat(0), product = splat(0);
    bool last;
    for (size_t i = 0; i < job->columns; i += LANES) {
        part lanes = lanes_at(job->columns, i, &last);
        vec g = norm_gradient(dy, gain, i, last, lanes); /* 0 in lanes that are not there */
        sum = sum + g;
        product =
            fma_vec(g, (load_at(x + i, last, lanes) - splat(kept[0])) * splat(kept[1]), product);
    }
    vec mean = splat(sum_vec(sum) / (float)job->columns);
    vec mean_product = splat(sum_vec(product) / (float)job->columns);
    for (size_t i = 0; i < job->columns; i += LANES) {
        part lanes = lanes_at(job->columns, i, &last);
        vec n = (load_at(x + i, last, lanes) - splat(kept[0])) * splat(kept[1]);
        vec g = norm_gradient(dy, gain, i, last, lanes);
        vec d = splat(kept[1]) * (g - mean - n * mean_product);
        if (job->accumulate_dx)
            d = load_at(dx + i, last, lanes) + d;
        store_at(dx + i, d, last, lanes);
    }
}

static void simd_norm_backward(const struct norm_backward_job *job)
{
    if (job->dgain)
        norm_backward_weights(job);
    for (size_t row = 0; job->dx && row < job->rows; row++)
        norm_backward_row(job, (const float *)job->x + row * job->x_stride,
                          (const float *)job->dy + row * job->dy_stride,
                          (const float *)job->kept + 2 * row,
                          (float *)job->dx + row * job->dx_stride);
}

/* out = mean + sigma * scale * noise, noise NULL: ones. */
static void noisy_row(const float *mean, const float *sigma, float scale, const float *noise,
                      float *out, size_t columns)
{
    bool last;
    for (size_t i = 0; i < columns; i += LANES) {
        part lanes = lanes_at(columns, i, &last);
        vec n = splat(scale) * load_at(noise + i, last, lanes);
        vec v = fma_vec(load_at(sigma + i, last, lanes), n, load_at(mean + i, last, lanes));
        store_at(out + i, v, last, lanes);
    }
}

static void simd_noisy_forward(const struct noisy_job *job)
{
    const float *w_mean = job->w_mean, *w_sigma = job->w_sigma;
    const float *noise_in = job->noise_in, *noise_out = job->noise_out;
    float *w = job->w;
    size_t outputs = job->outputs, weights = job->inputs * outputs;
    if (!noise_in) {
        memcpy(w, w_mean, weights * sizeof *w);
        memcpy(job->bias, job->bias_mean, outputs * sizeof *w);
        return;
    }
    noisy_row(job->bias_mean, job->bias_sigma, 1, noise_out, job->bias, outputs);
    for (size_t i = 0; i < job->inputs; i++)
        noisy_row(w_mean + i * outputs, w_sigma + i * outputs, noise_in[i], noise_out,
                  w + i * outputs, outputs);
}

/* Without noise sigma learns nothing. */
static void noisy_row_backward(const float *d, float scale, const float *noise, float *dmean,
                               float *dsigma, size_t columns, bool overwrite)
{
    bool last;
    for (size_t i = 0; i < columns; i += LANES) {
        part lanes = lanes_at(columns, i, &last);
        vec mean = load_at(d + i, last, lanes), sigma = splat(0);
        if (noise)
            sigma = mean * (splat(scale) * load_at(noise + i, last, lanes));
        if (!overwrite) {
            mean = load_at(dmean + i, last, lanes) + mean;
            sigma = load_at(dsigma + i, last, lanes) + sigma;
        }
        store_at(dmean + i, mean, last, lanes);
        store_at(dsigma + i, sigma, last, lanes);
    }
}

static void simd_noisy_backward(const struct noisy_job *job)
{
    const float *dw = job->dw, *noise_in = job->noise_in, *noise_out = job->noise_out;
    float *dw_mean = job->dw_mean, *dw_sigma = job->dw_sigma;
    size_t outputs = job->outputs;
    noisy_row_backward(job->dbias, 1, noise_out, job->dbias_mean, job->dbias_sigma, outputs,
                       job->overwrite);
    for (size_t i = 0; i < job->inputs; i++)
        noisy_row_backward(dw + i * outputs, noise_in ? noise_in[i] : 0, noise_out,
                           dw_mean + i * outputs, dw_sigma + i * outputs, outputs, job->overwrite);
}

static void simd_sum_rows(const struct sum_job *job)
{
    float *to = job->sum;
    bool last;
    for (size_t i = 0; i < job->columns; i += LANES) {
        part lanes = lanes_at(job->columns, i, &last);
        const float *dy = (const float *)job->dy + i;
        vec sum = splat(0);
        for (size_t row = 0; row < job->rows; row++, dy += job->dy_stride)
            sum = sum + load_at(dy, last, lanes);
        if (!job->overwrite)
            sum = load_at(to + i, last, lanes) + sum;
        store_at(to + i, sum, last, lanes);
    }
}

static const struct layer_kernels simd_layer = {
    .norm_forward = simd_norm_forward,
    .norm_backward = simd_norm_backward,
    .embedding_forward = embedding_forward_plain,
    .embedding_backward = embedding_backward_plain,
    .noisy_forward = simd_noisy_forward,
    .noisy_backward = simd_noisy_backward,
    .sum_rows = simd_sum_rows,
};
