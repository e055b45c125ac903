/* Targets over many steps against their definitions as sums, on random episodes that end by
 * themselves, are cut short, run into the end of a sequence, and are padded; and V-trace against
 * its other form. */
#include "loss_tools.h"

#include <troupe/returns.h>

enum { STEPS = 12, SEQUENCES = 5, ROWS = STEPS * SEQUENCES };

/* A batch, and what its rows are, which nothing is derived from. */
struct scene {
    trp_trajectories batch;
    float rewards[ROWS], discounts[ROWS], values[ROWS], next_values[ROWS], chosen[ROWS];
    float log_ratios[ROWS];
    bool valid[ROWS], first[ROWS];
    bool step[STEPS][SEQUENCES]; /* taken, and it has a next value */
    bool last[STEPS][SEQUENCES]; /* the return ends behind it */
    double next[STEPS][SEQUENCES];
};

static size_t row_of(const struct scene *s, uint32_t t, uint32_t i)
{
    return s->batch.by_sequence ? (size_t)i * STEPS + t : (size_t)t * SEQUENCES + i;
}

/* Episodes with a row for the final observation; the rest of a sequence may be padding. */
static void make_rows(struct scene *s, trp_rng *rng, uint32_t i)
{
    uint32_t left = 0;
    bool begins = true, padding = false;
    for (uint32_t t = 0; t < STEPS; t++) {
        size_t at = row_of(s, t, i);
        if (begins)
            left = 1 + (uint32_t)trp_rng_below(rng, 6);
        s->first[at] = begins && !padding;
        s->valid[at] = left > 0 && !padding;
        s->step[t][i] = s->valid[at] && t + 1 < STEPS;
        s->last[t][i] = left == 1 || t + 2 == STEPS;
        if (left == 1 && trp_rng_below(rng, 2) == 0)
            s->discounts[at] = 0;
        padding = padding || (left == 0 && trp_rng_below(rng, 4) == 0);
        begins = left == 0 && !padding;
        left -= left > 0;
        if (t + 1 < STEPS)
            s->next[t][i] = (double)s->values[row_of(s, t + 1, i)];
    }
}

/* Episodes one behind the other, with the values of their final states beside them. */
static void make_rollout(struct scene *s, trp_rng *rng, uint32_t i)
{
    bool begins = true;
    for (uint32_t t = 0; t < STEPS; t++) {
        size_t at = row_of(s, t, i);
        bool ends = trp_rng_below(rng, 4) == 0;
        s->first[at] = begins;
        s->step[t][i] = true;
        s->last[t][i] = ends || t + 1 == STEPS;
        if (!s->last[t][i])
            s->next_values[at] = s->values[row_of(s, t + 1, i)];
        if (ends && trp_rng_below(rng, 2) == 0)
            s->discounts[at] = 0;
        s->next[t][i] = (double)s->next_values[at];
        begins = ends;
    }
}

static void scene_init(struct scene *s, uint64_t seed, bool by_sequence, bool rollout)
{
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    *s = (struct scene){.batch = {.steps = STEPS,
                                  .sequences = SEQUENCES,
                                  .by_sequence = by_sequence,
                                  .rewards = s->rewards,
                                  .discounts = s->discounts,
                                  .values = s->values,
                                  .next_values = rollout ? s->next_values : NULL,
                                  .valid = rollout ? NULL : s->valid,
                                  .first = s->first}};
    fill_floats(&rng, s->rewards, ROWS, 1);
    fill_floats(&rng, s->values, ROWS, 1);
    fill_floats(&rng, s->next_values, ROWS, 1);
    fill_floats(&rng, s->chosen, ROWS, 1);
    fill_floats(&rng, s->log_ratios, ROWS, 0.7);
    for (uint32_t i = 0; i < ROWS; i++)
        s->discounts[i] = (float)(0.5 + 0.5 * trp_rng_double(&rng));
    for (uint32_t i = 0; i < SEQUENCES; i++)
        if (rollout)
            make_rollout(s, &rng, i);
        else
            make_rows(s, &rng, i);
}

