/* Diagonal Gaussians and squashed ones, one row of `size` dimensions, for REAL and NAME(). */

struct NAME(gaussian) {
    uint32_t size;
    const REAL *mean, *log_std;
    REAL least, most; /* bounds of log_std */
    bool squashed;
    const REAL *low, *high; /* NULL: -1 and 1 */
};

/* log_std within its bounds. */
LOSS_BODY REAL NAME(bounded_log_std)(const struct NAME(gaussian) * g, uint32_t i)
{
    REAL log_std = g->log_std[i];
    return log_std < g->least ? g->least : log_std > g->most ? g->most : log_std;
}

/* Its derivative by log_std. */
LOSS_BODY REAL NAME(bounded_slope)(const struct NAME(gaussian) * g, uint32_t i)
{
    return g->log_std[i] < g->least || g->log_std[i] > g->most ? 0 : 1;
}

/* log(1 - tanh(u)^2): 2 (log 2 - u - softplus(-2 u)), which is even in u. */
LOSS_BODY REAL NAME(log_tanh_slope)(REAL u)
{
    REAL size = MATH(fabs)(u);
    return 2 * ((REAL)0.69314718055994530942 - size - MATH(log1p)(MATH(exp)(-2 * size)));
}

/* The largest that |action - middle| can be. */
LOSS_BODY REAL NAME(half)(const struct NAME(gaussian) * g, uint32_t i)
{
    return g->low ? (REAL)0.5 * (g->high[i] - g->low[i]) : 1;
}

LOSS_BODY REAL NAME(middle)(const struct NAME(gaussian) * g, uint32_t i)
{
    return g->low ? (REAL)0.5 * (g->high[i] + g->low[i]) : 0;
}

/* What u is squashed to. */
LOSS_BODY REAL NAME(squash)(const struct NAME(gaussian) * g, REAL u, uint32_t i)
{
    REAL action = MATH(tanh)(u);
    if (!g->low)
        return action;
    action = NAME(middle)(g, i) + NAME(half)(g, i) * action;
    return action < g->low[i] ? g->low[i] : action > g->high[i] ? g->high[i] : action;
}

/* The logarithm of its derivative. */
LOSS_BODY REAL NAME(log_squash_slope)(const struct NAME(gaussian) * g, REAL u, uint32_t i)
{
    return NAME(log_tanh_slope)(u) + (g->low ? MATH(log)(NAME(half)(g, i)) : 0);
}

/* The u that squashed to `action`, of which none is as large as 1. */
LOSS_BODY REAL NAME(unsquash)(const struct NAME(gaussian) * g, REAL action, uint32_t i)
{
    if (g->low)
        action = (action - NAME(middle)(g, i)) / NAME(half)(g, i);
    REAL most = (REAL)0.99999994; /* the largest float below 1 */
    return MATH(atanh)(action > most ? most : action < -most ? -most : action);
}

/* Of u = mean + exp(log_std) z. */
LOSS_BODY REAL NAME(normal_log_prob)(REAL z, REAL log_std)
{
    return -(REAL)0.5 * z * z - log_std - (REAL)0.91893853320467274178; /* log sqrt(2 pi) */
}

LOSS_BODY REAL NAME(gaussian_log_prob)(const struct NAME(gaussian) * g, const REAL *actions)
{
    REAL sum = 0;
    for (uint32_t i = 0; i < g->size; i++) {
        REAL log_std = NAME(bounded_log_std)(g, i);
        REAL u = g->squashed ? NAME(unsquash)(g, actions[i], i) : actions[i];
        sum += NAME(normal_log_prob)((u - g->mean[i]) * MATH(exp)(-log_std), log_std);
        sum -= g->squashed ? NAME(log_squash_slope)(g, u, i) : 0;
    }
    return sum;
}

/* Writes the actions that noise makes, which may be the noise; returns their log-probability. */
LOSS_BODY REAL NAME(gaussian_transform)(const struct NAME(gaussian) * g, const REAL *noise,
                                        REAL *actions)
{
    REAL sum = 0;
    for (uint32_t i = 0; i < g->size; i++) {
        REAL log_std = NAME(bounded_log_std)(g, i), z = noise[i];
        REAL u = g->mean[i] + MATH(exp)(log_std) * z;
        sum += NAME(normal_log_prob)(z, log_std);
        sum -= g->squashed ? NAME(log_squash_slope)(g, u, i) : 0;
        actions[i] = g->squashed ? NAME(squash)(g, u, i) : u;
    }
    return sum;
}

/* `noise` is read of squashed ones only. */
LOSS_BODY REAL NAME(gaussian_entropy)(const struct NAME(gaussian) * g, const REAL *noise)
{
    REAL sum = 0;
    for (uint32_t i = 0; i < g->size; i++) {
        REAL log_std = NAME(bounded_log_std)(g, i);
        sum += log_std + (REAL)1.41893853320467274178; /* log sqrt(2 pi e) */
        if (g->squashed)
            sum += NAME(log_squash_slope)(g, g->mean[i] + MATH(exp)(log_std) * noise[i], i);
    }
    return sum;
}

/* Derivatives of a loss by what a row's distribution says. */
struct NAME(gaussian_slopes) {
    const REAL *actions, *noise;  /* NULL: there are none */
    const REAL *by_sample_action; /* NULL: zeros */
    REAL by_log_prob, by_sample_log_prob, by_entropy;
};

