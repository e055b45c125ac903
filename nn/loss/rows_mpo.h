/* MPO's duals and weights, for REAL and NAME(). */

/* softplus, and its derivative; both are those of -18 below that, so that it comes back. */
LOSS_BODY REAL NAME(mpo_dual)(REAL number, REAL *slope)
{
    REAL x = number < -18 ? -18 : number, size = MATH(exp)(-MATH(fabs)(x));
    *slope = (x > 0 ? 1 : size) / (1 + size);
    return (x > 0 ? x : 0) + MATH(log1p)(size) + (REAL)1e-8;
}

/* log mean exp(q / eta); writes count * the softmax, which may be q. *push: the derivative of eta
 * times the result with respect to eta. NaN where some q is not finite. */
LOSS_BODY REAL NAME(mpo_row)(const REAL *q, uint32_t count, REAL eta, REAL *weights, REAL *push)
{
    REAL most = q[0], sum = 0, mean = 0, bad = 0;
    for (uint32_t i = 0; i < count; i++) {
        most = q[i] > most ? q[i] : most;
        bad += q[i] - q[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        REAL share = MATH(exp)((q[i] - most) / eta);
        sum += share;
        mean += share * (q[i] - most); /* of q less the largest, by these shares */
        weights[i] = share;
    }
    for (uint32_t i = 0; i < count; i++)
        weights[i] *= (REAL)count / sum;
    REAL log_mean = MATH(log)(sum / (REAL)count);
    *push = log_mean - mean / sum / eta + bad;
    return most / eta + log_mean + bad;
}
