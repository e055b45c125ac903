/* Distributions of values: C51's projection by the paper's closed form, QR-DQN's loss by its
 * equation, gradients by finite differences, batches as means of weighted rows. */
#include "loss_tools.h"

enum { ROWS = 6, ACTIONS = 3, ATOMS = 11, WIDTH = ACTIONS * ATOMS };

static const trp_support support = {.atoms = ATOMS, .least = -2, .most = 3};

struct scene {
    trp_q_batch batch;
    float now[ROWS * WIDTH], online[ROWS * WIDTH], target[ROWS * WIDTH];
    float rewards[ROWS], discounts[ROWS], weights[ROWS];
    int32_t taken[ROWS];
    bool mask[ROWS * ACTIONS];
};

static void scene_init(struct scene *s, uint64_t seed)
{
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    *s = (struct scene){.batch = {.rows = ROWS,
                                  .actions = ACTIONS,
                                  .taken = s->taken,
                                  .rewards = s->rewards,
                                  .discounts = s->discounts,
                                  .weights = s->weights,
                                  .next_mask = s->mask}};
    fill_floats(&rng, s->now, ROWS * WIDTH, 1);
    fill_floats(&rng, s->online, ROWS * WIDTH, 1);
    fill_floats(&rng, s->target, ROWS * WIDTH, 1);
    fill_floats(&rng, s->rewards, ROWS, 2);
    for (int i = 0; i < ROWS; i++) {
        s->discounts[i] = i == 0 ? 0 : (float)trp_rng_double(&rng);
        s->weights[i] = 0.1f + (float)trp_rng_double(&rng);
        s->taken[i] = (int32_t)trp_rng_below(&rng, ACTIONS);
        for (int a = 0; a < ACTIONS; a++)
            s->mask[i * ACTIONS + a] = trp_rng_below(&rng, 2);
        s->mask[i * ACTIONS + (int)trp_rng_below(&rng, ACTIONS)] = true;
    }
}

static void softmax(const float *logits, double *p)
{
    double sum = 0;
    for (int i = 0; i < ATOMS; i++)
        sum += p[i] = exp((double)logits[i]);
    for (int i = 0; i < ATOMS; i++)
        p[i] /= sum;
}

static double z(int i)
{
    return -2 + 5.0 * i / (ATOMS - 1);
}

static double c51_mean(const float *logits)
{
    double p[ATOMS], sum = 0;
    softmax(logits, p);
    for (int i = 0; i < ATOMS; i++)
        sum += p[i] * z(i);
    return sum;
}

static double plain_mean(const float *theta)
{
    double sum = 0;
    for (int i = 0; i < ATOMS; i++)
        sum += (double)theta[i] / ATOMS;
    return sum;
}

static int best_by(const struct scene *s, int row, const float *values,
                   double (*mean)(const float *))
{
    int best = -1;
    for (int a = 0; a < ACTIONS; a++)
        if (s->mask[row * ACTIONS + a] &&
            (best < 0 ||
             mean(values + row * WIDTH + a * ATOMS) > mean(values + row * WIDTH + best * ATOMS)))
            best = a;
    return best;
}

/* ---- C51 --------------------------------------------------------------------------------- */

/* Equation 7: sum_j [1 - |[r + d z_j]_least^most - z_i| / gap]_0^1 p_j */
static void projection_is_equation_7(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct scene s;
        float targets[ROWS * ATOMS];
        scene_init(&s, seed);
        trp_c51_targets(&support, &s.batch, s.online, s.target, targets);
        for (int row = 0; row < ROWS; row++) {
            double p[ATOMS];
            softmax(s.target + row * WIDTH + best_by(&s, row, s.online, c51_mean) * ATOMS, p);
            for (int i = 0; i < ATOMS; i++) {
                double want = 0;
                for (int j = 0; j < ATOMS; j++) {
                    double moved = (double)s.rewards[row] + (double)s.discounts[row] * z(j);
                    double away = fabs(fmin(fmax(moved, -2), 3) - z(i)) / (5.0 / (ATOMS - 1));
                    want += p[j] * fmax(0, 1 - away);
                }
                assert_near((double)targets[row * ATOMS + i], want, 1e-5, "target", (size_t)i);
            }
        }
    }
}

