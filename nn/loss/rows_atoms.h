/* Distributions of values, for REAL and NAME(): C51's over fixed atoms, which
 * are logits, and QR-DQN's of quantiles, which are values themselves. A row has
 * [actions][atoms]. */

LOSS_BODY REAL NAME(log_sum_exp)(const REAL *logits, uint32_t count)
{
    REAL most = logits[0], sum = 0;
    for (uint32_t i = 1; i < count; i++)
        most = logits[i] > most ? logits[i] : most;
    for (uint32_t i = 0; i < count; i++)
        sum += MATH(exp)(logits[i] - most);
    return most + MATH(log)(sum);
}

LOSS_BODY REAL NAME(atom)(uint32_t index, uint32_t atoms, REAL least, REAL most)
{
    return least + (most - least) * (REAL)index / (REAL)(atoms - 1);
}

LOSS_BODY REAL NAME(c51_mean)(const REAL *logits, uint32_t atoms, REAL least, REAL most)
{
    REAL log_sum = NAME(log_sum_exp)(logits, atoms), mean = 0;
    for (uint32_t i = 0; i < atoms; i++)
        mean += MATH(exp)(logits[i] - log_sum) * NAME(atom)(i, atoms, least, most);
    return mean;
}

LOSS_BODY REAL NAME(quantile_mean)(const REAL *quantiles, uint32_t count)
{
    REAL sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += quantiles[i];
    return sum / (REAL)count;
}

/* The allowed action with the largest mean, of C51's (least < most) or of
 * quantiles. As argmax().
 */
LOSS_BODY uint32_t NAME(best_mean)(const REAL *row, const bool *mask, uint32_t actions,
                                   uint32_t atoms, REAL least, REAL most)
{
    uint32_t best = 0;
    while (mask && !mask[best] && best + 1 < actions)
        best++;
    REAL best_mean = -(REAL)INFINITY;
    for (uint32_t i = best; i < actions; i++) {
        const REAL *of = row + (size_t)i * atoms;
        if (mask && !mask[i])
            continue;
        REAL mean =
            least < most ? NAME(c51_mean)(of, atoms, least, most) : NAME(quantile_mean)(of, atoms);
        best = mean > best_mean ? i : best;
        best_mean = mean > best_mean ? mean : best_mean;
    }
    return best;
}

/* The distribution of reward + discount * a value with these logits, on the
 * same atoms: what falls between two of them is shared by its distance to them,
 * what falls outside is at the ends. */
LOSS_BODY void NAME(c51_project)(const REAL *logits, uint32_t atoms, REAL least, REAL most,
                                 REAL reward, REAL discount, REAL *projected)
{
    REAL log_sum = NAME(log_sum_exp)(logits, atoms), gap = (most - least) / (REAL)(atoms - 1);
    for (uint32_t i = 0; i < atoms; i++)
        projected[i] = 0;
    for (uint32_t i = 0; i < atoms; i++) {
        REAL value = reward + discount * NAME(atom)(i, atoms, least, most);
        REAL inside = value < least ? least : value > most ? most : value;
        REAL place = (inside - least) / gap;
        uint32_t below = place >= 1 ? (uint32_t)place : 0;
        below = below > atoms - 2 ? atoms - 2 : below;
        REAL above = place - (REAL)below + (value - value); /* NaN where value is not finite */
        REAL p = MATH(exp)(logits[i] - log_sum);
        projected[below] += p * (1 - above);
        projected[below + 1] += p * above;
    }
}

/* Cross entropy from `target` to the softmax of the action's logits;
 * *divergence is that less the entropy of `target`. Writes the gradient times
 * `scale`; it may be the row. */
LOSS_BODY REAL NAME(c51_row)(const REAL *row, uint32_t actions, uint32_t atoms, uint32_t taken,
                             const REAL *target, REAL scale, REAL *divergence, REAL *gradient)
{
    const REAL *logits = row + (size_t)taken * atoms;
    REAL log_sum = NAME(log_sum_exp)(logits, atoms), loss = 0, entropy = 0;
    for (uint32_t i = 0; i < atoms; i++) {
        REAL log_p = logits[i] - log_sum;
        loss -= target[i] * log_p;
        entropy -= target[i] > 0 ? target[i] * MATH(log)(target[i]) : 0;
        gradient[(size_t)taken * atoms + i] = scale * (MATH(exp)(log_p) - target[i]);
    }
    for (size_t i = 0; i < (size_t)actions * atoms; i++)
        if (i / atoms != taken)
            gradient[i] = 0;
    *divergence = loss - entropy;
    return loss;
}

/* |tau - 1{miss < 0}| times the Huber loss, which is its slope times the error
 * less half of that. */
LOSS_BODY REAL NAME(quantile_miss)(REAL miss, REAL tau, REAL delta, REAL *push)
{
    REAL slope = miss > delta ? delta : miss;
    slope = slope < -delta ? -delta : slope;
    REAL steep = (miss < 0 ? 1 - tau : tau) * slope;
    *push += steep;
    return steep * (miss - (REAL)0.5 * slope);
}

/* Sums of one quantile against `targets`, in lanes that a compiler makes
 * vectors of: its loss, and its derivative with the sign turned. */
LOSS_BODY REAL NAME(quantile_sum)(REAL quantile, REAL tau, const REAL *targets, uint32_t count,
                                  REAL delta, REAL *push)
{
    REAL losses[QUANTILE_LANES] = {0}, pushes[QUANTILE_LANES] = {0}, loss = 0;
    uint32_t whole = count - count % QUANTILE_LANES;
    for (uint32_t from = 0; from < whole; from += QUANTILE_LANES)
        for (uint32_t j = 0; j < QUANTILE_LANES; j++)
            losses[j] += NAME(quantile_miss)(targets[from + j] - quantile, tau, delta, &pushes[j]);
    for (uint32_t j = whole; j < count; j++)
        losses[0] += NAME(quantile_miss)(targets[j] - quantile, tau, delta, &pushes[0]);
    *push = 0;
    for (uint32_t j = 0; j < QUANTILE_LANES; j++) {
        *push += pushes[j];
        loss += losses[j];
    }
    return loss;
}

/* Quantile regression with the Huber loss: the sum over the action's quantiles
 * of the mean over `targets`, [atoms], too. *error: the mean of targets less
 * that of the quantiles. */
LOSS_BODY REAL NAME(quantile_row)(const REAL *row, uint32_t actions, uint32_t atoms, uint32_t taken,
                                  const REAL *targets, REAL delta, REAL scale, REAL *error,
                                  REAL *gradient)
{
    const REAL *quantiles = row + (size_t)taken * atoms;
    REAL loss = 0, share = 1 / (REAL)atoms;
    *error = NAME(quantile_mean)(targets, atoms) - NAME(quantile_mean)(quantiles, atoms);
    for (uint32_t i = 0; i < atoms; i++) {
        REAL tau = ((REAL)i + (REAL)0.5) * share, push;
        loss += share * NAME(quantile_sum)(quantiles[i], tau, targets, atoms, delta, &push);
        gradient[(size_t)taken * atoms + i] = -scale * share * push;
    }
    for (size_t i = 0; i < (size_t)actions * atoms; i++)
        if (i / atoms != taken)
            gradient[i] = 0;
    return loss;
}
