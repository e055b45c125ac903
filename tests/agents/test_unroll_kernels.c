/* Kernels of those who learn from unrolls, by their twins, beside float64: A3C, IMPALA, PPO, each
 * with one choice, two, and numbers for an action. */
#include "kernel_rows.h"

#include "agents/bodies/all.h"

enum { SIZE = 3, STEPS = 7 };

/* ---- decisions ---------------------------------------------------------------------------------
 */

static const int32_t part_sizes[] = {2, 4};

/* Kinds of actions: one choice, two, numbers. */
enum action_kind { CHOICE, CHOICES, NUMBERS, ACTION_KINDS };

static struct decisions decisions_made(enum action_kind kind, uint32_t rows)
{
    uint32_t size = kind == NUMBERS ? SIZE : 6, parts = kind == CHOICE    ? 1
                                                        : kind == CHOICES ? 2
                                                                          : SIZE;
    size_t all = (size_t)rows * size;
    struct decisions decisions = {.space = {.continuous = kind == NUMBERS,
                                            .size = size,
                                            .parts = parts,
                                            .sizes = kind == CHOICES ? part_sizes : NULL},
                                  .rows = rows,
                                  .says = make_floats(all, 1),
                                  .log_std = kind == NUMBERS ? make_floats(all, 0.3) : NULL};
    if (kind == NUMBERS) {
        decisions.actions = make_floats(all, 1);
        return decisions;
    }
    int32_t *actions = make_choices((size_t)rows * parts, kind == CHOICE ? 6 : 2);
    bool *mask = make(all);
    for (size_t i = 0; i < all; i++)
        mask[i] = trp_rng_below(&kernel_rng, 3) > 0;
    for (size_t i = 0; i < rows; i++)
        for (size_t part = 0; part < parts; part++)
            mask[i * size + 2 * part + (uint32_t)actions[i * parts + part]] = true;
    decisions.mask = mask;
    decisions.actions = actions;
    return decisions;
}

/* What a row is, in double: judged with d NULL, else gradients of the two derivatives. */
static void decide_row(const struct decisions *d, const double *says, const double *log_std,
                       size_t row, double *log_prob, double *entropy, double *dsays,
                       double *dlog_std)
{
    size_t size = d->space.size, at = row * size, place = at;
    if (d->space.continuous) {
        double actions[SIZE];
        struct gaussian_f64 g = {SIZE,     says + at, log_std + at, -INFINITY,
                                 INFINITY, false,     NULL,         NULL};
        widen((const float *)d->actions + at, actions, SIZE);
        if (dsays) {
            struct gaussian_slopes_f64 by = {
                .actions = actions, .by_log_prob = *log_prob, .by_entropy = *entropy};
            gaussian_back_f64(&g, &by, false, false, dsays + at, dlog_std + at);
            return;
        }
        *log_prob = gaussian_log_prob_f64(&g, actions);
        *entropy = gaussian_entropy_f64(&g, NULL);
        return;
    }
    if (!dsays)
        *log_prob = *entropy = 0;
    for (size_t part = 0; part < d->space.parts; part++) {
        uint32_t count = d->space.parts > 1 ? (uint32_t)part_sizes[part] : (uint32_t)size;
        uint32_t taken = (uint32_t)((const int32_t *)d->actions)[row * d->space.parts + part];
        if (dsays) {
            categorical_back_f64(says + place, d->mask + place, count, taken, *log_prob, *entropy,
                                 false, dsays + place);
        } else {
            *log_prob += categorical_log_prob_f64(says + place, d->mask + place, count, taken);
            *entropy += categorical_entropy_f64(says + place, d->mask + place, count);
        }
        place += count;
    }
}

/* Decisions in double, as they are before a kernel, and the gradients that it should make. */
struct wide_decisions {
    const double *says, *log_std;
    double *dsays, *dlog_std, *log_probs, *entropies;
};

static struct wide_decisions decisions_wide(const struct decisions *d)
{
    size_t rows = d->rows, all = rows * d->space.size;
    struct wide_decisions wide = {.says = make_wide(d->says, all),
                                  .log_std = d->log_std ? make_wide(d->log_std, all) : NULL,
                                  .dsays = make_doubles(all),
                                  .dlog_std = make_doubles(all),
                                  .log_probs = make_doubles(rows),
                                  .entropies = make_doubles(rows)};
    for (size_t i = 0; i < rows; i++)
        decide_row(d, wide.says, wide.log_std, i, &wide.log_probs[i], &wide.entropies[i], NULL,
                   NULL);
    return wide;
}