static void a_projection_keeps_all_of_the_probability(void **state)
{
    (void)state;
    static const float rewards[] = {-100, -2, 0, 0.5f, 3, 100};
    static const float ones[] = {1, 1, 1, 1, 1, 1};
    struct scene s;
    float targets[ROWS * ATOMS];
    scene_init(&s, 1);
    s.batch.rewards = rewards;
    s.batch.discounts = ones;
    trp_c51_targets(&support, &s.batch, s.online, s.target, targets);
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int i = 0; i < ATOMS; i++)
            sum += (double)targets[row * ATOMS + i];
        assert_near(sum, 1, 1e-6, "sum", (size_t)row);
    }
    assert_near((double)targets[0], 1, 1e-6, "all at the least", 0);
    assert_near((double)targets[ROWS * ATOMS - 1], 1, 1e-6, "all at the most", 0);
}

struct c51_case {
    double row[WIDTH], target[ATOMS];
    uint32_t taken;
};

static double c51_case_loss(void *context)
{
    struct c51_case *c = context;
    double divergence, gradient[WIDTH];
    return c51_row_f64(c->row, ACTIONS, ATOMS, c->taken, c->target, 1, &divergence, gradient);
}

static void gradients_of_c51_are_finite_differences(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct scene s;
        struct c51_case c = {.taken = seed % ACTIONS};
        float targets[ROWS * ATOMS];
        double divergence, gradient[WIDTH], sum = 0;
        scene_init(&s, seed);
        trp_c51_targets(&support, &s.batch, s.online, s.target, targets);
        widen(targets, c.target, ATOMS);
        for (int i = 0; i < ATOMS; i++)
            sum += c.target[i];
        for (int i = 0; i < ATOMS; i++)
            c.target[i] /= sum;
        widen(s.now, c.row, WIDTH);
        c51_row_f64(c.row, ACTIONS, ATOMS, c.taken, c.target, 1, &divergence, gradient);
        assert_gradient(c51_case_loss, &c, c.row, gradient, WIDTH, "dlogits");
    }
}

static void c51_is_the_mean_of_weighted_cross_entropies(void **state)
{
    (void)state;
    struct scene s;
    float targets[ROWS * ATOMS], divergences[ROWS], gradient[ROWS * WIDTH];
    double loss = 0, value = 0;
    scene_init(&s, 3);
    trp_c51_targets(&support, &s.batch, s.online, s.target, targets);
    memcpy(gradient, s.now, sizeof gradient); /* in place */
    trp_loss got = trp_c51_loss(&support, &s.batch, gradient, targets, divergences, gradient);
    for (int row = 0; row < ROWS; row++) {
        const float *logits = s.now + row * WIDTH + s.taken[row] * ATOMS;
        double p[ATOMS], cross = 0, divergence = 0, weight = (double)s.weights[row];
        softmax(logits, p);
        for (int i = 0; i < ATOMS; i++) {
            double m = (double)targets[row * ATOMS + i];
            cross -= m * log(p[i]);
            divergence += m > 0 ? m * log(m / p[i]) : 0;
        }
        for (int i = 0; i < WIDTH; i++) {
            int atom = i - s.taken[row] * ATOMS;
            double want = atom < 0 || atom >= ATOMS
                              ? 0
                              : weight / ROWS * (p[atom] - (double)targets[row * ATOMS + atom]);
            assert_near((double)gradient[row * WIDTH + i], want, 1e-6, "dlogits", (size_t)i);
        }
        assert_near((double)divergences[row], divergence, 1e-5, "divergence", (size_t)row);
        loss += weight * cross / ROWS;
        value += c51_mean(logits) / ROWS;
    }
    assert_near((double)got.loss, loss, 1e-5, "loss", 0);
    assert_near((double)got.value, value, 1e-5, "value", 0);
}

