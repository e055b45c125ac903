/* Activations of one number and their slopes, for REAL, NAME() and MATH(). Who compiles them for a
 * device defines SCALAR. */

#ifndef SCALAR
#define SCALAR static
#endif

SCALAR REAL NAME(sigmoid)(REAL x)
{
    return 1 / (1 + MATH(exp)(-x));
}

/* The standard normal's distribution, and sqrt(2 / pi) (x + 0.044715 x^3), whose tanh is near it.
 */
SCALAR REAL NAME(normal_below)(REAL x)
{
    return (REAL)0.5 * (1 + MATH(erf)(x * (REAL)0.70710678118654752440));
}

SCALAR REAL NAME(gelu_inner)(REAL x)
{
    return (REAL)0.79788456080286535588 * (x + (REAL)0.044715 * x * x * x);
}

SCALAR REAL NAME(activated)(enum activation activation, REAL x)
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

SCALAR REAL NAME(gelu_tanh_slope)(REAL x)
{
    REAL t = MATH(tanh)(NAME(gelu_inner)(x));
    if (t * t == 1) /* where x^2 may be too large for a number */
        return t > 0;
    REAL inner = (REAL)0.79788456080286535588 * (1 + 3 * (REAL)0.044715 * x * x);
    return (REAL)0.5 * (1 + t) + (REAL)0.5 * x * (1 - t * t) * inner;
}

/* From x where activation_keeps_input() says so, else from y. */
SCALAR REAL NAME(slope)(enum activation activation, REAL kept)
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
