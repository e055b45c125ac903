/* Layer norm, embedding and noisy weights, for REAL and NAME(). */

static void NAME(norm_forward)(const struct norm_forward_job *job)
{
    const REAL *gain = job->gain, *bias = job->bias;
    size_t columns = job->columns;
    for (size_t row = 0; row < job->rows; row++) {
        const REAL *x = (const REAL *)job->x + row * job->x_stride;
        REAL *y = (REAL *)job->y + row * job->y_stride, *kept = (REAL *)job->kept + 2 * row;
        REAL sum = 0, squares = 0;
        for (size_t i = 0; i < columns; i++)
            sum += x[i];
        REAL mean = sum / (REAL)columns;
        for (size_t i = 0; i < columns; i++)
            squares += (x[i] - mean) * (x[i] - mean);
        REAL scale = 1 / MATH(sqrt)(squares / (REAL)columns + (REAL)job->epsilon);
        for (size_t i = 0; i < columns; i++) {
            REAL value = (x[i] - mean) * scale;
            y[i] = gain ? value * gain[i] + bias[i] : value;
        }
        kept[0] = mean;
        kept[1] = scale;
    }
}

static void NAME(norm_backward_weights)(const struct norm_backward_job *job)
{
    const REAL *x = job->x, *dy = job->dy, *kept = job->kept;
    REAL *dgain = job->dgain, *dbias = job->dbias;
    for (size_t i = 0; i < job->columns; i++) {
        REAL gain = 0, bias = 0;
        for (size_t row = 0; row < job->rows; row++) {
            REAL d = dy[row * job->dy_stride + i];
            gain += d * (x[row * job->x_stride + i] - kept[2 * row]) * kept[2 * row + 1];
            bias += d;
        }
        dgain[i] = job->overwrite ? gain : dgain[i] + gain;
        dbias[i] = job->overwrite ? bias : dbias[i] + bias;
    }
}

/* With g = dy gain and n = the normalised x: dx = scale (g - mean g - n mean(g n)). */
static void NAME(norm_backward)(const struct norm_backward_job *job)
{
    const REAL *gain = job->gain;
    size_t columns = job->columns;
    if (job->dgain)
        NAME(norm_backward_weights)(job);
    if (!job->dx)
        return;
    for (size_t row = 0; row < job->rows; row++) {
        const REAL *x = (const REAL *)job->x + row * job->x_stride;
        const REAL *dy = (const REAL *)job->dy + row * job->dy_stride;
        const REAL *kept = (const REAL *)job->kept + 2 * row;
        REAL *dx = (REAL *)job->dx + row * job->dx_stride;
        REAL sum = 0, product = 0;
        for (size_t i = 0; i < columns; i++) {
            REAL g = gain ? dy[i] * gain[i] : dy[i];
            sum += g;
            product += g * (x[i] - kept[0]) * kept[1];
        }
        for (size_t i = 0; i < columns; i++) {
            REAL g = gain ? dy[i] * gain[i] : dy[i], n = (x[i] - kept[0]) * kept[1];
            REAL d = kept[1] * (g - (sum + n * product) / (REAL)columns);
            dx[i] = job->accumulate_dx ? dx[i] + d : d;
        }
    }
}

static void NAME(embedding_forward)(const struct embedding_job *job)
{
    const REAL *table = job->table;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t column = 0; column < job->columns; column++) {
            int32_t token = job->tokens[row * job->token_stride + column];
            REAL *y = (REAL *)job->y + row * job->y_stride + column * job->width;
            if (token < 0 || (uint32_t)token >= job->vocabulary)
                memset(y, 0, job->width * sizeof *y);
            else
                memcpy(y, table + (size_t)token * job->width, job->width * sizeof *y);
        }
}

static void NAME(embedding_backward)(const struct embedding_job *job)
{
    REAL *dtable = job->dtable;
    if (job->overwrite)
        memset(dtable, 0, (size_t)job->vocabulary * job->width * sizeof *dtable);
    for (size_t row = 0; row < job->rows; row++)
        for (size_t column = 0; column < job->columns; column++) {
            int32_t token = job->tokens[row * job->token_stride + column];
            const REAL *dy = (const REAL *)job->dy + row * job->y_stride + column * job->width;
            if (token < 0 || (uint32_t)token >= job->vocabulary)
                continue;
            for (size_t i = 0; i < job->width; i++)
                dtable[(size_t)token * job->width + i] += dy[i];
        }
}

static void NAME(noisy_forward)(const struct noisy_job *job)
{
    const REAL *w_mean = job->w_mean, *w_sigma = job->w_sigma;
    const REAL *bias_mean = job->bias_mean, *bias_sigma = job->bias_sigma;
    const REAL *noise_in = job->noise_in, *noise_out = job->noise_out;
    REAL *w = job->w, *bias = job->bias;
    size_t outputs = job->outputs;
    for (size_t o = 0; o < outputs; o++)
        bias[o] = noise_out ? bias_mean[o] + bias_sigma[o] * noise_out[o] : bias_mean[o];
    for (size_t i = 0; i < job->inputs; i++)
        for (size_t o = 0; o < outputs; o++) {
            size_t at = i * outputs + o;
            w[at] = noise_in ? w_mean[at] + w_sigma[at] * (noise_in[i] * noise_out[o]) : w_mean[at];
        }
}

static void NAME(add_noisy)(REAL *mean, REAL *sigma, size_t i, REAL gradient, REAL noise,
                            bool overwrite)
{
    mean[i] = overwrite ? gradient : mean[i] + gradient;
    sigma[i] = overwrite ? gradient * noise : sigma[i] + gradient * noise;
}

static void NAME(noisy_backward)(const struct noisy_job *job)
{
    const REAL *noise_in = job->noise_in, *noise_out = job->noise_out;
    const REAL *dw = job->dw, *dbias = job->dbias;
    size_t outputs = job->outputs;
    for (size_t o = 0; o < outputs; o++) {
        REAL noise = noise_out ? noise_out[o] : 0;
        NAME(add_noisy)(job->dbias_mean, job->dbias_sigma, o, dbias[o], noise, job->overwrite);
    }
    for (size_t i = 0; i < job->inputs * outputs; i++) {
        REAL noise = noise_in ? noise_in[i / outputs] * noise_out[i % outputs] : 0;
        NAME(add_noisy)(job->dw_mean, job->dw_sigma, i, dw[i], noise, job->overwrite);
    }
}

static void NAME(sum_rows)(const struct sum_job *job)
{
    REAL *sum = job->sum;
    for (size_t i = 0; i < job->columns; i++) {
        REAL column = 0;
        for (size_t row = 0; row < job->rows; row++)
            column += ((const REAL *)job->dy)[row * job->dy_stride + i];
        sum[i] = job->overwrite ? column : sum[i] + column;
    }
}

static const struct layer_kernels NAME(layer_kernels) = {
    .norm_forward = NAME(norm_forward),
    .norm_backward = NAME(norm_backward),
    .embedding_forward = NAME(embedding_forward),
    .embedding_backward = NAME(embedding_backward),
    .noisy_forward = NAME(noisy_forward),
    .noisy_backward = NAME(noisy_backward),
    .sum_rows = NAME(sum_rows),
};