typedef void (*scene_check)(const struct scene *s);

static void on_scenes(scene_check check)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct scene s;
        scene_init(&s, seed, seed & 1, seed & 2);
        check(&s);
    }
}

/* ---- definitions ------------------------------------------------------------------------- */

static double reward(const struct scene *s, uint32_t t, uint32_t i)
{
    return (double)s->rewards[row_of(s, t, i)];
}

static double discount(const struct scene *s, uint32_t t, uint32_t i)
{
    return (double)s->discounts[row_of(s, t, i)];
}

static double value(const struct scene *s, uint32_t t, uint32_t i)
{
    return (double)s->values[row_of(s, t, i)];
}

static uint32_t steps_left(const struct scene *s, uint32_t t, uint32_t i)
{
    uint32_t count = 1;
    while (!s->last[t + count - 1][i])
        count++;
    return count;
}

/* sum_{k<n} (prod_{j<k} d_j) r_k + (prod_{j<n} d_j) V; n <= steps_left() */
static double n_step(const struct scene *s, uint32_t t, uint32_t i, uint32_t n)
{
    double sum = 0, product = 1;
    for (uint32_t k = 0; k < n; k++) {
        sum += product * reward(s, t + k, i);
        product *= discount(s, t + k, i);
    }
    return sum + product * s->next[t + n - 1][i];
}

/* (1 - lambda) sum_{n<N} lambda^{n-1} G^n + lambda^{N-1} G^N */
static double lambda_return(const struct scene *s, uint32_t t, uint32_t i, double lambda)
{
    uint32_t all = steps_left(s, t, i);
    double sum = 0, power = 1;
    for (uint32_t n = 1; n < all; n++, power *= lambda)
        sum += (1 - lambda) * power * n_step(s, t, i, n);
    return sum + power * n_step(s, t, i, all);
}

static double td_error(const struct scene *s, uint32_t t, uint32_t i)
{
    return reward(s, t, i) + discount(s, t, i) * s->next[t][i] - value(s, t, i);
}

/* sum_k (prod_{j<k} d_j lambda) delta_k */
static double gae(const struct scene *s, uint32_t t, uint32_t i, double lambda)
{
    double sum = 0, product = 1;
    for (uint32_t k = 0; k < steps_left(s, t, i); k++) {
        sum += product * td_error(s, t + k, i);
        product *= discount(s, t + k, i) * lambda;
    }
    return sum;
}

static double ratio(const struct scene *s, uint32_t t, uint32_t i)
{
    return exp((double)s->log_ratios[row_of(s, t, i)]);
}

static const trp_vtrace_options bars = {
    .rho_bar = 1.3f, .c_bar = 0.9f, .policy_rho_bar = 1.7f, .lambda = 0.95f};

/* V(x_s) + sum_t (prod_{j<t} d_j c_j) rho_t delta_t: equation 1 */
static double vtrace(const struct scene *s, uint32_t t, uint32_t i)
{
    double sum = value(s, t, i), product = 1;
    for (uint32_t k = 0; k < steps_left(s, t, i); k++) {
        sum += product * fmin((double)bars.rho_bar, ratio(s, t + k, i)) * td_error(s, t + k, i);
        double c = (double)bars.lambda * fmin((double)bars.c_bar, ratio(s, t + k, i));
        product *= discount(s, t + k, i) * c;
    }
    return sum;
}

/* Q + sum_t (prod_{1<=j<=t} d_{j-1} c_j) (r_t + d_t E Q(x_{t+1}, .) - Q(x_t, a_t)): equation 3 */
static double retrace(const struct scene *s, uint32_t t, uint32_t i, double lambda, bool ratios)
{
    double sum = (double)s->chosen[row_of(s, t, i)], product = 1;
    for (uint32_t k = 0; k < steps_left(s, t, i); k++) {
        if (k > 0)
            product *=
                discount(s, t + k - 1, i) * lambda * (ratios ? fmin(1, ratio(s, t + k, i)) : 1);
        double chosen = (double)s->chosen[row_of(s, t + k, i)];
        sum += product * (reward(s, t + k, i) + discount(s, t + k, i) * s->next[t + k][i] - chosen);
    }
    return sum;
}

