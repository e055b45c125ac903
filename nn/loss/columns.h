/* Targets over the steps of one sequence, for REAL and NAME(): from its last step to its first. */

struct NAME(column) {
    uint32_t steps;
    size_t stride; /* between steps, in all of the arrays */
    const REAL *rewards, *discounts, *values;
    const REAL *next_values;   /* NULL: the next step's value */
    const bool *valid, *first; /* NULL: all, none */
};

/* An action was taken there, and where it led to has a value. */
LOSS_BODY bool NAME(is_taken)(const struct NAME(column) * c, uint32_t step)
{
    bool led = c->next_values || step + 1 < c->steps;
    return led && (!c->valid || c->valid[step * c->stride]);
}

/* The next step goes on where this one led to. */
LOSS_BODY bool NAME(goes_on)(const struct NAME(column) * c, uint32_t step)
{
    if (step + 1 >= c->steps || !NAME(is_taken)(c, step + 1))
        return false;
    return !c->first || !c->first[(step + 1) * c->stride];
}

LOSS_BODY REAL NAME(next_value)(const struct NAME(column) * c, uint32_t step)
{
    return c->next_values ? c->next_values[step * c->stride] : c->values[(step + 1) * c->stride];
}

/* `returns` may be the values when there are no next_values. */
LOSS_BODY REAL NAME(n_step_return)(const struct NAME(column) * c, uint32_t n, uint32_t step)
{
    uint32_t last = step;
    while (last - step + 1 < n && NAME(goes_on)(c, last))
        last++;
    REAL sum = NAME(next_value)(c, last);
    for (uint32_t i = last + 1; i-- > step;)
        sum = c->rewards[i * c->stride] + c->discounts[i * c->stride] * sum;
    return sum;
}

LOSS_BODY void NAME(n_step_column)(const struct NAME(column) * c, uint32_t n, REAL *returns)
{
    for (uint32_t step = 0; step < c->steps; step++)
        returns[step * c->stride] =
            NAME(is_taken)(c, step) ? NAME(n_step_return)(c, n, step) : c->values[step * c->stride];
}

LOSS_BODY void NAME(lambda_column)(const struct NAME(column) * c, REAL lambda, REAL *returns)
{
    REAL after = 0; /* the return of the step behind */
    for (uint32_t step = c->steps; step-- > 0;) {
        size_t at = step * c->stride;
        bool taken = NAME(is_taken)(c, step);
        REAL next = taken ? NAME(next_value)(c, step) : 0;
        if (taken && NAME(goes_on)(c, step))
            next = (1 - lambda) * next + lambda * after;
        after = taken ? c->rewards[at] + c->discounts[at] * next : c->values[at];
        returns[at] = after;
    }
}

LOSS_BODY void NAME(gae_column)(const struct NAME(column) * c, REAL lambda, REAL *advantages)
{
    REAL after = 0;
    for (uint32_t step = c->steps; step-- > 0;) {
        size_t at = step * c->stride;
        if (!NAME(is_taken)(c, step)) {
            after = advantages[at] = 0;
            continue;
        }
        REAL error = c->rewards[at] + c->discounts[at] * NAME(next_value)(c, step) - c->values[at];
        bool on = NAME(goes_on)(c, step);
        after = on ? error + c->discounts[at] * lambda * after : error;
        advantages[at] = after;
    }
}

LOSS_BODY REAL NAME(cut_off)(REAL x, REAL most)
{
    return x > most ? most : x;
}

/* Bars and the lambda that the traces are multiplied by. */
struct NAME(vtrace_bars) {
    REAL rho, trace, policy_rho, lambda;
};

LOSS_BODY void NAME(vtrace_column)(const struct NAME(column) * c,
                                   const struct NAME(vtrace_bars) * bars, const REAL *log_ratios,
                                   REAL *returns, REAL *advantages)
{
    REAL after = 0; /* the return of the step behind, less its value */
    for (uint32_t step = c->steps; step-- > 0;) {
        size_t at = step * c->stride;
        if (!NAME(is_taken)(c, step)) {
            returns[at] = c->values[at];
            after = advantages[at] = 0;
            continue;
        }
        REAL ratio = MATH(exp)(log_ratios[at]), next = NAME(next_value)(c, step);
        REAL reward = c->rewards[at], discount = c->discounts[at], value = c->values[at];
        REAL beyond = NAME(goes_on)(c, step) ? after : 0;
        REAL error = NAME(cut_off)(ratio, bars->rho) * (reward + discount * next - value);
        advantages[at] =
            NAME(cut_off)(ratio, bars->policy_rho) * (reward + discount * (next + beyond) - value);
        after = error + discount * bars->lambda * NAME(cut_off)(ratio, bars->trace) * beyond;
        returns[at] = value + after;
    }
}

LOSS_BODY void NAME(retrace_column)(const struct NAME(column) * c, REAL lambda, const REAL *chosen,
                                    const REAL *log_ratios, REAL *returns)
{
    REAL after = 0; /* the trace of the step behind times what its return adds to its value */
    for (uint32_t step = c->steps; step-- > 0;) {
        size_t at = step * c->stride;
        if (!NAME(is_taken)(c, step)) {
            returns[at] = chosen[at];
            after = 0;
            continue;
        }
        REAL beyond = NAME(goes_on)(c, step) ? after : 0;
        REAL ratio = log_ratios ? MATH(exp)(log_ratios[at]) : 1;
        returns[at] = c->rewards[at] + c->discounts[at] * (NAME(next_value)(c, step) + beyond);
        after = lambda * NAME(cut_off)(ratio, 1) * (returns[at] - chosen[at]);
    }
}

/* ---- R2D2 -------------------------------------------------------------------------------- */

/* `values` of the column are not read: those of the steps, unscaled, are first written to
 * `targets`, and then overwritten from the first step on by what only reads later ones. `q` rows
 * are [actions], `stride` * actions apart. */
LOSS_BODY void NAME(r2d2_column)(const struct NAME(column) * column, uint32_t n, REAL epsilon,
                                 uint32_t actions, const bool *mask, const REAL *online,
                                 const REAL *target, REAL *targets)
{
    struct NAME(column) c = *column;
    c.values = targets;
    c.next_values = NULL;
    for (uint32_t step = 0; step < c.steps; step++) {
        size_t at = step * c.stride, row = at * actions;
        uint32_t best = NAME(argmax)(online + row, mask ? mask + row : NULL, actions);
        targets[at] = NAME(unscale)(target[row + best], epsilon);
    }
    for (uint32_t step = 0; step < c.steps; step++) {
        size_t at = step * c.stride;
        REAL value = NAME(is_taken)(&c, step) ? NAME(n_step_return)(&c, n, step) : targets[at];
        targets[at] = NAME(rescale)(value, epsilon);
    }
}
