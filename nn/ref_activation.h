/* Activations, for REAL and NAME(). */

static REAL NAME(sigmoid)(REAL x)
{
    return 1 / (1 + MATH(exp)(-x));
}

/* The standard normal's distribution, and sqrt(2 / pi) (x + 0.044715 x^3), whose tanh is near it.
 */
static REAL NAME(normal_below)(REAL x)
{
    return (REAL)0.5 * (1 + MATH(erf)(x * (REAL)0.70710678118654752440));
}

static REAL NAME(gelu_inner)(REAL x)
{
    return (REAL)0.79788456080286535588 * (x + (REAL)0.044715 * x * x * x);
}

static REAL NAME(activated)(enum activation activation, REAL x)
{
    switch (activation) {
    case ACTIVATION_NONE:
        return x;
    case ACTIVATION_RELU:
        return x < 0 ? 0 : x; /* a NaN stays one */
    case ACTIVATION_TANH:
        return MATH(tanh)(x);
    case ACTIVATION_SIGMOID:
        return NAME(sigmoid)(x);
    case ACTIVATION_ELU:
        return x > 0 ? x : MATH(expm1)(x);
    case ACTIVATION_SOFTPLUS:
        return MATH(fmax)(x, 0) + MATH(log1p)(MATH(exp)(-MATH(fabs)(x)));
    case ACTIVATION_SILU:
        return x * NAME(sigmoid)(x);
    case ACTIVATION_GELU:
        return x * NAME(normal_below)(x);
    case ACTIVATION_GELU_TANH:
        return (REAL)0.5 * x * (1 + MATH(tanh)(NAME(gelu_inner)(x)));
    }
    return x;
}

static REAL NAME(gelu_tanh_slope)(REAL x)
{
    REAL t = MATH(tanh)(NAME(gelu_inner)(x));
    if (t * t == 1) /* where x^2 may be too large for a number */
        return t > 0;
    REAL inner = (REAL)0.79788456080286535588 * (1 + 3 * (REAL)0.044715 * x * x);
    return (REAL)0.5 * (1 + t) + (REAL)0.5 * x * (1 - t * t) * inner;
}

/* From x where activation_keeps_input() says so, else from y. */
static REAL NAME(slope)(enum activation activation, REAL kept)
{
    REAL s;
    switch (activation) {
    case ACTIVATION_NONE:
        return 1;
    case ACTIVATION_RELU:
        return kept > 0;
    case ACTIVATION_TANH:
        return 1 - kept * kept;
    case ACTIVATION_SIGMOID:
        return kept * (1 - kept);
    case ACTIVATION_ELU:
        return kept > 0 ? 1 : 1 + kept;
    case ACTIVATION_SOFTPLUS:
        return -MATH(expm1)(-kept);
    case ACTIVATION_SILU:
        s = NAME(sigmoid)(kept);
        return s + kept * s * (1 - s);
    case ACTIVATION_GELU:
        return NAME(normal_below)(kept) +
               kept * (REAL)0.39894228040143267794 * MATH(exp)(-kept * kept / 2);
    case ACTIVATION_GELU_TANH:
        return NAME(gelu_tanh_slope)(kept);
    }
    return 1;
}

static void NAME(activation_forward)(const struct activation_job *job)
{
    const REAL *in = job->in;
    REAL *out = job->out;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t i = 0; i < job->columns; i++)
            out[row * job->out_stride + i] =
                NAME(activated)(job->activation, in[row * job->in_stride + i]);
}

static void NAME(activation_backward)(const struct activation_job *job)
{
    const REAL *in = job->in, *kept = job->kept;
    REAL *out = job->out;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t i = 0; i < job->columns; i++) {
            REAL dx = in[row * job->in_stride + i] *
                      NAME(slope)(job->activation, kept[row * job->kept_stride + i]);
            REAL *to = &out[row * job->out_stride + i];
            *to = job->accumulate ? *to + dx : dx;
        }
}

static void NAME(add)(const struct add_job *job)
{
    const REAL *a = job->a, *b = job->b;
    REAL *y = job->y;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t i = 0; i < job->columns; i++) {
            REAL sum = a[row * job->a_stride + i];
            if (b)
                sum += b[row * job->b_stride + i];
            y[row * job->y_stride + i] = sum;
        }
}

static const struct activation_kernels NAME(activation_kernels) = {
    .forward = NAME(activation_forward),
    .backward = NAME(activation_backward),
    .add = NAME(add),
};