/* ---- tests ------------------------------------------------------------------------------- */

static void check_n_step(const struct scene *s)
{
    float got[ROWS];
    for (uint32_t n = 1; n < 6; n++) {
        trp_n_step_returns(&s->batch, n, got);
        for (uint32_t t = 0; t < STEPS; t++)
            for (uint32_t i = 0; i < SEQUENCES; i++) {
                uint32_t most = s->step[t][i] ? steps_left(s, t, i) : 0;
                double want = most > 0 ? n_step(s, t, i, n < most ? n : most) : value(s, t, i);
                assert_near((double)got[row_of(s, t, i)], want, 1e-5, "return", t);
            }
    }
}

static void n_step_returns_are_their_sums(void **state)
{
    (void)state;
    on_scenes(check_n_step);
}

static void n_step_returns_may_overwrite_the_values(void **state)
{
    (void)state;
    struct scene s;
    float want[ROWS];
    scene_init(&s, 4, false, false);
    trp_n_step_returns(&s.batch, 3, want);
    trp_n_step_returns(&s.batch, 3, s.values);
    assert_memory_equal(s.values, want, sizeof want);
}

static void check_lambda(const struct scene *s)
{
    float got[ROWS];
    for (int tenths = 0; tenths <= 10; tenths += 5) {
        trp_lambda_returns(&s->batch, (float)tenths / 10, got);
        for (uint32_t t = 0; t < STEPS; t++)
            for (uint32_t i = 0; i < SEQUENCES; i++) {
                double want =
                    s->step[t][i] ? lambda_return(s, t, i, tenths / 10.0) : value(s, t, i);
                assert_near((double)got[row_of(s, t, i)], want, 1e-5, "return", t);
            }
    }
}

static void lambda_returns_are_means_of_n_step_returns(void **state)
{
    (void)state;
    on_scenes(check_lambda);
}

static void check_gae(const struct scene *s)
{
    float got[ROWS], returns[ROWS], lambda[ROWS];
    trp_gae(&s->batch, 0.75f, got, returns);
    trp_lambda_returns(&s->batch, 0.75f, lambda);
    assert_floats(returns, lambda, ROWS, 1e-5, "return");
    for (uint32_t t = 0; t < STEPS; t++)
        for (uint32_t i = 0; i < SEQUENCES; i++)
            assert_near((double)got[row_of(s, t, i)], s->step[t][i] ? gae(s, t, i, 0.75) : 0, 1e-5,
                        "advantage", t);
    trp_gae(&s->batch, 0.75f, lambda, NULL);
    assert_memory_equal(lambda, got, sizeof got);
}

static void advantages_are_sums_of_errors(void **state)
{
    (void)state;
    on_scenes(check_gae);
}

static void check_vtrace(const struct scene *s)
{
    float got[ROWS], advantages[ROWS];
    trp_vtrace(&s->batch, &bars, s->log_ratios, got, advantages);
    for (uint32_t t = 0; t < STEPS; t++)
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            double want = value(s, t, i), advantage = 0;
            if (s->step[t][i]) {
                want = vtrace(s, t, i);
                double next = s->last[t][i] ? s->next[t][i] : vtrace(s, t + 1, i);
                advantage = fmin((double)bars.policy_rho_bar, ratio(s, t, i)) *
                            (reward(s, t, i) + discount(s, t, i) * next - value(s, t, i));
            }
            assert_near((double)got[row_of(s, t, i)], want, 1e-5, "return", t);
            assert_near((double)advantages[row_of(s, t, i)], advantage, 1e-5, "advantage", t);
        }
}

