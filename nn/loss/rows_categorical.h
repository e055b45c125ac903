/* Categorical distributions over `count` choices, for REAL and NAME(). What `mask` does not allow
 * (NULL: it allows all) is not read. */

/* log p of a choice is (its logit - most) - log_sum: no large numbers are left to cancel. */
struct NAME(softmax) {
    REAL most, log_sum;
};

LOSS_BODY bool NAME(is_allowed)(const bool *mask, uint32_t choice)
{
    return !mask || mask[choice];
}

LOSS_BODY struct NAME(softmax)
    NAME(softmax_of)(const REAL *logits, const bool *mask, uint32_t count)
{
    uint32_t best = NAME(argmax)(logits, mask, count);
    struct NAME(softmax) softmax;
    REAL sum = NAME(is_allowed)(mask, best) ? 0 : 1; /* of nothing */
    softmax.most = NAME(is_allowed)(mask, best) ? logits[best] : 0;
    for (uint32_t i = 0; i < count; i++)
        if (NAME(is_allowed)(mask, i))
            sum += MATH(exp)(logits[i] - softmax.most);
    softmax.log_sum = MATH(log)(sum);
    return softmax;
}

LOSS_BODY REAL NAME(choice_log_prob)(const REAL *logits, const bool *mask,
                                     struct NAME(softmax) softmax, uint32_t choice)
{
    if (!NAME(is_allowed)(mask, choice))
        return -(REAL)INFINITY;
    return logits[choice] - softmax.most - softmax.log_sum;
}

LOSS_BODY REAL NAME(categorical_log_prob)(const REAL *logits, const bool *mask, uint32_t count,
                                          uint32_t taken)
{
    struct NAME(softmax) softmax = NAME(softmax_of)(logits, mask, count);
    return NAME(choice_log_prob)(logits, mask, softmax, taken);
}

/* The choice that `uniform`, in [0, 1), falls on. */
LOSS_BODY uint32_t NAME(categorical_draw)(const REAL *logits, const bool *mask, uint32_t count,
                                          double uniform)
{
    uint32_t choice = NAME(argmax)(logits, mask, count);
    REAL most = logits[choice];
    double sum = 0, left;
    for (uint32_t i = 0; i < count; i++)
        if (NAME(is_allowed)(mask, i))
            sum += (double)MATH(exp)(logits[i] - most);
    left = uniform * sum;
    for (uint32_t i = 0; i < count; i++) {
        double weight = NAME(is_allowed)(mask, i) ? (double)MATH(exp)(logits[i] - most) : 0;
        if (!(weight > 0))
            continue;
        choice = i; /* rounding may leave the last one that is possible */
        if (left < weight)
            break;
        left -= weight;
    }
    return choice;
}

/* p log p, and 0 of what is impossible. */
LOSS_BODY REAL NAME(plogp)(REAL p, REAL log_prob)
{
    return p > 0 || p != p ? p * log_prob : 0;
}

LOSS_BODY REAL NAME(softmax_entropy)(const REAL *logits, const bool *mask, uint32_t count,
                                     struct NAME(softmax) softmax)
{
    REAL sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        REAL log_prob = NAME(choice_log_prob)(logits, mask, softmax, i);
        sum -= NAME(plogp)(MATH(exp)(log_prob), log_prob);
    }
    return sum;
}

LOSS_BODY REAL NAME(categorical_entropy)(const REAL *logits, const bool *mask, uint32_t count)
{
    return NAME(softmax_entropy)(logits, mask, count, NAME(softmax_of)(logits, mask, count));
}

/* Adds to, or writes, the gradient of by_log_prob * log p(taken) + by_entropy * entropy. It may be
 * the logits. */
LOSS_BODY void NAME(categorical_back)(const REAL *logits, const bool *mask, uint32_t count,
                                      uint32_t taken, REAL by_log_prob, REAL by_entropy, bool add,
                                      REAL *gradient)
{
    struct NAME(softmax) softmax = NAME(softmax_of)(logits, mask, count);
    REAL entropy = by_entropy != 0 ? NAME(softmax_entropy)(logits, mask, count, softmax) : 0;
    by_log_prob = NAME(is_allowed)(mask, taken) ? by_log_prob : 0;
    for (uint32_t i = 0; i < count; i++) {
        REAL before = add ? gradient[i] : 0, push = 0;
        if (NAME(is_allowed)(mask, i)) {
            REAL log_prob = NAME(choice_log_prob)(logits, mask, softmax, i);
            REAL p = MATH(exp)(log_prob);
            push = by_log_prob * ((i == taken ? 1 : 0) - p) -
                   by_entropy * (NAME(plogp)(p, log_prob) + p * entropy);
        }
        gradient[i] = before + push;
    }
}

/* KL(p || q) */
LOSS_BODY REAL NAME(categorical_kl)(const REAL *p, const bool *p_mask, const REAL *q,
                                    const bool *q_mask, uint32_t count)
{
    struct NAME(softmax) of_p = NAME(softmax_of)(p, p_mask, count);
    struct NAME(softmax) of_q = NAME(softmax_of)(q, q_mask, count);
    REAL sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        REAL log_p = NAME(choice_log_prob)(p, p_mask, of_p, i), prob = MATH(exp)(log_p);
        if (prob > 0 || prob != prob)
            sum += prob * (log_p - NAME(choice_log_prob)(q, q_mask, of_q, i));
    }
    return sum;
}

/* Adds to, or writes, the gradients of scale * KL(p || q), of which one may be NULL. */
LOSS_BODY void NAME(categorical_kl_back)(const REAL *p, const bool *p_mask, const REAL *q,
                                         const bool *q_mask, uint32_t count, REAL scale, bool add,
                                         REAL *dp, REAL *dq)
{
    struct NAME(softmax) of_p = NAME(softmax_of)(p, p_mask, count);
    struct NAME(softmax) of_q = NAME(softmax_of)(q, q_mask, count);
    REAL divergence = dp ? NAME(categorical_kl)(p, p_mask, q, q_mask, count) : 0;
    for (uint32_t i = 0; i < count; i++) {
        REAL log_p = NAME(choice_log_prob)(p, p_mask, of_p, i), prob = MATH(exp)(log_p);
        REAL log_q = NAME(choice_log_prob)(q, q_mask, of_q, i);
        bool possible = prob > 0 || prob != prob;
        if (dp)
            dp[i] =
                (add ? dp[i] : 0) + (possible ? scale * prob * (log_p - log_q - divergence) : 0);
        if (dq)
            dq[i] = (add ? dq[i] : 0) +
                    (NAME(is_allowed)(q_mask, i) ? scale * (MATH(exp)(log_q) - prob) : 0);
    }
}