static void values_of_c51_are_expectations(void **state)
{
    (void)state;
    struct scene s;
    float values[ROWS * ACTIONS];
    scene_init(&s, 4);
    trp_c51_values(&support, ROWS * ACTIONS, s.now, values);
    for (size_t i = 0; i < ROWS * ACTIONS; i++)
        assert_near((double)values[i], c51_mean(s.now + i * ATOMS), 1e-5, "value", i);
}

static void logits_far_apart_stay_finite(void **state)
{
    (void)state;
    struct scene s;
    float targets[ROWS * ATOMS], divergences[ROWS], gradient[ROWS * WIDTH];
    scene_init(&s, 5);
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        s.now[i] = s.target[i] = i % 2 ? 1000 : -1000;
    trp_c51_targets(&support, &s.batch, s.online, s.target, targets);
    trp_loss loss = trp_c51_loss(&support, &s.batch, s.now, targets, divergences, gradient);
    assert_true(isfinite(loss.loss));
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        assert_true(isfinite(gradient[i]));
}

/* ---- QR-DQN ------------------------------------------------------------------------------ */

static void quantile_targets_are_those_of_the_best_allowed_action(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct scene s;
        float targets[ROWS * ATOMS];
        scene_init(&s, seed);
        trp_quantile_targets(ATOMS, &s.batch, s.online, s.target, targets);
        for (int row = 0; row < ROWS; row++) {
            const float *theta =
                s.target + row * WIDTH + best_by(&s, row, s.online, plain_mean) * ATOMS;
            for (int i = 0; i < ATOMS; i++)
                assert_near((double)targets[row * ATOMS + i],
                            (double)s.rewards[row] + (double)s.discounts[row] * (double)theta[i],
                            1e-6, "target", (size_t)i);
        }
    }
}

/* Equations 9 and 10: |tau - 1{u < 0}| L_kappa(u), its mean over targets, its sum over quantiles.
 */
static double quantile_equation(const float *theta, const float *targets, double kappa)
{
    double sum = 0;
    for (int i = 0; i < ATOMS; i++)
        for (int j = 0; j < ATOMS; j++) {
            double tau = (2 * i + 1) / (2.0 * ATOMS), u = (double)targets[j] - (double)theta[i];
            double huber = fabs(u) <= kappa ? u * u / 2 : kappa * (fabs(u) - kappa / 2);
            sum += fabs(tau - (u < 0)) * huber / ATOMS;
        }
    return sum;
}

static void quantile_loss_is_equation_10(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct scene s;
        float targets[ROWS * ATOMS], errors[ROWS], gradient[ROWS * WIDTH];
        double loss = 0, value = 0, kappa = seed % 2 ? 1 : 0.3;
        scene_init(&s, seed);
        trp_quantile_targets(ATOMS, &s.batch, s.online, s.target, targets);
        trp_loss got = trp_quantile_loss(ATOMS, &s.batch, seed % 2 ? 0 : 0.3f, s.now, targets,
                                         errors, gradient);
        for (int row = 0; row < ROWS; row++) {
            const float *theta = s.now + row * WIDTH + s.taken[row] * ATOMS;
            loss += (double)s.weights[row] / ROWS *
                    quantile_equation(theta, targets + row * ATOMS, kappa);
            value += plain_mean(theta) / ROWS;
            assert_near((double)errors[row], plain_mean(targets + row * ATOMS) - plain_mean(theta),
                        1e-5, "error", (size_t)row);
        }
        assert_near((double)got.loss, loss, 1e-5, "loss", 0);
        assert_near((double)got.value, value, 1e-5, "value", 0);
    }
}

struct quantile_case {
    double row[WIDTH], targets[ATOMS], kappa;
};