static void vtrace_is_equation_1(void **state)
{
    (void)state;
    on_scenes(check_vtrace);
}

/* v_s = V + delta + d c (v_{s+1} - V_{s+1}): remark 1 */
static void check_remark(const struct scene *s)
{
    float got[ROWS], advantages[ROWS];
    trp_vtrace(&s->batch, &bars, s->log_ratios, got, advantages);
    for (uint32_t t = 0; t < STEPS; t++)
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            if (!s->step[t][i])
                continue;
            double c = (double)bars.lambda * fmin((double)bars.c_bar, ratio(s, t, i));
            double more = s->last[t][i] ? 0 : (double)got[row_of(s, t + 1, i)] - value(s, t + 1, i);
            double want = value(s, t, i) +
                          fmin((double)bars.rho_bar, ratio(s, t, i)) * td_error(s, t, i) +
                          discount(s, t, i) * c * more;
            assert_near((double)got[row_of(s, t, i)], want, 1e-5, "return", t);
        }
}

static void vtrace_is_its_recursion(void **state)
{
    (void)state;
    on_scenes(check_remark);
}

/* On policy, with bars of 1, V-trace is the n-step return (section 4.1). */
static void check_on_policy(const struct scene *s)
{
    float got[ROWS], want[ROWS], advantages[ROWS], log_ratios[ROWS] = {0};
    trp_vtrace(&s->batch, NULL, log_ratios, got, advantages);
    trp_n_step_returns(&s->batch, STEPS, want);
    assert_floats(got, want, ROWS, 1e-5, "return");
}

static void vtrace_on_policy_is_the_n_step_return(void **state)
{
    (void)state;
    on_scenes(check_on_policy);
}

static void check_retrace(const struct scene *s)
{
    float got[ROWS];
    for (int ratios = 0; ratios < 2; ratios++) {
        trp_retrace(&s->batch, 0.8f, s->chosen, ratios ? s->log_ratios : NULL, got);
        for (uint32_t t = 0; t < STEPS; t++)
            for (uint32_t i = 0; i < SEQUENCES; i++) {
                size_t at = row_of(s, t, i);
                double want = s->step[t][i] ? retrace(s, t, i, 0.8, ratios) : (double)s->chosen[at];
                assert_near((double)got[at], want, 1e-5, "return", t);
            }
    }
}

static void retrace_is_equation_3(void **state)
{
    (void)state;
    on_scenes(check_retrace);
}

static void what_is_not_finite_stays_in_the_targets_that_depend_on_it(void **state)
{
    (void)state;
    static const float rewards[3] = {1, NAN, 1}, discounts[3] = {1, 1, 0}, values[3] = {0};
    trp_trajectories batch = {.steps = 3,
                              .sequences = 1,
                              .rewards = rewards,
                              .discounts = discounts,
                              .values = values,
                              .next_values = values};
    float returns[3], advantages[3], log_ratios[3] = {0};
    trp_gae(&batch, 1, advantages, NULL);
    trp_vtrace(&batch, NULL, log_ratios, returns, advantages);
    assert_true(isnan(advantages[0]) && isnan(returns[0]));
    assert_true(isnan(advantages[1]) && isnan(returns[1]));
    assert_float_equal(returns[2], 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(n_step_returns_are_their_sums),
        cmocka_unit_test(n_step_returns_may_overwrite_the_values),
        cmocka_unit_test(lambda_returns_are_means_of_n_step_returns),
        cmocka_unit_test(advantages_are_sums_of_errors),
        cmocka_unit_test(vtrace_is_equation_1),
        cmocka_unit_test(vtrace_is_its_recursion),
        cmocka_unit_test(vtrace_on_policy_is_the_n_step_return),
        cmocka_unit_test(retrace_is_equation_3),
        cmocka_unit_test(what_is_not_finite_stays_in_the_targets_that_depend_on_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
