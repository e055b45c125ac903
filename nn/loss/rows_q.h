/* Values of actions, for REAL and NAME(). */

/* See trp_argmax(). */
ROW uint32_t NAME(argmax)(const REAL *values, const bool *mask, uint32_t count)
{
    uint32_t best = 0;
    while (mask && !mask[best] && best + 1 < count)
        best++;
    REAL best_value = -(REAL)INFINITY;
    for (uint32_t i = best; i < count; i++) {
        bool better = values[i] > best_value && (!mask || mask[i]);
        best = better ? i : best;
        best_value = better ? values[i] : best_value;
    }
    return best;
}

/* The Huber loss, and its derivative. */
ROW REAL NAME(huber)(REAL error, REAL delta, REAL *slope)
{
    REAL size = MATH(fabs)(error);
    *slope = error > delta ? delta : error < -delta ? -delta : error;
    return size <= delta ? (REAL)0.5 * error * error : delta * (size - (REAL)0.5 * delta);
}

ROW REAL NAME(double_q_target)(REAL reward, REAL discount, const REAL *next_online,
                               const REAL *next_target, const bool *next_mask, uint32_t actions)
{
    return reward + discount * next_target[NAME(argmax)(next_online, next_mask, actions)];
}

/* Writes the gradient times `scale`. */
ROW REAL NAME(q_row)(const REAL *q, uint32_t actions, uint32_t taken, REAL target, REAL delta,
                     REAL scale, REAL *error, REAL *dq)
{
    REAL slope;
    *error = target - q[taken];
    REAL loss = NAME(huber)(*error, delta, &slope);
    for (uint32_t i = 0; i < actions; i++)
        dq[i] = 0;
    dq[taken] = -scale * slope;
    return loss;
}
