/* Losses of actors and of critics of states and actions, for REAL and NAME(). */

/* NaN where either is not finite. */
LOSS_BODY REAL NAME(lesser)(REAL a, REAL b)
{
    return (b < a ? b : a) + (a - a) + (b - b);
}

LOSS_BODY REAL NAME(critic_target)(REAL reward, REAL discount, REAL next_q, REAL next_q2,
                                   REAL log_prob, REAL temperature)
{
    return reward + discount * (NAME(lesser)(next_q, next_q2) - temperature * log_prob);
}

/* *first: the derivative goes through q, not q2. */
LOSS_BODY REAL NAME(sac_row)(REAL q, REAL q2, REAL log_prob, REAL temperature, bool *first)
{
    *first = !(q2 < q);
    return temperature * log_prob - NAME(lesser)(q, q2);
}

/* The mean of squared distances; writes the gradient with respect to the action times `scale`, and
 * may do so in place. */
LOSS_BODY REAL NAME(imitation_row)(const REAL *action, const REAL *taken, uint32_t size, REAL scale,
                                   REAL *gradient)
{
    REAL sum = 0, share = 1 / (REAL)size;
    for (uint32_t i = 0; i < size; i++) {
        REAL distance = action[i] - taken[i];
        sum += share * distance * distance;
        gradient[i] = scale * share * 2 * distance;
    }
    return sum;
}

/* The mean of C51's distribution; writes its gradient times `scale`, and may do so in place. */
LOSS_BODY REAL NAME(c51_mean_row)(const REAL *logits, uint32_t atoms, REAL least, REAL most,
                                  REAL scale, REAL *gradient)
{
    REAL log_sum = NAME(log_sum_exp)(logits, atoms);
    REAL mean = NAME(c51_mean)(logits, atoms, least, most);
    for (uint32_t i = 0; i < atoms; i++)
        gradient[i] =
            scale * MATH(exp)(logits[i] - log_sum) * (NAME(atom)(i, atoms, least, most) - mean);
    return mean;
}

/* *push: the derivative with respect to the value. */
LOSS_BODY REAL NAME(expectile_row)(REAL error, REAL expectile, REAL *push)
{
    REAL weight = error < 0 ? 1 - expectile : expectile;
    *push = -2 * weight * error;
    return weight * error * error;
}

LOSS_BODY REAL NAME(cql_exponent)(const REAL *q, const REAL *log_probs, uint32_t index)
{
    return log_probs ? q[index] - log_probs[index] : q[index];
}

/* The logarithm of the sum of exp(q), or of the mean of exp(q - log_probs), over what the mask
 * allows (asserted: something). Its gradient times `scale` is written, or added; it may be q. */
LOSS_BODY REAL NAME(cql_row)(const REAL *q, const REAL *log_probs, const bool *mask, uint32_t count,
                             REAL scale, bool add, REAL *gradient)
{
    REAL most = -(REAL)INFINITY, sum = 0, there = 0;
    for (uint32_t i = 0; i < count; i++) {
        REAL exponent = NAME(cql_exponent)(q, log_probs, i);
        if (mask && !mask[i])
            continue;
        there += 1 + (exponent - exponent); /* NaN where it is not finite */
        most = exponent > most ? exponent : most;
    }
    for (uint32_t i = 0; i < count; i++)
        if (!mask || mask[i])
            sum += MATH(exp)(NAME(cql_exponent)(q, log_probs, i) - most);
    for (uint32_t i = 0; i < count; i++) {
        REAL share = MATH(exp)(NAME(cql_exponent)(q, log_probs, i) - most) / sum;
        REAL push = mask && !mask[i] ? 0 : scale * share;
        gradient[i] = add ? gradient[i] + push : push;
    }
    return most + MATH(log)(log_probs ? sum / there : sum) + (there - there);
}