static void assert_decisions(const struct decisions *d, const struct wide_decisions *wide)
{
    size_t all = (size_t)d->rows * d->space.size;
    assert_kernel(d->says, wide->dsays, all, "what was said");
    if (d->log_std)
        assert_kernel(d->log_std, wide->dlog_std, all, "deviations");
}

/* ---- A3C and IMPALA ----------------------------------------------------------------------------
 */

static struct unroll_loss unroll_made(enum action_kind kind, uint32_t sequences)
{
    size_t rows = (size_t)STEPS * sequences, floats = rows * sizeof(float);
    bool *valid = make(rows), *first = make(rows);
    for (size_t i = 0; i < rows; i++) {
        valid[i] = trp_rng_below(&kernel_rng, 6) > 0 || i == 0;
        first[i] = trp_rng_below(&kernel_rng, 6) == 0;
    }
    return (struct unroll_loss){.decisions = decisions_made(kind, (uint32_t)rows),
                                .values = make_floats(rows, 1),
                                .items = {.steps = STEPS,
                                          .sequences = sequences,
                                          .rewards = make_floats(rows, 1),
                                          .valid = valid,
                                          .first = first},
                                .item_discounts = make_between(rows, 0, 1),
                                .gamma = 0.9F,
                                .entropy_weight = 0.1F,
                                .value_weight = 0.4F,
                                .discounts = make(floats),
                                .log_probs = make(floats),
                                .entropies = make(floats),
                                .advantages = make(floats),
                                .returns = make(floats),
                                .weights = make(floats),
                                .numbers = make(sizeof(struct unroll_numbers))};
}

/* Advantages and returns of all sequences; `log_ratios` NULL: n-step ones. */
static void advantages_of(const struct unroll_loss *loss, const double *values,
                          const double *log_ratios, double *advantages, double *returns)
{
    uint32_t sequences = loss->items.sequences;
    size_t rows = (size_t)STEPS * sequences;
    double *rewards = make_wide(loss->items.rewards, rows), *discounts = make_doubles(rows);
    for (size_t i = 0; i < rows; i++)
        discounts[i] = (double)0.9F * (double)loss->item_discounts[i];
    for (size_t s = 0; s < sequences; s++) {
        struct column_f64 c = {STEPS,      sequences, rewards + s,           discounts + s,
                               values + s, NULL,      loss->items.valid + s, loss->items.first + s};
        const struct vtrace_bars_f64 bars = {(double)0.9F, 1, 1, 1};
        if (log_ratios)
            vtrace_column_f64(&c, &bars, log_ratios + s, returns + s, advantages + s);
        else
            gae_column_f64(&c, 1, advantages + s);
    }
    for (size_t i = 0; i < rows && !log_ratios; i++)
        returns[i] = advantages[i] + values[i];
}

struct unroll_wants {
    struct wide_decisions decisions;
    double *values, *dvalues, *advantages, *returns;
    double policy, value, entropy, count;
};

static struct unroll_wants unroll_wanted(const struct unroll_loss *loss, const double *log_ratios,
                                         struct wide_decisions decisions)
{
    size_t rows = loss->decisions.rows, last = rows - loss->items.sequences;
    struct unroll_wants w = {.decisions = decisions,
                             .values = make_wide(loss->values, rows),
                             .dvalues = make_doubles(rows),
                             .advantages = make_doubles(rows),
                             .returns = make_doubles(rows)};
    advantages_of(loss, w.values, log_ratios, w.advantages, w.returns);
    for (size_t i = 0; i < last; i++)
        w.count += loss->items.valid[i];
    for (size_t i = 0; i < last; i++) {
        double dlog_prob = -w.advantages[i] / w.count, dentropy = -(double)0.1F / w.count;
        double error = w.returns[i] - w.values[i];
        if (!loss->items.valid[i])
            continue;
        w.policy -=
            (w.advantages[i] * decisions.log_probs[i] + (double)0.1F * decisions.entropies[i]) /
            w.count;
        w.entropy += decisions.entropies[i] / w.count;
        w.value += error * error / 2 / w.count;
        w.dvalues[i] = -(double)0.4F * error / w.count;
        decide_row(&loss->decisions, decisions.says, decisions.log_std, i, &dlog_prob, &dentropy,
                   decisions.dsays, decisions.dlog_std);
    }
    return w;
}

