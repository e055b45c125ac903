/* Values of actions, for REAL and NAME(). */

/* See trp_argmax(). */
LOSS_BODY uint32_t NAME(argmax)(const REAL *values, const bool *mask, uint32_t count)
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
LOSS_BODY REAL NAME(huber)(REAL error, REAL delta, REAL *slope)
{
    REAL size = MATH(fabs)(error);
    *slope = error > delta ? delta : error < -delta ? -delta : error;
    return size <= delta ? (REAL)0.5 * error * error : delta * (size - (REAL)0.5 * delta);
}

LOSS_BODY REAL NAME(double_q_target)(REAL reward, REAL discount, const REAL *next_online,
                                     const REAL *next_target, const bool *next_mask,
                                     uint32_t actions)
{
    return reward + discount * next_target[NAME(argmax)(next_online, next_mask, actions)];
}

/* Writes the gradient times `scale`. */
LOSS_BODY REAL NAME(q_row)(const REAL *q, uint32_t actions, uint32_t taken, REAL target, REAL delta,
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

/* temperature * log sum exp(values / temperature) over what is allowed: the value of the policy
 * that is soft in these values, its entropy times the temperature included. */
LOSS_BODY REAL NAME(soft_value)(const REAL *values, const bool *mask, uint32_t count,
                                REAL temperature)
{
    uint32_t best = NAME(argmax)(values, mask, count);
    REAL sum = 0;
    for (uint32_t i = 0; i < count; i++)
        if (i == best || !mask || mask[i])
            sum += MATH(exp)((values[i] - values[best]) / temperature);
    return values[best] + temperature * MATH(log)(sum);
}

/* What is added to the reward: scale * [temperature * log policy(taken)], cut off at `least`. */
LOSS_BODY REAL NAME(munchausen)(const REAL *values, const bool *mask, uint32_t count,
                                uint32_t taken, REAL temperature, REAL scale, REAL least)
{
    REAL log_policy = values[taken] - NAME(soft_value)(values, mask, count, temperature);
    log_policy = log_policy > 0 ? 0 : log_policy; /* rounding */
    return scale * (log_policy < least ? least : log_policy);
}
