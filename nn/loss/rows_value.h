/* Values of states, and the scale that R2D2 learns values in, for REAL and NAME(). */

/* h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x */
LOSS_BODY REAL NAME(rescale)(REAL x, REAL epsilon)
{
    REAL size = MATH(fabs)(x), root = MATH(sqrt)(size + 1);
    return MATH(copysign)(size / (root + 1), x) + epsilon * x;
}

/* Its inverse, without the differences of nearly equal numbers that the usual form has. */
LOSS_BODY REAL NAME(unscale)(REAL y, REAL epsilon)
{
    REAL size = MATH(fabs)(y), four = 4 * epsilon * (size + 1 + epsilon);
    REAL part = MATH(sqrt)(1 + four) + 1; /* the root of |x| + 1 is 2 (size + 1 + epsilon) / part */
    REAL less = (2 * size + 2 * epsilon - four / part) / part; /* that root less 1 */
    return MATH(copysign)(less * (less + 2), y);
}

/* The Huber loss of a value; with clip > 0 the larger one of that and the loss of the value kept
 * within +-clip of the old one. *push is the derivative. */
LOSS_BODY REAL NAME(value_row)(REAL value, REAL target, REAL delta, REAL old, REAL clip, REAL *push)
{
    REAL slope, clipped_slope, loss = NAME(huber)(target - value, delta, &slope);
    *push = -slope;
    if (!(clip > 0))
        return loss;
    REAL moved = value - old;
    bool cut = moved > clip || moved < -clip;
    REAL kept = old + (moved > clip ? clip : moved < -clip ? -clip : moved);
    REAL clipped = NAME(huber)(target - kept, delta, &clipped_slope);
    if (clipped <= loss)
        return loss;
    *push = cut && clipped == clipped ? 0 : -clipped_slope; /* NaN stays */
    return clipped;
}