/* Those of one dimension, by the mean and by the log_std within its bounds. */
struct NAME(gaussian_push) {
    REAL mean, log_std;
};

LOSS_BODY struct NAME(gaussian_push)
    NAME(gaussian_push_at)(const struct NAME(gaussian) * g, const struct NAME(gaussian_slopes) * by,
                           uint32_t i)
{
    REAL log_std = NAME(bounded_log_std)(g, i), std = MATH(exp)(log_std);
    struct NAME(gaussian_push) push;
    push.mean = 0;
    push.log_std = by->by_entropy - by->by_sample_log_prob;
    if (by->noise) { /* through u */
        REAL u = g->mean[i] + std * by->noise[i], through = 0;
        REAL slope = g->squashed ? NAME(half)(g, i) * MATH(exp)(NAME(log_tanh_slope)(u)) : 1;
        if (by->by_sample_action)
            through = by->by_sample_action[i] * slope;
        if (g->squashed)
            through += 2 * MATH(tanh)(u) * (by->by_sample_log_prob - by->by_entropy);
        push.mean += through;
        push.log_std += through * std * by->noise[i];
    }
    if (by->actions) {
        REAL u = g->squashed ? NAME(unsquash)(g, by->actions[i], i) : by->actions[i];
        REAL z = (u - g->mean[i]) / std;
        push.mean += by->by_log_prob * z / std;
        push.log_std += by->by_log_prob * (z * z - 1);
    }
    return push;
}

/* Adds to, or writes, the gradients, which may be mean and log_std. */
LOSS_BODY void NAME(gaussian_back)(const struct NAME(gaussian) * g,
                                   const struct NAME(gaussian_slopes) * by, bool add_mean,
                                   bool add_log_std, REAL *dmean, REAL *dlog_std)
{
    for (uint32_t i = 0; i < g->size; i++) {
        struct NAME(gaussian_push) push = NAME(gaussian_push_at)(g, by, i);
        REAL bounded = NAME(bounded_slope)(g, i) * push.log_std;
        dmean[i] = (add_mean ? dmean[i] : 0) + push.mean;
        dlog_std[i] = (add_log_std ? dlog_std[i] : 0) + bounded;
    }
}

/* ---- divergences ------------------------------------------------------------------------- */

/* Of one dimension: what the means' distance makes of KL(p || q) with the deviation exp(log_std).
 */
LOSS_BODY REAL NAME(mean_divergence)(const struct NAME(gaussian) * p,
                                     const struct NAME(gaussian) * q, REAL log_std, uint32_t i)
{
    REAL z = (p->mean[i] - q->mean[i]) * MATH(exp)(-log_std);
    return (REAL)0.5 * z * z;
}

/* What the deviations make of it: log(q / p) + (p^2 / q^2 - 1) / 2. */
LOSS_BODY REAL NAME(std_divergence)(REAL p_log_std, REAL q_log_std)
{
    REAL more = p_log_std - q_log_std;
    return (REAL)0.5 * MATH(expm1)(2 * more) - more;
}

LOSS_BODY REAL NAME(gaussian_kl)(const struct NAME(gaussian) * p, const struct NAME(gaussian) * q)
{
    REAL sum = 0;
    for (uint32_t i = 0; i < p->size; i++) {
        REAL p_log_std = NAME(bounded_log_std)(p, i), q_log_std = NAME(bounded_log_std)(q, i);
        sum += NAME(mean_divergence)(p, q, q_log_std, i);
        sum += NAME(std_divergence)(p_log_std, q_log_std);
    }
    return sum;
}

LOSS_BODY void NAME(decoupled_kl)(const struct NAME(gaussian) * p, const struct NAME(gaussian) * q,
                                  REAL *means, REAL *stds)
{
    for (uint32_t i = 0; i < p->size; i++) {
        REAL p_log_std = NAME(bounded_log_std)(p, i), q_log_std = NAME(bounded_log_std)(q, i);
        means[i] = NAME(mean_divergence)(p, q, p_log_std, i);
        stds[i] = NAME(std_divergence)(p_log_std, q_log_std);
    }
}

/* Derivatives of a loss by a row's divergences. */
struct NAME(kl_slopes) {
    REAL by_divergence;
    const REAL *by_means, *by_stds; /* NULL: zeros */
};

/* Of dimension i; the decoupled ones have p as a constant. */
LOSS_BODY void NAME(gaussian_kl_push_at)(const struct NAME(gaussian) * p,
                                         const struct NAME(gaussian) * q,
                                         const struct NAME(kl_slopes) * by, uint32_t i,
                                         struct NAME(gaussian_push) * to_p,
                                         struct NAME(gaussian_push) * to_q)
{
    REAL p_log_std = NAME(bounded_log_std)(p, i), q_log_std = NAME(bounded_log_std)(q, i);
    REAL gap = p->mean[i] - q->mean[i], more = MATH(expm1)(2 * (p_log_std - q_log_std));
    REAL q_precision = MATH(exp)(-2 * q_log_std), full = by->by_divergence;
    REAL by_mean = by->by_means ? by->by_means[i] : 0, by_std = by->by_stds ? by->by_stds[i] : 0;
    to_p->mean = full * gap * q_precision;
    to_p->log_std = full * more;
    to_q->mean = -full * gap * q_precision - by_mean * gap * MATH(exp)(-2 * p_log_std);
    to_q->log_std = -full * (more + gap * gap * q_precision) - by_std * more;
}
