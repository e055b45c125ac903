/* Activations, a vector at a time: each within a few units in the last place of 1, or of its value
 * where that is larger. Arguments are clamped where the result no longer changes, with the NaN as
 * the operand that max_vec() and min_vec() return. */

/* Rational approximation of tanh by Eigen's coefficients: at most a few units in the last place. */
static INLINE vec tanh_vec(vec x)
{
    x = max_vec(splat(-7.90531110763549805f), min_vec(splat(7.90531110763549805f), x));
    vec x2 = x * x;
    vec p = fma_vec(x2, splat(-2.76076847742355e-16f), splat(2.00018790482477e-13f));
    p = fma_vec(x2, p, splat(-8.60467152213735e-11f));
    p = fma_vec(x2, p, splat(5.12229709037114e-08f));
    p = fma_vec(x2, p, splat(1.48572235717979e-05f));
    p = fma_vec(x2, p, splat(6.37261928875436e-04f));
    p = fma_vec(x2, p, splat(4.89352455891786e-03f));
    vec q = fma_vec(x2, splat(1.19825839466702e-06f), splat(1.18534705686654e-04f));
    q = fma_vec(x2, q, splat(2.26843463243900e-03f));
    q = fma_vec(x2, q, splat(4.89352518554385e-03f));
    return x * p / q;
}

/* The same for erf. */
static INLINE vec erf_vec(vec x)
{
    x = max_vec(splat(-4), min_vec(splat(4), x));
    vec x2 = x * x;
    vec p = fma_vec(x2, splat(-2.72614225801306e-10f), splat(2.77068142495902e-08f));
    p = fma_vec(x2, p, splat(-2.10102402082508e-06f));
    p = fma_vec(x2, p, splat(-5.69250639462346e-05f));
    p = fma_vec(x2, p, splat(-7.34990630326855e-04f));
    p = fma_vec(x2, p, splat(-2.95459980854025e-03f));
    p = fma_vec(x2, p, splat(-1.60960333262415e-02f));
    vec q = fma_vec(x2, splat(-1.45660718464996e-05f), splat(-2.13374055278905e-04f));
    q = fma_vec(x2, q, splat(-1.68282697438203e-03f));
    q = fma_vec(x2, q, splat(-7.37332916720468e-03f));
    q = fma_vec(x2, q, splat(-1.42647390514189e-02f));
    return x * p / q;
}

/* By Cephes: 2^n times a polynomial over half an octave around 1. */
static INLINE vec exp_vec(vec x)
{
    x = max_vec(splat(-87), min_vec(splat(88), x));
    const vec whole = splat(12582912); /* 1.5 * 2^23: what is added to it is rounded to a number */
    vec n = fma_vec(x, splat(1.44269504088896341f), whole) - whole;
    x = fma_vec(n, splat(-0.693359375f), x);
    x = fma_vec(n, splat(2.12194440e-4f), x);
    vec p = fma_vec(x, splat(1.9875691500e-4f), splat(1.3981999507e-3f));
    p = fma_vec(x, p, splat(8.3334519073e-3f));
    p = fma_vec(x, p, splat(4.1665795894e-2f));
    p = fma_vec(x, p, splat(1.6666665459e-1f));
    p = fma_vec(x, p, splat(5.0000001201e-1f));
    return scale_vec(fma_vec(x * x, p, x) + splat(1), n);
}

static INLINE vec sigmoid_vec(vec x)
{
    return splat(1) / (splat(1) + exp_vec(splat(0) - x));
}

/* exp x - 1 for x <= 0, which keeps its digits near 0: 2 t / (1 - t) with t = tanh(x / 2). */
static INLINE vec expm1_vec(vec x)
{
    vec t = tanh_vec(splat(0.5f) * x);
    return (t + t) / (splat(1) - t);
}

/* log(1 + u) for u in [0, 1]: 2 artanh(u / (2 + u)). */
static INLINE vec log1p_vec(vec u)
{
    vec s = u / (splat(2) + u), s2 = s * s;
    vec p = fma_vec(s2, splat(1.f / 15), splat(1.f / 13));
    p = fma_vec(s2, p, splat(1.f / 11));
    p = fma_vec(s2, p, splat(1.f / 9));
    p = fma_vec(s2, p, splat(1.f / 7));
    p = fma_vec(s2, p, splat(1.f / 5));
    p = fma_vec(s2, p, splat(1.f / 3));
    vec twice = s + s;
    return fma_vec(twice * s2, p, twice);
}

