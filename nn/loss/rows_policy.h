/* Losses of one action's log-probability, for REAL and NAME(). */

/* -min(ratio advantage, clip(ratio) advantage); *push is its derivative by log_ratio. */
LOSS_BODY REAL NAME(ppo_row)(REAL log_ratio, REAL advantage, REAL clip, REAL *push)
{
    REAL ratio = MATH(exp)(log_ratio), free = ratio * advantage;
    REAL kept = ratio < 1 - clip ? 1 - clip : ratio > 1 + clip ? 1 + clip : ratio;
    REAL clipped = kept * advantage;
    if (!(clipped < free)) {
        *push = -free;
        return -free;
    }
    *push = 0;
    return -clipped + (log_ratio - log_ratio); /* NaN where a log-probability is not finite */
}

/* An estimate of KL(old || new) of one action of the old policy. */
LOSS_BODY REAL NAME(divergence_of_ratio)(REAL log_ratio)
{
    return MATH(expm1)(log_ratio) - log_ratio;
}

/* CRR's weight of an action of value q beside `count` others. */
LOSS_BODY REAL NAME(crr_weight)(REAL q, const REAL *others, uint32_t count, bool max, bool binary,
                                REAL temperature, REAL most)
{
    REAL sum = 0, largest = others[0], advantage, weight;
    for (uint32_t i = 0; i < count; i++) {
        sum += others[i];
        largest = others[i] > largest ? others[i] : largest;
    }
    advantage = q - (max ? largest : sum / (REAL)count);
    weight = binary ? (advantage > 0 ? 1 : 0) : MATH(exp)(advantage / temperature);
    weight = weight > most ? most : weight;
    return weight + (q - q) + (sum - sum); /* NaN where one of them is not finite */
}