static void assert_unroll(const struct unroll_loss *loss, const struct unroll_wants *w)
{
    const struct unroll_numbers *numbers = loss->numbers;
    assert_decisions(&loss->decisions, &w->decisions);
    assert_kernel(loss->values, w->dvalues, loss->decisions.rows, "of values");
    assert_number(numbers->decisions, w->count, "decisions");
    assert_number(numbers->policy_loss, w->policy, "policy loss");
    assert_number(numbers->value_loss, w->value, "value loss");
    assert_number(numbers->entropy, w->entropy, "entropy");
    assert_number(numbers->loss, w->policy + (double)0.4F * w->value, "loss");
}

static void check_unrolls(enum action_kind kind, uint32_t sequences)
{
    struct unroll_loss loss = unroll_made(kind, sequences);
    struct unroll_wants w = unroll_wanted(&loss, NULL, decisions_wide(&loss.decisions));
    run_kernel("a3c.loss", &loss);
    assert_unroll(&loss, &w);
    forget_made();
    struct impala_loss_arguments a = {.loss = unroll_made(kind, sequences),
                                      .vtrace = {.rho_bar = 0.9F}};
    size_t rows = a.loss.decisions.rows;
    a.old_log_probs = make_floats(rows, 1);
    a.log_ratios = make(rows * sizeof(float));
    a.ratios = make(sizeof *a.ratios);
    struct wide_decisions wide = decisions_wide(&a.loss.decisions);
    double *log_ratios = make_doubles(rows), ratios = 0, above = 0;
    for (size_t i = 0; i < rows; i++) {
        log_ratios[i] = wide.log_probs[i] - (double)a.old_log_probs[i];
        if (a.loss.items.valid[i] && i < rows - sequences) {
            ratios += exp(log_ratios[i]);
            above += exp(log_ratios[i]) > (double)0.9F;
        }
    }
    w = unroll_wanted(&a.loss, log_ratios, wide);
    run_kernel("impala.loss", &a);
    assert_unroll(&a.loss, &w);
    assert_number(a.ratios->mean, ratios / w.count, "mean of ratios");
    assert_number(a.ratios->clipped, above / w.count, "clipped ratios");
    forget_made();
}

static void unrolls_are_learned_from_as_in_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < KERNEL_SIZES; i++)
        for (int kind = 0; kind < ACTION_KINDS; kind++)
            check_unrolls((enum action_kind)kind, kernel_sizes[i]);
}

/* ---- PPO ---------------------------------------------------------------------------------------
 */

static void check_ppo_advantages(uint32_t sequences)
{
    struct unroll_loss made_of = unroll_made(CHOICE, sequences);
    size_t rows = (size_t)STEPS * sequences;
    struct ppo_advantages_arguments a = {.items = made_of.items,
                                         .item_discounts = made_of.item_discounts,
                                         .discounts = made_of.discounts,
                                         .gamma = 0.9F,
                                         .lambda = 0.8F,
                                         .advantages = made_of.advantages,
                                         .returns = made_of.returns};
    a.items.by_sequence = true;
    a.items.values = made_of.values;
    double *rewards = make_wide(a.items.rewards, rows), *values = make_wide(a.items.values, rows);
    double *discounts = make_doubles(rows), *advantages = make_doubles(rows);
    double *returns = make_doubles(rows);
    for (size_t i = 0; i < rows; i++)
        discounts[i] = (double)0.9F * (double)a.item_discounts[i];
    for (size_t at = 0; at < rows; at += STEPS) {
        struct column_f64 c = {STEPS,       1,    rewards + at,       discounts + at,
                               values + at, NULL, a.items.valid + at, a.items.first + at};
        gae_column_f64(&c, (double)0.8F, advantages + at);
    }
    for (size_t i = 0; i < rows; i++)
        returns[i] = advantages[i] + values[i];
    run_kernel("ppo.advantages", &a);
    assert_kernel(a.advantages, advantages, rows, "advantages");
    assert_kernel(a.returns, returns, rows, "returns");
    forget_made();
}