static INLINE vec softplus_vec(vec x)
{
    vec away = max_vec(x, splat(0) - x);
    return max_vec(splat(0), x) + log1p_vec(exp_vec(splat(0) - away));
}

/* Below -6 the share that is left of x is nothing in a float; x itself would not be. */
static INLINE vec gelu_part(vec x)
{
    return max_vec(splat(-6), x);
}

static INLINE vec normal_below(vec x)
{
    return splat(0.5f) * (splat(1) + erf_vec(x * splat(0.707106781186547524f)));
}

static INLINE vec gelu_tanh_of(vec x)
{
    x = max_vec(splat(-100), min_vec(splat(100), x));
    return tanh_vec(splat(0.797884560802865356f) * fma_vec(splat(0.044715f) * x * x, x, x));
}

static INLINE vec activate_vec(const enum activation activation, vec x)
{
    switch (activation) {
    case ACTIVATION_RELU:
        return max_vec(splat(0), x);
    case ACTIVATION_TANH:
        return tanh_vec(x);
    case ACTIVATION_SIGMOID:
        return sigmoid_vec(x);
    case ACTIVATION_ELU:
        return max_vec(splat(0), x) + expm1_vec(min_vec(splat(0), x));
    case ACTIVATION_SOFTPLUS:
        return softplus_vec(x);
    case ACTIVATION_SILU:
        return x * sigmoid_vec(x);
    case ACTIVATION_GELU:
        return gelu_part(x) * normal_below(x);
    case ACTIVATION_GELU_TANH:
        return gelu_part(x) * (splat(0.5f) + splat(0.5f) * gelu_tanh_of(x));
    case ACTIVATION_NONE:
        break;
    }
    return x;
}

static INLINE vec gelu_slope_vec(vec x)
{
    vec near = max_vec(splat(-6), min_vec(splat(6), x));
    vec density = splat(0.398942280401432678f) * exp_vec(splat(-0.5f) * near * near);
    return fma_vec(near, density, normal_below(x));
}

static INLINE vec gelu_tanh_slope_vec(vec x)
{
    vec t = gelu_tanh_of(x), near = max_vec(splat(-6), min_vec(splat(6), x));
    vec inner = fma_vec(splat(3 * 0.044715f * 0.797884560802865356f) * near, near,
                        splat(0.797884560802865356f));
    vec second = splat(0.5f) * near * (splat(1) - t * t) * inner;
    return second + splat(0.5f) * (splat(1) + t);
}

/* dy times the slope; `kept` is x where activation_keeps_input(), else y. */
static INLINE vec slope_vec(const enum activation activation, vec dy, vec kept)
{
    vec s;
    switch (activation) {
    case ACTIVATION_RELU:
        return keep_where_positive(dy, kept);
    case ACTIVATION_TANH:
        return dy * (splat(1) - kept * kept);
    case ACTIVATION_SIGMOID:
        return dy * (kept * (splat(1) - kept));
    case ACTIVATION_ELU:
        return dy * (splat(1) + min_vec(splat(0), kept));
    case ACTIVATION_SOFTPLUS:
        return dy * (splat(0) - expm1_vec(splat(0) - kept));
    case ACTIVATION_SILU:
        s = sigmoid_vec(kept);
        return dy * fma_vec(kept * s, splat(1) - s, s);
    case ACTIVATION_GELU:
        return dy * gelu_slope_vec(kept);
    case ACTIVATION_GELU_TANH:
        return dy * gelu_tanh_slope_vec(kept);
    case ACTIVATION_NONE:
        break;
    }
    return dy;
}

/* `activation` is a constant in both of these. */
static INLINE void activate_row(const enum activation activation, const float *x, float *y,
                                size_t columns)
{
    size_t i = 0;
    for (; i + LANES <= columns; i += LANES)
        store(y + i, activate_vec(activation, load_vec(x + i)));
    if (i < columns) {
        part lanes = part_of((unsigned)(columns - i));
        store_part(y + i, activate_vec(activation, load_part(x + i, lanes)), lanes);
    }
}