static double quantile_case_loss(void *context)
{
    struct quantile_case *c = context;
    double error, gradient[WIDTH];
    return quantile_row_f64(c->row, ACTIONS, ATOMS, 2, c->targets, c->kappa, 1, &error, gradient);
}

static void gradients_of_quantiles_are_finite_differences(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 8, 0);
    for (int round = 0; round < 20; round++) {
        struct quantile_case c = {.kappa = round % 2 ? 1 : 0.3};
        double error, gradient[WIDTH];
        fill(&rng, c.row, WIDTH, 1);
        fill(&rng, c.targets, ATOMS, 1);
        quantile_row_f64(c.row, ACTIONS, ATOMS, 2, c.targets, c.kappa, 1, &error, gradient);
        assert_gradient(quantile_case_loss, &c, c.row, gradient, WIDTH, "dtheta");
    }
}

static void a_batch_of_quantiles_is_its_weighted_rows(void **state)
{
    (void)state;
    struct scene s;
    float targets[ROWS * ATOMS], errors[ROWS], gradient[ROWS * WIDTH];
    scene_init(&s, 6);
    trp_quantile_targets(ATOMS, &s.batch, s.online, s.target, targets);
    memcpy(gradient, s.now, sizeof gradient); /* in place */
    trp_quantile_loss(ATOMS, &s.batch, 0, gradient, targets, errors, gradient);
    for (size_t row = 0; row < ROWS; row++) {
        double now[WIDTH], wide[ATOMS], want[WIDTH], error;
        widen(s.now + row * WIDTH, now, WIDTH);
        widen(targets + row * ATOMS, wide, ATOMS);
        quantile_row_f64(now, ACTIONS, ATOMS, (uint32_t)s.taken[row], wide, 1,
                         (double)s.weights[row] / ROWS, &error, want);
        for (size_t i = 0; i < WIDTH; i++)
            assert_near((double)gradient[row * WIDTH + i], want[i], 1e-6, "dtheta", i);
    }
}

static void values_of_quantiles_are_means(void **state)
{
    (void)state;
    struct scene s;
    float values[ROWS * ACTIONS];
    scene_init(&s, 7);
    trp_quantile_values(ATOMS, ROWS * ACTIONS, s.now, values);
    for (size_t i = 0; i < ROWS * ACTIONS; i++)
        assert_near((double)values[i], plain_mean(s.now + i * ATOMS), 1e-5, "value", i);
}

static void what_is_not_finite_makes_the_loss_not_finite(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        struct scene s;
        float targets[ROWS * ATOMS], errors[ROWS], gradient[ROWS * WIDTH];
        scene_init(&s, 9);
        s.rewards[2] = bad[i];
        trp_c51_targets(&support, &s.batch, s.online, s.target, targets);
        assert_false(
            isfinite(trp_c51_loss(&support, &s.batch, s.now, targets, errors, gradient).loss));
        trp_quantile_targets(ATOMS, &s.batch, s.online, s.target, targets);
        assert_false(
            isfinite(trp_quantile_loss(ATOMS, &s.batch, 0, s.now, targets, errors, gradient).loss));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(projection_is_equation_7),
        cmocka_unit_test(a_projection_keeps_all_of_the_probability),
        cmocka_unit_test(gradients_of_c51_are_finite_differences),
        cmocka_unit_test(c51_is_the_mean_of_weighted_cross_entropies),
        cmocka_unit_test(values_of_c51_are_expectations),
        cmocka_unit_test(logits_far_apart_stay_finite),
        cmocka_unit_test(quantile_targets_are_those_of_the_best_allowed_action),
        cmocka_unit_test(quantile_loss_is_equation_10),
        cmocka_unit_test(gradients_of_quantiles_are_finite_differences),
        cmocka_unit_test(a_batch_of_quantiles_is_its_weighted_rows),
        cmocka_unit_test(values_of_quantiles_are_means),
        cmocka_unit_test(what_is_not_finite_makes_the_loss_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