/* Advantages in double, as the loss reads them. */
static double *advantages_read(const struct ppo_loss_arguments *a)
{
    size_t rows = a->decisions.rows;
    double *advantages = make_wide(a->advantages, rows), mean = 0, squares = 0;
    for (size_t i = 0; i < rows; i++)
        mean += advantages[i] / (double)rows;
    for (size_t i = 0; i < rows; i++)
        squares += pow(advantages[i] - mean, 2) / (double)rows;
    for (size_t i = 0; i < rows && !a->raw_advantages; i++)
        advantages[i] = (advantages[i] - mean) / (sqrt(squares) + 1e-8);
    return advantages;
}

static void check_ppo(enum action_kind kind, uint32_t rows, bool raw)
{
    struct ppo_clips *clips = make(sizeof *clips);
    struct ppo_loss_arguments a = {.decisions = decisions_made(kind, rows),
                                   .values = make_floats(rows, 1),
                                   .old_log_probs = make_floats(rows, 0.3),
                                   .old_values = make_floats(rows, 1),
                                   .returns = make_floats(rows, 1),
                                   .advantages = make_floats(rows, 2),
                                   .log_probs = make(rows * sizeof(float)),
                                   .entropies = make(rows * sizeof(float)),
                                   .clips = clips,
                                   .entropy_weight = 0.1F,
                                   .value_weight = 0.4F,
                                   .raw_advantages = raw,
                                   .numbers = make(sizeof(struct ppo_numbers))};
    struct wide_decisions wide = decisions_wide(&a.decisions);
    *clips = (struct ppo_clips){0.25F, 0.3F};
    const double *advantages = advantages_read(&a);
    double *dvalues = make_doubles(rows), policy = 0, value = 0, entropy = 0, divergence = 0;
    double clipped = 0;
    for (size_t i = 0; i < rows; i++)
        ((float *)(void *)(uintptr_t)a.old_log_probs)[i] += (float)wide.log_probs[i];
    for (size_t i = 0; i < rows; i++) {
        double push, log_ratio = wide.log_probs[i] - (double)a.old_log_probs[i];
        double dentropy = -(double)0.1F / rows;
        policy += (ppo_row_f64(log_ratio, advantages[i], 0.25, &push) -
                   (double)0.1F * wide.entropies[i]) /
                  rows;
        entropy += wide.entropies[i] / rows;
        divergence += divergence_of_ratio_f64(log_ratio) / rows;
        clipped += (fabs(exp(log_ratio) - 1) > 0.25) / (double)rows;
        push /= rows;
        decide_row(&a.decisions, wide.says, wide.log_std, i, &push, &dentropy, wide.dsays,
                   wide.dlog_std);
        value += value_row_f64((double)a.values[i], (double)a.returns[i], INFINITY,
                               (double)a.old_values[i], (double)0.3F, &dvalues[i]) /
                 rows;
        dvalues[i] *= (double)0.4F / rows;
    }
    run_kernel("ppo.loss", &a);
    assert_decisions(&a.decisions, &wide);
    assert_kernel(a.values, dvalues, rows, "of values");
    assert_kernel(a.advantages, advantages, rows, "advantages");
    assert_number(a.numbers->loss, policy + (double)0.4F * value, "loss");
    assert_number(a.numbers->policy_loss, policy, "policy loss");
    assert_number(a.numbers->value_loss, value, "value loss");
    assert_number(a.numbers->entropy, entropy, "entropy");
    assert_number(a.numbers->divergence, divergence, "divergence");
    assert_number(a.numbers->clipped, clipped, "clipped");
    forget_made();
}

static void a_minibatch_of_ppo_is_that_of_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < KERNEL_SIZES; i++) {
        check_ppo_advantages(kernel_sizes[i]);
        for (int kind = 0; kind < ACTION_KINDS; kind++) {
            check_ppo((enum action_kind)kind, kernel_sizes[i], true);
            if (kernel_sizes[i] > 1) /* one row is its own mean */
                check_ppo((enum action_kind)kind, kernel_sizes[i], false);
        }
    }
}

int main(void)
{
    trp_rng_init(&kernel_rng, 23, 0);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(unrolls_are_learned_from_as_in_float64),
        cmocka_unit_test(a_minibatch_of_ppo_is_that_of_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