static INLINE void slope_row(const enum activation activation, const float *dy, const float *kept,
                             float *dx, size_t columns, const bool accumulate)
{
    for (size_t i = 0; i < columns; i += LANES) {
        bool last = i + LANES > columns;
        part lanes = part_of(last ? (unsigned)(columns - i) : LANES);
        vec d = slope_vec(activation, load_at(dy + i, last, lanes), load_at(kept + i, last, lanes));
        if (accumulate)
            d = load_at(dx + i, last, lanes) + d;
        store_at(dx + i, d, last, lanes);
    }
}

/* X(activation) for each. */
#define ACTIVATIONS(X)                                                                             \
    X(ACTIVATION_NONE)                                                                             \
    X(ACTIVATION_RELU)                                                                             \
    X(ACTIVATION_TANH)                                                                             \
    X(ACTIVATION_SIGMOID)                                                                          \
    X(ACTIVATION_ELU)                                                                              \
    X(ACTIVATION_SOFTPLUS) X(ACTIVATION_SILU) X(ACTIVATION_GELU) X(ACTIVATION_GELU_TANH)

static void activate_row_by(enum activation activation, const float *x, float *y, size_t columns)
{
#define ACTIVATION(name)                                                                           \
    case name:                                                                                     \
        activate_row(name, x, y, columns);                                                         \
        break;
    switch (activation) {
        ACTIVATIONS(ACTIVATION)
    }
#undef ACTIVATION
}

static void slope_row_by(enum activation activation, const float *dy, const float *kept, float *dx,
                         size_t columns, bool accumulate)
{
#define ACTIVATION(name)                                                                           \
    case name:                                                                                     \
        if (accumulate)                                                                            \
            slope_row(name, dy, kept, dx, columns, true);                                          \
        else                                                                                       \
            slope_row(name, dy, kept, dx, columns, false);                                         \
        break;
    switch (activation) {
        ACTIVATIONS(ACTIVATION)
    }
#undef ACTIVATION
}

static void simd_activate(enum activation activation, float *y, size_t stride, size_t rows,
                          size_t columns)
{
    for (size_t row = 0; activation != ACTIVATION_NONE && row < rows; row++, y += stride)
        activate_row_by(activation, y, y, columns);
}

/* dx *= the slope of the activation that made x. */
static void gate_rows(enum activation gate, const float *x, size_t x_stride, float *dx,
                      size_t dx_stride, size_t rows, size_t columns)
{
    for (size_t row = 0; row < rows; row++, x += x_stride, dx += dx_stride)
        slope_row_by(gate, dx, x, dx, columns, false);
}

static void activation_forward(const struct activation_job *job)
{
    const float *in = job->in;
    float *out = job->out;
    for (size_t row = 0; row < job->rows; row++)
        activate_row_by(job->activation, in + row * job->in_stride, out + row * job->out_stride,
                        job->columns);
}

/* An activation of nothing reads nothing that is kept. */
static void activation_backward(const struct activation_job *job)
{
    const float *in = job->in;
    bool none = job->activation == ACTIVATION_NONE;
    const float *kept = none ? in : job->kept;
    float *out = job->out;
    size_t stride = none ? job->in_stride : job->kept_stride;
    for (size_t row = 0; row < job->rows; row++)
        slope_row_by(job->activation, in + row * job->in_stride, kept + row * stride,
                     out + row * job->out_stride, job->columns, job->accumulate);
}

static INLINE void add_row_vec(const float *a, const float *b, float *y, size_t columns)
{
    for (size_t i = 0; i < columns; i += LANES) {
        bool last = i + LANES > columns;
        part lanes = part_of(last ? (unsigned)(columns - i) : LANES);
        store_at(y + i, load_at(a + i, last, lanes) + load_at(b + i, last, lanes), last, lanes);
    }
}

static void simd_add(const struct add_job *job)
{
    const float *a = job->a, *b = job->b;
    float *y = job->y;
    for (size_t row = 0; row < job->rows; row++, a += job->a_stride, y += job->y_stride)
        if (b)
            add_row_vec(a, b + row * job->b_stride, y, job->columns);
        else
            activate_row(ACTIVATION_NONE, a, y, job->columns);
}

static const struct activation_kernels simd_activation = {
    .forward = activation_forward,
    .backward = activation_backward,
    .add = simd_add,
};
